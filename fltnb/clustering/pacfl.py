"""PACFL: clients whose images span similar subspaces belong together.

Vahidian et al., AAAI 2023.
"""

from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform

from ..errors import FltnbError
from ..progress import bar
from ..settings import Count, Real
from .base import ClientClusterer, Sketch, check_finite
from .cuts import cut, relabel


class PACFL(ClientClusterer):
    """Cluster clients by the angles between singular vectors of their data.

    arXiv 2209.10526, Algorithm 1. Every client sends, for each class it holds, the
    first left singular vectors of the matrix whose columns are its images of that
    class. ``distance_`` of two clients is the angle of their closest pair of such
    vectors, in degrees; clusters are merged until they are farther apart than the
    threshold (WPGMA: merged rows' plain mean).

    Parameters
    ----------
    threshold : float
        alpha, degrees: clusters are merged up to this distance. Below 0 nobody is
        merged. The official runs took 4.9 for CIFAR-10 with two classes per client;
        EMD-CFL's took 12 for its rotated images.
    n_clusters : int, optional
        Cut the dendrogram into so many clusters instead.
    n_vectors : int
        p, singular vectors per class; fewer where a class has fewer independent images.

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
    labelled = True

    def sketches(
        self,
        X: Sequence[np.ndarray],
        y: Sequence[np.ndarray] | None = None,
        first: int = 0,
    ) -> list[Sketch]:
        """Sketches of all clients, of flattened images (n_i, d) and classes (n_i,).

        Without classes all images are of one.
        """
        if y is None:
            y = [np.zeros(len(x), dtype=np.int64) for x in X]
        y = [np.asarray(one) for one in y]
        if [one.shape for one in y] != [(len(x),) for x in X]:
            raise FltnbError(
                "PACFL needs one class for every image of every client: y must be as "
                "long as X."
            )
        return [
            self.sketch(x, classes, client)
            for client, (x, classes) in enumerate(zip(X, y, strict=True), first)
        ]

    def sketch(
        self, x: np.ndarray, classes: np.ndarray | None = None, client: int = 0
    ) -> Sketch:
        """Return ``vectors`` (d, p * classes) of images (n_i, d) and classes (n_i,).

        FltnbError: all images are zero.
        """
        x = self._checked(x, client)
        if classes is None:
            classes = np.zeros(len(x))
        by_class = [
            singular_vectors(x[classes == c], self.n_vectors)
            for c in np.unique(classes)
        ]
        vectors = np.hstack(by_class)
        if not vectors.shape[1]:
            raise FltnbError(
                f"All images of client {client} are zero, so they span nothing: leave "
                "the client out."
            )
        return {"vectors": vectors}

    def _relate(self, sketches, answers) -> None:
        distance = client_angles([sketch["vectors"] for sketch in sketches])
        check_finite(distance, "angles")
        self._vectors = [sketch["vectors"] for sketch in sketches]
        tree = scipy_linkage(squareform(distance, checks=False), "weighted")
        self._keep(distance, tree, flat_clusters(tree, self.threshold, self.n_clusters))
        if self.n_clusters is None and self.threshold >= 0:
            self._warn_if_all_alone(f"threshold={self.threshold:g} degrees")

    def _newcomers(self, sketches: Sequence[Sketch]) -> np.ndarray:
        self._check_fitted("_vectors")
        count = len(self._vectors)
        vectors = self._vectors + [sketch["vectors"] for sketch in sketches]
        return client_angles(vectors)[count:, :count]


def singular_vectors(x: np.ndarray, n: int) -> np.ndarray:
    """First left singular vectors (d, at most n) of the matrix with columns ``x``.

    ``x`` has one sample a row. The largest entry of a vector is positive. Beyond the
    rank a vector would be arbitrary, and is left out.
    """
    columns = np.asarray(x, dtype=np.float64).T
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    smallest = 1e-9 * max(values[0], np.finfo(float).tiny)
    left = left[:, values > smallest][:, :n]

    largest = np.abs(left).argmax(axis=0)
    signs = np.sign(left[largest, np.arange(left.shape[1])])
    return left * signs


def client_angles(bases: Sequence[np.ndarray]) -> np.ndarray:
    """Angles (M, M) in degrees between M clients' vectors: the least of any two.

    A client's vectors are columns of unit length (d, k_i). That is the official
    distance. It is no principal angle, and depends on the columns' arbitrary signs.
    """
    sizes = [basis.shape[1] for basis in bases]
    starts = np.cumsum([0, *sizes[:-1]])
    everybody = np.hstack(bases)

    largest = np.empty((len(bases), len(bases)))
    for i, basis in enumerate(bar(bases, desc="Angles", unit="client")):
        cosines = (basis.T @ everybody).max(axis=0)
        largest[i] = np.maximum.reduceat(cosines, starts)

    cosines = np.clip((largest + largest.T) / 2, -1, 1)
    degrees = np.degrees(np.arccos(cosines))
    np.fill_diagonal(degrees, 0)
    return degrees


def flat_clusters(
    linkage: np.ndarray, threshold: float, n_clusters: int | None = None
) -> np.ndarray:
    """Labels (M,) of a dendrogram cut at a height, merges *at* it included.

    ``n_clusters``: cut it into so many clusters instead.
    """
    if n_clusters is None:
        return relabel(fcluster(linkage, threshold, "distance"))
    return relabel(cut(linkage, n_clusters))
