"""The client graph, its dendrogram, and where to cut it."""

from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform

from ..randomness import stream

CHANCE = 31  # key of the draws
RANDOM_GRAPHS = 200  # another one exceeds their maximum with probability 0.5 %

Linkage = Literal["ward", "average", "complete", "single"]


def relabel(labels: np.ndarray) -> np.ndarray:
    """Renumber labels 0, 1, ... in the order in which they first appear, int64."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rank[inverse].astype(np.int64)


def rows_linkage(adjacency: np.ndarray, method: str = "ward") -> np.ndarray:
    """SciPy linkage (M - 1, 4) of the rows of a binary adjacency (FLT, Section 4.1).

    Heights are rounded to 9 decimals, so that no cut is between merges which are
    equally high in exact arithmetic.
    """
    tree = scipy_linkage(_between_rows(adjacency), method)
    tree[:, 2] = np.round(tree[:, 2], 9)
    return tree


def _between_rows(adjacency: np.ndarray) -> np.ndarray:
    """Return Euclidean distances of the rows, condensed: exact, by one product.

    The number of ones that two rows share is a whole number, which float32 represents
    exactly up to 16 million.
    """
    rows = adjacency.astype(np.float32)
    ones = rows.sum(axis=1)
    squared = ones[:, None] + ones - 2 * (rows @ rows.T)
    return np.sqrt(squareform(squared, checks=False).astype(np.float64))


def distance_linkage(distance: np.ndarray, method: str) -> np.ndarray:
    """SciPy linkage (M - 1, 4) of distances (M, M)."""
    condensed = squareform(distance, checks=False)  # the upper triangle, row by row
    return scipy_linkage(condensed, method)


def cut(linkage: np.ndarray, n_clusters: int) -> np.ndarray:
    """Cut a dendrogram into flat clusters.

    Parameters
    ----------
    linkage : ndarray, shape (M - 1, 4)
        SciPy's, of M clients.
    n_clusters : int
        The wanted number; there are fewer if the cut is among equally high merges.

    Returns
    -------
    ndarray of int, shape (M,)
        Labels, numbered from 1.
    """
    n_clients = len(linkage) + 1
    height = 0.0
    if n_clusters < n_clients:
        height = linkage[n_clients - 1 - n_clusters, 2]

    return fcluster(linkage, height, criterion="distance")


def largest_gap(linkage: np.ndarray) -> int:
    """Return the number of clusters from a cut in the largest gap between two merges.

    Parameters
    ----------
    linkage : ndarray, shape (M - 1, 4)
        SciPy's, of M clients.

    Examples
    --------
    >>> import numpy as np
    >>> merges = [[0, 1, 0.1, 2], [2, 4, 0.2, 3], [3, 5, 0.9, 4]]
    >>> largest_gap(np.array(merges))
    2
    """
    heights = linkage[:, 2]
    if len(heights) < 2:
        return 1
    gaps = np.diff(heights)
    return len(heights) - int(gaps.argmax())


def modularity_by_cut(adjacency: np.ndarray, linkage: np.ndarray) -> np.ndarray:
    """Return Newman's modularity of the client graph (M, M) for every cut.

    ``Q = sum over clusters c of [A_cc / 2m - (d_c / 2m)^2]``, with A_cc the adjacency
    summed inside c, d_c its summed degrees and 2m the sum of A. The diagonal counts, so
    an isolated client is a cluster of its own. A merge of clusters a and b changes Q by
    ``2 (A_ab / 2m - d_a d_b / (2m)^2)``.

    Parameters
    ----------
    adjacency : ndarray, shape (M, M)
        Symmetric, of zeros and ones, its diagonal 1.
    linkage : ndarray, shape (M - 1, 4)

    Returns
    -------
    ndarray, shape (M + 1,)
        Entry C: modularity of the cut into C clusters, 0 for one. NaN for C = 0 and for
        cuts among equally high merges, which would separate clients that the dendrogram
        does not distinguish.
    """
    inside = adjacency / adjacency.sum(dtype=np.float64)  # A / 2m
    share = inside.sum(axis=1)  # d / 2m
    excess = inside - np.outer(share, share)

    gaps, (left_size, right_size) = merge_gaps(excess, linkage)
    changes = 2 * gaps * left_size * right_size
    quality = np.trace(excess) + np.cumsum([0.0, *changes])  # of M clusters, M - 1, ...

    rise = np.diff(linkage[:, 2], prepend=0.0, append=np.inf)
    quality[rise == 0] = np.nan
    scores = np.append(quality, np.nan)[::-1]
    scores[1] = 0.0  # exactly: what is left there is rounding
    return scores


def merge_gaps(
    values: np.ndarray, tree: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the mean of values between the two groups of every merge.

    Every pair of clients is used once.

    Parameters
    ----------
    values : ndarray, shape (M, M)
        Of every pair of clients.
    tree : ndarray, shape (M - 1, 4)
        SciPy's linkage.

    Returns
    -------
    gaps : ndarray, shape (M - 1,)
        The means, in the order of merges.
    sizes : tuple of two ndarrays, shape (M - 1,) each
        Clients of the two groups.
    """
    n_clients = len(values)
    # Clients of every group that has not been merged yet, by its number in the tree:
    # clients first, then merges in their order.
    members = {i: np.array([i]) for i in range(n_clients)}
    gaps = np.empty(n_clients - 1)
    left_size = np.empty(n_clients - 1)
    right_size = np.empty(n_clients - 1)

    for step, (left, right) in enumerate(tree[:, :2].astype(int)):
        a = members.pop(left)
        b = members.pop(right)
        between = values[np.ix_(a, b)]
        gaps[step] = between.mean(dtype=np.float64)
        left_size[step] = len(a)
        right_size[step] = len(b)
        members[n_clients + step] = np.concatenate([a, b])

    return gaps, (left_size, right_size)


def chance_modularity(adjacency: np.ndarray) -> float:
    """Return the modularity of the best cut of a *random* graph of equal density.

    A share f of the adjacency is its diagonal, which is inside every cut. For the rest,
    with density p, the best cut of a random graph has about sqrt((1 - p) / (p M))
    (Reichardt and Bornholdt, "When are networks truly modular?", Physica D 224, 2006):
    ``f + (1 - f) sqrt((1 - p) / (p M))``. Separate complete blocks are always accepted:
    0. For few clients the formula is far too high, above what two groups can reach: see
    :func:`simulated_chance`.
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
    """Return whether a graph (M, M) consists of separate complete blocks."""
    rows = np.packbits(adjacency, axis=1)  # an eighth of the memory to sort
    _, block = np.unique(rows, axis=0, return_inverse=True)
    block = block.reshape(-1)  # NumPy 2.0 returned a second dimension
    same_block = block[:, None] == block
    return np.array_equal(same_block, adjacency.astype(bool))


def simulated_chance(adjacency: np.ndarray, method: str = "ward") -> float:
    """Return the highest modularity of 200 random graphs of this size and density.

    Each is cut where the modularity of its own dendrogram is highest. If the given
    graph consists of separate complete blocks the result is 0, so that these are
    clusters.

    Parameters
    ----------
    adjacency : ndarray of uint8, shape (M, M)
        Only its numbers of clients and of links matter: a random graph has the same,
        between pairs that are drawn at random.
    method : str
        Linkage of the dendrograms.
    """
    if are_blocks(adjacency):
        return 0.0

    n_clients = len(adjacency)
    left, right = np.triu_indices(n_clients, 1)  # all pairs of clients
    n_links = int(adjacency[left, right].sum())
    rng = stream(0, "method", CHANCE, n_clients, n_links)

    highest = 0.0
    for _ in range(RANDOM_GRAPHS):
        linked = rng.permutation(len(left))[:n_links]
        a = left[linked]
        b = right[linked]
        graph = np.eye(n_clients, dtype=np.uint8)
        graph[a, b] = 1
        graph[b, a] = 1
        tree = rows_linkage(graph, method)
        best = np.nanmax(modularity_by_cut(graph, tree))
        highest = max(highest, float(best))
    return highest


def unlinked_apart(labels: np.ndarray, adjacency: np.ndarray) -> np.ndarray:
    """Return labels (M,) of clusters, divided into parts that no link joins."""
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
    """Return the number of clusters with the highest criterion; if tied, the fewest.

    Parameters
    ----------
    criterion : ndarray, shape (M + 1,)
        Entry C is that of C clusters; NaN if there is no such cut.
    chance : float
        The value to exceed; otherwise it is one cluster.
    max_clusters : int, optional
        Largest number that is allowed.
    """
    allowed = criterion
    if max_clusters is not None:
        allowed = criterion[: max_clusters + 1]

    highest = np.nanmax(allowed)
    if highest <= chance + 1e-9:
        return 1
    return int(np.flatnonzero(allowed >= highest - 1e-9)[0])


def placed(before: np.ndarray, labels: np.ndarray, n_known: int = 0) -> np.ndarray:
    """Return labels after a new clustering in which labelled clients do not move.

    Parameters
    ----------
    before : ndarray of int, shape (M,)
        Labels; -1 for new clients. These take the label of most of their neighbours in
        the new clustering, or a new one if all their neighbours are new too.
    labels : ndarray of int, shape (M,)
        The new clustering.
    n_known : int
        Labels below this one are taken, also by clients that are not among these.

    Examples
    --------
    >>> placed(np.array([0, 1, 1, -1, -1]), np.array([0, 2, 2, 2, 1])).tolist()
    [0, 1, 1, 1, 2]
    """
    out = before.copy()
    old = before >= 0
    for cluster in np.unique(labels[~old]):
        inside = labels == cluster
        neighbours = before[inside & old]
        label = max(out.max() + 1, n_known)
        if len(neighbours):
            label = np.bincount(neighbours).argmax()
        out[inside & ~old] = label
    return out
