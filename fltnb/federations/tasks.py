"""Users that learn different tasks: MT-HFL, arXiv 2410.02733, Section III."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data import ImageSet, load
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Part, check
from .base import Federation
from .kinds import kind
from .shares import Drawn, hand_out, level, members, of_classes, pooled

CIFAR10_TASKS = ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7))
"""MT-HFL's two tasks on CIFAR-10: vehicles and animals.

The vehicles are airplane, automobile, ship and truck.
"""
FASHION_TASKS = ((0, 1, 2, 3, 4, 6), (5, 7, 9), (8,))
"""MT-HFL's three tasks on Fashion-MNIST: clothes, shoes, bags.

The paper names the themes, not the labels.
"""
DIGITS_TASKS = ((0, 1, 2, 3, 4), (5, 6, 7), (8, 9))
"""Three tasks of our own for the embedded digits."""
CIFAR100_VEHICLES = (8, 13, 41, 48, 58, 69, 81, 85, 89, 90)
"""CIFAR-100's two superclasses of vehicles (Table II).

Bicycle to train, lawn mower to tractor.
"""


@kind
def tasks(
    images: ImageSet,
    /,
    tasks: Sequence[Sequence[int]],
    users_per_task: Sequence[int],
    samples_per_user: int | Sequence[int],
    minority: Part = 0.1,
    seed: Natural = 0,
) -> Federation:
    """Give every user the labels of one task, and a few samples of other tasks.

    Users are numbered task by task; their true cluster is their task. A user of task t
    holds n_t training images: ``round(minority * n_t)`` spread over the labels of all
    other tasks, the rest over its own task's labels, both as evenly as possible. No
    user holds an image twice and no two users hold the same one. All users of a task
    are tested on the same images, the test images of the task's own labels, because the
    paper shows the accuracy of each task's server, whose aim is to learn its own
    labels. Raises FltnbError for tasks that overlap or lack images.

    Parameters
    ----------
    tasks : sequence of sequences of int
        Labels of each task. MT-HFL: :data:`CIFAR10_TASKS`, :data:`FASHION_TASKS`.
    users_per_task : sequence of int
        (5, 5) for CIFAR-10, (5, 3, 2) for Fashion-MNIST; (2, 3) is Table I.
    samples_per_user : int or sequence of int
        n_t, for all tasks or one per task (Figure 3); the paper has no numbers.
    minority : float
        0: pure users (Table I); 0.1 for CIFAR-10 ("10 % labels from the other task"),
        else not stated.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.tasks(
    ...     digits, [[0, 1], [2, 3]], [2, 2], samples_per_user=50
    ... )
    >>> fed.n_clients, fed.n_clusters
    (4, 2)
    """
    lists = _labels(images, tasks)
    n_tasks = len(lists)
    users = _one_per_task(users_per_task, "users_per_task", n_tasks)
    if np.ndim(samples_per_user) == 0:
        samples_per_user = [samples_per_user] * n_tasks
    sizes = _one_per_task(samples_per_user, "samples_per_user", n_tasks)
    if minority > 0 and n_tasks == 1:
        raise FltnbError(
            "A single task has no other tasks' labels to mix in: give minority=0."
        )
    wanted = np.zeros((n_tasks, images.n_classes), dtype=np.int64)
    for task, size in enumerate(sizes):
        wanted[task] = _wanted(lists, task, size, minority, images.n_classes)

    clusters = np.repeat(np.arange(n_tasks), users)
    by_class = members(images, images.train_index)
    for label, needed in enumerate(wanted[clusters].sum(axis=0)):
        available = len(by_class[label])
        if needed > available:
            raise FltnbError(
                f"Users need {needed:,} images of {images.class_names[label]!r}, "
                f"{images.name} has {available:,}: lower samples_per_user."
            )
    (held,) = hand_out(seed, (by_class, wanted[clusters]))
    train = [np.concatenate(pieces) for pieces in held]
    # Users of a task share one array, so that it is evaluated once.
    tests = [of_classes(images, images.test_index, labels) for labels in lists]
    test = [tests[task] for task in clusters]
    return Federation.of(
        images,
        train=train,
        test=test,
        clusters=clusters,
    )


@kind
def cross_tasks(
    images: ImageSet,
    /,
    other: str,
    labels: Sequence[int] = CIFAR10_TASKS[0],
    other_labels: Sequence[int] = CIFAR100_VEHICLES,
    samples_per_user: Count = 1000,
    seed: Natural = 0,
) -> Federation:
    """Make the three users of Table II: one theme in two data sets, and a third user.

    User 0 holds ``labels`` of ``images``, user 1 ``other_labels`` of ``other``, user 2
    all remaining labels of ``other``, all in equal parts as far as possible; the true
    clusters are 0, 0, 1. Labels of the second set come after those of the first.
    ``images`` are CIFAR-10's and ``other`` names CIFAR-100, or another set whose images
    have the same shape; the paper says "vehicles" and lists no CIFAR-100 classes.
    All test images of these labels are its test images. ``samples_per_user``: training
    images of each user. Raises FltnbError if shapes differ, labels are unknown, or
    there are too few images.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.cross_tasks(digits, "digits", [0, 1], [0, 1], 100)
    >>> fed.n_clients, fed.clusters.tolist()
    (3, [0, 0, 1])
    """
    first = images
    second = load(other)
    (labels,) = _labels(first, [labels])
    (other_labels,) = _labels(second, [other_labels])
    shape = first.images.shape[1:]
    other_shape = second.images.shape[1:]
    if shape != other_shape:
        raise FltnbError(
            f"Images of {first.name} and {second.name} have shapes {shape} and "
            f"{other_shape}: resize one set."
        )
    rest = [c for c in range(second.n_classes) if c not in other_labels]
    users = [  # image set, its labels, and what is added to them
        (first, labels, 0),
        (second, other_labels, first.n_classes),
        (second, rest, first.n_classes),
    ]
    parts = []
    for user, (held, own, offset) in enumerate(users):
        train, test = _drawn(held, own, samples_per_user, seed, user)
        for split, index in (("train", train), ("test", test)):
            moved = held.labels[index] + offset
            copied = held.copied_at(index)
            parts.append(Drawn(split, held.images[index], moved, copied))
    class_names = []
    for held in (first, second):
        for name in held.class_names:
            class_names.append(f"{held.name}: {name}")
    return Federation.of(
        first,
        n_classes=len(class_names),
        class_names=class_names,
        clusters=np.array([0, 0, 1]),
        name=f"{first.name} and {second.name}",
        origin=f"{first.name}: {first.origin}; {second.name}: {second.origin}",
        **pooled(parts),
    )


def _drawn(
    images: ImageSet, labels: list[int], size: int, seed: int, user: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a user's training images, evenly over its labels, and all test images.

    Parameters
    ----------
    images : ImageSet
    labels : list of int
        Those of the user.
    size : int
        Training images.
    seed, user : int
        Keys of the draws.

    Returns
    -------
    train, test : ndarrays of int
        Positions in the image set.
    """
    train = of_classes(images, images.train_index, labels)
    test = of_classes(images, images.test_index, labels)
    by_class = members(images, train)
    available = np.array([len(index) for index in by_class])
    if available.sum() < size or not len(test):
        raise FltnbError(
            f"User {user} has only {available.sum()} training and {len(test)} test "
            "images: ask for fewer."
        )
    shares = level(size, available)
    drawn = []
    for c in labels:
        draws = stream(seed, "partition", 1 + user, c)
        order = draws.permutation(by_class[c])
        drawn.append(order[: shares[c]])
    return np.concatenate(drawn), test


def _labels(images: ImageSet, tasks: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the tasks' labels, or refuse them."""
    lists = []
    try:
        for labels in tasks:
            lists.append([check("A label", c, Natural) for c in labels])
    except TypeError:  # no sequence of sequences
        lists = []
    if not lists or not all(lists):
        raise FltnbError(
            "tasks must be one list of labels per task, such as [[0, 1], [2, 3]], not "
            f"{tasks!r}."
        )
    every = []
    for labels in lists:
        every.extend(labels)
    if max(every) >= images.n_classes:
        raise FltnbError(
            f"There is no label {max(every)} in {images.name}: it has 0 to "
            f"{images.n_classes - 1}."
        )
    for label in every:
        if every.count(label) > 1:
            raise FltnbError(
                f"Label {label} ({images.class_names[label]}) is named twice: tasks "
                "share no labels."
            )
    return lists


def _one_per_task(values: Any, what: str, n_tasks: int) -> list[int]:
    """Return a whole number for each task, or refuse ``values``."""
    numbers = []
    if isinstance(values, Sequence | np.ndarray):
        numbers = [check(what, value, Count) for value in values]
    if len(numbers) != n_tasks:
        raise FltnbError(
            f"{what} must have one number for each of the {n_tasks} tasks, not "
            f"{values!r}."
        )
    return numbers


def _wanted(
    lists: list[list[int]], task: int, size: int, minority: float, n_classes: int
) -> np.ndarray:
    """Return the number of images per label, int64 (K,), for a user of one task.

    With ``lists`` [[0, 1], [2, 3]], 100 images and a minority of 0.1 a user of task 0
    has 45, 45, 5 and 5.
    """
    own = lists[task]
    others = []
    for labels in lists:
        if labels is not own:
            others.extend(labels)
    n_others = round(minority * size)
    n_own = size - n_others
    if n_own == 0:
        raise FltnbError(
            f"minority={minority} of {size} samples leaves none of the user's own "
            "task: lower it."
        )
    wanted = np.zeros(n_classes, dtype=np.int64)
    # evenly; whether there are enough is checked for all users together
    any_number = np.full(len(own), n_own)
    wanted[own] = level(n_own, any_number)
    if others:
        any_number = np.full(len(others), n_others)
        wanted[others] = level(n_others, any_number)
    return wanted
