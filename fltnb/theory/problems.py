"""Convex federated problems with known constants, for Theorem 2: least squares and regularised logistic regression."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy.special import expit

from ..errors import FltnbError
from ..randomness import stream
from ..settings import NonNegative, checked

Kind = Literal["least squares", "logistic"]
KINDS = get_args(Kind)
SAMPLES, DIMENSION = 12, 8  # of drawn problems: samples of every client, coordinates
SPREAD, RIDGE = (
    0.3,
    0.05,
)  # deviation of a client's true weights from its cluster's, and the regularisation


@dataclass(frozen=True)
class Problem:
    """M clients with one convex cost each; all models are rows of W (M, d).

    Parameters
    ----------
    kind : {"least squares", "logistic"}, half the squared residual, or the logistic loss of a target of -1 or 1
    features, targets : float64 arrays (M, n, d), (M, n), n samples of every client
    ridge : float, weight of half the squared norm of the model
    truth : float64 array (M, d), the weights that generated each client's targets
    """

    kind: Kind
    features: np.ndarray
    targets: np.ndarray
    ridge: NonNegative
    truth: np.ndarray

    def __post_init__(self) -> None:
        checked(Problem, vars(self), "a problem")

    @property
    def shape(self) -> tuple[int, int]:
        """(M, d)."""
        return self.features.shape[0], self.features.shape[2]

    def losses(self, W: np.ndarray) -> np.ndarray:
        """F_i(w_i) of every client, (M,)."""
        scores = np.einsum("mnd,md->mn", self.features, W)
        y = self.targets
        data = (
            (scores - y) ** 2 / 2
            if self.kind == "least squares"
            else np.logaddexp(0, -y * scores)
        )
        return data.mean(axis=1) + self.ridge / 2 * (W**2).sum(axis=1)

    def gradients(self, W: np.ndarray) -> np.ndarray:
        """Gradient of F_i at w_i for every client, (M, d)."""
        scores = np.einsum("mnd,md->mn", self.features, W)
        y = self.targets
        slope = scores - y if self.kind == "least squares" else -y * expit(-y * scores)
        return (
            np.einsum("mnd,mn->md", self.features, slope) / self.features.shape[1]
            + self.ridge * W
        )

    @cached_property
    def curvature(self) -> tuple[float, float]:
        """(mu, L): bounds on the curvature of every F_i; L is L_W, the smoothness of F(W) = sum of F_i(w_i)."""
        values = np.linalg.eigvalsh(
            np.einsum("mnd,mne->mde", self.features, self.features)
            / self.features.shape[1]
        )
        if self.kind == "least squares":
            return float(values.min()) + self.ridge, float(values.max()) + self.ridge
        return self.ridge, float(values.max()) / 4 + self.ridge

    def optimum(self, labels: np.ndarray) -> np.ndarray:
        """Model (M, d) with the least sum of costs in each client's cluster, in closed form; least squares only."""
        if self.kind != "least squares":
            raise FltnbError(
                "Only least squares has its optimum in closed form: iterate for other problems."
            )
        n, d = self.features.shape[1:]
        best = np.empty(self.shape)
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            X, y = (
                self.features[members].reshape(-1, d),
                self.targets[members].reshape(-1),
            )
            best[members] = np.linalg.solve(
                X.T @ X / n + len(members) * self.ridge * np.eye(d), X.T @ y / n
            )
        return best


def draw(
    kind: Kind = "least squares",
    n_clients: int = 12,
    n_clusters: int = 3,
    seed: int = 0,
) -> tuple[Problem, np.ndarray]:
    """Draw a problem, and the true clusters (M,) of its clients, who have nearly the same true weights inside one.

    Clients are numbered cluster by cluster; features, the clusters' weights and the noise on targets (least squares) or
    scores (logistic) are standard normal.
    """
    rng = stream(seed, "partition", n_clients, n_clusters, SAMPLES, DIMENSION)
    labels = np.sort(np.arange(n_clients) % n_clusters)
    truth = rng.standard_normal((n_clusters, DIMENSION))[
        labels
    ] + SPREAD * rng.standard_normal((n_clients, DIMENSION))
    features = rng.standard_normal((n_clients, SAMPLES, DIMENSION))
    scores = np.einsum("mnd,md->mn", features, truth) + rng.standard_normal(
        (n_clients, SAMPLES)
    )
    targets = scores if kind == "least squares" else np.where(scores < 0, -1.0, 1.0)
    return Problem(kind, features, targets, RIDGE, truth), labels
