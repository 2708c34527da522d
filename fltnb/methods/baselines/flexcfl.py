"""FlexCFL: fixed groups by the directions of the first updates.

Duan et al., IEEE TPDS 2022 (arXiv 2108.09749), based on FedGroup (arXiv 2010.06870).
"""

from dataclasses import dataclass

import numpy as np

from ...clustering.cuts import relabel
from ...randomness import integer
from ...settings import NonNegative
from ..modelspace import cluster_means, gram, kmeans, leading_features
from ..newcomers import nearest_direction
from .coldstart import ColdStart, ColdStartState


@dataclass(eq=False, kw_only=True)
class FlexCFLState(ColdStartState):
    """State of FlexCFL: the mean first update (K, P) of each group."""

    directions: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class FlexCFL(ColdStart):
    """Fixed groups by decomposed cosine similarity; the groups may pull each other.

    Duan et al., IEEE TPDS 2022 (arXiv 2108.09749). The participants' updates of round 1
    are clustered by k-means on their cosines with the updates' leading left singular
    vectors. A group starts from the plain mean of its members' models; later rounds
    average by samples. A newcomer joins the group whose mean first update has the
    largest cosine with its own. In the official code ``min(20 K, M)`` clients take part
    in the cold start, with 50 steps each; migration is not implemented here.

    Parameters
    ----------
    n_clusters : int
        K, the number of groups.
    eta : float
        Inter-group rate: after each average a group's model becomes the mean of itself,
        with weight 1, and of the other groups' models, each with the weight ``eta /
        norm`` for its norm. The official configuration has 0.

    Raises
    ------
    FltnbError
        Fewer than K clients take part in round 1.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FlexCFL(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FlexCFLState
    name = "flexcfl"
    normalised = True  # whether the weights of the pull sum to 1

    eta: NonNegative = 0.0

    def form(
        self, state: FlexCFLState, clients: np.ndarray, theta: np.ndarray, round: int
    ):
        """Run k-means on the decomposed cosines of the first updates."""
        K = self.n_clusters
        initial = state.models[0]
        products = gram(state.compared(theta), state.compared(initial))
        seed = integer(int(state.seed), "method", round)
        labels = relabel(kmeans(decomposed_cosines(products, K), K, seed))

        alike = np.ones(len(clients))
        models = np.repeat(initial[None], K, axis=0)
        models = cluster_means(labels, alike, theta, models)
        return labels, models, {"directions": state.moved(models, initial)}

    def place(self, state: FlexCFLState, theta: np.ndarray) -> np.ndarray:
        """Return the group of the largest cosine between first updates."""
        updates = state.moved(theta, state.models[0])
        return nearest_direction(updates, state.directions)

    def aggregate(self, state: FlexCFLState, labels, weights, theta) -> np.ndarray:
        """Average inside the groups, then pull them towards each other."""
        models = super().aggregate(state, labels, weights, theta)
        return pull(models, self.eta, self.normalised, int(state.trainable))


@dataclass(eq=False, repr=False)
class FlexCFLAsRun(FlexCFL):
    """FlexCFL as in EMD-CFL's tables: the weights of the pull do not sum to 1.

    The pull adds at most ``eta * (K - 1)`` to the length of a model.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FlexCFLAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    normalised = False
    eta: NonNegative = 5.0


def decomposed_cosines(products: np.ndarray, n_components: int) -> np.ndarray:
    """Return cosines (n, K) of updates with their K leading left singular vectors.

    They follow from the updates' Gram matrix; 0 beyond its rank.
    """
    features = leading_features(products, n_components)
    norm = np.sqrt(np.diag(products))[:, None]
    cosines = np.divide(features, norm, out=np.zeros_like(features), where=norm > 0)
    return np.pad(cosines, ((0, 0), (0, n_components - cosines.shape[1])))


def pull(
    models: np.ndarray,
    eta: float,
    normalised: bool = True,
    n_trainable: int | None = None,
) -> np.ndarray:
    """Mix every group's model (K, P) with the directions of the others.

    Lengths are those of trained parameters.
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
