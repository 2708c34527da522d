"""Distances (M, M) between clients described by a few points (k_i, u) each, in FLT (arXiv 2103.15947) centroids.

They are float64, symmetric to the last bit, with a zero diagonal.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist


def min_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Smallest Euclidean distance over all pairs of points, one of either client (FLT, Algorithm 2, lines 15-16)."""
    starts, every = np.cumsum([0, *map(len, points[:-1])]), np.concatenate(points)
    distance = np.array([np.minimum.reduceat(cdist(own, every).min(axis=0), starts) for own in points])
    np.fill_diagonal(distance, 0.0)
    return distance


def matching_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Distance under the cheapest one-to-one matching of the points, as the authors of FLT ran it.

    The root of the matched pairs' summed squared distances is divided by the number of pairs. With different numbers of
    points the smaller set is matched into the larger one, and points left over cost nothing.
    """
    ends, every = np.cumsum([*map(len, points)]), np.concatenate(points)
    distance = np.zeros((len(points), len(points)))
    for i in range(1, len(points)):
        costs = cdist(points[i], every[: ends[i - 1]], "sqeuclidean")  # to all clients before
        for j, cost in enumerate(np.split(costs, ends[: i - 1], axis=1)):
            least = cost[linear_sum_assignment(cost)].sum()
            distance[i, j] = distance[j, i] = np.sqrt(least) / min(cost.shape)
    return distance
