"""Ridge regressions on random features, from sums over samples: what merging would do, and what clusters would gain."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from sklearn.neighbors import kneighbors_graph
from threadpoolctl import threadpool_limits

from ..errors import FltnbError
from ..federations import Federation
from ..randomness import stream
from ..settings import Count, Natural, checked

FOLDS = 5  # of the estimate of what clusters would gain
PENALTIES = 10.0 ** np.arange(-2, 4)  # there, in units of a feature's mean square
RIDGE = (
    0.001,
    0.01,
    0.1,
    1.0,
    10.0,
    100.0,
)  # in samples of mean energy; the loss itself chooses
FLOOR = 0.01  # ridge of the candidates' common curvature, of its mean eigenvalue


def features(
    x: np.ndarray, projection: np.ndarray, shift: np.ndarray | float = 0.0
) -> np.ndarray:
    """Random features (n, d + 1) of samples (n, p): ReLU(x projection + shift), and 1."""
    return np.hstack([np.maximum(x @ projection + shift, 0), np.ones((len(x), 1))])


class Sums(NamedTuple):
    """What the server adds up, one row per client or cluster; Q = draws x folds, D features, K targets."""

    moments: np.ndarray  # (m, Q, D, D), sums of phi phi'
    products: np.ndarray  # (m, Q, D, K), sums of phi y'
    mean_moments: (
        np.ndarray
    )  # these two, every client's divided by its number of samples
    mean_products: np.ndarray
    mean_squares: np.ndarray  # (m, Q), sums of |y|^2, divided likewise
    size: np.ndarray  # (m,), samples
    noise: np.ndarray  # (m,), variance of the noise on an entry of `moments`

    @classmethod
    def of(cls, sketches: Sequence[Mapping[str, np.ndarray]]) -> Self:
        """Unpack what clients sent (:meth:`fltnb.clustering.MergeGain.sketch`), one row each."""
        names = ("moments", "products", "squares", "about")
        packed, products, squares, about = (
            np.array([one[name] for one in sketches], float) for name in names
        )
        width, size = products.shape[2], about[:, 0]
        rows, columns = np.triu_indices(width)
        moments = np.empty((*packed.shape[:2], width, width))
        moments[:, :, rows, columns] = moments[:, :, columns, rows] = packed
        means = (
            part / size.reshape(-1, *[1] * (part.ndim - 1))
            for part in (moments, products, squares)
        )
        return cls(moments, products, *means, size, about[:, 3] ** 2)

    def take(self, rows) -> Self:
        """Return some rows."""
        return Sums(*(part[rows] for part in self))

    def but_last(self, folds: int) -> Self:
        """Return the sums without each draw's last fold."""
        kept = np.arange(self.moments.shape[1]) % folds < folds - 1
        return Sums(
            *(part[:, kept] for part in self[:5]),
            self.size * (folds - 1) / folds,
            self.noise,
        )

    def plus(self, other: Self) -> Self:
        """Add up row by row."""
        return Sums(*(part + more for part, more in zip(self, other, strict=True)))


def losses(sums: Sums, folds: int, last: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Loss L (m,) of the model that each row fits, and its weights (m, Q, D, K); each fold is predicted by the others.

    L is summed over a row's clients, each the mean over its samples, then over draws. ``last``: the last folds alone.
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
    unit = np.trace(moments, axis1=2, axis2=3) / (
        width * sums.size[:, None] * (folds - 1) / folds
    )
    unit = np.maximum(unit, 1e-12)[:, :, None]
    turned = np.swapaxes(axes, 2, 3)
    target, slope = (
        turned @ others(sums.products),
        turned @ sums.mean_products[:, asked],
    )
    # with W = axes diag(r) target, r the only thing that a ridge changes, the loss is r' inner r - 2 r' outer
    inner = (turned @ sums.mean_moments[:, asked] @ axes) * (
        target @ np.swapaxes(target, 2, 3)
    )
    outer = (target * slope).sum(3)
    best, shrunk = np.full(m, np.inf), np.zeros_like(outer)
    for ridge in RIDGE:
        r = 1 / (np.maximum(values, 0) + lift + ridge * unit)
        loss = (r * ((inner @ r[..., None])[..., 0] - 2 * outer)).sum((1, 2))
        better = loss < best
        best[better], shrunk[better] = loss[better], r[better]
    return (best + sums.mean_squares[:, asked].sum(1)) / (q // folds), axes @ (
        shrunk[..., None] * target
    )


def served(sums: Sums, weights: np.ndarray, folds: int) -> np.ndarray:
    """Losses (m,) of rows under weights (m, Q, D, K)."""
    inner = (weights * (sums.mean_moments @ weights - 2 * sums.mean_products)).sum(
        (1, 2, 3)
    )
    return (inner + sums.mean_squares.sum(1)) / (weights.shape[1] // folds)


def nearest(sums: Sums, k: int) -> np.ndarray:
    """Mark pairs of rows (m, m), above the diagonal, of which one is among the k nearest of the other.

    The distance is what merging would cost in second order if all had one curvature: that of the whitened gradients.
    """
    m, _, width, _ = sums.moments.shape
    moments, products = (
        part.sum((0, 1)) / sums.size.sum() for part in (sums.moments, sums.products)
    )
    values, axes = np.linalg.eigh(moments)
    values = np.maximum(values, 0) + FLOOR * np.trace(moments) / width
    weights = axes @ ((axes.T @ products) / values[:, None])
    gradient = (sums.products.sum(1) - sums.moments.sum(1) @ weights) / sums.size[
        :, None, None
    ]
    near = (
        kneighbors_graph(
            ((axes / np.sqrt(values)).T @ gradient).reshape(m, -1), k
        ).toarray()
        > 0
    )
    return np.triu(near | near.T, 1)


class Gain(NamedTuple):
    """Points of accuracy that a model per cluster gains, mean over clients, each with the standard error of that mean.

    ``points, error``: over one model for all; ``over_own, over_own_error``: over a model of each client's own.
    ``clients``: one row per client: client, cluster, samples, and its held-out accuracy in percent under each of the
    three, one_model, cluster_model, own_model.
    """

    points: float
    error: float
    over_own: float
    over_own_error: float
    clients: pd.DataFrame


@threadpool_limits.wrap(limits=1)  # a sum has one order, however many cores there are
def clustering_gain(
    fed: Federation, labels: np.ndarray, width: Count = 128, seed: Natural = 0
) -> Gain:
    r"""Estimate what clusters would gain by cross-validated ridge regression on random features. This project's own.

    Mean and mean square of all *training* samples are added up over clients. A client turns its own into features
    :math:`\phi(x) = [\mathrm{ReLU}(R (x - m) / s + b), 1]`, R and b Gaussian from ``seed``, and sums :math:`\phi\phi^T`
    and :math:`\phi y^T` in each of 5 folds; copies of a sample are in one fold, whoever holds them. From these sums the
    server fits regressions for everybody together, for each cluster and for each client without one fold, and clients
    count the hits in that fold. The penalty that hits most is taken, for each of the three. Test samples are not used.

    The error treats clients as independent draws. It does not know the network and the rounds that will follow: believe
    a large gain, train for a small one. Clusters found by means of the training labels look a little too good.
    FltnbError: not one label per client, or an option out of range.

    Parameters
    ----------
    labels : int (M,), cluster of each client, such as ``labels_`` of a clusterer
    width : int, random features d; a client sends at most ``5 (d + 1) (d + 1 + K)`` numbers
    """
    checked(
        clustering_gain,
        {"fed": fed, "labels": labels, "width": width, "seed": seed},
        "clustering_gain",
    )
    if np.shape(labels) != (fed.n_clients,):
        raise FltnbError(
            f"labels must be {fed.n_clients} clusters, one per client, not of shape {np.shape(labels)}."
        )
    clusters, everyone = (
        np.unique(labels, return_inverse=True)[1],
        np.arange(fed.n_clients),
    )
    rng = stream(seed, "split", FOLDS)
    fold = rng.permutation(
        np.arange(len(fed.images)) % FOLDS
    )  # of every sample of the pool
    x = [
        fed.inputs(index).reshape(len(index), -1).astype(np.float64)
        for index in fed.train
    ]
    mean = sum(own.sum(0) for own in x) / fed.sizes.sum()
    scale = np.sqrt(
        max(sum(((own - mean) ** 2).sum() for own in x) / fed.sizes.sum(), 1e-12)
    )
    matrix, shift = rng.normal(size=(len(mean), width)), rng.normal(size=width)
    phi = [features((own - mean) / scale, matrix, shift) for own in x]
    target = [np.eye(fed.n_classes)[fed.labels[index]] for index in fed.train]
    inside = [
        [np.flatnonzero(fold[index] == f) for f in range(FOLDS)] for index in fed.train
    ]
    sums = np.array(
        [
            [p[at].T @ np.hstack([p[at], t[at]]) for at in own]
            for p, t, own in zip(phi, target, inside, strict=True)
        ]
    )  # (M, folds, d + 1, d + 1 + K)
    hits = {}
    for scope, group in {
        "one_model": 0 * clusters,
        "cluster_model": clusters,
        "own_model": everyone,
    }.items():
        hits[scope] = np.zeros((len(PENALTIES), fed.n_clients))
        for members in (np.flatnonzero(group == g) for g in range(group.max() + 1)):
            total = sums[members].sum(0)
            for f in range(FOLDS):
                weights = _ridge(total.sum(0) - total[f])
                for i in members:
                    at = inside[i][f]
                    hits[scope][:, i] += target[i][
                        at, (phi[i][at] @ weights).argmax(2)
                    ].sum(1)
    clients = pd.DataFrame(
        {"client": everyone, "cluster": clusters, "samples": fed.sizes}
    )
    for scope, counted in hits.items():
        accuracy = 100 * counted / fed.sizes
        clients[scope] = accuracy[
            accuracy.mean(1).round(9).argmax()
        ]  # ties: not by how a sum was rounded
    over = [
        clients["cluster_model"] - clients[other]
        for other in ("one_model", "own_model")
    ]
    return Gain(
        *(float(value) for gained in over for value in (gained.mean(), gained.sem())),
        clients,
    )


def _ridge(sums: np.ndarray) -> np.ndarray:
    """Regressions (penalties, d + 1, K) from sums (d + 1, d + 1 + K) over samples."""
    square, product = np.split(sums, [len(sums)], axis=1)
    unit = (
        np.trace(square) / len(square) / max(square[-1, -1], 1)
    )  # the last feature is 1: its square counts samples
    values, vectors = np.linalg.eigh(square)
    return vectors @ (
        vectors.T
        @ product
        / (np.maximum(values, 0) + PENALTIES[:, None] * max(unit, 1e-12))[..., None]
    )
