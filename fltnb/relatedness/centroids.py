"""Clusterers whose clients send k-means centroids: a threshold on a client distance, Ward, a cut (FLT, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.cluster import KMeans

from ..errors import FltnbError
from ..randomness import integer
from .base import ClientClusterer, Sketch
from .cuts import best_cut, chance_modularity, cut, modularity_by_cut, rows_linkage


class CentroidClusterer(ClientClusterer):
    """Base of FCR and PCAKMeans; ``labels_`` and the rest follow from a client distance and ``threshold``."""

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        values = np.asarray(self.k)
        if values.ndim > 1 or values.dtype.kind not in "iu" or (values.ndim and len(values) != len(sizes)):
            raise FltnbError(f"k must be a whole number or {len(sizes)} whole numbers, one per client, got {self.k!r}.")
        for i, (number, size) in enumerate(zip(np.broadcast_to(values, len(sizes)), sizes, strict=True)):
            if not 1 <= number <= size:
                what = f"k = {number} centroids cannot be formed from the {size} samples of client {i}"
                raise FltnbError(f"{what}: choose k between 1 and {size} for it, or leave small clients out.")

    def _kmeans(self, z: np.ndarray, client: int) -> Sketch:
        """K-means inside one client (FLT, Algorithm 2, lines 8-10); the same seed whatever its place in the list."""
        k = int(self.k if np.ndim(self.k) == 0 else self.k[client])
        fitted = KMeans(k, n_init=self.n_init, random_state=integer(int(self.random_state), "kmeans")).fit(z)
        weights = np.bincount(fitted.labels_, minlength=k) / len(z)
        return {"centroids": fitted.cluster_centers_, "_weights": weights}

    def _take(self, sketches: Sequence[Sketch]) -> list[np.ndarray]:
        """Keep and return the clients' centroids."""
        centres = [sketch["centroids"] for sketch in sketches]
        self.centroids_ = stack_ragged(centres)
        if all("_weights" in sketch for sketch in sketches):
            self.weights_ = np.nan_to_num(stack_ragged([sketch["_weights"][:, None] for sketch in sketches])[..., 0])
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
        wanted = self.n_clusters
        if wanted is None:
            wanted = best_cut(self.criterion_, chance_modularity(adjacency), self.max_clusters)
        # membership is read off in client order; the public code read it in leaf order, which scrambles the clusters
        self._keep(distance, tree, cut(tree, wanted), adjacency)


def stack_ragged(points: Sequence[np.ndarray]) -> np.ndarray:
    """(M, max k, d) array of the clients' points, NaN where a client has fewer."""
    out = np.full((len(points), max(map(len, points)), points[0].shape[1]), np.nan, dtype=points[0].dtype)
    for row, p in zip(out, points, strict=True):
        row[: len(p)] = p
    return out
