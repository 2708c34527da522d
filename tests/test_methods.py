"""Aggregation worked by hand, IFCA, CFL, FedProx, FeSEM, and k-means over models:
answers on a few numbers."""

import inspect
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from toys import held_out, refused, served, steps, two_clusters

import fltnb as fl
import fltnb.methods as methods
from fltnb import aggregate
from fltnb.aggregate import mix
from fltnb.methods import (
    CFL,
    FLT,
    IFCA,
    PCAKMHC,
    Context,
    FedAvg,
    FedProx,
    FedSEM,
    FeSEM,
    FLTAsRun,
    Oracle,
)
from fltnb.methods.baselines.cfl import bipartition
from fltnb.methods.flt import leaf_order_labels
from fltnb.methods.modelspace import best_start, cosines, lloyd, scores
from fltnb.metrics import adjusted_rand_index

CONTEXT = Context(seed=0)
SIZES, TRUTH = (10, 30, 20, 20), np.array([0, 0, 1, 1])


def fitted(labels, adjacency=None):
    """A clusterer that knows its answer."""
    labels = np.array(labels)
    adjacency = np.array(
        labels[:, None] == labels if adjacency is None else adjacency, dtype=np.uint8
    )
    return SimpleNamespace(
        labels_=labels, adjacency_=adjacency, get_params=lambda deep: {"k": 1}
    )


def play(method, *rounds, sizes=SIZES, clusters=TRUTH):
    """What the four clients are served after each round, and the last state; a round is
    (clients, what they sent)."""
    fed = {
        "n_clients": 4,
        "sizes": sizes,
        "clusters": clusters,
        "input_shape": (1, 1, 2),
    }
    states = list(steps(method, rounds, (1.0, 2.0), **fed))
    return *(np.array(served(method, state)) for state in states), states[-1]


def test_rules_of_fedavg_by_hand():
    first, _ = play(FedAvg(), ([0, 1], [[0, 0], [4, 8]]))
    assert np.allclose(first, [[3, 6]] * 4)  # weights 10/40 and 30/40
    rounds = ([1], [[9, 9]]), ([0], [[5, 5]])
    one, two, _ = play(FedAvg(rule="last_local"), *rounds)
    # clients 0, 2, 3 (50 of 80 samples) still hold the initial (1, 2)
    assert np.allclose(one[0], [(50 * 1 + 30 * 9) / 80, (50 * 2 + 30 * 9) / 80])
    # client 1 is remembered at (9, 9) although it did not take part
    assert np.allclose(
        two[0], [(10 * 5 + 30 * 9 + 40 * 1) / 80, (10 * 5 + 30 * 9 + 40 * 2) / 80]
    )
    damped, again, _ = play(FedAvg(rule="last_aggregate"), *rounds)
    assert np.allclose(damped, one)
    assert np.allclose(
        again[0], (70 * one[0] + 10 * 5) / 80
    )  # here client 1 contributes the aggregate


def test_oracle_keeps_a_cluster_without_participants_and_needs_the_truth():
    found, _ = play(Oracle(), ([0], [[7, 7]]))
    assert np.allclose(found[:2], 7)
    assert np.allclose(found[2:], [1, 2])
    refused("true clusters", play, Oracle(), ([0], [[7, 7]]), clusters=None)


def test_flt_case_1_averages_over_neighbourhoods_and_is_case_2_on_blocks():
    path = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    sent = range(4), [[0, 0], [3, 3], [6, 6], [9, 9]]
    found, state = play(
        FLT(fitted(TRUTH, path), graph="full"), sent, sizes=(1, 1, 1, 1)
    )
    assert np.allclose(found[:, 0], [1.5, 3, 6, 7.5])
    assert len(state.models) == 4
    sent = [0, 1, 3], np.random.default_rng(0).normal(size=(3, 2))
    assert np.array_equal(
        *(
            play(FLT(fitted(TRUTH), graph=graph), sent)[0]
            for graph in ("full", "clusters")
        )
    )


@pytest.mark.parametrize("rule", methods.RULES)
def test_one_cluster_is_fedavg(rule):
    rounds = [
        (clients, np.random.default_rng(1).normal(size=(2, 2)))
        for clients in ([0, 1], [1, 2], [0, 3])
    ]
    *expected, _ = play(FedAvg(rule), *rounds)
    for method in (
        FLT(fitted([0] * 4), rule=rule),
        FedSEM(1, rule=rule),
        FeSEM(1, 0, "samples", rule),
    ):
        *found, _ = play(method, *rounds)
        assert np.allclose(found, expected, atol=1e-6), method.name


def test_fedsem_finds_groups_of_models_as_kmeans_does():
    centers = np.random.default_rng(3).normal(size=(3, 50)) * 4
    trained = np.repeat(centers, 4, axis=0) + np.random.default_rng(4).normal(
        size=(12, 50)
    )
    (state,) = steps(FedSEM(3), [(range(12), trained)], np.zeros(50))
    assert (
        adjusted_rand_index(
            KMeans(3, n_init=20, random_state=0).fit_predict(trained), state.labels
        )
        == 1
    )


def test_mix_does_not_depend_on_blocks_and_refuses_rows_that_are_no_weights(
    monkeypatch,
):
    rng = np.random.default_rng(0)
    W = rng.random((3, 7))
    W /= W.sum(axis=1, keepdims=True)
    theta = rng.normal(size=(7, 1000)).astype(np.float32)
    whole = mix(W, theta)
    monkeypatch.setattr(aggregate, "BLOCK", 64)
    assert np.allclose(mix(W, theta), whole, rtol=0, atol=1e-7)
    apart = (
        W * (np.arange(7) % 2 == np.array([0, 1, 0])[:, None]) * (np.arange(7) < 6)
    )  # the last model counts nowhere
    apart /= apart.sum(axis=1, keepdims=True)
    assert np.allclose(mix(apart, theta), apart @ theta, rtol=0, atol=1e-6)
    for row, says in (
        ([0.5, 0.4], "sum to 1"),
        ([1.5, -0.5], "no negative weight"),
        ([1.0], "for 2 models needs 2 columns"),
    ):
        refused(says, mix, np.array([row]), np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("same", "form"),
    [
        (
            (
                {"name": "fedavg"},
                {"kind": "FedAvg", "rule": "participants", "variant": "as_written"},
            ),
            {"name": "fedavg"},
        ),
        (
            ({"name": "fedavg", "variant": "as_run"},),
            {"name": "fedavg", "rule": "last_local"},
        ),
        (
            ({"name": "fedsem", "n_clusters": np.int64(3)},),
            {"name": "fedsem", "n_clusters": 3},
        ),
        (
            ({"name": "fesem", "n_clusters": 2, "variant": "as_run", "report": "own"},),
            {"name": "fesem", "n_clusters": 2, "lam": 0.0, "grouping": "random"},
        ),
        (({"name": "fedsgd", "variant": "as_run"},), {"name": "fedsgd", "batch": 2}),
        (
            ({"name": "robust_tkm", "variant": "as_run", "n_clusters": 3},),
            {"name": "robust_tkm", "variant": "as_run"},
        ),
        (
            (
                {
                    "name": "flt",
                    "variant": "as_run",
                    "clusterer": {"name": "FCR", "k": 2, "threshold": 1.0},
                },
                {"name": "enc1", "kind": "FLT", "rule": "last_local", "graph": "full"}
                | {
                    "clusterer": {"name": "FCR", "k": 2, "n_jobs": 4},
                    "encoder": {"kind": "pixels", "epochs": 8},
                },
            ),
            {
                "name": "flt",
                "graph": "full",
                "rule": "last_local",
                "clusterer": {"name": "FCR", "k": 2},
            }
            | {"encoder": {"kind": "pixels"}},
        ),
    ],
)
def test_equal_methods_have_one_canonical_form_and_are_rebuilt_from_it(same, form):
    for options in same:
        assert methods.canonical(options) == form
        method = methods.build(options)
        assert methods.build(method.settings()).settings() == method.settings()
    assert methods.canonical(form) == form


def test_an_id_of_its_own_survives_and_as_run_is_what_it_means():
    again = methods.build(FLTAsRun(name="flt_enc1").settings())
    assert (again.name, again.graph, again.rule, again.variant) == (
        "flt_enc1",
        "full",
        "last_local",
        "as_written",
    )
    assert FLTAsRun(graph="clusters").graph == "clusters"


FOUR = SimpleNamespace(n_clients=4)


def test_clients_that_a_clusterer_calls_noise_stay_alone():
    adjacency, labels = FLT().graph_of(fitted([1, -1, -1, 1]))
    assert labels.tolist() == [1, 2, 3, 1] and adjacency.sum() == 6


def test_what_does_not_go_together_is_refused_in_one_sentence():
    refused(
        "fedsem needs n_clusters .K, the number of clusters.: add it",
        methods.build,
        {"name": "fedsem"},
    )
    refused(
        "clusterer 'KMedoids'",
        methods.build,
        {"name": "flt", "clusterer": {"name": "KMedoids"}},
    )
    refused(
        "option of encoder 'sort'",
        methods.build,
        {"name": "flt", "encoder": {"sort": "pca"}},
    )
    refused("fitted on 3 clients", play, FLT(fitted([0, 1, 1])))
    refused(
        "labels_ of SimpleNamespace must be 4 integers",
        play,
        FLT(fitted(["a", "a", "b", "b"])),
    )
    refused('give graph="clusters" as well', FLT, graph="full", membership="leaf_order")
    nobody = FLT(fitted(TRUTH, np.zeros((4, 4))), graph="full")
    refused(
        r"client graph of FLT must be a \(4, 4\) .* ones on the diagonal",
        play,
        nobody,
    )
    refused(
        "no dendrogram",
        FLT(fitted(TRUTH), membership="leaf_order").client_graph,
        FOUR,
        CONTEXT,
    )
    for cls in (IFCA, FeSEM, FedSEM):
        refused("5 clusters for 4 clients", cls(5).check, FOUR)


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_option_of_every_method_is_checked_by_its_annotation(name):
    """A number below the least and a word that is not offered are refused by name."""
    cls = methods.METHODS[name]
    needed = (
        {"n_clusters": 2} if "n_clusters" in inspect.signature(cls).parameters else {}
    )
    needed |= {"lam": 1} if name == "DynamicFLT" else {}
    needed |= {"threshold": 1.0} if name == "FedClust" else {}
    for option in {*inspect.signature(cls).parameters} - {"name"}:
        for wrong in (-1, "nothing"):
            refused(f"{option}|grouping of users", cls, **needed | {option: wrong})


QUICK = {
    "model": "mlp_plain",
    "rounds": 3,
    "lr": 0.1,
    "backend": "serial",
    "progress": False,
}


class Toy:
    """Clients with losses ``||theta - target||^2 / 2``; gradient steps are a formula.

    Everybody takes part unless told otherwise. ``theta``: initial models by index.
    """

    def __init__(self, targets, theta, sizes=None, heads=1):
        self.targets = np.array(targets, dtype=np.float64)
        M = len(self.targets)
        sizes = np.ones(M, dtype=np.int64) if sizes is None else np.array(sizes)
        self.fed = SimpleNamespace(
            n_clients=M, sizes=sizes, val=[[0]] * M, clusters=None
        )
        theta = np.atleast_2d(np.array(theta, dtype=np.float64))
        self.model = SimpleNamespace(
            n_parameters=theta.shape[1],
            n_trainable=theta.shape[1],
            n_statistics=0,
            head=slice(theta.shape[1] - heads, theta.shape[1]),
            init=lambda seed, index=0: theta[index].copy(),
        )

    def evaluate(self, theta, rows, clients, split):
        assert split != "test"
        return SimpleNamespace(
            loss=((np.asarray(theta)[rows] - self.targets[clients]) ** 2).sum(axis=1)
            / 2
        )

    def train(self, theta, clients, steps=1, lr=0.5, mu=0.0):
        start = theta.copy()
        for _ in range(steps):
            theta = theta - lr * (theta - self.targets[clients] + mu * (theta - start))
        return theta

    def run(self, method, rounds=1, taking_part=None, **training):
        """Run, and return the state after every round, the one before round 1 first."""
        mu = method.local_training().get("proximal", 0.0)
        states = [method.start(self.fed, self.model, CONTEXT)]
        for round in range(1, rounds + 1):
            clients = (
                np.arange(self.fed.n_clients)
                if taking_part is None
                else np.array(taking_part[round - 1])
            )
            state = method.observe(
                states[-1].mapped(np.array),
                clients,
                round,
                self,
            )
            theta, rows = method.dispatch(state, clients)
            states.append(
                method.collect(
                    state,
                    clients,
                    self.train(theta[rows], clients, mu=mu, **training),
                    round,
                )
            )
        return states


def test_fedprox_approaches_the_proximal_fixed_point():
    state = Toy([[4.0], [10.0]], [1.0]).run(FedProx(mu=0.5), steps=3, lr=0.5)[1]
    fixed = (np.array([4.0, 10.0]) + 0.5 * 1.0) / 1.5  # (c_i + mu theta) / (1 + mu)
    expected = fixed + (1 - 0.5 * 1.5) ** 3 * (1.0 - fixed)
    assert np.allclose(state.models, expected.mean())


def digits(M=4, val=0):
    """A small federation of digits; the training samples of a client stay few so that
    full batches are quick."""
    return held_out(two_clusters(M, 24), val)


def test_ifca_finds_the_clusters_in_one_round_from_separated_models():
    state = Toy(
        [[0, 0], [1, 0], [10, 0], [11, 0]], [[2.0, 0], [8.0, 0]], sizes=[1, 3, 1, 1]
    ).run(IFCA(2))[1]
    assert state.labels.tolist() == [0, 0, 1, 1]
    assert np.allclose(
        state.models, [[2 - 0.5 * (2 - 0.75), 0], [8 - 0.5 * (8 - 10.5), 0]]
    )  # sizes count


def test_ifca_picks_the_least_loss_and_the_lowest_index_on_ties():
    toy = Toy([[0.0], [0.0], [0.0], [0.0]], [[1.0], [2.0], [3.0]])
    losses = np.array([[1, 2, 5, np.nan], [2, 1, 5, 9], [3, 3, 5, 8]])
    engine = SimpleNamespace(
        evaluate=lambda theta, rows, clients, split: SimpleNamespace(
            loss=losses.reshape(-1)
        )
    )
    method = IFCA(3)
    state = method.observe(
        method.start(toy.fed, toy.model, CONTEXT), np.arange(4), 1, engine
    )
    assert state.labels.tolist() == [0, 1, 0, 2]


def test_ifca_leaves_a_model_that_nobody_picks_and_absent_clients_keep_their_choice():
    before, after = Toy([[1.0], [2.0]], [[0.0], [1e3]]).run(IFCA(2))
    assert np.array_equal(before.models[1], after.models[1])
    assert np.allclose(after.models[0], 0.75)
    states = Toy([[0.0], [10.0], [10.0]], [[1.0], [9.0]]).run(
        IFCA(2), 2, taking_part=[[0, 1], [0]]
    )
    assert states[1].labels.tolist() == [0, 1, 0]  # client 2 was never drawn
    assert states[2].labels.tolist() == [0, 1, 0]


def test_ifca_warm_up_is_fedavg_and_then_the_last_layers_part():
    toy = Toy([[1.0, 2, 0], [1.0, 2, 8]], [[0.0, 0, 1.0], [5.0, 5, 9.0]])
    states, fedavg = toy.run(IFCA(2, warmup=2), 3), toy.run(FedAvg(), 3)
    for t in (1, 2):
        assert np.array_equal(served(IFCA(2), states[t]), served(FedAvg(), fedavg[t]))
        assert IFCA(2).traffic(states[t], 3) == (3, 3)
    # round 3: lower numbers from FedAvg, the last one as initialised, then one step of
    # each cluster
    lower = fedavg[2].models[0, :2]
    expected = lower - 0.5 * (lower - [1, 2])
    assert states[3].labels.tolist() == [0, 1]
    assert np.allclose(states[3].models, [[*expected, 0.5], [*expected, 8.5]])
    assert IFCA(2).traffic(states[3], 3) == (6, 3)


def test_ifca_shares_its_lower_layers():
    """Worked by hand: lower numbers are averaged over everybody, last ones inside the
    cluster."""
    toy = Toy(
        [[0.0, 0], [4.0, 0], [8.0, 10], [0.0, 10]],
        [[2.0, 1.0], [7.0, 9.0]],
        sizes=[1, 1, 2, 4],
    )
    method = IFCA(2, shared="lower")
    start, state = toy.run(method, lr=1.0)
    assert np.allclose(
        start.models, [[2, 1], [2, 9]]
    )  # one common start below the last layer
    assert state.labels.tolist() == [0, 0, 1, 1]
    assert np.allclose(
        state.models, [[(0 + 4 + 2 * 8) / 8, 0], [(0 + 4 + 2 * 8) / 8, 10]]
    )
    assert method.traffic(state, 2) == (3, 2)  # the shared number travels once


def test_ifca_keeps_the_start_that_divides_the_clients_most_evenly():
    """The first draw lies by all clients but far from none: one model gets everybody.
    The second one parts them."""
    toy = Toy([[0.0], [1.0], [10.0], [11.0]], [[5.0], [90.0], [2.0], [8.0]])
    assert toy.run(IFCA(2))[1].labels.tolist() == [0, 0, 0, 0]
    state = toy.run(IFCA(2, starts=2))[1]
    assert state.labels.tolist() == [0, 0, 1, 1] and state.drawn is None
    assert np.allclose(state.models, [[2 - 0.5 * 1.5], [8 + 0.5 * 2.5]])


def test_ifca_compares_models_on_the_split_it_was_told():
    fed = digits(val=6)
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    with fl.training.make_engine(fed, net, fl.training.TrainSpec(), "serial") as engine:
        for split in ("train", "val"):
            method = IFCA(3, split=split)
            state = method.start(fed, net, CONTEXT)
            chosen = method.observe(state, np.array([0, 2]), 1, engine).labels
            for i in (0, 2):
                losses = [
                    engine.evaluate(state.models, [k], [i], split).loss[0]
                    for k in range(3)
                ]
                assert chosen[i] == np.argmin(losses), split
            assert chosen[1] == chosen[3] == 0
    none = (
        r"needs validation samples, and client 0 has none: build .* with some, "
        r'by fl.federations.held_out.images, {"kind": "label_clusters", ...}. with its '
        "options in the dict"
    )
    refused(
        rf'IFCA {none}, or give split="train"',
        fl.run,
        IFCA(2, split="val"),
        digits(),
        **QUICK,
    )
    refused(
        rf"PACFLAsRun {none}, or take fl.methods.PACFL\.$",
        fl.run,
        methods.PACFLAsRun(),
        digits(),
        **QUICK,
    )
    fed = digits()
    own = fl.Federation.of(fl.load("digits"), train=fed.train, test=fed.test)
    refused(r"some .val_fraction=0.1, or val=.\.$", fl.run, methods.EMDCFL(), own)


def two_groups(c=2.0, each=3):
    return Toy([[c, 0]] * each + [[-c, 0]] * each, [0.0, 0.0])


def test_cfl_cuts_two_opposite_groups():
    """At the stationary point the mean update is 0 and every update has length lr * c =
    1."""
    states = two_groups().run(CFL(eps1=1e-6, eps2=0.99, warmup=0), 2)
    assert states[1].labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.allclose(
        states[1].models, [[1, 0], [-1, 0]]
    )  # parent plus the halves' own mean updates
    assert np.allclose(states[2].models, [[1.5, 0], [-1.5, 0]])
    toy = Toy([[0.0], [4.0]], [0.0], sizes=[1, 3])
    assert np.allclose(
        toy.run(CFL())[1].models, 1.0
    )  # a step of 0.5 to 0 and 4; members count equally
    assert np.allclose(toy.run(CFL(weighting="samples"))[1].models, 1.5)


@pytest.mark.parametrize(
    "options", [{"eps1": 0}, {"eps2": 1e9}, {"warmup": 9}, {"min_size": 6}]
)
def test_cfl_that_never_cuts_is_fedavg(options):
    toy = two_groups()
    state = toy.run(CFL(**{"eps1": 1e-6, "eps2": 0.5, "warmup": 0} | options), 5)[-1]
    assert len(state.models) == 1
    assert np.allclose(state.models, toy.run(FedAvg(), 5)[-1].models)


def test_cfl_waits_for_the_warm_up_for_large_updates_and_until_all_were_heard():
    toy = two_groups()
    assert [len(state.models) for state in toy.run(CFL(1e-6, 0.9, warmup=2), 4)] == [
        1,
        1,
        1,
        2,
        2,
    ]
    assert len(toy.run(CFL(1e-6, 1.01, warmup=0), 4)[-1].models) == 1
    method = CFL(eps1=0.5, eps2=0.5, warmup=0)
    states = toy.run(method, 3, taking_part=[[0, 3], [1, 4], [2, 5]])
    assert [len(state.models) for state in states] == [1, 1, 1, 2]
    assert states[3].labels.tolist() == [
        0,
        0,
        0,
        1,
        1,
        1,
    ]  # four of them were absent
    assert not states[
        3
    ].heard.any()  # nothing is known yet about updates from the halves' models
    more = toy.run(method, 4, taking_part=[[0, 3], [1, 4], [2, 5], [3]])
    assert np.array_equal(
        more[4].models[0], states[3].models[0]
    )  # nobody of this half took part


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_cfl_only_refines(seed):
    rng = np.random.default_rng(seed)
    toy = Toy(rng.normal(size=(12, 3)), rng.normal(size=3))
    part = [
        np.sort(rng.choice(12, size=rng.integers(6, 13), replace=False))
        for _ in range(8)
    ]
    for before, after in pairwise(
        toy.run(CFL(eps1=10, eps2=0.0, warmup=1), 8, taking_part=part)
    ):
        parent = {}
        for old, new in zip(before.labels, after.labels, strict=True):
            assert parent.setdefault(new, old) == old
        assert (np.bincount(after.labels) > 0).all()


def test_cosines_guard_zeros():
    updates = np.random.default_rng(0).normal(size=(5, 7))
    everybody = np.arange(5)
    direct = (
        updates
        @ updates.T
        / np.outer(np.linalg.norm(updates, axis=1), np.linalg.norm(updates, axis=1))
    )
    assert np.allclose(cosines(updates, everybody), direct)
    updates[2] = 0
    guarded = cosines(updates, everybody)
    assert np.isfinite(guarded).all() and (guarded[2, [0, 1, 3, 4]] == 0).all()
    assert bipartition(guarded).sum() in range(1, 5)
    assert bipartition(
        cosines(np.zeros((4, 7)), np.arange(4))
    ).any()  # even then there are two halves


def test_bipartition_takes_the_complete_linkage_cut():
    """Chain 0 - 1 - 2 - 3: single linkage would cut off the end (0.89 against 0.9),
    this one cuts in the middle."""
    similarity = np.eye(4)
    for (i, j), value in {
        (0, 1): 0.95,
        (1, 2): 0.9,
        (2, 3): 0.89,
        (0, 2): 0.2,
        (1, 3): 0.1,
        (0, 3): 0.0,
    }.items():
        similarity[i, j] = similarity[j, i] = value
    assert bipartition(similarity).tolist() == [False, False, True, True]


def test_fesem_recovers_groups_and_takes_plain_means():
    toy = Toy([[0, 0], [1, 0], [20, 0], [22, 0]], [0.0, 0.0], sizes=[1, 9, 1, 9])
    state = toy.run(FeSEM(2, lam=0.0), lr=1.0)[1]
    assert state.labels[0] == state.labels[1] != state.labels[2] == state.labels[3]
    assert np.allclose(np.array(served(FeSEM(2), state))[:, 0], [0.5, 0.5, 21, 21])
    state = toy.run(FeSEM(2, lam=0.0, weighting="samples"), lr=1.0)[1]
    assert np.allclose(np.array(served(FeSEM(2), state))[:, 0], [0.9, 0.9, 21.8, 21.8])

    # as many clients as centres must have been heard
    toy = Toy([[0.0], [1.0], [10.0], [11.0]], [0.0])
    states = toy.run(FeSEM(3, lam=0), 3, taking_part=[[0], [2], [1, 3]], lr=1.0)
    assert [len(state.models) for state in states] == [1, 1, 1, 3]
    assert len(set(states[3].labels)) == 3


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_fesem_steps_never_increase_the_distance_inside_clusters(seed):
    toy = Toy(np.random.default_rng(seed).normal(size=(9, 2)) * 3, [0.0, 0.0])
    method = FeSEM(3, lam=0.1)
    state = toy.run(method, 2)[-1]
    trained = toy.train(np.array(served(method, state)), np.arange(9), mu=0.2)
    inside = lambda models, row: ((trained - models[row]) ** 2).sum()  # noqa: E731
    after = method.collect(state.mapped(np.array), np.arange(9), trained, 3)
    e_step = inside(state.models, after.row)
    assert e_step <= inside(state.models, state.row) + 1e-9
    assert inside(after.models, after.row) <= e_step + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000), st.booleans())
def test_lloyd_is_kmeans_from_given_centres(seed, far):
    """Also where a centre is so far off that it loses all its points."""
    rng = np.random.default_rng(seed)
    M, K, P = (
        int(rng.integers(8, 40)),
        int(rng.integers(1, 5)),
        int(rng.integers(2, 30)),
    )
    points = (
        rng.normal(size=(M, P)) + 5 * rng.normal(size=(K, P))[rng.integers(0, K, M)]
    )
    centers = points[rng.choice(M, K, replace=False)] + 0.1 * rng.normal(size=(K, P))
    centers[-1] += 1e3 * far
    labels, found = lloyd(points, np.ones(M, dtype=np.int64), centers, points[0])
    kmeans = KMeans(K, init=centers, n_init=1, tol=0, algorithm="lloyd").fit(points)
    assert np.array_equal(labels, kmeans.labels_)
    assert np.allclose(found, kmeans.cluster_centers_)


def test_lloyd_and_its_start_take_weights_as_repeated_points():
    rng = np.random.default_rng(5)
    points, weights, centers = (
        rng.normal(size=(30, 4)),
        rng.integers(1, 5, 30),
        rng.normal(size=(3, 4)),
    )
    labels, found = lloyd(points, weights, centers, np.zeros(4))
    often, same = lloyd(
        np.repeat(points, weights, axis=0),
        np.ones(weights.sum(), int),
        centers,
        np.zeros(4),
    )
    assert np.array_equal(np.repeat(labels, weights), often)
    assert np.allclose(found, same)
    points = np.array([[0.0, 0], [1, 0], [9, 0]])
    labels = best_start(points, np.array([1, 1, 50]), points[0], 2, seed=0)
    assert labels[0] == labels[1] != labels[2]


def test_distances_keep_small_differences_of_long_models():
    """float32 models that differ in the fourth digit: the common origin saves what a
    plain product would lose."""
    rng = np.random.default_rng(1)
    origin = (rng.normal(size=50_000) * 10).astype(np.float32)
    points = (origin + rng.normal(size=(6, 50_000)) * 1e-3).astype(np.float32)
    centers = (points[:3].astype(np.float64) + points[3:]) / 2
    exact = ((points[:, None].astype(np.float64) - centers) ** 2).sum(axis=2)
    found = scores(points, centers, origin)
    assert np.array_equal(found.argmin(axis=1), exact.argmin(axis=1))
    assert np.allclose(
        np.diff(found, axis=1), np.diff(exact, axis=1), atol=0.05 * exact.max()
    )


def test_fedsem_equals_grouping_and_averaging_spelt_out():
    """Ten rounds with absent clients against k-means on all last known models and plain
    loops."""
    rng = np.random.default_rng(2)
    M, K = 14, 3
    toy = Toy(
        rng.normal(size=(M, 6)) + 6 * rng.normal(size=(K, 6))[np.arange(M) % K],
        np.zeros(6),
        rng.integers(1, 9, M),
    )
    part = [np.sort(rng.choice(M, 6, replace=False)) for _ in range(10)]
    sizes = toy.fed.sizes
    for rule in methods.RULES:
        states = toy.run(FedSEM(K, rule=rule), 10, taking_part=part)
        known = np.zeros((M, 6))
        for round, (before, after) in enumerate(pairwise(states)):
            clients = part[round]
            if rule == "last_aggregate":
                known = before.models[before.row]
            known[clients] = toy.train(before.models[before.row[clients]], clients)
            if round:
                kmeans = KMeans(K, init=before.centers, n_init=1, tol=0).fit(known)
                assert np.array_equal(after.labels, kmeans.labels_), (rule, round)
            for k in range(K):
                mine = np.flatnonzero(after.labels == k)
                if len(mine):
                    assert np.allclose(after.centers[k], known[mine].mean(axis=0))
                if rule == "participants":
                    mine = np.intersect1d(mine, clients)
                expected = (
                    np.average(known[mine], axis=0, weights=sizes[mine])
                    if len(mine)
                    else before.models[k]
                )
                assert np.allclose(after.models[k], expected), (rule, round, k)


def test_leaf_order_membership_scrambles_clusters_as_the_public_code_does():
    """Clients 1 to 6, true groups {1, 3, 5} and {2, 4, 6}: the public code returns {5,
    3, 2} and {1, 6, 4}."""
    labels, leaf_order = np.array([0, 1, 0, 1, 0, 1]), np.array([5, 1, 3, 6, 2, 4]) - 1
    assert {*leaf_order[:3]} == {
        *np.flatnonzero(labels == 0)
    }  # a dendrogram lists one group, then the other
    scrambled = leaf_order_labels(labels, leaf_order)
    assert {*(np.flatnonzero(scrambled == 0) + 1)} == {5, 3, 2}
    assert {*(np.flatnonzero(scrambled == 1) + 1)} == {1, 6, 4}


@pytest.mark.parametrize("cls", [FLT, PCAKMHC])
def test_membership_option_changes_the_clusters_and_nothing_else(cls):
    fed = fl.federations.label_clusters(
        fl.load("digits"), n_clients=12, n_clusters=3, classes_per_cluster=3, seed=0
    )
    order = np.random.default_rng(0).permutation(12)
    moved = {
        split: [getattr(fed, split)[i] for i in order] for split in ("train", "test")
    }
    fed = replace(fed, **moved, clusters=fed.clusters[order])
    clusterer = fl.MeanImage(3)
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    right, slipped = (
        cls(clusterer, graph="clusters", membership=membership).start(fed, net, CONTEXT)
        for membership in ("clients", "leaf_order")
    )
    fitted = clusterer.fit(
        [fed.inputs(index).reshape(len(index), -1) for index in fed.train]
    )
    for c in np.unique(fitted.labels_):
        assert {*np.flatnonzero(slipped.labels == c)} == {
            *fitted.leaf_order_[fitted.labels_ == c]
        }
    assert adjusted_rand_index(right.labels, fed.clusters) == 1
    assert adjusted_rand_index(slipped.labels, fed.clusters) < 0.5
    assert np.array_equal(np.bincount(right.labels), np.bincount(slipped.labels))
    assert (
        methods.build(
            cls(membership="leaf_order", graph="clusters").settings()
        ).membership
        == "leaf_order"
    )
