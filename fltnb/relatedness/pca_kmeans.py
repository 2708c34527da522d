"""PCA + k-means + hierarchical clustering, the baseline that FLT compares FCR with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import PCA

from ..errors import FltnbError
from ..settings import Count, Natural, NonNegative
from .base import Sketch
from .centroids import CentroidClusterer
from .cuts import Linkage
from .distances import matching_distances


@dataclass(eq=False, repr=False)
class PCAKMeans(CentroidClusterer):
    """PCA on pixels, k-means, matching distance and Ward: FLT's baseline (arXiv 2103.15947, Section 4.3).

    Parameters
    ----------
    n_clusters, k : see :class:`FCR`; FLT's configuration had 3 clusters
    n_components : int, principal components; at most the number of pixels are used
    threshold : float, related means closer; paper: 1; public code: 1, then 3, and 1.2 in the version of its tables
    shared_basis : bool
        False (the baseline): every client projects on principal axes of *its own* images, so the distance compares
        spectra more than content. True: one basis fitted on all clients' images.
    linkage, max_clusters, n_init, random_state, n_jobs, and attributes : as in :class:`FCR`
    """

    n_clusters: Count | None = None
    k: int | Sequence[int] = 5
    n_components: Count = 128
    threshold: NonNegative = 1.2
    shared_basis: bool = False
    linkage: Linkage = "ward"
    max_clusters: Count | None = None
    n_init: Count = 10
    random_state: Natural = 0
    n_jobs: int | None = None

    content = "pixels"

    def sketches(self, X: Sequence[np.ndarray], y: None = None, first: int = 0) -> list[Sketch]:
        """Sketches of all clients; a shared basis is fitted first."""
        for i, x in enumerate(X):
            if x.min() < 0 or x.max() > 1:
                raise FltnbError(f"Client {i} has pixels outside [0, 1], which threshold is meant for: divide by 255.")
        basis = self.basis(np.concatenate(X)) if self.shared_basis else None
        return self._each("sketch", zip(X), first, basis=basis)

    def sketch(self, x: np.ndarray, client: int = 0, basis=None) -> Sketch:
        """Return ``centroids`` (k_i, n_components) of pixels (n_i, d), in the shared :meth:`basis` if there is one."""
        return self._kmeans((basis or self.basis(x)).transform(x), client)

    def basis(self, x: np.ndarray):
        """Principal axes (scikit-learn's PCA) of pixels (n, d)."""
        size = min(self.n_components, x.shape[1])
        # As in the public code, fewer images than components are repeated: that adds no direction, the surplus
        # components are arbitrary and the client's coordinates there are zero.
        repeated = np.tile(x, (-(-size // len(x)), 1))
        # Exact, and five times as fast as the randomised solver that scikit-learn would choose at these shapes.
        return PCA(size, svd_solver="covariance_eigh", random_state=int(self.random_state)).fit(repeated)

    def _relate(self, sketches, answers) -> None:
        centres = self._take(sketches)
        self.embedding_ = self.centroids_
        self._threshold_and_cut(matching_distances(centres))
