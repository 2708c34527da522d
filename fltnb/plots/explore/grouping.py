"""How clients are grouped at a threshold, by a rule for the number of clusters."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform
from sklearn.decomposition import PCA
from sklearn.metrics.cluster import contingency_matrix

from ...clustering import FCR
from ...clustering.cuts import (
    best_cut,
    chance_modularity,
    cut,
    modularity_by_cut,
    relabel,
)
from ...clustering.eigen import REASONABLE, silhouettes
from ...clustering.emd import farther
from ...errors import FltnbError

FITTED = "as fitted"
MODULARITY = "modularity"
SILHOUETTE = "silhouette"
GAP = "largest gap"
EQUAL = "equal neighbours"
BELOW = "below the threshold"
GIVEN = "C given"


class Fit(NamedTuple):
    """What is shown of a clustering.

    Distances (M, M), the larger of both directions, linkage (M - 1, 4), labels (M,),
    and points (M, k, 2) of a map.
    """

    far: np.ndarray
    tree: np.ndarray
    labels: np.ndarray
    points: np.ndarray


def taken(source: Any) -> Fit:
    """Take a fit from a clusterer, or from a mapping of arrays.

    FltnbError: the distances are not of two clients or more.
    """
    if isinstance(source, Mapping):
        kept = source
    else:
        names = ("distance", "linkage", "labels")
        kept = {name: getattr(source, f"{name}_") for name in names}
    far = np.asarray(kept["distance"], dtype=float)
    if far.ndim != 2 or not 1 < len(far) == far.shape[1]:
        raise FltnbError(
            f"distance must be (M, M), of two clients or more, not {far.shape}."
        )
    far = farther(far)
    # pairs that were not measured are as far apart as any
    far = np.minimum(far, far[np.isfinite(far)].max())

    tree = kept.get("linkage")
    if tree is None:
        tree = linkage(squareform(far, checks=False), "complete")
    labels = np.asarray(kept.get("labels", np.zeros(len(far))), dtype=np.int64)
    if isinstance(source, FCR):
        points = source.embedding_[..., :2]
    else:
        # clients that are equally far from everybody are drawn together
        points = PCA(2, random_state=0).fit_transform(far)[:, None]
    return Fit(far, tree, labels, points)


def grouped(
    rule: str,
    fit: Fit,
    links: np.ndarray,
    threshold: float,
    count: int,
    most: int | None,
) -> np.ndarray:
    """Labels (M,) by a rule, from 0.

    ``count`` is the number of clusters that the rule "C given" makes, ``most`` the
    largest that "modularity" may choose.
    """
    labels = fit.labels
    if rule == EQUAL:
        _, labels = np.unique(np.packbits(links, 1), axis=0, return_inverse=True)
        labels = labels.reshape(-1)
    elif rule == BELOW:
        labels = fcluster(fit.tree, threshold, "distance")
    elif rule == MODULARITY:
        modularity = modularity_by_cut(links, fit.tree)
        labels = cut(fit.tree, best_cut(modularity, chance_modularity(links), most))
    elif rule == SILHOUETTE:
        scores = silhouettes(fit.far, fit.tree, 10)
        labels = cut(fit.tree, best_cut(scores, REASONABLE))
    elif rule == GAP:
        labels = cut(fit.tree, largest_gap(fit.tree[:, 2]))
    elif rule == GIVEN:
        labels = cut(fit.tree, count)
    return relabel(labels)


def largest_gap(heights: np.ndarray) -> int:
    """Clusters of the cut in the middle of the largest gap between merge heights."""
    if len(heights) < 2:
        return 1
    return len(heights) - int(np.diff(heights).argmax())


def like_found(truth: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Give true clusters (M,) the numbers of the found ones they share most with.

    So both have the same colours (the Hungarian method); a true cluster that is left
    over gets a number of its own.
    """
    names, true = np.unique(truth, return_inverse=True)
    numbers = labels.max() + 1 + np.arange(len(names))
    shared = contingency_matrix(true, labels)
    rows, columns = linear_sum_assignment(shared, maximize=True)
    numbers[rows] = columns
    return numbers[true]


def branches(
    tree: np.ndarray, rank: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lines (M - 1, 4, 2) of a dendrogram over leaves at ``rank`` (M,).

    Also each one's cluster (M - 1,), -1 above the clusters.
    """
    count = len(rank)
    left, right = tree[:, :2].astype(int).T
    top = tree[:, 2]
    x = np.append(rank, top)
    cluster = np.append(labels, labels[1:])
    height = np.append(np.zeros(count), top)
    for node, (a, b) in enumerate(zip(left, right, strict=True), count):
        x[node] = (x[a] + x[b]) / 2
        cluster[node] = cluster[a] if cluster[a] == cluster[b] else -1

    across = np.stack([x[left], x[left], x[right], x[right]], axis=1)
    up = np.stack([height[left], top, top, height[right]], axis=1)
    return np.stack([across, up], axis=2), cluster[count:]
