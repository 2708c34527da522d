"""PACFL: clients are similar if their images span similar subspaces.

Vahidian et al., AAAI 2023.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.cluster.hierarchy import fcluster

from ..errors import FltnbError
from ..progress import bar
from ..settings import Count, Real
from .base import ClientClusterer, Shapes, Sketch, check_finite, of_all
from .cuts import cut, distance_linkage, relabel


class PACFL(ClientClusterer):
    """Cluster clients by the angles between singular vectors of their data.

    arXiv 2209.10526, Algorithm 1. Every client sends, for each class it holds, the
    first left singular vectors of the matrix whose columns are its images of that
    class. ``distance_`` of two clients is the angle of their closest pair of such
    vectors, in degrees. Clusters are merged until they are farther apart than the
    threshold (WPGMA: the plain mean of the merged rows).

    Parameters
    ----------
    threshold : float
        alpha, in degrees: clusters are merged up to this distance. Below 0 no clients
        are merged. The official runs had 4.9 for CIFAR-10 with two classes per client;
        EMD-CFL's had 12 for its rotated images.
    n_clusters : int, optional
        Cut the dendrogram into this number of clusters, and ignore the threshold.
    n_vectors : int
        p, singular vectors per class; fewer if a class has fewer linearly independent
        images.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> y = [fed.client(i)[1] for i in range(6)]
    >>> fl.PACFL(n_clusters=3).fit(x, y).labels_.tolist()
    [0, 0, 1, 1, 2, 2]
    """

    threshold: Real = 4.9
    n_clusters: Count | None = None
    n_vectors: Count = 3

    content = "pixels"
    sketch_shapes: ClassVar[Shapes] = {"vectors": (None, None)}
    labelled = True

    def sketches(
        self,
        X: Sequence[np.ndarray],
        y: Sequence[np.ndarray] | None = None,
        first: int = 0,
    ) -> list[Sketch]:
        """Compute sketches of all clients, from flattened images (n_i, d) and classes.

        Classes are (n_i,); without them all images have the same class.
        """
        classes = self._classes(X, y)
        sketches = []
        for i, x in enumerate(X):
            sketches.append(self.sketch(x, classes[i], first + i))
        return sketches

    def sketch(
        self, x: np.ndarray, classes: np.ndarray | None = None, client: int = 0
    ) -> Sketch:
        """Return ``vectors`` (d, p * classes) of images (n_i, d) and classes (n_i,).

        Raises FltnbError if all images are zero.
        """
        x = self._checked(x, client)
        if classes is None:
            classes = np.zeros(len(x))
        by_class = []
        for c in np.unique(classes):
            images = x[classes == c]
            by_class.append(singular_vectors(images, self.n_vectors))
        vectors = np.hstack(by_class)
        if not vectors.shape[1]:
            raise FltnbError(
                f"All images of client {client} are zero, so they span nothing: leave "
                "the client out."
            )
        return {"vectors": vectors}

    def _relate(self, sketches, answers) -> None:
        self._vectors = of_all(sketches, "vectors")
        distance = client_angles(self._vectors)
        check_finite(distance, "angles")
        tree = distance_linkage(distance, "weighted")
        labels = flat_clusters(tree, self.threshold, self.n_clusters)
        self._keep(distance, tree, labels)
        if self.n_clusters is None and self.threshold >= 0:
            self._warn_if_all_alone(f"threshold={self.threshold:g} degrees")

    def _newcomers(self, sketches: Sequence[Sketch]) -> np.ndarray:
        self._check_fitted("_vectors")
        count = len(self._vectors)
        angles = client_angles([*self._vectors, *of_all(sketches, "vectors")])
        return angles[count:, :count]


def singular_vectors(x: np.ndarray, n: int) -> np.ndarray:
    """Return the first left singular vectors of the matrix whose columns are samples.

    Parameters
    ----------
    x : ndarray, shape (m, d)
        One sample a row.
    n : int
        Number of vectors. Vectors beyond the rank would be arbitrary and are left out.

    Returns
    -------
    ndarray, shape (d, at most n)
        The largest entry of each vector is positive, by convention.
    """
    columns = np.asarray(x, dtype=np.float64).T
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    rounding = 1e-9 * max(values[0], np.finfo(float).tiny)
    left = left[:, values > rounding][:, :n]

    largest = np.abs(left).argmax(axis=0, keepdims=True)
    signs = np.sign(np.take_along_axis(left, largest, axis=0))
    return left * signs


def client_angles(bases: Sequence[np.ndarray]) -> np.ndarray:
    """Return the smallest angle between any two vectors of every two clients.

    This is the official distance. It is not a principal angle, and depends on the
    arbitrary signs of the columns.

    Parameters
    ----------
    bases : sequence of M arrays, shapes (d, k_i)
        Each client's vectors, columns of unit length.

    Returns
    -------
    ndarray, shape (M, M)
        Degrees, the diagonal 0.
    """
    sizes = [basis.shape[1] for basis in bases]
    starts = np.cumsum([0, *sizes[:-1]])  # where each client's vectors begin
    everybody = np.hstack(bases)

    largest = np.empty((len(bases), len(bases)))
    for i, basis in enumerate(bar(bases, desc="Angles", unit="client")):
        to_vectors = (basis.T @ everybody).max(axis=0)
        largest[i] = np.maximum.reduceat(to_vectors, starts)

    cosines = (largest + largest.T) / 2  # the two directions differ by rounding
    cosines = np.clip(cosines, -1, 1)
    degrees = np.degrees(np.arccos(cosines))
    np.fill_diagonal(degrees, 0)
    return degrees


def flat_clusters(
    linkage: np.ndarray, threshold: float, n_clusters: int | None = None
) -> np.ndarray:
    """Labels (M,) of a dendrogram cut at a height, merges *at* it included.

    ``n_clusters``: cut it into this number of clusters instead.
    """
    if n_clusters is None:
        return relabel(fcluster(linkage, threshold, "distance"))
    return relabel(cut(linkage, n_clusters))
