"""Form Client Relatedness (FCR), the one-shot clustering of FLT."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Sequence

import numpy as np

from ..errors import FltnbError, choose
from ..randomness import integer
from .base import (
    ClientClusterer,
    centroids,
    check_clients,
    check_counts,
    check_k,
    check_seed,
    check_settings,
    stack_ragged,
)
from .distances import matching_distances, min_distances

DISTANCES = {"min": min_distances, "matching": matching_distances}
EXACT_ABOVE = 4096  # points from which UMAP would search neighbours approximately (and slowly: 27 s at 12,000)


class FCR(ClientClusterer):
    """Client relatedness from a few centroids per client (FLT, Section 3.2, Algorithm 2).

    Each client runs k-means on its embeddings and sends the k centroids. The server lays all of them out with UMAP,
    measures the distance of two clients there, calls them related below a threshold, and cuts a Ward dendrogram of the
    rows of that adjacency matrix into disjoint clusters.

    Parameters
    ----------
    n_clusters : int or None
        Number of clusters C. None: the cut of the dendrogram with the highest modularity of the client graph (one
        cluster if no cut beats it). The paper says that C can be proposed by the clustering and gives no rule.
    k : int or sequence of M ints
        Centroids per client. The paper writes 5; its code used the true number of classes of each client, an oracle
        that an array of M numbers can repeat.
    threshold : float
        gamma, in units of the UMAP plane; related means *below* it. Paper and code: 1.
    distance : {"min", "matching"}
        "min": smallest distance between any two points (Algorithm 2, line 15). "matching": cheapest one-to-one
        matching, root of the summed squares divided by k (the public code; for unequal k see
        :func:`~fltnb.relatedness.distances.matching_distances`).
    n_neighbors, n_components : int
        UMAP's neighbourhood (at most the number of points less one) and dimension u. The neighbourhood should stay
        below the number of centroids that one kind of data has over all clients: with 25 small clients 15 glues
        different digits together and 5 does not.
    linkage : {"ward", "average", "complete", "single"}
        The paper uses Ward.
    max_clusters : int or None
        Upper limit for the automatic choice.
    n_init : int
        Starts of each k-means.
    random_state : int
        Seed of k-means and UMAP.
    n_jobs : int or None
        Processes for the clients' k-means (joblib); no influence on the result.

    Attributes
    ----------
    labels_ : ndarray (M,) int64, numbered in order of first appearance
    adjacency_ : ndarray (M, M) uint8, diagonal 1
    distance_ : ndarray (M, M)
    embedding_ : ndarray (M, k, u) float32, the centroids in the UMAP plane (NaN beyond a client's own k)
    centroids_ : ndarray (M, k, e), what the clients send (NaN beyond a client's own k)
    weights_ : ndarray (M, k), share of the client's samples behind each centroid
    linkage_ : ndarray (M - 1, 4), leaf_order_ : ndarray (M,), the dendrogram and its order for pictures
    criterion_ : ndarray (M + 1,), entry C: modularity of the cut into C clusters (NaN: no such cut)
    n_clusters_ : int, below a requested C where the adjacency cannot tell that many groups apart

    Raises
    ------
    FltnbError
        On ``fit``, before any work: bad settings or embeddings (see :mod:`fltnb.relatedness.base`).

    Examples
    --------
    >>> fcr = FCR(k=2, n_neighbors=5).fit(embeddings)  # doctest: +SKIP
    >>> fcr.labels_, fcr.n_clusters_  # doctest: +SKIP
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        k: int | Sequence[int] = 5,
        threshold: float = 1.0,
        distance: str = "min",
        n_neighbors: int = 15,
        n_components: int = 2,
        linkage: str = "ward",
        max_clusters: int | None = None,
        n_init: int = 10,
        random_state: int = 0,
        n_jobs: int | None = None,
    ):
        self.n_clusters = n_clusters
        self.k = k
        self.threshold = threshold
        self.distance = distance
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.linkage = linkage
        self.max_clusters = max_clusters
        self.n_init = n_init
        self.random_state = random_state
        self.n_jobs = n_jobs

    def check(self, sizes: Sequence[int]) -> np.ndarray:
        """Refuse settings that cannot work for clients of these sizes; return the centroids of each, (M,) int64."""
        choose(self.distance, DISTANCES, "client distance")
        check_settings(len(sizes), self.n_clusters, self.max_clusters, self.threshold, self.linkage)
        check_seed(self.random_state)
        check_counts(self, n_neighbors=2, n_components=1, n_init=1)
        k = check_k(self.k, sizes)
        if k.sum() < 4:
            raise FltnbError(
                f"UMAP cannot lay out {k.sum()} centroids: use more clients or a larger k, 4 in all at least."
            )
        return k

    def fit(self, X: Sequence[np.ndarray], y: None = None) -> FCR:
        """Cluster the clients.

        Parameters
        ----------
        X : sequence of M arrays (n_i, e)
            Embeddings of each client.
        y : None
            Ignored.
        """
        X = check_clients(X)
        k, seed = self.check([len(x) for x in X]), int(self.random_state)
        centres, self.weights_ = centroids(X, k, self.n_init, integer(seed, "kmeans"), self.n_jobs)
        self.centroids_ = stack_ragged(centres)
        plane = umap_layout(np.concatenate(centres), self.n_neighbors, self.n_components, integer(seed, "umap"))
        points = np.split(plane, np.cumsum(k)[:-1])
        self.embedding_ = stack_ragged(points)
        self._threshold_and_cut(DISTANCES[self.distance](points))
        return self


@functools.cache
def _umap() -> type:
    """Import UMAP (seconds), and keep on disk what it compiles on first use, so that no later process waits for that.

    UMAP leaves most of its functions to be compiled anew in every process, which takes longer than laying out the
    centroids of a hundred clients. The machine code lies beside its sources, and is made again when these change.
    """
    import umap
    from numba.core.dispatcher import Dispatcher

    parts = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "umap"]
    for function in {id(f): f for part in parts for f in vars(part).values() if isinstance(f, Dispatcher)}.values():
        with contextlib.suppress(RuntimeError):  # no folder that can be written to
            function.enable_caching()
    return umap.UMAP


def umap_layout(points: np.ndarray, n_neighbors: int, n_components: int, seed: int) -> np.ndarray:
    """UMAP coordinates of the points themselves, (n, n_components) float32 (FLT, Algorithm 2, line 14).

    One thread and a fixed seed: UMAP's parallel layout is not reproducible. From 4,096 points on, where UMAP would
    switch to an approximate neighbour search that costs most of the time, the exact neighbours are handed to it.
    """
    points = np.ascontiguousarray(points, dtype=np.float32)
    n_neighbors = min(n_neighbors, len(points) - 1)
    options = {}
    if len(points) >= EXACT_ABOVE:
        from sklearn.neighbors import NearestNeighbors

        distance, index = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(points).kneighbors()
        own = np.arange(len(points))[:, None]  # UMAP counts a point as its own first neighbour
        index = np.hstack([own, index[:, :-1]]).astype(np.int32)
        distance = np.hstack([np.zeros_like(own), distance[:, :-1]]).astype(np.float32)
        options["precomputed_knn"] = (index, distance, None)
    with warnings.catch_warnings():
        # Well-separated clusters *are* a disconnected neighbour graph; the second concerns new points only.
        for harmless in ("Graph is not fully connected", "precomputed_knn", "Spectral initialisation failed"):
            warnings.filterwarnings("ignore", message=f".*{harmless}", category=UserWarning)
        warnings.filterwarnings("ignore", message="Tensorflow not installed", category=ImportWarning)
        warnings.filterwarnings("ignore", message="IProgress not found")  # UMAP asks tqdm for a notebook bar
        return _umap()(
            n_neighbors=n_neighbors,
            n_components=n_components,
            # the spectral start needs clearly more points than dimensions
            init="spectral" if len(points) > n_components + 2 else "random",
            random_state=seed,
            n_jobs=1,
            **options,
        ).fit_transform(points)
