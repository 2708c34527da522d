"""Federations: how the samples of an image set, or a user's own, are spread over clients."""

from __future__ import annotations

import inspect
from pathlib import Path

from ..data import ImageSet, load
from ..errors import FltnbError, choose
from .arrays import from_arrays
from .backdoor import attacked, backdoor_colours, backdoor_patches
from .base import SCALINGS, SPLITS, Federation, to_inputs
from .changing import changing, with_events
from .copies import rotated_copies
from .domains import domains
from .held_out import held_out
from .labels import label_clusters
from .pseudo_writers import apply_style, pseudo_writers, writer_styles
from .redealt import divided, shuffled
from .renderings import renderings
from .rotated import rotated
from .skew import dirichlet
from .structured import power_law_sizes, structured
from .tasks import CIFAR10_TASKS, CIFAR100_VEHICLES, DIGITS_TASKS, FASHION_TASKS, cross_tasks, tasks
from .writers import writers

__all__ = [
    "CIFAR10_TASKS",
    "CIFAR100_VEHICLES",
    "DIGITS_TASKS",
    "FASHION_TASKS",
    "KINDS",
    "SCALINGS",
    "SPLITS",
    "Federation",
    "apply_style",
    "attacked",
    "backdoor_colours",
    "backdoor_patches",
    "build",
    "changing",
    "complete",
    "cross_tasks",
    "dirichlet",
    "divided",
    "domains",
    "from_arrays",
    "held_out",
    "label_clusters",
    "made",
    "power_law_sizes",
    "pseudo_writers",
    "renderings",
    "rotated",
    "rotated_copies",
    "shuffled",
    "structured",
    "tasks",
    "to_inputs",
    "with_events",
    "writer_styles",
    "writers",
]

KINDS = {
    "label_clusters": label_clusters,
    "dirichlet": dirichlet,
    "structured": structured,
    "writers": writers,
    "pseudo_writers": pseudo_writers,
    "changing": changing,
    "held_out": held_out,
    "divided": divided,
    "shuffled": shuffled,
    "rotated": rotated,
    "rotated_copies": rotated_copies,
    "backdoor_colours": backdoor_colours,
    "backdoor_patches": backdoor_patches,
    "domains": domains,
    "renderings": renderings,
    "tasks": tasks,
    "cross_tasks": cross_tasks,
}
"""Partitions that :func:`build` knows: functions of an ImageSet and keyword arguments."""


def complete(settings: dict) -> dict:
    """Return federation settings with every default filled in; loads nothing.

    Raises
    ------
    FltnbError
        Unknown kind or key, or a key that is missing.
    """
    if not isinstance(settings, dict):
        raise FltnbError(f"The settings of a federation must be a dict with a kind, not {settings!r}.")
    settings = dict(settings)
    kind = settings.pop("kind", None)
    if kind == "from_arrays":
        raise FltnbError(
            "A federation of your own arrays cannot be rebuilt from its settings: call Federation.from_arrays with the"
            " arrays again."
        )
    choose(kind, KINDS, "kind of federation")
    if "content" in settings:
        raise FltnbError(
            f"A federation of the image set {settings.get('dataset')!r}, which is your own, cannot be rebuilt from its"
            f" settings: call {kind} with the image set again."
        )
    parameters = list(inspect.signature(KINDS[kind]).parameters.values())[1:]  # without the images
    allowed = ["dataset", *(p.name for p in parameters)]
    scaling = {key: settings.pop(key) for key in ("scaling",) if key in settings}
    for key in settings:
        choose(key, allowed, f"setting of a {kind} federation")
    full = {p.name: p.default for p in parameters if p.default is not p.empty} | settings
    missing = [key for key in allowed if key not in full]
    if missing:
        raise FltnbError(f"The settings of a {kind} federation lack {', '.join(missing)}.")
    return {"kind": kind, **{key: full[key] for key in allowed}, **scaling}


def build(settings: dict, root: Path | str | None = None) -> Federation:
    """Make the federation that ``settings`` describe.

    Parameters
    ----------
    settings : dict
        ``kind`` (one of :data:`KINDS`), ``dataset`` (a name that :func:`fltnb.load` knows) and the arguments of that
        function; what is left out has its default. Any kind takes ``scaling``, one of :data:`SCALINGS`, in place of the
        usual one: colour images to [-1, 1], grey ones to [0, 1]. ``Federation.settings`` is such a dict.
    root : path, optional
        Folder of prepared data sets, as for :func:`fltnb.load`.

    Raises
    ------
    FltnbError
        Unknown kind or key, a key that is missing, or whatever the data set or the partition refuse.
    """
    full = complete(settings)
    return made(load(full["dataset"], root), full)


def made(images: ImageSet, settings: dict) -> Federation:
    """Make the federation that ``settings`` describe of images that are loaded already; see :func:`build`."""
    options = complete(settings | {"dataset": images.name} if isinstance(settings, dict) else settings)
    make, scaling = KINDS[options.pop("kind")], options.pop("scaling", None)
    del options["dataset"]
    fed = make(images, **options)
    return fed if scaling is None else fed.scaled(scaling)


def canonical(settings: dict) -> dict:
    """Return federation settings without what equals a default; loads nothing."""
    from ..settings import brief

    full = complete(settings)
    make = KINDS[full["kind"]]
    short = {"kind": full["kind"], "dataset": full["dataset"], **brief(make, full)}
    if "base" in short:
        short["base"] = {
            k: v for k, v in canonical(short["base"] | {"dataset": full["dataset"]}).items() if k != "dataset"
        }
    return short | ({"scaling": full["scaling"]} if "scaling" in full else {})
