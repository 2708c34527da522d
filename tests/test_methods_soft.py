"""FedEM, FedRC, FedSoft, FedCE, pFedGraph, FedSaC: known answers, and what they measure
against plain loops."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from sklearn.decomposition import PCA
from toys import QUICK, logits_of, refused, two_clusters

import fltnb as fl
from fltnb import methods, models, training
from fltnb.methods import (
    FedAvg,
    FedCE,
    FedEM,
    FedEMAsRun,
    FedRC,
    FedSaC,
    FedSoft,
    FedSoftAsRun,
    PFedGraph,
    PFedGraphAsRun,
)
from fltnb.methods.baselines.fedce import growth, softmax
from fltnb.methods.baselines.fedsac import principal_directions, subspace_similarity
from fltnb.methods.baselines.pfedgraph import nearest_weights
from fltnb.methods.samples import batch_means, evaluate_mixture, outputs, sample_losses
from fltnb.metrics import adjusted_rand_index

QUICK = QUICK | {"eval_every": 2}


@pytest.fixture(scope="module")
def fed():
    """Four clients of unequal size with six to eight validation samples; 0 and 1 share
    their test set."""
    whole = two_clusters(4, 30)
    return replace(
        whole,
        train=[own[:n] for own, n in zip(whole.train, (22, 16, 12, 20), strict=True)],
        val=[own[-(6 + i % 3) :] for i, own in enumerate(whole.train)],
        test=[
            whole.test[0][:40],
            whole.test[0][:40],
            whole.test[2][:30],
            whole.test[3][:25],
        ],
    )


@pytest.fixture(scope="module")
def net(fed):
    return models.make("mlp_plain", fed.input_shape, fed.n_classes)


@pytest.fixture(scope="module")
def engine(fed, net):
    with training.make_engine(
        fed, net, training.TrainSpec(dtype="float64", batch_size=4, lr=0.1), "serial"
    ) as made:
        yield made


@pytest.fixture(scope="module")
def theta(net):
    return np.stack([net.init(0, k) for k in range(3)]).astype(np.float64)


def start(method, fed, net, **context):
    state = method.start(fed, net, methods.Context(0, **context))
    return state.mapped(lambda v: v.astype(np.float64) if v.dtype == np.float32 else v)


def given_losses(monkeypatch, table):
    """Let clients' losses be ``table[client]`` (K, n) whatever the models."""

    def losses(engine, theta, clients, split="train"):
        return [np.array(table[i], dtype=float) for i in clients]

    for name in ("fedem", "fedsoft", "fedce"):
        where = f"fltnb.methods.baselines.{name}.sample_losses"
        monkeypatch.setattr(where, losses)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=6), st.integers(0, 10_000))
def test_nearest_weights_are_feasible_and_nearest(v, seed):
    v = np.array(v)
    x = nearest_weights(v)
    assert (x >= 0).all() and np.isclose(x.sum(), 1, atol=1e-12)
    others = np.random.default_rng(seed).dirichlet(np.full(len(v), 0.5), 50)
    others = np.vstack(
        [
            others,
            np.eye(len(v)),
            0.9 * x + 0.1 * np.eye(len(v)),
            0.99 * x + 0.01 * others,
        ]
    )
    assert (((others - v) ** 2).sum(axis=1) >= ((x - v) ** 2).sum() - 1e-9).all()
    low, high = v.min() - 1, v.max()  # the same by bisection of the threshold
    for _ in range(200):
        t = (low + high) / 2
        low, high = (t, high) if np.maximum(v - t, 0).sum() > 1 else (low, t)
    assert np.allclose(x, np.maximum(v - t, 0), atol=1e-9)
    assert np.allclose(nearest_weights(v + 7), x, atol=1e-12)


def test_weights_of_pfedgraph_and_fedsac_by_hand(monkeypatch):
    rows = np.array([[0.1, 0.2, 0.7], [5.0, 4.5, 0.0]])
    assert np.allclose(nearest_weights(rows), [[0.1, 0.2, 0.7], [0.75, 0.25, 0]])
    assert nearest_weights(np.array([1e18, 0.0])).tolist() == [1, 0]
    for d, weights in (
        ([-1, -1, 0, 0], [0.5, 0.5, 0, 0]),
        ([-1, 0, 0, 0], [0.71875, 0.09375, 0.09375, 0.09375]),
    ):
        cost = PFedGraph().cost(None, None, np.array(d, dtype=float))
        assert np.allclose(nearest_weights(0.25 - cost), weights)
    monkeypatch.setattr(
        "fltnb.methods.baselines.fedsac.subspace_similarity",
        lambda directions: np.array([[1.0, 0, 0, 0]]),
    )
    cost = FedSaC().cost(
        SimpleNamespace(directions=np.zeros((4, 3, 2))),
        np.arange(4),
        np.array([[-1.0, 0, 0, 0]]),
    )
    assert np.allclose(nearest_weights(0.25 - cost), [[0.4375, 0.1875, 0.1875, 0.1875]])


def test_sample_losses_have_the_engines_means(engine, theta, fed, monkeypatch):
    assert batch_means(np.array([[1.0, 3, 5, 7, 9]]), 2).tolist() == [[2, 6, 9]]
    assert batch_means(np.array([[1.0, 3], [2, 2]]), 10).tolist() == [[2], [2]]
    for split, samples in (("train", 1000), ("val", 1000), ("train", 5)):
        monkeypatch.setattr("fltnb.methods.samples.SLICE", samples)
        losses = sample_losses(engine, theta, np.array([2, 0]), split)
        assert [one.shape for one in losses] == [
            (3, len(getattr(fed, split)[i])) for i in (2, 0)
        ]
        for client, mine in zip((2, 0), losses, strict=True):
            assert np.allclose(
                mine.mean(axis=1),
                engine.evaluate(theta, range(3), [client] * 3, split).loss,
            )


def test_mixtures_against_a_loop(engine, theta, fed, net):
    rows = np.array([2, 0, 1, 1])
    plain, mixed = (
        engine.evaluate(theta, rows, np.arange(4)),
        evaluate_mixture(engine, theta, np.eye(3)[rows], "test"),
    )
    assert np.array_equal(mixed.correct, plain.correct) and np.array_equal(
        mixed.total, plain.total
    )
    assert np.allclose(mixed.loss, plain.loss)  # all shares in one model
    shares = np.random.default_rng(0).dirichlet(np.ones(3), 4)
    theta = 6 * theta  # sure of themselves, so that a mixture differs from each
    found = evaluate_mixture(engine, theta, shares, "test")
    for client in range(4):
        x, y = fed.client(client, "test")
        answers = [
            special.softmax(logits_of(net, one, torch.from_numpy(x)), axis=1)
            for one in theta
        ]
        mixed = sum(
            share * answer
            for share, answer in zip(shares[client], answers, strict=True)
        )
        assert found.correct[client] == (mixed.argmax(1) == y).sum()
        assert np.isclose(
            found.loss[client], -np.log(mixed[np.arange(len(y)), y]).mean()
        )
    assert not np.allclose(
        found.loss, engine.evaluate(theta, shares.argmax(axis=1), np.arange(4)).loss
    )


def test_posteriors_by_hand():
    losses = np.array([[0.0, 0.0, 5.0], [np.log(3), 0.0, 5.0]])
    state = SimpleNamespace(
        shares=np.array([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]]),
        parts=np.array([[0.2, 0.5], [0.05, 0.5]]),
    )
    em, rc = (
        lambda *given, cls=cls: softmax(cls(2).scores(state, *given), axis=0)
        for cls in (FedEM, FedRC)
    )
    q = em(losses, 0, None)
    assert np.allclose(q, [[0.75, 0.5, 0.5], [0.25, 0.5, 0.5]])
    assert np.allclose(em(losses + 1000 * np.arange(3), 0, None), q)
    assert np.allclose(em(losses, 1, None)[:, 1], [0.2, 0.8])
    assert em(losses, 2, None).tolist() == [[1, 1, 1], [0, 0, 0]]  # a share of 0 stays
    # FedRC: equal losses and shares, class 0 with parts 0.2 and 0.05
    q = rc(losses, 0, np.array([1, 0, 1]))
    assert np.allclose(q[:, 1], [0.2, 0.8]) and np.allclose(q[:, 0], [0.75, 0.25])


@pytest.mark.parametrize("cls", [FedEM, FedRC])
def test_a_round_of_em_against_a_loop(cls, fed, net, engine):
    method, clients = cls(2), np.array([0, 2, 3])
    state = start(method, fed, net)
    state.shares = np.array([[0.3, 0.7], [0.5, 0.5], [0.6, 0.4], [0.1, 0.9]])
    before = state.mapped(np.array)
    state, trained = method.train(state, clients, 1, engine)
    state = method.collect(state, clients, trained.theta, 1)
    sums, weights = np.zeros((2, 10)), fed.sizes[clients] / fed.sizes[clients].sum()
    expected = np.zeros_like(before.models)
    for client, weight in zip(clients, weights, strict=True):
        losses = sample_losses(engine, before.models, [client])[0]
        q = before.shares[client][:, None] * np.exp(-losses)
        q /= q.sum(axis=0)
        assert np.allclose(state.shares[client], q.mean(axis=1))
        for k in range(2):
            expected[k] += (
                weight * engine.train(before.models, [k], [client], 1, [q[k]]).theta[0]
            )
            np.add.at(sums[k], fed.labels[fed.train[client]], q[k])
    assert np.allclose(state.models, expected, atol=1e-12)
    assert np.array_equal(state.shares[1], before.shares[1])  # who was not there
    if cls is FedRC:
        assert np.allclose(
            state.parts, (sums + 1e-8) / (sums + 1e-8).sum(axis=1, keepdims=True)
        )
        assert state.parts.min() > 0  # also of a class that nobody holds
        assert state.sums.shape == (4, 2, 10) and not state.sums[1].any()


def test_fedrc_parts_other_labels_and_not_other_classes():
    """FedRC parts clients that name digit d "9 - d"; it does not part those that hold
    other digits, as FedEM does."""
    digits = fl.load("digits")
    same = fl.federations.rotated(digits, 8, ((0,),), 60, 10)
    labels = same.labels.copy()
    for index in (*same.train[4:], *same.test[4:]):
        labels[index] = 9 - labels[index]
    swapped = replace(same, labels=labels, clusters=np.repeat([0, 1], 4))
    skewed = fl.federations.label_clusters(
        digits, 6, 2, 5, samples_per_client=40, shared_classes=0, seed=0
    )
    longer = QUICK | {
        "rounds": 12,
        "eval_every": 12,
        "dtype": "float32",
        "backend": "stacked",
    }
    slow = longer | {"local_epochs": 3, "lr": 0.3, "batch_size": 10}
    quick = longer | {"local_epochs": 2, "lr": 0.5, "batch_size": 20}
    cases = (
        (FedRC(2), swapped, slow, 1),
        (FedEM(2), skewed, quick, 1),
        (FedRC(2), skewed, quick, 0),
    )
    for method, fed, options, index in cases:
        assert (
            adjusted_rand_index(fed.clusters, fl.run(method, fed, **options).labels)
            == index
        )


def test_the_published_prediction_is_the_last_component_of_each_client(fed, net):
    settings = QUICK | {"rounds": 3, "eval_every": 3, "lr": 0.5}
    mixture, last = (
        fl.run(method, fed, **settings) for method in (FedEM(2), FedEMAsRun(2))
    )
    assert np.array_equal(mixture.rows, mixture.labels)
    assert last.theta.shape == (4, net.n_parameters) and last.rows.tolist() == [
        0,
        1,
        2,
        3,
    ]
    assert np.allclose(
        fed.sizes @ last.theta / fed.sizes.sum(), mixture.theta[1], atol=1e-12
    )
    losses = [run.history["loss"].iloc[-1] for run in (mixture, last)]
    with training.make_engine(
        fed, net, training.TrainSpec(dtype="float64"), "serial"
    ) as engine:
        served = [
            engine.evaluate(run.theta, run.rows, range(4)).loss.mean()
            for run in (mixture, last)
        ]
    assert np.isclose(served[1], losses[1]) and not np.isclose(served[0], losses[0])


def test_fedsoft_importance_by_hand(monkeypatch, engine, fed, net):
    # of four samples three prefer centre 1, one centre 0; nobody prefers centre 2
    prefer = [[1.0, 5, 5, 5], [2.0, 1, 1, 1], [3.0, 3, 3, 3]]
    given_losses(monkeypatch, {0: prefer, 1: [[1.0] * 4, [2.0] * 4, [0.5] * 4]})
    method = FedSoft(3)
    state = method.observe(start(method, fed, net), np.array([0, 1]), 1, engine)
    assert np.allclose(state.importance[:2], [[0.25, 0.75, 0], [0, 0, 1]], atol=3e-4)
    assert np.allclose(state.counts[0], np.array([0.25, 0.75, 1e-4]) * fed.sizes[0])
    assert np.allclose(state.importance.sum(axis=1), 1) and np.allclose(
        state.importance[2:], 1 / 3
    )
    theta, rows = method.dispatch(state, np.array([0]))
    assert np.allclose(theta[rows[0]], state.importance[0] @ state.models, atol=1e-12)
    # nothing is measured in round 2 but by who never was
    given_losses(monkeypatch, {i: [[9.0], [9.0], [1.0]] for i in range(4)})
    later = method.observe(state, np.array([0, 2]), 2, engine)
    assert (
        np.array_equal(later.importance[0], state.importance[0])
        and later.importance[2].argmax() == 2
    )
    assert method.observe(later, np.array([0]), 3, engine).importance[0].argmax() == 2


def test_fedsoft_published_counts_whole_batches(monkeypatch, engine, fed, net):
    given_losses(
        monkeypatch, {0: [[1.0, 1, 1, 9, 2, 2], [2.0, 2, 2, 2, 1, 1], [5.0] * 6]}
    )
    method = FedSoftAsRun(3)  # batches of four: means 3 against 2, then 2 against 1
    state = method.observe(start(method, fed, net), np.array([0]), 1, engine)
    assert state.counts[0].tolist() == [1, 6, 1]  # none becomes one
    assert method.local_training() == {"proximal": 0.0} and method.period == 1


def test_fedsoft_centres_weigh_by_importance_and_samples(fed, net):
    u, n = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]), np.array([10, 20, 10])
    v = np.array([[9, 10, 2], [1, 10, 8]]) / [[21], [19]]
    method = FedSoft(2)
    state = start(method, fed, net)
    state.counts[:3] = u * n[:, None]
    trained = np.random.default_rng(0).normal(size=(3, net.n_parameters))
    after = method.collect(state, np.arange(3), trained, 1)
    assert np.allclose(after.models, v @ trained) and np.array_equal(
        method.serve(after)[0][:3], trained
    )


def test_fedsoft_as_run_with_one_centre_is_fedavg_and_lambda_pulls_towards_it(fed, net):
    even = replace(
        fed, val=[own[: n // 2] for own, n in zip(fed.train, fed.sizes, strict=True)]
    )  # v_i like n_i
    both = FedSoftAsRun(1, serves="center"), FedAvg()
    assert np.allclose(
        *(fl.run(method, even, **QUICK).theta for method in both), rtol=0, atol=1e-12
    )
    once = QUICK | {"rounds": 1, "local_epochs": 5}
    ways = [
        np.linalg.norm(fl.run(FedSoft(1, lam=lam), fed, **once).theta - net.init(0))
        for lam in (0.0, 1.0, 5.0)
    ]
    assert ways == sorted(ways, reverse=True) and ways[0] > 1.5 * ways[-1]


def test_fedce_by_hand(monkeypatch, engine, fed, net):
    batches = np.array([[3.0, 3.0], [1.0, 1.0], [2.0, 2.0]])
    assert np.allclose(growth(batches, 0.5), [0.2431, 1, 0.4931], atol=5e-5)
    assert np.allclose(growth(batches, 0.5, once=False), [1.2431, 2, 0.4931], atol=5e-5)
    assert growth(np.ones((3, 4)), 0.5).tolist() == [1, 1, 1]  # identical models
    assert growth(batches, 0.0).tolist() == [1, 1, 1]
    table = {
        i: [[1.0] * 6, [2.0] * 6] if i < 2 else [[2.0] * 6, [1.0] * 6] for i in range(4)
    }
    given_losses(
        monkeypatch, table
    )  # two batches, of 4 and 2, so vectors differ by (1, 1)
    method, everybody = FedCE(2), np.arange(4)
    state = start(method, fed, net)
    trained = np.random.default_rng(0).normal(size=(4, net.n_parameters))
    far, spread = np.exp(-0.5 * np.sqrt(2)), []
    for round in (1, 2, 3):
        state = method.observe(state, everybody, round, engine)
        assert state.labels.tolist() == [0, 0, 1, 1]
        assert np.allclose(
            state.associations,
            round * np.array([[1, far], [1, far], [far, 1], [far, 1]]),
        )
        state = method.collect(state, everybody, trained, round)
        mine = np.exp(round) / (2 * np.exp(round) + 2 * np.exp(round * far))
        assert np.allclose(
            state.models[0],
            mine * trained[:2].sum(0) + (0.5 - mine) * trained[2:].sum(0),
        )
        spread.append(mine)
    assert spread == sorted(spread)  # sharper with every round


def graph_round(method, before, trained, sizes, clients=None):
    """State after clients whose models were ``before`` came back with ``trained``; the
    initial model is zero."""
    sizes, before = np.array(sizes), np.array(before, dtype=float)
    P = before.shape[1]
    model = SimpleNamespace(init=lambda seed: np.zeros(P), n_trainable=P, n_features=2)
    state = method.start(
        SimpleNamespace(n_clients=len(sizes), sizes=sizes), model, methods.Context(0)
    )
    state.models = before
    clients = np.arange(len(sizes)) if clients is None else np.array(clients)
    return method.collect(state, clients, np.array(trained, dtype=float), 2)


def test_pfedgraph_mixes_alike_clients_and_leaves_the_absent_alone():
    before = np.ones((5, 2))
    trained = [[3.0, 0.0], [4.0, 0.0], [0.0, 2.0], [0.0, 6.0]]
    state = graph_round(
        PFedGraph(), before, trained, [1, 1, 1, 1, 9], clients=[0, 1, 2, 3]
    )
    assert np.allclose(state.models, [[3.5, 0], [3.5, 0], [0, 4], [0, 4], [1, 1]])
    assert np.allclose(state.mixing[0], [0.5, 0.5, 0, 0, 0]) and state.mixing[
        4
    ].tolist() == [0, 0, 0, 0, 1]


def test_pfedgraph_published_looks_at_this_rounds_updates():
    before = [[9.0, 0.0], [0.0, 9.0]]
    trained = [
        [9.0, 1.0],
        [1.0, 9.0],
    ]  # from zero they are orthogonal nearly; both moved by a right angle
    official = graph_round(PFedGraph(), before, trained, [1, 1]).mixing
    published = graph_round(PFedGraphAsRun(), before, trained, [1, 1]).mixing
    cosine = 18 / 82
    assert np.allclose(official[0], nearest_weights(0.5 + np.array([1, cosine]) / 1.6))
    assert np.allclose(published[0], nearest_weights(0.5 + np.array([1, 0]) / 1.6))
    # a cosine of 0.95 counts as 1 in the official code only
    near = [[1.0, 0.0], [0.95, np.sqrt(1 - 0.95**2)]]
    assert np.allclose(
        graph_round(PFedGraph(), np.zeros((2, 2)), near, [1, 1]).mixing, 0.5
    )
    exact = graph_round(PFedGraphAsRun(), np.zeros((2, 2)), near, [1, 1]).mixing
    assert np.allclose(exact[0], [0.5 + 0.05 / 3.2, 0.5 - 0.05 / 3.2])


def test_fedsac_without_complement_is_pfedgraph(fed):
    a, b = fl.run(FedSaC(0.0, 1.25), fed, **QUICK), fl.run(PFedGraph(0.8), fed, **QUICK)
    assert np.allclose(a.theta, b.theta, rtol=0, atol=1e-12)
    assert not np.allclose(fl.run(FedSaC(), fed, **QUICK).theta, b.theta, atol=1e-6)


def test_subspace_similarity_by_hand():
    axes = np.eye(4)
    turned = np.array([[np.cos(0.3), 0, 0, np.sin(0.3)], axes[1], axes[2]])
    c = subspace_similarity(np.stack([axes[:3], axes[[2, 0, 1]], turned, -axes[:3]]))
    assert np.allclose(np.diag(c), 1) and np.array_equal(c, c.T)
    assert np.isclose(c[0, 1], 1)  # the same in another order
    assert np.isclose(c[0, 2], np.cos(0.1))  # one of three turned by 0.3
    assert np.isclose(
        c[0, 3], np.cos((0.5 + 0.5 + 1) * np.pi / 3)
    )  # greedy: two right angles, then what is left
    # greedy is not the best matching: 0.9 comes first and leaves -0.5, where 0.8 and
    # 0.4 would sum to more
    products = np.array([[0.9, 0.8, 0.0], [0.4, -0.5, 0.0], [0.0, 0.0, 1.0]])
    rest = np.diag(np.sqrt(np.maximum(1 - (products**2).sum(axis=0), 0)))
    other = np.vstack([products, rest]).T
    c = subspace_similarity(np.stack([np.eye(6)[:3], other]))
    assert np.isclose(c[0, 1], np.cos((np.arccos(0.9) + np.arccos(-0.5)) / 3))
    # a similarity that is the same for all has no effect
    assert np.allclose(nearest_weights(0.2 - (c[0] + 3)), nearest_weights(0.2 - c[0]))


def test_principal_directions_are_those_of_a_pca():
    features = np.random.default_rng(0).normal(size=(30, 6)) * [5, 3, 2, 1, 1, 1] + 40
    found, expected = principal_directions(features), PCA(3).fit(features).components_
    assert np.allclose(np.abs((found * expected).sum(axis=1)), 1)
    assert (found.max(axis=1) >= -found.min(axis=1)).all()
    assert np.array_equal(principal_directions(np.ones((4, 6))), np.zeros((3, 6)))
    assert np.abs(principal_directions(features[:2])).sum(axis=1).astype(
        bool
    ).tolist() == [True, False, False]


def test_fedsac_measures_what_was_just_trained(fed, net, engine):
    method, clients = FedSaC(), np.array([1, 3])
    state, trained = method.train(start(method, fed, net), clients, 1, engine)
    expected = principal_directions(
        outputs(engine, net.features, trained.theta[1:2], fed.train[3])[0]
    )
    assert (
        np.array_equal(state.directions[3], expected) and not state.directions[0].any()
    )
    assert method.traffic(state, 10) == (10, 10 + 3 * 200)


def test_diverging_components_and_clients_without_validation_samples_are_named(fed):
    bare = replace(fed, val=[[], *fed.val[1:]])
    for method in (FedEM(2), FedSaC()):
        refused(
            r"the loss of client \d is not finite",
            fl.run,
            method,
            fed,
            **QUICK | {"lr": 1e200, "rounds": 3},
        )
    for method in (FedCE(2), FedSoftAsRun(2)):
        refused("client 0 has none", fl.run, method, bare, **QUICK)
