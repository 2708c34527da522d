"""The client graph, its dendrogram, and where to cut it."""

from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage

Linkage = Literal["ward", "average", "complete", "single"]


def canonical(labels: np.ndarray) -> np.ndarray:
    """Renumber labels 0, 1, ... in the order in which they first appear."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def rows_linkage(adjacency: np.ndarray, method: str = "ward") -> np.ndarray:
    """SciPy linkage (M - 1, 4) with the rows of a binary adjacency as feature vectors (FLT, Section 4.1: Ward).

    Heights are rounded to 9 decimals, so that no cut falls between merges which are equally high on paper.
    """
    tree = scipy_linkage(adjacency.astype(np.float64), method)
    tree[:, 2] = np.round(tree[:, 2], 9)
    return tree


def cut(linkage: np.ndarray, n_clusters: int) -> np.ndarray:
    """Flat clusters (M,) of a dendrogram, ``n_clusters`` of them or, inside a run of equally high merges, fewer."""
    n = len(linkage) + 1
    return fcluster(
        linkage,
        0.0 if n_clusters >= n else linkage[n - 1 - n_clusters, 2],
        criterion="distance",
    )


def modularity_by_cut(adjacency: np.ndarray, linkage: np.ndarray) -> np.ndarray:
    """Newman's modularity of the client graph (M, M), symmetric with its diagonal, for every cut of a dendrogram.

    ``Q = sum over clusters c of [A_cc / 2m - (d_c / 2m)^2]``, with A_cc the adjacency summed inside c, d_c its summed
    degrees and 2m the sum of A. The diagonal counts, so an isolated client is a cluster of its own. Each merge changes
    Q by ``2 (A_ab / 2m - d_a d_b / (2m)^2)``.

    Returns (M + 1,); entry C: modularity of the cut into C clusters; 0 for one. NaN for C = 0 and for cuts inside a run
    of equally high merges, which would split clients that the dendrogram cannot tell apart.
    """
    inside = adjacency / adjacency.sum(dtype=np.float64)
    share = inside.sum(axis=1)
    excess = inside - np.outer(share, share)
    gaps, (a, b) = merge_gaps(excess, linkage)
    quality = np.trace(excess) + np.cumsum(
        [0.0, *(2 * gaps * a * b)]
    )  # of M clusters, M - 1, ..., 1
    split = np.diff(linkage[:, 2], prepend=0.0, append=np.inf) != 0
    scores = np.append(np.where(split, quality, np.nan), np.nan)[::-1]
    scores[1] = 0.0  # exactly: what is left is rounding
    return scores


def merge_gaps(
    z: np.ndarray, tree: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Mean of z (M, M) between the two groups of every merge of a dendrogram, and the sizes of the groups."""
    count = len(z)
    members: list = [np.array([i]) for i in range(count)]
    gaps, sizes = np.empty(count - 1), np.empty((2, count - 1))
    for step, (left, right) in enumerate(tree[:, :2].astype(int)):
        a, b = members[left], members[right]
        gaps[step] = z[np.ix_(a, b)].mean(
            dtype=np.float64
        )  # every pair is looked at once in the whole loop
        sizes[:, step] = len(a), len(b)
        members[left] = members[right] = None
        members.append(np.concatenate([a, b]))
    return gaps, (sizes[0], sizes[1])


def chance_modularity(adjacency: np.ndarray) -> float:
    """Modularity that the best cut of a *random* graph of the same size and density reaches, about.

    A share f of the adjacency is its diagonal, which lies inside whatever the cut; of the rest, with density p, the
    best cut of a random graph has sqrt((1 - p) / (p M)) (Reichardt and Bornholdt, "When are networks truly modular?",
    Physica D 224, 2006): ``f + (1 - f) sqrt((1 - p) / (p M))``. Separate complete blocks are taken at their word: 0.
    """
    _, block = np.unique(np.packbits(adjacency, 1), axis=0, return_inverse=True)
    if np.array_equal(block[:, None] == block[None, :], adjacency.astype(bool)):
        return 0.0
    n, total = len(adjacency), float(adjacency.sum())
    density, loops = (total - n) / (n * (n - 1)), n / total
    return float(loops + (1 - loops) * np.sqrt((1 - density) / (density * n)))


def best_cut(
    criterion: np.ndarray, chance: float = 0.0, max_clusters: int | None = None
) -> int:
    """Return the number of clusters with the highest ``criterion`` (M + 1,), the fewer if tied; 1 below ``chance``."""
    allowed = criterion[: None if max_clusters is None else max_clusters + 1]
    highest = np.nanmax(allowed)
    return (
        1
        if highest <= chance + 1e-9
        else int(np.flatnonzero(allowed >= highest - 1e-9)[0])
    )


def placed(before: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels (M,) after a new clustering: those of ``before`` stay; -1 there takes that of most new neighbours.

    Examples
    --------
    >>> placed(np.array([0, 1, 1, -1, -1]), np.array([0, 2, 2, 2, 1])).tolist()
    [0, 1, 1, 1, 2]
    """
    out, seen = before.copy(), before >= 0
    for cluster in np.unique(labels[~seen]):
        around = before[(labels == cluster) & seen]
        out[(labels == cluster) & ~seen] = (
            np.bincount(around).argmax() if len(around) else out.max() + 1
        )
    return out
