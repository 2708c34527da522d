"""Clusterers whose clients send k-means centroids (FLT, Algorithm 2).

The server puts a threshold on a client distance and cuts a dendrogram.
"""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from ..errors import FltnbError
from ..progress import bar
from ..randomness import integer
from ..settings import Count, Natural, NonNegative
from .base import LEAVE_OUT, ClientClusterer, Shapes, Sketch, check_finite, of_all
from .cuts import (
    Linkage,
    best_cut,
    chance_modularity,
    cut,
    modularity_by_cut,
    rows_linkage,
    simulated_chance,
    unlinked_apart,
)

FEW_PIXELS = 1024  # up to this number, principal axes come from the covariance


class CentroidClusterer(ClientClusterer):
    """Base of FCR and PCAKMeans: a client distance, a threshold, a dendrogram."""

    sketch_shapes: ClassVar[Shapes] = {"centroids": (None, None)}
    # clients up to which chance is simulated, and groups without a link are apart
    simulated_up_to = 0
    apart_up_to = 0

    n_clusters: Count | None = None
    k: int | Sequence[int] = 5
    threshold: NonNegative = 1.0
    linkage: Linkage = "ward"
    max_clusters: Count | None = None
    n_init: Count = 10
    random_state: Natural = 0
    n_jobs: int | None = None

    def _check_values(self) -> dict[str, Any]:
        options = super()._check_values()
        values = np.asarray(self.k)
        if values.dtype.kind not in "iu" or values.ndim > 1:
            raise FltnbError(
                f"k must be a whole number, or one for each client, not {self.k!r}."
            )
        return options

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        if np.shape(self.k) not in ((), (len(sizes),)):
            raise FltnbError(
                f"k must be a whole number or {len(sizes)} whole numbers, one per "
                f"client, got {self.k!r}."
            )
        super()._check_sizes(sizes)

    def _check_size(self, size: int, client: int) -> None:
        k = self._k_of(client)
        if not 1 <= k <= size:
            raise FltnbError(
                f"k must be from 1 to the {size} samples of client {client}, not {k}: "
                f"choose another, or {LEAVE_OUT}."
            )

    def _k_of(self, client: int) -> int:
        """Return the number of centroids of a client: ``k`` may have one for each."""
        k: Any = self.k
        if np.ndim(k) == 0:
            return int(k)
        if client >= len(k):
            raise FltnbError(
                f"k has {len(k)} numbers of centroids, and none for client {client}: "
                "give one number for all clients."
            )
        return int(k[client])

    def sketch(self, x: np.ndarray, client: int = 0) -> Sketch:
        """Return a client's ``centroids`` (k_i, e), from its embeddings (n_i, e).

        K-means runs inside one client (FLT, Algorithm 2, lines 8-10), with the same
        seed for all clients. ``_weights`` (k_i,) stay with the client.
        """
        return self._clustered(self._checked(x, client), client)

    def _clustered(self, x: np.ndarray, client: int) -> Sketch:
        """Return the sketch of a client's points (n_i, e), which have been checked."""
        k = self._k_of(client)
        seed = integer(int(self.random_state), "kmeans")
        fitted = KMeans(k, n_init=self.n_init, random_state=seed).fit(x)
        counts = np.bincount(fitted.labels_, minlength=k)
        return {"centroids": fitted.cluster_centers_, "_weights": counts / len(x)}

    def _of_clients(self) -> list[np.ndarray]:
        """Return the clients' centroids, as sent."""
        self._check_fitted("centroids_")
        return [one[np.isfinite(one[:, 0])] for one in self.centroids_]

    def _members(self) -> np.ndarray:
        """Return distances of the centroids themselves, not of the graph."""
        return between_centroids(self._of_clients(), self._of_clients())

    def _newcomers(self, sketches: Sequence[Sketch]) -> np.ndarray:
        centroids = of_all(sketches, "centroids")
        return between_centroids(centroids, self._of_clients())

    def _keep_centroids(self, sketches: Sequence[Sketch]) -> list[np.ndarray]:
        """Set ``centroids_`` and ``weights_``; return the clients' centroids."""
        centroids = of_all(sketches, "centroids")
        self.centroids_ = stack_ragged(centroids)
        if all("_weights" in sketch for sketch in sketches):
            columns = [weights[:, None] for weights in of_all(sketches, "_weights")]
            weights = stack_ragged(columns)[..., 0]
            self.weights_ = np.nan_to_num(weights)
        return centroids

    def _threshold_and_cut(self, distance: np.ndarray) -> None:
        """Set all attributes that follow from the client distance (M, M).

        FLT, Algorithm 2, lines 17-19. The paper writes the threshold as
        Sign(A - gamma), which would mark *far* clients. What must be meant, and what
        the public code does, is: related if the distance is below gamma.
        """
        check_finite(distance)
        adjacency = (distance < self.threshold).astype(np.uint8)
        np.fill_diagonal(adjacency, 1)
        tree = rows_linkage(adjacency, self.linkage)

        # membership is read in client order; the public code reads it in leaf
        # order, which scrambles the clusters
        self.criterion_ = modularity_by_cut(adjacency, tree)
        if self.n_clusters is None:
            labels = self.cut_by_modularity(adjacency, tree, self.criterion_)
        else:
            labels = cut(tree, self.n_clusters)
        self._keep(distance, tree, labels, adjacency)

    def cut_by_modularity(
        self, adjacency: np.ndarray, tree: np.ndarray, criterion: np.ndarray
    ) -> np.ndarray:
        """Return labels (M,) of highest modularity, if it is higher than by chance.

        With few clients, groups without a link between them are never one cluster.

        Parameters
        ----------
        adjacency : array (M, M)
            Which clients are linked.
        tree : array (M - 1, 4)
            The dendrogram of its rows.
        criterion : array (M + 1,)
            Entry C: the modularity of the cut into C clusters.
        """
        n_clients = len(adjacency)
        chance = chance_modularity(adjacency)
        if n_clients <= self.simulated_up_to:
            chance = min(chance, simulated_chance(adjacency, self.linkage))
        n_clusters = best_cut(criterion, chance, self.max_clusters)
        labels = cut(tree, n_clusters)

        apart = unlinked_apart(labels, adjacency)
        n_apart = apart.max() + 1
        allowed = self.max_clusters or n_clients
        if n_clients <= self.apart_up_to and n_apart <= allowed:
            return apart
        if n_clusters == 1 and n_apart > 1 and allowed > 1:
            warnings.warn(
                f"{n_apart} groups of clients without any link between them form one "
                f"cluster, because a random graph of {n_clients} clients may have such "
                "groups too: give n_clusters to separate them.",
                stacklevel=6,
            )
        return labels


class PCAKMeans(CentroidClusterer):
    """PCA on pixels, k-means, a distance of centroids and Ward: FLT's baseline.

    arXiv 2103.15947, Section 4.3. Every client projects on principal axes of *its own*
    images, so the distance compares the spectra more than the contents.

    Parameters
    ----------
    n_clusters : int or None
        Number of clusters C; FLT's configuration had 3. None: as in
        :class:`fltnb.clustering.FCR`, but chance is computed by the formula for many
        clients, never simulated, and groups without a link may be one cluster.
    k : int or sequence of M ints
        Centroids per client.
    n_components : int
        Principal components; at most the number of pixels are used.
    distance : {"matching", "min"}
        Distance of two clients' centroids: that of the cheapest one-to-one matching, as
        in the public code, or of the closest pair, as in FLT's text.
    threshold : float
        Two clients are related if their distance is *below* it. FLT has 1 in the paper;
        the public code had 1, then 3, and finally 1.2.
    linkage, max_clusters, n_init, random_state, n_jobs
        As in :class:`fltnb.clustering.FCR`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> pca = fl.PCAKMeans(n_clusters=3, k=3, n_components=16, threshold=0.3)
    >>> pca.fit(x).labels_.tolist()
    [0, 0, 1, 1, 2, 2]
    """

    n_components: Count = 128
    distance: Literal["matching", "min"] = "matching"
    threshold: NonNegative = 1.2

    content = "pixels"

    def sketch(self, x: np.ndarray, client: int = 0) -> Sketch:
        """Return ``centroids`` (k_i, n_components) of pixels (n_i, d)."""
        x = self._checked(x, client)
        if x.min() < 0 or x.max() > 1:
            raise FltnbError(
                f"Client {client} has pixels outside [0, 1], the range for which the "
                "threshold is meant: divide by 255, or take FCR for other data."
            )
        n_components = min(self.n_components, x.shape[1])

        # As in the public code, images are repeated if there are fewer than components.
        # This adds no direction: the surplus components are arbitrary, and the client's
        # coordinates on them are zero.
        copies = -(-n_components // len(x))
        repeated = np.tile(x, (copies, 1))

        # Both solvers are exact. For 784 pixels the covariance is five times as fast as
        # the randomised solver that scikit-learn would choose; for 3,072 it takes a
        # hundred times as long as decomposing the images.
        solver = "covariance_eigh" if x.shape[1] <= FEW_PIXELS else "full"
        axes = PCA(
            n_components,
            svd_solver=solver,
            random_state=int(self.random_state),
        )
        axes.fit(repeated)
        return self._clustered(axes.transform(x), client)

    def _relate(self, sketches, answers) -> None:
        centroids = self._keep_centroids(sketches)
        self.embedding_ = self.centroids_
        self._threshold_and_cut(DISTANCES[self.distance](centroids))


def stack_ragged(points: Sequence[np.ndarray]) -> np.ndarray:
    """Return the clients' points as (M, max k, d), NaN if a client has fewer."""
    most = max(len(one) for one in points)
    shape = (len(points), most, points[0].shape[1])
    stack = np.full(shape, np.nan, dtype=points[0].dtype)
    for row, one in zip(stack, points, strict=True):
        row[: len(one)] = one
    return stack


def between_centroids(
    some: Sequence[np.ndarray], others: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the mean distance of each client's points to each other client's nearest.

    Newcomers are placed by it, because FCR's plane has no coordinates for new points.

    Parameters
    ----------
    some : sequence of n arrays, shapes (k_i, d)
    others : sequence of M arrays, shapes (k_j, d)

    Returns
    -------
    ndarray, shape (n, M)
    """
    distance = np.empty((len(some), len(others)))
    for i, own in enumerate(some):
        for j, other in enumerate(others):
            to_nearest = cdist(own, other).min(axis=1)
            distance[i, j] = to_nearest.mean()
    return distance


def min_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Return the smallest distance between any two points of every two clients.

    FLT, Algorithm 2, line 15.

    Parameters
    ----------
    points : sequence of M arrays, shapes (k_i, u)

    Returns
    -------
    ndarray, shape (M, M)
    """
    sizes = [len(one) for one in points]
    starts = np.cumsum([0, *sizes[:-1]])  # where each client's points begin
    everybody = np.concatenate(points)

    distance = np.empty((len(points), len(points)))
    for i, one in enumerate(bar(points, desc="Distances", unit="client")):
        to_points = cdist(one, everybody).min(axis=0)
        distance[i] = np.minimum.reduceat(to_points, starts)  # the least of each client

    np.fill_diagonal(distance, 0.0)
    return distance


def matching_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distance of every two clients under the cheapest one-to-one matching.

    As in the code of FLT's authors: the root of the summed squared distances of matched
    pairs is divided by the number of pairs. If the numbers of points differ, the
    smaller set is matched into the larger one; the remaining points cost nothing.

    Parameters
    ----------
    points : sequence of M arrays, shapes (k_i, u)

    Returns
    -------
    ndarray, shape (M, M)
    """
    distance = np.zeros((len(points), len(points)))
    everybody = np.concatenate(points)
    ends = np.cumsum([len(one) for one in points])

    for i in bar(range(1, len(points)), desc="Matching distances", unit="client"):
        # from one client's points to those of all clients before it, in one call
        before = everybody[: ends[i - 1]]
        costs = cdist(points[i], before, "sqeuclidean")
        by_client = np.split(costs, ends[: i - 1], axis=1)
        for j, cost in enumerate(by_client):
            matched = cost[linear_sum_assignment(cost)]
            far = np.sqrt(matched.sum()) / len(matched)
            distance[i, j] = far
            distance[j, i] = far
    return distance


DISTANCES = {"min": min_distances, "matching": matching_distances}
"""Distances between two clients' centroids, by name."""
