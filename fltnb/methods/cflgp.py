"""CFLGP: clusters from a running profile of the clients' gradients.

Kim, Kim and de Veciana, Clustered Federated Learning via Gradient-based Partitioning, ICML 2024 (PMLR 235).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..randomness import integer
from ..settings import Count, Natural, Variant
from .base import Context, HardMethod, State, one_cluster
from .modelspace import cluster_means, gram, leading_features, quick_kmeans


class CFLGP(HardMethod):
    """Cluster the clients by the leading singular directions of their averaged updates, again and again.

    A client's profile is a running mean of what it sends; every ``period`` rounds the profiles of all clients heard so
    far are projected on their K leading singular vectors and clustered by k-means++, and the new clusters are renamed
    so that as many clients as possible keep their label. Clients are averaged inside the new clusters, all alike.

    A profile has one block, as in the released code. The paper's text lets one of the K models after the other be sent
    to everybody; that is not here, nor is its single mini-batch gradient: an update is that of the client's whole local
    training. Profiles take M x P numbers. A client never heard stays in cluster 0, all while fewer than K are heard.

    Parameters
    ----------
    n_clusters, variant
        Number of clusters K, given. "as_run": :class:`CFLGPAsRun`.
    period : int
        Q, rounds from one clustering to the next.
    stop : int
        Labels are frozen after this round; 0 never.
    """

    name = "cflgp"
    own_blocks = by_samples = False

    def __init__(self, n_clusters: Count, period: Count = 2, stop: Natural = 10, *, variant: Variant = "as_written"):
        pass

    def start(self, fed, model, context: Context) -> State:
        """Everybody in cluster 0, all models equal, profiles zero."""
        theta = model.init(context.seed)
        blocks = self.n_clusters if self.own_blocks else 1
        return one_cluster(fed, np.repeat(theta[None], self.n_clusters, axis=0)) | {
            "profile": np.zeros((fed.n_clients, blocks, model.n_trainable), dtype=theta.dtype),
            "heard": np.zeros(fed.n_clients, dtype=bool),
            "seed": np.array(context.seed),
        }

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Update the profiles and cluster if it is time, then average inside the clusters."""
        row, heard, profile = state["row"], state["heard"], state["profile"]
        if (round - 1) % self.period == 0 and (round <= self.stop or not self.stop):
            heard, profile = heard.copy(), profile.copy()
            weight = newest_weight(round - 1, self.n_clusters, self.period)
            for client, block, trained in zip(clients, row[clients] * self.own_blocks, theta, strict=True):
                profile[client, block] *= 1 - weight
                profile[client, block] += weight * (trained - state["models"][row[client]])[: profile.shape[2]]
            heard[clients] = True
            if heard.sum() >= self.n_clusters:
                row = self._cluster(profile, heard, row, integer(int(state["seed"]), "method", round))
        weights = state["weights"][clients] if self.by_samples else np.ones(len(clients))
        models = cluster_means(row[clients], weights, theta, state["models"])
        return state | {"models": models, "row": row, "labels": row, "heard": heard, "profile": profile}

    def _cluster(self, profile: np.ndarray, heard: np.ndarray, row: np.ndarray, seed: int) -> np.ndarray:
        points = profile.reshape(len(profile), -1)
        points = points if heard.all() else points[heard]
        features = leading_features(gram(points, np.zeros(points.shape[1], points.dtype)), self.n_clusters)
        row = row.copy()
        row[heard] = renamed(quick_kmeans(features, self.n_clusters, seed), row[heard])
        return row


class CFLGPAsRun(CFLGP, as_run=True):
    """What printed EMD-CFL's tables: clusters anew in every round, for ever, and averages weighted by samples.

    A profile has one block per cluster (K times the memory), and an update enters that of the client's present cluster.
    Clients of different clusters thus have different blocks filled, which makes early labels stick.
    """

    own_blocks = by_samples = True
    period, stop = 1, 0

    def __init__(self, n_clusters: Count, *, variant: Variant = "as_written"):
        pass


def newest_weight(t: int, n_clusters: int, period: int) -> float:
    """Weight beta of the newest update in the profile at round ``t``, counted from 0.

    Examples
    --------
    >>> [newest_weight(t, 4, 1) for t in range(8)]
    [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.3333333333333333]
    """
    return 1.0 / ((t + 1) // (n_clusters * period) + 1)


def renamed(labels: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Rename clusters so that as many clients as possible keep their label."""
    size = int(max(labels.max(), before.max())) + 1
    both = np.zeros((size, size))
    np.add.at(both, (labels, before), 1)
    return linear_sum_assignment(both, maximize=True)[1][labels].astype(np.int64)
