"""Clients whose images come from different domains: EMD-CFL's natural clusters, PACS."""

from __future__ import annotations

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from .base import Federation, pixel_scaling
from .dealing import deal, hold_out, optional_integer, share
from .shares import integer, source


def domains(
    images: ImageSet,
    min_samples: int = 500,
    samples_per_client: int | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> Federation:
    """Divide every domain over as many clients as can have ``min_samples`` images each (EMD-CFL, Section 4.1).

    PACS gives 18 clients: art painting 4, cartoon 4, photo 3, sketch 7, numbered in this order. The true cluster of a
    client is its domain. Each client's images are divided into training, validation and test part, every class in
    proportion. The image set's own division into training and test images is not used: the paper's 80-10-10 cannot be
    had from it.

    Parameters
    ----------
    images : ImageSet
        With ``domains``.
    min_samples : int
        Images that each client has at least, all parts together; the paper has 500.
    samples_per_client : int, optional
        Use only so many of each client's images.
    val_fraction, test_fraction : float
        Of a client's images. Paper: 0.1 and 0.1. The authors' public notebook has 0.16 and 0.2.
    seed : int
        Partition seed.

    Raises
    ------
    FltnbError
        Images without domains, a domain with too few, or shares that leave nothing to train on.
    """
    settings = {
        "kind": "domains",
        **source(images),
        "min_samples": integer(min_samples, "min_samples"),
        "samples_per_client": optional_integer(samples_per_client, "samples_per_client"),
        "val_fraction": share(val_fraction, "val_fraction"),
        "test_fraction": share(test_fraction, "test_fraction"),
        "seed": integer(seed, "seed", 0),
    }
    if images.domains is None:
        raise FltnbError(f"The images of {images.name} have no domains: take PACS, or give an ImageSet some.")
    if test_fraction == 0 or val_fraction + test_fraction >= 1:
        raise FltnbError(
            f"test_fraction {test_fraction:g} must be above 0 and, with val_fraction {val_fraction:g}, leave something"
            " to train on."
        )
    clusters, parts = [], {"train": [], "val": [], "test": []}
    for cluster, domain in enumerate(np.unique(images.domains)):
        held = np.flatnonzero(images.domains == domain)
        clients = len(held) // min_samples
        if not clients:
            raise FltnbError(
                f"Domain {domain} has {len(held)} images, fewer than the {min_samples} that a client is to have: choose"
                " a smaller min_samples."
            )
        rng = stream(seed, "partition", 5, cluster)
        for own in deal(held, images.labels, clients, samples_per_client, rng, f"domain {domain}"):
            rest, test = hold_out(own, test_fraction)
            train, val = hold_out(rest, val_fraction / (1 - test_fraction))
            clusters.append(cluster)
            for split, index in (("train", train), ("val", val), ("test", test)):
                parts[split].append(np.sort(index))
    return Federation(
        images=images.images,
        labels=images.labels,
        n_classes=images.n_classes,
        class_names=images.class_names,
        name=f"domains of {images.name}",
        origin=images.origin,
        settings=settings,
        clusters=np.array(clusters),
        **parts,
        **pixel_scaling(images.images),
    )
