"""One client per person: FEMNIST by writers, FLT's scenario 3 (Section 4.2), and CelebA by persons (FeSEM)."""

from __future__ import annotations

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from .base import Federation, pixel_scaling
from .shares import integer, source


def writers(images: ImageSet, n_clients: int = 200, seed: int | None = None) -> Federation:
    """Make every writer a client, with the training and test images that the image set gives that person.

    In CelebA the "writer" of an image is the person it shows. Nothing is drawn but, with a seed, the writers: the
    division of each person's images is the image set's own (LEAF's FEMNIST: 90 % for training);
    :func:`~fltnb.federations.divided` makes another. Writers who lack a training or a test image cannot be clients and
    are passed over.
    True clusters are unknown.

    Parameters
    ----------
    images : ImageSet
        With ``writers``, such as ``fl.load("femnist")`` or ``fl.load("celeba")``.
    n_clients : int
        M.
    seed : int, optional
        Draw the writers at random. Default: the first ones, as FLT does with 200 of them.

    Raises
    ------
    FltnbError
        The set does not say whose its images are, or has too few writers.
    """
    settings = {
        "kind": "writers",
        **source(images),
        "n_clients": integer(n_clients, "n_clients"),
        "seed": None if seed is None else integer(seed, "seed", 0),
    }
    if images.writers is None:
        raise FltnbError(
            f"{images.name} does not say whose its images are: use femnist or celeba, or make pseudo_writers of it."
        )
    held = {}
    for split, index in (("train", images.train_index), ("test", images.test_index)):
        order = index[np.argsort(images.writers[index], kind="stable")]
        names, first = np.unique(images.writers[order], return_index=True)
        held[split] = dict(zip(names.tolist(), np.split(order, first[1:]), strict=True))
    usable = np.array(sorted(held["train"].keys() & held["test"].keys()), dtype=np.int64)
    if n_clients > len(usable):
        raise FltnbError(
            f"{images.name} has {len(usable)} people with both training and test images but {n_clients} clients are"
            " wanted: ask for fewer."
        )
    chosen = usable if seed is None else stream(seed, "partition").permutation(usable)
    chosen = sorted(chosen[:n_clients].tolist())
    return Federation(
        images=images.images,
        labels=images.labels,
        n_classes=images.n_classes,
        class_names=images.class_names,
        name=images.name,
        origin=images.origin,
        settings=settings,
        train=[held["train"][writer] for writer in chosen],
        test=[held["test"][writer] for writer in chosen],
        **pixel_scaling(images.images),
    )
