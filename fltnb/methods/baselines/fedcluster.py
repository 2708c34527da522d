"""FedCluster, as FeSEM's authors (arXiv 2108.08647) rebuilt it for their tables.

It cuts at fixed times, and a bound on the cosine between the halves decides whether the
cut is kept.
"""

from dataclasses import dataclass, replace

import numpy as np

from ...settings import Natural, NonNegative
from ..base import Context
from ..modelspace import cluster_means, cosines, with_rows
from ..state import unclustered
from .cfl import CFLState, Recursive, bipartition


@dataclass(eq=False, kw_only=True)
class FedClusterState(CFLState):
    """State of FedCluster: what decides on the next cut.

    ``updates`` are those of the last layer's weights, in the columns ``kernel``;
    ``since`` (K,): the round in which each cluster was formed; ``settled`` (K,):
    whether it is never cut again.
    """

    kernel: np.ndarray
    since: np.ndarray
    settled: np.ndarray


@dataclass(eq=False, repr=False)
class FedCluster(Recursive):
    """FedAvg for some rounds, one cut by the last layer's updates, then the same again.

    As in FeSEM's tables (arXiv 2108.08647). A cluster that is ``period`` rounds old is
    cut in two by average linkage of the cosine distances between members' updates of
    the last layer's weights (without biases). Let s be the largest cosine across the
    halves. The cut is kept if ``sqrt((1 - s) / 2) >= gamma``; otherwise, and with fewer
    than three members, the cluster is never cut again. Both halves continue from the
    model that the cluster had *before* the round of these updates. Partial
    participation is treated as in :class:`fltnb.methods.CFL`.

    Parameters
    ----------
    gamma : float
        Smallest separation of the halves. Above 1 nothing is ever cut, which is FedAvg.
        FeSEM's code has 0.13.
    period : int
        Rounds of FedAvg before a cut is tried; 30 in FeSEM's code.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedCluster(period=1)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FedClusterState
    name = "fedcluster"
    headed = True

    gamma: NonNegative = 0.13
    period: Natural = 30

    def start(self, fed, model, context: Context) -> FedClusterState:
        """Start with one cluster of all clients."""
        begin = model.head_weight.start
        end = model.head_weight.stop
        return unclustered(
            FedClusterState,
            fed,
            model,
            context,
            updates=np.zeros((fed.n_clients, end - begin), dtype=np.float32),
            kernel=np.array([begin, end]),
            since=np.zeros(1, dtype=np.int64),
            settled=np.zeros(1, dtype=bool),
        )

    def compared(self, state: FedClusterState) -> slice:
        """Return the columns of the last layer's weights."""
        return slice(*state.kernel)

    def collect(
        self, state: FedClusterState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FedClusterState:
        """Try the cuts that are due, and average inside the clusters without one."""
        row = state.row[clients]
        averaged = cluster_means(row, state.weights[clients], theta, state.models)
        state = self.told(state, clients, theta)
        for cluster in range(len(averaged)):
            members = np.flatnonzero(state.row == cluster)
            old = round - state.since[cluster] > self.period
            due = old and not state.settled[cluster]
            if not (due and state.heard[members].all()):
                continue
            second = None  # fewer than three members are not cut
            if len(members) > 2:
                second = halves(cosines(state.updates, members), self.gamma)
            if second is None:
                settled = with_rows(state.settled, cluster, True)
                state = replace(state, settled=settled)
                continue

            averaged[cluster] = state.models[cluster]  # as it was before this round
            state = state.cut(cluster, second)
            since = with_rows(state.since, cluster, round)
            state = replace(
                state,
                since=np.append(since, round),
                settled=np.append(state.settled, False),
            )
        old_clusters = slice(len(averaged))
        models = with_rows(state.models, old_clusters, averaged)
        return replace(state, models=models)


def halves(similarity: np.ndarray, gamma: float) -> np.ndarray | None:
    """Cut in two by average linkage: True (m,) for the half without the first member.

    None if the cut is not kept.
    """
    second = bipartition(similarity, "average")
    nearest = similarity[np.ix_(second, ~second)].max()
    separation = np.sqrt((1.0 - nearest) / 2.0)
    return second if separation >= gamma else None
