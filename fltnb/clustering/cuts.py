"""The client graph, its dendrogram, and where to cut it."""

from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.sparse.csgraph import connected_components

from ..randomness import stream

CHANCE = 31  # key of the draws
RANDOM_GRAPHS = 200  # the highest of so many is exceeded by chance in half a percent

Linkage = Literal["ward", "average", "complete", "single"]


def relabel(labels: np.ndarray) -> np.ndarray:
    """Renumber labels 0, 1, ... in the order in which they first appear, int64."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rank[inverse].astype(np.int64)


def rows_linkage(adjacency: np.ndarray, method: str = "ward") -> np.ndarray:
    """SciPy linkage (M - 1, 4) of the rows of a binary adjacency (FLT, Section 4.1).

    Heights are rounded to 9 decimals, so that no cut falls between merges which are
    equally high on paper.
    """
    tree = scipy_linkage(adjacency.astype(np.float64), method)
    tree[:, 2] = np.round(tree[:, 2], 9)
    return tree


def cut(linkage: np.ndarray, n_clusters: int) -> np.ndarray:
    """Flat clusters (M,) of a dendrogram, numbered from 1 by SciPy.

    There are ``n_clusters`` or, inside a run of equally high merges, fewer.
    """
    n_clients = len(linkage) + 1
    height = 0.0
    if n_clusters < n_clients:
        height = linkage[n_clients - 1 - n_clusters, 2]

    return fcluster(linkage, height, criterion="distance")


def modularity_by_cut(adjacency: np.ndarray, linkage: np.ndarray) -> np.ndarray:
    """Newman's modularity of the client graph (M, M) for every cut of a dendrogram.

    ``Q = sum over clusters c of [A_cc / 2m - (d_c / 2m)^2]``, with A_cc the adjacency
    summed inside c, d_c its summed degrees and 2m the sum of A. The diagonal counts, so
    an isolated client is a cluster of its own. A merge changes Q by
    ``2 (A_ab / 2m - d_a d_b / (2m)^2)``.

    Returns (M + 1,); entry C: modularity of the cut into C clusters, 0 for one. NaN for
    C = 0 and for cuts inside a run of equally high merges, which would split clients
    that the dendrogram cannot tell apart.
    """
    inside = adjacency / adjacency.sum(dtype=np.float64)
    share = inside.sum(axis=1)
    excess = inside - np.outer(share, share)

    gaps, (left_size, right_size) = merge_gaps(excess, linkage)
    changes = 2 * gaps * left_size * right_size
    quality = np.trace(excess) + np.cumsum([0.0, *changes])  # of M clusters, M - 1, ...

    heights = np.diff(linkage[:, 2], prepend=0.0, append=np.inf)
    quality[heights == 0] = np.nan
    scores = np.append(quality, np.nan)[::-1]
    scores[1] = 0.0  # exactly: what is left there is rounding
    return scores


def merge_gaps(
    values: np.ndarray, tree: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Mean of values (M, M) between the two groups of every merge of a dendrogram.

    Returns these means (M - 1,) and the sizes of the two groups, (M - 1,) each. Every
    pair of clients is looked at once.
    """
    n_clients = len(values)
    members: list = [np.array([i]) for i in range(n_clients)]
    gaps = np.empty(n_clients - 1)
    sizes = np.empty((2, n_clients - 1))

    for step, (left, right) in enumerate(tree[:, :2].astype(int)):
        a = members[left]
        b = members[right]
        gaps[step] = values[np.ix_(a, b)].mean(dtype=np.float64)
        sizes[:, step] = len(a), len(b)
        members.append(np.concatenate([a, b]))
        members[left] = None  # frees memory
        members[right] = None

    return gaps, (sizes[0], sizes[1])


def chance_modularity(adjacency: np.ndarray) -> float:
    """Modularity that the best cut of a *random* graph of this size and density has.

    A share f of the adjacency is its diagonal, which lies inside whatever the cut; of
    the rest, with density p, the best cut of a random graph has about
    sqrt((1 - p) / (p M)) (Reichardt and Bornholdt, "When are networks truly modular?",
    Physica D 224, 2006): ``f + (1 - f) sqrt((1 - p) / (p M))``. Separate complete
    blocks are taken at their word: 0. For few clients the formula is far too high, and
    above what two groups can reach: see :func:`simulated_chance`.
    """
    if are_blocks(adjacency):
        return 0.0

    n_clients = len(adjacency)
    total = float(adjacency.sum())
    density = (total - n_clients) / (n_clients * (n_clients - 1))
    loops = n_clients / total
    best = np.sqrt((1 - density) / (density * n_clients))
    return float(loops + (1 - loops) * best)


def are_blocks(adjacency: np.ndarray) -> bool:
    """Whether a graph (M, M) consists of separate complete blocks."""
    _, block = np.unique(np.packbits(adjacency, 1), axis=0, return_inverse=True)
    same_block = block[:, None] == block[None, :]
    return np.array_equal(same_block, adjacency.astype(bool))


def simulated_chance(adjacency: np.ndarray, method: str = "ward") -> float:
    """Return the highest modularity of 200 random graphs of this size and density.

    Each is cut where that of its own dendrogram is highest. Separate complete blocks
    are taken at their word: 0.
    """
    if are_blocks(adjacency):
        return 0.0

    n_clients = len(adjacency)
    rows, columns = np.triu_indices(n_clients, 1)
    n_links = int(adjacency[rows, columns].sum())
    rng = stream(0, "method", CHANCE, n_clients, n_links)
    highest = 0.0
    for _ in range(RANDOM_GRAPHS):
        drawn = rng.permutation(len(rows))[:n_links]
        graph = np.eye(n_clients, dtype=np.uint8)
        graph[rows[drawn], columns[drawn]] = 1
        graph[columns[drawn], rows[drawn]] = 1
        quality = modularity_by_cut(graph, rows_linkage(graph, method))
        highest = max(highest, float(np.nanmax(quality)))
    return highest


def unlinked_apart(labels: np.ndarray, adjacency: np.ndarray) -> np.ndarray:
    """Labels (M,) of clusters divided where no link of the graph joins their parts."""
    parts = labels.copy()
    for cluster in np.unique(labels):
        inside = np.flatnonzero(labels == cluster)
        graph = adjacency[np.ix_(inside, inside)]
        _, component = connected_components(graph, directed=False)
        parts[inside] = component + parts.max() + 1
    return relabel(parts)


def best_cut(
    criterion: np.ndarray, chance: float = 0.0, max_clusters: int | None = None
) -> int:
    """Return the number of clusters with the highest ``criterion`` (M + 1,).

    The fewer if tied; one cluster if nothing is above ``chance``.
    """
    allowed = criterion
    if max_clusters is not None:
        allowed = criterion[: max_clusters + 1]

    highest = np.nanmax(allowed)
    if highest <= chance + 1e-9:
        return 1
    return int(np.flatnonzero(allowed >= highest - 1e-9)[0])


def placed(before: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels (M,) after a new clustering, which moves no client that has one.

    Clients with -1 in ``before`` take the label of most of their new neighbours, or a
    new one where all of these are new too.

    Examples
    --------
    >>> placed(np.array([0, 1, 1, -1, -1]), np.array([0, 2, 2, 2, 1])).tolist()
    [0, 1, 1, 1, 2]
    """
    out = before.copy()
    seen = before >= 0

    for cluster in np.unique(labels[~seen]):
        inside = labels == cluster
        neighbours = before[inside & seen]
        label = out.max() + 1
        if len(neighbours):
            label = np.bincount(neighbours).argmax()
        out[inside & ~seen] = label

    return out
