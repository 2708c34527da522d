"""CFL: recursive bipartition by the cosines of the updates.

Sattler et al., arXiv 1910.01991: FedAvg, until a cluster is cut in two.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from sklearn.cluster import AgglomerativeClustering

from ...settings import Count, Natural, NonNegative
from ..base import Context, Welcoming
from ..modelspace import cluster_means, cosines, group_means, with_rows
from ..newcomers import counted, first_training, nearest_direction, placed
from ..state import OwnState, Unclustered, unclustered


@dataclass(eq=False, kw_only=True)
class CFLState(Unclustered):
    """State of CFL: the latest update (M, d) of every client, and the tree of cuts.

    Cut s divided cluster ``cuts[s, 0]`` (S, 2), which trained from ``stems[s]`` (S, P)
    in that round, into itself and cluster ``cuts[s, 1]``; ``leads[s]`` (S, 2, d) are
    the mean updates of the two halves.
    """

    of_clients = ("heard", "updates")

    updates: np.ndarray
    cuts: np.ndarray | None = None
    stems: np.ndarray | None = None
    leads: np.ndarray | None = None

    def cut(self, cluster: int, second: np.ndarray) -> Self:
        """Return the state after a cut; both halves go on from the cluster's model.

        ``second`` (m,): which of the cluster's members, in order, leave it. They are
        the new cluster, with the highest number. A half is only tested again with
        updates from its own model, so none of its members is heard any more.
        """
        members = np.flatnonzero(self.row == cluster)
        new = len(self.models)
        row = with_rows(self.row, members[second], new)
        stem = self.models[[cluster]]  # (1, P)
        leads = group_means(self.updates[members], second.astype(int))
        return replace(
            self,
            models=np.vstack([self.models, stem]),
            row=row,
            labels=row,
            heard=with_rows(self.heard, members, False),
            cuts=_appended(self.cuts, np.array([[cluster, new]])),
            stems=_appended(self.stems, stem),
            leads=_appended(self.leads, leads[None]),
        )


def _appended(rows: np.ndarray | None, row: np.ndarray) -> np.ndarray:
    """Return rows (S, ...), if there are any, with one more, (1, ...)."""
    if rows is None:
        return row
    return np.concatenate([rows, row])


@dataclass(eq=False, repr=False)
class Recursive(Welcoming):
    """Base of the methods that repeatedly cut clusters in two.

    A newcomer is placed along the tree of cuts: at each cut it trains the model that
    the cluster had before the cut, and goes to the half whose mean update has the
    larger cosine with its own. If cluster 0 was cut into 0 and 1, and later 0 into 0
    and 2, all newcomers train for the first cut, and those that stay in 0 for the
    second one as well.
    """

    def compared(self, state: OwnState) -> slice:
        """Columns of the models whose updates are compared."""
        return slice(0, state.updates.shape[1])

    def told(self, state: OwnState, clients: np.ndarray, theta: np.ndarray) -> OwnState:
        """Return the state with the updates of participants, from models (n, P)."""
        columns = self.compared(state)
        moved = theta[:, columns] - state.models[state.row[clients], columns]
        return replace(
            state,
            updates=with_rows(state.updates, clients, moved),
            heard=with_rows(state.heard, clients, True),
        )

    def welcome(self, state: CFLState, new: np.ndarray, round: int, engine) -> CFLState:
        """Place newcomers along the tree of cuts."""
        cluster = np.zeros(len(new), dtype=np.int64)
        columns = self.compared(state)
        n_cuts = 0 if state.cuts is None else len(state.cuts)
        for s in range(n_cuts):
            parted, other = state.cuts[s]
            here = np.flatnonzero(cluster == parted)
            if not len(here):
                continue
            stem = state.stems[s]
            theta = first_training(stem[None], new[here], round, engine)
            updates = theta[:, columns] - stem[columns]
            half = nearest_direction(updates, state.leads[s])
            cluster[here[half == 1]] = other
            state = counted(state, len(here))
        return placed(state, new, cluster)


@dataclass(eq=False, repr=False)
class CFL(Recursive):
    """Recursive bipartition of the clients during training; K is not needed.

    Sattler et al., arXiv 1910.01991. A cluster is cut when ``||mean update|| < eps1``
    and ``max ||update|| > eps2``. An update is the difference between a member's model
    after and before local training. Both halves continue from the mean of the models
    that their members have just trained.

    With partial participation (in the original all clients take part in every round)
    the condition uses each member's *latest* update, once every member has trained
    since the cluster was formed. The original theory also requires that the two halves
    are dissimilar enough; the official code leaves out this test, and so does this one.

    Parameters
    ----------
    eps1, eps2 : float
        Thresholds for norms of updates; ``eps1=0`` never cuts. The defaults are the
        official code's, for its network, a learning rate of 0.1 and one epoch;
        in other settings they must be tuned.
    warmup : int
        Rounds at the start in which nothing is cut.
    min_size : int
        Only clusters with more members than this are cut.
    weighting : {"plain", "samples"}
        Members of a mean have equal weights, as in the official code, or are weighted
        by samples.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.CFL(eps1=0.5, eps2=0.1, warmup=1)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = CFLState
    name = "cfl"

    eps1: NonNegative = 0.4
    eps2: NonNegative = 1.6
    warmup: Natural = 20
    min_size: Count = 2
    weighting: Literal["plain", "samples"] = "plain"

    def start(self, fed, model, context: Context) -> CFLState:
        """Start with one cluster of all clients."""
        updates = np.zeros((fed.n_clients, model.n_trainable), dtype=np.float32)
        return unclustered(CFLState, fed, model, context, updates=updates)

    def collect(
        self, state: CFLState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> CFLState:
        """Store the updates, cut the clusters that are due, then average inside."""
        weights = state.weights
        if self.weighting == "plain":
            weights = np.ones_like(weights)

        state = self.told(state, clients, theta)
        for cluster in range(len(state.models)):
            members = np.flatnonzero(state.row == cluster)
            due = round > self.warmup and len(members) > self.min_size
            if not (due and state.heard[members].all()):
                continue
            if self._is_torn(state.updates, members, weights[members]):
                second = bipartition(cosines(state.updates, members))
                state = state.cut(cluster, second)

        # All members started from the cluster's model: its mean update added to it is
        # the mean of their models.
        row = state.row[clients]
        models = cluster_means(row, weights[clients], theta, state.models)
        return replace(state, models=models)

    def _is_torn(
        self, updates: np.ndarray, members: np.ndarray, weights: np.ndarray
    ) -> bool:
        """Return whether the mean update is small and some member's is large."""
        # the type of the updates, so that these (M, P) numbers are not copied
        share = np.zeros(len(updates), dtype=updates.dtype)
        share[members] = weights / weights.sum()
        mean = np.linalg.norm(share @ updates)
        longest = max(np.linalg.norm(updates[i]) for i in members)
        return bool(mean < self.eps1 and longest > self.eps2)


def bipartition(similarity: np.ndarray, linkage: str = "complete") -> np.ndarray:
    """Cut in two by similarity (m, m): True for the half without the first member."""
    clusterer = AgglomerativeClustering(
        n_clusters=2, metric="precomputed", linkage=linkage
    )
    half = clusterer.fit_predict(1.0 - similarity)
    return half != half[0]
