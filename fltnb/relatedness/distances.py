"""Distances (M, M) between clients described by a few points (k_i, u) each, in FLT (arXiv 2103.15947) centroids.

They are float64, symmetric to the last bit, with a zero diagonal.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

LARGEST_ENUMERATED = 8  # above it 2^k partial matchings cost more than one linear assignment per pair of clients
CELLS_AT_ONCE = 2_000_000  # cells of one working array: bounds the memory, not the result


def min_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Smallest Euclidean distance over all pairs of points, one of either client (FLT, Algorithm 2, lines 15-16)."""
    k_max = max(map(len, points))
    # A repeated point never changes a minimum, so it is a safe filler for clients with fewer points.
    filled = np.stack([np.concatenate([p, np.repeat(p[:1], k_max - len(p), axis=0)]) for p in points]).astype(float)
    distance = np.full((len(filled), len(filled)), np.inf)
    for r in range(k_max):
        for s in range(r, k_max):
            np.minimum(distance, cdist(filled[:, r], filled[:, s]), out=distance)
    return _symmetric(distance)


def matching_distances(points: Sequence[np.ndarray]) -> np.ndarray:
    """Distance under the cheapest one-to-one matching of the points, as the authors of FLT ran it.

    The root of the matched pairs' summed squared distances is divided by the number of pairs. With different numbers of
    points the smaller set is matched into the larger one, and points left over cost nothing.
    """
    sizes = np.array([len(p) for p in points])
    distance = np.full((len(points), len(points)), np.inf)
    groups = [np.flatnonzero(sizes == k) for k in np.unique(sizes)]
    for small, large in combinations_with_replacement(groups, 2):
        few, many = (np.stack([points[i] for i in group]).astype(np.float64) for group in (small, large))
        distance[np.ix_(small, large)] = np.sqrt(_matching_cost(few, many)) / few.shape[1]
    return _symmetric(distance)


def _symmetric(distance: np.ndarray) -> np.ndarray:
    """Make (i, j) and (j, i) the same number: sums in another order differ in the last bit."""
    distance = np.minimum(distance, distance.T)
    np.fill_diagonal(distance, 0.0)
    return distance


def _matching_cost(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    """Return the least sum of squared distances, (A, a, u) against (B, b, u) with a <= b, as (A, B)."""
    rows = max(1, CELLS_AT_ONCE // (len(many) * few.shape[1] * many.shape[1]))
    solve = _by_subsets if many.shape[1] <= LARGEST_ENUMERATED else _by_assignment
    return np.concatenate([solve(few[at : at + rows], many) for at in range(0, len(few), rows)])


def _squared(few: np.ndarray, many: np.ndarray) -> list[list[np.ndarray]]:
    return [[cdist(few[:, r], many[:, s], "sqeuclidean") for s in range(many.shape[1])] for r in range(few.shape[1])]


def _by_subsets(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    """``best[S]``: least cost of matching the first ``len(S)`` rows to the columns ``S``, for all pairs at once."""
    costs = _squared(few, many)
    best: dict[tuple[int, ...], np.ndarray] = {(): np.zeros((len(few), len(many)))}
    for r in range(few.shape[1]):
        following = {}
        for columns in combinations(range(many.shape[1]), r + 1):
            each = (best[columns[:at] + columns[at + 1 :]] + costs[r][s] for at, s in enumerate(columns))
            following[columns] = functools.reduce(np.minimum, each)
        best = following
    return functools.reduce(np.minimum, best.values())


def _by_assignment(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    costs = np.array(_squared(few, many)).transpose(2, 3, 0, 1)
    return np.array([[cost[linear_sum_assignment(cost)].sum() for cost in row] for row in costs])
