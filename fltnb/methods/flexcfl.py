"""FlexCFL: groups from the directions of the clients' first updates.

Duan et al., IEEE TPDS 2022 (arXiv 2108.09749), after their FedGroup (arXiv 2010.06870).
"""

from __future__ import annotations

import numpy as np

from ..randomness import integer
from ..settings import Count, NonNegative, Variant
from .base import State, check_clusters
from .coldstart import ColdStart
from .modelspace import cluster_means, gram, leading_features, quick_kmeans


class FlexCFL(ColdStart):
    """Static groups by decomposed cosine similarity, with an optional pull between the groups' models.

    Round 1 is the cold start: the participants train from the initial model, and their updates are clustered by
    k-means on their cosines with the updates' leading left singular vectors (:func:`decomposed_cosines`). A group
    starts from the plain mean of its members' models; later rounds average by samples. A newcomer joins the group
    whose mean first update points most nearly where its own does.

    Parameters
    ----------
    n_clusters : int
        Number of groups K, given.
    eta : float
        Inter-group rate, at least 0: after each average a group's model becomes the mean of itself, with weight 1, and
        of the other groups' models, with weights ``eta / norm``. 0 is the official configuration.
    variant : {"as_written", "as_run"}
        "as_run": :class:`FlexCFLAsRun`.

    Notes
    -----
    The official code draws ``min(20 K, M)`` clients for the cold start and has each run 50 steps; here those are the
    participants and local epochs of round 1. Migration of clients whose labels shift is not there.
    """

    name = "flexcfl"
    normalised = True  # weights of the pull

    def __init__(self, n_clusters: Count, eta: NonNegative = 0.0, *, variant: Variant = "as_written"):
        pass

    def check(self, fed) -> None:
        """Refuse more groups than clients."""
        check_clusters(self.n_clusters, fed.n_clients)

    @property
    def least(self) -> int:
        """Participants that round 1 needs."""
        return self.n_clusters

    def form(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int):
        """k-means on the decomposed cosines of the first updates."""
        from ..relatedness.base import canonical

        K, initial, n = self.n_clusters, state["models"][0], int(state["trainable"])
        features = decomposed_cosines(gram(theta[:, :n], initial[:n]), K)
        labels = canonical(quick_kmeans(features, K, integer(int(state["seed"]), "method", round)))
        models = cluster_means(labels, np.ones(len(clients)), theta, np.repeat(initial[None], K, axis=0))
        return labels, models, {"directions": (models - initial)[:, :n]}

    def place(self, state: State, theta: np.ndarray) -> np.ndarray:
        """Least ``(1 - cosine) / 2`` between first updates, hence the largest cosine."""
        updates = (theta - state["models"][0]).astype(np.float64)[:, : int(state["trainable"])]
        directions = state["directions"].astype(np.float64)
        norm = np.linalg.norm(directions, axis=1)
        return (updates @ directions.T / np.where(norm > 0, norm, np.inf)).argmax(axis=1)

    def aggregate(self, state: State, labels, weights, theta) -> np.ndarray:
        """Average inside the groups, then pull them towards each other."""
        models = super().aggregate(state, labels, weights, theta)
        return pull(models, self.eta, self.normalised, int(state["trainable"]))


class FlexCFLAsRun(FlexCFL, as_run=True):
    """What printed EMD-CFL's tables: the pull's weights do not sum to 1.

    So every round adds length ``eta * (K - 1)`` at most to each model.
    """

    normalised = False

    def __init__(self, n_clusters: Count, eta: NonNegative = 5.0, *, variant: Variant = "as_written"):
        pass


def decomposed_cosines(products: np.ndarray, n_components: int) -> np.ndarray:
    """Cosines (n, K) of n updates with the K leading left singular vectors of the matrix that they are columns of.

    With ``updates = U S V'`` the inner products of update i with U are ``S V_i``, so the Gram matrix is all it takes.
    A zero update has cosines 0, and so have components beyond the rank.

    Parameters
    ----------
    products : array (n, n)
        Inner products of the updates.
    n_components : int
        K; columns beyond n are zero.
    """
    features = leading_features(products, n_components)
    norm = np.sqrt(np.diag(products))[:, None]
    cosines = np.divide(features, norm, out=np.zeros_like(features), where=norm > 0)
    return np.pad(cosines, ((0, 0), (0, n_components - cosines.shape[1])))


def pull(models: np.ndarray, eta: float, normalised: bool = True, n_trainable: int | None = None) -> np.ndarray:
    """Mix every group's model (K, P) with the directions of the others; lengths are those of trained parameters.

    Examples
    --------
    >>> groups = np.array([[3.0, 4.0], [0.0, 10.0]])
    >>> pull(groups, 5.0)[0].tolist(), pull(groups, 5.0, normalised=False)[0].tolist()
    ([2.0, 6.0], [3.0, 9.0])
    """
    if eta == 0:
        return models
    norm = np.linalg.norm(models[:, :n_trainable].astype(np.float64), axis=1)
    weight = np.divide(eta, norm, out=np.zeros_like(norm), where=norm > 0)
    W = np.tile(weight, (len(models), 1))
    np.fill_diagonal(W, 1.0)
    if normalised:
        W /= W.sum(axis=1, keepdims=True)
    return (W @ models.astype(np.float64)).astype(models.dtype)
