"""What every one-shot clusterer over clients shares: checks, the threshold graph, Ward linkage and the cut.

A clusterer takes a **list of arrays, one per client**, trains nothing, and is an ordinary scikit-learn estimator.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import fcluster, leaves_list
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform
from sklearn.base import BaseEstimator, ClusterMixin

from ..errors import FltnbError, choose

LINKAGES = ("ward", "average", "complete", "single")
CLIENTS_PER_TASK = 32


class ClientClusterer(ClusterMixin, BaseEstimator):
    """Base of the clusterers that threshold a client distance and cut a dendrogram of the adjacency's rows."""

    def _threshold_and_cut(self, distance: np.ndarray) -> None:
        """Set everything that follows from the (M, M) client distance (FLT, Algorithm 2, lines 17-19).

        The paper writes the threshold as Sign(A - gamma), which would mark *far* clients; what is meant, and what the
        public code does, is: related if the distance is below gamma. A client is always related to itself.
        """
        adjacency = (distance < self.threshold).astype(np.uint8)
        np.fill_diagonal(adjacency, 1)
        self.distance_ = distance
        self.adjacency_ = adjacency
        self.linkage_ = rows_linkage(adjacency, self.linkage)
        self.leaf_order_ = leaves_list(self.linkage_).astype(np.int64)
        self.criterion_ = modularity_by_cut(adjacency, self.linkage_)
        wanted = self.n_clusters
        if wanted is None:
            wanted = best_cut(self.criterion_, chance_modularity(adjacency), self.max_clusters)
        # membership is read off in client order; the public code read it in leaf order, which scrambles the clusters
        self.labels_ = canonical(cut(self.linkage_, wanted))
        self.n_clusters_ = int(self.labels_.max()) + 1
        if self.n_clusters is not None and self.n_clusters_ < self.n_clusters:
            warnings.warn(
                f"{self.n_clusters} clusters were asked for but {self.n_clusters_} are given: clients with equal rows"
                " of the client graph cannot be told apart and merges of equal height are not split; lower the"
                " threshold or ask for fewer clusters.",
                stacklevel=3,
            )


def check_clients(clients: Sequence[np.ndarray], what: str = "embeddings") -> list[np.ndarray]:
    """Return the clients' arrays, each (n_i, d) of finite floats with one common d.

    Raises
    ------
    FltnbError
        No sequence, fewer than two clients, an empty client, arrays that are not two-dimensional, different widths,
        or values that are not finite; the client is named.
    """
    try:
        arrays = [np.asarray(client) for client in clients]
    except (TypeError, ValueError) as error:
        raise FltnbError(f"Clustering needs one 2-D array of {what} per client ({error}).") from error
    check_enough(len(arrays))
    for i, array in enumerate(arrays):
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise FltnbError(
                f"The {what} of client {i} must be a numeric (samples, dimensions) array, got"
                f" {array.dtype} of shape {array.shape}: pass one 2-D array per client."
            )
        if not len(array):
            raise FltnbError(f"Client {i} has no {what}: leave clients without samples out.")
        if array.shape[1] != arrays[0].shape[1]:
            raise FltnbError(
                f"Client {i} has {what} of dimension {array.shape[1]}, client 0 of dimension {arrays[0].shape[1]}:"
                " embed all clients with encoders of the same latent size."
            )
        if not np.isfinite(array).all():
            raise FltnbError(
                f"The {what} of client {i} hold NaN or infinite values: check its data, or its encoder's training."
            )
    return arrays


def check_enough(n_clients: int) -> None:
    """Refuse fewer than two clients."""
    if n_clients < 2:
        raise FltnbError(f"Clustering needs at least 2 clients, got {n_clients}: pass a list with one array each.")


def check_settings(
    n_clients: int, n_clusters: int | None, max_clusters: int | None, threshold: float, linkage: str
) -> None:
    """Refuse settings that cannot work for this number of clients, before anything is computed."""
    check_enough(n_clients)
    for name, value in (("n_clusters", n_clusters), ("max_clusters", max_clusters)):
        if value is not None and not (isinstance(value, numbers.Integral) and 1 <= value <= n_clients):
            raise FltnbError(
                f"{name} must be a whole number from 1 to the number of clients, {n_clients}, got {value!r}."
            )
    if not (isinstance(threshold, numbers.Real) and threshold >= 0):
        raise FltnbError(f"threshold is a distance and cannot be negative or NaN, got {threshold!r}.")
    choose(linkage, LINKAGES, "linkage")


def check_counts(estimator, **least: int) -> None:
    """Refuse parameters that are not whole numbers of at least the given ones."""
    for name, smallest in least.items():
        value = getattr(estimator, name)
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < smallest:
            raise FltnbError(f"{name} must be a whole number of {smallest} or more, got {value!r}.")


def check_seed(random_state: int) -> None:
    """Refuse generators and None as well, because a run is a pure function of its settings."""
    if not isinstance(random_state, numbers.Integral) or random_state < 0:
        raise FltnbError(f"random_state must be a whole number of 0 or more, got {random_state!r}.")


def check_k(k, sizes: Sequence[int]) -> np.ndarray:
    """Return the number of centroids of each client, (M,) int64, from one number or one per client.

    Raises
    ------
    FltnbError
        Wrong length, a k below 1, or a k above a client's number of samples (the client is named).
    """
    values = np.asarray(k)
    if values.ndim > 1 or values.dtype.kind not in "iu" or (values.ndim and len(values) != len(sizes)):
        raise FltnbError(f"k must be a whole number or {len(sizes)} whole numbers, one per client, got {k!r}.")
    values = np.broadcast_to(values, len(sizes)).astype(np.int64)
    for i, (number, size) in enumerate(zip(values, sizes, strict=True)):
        if not 1 <= number <= size:
            raise FltnbError(
                f"k = {number} centroids cannot be formed from the {size} samples of client {i}: choose k between 1"
                f" and {size} for it, or leave small clients out."
            )
    return values


def centroids(
    clients: Sequence[np.ndarray], k: np.ndarray, n_init: int, seed: int, n_jobs: int | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """K-means inside every client: what the clients send to the server (FLT, Algorithm 2, lines 8-10).

    Every client uses the same seed: its centroids then depend on its own data alone, not on its place in the list,
    and equal clients send equal centroids.

    Returns
    -------
    list of M arrays (k_i, d), and their sample shares (M, max k) with zeros where a client has fewer centroids
    """
    from joblib import Parallel, delayed

    # Processes, if any: a fit on a few hundred rows is mostly interpreter time, which threads cannot share.
    tasks = list(zip(clients, k.tolist(), strict=True))
    parts = [tasks[at : at + CLIENTS_PER_TASK] for at in range(0, len(tasks), CLIENTS_PER_TASK)]
    done = Parallel(n_jobs=n_jobs)(delayed(_kmeans)(part, n_init, seed) for part in parts)
    fitted = [client for part in done for client in part]
    shares = np.zeros((len(fitted), int(k.max())))
    for row, (_, share) in zip(shares, fitted, strict=True):
        row[: len(share)] = share
    return [centres for centres, _ in fitted], shares


def _kmeans(tasks: list[tuple[np.ndarray, int]], n_init: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    out = []
    with threadpool_limits(1):  # so that the sums, and the last bit, do not depend on the machine's cores
        for z, k in tasks:
            fitted = KMeans(k, n_init=n_init, random_state=seed).fit(z)
            out.append((fitted.cluster_centers_, np.bincount(fitted.labels_, minlength=k) / len(z)))
    return out


def stack_ragged(points: Sequence[np.ndarray]) -> np.ndarray:
    """(M, max k, d) array of the clients' points, NaN where a client has fewer."""
    k_max = max(len(p) for p in points)
    out = np.full((len(points), k_max, points[0].shape[1]), np.nan, dtype=points[0].dtype)
    for row, p in zip(out, points, strict=True):
        row[: len(p)] = p
    return out


def canonical(labels: np.ndarray) -> np.ndarray:
    """Renumber labels 0, 1, ... in the order in which they first appear.

    Examples
    --------
    >>> canonical(np.array([7, 7, 2, 9, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def rows_linkage(adjacency: np.ndarray, method: str = "ward") -> np.ndarray:
    """SciPy linkage (M - 1, 4) with the rows of a binary adjacency as feature vectors (FLT, Section 4.1: Ward).

    Squared distances of binary rows are counts and come out exact from one matrix product, which for 2,400 clients is
    far quicker than the same thing pair by pair. Heights are rounded to 9 decimals, so that merges which are equally
    high on paper are so in the dendrogram, and no cut falls between them.
    """
    rows = adjacency.astype(np.float32)  # exact: counts stay far below 2^24
    size = rows.sum(1)
    squared = (size[:, None] + size[None, :] - 2 * (rows @ rows.T)).astype(np.float64)
    tree = scipy_linkage(squareform(np.sqrt(squared), checks=False), method)
    tree[:, 2] = np.round(tree[:, 2], 9)
    return tree


def cut(linkage: np.ndarray, n_clusters: int) -> np.ndarray:
    """Flat clusters (M,) of a dendrogram, ``n_clusters`` of them or, inside a run of equally high merges, fewer.

    SciPy's own "maxclust" rule does the same, except that M clusters are always granted there.
    """
    n = len(linkage) + 1
    return fcluster(linkage, 0.0 if n_clusters >= n else linkage[n - 1 - n_clusters, 2], criterion="distance")


def modularity_by_cut(adjacency: np.ndarray, linkage: np.ndarray) -> np.ndarray:
    """Newman's modularity of the client graph for every cut of a dendrogram.

    ``Q = sum over clusters c of [A_cc / 2m - (d_c / 2m)^2]``, with A_cc the adjacency summed inside c, d_c its summed
    degrees and 2m the sum of A. The diagonal counts (a client is related to itself), so an isolated client is a
    cluster of its own and not a candidate for any merger. Each merge changes Q by ``2 (A_ab / 2m - d_a d_b / (2m)^2)``,
    found in O(M) by adding two rows and columns.

    Parameters
    ----------
    adjacency : ndarray (M, M)
        Symmetric, non-negative, diagonal included.
    linkage : ndarray (M - 1, 4)
        SciPy linkage of the M clients.

    Returns
    -------
    ndarray (M + 1,)
        Entry C: modularity of the cut into C clusters, in [-1, 1]; 0 for one cluster. NaN for C = 0 and for cuts
        inside a run of equally high merges, which would split clients that the dendrogram cannot tell apart.
    """
    n = len(adjacency)
    between = adjacency.astype(np.float64)
    total = between.sum()
    between /= total
    share = between.sum(1)
    quality = float(np.trace(between) - (share**2).sum())
    slot = np.arange(2 * n - 1)  # row of `between` that holds the sums of a SciPy cluster id
    heights = linkage[:, 2]
    tied = np.diff(heights, append=np.inf) == 0
    scores = np.full(n + 1, np.nan)
    if heights[0] > 0:
        scores[n] = quality
    for step, (left, right) in enumerate(linkage[:, :2].astype(int)):
        a, b = slot[left], slot[right]
        quality += 2 * (between[a, b] - share[a] * share[b])
        between[a] += between[b]
        between[:, a] += between[:, b]
        share[a] += share[b]
        slot[n + step] = a
        if not tied[step]:
            scores[n - 1 - step] = quality
    scores[1] = 0.0  # exactly: what is left is rounding
    return scores


def chance_modularity(adjacency: np.ndarray) -> float:
    """Modularity that the best cut of a *random* graph of the same size and density reaches, about.

    Any graph with a few links missing has cuts of positive modularity; the best one must exceed this to mean
    something. A share f of the adjacency is its diagonal, which lies inside whatever the cut; of the rest, with
    density p, the best cut of a random graph has sqrt((1 - p) / (p M)) (Reichardt and Bornholdt, "When are networks
    truly modular?", Physica D 224, 2006): ``f + (1 - f) sqrt((1 - p) / (p M))``. A graph that consists of separate
    complete blocks leaves nothing to chance and is taken at its word: 0.
    """
    _, block = np.unique(adjacency, axis=0, return_inverse=True)
    if np.array_equal(block[:, None] == block[None, :], adjacency.astype(bool)):
        return 0.0
    n, total = len(adjacency), float(adjacency.sum())
    density = (total - n) / (n * (n - 1))
    loops = n / total
    return float(loops + (1 - loops) * np.sqrt((1 - density) / (density * n)))


def best_cut(criterion: np.ndarray, chance: float = 0.0, max_clusters: int | None = None) -> int:
    """Return the number of clusters with the highest modularity; 1 if none exceeds ``chance``.

    ``criterion`` is indexed by the number of clusters, NaN where there is no such cut. Ties (to 1e-9) go to fewer
    clusters.
    """
    allowed = criterion[: None if max_clusters is None else max_clusters + 1]
    highest = np.nanmax(allowed)
    if highest <= chance + 1e-9:
        return 1
    return int(np.flatnonzero(allowed >= highest - 1e-9)[0])
