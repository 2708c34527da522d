"""Weights that are non-negative and sum to 1: the nearest ones to any numbers."""

from __future__ import annotations

import numpy as np


def nearest_weights(v: np.ndarray) -> np.ndarray:
    """Project rows on the probability simplex: ``argmin ||x - v||^2`` over ``x >= 0, sum(x) = 1``.

    The solution is ``max(v - t, 0)`` with the one t for which this sums to 1 (Held, Wolfe and Crowder 1974); sorting
    finds it. It also minimises ``a ||x - p||^2 + d x`` for ``v = p - d / (2 a)``.

    Parameters
    ----------
    v : array (..., n)

    Returns
    -------
    ndarray of float64, shape (..., n)

    Examples
    --------
    >>> nearest_weights(np.array([0.5, 0.5, -0.2])).tolist(), nearest_weights(np.array([3.0, 1.0])).tolist()
    ([0.5, 0.5, 0.0], [1.0, 0.0])
    """
    v = np.asarray(v, dtype=np.float64)
    v = v - v.max(axis=-1, keepdims=True)  # moves nothing, and keeps large numbers from swallowing the 1
    falling = -np.sort(-v, axis=-1)
    excess = np.cumsum(falling, axis=-1) - 1.0
    count = np.arange(1, v.shape[-1] + 1)
    kept = (falling * count > excess).sum(axis=-1, keepdims=True)  # the largest entries stay above 0
    t = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    x = np.maximum(v - t, 0.0)
    return x / x.sum(axis=-1, keepdims=True)
