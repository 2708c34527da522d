"""Notebook 14: distances after one local training, where epsilon works, Tables 4, 5 and
9, and the cost benchmark.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import distances, refused

import fltnb as fl
from benchmarks import methods as cost
from fltnb import models
from fltnb.analyses import emdcfl_robustness as study
from fltnb.experiments import compute
from fltnb.methods import ownmodels
from fltnb.methods.emdcfl import penultimate
from fltnb.methods.ownmodels import local_models, measure, pair_numbers, plateau
from fltnb.metrics import adjusted_rand_index

DIGITS = {
    "kind": "rotated_copies",
    "dataset": "digits",
    "n_clients": 4,
    "angles": [[0], [90]],
    "seed": 0,
}
DIGITS |= {"samples_per_client": 50, "test_per_client": 20}
TRAINING = {
    "local_epochs": 1,
    "batch_size": 10,
    "lr": 0.05,
    "momentum": 0.9,
    "weight_decay": 0.0,
}


@pytest.fixture(scope="module")
def trained():
    fed = fl.federations.build(DIGITS)
    return fed, *local_models(fed, "mlp32", TRAINING)


def test_plateau_by_hand():
    far = np.array([[0, 1, 5, 6], [1, 0, 7, 8], [5, 7, 0, 2], [6, 8, 2, 0.0]])
    assert plateau(far, np.array([0, 0, 1, 1])) == (2, 5)
    assert plateau(far, np.zeros(4, dtype=int)) == (8, np.inf)
    assert plateau(far, np.arange(4)) == (0, 1)
    low, high = plateau(far, np.array([0, 1, 0, 1]))
    assert low == 8 and high == 1 and low >= high  # none


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(0, 10_000))
def test_plateau_against_trying_every_tolerance(count, seed):
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, 3, count)
    far = rng.integers(1, 6, (count, count)).astype(float) + 3 * (
        clusters[:, None] != clusters
    )
    far = np.maximum(far, far.T)
    np.fill_diagonal(far, 0)
    low, high = plateau(far, clusters)
    tried = np.arange(0.5, 12)  # between the whole numbers that distances are
    found = [
        fl.EMDClustering(tolerance=e).connect(far, np.ones(count))[1] for e in tried
    ]
    works = np.array([adjusted_rand_index(clusters, labels) == 1 for labels in found])
    assert works.any() == (low < high)
    assert works[(low < tried) & (tried <= high)].all()


def test_parameters_and_updates_by_hand(trained):
    fed, net, start, _ = trained
    theta = np.repeat(start[None], 4, axis=0)
    theta[1, :2] += (3, 4)  # in the first layer
    theta[2, -1] += 2  # a bias of the last one
    theta[3, 0] -= 1
    expected = np.array(
        [
            [0, 5, 2, 1],
            [5, 0, 29**0.5, 32**0.5],
            [2, 29**0.5, 0, 5**0.5],
            [1, 32**0.5, 5**0.5, 0],
        ]
    )

    def matrix(name):
        found, reference = measure(fed, net, start, theta, {"name": name})
        assert np.isnan(reference).all()
        return found

    np.testing.assert_allclose(matrix("parameters"), expected, atol=1e-5)
    last = np.zeros((4, 4))
    last[2] = last[:, 2] = [2, 2, 0, 2]
    np.testing.assert_allclose(matrix("last layer"), last, atol=1e-6)
    np.testing.assert_allclose(
        matrix("updates")[1, [2, 3]], [1, 1.6], atol=1e-5
    )  # at right angles; cosine -3 / 5


def test_angles_are_those_of_pacfl(trained):
    fed, net, start, theta = trained
    found, _ = measure(fed, net, start, theta, {"name": "angles"})
    own = [fed.images[index].reshape(len(index), -1) / 255 for index in fed.train]
    np.testing.assert_allclose(
        found,
        fl.PACFL().fit(own, [fed.labels[i] for i in fed.train]).distance_,
        atol=1e-3,
    )


def test_embedding_distances_are_those_of_a_fit(trained):
    fed, net, start, theta = trained
    how = {"name": "EMDClustering", "projection": 0.5}
    found, reference = measure(fed, net, start, theta, how, seed=3)

    def seen(i, split, j):
        return penultimate(net, theta[i], fed.client(j, split)[0])

    fitted = fl.EMDClustering(projection=0.5, random_state=3).fit(
        [seen(i, "train", i) for i in range(4)],
        lambda i: [seen(i, "val", j) for j in range(4)],
    )
    np.testing.assert_allclose(found, fitted.distance_, atol=1e-5)
    np.testing.assert_allclose(reference, fitted.reference_, atol=1e-5)


def test_local_models_are_the_first_round_of_the_method(trained):
    """What EMD-CFL itself sees after round 1, so that the study is about the method."""
    fed, _, _, theta = trained
    method = fl.methods.EMDCFL(fl.EMDClustering(tolerance=0))  # everybody stays alone
    run = fl.run(
        method,
        fed,
        model="mlp32",
        rounds=1,
        participation=1.0,
        progress=False,
        **TRAINING,
    )
    np.testing.assert_allclose(run.theta[run.rows], theta, atol=1e-6)
    refused(
        "client 0 diverged: choose a smaller lr",
        local_models,
        fed,
        "mlp32",
        TRAINING | {"lr": 1e20},
    )


@pytest.mark.usefixtures("own_store")
def test_models_are_trained_once_and_matrices_kept(monkeypatch):
    calls, train = [], local_models
    monkeypatch.setattr(
        ownmodels, "local_models", lambda *a, **b: calls.append(a) or train(*a, **b)
    )
    wanted = [{"name": "EMDClustering"}, {"name": "last layer"}, {"name": "parameters"}]
    first = compute(
        [distances(DIGITS, "mlp32", TRAINING, how) for how in wanted],
        progress=False,
    )
    assert len(calls) == 1 and all(one.numbers["training_seconds"] > 0 for one in first)
    held = first[0].arrays
    assert (
        held["distance"].shape == (4, 4)
        and held["ari_at"].shape == ownmodels.TOLERANCES.shape
    )
    there = held["ari_at"][ownmodels.TOLERANCES == 0.025].item()
    assert (
        there == pytest.approx(first[0].numbers["ari"])
        and "ari_at" not in first[1].arrays
    )
    table = study.table9(DIGITS, "mlp32", 0, **TRAINING)["tables"][
        "printed"
    ]  # of the same matrices
    every = first[2].arrays["distance"][~np.eye(4, dtype=bool)].mean()
    assert len(calls) == 1 and table.query("scope == 'overall'")["value"].iloc[
        1
    ] == pytest.approx(every)


EMD = np.array([[0, 0.01, 0.3], [0.02, 0, 0.4], [0.2, 0.3, 0]])
PARAMETERS = np.array([[0, 1, 4], [1, 0, 5], [4, 5, 0]])


def test_numbers_of_matrices_by_hand():
    found = pair_numbers(EMD, np.full(3, 0.1), np.array([0, 0, 1]))
    assert (found["inside"], found["inside_max"], found["across_min"]) == (
        0.02,
        0.02,
        0.3,
    )
    assert (found["low"], found["high"], found["ari"], found["ari_told"]) == (
        0.02,
        0.3,
        1.0,
        1.0,
    )
    assert found["across"] == pytest.approx(0.35) and found[
        "reference_mean"
    ] == pytest.approx(0.1)
    curve = ownmodels.ari_at(EMD, np.full(3, 0.1), np.array([0, 0, 1]))
    works = ownmodels.TOLERANCES[curve == 1]
    assert 0.025 in works and works.min() > 0.02 and works.max() <= 0.3
    assert (curve[ownmodels.TOLERANCES > 0.4] == 0).all()
    other = pair_numbers(PARAMETERS, np.full(3, np.nan), np.array([0, 0, 1]))
    assert (other["inside"], other["across"], other["low"], other["high"]) == (
        1,
        4.5,
        1,
        4,
    ) and "ari" not in other

    found = pair_numbers(EMD, np.full(3, 0.1), np.zeros(3, dtype=int))
    assert "across" not in found and np.isinf(found["high"]) and found["low"] == 0.4


def test_tables_4_5_and_9_by_hand(monkeypatch):
    each = {"EMDClustering": EMD, "parameters": PARAMETERS}
    each["last layer"] = PARAMETERS / 2
    fed = SimpleNamespace(clusters=np.array([0, 0, 1]))
    monkeypatch.setattr(study.federations, "build", lambda settings: fed)
    monkeypatch.setattr(study, "local_models", lambda *_: ())
    monkeypatch.setattr(study, "measure", lambda _, how, seed: (each[how["name"]], 0))
    found = study.table9({}, "mlp", 0)
    value = found["tables"]["printed"].set_index(["parameters", "scope"])["value"]
    assert found["numbers"] == {"n_clusters": 2, "ari": 1.0}
    assert value["full_model", "clusters"] == value["full_model", "true"] == 1
    assert value["hypothesis", "clusters"] == 0.5
    assert value["full_model", "overall"] == pytest.approx(10 / 3)

    took = {"oracle": 3600.0, "emdcfl": 4320.0}
    done = lambda method, *_, **__: SimpleNamespace(seconds=took[method.name])  # noqa: E731
    monkeypatch.setattr(study, "run", done)
    found = study.table4(DIGITS, "mlp", rounds=1, batch_size=1)
    assert found["tables"]["printed"]["value"].tolist() == [1, 1.2] and found[
        "numbers"
    ]["ratio"] == pytest.approx(1.2)

    row = study.table5({"simple_cnn": "emdcfl_cnn"})["tables"]["printed"].iloc[0]
    printed = fl.papers.numbers("emdcfl", "T5", metric="embedding_dim").set_index(
        "model"
    )["number"]
    assert row["value"] == printed["simple_cnn"] == 128 and set(study.NETWORKS) == set(
        printed.index
    )


def test_cost_of_one_method_and_of_none(capsys):
    row = cost.measure("fedavg", 2, DIGITS)
    net = models.make(cost.MODEL, (1, 8, 8), 10)
    assert row["kilobytes"] == pytest.approx(
        2 * 4 * net.n_parameters / 1000
    )  # down and up, every client
    assert (
        row["peak"] >= row["before"] > 0
        and row["first_round"] >= 0
        and row["rounds"] == 2
    )
    for arguments, words in (
        (["nobody"], "unknown method nobody"),
        (["--rounds", "1"], "must be 2 or more"),
    ):
        with pytest.raises(SystemExit):
            cost.main(arguments)
        assert words in capsys.readouterr().err


def test_memory_that_a_method_needs_for_its_clients_counts_as_its_own(monkeypatch):
    ran = []

    def run(method, fed, *arguments, **options):
        ran.append(fed.n_clients)
        return fl_run(method, fed, *arguments, **options)

    fl_run = fl.run
    monkeypatch.setattr(fl, "run", run)
    monkeypatch.setattr(cost, "peak", lambda: max(ran))  # as if it were the clients
    row = cost.measure("fedavg", 2, DIGITS)
    assert row["before"] == 2 and row["peak"] == 4
