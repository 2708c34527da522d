"""FedSaC: pFedGraph that also prefers partners with different features.

Yan et al., ICML 2024 (arXiv 2405.09892).
"""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np

from ...clustering.pacfl import singular_vectors
from ...settings import NonNegative
from ..base import Context
from ..samples import outputs
from .pfedgraph import PFedGraph, PFedGraphAsRun, PFedGraphState

DIRECTIONS = 3


@dataclass(eq=False, repr=False)
class FedSaC(PFedGraph):
    """pFedGraph with a reward for partners whose features span other directions.

    Yan et al., ICML 2024 (arXiv 2405.09892). Client i's weights minimise ``||w - p||^2
    + sum_j (l1 c_ij + l2 d_ij) w_j``, with p and d as in
    :class:`fltnb.methods.PFedGraph`. c is the cosine of the mean angle between matched
    pairs of the clients' three leading principal directions of features. Features are
    the inputs of the last layer for training samples, under the trained models. Clients
    also send these directions.

    Parameters
    ----------
    l1, l2 : float
        Weights of the two costs: of features in the same directions, and of different
        updates.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedSaC()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "fedsac"
    headed = True

    alpha: ClassVar = None  # type: ignore[misc]  # no option here
    l1: NonNegative = 0.9
    l2: NonNegative = 1.4

    def start(self, fed, model, context: Context) -> PFedGraphState:
        """Start as pFedGraph, without directions."""
        state = super().start(fed, model, context)
        directions = np.zeros((fed.n_clients, DIRECTIONS, model.n_features))
        return replace(state, directions=directions)

    def train(self, state: PFedGraphState, clients: np.ndarray, round: int, engine):
        """Train, then find the principal directions of the resulting features."""
        state, trained = super().train(state, clients, round, engine)
        # a run that diverged will stop with an error
        if not np.isfinite(trained.theta).all():
            return state, trained

        directions = state.directions.copy()
        features = engine.model.features
        for client, theta in zip(clients, trained.theta, strict=True):
            samples = engine.fed.train[client]
            (seen,) = outputs(engine, features, theta[None], samples)
            directions[client] = principal_directions(seen)
        return replace(state, directions=directions), trained

    def cost(
        self, state: PFedGraphState, clients: np.ndarray, d: np.ndarray
    ) -> np.ndarray:
        """Return half the weighted sum of both costs."""
        c = subspace_similarity(state.directions[clients])
        return (self.l1 * c + self.l2 * d) / 2

    def traffic(self, state: PFedGraphState, n_parameters: int) -> tuple[int, int]:
        """Count a model in each direction, and three directions up."""
        return n_parameters, n_parameters + state.directions[0].size


@dataclass(eq=False, repr=False)
class FedSaCAsRun(FedSaC, PFedGraphAsRun):
    """FedSaC as in EMD-CFL's tables: cosines of this round's updates, as they are.

    See :class:`fltnb.methods.PFedGraphAsRun`. The regulariser, which those runs had
    with mu = 1, is left out.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedSaCAsRun()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"


def principal_directions(features: np.ndarray) -> np.ndarray:
    """Return three leading principal directions (3, e), largest entries positive.

    They are zero beyond the rank.
    """
    found = singular_vectors(features - features.mean(axis=0), DIRECTIONS).T
    return np.pad(found, ((0, DIRECTIONS - len(found)), (0, 0)))


def subspace_similarity(directions: np.ndarray) -> np.ndarray:
    """Return the cosine (n, n) of the mean angle between directions (n, 3, e).

    Directions are matched greedily, by the largest cosine.
    """
    out = np.eye(len(directions))
    for i, j in combinations(range(len(directions)), 2):
        cosine = np.clip(directions[i] @ directions[j].T, -1, 1)  # (3, 3)
        angles = _matched_angles(cosine)
        out[i, j] = np.cos(np.mean(angles))
        out[j, i] = out[i, j]
    return out


def _matched_angles(cosine: np.ndarray) -> list[float]:
    """Return the angles of directions that are matched by their cosines (n, n).

    The pair with the largest cosine comes first, then the best of those left. Of
    [[0.9, 0.8], [0.7, 0.1]] the pairs with 0.9 and 0.1 are taken.
    """
    left = cosine.copy()
    angles = []
    for _ in range(len(left)):
        a, b = np.unravel_index(left.argmax(), left.shape)
        angles.append(np.arccos(left[a, b]))
        left[a] = -np.inf
        left[:, b] = -np.inf
    return angles
