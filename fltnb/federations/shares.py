"""Arithmetic of dealing samples out, and the checks that all partitions share."""

from __future__ import annotations

import operator

import numpy as np

from ..data import NAMES, ImageSet
from ..errors import FltnbError
from ..randomness import stream


def integer(value: int, what: str, least: int = 1) -> int:
    """Return ``value`` as int if it is a whole number of at least ``least``, else raise FltnbError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise FltnbError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return number


def level(total: int, caps: np.ndarray) -> np.ndarray:
    """Divide ``total`` over bins as evenly as their capacities allow.

    Parameters
    ----------
    total : int
    caps : ndarray of int, shape (K,)
        Most that each bin takes.

    Returns
    -------
    ndarray of int64, shape (K,)
        Sums to ``min(total, caps.sum())``; bins below their cap differ by at most 1, earlier ones get the extra.

    Examples
    --------
    >>> level(10, np.array([2, 9, 9])).tolist()
    [2, 4, 4]
    """
    caps = np.asarray(caps, dtype=np.int64)
    shares = np.zeros_like(caps)
    while (left := min(total, int(caps.sum())) - int(shares.sum())) > 0:
        free = np.flatnonzero(shares < caps)
        each = left // len(free)
        if each == 0:
            shares[free[:left]] += 1
        else:
            shares[free] += np.minimum(each, (caps - shares)[free])
    return shares


def apportion(total: int, weights: np.ndarray) -> np.ndarray:
    """Divide ``total`` in proportion to ``weights`` by largest remainders (ties: the earlier one).

    Parameters
    ----------
    total : int
    weights : ndarray, shape (M,)
        Non-negative, not all 0.

    Returns
    -------
    ndarray of int64, shape (M,)
        Sums to ``total``; each entry is its exact share rounded down or up.

    Examples
    --------
    >>> apportion(5, np.array([2, 1, 1])).tolist()
    [3, 1, 1]
    """
    exact = total * np.asarray(weights, dtype=np.float64) / np.sum(weights)
    shares = np.floor(exact).astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[: total - int(shares.sum())]] += 1
    return shares


def training_index(images: ImageSet, max_train: int | None, seed: int) -> np.ndarray:
    """Return positions of the training images in use, in data-set order.

    With ``max_train`` it is a class-balanced random choice (as even as the counts allow) of that many.
    """
    if max_train is None:
        return images.train_index
    integer(max_train, "max_train")
    labels = images.labels[images.train_index]
    shares = level(max_train, np.bincount(labels, minlength=images.n_classes))
    rng = stream(seed, "partition", 0, 1)
    chosen = [rng.permutation(images.train_index[labels == c])[:n] for c, n in enumerate(shares)]
    return np.sort(np.concatenate(chosen))


def source(images: ImageSet) -> dict[str, str]:
    """Return the settings that name the image set; one made by the user is named by its content as well."""
    if not isinstance(images, ImageSet):
        raise FltnbError(f"Images must be an ImageSet such as fl.load('digits'), not {type(images).__name__}.")
    if images.name in NAMES:
        return {"dataset": images.name}
    return {"dataset": images.name, "content": images.digest}
