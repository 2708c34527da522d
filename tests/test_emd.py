"""EMD-CFL: earth mover's distances by hand, the clusterer's known answers, and the
method inside a run."""

import functools

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.base import clone
from toys import logits_of, refused

import fltnb as fl
from fltnb import models
from fltnb.clustering import EMDClustering, emd
from fltnb.methods import EMDCFL, Context, EMDCFLAsRun, FedAvg, Local, OnGraph, Oracle
from fltnb.methods.emdcfl import penultimate
from fltnb.metrics import adjusted_rand_index
from fltnb.rounds import participants


def on_circle(*degrees):
    angle = np.deg2rad(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_distances_by_hand():
    a, b = (
        np.array([[2.0, 0.0], [0.0, 0.0]]),
        np.array([[0.0, 3.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]),
    )
    assert np.allclose(
        emd.cosine_cost(a, b), [[1, 2, 1 - np.sqrt(0.5), 1], [1, 1, 1, 0]]
    )
    # directions 0 and 90 degrees against 0 and 180: the first stays, the second moves a
    # right angle, cost 1
    assert emd.earth_mover(on_circle(0, 90), on_circle(0, 180)) == pytest.approx(0.5)
    # 2 against 3 samples, each of the two holds 1/2 and each of the three 1/3: 0 -> 0
    # (1/3), 0 -> 90 (1/6), 180 -> 90
    # (1/6), 180 -> 180 (1/3); both moves cost 1
    assert emd.earth_mover(on_circle(0, 180), on_circle(0, 90, 180)) == pytest.approx(
        1 / 3
    )
    assert emd.earth_mover(on_circle(0), on_circle(180, 60)) == pytest.approx(
        (2 + 0.5) / 2
    )
    a, b = np.array([[1.0], [2.0], [-1.0]]), np.array([[1.0], [-3.0], [-1.0]])
    assert (
        emd.earth_mover(a, b, "sliced")
        == pytest.approx(emd.earth_mover(a, b))
        == pytest.approx(2 / 3)
    )
    one, other = np.eye(8)[:1], np.eye(8)[1:2]
    assert emd.earth_mover(one, other, "sliced", n_directions=20_000) == pytest.approx(
        1.0, abs=0.05
    )
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(8, 3)), rng.normal(size=(9, 3))
    exact = emd.earth_mover(a, b)
    near, far = (
        emd.earth_mover(a, b, "sinkhorn", regularisation=r) for r in (0.005, 10.0)
    )
    assert near == pytest.approx(exact, abs=0.01)
    assert far == pytest.approx(
        emd.cosine_cost(a, b).mean(), abs=0.05
    )  # all plans are equally good


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.integers(0, 99))
def test_earth_mover_is_that_of_pot_and_has_its_properties(n, m, width, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, width)), rng.normal(size=(m, width))
    exact = emd.earth_mover(a, b)
    assert exact == pytest.approx(
        ot.emd2(ot.unif(n), ot.unif(m), ot.dist(a, b, "cosine")), abs=1e-9
    )
    assert exact == pytest.approx(emd.earth_mover(b, a), abs=1e-9)
    assert 0 <= exact <= 2 and emd.earth_mover(a, a[::-1] * 7) == pytest.approx(
        0, abs=1e-9
    )
    # the cost of any other plan is no smaller, and slices see less than the whole
    assert emd.earth_mover(a, b, "sinkhorn") >= exact - 1e-4
    assert (
        emd.earth_mover(a, b, "sliced") <= exact * 1.5 + 1e-9
    )  # up to the chance of 256 directions


def clouds(groups, n=60, held=30, width=40, spread=0.4, seed=0):
    """Training and validation embeddings under one encoder for all; every group has two
    directions of its own."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(max(groups) + 1, 2, width))

    def draw(group, size):
        return centres[group, rng.permutation(size) % 2] + spread * rng.normal(
            size=(size, width)
        )

    return [draw(g, n) for g in groups], [draw(g, held) for g in groups]


GROUPS = np.array([0, 1, 0, 2, 2, 1, 0, 1])


def fit(groups=GROUPS, **options):
    train, held = clouds(groups)
    return EMDClustering(**{"tolerance": 0.05} | options).fit(train, lambda i: held)


def test_finds_the_groups_and_limits_of_the_tolerance():
    fitted = fit()
    assert fitted.labels_.tolist() == GROUPS.tolist() and fitted.n_clusters_ == 3
    assert np.array_equal(
        fitted.adjacency_, (GROUPS[:, None] == GROUPS[None]).astype(np.uint8)
    )
    assert fitted.linkage_.shape == (7, 4) and sorted(fitted.leaf_order_) == list(
        range(8)
    )
    assert fitted.tolerance_ == 0.05 and (fitted.reference_ > 0).all()
    same = (GROUPS[:, None] == GROUPS[None]) & ~np.eye(8, dtype=bool)
    inside, across = (
        fitted.distance_[same],
        fitted.distance_[GROUPS[:, None] != GROUPS[None]],
    )
    assert (
        abs(inside.mean()) < 0.01 and np.abs(inside).max() < 0.05 and across.min() > 0.1
    )
    assert (np.diag(fitted.distance_) == 0).all() and (fitted.distance_ < 0).any()
    train = clouds([0, 0])[0]
    equal = EMDClustering(projection=None).fit([train[0]] * 3, lambda i: [train[1]] * 3)
    assert np.allclose(equal.distance_, 0, atol=1e-12) and equal.n_clusters_ == 1
    for approximation in ("sinkhorn", "sliced"):
        assert (
            adjusted_rand_index(
                GROUPS, fit(distance=approximation, max_samples=30).labels_
            )
            == 1
        )
    found, alike = fit(tolerance="auto"), fit([0] * 6, tolerance="auto")
    assert (
        adjusted_rand_index(GROUPS, found.labels_) == 1
        and 0 < found.tolerance_ < 0.2
        and alike.n_clusters_ == 1
    )
    limits = [
        EMDClustering(tolerance=e).connect(fitted.distance_, fitted.reference_)[1]
        for e in (0, 1.9)
    ]
    assert [len(set(labels)) for labels in limits] == [
        8,
        1,
    ]  # although chance makes some distances negative
    assert np.array_equal(
        fit(n_clusters=3, tolerance=0).adjacency_, fitted.adjacency_
    )  # the cut, not the tolerance


def test_distances_are_those_of_the_formula_and_a_pair_agrees_on_its_projection():
    train, held = clouds([0, 1, 1])
    found = EMDClustering(projection=None).fit(train, [held] * 3)
    for i in range(3):
        own = emd.earth_mover(train[i], held[i])
        assert found.reference_[i] == own
        for j in {0, 1, 2} - {i}:
            assert found.distance_[i, j] == pytest.approx(
                emd.earth_mover(train[i], held[j]) - own, abs=1e-12
            )
    matrix = emd.projection_matrix(40, 20, 3, 0, 2)
    projected = EMDClustering(projection=0.5, random_state=3).fit(train, [held] * 3)
    own = emd.earth_mover(train[2] @ matrix, held[2] @ matrix)
    expected = emd.earth_mover(train[2] @ matrix, held[0] @ matrix) - own
    assert projected.distance_[2, 0] == pytest.approx(expected, abs=1e-9)
    once = clone(projected).set_params(reference="client").fit(train, [held] * 3)
    assert once.distance_[2, 0] == pytest.approx(
        expected + own - found.reference_[2], abs=1e-9
    )
    assert np.array_equal(once.reference_, found.reference_)
    assert (
        projected.sent_.tolist() == [2 * 90 * 20 + 2] * 3
        and once.sent_.tolist() == [2 * 90 * 20 + 1] * 3
    )
    one, other = (
        emd.projection_matrix(40, 36, 0, 3, 7),
        emd.projection_matrix(40, 36, 0, 7, 3),
    )
    assert one.shape == (40, 36) and np.array_equal(one, other)
    assert not np.array_equal(one, emd.projection_matrix(40, 36, 0, 3, 8))
    assert not np.array_equal(one, emd.projection_matrix(40, 36, 1, 3, 7))
    assert EMDClustering(projection=0.1).sent_width(3) == 1
    wide = np.concatenate(
        [emd.projection_matrix(50, 50, seed, 0, 1) for seed in range(20)]
    )
    assert (wide**2).sum(axis=1).mean() == pytest.approx(1.0, abs=0.05)  # keeps lengths


def test_one_shifted_client_refusals_and_chains():
    rng = np.random.default_rng(2)
    base = rng.normal(size=10) * 3
    train, held = (
        [base + rng.normal(size=(n, 10)) for _ in range(6)] for n in (80, 40)
    )
    shift = 2.0 * rng.normal(size=10)
    train[4], held[4] = train[4] + shift, held[4] + shift
    found = EMDClustering(tolerance=0.03).fit(train, lambda i: held)
    assert found.labels_.tolist() == [0, 0, 0, 0, 1, 0]
    # client 1's encoder tells the two apart, client 0's does not
    blind = np.ones((8, 2))
    sees = [on_circle(*np.linspace(0, 9, 8)), on_circle(*np.linspace(80, 89, 8))]
    found = EMDClustering(projection=None).fit([blind, sees[1]], [[blind, blind], sees])
    assert found.distance_[0, 1] == 0 and found.distance_[1, 0] > 0.5
    assert found.labels_.tolist() == [0, 1]
    # a chain 0 - 1 - 2 - 3 is four clusters, not one: nobody has the neighbours of
    # another
    distance = np.full((5, 5), 0.5)
    for i, j in ((0, 1), (1, 2), (2, 3)):
        distance[i, j] = distance[j, i] = 0.01
    distance[0, 4] = 0.01  # one direction only
    adjacency, labels, _ = EMDClustering().connect(distance, np.ones(5))
    assert labels.tolist() == [0, 1, 2, 3, 4] and adjacency.sum() == 5 + 6
    distance[0, 2] = distance[2, 0] = distance[3, 0] = distance[0, 3] = distance[
        1, 3
    ] = distance[3, 1] = -0.01
    assert EMDClustering().connect(distance, np.ones(5))[1].tolist() == [0, 0, 0, 0, 1]


def test_processes_most_samples_and_one_encoder():
    train, held = clouds([0, 1, 0, 1])
    one = EMDClustering(n_jobs=1).fit(train, [held] * 4)
    with parallel_config("threading"):
        two = EMDClustering(n_jobs=2).fit(train, lambda i: held)
    assert np.array_equal(one.distance_, two.distance_)
    train, held = clouds([0, 0, 1], n=50, held=40)
    few = EMDClustering(max_samples=20, projection=None).fit(train, lambda i: held)
    kept = [
        np.sort(emd.stream(0, "method", 0, n).choice(n, 20, replace=False))
        for n in (50, 40)
    ]
    assert few.reference_[1] == emd.earth_mover(train[1][kept[0]], held[1][kept[1]])
    enough, every = (
        EMDClustering(max_samples=n).fit(train, lambda i: held).distance_
        for n in (50, 512)
    )
    assert np.array_equal(enough, every)
    train, held = clouds(GROUPS)
    samples = [np.concatenate(pair) for pair in zip(train, held, strict=True)]
    found = EMDClustering(tolerance=0.3).fit(
        samples
    )  # random halves do not have equal shares of both directions
    assert adjusted_rand_index(GROUPS, found.labels_) == 1
    a, b = emd._halves(samples[0], 0, 0)
    assert (
        len(a) + len(b) == 90 and len(np.unique(np.concatenate([a, b]), axis=0)) == 90
    )


def blocks(groups, within, across):
    rng, groups = np.random.default_rng(0), np.asarray(groups)
    same = groups[:, None] == groups[None]
    distance = np.where(
        same,
        within * rng.normal(size=same.shape),
        across * rng.uniform(1, 6, size=same.shape),
    )
    np.fill_diagonal(distance, 0)
    return distance


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    "groups", [[0] * 8, [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 3, 4], [0, 0, 0, 0, 0, 1]]
)
def test_auto_finds_separable_groups_at_any_scale(groups, scale):
    distance = scale * blocks(groups, 0.003, 0.03)
    reference = np.full(len(groups), 0.05 * scale)
    _, labels, tolerance = EMDClustering(tolerance="auto").connect(distance, reference)
    assert adjusted_rand_index(np.array(groups), labels) == 1
    if len(set(groups)) > 1:
        assert 0 < tolerance < 0.03 * scale
    if scale == 1:
        assert np.array_equal(EMDClustering().connect(distance, reference)[1], labels)


def test_auto_reads_chance_off_negative_distances():
    """One pair is farther apart than the others: a gap, unless distances below 0 show
    that chance is as large."""
    distance, reference = np.full((6, 6), 0.001), np.full(6, 0.05)
    distance[:5, 5] = distance[5, :5] = 0.02
    assert EMDClustering(tolerance="auto").connect(distance, reference)[1].tolist() == [
        0,
        0,
        0,
        0,
        0,
        1,
    ]
    distance[2:4, :2] = -0.03
    assert (
        EMDClustering(tolerance="auto").connect(distance, reference)[1].tolist()
        == [0] * 6
    )
    # pairs of pairs: chance, then 0.05 inside the pairs of pairs, then 1
    half, quarter = np.arange(8) // 4, np.arange(8) // 2
    far = np.where(
        half[:, None] != half, 1.0, np.where(quarter[:, None] != quarter, 0.05, 0.001)
    )
    np.fill_diagonal(far, 0)
    _, labels, tolerance = EMDClustering(tolerance="auto").connect(
        far, np.full(8, 0.05)
    )
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and 0.001 < tolerance < 0.05


ONES = np.ones((3, 2))


@pytest.mark.parametrize(
    ("train", "held", "message"),
    [
        ([ONES], [[ONES]], "at least 2 clients"),
        ([ONES, np.ones((3, 4))], None, "of dimension 4"),
        ([ONES] * 2, [[ONES] * 2], "encoders of all 2 clients, not 1"),
        ([ONES] * 2, [[ONES]] * 2, "of 1 clients, not 2"),
        (
            [ONES] * 2,
            [[ONES, np.ones((0, 2))]] * 2,
            "Client 1 has no validation embeddings .* encoder of client 0",
        ),
        (
            [ONES] * 2,
            [[ONES, np.ones((3, 5))]] * 2,
            "Client 1 .* encoder of client 0 of dimension 5, not 2",
        ),
        ([ONES] * 2, [[ONES, np.inf * ONES]] * 2, "NaN or infinite"),
        ([np.ones((1, 2))] * 2, None, "single sample, which cannot be halved"),
    ],
)
def test_bad_embeddings_are_refused(train, held, message):
    refused(message, EMDClustering().fit, train, held)


TURNED = {"n_clients": 6, "angles": ((0,), (90,))}
SHORT = {
    "model": "mlp_plain",
    "rounds": 3,
    "local_epochs": 5,
    "batch_size": 16,
    "lr": 0.05,
    "momentum": 0.9,
}
QUICK = {"backend": "stacked", "progress": False, "participation": 1.0, "eval_every": 3}


@pytest.fixture(scope="module")
def turned(digits):
    return fl.federations.rotated_copies(
        digits, **TURNED, val_fraction=0.2, samples_per_client=60
    )


def run(method, fed, **change):
    return fl.run(method, fed, **SHORT | QUICK | change)


def test_right_clusters_are_the_oracle_from_the_first_round(turned):
    ours, oracle = run(EMDCFL(), turned), run(Oracle(), turned)
    assert adjusted_rand_index(ours.labels, turned.clusters) == 1
    assert np.allclose(
        ours.theta[ours.rows], oracle.theta[oracle.rows], rtol=0, atol=1e-6
    )
    assert ours.accuracy > run(FedAvg(), turned).accuracy > 50
    result = run(
        EMDCFL(), turned, participation=0.5, rounds=4, eval_every=1, local_epochs=3
    )
    truth = 10 + np.arange(6)
    for t in range(1, 5):
        drawn = participants(6, 0.5, 0, t)
        truth[drawn] = turned.clusters[drawn]
        assert adjusted_rand_index(result.labels_at[t], truth) == 1


@pytest.mark.parametrize("model", ["mlp", "leaf_cnn", "lenet", "mnist_cnn"])
def test_embeddings_are_what_the_last_layer_gets(turned, model):
    net = models.make(model, turned.input_shape, turned.n_classes)
    theta, x = net.init(0), turned.client(0, "val")[0]
    z, last = penultimate(net, theta, x), net.unflatten(theta)[-2:]
    assert z.shape == (len(x), net.layers[-1].inputs) and (z >= 0).all()
    assert np.allclose(
        z @ last[0].numpy().T + last[1].numpy(),
        logits_of(net, theta, torch.from_numpy(x)),
        atol=1e-5,
    )


EIGEN = fl.methods.FLT(fl.EigenRelevance(2))


class Walk:
    """A run by hand: whoever takes part comes back with a model of its own; counts what
    is measured."""

    def __init__(self, method, fed, seed=0):
        self.method, self.fed, self.round = method, fed, 0
        self.net = models.make("mlp_plain", fed.input_shape, fed.n_classes)
        self.context = Context(seed, model=self.net)
        self.state = method.start(fed, self.net, self.context)
        self.first = self.state.models[0].copy()

    def go(self, *clients):
        self.round += 1
        clients = np.array(clients)
        rng = np.random.default_rng(self.round)
        trained = self.first + 0.001 * rng.normal(
            size=(len(clients), len(self.first))
        ).astype(np.float32)
        self.state = self.method.collect(
            self.state, clients, trained.copy(), self.round
        )
        self.state = self.method.revise(self.state, self.fed, self.round, self.context)
        theta, rows = self.method.serve(self.state)
        return trained, theta[rows], self.state.labels


def by_class(sizes=(30, 20, 10, 40)):
    """Four clients on two kinds of images that any network tells apart: all in the left
    half, all in the right."""
    rng = np.random.default_rng(0)
    images = np.zeros((400, 8, 8), dtype=np.uint8)
    images[:200, :, :4] = rng.integers(100, 255, (200, 8, 4))
    images[200:, :, 4:] = rng.integers(100, 255, (200, 8, 4))
    train = [np.arange(n) + 100 * i for i, n in enumerate(sizes)]
    val, test = (
        [np.arange(first, first + 20) + 100 * i for i in range(4)] for first in (60, 80)
    )
    held = {
        "train": train,
        "val": val,
        "test": test,
        "clusters": np.array([0, 0, 1, 1]),
    }
    return fl.Federation(images=images, labels=np.arange(400) % 2, n_classes=2, **held)


def test_aggregation_by_hand_also_of_few():
    walk = Walk(EMDCFL(EMDClustering(tolerance=0.05)), by_class())
    a, served, labels = walk.go(0, 1, 2, 3)
    assert labels.tolist() == [0, 0, 1, 1]
    assert np.allclose(served[0], (30 * a[0] + 20 * a[1]) / 50) and np.array_equal(
        served[0], served[1]
    )
    assert np.allclose(served[2], (10 * a[2] + 40 * a[3]) / 50)
    assert walk.state.local.shape[0] == 0  # nobody's own model is needed any more
    b, now, labels = walk.go(0)
    assert (
        np.allclose(now[0], b[0])
        and np.array_equal(now[1], now[0])
        and np.array_equal(now[2], served[2])
    )
    walk = Walk(EMDCFL(EMDClustering(tolerance=0.05)), by_class())
    a, served, labels = walk.go(0, 2)
    assert labels.tolist() == [0, 1, 2, 3]
    assert np.array_equal(served[1], walk.first) and np.array_equal(
        served[3], walk.first
    )
    assert np.allclose(served[0], a[0]) and np.isnan(walk.state.distance[0, 1])
    before = walk.state.distance[0, 2]
    b, served, labels = walk.go(1, 2)
    assert labels.tolist() == [0, 0, 1, 2] and walk.state.distance[0, 2] == before
    assert np.allclose(served[0], b[0])  # of the cluster of 0 and 1, client 1 took part
    assert np.array_equal(served[0], served[1]) and np.allclose(served[2], b[1])
    c, served, labels = walk.go(3)
    assert labels.tolist() == [0, 0, 1, 1] and np.allclose(served[2], c[0])
    assert np.allclose(served[0], b[0])
    walk = Walk(EMDCFL(EMDClustering(tolerance=0.05)), by_class())
    walk.go(2)
    assert np.isnan(walk.state.distance).sum() == 12 and walk.state.sent.tolist() == [
        0,
        0,
    ]
    walk.go(3)
    assert walk.state.labels.tolist() == [0, 1, 2, 2]
    body = (
        64 * 200 + 200
    )  # all but the last layer, from 2 to 3 and back; 180 numbers per embedding
    assert walk.state.sent.tolist() == [
        2 * body + 180 * (10 + 20 + 40 + 20) + 2,
        2 * body,
    ]  # and 2 references
    assert walk.method.setup_bytes(walk.state)[1] == 8 * body


def test_published_rule_averages_everybodys_last_model_and_measures_again():
    method = EMDCFLAsRun(EMDClustering(tolerance=0.05))
    assert method.rule == "last_local" and method.repeat
    walk = Walk(method, by_class())
    a, _, _ = walk.go(0, 1, 2)
    before = walk.state.distance[0, 2]
    b, served, labels = walk.go(1, 3)
    assert (
        labels.tolist() == [0, 0, 1, 1] and walk.state.distance[0, 2] == before
    )  # both models are as they were
    assert walk.state.distance[1, 0] != 0 and np.allclose(
        served[0], (30 * a[0] + 20 * b[0]) / 50
    )
    assert np.allclose(served[3], (10 * a[2] + 40 * b[1]) / 50)
    c, served, _ = walk.go(0)
    assert walk.state.distance[0, 2] != before and np.allclose(
        served[1], (30 * c[0] + 20 * b[0]) / 50
    )
    everybody = Walk(EMDCFLAsRun(EMDClustering(tolerance=0.05)), by_class())
    everybody.go(0, 1, 2, 3)
    before = everybody.state.distance.copy()
    everybody.go(0, 1, 2, 3)
    assert np.array_equal(
        everybody.state.distance, before
    )  # one-shot where all take part at once


@pytest.mark.parametrize("kind", [EMDCFL, EMDCFLAsRun])
def test_a_clustering_and_a_training_on_its_graph_are_the_run(kind):
    """Where everybody takes part in round 1: models and bytes, to the bit."""
    settings = {"local_epochs": 2, "participation": 1.0, "batch_size": 10, "lr": 0.02}
    settings |= {"momentum": 0.9, "weight_decay": 1e-4, "seed": 3}
    fed, method = by_class(), kind(EMDClustering(tolerance=0.05))
    whole = fl.run(method, fed, "mlp_plain", 3, progress=False, **settings)
    clusterer, encoder = method.clustering(fed, "mlp_plain", settings)
    assert encoder.settings()["kind"] == "own" and encoder.weight_decay == 1e-4
    fitted = clone(clusterer).fit(*encoder.embed(fed))
    assert fitted.n_clusters_ == 2
    arrays = {"adjacency": fitted.adjacency_, "labels": fitted.labels_}
    graph = method.graph_from(arrays, fed, "mlp_plain")
    rest = OnGraph(graph, rule=method.rule)
    two = fl.run(rest, fed, "mlp_plain", 3, progress=False, **settings)
    assert np.array_equal(whole.theta[whole.rows], two.theta[two.rows])
    assert np.array_equal(whole.labels, two.labels)
    sent = ["bytes_up", "bytes_down"]
    assert whole.history[sent].iloc[-1].equals(two.history[sent].iloc[-1])
    for other in ({"participation": 0.5}, {"class_weights": [1, 9]}):
        assert method.clustering(fed, "mlp", settings | other) is None
    usual = {"proximal": 0.0, "dtype": "float32", "loss": "cross_entropy"}
    usual |= {"class_weights": None}
    assert method.clustering(fed, "mlp", settings | usual) is not None


def test_a_clustering_and_a_training_on_its_graph_are_flt():
    fed = by_class()
    for method in (fl.methods.FLT(fl.MeanImage(n_clusters=2)), EIGEN):
        whole = fl.run(method, fed, "mlp_plain", 2, progress=False)
        clusterer, encoder = method.clustering(fed, "mlp_plain", {})
        z = fl.encoders.embed_clients(fed, encoder, n_jobs=1)
        fitted = clone(clusterer).fit(z)
        arrays = {name.removesuffix("_"): one for name, one in vars(fitted).items()}
        graph = method.graph_from(arrays, fed, "mlp_plain")
        two = fl.run(OnGraph(graph), fed, "mlp_plain", 2, progress=False)
        assert np.array_equal(whole.theta[whole.rows], two.theta[two.rows])
        assert np.array_equal(whole.labels, two.labels)
        sent = ["bytes_up", "bytes_down"]
        assert whole.history[sent].equals(two.history[sent])


def test_settings_come_back_and_bad_ones_are_refused(turned, digits):
    method = EMDCFL(
        EMDClustering(tolerance="auto", distance="sliced"), rule="last_local"
    )
    again = fl.methods.build(method.settings())
    assert (
        again.settings() == method.settings() and again.clusterer.distance == "sliced"
    )
    bare = fl.federations.rotated_copies(
        digits, **TURNED, val_fraction=0.0, samples_per_client=20
    )
    refused("EMDClustering", EMDCFL, fl.FCR())
    refused("client 0 has none", run, EMDCFL(), bare)
    for wrong in (-1, 3.0):
        refused(
            "cosine distance from 0 to 2",
            run,
            EMDCFL(EMDClustering(tolerance=wrong)),
            turned,
        )
    refused("without n_clusters", EMDCFL, EMDClustering(n_clusters=2))
    assert run(Local(), turned, rounds=1).labels is None


def test_own_models_train_with_as_many_processes_as_are_asked_for(monkeypatch):
    digits = fl.load("digits")
    base = {"kind": "label_clusters", "n_clients": 4}
    base |= {"n_clusters": 2, "classes_per_cluster": 2}
    fed = fl.federations.held_out(digits, base)
    own = fl.OwnModels(model="mlp32", local_epochs=1)
    made = []

    make_engine = fl.training.make_engine

    @functools.wraps(make_engine)
    def engine(*given, n_workers, **options):
        made.append(n_workers)
        return make_engine(*given, n_workers=n_workers, **options)

    monkeypatch.setattr("fltnb.training.make_engine", engine)
    alone, _ = own.embed(fed, n_workers=1)
    together, _ = own.embed(fed, n_workers=2)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    training = {"local_epochs": 1, "participation": 1.0}
    context = fl.methods.Context(seed=0, n_jobs=2)
    fl.methods.EMDCFL().graph_before(fed, "mlp32", training, context)
    assert made == [1, 2, 2]
