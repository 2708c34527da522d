"""Clustered federated learning by recursive bipartition: FedAvg, until a cluster is cut in two by updates' cosines.

CFL (Sattler et al., arXiv 1910.01991) looks at the length of updates. FedCluster, as FeSEM's authors (arXiv 2108.08647)
rebuilt it for their tables, cuts on schedule, and a bound on the cosine between the halves says whether that was right.
"""

from typing import Literal

import numpy as np
from sklearn.cluster import AgglomerativeClustering

from ..settings import Count, Natural, NonNegative
from .base import Context, Method, State, unclustered
from .modelspace import cluster_means, gram, with_rows


class CFL(Method):
    """Recursive bipartition of the clients during training; no number of clusters is given.

    A cluster is cut when ``||mean update|| < eps1`` and ``max ||update|| > eps2``, with an update the difference
    between a member's model after and before local training. Both halves continue from their members' mean.

    With partial participation (the original has everybody in every round) the condition looks at each member's *latest*
    update, once every member has been heard since the cluster was formed. The original theory also asks that the two
    halves be dissimilar enough; the official code omits that test, and so does this one.

    Parameters
    ----------
    eps1, eps2 : float
        Thresholds on norms of updates; ``eps1=0`` never cuts. The defaults are the official code's, for its network, a
        learning rate of 0.1 and one epoch; elsewhere they need to be tuned.
    warmup : int, rounds at the start in which nothing is cut
    min_size : int, only clusters with more members than this are cut
    weighting : {"plain", "samples"}, members of a mean count alike, as in the official code, or by samples
    """

    name = "cfl"

    eps1: NonNegative = 0.4
    eps2: NonNegative = 1.6
    warmup: Natural = 20
    min_size: Count = 2
    weighting: Literal["plain", "samples"] = "plain"

    def start(self, fed, model, context: Context) -> State:
        """One cluster with everybody."""
        state = unclustered(fed, model, context)
        return state | {
            "updates": np.zeros(
                (fed.n_clients, model.n_trainable), dtype=state["initial"].dtype
            )
        }

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Remember the updates, cut what is to be cut, then average inside the clusters."""
        models, row, heard = (
            state["models"],
            state["row"].copy(),
            with_rows(state["heard"], clients, True),
        )
        updates = state["updates"].copy()
        n = updates.shape[1]
        weights = (
            state["weights"]
            if self.weighting == "samples"
            else np.ones_like(state["weights"])
        )
        for client, trained in zip(clients, theta, strict=True):
            np.subtract(trained[:n], models[row[client], :n], out=updates[client])
        for cluster in range(len(models)):
            own = np.flatnonzero(row == cluster)
            if (
                round <= self.warmup
                or len(own) <= self.min_size
                or not heard[own].all()
            ):
                continue
            if self._is_torn(updates, own, weights[own]):
                row[own[bipartition(cosines(updates, own))]] = len(models)
                models = np.vstack([models, models[cluster : cluster + 1]])
                heard[own] = (
                    False  # a half is judged by updates from its own model only
                )
        # All members started from the cluster's model: its mean update added to it is the mean of their models.
        models = cluster_means(row[clients], weights[clients], theta, models)
        return state | {
            "models": models,
            "row": row,
            "labels": row,
            "updates": updates,
            "heard": heard,
        }

    def _is_torn(
        self, updates: np.ndarray, own: np.ndarray, weights: np.ndarray
    ) -> bool:
        """Whether the mean update is small and some member's is large."""
        share = np.zeros(
            len(updates), dtype=updates.dtype
        )  # of its type: no copy is made of the (M, P) updates
        share[own] = weights / weights.sum()
        longest = max(np.linalg.norm(updates[i]) for i in own)
        return bool(np.linalg.norm(share @ updates) < self.eps1 and longest > self.eps2)


def cosines(updates: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Cosine similarity (m, m) of updates of some clients (m,); 0 with an update that is zero, 1 on the diagonal."""
    inner = gram(updates, own=own)
    norm = np.sqrt(np.diag(inner))
    scale = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    similarity = (
        np.clip(inner * scale * scale[:, None], -1.0, 1.0) + 0.0
    )  # no negative zeros
    np.fill_diagonal(similarity, 1.0)
    return similarity


def bipartition(similarity: np.ndarray, linkage: str = "complete") -> np.ndarray:
    """Cut in two by similarity (m, m): True (m,) for the half that does not hold the first member."""
    half = AgglomerativeClustering(
        n_clusters=2, metric="precomputed", linkage=linkage
    ).fit_predict(1.0 - similarity)
    return half != half[0]


class FedCluster(Method):
    """FedAvg for a while, one cut by the updates of the last layer, and again inside each half.

    A cluster that is ``period`` rounds old is cut in two by average linkage of the cosine distances between members'
    updates of the last layer's weights (without biases). With s the largest cosine across the halves, the cut stands if
    ``sqrt((1 - s) / 2) >= gamma``, and ends the recursion if not. Both halves continue from the model that the cluster
    had *before* the round whose updates were looked at. Partial participation is as in :class:`CFL`.

    Parameters
    ----------
    gamma : float, least separation of the halves; above 1 nothing is ever cut, which is FedAvg. 0.13 in FeSEM's code
    period : int, rounds of FedAvg before a cut is tried; 30 in FeSEM's code
    """

    name = "fedcluster"

    gamma: NonNegative = 0.13
    period: Natural = 30

    def start(self, fed, model, context: Context) -> State:
        """One cluster with everybody."""
        state = unclustered(fed, model, context)
        kernel = (
            model.head.start,
            model.head.stop - model.n_classes,
        )  # the last layer's weights; biases come after
        return state | {
            "updates": np.zeros(
                (fed.n_clients, kernel[1] - kernel[0]), dtype=state["initial"].dtype
            ),
            "kernel": np.array(kernel),
            "since": np.zeros(
                1, dtype=np.int64
            ),  # round after which each cluster was formed
            "settled": np.zeros(1, dtype=bool),
        }

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Remember the updates, try the cuts that are due, and average inside the clusters that were not cut."""
        models, row, heard = (
            state["models"],
            state["row"].copy(),
            with_rows(state["heard"], clients, True),
        )
        since, settled, kernel = (
            state["since"].copy(),
            state["settled"].copy(),
            slice(*state["kernel"]),
        )
        updates = with_rows(
            state["updates"], clients, theta[:, kernel] - models[row[clients], kernel]
        )
        averaged = cluster_means(row[clients], state["weights"][clients], theta, models)
        for cluster in range(len(models)):
            own = np.flatnonzero(row == cluster)
            if (
                settled[cluster]
                or round - since[cluster] <= self.period
                or not heard[own].all()
            ):
                continue
            second = halves(cosines(updates, own), self.gamma) if len(own) > 2 else None
            if second is None:
                settled[cluster] = True
                continue
            row[own[second]], averaged[cluster] = len(averaged), models[cluster]
            averaged = np.vstack([averaged, models[cluster : cluster + 1]])
            since[cluster], heard[own] = round, False
            since, settled = np.append(since, round), np.append(settled, False)
        clusters = {
            "models": averaged,
            "row": row,
            "labels": row,
            "since": since,
            "settled": settled,
        }
        return state | clusters | {"updates": updates, "heard": heard}


def halves(similarity: np.ndarray, gamma: float) -> np.ndarray | None:
    """Average-linkage cut in two: True (m,) for the half without the first member, None where it does not stand."""
    second = bipartition(similarity, "average")
    nearest = similarity[np.ix_(second, ~second)].max()
    return second if np.sqrt((1.0 - nearest) / 2.0) >= gamma else None
