"""PCA + k-means + hierarchical clustering, the baseline that FLT compares FCR with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import FltnbError
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
from .distances import matching_distances


class PCAKMeans(ClientClusterer):
    """FCR without its encoder and without UMAP: PCA on raw pixels, k-means, matching distance, Ward (FLT, Section 4.3).

    Parameters
    ----------
    n_clusters : int or None
        Number of clusters C; None takes the cut with the highest modularity, as :class:`FCR` does. FLT's
        configuration had 3.
    k : int or sequence of M ints
        Centroids per client.
    n_components : int
        Principal components; at most the number of pixels are used.
    threshold : float
        Related means closer than this. The paper states gamma = 1; the public code had 1, then 3, and 1.2 in the
        version of its tables.
    shared_basis : bool
        False (the baseline): every client projects on principal axes of *its own* images, centred on its own mean.
        Such coordinates are not comparable between clients, so the distance compares spectra more than content, which
        is a good part of why the baseline is weak. True: one basis fitted on all clients' images.
    linkage, max_clusters, n_init, random_state, n_jobs
        As in :class:`FCR`.

    Attributes
    ----------
    labels_, adjacency_, distance_, linkage_, leaf_order_, criterion_, n_clusters_, centroids_, weights_
        As in :class:`FCR`.
    embedding_ : ndarray (M, k, n_components)
        The centroids (NaN beyond a client's own k).
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        k: int | Sequence[int] = 5,
        n_components: int = 128,
        threshold: float = 1.2,
        shared_basis: bool = False,
        linkage: str = "ward",
        max_clusters: int | None = None,
        n_init: int = 10,
        random_state: int = 0,
        n_jobs: int | None = None,
    ):
        self.n_clusters = n_clusters
        self.k = k
        self.n_components = n_components
        self.threshold = threshold
        self.shared_basis = shared_basis
        self.linkage = linkage
        self.max_clusters = max_clusters
        self.n_init = n_init
        self.random_state = random_state
        self.n_jobs = n_jobs

    def check(self, sizes: Sequence[int]) -> np.ndarray:
        """Refuse settings that cannot work for clients of these sizes; return the centroids of each, (M,) int64."""
        check_settings(len(sizes), self.n_clusters, self.max_clusters, self.threshold, self.linkage)
        check_seed(self.random_state)
        check_counts(self, n_components=1, n_init=1)
        return check_k(self.k, sizes)

    def fit(self, X: Sequence[np.ndarray], y: None = None) -> PCAKMeans:
        """Cluster the clients.

        Parameters
        ----------
        X : sequence of M arrays (n_i, d)
            Flattened images of each client, pixels in [0, 1].
        y : None
            Ignored.
        """
        X = check_clients(X, "pixels")
        k, seed = self.check([len(x) for x in X]), int(self.random_state)
        for i, x in enumerate(X):
            if x.min() < 0 or x.max() > 1:
                raise FltnbError(
                    f"Client {i} has pixels outside [0, 1], which the threshold is meant for: divide by 255."
                )

        from joblib import Parallel, delayed

        size = min(self.n_components, X[0].shape[1])
        if self.shared_basis:
            basis = _pca(np.concatenate(X), size, seed)
            projected = [basis.transform(x) for x in X]
        else:
            projected = Parallel(n_jobs=self.n_jobs)(delayed(_project)(x, size, seed) for x in X)
        centres, self.weights_ = centroids(projected, k, self.n_init, integer(seed, "kmeans"), self.n_jobs)
        self.centroids_ = self.embedding_ = stack_ragged(centres)
        self._threshold_and_cut(matching_distances(centres))
        return self


def _project(x: np.ndarray, n_components: int, seed: int) -> np.ndarray:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # as in the k-means: the last bit must not depend on the machine's cores
        return _pca(x, n_components, seed).transform(x)


def _pca(x: np.ndarray, n_components: int, seed: int):
    from sklearn.decomposition import PCA

    # As in the public code, a client with fewer images than components has them repeated: that adds no direction, the
    # surplus components are arbitrary and its coordinates there are zero.
    repeats = -(-n_components // len(x))
    # Exact, and five times as fast as the randomised solver that scikit-learn would choose at these shapes.
    return PCA(n_components, svd_solver="covariance_eigh", random_state=seed).fit(np.tile(x, (repeats, 1)))
