"""The methods and scores of FeSEM's tables: known answers on a few numbers, and on
digits."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from toys import QUICK, final, logits_of, refused, steps, two_clusters

import fltnb as fl
from fltnb import methods as m
from fltnb import metrics as scores
from fltnb import models, rounds, training
from fltnb.methods.baselines.autograd import CorrectedEngine
from fltnb.methods.baselines.fedcluster import halves
from fltnb.methods.baselines.robust_tkm import median, nearest, trimmed_mean
from fltnb.methods.matching import (
    assignment,
    joined,
    match,
    matched_mean,
    permuted,
    split,
)
from fltnb.methods.modelspace import cosines
from fltnb.metrics import adjusted_rand_index

SIZES = (20, 12, 16, 10)


def digits(sizes=(20, 20, 20, 20), classes=2):
    fed = two_clusters(len(sizes), classes_per_cluster=classes)
    train = [own[:n] for own, n in zip(fed.train, sizes, strict=True)]
    return replace(fed, train=train, test=[own[:30] for own in fed.test])


def run(method, fed, **changes):
    return fl.run(method, fed, **QUICK | changes)


def same(a, b, atol=1e-12):
    return np.allclose(final(a), final(b), rtol=0, atol=atol)


def now(state):
    return state.models[state.row].tolist()


def engine_of(fed, name="mlp_plain", **options):
    net = models.make(name, fed.input_shape, fed.n_classes)
    return CorrectedEngine(
        fed, net, training.TrainSpec(**{"dtype": "float64"} | options)
    )


def test_fedsgd_is_gradient_descent_on_the_pooled_data():
    fed = digits(SIZES)
    pooled = replace(
        fed,
        train=[np.concatenate(fed.train)],
        test=fed.test[:1],
        val=fed.val[:1],
        clusters=None,
    )
    with engine_of(pooled) as engine:
        theta = engine.model.init(0).astype(np.float64)
        for _ in range(2):
            theta = theta - 0.1 * engine.gradient(theta, 0)
    for setting in ({}, {"local_epochs": 5, "batch_size": 7}):
        assert np.allclose(
            run(m.FedSGD(), fed, **setting).theta[0], theta, rtol=0, atol=1e-12
        )
    assert np.array_equal(
        run(m.FedSGD(), fed).theta, run(m.FedAvg(), fed, local_epochs=1).theta
    )


def test_fedsgd_on_some_samples_is_fedsgd_of_clients_with_these_alone():
    fed = digits(SIZES)
    chosen = [m.FedSGD(14)._drawn(n, 0, 1, i) > 0 for i, n in enumerate(SIZES)]
    assert [mine.sum() for mine in chosen] == [14, 12, 14, 10]
    fewer = replace(
        fed, train=[own[mine] for own, mine in zip(fed.train, chosen, strict=True)]
    )
    assert same(run(m.FedSGD(14), fed, rounds=1), run(m.FedSGD(), fewer, rounds=1))
    other = [m.FedSGD(14)._drawn(20, 0, round, 0) for round in (1, 2)]
    assert (other[0] != other[1]).any() and np.allclose(np.sum(other, axis=1), 20)
    assert m.FedSGDAsRun().batch == 2 and m.FedSGDAsRun(32).batch == 32


def test_feddist_takes_part_of_the_way():
    fed, rounds = (
        digits(SIZES),
        [([0, 1], [[4.0, 0.0], [8.0, 2.0]]), ([1], [[0.0, 0.0]])],
    )
    with engine_of(fed) as engine:
        net = engine.model
    for method, first in (
        (m.FedDist(0.6), 0.4 + 0.6 * 6),
        (m.FedDistWS(0.6), 0.4 + 0.6 * (4 * 20 + 8 * 12) / 32),
    ):
        state = method.start(fed, net, m.Context(0))
        state.models = np.array([[1.0, 1.0]])
        for (clients, theta), expected in zip(
            rounds, (first, 0.4 * first), strict=True
        ):
            state = method.collect(state, np.array(clients), np.array(theta), 1)
            assert np.isclose(state.models[0, 0], expected)


def quadratic(targets, sizes, monkeypatch, **options):
    """An engine of clients with losses ``||theta - target||^2 / 2``; samples are the
    client's number."""
    targets = torch.tensor(targets, dtype=torch.float64)

    def loss(out, y, weight=None, reduction=None):
        each = ((out - targets[y]) ** 2).sum(1) / 2
        return each if reduction == "none" else each.sum()

    monkeypatch.setattr("torch.nn.functional.cross_entropy", loss)
    client_ids = np.repeat(np.arange(len(sizes)), sizes)
    held = [np.flatnonzero(client_ids == i) for i in range(len(sizes))]
    fed = fl.Federation(
        images=np.zeros((len(client_ids), 1)),
        labels=client_ids,
        train=held,
        test=held,
        n_classes=len(sizes),
    )
    model = models.shaped(Constant(), fed, n_outputs=2)
    return SimpleNamespace(
        fed=fed,
        model=model,
        spec=training.TrainSpec(dtype="float64", **options),
        device="cpu",
    )


class Constant(torch.nn.Module):
    """A network that says the same of every sample: its two parameters."""

    def __init__(self):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor([5.0, -5.0]))

    def forward(self, x):
        return self.theta.expand(len(x), 2)


def test_feddane_without_penalty_reaches_the_mean_of_quadratics_in_one_round(
    monkeypatch,
):
    targets, sizes = [[0.0, 1.0], [4.0, 3.0], [9.0, -3.0]], [1, 2, 5]
    mean = np.average(targets, axis=0, weights=sizes)
    engine = quadratic(
        targets, sizes, monkeypatch, local_epochs=60, lr=0.2, batch_size=2
    )
    method = m.FedDANE(mu=0)
    state = method.start(engine.fed, engine.model, m.Context(0))
    state, trained = method.train(state, np.arange(3), 1, engine)
    assert np.allclose(trained.theta, mean)
    state = method.collect(state, np.arange(3), trained.theta, 1)
    assert np.allclose(state.models, mean)
    # with a penalty, halfway between what was sent and the mean
    held = quadratic(targets, sizes, monkeypatch, local_epochs=60, lr=0.2, proximal=1.0)
    state = method.start(held.fed, held.model, m.Context(0))
    assert np.allclose(
        method.train(state, np.arange(3), 1, held)[1].theta,
        (mean + np.array([5, -5])) / 2,
    )


@pytest.mark.parametrize("model", ["mlp", "cnn_small"])
def test_feddane_of_equal_clients_or_of_one_is_fedprox(model):
    fed = digits()
    one = {
        "train": fed.train[:1],
        "test": fed.test[:1],
        "val": fed.val[:1],
        "clusters": None,
    }
    alike = {
        "train": [fed.train[0]] * 2,
        "test": [fed.test[0]] * 2,
        "val": fed.val[:2],
        "clusters": None,
    }
    training = {"model": model, "momentum": 0.5, "weight_decay": 0.01, "lr": 0.05}
    for part, batch in ((one, 7), (alike, 1000)):
        if model == "mlp" and part is alike:
            continue  # its clients drop other units, so their models differ
        a, b = (
            run(way(0.5), replace(fed, **part), batch_size=batch, **training)
            for way in (m.FedDANE, m.FedProx)
        )
        assert same(a, b) and not same(
            a, run(m.FedAvg(), replace(fed, **part), batch_size=batch, **training), 1e-6
        )


def test_feddane_in_one_full_step_is_fedsgd_and_in_two_has_its_correction():
    fed = digits(SIZES)
    assert same(run(m.FedDANE(0.7), fed, local_epochs=1), run(m.FedSGD(), fed))
    with engine_of(
        fed, lr=0.1, local_epochs=2, batch_size=1000, proximal=0.7
    ) as engine:
        start = engine.model.init(0).astype(np.float64)
        own = np.stack([engine.gradient(start, i) for i in range(4)])
        g = np.average(own, axis=0, weights=SIZES)
        once = start - 0.1 * g
        expected = [
            once - 0.1 * (engine.gradient(once, i) + g - own[i] + 0.7 * (once - start))
            for i in range(4)
        ]
        engine.trainer.shift = dict(enumerate(g - own))
        found = engine.train(start[None], [0] * 4, range(4), 1).theta
    assert np.allclose(found, expected, rtol=0, atol=1e-12)
    assert np.allclose(
        run(m.FedDANE(0.7), fed, rounds=1).theta[0],
        np.average(expected, axis=0, weights=SIZES),
    )
    with engine_of(
        fed, "cnn_small", lr=1.0, batch_size=1000
    ) as engine:  # its gradient is what one step moves by
        start = engine.model.init(0)[None].astype(np.float64)
        moved = engine.train(start, [0], [1], 1).theta
        assert np.allclose(
            engine.gradient(start[0], 1), (start - moved)[0], rtol=0, atol=1e-12
        )


def test_feddane_corrects_gradients_of_the_weighted_loss():
    """Where all start, every corrected gradient is the mean one."""
    fed = digits(SIZES)
    options = {"lr": 0.1, "batch_size": 1000, "class_weights": range(1, 11)}
    with engine_of(fed, **options) as engine:
        method = m.FedDANE(mu=0)
        state = method.start(fed, engine.model, m.Context(0))
        _, trained = method.train(state, np.arange(4), 1, engine)
    assert np.allclose(trained.theta, trained.theta[0], rtol=0, atol=1e-12)


def test_fedcluster_cuts_known_cosines_after_the_period_from_the_model_before():
    two = cosines(
        np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]), np.arange(4)
    )
    assert halves(two, 0.6).tolist() == [False, False, True, True]
    assert (
        halves(two, np.sqrt((1 - two[1, 3]) / 2) + 1e-9) is None
    )  # the closest pair across decides: 1 and 3
    pull = [
        [1.0, 3.0],
        [3.0, 5.0],
        [5.0, -3.0],
        [7.0, -5.0],
    ]  # last layers go up for two clients, down for two
    method = m.FedCluster(period=1)
    rounds = [(range(4), pull), (range(4), np.add(pull, [4.0, 0.0])), (range(4), pull)]
    a, b, c = steps(method, rounds, sizes=[1, 3, 1, 1])
    assert a.labels.tolist() == [0] * 4 and np.allclose(now(a)[0], (22 / 6, 10 / 6))
    assert b.labels.tolist() == [0, 0, 1, 1]
    assert np.allclose(
        b.models, a.models
    )  # what was trained for the cut is not averaged
    assert np.allclose(c.models, [[2.5, 4.5], [6.0, -4.0]]) and c.settled.tolist() == [
        False,
        False,
    ]


def test_fedcluster_waits_for_all_members_and_stops_where_a_cut_does_not_stand():
    rounds = [([0, 1], [[0.0, 1.0], [0.0, 1.0]]), ([2, 3], [[0.0, -1.0], [0.0, -1.0]])]
    a, b = steps(m.FedCluster(period=0), rounds)
    assert a.labels.tolist() == [0] * 4 and b.labels.tolist() == [0, 0, 1, 1]
    alike = [[0.0, 1.0], [0.0, 2.0], [9.0, 3.0]]
    rounds = [(range(3), alike)] * 2 + [
        (range(3), [[0.0, 9.0], [0.0, 9.0], [0.0, -9.0]])
    ] * 2
    for state in steps(m.FedCluster(0.1, period=0), rounds):
        assert state.labels.tolist() == [0, 0, 0] and state.settled.tolist() == [True]
    assert np.allclose(now(state)[0], [0.0, 3.0])  # it goes on averaging


def test_fedcluster_cuts_down_to_pairs():
    updates = np.random.default_rng(0).normal(size=(6, 3))
    rounds = [(range(6), updates * t) for t in (1, 2, 3, 4, 5, 6)]
    *_, last = steps(m.FedCluster(0, 0), rounds, (0.0,) * 3, head=3)
    assert np.bincount(last.labels).max() <= 2 and last.settled.all()


def test_trimmed_means_and_medians_by_hand():
    column = np.array([[100.0], [0.0], [3.0], [1.0], [2.0]])
    assert trimmed_mean(column, 0.2).tolist() == [2] and trimmed_mean(
        column, 0.0
    ).tolist() == [21.2]
    assert trimmed_mean(column[:4], 0.2).tolist() == [26] and trimmed_mean(
        column[:4], 0.25
    ).tolist() == [2]
    assert median(column[:4], column[0]).tolist() == [2.0]  # between 1 and 3
    assert nearest(column, np.array([2.0]), 0.2).tolist() == [1, 2, 3, 4]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(5, 12), st.sampled_from([-1e6, -1e3, 1e2, 1e5])
)
def test_an_outlier_moves_no_centre_out_of_the_others_range(seed, n, far):
    rng = np.random.default_rng(seed)
    others = rng.normal(size=(n - 1, 3))
    points = np.insert(others, rng.integers(n), far, axis=0)
    low, high = others.min(axis=0) - 1e-9, others.max(axis=0) + 1e-9
    for one in (trimmed_mean(points, 0.2), median(points, points[0])):
        assert (low <= one).all() and (one <= high).all()
    for kind in (m.RobustTKM, m.RobustTKMAsRun):
        *_, state = steps(
            kind(1, 0.2),
            [(range(n), points)] * 2,
            (0.0,) * 3,
            head=3,
        )
        for found in (state.centers, state.models):
            assert (low <= found).all() and (found <= high).all()


def test_robust_without_trimming_is_kmeans_and_plain_means():
    points = [[0.0, 0.0], [1.0, 0.0], [20.0, 0.0], [22.0, 2.0]]
    state = next(steps(m.RobustTKM(2, 0), [(range(4), points)], sizes=[1, 9, 1, 9]))
    assert now(state) == [[0.5, 0]] * 2 + [[21, 1]] * 2
    assert np.allclose(np.sort(state.centers, axis=0), [[0.5, 0], [21, 1]])


def test_robust_described_clusters_once_and_published_every_round():
    apart = [[0.0, 0.0], [0.1, 0.1], [9.0, 9.0], [9.1, 9.1]]
    moved = [[0.0, 9.0], [9.0, 0.0], [9.0, 9.0], [0.0, 0.0]]
    rounds = [([0, 1, 2], apart[:3]), (range(4), apart), (range(4), moved)]
    *_, b, c = steps(m.RobustTKM(2, 0), rounds)
    assert (
        b.labels.tolist() == c.labels.tolist()
        and b.labels[0] == b.labels[1] != b.labels[2]
    )
    assert b.labels[3] == b.labels[2]  # heard late: the nearest centre
    assert now(c)[0] == [4.5, 4.5]
    *_, b, c = steps(m.RobustTKMAsRun(2, 0), rounds)  # sees the second number alone
    assert c.labels.tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
    waiting = next(steps(m.RobustTKM(3), [([0, 1], apart[:2])], n_clients=4))
    assert (
        waiting.models.tolist() == [[0.05, 0.05]] and waiting.labels.tolist() == [0] * 4
    )


@pytest.mark.parametrize("kind", [m.RobustTKM, m.RobustTKMAsRun])
def test_robust_finds_the_digits_and_with_one_cluster_is_fedavg(kind):
    fed = digits()
    assert (
        adjusted_rand_index(
            fed.clusters,
            run(kind(2), fed, local_epochs=5).labels,
        )
        == 1
    )
    assert same(run(kind(1, 0), fed), run(m.FedAvg(), fed))


def network(name):
    net = models.make(name, (1, 8, 8), 10)
    return net, [
        (shape[0], int(np.prod(shape[1:]))) for _, shape in net.shapes if len(shape) > 1
    ]


def shuffled(layers, rng):
    return permuted(layers, [rng.permutation(len(bias)) for _, bias in layers[:-1]])


def answers(net, theta):
    x = torch.from_numpy(
        np.random.default_rng(0).normal(size=(20, 1, 8, 8)).astype(np.float32)
    )
    return logits_of(net, theta, x)


@pytest.mark.parametrize(
    "name", ["mlp_plain", "lenet", "cnn_small", "mnist_cnn", "emdcfl_cnn"]
)
def test_matching_undoes_a_known_permutation_exactly(name):
    """Dense layers, convolutions, and a dense layer behind a convolution."""
    net, shapes = network(name)
    theta, rng = net.init(3), np.random.default_rng(1)
    layers = split(theta, shapes)
    assert np.array_equal(joined(layers), theta)
    other = shuffled(layers, rng)
    moved = joined(other)
    assert not np.array_equal(moved, theta) and np.allclose(
        answers(net, moved), answers(net, theta), atol=1e-9
    )
    assert np.array_equal(joined(permuted(other, match(other, layers))), theta)
    assert np.array_equal(
        joined(matched_mean([layers, other, shuffled(layers, rng)], [3, 1, 1])), theta
    )
    assert np.abs(answers(net, (theta + moved) / 2) - answers(net, theta)).max() > 0.01


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_permuting_any_model_leaves_the_matched_mean_as_it_is(seed):
    rng = np.random.default_rng(seed)
    shapes = [(6, 4), (5, 12), (3, 20)]  # six channels of two numbers, five of four
    sent = rng.normal(size=sum(o * i + o for o, i in shapes))
    clients = [
        split(sent + 0.05 * rng.normal(size=len(sent)), shapes) for _ in range(3)
    ]
    weights = [2.0, 5.0, 1.0]
    mean = matched_mean(clients, weights)
    assert np.allclose(
        joined(mean), np.average([joined(c) for c in clients], axis=0, weights=weights)
    )  # aligned
    for i in range(3):
        again = list(clients)
        again[i] = shuffled(clients[i], rng)
        found = matched_mean(again, weights)
        assert np.allclose(
            joined(permuted(found, match(found, mean))), joined(mean), atol=1e-12
        )
    assert np.array_equal(joined(matched_mean(clients[:1], [7])), joined(clients[0]))
    assert np.array_equal(joined(matched_mean(clients, [0, 0, 1])), joined(clients[2]))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_assignment_against_all_permutations(seed, n):
    cost = np.random.default_rng(seed).integers(0, 9, (n, n)).astype(float)
    best = min(sum(cost[range(n), order]) for order in itertools.permutations(range(n)))
    found = assignment(cost)
    assert sorted(found) == list(range(n)) and cost[range(n), found].sum() == best


def test_fesem_with_one_centre_is_fedavg_with_the_distance_term():
    equal, unequal = digits(), digits(SIZES)
    for lam in (0.0, 0.05, 2.0):
        assert np.array_equal(
            run(m.FeSEM(1, lam), equal).theta, run(m.FedProx(2 * lam), equal).theta
        )
        assert np.array_equal(
            run(m.FeSEM(1, lam, "samples"), unequal).theta,
            run(m.FedProx(2 * lam), unequal).theta,
        )
    assert not same(run(m.FeSEM(1, 2.0), equal), run(m.FedAvg(), equal), 1e-4)


def test_alpha_by_samples_pulls_small_clients_more():
    """Equation 7 divided by alpha_i: mu_i = 2 lambda / (m alpha_i)."""
    lam = 0.3
    equal = m.FeSEM(2, lam=lam)
    by_samples = m.FeSEM(2, lam=lam, alpha="samples")
    assert same(run(equal, digits()), run(by_samples, digits()))

    fed = digits(SIZES)
    spec = {"local_epochs": 3, "lr": 0.1, "batch_size": 10}
    net = models.make("mlp_plain", fed.input_shape, fed.n_classes)
    state = by_samples.start(fed, net, m.Context(0))
    clients = np.array([1, 3])
    with engine_of(fed, **spec, proximal=2 * lam) as engine:
        _, trained = by_samples.train(state, clients, 1, engine)
    for own, client in zip(trained.theta, clients, strict=True):
        alpha = SIZES[client] / sum(SIZES)
        with engine_of(fed, **spec, proximal=2 * lam / (4 * alpha)) as engine:
            alone = engine.train(state.models, [0], [client], 1)
        np.testing.assert_allclose(own, alone.theta[0], rtol=0, atol=1e-12)


def test_fesem_published_keeps_random_clusters_and_reports_the_best_centre():
    fed = digits((20,) * 6)
    method = m.FeSEMAsRun(2)
    assert (method.lam, method.grouping, method.report, method.rule) == (
        0.0,
        "random",
        "best",
        "participants",
    )
    found = run(method, fed, rounds=3, local_epochs=4)
    assert sorted(found.labels) == [0, 0, 0, 1, 1, 1]
    assert all(
        np.array_equal(labels, found.labels) for labels in found.labels_at.values()
    )
    # the same training without the penalty, in these groups: an oracle that believes
    # them
    assert same(
        found,
        run(
            fl.methods.Oracle(),
            replace(fed, clusters=found.labels),
            rounds=3,
            local_epochs=4,
        ),
    )
    with engine_of(fed) as engine:
        right = [
            engine.evaluate(found.theta, [k] * 6, range(6)).correct for k in (0, 1)
        ]
    best = right[int(np.sum(right, axis=1).argmax())]
    assert np.array_equal(found.clients["test"], 100 * best / 30)
    own = run(m.FeSEMAsRun(2, report="own"), fed, rounds=3, local_epochs=4)
    assert np.array_equal(own.theta, found.theta)
    assert np.array_equal(own.clients["test"], 100 * np.choose(own.labels, right) / 30)


def test_fesems_best_centre_of_numbers_has_the_least_squared_error():
    every = training.Evaluation(
        correct=np.zeros(4, dtype=int),
        total=np.full(4, 5),
        loss=np.array([0.2, 1.8, 0.8, 0.8]),
        squared=np.array([1.0, 9.0, 4.0, 4.0]),  # of centre 0 on both, then of 1
    )
    engine = SimpleNamespace(
        fed=SimpleNamespace(n_clients=2), evaluate=lambda *_: every
    )
    state = SimpleNamespace(models=np.zeros((2, 3)))
    found = m.FeSEM(2, report="best").evaluate(state, engine, "test")
    assert found.squared.tolist() == [4, 4] and found.loss.tolist() == [0.8, 0.8]
    assert found.correct.tolist() == [0, 0] and found.total.tolist() == [5, 5]


def test_fesem_from_equal_centres_loses_only_who_goes_the_other_way():
    fed = digits((20,) * 4)
    method, net = (
        m.FeSEM(2, grouping="equal"),
        fl.models.make("mlp_plain", fed.input_shape, 10),
    )
    first = method.start(fed, net, m.Context(seed=0))
    step = np.zeros_like(first.initial)
    step[0] = 1
    # their mean is half a step from the start: nearer to those who went there, farther
    # from the one who did not
    theta = first.initial + np.array([[1], [1], [1], [-1]], dtype=np.float32) * step
    once = method.collect(first, np.arange(4), theta, 1)
    assert list(once.labels) == [0, 0, 0, 0] and np.array_equal(
        once.models[1], first.initial
    )
    assert np.allclose(once.models[0], first.initial + step / 2)
    assert list(method.collect(once, np.arange(4), theta, 2).labels) == [0, 0, 0, 1]


def test_fesem_ma_of_aligned_clients_is_fesem():
    for options in ({"weighting": "samples"}, {"rule": "last_local"}):
        a, b = (
            run(kind(2, **options), digits(SIZES), local_epochs=4)
            for kind in (m.FeSEMMA, m.FeSEM)
        )
        assert (
            same(a, b)
            and np.array_equal(a.labels, b.labels)
            and len(set(a.labels)) == 2
        )


def test_fesem_ma_does_not_mind_the_order_of_neurons_and_fesem_does():
    fed, rng = digits(SIZES), np.random.default_rng(0)
    with engine_of(fed, lr=0.1) as engine:
        net, everybody = engine.model, np.arange(4)
        trained = engine.train(net.init(0)[None], [0] * 4, everybody, 1).theta
    _, shapes = network("mlp_plain")
    for kind in (m.FeSEMMA, m.FeSEM):
        method = kind(1)
        outputs = []
        for permute in ((), (1,), (0, 3)):
            sent = trained.copy()
            for i in permute:
                sent[i] = joined(shuffled(split(trained[i], shapes), rng))
            state = method.collect(
                method.start(fed, net, m.Context(0)), everybody, sent, 1
            )
            outputs.append(answers(net, state.models[0]))
        assert [np.allclose(outputs[0], other, atol=1e-9) for other in outputs[1:]] == [
            kind is m.FeSEMMA
        ] * 2


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6))
def test_f1_is_that_of_scikit_learn(seed, C):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, 5)
    truth, guess = ([rng.integers(0, C, n) for n in sizes] for _ in range(2))
    counts = np.zeros((5, C, C), dtype=np.int64)
    for i in range(5):
        np.add.at(counts[i], (truth[i], guess[i]), 1)
    option = {"average": "macro", "zero_division": 0}
    each = [100 * f1_score(t, g, **option) for t, g in zip(truth, guess, strict=True)]
    whole = 100 * f1_score(
        *(np.concatenate(every) for every in (truth, guess)), labels=range(C), **option
    )
    wanted = {
        "micro_f1": np.average(each, weights=sizes),
        "macro_f1": np.mean(each),
        "pooled_f1": whole,
    }
    assert scores.f1_summary(counts) == pytest.approx(wanted)


def test_f1_by_hand_with_a_client_of_one_class_and_one_without_samples():
    counts = np.array(
        [
            [[3, 1, 0], [0, 2, 0], [0, 0, 0]],
            [[0, 0, 0], [0, 5, 0], [0, 0, 0]],
            [[0] * 3] * 3,
        ]
    )
    first = (6 / 7 + 4 / 5) / 2
    wanted = {
        "micro_f1": (6 * first + 5) / 11,
        "macro_f1": (first + 1) / 2,
        "pooled_f1": (6 / 7 + 14 / 15) / 3,
    }
    assert scores.f1_summary(counts) == pytest.approx(
        {name: 100 * f1 for name, f1 in wanted.items()}
    )


def test_confusion_matrices_agree_with_the_engine():
    fed = digits(SIZES, classes=3)
    shared = replace(fed, test=[fed.test[0], fed.test[0], fed.test[2], fed.test[3]])
    rng = np.random.default_rng(0)
    for name in ("mlp_plain", "cnn_small"):
        with engine_of(shared, name, dtype="float32") as engine:
            theta = np.stack([engine.model.init(0, k) for k in range(3)])
            for rows in ([0, 0, 1, 2], rng.integers(0, 3, 4)):
                counts = rounds.confusion(engine.model, theta, rows, shared)
                expected = engine.evaluate(theta, rows, range(4))
                assert np.array_equal(
                    np.trace(counts, axis1=1, axis2=2), expected.correct
                )
                assert np.array_equal(counts.sum(axis=2), shared.label_counts("test"))
            assert not rounds.confusion(engine.model, theta, rows, shared, "val").any()
    result = run(m.Local(), fed)
    net = models.make("mlp_plain", fed.input_shape, 10)
    assert np.array_equal(
        result.confusion, rounds.confusion(net, result.theta, result.rows, fed)
    )


def test_bad_input_is_refused_in_one_sentence():
    for method in (m.FedDANE(), m.FeSEMMA(2)):
        refused(
            "of fltnb.models.NAMES, not 'resnet18:random'",
            rounds.check,
            method,
            digits(),
            "resnet18:random",
        )
    refused("5 clusters for 4 clients", run, m.RobustTKM(5), digits())
    refused("trim must be a number of at least 0 and below 0.5", m.RobustTKM, 2, 0.5)
    refused("1 rows for 4 clients: give one", rounds.confusion, *models_and_rows(3))
    refused(
        "no row 1: they run from 0 to 0",
        rounds.confusion,
        *models_and_rows([0, 0, 0, 1]),
    )


def models_and_rows(rows):
    fed = digits()
    net = models.make("mlp_plain", fed.input_shape, 10)
    return net, net.init(0)[None], rows, fed
