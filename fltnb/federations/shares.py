"""Arithmetic of dealing samples out to clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream


def members(images: ImageSet, index: np.ndarray) -> list[np.ndarray]:
    """Return the positions in ``index`` of each class, in their order."""
    return [index[images.labels[index] == c] for c in range(images.n_classes)]


def of_classes(images: ImageSet, index: np.ndarray, classes: Sequence[int]) -> np.ndarray:
    """Return the positions in ``index`` of some classes, in their order."""
    return index[np.isin(images.labels[index], classes)]


def in_turn(n_clients: int, n_clusters: int) -> np.ndarray:
    """Return clusters (M,) of clients numbered cluster by cluster, as evenly as possible, the first with one more.

    Raises FltnbError where there are more clusters than clients.
    """
    if n_clients < n_clusters:
        raise FltnbError(f"There are more clusters ({n_clusters}) than clients ({n_clients}): ask for fewer clusters.")
    return np.sort(np.arange(n_clients) % n_clusters)


def level(total: int, caps: np.ndarray) -> np.ndarray:
    """Divide ``total`` over bins as evenly as their capacities ``caps`` (K,) allow, int64 (K,).

    The result sums to ``min(total, caps.sum())``; bins below their cap differ by at most 1, earlier ones get the extra.

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
    """Divide ``total`` in proportion to ``weights`` (M,), not all 0, by largest remainders (ties: the earlier one).

    The result, int64 (M,), sums to ``total``; each entry is its exact share rounded down or up.

    Examples
    --------
    >>> apportion(5, np.array([2, 1, 1])).tolist()
    [3, 1, 1]
    """
    exact = total * np.asarray(weights, dtype=np.float64) / np.sum(weights)
    shares = np.floor(exact).astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[: total - int(shares.sum())]] += 1
    return shares


def training_index(images: ImageSet, n: int | None, seed: int) -> np.ndarray:
    """Return ``n`` random training images (None: all), balanced as the counts of classes allow, in data-set order."""
    if n is None:
        return images.train_index
    by_class = members(images, images.train_index)
    shares = level(n, np.array([len(held) for held in by_class]))
    rng = stream(seed, "partition", 0, 1)
    return np.sort(np.concatenate([rng.permutation(held)[:n] for held, n in zip(by_class, shares, strict=True)]))


def hand_out(by_class: list[np.ndarray], wanted: np.ndarray, seed: int) -> list[tuple[np.ndarray, ...]]:
    """Deal the shuffled images of every class to clients, ``wanted`` (M, K) each, none twice: pieces[client][class]."""
    # keys start at 1: NumPy's SeedSequence takes a trailing 0 for nothing, which is the stream of label_clusters' order
    pieces = [
        np.split(stream(seed, "partition", 1 + c).permutation(held), np.cumsum(wanted[:, c]))[:-1]
        for c, held in enumerate(by_class)
    ]
    return list(zip(*pieces, strict=True))


def deal(
    index: np.ndarray, labels: np.ndarray, n_clients: int, each: int | None, rng: np.random.Generator, what: str
) -> list[np.ndarray]:
    """Divide images at random over clients, so that all have every class in the same numbers (to within one or two).

    ``index`` are positions in ``labels``, ``each`` the images per client (None deals all), ``what`` names the images in
    messages. Returns ``n_clients`` disjoint arrays, each sorted by class, or raises FltnbError for too few images, or
    fewer per client than there are classes.
    """
    index = rng.permutation(index)
    index = index[np.argsort(labels[index], kind="stable")]
    parts = [index[client::n_clients] for client in range(n_clients)]
    fewest, classes = len(index) // n_clients, len(np.unique(labels[index]))
    wanted = fewest if each is None else each
    if wanted > fewest:
        raise FltnbError(
            f"{n_clients} clients with {each} {what} images each need {n_clients * each} of {len(index)}: take fewer."
        )
    if wanted < classes:
        raise FltnbError(f"{wanted} {what} images per client are fewer than the {classes} classes: give each more.")
    return parts if each is None else [part[spread(len(part), each)] for part in parts]


def hold_out(own: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Divide one client's images, sorted by class, into those to keep and a share of every class held back.

    Raises FltnbError where the share comes to no image.
    """
    held = round(fraction * len(own))
    if fraction > 0 and held == 0:
        raise FltnbError(f"A share of {fraction:g} of {len(own)} images is no image: hold more back or give more.")
    place = spread(len(own), held)
    return np.delete(own, place), own[place]


def spread(size: int, n: int) -> np.ndarray:
    """Positions of ``n`` of ``size`` places at equal distances, ascending.

    Examples
    --------
    >>> spread(10, 3).tolist()
    [1, 5, 8]
    """
    return ((np.arange(n) + 0.5) * size / max(n, 1)).astype(np.int64)
