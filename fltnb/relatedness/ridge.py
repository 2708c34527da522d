"""Cross-validated loss of a ridge regression, of sums over samples alone: what merge by gain knows of any clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

RIDGE = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)  # in samples of mean energy; the loss itself chooses
FLOOR = 0.01  # ridge of the candidates' common curvature, of its mean eigenvalue


class Sums(NamedTuple):
    """What the server adds up, one row per client or cluster; Q = draws x folds, D features, K targets."""

    moments: np.ndarray  # (m, Q, D, D), sums of phi phi'
    products: np.ndarray  # (m, Q, D, K), sums of phi y'
    mean_moments: np.ndarray  # these two, every client's divided by its number of samples
    mean_products: np.ndarray
    mean_squares: np.ndarray  # (m, Q), sums of |y|^2, divided likewise
    size: np.ndarray  # (m,), samples
    noise: np.ndarray  # (m,), variance of the noise on an entry of `moments`

    @classmethod
    def of(cls, sketches: Sequence[Mapping[str, np.ndarray]]) -> Sums:
        """Unpack what clients sent (:meth:`fltnb.relatedness.MergeGain.sketch`), one row each."""
        names = ("moments", "products", "squares", "about")
        packed, products, squares, about = (np.array([one[name] for one in sketches], float) for name in names)
        width, size = products.shape[2], about[:, 0]
        rows, columns = np.triu_indices(width)
        moments = np.empty((*packed.shape[:2], width, width))
        moments[:, :, rows, columns] = moments[:, :, columns, rows] = packed
        means = (part / size.reshape(-1, *[1] * (part.ndim - 1)) for part in (moments, products, squares))
        return cls(moments, products, *means, size, about[:, 3] ** 2)

    def take(self, rows) -> Sums:
        """Return some rows."""
        return Sums(*(part[rows] for part in self))

    def but_last(self, folds: int) -> Sums:
        """Return the sums without each draw's last fold."""
        kept = np.arange(self.moments.shape[1]) % folds < folds - 1
        return Sums(*(part[:, kept] for part in self[:5]), self.size * (folds - 1) / folds, self.noise)

    def plus(self, other: Sums) -> Sums:
        """Add up row by row."""
        return Sums(*(part + more for part, more in zip(self, other, strict=True)))


def losses(sums: Sums, folds: int, last: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Loss L (m,) of the model that each row fits, and its weights (m, Q, D, K); each fold is predicted by the others.

    L is summed over a row's clients, each the mean over its samples, and averaged over draws. With ``last``, of the
    last fold of each draw alone.
    """
    m, q, width, _ = sums.moments.shape
    asked = slice(folds - 1 if last else 0, None, folds if last else 1)

    def others(part: np.ndarray) -> np.ndarray:
        by_fold = part.reshape(m, q // folds, folds, *part.shape[2:])
        return (by_fold.sum(2, keepdims=True) - by_fold).reshape(part.shape)[:, asked]

    moments = others(sums.moments)
    values, axes = np.linalg.eigh(moments)  # one factorisation for all ridges
    # noise alone has eigenvalues up to this: lifted by it the matrix stays positive
    lift = 2 * np.sqrt(width * (folds - 1) * sums.noise)[:, None, None]
    unit = np.trace(moments, axis1=2, axis2=3) / (width * sums.size[:, None] * (folds - 1) / folds)
    unit = np.maximum(unit, 1e-12)[:, :, None]
    turned = np.swapaxes(axes, 2, 3)
    target, slope = turned @ others(sums.products), turned @ sums.mean_products[:, asked]
    # with W = axes diag(r) target, r the only thing that a ridge changes, the loss is r' inner r - 2 r' outer
    inner = (turned @ sums.mean_moments[:, asked] @ axes) * (target @ np.swapaxes(target, 2, 3))
    outer = (target * slope).sum(3)
    best, shrunk = np.full(m, np.inf), np.zeros_like(outer)
    for ridge in RIDGE:
        r = 1 / (np.maximum(values, 0) + lift + ridge * unit)
        loss = (r * ((inner @ r[..., None])[..., 0] - 2 * outer)).sum((1, 2))
        better = loss < best
        best[better], shrunk[better] = loss[better], r[better]
    return (best + sums.mean_squares[:, asked].sum(1)) / (q // folds), axes @ (shrunk[..., None] * target)


def served(sums: Sums, weights: np.ndarray, folds: int) -> np.ndarray:
    """Losses (m,) of rows under one model's weights (Q, D, K)."""
    inner = (weights * (sums.mean_moments @ weights - 2 * sums.mean_products)).sum((1, 2, 3))
    return (inner + sums.mean_squares.sum(1)) / (weights.shape[0] // folds)


def nearest(sums: Sums, k: int) -> np.ndarray:
    """Mark pairs of rows (m, m), above the diagonal, of which one is among the k nearest of the other.

    The distance is what merging would cost in second order if all had the curvature of all: that of the gradients at
    the model of all, whitened.
    """
    m, _, width, _ = sums.moments.shape
    moments, products = (part.sum((0, 1)) / sums.size.sum() for part in (sums.moments, sums.products))
    values, axes = np.linalg.eigh(moments)
    values = np.maximum(values, 0) + FLOOR * np.trace(moments) / width
    weights = axes @ ((axes.T @ products) / values[:, None])
    gradient = (sums.products.sum(1) - sums.moments.sum(1) @ weights) / sums.size[:, None, None]
    points = ((axes / np.sqrt(values)).T @ gradient).reshape(m, -1)
    norms = (points**2).sum(1)
    squared = norms[:, None] + norms - 2 * points @ points.T
    np.fill_diagonal(squared, np.inf)
    near = np.zeros((m, m), dtype=bool)
    np.put_along_axis(near, np.argpartition(squared, k, axis=1)[:, :k], True, axis=1)
    return np.triu(near | near.T, 1)
