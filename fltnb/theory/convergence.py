"""Theorem 2 of FLT (Section 3.2, Appendix B.2): how fast the models converge.

All models are rows of W (M, d), the row-normalised adjacency is A (M, M), F(W) is the
sum of all F_i(w_i), and L its smoothness. (Equation 15 weighs the terms by p_m, but in
Equation 17 a step descends F_i alone.) A round in which every client takes part with
one exact gradient step is ``W <- A (W - eta grad F(W))`` (Equation 19). The *gap* of a
round is ``||W^t - W^(t-1)||^2``; the theorem bounds its mean over clients and rounds.

What follows from the assumptions, and what does not:

- Disjoint clusters, all clients start from one model: A is an orthogonal projection
  that leaves every W^t as it is, the cross term of Lemma 1 is *zero*, and summing
  Equation 22 gives :func:`projection_bound` for every step below 2 / L, convex or not.
  The printed bound is larger except for its numerator: the sum over rounds 1..T
  telescopes to F(W^0) - F(W^T), not to F(W^1) - F(W^T).
- Any other graph: Equation 24 fails, and F may even rise. For a symmetric adjacency and
  strongly convex costs :func:`contraction_bound` still holds: A does not make a vector
  longer in the norm that weights clients by their degree.
"""

from dataclasses import dataclass

import numpy as np

from ..rounds import participants
from .problems import Problem


def row_normalised(adjacency: np.ndarray) -> np.ndarray:
    """Return A: a 0/1 adjacency (M, M) whose rows are divided by their sums.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence
    >>> convergence.row_normalised(np.array([[1, 1], [0, 1]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    return adjacency / adjacency.sum(axis=1, keepdims=True)


def of_clusters(labels: np.ndarray) -> np.ndarray:
    """Return A of disjoint clusters, given by ``labels`` (M,): blocks of 1 / size.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence
    >>> convergence.of_clusters(np.array([0, 0, 1])).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    return row_normalised(np.equal.outer(labels, labels))


def ring_of(labels: np.ndarray) -> np.ndarray:
    """Return A of clusters whose last client is linked to the first of the next.

    This is the paper's case I, in which A A is not A.

    Parameters
    ----------
    labels : int array (M,)
        Clusters, numbered one after the other.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence
    >>> convergence.ring_of(np.array([0, 0, 1, 1])).shape
    (4, 4)
    """
    adjacency = np.equal.outer(labels, labels)
    last = np.flatnonzero(labels != np.roll(labels, -1))
    first = (last + 1) % len(labels)
    adjacency[last, first] = True
    adjacency[first, last] = True
    return row_normalised(adjacency)


def deviation(A: np.ndarray) -> float:
    """Return ||I - A|| in the spectral norm, which the proof of Theorem 2 needs.

    The paper does not say which norm it means.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence
    >>> A = convergence.of_clusters(np.array([0, 0, 1]))
    >>> round(convergence.deviation(A), 6)
    1.0
    """
    return float(np.linalg.norm(np.eye(len(A)) - A, 2))


@dataclass(frozen=True)
class Path:
    """Rounds 0..T of FLT on a convex problem.

    Attributes
    ----------
    loss, gap, gradient : arrays (T + 1,)
        F(W^t), ||W^t - W^(t-1)||^2 (NaN at t = 0), and ||grad F(W^t)||, over all
        clients.
    start, before, end : arrays (M, d)
        W^0, W^(T-1) and W^T.

    Examples
    --------
    >>> from fltnb.theory import convergence, problems
    >>> problem, clusters = problems.draw(n_clients=4, n_clusters=2)
    >>> A = convergence.of_clusters(clusters)
    >>> path = convergence.iterate(problem, A, step=0.01, rounds=3)
    >>> (path.loss[-1] < path.loss[0]).item()
    True
    """

    loss: np.ndarray
    gap: np.ndarray
    gradient: np.ndarray
    start: np.ndarray
    before: np.ndarray
    end: np.ndarray

    @property
    def rounds(self) -> np.ndarray:
        """The divisor T = 0, 1, 2, ... of the bounds; NaN at T = 0."""
        rounds = np.arange(len(self.gap), dtype=np.float64)
        rounds[0] = np.nan
        return rounds

    @property
    def mean_gap(self) -> np.ndarray:
        """Left-hand side of Theorem 2 for T = 0, 1, 2, ...; NaN at T = 0.

        The mean of the gap over clients and rounds 1..T.
        """
        return np.nancumsum(self.gap) / self.rounds / len(self.start)


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
    problem : Problem
        M convex costs.
    A : array (M, M)
        Row-normalised adjacency.
    step : float
        eta.
    rounds : int
        T.
    local_steps : int
        E gradient steps per round; the theorem's main form has one.
    start : array (M, d), optional
        W^0; by default zeros, the same for all clients.
    participation, seed : float, int
        Share of the clients that take part in a round (all of them in the theorem), and
        the seed for drawing them (:func:`fltnb.rounds.participants`).

    Examples
    --------
    >>> from fltnb.theory import convergence, problems
    >>> problem, clusters = problems.draw(n_clients=4, n_clusters=2)
    >>> A = convergence.of_clusters(clusters)
    >>> path = convergence.iterate(problem, A, step=0.01, rounds=3)
    >>> len(path.loss)
    4
    """
    if start is None:
        start = np.zeros(problem.shape)
    W = np.array(start, dtype=np.float64)
    models = [W]
    gaps = [np.nan]
    # above the largest step all values finally overflow
    with np.errstate(over="ignore", invalid="ignore"):
        for round in range(1, rounds + 1):
            present = participants(len(A), participation, seed, round)
            W = W.copy()
            for _ in range(local_steps):
                W[present] -= step * problem.gradients(W)[present]
            weights = A if participation == 1 else mixing(A, present)
            W = weights @ W
            gaps.append(float(((W - models[-1]) ** 2).sum()))
            models.append(W)

        losses = [problem.losses(W).sum() for W in models]
        gradients = [np.linalg.norm(problem.gradients(W)) for W in models]
    return Path(
        loss=np.array(losses),
        gap=np.array(gaps),
        gradient=np.array(gradients),
        start=models[0],
        before=models[max(rounds - 1, 0)],
        end=models[-1],
    )


def mixing(A: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return A (M, M) with its rows normalised over the clients that take part.

    Parameters
    ----------
    A : array (M, M)
        Row-normalised adjacency.
    present : int array (n,)
        The clients that take part. A client without a link to any of them keeps its own
        model.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence
    >>> A = convergence.of_clusters(np.array([0, 0, 1]))
    >>> convergence.mixing(A, np.array([0, 2])).tolist()
    [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    W = np.zeros_like(A)
    W[:, present] = A[:, present]
    nobody = W.sum(axis=1) == 0
    W[nobody] = np.eye(len(A))[nobody]
    return row_normalised(W)


def denominator(step: float, smoothness: float, A: np.ndarray) -> float:
    """Return the factor 1 / (2 eta) - L / 2 - eta L^2 ||I - A||^2 / 2 of Equation 28.

    Parameters
    ----------
    step, smoothness : float
        eta and L.
    A : array (M, M)
        Row-normalised adjacency.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence
    >>> A = convergence.of_clusters(np.array([0, 0, 1]))
    >>> round(float(convergence.denominator(0.5, 1.0, A)), 6)
    0.25
    """
    cross_term = step / 2 * (smoothness * deviation(A)) ** 2
    return 1 / (2 * step) - smoothness / 2 - cross_term


def step_limit(smoothness: float, A: np.ndarray) -> float:
    """Return the step below which :func:`denominator` is positive (Equation 29).

    ``smoothness``: L; ``A`` (M, M): row-normalised adjacency.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence
    >>> A = convergence.of_clusters(np.array([0, 0, 1]))
    >>> round(float(convergence.step_limit(1.0, A)), 3)
    0.618
    """
    root = np.sqrt(1 + 4 * deviation(A) ** 2)
    return 2 / (smoothness + smoothness * root)


def printed_bound(
    path: Path, step: float, smoothness: float, A: np.ndarray
) -> np.ndarray:
    """Return the right-hand side of Theorem 2 for T = 0, 1, 2, ...; NaN at T = 0.

    Parameters
    ----------
    path : Path
        A run with this step.
    step, smoothness : float
        eta and L.
    A : array (M, M)
        Row-normalised adjacency.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence, problems
    >>> problem, clusters = problems.draw(n_clients=4, n_clusters=2)
    >>> A = convergence.of_clusters(clusters)
    >>> mu, L = problem.curvature
    >>> step = 0.5 * convergence.step_limit(L, A)
    >>> path = convergence.iterate(problem, A, step, rounds=5)
    >>> bound = convergence.printed_bound(path, step, L, A)
    >>> bound.shape, np.isnan(bound[0]).item()  # nothing is said of round 0
    ((6,), True)
    """
    below = path.rounds * len(A) * denominator(step, smoothness, A)
    return (path.loss[1] - path.loss) / below


def projection_bound(path: Path, step: float, smoothness: float) -> np.ndarray:
    """Return the corrected bound (F(W^0) - F(W^T)) / (T M (1 / eta - L / 2)), (T + 1,).

    It holds for disjoint clusters, one model at the start, and a step below 2 / L. NaN
    at T = 0. ``path``: a run with this step; ``step, smoothness``: eta and L.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence, problems
    >>> problem, clusters = problems.draw(n_clients=4, n_clusters=2)
    >>> A = convergence.of_clusters(clusters)
    >>> mu, L = problem.curvature
    >>> step = 1 / L
    >>> path = convergence.iterate(problem, A, step, rounds=5)
    >>> bound = convergence.projection_bound(path, step, L)
    >>> bool((path.mean_gap[1:] <= bound[1:]).all())
    True
    """
    below = path.rounds * len(path.start) * (1 / step - smoothness / 2)
    return (path.loss[0] - path.loss) / below


def contraction_bound(
    path: Path, step: float, curvature: tuple[float, float], A: np.ndarray
) -> np.ndarray:
    """Return a bound (T + 1,) for a symmetric adjacency and mu-strongly convex costs.

    It bounds the mean gap by ``r^2 G_1 / (T M (1 - q^2))`` with
    ``q = max(|1 - eta mu|, |1 - eta L|)``, G_1 the first gap and r^2 the ratio of the
    largest and the smallest degree. It is ours, not the paper's. NaN at T = 0.

    Parameters
    ----------
    path : Path
        A run with this step.
    step : float
        eta, below 2 / L.
    curvature : (float, float)
        mu and L.
    A : array (M, M)
        Row-normalised adjacency.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence, problems
    >>> problem, clusters = problems.draw(n_clients=4, n_clusters=2)
    >>> A = convergence.of_clusters(clusters)
    >>> mu, L = problem.curvature
    >>> step = 1 / L
    >>> path = convergence.iterate(problem, A, step, rounds=5)
    >>> bound = convergence.contraction_bound(path, step, (mu, L), A)
    >>> bool((path.mean_gap[1:] <= bound[1:]).all())
    True
    """
    mu, smoothness = curvature
    shrink = max(abs(1 - step * mu), abs(1 - step * smoothness))
    degree = (np.asarray(A) > 0).sum(axis=1)
    above = degree.max() / degree.min() * path.gap[1]
    left_over = max(1 - shrink**2, 0.0)
    with np.errstate(divide="ignore"):
        return above / (path.rounds * len(A) * left_over)


def local_epochs_bound(
    path: Path,
    step: float,
    smoothness: float,
    A: np.ndarray,
    local_steps: int,
    optimum: np.ndarray,
) -> np.ndarray:
    """Return Equation 38, the bound with E local steps and one optimum W*, (T + 1,).

    For every T it uses W^(T,0) of the path's last round, the models before that round's
    local steps: so only the last bound is the paper's. NaN at T = 0.

    Parameters
    ----------
    path, step, smoothness, A
        As for :func:`printed_bound`.
    local_steps : int
        E.
    optimum : array (M, d)
        W*.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import convergence, problems
    >>> problem, clusters = problems.draw(n_clients=4, n_clusters=2)
    >>> A = convergence.of_clusters(clusters)
    >>> mu, L = problem.curvature
    >>> step = 0.5 * convergence.step_limit(L, A)
    >>> path = convergence.iterate(problem, A, step, rounds=5, local_steps=2)
    >>> optimum = problem.optimum(clusters)
    >>> bound = convergence.local_epochs_bound(path, step, L, A, 2, optimum)
    >>> bool((np.diff(bound[1:]) < 0).all())  # it falls with the rounds
    True
    """
    at_start = ((path.start - optimum) ** 2).sum()
    in_last_round = ((path.before - optimum) ** 2).sum()
    away = at_start + in_last_round
    factor = denominator(step, smoothness, A)
    return away / (2 * step * local_steps * path.rounds * len(A) * factor)
