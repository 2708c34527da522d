"""Clients that see rotated images (EMD-CFL's Rotated MNIST, arXiv 2506.07769, Section 4.1), shared or not."""

from __future__ import annotations

import numbers
from typing import Annotated, Any

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Part
from .base import Federation
from .kinds import kind
from .pools import Pool, copies
from .shares import in_turn


def _angles(name: str, angles: Any) -> list[list[float]]:
    try:
        groups = [list(group) for group in angles]
    except TypeError:
        groups = []
    numeric = all(isinstance(a, numbers.Real) and np.isfinite(a) for group in groups for a in group)
    if not groups or not all(groups) or not numeric:
        raise FltnbError(f"{name} must be one list of degrees per cluster, such as [[0], [90]], not {angles!r}.")
    return groups


Angles = Annotated[list, _angles]


@kind
def rotated(
    images: ImageSet,
    /,
    n_clients: Count,
    angles: Angles = ((0,), (90,), (180,), (270,)),
    samples_per_client: Count = 600,
    test_per_client: Count = 100,
    seed: Natural = 0,
) -> Federation:
    """Give every client a random part of an image set, turned by the angles of its cluster.

    EMD-CFL's versions (arXiv 2506.07769, Section 4.1) without shared images. Clients are numbered cluster by cluster,
    as evenly as possible. The clients of a cluster take its angles in turn (each client has one), and all clients have
    the same classes.

    Parameters
    ----------
    angles : sequence of sequences of float
        Degrees, counter-clockwise, of each cluster: ``((0,), (90,), (180,), (270,))`` is EMD-CFL's "4",
        ``((-3, 3), (177, 183))`` its "Two", ``((-3, -1, 1, 3),)`` its "Min" and ``((0,),)`` its "Base".
    samples_per_client, test_per_client : int
        Different images each, training and test. The federation's pool holds them turned by :func:`turn`.
    """
    clusters = in_turn(n_clients, len(angles))
    place = np.arange(n_clients) - np.searchsorted(clusters, clusters)
    pool = Pool()
    held = {"train": (images.train_index, samples_per_client), "test": (images.test_index, test_per_client)}
    for number, (split, (index, each)) in enumerate(held.items()):
        if n_clients * each > len(index):
            raise FltnbError(
                f"{n_clients} clients with {each} {split} images each need {n_clients * each} of the {len(index)} of"
                f" {images.name}: ask for fewer."
            )
        chosen = stream(seed, "partition", 1 + number).permutation(index)[: n_clients * each].reshape(n_clients, each)
        for own, cluster, i in zip(chosen, clusters, place, strict=True):
            angle = angles[cluster][i % len(angles[cluster])]
            pool.add(split, turn(images.images[own], angle), images.labels[own])
    return Federation.of(images, name=f"rotated {images.name}", clusters=clusters, **pool.fields())


@kind
def rotated_copies(
    images: ImageSet,
    /,
    n_clients: Count = 40,
    angles: Angles = ((0,), (90,), (180,), (270,)),
    samples_per_client: Count | None = None,
    test_per_client: Count | None = None,
    val_fraction: Part = 0.1,
    seed: Natural = 0,
) -> Federation:
    """Copy the image set once per angle, turn the copies, and deal each out to its share of the clients.

    This is how EMD-CFL (arXiv 2506.07769, Section 4.1) makes 240,000 images of MNIST's 60,000: clients of different
    rotations may hold the same image, turned differently; clients of one rotation hold different ones. In
    :func:`rotated` nobody shares an image, so clients hold a quarter as many. Training and test parts stay apart.
    Clients are numbered angle by angle, as evenly as possible, and all have all classes.

    Parameters
    ----------
    n_clients : int
        The paper has 40. Each angle (see :func:`rotated`) has clients of its own, so there must be as many at least.
    samples_per_client : int, optional
        Training and validation images of a client. Default: the whole copy is dealt (6,000 of MNIST with 10 clients an
        angle; the public code first cuts all classes to one size, which leaves 5,420).
    test_per_client : int, optional
        Default: all (1,000 of MNIST). The printed MNIST tables fit 220 (docs/differences.md).
    val_fraction : float
        Share of the samples held back for validation; the paper has 0.1.
    """
    turns = [(cluster, angle) for cluster, group in enumerate(angles) for angle in group]
    if n_clients < len(turns):
        raise FltnbError(f"There are more angles ({len(turns)}) than clients ({n_clients}): ask for fewer angles.")
    member = in_turn(n_clients, len(turns))

    def draw(group: int, pixels: np.ndarray, _: np.ndarray) -> np.ndarray:
        return turn(pixels, turns[group][1])

    fields = copies(images, member, (samples_per_client, test_per_client), val_fraction, (seed, 3), draw)
    clusters = np.array([turns[number][0] for number in member])
    return Federation.of(images, name=f"rotated {images.name}", clusters=clusters, **fields)


def turn(images: np.ndarray, angle: float) -> np.ndarray:
    """Turn images (n, H, W) or (n, H, W, C) counter-clockwise: bilinear, black corners, exact at multiples of 90."""
    if angle % 90 == 0:
        return np.ascontiguousarray(np.rot90(images, int(angle // 90), axes=(1, 2)))
    from scipy.ndimage import rotate

    return rotate(images, angle, axes=(2, 1), reshape=False, order=1, prefilter=False)
