"""Form Client Relatedness (FCR), the one-shot clustering of FLT."""

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Annotated, ClassVar, Literal

import numpy as np
from sklearn.neighbors import NearestNeighbors

from .. import progress
from ..arrays import as_float32
from ..errors import FltnbError
from ..randomness import integer, seeded
from ..settings import Count, Whole
from .centroids import DISTANCES, CentroidClusterer, stack_ragged

# From this number of points on, UMAP would search neighbours approximately, and slowly:
# 27 s for 12,000.
EXACT_ABOVE = 4096
LARGE = 2  # the number of centroids must be this multiple of the neighbours
_SEARCH = ("pynndescent", "pynndescent.distances", "pynndescent.sparse")
_HARMLESS = (
    ".*Graph is not fully connected",
    ".*precomputed_knn",
    ".*Spectral initialisation failed",
    "Tensorflow not installed",
    "IProgress not found",  # UMAP asks tqdm for a notebook bar
)


class FCR(CentroidClusterer):
    """Form Client Relatedness: client relatedness from a few centroids per client.

    FLT, arXiv 2103.15947, Section 3.2, Algorithm 2. Each client sends the k centroids
    of its embeddings. The server draws all of them on a plane with UMAP, calls two
    clients related if their distance there is below a threshold, and cuts a Ward
    dendrogram of the rows of this adjacency.

    Parameters
    ----------
    n_clusters : int or None
        Number of clusters C. None: the cut with the highest modularity of the client
        graph, or one cluster if no cut is better than chance. For up to 19 clients
        chance is simulated; for up to 40 clients, groups without any link are always
        separate. The paper says that C can be proposed by the clustering, and gives no
        rule.
    k : int or sequence of M ints
        Centroids per client. Paper: 5; its code: each client's true number of classes.
    threshold : float
        Gamma, in units of the UMAP plane: two clients are related if their distance is
        *below* it. Paper and code: 1.
    linkage : {"ward", "average", "complete", "single"}
        Linkage of the dendrogram; the paper uses Ward.
    n_init : int
        Starts of each k-means.
    random_state : int
        Seed of k-means, the same for all clients, and of UMAP.
    distance : {"min", "matching"}
        Distance of two clients: the smallest between any two of their points (Algorithm
        2, line 15), or that of the cheapest one-to-one matching of their points, as in
        the public code.
    n_neighbors : int or None
        UMAP's number of neighbours. Take fewer than the centroids of one kind of data,
        over all clients: with 25 small clients, 15 neighbours merge digits and 5 do
        not. None: a tenth of all centroids, from 2 to 15.
    n_components : int
        UMAP's dimension u.
    max_clusters : int or None
        Largest number of clusters if ``n_clusters`` is None.
    n_jobs : int or None
        See :class:`~fltnb.clustering.base.ClientClusterer`.

    Attributes
    ----------
    centroids_ : ndarray, shape (M, k, e)
        As sent; NaN beyond a client's own k.
    embedding_ : ndarray, shape (M, k, u)
        The centroids in the UMAP plane.
    weights_ : ndarray, shape (M, k)
        Share of the client's samples behind each centroid.
    criterion_ : ndarray, shape (M + 1,)
        Entry C: modularity of the cut into C clusters (NaN: no such cut).

    Raises
    ------
    FltnbError
        By ``fit``: a client has fewer samples than k, or all clients together send
        fewer than 4 centroids.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> found = fl.FCR(k=3, n_neighbors=None).fit(x)
    >>> found.labels_.tolist(), found.n_clusters_
    ([0, 0, 1, 1, 2, 2], 3)
    >>> found.sketch(x[0])["centroids"].shape
    (3, 64)
    """

    # with more, stored results would change: 20 of 110 by simulation, none by links
    simulated_up_to = 19
    apart_up_to = 40

    distance: Literal["min", "matching"] = "min"
    n_neighbors: Annotated[int, Whole(2)] | None = 15
    n_components: Count = 2

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        super()._check_sizes(sizes)
        total = np.broadcast_to(self.k, len(sizes)).sum()
        if total < 4:
            raise FltnbError(
                f"UMAP needs at least 4 centroids, and the {len(sizes)} clients send "
                f"{total} in all: use more clients or a larger k."
            )

    def _relate(self, sketches, answers) -> None:
        centroids = self._keep_centroids(sketches)
        n_neighbors = self._n_neighbors(centroids)
        seed = integer(int(self.random_state), "umap")
        everybody = np.concatenate(centroids)
        plane = umap_layout(everybody, n_neighbors, self.n_components, seed)

        ends = np.cumsum([len(one) for one in centroids])
        points = np.split(plane, ends[:-1])  # (k_i, u) of each client
        self.embedding_ = stack_ragged(points)
        self._threshold_and_cut(DISTANCES[self.distance](points))

    def _n_neighbors(self, centroids: Sequence[np.ndarray]) -> int:
        """Return UMAP's number of neighbours; warn if the given one is too large."""
        n_centroids = sum(len(own) for own in centroids)
        fitting = int(np.clip(n_centroids // 10, 2, 15))
        if self.n_neighbors is None:
            return fitting
        if len(centroids) > 2 and LARGE * self.n_neighbors > n_centroids:
            warnings.warn(
                f"n_neighbors={self.n_neighbors} is a large part of {n_centroids} "
                f"centroids, so UMAP may merge groups: give fewer, or None, which "
                f"takes {fitting}.",
                stacklevel=4,
            )
        return self.n_neighbors


class _Unused(ModuleType):
    """Replaces a package while another one that hardly uses it is imported."""

    named_distances: ClassVar[dict] = {}
    sparse_named_distances: ClassVar[dict] = {}

    class NNDescent:
        pass


@functools.cache
def umap_class() -> type:
    """Import UMAP (seconds), without what it would compile again in every process.

    Its approximate search for neighbours compiles for half a minute when it is first
    imported, and is never used here. The code that UMAP itself compiles is stored on
    disk, beside its sources.
    """
    unused = [name for name in _SEARCH if name not in sys.modules]
    for name in unused:
        sys.modules[name] = _Unused(name)
    import umap
    from numba.core.dispatcher import Dispatcher

    for name in unused:
        del sys.modules[name]

    modules = [
        module
        for name, module in list(sys.modules.items())
        if name == "umap" or name.startswith("umap.")
    ]
    for module in modules:
        for function in vars(module).values():
            if isinstance(function, Dispatcher):
                # there may be no writable folder
                with contextlib.suppress(RuntimeError):
                    function.enable_caching()
    return umap.UMAP


def umap_layout(
    points: np.ndarray, n_neighbors: int, n_components: int, seed: int
) -> np.ndarray:
    """Place points on a plane with UMAP (FLT, Algorithm 2, line 14).

    It uses one thread, because UMAP's parallel layout is not reproducible. From 4,096
    points on the exact neighbours are computed first and passed to it.

    Parameters
    ----------
    points : ndarray, shape (n, e)
    n_neighbors, n_components, seed : int
        UMAP's options; at most n - 1 neighbours are used.

    Returns
    -------
    ndarray of float32, shape (n, n_components)
    """
    points = np.ascontiguousarray(as_float32(points, "The centroids"))
    n_neighbors = min(n_neighbors, len(points) - 1)
    neighbours = (None, None, None)
    if len(points) >= EXACT_ABOVE:
        neighbours = exact_neighbours(points, n_neighbors)

    # the spectral initialisation needs clearly more points than dimensions
    start = "spectral" if len(points) > n_components + 2 else "random"
    silent = bool(os.environ.get("TQDM_DISABLE"))
    layout = umap_class()(
        n_neighbors=n_neighbors,
        n_components=n_components,
        init=start,
        random_state=seed,
        n_jobs=1,
        precomputed_knn=neighbours,
        tqdm_kwds={"desc": "UMAP", "disable": silent, **progress.settings()},
    )
    with warnings.catch_warnings(), seeded(seed):
        for message in _HARMLESS:
            warnings.filterwarnings("ignore", message=message)
        return layout.fit_transform(points)


def exact_neighbours(
    points: np.ndarray, n_neighbors: int
) -> tuple[np.ndarray, np.ndarray, None]:
    """Find the nearest points: indices and distances (n, n_neighbors), for UMAP.

    UMAP counts a point as its own first neighbour.
    """
    search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(points)
    others_far, others = search.kneighbors()  # without the point itself

    index = np.empty(others.shape, dtype=np.int32)
    index[:, 0] = np.arange(len(points))
    index[:, 1:] = others[:, :-1]
    distance = np.zeros(others.shape, dtype=np.float32)
    distance[:, 1:] = others_far[:, :-1]
    return index, distance, None
