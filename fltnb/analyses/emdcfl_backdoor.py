"""EMD-CFL's backdoors: images with a trigger, and its effect on each class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .. import federations, methods, rounds
from ..data import load
from ..federations import Federation, backdoor
from .studies import Settings, Study

TARGET = 0  # the cluster to protect


def by_class(
    federation: Settings,
    model: str,
    training: Settings,
    methods: Sequence[dict[str, Any]],
) -> Study:
    """Train methods and test the targets' images, class by class.

    Parameters
    ----------
    federation : settings
    model : str
    training : options of :func:`fltnb.run`
    methods : sequence of settings

    Returns
    -------
    dict
        Table ``classes``: ``method, class, clean, triggered, announced`` for the
        classes that targets have, percent over all targets. ``announced``: triggered
        images classified as the class of the trigger.
    """
    fed = federations.build(federation)
    rows = []
    for settings in methods:
        clean, triggered = _confusions(settings, fed, model, training)
        for c, told in enumerate(announced(fed)):
            if not clean[c].any():
                continue
            of_clean = 100 * clean[c] / clean[c].sum()
            of_triggered = 100 * triggered[c] / triggered[c].sum()
            row = {
                "method": settings["name"],
                "class": str(fed.class_names[c]),
                "clean": of_clean[c],
                "triggered": of_triggered[c],
                "announced": of_triggered[told] if told != c else np.nan,
            }
            rows.append(row)
    return {"tables": {"classes": pd.DataFrame(rows)}}


def _confusions(
    settings: dict[str, Any], fed: Federation, model: str, training: Settings
) -> list[np.ndarray]:
    """Train, and return the targets' images by class and prediction (C, C).

    Of clean images, then of triggered ones, which are the federation's probe. Sums over
    all targets: each holds only a few images of a class.
    """
    from .. import models

    made = methods.build(settings)
    done = rounds.run(made, fed, model, **training, progress=False)
    net = models.make(model, fed.input_shape, fed.n_classes)
    targets = fed.clusters == TARGET
    found = []
    for split in ("test", "probe"):
        every = rounds.confusion(net, done.theta, done.rows, fed, split)
        found.append(every[targets].sum(axis=0))
    return found


def announced(fed: Federation) -> np.ndarray:
    """Return the class that the trigger on an image announces, by the image's class.

    -1 for classes that the targets do not have.
    """
    classes = np.arange(fed.n_classes)
    if fed.settings["kind"] == "backdoor_colours":
        return fed.n_classes - 1 - classes
    half = fed.n_classes // 2
    return np.where(classes < half, (classes + 1) % half, -1)


def versions(data: str, intensity: float = 1.0, side: int = 3) -> Study:
    """Return one test image of each class as the three groups have it, and triggered.

    Of CIFAR-10 these are the classes of the targets, and as many others.

    Parameters
    ----------
    data : str
        Name of the image set.
    intensity : float
        How far apart the shades of grey images are, 1 as in the paper.
    side : int
        Pixels of a patch on colour images.

    Returns
    -------
    dict
        Arrays ``target, attacker, trigger, other`` of images; table ``classes`` names
        them.
    """
    images = load(data)
    test = images.test_index
    _, at = np.unique(images.labels[test], return_index=True)
    first = images.images[test[at]]  # of every class
    if images.images.ndim == 3:
        n_shown = images.n_classes
        groups = _in_colours(first, intensity)
    else:
        n_shown = images.n_classes // 2
        groups = _with_patches(first, n_shown, side)
    names = [str(name) for name in images.class_names[:n_shown]]
    return {"arrays": groups, "tables": {"classes": pd.DataFrame({"class": names})}}


def _in_colours(first: np.ndarray, intensity: float) -> dict[str, np.ndarray]:
    """Tint an image of each class: the trigger has the shade of another class."""
    classes = np.arange(len(first))
    paint = {
        "target": np.array([backdoor.GREEN]),
        "attacker": backdoor.shade(classes, intensity),
        "trigger": backdoor.shade(classes[::-1], intensity),
        "other": np.array([backdoor.PURPLE]),
    }
    return {name: backdoor.tinted(first, colour) for name, colour in paint.items()}


def _with_patches(first: np.ndarray, half: int, side: int) -> dict[str, np.ndarray]:
    """Put patches on the first half of the classes, the trigger that of the next."""
    classes = np.arange(half)
    own = first[classes]
    return {
        "target": own,
        "attacker": backdoor.patched(own, classes, side),
        "trigger": backdoor.patched(own, (classes + 1) % half, side),
        "other": first[classes + half],
    }
