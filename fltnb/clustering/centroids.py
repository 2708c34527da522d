"""Clusterers whose clients send k-means centroids (FLT, Algorithm 2).

The server puts a threshold on a client distance and cuts a dendrogram.
"""

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from ..errors import FltnbError
from ..progress import bar
from ..randomness import integer
from ..settings import Count, Natural, NonNegative
from .base import ClientClusterer, Sketch, check_finite
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

FEW_PIXELS = 1024  # up to which principal axes come from the covariance


class CentroidClusterer(ClientClusterer):
    """Base of FCR and PCAKMeans: a client distance, a threshold, a dendrogram."""

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

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        values = np.asarray(self.k)
        whole = values.dtype.kind in "iu"
        one_each = values.ndim == 1 and len(values) == len(sizes)
        if not whole or not (values.ndim == 0 or one_each):
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
                "choose another."
            )

    def _k_of(self, client: int) -> int:
        return int(self.k if np.ndim(self.k) == 0 else self.k[client])

    def sketch(self, x: np.ndarray, client: int = 0) -> Sketch:
        """Return a client's ``centroids`` (k_i, e), of its embeddings (n_i, e).

        K-means inside one client (FLT, Algorithm 2, lines 8-10), with the same seed
        whatever the client's place. ``_weights`` (k_i,) stay with the client.
        """
        x = self._checked(x, client)
        k = self._k_of(client)
        seed = integer(int(self.random_state), "kmeans")
        fitted = KMeans(k, n_init=self.n_init, random_state=seed).fit(x)
        counts = np.bincount(fitted.labels_, minlength=k)
        return {"centroids": fitted.cluster_centers_, "_weights": counts / len(x)}

    def _of_clients(self) -> list[np.ndarray]:
        """Return the clients' centroids, as sent."""
        return [one[np.isfinite(one[:, 0])] for one in self.centroids_]

    def _members(self) -> np.ndarray:
        """Distances of the centroids themselves, of which the graph is one view."""
        return between_centroids(self._of_clients(), self._of_clients())

    def _newcomers(self, sketches: Sequence[Sketch]) -> np.ndarray:
        centroids = [sketch["centroids"] for sketch in sketches]
        return between_centroids(centroids, self._of_clients())

    def _keep_centroids(self, sketches: Sequence[Sketch]) -> list[np.ndarray]:
        """Set ``centroids_`` and ``weights_``; return the clients' centroids."""
        centroids = [sketch["centroids"] for sketch in sketches]
        self.centroids_ = stack_ragged(centroids)
        if all("_weights" in sketch for sketch in sketches):
            columns = [sketch["_weights"][:, None] for sketch in sketches]
            self.weights_ = np.nan_to_num(stack_ragged(columns)[..., 0])

        return centroids

    def _threshold_and_cut(self, distance: np.ndarray) -> None:
        """Set all that follows from the (M, M) client distance.

        FLT, Algorithm 2, lines 17-19. The paper writes the threshold as
        Sign(A - gamma), which would mark *far* clients; what is meant, and what the
        public code does, is: related if the distance is below gamma.
        """
        check_finite(distance)
        adjacency = (distance < self.threshold).astype(np.uint8)
        np.fill_diagonal(adjacency, 1)
        tree = rows_linkage(adjacency, self.linkage)

        self.criterion_ = modularity_by_cut(adjacency, tree)
        # membership is read off in client order; the public code read it in leaf
        # order, which scrambles the clusters
        if self.n_clusters is None:
            labels = self._cut_by_modularity(adjacency, tree)
        else:
            labels = cut(tree, self.n_clusters)
        self._keep(distance, tree, labels, adjacency)

    def _cut_by_modularity(self, adjacency: np.ndarray, tree: np.ndarray) -> np.ndarray:
        """Labels (M,) where modularity is highest, if chance does not reach it.

        Of few clients, groups that no link joins are never one cluster.
        """
        n_clients = len(adjacency)
        chance = chance_modularity(adjacency)
        if n_clients <= self.simulated_up_to:
            chance = min(chance, simulated_chance(adjacency, self.linkage))
        labels = cut(tree, best_cut(self.criterion_, chance, self.max_clusters))
        apart = unlinked_apart(labels, adjacency)
        n_apart = apart.max() + 1
        allowed = self.max_clusters or n_clients
        if n_clients <= self.apart_up_to and n_apart <= allowed:
            return apart
        if labels.max() == 1 and n_apart > 1 and allowed > 1:
            warnings.warn(
                f"{n_apart} groups of clients that no link joins are one cluster, "
                f"because a random graph of {n_clients} clients might look so: give "
                "n_clusters.",
                stacklevel=6,
            )
        return labels


class PCAKMeans(CentroidClusterer):
    """PCA on pixels, k-means, a distance of centroids and Ward: FLT's baseline.

    arXiv 2103.15947, Section 4.3. Every client projects on principal axes of *its own*
    images, so the distance compares spectra more than content.

    Parameters
    ----------
    n_clusters, k : see :class:`fltnb.FCR`; FLT's configuration had 3 clusters
        Without a number of clusters chance is that of many clients.
    n_components : int
        Principal components; at most the number of pixels are used.
    distance : {"matching", "min"}
        Between two clients' centroids: :func:`matching_distances`, as in the public
        code, or the closest pair as in FLT's text, :func:`min_distances`.
    threshold : float
        Related means closer. The paper's 1 is FLT's; public code: 1, then 3, at last
        1.2.
    linkage, max_clusters, n_init, random_state, n_jobs : as in :class:`fltnb.FCR`

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> fl.PCAKMeans(n_clusters=3, k=3, n_components=16).fit(x).labels_.tolist()
    [0, 0, 0, 0, 0, 0]
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
                f"Client {client} has pixels outside [0, 1], which threshold is meant "
                "for: divide by 255."
            )
        n_components = min(self.n_components, x.shape[1])

        # As in the public code, fewer images than components are repeated: that adds no
        # direction, the surplus components are arbitrary and the client's coordinates
        # there are zero.
        copies = -(-n_components // len(x))
        repeated = np.tile(x, (copies, 1))

        # Both solvers are exact. Of 784 pixels the covariance is five times as fast as
        # the randomised solver that scikit-learn would choose; of 3,072 it takes a
        # hundred times as long as the images' own decomposition.
        solver = "covariance_eigh" if x.shape[1] <= FEW_PIXELS else "full"
        axes = PCA(
            n_components,
            svd_solver=solver,
            random_state=int(self.random_state),
        )
        axes.fit(repeated)
        return super().sketch(axes.transform(x), client)

    def _relate(self, sketches, answers) -> None:
        centroids = self._keep_centroids(sketches)
        self.embedding_ = self.centroids_
        self._threshold_and_cut(DISTANCES[self.distance](centroids))


def stack_ragged(points: Sequence[np.ndarray]) -> np.ndarray:
    """(M, max k, d) array of the clients' points, NaN where a client has fewer."""
    most = max(len(one) for one in points)
    shape = (len(points), most, points[0].shape[1])
    stack = np.full(shape, np.nan, dtype=points[0].dtype)
    for row, one in zip(stack, points, strict=True):
        row[: len(one)] = one

    return stack


def between_centroids(
    some: Sequence[np.ndarray], others: Sequence[np.ndarray]
) -> np.ndarray:
    """Mean distance (n, M) of each of n clients' points to the nearest of M others'.

    By it newcomers are placed: FCR's plane has no place for points that it has not
    seen.
    """
    distance = np.empty((len(some), len(others)))
    for i, own in enumerate(some):
        for j, other in enumerate(others):
            distance[i, j] = cdist(own, other).min(axis=1).mean()
    return distance


def min_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Smallest distances (M, M) over all pairs of points (k_i, u), one of each client.

    FLT, Algorithm 2, line 15.
    """
    sizes = [len(one) for one in points]
    starts = np.cumsum([0, *sizes[:-1]])
    everybody = np.concatenate(points)

    distance = np.empty((len(points), len(points)))
    for i, one in enumerate(bar(points, desc="Distances", unit="client")):
        to_points = cdist(one, everybody).min(axis=0)
        distance[i] = np.minimum.reduceat(to_points, starts)

    np.fill_diagonal(distance, 0.0)
    return distance


def matching_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Distances (M, M) under the cheapest one-to-one matching of the points (k_i, u).

    As the authors of FLT ran it: the root of the matched pairs' summed squared
    distances is divided by the number of pairs. With different numbers of points the
    smaller set is matched into the larger one, and points left over cost nothing.
    """
    distance = np.zeros((len(points), len(points)))
    everybody = np.concatenate(points)
    ends = np.cumsum([len(one) for one in points])

    for i in bar(range(1, len(points)), desc="Matching distances", unit="client"):
        before = everybody[: ends[i - 1]]
        costs = cdist(points[i], before, "sqeuclidean")
        for j, cost in enumerate(np.split(costs, ends[: i - 1], axis=1)):
            total = cost[linear_sum_assignment(cost)].sum()
            distance[i, j] = np.sqrt(total) / min(cost.shape)
            distance[j, i] = distance[i, j]

    return distance


DISTANCES = {"min": min_distances, "matching": matching_distances}
"""Distances between two clients' centroids, by name."""
