"""Images that a federation owns: drawn anew for its clients, part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..data import ImageSet
from ..randomness import stream
from .shares import deal, hold_out, of_classes

Draw = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""Turns the number of a group, its images and their labels into the images that a client holds."""


class Pool:
    """Images, labels and positions in them; what is added is what the next client has in one split."""

    def __init__(self) -> None:
        self._images, self._labels, self._parts, self._size = [], [], {}, 0

    def add(self, split: str, images: np.ndarray, labels: np.ndarray) -> None:
        """Append the next client's part of a split."""
        self._images.append(images)
        self._labels.append(labels)
        self._parts.setdefault(split, []).append(np.arange(self._size, self._size + len(labels)))
        self._size += len(labels)

    def fields(self) -> dict[str, Any]:
        """Return the images, labels and splits for a Federation."""
        return {"images": np.concatenate(self._images), "labels": np.concatenate(self._labels), **self._parts}


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
    tested: Draw | None = None,
    probe: Draw | None = None,
) -> dict[str, Any]:
    """Copy an image set for each group of clients, draw the copy, and deal it out: EMD-CFL's federations.

    ``groups`` (M,) are the clients' groups, ascending; ``each`` the numbers of a client's training and validation and
    of its test images (None deals all), ``keys`` the partition seed and the kind's number of random streams.
    ``classes`` says which classes each group has a copy of, ``keep`` which training positions a client of a group
    keeps. Test images are drawn by ``tested``, else by ``draw``; ``probe`` draws a second test set. Returns fields of
    the Federation.
    """
    pool, (seed, key) = Pool(), keys

    def add(split: str, group: int, own: np.ndarray, drawn: Draw) -> None:
        pool.add(split, drawn(group, images.images[own], images.labels[own]), images.labels[own])

    for group, n_clients in enumerate(np.bincount(groups)):
        dealt = []
        for number, (index, what) in enumerate(((images.train_index, "training"), (images.test_index, "test"))):
            index = index if classes is None else of_classes(images, index, classes[group])
            rng = stream(seed, "partition", key, group, number)
            dealt.append(deal(index, images.labels, int(n_clients), each[number], rng, what))
        for own in dealt[0]:
            kept, held = hold_out(own, val_fraction)
            add("train", group, keep(group, kept), draw)
            add("val", group, held, draw)
        for own in dealt[1]:
            add("test", group, own, tested or draw)
            if probe:
                add("probe", group, own, probe)
    return pool.fields()
