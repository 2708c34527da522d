"""Means and k-means over models, for few centres and very many parameters.

A federation's last known models are the largest array of a run (gigabytes), so nothing here copies it: models are
``points`` (D, P), taken block by block, with ``weights`` (D,) that say how many clients hold each. Distances are
measured from an ``origin`` near all of them (the initial model), else float32 would lose them in the models' length.
"""

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from .base import mix_groups

BLOCK = 16384  # parameters per step


def with_rows(matrix: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Copy of a matrix in which some rows have new values."""
    matrix = matrix.copy()
    matrix[rows] = values
    return matrix


def cluster_means(
    labels: np.ndarray, weights: np.ndarray, theta: np.ndarray, models: np.ndarray
) -> np.ndarray:
    """Weighted mean of the members' models ``theta`` (n, P) for each of K clusters; an empty one keeps its model."""
    return mix_groups(
        (labels == np.arange(len(models))[:, None]) * weights, theta, models
    )


def gram(
    points: np.ndarray,
    origin: np.ndarray | None = None,
    own: np.ndarray | slice = slice(None),
) -> np.ndarray:
    """Inner products (m, m), in float64, of some (default: all) of the models, less ``origin`` where it is given."""
    out = 0.0
    for begin in range(0, points.shape[1], BLOCK):
        part = points[own, begin : begin + BLOCK]
        part = part if origin is None else part - origin[begin : begin + BLOCK]
        out = out + (part @ part.T).astype(np.float64)
    return out


def cosines(updates: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Cosine similarity (m, m) of the updates of some clients (m,).

    0 with an update that is zero, 1 on the diagonal.
    """
    inner = gram(updates, own=members)
    norm = np.sqrt(np.diag(inner))
    scale = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    scaled = inner * scale * scale[:, None]
    similarity = np.clip(scaled, -1.0, 1.0) + 0.0  # no negative zeros
    np.fill_diagonal(similarity, 1.0)
    return similarity


def coordinates(points: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Points (D, D) with the distances of the models, all that k-means sees, so that no step depends on P."""
    values, vectors = np.linalg.eigh(gram(points, origin))
    return vectors * np.sqrt(np.maximum(values, 0))


def best_start(
    points: np.ndarray,
    weights: np.ndarray,
    origin: np.ndarray,
    n_clusters: int,
    seed: int,
) -> np.ndarray:
    """Labels (D,) of the best of 20 k-means starts, that with the least distance inside the clusters."""
    labels = kmeans(
        np.repeat(coordinates(points, origin), weights, axis=0),
        n_clusters,
        seed,
        n_init=20,
        max_iter=300,
    )
    return labels[np.cumsum(weights) - 1].astype(
        np.int64
    )  # equal points have equal labels


def leading_features(products: np.ndarray, n_components: int) -> np.ndarray:
    """Coordinates (n, K) of n vectors along their K leading singular directions, from their Gram matrix (n, n)."""
    values, vectors = np.linalg.eigh(products)
    order = np.argsort(-values, kind="stable")[:n_components]
    return vectors[:, order] * np.sqrt(np.maximum(values[order], 0))


def kmeans(
    points: np.ndarray, n_clusters: int, seed: int, n_init: int = 10, max_iter: int = 20
) -> np.ndarray:
    """Labels (n,) of the best of some k-means++ starts; by default as many and as long as in FlexCFL and CFLGP."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # fewer distinct points than groups
        return (
            KMeans(n_clusters, n_init=n_init, max_iter=max_iter, random_state=seed)
            .fit(points)
            .labels_
        )


def scores(points: np.ndarray, centers: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Squared distances (D, K) to the centres, less a number that is the same in a point's whole row."""
    offset = centers.astype(np.float64) - origin
    out = np.tile(
        (offset**2).sum(axis=1) + 2 * (offset @ origin.astype(np.float64)),
        (len(points), 1),
    )
    for begin in range(0, points.shape[1], BLOCK):
        part = slice(begin, begin + BLOCK)
        out -= 2 * (points[:, part] @ offset[:, part].T.astype(points.dtype))
    return out


def lloyd(
    points: np.ndarray, weights: np.ndarray, centers: np.ndarray, origin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """k-means from given centres until no point changes its cluster: labels (D,), centres (K, P).

    As in scikit-learn, a centre that loses all its points is moved to the point farthest from its own centre. One
    without points in the end stays where it was given.
    """
    labels, given = None, centers.astype(np.float64)
    for _ in range(300):
        score = scores(points, centers, origin)
        before, labels = labels, score.argmin(axis=1)
        if before is not None and np.array_equal(labels, before):
            break
        empty, filled = (
            np.flatnonzero(np.bincount(labels, weights, len(centers)) == 0),
            labels,
        )
        if len(empty):
            own = np.zeros(len(points))
            for begin in range(0, points.shape[1], BLOCK):
                part = points[:, begin : begin + BLOCK] - origin[begin : begin + BLOCK]
                own += np.einsum("ij,ij->i", part, part)
            far = np.argsort(-(own + score.min(axis=1)), kind="stable")[: len(empty)]
            filled = with_rows(labels, far, empty[: len(far)])
        centers = cluster_means(filled, weights, points, given)
    return labels, cluster_means(labels, weights, points, given)
