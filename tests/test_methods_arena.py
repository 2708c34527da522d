"""Methods of the field beside those of the four papers: known answers, by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from toys import QUICK, final, held_out, refused, served, steps, two_clusters

import fltnb as fl
from fltnb import methods as m
from fltnb.clustering.cuts import relabel
from fltnb.clustering.fedcollab import (
    Discriminator,
    coalitions,
    mean_cost,
    pair_inputs,
)
from fltnb.federations.phases import phases
from fltnb.methods import Context
from fltnb.methods.baselines.clove import assigned, at_random, best_number
from fltnb.methods.baselines.feddrift import losses_of_merging
from fltnb.methods.baselines.flhc import distances
from fltnb.methods.baselines.flux import axes, descriptor, elbow, linked
from fltnb.methods.baselines.ocfl import temperature
from fltnb.metrics import adjusted_rand_index
from fltnb.training import Trained

FOUR = np.arange(4)
LOSSES = [[1.0, 5.1], [1.0, 5.1], [2.1, 3.5], [2.1, 3.5]]


class Measured:
    """An engine whose clients have given losses under the models."""

    def __init__(self, losses):
        self.losses = np.array(losses)
        self.spec = SimpleNamespace(seed=0)

    def evaluate(self, theta, rows, clients, split):
        return SimpleNamespace(loss=self.losses[clients, rows])


def begun(method, n_clients, n_parameters=2, sizes=None):
    """The state of a method before round 1, of models 0, 1, ...."""
    model = SimpleNamespace(
        n_parameters=n_parameters,
        n_trainable=n_parameters,
        head=slice(n_parameters - 1, n_parameters),
        init=lambda seed, index=0: np.full(n_parameters, float(index)),
    )
    sizes = np.ones(n_clients) if sizes is None else np.array(sizes)
    fed = SimpleNamespace(n_clients=n_clients, sizes=sizes)
    return method.start(fed, model, Context(0))


def test_clove_parts_what_ifca_puts_together():
    """Model 0 is everybody's best; costs are 2 + 7, and 4.2 + 10.2 the other way."""
    engine = Measured(LOSSES)
    clove, ifca = m.CLoVE(2), m.IFCA(2)
    assert clove.observe(begun(clove, 4), FOUR, 1, engine).row.tolist() == [0, 0, 1, 1]
    assert ifca.observe(begun(ifca, 4), FOUR, 1, engine).row.tolist() == [0] * 4
    swapped = np.array(LOSSES)[:, ::-1]
    assert assigned(swapped, 2).tolist() == [1, 1, 0, 0]


def test_clove_with_one_client_a_cluster_is_the_optimal_assignment():
    loss = np.array([[1.0, 2, 9], [1.0, 5, 9], [3.0, 9, 9.5]])
    # 2 + 1 + 9.5 is less than all five other assignments
    assert assigned(loss, 3).tolist() == [1, 0, 2]


def test_clove_survives_equal_and_infinite_losses_and_few_clients():
    assert assigned(np.ones((3, 2)), 2).tolist() == [0, 0, 0]
    assert assigned(np.array([[np.nan, 1.0], [2.0, np.inf]]), 2).tolist() == [1, 0]
    assert assigned(np.array([[3.0, 1.0, 2.0]]), 3).tolist() == [1]
    assert assigned(np.ones((4, 3)), None).tolist() == [0] * 4


def test_clove_finds_the_number_of_clusters_but_never_one():
    three = np.repeat([[0.0, 0], [9, 0], [0, 9]], 4, axis=0)
    points = three + np.random.default_rng(0).normal(size=three.shape) / 10
    assert best_number(points, 12) == 3
    assert best_number(points, 2) == 2
    assert [best_number(points[:n], 12) for n in (1, 2, 3)] == [1, 2, 2]


def test_clove_draws_the_clusters_of_round_one_and_leaves_none_empty():
    for seed in range(20):
        drawn = at_random(6, 3, np.random.default_rng(seed))
        assert drawn.max() == 2 and np.array_equal(drawn, relabel(drawn))
    engine = Measured(LOSSES)
    method = m.CLoVEAsRun(2)
    state = method.observe(begun(method, 4), FOUR, 2, engine)
    assert state.row.tolist() == [0, 0, 1, 1]  # losses count from round 2 on
    assert m.build(method.settings()).patience is None


def test_clove_freezes_once_every_client_has_kept_its_cluster():
    method = m.CLoVE(2, patience=2)
    state, other = begun(method, 4), Measured(np.array(LOSSES)[::-1])
    sent = []
    for round, clients in enumerate([FOUR, [0, 1], FOUR, FOUR, FOUR], start=1):
        clients = np.array(clients)
        # in round 5 they say the opposite, and nobody is asked
        engine = other if round == 5 else Measured(LOSSES)
        state = method.observe(state, clients, round, engine)
        state = method.collect(state, clients, np.ones((len(clients), 2)), round)
        sent.append(method.traffic(state, 10))
    assert state.row.tolist() == [0, 0, 1, 1]
    assert sent == [(21, 12)] * 4 + [(10, 10)]


def test_flhc_distances_and_clusters_worked_by_hand():
    updates = np.array([[1.0, 0], [1, 0.1], [0, 1]])
    for metric, expected in {
        "L1": [0.1, 2, 1.9],
        "L2": [0.1, np.sqrt(2), np.sqrt(1.81)],
        "cosine": [1 - 1 / np.sqrt(1.01), 1, 1 - 0.1 / np.sqrt(1.01)],
    }.items():
        assert np.allclose(distances(updates, metric), expected, atol=1e-12)
    rounds = [([0, 1, 2], updates)]
    for threshold, labels in {1.95: [0, 0, 1], 2.0: [0, 0, 0], 0.05: [0, 1, 2]}.items():
        method = m.FLHC(threshold, after=0, metric="L1")
        (state,) = steps(method, rounds)
        assert state.labels.tolist() == labels
    average = m.FLHC(1.96, after=0, metric="L1", linkage="average")
    (state,) = steps(average, rounds)  # merged at (2 + 1.9) / 2
    assert state.labels.tolist() == [0, 0, 0]


def test_flhc_asks_all_clients_once_and_counts_them():
    """Clients 0 and 2 train x = 1 and 5 in round 2; client 1, who is absent, 2."""
    method = m.FLHC(2, after=1)
    trained = np.array([[1.0, 0], [2, 0], [5, 0]])

    class Asked:
        def train(self, theta, rows, clients, round):
            return Trained(trained[clients], np.zeros(len(clients)))

    state = begun(method, 3, sizes=[1, 1, 2])
    for round, clients in enumerate(([0, 1], [0, 2], [1]), start=1):
        clients = np.array(clients)
        state, came = method.train(state, clients, round, Asked())
        assert came.theta.tolist() == trained[clients].tolist()
        state = method.collect(state, clients, came.theta, round)
        if round == 1:
            assert served(method, state) == [[1.5, 0]] * 3
            assert method.setup_bytes(state) == (0, 0)
        if round == 2:
            assert state.labels.tolist() == [0, 0, 1]
            # 0 alone of cluster 0 took part: what 1 trained was for clustering
            assert served(method, state) == [[1, 0], [1, 0], [5, 0]]
    assert served(method, state) == [[2, 0], [2, 0], [5, 0]]
    assert method.setup_bytes(state) == (4 * 2, 4 * 2)


def test_flhc_says_whose_training_diverged_in_the_clustering_round():
    method = m.FLHC(1, after=0)
    state, lost = begun(method, 3), np.array([0, 0, np.nan])
    engine = SimpleNamespace(
        train=lambda *_: Trained(np.stack([lost, lost], axis=1), np.zeros(3))
    )
    refused("client 2 in the clustering round", method.train, state, [0, 1], 1, engine)
    _, came = method.train(state, np.array([2]), 1, engine)
    assert np.isnan(came.theta).all()  # the run itself stops with a sentence


def test_flhc_is_fedavg_before_its_clustering_and_local_after_it():
    fed = two_clusters(4)
    options = QUICK | {"rounds": 3}
    fedavg = fl.run(m.FedAvg(), fed, **options)
    one = fl.run(m.FLHC(1e9, after=1), fed, **options)
    assert np.array_equal(final(one), final(fedavg))
    alone = fl.run(m.FLHC(0, after=3), fed, **options)
    assert np.array_equal(final(alone), final(fedavg))
    apart = fl.run(m.FLHC(0, after=2), fed, **options)
    assert apart.labels.tolist() == [0, 1, 2, 3]
    assert np.array_equal(apart.labels_at[2], [0] * 4)


def test_fedper_averages_bodies_and_leaves_heads():
    rounds = [
        ([0, 1], [[1.0, 5.0], [4.0, 6.0]]),
        ([1, 2], [[3.0, 7.0], [5.0, 8.0]]),
    ]
    method = m.FedPer()
    first, second = steps(method, rounds, (0.5, 0.25), sizes=[2, 1, 1])
    assert served(method, first) == [[2, 5], [2, 6], [2, 0.25]]
    assert served(method, second) == [[4, 5], [4, 7], [4, 8]]
    assert method.traffic(second, 2) == (1, 1)


@pytest.mark.parametrize(("head", "same"), [(0, m.FedAvg), (2, m.Local)])
def test_fedper_without_a_head_is_fedavg_and_with_nothing_else_local(head, same):
    rounds = [([0, 2], [[1.0, 5.0], [4.0, 6.0]]), ([0, 1], [[3.0, 7.0], [5.0, 8.0]])]
    sizes = [1, 3, 2]
    mine, others = m.FedPer(), same()
    for a, b in zip(
        steps(mine, rounds, sizes=sizes, head=head),
        steps(others, rounds, sizes=sizes),
        strict=True,
    ):
        assert served(mine, a) == served(others, b)


class Descent:
    """An engine that takes one step of 0.1 on (theta - 1)^2 / 2, and a pull."""

    def train(self, theta, rows, clients, round, how=None):
        start = np.asarray(theta)[rows]
        gradient = start - 1
        if how is not None and how.anchors is not None:
            gradient = gradient + how.pull * (start - how.anchors)
        return Trained(start - 0.1 * gradient, np.zeros(len(clients)))


def test_ditto_takes_the_step_worked_by_hand():
    """v = 0, w = 2, lam = 1: v becomes 0 - 0.1 (-1 - 2), and w 2 - 0.1."""
    method = m.Ditto()
    state = begun(method, 3, sizes=[1, 3, 1])
    state = replace(state, models=np.full((1, 2), 2.0))
    state, trained = method.train(state, np.array([0, 1]), 1, Descent())
    state = method.collect(state, np.array([0, 1]), trained.theta, 1)
    assert np.allclose(state.own, [[0.3] * 2, [0.3] * 2, [0.0] * 2])
    # who never took part is served w
    assert np.allclose(served(method, state), [[0.3] * 2, [0.3] * 2, [1.9] * 2])
    fed = SimpleNamespace(n_clients=4, sizes=np.ones(4))
    model = SimpleNamespace(init=lambda seed: np.full(2, 7.0))
    joined = method.changed(state, fed, model, None, Context(0))
    assert np.allclose(joined.own[-1], 7) and np.allclose(
        served(method, joined), [[0.3] * 2] * 2 + [[1.9] * 2] * 2
    )
    assert joined.row.tolist() == [0] * 4 and joined.met.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("backend", ["serial", "pool", "stacked"])
def test_ditto_is_fedavg_beside_local_models(backend):
    fed = two_clusters(4)
    options = QUICK | {"backend": backend, "n_workers": 1, "participation": 0.5}
    known = []
    for lam in (0.0, 1.0):
        seen = []
        result = fl.run(
            m.Ditto(lam),
            fed,
            **options,
            watch=lambda round, state, *_, seen=seen: seen.append(state),
        )
        fedavg = fl.run(m.FedAvg(), fed, **options)
        assert np.array_equal(seen[-1].models, fedavg.theta)
        known.append((result, seen[-1].met))
    (alone, met), (pulled, _) = known
    local = fl.run(m.Local(), fed, **options)
    assert np.array_equal(final(alone)[met], final(local)[met])
    gaps = [np.abs(final(one) - fedavg.theta)[met].sum() for one in (pulled, alone)]
    assert gaps[0] < gaps[1]


def test_ditto_whose_own_models_diverge_stops():
    method, state = m.Ditto(), begun(m.Ditto(), 2)
    state = replace(state, own=np.array([[0.0, 0], [np.inf, 0]]))
    with np.errstate(invalid="ignore"):
        _, trained = method.train(state, np.arange(2), 1, Descent())
    assert np.isfinite(trained.loss).tolist() == [True, False]


def test_fedrep_trains_heads_then_bodies():
    fed = two_clusters(3)
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    spec = fl.training.TrainSpec(lr=0.1, dtype="float64")
    clients = np.arange(3)
    with fl.training.make_engine(fed, net, spec, "serial") as engine:
        for method in (m.FedRep(2, 0), m.FedRep(2, 1)):
            state = method.start(fed, net, Context(0))
            _, trained = method.train(state, clients, 1, engine)
            moved = trained.theta != method.dispatch(state, clients)[0].astype(float)
            body = np.ones(net.n_parameters, dtype=bool)
            body[net.head] = False
            assert moved[:, net.head].mean() > 0.5
            assert moved[:, body].any() == (method.body_epochs > 0)


def test_fedrep_bodies_do_not_see_how_a_client_names_its_classes():
    """Client 0 names classes in reverse, and its head's rows are reversed too."""
    fed = two_clusters(3)
    renamed = fed.labels.copy()
    renamed[fed.train[0]] = 9 - renamed[fed.train[0]]
    other = replace(fed, labels=renamed)
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    spec = fl.training.TrainSpec(lr=0.1, dtype="float64")
    method, clients = m.FedRep(2, 2), np.arange(3)
    begun = method.start(fed, net, Context(0))
    heads = begun.heads.astype(np.float64)
    weight, bias = heads[0, :-10].reshape(10, -1), heads[0, -10:]
    turned = heads.copy()
    turned[0] = np.append(weight[::-1].ravel(), bias[::-1])
    bodies = []
    for one, own in ((fed, heads), (other, turned)):
        models = begun.models.astype(np.float64)
        state = replace(begun, models=models, heads=own)
        with fl.training.make_engine(one, net, spec, "serial") as engine:
            state, trained = method.train(state, clients, 1, engine)
        state = method.collect(state, clients, trained.theta, 1)
        bodies.append(np.delete(state.models[0], np.r_[net.head]))
    assert np.allclose(*bodies, rtol=0, atol=1e-12)


def test_fedrep_as_run_serves_the_mean_head_to_whom_was_never_there():
    method = m.FedRepAsRun()
    state = begun(method, 3, sizes=[1, 3, 1])
    trained = np.array([[1.0, 4.0], [2.0, 8.0]])
    state = method.collect(state, np.array([0, 1]), trained, 1)
    assert served(method, state) == [[1.75, 4], [1.75, 8], [1.75, 7]]
    fed = SimpleNamespace(n_clients=4, sizes=np.ones(4))
    joined = method.changed(state, fed, None, None, None)
    assert served(method, joined)[3] == [1.75, 7]
    again = method.collect(joined, np.array([2]), np.array([[5.0, 5.0]]), 2)
    assert served(method, again) == [[5, 4], [5, 8], [5, 5], [5, 5]]


def test_fedper_gives_newcomers_the_initial_head():
    method = m.FedPer()
    (state,) = steps(method, [([0, 1], [[1.0, 5.0], [3.0, 6.0]])], (0.0, 0.25))
    fed = SimpleNamespace(n_clients=3, sizes=np.ones(3))
    joined = method.changed(state, fed, None, np.array([False, False, True]), None)
    assert served(method, joined) == [[2, 5], [2, 6], [2, 0.25]]
    assert joined.row.tolist() == [0, 0, 0]


def settled(distance, sizes, c, n_orders=20):
    """Coalitions and their cost, with a fixed seed."""
    rng = np.random.default_rng(0)
    return coalitions(np.array(distance), np.array(sizes), c, n_orders, rng)


@pytest.mark.parametrize(("d", "labels"), [(0.5857, [0, 0]), (0.5859, [0, 1])])
def test_fedcollab_joins_two_clients_up_to_the_distance_worked_by_hand(d, labels):
    """100 samples each, c = 10: 1 alone, 10 / sqrt(200) + d / 2 together."""
    found, cost = settled([[0, d], [d, 0]], [100, 100], 10)
    assert relabel(found).tolist() == labels
    assert np.isclose(cost, min(1.0, 10 / np.sqrt(200) + d / 2))


def partitions(n):
    """All labelings of n clients, numbered by first appearance."""
    if n == 0:
        return [[]]
    return [
        [*own, k] for own in partitions(n - 1) for k in range(max(own, default=-1) + 2)
    ]


def test_fedcollab_finds_the_best_of_all_partitions():
    rng = np.random.default_rng(1)
    for c in (0.5, 3.0, 8.0, 30.0):
        distance = rng.random((5, 5))
        distance = (distance + distance.T) * (1 - np.eye(5)) / 2
        sizes = rng.integers(5, 200, 5)
        costs = [mean_cost(np.array(p), distance, sizes, c) for p in partitions(5)]
        found, cost = settled(distance, sizes, c)
        assert np.isclose(cost, min(costs))
        assert np.isclose(mean_cost(found, distance, sizes, c), cost)
    everybody = settled(distance, sizes, 1e9)[0]
    assert len(np.unique(everybody)) == 1
    assert len(np.unique(settled(distance, sizes, 0.0)[0])) == 5


def test_fedcollab_sees_classes_beside_samples_and_one_layer_is_two():
    x, classes = np.array([[3.0, 4.0]]), np.array([1])
    # two classes: nu = 2 / sqrt(1), twice that for the class that it is
    assert pair_inputs(x, classes, 2).tolist() == [[3, 4, 1, 0, 4, 2]]
    assert pair_inputs(x, np.array([0]), 1).tolist() == [[3, 4, 1, 0, 2]]
    drawn = Discriminator(784 + 10 + 2, 10, 200, np.random.default_rng(0))
    assert drawn.W.size + drawn.w.size == 159_401
    assert abs(drawn.W[:785]).max() < 1 / 28 < 10 * abs(drawn.W[785:]).max() / 10


def test_fedcollab_takes_the_step_that_autograd_takes():
    import torch

    rng = np.random.default_rng(0)
    network = Discriminator(7, 2, 4, rng)
    left = rng.normal(size=(3, 7)).astype(np.float32)
    right = rng.normal(size=(5, 7)).astype(np.float32)
    W, w = (
        torch.tensor(part.copy(), requires_grad=True) for part in (network.W, network.w)
    )

    def loss(rows, truth):
        out = (torch.from_numpy(rows) @ W).relu() @ w[:-1] + w[-1]
        return torch.nn.functional.binary_cross_entropy_with_logits(
            out, torch.full((len(rows),), truth)
        )

    ((loss(left, 0.0) + loss(right, 1.0)) / 2).backward()
    network.step(left, right, 0.5)
    assert np.allclose(network.W, (W - 0.5 * W.grad).detach(), atol=1e-6)
    assert np.allclose(network.w, (w - 0.5 * w.grad).detach(), atol=1e-6)


def test_fedcollab_tells_swapped_classes_that_samples_alone_do_not():
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(60, 3)) for _ in range(4)]
    y = [((one[:, 0] > 0) ^ (i % 2)).astype(int) for i, one in enumerate(x)]
    options = {"rounds": 400, "lr": 0.1, "hidden": 20}
    told = fl.FedCollab(2.0, **options).fit(x, y)
    assert told.labels_.tolist() == [0, 1, 0, 1]
    blind = fl.FedCollab(2.0, **options).fit(x)
    assert blind.distance_.max() < 0.5 < told.distance_[0, 1]
    assert np.array_equal(told.distance_, told.distance_.T)
    again = fl.FedCollab(2.0, **options, n_jobs=2).fit(x, y)
    assert np.array_equal(told.distance_, again.distance_)
    # 3 values, 2 classes and two constants: (7 * 20 + 21) numbers a network and round
    rounds = (told.sent_ - 5) / (7 * 20 + 21)
    assert (rounds == rounds.astype(int)).all()
    assert np.array_equal(told.received_, told.sent_ - 5)


def test_fedcollab_counts_what_pairs_move_and_runs_in_coalitions():
    fed = two_clusters(4)
    method = m.FedCollab(fl.FedCollab(2.0, rounds=20, lr=0.2, hidden=20))
    result = fl.run(m.build(method.settings()), fed, **QUICK)
    assert np.array_equal(result.labels, fed.clusters)
    network = (64 + 10 + 2 + 1) * 20 + 1
    first = result.history.iloc[0]
    assert first["bytes_up"] == 4 * (6 * 20 * 2 * network + 4 * 5)
    assert first["bytes_down"] == 4 * 6 * 20 * 2 * network
    oracle = fl.run(m.Oracle(), fed, **QUICK)
    assert np.array_equal(final(result), final(oracle))


def test_flux_elbow_and_links_worked_by_hand():
    scalars = np.array([[0.0], [1], [2], [100], [101], [300]])
    nearest = np.array([1.0, 1, 1, 1, 1, 199])
    assert elbow(nearest) == 1
    assert linked(scalars).tolist() == [0, 0, 0, 1, 1, 2]
    assert linked(np.zeros((3, 2))).tolist() == [0, 0, 0]
    assert linked(np.array([[0.0], [7.0]])).tolist() == [0, 0]
    assert linked(np.zeros((1, 2))).tolist() == [0]


def test_flux_describes_samples_by_class_and_names_absent_classes():
    seen = np.array([[1.0, 4.0], [3.0, 4.0], [8.0, 1.0]])
    found = descriptor(seen, np.array([0, 0, 2]), 3)
    assert found[0].tolist() == [4, 3]
    assert found[2:].tolist() == [[2, 4], [1, 0], [-1, -1], [-1, -1], [8, 1], [0, 0]]


def test_flux_draws_axes_that_do_not_depend_on_data():
    middle, directions = axes(12, 3, 2.0)
    assert directions.shape == (12, 3)
    assert np.allclose(directions.T @ directions, np.eye(3))
    assert (middle > 0.8).all() and (middle < 1.2).all()
    assert np.allclose(axes(12, 3, 4.0)[1], directions)
    assert axes(2, 10, 0.0)[1].shape == (2, 2)


def flux_runs(**options):
    """FLUX and FedAvg on four clients of two clusters."""
    fed = held_out(two_clusters(4, samples=30), 10)
    settings = QUICK | {"rounds": 4}
    method = m.FLUX(n_components=3, **options)
    return fed, fl.run(method, fed, **settings), fl.run(m.FedAvg(), fed, **settings)


def test_flux_is_fedavg_until_it_clusters_and_then_parts():
    fed, late, fedavg = flux_runs(latest=4, rise=0.0)
    assert np.array_equal(final(late), final(fedavg))
    fed, parted, _ = flux_runs(latest=2, n_clusters=2)
    test = parted.history.query("split == 'test'")["accuracy"].tolist()
    assert test[:3] == fedavg.history.query("split == 'test'")["accuracy"].tolist()[:3]
    assert parted.labels_at[2].tolist() == [0] * 4
    assert np.array_equal(parted.labels, fed.clusters)
    # two numbers of everybody in rounds 1 to 3, then descriptors of 11 x 2 x 3 numbers
    P = parted.theta.shape[1]
    up = parted.history.query("split == 'test'")["bytes_up"].diff().tolist()[1:]
    assert up == [16 * (P + 2)] * 2 + [16 * (P + 2 + 66), 16 * P]
    _, one, _ = flux_runs(latest=2, n_clusters=1)
    assert np.array_equal(final(one), final(fedavg))


def test_flux_clusters_once_a_rise_is_small_but_not_before_three_rounds():
    method = m.FLUX(latest=100)
    state = begun(method, 2)
    for accuracy, due in (
        ([0.1, 0.2], False),
        ([0.1, 0.11, 0.3], True),
        ([0.1, 0.2, 0.3, 0.4], False),
        ([0.1, 0.2, 0.3, 0.31], True),
    ):
        asked = []
        method._clustered = lambda state, *_, asked=asked: asked.append(1) or state
        engine = SimpleNamespace(train=lambda *_: None)
        known = replace(state, accuracy=np.array(accuracy))
        method.train(known, np.arange(2), len(accuracy) + 1, engine)
        assert bool(asked) == due


def test_flux_places_a_newcomer_by_its_inputs_alone():
    """Clients 0 and 1 have small values, 2 and 3 large ones, and all both classes."""
    client_ids = np.repeat(FOUR, 100)
    x = np.random.default_rng(0).random((400, 6)) * (1 + 4 * (client_ids > 1)[:, None])
    options = {"val_fraction": 0.2, "test_fraction": 0.2}
    fed = fl.Federation.from_arrays(x, np.arange(400) % 2, client_ids, **options)
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    method = m.FLUX(n_components=3, latest=0, n_clusters=2)
    state = method.start(fed, net, Context(0))
    assert method.place(state, net, fed.client(3)[0]) == 0  # nobody is anywhere yet
    with fl.training.make_engine(fed, net, fl.training.TrainSpec(), "serial") as engine:
        state = method.observe(state, FOUR, 1, engine)
        state, trained = method.train(state, FOUR, 1, engine)
    state = method.collect(state, FOUR, trained.theta, 1)
    assert state.labels.tolist() == [0, 0, 1, 1]
    placed = [method.place(state, net, fed.client(i, "test")[0]) for i in FOUR]
    assert placed == [0, 0, 1, 1]
    parts = {split: getattr(fed, split) for split in ("train", "val", "test")}
    joined = {split: [*own, own[2], own[0]] for split, own in parts.items()}
    six = replace(fed, **joined)
    state = method.changed(state, six, net, None, Context(0))
    assert state.labels.tolist() == [0, 0, 1, 1, 1, 0]
    assert state.weights.tolist() == six.sizes.tolist()


def test_ocfl_temperature_worked_by_hand():
    assert temperature(np.zeros((4, 4))) == 0
    assert all(np.isclose(temperature(1 - np.eye(n)), 0.5) for n in (2, 3, 10))
    assert temperature(np.array([[0.0, 2], [2, 0]])) == 1


SIX = np.arange(6)
ALIKE = np.tile([1.0, 0.0], (6, 1))
PARTED = np.array([[1.0, 0], [2, 0], [3, 0], [0, 1], [0, 2], [0, 6]])


def added(method, updates, **options):
    """States of a method whose clients move by these updates, round by round."""
    state = begun(method, len(updates[0]), **options)
    for round, moved in enumerate(updates, start=1):
        clients = np.flatnonzero(~np.isnan(moved[:, 0]))
        theta = state.models[state.row[clients]] + moved[clients]
        state = method.collect(state, clients, theta, round)
        yield state


@pytest.mark.parametrize(
    "method",
    [m.OCFL(), m.OCFL("kmeans", n_clusters=2), m.OCFL("affinity"), m.OCFL("meanshift")],
    ids=repr,
)
def test_ocfl_clusters_once_when_the_updates_part(method):
    """T is 0, then sqrt(18) / sqrt(120), of 18 ordered pairs at a right angle."""
    first, second, third = added(method, [ALIKE, PARTED, PARTED[::-1]])
    assert first.temperature == 0 and first.labels.tolist() == [0] * 6
    assert np.isclose(second.temperature, np.sqrt(18 / 120))
    assert second.labels.tolist() == [0, 0, 0, 1, 1, 1]
    # 1 from round 1; then plain means inside the clusters, in this round already
    assert np.allclose(served(method, second), [[3, 0]] * 3 + [[1, 3]] * 3)
    assert np.allclose(served(method, third), [[3, 3]] * 6)
    assert np.array_equal(third.labels, second.labels)


def test_ocfl_whose_temperature_never_rises_is_a_plain_mean():
    first, second = added(m.OCFL(), [PARTED, ALIKE], sizes=[9, 1, 1, 1, 1, 1])
    assert first.labels.tolist() == second.labels.tolist() == [0] * 6
    assert np.allclose(second.models, [[2, 1.5]])


def test_ocfl_waits_until_all_were_heard():
    nobody = np.full((3, 2), np.nan)
    half = np.vstack([ALIKE[:3], nobody])
    rest = np.vstack([nobody, ALIKE[:3]])
    *_, waiting, level, parted = added(m.OCFL(), [half, half, rest, PARTED])
    assert np.isnan(waiting.temperature) and level.temperature == 0
    assert parted.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_ocfl_as_run_puts_all_noise_together():
    """Two clients go ways of their own, at right angles to both groups."""
    apart = np.eye(4)[[0, 0, 0, 1, 1, 1, 2, 3]]
    before = np.eye(4)[[0] * 8]
    for method, labels in (
        (m.OCFL(), [0, 0, 0, 1, 1, 1, 2, 3]),
        (m.OCFLAsRun(), [0, 0, 0, 1, 1, 1, 2, 2]),
    ):
        *_, last = added(method, [before, apart], n_parameters=4)
        assert last.labels.tolist() == labels


class Right:
    """An engine whose models tell so many of 10 samples of each client (M, K)."""

    def __init__(self, right):
        self.right = np.array(right)

    def evaluate(self, theta, rows, clients, split):
        assert split == "train"
        correct = self.right[clients, rows]
        return SimpleNamespace(correct=correct, total=np.full(len(correct), 10))


def phase(method, right, **state):
    """The state in which a new phase begins, for clients with these accuracies.

    The models are (0, 0), (4, 4), ....
    """
    M, K = np.shape(right)
    usual = {
        "models": 4.0 * np.arange(K)[:, None] * np.ones(2),
        "row": np.zeros(M, dtype=np.int64),
        "last": np.full(M, np.nan),
        "pairs": np.ones(K, dtype=np.int64),
        "idle": np.zeros(K, dtype=np.int64),
        "fresh": np.array(True),
    }
    state = replace(begun(method, M), **usual | state)
    return method.observe(state, np.array([0]), 2, Right(right))


def test_feddrift_merges_models_that_lose_little_on_each_others_data():
    """Accuracies ((0.9, 0.6), (0.5, 0.8)): what is lost is 0.3 both ways."""
    right = [[9, 5], [6, 8]]
    lost = losses_of_merging(np.array(right), np.array([10, 10]), np.arange(2))
    assert np.allclose(lost, [[0, 0.3], [0.3, 0]])
    pairs = np.array([3, 1])
    together = phase(m.FedDrift(0.3), right, pairs=pairs)
    assert together.labels.tolist() == [0, 0] and together.pairs.tolist() == [6]
    assert together.models.tolist() == [[1, 1]]  # 3 / 4 of 0 and 1 / 4 of 4
    apart = phase(m.FedDrift(0.5, 0.29), right, pairs=pairs)
    assert apart.labels.tolist() == [0, 1] and apart.pairs.tolist() == [4, 2]
    assert apart.models.tolist() == [[0, 0], [4, 4]]


def test_feddrift_lets_clients_leave_models_that_fail_them():
    """The second model is best for all, and fails clients 1 and 2."""
    right, last = [[2, 9], [2, 7], [2, 6], [2, 6]], np.array([0.9, 0.8, 0.9, np.nan])
    state = phase(m.FedDrift(0.15), right, last=last, pairs=np.array([5, 2]))
    # client 1 lost 0.1, client 2 0.3; client 3 is new
    assert state.labels.tolist() == [0, 0, 1, 0]
    assert served(m.FedDrift(), state) == [[4, 4]] * 4
    assert state.models.tolist() == [[4, 4], [4, 4], [0, 0]]
    assert state.pairs.tolist() == [5, 1, 5] and state.idle.tolist() == [0, 0, 1]
    assert np.allclose(state.last, [0.9, 0.7, 0.6, 0.6])
    strict = phase(m.FedDrift(0.05), right, last=last)
    assert strict.labels.tolist() == [0, 1, 2, 0]


def test_feddrift_keeps_as_many_models_as_it_may():
    right, last = [[9, 2, 1], [5, 2, 1], [5, 2, 1]], np.full(3, 0.9)
    idle = np.array([0, 4, 1])
    two = phase(m.FedDrift(0.1, max_models=2), right, last=last, idle=idle)
    assert two.labels.tolist() == [0, 1, 0] and len(two.models) == 2
    three = phase(m.FedDrift(0.1, max_models=3), right[:2], last=last[:2], idle=idle)
    assert three.labels.tolist() == [0, 1]
    assert three.models.tolist() == [[0, 0], [0, 0], [8, 8]]  # 4 was idle for longer
    one = phase(m.FedDrift(0.1, max_models=1), right, last=last, idle=idle)
    assert one.labels.tolist() == [0] * 3 and one.models.tolist() == [[0, 0]]


def test_feddrift_does_not_start_with_more_models_than_there_may_be():
    fed = two_clusters(4)
    says = "starts with 4 models, one for each client, and max_models is 2"
    refused(says, fl.run, m.FedDrift(max_models=2), fed, "mlp32")
    for method in (m.FedDrift(max_models=4), m.FedDrift(first="one", max_models=2)):
        fl.rounds.check(method, fed, "mlp32")


def test_feddrift_lets_only_as_many_leave_as_there_is_room_for():
    """The only model fails both clients, and each would need another."""
    state = phase(m.FedDrift(0.1), [[5], [5]], last=np.full(2, 0.9))
    assert state.labels.tolist() == [1, 0]
    assert served(m.FedDrift(), state) == [[0, 0]] * 2


def test_feddrift_measures_as_training_goes_on_and_its_code_once_a_phase():
    engine = Right([[7], [3]])
    for method, last in (
        (m.FedDrift(first="one"), 0.3),
        (m.FedDriftAsRun(first="one"), np.nan),
    ):
        state = begun(method, 2)
        state = method.observe(state, np.array([0]), 1, engine)
        state = method.observe(state, np.array([1]), 2, engine)
        assert np.array_equal(state.last, [0.7, last], equal_nan=True)
        assert method.setup_bytes(state) == (0, 0)
        fed = SimpleNamespace(n_clients=3, sizes=np.ones(3))
        state = method.changed(state, fed, None, None, None)
        state = method.observe(state, np.array([1]), 3, Right([[7], [3], [1]]))
        assert method.setup_bytes(state) == (4 * 3, 4 * 3 * 2)


def test_feddrift_follows_clients_that_change():
    """Two of six get data of the other cluster, and everybody finds its like."""
    options = {"round": 6, "drift": 2}
    fed = fl.federations.with_events(two_clusters(6, samples=40), [options], seed=0)
    settings = QUICK | {"rounds": 6, "batch_size": 10}
    result = fl.run(m.FedDrift(0.1), fed, **settings)
    assert result.labels_at[5].tolist() == [0, 1, 2, 3, 4, 5]
    now = phases(fed)[1].fed.clusters
    assert adjusted_rand_index(now, result.labels) == 1


PSI = np.array([[1.0, 0], [0.8, 0.6], [0, 1]])


@pytest.mark.parametrize(
    ("tau", "labels"), [(0.7, [0, 0, 2]), (0.6, [0, 0, 0]), (2.0, [0, 1, 2])]
)
def test_stocfl_unites_pairs_in_one_sweep_worked_by_hand(tau, labels):
    """Cosines 0.8, 0.6 and 0: means are not taken anew once 0 and 1 are united."""
    method = m.StoCFL(tau)
    state = replace(begun(method, 3), psi=PSI)
    state = method._united(state, np.arange(3))
    assert state.cluster.tolist() == labels
    # in the next round the mean of 0 and 1 stands at a cosine of 0.3162 to 2
    again = method._united(state, np.arange(3))
    assert again.cluster.tolist() == labels
    later = m.StoCFL(0.31)._united(state, np.arange(3))
    assert np.unique(later.cluster).size == 1


def test_stocfl_keeps_the_model_of_the_larger_side_or_the_only_one():
    models = np.arange(5)[:, None] * np.ones(2)  # the global one, then those of 0 to 3
    psi = np.array([[0.0, 1], [1, 0], [1, 0], [1, 0]])
    state = replace(begun(m.StoCFL(0.5), 4), models=models, psi=psi)
    sides = {"cluster": np.array([0, 1, 2, 2]), "owned": np.array([0, 1, 1, 0], bool)}
    united = m.StoCFL(0.5)._united(replace(state, **sides), np.arange(4))
    assert united.cluster.tolist() == [0, 2, 2, 2]
    assert united.models[3].tolist() == [3, 3]
    sides["owned"] = np.array([0, 1, 0, 0], bool)
    lent = m.StoCFL(0.5)._united(replace(state, **sides), np.arange(4))
    assert lent.models[3].tolist() == [2, 2] and lent.owned[2]


def test_stocfl_with_clusters_of_one_is_ditto_from_the_global_model_on():
    """Steps of 0.1 to 1: the first from the global model, with a pull of 0."""
    method = m.StoCFL(2.0, mu=1.0)
    state = begun(method, 2)
    state = replace(state, models=state.models + 2.0, initial=np.full(2, 2.0))
    for clients in ([0], [0, 1]):
        clients = np.array(clients)
        state, trained = method.train(state, clients, 1, Descent())
        state = method.collect(state, clients, trained.theta, 1)
        if len(clients) == 1:
            assert np.allclose(served(method, state), [[1.9] * 2] * 2)
            assert method.setup_bytes(state) == (4 * 2, 0)
    # both begin at 1.9, where the pull is nothing
    assert np.allclose(served(method, state), [[1.81] * 2] * 2)
    assert method.traffic(state, 10) == (20, 20)
    assert method.setup_bytes(state) == (2 * 4 * 2, 0)


def test_stocfl_says_whose_first_training_diverged():
    method, lost = m.StoCFL(), np.array([[0.0, 0], [np.nan, 0]])
    engine = SimpleNamespace(train=lambda *_, **__: Trained(lost, np.zeros(2)))
    clients = np.array([1, 2])
    refused("client 2 diverged", method.train, begun(method, 3), clients, 1, engine)


def test_what_cannot_work_is_refused():
    fed = two_clusters(4)
    refused("threshold or n_clusters", m.FLHC)
    refused("threshold or n_clusters", m.FLHC, 3, n_clusters=2)
    refused("between 1 and 4", fl.run, m.CLoVE(5), fed, **QUICK)
    refused("between 1 and 4", fl.run, m.FLHC(n_clusters=5), fed, **QUICK)
    lonely = fl.Federation.from_arrays(
        np.random.default_rng(0).random((20, 4)), np.arange(20) % 2, np.zeros(20, int)
    )
    refused("at least 2 clients", fl.run, m.FLHC(1), lonely, **QUICK)
    refused('clusterer="kmeans"', m.OCFL, "kmeans")
    refused('clusterer="kmeans"', m.OCFL, n_clusters=2)
    refused("raise min_size", m.OCFL, min_size=1)
    refused("at least 5 clients", fl.run, m.OCFL(min_size=5), fed, **QUICK)
    refused("validation samples", fl.run, m.FLUX(), fed, **QUICK)
    refused("must be a clusterer such as", m.FedCollab, fl.FCR())
    refused("fit it again", fl.FedCollab().place, [np.ones((3, 2))])
    numbers = fl.Federation.from_arrays(
        np.random.default_rng(0).random((40, 4)),
        np.arange(40) / 40,
        np.arange(40) % 4,
        val_fraction=0.2,
        targets="values",
    )
    refused("needs classes", m.FLUX().check, numbers)
    refused("needs classes", m.FedCollab().check, numbers)
    refused("compares accuracies", m.FedDrift().check, numbers)
    single = [np.ones((1, 2)), np.ones((3, 2))]
    refused("Client 0 has one sample", fl.FedCollab().fit, single)
    refused(
        "one class for every sample", fl.FedCollab().fit, [np.ones((3, 2))] * 2, [[0]]
    )
