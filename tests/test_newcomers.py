"""Newcomers: every clustered method puts one where its like are, and moves nobody."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from toys import QUICK, refused, two_clusters

import fltnb as fl
from fltnb import methods as m
from fltnb import models, training
from fltnb.course import participants
from fltnb.federations.phases import phases, with_events
from fltnb.methods import Context
from fltnb.methods.base import Welcoming
from fltnb.methods.newcomers import first_training

M = 10
ROUNDS = 5
# a setting for each, in which it finds the two clusters
METHODS = {
    "IFCA": lambda: m.IFCA(2, starts=4),
    "HypoCluster": lambda: m.HypoCluster(2),
    "CLoVE": lambda: m.CLoVE(2),
    "CLoVE frozen": lambda: m.CLoVE(2, patience=1),
    "FedCE": lambda: m.FedCE(2, split="train"),
    "FedSoft": lambda: m.FedSoft(2, period=1),
    "FedEM": lambda: m.FedEM(2),
    "FedEM as run": lambda: m.FedEMAsRun(2),
    "FedRC": lambda: m.FedRC(2),
    "FedClust": lambda: m.FedClust(n_clusters=2),
    "FlexCFL": lambda: m.FlexCFL(2),
    "FLHC": lambda: m.FLHC(n_clusters=2, after=2),
    "FLHC L1": lambda: m.FLHC(n_clusters=2, after=2, metric="L1"),
    "FLHC cosine": lambda: m.FLHC(n_clusters=2, after=2, metric="cosine"),
    "OCFL": lambda: m.OCFL("kmeans", n_clusters=2),
    "CFL": lambda: m.CFL(1e6, 0, 0, 3),
    "FedCluster": lambda: m.FedCluster(0.3, 0),
    "CFLGP": lambda: m.CFLGP(2),
    "FeSEM": lambda: m.FeSEM(2),
    "FeSEMMA": lambda: m.FeSEMMA(2),
    "FedSEM": lambda: m.FedSEM(2),
    "FedSEM aggregate": lambda: m.FedSEM(2, rule="last_aggregate"),
    "RobustTKM": lambda: m.RobustTKM(2),
    "RobustTKM as run": lambda: m.RobustTKMAsRun(2),
    "StoCFL": lambda: m.StoCFL(0.3),
    "PACFL": lambda: m.PACFL(fl.PACFL(n_clusters=2)),
    "transport": lambda: m.FLT(fl.TransportSignatures(), joining="placed"),
    "merge by gain": lambda: m.FLT(fl.MergeGain(), joining="placed"),
    "FLUX": lambda: m.FLUX(n_clusters=2, latest=2, split="train"),
}
# FedRC corrects for classes, which are all that parts these clients
SHARED = {"FedRC"}


@pytest.fixture(scope="module")
def fed():
    return with_events(two_clusters(M), [{"round": ROUNDS + 1, "join": 4}])


def come(method, fed, n_rounds=ROUNDS):
    """The method's state after some rounds, and when newcomers have come and are
    welcome; the model."""
    first, second = (phase.fed for phase in phases(fed))
    model = models.make("mlp32", first.input_shape, first.n_classes)
    spec = training.TrainSpec(local_epochs=3, lr=0.1)
    context = Context(0, model=model)
    state = method.start(first, model, context)
    with training.make_engine(first, model, spec, "serial") as engine:
        for round in range(1, n_rounds + 1):
            clients = participants(first.n_clients, 1.0, 0, round)
            state = method.observe(state, clients, round, engine)
            state, trained = method.train(state, clients, round, engine)
            state = method.collect(state, clients, trained.theta, round)
            state = method.revise(state, first, round, context)
    changed = np.arange(second.n_clients) >= first.n_clients
    after = method.changed(state, second, model, changed, context)
    with training.make_engine(second, model, spec, "serial") as engine:
        if isinstance(method, Welcoming) and not isinstance(method, m.FLUX):
            after = method.welcome(after, np.flatnonzero(changed), ROUNDS, engine)
    return state, after


@pytest.mark.parametrize("name", METHODS)
def test_a_newcomer_lands_where_its_like_are_and_nobody_moves(name, fed):
    before, after = come(METHODS[name](), fed)
    true = phases(fed)[-1].fed.clusters
    n = len(before.row)
    assert len(after.row) == len(true) and (after.row >= 0).all()
    assert np.array_equal(after.models[after.row[:n]], before.models[before.row])
    for client in range(n, len(true)):
        own = np.flatnonzero(true[:n] == true[client])
        most = np.bincount(after.row[own]).argmax()
        assert after.row[client] == most, (after.row, true)
    if name not in SHARED:
        assert len(np.unique(after.row)) == 2


@pytest.mark.parametrize("name", METHODS)
def test_a_run_takes_newcomers_in_and_counts_what_placing_moves(name, fed):
    """One that comes before the last round and sits it out is served its cluster."""
    options = {"model": "mlp32", "rounds": ROUNDS + 1, "participation": 0.6}
    done = fl.run(METHODS[name](), fed, **QUICK | options)
    phase = phases(fed)[-1].fed
    assert len(done.labels) == phase.n_clients and done.labels.min() >= 0
    assert np.isfinite(done.clients["test"]).all()


def test_newcomers_that_train_are_counted_and_one_that_diverges_is_named(fed):
    before, after = come(m.FeSEM(2), fed)
    assert before.sent is None
    assert after.sent.tolist() == [4 * before.models.shape[1]] * 2
    method = m.FeSEM(2)
    assert method.setup_bytes(before) == (0, 0)
    assert method.setup_bytes(after) == (4 * after.sent[0], 4 * after.sent[1])
    broken = replace(before, models=before.models * np.inf)
    with pytest.raises(fl.FltnbError, match="of client 6 diverged: choose a smaller"):
        first_training(broken.models[:1], np.array([6]), 1, Broken())


class Broken:
    """An engine whose trainings diverge."""

    def train(self, theta, rows, clients, round):
        return training.Trained(theta[rows] * np.nan, np.zeros(len(clients)))


def test_pfedgraph_gives_newcomers_the_mean_of_all_models(fed):
    before, after = come(m.PFedGraph(), fed)
    n = len(before.row)
    share = before.weights / before.weights.sum()
    assert np.allclose(after.models[n:], share @ before.models, atol=1e-6)
    assert np.array_equal(after.models[:n], before.models)
    assert np.array_equal(after.mixing[n:, n:], np.eye(4))
    come(m.FedSaC(), fed)  # which has more to grow


def test_newcomers_before_there_are_clusters_wait_in_the_first(fed):
    for method in (m.FLHC(1.0, after=9), m.OCFL(), m.CFL(0), m.IFCA(2, warmup=9)):
        assert not come(method, fed, n_rounds=1)[1].row.any()


def test_merge_gain_places_newcomers_whose_classes_nobody_had():
    base = two_clusters(6, n_clusters=3, shared_classes=0)
    highest = base.label_counts().nonzero()[1].max()
    new = base.clusters[base.label_counts()[:, highest].argmax()]
    late = with_events(base, [{"round": 2, "join": 2, "cluster": int(new)}])
    done = fl.run(m.FLT(fl.MergeGain(8), joining="placed"), late, **QUICK)
    assert len(done.labels) == 6 and done.labels.min() == 0


class ByTurns(BaseEstimator):
    """A clusterer of one's own: labels in a list, and one client is noise."""

    def fit(self, X, y=None):
        self.labels_ = [0, 1] * (len(X) // 2 - 1) + [-1, -1]
        return self


class Placing(ByTurns):
    def place(self, X, y=None):
        return [1] * len(X)


def test_a_clusterer_of_ones_own_places_newcomers_if_it_can(fed):
    refused("needs a method place", m.FLT, ByTurns(), joining="placed")
    options = QUICK | {"rounds": ROUNDS + 1}
    done = fl.run(m.FLT(Placing(), joining="placed"), fed, **options)
    assert done.labels.tolist() == [0, 1, 0, 1, 2, 3] + [1] * 4


def test_weights_of_links_need_distances_and_noise_points_stay_apart(fed):
    first = phases(fed)[0].fed
    soft = m.SoftFLT(ByTurns(), scale=1.0)
    refused("ByTurns sets no distance_", fl.run, soft, first, **QUICK)

    class Far(ByTurns):
        distance_ = np.ones((6, 6))

    graph = m.SoftFLT(Far(), scale=1.0).client_graph(first, Context(0))
    assert graph.labels.tolist() == [0, 1, 0, 1, 2, 3]
