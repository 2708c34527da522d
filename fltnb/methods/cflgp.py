"""CFLGP: clusters from a running profile of the clients' gradients (Kim et al., gradient-based partitioning, 2024)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import choose
from ..randomness import integer
from .base import VARIANTS, Context, Method, State, check_clusters, check_count, mix_groups
from .modelspace import gram
from .spectral import leading_features, quick_kmeans

CRITERIA = ("first", "own")
WEIGHTINGS = ("plain", "samples")


class CFLGP(Method):
    """Cluster the clients by the leading singular directions of their averaged updates, again and again.

    A client's profile is a running mean of what it sends; every ``period`` rounds the profiles of all clients heard so
    far are projected on their K leading singular vectors and clustered by k-means++, and the new clusters are renamed
    so that as many clients as possible keep their label. Clients are averaged inside the new clusters.

    Parameters
    ----------
    n_clusters : int
        Number of clusters K, given.
    period : int, optional
        Q, rounds from one clustering to the next; default 2 (``variant="as_run"``: 1).
    stop : int, optional
        Labels are frozen after this round; 0 never. Default 10 (``"as_run"``: 0).
    criterion : {"first", "own"}, optional
        Where an update enters the profile, which has one block per cluster model. "first": always in the same block,
        as in the released code; the profile is then as long as a model. "own" (``"as_run"``): in that of the
        client's present cluster, so that clients of different clusters have different blocks filled, which makes early
        labels stick. The paper's text lets one criterion model after the other be sent to everybody; that is not here.
    weighting : {"plain", "samples"}, optional
        Weights inside a cluster: equal, or by training samples (``"as_run"``).
    variant : {"as_written", "as_run"}
        Where options that are not given come from; "as_run" is what printed EMD-CFL's tables.

    Notes
    -----
    An update here is that of the whole local training, where the official default is one mini-batch gradient. Profiles
    take M x P numbers, K times that with ``criterion="own"``. Without participants enough to form K clusters the
    labels stay as they are; a client never heard stays in cluster 0.

    Raises
    ------
    FltnbError
        An option out of range, or more clusters than clients.
    """

    name = "cflgp"

    def __init__(
        self,
        n_clusters: int,
        period: int | None = None,
        stop: int | None = None,
        criterion: str | None = None,
        weighting: str | None = None,
        variant: str = "as_written",
    ):
        published = choose(variant, VARIANTS, "variant") == "as_run"
        self.n_clusters = n_clusters
        self.period = check_count("period", (1 if published else 2) if period is None else period, least=1)
        self.stop = check_count("stop", (0 if published else 10) if stop is None else stop)
        self.criterion = choose(criterion or ("own" if published else "first"), CRITERIA, "block of the profile")
        self.weighting = choose(weighting or ("samples" if published else "plain"), WEIGHTINGS, "weighting")

    def settings(self) -> dict[str, Any]:
        """Name and all options."""
        return {
            "name": self.name,
            "n_clusters": self.n_clusters,
            "period": self.period,
            "stop": self.stop,
            "criterion": self.criterion,
            "weighting": self.weighting,
        }

    def check(self, fed) -> None:
        """Refuse more clusters than clients."""
        check_clusters(self.n_clusters, fed.n_clients)

    def start(self, fed, model, context: Context) -> State:
        """Everybody in cluster 0, all models equal, profiles zero."""
        self.check(fed)
        theta = model.init(context.seed)
        blocks = self.n_clusters if self.criterion == "own" else 1
        return {
            "models": np.repeat(theta[None], self.n_clusters, axis=0),
            "row": np.zeros(fed.n_clients, dtype=np.int64),
            "labels": np.zeros(fed.n_clients, dtype=np.int64),
            "profile": np.zeros((fed.n_clients, blocks, model.n_trainable), dtype=theta.dtype),
            "heard": np.zeros(fed.n_clients, dtype=bool),
            "weights": np.asarray(fed.sizes, dtype=np.float64),
            "seed": np.array(context.seed),
        }

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Update the profiles and cluster if it is time, then average inside the clusters."""
        row, heard, profile = state["row"], state["heard"].copy(), state["profile"]
        if (round - 1) % self.period == 0 and (round <= self.stop or not self.stop):
            blocks = row[clients] if self.criterion == "own" else np.zeros(len(clients), dtype=np.int64)
            weight = newest_weight(round - 1, self.n_clusters, self.period)
            for client, block, trained in zip(clients, blocks, theta, strict=True):
                profile[client, block] *= 1 - weight
                profile[client, block] += weight * (trained - state["models"][row[client]])[: profile.shape[2]]
            heard[clients] = True
            if heard.sum() >= self.n_clusters:
                row = self._cluster(profile, heard, row, integer(int(state["seed"]), "method", round))
        weights = np.ones(len(clients)) if self.weighting == "plain" else state["weights"][clients]
        member = row[clients] == np.arange(self.n_clusters)[:, None]
        models = mix_groups(member * weights, theta, state["models"])
        return state | {"models": models, "row": row, "labels": row, "heard": heard, "profile": profile}

    def _cluster(self, profile: np.ndarray, heard: np.ndarray, row: np.ndarray, seed: int) -> np.ndarray:
        points = profile.reshape(len(profile), -1)
        points = points if heard.all() else points[heard]
        features = leading_features(gram(points, np.zeros(points.shape[1], points.dtype)), self.n_clusters)
        row = row.copy()
        row[heard] = renamed(quick_kmeans(features, self.n_clusters, seed), row[heard])
        return row


def newest_weight(t: int, n_clusters: int, period: int) -> float:
    """Weight beta of the newest update in the profile at round ``t``, counted from 0.

    Examples
    --------
    >>> [newest_weight(t, 4, 1) for t in range(8)]
    [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.3333333333333333]
    """
    return 1.0 / ((t + 1) // (n_clusters * period) + 1)


def renamed(labels: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Rename clusters so that as many clients as possible keep their label.

    Examples
    --------
    >>> renamed(np.array([2, 2, 1, 1]), np.array([1, 1, 2, 2])).tolist()
    [1, 1, 2, 2]
    """
    from scipy.optimize import linear_sum_assignment

    size = int(max(labels.max(), before.max())) + 1
    both = np.zeros((size, size))
    np.add.at(both, (labels, before), 1)
    return linear_sum_assignment(both, maximize=True)[1][labels].astype(np.int64)
