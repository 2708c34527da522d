"""Users that learn different tasks: MT-HFL's federations (arXiv 2410.02733, Section III)."""

from collections.abc import Sequence

import numpy as np

from ..data import ImageSet, load
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Part, check
from .base import Federation
from .kinds import kind
from .shares import hand_out, level, members, of_classes, pooled

CIFAR10_TASKS = ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7))
"""Vehicles (airplane, automobile, ship, truck) and animals: MT-HFL's two tasks on CIFAR-10."""
FASHION_TASKS = ((0, 1, 2, 3, 4, 6), (5, 7, 9), (8,))
"""Clothes, shoes, bags: MT-HFL's three tasks on Fashion-MNIST (the paper names the themes, not the labels)."""
DIGITS_TASKS = ((0, 1, 2, 3, 4), (5, 6, 7), (8, 9))
"""Three tasks of our own for the embedded digits."""
CIFAR100_VEHICLES = (8, 13, 41, 48, 58, 69, 81, 85, 89, 90)
"""CIFAR-100's two superclasses of vehicles: bicycle to train, lawn mower to tractor (Table II)."""


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
    """Give every user the labels of one task, and a few samples of other tasks' labels.

    Users are numbered task by task; their true cluster is their task. A user of task t holds n_t training images:
    ``round(minority * n_t)`` spread over the labels of all other tasks, the rest over its own task's labels, both as
    evenly as possible. Nobody holds an image twice and no two users hold the same one. All users of a task are tested
    on the same images, the test images of the task's own labels: the paper shows the accuracy of each task's server,
    and a task is to learn its labels. Raises FltnbError for tasks that overlap or lack images.

    Parameters
    ----------
    tasks : sequence of sequences of int, labels of each task. MT-HFL: :data:`CIFAR10_TASKS`, :data:`FASHION_TASKS`.
    users_per_task : sequence of int, (5, 5) for CIFAR-10, (5, 3, 2) for Fashion-MNIST; (2, 3) is Table I
    samples_per_user : int or sequence of int, n_t, for all tasks or one per task (Figure 3); the paper has no numbers
    minority : float, 0: pure users (Table I); 0.1 for CIFAR-10 ("10 % labels from the other task"), else not stated
    """
    lists = _labels(images, tasks)
    users = _one_per_task(users_per_task, "users_per_task", len(lists))
    each = (
        [samples_per_user] * len(lists)
        if np.ndim(samples_per_user) == 0
        else samples_per_user
    )
    sizes = _one_per_task(each, "samples_per_user", len(lists))
    if minority > 0 and len(lists) == 1:
        raise FltnbError(
            "A single task has no other tasks' labels to mix in: give minority=0."
        )
    wanted = np.array(
        [_wanted(lists, t, n, minority, images.n_classes) for t, n in enumerate(sizes)]
    )
    clusters = np.repeat(np.arange(len(lists)), users)
    by_class = members(images, images.train_index)
    for label, needed in enumerate(wanted[clusters].sum(axis=0)):
        if needed > (there := len(by_class[label])):
            found = f"Users need {needed:,} images of {images.class_names[label]!r}, {images.name} has {there:,}"
            raise FltnbError(f"{found}: lower samples_per_user.")
    tests = [of_classes(images, images.test_index, labels) for labels in lists]
    train = [
        np.concatenate(own) for own in hand_out(seed, (by_class, wanted[clusters]))[0]
    ]
    return Federation.of(
        images, train=train, test=[tests[t] for t in clusters], clusters=clusters
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
    """Make the three users of Table II: one theme in two data sets, and the rest of the second one.

    User 0 holds ``labels`` of ``images``, user 1 ``other_labels`` of ``other``, user 2 all remaining labels of
    ``other``, each in equal parts as far as that goes; the true clusters are 0, 0, 1. Labels of the second set come
    after those of the first. ``images`` are CIFAR-10's and ``other`` names CIFAR-100, or another set whose images have
    the same shape; the paper says "vehicles" and lists no CIFAR-100 classes. FltnbError: other shapes, unknown labels.
    """
    first, second = images, load(other)
    labels, other_labels = (
        _labels(first, [labels])[0],
        _labels(second, [other_labels])[0],
    )
    if first.images.shape[1:] != second.images.shape[1:]:
        shapes = f"{first.images.shape[1:]} and {second.images.shape[1:]}"
        raise FltnbError(
            f"Images of {first.name} and {second.name} have shapes {shapes}: resize one set."
        )
    rest = [c for c in range(second.n_classes) if c not in other_labels]
    parts = []
    for user, (held, own) in enumerate(
        [(first, labels), (second, other_labels), (second, rest)]
    ):
        by_class = members(held, of_classes(held, held.train_index, own))
        tested = of_classes(held, held.test_index, own)
        available = np.array([len(index) for index in by_class])
        shares = level(samples_per_user, available)
        if shares.sum() < samples_per_user or not len(tested):
            raise FltnbError(
                f"User {user} finds {available.sum()} training, {len(tested)} test images: ask for fewer."
            )
        drawn = [
            stream(seed, "partition", 1 + user, c).permutation(by_class[c])[: shares[c]]
            for c in own
        ]
        for split, index in (("train", np.concatenate(drawn)), ("test", tested)):
            parts.append(
                (
                    split,
                    held.images[index],
                    held.labels[index] + (first.n_classes if user else 0),
                )
            )
    names = [
        f"{held.name}: {name}" for held in (first, second) for name in held.class_names
    ]
    origin = f"{first.name}: {first.origin}; {second.name}: {second.origin}"
    about = {
        "name": f"{first.name} and {second.name}",
        "origin": origin,
        "class_names": names,
    }
    return Federation.of(
        first,
        n_classes=len(names),
        clusters=np.array([0, 0, 1]),
        **about,
        **pooled(parts),
    )


def _labels(images: ImageSet, tasks: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the tasks' labels, or refuse them."""
    try:
        lists = [[check("A label", c, Natural) for c in labels] for labels in tasks]
    except TypeError:
        lists = []
    if not lists or not all(lists):
        raise FltnbError(
            f"tasks must be one list of labels per task, such as [[0, 1], [2, 3]], not {tasks!r}."
        )
    every = [c for labels in lists for c in labels]
    if max(every) >= images.n_classes:
        raise FltnbError(
            f"There is no label {max(every)} in {images.name}: it has 0 to {images.n_classes - 1}."
        )
    if twice := [c for c in every if every.count(c) > 1]:
        raise FltnbError(
            f"Label {twice[0]} ({images.class_names[twice[0]]}) is named twice: tasks share no labels."
        )
    return lists


def _one_per_task(values: Sequence[int], what: str, n_tasks: int) -> list[int]:
    numbers = (
        [check(what, value, Count) for value in values]
        if isinstance(values, Sequence | np.ndarray)
        else []
    )
    if len(numbers) != n_tasks:
        raise FltnbError(
            f"{what} must have one number for each of the {n_tasks} tasks, not {values!r}."
        )
    return numbers


def _wanted(
    lists: list[list[int]], task: int, size: int, minority: float, n_classes: int
) -> np.ndarray:
    """Images of each label (K,) that a user of one task holds."""
    others = [c for t, labels in enumerate(lists) if t != task for c in labels]
    strange = round(minority * size)
    out = np.zeros(n_classes, dtype=np.int64)
    for labels, n in ((lists[task], size - strange), (others, strange)):
        out[labels] = level(n, np.full(len(labels), n)) if labels else 0
    if out[lists[task]].sum() == 0:
        raise FltnbError(
            f"minority={minority} of {size} samples leaves none of the own task: lower it."
        )
    return out
