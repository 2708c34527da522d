"""CFL: recursive bipartition by the updates' cosines.

Sattler et al., arXiv 1910.01991: FedAvg, until a cluster is cut in two.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from sklearn.cluster import AgglomerativeClustering

from ...settings import Count, Natural, NonNegative
from ..base import Context, Welcoming
from ..modelspace import cluster_means, cosines, with_rows
from ..newcomers import counted, first_training, nearest_direction, placed
from ..state import State, Unclustered, unclustered


@dataclass(eq=False, kw_only=True)
class CFLState(Unclustered):
    """And the latest update (M, d) of every client, and the tree of cuts.

    Cut s parted cluster ``cuts[s, 0]`` (S, 2), which trained from ``stems[s]`` (S, P),
    into itself and cluster ``cuts[s, 1]``; ``leads[s]`` (S, 2, d) are the mean updates
    of the two.
    """

    of_clients = ("heard", "updates")

    updates: np.ndarray
    cuts: np.ndarray | None = None
    stems: np.ndarray | None = None
    leads: np.ndarray | None = None

    def cut(self, cluster: int, stem: np.ndarray, halves: list[np.ndarray]) -> Self:
        """Return the state with one more cut, of members ``halves`` of a cluster."""
        lead = np.stack([self.updates[half].mean(axis=0) for half in halves])
        pair = np.array([[cluster, 1 if self.cuts is None else len(self.cuts) + 1]])
        new = {"cuts": pair, "stems": stem[None], "leads": lead[None]}
        if self.cuts is not None:
            for name, one in new.items():
                new[name] = np.concatenate([getattr(self, name), one])
        return replace(self, **new)


@dataclass(eq=False, repr=False)
class Recursive(Welcoming):
    """Base of the methods that cut clusters in two, again and again.

    A newcomer goes down the tree of cuts: it trains the model that a cluster had before
    its cut, and goes on with the half to whose mean update its own has the larger
    cosine.
    """

    def compared(self, state: CFLState) -> slice:
        """Columns of the models whose updates are compared."""
        return slice(0, state.updates.shape[1])

    def welcome(self, state: State, new: np.ndarray, round: int, engine) -> State:
        """Let newcomers go down the tree."""
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
    """Recursive bipartition of the clients during training; no number of clusters.

    A cluster is cut when ``||mean update|| < eps1`` and ``max ||update|| > eps2``, with
    an update the difference between a member's model after and before local training.
    Both halves continue from their members' mean.

    With partial participation (the original has everybody in every round) the condition
    looks at each member's *latest* update, once every member has been heard since the
    cluster was formed. The original theory also asks that the two halves be dissimilar
    enough; the official code omits that test, and so does this one.

    Parameters
    ----------
    eps1, eps2 : float
        Thresholds on norms of updates; ``eps1=0`` never cuts. The defaults are the
        official code's, for its network, a learning rate of 0.1 and one epoch;
        elsewhere they need to be tuned.
    warmup : int, rounds at the start in which nothing is cut
    min_size : int, only clusters with more members than this are cut
    weighting : {"plain", "samples"}
        Members of a mean count alike, as in the official code, or by samples.

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

    def start(self, fed, model, context: Context) -> State:
        """One cluster with everybody."""
        updates = np.zeros((fed.n_clients, model.n_trainable), dtype=np.float32)
        return unclustered(CFLState, fed, model, context, updates=updates)

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Remember the updates, cut what is to be cut, then average in the clusters."""
        models = state.models
        row = state.row.copy()
        heard = with_rows(state.heard, clients, True)
        weights = state.weights
        if self.weighting == "plain":
            weights = np.ones_like(weights)

        updates = state.updates.copy()
        n = updates.shape[1]
        for client, trained in zip(clients, theta, strict=True):
            updates[client] = trained[:n] - models[row[client], :n]
        state = replace(state, updates=updates)

        for cluster in range(len(models)):
            members = np.flatnonzero(row == cluster)
            due = round > self.warmup and len(members) > self.min_size
            if not (due and heard[members].all()):
                continue
            if self._is_torn(updates, members, weights[members]):
                second = bipartition(cosines(updates, members))
                parts = [members[~second], members[second]]
                state = state.cut(cluster, models[cluster], parts)
                row[members[second]] = len(models)
                models = np.vstack([models, models[cluster : cluster + 1]])
                # a half is judged by updates from its own model only
                heard[members] = False

        # All members started from the cluster's model: its mean update added to it is
        # the mean of their models.
        models = cluster_means(row[clients], weights[clients], theta, models)
        return replace(state, models=models, row=row, labels=row, heard=heard)

    def _is_torn(
        self, updates: np.ndarray, members: np.ndarray, weights: np.ndarray
    ) -> bool:
        """Whether the mean update is small and some member's is large."""
        # of the updates' type: no copy is made of these (M, P) numbers
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
