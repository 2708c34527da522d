"""Copies of one image set at several rotations, each dealt out to clients of its own: EMD-CFL's Rotated MNIST."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from .base import Federation, pixel_scaling
from .dealing import deal, hold_out, optional_integer, share
from .rotated import _angles, turn
from .shares import integer, source


def rotated_copies(
    images: ImageSet,
    n_clients: int = 40,
    angles: Sequence[Sequence[float]] = ((0,), (90,), (180,), (270,)),
    samples_per_client: int | None = None,
    test_per_client: int | None = None,
    val_fraction: float = 0.1,
    seed: int = 0,
) -> Federation:
    """Copy the image set once per angle, turn the copies, and deal each out to its share of the clients.

    This is how EMD-CFL (Section 4.1) makes 240,000 images of MNIST's 60,000: clients of different rotations may hold
    the same image, turned differently; clients of one rotation hold different ones. In
    :func:`~fltnb.federations.rotated` nobody shares an image, so clients hold a quarter as many. Training and test
    parts stay apart. Clients are numbered angle by angle, as evenly as possible, and all have all classes.

    Parameters
    ----------
    images : ImageSet
    n_clients : int
        M; the paper has 40.
    angles : sequence of sequences of float
        Degrees, counter-clockwise, of each cluster; the paper's four versions as in
        :func:`~fltnb.federations.rotated`. Each angle has clients of its own, so there must be as many at least.
    samples_per_client : int, optional
        Training and validation images of a client. Default: the whole copy is dealt (6,000 of MNIST with 10 clients an
        angle; the public code first cuts all classes to one size, which leaves 5,420).
    test_per_client : int, optional
        Default: all (1,000 of MNIST). The printed MNIST tables fit 220 (docs/differences.md).
    val_fraction : float
        Share of the samples held back for validation; the paper has 0.1.
    seed : int
        Partition seed.

    Raises
    ------
    FltnbError
        Too few images or clients, or angles that are no numbers.
    """
    groups = _angles(angles)
    settings = {
        "kind": "rotated_copies",
        **source(images),
        "n_clients": integer(n_clients, "n_clients"),
        "angles": [list(group) for group in groups],
        "samples_per_client": optional_integer(samples_per_client, "samples_per_client"),
        "test_per_client": optional_integer(test_per_client, "test_per_client"),
        "val_fraction": share(val_fraction, "val_fraction"),
        "seed": integer(seed, "seed", 0),
    }
    turns = [(cluster, angle) for cluster, group in enumerate(groups) for angle in group]
    if n_clients < len(turns):
        raise FltnbError(f"There are more angles ({len(turns)}) than clients ({n_clients}): ask for fewer angles.")
    member = np.sort(np.arange(n_clients) % len(turns))
    pool, parts, start = [], {"train": [], "val": [], "test": []}, 0
    for number, (_, angle) in enumerate(turns):
        clients = int((member == number).sum())
        for split, index, each in (
            ("train", images.train_index, samples_per_client),
            ("test", images.test_index, test_per_client),
        ):
            rng = stream(seed, "partition", 3, number, int(split == "test"))
            for own in deal(index, images.labels, clients, each, rng, "training" if split == "train" else split):
                kept, held = hold_out(own, val_fraction) if split == "train" else (own, own[:0])
                for name, chosen in ((split, kept), ("val", held)):
                    if name == "val" and split == "test":
                        continue
                    pool.append((turn(images.images[chosen], angle), images.labels[chosen]))
                    parts[name].append(np.arange(start, start + len(chosen)))
                    start += len(chosen)
    return Federation(
        images=np.concatenate([turned for turned, _ in pool]),
        labels=np.concatenate([classes for _, classes in pool]),
        n_classes=images.n_classes,
        class_names=images.class_names,
        name=f"rotated {images.name}",
        origin=images.origin,
        settings=settings,
        clusters=np.array([turns[number][0] for number in member]),
        **parts,
        **pixel_scaling(images.images),
    )
