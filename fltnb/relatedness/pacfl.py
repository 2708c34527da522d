"""PACFL: clients whose images span similar subspaces belong together (Vahidian et al., AAAI 2023)."""

from __future__ import annotations

import numbers
from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import fcluster, leaves_list
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform
from sklearn.base import BaseEstimator, ClusterMixin

from ..errors import FltnbError, choose
from .base import canonical, check_clients, check_counts, check_enough, cut

LINKAGES = ("weighted", "complete", "single")
ANGLES = ("columns", "principal")


class PACFL(ClusterMixin, BaseEstimator):
    """Cluster clients by the angles between a few singular vectors of their data, class by class.

    Every client sends, for each class it holds, the first left singular vectors of the matrix whose columns are its
    images of that class. Two clients are as far apart as their closest pair of such vectors, in degrees; the closest
    clusters are merged until they are farther apart than the threshold.

    Parameters
    ----------
    threshold : float
        alpha, degrees: clusters are merged up to this distance. Below 0 nobody is merged, 180 merges all. The official
        runs took 4.9 for CIFAR-10 with two classes per client; EMD-CFL's took 12 for its rotated images.
    n_clusters : int, optional
        Cut the dendrogram into so many clusters instead; the threshold does not matter then.
    n_vectors : int
        p, singular vectors per class (fewer where a class has fewer independent images).
    linkage : {"weighted", "complete", "single"}
        Distance of merged clusters. "weighted" (WPGMA) is the official one: the plain mean of the two merged rows.
    angle : {"columns", "principal"}
        "columns" is the official distance, the least angle between *columns*. It is not a principal angle: vectors of
        different classes are not orthogonal to each other, and it changes when a vector changes its sign, which is
        arbitrary in a singular value decomposition (here each vector's largest entry is positive). "principal" is the
        least principal angle between the subspaces that the columns span.

    Attributes
    ----------
    labels_ : ndarray of int64, shape (M,)
    distance_ : ndarray (M, M)
        Degrees, 0 to 180, zeros on the diagonal.
    adjacency_ : ndarray of uint8, shape (M, M)
        1 for clients of one cluster.
    linkage_, leaf_order_ : ndarrays (M - 1, 4), (M,)
        SciPy linkage, and the order of the dendrogram's leaves.
    n_clusters_ : int
    sent_ : ndarray of int64, shape (M,)
        Numbers that each client sends.

    Notes
    -----
    Each pair takes its least angle over all pairs of classes, so one class in common is enough to bring two clients
    together.
    """

    def __init__(
        self,
        threshold: float = 4.9,
        n_clusters: int | None = None,
        n_vectors: int = 3,
        linkage: str = "weighted",
        angle: str = "columns",
    ):
        self.threshold = threshold
        self.n_clusters = n_clusters
        self.n_vectors = n_vectors
        self.linkage = linkage
        self.angle = angle

    def check(self, sizes: Sequence[int]) -> None:
        """Refuse settings that cannot work for clients of these sizes."""
        check_enough(len(sizes))
        check_counts(self, n_vectors=1)
        choose(self.linkage, LINKAGES, "linkage")
        choose(self.angle, ANGLES, "angle between clients")
        if not isinstance(self.threshold, numbers.Real) or isinstance(self.threshold, bool) or np.isnan(self.threshold):
            raise FltnbError(f"threshold is an angle in degrees, not {self.threshold!r}.")
        check_cluster_count(self.n_clusters, len(sizes))

    def fit(self, X: Sequence[np.ndarray], y: Sequence[np.ndarray] | None = None) -> PACFL:
        """Cluster the clients.

        Parameters
        ----------
        X : sequence of M arrays (n_i, d)
            Flattened images of each client.
        y : sequence of M arrays (n_i,), optional
            Their classes. Without them, as where a clusterer gets embeddings only, all images of a client count as one
            class.

        Raises
        ------
        FltnbError
            Settings out of range, arrays that do not fit, or a client whose images are all zero.
        """
        X = check_clients(X, "pixels")
        self.check([len(x) for x in X])
        y = [np.zeros(len(x), dtype=np.int64) for x in X] if y is None else [np.asarray(one) for one in y]
        if [one.shape for one in y] != [(len(x),) for x in X]:
            raise FltnbError("PACFL needs one class for every image of every client: y must be as long as X.")
        bases = [self._basis(i, x, classes) for i, (x, classes) in enumerate(zip(X, y, strict=True))]
        self.sent_ = np.array([basis.size for basis in bases])
        self.distance_ = client_angles(bases, self.angle)
        self.linkage_ = scipy_linkage(squareform(self.distance_, checks=False), self.linkage)
        self.leaf_order_ = leaves_list(self.linkage_).astype(np.int64)
        self.labels_ = flat_clusters(self.linkage_, self.threshold, self.n_clusters)
        self.adjacency_ = (self.labels_[:, None] == self.labels_[None]).astype(np.uint8)
        self.n_clusters_ = int(self.labels_.max()) + 1
        return self

    def _basis(self, i: int, x: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Columns (d, p * classes) that client i sends."""
        parts = [singular_vectors(x[classes == c], self.n_vectors) for c in np.unique(classes)]
        basis = np.hstack(parts)
        if not basis.shape[1]:
            raise FltnbError(f"All images of client {i} are zero, so they span nothing: leave the client out.")
        return basis


def singular_vectors(x: np.ndarray, n: int) -> np.ndarray:
    """First left singular vectors (d, at most n) of the matrix with the rows of ``x`` as columns, signs fixed."""
    left, values, _ = np.linalg.svd(np.asarray(x, dtype=np.float64).T, full_matrices=False)
    kept = values > 1e-9 * max(values[0], np.finfo(float).tiny)  # beyond the rank a vector would be arbitrary
    left = left[:, kept][:, :n]
    largest = np.take_along_axis(left, np.abs(left).argmax(axis=0)[None], axis=0)
    return left * np.sign(largest)


def client_angles(bases: Sequence[np.ndarray], angle: str = "columns") -> np.ndarray:
    """Angles (M, M) in degrees between the clients' vectors, see :class:`PACFL`.

    Parameters
    ----------
    bases : sequence of M arrays (d, k_i)
        Columns of unit length.
    angle : {"columns", "principal"}
    """
    if angle == "principal":
        bases = [_orthonormal(basis) for basis in bases]
    starts = np.cumsum([0, *(basis.shape[1] for basis in bases)])
    side_by_side = np.hstack(bases)
    largest = np.empty((len(bases), len(bases)))
    for i, basis in enumerate(bases):
        products = basis.T @ side_by_side
        if angle == "columns":
            largest[i] = np.maximum.reduceat(products.max(axis=0), starts[:-1])
        else:
            parts = np.split(products, starts[1:-1], axis=1)
            largest[i] = [np.linalg.norm(part, 2) for part in parts]  # the largest singular value
    degrees = np.degrees(np.arccos(np.clip((largest + largest.T) / 2, -1, 1)))
    np.fill_diagonal(degrees, 0)
    return degrees


def _orthonormal(basis: np.ndarray) -> np.ndarray:
    left, values, _ = np.linalg.svd(basis, full_matrices=False)
    return left[:, values > 1e-9 * values[0]]


def flat_clusters(linkage: np.ndarray, threshold: float, n_clusters: int | None = None) -> np.ndarray:
    """Clusters (M,) of a dendrogram cut at a height, merges *at* the height included, or into a number of clusters.

    Numbered in the order of their first members.
    """
    if n_clusters is not None:
        return canonical(cut(linkage, n_clusters))
    if threshold < 0:
        return np.arange(len(linkage) + 1)
    return canonical(fcluster(linkage, threshold, criterion="distance"))


def check_cluster_count(n_clusters: int | None, n_clients: int) -> None:
    """Refuse a number of clusters that is neither None nor between 1 and the number of clients."""
    whole = isinstance(n_clusters, numbers.Integral) and not isinstance(n_clusters, bool)
    if n_clusters is not None and not (whole and 1 <= n_clusters <= n_clients):
        raise FltnbError(
            f"n_clusters must be a whole number from 1 to the number of clients, {n_clients}, got {n_clusters!r}."
        )
