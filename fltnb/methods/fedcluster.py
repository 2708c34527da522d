"""FedCluster: CFL's recursive bipartition as FeSEM's authors (arXiv 2108.08647) rebuilt it for their tables.

:class:`fltnb.methods.CFL` is the original. This one asks for no thresholds on the length of updates: it cuts on
schedule, and a bound on the cosine between the halves says whether the cut was right.
"""

from __future__ import annotations

import numpy as np

from ..settings import Count, Natural, NonNegative
from .base import Context, Method, State, one_cluster
from .cfl import bipartition, cosines
from .modelspace import cluster_means, with_rows


class FedCluster(Method):
    """FedAvg for a while, one cut by the updates of the last layer, and again inside each half.

    A cluster that is ``period`` rounds old is cut in two by average linkage of the cosine distances between its
    members' updates of the last layer's weights (without biases). With s the largest cosine between members of
    different halves, the cut stands if ``sqrt((1 - s) / 2) >= gamma``. Both halves then continue from the model that
    the cluster had *before* the round whose updates were looked at. A cut that does not stand ends the recursion: the
    cluster stays, and so does one that has at most ``min_size`` members.

    With partial participation (the original calls all members for the cut) every member's latest update counts, and a
    cluster waits until each has been heard since it was formed.

    Parameters
    ----------
    gamma : float
        Least separation of the halves; above 1 nothing is ever cut, which is FedAvg. 0.13 in FeSEM's code.
    period : int
        Rounds of FedAvg before a cut is tried; 30 in FeSEM's code.
    min_size : int
        Only clusters with more members than this are cut. The code's number is not known; 2 is CFL's.
    """

    name = "fedcluster"

    def __init__(self, gamma: NonNegative = 0.13, period: Natural = 30, min_size: Count = 2):
        """Options are kept as they are."""

    def start(self, fed, model, context: Context) -> State:
        """One cluster with everybody."""
        theta = model.init(context.seed)
        kernel = model.head.start, model.head.stop - model.n_classes  # the last layer's weights; biases come after
        return one_cluster(fed, theta) | {
            "updates": np.zeros((fed.n_clients, kernel[1] - kernel[0]), dtype=theta.dtype),
            "kernel": np.array(kernel),
            "heard": np.zeros(fed.n_clients, dtype=bool),
            "since": np.zeros(1, dtype=np.int64),  # round after which each cluster was formed
            "settled": np.zeros(1, dtype=bool),
        }

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Remember the updates, try the cuts that are due, and average inside the clusters that were not cut."""
        models, row, heard = state["models"], state["row"].copy(), with_rows(state["heard"], clients, True)
        since, settled, kernel = state["since"].copy(), state["settled"].copy(), slice(*state["kernel"])
        updates = with_rows(state["updates"], clients, theta[:, kernel] - models[row[clients], kernel])
        averaged = cluster_means(row[clients], state["weights"][clients], theta, models)
        for cluster in range(len(models)):
            own = np.flatnonzero(row == cluster)
            if settled[cluster] or round - since[cluster] <= self.period or not heard[own].all():
                continue
            second = halves(cosines(updates, own), self.gamma) if len(own) > self.min_size else None
            if second is None:
                settled[cluster] = True
                continue
            row[own[second]] = len(averaged)
            averaged[cluster] = models[cluster]
            averaged = np.vstack([averaged, models[cluster : cluster + 1]])
            since[cluster], heard[own] = round, False
            since, settled = np.append(since, round), np.append(settled, False)
        clusters = {"models": averaged, "row": row, "labels": row, "since": since, "settled": settled}
        return state | clusters | {"updates": updates, "heard": heard}


def halves(similarity: np.ndarray, gamma: float) -> np.ndarray | None:
    """Average-linkage cut in two: True (m,) for the half without the first member, None where it does not stand.

    Examples
    --------
    >>> two = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> halves(two, 0.7).tolist(), halves(two, 0.71)
    ([False, False, True], None)
    """
    second = bipartition(similarity, "average")
    return second if separation(similarity[np.ix_(second, ~second)].max()) >= gamma else None


def separation(cosine: float) -> float:
    """Return ``sqrt((1 - cosine) / 2)``: 0 for equal directions, 1 for opposite ones."""
    return float(np.sqrt((1.0 - cosine) / 2.0))
