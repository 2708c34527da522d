"""Dealing samples out to clients, in whole numbers and without repetition, and pools of images drawn for them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream

Draw = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""Turns the number of a group, its images and their labels into the images that a client holds."""


def members(images: ImageSet, index: np.ndarray) -> list[np.ndarray]:
    """Return the positions in ``index`` of each class, in their order."""
    return [index[images.labels[index] == c] for c in range(images.n_classes)]


def of_classes(
    images: ImageSet, index: np.ndarray, classes: Sequence[int]
) -> np.ndarray:
    """Return the positions in ``index`` of some classes, in their order."""
    return index[np.isin(images.labels[index], classes)]


def in_turn(n_clients: int, n_clusters: int) -> np.ndarray:
    """Return clusters (M,) of clients numbered cluster by cluster, as evenly as possible, the first with one more."""
    if n_clients < n_clusters:
        raise FltnbError(
            f"There are more clusters ({n_clusters}) than clients ({n_clients}): ask for fewer clusters."
        )
    return np.sort(np.arange(n_clients) % n_clusters)


def place_in_cluster(clusters: np.ndarray) -> np.ndarray:
    """Return each client's place in its cluster, from 0; ``clusters`` are ascending."""
    return np.arange(len(clusters)) - np.searchsorted(clusters, clusters)


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
    return np.sort(
        np.concatenate(
            [
                rng.permutation(held)[:n]
                for held, n in zip(by_class, shares, strict=True)
            ]
        )
    )


def hand_out(
    seed: int, *parts: tuple[list[np.ndarray], np.ndarray]
) -> list[list[list[np.ndarray]]]:
    """Deal the shuffled images of every class to clients, none twice.

    A part, of training or of test images, is the positions of each class and how many
    of them each client gets, (M, K). Returns pieces[client][class] of each part.
    """
    dealt = [[[] for _ in wanted] for _, wanted in parts]
    for c in range(len(parts[0][0])):
        rng = stream(seed, "partition", 1 + c)
        for clients, (by_class, wanted) in zip(dealt, parts, strict=True):
            cuts = np.cumsum(wanted[:, c])
            pieces = np.split(rng.permutation(by_class[c]), cuts)[:-1]
            for held, piece in zip(clients, pieces, strict=True):
                held.append(piece)
    return dealt


def deal(
    index: np.ndarray,
    labels: np.ndarray,
    n_clients: int,
    each: int | None,
    rng: np.random.Generator,
    what: str,
) -> list[np.ndarray]:
    """Divide images at random over clients, so that all have every class in the same numbers (to within one or two).

    ``index`` are positions in ``labels``, ``each`` the images per client (None deals all), ``what`` names the images in
    messages. Returns ``n_clients`` disjoint arrays, each sorted by class.
    """
    index = rng.permutation(index)
    index = index[np.argsort(labels[index], kind="stable")]
    parts = [index[client::n_clients] for client in range(n_clients)]
    fewest, classes = len(index) // n_clients, len(np.unique(labels[index]))
    wanted = fewest if each is None else each
    if wanted > fewest:
        raise FltnbError(
            f"{n_clients} clients with {each} {what} images each need more than {len(index)}: take fewer."
        )
    if wanted < classes:
        raise FltnbError(
            f"{wanted} {what} images per client are fewer than the {classes} classes: give each more."
        )
    return parts if each is None else [part[spread(len(part), each)] for part in parts]


def hold_out(own: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Divide one client's images, sorted by class, into those to keep and a share of every class held back."""
    held = round(fraction * len(own))
    if fraction > 0 and held == 0:
        raise FltnbError(
            f"A share of {fraction:g} of {len(own)} images is no image: hold more back or give more."
        )
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


def pooled(parts: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Return images, labels and splits for a Federation that owns its images, drawn anew.

    A part is a split, and images and labels of the next client in it.
    """
    names, images, labels = zip(*parts, strict=True)
    splits: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for name, end, own in zip(
        names, np.cumsum([len(own) for own in labels]), labels, strict=True
    ):
        splits[name].append(np.arange(end - len(own), end))
    return {
        "images": np.concatenate(images),
        "labels": np.concatenate(labels),
        **splits,
    }


def copies(
    images: ImageSet,
    groups: np.ndarray,
    each: tuple[int | None, int | None],
    val_fraction: float,
    keys: tuple[int, int],
    draw: Draw,
    *,
    classes: Sequence[np.ndarray] | None = None,
    keep: Callable[[int, np.ndarray], np.ndarray] = lambda group, own: own,
    tests: dict[str, Draw] | None = None,
) -> dict[str, Any]:
    """Copy an image set for each group of clients, draw the copy, deal it out; return fields of the Federation.

    ``groups`` (M,) are the clients' groups, ascending; ``each`` the numbers of a client's training and validation and
    of its test images (None deals all), ``keys`` the partition seed and the kind's number of random streams.
    ``classes`` says which classes each group has a copy of, ``keep`` which training positions a client of a group
    keeps, ``tests`` how the splits "test" and "probe" are drawn (default: a test by ``draw``).
    """
    parts, (seed, key) = [], keys
    for group, n_clients in enumerate(np.bincount(groups)):
        dealt = []
        for number, (index, what) in enumerate(
            ((images.train_index, "training"), (images.test_index, "test"))
        ):
            index = (
                index if classes is None else of_classes(images, index, classes[group])
            )
            rng = stream(seed, "partition", key, group, number)
            dealt.append(
                deal(index, images.labels, int(n_clients), each[number], rng, what)
            )
        for own in dealt[0]:
            kept, held = hold_out(own, val_fraction)
            parts += [
                ("train", group, keep(group, kept), draw),
                ("val", group, held, draw),
            ]
        for own in dealt[1]:
            parts += [
                (split, group, own, drawn)
                for split, drawn in (tests or {"test": draw}).items()
            ]
    pixels, labels = images.images, images.labels
    return pooled(
        (name, drawn(group, pixels[own], labels[own]), labels[own])
        for name, group, own, drawn in parts
    )
