"""Form Client Relatedness (FCR), the one-shot clustering of FLT."""

import contextlib
import functools
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Annotated, ClassVar, Literal

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ..errors import FltnbError
from ..randomness import integer
from ..settings import Count, Whole
from .centroids import (
    CentroidClusterer,
    matching_distances,
    min_distances,
    stack_ragged,
)

DISTANCES = {"min": min_distances, "matching": matching_distances}
_SEARCH = ("pynndescent", "pynndescent.distances", "pynndescent.sparse")
EXACT_ABOVE = 4096  # points from which UMAP would search neighbours approximately (and slowly: 27 s at 12,000)


class FCR(CentroidClusterer):
    """Client relatedness from a few centroids per client (FLT, arXiv 2103.15947, Section 3.2, Algorithm 2).

    Each client sends the k centroids of its embeddings. The server lays all of them out with UMAP, calls two clients
    related if their distance there is below a threshold, and cuts a Ward dendrogram of the rows of that adjacency.

    Parameters
    ----------
    n_clusters : int or None
        Number of clusters C. None: the cut with the highest modularity of the client graph (one cluster if no cut
        beats chance). The paper says that C can be proposed by the clustering and gives no rule.
    k : int or sequence of M ints, centroids per client; paper: 5; its code: each client's true number of classes
    threshold : float, gamma, in units of the UMAP plane; related means *below* it. Paper and code: 1.
    distance : {"min", "matching"}
        Smallest between any two points (Algorithm 2, line 15), or the public code's
        :func:`~fltnb.clustering.centroids.matching_distances`.
    n_neighbors, n_components : int
        UMAP's neighbourhood and dimension u. Take fewer neighbours than one kind of data has centroids over all
        clients: with 25 small clients 15 glues digits together and 5 does not.
    linkage : {"ward", "average", "complete", "single"}, the paper uses Ward
    n_init : int, starts of each k-means
    random_state : int, every client's k-means gets ``randomness.integer(random_state, "kmeans")``, UMAP that of "umap"
    max_clusters, n_jobs : see :class:`~fltnb.clustering.base.ClientClusterer`

    Attributes
    ----------
    embedding_, centroids_ : ndarray (M, k, u), (M, k, e), in the UMAP plane, and as sent (NaN beyond a client's own k)
    weights_ : ndarray (M, k), share of the client's samples behind each centroid
    criterion_ : ndarray (M + 1,), entry C: modularity of the cut into C clusters (NaN: no such cut)
    """

    distance: Literal["min", "matching"] = "min"
    n_neighbors: Annotated[int, Whole(2)] = 15
    n_components: Count = 2

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        super()._check_sizes(sizes)
        total = np.broadcast_to(self.k, len(sizes)).sum()
        if total < 4:
            raise FltnbError(
                f"UMAP cannot lay out {total} centroids: use more clients or a larger k, at least 4."
            )

    def _relate(self, sketches, answers) -> None:
        centres, seed = self._take(sketches), integer(int(self.random_state), "umap")
        plane = umap_layout(
            np.concatenate(centres), self.n_neighbors, self.n_components, seed
        )
        points = np.split(plane, np.cumsum([len(own) for own in centres])[:-1])
        self.embedding_ = stack_ragged(points)
        self._threshold_and_cut(DISTANCES[self.distance](points))


class _Unused(ModuleType):
    """Takes the place of a package while another one is imported that uses it for what is not done here."""

    named_distances: ClassVar[dict] = {}
    sparse_named_distances: ClassVar[dict] = {}

    class NNDescent:
        pass


@functools.cache
def umap_class() -> type:
    """Import UMAP (seconds), and keep on disk, beside its sources, what it would compile anew in every process.

    Its approximate search for neighbours compiles for half a minute when it is first imported, and is never used here.
    """
    unused = [
        name
        for name in _SEARCH
        if sys.modules.setdefault(name, _Unused(name)).__class__ is _Unused
    ]
    import umap
    from numba.core.dispatcher import Dispatcher

    for name in unused:
        del sys.modules[name]

    parts = [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "umap"
    ]
    for function in {
        id(f): f
        for part in parts
        for f in vars(part).values()
        if isinstance(f, Dispatcher)
    }.values():
        with contextlib.suppress(RuntimeError):  # no folder that can be written to
            function.enable_caching()
    return umap.UMAP


def umap_layout(
    points: np.ndarray, n_neighbors: int, n_components: int, seed: int
) -> np.ndarray:
    """UMAP coordinates of the points themselves, (n, n_components) float32 (FLT, Algorithm 2, line 14).

    One thread: UMAP's parallel layout is not reproducible. From 4,096 points on the exact neighbours are handed to it.
    """
    points = np.ascontiguousarray(points, dtype=np.float32)
    n_neighbors = min(n_neighbors, len(points) - 1)
    options = {}
    if len(points) >= EXACT_ABOVE:
        distance, index = (
            NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute")
            .fit(points)
            .kneighbors()
        )
        own = np.arange(len(points))[
            :, None
        ]  # UMAP counts a point as its own first neighbour
        index = np.hstack([own, index[:, :-1]]).astype(np.int32)
        distance = np.hstack([np.zeros_like(own), distance[:, :-1]]).astype(np.float32)
        options["precomputed_knn"] = (index, distance, None)
    with warnings.catch_warnings():
        for harmless in (
            "Graph is not fully connected",
            "precomputed_knn",
            "Spectral initialisation failed",
        ):
            warnings.filterwarnings(
                "ignore", message=f".*{harmless}", category=UserWarning
            )
        warnings.filterwarnings(
            "ignore", message="Tensorflow not installed", category=ImportWarning
        )
        warnings.filterwarnings(
            "ignore", message="IProgress not found"
        )  # UMAP asks tqdm for a notebook bar
        return umap_class()(
            n_neighbors=n_neighbors,
            n_components=n_components,
            # the spectral start needs clearly more points than dimensions
            init="spectral" if len(points) > n_components + 2 else "random",
            random_state=seed,
            n_jobs=1,
            **options,
        ).fit_transform(points)
