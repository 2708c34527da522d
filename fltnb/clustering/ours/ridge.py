r"""Ridge regressions on random features, from sums over samples.

The loss of a linear model W on samples x with features :math:`\phi` and targets y is a
function of three sums only:

.. math:: \sum |\phi' W - y|^2 = \mathrm{tr}\, W' A W - 2\, \mathrm{tr}\, W' B
    + \sum |y|^2, \qquad A = \sum \phi \phi', \quad B = \sum \phi y'.

So a server that has A, B and :math:`\sum |y|^2` of each client and fold can fit a
regression for any group of clients, by adding up their sums, and knows its exact error
on any fold of any client, without a single sample. Everything below is about many
groups at the same time: arrays begin with the axes (m, Q), m groups and Q sums of each,
one per draw of the features and fold of the samples.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from sklearn.neighbors import kneighbors_graph

# Ridges, in samples of mean energy: 10 weighs as much as ten more samples that say
# "no effect". The loss chooses one.
RIDGE = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
# Ridge of the candidates' common curvature, in units of its mean eigenvalue.
FLOOR = 0.01


def features(
    x: np.ndarray, R: np.ndarray, shift: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return random features of samples, ReLU(x R + shift), and a constant 1.

    Parameters
    ----------
    x : ndarray, shape (n, p)
    R : ndarray, shape (p, d)
        Random directions.
    shift : ndarray, shape (d,), or float

    Returns
    -------
    ndarray, shape (n, d + 1)

    Examples
    --------
    >>> features(np.array([[2.0]]), R=np.array([[1.0, -1.0]])).tolist()
    [[2.0, 0.0, 1.0]]
    """
    activations = np.maximum(x @ R + shift, 0)
    return np.hstack([activations, np.ones((len(x), 1))])


class Sums(NamedTuple):
    """Sums on the server, one row for each of m clients or clusters.

    Q = draws x folds: those of the first draw, of the second, and so on. D features
    (the constant included), K targets.

    Attributes
    ----------
    moments : ndarray, shape (m, Q, D, D)
        Sums of phi phi'.
    products : ndarray, shape (m, Q, D, K)
        Sums of phi y'.
    mean_moments, mean_products : ndarrays of the same shapes
        Every client's sum divided by its number of samples, summed over clients.
    mean_squares : ndarray, shape (m, Q)
        The same of |y|^2.
    size : ndarray, shape (m,)
        Samples.
    noise : ndarray, shape (m,)
        Variance of the noise on an entry of ``moments``.
    """

    moments: np.ndarray
    products: np.ndarray
    mean_moments: np.ndarray
    mean_products: np.ndarray
    mean_squares: np.ndarray
    size: np.ndarray
    noise: np.ndarray

    @classmethod
    def of(cls, sketches: Sequence[Mapping[str, np.ndarray]]) -> Self:
        """Unpack the clients' sketches (:meth:`MergeGain.sketch`), one row each.

        A client sends the upper triangle of its symmetric A, which is half of the
        numbers. For D = 2 the packed [a, b, c] is A = [[a, b], [b, c]].
        """

        def column(name: str) -> np.ndarray:
            return np.array([sketch[name] for sketch in sketches], dtype=np.float64)

        packed = column("moments")  # (m, Q, D (D + 1) / 2)
        products = column("products")  # (m, Q, D, K)
        squares = column("squares")  # (m, Q)
        about = column("about")  # (m, 4)

        m, q, width, _ = products.shape
        moments = np.empty((m, q, width, width))
        rows, columns = np.triu_indices(width)
        moments[:, :, rows, columns] = packed
        moments[:, :, columns, rows] = packed

        size, _, _, noise = about.T
        per_sample = size[:, None, None, None]
        return cls(
            moments,
            products,
            mean_moments=moments / per_sample,
            mean_products=products / per_sample,
            mean_squares=squares / size[:, None],
            size=size,
            noise=noise**2,
        )

    def copy(self) -> Self:
        """Return a copy of the same numbers, as :meth:`join` changes them in place."""
        return type(self)._make(part.copy() for part in self)

    def take(self, rows) -> Self:
        """Return some rows."""
        return type(self)._make(part[rows] for part in self)

    def of_groups(self, labels: np.ndarray) -> Self:
        """Add up the rows of every group.

        For labels [0, 1, 0] the result has two rows: row 0 plus row 2, and row 1.

        Parameters
        ----------
        labels : ndarray of int, shape (m,)
            The group of each row, 0 to the number of groups - 1.
        """
        n_groups = labels.max() + 1
        member = np.eye(n_groups)[labels].T  # (n_groups, m), 0 or 1
        return type(self)._make(np.tensordot(member, part, axes=1) for part in self)

    def but_last(self, folds: int) -> Self:
        """Return the sums without each draw's last fold.

        ``size`` becomes the number of samples in the folds that are left.
        """
        fold = np.arange(self.moments.shape[1]) % folds  # (Q,): 0, 1, 2, 0, 1, 2, ...
        kept = fold < folds - 1
        return type(self)(
            moments=self.moments[:, kept],
            products=self.products[:, kept],
            mean_moments=self.mean_moments[:, kept],
            mean_products=self.mean_products[:, kept],
            mean_squares=self.mean_squares[:, kept],
            size=self.size * (folds - 1) / folds,
            noise=self.noise.copy(),
        )

    def plus(self, other: Self) -> Self:
        """Add up row by row; one of the two may have a single row.

        A single row is added to all rows of the other one, so that one newcomer is
        tried in every cluster at once.
        """
        added = []
        for part, more in zip(self, other, strict=True):
            added.append(part + more)
        return type(self)._make(added)

    def join(self, i: int, j: int) -> None:
        """Add row j to row i, in place: row i is then the merged cluster."""
        for part in self:
            part[i] += part[j]


def losses(sums: Sums, folds: int, last: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the cross-validated loss L of the model that is fitted to each row.

    Each fold is predicted from the others. L is the sum over a row's clients of the
    mean over their samples, averaged over draws.

    Parameters
    ----------
    sums : Sums
        m rows.
    folds : int
        F, with Q = draws x F.
    last : bool
        Predict only the last fold of each draw.

    Returns
    -------
    losses : ndarray, shape (m,)
    weights : ndarray, shape (m, Q, D, K)
        Of the regressions, one for each fold that is predicted.
    """
    asked = slice(None)  # of the Q folds
    if last:
        asked = slice(folds - 1, None, folds)
    moments = _other_folds(sums.moments, folds)[:, asked]  # (m, Q, D, D)
    products = _other_folds(sums.products, folds)[:, asked]  # (m, Q, D, K)
    values, axes = np.linalg.eigh(moments)  # one factorisation for all ridges
    values = np.maximum(values, 0) + _lift(sums, folds)

    # With moments = axes diag(values) axes', the weights of a ridge are
    #     W = axes diag(r) axes' products,  r = 1 / (values + ridge).
    # So the shrinkage r (m, Q, D) is all that a ridge changes, and in it the loss
    # tr W' A W - 2 tr W' B is r' inner r - 2 r' outer.
    turned = np.swapaxes(axes, 2, 3)
    target = turned @ products
    slope = turned @ sums.mean_products[:, asked]
    curvature = turned @ sums.mean_moments[:, asked] @ axes
    inner = curvature * (target @ np.swapaxes(target, 2, 3))
    outer = (target * slope).sum(axis=3)

    unit = _energy(moments, sums, folds)
    # the best ridge of each row, one for all of its folds
    best = np.full(len(sums.size), np.inf)
    shrinkage = np.zeros_like(outer)
    for ridge in RIDGE:
        r = 1 / (values + ridge * unit)
        inner_r = (inner @ r[..., None])[..., 0]  # (m, Q, D)
        terms = r * (inner_r - 2 * outer)
        loss = terms.sum(axis=(1, 2))
        better = loss < best
        best[better] = loss[better]
        shrinkage[better] = r[better]

    # |y|^2, which no model changes
    total = best + sums.mean_squares[:, asked].sum(axis=1)
    weights = axes @ (shrinkage[..., None] * target)
    n_draws = sums.moments.shape[1] // folds
    return total / n_draws, weights


def _lift(sums: Sums, folds: int) -> np.ndarray:
    """Return the largest eigenvalue of noise alone, (m, 1, 1).

    If the sums of noisy moments are raised by it, they stay positive. A symmetric
    matrix of width D with noise of variance v on its entries has eigenvalues up to
    2 sqrt(D v) (Wigner's semicircle), and the sum of F - 1 folds has F - 1 times the
    variance.
    """
    width = sums.moments.shape[2]
    noise = width * (folds - 1) * sums.noise
    return 2 * np.sqrt(noise)[:, None, None]


def _energy(moments: np.ndarray, sums: Sums, folds: int) -> np.ndarray:
    """Return the mean square of a feature, (m, Q, 1), in the folds of a fit.

    ``moments`` (m, Q, D, D): the sums over these folds.
    """
    width = moments.shape[2]
    entries = width * sums.size[:, None] * (folds - 1) / folds
    mean = np.trace(moments, axis1=2, axis2=3) / entries
    return np.maximum(mean, 1e-12)[:, :, None]


def _other_folds(part: np.ndarray, folds: int) -> np.ndarray:
    """Return for every draw and fold the sum over the draw's other folds.

    ``part`` (m, Q, ...), like the result. From two draws of three folds
    [a, b, c, d, e, f] follow [b + c, a + c, a + b, e + f, d + f, d + e].
    """
    m, q, *rest = part.shape
    by_fold = part.reshape(m, q // folds, folds, *rest)
    others = by_fold.sum(axis=2, keepdims=True) - by_fold
    return others.reshape(part.shape)


def served(sums: Sums, weights: np.ndarray, folds: int) -> np.ndarray:
    """Return the losses (m,) of clients under the weights that serve them.

    Parameters
    ----------
    sums : Sums
        Of m single clients.
    weights : ndarray, shape (m, Q, D, K)
        Of each client's cluster, as :func:`losses` returns them for all folds.
    folds : int

    Returns
    -------
    ndarray, shape (m,)
        The mean over a client's samples, summed over folds and averaged over draws. For
        clusters of one client these are the losses that :func:`losses` returns.
    """
    # tr W'AW - 2 tr W'B is the sum of the entries of W * (AW - 2B)
    slopes = sums.mean_moments @ weights - 2 * sums.mean_products
    inner = (weights * slopes).sum(axis=(1, 2, 3))
    squares = sums.mean_squares.sum(axis=1)
    n_draws = weights.shape[1] // folds
    return (inner + squares) / n_draws


def nearest(sums: Sums, k: int) -> np.ndarray:
    """Mark pairs of rows of which one is among the k nearest of the other.

    The distance is the cost of merging, to second order, if all rows had the same
    curvature H. With G_i the gradient per sample of row i's loss at the regression W
    that is fitted to all rows, its own regression is W - H^-1 G_i. Two rows that share
    the mean of theirs then lose in proportion to |H^(-1/2) (G_i - G_j)|^2, so nearness
    is that of the whitened gradients.

    Parameters
    ----------
    sums : Sums
        m rows.
    k : int

    Returns
    -------
    ndarray of bool, shape (m, m)
        Above the diagonal, so that each pair is marked once.
    """
    # one regression for all rows together
    n_samples = sums.size.sum()
    moments = sums.moments.sum(axis=(0, 1)) / n_samples
    products = sums.products.sum(axis=(0, 1)) / n_samples
    values, axes = np.linalg.eigh(moments)
    values = np.maximum(values, 0) + FLOOR * np.trace(moments) / len(moments)
    weights = axes @ ((axes.T @ products) / values[:, None])

    # the change by each row, (m, D, K)
    gradient = sums.products.sum(axis=1) - sums.moments.sum(axis=1) @ weights
    gradient = gradient / sums.size[:, None, None]
    # H^(-1/2) up to a rotation, which does not change distances
    whitened = (axes / np.sqrt(values)).T @ gradient

    points = whitened.reshape(len(whitened), -1)
    near = kneighbors_graph(points, k).toarray() > 0
    return np.triu(near | near.T, 1)
