"""What clusters would gain, where the answer is known beforehand."""

from dataclasses import replace

import numpy as np
from toys import refused

import fltnb as fl


def federation(labels, digits, n_clients=12):
    return fl.Federation.from_arrays(digits.images, labels, np.arange(len(digits)) % n_clients)


def test_known_answers(digits):
    """One cluster and clusters of one are the two models they are compared with; wrong clusters gain nothing."""
    fed = federation(digits.labels, digits)
    all_in_one, alone = fl.clustering_gain(fed, np.zeros(12)), fl.clustering_gain(fed, np.arange(12)[::-1])
    assert all_in_one[:2] == (0, 0) and alone.over_own == 0 and alone.over_own_error == 0
    assert np.isclose(all_in_one.over_own, -alone.points) and all_in_one.over_own > 5  # 120 images each
    assert fl.clustering_gain(fed, np.arange(12) % 3).points < 0  # nobody differs: a third of the data is less
    order = np.random.default_rng(0).permutation(12)
    turned = replace(fed, train=[fed.train[i] for i in order], test=[fed.test[i] for i in order])
    again = fl.clustering_gain(turned, order % 3)
    assert np.allclose(again[:4], fl.clustering_gain(fed, np.arange(12) % 3)[:4])
    refused("labels must be 12 clusters", fl.clustering_gain, fed, [0, 1])
    refused("width must be a whole number", fl.clustering_gain, fed, np.zeros(12), width=0)


def test_clusters_with_classes_of_their_own_gain_what_the_swap_costs(digits):
    """Half of the clients call a digit d its successor: together they can be right on one half only."""
    swapped = np.where(np.arange(len(digits)) % 12 < 6, digits.labels, (digits.labels + 1) % 10)
    gain = fl.clustering_gain(federation(swapped, digits), np.arange(12) // 6)
    assert 35 < gain.points < 60 and 0 < gain.error < 5


def test_what_is_judged_was_not_seen(digits):
    """Random classes cannot be learnt, not even where every client holds copies of the same samples."""
    noise = np.random.default_rng(1).integers(0, 10, len(digits))
    fed = federation(noise, digits)
    everybody = np.concatenate(fed.train)[:600]
    clients = fl.clustering_gain(replace(fed, train=[everybody] * 6 + [np.tile(everybody, 2)] * 6), np.arange(12) % 2)
    assert (clients.clients[["one_model", "cluster_model", "own_model"]].to_numpy() < 16).all()
