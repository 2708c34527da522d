"""Several runs train in one stack, and each gives what it gives alone."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_step import CASES
from test_training import FLAVOURS, RAGGED, make_fed, start
from toys import clustering, refused, training

import fltnb as fl
from fltnb import course, models, rounds
from fltnb.experiments import compute, finished, prepare
from fltnb.experiments import train as train_module
from fltnb.rounds import run_together
from fltnb.training import (
    TrainSpec,
    make_engine,
    make_engines,
    stacks,
    train_together,
)

# Of every run: samples of its clients, seed, learning rate, and who takes part.
RUNS = (
    (RAGGED[:6], 3, 0.05, [3, 0, 2, 4, 1, 5]),
    ((12, 31, 2), 4, 0.02, [2, 1]),
    (RAGGED[3:8], 5, 0.1, [0, 4, 2]),
)


def runs_of(name, shape, flavour, **options):
    """Federations, networks and local training of three runs."""
    feds = [make_fed(sizes, shape, seed=seed) for sizes, seed, *_ in RUNS]
    nets = [models.make(name, fed.input_shape, 4) for fed in feds]
    options = {"dtype": "float64", "local_epochs": 2} | FLAVOURS[flavour] | options
    specs = [TrainSpec(seed=seed, lr=lr, **options) for _, seed, lr, _ in RUNS]
    return feds, nets, specs


def asked_of(k, engine, round=7):
    """What run k asks its engine for; the first one weighs its samples."""
    clients = RUNS[k][3]
    theta = start(engine.model, dtype=engine.spec.dtype)
    rows = [j % 2 for j in range(len(clients))]
    weights = None
    if k == 0:
        weights = [np.linspace(0.5, 1.5, len(engine.fed.train[i])) for i in clients]
    return engine, (theta, rows, clients, round + k, weights)


def one_by_one(backend, feds, nets, specs):
    found = []
    for k, run in enumerate(zip(feds, nets, specs, strict=True)):
        with make_engine(*run, backend, "cpu") as engine:
            found.append(engine.train(*asked_of(k, engine)[1]))
    return found


def together(feds, nets, specs):
    engines = make_engines(list(zip(feds, nets, specs, strict=True)), "stacked", "cpu")
    assert len({id(engine.stacks) for engine in engines}) == 1
    return train_together([asked_of(k, one) for k, one in enumerate(engines)])


def gap(found, wanted):
    """The largest difference of models and losses."""
    pairs = list(zip(found, wanted, strict=True))
    models = [np.abs(one.theta - other.theta).max() for one, other in pairs]
    losses = [np.abs(one.loss - other.loss).max() for one, other in pairs]
    return max(models + losses)


@pytest.mark.parametrize(("name", "shape", "flavour"), CASES)
def test_runs_that_train_together_train_as_alone(name, shape, flavour):
    runs = runs_of(name, shape, flavour)
    assert len({stacks.alike(*run) for run in zip(*runs, strict=True)}) == 1
    found = together(*runs)
    assert gap(found, one_by_one("stacked", *runs)) < 1e-13
    assert gap(found, one_by_one("serial", *runs)) < 1e-10


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_learning_rates_of_their_own_whatever_the_rule_of_the_step(flavour):
    runs = runs_of("mlp", (3, 3), flavour)
    assert gap(together(*runs), one_by_one("serial", *runs)) < 1e-10


def test_memory_for_two_clients_makes_no_difference(monkeypatch):
    runs = runs_of("mlp", (4, 4), "everything")
    whole = together(*runs)
    monkeypatch.setattr(stacks.Training, "_most", lambda training: 2)
    assert gap(together(*runs), whole) < 1e-13


FED = {"classes_per_cluster": 2, "samples_per_client": 30}
SETTING = {"model": "mlp", "rounds": 3, "participation": 0.5, "local_epochs": 2}
SETTING |= {"batch_size": 8, "progress": False, "dtype": "float64"}


def federation(seed):
    digits = fl.load("digits")
    return fl.federations.label_clusters(digits, 6, 2, seed=seed, **FED)


def call(method, seed, lr=0.05, **options):
    own = {"method": method, "fed": federation(seed), "seed": seed, "lr": lr}
    return SETTING | own | options


def check_same(found, wanted):
    """Both runs have the same history, models and clusters."""
    assert found.settings == wanted.settings and found.stopped == wanted.stopped
    assert np.abs(found.theta - wanted.theta).max() < 1e-10
    assert np.array_equal(found.rows, wanted.rows)
    for name in ("round", "split", "accuracy", "worst", "bytes_up"):
        assert found.history[name].equals(wanted.history[name]), name
    assert np.allclose(found.history["loss"], wanted.history["loss"], atol=1e-10)


METHODS = {
    "averaging": lambda: fl.methods.FedAvg(),
    "tests before it trains": lambda: fl.methods.IFCA(n_clusters=2),
    "a proximal term": lambda: fl.methods.FedProx(mu=0.3),
    "all models": lambda: fl.methods.FeSEM(n_clusters=2),
    "a pull by client": lambda: fl.methods.FeSEM(n_clusters=2, alpha="samples"),
    "trains twice, its own way": lambda: fl.methods.Ditto(),
}


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_seeds_together_are_the_seeds_one_by_one(make):
    calls = [call(make(), 0), call(make(), 1, lr=0.1), call(make(), 2, rounds=2)]
    found = dict(run_together(calls, "stacked", "cpu"))
    assert sorted(found) == [0, 1, 2]
    for k, given in enumerate(calls):
        check_same(found[k], fl.run(**given, backend="serial", device="cpu"))


@pytest.fixture
def sizes(monkeypatch):
    """Number of clients in each stack that trains."""
    sizes = []
    train = stacks.Training.train

    def counted(training, jobs, done):
        sizes.append(len(jobs))
        train(training, jobs, done)

    monkeypatch.setattr(stacks.Training, "train", counted)
    return sizes


def test_what_trains_as_all_do_goes_together_and_what_does_not_by_itself(sizes):
    class Twice(fl.methods.FeSEM):
        def train(self, state, clients, round, engine):
            return super().train(state, clients, round, engine)

    plain = [call(fl.methods.FeSEM(2), seed, rounds=1) for seed in (0, 1)]
    dict(run_together(plain, "stacked", "cpu"))
    assert sizes == [6]

    sizes.clear()
    own = [call(Twice(2), 0, rounds=1), call(fl.methods.Ditto(), 1, rounds=1)]
    dict(run_together(own, "stacked", "cpu"))
    assert max(sizes) == 3

    sizes.clear()
    pulled = call(fl.methods.FeSEM(2, alpha="samples"), 0, rounds=1)
    dict(run_together([pulled], "stacked", "cpu"))
    assert sizes == [1, 1, 1]


def test_different_methods_go_together_and_other_networks_one_by_one(sizes):
    calls = [call(fl.methods.FedAvg(), 0), call(fl.methods.IFCA(n_clusters=2), 1)]
    found = dict(run_together(calls, "stacked", "cpu"))
    assert sizes == [6, 6, 6]
    for k, given in enumerate(calls):
        check_same(found[k], fl.run(**given, backend="serial", device="cpu"))

    calls[1]["model"] = "mlp32"
    sizes.clear()
    found = dict(run_together(calls, "stacked", "cpu"))
    assert sizes == [3] * 6
    check_same(found[1], fl.run(**calls[1], backend="serial", device="cpu"))


def test_one_that_diverges_does_not_disturb_the_others():
    bad = call(fl.methods.FedAvg(), 1, lr=1e200)
    calls = [call(fl.methods.FedAvg(), 0), bad, call(fl.methods.FedAvg(), 2)]
    ended = list(run_together(calls, "stacked", "cpu"))
    assert [k for k, _ in ended] == [1, 0, 2]
    found = dict(ended)
    with pytest.raises(rounds.DivergedError) as alone:
        fl.run(**bad, backend="serial", device="cpu")
    assert "Training stopped at round" in found[1].stopped
    check_same(found[1], alone.value.run)
    for k in (0, 2):
        check_same(found[k], fl.run(**calls[k], backend="serial", device="cpu"))


def test_a_stopped_one_goes_on_beside_one_that_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("fltnb.checkpoint.SECONDS", 0.0)
    file = tmp_path / "run.npz"
    method = fl.methods.IFCA(n_clusters=2)
    calls = [call(method, 0, checkpoint=file), call(method, 1)]

    def stops(round, *others):
        if round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_together([calls[0] | {"watch": stops}, calls[1]], "stacked", "cpu"))
    assert file.exists()
    ended = list(run_together(calls, "stacked", "cpu"))
    assert [k for k, _ in ended] == [0, 1]  # it has fewer rounds to go
    for k, run in ended:
        given = calls[k] | {"checkpoint": None}
        check_same(run, fl.run(**given, backend="serial", device="cpu"))


def test_a_federation_that_changes_is_refused():
    fed = fl.federations.with_events(federation(0), [{"round": 2, "drift": 2}])
    given = call(fl.methods.FedAvg(), 0) | {"fed": fed}
    refused(
        "run_together cannot run a federation that changes", list, run_together([given])
    )


def test_arguments_that_no_run_has_and_errors_about_a_client_are_told():
    given = call(fl.methods.FedAvg(), 0)
    wrong = run_together([given | {"roundz": 3}])
    refused("Unknown option of a run 'roundz'", list, wrong)
    refused("A run needs fed", list, run_together([{"method": fl.methods.FedAvg()}]))

    class Refusing(fl.methods.FedAvg):
        def collect(self, state, clients, theta, round):
            raise fl.FltnbError("Client 1 is refused: leave it out.")

    named = replace(given["fed"], names=[f"town {k}" for k in range(6)])
    together = run_together([given | {"method": Refusing(), "fed": named}])
    refused("Client town 1 is refused", list, together)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def groups(monkeypatch):
    """The sizes of the groups that train together."""
    sizes = []
    run = train_module.run_together

    def counted(calls, *place):
        sizes.append(len(calls))
        return run(calls, *place)

    monkeypatch.setattr(train_module, "run_together", counted)
    return sizes


def row(method="fedavg", seed=0, model="mlp", rounds=3, **options):
    """A training whose federation has the seed as well."""
    fed = {"kind": "label_clusters", "dataset": "digits", "n_clients": 6} | FED
    fed |= {"n_clusters": 2, "seed": seed}
    options = {"participation": 0.5, "local_epochs": 2, "keep": ("models",)} | options
    method = {"name": method} if isinstance(method, str) else method
    return training(fed, method, model, rounds, seed=seed, **options)


def check_equal(found, wanted):
    """Both are the same result but for time and rounding."""
    assert (found.key, found.record["id"]) == (wanted.key, wanted.record["id"])
    assert found.record["settings"] == wanted.record["settings"]
    np.testing.assert_allclose(
        found.arrays["models"], wanted.arrays["models"], atol=1e-5
    )
    assert found.numbers["accuracy"] == wanted.numbers["accuracy"]
    assert found.curves["round"].equals(wanted.curves["round"])


def test_a_grid_trains_together_what_may(store, groups):
    rows = [row(seed=seed) for seed in range(3)] + [row(lr=0.1), row("oracle")]
    rows += [row(model="mlp32"), row(batch_size=5), row(batch_size=5, seed=1)]
    found = compute(rows, backend="stacked", progress=False)
    assert groups == [5, 2]
    together = [one.record["provenance"].get("together") for one in found]
    assert together == [5, 5, 5, 5, 5, None, 2, 2]
    for k in (0, 3, 4, 7):
        alone = compute([rows[k]], backend="serial", fresh=True, progress=False)[0]
        assert "together" not in alone.record["provenance"]
        check_equal(found[k], alone)
    usual = compute(rows[:3], fresh=True, progress=False, device="cpu")
    assert groups == [5, 2]  # a processor's own back end does not stack
    check_equal(found[1], usual[1])


def test_each_is_stored_as_it_ends_and_the_rest_goes_on(store, groups, monkeypatch):
    monkeypatch.setattr("fltnb.checkpoint.SECONDS", 0.0)
    ifca = {"name": "ifca", "n_clusters": 2}
    rows = [row(ifca, rounds=1)]
    rows += [row(ifca, seed=1, lr=1e18), row(ifca, 2), row(ifca, 3)]
    keys = [prepare(one).key for one in rows]
    enter = course.Course.enter

    def dies(this, round):
        if round == 3:
            raise KeyboardInterrupt
        enter(this, round)

    with monkeypatch.context() as patch:
        patch.setattr(course.Course, "enter", dies)
        with pytest.raises(KeyboardInterrupt):
            compute(rows, backend="stacked", progress=False)
    there = [finished.store_path(key).exists() for key in keys]
    begun = [train_module.checkpoint_path(key).exists() for key in keys]
    assert (there, begun) == ([True, True, False, False], [False, False, True, True])

    with pytest.warns(UserWarning, match="not finite"):
        found = compute(rows, backend="stacked", progress=False)
    assert groups == [4, 2]
    assert found[1].numbers["stopped"] and not found[0].numbers["stopped"]
    assert not list((store / "jobs").glob("*checkpoint*"))
    for k in (0, 2, 3):
        alone = compute([rows[k]], backend="serial", fresh=True, progress=False)[0]
        check_equal(found[k], alone)


def test_equal_graphs_of_a_group_are_trained_once(store, groups):
    # each client has all classes: one cluster, whoever finds it
    clusterer = {"name": "EigenRelevance", "n_clusters": 2}
    flt = {"name": "flt_pixels", "kind": "FLT", "clusterer": clusterer}
    fed = {"kind": "rotated_copies", "dataset": "digits", "n_clients": 6}
    fed |= {"angles": [[0], [180]]}
    rows = [training(fed, method, "mlp32", 2) for method in ({"name": "oracle"}, flt)]
    oracle, found = compute(rows, backend="stacked", progress=False)
    assert groups == [1] and found.numbers["ari"] == 1
    trained_as = [one.record["provenance"].get("trained_as") for one in (oracle, found)]
    assert len([one for one in trained_as if one]) == 1
    assert oracle.numbers["accuracy"] == found.numbers["accuracy"]


def test_a_group_whose_graph_is_trained_already_does_not_wait_for_itself(
    store, monkeypatch
):
    held = []

    @contextmanager
    def alone(key):
        assert key not in held, "this process would wait for itself"
        held.append(key)
        with finished.alone(key):
            yield
        held.remove(key)

    monkeypatch.setattr(train_module, "alone", alone)
    fed = {"kind": "rotated_copies", "dataset": "digits", "n_clients": 6}
    fed |= {"angles": [[0], [180]]}
    flt = {"name": "flt_pixels", "kind": "FLT"}
    methods = [{"name": "oracle"}]
    for name in ("EigenRelevance", "PACFL"):
        methods.append(flt | {"clusterer": {"name": name, "n_clusters": 2}})
    rows = [training(fed, method, "mlp32", 1) for method in methods]
    how = {"backend": "stacked", "device": "cpu", "progress": False}
    (oracle,) = compute(rows[:1], **how)
    for one in compute(rows[1:], **how):  # two of one graph, which is stored
        assert one.numbers["accuracy"] == oracle.numbers["accuracy"]
        assert one.record["provenance"]["trained_as"]
    assert not list(run_together([]))


def test_there_are_fewer_in_a_group_where_memory_is_short(store, groups, monkeypatch):
    rows = [row(seed=seed, rounds=1) for seed in range(3)]
    monkeypatch.setattr(train_module, "TOGETHER", 2)
    compute(rows, backend="stacked", progress=False)
    assert groups == [2]
    feds = [federation(0), replace(federation(0), images=federation(0).images.copy())]
    cpu = torch.device("cpu")
    assert stacks.fitting(feds, cpu) == 2
    monkeypatch.setattr(stacks, "CPU_BYTES", feds[0].images.nbytes)
    assert stacks.fitting(feds, cpu) == 1 and stacks.fitting(feds[:1] * 3, cpu) == 3


def test_a_device_that_is_not_there_is_refused_before_anything_is_computed(store):
    if torch.cuda.is_available():
        pytest.skip("it is there")
    fed = {"kind": "label_clusters", "dataset": "digits", "n_clients": 6} | FED
    clusterer = {"name": "EigenRelevance", "n_clusters": 2}
    first = clustering(fed | {"n_clusters": 2}, clusterer, {"kind": "pixels"})
    given = {"device": "cuda", "progress": False}
    sentence = "There is no usable GPU for device 'cuda'"
    refused(sentence, compute, [first, row()], **given)
    assert not list((store / "jobs").glob("*"))
