"""Structured Non-IID FEMNIST: clusters of classes, power-law client sizes: FLT's scenario 4 (arXiv 2103.15947)."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Positive, Whole, check
from .base import Federation
from .kinds import kind
from .shares import in_turn, members

TRAIN_PER_TEST = 6
"""EMNIST Balanced has 2,400 training and 400 test images per class; ``max_per_class`` keeps that ratio."""


@kind
def structured(
    images: ImageSet,
    /,
    n_clients: Count,
    classes_per_cluster: Count = 5,
    delta: Positive = 2.0,
    seed: Natural = 0,
    test: Literal["clean", "as_run"] = "clean",
    max_per_class: Annotated[int, Whole(TRAIN_PER_TEST)] | None = None,
) -> Federation:
    """Divide an image set as FLT's Algorithm 4 does: clusters of consecutive classes, power-law client sizes.

    Cluster c holds the classes ``classes_per_cluster * c`` and following; the last cluster gets what is left (EMNIST
    Balanced: nine clusters of five classes and one of two). Classes are not shuffled. Clients are numbered cluster by
    cluster, equally many in each; where M is not divisible by C, the first clusters get one more. The training
    images of a cluster are shuffled and handed out one client after the other in the sizes of
    :func:`power_law_sizes`: all are used, none twice. Everybody in a cluster is tested on the same test images:
    all those of the cluster's classes.

    FLT, Section 4.2 (scenario 4) and Appendix D.1. M = 600 makes 60 clients per cluster, as in the public code; the
    paper's text says 100. Raises FltnbError where a cluster has no test images, or as :func:`power_law_sizes`.

    Parameters
    ----------
    n_clients : int
        M: 2,400 for the paper's MLP rows, 600 for its CNN rows.
    classes_per_cluster : int
    delta : float
        Exponent of the power law, above 0. The paper leaves it open; 2 is the public code's.
    test : {"clean", "as_run"}
        ``"as_run"`` adds all test images of class 0 to the last cluster if it has fewer classes than the others,
        although its clients never train on them. That is how the printed tables came about: in the public code, the
        list of a short cluster's classes is filled up with zeros.
    max_per_class : int, optional
        Use at most this many training images of each class and a sixth of it as test images, both chosen at random.
        2,400 gives EMNIST ByMerge the class sizes of EMNIST Balanced.
    """
    lists = [
        list(range(c, min(c + classes_per_cluster, images.n_classes)))
        for c in range(0, images.n_classes, classes_per_cluster)
    ]
    if n_clients < len(lists):
        raise FltnbError(
            f"{images.n_classes} classes, {classes_per_cluster} per cluster, make {len(lists)} clusters but there are"
            f" only {n_clients} clients: ask for more clients or more classes per cluster."
        )
    tests_of = lists if test == "clean" or len(lists[-1]) == len(lists[0]) else [*lists[:-1], {0, *lists[-1]}]
    held = _cut(members(images, images.train_index), max_per_class, seed, 0)
    tested = _cut(members(images, images.test_index), max_per_class and round(max_per_class / TRAIN_PER_TEST), seed, 1)
    clusters = in_turn(n_clients, len(lists))
    train, tests = [], []
    for c, classes in enumerate(lists):
        pool = np.concatenate([held[k] for k in classes])
        try:
            sizes = power_law_sizes(len(pool), int((clusters == c).sum()), delta)
        except FltnbError as error:
            names = f"{images.class_names[classes[0]]} to {images.class_names[classes[-1]]}"
            raise FltnbError(f"The power law of cluster {c} (classes {names}) cannot be solved: {error}") from None
        pool = stream(seed, "partition", 1 + c).permutation(pool)
        train += np.split(pool, np.cumsum(sizes)[:-1])
        tests.append(np.sort(np.concatenate([tested[k] for k in tests_of[c]])))
        if not sum(len(tested[k]) for k in classes):
            raise FltnbError(f"Cluster {c} has no test images of its classes in {images.name}: use a set that has.")
    return Federation.of(images, train=train, test=[tests[c] for c in clusters], clusters=clusters)


def power_law_sizes(n_samples: int, n_clients: int, delta: float = 2.0) -> np.ndarray:
    r"""Return the training samples of each client of one cluster, int64 (M_c,) (Algorithm 4, lines 3 and 6).

    Of :math:`|D_c|` samples, client i = 1, ..., M_c gets :math:`\lfloor \alpha + e^{\beta i^\delta} \rfloor`, where
    :math:`\alpha = \lfloor |D_c| / (2 M_c) \rfloor` and :math:`\beta \ge 0` makes the unrounded sizes sum to
    :math:`|D_c|`. What the rounding leaves over goes to the first client, as in the public code.

    Raises FltnbError where there are more clients than samples; else there is a solution. The public code's solver
    misses it for very few clients per cluster (2) and then goes on with beta = 0.

    Examples
    --------
    >>> power_law_sizes(12000, 240)[[0, 1, 120, 239]].tolist()
    [124, 26, 29, 259]
    """
    from scipy.optimize import brentq

    check("delta", delta, Positive)
    if n_clients > n_samples:
        raise FltnbError(f"there are {n_clients} clients for {n_samples} training samples, ask for fewer clients.")
    alpha = n_samples // (2 * n_clients)
    # i / M_c instead of i only rescales beta, and keeps large exponents from overflowing
    power = (np.arange(1, n_clients + 1) / n_clients) ** delta
    excess = lambda beta: alpha * n_clients + np.exp(beta * power).sum() - n_samples  # noqa: E731
    beta = brentq(excess, 0.0, np.log(n_samples), xtol=1e-14)
    sizes = np.floor(alpha + np.exp(beta * power)).astype(np.int64)
    sizes[0] += n_samples - sizes.sum()
    return sizes


def _cut(by_class: list[np.ndarray], most: int | None, seed: int, part: int) -> list[np.ndarray]:
    """Return the positions of each class, cut to ``most`` random ones."""
    if most is None:
        return by_class
    return [np.sort(stream(seed, "partition", part, 1 + c).permutation(m)[:most]) for c, m in enumerate(by_class)]
