"""How a backdoor looks, and what it does to single classes and images of a target (notebook 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..federations import backdoor
from .emdcfl_backdoor import TARGET

if TYPE_CHECKING:
    import pandas as pd

    from ..federations import Federation
    from ..store import Spec


def image_versions(settings: Mapping, n: int = 10) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return one test image of each class as target, attacker, under the trigger, and as the other group has it.

    Parameters
    ----------
    settings : mapping
        Of a backdoor federation.
    n : int
        Most classes.

    Returns
    -------
    dict of str to ndarray (n, H, W, 3), list of str
        Versions, and the names of the classes.
    """
    from ..data import load

    data = load(settings["dataset"])
    coloured = settings["kind"] == "backdoor_colours"
    half = data.n_classes // 2
    classes = np.arange(min(n, data.n_classes if coloured else half))
    held = data.test_index
    images = data.images[[held[data.labels[held] == c][0] for c in classes]]
    names = [str(data.class_names[c]) for c in classes]
    if not coloured:
        side = settings.get("patch", 3)
        others = data.images[[held[data.labels[held] == c + half][0] for c in classes]]
        found = {
            "target": images,
            "attacker": backdoor.patched(images, classes, side),
            "trigger": backdoor.patched(images, (classes + 1) % half, side),
            "other": others,
        }
        return found, names
    shades, far = (backdoor.shade(c, settings.get("intensity", 1.0)) for c in (classes, data.n_classes - 1 - classes))
    one = np.ones((len(classes), 1))
    found = {
        "target": backdoor.tinted(images, one * backdoor.GREEN),
        "attacker": backdoor.tinted(images, shades),
        "trigger": backdoor.tinted(images, far),
        "other": backdoor.tinted(images, one * backdoor.PURPLE),
    }
    return found, names


def announced(settings: Mapping, n_classes: int) -> np.ndarray:
    """Class that the trigger on an image announces, by the image's class; -1 for classes the targets do not have."""
    classes = np.arange(n_classes)
    if settings["kind"] == "backdoor_colours":
        return n_classes - 1 - classes
    half = n_classes // 2
    return np.where(classes < half, (classes + 1) % half, -1)


class Finished(NamedTuple):
    """A run with its models, which the store does not keep."""

    method: str
    fed: Federation
    theta: np.ndarray
    rows: np.ndarray


def finished(specs: Iterable[Spec]) -> list[Finished]:
    """Train the methods that are looked into once more, and keep their models; looked up where that has been done."""
    from .. import methods, rounds, store

    found = []
    for spec in specs:
        fed = spec.federation_built()

        def work(spec=spec, fed=fed) -> dict[str, np.ndarray]:
            run = rounds.run(methods.build(spec.method), fed, **store._arguments(spec))
            return {"theta": run.theta, "rows": run.rows}

        held = store.cached_arrays({"models of": spec.settings(), "run": spec.key()}, work)
        found.append(Finished(spec.method_id, fed, held["theta"], held["rows"]))
    return found


def class_table(runs: Sequence[Finished], model: str) -> pd.DataFrame:
    """Accuracy by class over all targets, without and with the trigger.

    Parameters
    ----------
    runs : sequence of Finished
    model : str
        Network of the runs.

    Returns
    -------
    DataFrame
        ``method, class, clean, triggered, announced`` (percent; the last is the share of the triggered images taken
        for the class that the trigger announces), for the classes that targets have.
    """
    import pandas as pd

    from ..rounds import confusion

    lines = []
    for one in runs:
        net, targets = _net(model, one.fed), one.fed.clusters == TARGET
        told = announced(one.fed.settings, one.fed.n_classes)
        clean, triggered = (
            confusion(net, one.theta, one.rows, one.fed, split)[targets].sum(axis=0) for split in ("test", "probe")
        )
        for c in np.flatnonzero(clean.sum(axis=1)):
            shares = 100 * triggered[c] / triggered[c].sum()
            line = {"method": one.method, "class": str(one.fed.class_names[c])}
            line |= {"clean": 100 * clean[c, c] / clean[c].sum(), "triggered": shares[c]}
            lines.append(line | {"announced": shares[told[c]] if told[c] != c else float("nan")})
    return pd.DataFrame(lines)


def answers(runs: Sequence[Finished], model: str, n: int = 8) -> tuple[dict, dict, list[str]]:
    """Return images of the first target without and with the trigger, and what its models take them for.

    Images are the first of each class, the first ``n`` classes.

    Returns
    -------
    tuple
        What :func:`fltnb.plots.image_answers` takes: images by version, answers by version and method, true classes.
    """
    import torch

    first = runs[0].fed
    labels = first.labels[first.test[0]]
    places = [int(np.flatnonzero(labels == c)[0]) for c in np.unique(labels)[:n]]
    versions = {"clean": first.test[0][places], "trigger": first.probe[0][places]}
    said: dict[str, dict[str, list[str]]] = {}
    for name, index in versions.items():
        said[name] = {}
        for one in runs:
            net = _net(model, one.fed)
            params = net.unflatten(torch.from_numpy(np.array(one.theta[one.rows[0]], dtype=np.float32)))
            with torch.inference_mode():
                guess = net.forward(params, torch.from_numpy(one.fed.inputs(index))).argmax(1).numpy()
            said[name][one.method] = [str(first.class_names[c]) for c in guess]
    images = {name: first.images[index] for name, index in versions.items()}
    return images, said, [str(first.class_names[labels[place]]) for place in places]


def _net(model: str, fed: Federation):
    from .. import models

    return models.make(model, fed.input_shape, fed.n_classes)
