"""Dividing samples over clients in whole numbers, and pools of images made for them.

Positions are int64 indices into the arrays of an image set. First numbers are decided
(:func:`level`, :func:`apportion`: how many images of each class a client gets), then
the images themselves (:func:`hand_out`, :func:`deal`: which ones). Shares are never
rounded one by one, as they would then not sum to the images that there are.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream


def members(images: ImageSet, index: np.ndarray) -> list[np.ndarray]:
    """Return the positions in ``index`` of each class, in their order."""
    labels = images.labels[index]
    return [index[labels == c] for c in range(images.n_classes)]


def of_classes(
    images: ImageSet, index: np.ndarray, classes: Sequence[int]
) -> np.ndarray:
    """Return the positions in ``index`` of some classes, in the order of ``index``."""
    return index[np.isin(images.labels[index], classes)]


def in_turn(n_clients: int, n_clusters: int) -> np.ndarray:
    """Return clusters (M,) of clients that are numbered by cluster.

    Sizes are as even as possible, the first clusters with one client more. Raises
    FltnbError if there are fewer clients than clusters.

    Examples
    --------
    >>> in_turn(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    if n_clients < n_clusters:
        raise FltnbError(
            f"There are more clusters ({n_clusters}) than clients ({n_clients}): ask "
            "for fewer clusters."
        )
    return np.sort(np.arange(n_clients) % n_clusters)


def place_in_cluster(clusters: np.ndarray) -> np.ndarray:
    """Return each client's position in its cluster; ``clusters`` are ascending.

    For clusters 0, 0, 0, 1, 1 the positions are 0, 1, 2, 0, 1.
    """
    first_of_cluster = np.searchsorted(clusters, clusters)
    return np.arange(len(clusters)) - first_of_cluster


def level(total: int, caps: np.ndarray) -> np.ndarray:
    """Divide ``total`` over bins as evenly as their capacities ``caps`` (K,) allow.

    The result, int64 (K,), sums to ``min(total, caps.sum())``; bins below their cap
    differ by at most 1, earlier ones get the extra.

    Examples
    --------
    >>> level(10, np.array([2, 9, 9])).tolist()
    [2, 4, 4]
    """
    caps = np.asarray(caps, dtype=np.int64)
    shares = np.zeros_like(caps)
    left = min(total, int(caps.sum()))
    while left > 0:
        free = np.flatnonzero(shares < caps)
        each = left // len(free)
        if each == 0:  # less is left than one for each free bin
            shares[free[:left]] += 1
            break
        room = (caps - shares)[free]
        added = np.minimum(each, room)
        shares[free] += added
        left -= int(added.sum())
    return shares


def apportion(total: int, weights: np.ndarray) -> np.ndarray:
    """Divide ``total`` in proportion to ``weights`` (M,), not all 0.

    Largest remainders (ties: the earlier one). The result, int64 (M,), sums to
    ``total``; each entry is its exact share rounded down or up.

    Examples
    --------
    >>> apportion(5, np.array([2, 1, 1])).tolist()
    [3, 1, 1]
    """
    exact = total * np.asarray(weights, dtype=np.float64) / np.sum(weights)
    shares = np.floor(exact).astype(np.int64)
    left = total - int(shares.sum())
    largest_remainder_first = np.argsort(shares - exact, kind="stable")
    shares[largest_remainder_first[:left]] += 1
    return shares


def training_index(images: ImageSet, n: int | None, seed: int) -> np.ndarray:
    """Return ``n`` random training images (None: all), in data-set order.

    They are balanced as far as the counts of classes allow.
    """
    if n is None:
        return images.train_index
    by_class = members(images, images.train_index)
    shares = level(n, np.array([len(held) for held in by_class]))
    rng = stream(seed, "partition", 0, 1)
    drawn = []
    for held, share in zip(by_class, shares, strict=True):
        shuffled = rng.permutation(held)
        drawn.append(shuffled[:share])
    return np.sort(np.concatenate(drawn))


def hand_out(
    seed: int, *parts: tuple[list[np.ndarray], np.ndarray]
) -> list[list[list[np.ndarray]]]:
    """Divide the shuffled images of every class over clients, none twice.

    Parameters
    ----------
    seed : int
    *parts : pairs
        Of training or of test images: the positions of each class (K arrays), and how
        many of them each client gets, (M, K).

    Returns
    -------
    list
        ``pieces[client][class]`` of each part: arrays of positions.

    Examples
    --------
    Two classes of 3 and 2 images; client 0 gets 2 and 0 of them, client 1 gets 1 and 2:

    >>> by_class = [np.array([0, 1, 2]), np.array([3, 4])]
    >>> (pieces,) = hand_out(0, (by_class, np.array([[2, 0], [1, 2]])))
    >>> [[len(piece) for piece in client] for client in pieces]
    [[2, 0], [1, 2]]
    """
    dealt: list[list[list]] = []
    for _, wanted in parts:
        n_clients = len(wanted)
        dealt.append([[] for _ in range(n_clients)])
    first_by_class, _ = parts[0]
    for c in range(len(first_by_class)):
        rng = stream(seed, "partition", 1 + c)
        for clients, (by_class, wanted) in zip(dealt, parts, strict=True):
            shuffled = rng.permutation(by_class[c])
            ends = np.cumsum(wanted[:, c])
            pieces = np.split(shuffled, ends)[:-1]  # the last piece is the rest
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
    """Divide images at random, so that every client has equally many of each class.

    Numbers of a class differ by one or two between clients.

    Parameters
    ----------
    index : ndarray of int
        Positions in ``labels`` of the images to divide.
    labels : ndarray of int
        Of all images.
    n_clients : int
    each : int, optional
        Images per client; None divides all.
    rng : numpy.random.Generator
    what : str
        Name of the images in messages.

    Returns
    -------
    list of ``n_clients`` disjoint arrays of positions, each sorted by class

    Notes
    -----
    The shuffled images are sorted by class and dealt out like cards. With ``each`` less
    than a client has, it keeps images at equal distances in its sorted ones, so that
    its mixture of classes stays the same.
    """
    index = rng.permutation(index)
    index = index[np.argsort(labels[index], kind="stable")]
    parts = [index[client::n_clients] for client in range(n_clients)]
    fewest = len(index) // n_clients
    n_classes = len(np.unique(labels[index]))
    wanted = fewest if each is None else each
    if wanted > fewest:
        raise FltnbError(
            f"{n_clients} clients with {each} {what} images each need more than "
            f"there are ({len(index)}): ask for fewer."
        )
    if wanted < n_classes:
        raise FltnbError(
            f"{wanted} {what} images per client are fewer than the {n_classes} "
            "classes: give each more."
        )
    if each is None:
        return parts
    return [part[spread(len(part), each)] for part in parts]


def hold_out(own: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Hold back a share of every class of one client's images.

    Parameters
    ----------
    own : ndarray of int
        Positions of its images, sorted by class.
    fraction : float
        The share.

    Returns
    -------
    kept, held : ndarrays of int
    """
    n_held = round(fraction * len(own))
    if fraction > 0 and n_held == 0:
        raise FltnbError(
            f"A share of {fraction:g} of a client's {len(own)} images is less than one "
            "image: raise the share, or give each client more images."
        )
    place = spread(len(own), n_held)
    return np.delete(own, place), own[place]


def spread(size: int, n: int) -> np.ndarray:
    """Return positions of ``n`` of ``size`` places at equal distances, ascending.

    Examples
    --------
    >>> spread(10, 3).tolist()
    [1, 5, 8]
    """
    middles = np.arange(n) + 0.5  # of n equal pieces
    places = middles * size / max(n, 1)
    return places.astype(np.int64)


class Drawn(NamedTuple):
    """What the next client has in a split.

    Attributes
    ----------
    split : str
    images : ndarray (n, ...)
    labels : ndarray (n,)
    copied : ndarray of bool (n,)
        Images that were made of copies: see :class:`fltnb.ImageSet`.
    """

    split: str
    images: np.ndarray
    labels: np.ndarray
    copied: np.ndarray


def pooled(parts: Iterable[Drawn]) -> dict[str, Any]:
    """Return images, labels and splits for a Federation of images made for it.

    A part is what the next client has in a split. With 3 training
    images of client 0, 2 of client 1, and 1 test image of client 0, in this order, the
    positions are [0, 1, 2] and [3, 4] in "train", and [5] in "test".
    """
    splits: dict[str, list[np.ndarray]] = {}
    start = 0
    parts = list(parts)
    for part in parts:
        end = start + len(part.labels)
        of_split = splits.setdefault(part.split, [])
        of_split.append(np.arange(start, end))
        start = end
    fields: dict[str, Any] = dict(splits)
    for name in ("images", "labels", "copied"):
        fields[name] = np.concatenate([getattr(part, name) for part in parts])
    return fields


class Dealt(NamedTuple):
    """Positions in the image set of the next client's samples in a group.

    ``split``: "train", "val" or "test".
    """

    split: str
    group: int
    index: np.ndarray  # type: ignore[assignment]  # tuple.index is not used


def deal_copies(
    images: ImageSet,
    groups: np.ndarray,
    each: tuple[int | None, int | None],
    val_fraction: float,
    keys: tuple[int, int],
    classes: Sequence[Sequence[int]] | None = None,
) -> list[Dealt]:
    """Copy an image set for each group of clients, and deal the copy out to them.

    So clients of different groups may hold the same image, those of one group do not.

    Parameters
    ----------
    groups : ndarray of int, shape (M,), the clients' groups, ascending
    each
        A client's numbers of training and validation images, and of test images; None
        deals all.
    keys : partition seed, and the kind's number of random streams
    classes : which classes each group has a copy of; all by default
    """
    seed, key = keys
    each_train, each_test = each
    parts = []
    for group, n_clients in enumerate(np.bincount(groups).tolist()):
        train = images.train_index
        test = images.test_index
        if classes is not None:
            train = of_classes(images, train, classes[group])
            test = of_classes(images, test, classes[group])

        rng = stream(seed, "partition", key, group, 0)
        for own in deal(train, images.labels, n_clients, each_train, rng, "training"):
            kept, held = hold_out(own, val_fraction)
            parts.append(Dealt("train", group, kept))
            parts.append(Dealt("val", group, held))

        rng = stream(seed, "partition", key, group, 1)
        for own in deal(test, images.labels, n_clients, each_test, rng, "test"):
            parts.append(Dealt("test", group, own))
    return parts
