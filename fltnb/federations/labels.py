"""Clusters of clients that hold the same few classes: FLT's scenarios 1 and 2 (arXiv 2103.15947, Section 4.2)."""

from __future__ import annotations

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Variant
from .base import Federation
from .kinds import kind
from .shares import hand_out, in_turn, level, members, of_classes, training_index

PUBLISHED_SEED = 321
"""Seed of the class order behind FLT's printed tables (public code)."""


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
) -> Federation:
    """Divide an image set among clusters of clients, each cluster with its own classes.

    Scenarios 1 and 2 of FLT (arXiv 2103.15947, Section 4.2). A random order of the classes is cut into lists of
    ``classes_per_cluster``, one per cluster; with ``shared_classes`` s, every list starts with the last s classes of
    the list before it, and the last list ends with the first s classes of the first one (two clusters only: no such
    closing of the ring). Clients are numbered cluster by cluster; where M is not divisible by C, the first clusters get
    one client more. A client is meant to hold n = floor(N / M) training images, N being those of the classes in use.
    Everybody in a cluster is tested on the same test images: all those of the cluster's classes.

    ``variant="as_written"``: the clean partition. The images of a class are shuffled and dealt out without repetition
    to all clients that hold the class, so clusters sharing it have different images of it. All clients of a cluster
    hold equally many of each class: n divided over its classes as evenly as possible, never more than
    floor(images of the class / clients that hold it). Where classes are too small for n (MNIST), all clients of that
    cluster hold less.

    ``variant="as_run"``: the partition of FLT's printed tables, read from its public code. The class order comes
    from NumPy's legacy generator with seed 321 whatever ``seed`` is. Every client takes floor(n / classes) images of
    each class: the j-th client of a cluster the j-th block, in data-set order. Where the class has run out it
    gets the data set's last training image instead, again and again (on MNIST an 8: 1,138 of 60,000 samples in six
    clients). Blocks start anew in every cluster, so clusters sharing a class hold the same images of it.

    Raises FltnbError for more clusters than the classes allow, or more clients than samples.

    Parameters
    ----------
    n_clients, n_clusters, classes_per_cluster : int
        M, C and the length of the lists of classes.
    shared_classes : int
        s, at most half of ``classes_per_cluster``: 0 is scenario 1, 1 (of 3) scenario 2.
    samples_per_client : int, optional
        n. Under ``as_written`` it is refused when the classes are too small for it.
    max_train : int, optional
        Use only this many training images, balanced over the classes.
    """
    clusters = in_turn(n_clients, n_clusters)
    if 2 * shared_classes > classes_per_cluster:
        raise FltnbError(f"shared_classes must be at most half of {classes_per_cluster}, not {shared_classes}.")
    index = training_index(images, max_train, seed)
    by_class = members(images, index)
    drawn = None if variant == "as_run" else seed
    lists = _class_lists(images, by_class, n_clusters, classes_per_cluster, shared_classes, drawn)
    total = sum(len(by_class[c]) for c in np.unique(lists))
    target = samples_per_client or total // n_clients
    if target < classes_per_cluster:
        raise FltnbError(
            f"There are more clients than samples: {n_clients} clients that hold {classes_per_cluster} classes each"
            f" cannot be served from {total} training images with {target} per client."
        )
    if variant == "as_run":
        train = _blocks(by_class, lists, clusters, target // classes_per_cluster, index[-1])
    else:
        train = _dealt(by_class, lists, clusters, target, samples_per_client is not None, seed, images.class_names)
    tests = [of_classes(images, images.test_index, classes) for classes in lists]
    return Federation.of(images, train=train, test=[tests[c] for c in clusters], clusters=clusters)


def _class_lists(
    images: ImageSet, by_class: list[np.ndarray], n_clusters: int, per_cluster: int, shared: int, seed: int | None
) -> np.ndarray:
    """Return the classes of each cluster, int64 (C, classes per cluster); no ``seed``: in the public code's order."""
    tested = np.bincount(images.labels[images.test_index], minlength=images.n_classes)
    usable = np.array([c for c in range(images.n_classes) if len(by_class[c]) and tested[c]], dtype=np.int64)
    step = per_cluster - shared
    # two neighbours meet on one side only, so a ring needs at least three clusters
    needed = n_clusters * step + (0 if n_clusters > 2 else shared)
    if needed > len(usable):
        sharing = f" sharing {shared} with the next" if shared else ""
        raise FltnbError(
            f"{n_clusters} clusters of {per_cluster} classes{sharing} need {needed} classes but {images.name} has"
            f" {len(usable)} with training and test images: ask for fewer clusters or fewer classes per cluster."
        )
    # As run: the legacy generator on purpose, its permutation is what the printed tables are made of.
    rng = np.random.RandomState(PUBLISHED_SEED) if seed is None else stream(seed, "partition")
    order = rng.permutation(usable)
    start = step * np.arange(n_clusters)[:, None]
    return order[(start + np.arange(per_cluster)) % needed]


def _blocks(
    by_class: list[np.ndarray], lists: np.ndarray, clusters: np.ndarray, size: int, last: int
) -> list[np.ndarray]:
    """Deal consecutive blocks of ``size`` images per class; a class that has run out is filled up with ``last``."""
    first = np.searchsorted(clusters, clusters)  # id of the first client of each client's cluster
    train = []
    for i, cluster in enumerate(clusters):
        j = i - first[i]
        blocks = [by_class[c][j * size : (j + 1) * size] for c in lists[cluster]]
        train.append(np.concatenate([np.pad(b, (0, size - len(b)), constant_values=last) for b in blocks]))
    return train


def _dealt(
    by_class: list[np.ndarray],
    lists: np.ndarray,
    clusters: np.ndarray,
    target: int,
    exact: bool,
    seed: int,
    class_names: tuple[str, ...],
) -> list[np.ndarray]:
    """Deal shuffled images without repetition, the same number per class to every client of a cluster."""
    holders = np.zeros(len(by_class), dtype=np.int64)
    np.add.at(holders, lists, np.bincount(clusters)[:, None])
    for c in np.unique(lists):
        if len(by_class[c]) < holders[c]:
            raise FltnbError(
                f"There are more clients than samples: class {class_names[c]!r} has {len(by_class[c])} training images"
                f" for the {holders[c]} clients that should hold it."
            )
    caps = np.array([len(held) for held in by_class]) // np.maximum(holders, 1)
    wanted = np.zeros((len(clusters), len(by_class)), dtype=np.int64)
    for cluster, classes in enumerate(lists):
        share = level(target, caps[classes])
        if exact and share.sum() < target:
            names = ", ".join(class_names[c] for c in classes)
            raise FltnbError(
                f"samples_per_client is {target} but the clients of classes {names} can get at most {share.sum()}"
                " different images each: ask for fewer."
            )
        wanted[np.ix_(clusters == cluster, classes)] = share
    held = hand_out(by_class, wanted, seed)
    return [np.concatenate([own[c] for c in lists[k]]) for own, k in zip(held, clusters, strict=True)]
