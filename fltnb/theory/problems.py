"""Convex federated problems with known constants, for Theorem 2 of FLT.

They are least squares, and logistic regression with a ridge penalty.
"""

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

# of drawn problems: samples of every client, and coordinates
SAMPLES = 12
DIMENSION = 8
# deviation of a client's true weights from those of its cluster
SPREAD = 0.3
RIDGE = 0.05


@dataclass(frozen=True)
class Problem:
    """M clients with one convex cost each; all models are rows of W (M, d).

    Parameters
    ----------
    kind : {"least squares", "logistic"}
        Half the squared residual, or the logistic loss with targets -1 or 1.
    features, targets : float64 arrays (M, n, d), (M, n)
        n samples of every client.
    ridge : float
        Weight of half the squared norm of the model.
    truth : float64 array (M, d)
        The weights that generated each client's targets.

    Examples
    --------
    >>> from fltnb.theory import problems
    >>> problem, clusters = problems.draw(n_clients=4, n_clusters=2)
    >>> problem.kind, problem.features.shape[0]
    ('least squares', 4)
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
        """F_i(w_i) of every client, (M,).

        Parameters
        ----------
        W : array (M, d)
            A model for each client.
        """
        scores = self._scores(W)
        if self.kind == "least squares":
            data = (scores - self.targets) ** 2 / 2
        else:
            data = np.logaddexp(0, -self.targets * scores)
        norms = (W**2).sum(axis=1)
        return data.mean(axis=1) + self.ridge / 2 * norms

    def _scores(self, W: np.ndarray) -> np.ndarray:
        """Inner products of each client's samples with its model, (M, n)."""
        return np.einsum("mnd,md->mn", self.features, W)

    def gradients(self, W: np.ndarray) -> np.ndarray:
        """Gradient of F_i at w_i for every client, (M, d).

        Parameters
        ----------
        W : array (M, d)
            A model for each client.
        """
        scores = self._scores(W)
        if self.kind == "least squares":
            slope = scores - self.targets
        else:
            slope = -self.targets * expit(-self.targets * scores)
        n = self.features.shape[1]
        data = np.einsum("mnd,mn->md", self.features, slope) / n
        return data + self.ridge * W

    @cached_property
    def curvature(self) -> tuple[float, float]:
        """(mu, L): bounds on the curvature of every F_i.

        L is the smoothness of the sum F(W) as well (the paper's L_W).
        """
        n = self.features.shape[1]
        hessians = np.einsum("mnd,mne->mde", self.features, self.features) / n
        values = np.linalg.eigvalsh(hessians)
        least = float(values.min())
        largest = float(values.max())
        if self.kind == "logistic":
            # the slope of a probability lies between 0 and 1/4
            least = 0.0
            largest /= 4
        return least + self.ridge, largest + self.ridge

    def optimum(self, labels: np.ndarray) -> np.ndarray:
        """Model (M, d) with the least sum of costs in each client's cluster.

        Parameters
        ----------
        labels : int array (M,)
            Cluster of each client.

        Raises
        ------
        FltnbError
            The problem is not least squares, which has a closed form.
        """
        if self.kind != "least squares":
            raise FltnbError(
                "Only least squares has its optimum in closed form: for other problems "
                "run convergence.iterate with many rounds."
            )
        n, d = self.features.shape[1:]
        best = np.empty(self.shape)
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            X = self.features[members].reshape(-1, d)
            y = self.targets[members].reshape(-1)
            ridge = len(members) * self.ridge * np.eye(d)
            hessian = X.T @ X / n + ridge
            best[members] = np.linalg.solve(hessian, X.T @ y / n)
        return best


def draw(
    kind: Kind = "least squares",
    n_clients: int = 12,
    n_clusters: int = 3,
    seed: int = 0,
) -> tuple[Problem, np.ndarray]:
    """Draw a problem, and the true clusters (M,) of its clients.

    Clients of one cluster have nearly the same true weights. They are numbered cluster
    by cluster. Features, the clusters' weights and the noise on targets (least squares)
    or scores (logistic) are standard normal.

    Parameters
    ----------
    kind : {"least squares", "logistic"}
    n_clients, n_clusters : int
        M clients, distributed to the clusters as evenly as possible.
    seed : int

    Returns
    -------
    (Problem, int array (M,))

    Examples
    --------
    >>> from fltnb.theory import problems
    >>> problem, clusters = problems.draw(n_clients=4, n_clusters=2)
    >>> clusters.tolist()
    [0, 0, 1, 1]
    """
    rng = stream(seed, "partition", n_clients, n_clusters, SAMPLES, DIMENSION)
    labels = np.sort(np.arange(n_clients) % n_clusters)
    of_cluster = rng.standard_normal((n_clusters, DIMENSION))
    own = rng.standard_normal((n_clients, DIMENSION))
    truth = of_cluster[labels] + SPREAD * own

    features = rng.standard_normal((n_clients, SAMPLES, DIMENSION))
    noise = rng.standard_normal((n_clients, SAMPLES))
    targets = np.einsum("mnd,md->mn", features, truth) + noise
    if kind == "logistic":
        targets = np.where(targets < 0, -1.0, 1.0)
    return Problem(kind, features, targets, RIDGE, truth), labels
