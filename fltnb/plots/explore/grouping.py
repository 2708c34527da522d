"""Groups of clients at a threshold, by a rule for the number of clusters.

Rules have the names shown in the explorer's menu.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform
from sklearn.decomposition import PCA
from sklearn.metrics.cluster import contingency_matrix

from ...arrays import as_array
from ...clustering import FCR
from ...clustering.centroids import CentroidClusterer
from ...clustering.cuts import (
    best_cut,
    cut,
    largest_gap,
    modularity_by_cut,
    relabel,
)
from ...clustering.eigen import REASONABLE, silhouettes
from ...clustering.emd import farther
from ...errors import FltnbError
from ...federations.own import integers

Array = np.ndarray

FITTED = "as fitted"
MODULARITY = "modularity"
SILHOUETTE = "silhouette"
GAP = "largest gap"
EQUAL = "equal neighbours"
BELOW = "below the threshold"
GIVEN = "C given"


class Fit(NamedTuple):
    """The parts of a clustering that are shown.

    Attributes
    ----------
    far : array (M, M)
        Distances, the larger of both directions.
    tree : array (M - 1, 4)
        The linkage.
    labels : array (M,)
    points : array (M, k, 2)
        Points of a map, k for each client.
    """

    far: Array
    tree: Array
    labels: Array
    points: Array


def taken(source: Any) -> Fit:
    """Take a fit from a clusterer, or from a mapping of arrays.

    Parameters
    ----------
    source : fitted clusterer or mapping
        A mapping: ``distance`` (M, M) and, if known, ``linkage`` and ``labels``.

    Raises
    ------
    FltnbError
        The distances are of fewer than two clients, or labels are no whole numbers.
    """
    kept = source
    if not isinstance(source, Mapping):
        names = ("distance", "linkage", "labels")
        kept = {name: getattr(source, f"{name}_") for name in names}
    far = as_array(kept["distance"], "distance")
    numeric = far.dtype.kind in "fiu"
    if not numeric or far.ndim != 2 or not 1 < len(far) == far.shape[1]:
        raise FltnbError(
            "distance must be a matrix (M, M) of two clients or more, but it has the "
            f"shape {far.shape} of {far.dtype}: give the distances of all pairs."
        )
    far = farther(far.astype(float))
    # pairs that were not measured get the largest distance
    farthest = far[np.isfinite(far)].max()
    far = np.minimum(far, farthest)

    tree = kept.get("linkage")
    if tree is None:
        tree = linkage(squareform(far, checks=False), "complete")
    labels = np.zeros(len(far), dtype=np.int64)
    if kept.get("labels") is not None:
        labels = integers("labels", kept["labels"], len(kept["labels"]), "client")
    if isinstance(source, FCR):
        points = source.embedding_[..., :2]
    else:
        # clients with equal distances to all others are drawn together
        plane = PCA(2, random_state=0).fit_transform(far)
        points = plane[:, None]
    return Fit(far, tree, labels, points)


def grouped(
    rule: str,
    fit: Fit,
    links: Array,
    threshold: float,
    count: int,
    clusterer: CentroidClusterer,
) -> Array:
    """Group clients by a rule.

    Parameters
    ----------
    rule : str
        :data:`FITTED`, :data:`MODULARITY` and so on.
    fit : Fit
    links : array (M, M) of bool
        Which clients are linked.
    threshold : float
        For the rule "below the threshold".
    count : int
        The number of clusters that the rule "C given" makes.
    clusterer : CentroidClusterer
        The one whose rule "modularity" is.

    Returns
    -------
    array (M,)
        Clusters from 0.
    """
    labels = fit.labels
    if rule == EQUAL:
        rows = np.packbits(links, 1)
        _, labels = np.unique(rows, axis=0, return_inverse=True)
        labels = labels.reshape(-1)
    elif rule == BELOW:
        labels = fcluster(fit.tree, threshold, "distance")
    elif rule == MODULARITY:
        modularity = modularity_by_cut(links, fit.tree)
        labels = clusterer.cut_by_modularity(links, fit.tree, modularity)
    elif rule == SILHOUETTE:
        scores = silhouettes(fit.far, fit.tree, 10)
        labels = cut(fit.tree, best_cut(scores, REASONABLE))
    elif rule == GAP:
        labels = cut(fit.tree, largest_gap(fit.tree))
    elif rule == GIVEN:
        labels = cut(fit.tree, count)
    return relabel(labels)


def middle(tree: Array, n_clusters: int, above: float = 1.0) -> float:
    """Return the height of a cut, in the middle between two merges.

    Parameters
    ----------
    tree : array (M - 1, 4)
    n_clusters : int
        Number of clusters after the cut.
    above : float
        Height of the cut for one cluster, as a multiple of the highest merge.

    Examples
    --------
    >>> tree = np.array([[0, 1, 0.2, 2], [2, 3, 0.8, 3]])
    >>> float(middle(tree, 2))
    0.5
    """
    tops = tree[:, 2]
    heights = np.concatenate([[0.0], tops, tops[-1:] * above])
    made = len(tops) + 1 - n_clusters
    return heights[made : made + 2].mean()


def like_found(truth: Array, labels: Array) -> Array:
    """Give true clusters the numbers of the found ones with the largest overlap.

    Both then have the same colours (the Hungarian method); a remaining true cluster
    gets a new number.

    Parameters
    ----------
    truth, labels : array (M,)
        True and found clusters.

    Returns
    -------
    array (M,)

    Examples
    --------
    >>> like_found(np.array([7, 7, 3]), np.array([0, 0, 1])).tolist()
    [0, 0, 1]
    """
    names, true = np.unique(truth, return_inverse=True)
    numbers = labels.max() + 1 + np.arange(len(names))
    shared = contingency_matrix(true, labels)
    rows, columns = linear_sum_assignment(shared, maximize=True)
    numbers[rows] = columns
    return numbers[true]


def branches(tree: Array, rank: Array, labels: Array) -> tuple[Array, Array]:
    """Lay out a dendrogram.

    Each merge is a line of four points, ``⊓``: from its left part up, across, and down
    to its right part. Merges inside a cluster have its colour.

    Parameters
    ----------
    tree : array (M - 1, 4)
    rank : array (M,)
        Position of each leaf.
    labels : array (M,)
        Cluster of each leaf.

    Returns
    -------
    array (M - 1, 4, 2)
        The line of each merge: up, across and down.
    array (M - 1,)
        Its cluster, -1 above the clusters.
    """
    count = len(rank)
    left, right = tree[:, :2].astype(int).T
    top = tree[:, 2]

    # leaves come first, then the merges, each above the middle of its two parts
    x = np.append(rank, top)
    cluster = np.append(labels, labels[1:])
    for node, (a, b) in enumerate(zip(left, right, strict=True), count):
        x[node] = (x[a] + x[b]) / 2
        cluster[node] = -1
        if cluster[a] == cluster[b]:
            cluster[node] = cluster[a]

    height = np.append(np.zeros(count), top)
    across = np.stack([x[left], x[left], x[right], x[right]], axis=1)
    up = np.stack([height[left], top, top, height[right]], axis=1)
    return np.stack([across, up], axis=2), cluster[count:]
