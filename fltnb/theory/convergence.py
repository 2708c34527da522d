"""Theorem 2 of FLT (Section 3.3, Appendix B.2): how fast the models of FLT's rounds stop moving.

All models are rows of W (M, d), the row-normalised adjacency is A (M, M), F(W) the sum of all F_i(w_i), L its
smoothness. A round with every client taking part and one exact gradient step each is ``W <- A (W - eta grad F(W))``
(Equation 19). The *gap* of a round is ``||W^t - W^(t-1)||^2``, and the theorem bounds its mean over clients and rounds.

What follows from the assumptions and what does not:

- Disjoint clusters, all clients starting alike. Then A is an orthogonal projection that leaves every W^t as it is, the
  cross term of Lemma 1 is *zero*, and summing Equation 22 gives :func:`projection_bound` for every step below 2 / L,
  convex or not. The printed bound is larger but for its numerator: the sum over rounds 1..T telescopes to
  F(W^0) - F(W^T), not F(W^1) - F(W^T).
- Any other graph. Then Equation 24 fails; F may even rise. For a symmetric adjacency and strongly convex costs
  :func:`contraction_bound` still holds: A does not lengthen a vector in the norm that weights clients by degree.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..rounds import participants
from .problems import Problem


def row_normalised(adjacency: np.ndarray) -> np.ndarray:
    """Return A: a 0/1 adjacency (M, M), ones on the diagonal, each row divided by its sum."""
    return adjacency / adjacency.sum(axis=1, keepdims=True)


def of_clusters(labels: np.ndarray) -> np.ndarray:
    """Return A of disjoint clusters: blocks of 1 / size."""
    return row_normalised(np.equal.outer(labels, labels))


def ring_of(labels: np.ndarray) -> np.ndarray:
    """Return A of clusters whose last client is linked to the first of the next: case I, A A != A."""
    adjacency = np.equal.outer(labels, labels)
    last = np.flatnonzero(labels != np.roll(labels, -1))
    adjacency[last, (last + 1) % len(labels)] = adjacency[
        (last + 1) % len(labels), last
    ] = True
    return row_normalised(adjacency)


def deviation(A: np.ndarray) -> float:
    """||I - A|| as the proof needs it: the spectral norm (the paper does not say which)."""
    return float(np.linalg.norm(np.eye(len(A)) - A, 2))


@dataclass(frozen=True)
class Path:
    """Rounds 0..T of FLT on a convex problem.

    Attributes
    ----------
    loss, gap, gradient : arrays (T + 1,), F(W^t), ||W^t - W^(t-1)||^2 (NaN at t = 0), ||grad F(W^t)||, over all clients
    start, before, end : arrays (M, d), W^0, W^(T-1) and W^T
    """

    loss: np.ndarray
    gap: np.ndarray
    gradient: np.ndarray
    start: np.ndarray
    before: np.ndarray
    end: np.ndarray

    @property
    def rounds(self) -> np.ndarray:
        """T = 0, 1, 2, ... as the bounds divide by it: NaN at T = 0."""
        return np.array([np.nan, *range(1, len(self.gap))])

    @property
    def mean_gap(self) -> np.ndarray:
        """Left-hand side of Theorem 2 for T = 0, 1, 2, ...: mean over clients and rounds 1..T; NaN at T = 0."""
        return (
            np.concatenate([[np.nan], np.cumsum(self.gap[1:])])
            / self.rounds
            / len(self.start)
        )


def iterate(
    problem: Problem,
    A: np.ndarray,
    step: float,
    rounds: int,
    local_steps: int = 1,
    start: np.ndarray | None = None,
    participation: float = 1.0,
    seed: int = 0,
) -> Path:
    """Run FLT with exact gradients.

    Parameters
    ----------
    A : array (M, M), row-normalised adjacency
    step : float, eta
    rounds : int, T
    local_steps : int, E gradient steps per round; the theorem's main form has one
    start : array (M, d), optional, W^0; zeros, the same for all clients, by default
    participation, seed : float, int
        Share of clients per round, which the theorem has all, and what draws them; the rule is ``participants``.
    """
    models = [
        np.zeros(problem.shape) if start is None else np.array(start, dtype=np.float64)
    ]
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # beyond the largest step everything overflows in the end
        for round in range(1, rounds + 1):
            W, present = (
                models[-1].copy(),
                participants(len(A), participation, seed, round),
            )
            for _ in range(local_steps):
                W[present] -= step * problem.gradients(W)[present]
            models.append((A if participation == 1 else mixing(A, present)) @ W)
        losses = [float(problem.losses(W).sum()) for W in models]
        gradients = [float(np.linalg.norm(problem.gradients(W))) for W in models]
        gaps = [float(((W - before) ** 2).sum()) for before, W in pairwise(models)]
    ends = models[0], models[-2] if rounds else models[0], models[-1]
    return Path(np.array(losses), np.array([np.nan, *gaps]), np.array(gradients), *ends)


def mixing(A: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Normalise A's rows over the clients that are ``present``; rows without any keep their client's model."""
    W = np.zeros_like(A)
    W[:, present] = A[:, present]
    total = W.sum(axis=1)
    W[total == 0] = np.eye(len(A))[total == 0]
    return W / W.sum(axis=1, keepdims=True)


def denominator(step: float, smoothness: float, A: np.ndarray) -> float:
    """Factor 1 / (2 eta) - L / 2 - eta L^2 ||I - A||^2 / 2 of Equation 28."""
    return 1 / (2 * step) - smoothness / 2 - step / 2 * (smoothness * deviation(A)) ** 2


def step_limit(smoothness: float, A: np.ndarray) -> float:
    """Step below which that factor is positive, Equation 29."""
    return 2 / (smoothness + smoothness * np.sqrt(1 + 4 * deviation(A) ** 2))


def printed_bound(
    path: Path, step: float, smoothness: float, A: np.ndarray
) -> np.ndarray:
    """Right-hand side of Theorem 2, of a run with step eta and smoothness L, for T = 0, 1, 2, ...; NaN at T = 0."""
    return (path.loss[1] - path.loss) / (
        path.rounds * len(A) * denominator(step, smoothness, A)
    )


def projection_bound(path: Path, step: float, smoothness: float) -> np.ndarray:
    """(F(W^0) - F(W^T)) / (T M (1 / eta - L / 2)): disjoint clusters, all starting alike, step below 2 / L."""
    return (path.loss[0] - path.loss) / (
        path.rounds * len(path.start) * (1 / step - smoothness / 2)
    )


def contraction_bound(
    path: Path, step: float, curvature: tuple[float, float], A: np.ndarray
) -> np.ndarray:
    """Bound on the mean gap for any symmetric adjacency and mu-strongly convex, L-smooth costs, step below 2 / L.

    ``r^2 G_1 / (T M (1 - q^2))``: q = max(|1 - eta mu|, |1 - eta L|), G_1 the first gap, r^2 largest by least degree.
    """
    mu, smoothness = curvature
    shrink = max(abs(1 - step * mu), abs(1 - step * smoothness))
    degree = (np.asarray(A) > 0).sum(axis=1)
    with np.errstate(divide="ignore"):
        return (
            degree.max()
            / degree.min()
            * path.gap[1]
            / (path.rounds * len(A) * max(1 - shrink**2, 0.0))
        )


def local_epochs_bound(
    path: Path,
    step: float,
    smoothness: float,
    A: np.ndarray,
    local_steps: int,
    optimum: np.ndarray,
) -> np.ndarray:
    """Equation 38: the bound with E local steps and one optimum for all rounds; exact in ||W^t - W*|| at the last T."""
    away = ((path.start - optimum) ** 2).sum() + ((path.end - optimum) ** 2).sum()
    return away / (
        2 * step * local_steps * path.rounds * len(A) * denominator(step, smoothness, A)
    )
