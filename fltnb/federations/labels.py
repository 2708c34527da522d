"""Clients that hold different classes: FLT's scenarios 1, 2 and 4 (arXiv 2103.15947, Section 4.2), Dirichlet skew."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Positive, Variant, Whole, check
from .base import Federation
from .kinds import kind
from .shares import (
    apportion,
    hand_out,
    in_turn,
    level,
    members,
    of_classes,
    training_index,
)

PUBLISHED_SEED = 321
"""Seed of the class order behind FLT's printed tables (public code)."""
TRAIN_PER_TEST = 6
"""EMNIST Balanced has 2,400 training and 400 test images per class; ``max_per_class`` keeps that ratio."""


@kind
def label_clusters(
    images: ImageSet,
    /,
    n_clients: Count,
    n_clusters: Count,
    classes_per_cluster: Count,
    shared_classes: Natural = 0,
    seed: Natural = 0,
    variant: Variant = "as_written",
    samples_per_client: Count | None = None,
    max_train: Count | None = None,
    overlap: bool = False,
) -> Federation:
    """Divide an image set among clusters of clients, each cluster with its own classes.

    Scenarios 1 and 2 of FLT. A random order of the classes is cut into lists of ``classes_per_cluster``, one per
    cluster; with ``shared_classes`` s, every list starts with the last s classes of the list before it, and the last
    list ends with the first s classes of the first one (two clusters only: no such closing of the ring). Clients are
    numbered cluster by cluster; where M is not divisible by C, the first clusters get one client more. A client is
    meant to hold n = floor(N / M) training images, N being those of the classes in use. Everybody in a cluster is
    tested on the same test images: all those of the cluster's classes.

    ``variant="as_written"``: the images of a class are shuffled and dealt out without repetition to all clients that
    hold the class, so clusters sharing it have different images of it. All clients of a cluster hold equally many of
    each class: n divided over its classes as evenly as possible, never more than floor(images of the class / clients
    that hold it). Where classes are too small for n (MNIST), all clients of that cluster hold less.

    ``variant="as_run"``: the partition of FLT's printed tables, read from its public code. The class order comes
    from NumPy's legacy generator with seed 321 whatever ``seed`` is. Every client takes floor(n / classes) images of
    each class: the j-th client of a cluster the j-th block, in data-set order. Where the class has run out it
    gets the data set's last training image instead, again and again (on MNIST an 8: 1,138 of 60,000 samples in six
    clients). Blocks start anew in every cluster, so clusters sharing a class hold the same images of it.

    Parameters
    ----------
    shared_classes : int, s, at most half of ``classes_per_cluster``: 0 is scenario 1, 1 (of 3) scenario 2
    samples_per_client : int, optional, n. Under ``as_written`` it is refused when the classes are too small for it.
    max_train : int, optional, use only this many training images, balanced over the classes
    overlap : bool
        Every client draws its floor(n / classes) images of each class at random, whoever else holds them, so that n
        need not fall with M. A sampler for ablations in a later branch of FLT's public code does so, with 250.
    """
    clusters = in_turn(n_clients, n_clusters)
    if 2 * shared_classes > classes_per_cluster:
        raise FltnbError(
            f"shared_classes must be at most half of {classes_per_cluster}, not {shared_classes}."
        )
    index = training_index(images, max_train, seed)
    by_class = members(images, index)
    # as run: the legacy generator on purpose, its permutation is what the printed tables are made of
    rng = (
        np.random.RandomState(PUBLISHED_SEED)
        if variant == "as_run"
        else stream(seed, "partition")
    )
    lists = _class_lists(
        images, by_class, n_clusters, classes_per_cluster, shared_classes, rng
    )
    total = sum(len(by_class[c]) for c in np.unique(lists))
    target = samples_per_client or total // n_clients
    size = target // classes_per_cluster
    if target < classes_per_cluster:
        raise FltnbError(
            f"There are more clients than samples: {total} training images for {n_clients} clients."
        )
    if overlap:
        if samples_per_client and size > (
            most := min(len(by_class[c]) for c in np.unique(lists))
        ):
            raise FltnbError(
                f"samples_per_client is {target} but a class has only {most} images: ask for fewer."
            )
        drawn = [
            (stream(seed, "partition", i, 0), lists[c]) for i, c in enumerate(clusters)
        ]
        train = [
            np.concatenate([rng.permutation(by_class[c])[:size] for c in classes])
            for rng, classes in drawn
        ]
    elif variant == "as_run":
        # consecutive blocks of images per class; a class that has run out is filled up with the last image of all
        place, train = (
            np.arange(n_clients) - np.searchsorted(clusters, clusters),
            [],
        )  # of each in its cluster
        for classes, j in zip(lists[clusters], place, strict=True):
            blocks = [by_class[c][j * size : (j + 1) * size] for c in classes]
            filled = [
                np.pad(own, (0, size - len(own)), constant_values=index[-1])
                for own in blocks
            ]
            train.append(np.concatenate(filled))
    else:
        wanted = _wanted(
            by_class, lists, clusters, target, samples_per_client is not None
        )
        (held,) = hand_out(seed, (by_class, wanted))
        train = [
            np.concatenate([own[c] for c in classes])
            for own, classes in zip(held, lists[clusters], strict=True)
        ]
    tests = [of_classes(images, images.test_index, classes) for classes in lists]
    return Federation.of(
        images, train=train, test=[tests[c] for c in clusters], clusters=clusters
    )


def _class_lists(
    images: ImageSet,
    by_class: list[np.ndarray],
    n_clusters: int,
    per_cluster: int,
    shared: int,
    rng: Any,
) -> np.ndarray:
    """Return the classes of each cluster, int64 (C, classes per cluster)."""
    tested = np.bincount(images.labels[images.test_index], minlength=images.n_classes)
    usable = np.array(
        [c for c in range(images.n_classes) if len(by_class[c]) and tested[c]],
        dtype=np.int64,
    )
    step = per_cluster - shared
    # two neighbours meet on one side only, so a ring needs at least three clusters
    needed = n_clusters * step + (0 if n_clusters > 2 else shared)
    if needed > len(usable):
        raise FltnbError(
            f"The clusters need {needed} classes but {images.name} has {len(usable)}: ask for fewer."
        )
    return rng.permutation(usable)[
        (step * np.arange(n_clusters)[:, None] + np.arange(per_cluster)) % needed
    ]


def _wanted(
    by_class: list[np.ndarray],
    lists: np.ndarray,
    clusters: np.ndarray,
    size: int,
    exact: bool,
) -> np.ndarray:
    """Return images per client and class (M, K), the same for every client of a cluster."""
    there = np.array([len(held) for held in by_class])
    holders = np.zeros_like(there)
    np.add.at(holders, lists, np.bincount(clusters)[:, None])
    if len(short := np.flatnonzero(there < holders)):
        c = short[0]
        raise FltnbError(
            f"There are more clients than samples: {there[c]} of class {c} for {holders[c]} clients."
        )
    caps = there // np.maximum(holders, 1)
    wanted = np.zeros((len(clusters), len(by_class)), dtype=np.int64)
    for cluster, classes in enumerate(lists):
        share = level(size, caps[classes])
        if exact and share.sum() < size:
            raise FltnbError(
                f"samples_per_client is {size} but some clients can get {share.sum()}: ask for fewer."
            )
        wanted[np.ix_(clusters == cluster, classes)] = share
    return wanted


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
    level: bool = False,
) -> Federation:
    """Divide an image set as FLT's Algorithm 4 does: clusters of consecutive classes, power-law client sizes.

    Structured Non-IID FEMNIST, Section 4.2 (scenario 4) and Appendix D.1. Cluster c holds the classes
    ``classes_per_cluster * c`` and following, unshuffled; the last cluster gets what is left (EMNIST Balanced: nine
    clusters of five classes and one of two). Clients are numbered, and tested, as those of :func:`label_clusters`. The
    training images of a cluster are shuffled and handed out one client after the other in the sizes of
    :func:`power_law_sizes`: all are used, none twice. Raises FltnbError where a cluster has no test images, or as
    :func:`power_law_sizes`.

    Parameters
    ----------
    n_clients : int
        M: 2,400 for the paper's MLP rows, 600 for its CNN rows, 60 per cluster as in the public code (the text: 100).
    delta : float, exponent of the power law, above 0. The paper leaves it open; 2 is the public code's.
    test : {"clean", "as_run"}
        ``"as_run"`` adds all test images of class 0, which its clients never train on, to the last cluster if it has
        fewer classes than the others, as behind the printed tables: the public code fills up its list with zeros.
    max_per_class : int, optional
        Use at most this many training images of each class and a sixth of it as test images, both chosen at random.
        2,400 gives EMNIST ByMerge the class sizes of EMNIST Balanced.
    level : bool
        Not consecutive classes, but such that the clusters' sizes are as their numbers of classes. Where classes are of
        unequal size, as in EMNIST ByMerge, this comes nearer to the paper's clusters of 12,000 images, the last 4,800.
    """
    every = range(images.n_classes)
    lists: list[Sequence[int]] = [
        every[c : c + classes_per_cluster] for c in every[::classes_per_cluster]
    ]
    if level:
        lists = _levelled(
            [len(own) for own in members(images, images.train_index)],
            [len(own) for own in lists],
        )
    if n_clients < len(lists):
        raise FltnbError(
            f"{len(lists)} clusters of classes need more than {n_clients} clients: give more of either."
        )
    tests_of = (
        lists
        if test == "clean" or len(lists[-1]) == len(lists[0])
        else [*lists[:-1], {0, *lists[-1]}]
    )
    held = _cut(members(images, images.train_index), max_per_class, seed, 0)
    tested = _cut(
        members(images, images.test_index),
        max_per_class and round(max_per_class / TRAIN_PER_TEST),
        seed,
        1,
    )
    clusters = in_turn(n_clients, len(lists))
    train, tests = [], []
    for c, classes in enumerate(lists):
        pool = np.concatenate([held[k] for k in classes])
        sizes = power_law_sizes(len(pool), int((clusters == c).sum()), delta)
        train += np.split(
            stream(seed, "partition", 1 + c).permutation(pool), np.cumsum(sizes)[:-1]
        )
        tests.append(np.sort(np.concatenate([tested[k] for k in tests_of[c]])))
        if not sum(len(tested[k]) for k in classes):
            raise FltnbError(
                f"Cluster {c} has no test images of its classes in {images.name}: use a set that has."
            )
    return Federation.of(
        images, train=train, test=[tests[c] for c in clusters], clusters=clusters
    )


def _levelled(sizes: Sequence[int], places: Sequence[int]) -> list[list[int]]:
    """Deal classes, the largest first, to the cluster that lacks most images per place that it has left."""
    lists: list[list[int]] = [[] for _ in places]
    lacks = np.asarray(places) * sum(
        sizes
    )  # times the number of places, so that ties are exact
    for k in np.argsort(-np.asarray(sizes), kind="stable"):
        left = np.array([n - len(own) for n, own in zip(places, lists, strict=True)])
        to = int(np.argmax(np.where(left > 0, lacks / np.maximum(left, 1), -np.inf)))
        lists[to].append(int(k))
        lacks[to] -= sizes[k] * sum(places)
    return [sorted(own) for own in lists]


def power_law_sizes(n_samples: int, n_clients: int, delta: float = 2.0) -> np.ndarray:
    r"""Return the training samples of each client of one cluster, int64 (M_c,) (Algorithm 4, lines 3 and 6).

    Of :math:`|D_c|` samples, client i = 1, ..., M_c gets :math:`\lfloor \alpha + e^{\beta i^\delta} \rfloor`, where
    :math:`\alpha = \lfloor |D_c| / (2 M_c) \rfloor` and :math:`\beta \ge 0` makes the unrounded sizes sum to
    :math:`|D_c|`. What the rounding leaves over goes to the first client, as in the public code.

    Raises FltnbError for more clients than samples. The public code misses the solution for 2 and takes beta = 0.

    Examples
    --------
    >>> power_law_sizes(12000, 240)[[0, 1, 120, 239]].tolist()
    [124, 26, 29, 259]
    """
    from scipy.optimize import brentq

    check("delta", delta, Positive)
    if n_clients > n_samples:
        raise FltnbError(
            f"A cluster has {n_clients} clients for {n_samples} training samples: ask for fewer clients."
        )
    alpha = n_samples // (2 * n_clients)
    # i / M_c instead of i only rescales beta, and keeps large exponents from overflowing
    power = (np.arange(1, n_clients + 1) / n_clients) ** delta
    excess = lambda beta: alpha * n_clients + np.exp(beta * power).sum() - n_samples  # noqa: E731
    beta = brentq(excess, 0.0, np.log(n_samples), xtol=1e-14)
    sizes = np.floor(alpha + np.exp(beta * power)).astype(np.int64)
    sizes[0] += n_samples - sizes.sum()
    return sizes


def _cut(
    by_class: list[np.ndarray], most: int | None, seed: int, part: int
) -> list[np.ndarray]:
    """Return the positions of each class, cut to ``most`` random ones."""
    if most is None:
        return by_class
    return [
        np.sort(stream(seed, "partition", part, 1 + c).permutation(m)[:most])
        for c, m in enumerate(by_class)
    ]


@kind
def dirichlet(
    images: ImageSet,
    /,
    n_clients: Count,
    alpha: Positive,
    seed: Natural = 0,
    min_samples: Count = 10,
    n_clusters: Count | None = None,
    max_train: Count | None = None,
) -> Federation:
    r"""Divide an image set with Dirichlet label skew.

    For each class, shares :math:`p \sim \mathrm{Dir}(\alpha, \dots, \alpha)` over the clients are drawn and its images
    dealt out accordingly, every training and every test image to exactly one client; clients then differ in size, too.
    With ``n_clusters`` the shares are drawn over clusters and divided evenly within each, so that the true clusters are
    known. Test images follow the shares of the training images of their class. Shares over clients are drawn so by
    Yurochkin et al. (Bayesian Nonparametric Federated Learning of Neural Networks, ICML 2019, experiments).

    A client short of ``min_samples`` training images gets the missing ones from the largest client, of that one's
    most frequent class; a client without test image gets one of the class that it trains on most, where there is any.
    ``max_train`` is that of :func:`label_clusters`.

    Parameters
    ----------
    alpha : float, concentration: small is strong skew, large approaches equal mixtures
    n_clusters : int, optional, C, number of different mixtures. Default: every client its own, true clusters unknown.
    """
    clusters = in_turn(n_clients, n_clusters or n_clients)
    index = training_index(images, max_train, seed)
    if n_clients * min_samples > len(index) or n_clients > len(images.test_index):
        raise FltnbError(
            f"There are more clients than samples: {len(index)} for {n_clients} with {min_samples} each."
        )
    train, test = members(images, index), members(images, images.test_index)
    counts = _train_counts(train, clusters, float(alpha), seed, min_samples)
    dealt = hand_out(seed, (train, counts), (test, _test_counts(test, counts)))
    train, test = ([np.concatenate(pieces) for pieces in part] for part in dealt)
    return Federation.of(
        images,
        train=train,
        test=test,
        clusters=None if n_clusters is None else clusters,
    )


def _train_counts(
    by_class: list[np.ndarray],
    clusters: np.ndarray,
    alpha: float,
    seed: int,
    least: int,
) -> np.ndarray:
    """Return training images per client and class, int64 (M, K); the largest clients give to those below ``least``."""
    rng = stream(seed, "partition")
    clients = np.bincount(clusters)
    shares = [rng.dirichlet(np.full(len(clients), alpha)) for _ in by_class]
    counts = [
        apportion(len(held), (share / clients)[clusters])
        for held, share in zip(by_class, shares, strict=True)
    ]
    counts = np.stack(counts, axis=1)
    sizes = counts.sum(axis=1)
    while sizes.min() < least:
        poor, rich = sizes.argmin(), sizes.argmax()
        c = counts[rich].argmax()
        n = min(least - sizes[poor], sizes[rich] - least, counts[rich, c])
        counts[[rich, poor], c] += (-n, n)
        sizes[[rich, poor]] += (-n, n)
    return counts


def _test_counts(by_class: list[np.ndarray], train: np.ndarray) -> np.ndarray:
    """Return test images per client and class, int64 (M, K), in proportion to the training images of each class."""
    weights = np.where(
        train.sum(axis=0) > 0, train, 1
    )  # a class nobody trains on is spread evenly
    counts = np.stack(
        [apportion(len(held), weights[:, c]) for c, held in enumerate(by_class)], axis=1
    )
    for poor in np.flatnonzero(counts.sum(axis=1) == 0):
        spare = counts * (counts.sum(axis=1) > 1)[:, None]
        usable = np.flatnonzero(spare.sum(axis=0))
        c = usable[train[poor, usable].argmax()]
        counts[spare[:, c].argmax(), c] -= 1
        counts[poor, c] += 1
    return counts
