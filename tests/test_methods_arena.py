"""Methods of the field beside those of the four papers: known answers, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from toys import QUICK, final, refused, served, steps, two_clusters

import fltnb as fl
from fltnb import methods as m
from fltnb.clustering.cuts import relabel
from fltnb.methods import Context
from fltnb.methods.baselines.clove import assigned, at_random, best_number
from fltnb.methods.baselines.flhc import distances
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


def test_fedper_gives_newcomers_the_initial_head():
    method = m.FedPer()
    (state,) = steps(method, [([0, 1], [[1.0, 5.0], [3.0, 6.0]])], (0.0, 0.25))
    fed = SimpleNamespace(n_clients=3, sizes=np.ones(3))
    joined = method.changed(state, fed, None, np.array([False, False, True]), None)
    assert served(method, joined) == [[2, 5], [2, 6], [2, 0.25]]
    assert joined.row.tolist() == [0, 0, 0]


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
