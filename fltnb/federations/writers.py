"""One client per person: FEMNIST by writers, FLT's scenario 3 (arXiv 2103.15947, Section 4.2), and FeSEM's CelebA."""

from __future__ import annotations

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural
from .base import Federation
from .kinds import kind


@kind
def writers(images: ImageSet, /, n_clients: Count = 200, seed: Natural | None = None) -> Federation:
    """Make every writer a client, with the training and test images that the image set gives that person.

    Scenario 3 of FLT (arXiv 2103.15947, Section 4.2). In CelebA (FeSEM, arXiv 2108.08647, Section 6.1) the "writer" of
    an image is the person it shows. Nothing is drawn but, with a seed, the writers: the division of each person's
    images is the image set's own (LEAF's FEMNIST: 90 % for training); :func:`~fltnb.federations.divided` makes another.
    Writers who lack a training or a test image cannot be clients and are passed over. True clusters are unknown.

    Without a seed the writers are the first ones, as FLT does with 200 of them. Raises FltnbError for a set without
    ``writers``, unlike ``fl.load("femnist")`` and ``fl.load("celeba")``, or with too few of them.
    """
    if images.writers is None:
        raise FltnbError(f"{images.name} does not say whose its images are: take femnist, celeba or pseudo_writers.")
    held = {}
    for split, index in (("train", images.train_index), ("test", images.test_index)):
        order = index[np.argsort(images.writers[index], kind="stable")]
        names, first = np.unique(images.writers[order], return_index=True)
        held[split] = dict(zip(names.tolist(), np.split(order, first[1:]), strict=True))
    usable = np.array(sorted(held["train"].keys() & held["test"].keys()), dtype=np.int64)
    if n_clients > len(usable):
        raise FltnbError(
            f"{images.name} has {len(usable)} people with both training and test images but {n_clients} are wanted."
        )
    chosen = usable if seed is None else stream(seed, "partition").permutation(usable)
    chosen = sorted(chosen[:n_clients].tolist())
    return Federation.of(images, **{split: [of[writer] for writer in chosen] for split, of in held.items()})
