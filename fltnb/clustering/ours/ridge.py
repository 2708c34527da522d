"""Ridge regressions on random features, from sums over samples."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from sklearn.neighbors import kneighbors_graph

# Ridges, in samples of mean energy; the loss itself chooses.
RIDGE = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
# Ridge of the candidates' common curvature, in units of its mean eigenvalue.
FLOOR = 0.01


def features(
    x: np.ndarray, R: np.ndarray, shift: np.ndarray | float = 0.0
) -> np.ndarray:
    """Random features (n, d + 1) of samples (n, p): ReLU(x R + shift), and 1."""
    activations = np.maximum(x @ R + shift, 0)
    return np.hstack([activations, np.ones((len(x), 1))])


class Sums(NamedTuple):
    """What the server adds up, one row for each of m clients or clusters.

    Q = draws x folds, D features, K targets.
    """

    moments: np.ndarray  # (m, Q, D, D), sums of phi phi'
    products: np.ndarray  # (m, Q, D, K), sums of phi y'
    # these three: every client's sum divided by its number of samples
    mean_moments: np.ndarray
    mean_products: np.ndarray
    mean_squares: np.ndarray  # (m, Q), of |y|^2
    size: np.ndarray  # (m,), samples
    noise: np.ndarray  # (m,), variance of the noise on an entry of `moments`

    @classmethod
    def of(cls, sketches: Sequence[Mapping[str, np.ndarray]]) -> Self:
        """Unpack what clients sent (:meth:`MergeGain.sketch`), one row each."""

        def column(name: str) -> np.ndarray:
            return np.array([sketch[name] for sketch in sketches], dtype=np.float64)

        packed = column("moments")
        products = column("products")
        squares = column("squares")
        about = column("about")

        width = products.shape[2]
        moments = np.empty((*packed.shape[:2], width, width))
        rows, columns = np.triu_indices(width)
        moments[:, :, rows, columns] = packed
        moments[:, :, columns, rows] = packed

        size = about[:, 0]
        return cls(
            moments,
            products,
            moments / size[:, None, None, None],
            products / size[:, None, None, None],
            squares / size[:, None],
            size,
            about[:, 3] ** 2,
        )

    def take(self, rows) -> Self:
        """Return some rows."""
        return Sums(*(part[rows] for part in self))

    def but_last(self, folds: int) -> Self:
        """Return the sums without each draw's last fold."""
        fold = np.arange(self.moments.shape[1]) % folds
        kept = fold < folds - 1
        size = self.size * (folds - 1) / folds
        return Sums(*(part[:, kept] for part in self[:5]), size, self.noise.copy())

    def plus(self, other: Self) -> Self:
        """Add up row by row."""
        return Sums(*(part + more for part, more in zip(self, other, strict=True)))

    def join(self, i: int, j: int) -> None:
        """Add row j to row i, in place."""
        for part in self:
            part[i] += part[j]


def losses(sums: Sums, folds: int, last: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Loss L (m,) of the model that each row fits, and its weights (m, Q, D, K).

    Each fold is predicted by the others. L is summed over a row's clients, each the
    mean over its samples, then over draws. ``last``: the last folds alone.
    """
    asked = slice(folds - 1, None, folds) if last else slice(None)
    moments = _other_folds(sums.moments, folds)[:, asked]
    products = _other_folds(sums.products, folds)[:, asked]

    n_draws = sums.moments.shape[1] // folds
    width = sums.moments.shape[2]
    energy = width * sums.size[:, None] * (folds - 1) / folds
    unit = np.trace(moments, axis1=2, axis2=3) / energy
    unit = np.maximum(unit, 1e-12)[:, :, None]

    # noise alone has eigenvalues up to this: lifted by it the matrix stays positive
    lift = 2 * np.sqrt(width * (folds - 1) * sums.noise)[:, None, None]
    # one factorisation for all ridges
    values, axes = np.linalg.eigh(moments)
    values = np.maximum(values, 0) + lift

    # with W = axes diag(r) target, r the only thing that a ridge changes, the loss is
    # r' inner r - 2 r' outer
    turned = np.swapaxes(axes, 2, 3)
    target = turned @ products
    slope = turned @ sums.mean_products[:, asked]
    curvature = turned @ sums.mean_moments[:, asked] @ axes
    inner = curvature * (target @ np.swapaxes(target, 2, 3))
    outer = (target * slope).sum(3)

    best = np.full(len(sums.size), np.inf)
    shrunk = np.zeros_like(outer)
    for ridge in RIDGE:
        r = 1 / (values + ridge * unit)
        bent = (inner @ r[..., None])[..., 0]
        loss = (r * (bent - 2 * outer)).sum((1, 2))
        better = loss < best
        best[better] = loss[better]
        shrunk[better] = r[better]

    total = best + sums.mean_squares[:, asked].sum(1)
    weights = axes @ (shrunk[..., None] * target)
    return total / n_draws, weights


def _other_folds(part: np.ndarray, folds: int) -> np.ndarray:
    """For every draw and fold (m, Q, ...) the sum over the draw's other folds."""
    m, q = part.shape[:2]
    by_fold = part.reshape(m, q // folds, folds, *part.shape[2:])
    others = by_fold.sum(2, keepdims=True) - by_fold
    return others.reshape(part.shape)


def served(sums: Sums, weights: np.ndarray, folds: int) -> np.ndarray:
    """Losses (m,) of rows under weights (m, Q, D, K)."""
    slopes = sums.mean_moments @ weights - 2 * sums.mean_products
    inner = (weights * slopes).sum((1, 2, 3))
    n_draws = weights.shape[1] // folds
    return (inner + sums.mean_squares.sum(1)) / n_draws


def nearest(sums: Sums, k: int) -> np.ndarray:
    """Mark pairs of rows (m, m) of which one is among the k nearest of the other.

    Above the diagonal. The distance is what merging would cost in second order if all
    had one curvature: that of the whitened gradients.
    """
    m = len(sums.size)
    n_samples = sums.size.sum()
    moments = sums.moments.sum((0, 1)) / n_samples
    products = sums.products.sum((0, 1)) / n_samples

    values, axes = np.linalg.eigh(moments)
    values = np.maximum(values, 0) + FLOOR * np.trace(moments) / len(moments)
    weights = axes @ ((axes.T @ products) / values[:, None])

    gradient = sums.products.sum(1) - sums.moments.sum(1) @ weights
    gradient = gradient / sums.size[:, None, None]
    whitened = (axes / np.sqrt(values)).T @ gradient
    near = kneighbors_graph(whitened.reshape(m, -1), k).toarray() > 0
    return np.triu(near | near.T, 1)
