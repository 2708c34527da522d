"""StoCFL: clusters that are only ever merged, found as clients take part."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from ...aggregate import mix
from ...clustering.cuts import relabel
from ...settings import Count, NonNegative, Within
from ..base import Context, Welcoming
from ..modelspace import cluster_means, cosines, present_means, with_rows
from ..newcomers import first_training, nearest_direction, placed
from ..state import Unclustered, unclustered

Cosine = Annotated[float, Within(-1.0, 2.0, above=True)]  # above 1: nothing is merged


@dataclass(eq=False, kw_only=True)
class StoCFLState(Unclustered):
    """State of StoCFL: the quantities that decide which clusters are merged.

    Row 0 of ``models`` (M + 1, P) is the global model, row k + 1 that of cluster k.
    There are M clusters, named by one of their clients; most have no members later.

    Attributes
    ----------
    cluster : int array (M,)
        Each client's.
    psi : float32 array (M, d)
        What its first training from the initial model changed in the d trained numbers;
        0 until then.
    owned : bool array (M,)
        Whether a cluster has a model.
    """

    of_clients = ("heard", "cluster", "psi")

    cluster: np.ndarray
    psi: np.ndarray
    owned: np.ndarray


@dataclass(eq=False, repr=False)
class StoCFL(Welcoming):
    """Clusters by the first updates of participants, pulled by a global model.

    Zeng et al., arXiv 2303.00897; written from the authors' code (dunzeng/StoCFL), not
    compared with the paper.

    A client that takes part for the first time trains the initial model and sends its
    update, once; until then it is a cluster of its own. In each round the clusters of
    the participants are compared by the mean of these first updates. Pairs are merged
    in the order of decreasing cosines down to ``tau``; means are not updated in
    between. A merged cluster keeps the model of the larger one, or of the first if they
    are equally large. A cluster without a model starts with the global one.
    Participants train their cluster's model with a penalty of weight ``mu`` towards the
    received global model, and the global model without penalty. Both are averaged with
    equal weights. A client is served its cluster's model, or the global one if there is
    none.

    In the authors' code each participant trains the global model from where the one
    before it ended, and the mean is over this chain. This error is not repeated here.

    Parameters
    ----------
    tau : float
        Smallest cosine of a merger: 0.65 in the authors' runs on rotated images, 0.2
        under skewed features. Above 1 nothing is merged.
    mu : float
        Weight of the penalty; 0.05 and 0.1 in these runs.
    anchor_epochs : int
        Local epochs of the first training from the initial model, 20 in these runs.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.StoCFL()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    state_type = StoCFLState
    name = "stocfl"
    models_down = 2
    models_up = 2

    tau: Cosine = 0.65
    mu: NonNegative = 0.05
    anchor_epochs: Count = 20

    def start(self, fed, model, context: Context) -> StoCFLState:
        """Begin with the global model, and a cluster for each client."""
        n_clients = fed.n_clients
        psi = np.zeros((n_clients, model.n_trainable), dtype=np.float32)
        state = unclustered(
            StoCFLState,
            fed,
            model,
            context,
            n_models=n_clients + 1,
            cluster=np.arange(n_clients),
            psi=psi,
            owned=np.zeros(n_clients, dtype=bool),
        )
        return replace(state, labels=np.arange(n_clients))

    def train(self, state: StoCFLState, clients: np.ndarray, round: int, engine):
        """Merge clusters by first updates, train their models and the global one."""
        from ...training import Variation

        state = self._heard(state, clients, round, engine)
        state = self._united(state, clients)
        rows = _served(state.cluster[clients], state.owned)
        global_model = state.models[:1]
        received = np.repeat(global_model, len(clients), axis=0)
        how = Variation(anchors=received, pull=self.mu)
        own = engine.train(state.models, rows, clients, round, how=how)
        from_global = np.zeros_like(clients)  # all from row 0
        common = engine.train(state.models, from_global, clients, round)
        # both go to `collect`, one behind the other; a run stops where either diverged
        loss = np.where(np.isfinite(common.loss), own.loss, np.nan)
        theta = np.hstack([own.theta, common.theta])
        return state, replace(own, theta=theta, loss=loss)

    def _heard(
        self, state: StoCFLState, clients: np.ndarray, round: int, engine
    ) -> StoCFLState:
        """Let clients that were never there train the initial model.

        What it changed is kept as their ``psi``.
        """
        from ...training import Variation

        fresh = clients[~state.heard[clients]]
        psi = state.psi
        if len(fresh):
            how = Variation(epochs=self.anchor_epochs)
            theta = first_training(state.initial[None], fresh, round, engine, how)
            change = state.moved(theta, state.initial)
            psi = with_rows(psi, fresh, change)
        heard = with_rows(state.heard, clients, True)
        return replace(state, psi=psi, heard=heard)

    def changed(
        self, state: StoCFLState, fed, model, changed: np.ndarray, context: Context
    ) -> StoCFLState:
        """Give every newcomer its own cluster, without a model."""
        before = len(state.row)
        state = super().changed(state, fed, model, changed, context)
        new = np.arange(before, fed.n_clients)
        own = np.repeat(state.initial[None], len(new), axis=0)
        return replace(
            state,
            models=np.vstack([state.models, own]),
            cluster=with_rows(state.cluster, new, new),
            owned=np.append(state.owned, np.zeros(len(new), dtype=bool)),
        )

    def welcome(
        self, state: StoCFLState, new: np.ndarray, round: int, engine
    ) -> StoCFLState:
        """Merge newcomers with the most similar cluster, if the cosine reaches tau."""
        known = np.flatnonzero(state.heard)
        state = self._heard(state, new, round, engine)
        clusters, means = present_means(state.cluster[known], state.psi[known])
        nearest = nearest_direction(state.psi[new], means)

        cluster = state.cluster.copy()
        for client, place in zip(new, nearest, strict=True):
            if _cosine(state.psi[client], means[place]) >= self.tau:
                cluster[client] = clusters[place]
        rows = _served(cluster[new], state.owned)
        state = placed(replace(state, cluster=cluster), new, rows)
        return replace(state, labels=relabel(cluster))

    def _united(self, state: StoCFLState, clients: np.ndarray) -> StoCFLState:
        """Merge clusters of participants whose first updates are similar."""
        cluster = state.cluster.copy()
        owned = state.owned.copy()
        models = state.models
        present, means = present_means(cluster[clients], state.psi[clients])
        now = present.copy()  # what has become of each of these clusters
        for left, right in _alike_first(means, self.tau):
            stays = now[left]
            goes = now[right]
            if stays == goes:
                continue
            if (cluster == goes).sum() > (cluster == stays).sum():
                stays, goes = goes, stays
            if owned[goes] and not owned[stays]:
                models = with_rows(models, stays + 1, models[goes + 1])
                owned[stays] = True
            cluster[cluster == goes] = stays
            now[now == goes] = stays
        return replace(state, models=models, cluster=cluster, owned=owned)

    def collect(
        self, state: StoCFLState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> StoCFLState:
        """Average the clusters' models and the global one, plainly.

        ``theta`` (n, 2 P): both models of each participant, as :meth:`train` left them.
        """
        own, common = np.split(theta, 2, axis=1)
        there = state.cluster[clients]
        plain = np.ones(len(clients))
        models = state.models.copy()
        models[1:] = cluster_means(there, plain, own, state.models[1:])
        models[:1] = mix(plain[None] / len(clients), common)
        owned = with_rows(state.owned, there, True)
        return replace(
            state,
            models=models,
            owned=owned,
            row=_served(state.cluster, owned),
            labels=relabel(state.cluster),
        )

    def setup_bytes(self, state: StoCFLState) -> tuple[int, int]:
        """Count each client's first change; the initial model is a seed."""
        n_heard = int(state.heard.sum())
        d = state.psi.shape[1]
        return 4 * n_heard * d, 0


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the cosine of two vectors (d,), computed as those of many are."""
    both = np.stack([one, other])
    return cosines(both, np.arange(2))[0, 1]


def _alike_first(means: np.ndarray, tau: float) -> list[tuple[int, int]]:
    """Return pairs of rows (C, d) with a cosine of ``tau`` or more, largest first."""
    left, right = np.triu_indices(len(means), 1)
    cosine = cosines(means, np.arange(len(means)))[left, right]
    order = np.argsort(-cosine, kind="stable")
    similar = order[cosine[order] >= tau]
    return list(zip(left[similar], right[similar], strict=True))


def _served(cluster: np.ndarray, owned: np.ndarray) -> np.ndarray:
    """Return the rows of models (n,) that clients of some clusters (n,) get.

    That of their cluster, k + 1, or the global model in row 0 where it has none.
    """
    return np.where(owned[cluster], cluster + 1, 0)
