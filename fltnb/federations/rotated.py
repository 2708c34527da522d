"""Clients that see rotated images: EMD-CFL's Rotated MNIST."""

from __future__ import annotations

import numbers
from collections.abc import Sequence

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from .base import Federation, pixel_scaling
from .shares import integer, source


def rotated(
    images: ImageSet,
    n_clients: int,
    angles: Sequence[Sequence[float]] = ((0,), (90,), (180,), (270,)),
    samples_per_client: int = 600,
    test_per_client: int = 100,
    seed: int = 0,
) -> Federation:
    """Give every client a random part of an image set, turned by the angles of its cluster.

    Clients are numbered cluster by cluster, as evenly as possible. The clients of a cluster take its angles in turn
    (each client has one), and all clients have the same classes.

    Parameters
    ----------
    images : ImageSet
    n_clients : int
        M.
    angles : sequence of sequences of float
        Degrees, counter-clockwise, of each cluster: ``((0,), (90,), (180,), (270,))`` is EMD-CFL's "4",
        ``((-3, 3), (177, 183))`` its "Two", ``((-3, -1, 1, 3),)`` its "Min" and ``((0,),)`` its "Base".
    samples_per_client, test_per_client : int
        Different images each, training and test.
    seed : int
        Partition seed.

    Returns
    -------
    Federation
        Its pool holds the turned images, with bilinear interpolation and black corners; multiples of 90 degrees are
        exact.

    Raises
    ------
    FltnbError
        Too few images or clients, or angles that are no numbers.
    """
    groups = _angles(angles)
    settings = {
        "kind": "rotated",
        **source(images),
        "n_clients": integer(n_clients, "n_clients"),
        "angles": [list(group) for group in groups],
        "samples_per_client": integer(samples_per_client, "samples_per_client"),
        "test_per_client": integer(test_per_client, "test_per_client"),
        "seed": integer(seed, "seed", 0),
    }
    if n_clients < len(groups):
        raise FltnbError(f"There are more clusters ({len(groups)}) than clients ({n_clients}): ask for fewer clusters.")
    clusters = np.sort(np.arange(n_clients) % len(groups))
    place = np.arange(n_clients) - np.searchsorted(clusters, clusters)
    pools, parts, start = [], {"train": [], "test": []}, 0
    held = {"train": (images.train_index, samples_per_client), "test": (images.test_index, test_per_client)}
    for number, (split, (index, each)) in enumerate(held.items()):
        if n_clients * each > len(index):
            raise FltnbError(
                f"{n_clients} clients with {each} {split} images each need {n_clients * each} of the {len(index)} of"
                f" {images.name}: ask for fewer."
            )
        chosen = stream(seed, "partition", 1 + number).permutation(index)[: n_clients * each].reshape(n_clients, each)
        for i, own in enumerate(chosen):
            group = groups[clusters[i]]
            angle = group[place[i] % len(group)]
            pools.append((turn(images.images[own], angle), own))
            parts[split].append(np.arange(start, start + each))
            start += each
    return Federation(
        images=np.concatenate([pool for pool, _ in pools]),
        labels=images.labels[np.concatenate([own for _, own in pools])],
        n_classes=images.n_classes,
        class_names=images.class_names,
        name=f"rotated {images.name}",
        origin=images.origin,
        settings=settings,
        clusters=clusters,
        **parts,
        **pixel_scaling(images.images),
    )


def _angles(angles: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    try:
        groups = [tuple(group) for group in angles]
    except TypeError:
        groups = []
    numeric = all(isinstance(a, numbers.Real) and np.isfinite(a) for group in groups for a in group)
    if not groups or not all(groups) or not numeric:
        raise FltnbError(f"angles must be one list of degrees per cluster, such as [[0], [90]], not {angles!r}.")
    return groups


def turn(images: np.ndarray, angle: float) -> np.ndarray:
    """Turn images (n, H, W) or (n, H, W, C) counter-clockwise: bilinear, black corners, exact at multiples of 90."""
    if angle % 90 == 0:
        return np.ascontiguousarray(np.rot90(images, int(angle // 90), axes=(1, 2)))
    from scipy.ndimage import rotate

    return rotate(images, angle, axes=(2, 1), reshape=False, order=1, prefilter=False)
