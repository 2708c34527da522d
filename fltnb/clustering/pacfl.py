"""PACFL: clients whose images span similar subspaces belong together (Vahidian et al., AAAI 2023)."""

from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform

from ..errors import FltnbError
from ..settings import Count, Real
from .base import ClientClusterer, Sketch
from .cuts import canonical, cut


class PACFL(ClientClusterer):
    """Cluster clients by the angles between singular vectors of their data (arXiv 2209.10526, Algorithm 1).

    Every client sends, for each class it holds, the first left singular vectors of the matrix whose columns are its
    images of that class. ``distance_`` of two clients is the angle of their closest pair of such vectors, in degrees;
    clusters are merged until they are farther apart than the threshold (WPGMA: merged rows' plain mean).

    Parameters
    ----------
    threshold : float
        alpha, degrees: clusters are merged up to this distance. Below 0 nobody is merged. The official runs took 4.9
        for CIFAR-10 with two classes per client; EMD-CFL's took 12 for its rotated images.
    n_clusters : int, optional, cut the dendrogram into so many clusters instead; the threshold does not matter then
    n_vectors : int, p, singular vectors per class (fewer where a class has fewer independent images)
    """

    threshold: Real = 4.9
    n_clusters: Count | None = None
    n_vectors: Count = 3

    content, labelled = "pixels", True

    def sketches(
        self,
        X: Sequence[np.ndarray],
        y: Sequence[np.ndarray] | None = None,
        first: int = 0,
    ) -> list[Sketch]:
        """Sketches of all clients, of flattened images (n_i, d) and their classes (n_i,); without these all are one."""
        y = (
            [np.zeros(len(x), dtype=np.int64) for x in X]
            if y is None
            else [np.asarray(one) for one in y]
        )
        if [one.shape for one in y] != [(len(x),) for x in X]:
            raise FltnbError(
                "PACFL needs one class for every image of every client: y must be as long as X."
            )
        return [
            self.sketch(x, classes, client)
            for client, (x, classes) in enumerate(zip(X, y, strict=True), first)
        ]

    def sketch(
        self, x: np.ndarray, classes: np.ndarray | None = None, client: int = 0
    ) -> Sketch:
        """Return ``vectors`` (d, p * classes) of images (n_i, d), not all zero (FltnbError), and classes (n_i,)."""
        classes = np.zeros(len(x)) if classes is None else classes
        vectors = np.hstack(
            [
                singular_vectors(x[classes == c], self.n_vectors)
                for c in np.unique(classes)
            ]
        )
        if not vectors.shape[1]:
            raise FltnbError(
                f"All images of client {client} are zero, so they span nothing: leave the client out."
            )
        return {"vectors": vectors}

    def _relate(self, sketches, answers) -> None:
        distance = client_angles([sketch["vectors"] for sketch in sketches])
        tree = scipy_linkage(squareform(distance, checks=False), "weighted")
        self._keep(distance, tree, flat_clusters(tree, self.threshold, self.n_clusters))


def singular_vectors(x: np.ndarray, n: int) -> np.ndarray:
    """First left singular vectors (d, at most n) of the matrix with the rows of ``x`` as columns, signs fixed."""
    left, values, _ = np.linalg.svd(
        np.asarray(x, dtype=np.float64).T, full_matrices=False
    )
    kept = values > 1e-9 * max(
        values[0], np.finfo(float).tiny
    )  # beyond the rank a vector would be arbitrary
    left = left[:, kept][:, :n]
    return left * np.sign(
        np.take_along_axis(left, np.abs(left).argmax(axis=0)[None], axis=0)
    )


def client_angles(bases: Sequence[np.ndarray]) -> np.ndarray:
    """Angles (M, M) in degrees between M clients' vectors, columns of unit length (d, k_i): the least of any two.

    That is the official distance. It is no principal angle, and depends on the columns' arbitrary signs.
    """
    starts = np.cumsum([0, *(basis.shape[1] for basis in bases[:-1])])
    side_by_side = np.hstack(bases)
    largest = np.empty((len(bases), len(bases)))
    for i, basis in enumerate(bases):
        largest[i] = np.maximum.reduceat((basis.T @ side_by_side).max(axis=0), starts)
    degrees = np.degrees(np.arccos(np.clip((largest + largest.T) / 2, -1, 1)))
    np.fill_diagonal(degrees, 0)
    return degrees


def flat_clusters(
    linkage: np.ndarray, threshold: float, n_clusters: int | None = None
) -> np.ndarray:
    """Canonical labels (M,) of a dendrogram cut at a height, merges *at* it included, or into a number of clusters."""
    return canonical(
        fcluster(linkage, threshold, "distance")
        if n_clusters is None
        else cut(linkage, n_clusters)
    )
