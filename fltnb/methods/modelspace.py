"""Means and k-means over models, for few centres and a large number of parameters.

A federation's last known models are the largest array of a run (gigabytes), so no
function here copies it. Models are ``points`` (D, P), processed in blocks of columns,
with ``weights`` (D,): the number of clients that hold each. Distances are measured from
an ``origin`` near all models (the initial model); otherwise rounding in float32 would
hide them, because the models themselves are long.
"""

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from ..aggregate import mix_groups

BLOCK = 16384  # parameters per step


def blocks(n_parameters: int) -> Iterator[slice]:
    """Slices of :data:`BLOCK` parameters; the last one may reach beyond the end.

    Examples
    --------
    >>> [(block.start, block.stop) for block in blocks(20_000)]
    [(0, 16384), (16384, 32768)]
    """
    for begin in range(0, n_parameters, BLOCK):
        yield slice(begin, begin + BLOCK)


def with_rows(
    matrix: np.ndarray, rows: np.ndarray | slice | int, values: ArrayLike
) -> np.ndarray:
    """Return a copy of a matrix in which some rows have new values."""
    matrix = matrix.copy()
    matrix[rows] = values
    return matrix


def cluster_means(
    labels: np.ndarray, weights: np.ndarray, theta: np.ndarray, models: np.ndarray
) -> np.ndarray:
    """Return the weighted mean of the members' models ``theta`` (n, P) of K clusters.

    An empty cluster keeps its model of ``models`` (K, P).

    Examples
    --------
    The first cluster has a client with weight 1 and one with weight 3, the second none:

    >>> theta = np.array([[0.0, 0.0], [4.0, 8.0]])
    >>> models = np.full((2, 2), 9.0)
    >>> cluster_means(np.array([0, 0]), np.array([1, 3]), theta, models).tolist()
    [[3.0, 6.0], [9.0, 9.0]]
    """
    members = labels == np.arange(len(models))[:, None]
    return mix_groups(members * weights, theta, models)


def group_means(points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Plain mean of the points (n, d) of each group, (K, d).

    ``labels`` (n,): groups 0 to K - 1, none of them empty.

    Examples
    --------
    >>> points = np.array([[1.0, 0.0], [3.0, 4.0], [7.0, 7.0]])
    >>> group_means(points, np.array([0, 0, 1])).tolist()
    [[2.0, 2.0], [7.0, 7.0]]
    """
    groups = range(labels.max() + 1)
    return np.stack([points[labels == group].mean(axis=0) for group in groups])


def present_means(
    labels: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the clusters (C,) that points (n, d) are in, and their means (C, d).

    ``labels`` (n,): any numbers, of which some may be missing.

    Examples
    --------
    >>> points = np.array([[1.0], [2.0], [4.0]])
    >>> clusters, means = present_means(np.array([5, 2, 2]), points)
    >>> clusters.tolist(), means.tolist()
    ([2, 5], [[3.0], [1.0]])
    """
    present = np.unique(labels)
    members = labels == present[:, None]  # (C, n)
    share = members / members.sum(axis=1, keepdims=True)
    return present, share @ points


def inner_products(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the inner products (n, m) of rows (n, d) and (m, d), however long.

    Training that is about to diverge has models of 1e20 and more. Products that float32
    cannot hold are computed in float64.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = one @ other.T
    if not np.isfinite(found).all():
        found = one.astype(np.float64) @ other.T
    return found


def gram(
    points: np.ndarray,
    origin: np.ndarray | None = None,
    own: np.ndarray | slice = slice(None),
) -> np.ndarray:
    """Inner products (m, m), in float64, of some models; by default of all.

    ``origin``, if given, is subtracted first.

    Examples
    --------
    >>> points = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> gram(points).tolist(), gram(points, origin=points[0]).tolist()
    ([[5.0, 11.0], [11.0, 25.0]], [[0.0, 0.0], [0.0, 8.0]])
    """
    out = np.zeros(())
    for block in blocks(points.shape[1]):
        part = points[own, block]
        if origin is not None:
            part = part - origin[block]
        out = out + inner_products(part, part).astype(np.float64)
    return out


def cosines(updates: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Cosine similarity (m, m) of the updates (M, d) of some clients (m,).

    It is 0 if an update is zero, and 1 on the diagonal.

    Examples
    --------
    Client 1 moved at a right angle to client 0, client 2 against it, client 3 not at
    all:

    >>> updates = np.array([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0], [0.0, 0.0]])
    >>> cosines(updates, np.arange(4))[0].tolist()
    [1.0, 0.0, -1.0, 0.0]
    """
    inner = gram(updates, own=members)
    norm = np.sqrt(np.diag(inner))
    scale = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    scaled = inner * scale * scale[:, None]
    similarity = np.clip(scaled, -1.0, 1.0) + 0.0  # no negative zeros
    np.fill_diagonal(similarity, 1.0)
    return similarity


def coordinates(points: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Return points (D, D) with the same distances as the models (D, P).

    k-means uses only these, so its further steps do not depend on P. With the Gram
    matrix ``G = V diag(l) V'`` of the models minus the origin, these are the rows of
    ``V diag(sqrt(l))``: their inner products are G again, and distances follow from
    inner products.
    """
    values, vectors = np.linalg.eigh(gram(points, origin))
    return vectors * np.sqrt(np.maximum(values, 0))


def best_start(
    points: np.ndarray,
    weights: np.ndarray,
    origin: np.ndarray,
    n_clusters: int,
    seed: int,
) -> np.ndarray:
    """Return labels (D,) of the best of 20 k-means starts (least inner distance).

    A point of weight 3, a model that three clients hold, is repeated three times.

    Examples
    --------
    >>> models = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0]])
    >>> held = np.array([3, 1, 2])  # by so many clients
    >>> labels = best_start(models, held, models[0], n_clusters=2, seed=0)
    >>> labels.tolist() in ([0, 0, 1], [1, 1, 0])
    True
    """
    repeated = np.repeat(coordinates(points, origin), weights, axis=0)
    labels = kmeans(repeated, n_clusters, seed, n_init=20, max_iter=300)
    last = np.cumsum(weights) - 1  # equal points have equal labels
    return labels[last].astype(np.int64)


def leading_features(products: np.ndarray, n_components: int) -> np.ndarray:
    """Coordinates (n, K) of n vectors along their K leading singular directions.

    ``products``: their Gram matrix (n, n). For vectors ``X = U S W'`` it is
    ``X X' = U S^2 U'``, and the coordinates ``X W`` are ``U S``.

    Examples
    --------
    Of points on a line through 0 the first coordinate is the place on it, up to sign:

    >>> points = np.outer([1.0, 2.0, -3.0], [0.6, 0.8])
    >>> along = leading_features(points @ points.T, 1)
    >>> np.abs(along).round(6).ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    values, vectors = np.linalg.eigh(products)
    order = np.argsort(-values, kind="stable")[:n_components]
    return vectors[:, order] * np.sqrt(np.maximum(values[order], 0))


def kmeans(
    points: np.ndarray, n_clusters: int, seed: int, n_init: int = 10, max_iter: int = 20
) -> np.ndarray:
    """Return labels (n,) of the best of several k-means++ starts.

    The defaults for starts and steps are those of FlexCFL and CFLGP.
    """
    made = KMeans(n_clusters, n_init=n_init, max_iter=max_iter, random_state=seed)
    with warnings.catch_warnings():
        # there may be fewer distinct points than groups
        warnings.simplefilter("ignore", ConvergenceWarning)
        return made.fit(points).labels_


def scores(points: np.ndarray, centers: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Return squared distances (D, K) to the centres, minus a number per point."""
    # With o the origin and d = c - o, |x - c|^2 is |d|^2 + 2 d o - 2 x d, and |x - o|^2
    # - |o|^2 besides, which is the same for all centres.
    offset = centers.astype(np.float64) - origin
    products = offset @ origin.astype(np.float64)
    constant = (offset**2).sum(axis=1) + 2 * products
    out = np.tile(constant, (len(points), 1))
    for block in blocks(points.shape[1]):
        of_block = offset[:, block].T.astype(points.dtype)
        out -= 2 * (points[:, block] @ of_block)
    return out


def nearest_center(
    points: np.ndarray, centers: np.ndarray, origin: np.ndarray
) -> np.ndarray:
    """Return the nearest of the centres (K, d) for each point (n, d).

    The origin (d,) should be near all of them; it only keeps rounding small.

    Examples
    --------
    >>> centers = np.array([[0.0, 0.0], [10.0, 0.0]])
    >>> points = np.array([[1.0, 1.0], [8.0, 3.0]])
    >>> nearest_center(points, centers, origin=np.zeros(2)).tolist()
    [0, 1]
    """
    return scores(points, centers, origin).argmin(axis=1)


def lloyd(
    points: np.ndarray, weights: np.ndarray, centers: np.ndarray, origin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """k-means from given centres until no point changes its cluster.

    As in scikit-learn, a centre that loses all its points is moved to the point
    farthest from its own centre. A centre without points in the end keeps its given
    position.

    Returns
    -------
    (labels (D,), centres (K, P))

    Examples
    --------
    All points are nearer to the first centre, so the second is moved to the point that
    is farthest from it, 9; then the centres are the means of {0, 1} and {9}:

    >>> points = np.array([[0.0], [1.0], [9.0]])
    >>> centers = np.array([[0.0], [50.0]])
    >>> labels, means = lloyd(points, np.ones(3), centers, origin=np.zeros(1))
    >>> labels.tolist(), means.ravel().tolist()
    ([0, 0, 1], [0.5, 9.0])
    """
    given = centers.astype(np.float64)
    labels = None
    for _ in range(300):
        score = scores(points, centers, origin)
        before = labels
        labels = score.argmin(axis=1)
        if before is not None and np.array_equal(labels, before):
            break

        filled = labels
        empty = np.flatnonzero(np.bincount(labels, weights, len(centers)) == 0)
        if len(empty):
            squares = _squares(points, origin) + score.min(axis=1)
            far = np.argsort(-squares, kind="stable")[: len(empty)]
            filled = with_rows(labels, far, empty[: len(far)])
        centers = cluster_means(filled, weights, points, given)
    return labels, cluster_means(labels, weights, points, given)


def _squares(points: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Squared distances (D,) to the origin."""
    out = np.zeros(len(points))
    for block in blocks(points.shape[1]):
        part = points[:, block] - origin[block]
        out += np.einsum("ij,ij->i", part, part)
    return out
