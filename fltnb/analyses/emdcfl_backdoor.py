"""EMD-CFL's backdoors: what a trigger looks like, and what it does to a class."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .. import federations, methods, models, rounds
from ..data import load
from ..federations import Federation, backdoor

Settings = Mapping[str, Any]
TARGET = 0  # the cluster that is to be protected


def by_class(
    federation: Settings,
    model: str,
    training: Settings,
    methods: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Train methods and look at the targets' test images, class by class.

    Returns a dict: table ``classes``: ``method, class, clean, triggered, announced``
    for the classes that targets have, percent over all targets. ``announced``:
    triggered images taken for the class that the trigger announces.
    """
    fed = federations.build(federation)
    net = models.make(model, fed.input_shape, fed.n_classes)
    targets = fed.clusters == TARGET
    told = announced(fed)

    rows = []
    for settings in methods:
        done = _trained(settings, fed, model, training)
        counts = {}
        for split in ("test", "probe"):
            every = rounds.confusion(net, done.theta, done.rows, fed, split)
            counts[split] = every[targets].sum(axis=0)
        clean = counts["test"]
        triggered = counts["probe"]
        for c in np.flatnonzero(clean.sum(axis=1)):
            shares = 100 * triggered[c] / triggered[c].sum()
            row = {
                "method": settings["name"],
                "class": str(fed.class_names[c]),
                "clean": 100 * clean[c, c] / clean[c].sum(),
                "triggered": shares[c],
                "announced": shares[told[c]] if told[c] != c else np.nan,
            }
            rows.append(row)
    return {"tables": {"classes": pd.DataFrame(rows)}}


def _trained(
    settings: dict[str, Any], fed: Federation, model: str, training: Settings
) -> Any:
    made = methods.build(settings)
    return rounds.run(made, fed, model, **training, progress=False)


def announced(fed: Federation) -> np.ndarray:
    """Return the class that the trigger on an image announces, by the image's class.

    -1 for classes that the targets do not have.
    """
    classes = np.arange(fed.n_classes)
    if fed.settings["kind"] == "backdoor_colours":
        return fed.n_classes - 1 - classes
    half = fed.n_classes // 2
    return np.where(classes < half, (classes + 1) % half, -1)


def versions(data: str, intensity: float = 1.0, side: int = 3) -> dict[str, Any]:
    """Return one test image of each class as the three groups have it, and triggered.

    Of CIFAR-10 these are the classes of the targets, and as many others.

    Returns a dict: arrays ``target, attacker, trigger, other`` of images; the table
    ``classes`` names them.
    """
    images = load(data)
    test = images.test_index
    _, at = np.unique(images.labels[test], return_index=True)
    first = images.images[test[at]]  # of every class
    if images.images.ndim == 3:
        classes = np.arange(images.n_classes)
        groups = _in_colours(first, classes, intensity)
    else:
        classes = np.arange(images.n_classes // 2)
        groups = _with_patches(first, classes, side)
    names = [str(images.class_names[c]) for c in classes]
    return {"arrays": groups, "tables": {"classes": pd.DataFrame({"class": names})}}


def _in_colours(
    first: np.ndarray, classes: np.ndarray, intensity: float
) -> dict[str, np.ndarray]:
    paint = {
        "target": np.array([backdoor.GREEN]),
        "attacker": backdoor.shade(classes, intensity),
        "trigger": backdoor.shade(len(classes) - 1 - classes, intensity),
        "other": np.array([backdoor.PURPLE]),
    }
    return {name: backdoor.tinted(first, colour) for name, colour in paint.items()}


def _with_patches(
    first: np.ndarray, classes: np.ndarray, side: int
) -> dict[str, np.ndarray]:
    half = len(classes)
    own = first[classes]
    return {
        "target": own,
        "attacker": backdoor.patched(own, classes, side),
        "trigger": backdoor.patched(own, (classes + 1) % half, side),
        "other": first[classes + half],
    }
