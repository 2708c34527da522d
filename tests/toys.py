"""Small made-up image sets for tests."""

import numpy as np

from fltnb.data import ImageSet


def toy_set(images, labels, split, n_classes=None, name="toy", **more):
    """An image set of these arrays, cast to their types; classes are named by their numbers."""
    classes = range(max(labels) + 1 if n_classes is None else n_classes)
    return ImageSet(
        name=name,
        images=np.asarray(images, dtype=np.uint8),
        labels=np.asarray(labels, dtype=np.int64),
        split=np.asarray(split, dtype=np.uint8),
        class_names=tuple(map(str, classes)),
        origin="made up",
        **more,
    )


def counted(train_counts, test_counts=None):
    """1x1 grey images, as many of each class as asked for, in a random order, training part first."""
    test_counts = [2] * len(train_counts) if test_counts is None else test_counts
    rng = np.random.default_rng(0)
    labels = np.concatenate([rng.permutation(np.repeat(np.arange(len(c)), c)) for c in (train_counts, test_counts)])
    images = (np.arange(len(labels)) % 256).reshape(-1, 1, 1)
    return toy_set(images, labels, np.repeat([0, 1], [sum(train_counts), sum(test_counts)]), len(train_counts))
