"""Losses by name or function, class weights, and the scores that go with them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from torch import nn
from toys import refused

import fltnb as fl
from fltnb import metrics, models
from fltnb.training import TrainSpec, losses, make_engine
from fltnb.training.pool import PoolEngine

SHORT = {"rounds": 2, "participation": 1.0, "lr": 0.05, "progress": False}


def tables(targets="values", n_clients=3, n=20, seed=0):
    """Rows of five columns, whose sum is the value, or its sign the class."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_clients * n, 5)).astype(np.float32)
    y = x.sum(axis=1) + 0.1 * rng.normal(size=len(x))
    client_ids = np.repeat(np.arange(n_clients), n)
    if targets == "classes":
        y = (y > 0).astype(int)
    return fl.Federation.from_arrays(x, y, client_ids, targets=targets)


def trained(fed, model, spec, backend="serial", weights=None, **options):
    net = models.shaped(model, fed, losses.n_outputs(fed, spec.loss))
    with make_engine(fed, net, spec, backend, **options) as engine:
        theta = net.init(0)[None]
        rows, clients = [0] * fed.n_clients, range(fed.n_clients)
        done = engine.train(theta, rows, clients, 1, weights)
        return done, engine.evaluate(done.theta, range(fed.n_clients), clients)


def test_losses_by_hand():
    outputs = torch.tensor([[2.0], [-1.0]])
    expected = [np.log(1 + np.exp(-2)), np.log(1 + np.exp(-1))]
    found = losses.losses("binary", outputs, torch.tensor([1, 0]))
    assert np.allclose(found, expected)
    found = losses.losses("squared_error", outputs, torch.tensor([0.0, 1.0]))
    assert found.tolist() == [4.0, 4.0]
    assert losses.predicted(outputs).tolist() == [1, 0]
    assert losses.answered(outputs, torch.tensor([1, 1])) == 1
    assert losses.answered(outputs, torch.tensor([0.0, 1.0])) == 8.0


@pytest.mark.parametrize("model", ["mlp", lambda: nn.Linear(5, 1)], ids=["mlp", "own"])
@pytest.mark.parametrize("loss", ["squared_error", "binary"])
def test_every_network_trains_with_every_loss_alike_in_all_back_ends(model, loss):
    fed = tables("classes" if loss == "binary" else "values")
    spec = TrainSpec(loss=loss, lr=0.05, batch_size=6, local_epochs=2)
    serial, tested = trained(fed, model, spec)
    pool, tested_there = trained(fed, model, spec, "pool", n_workers=2)
    assert np.array_equal(serial.theta, pool.theta)
    assert np.array_equal(serial.loss, pool.loss)
    assert np.allclose(tested.loss, tested_there.loss, rtol=1e-5)
    assert np.array_equal(tested.correct, tested_there.correct)


def test_a_function_of_ones_own_gets_what_the_named_loss_gets():
    def squares(outputs, targets):
        assert outputs.shape == targets.shape
        return (outputs - targets) ** 2

    fed = tables()
    named, tested = trained(fed, "mlp_plain", TrainSpec(loss="squared_error"))
    mean = torch.nn.functional.mse_loss
    for loss in (squares, mean):
        own, tested_so = trained(fed, "mlp_plain", TrainSpec(loss=loss))
        assert np.allclose(own.theta, named.theta, atol=1e-6)
        assert np.allclose(own.loss, named.loss, rtol=1e-5)
        assert np.allclose(tested_so.loss, tested.loss, rtol=1e-5)


def test_a_lambda_reaches_workers_that_are_spawned():
    fed = tables(n_clients=2)
    spec = TrainSpec(loss=lambda outputs, targets: (outputs - targets).abs())
    net = models.shaped(lambda: nn.Linear(5, 1), fed, 1)
    with PoolEngine(fed, net, spec, 1, start_method="spawn") as engine:
        done = engine.train(net.init(0)[None], [0, 0], [0, 1], 1)
    assert np.array_equal(
        done.theta, trained(fed, lambda: nn.Linear(5, 1), spec)[0].theta
    )


@pytest.mark.parametrize("backend", ["serial", "pool", "stacked"])
def test_class_weights_are_factors_on_samples(backend):
    fed = tables("classes")
    factors = np.array([0.5, 2.0])
    each = [factors[fed.labels[index]] for index in fed.train]
    spec = TrainSpec(class_weights=factors, dtype="float64")
    by_class, _ = trained(fed, "mlp", spec, backend)
    by_sample, _ = trained(fed, "mlp", TrainSpec(dtype="float64"), backend, each)
    assert np.array_equal(by_class.theta, by_sample.theta)

    twice, _ = trained(fed, "mlp", spec, backend, each)
    squares = [one**2 for one in each]
    by_squares, _ = trained(fed, "mlp", TrainSpec(dtype="float64"), backend, squares)
    assert np.allclose(twice.theta, by_squares.theta, atol=1e-12)


def test_r2_is_scikit_learns():
    fed = tables()
    run = fl.run(fl.methods.Local(), fed, "mlp", loss="squared_error", **SHORT)
    net = models.shaped("mlp", fed, 1)
    each, pooled = [], []
    for client in range(3):
        x, y = fed.client(client, "test")
        params = net.unflatten(run.theta[run.rows[client]])
        found = net.predict(params, torch.from_numpy(x))[:, 0].numpy()
        each.append(r2_score(y, found))
        pooled.append((y, found))
    last = run.history.query("split == 'test'").iloc[-1]
    assert np.allclose(run.clients["test"], each, atol=1e-5)
    assert run.r2 == last["r2"] == pytest.approx(np.mean(each), abs=1e-5)
    expected = r2_score(*[np.concatenate(part) for part in zip(*pooled, strict=True)])
    assert last["r2_pooled"] == pytest.approx(expected, abs=1e-5)
    scores = run.evaluate(fed)
    assert np.allclose(scores["r2"], [*each, expected], atol=1e-5)
    assert scores.index.tolist() == ["0", "1", "2", "pooled"]
    assert scores["rmse"].iloc[-1] == pytest.approx(last["rmse"], abs=1e-5)
    assert "R2" in repr(run) and run.confusion is None
    refused("has no accuracy: it has run.r2", lambda: run.accuracy)


@pytest.mark.parametrize("loss", ["cross_entropy", "binary"])
def test_scores_of_classes_are_scikit_learns(loss):
    fed = tables("classes")
    run = fl.run(fl.methods.FedAvg(), fed, "mlp_plain", loss=loss, **SHORT)
    net = models.shaped("mlp_plain", fed, losses.n_outputs(fed, loss))
    truth, certain = [], []
    for client in range(3):
        x, y = fed.client(client, "test")
        out = net.predict(net.unflatten(run.theta[0]), torch.from_numpy(x)).numpy()
        truth.append(y)
        certain.append(out[:, 0] if loss == "binary" else out[:, 1] - out[:, 0])
    scores = run.evaluate(fed)
    areas = [roc_auc_score(*pair) for pair in zip(truth, certain, strict=True)]
    assert np.allclose(scores["auc"].iloc[:3], areas)
    y, s = np.concatenate(truth), np.concatenate(certain)
    assert scores["auc"].iloc[3] == pytest.approx(roc_auc_score(y, s))
    assert scores["f1"].iloc[3] == pytest.approx(100 * f1_score(y, s > 0))
    assert scores["accuracy"].iloc[:3].mean() == pytest.approx(run.accuracy)
    assert np.array_equal(run.confusion.sum(axis=(1, 2)), [len(one) for one in truth])


def test_other_classes_than_those_of_the_training_are_refused():
    values, fed = tables(), tables("classes")
    numbers = fl.run(fl.methods.FedAvg(), values, "mlp", loss="squared_error", **SHORT)
    run = fl.run(fl.methods.FedAvg(), fed, "mlp", **SHORT)
    refused("has numbers to predict: give one", run.evaluate, values)
    refused("has the classes 0, 1: give one", numbers.evaluate, fed)
    turned = replace(fed, class_names=("1", "0"))
    refused("classes 0, 1, the federation has the classes 1, 0", run.evaluate, turned)
    more = replace(fed, n_classes=3, class_names=("0", "1", "2"))
    refused("classes 0, 1, 2", run.evaluate, more)
    wide = fl.run(fl.methods.FedAvg(), more, "mlp", **SHORT)
    assert wide.evaluate(fed)["samples"].equals(run.evaluate(fed)["samples"])
    given = (numbers.model, numbers.theta, numbers.rows, values)
    refused("no classes to confuse", fl.rounds.confusion, *given)


def test_scores_that_are_not_defined_are_nan():
    outputs = np.array([[3.0, 1.0, 0.0], [2.0, 0.0, 1.0]])
    one_class = metrics.class_scores(np.array([0, 0]), outputs)
    assert one_class["accuracy"] == one_class["f1"] == 100
    assert np.isnan(one_class["auc"])
    assert np.isnan(metrics.value_scores(np.ones(2), outputs[:, :1])["r2"])
    three = metrics.class_scores(np.array([0, 1]), outputs)
    assert three["auc"] == 0.5  # class 0: 1, class 1: 0; class 2 is not there


def wrong(says, fed, model="mlp", **options):
    refused(says, fl.rounds.check, fl.methods.FedAvg(), fed, model, **options)


def test_losses_and_targets_that_do_not_go_together_are_refused():
    values, classes = tables(), tables("classes")
    wrong("needs classes: give loss='squared_error'", values)
    wrong("'binary' needs classes", values, loss="binary")
    wrong("needs numbers to predict", classes, loss="squared_error")
    wrong("Unknown loss 'hinge'", classes, loss="hinge")
    wrong("give one for each class", classes, class_weights=[1, 2, 3])
    wrong("number of at least 0 for each class", classes, class_weights=[1, -2])
    wrong("leave class_weights out", values, loss="squared_error", class_weights=[1])
    wrong("must return one number", classes, loss=lambda outputs, targets: outputs)
    wrong("cannot take outputs", classes, loss=lambda outputs: outputs)
    wrong("has 2 outputs where 1", values, nn.Linear(5, 2), loss="squared_error")
    method = fl.methods.FedEM(2)
    refused(
        "class probabilities", fl.rounds.check, method, classes, "mlp", loss="binary"
    )


def test_a_loss_is_part_of_the_key_and_plain_cross_entropy_is_not():
    fed = tables("classes")
    method = fl.methods.FedAvg()
    options = SHORT | {"rounds": 1}
    plain = fl.run(method, fed, **options).settings
    assert "loss" not in plain and "class_weights" not in plain
    weighed = fl.run(method, fed, class_weights=(1, 2), **options).settings
    assert weighed == plain | {"class_weights": [1.0, 2.0]}
    keys = [
        fl.run(method, fed, loss=loss, **options).settings["loss"]["code"]
        for loss in (
            lambda outputs, targets: nn.functional.cross_entropy(outputs, targets),
            lambda outputs, targets: 2 * nn.functional.cross_entropy(outputs, targets),
        )
    ]
    assert keys[0] != keys[1]


def test_a_loss_that_is_an_object_has_the_same_name_in_every_process():
    class Twice:
        def __call__(self, outputs, targets):
            return 2 * nn.functional.cross_entropy(outputs, targets)

    names = {losses.repr_of(Twice()) for _ in range(3)}
    assert len(names) == 1 and names.pop().endswith("Twice")


@pytest.mark.parametrize("loss", ["binary", "squared_error"])
def test_a_run_with_one_output_is_saved_and_predicts(loss, tmp_path):
    fed = tables("classes" if loss == "binary" else "values")
    run = fl.run(fl.methods.FedAvg(), fed, "mlp_plain", loss=loss, **SHORT)
    run.save(tmp_path / "run")
    x, y = fed.images[fed.test[0]], fed.labels[fed.test[0]]
    found = fl.Run.load(tmp_path / "run").predict(x)
    if loss == "binary":
        assert 100 * (found == y).mean() == run.clients["test"][0]
    else:
        assert r2_score(y, found) == pytest.approx(run.clients["test"][0], abs=1e-5)


def test_a_mean_cannot_be_weighted_and_is_refused_in_every_back_end():
    fed, mean = tables("classes"), nn.functional.cross_entropy
    given = (fed, "mlp_plain", TrainSpec(loss=mean))
    weights = [np.ones(len(index)) for index in fed.train]
    for backend in ("serial", "pool", "stacked"):
        refused("loss returns a mean", trained, *given, backend, weights)
    refused("loss returns a mean", trained, *given, "pool", weights, n_workers=2)
    spec = TrainSpec(loss=mean, class_weights=[1, 2])
    refused("loss returns a mean", losses.check, fed, spec)  # before any training


class Scaled:
    """An object that is called, with a number that changes the loss."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, outputs, targets):
        return self.factor * nn.functional.cross_entropy(outputs, targets)

    loss = __call__


def test_losses_with_other_values_are_other_losses():
    """Else the stored result of one would be returned for the other."""

    def made():
        smoothed = {"reduction": "none", "label_smoothing": 0.3}
        plain, function = nn.CrossEntropyLoss, nn.functional.cross_entropy
        yield from (plain(), plain(label_smoothing=0.3), plain(torch.tensor([1.0, 2])))
        yield from (partial(function, weight=torch.ones(2)), partial(function))
        yield from (partial(function, weight=torch.zeros(2)), Scaled(2.0), Scaled(3.0))
        yield from (partial(function, **smoothed), Scaled(2.0).loss, Scaled(3.0).loss)

    found = [losses.settings(TrainSpec(loss=loss))["loss"] for loss in made()]
    assert found == [losses.settings(TrainSpec(loss=loss))["loss"] for loss in made()]
    assert len({str(one) for one in found}) == len(found)
    assert not any("0x" in one["function"] for one in found)  # no address


@pytest.mark.parametrize("weights", ["balanced", {0: 1.0, 1: 2.0}, [1, -1], []])
def test_class_weights_are_a_list_of_numbers(weights):
    refused("class_weights must be a list", TrainSpec, class_weights=weights)
