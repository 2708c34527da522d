"""Clusterers whose clients send k-means centroids: a threshold on a client distance, Ward, a cut (FLT, Algorithm 2)."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from ..errors import FltnbError
from ..randomness import integer
from ..settings import Count, Natural, NonNegative
from .base import ClientClusterer, Sketch
from .cuts import (
    Linkage,
    best_cut,
    chance_modularity,
    cut,
    modularity_by_cut,
    rows_linkage,
)


class CentroidClusterer(ClientClusterer):
    """Base of FCR and PCAKMeans; ``labels_`` and the rest follow from a client distance and ``threshold``."""

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
        if (
            values.ndim > 1
            or values.dtype.kind not in "iu"
            or (values.ndim and len(values) != len(sizes))
        ):
            raise FltnbError(
                f"k must be a whole number or {len(sizes)} whole numbers, one per client, got {self.k!r}."
            )
        super()._check_sizes(sizes)

    def _check_size(self, size: int, client: int) -> None:
        if not 1 <= (k := self._number(client)) <= size:
            raise FltnbError(
                f"k must be from 1 to the {size} samples of client {client}, not {k}: choose another."
            )

    def _number(self, client: int) -> int:
        return int(self.k if np.ndim(self.k) == 0 else self.k[client])

    def sketch(self, x: np.ndarray, client: int = 0) -> Sketch:
        """Return a client's ``centroids`` (k_i, e), of its embeddings (n_i, e); ``_weights`` (k_i,) stay with it.

        K-means inside one client (FLT, Algorithm 2, lines 8-10); the same seed whatever its place in the list.
        """
        k = self._number(client)
        fitted = KMeans(
            k,
            n_init=self.n_init,
            random_state=integer(int(self.random_state), "kmeans"),
        ).fit(x)
        return {
            "centroids": fitted.cluster_centers_,
            "_weights": np.bincount(fitted.labels_, minlength=k) / len(x),
        }

    def _take(self, sketches: Sequence[Sketch]) -> list[np.ndarray]:
        """Keep and return the clients' centroids."""
        centres = [sketch["centroids"] for sketch in sketches]
        self.centroids_ = stack_ragged(centres)
        if all("_weights" in sketch for sketch in sketches):
            self.weights_ = np.nan_to_num(
                stack_ragged([sketch["_weights"][:, None] for sketch in sketches])[
                    ..., 0
                ]
            )
        return centres

    def _threshold_and_cut(self, distance: np.ndarray) -> None:
        """Set everything that follows from the (M, M) client distance (FLT, Algorithm 2, lines 17-19).

        The paper writes the threshold as Sign(A - gamma), which would mark *far* clients; what is meant, and what the
        public code does, is: related if the distance is below gamma.
        """
        adjacency = (distance < self.threshold).astype(np.uint8)
        np.fill_diagonal(adjacency, 1)
        tree = rows_linkage(adjacency, self.linkage)
        self.criterion_ = modularity_by_cut(adjacency, tree)
        wanted = self.n_clusters or best_cut(
            self.criterion_, chance_modularity(adjacency), self.max_clusters
        )
        # membership is read off in client order; the public code read it in leaf order, which scrambles the clusters
        self._keep(distance, tree, cut(tree, wanted), adjacency)


class PCAKMeans(CentroidClusterer):
    """PCA on pixels, k-means, matching distance and Ward: FLT's baseline (arXiv 2103.15947, Section 4.3).

    Every client projects on principal axes of *its own* images, so the distance compares spectra more than content.

    Parameters
    ----------
    n_clusters, k : see :class:`fltnb.FCR`; FLT's configuration had 3 clusters
    n_components : int, principal components; at most the number of pixels are used
    threshold : float, related means closer; the paper's 1 is FLT's; public code: 1, then 3, at last 1.2
    linkage, max_clusters, n_init, random_state, n_jobs, and attributes : as in :class:`fltnb.FCR`
    """

    n_components: Count = 128
    threshold: NonNegative = 1.2

    content = "pixels"

    def sketch(self, x: np.ndarray, client: int = 0) -> Sketch:
        """Return ``centroids`` (k_i, n_components) of pixels (n_i, d)."""
        if x.min() < 0 or x.max() > 1:
            raise FltnbError(
                f"Client {client} has pixels outside [0, 1], which threshold is meant for: divide by 255."
            )
        size = min(self.n_components, x.shape[1])
        # As in the public code, fewer images than components are repeated: that adds no direction, the surplus
        # components are arbitrary and the client's coordinates there are zero.
        repeated = np.tile(x, (-(-size // len(x)), 1))
        # Exact, and five times as fast as the randomised solver that scikit-learn would choose at these shapes.
        axes = PCA(
            size, svd_solver="covariance_eigh", random_state=int(self.random_state)
        ).fit(repeated)
        return super().sketch(axes.transform(x), client)

    def _relate(self, sketches, answers) -> None:
        self._threshold_and_cut(matching_distances(self._take(sketches)))
        self.embedding_ = self.centroids_


def stack_ragged(points: Sequence[np.ndarray]) -> np.ndarray:
    """(M, max k, d) array of the clients' points, NaN where a client has fewer."""
    most = max(map(len, points))
    return np.stack(
        [
            np.pad(own, ((0, most - len(own)), (0, 0)), constant_values=np.nan)
            for own in points
        ]
    )


def min_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Smallest distances (M, M) over all pairs of points (k_i, u), one of either client (FLT, Algorithm 2, line 15)."""
    starts, every = np.cumsum([0, *map(len, points[:-1])]), np.concatenate(points)
    distance = np.array(
        [np.minimum.reduceat(cdist(own, every).min(axis=0), starts) for own in points]
    )
    np.fill_diagonal(distance, 0.0)
    return distance


def matching_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Distances (M, M) under the cheapest one-to-one matching of the points (k_i, u), as the authors of FLT ran it.

    The root of the matched pairs' summed squared distances is divided by the number of pairs. With different numbers of
    points the smaller set is matched into the larger one, and points left over cost nothing.
    """
    ends, every = np.cumsum([*map(len, points)]), np.concatenate(points)
    distance = np.zeros((len(points), len(points)))
    for i in range(1, len(points)):
        costs = cdist(
            points[i], every[: ends[i - 1]], "sqeuclidean"
        )  # to all clients before
        for j, cost in enumerate(np.split(costs, ends[: i - 1], axis=1)):
            distance[i, j] = distance[j, i] = np.sqrt(
                cost[linear_sum_assignment(cost)].sum()
            ) / min(cost.shape)
    return distance
