"""What all kinds of federation share: their list, their options and settings, building them from settings.

A kind is a function of an :class:`~fltnb.data.ImageSet` and options. :func:`kind` enters it under its name, so that
whatever is laid over another federation finds that one here, and no module imports the package. In all kinds
``n_clients`` is the number of clients M and ``seed`` decides what is drawn; an option out of range, or too few images
or clients for what is asked, raises FltnbError.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ..data import ImageSet, load
from ..data.prepared import NAMES
from ..errors import FltnbError, choose
from ..settings import brief, checked
from .base import Federation
from .pixels import SCALINGS

KINDS: dict[str, Callable[..., Federation]] = {}
"""Partitions that :func:`build` knows: functions of an ImageSet and options."""


def kind(make: Callable[..., Federation]) -> Callable[..., Federation]:
    """Enter a function ``make(images, /, ...)`` as a kind of federation: options are checked, settings are attached."""
    name = make.__name__

    @functools.wraps(make)
    def making(images: ImageSet, /, *given: Any, **options: Any) -> Federation:
        own = source(images)
        named = inspect.signature(make).bind(images, *given, **options).arguments
        full = checked(make, dict(list(named.items())[1:]), f"a {name} federation")
        return replace(make(images, **full), settings={"kind": name, **own, **_plain(full)})

    KINDS[name] = making
    return making


def source(images: ImageSet) -> dict[str, str]:
    """Return the settings that name the image set; one made by the user is named by its content as well."""
    if not isinstance(images, ImageSet):
        raise FltnbError(f"Images must be an ImageSet such as fl.load('digits'), not {type(images).__name__}.")
    if images.name in NAMES:
        return {"dataset": images.name}
    return {"dataset": images.name, "content": images.digest}


def complete(settings: dict[str, Any]) -> dict[str, Any]:
    """Return federation settings with every default filled in; loads nothing.

    Raises FltnbError for an unknown kind or option, a bad value, or something that is missing.
    """
    if not isinstance(settings, dict):
        raise FltnbError(f"The settings of a federation must be a dict with a kind, not {settings!r}.")
    settings = dict(settings)
    name = settings.pop("kind", None)
    if name == "from_arrays":
        raise FltnbError("A federation of your own arrays cannot be rebuilt: call Federation.from_arrays again.")
    make = KINDS[choose(name, KINDS, "kind of federation")]
    if "content" in settings:
        raise FltnbError(
            f"The image set {settings.get('dataset')!r}, which is your own, cannot be rebuilt: call {name} with it."
        )
    if "dataset" not in settings:
        raise FltnbError(f'The settings of a {name} federation need a dataset, such as "digits": add it.')
    head = {"kind": name, "dataset": settings.pop("dataset")}
    scaling = {"scaling": choose(settings.pop("scaling"), SCALINGS, "scaling")} if "scaling" in settings else {}
    return head | _plain(checked(make, settings, f"a {name} federation")) | scaling


def canonical(settings: dict[str, Any]) -> dict[str, Any]:
    """Return federation settings without what equals its default, also in the ``base``; loads nothing.

    Settings that differ only in spelled-out defaults, or in 1 and 1.0, have one canonical form: it is what to hash.
    Raises FltnbError as :func:`complete`.
    """
    full = complete(settings)
    short = {key: full[key] for key in ("kind", "dataset", "scaling") if key in full}
    short |= brief(KINDS[full["kind"]], full)
    if "base" in short:
        short["base"] = _without_data_set(canonical(short["base"] | {"dataset": ""}))
    return _plain(short, whole=True)


def build(settings: dict[str, Any], root: Path | str | None = None) -> Federation:
    """Make the federation that ``settings`` describe; FltnbError as :func:`complete`, the data set or the kind.

    Parameters
    ----------
    settings : dict
        ``kind`` (one of :data:`KINDS`), ``dataset`` (a name that :func:`fltnb.load` knows) and the options of that
        function; what is left out has its default. Any kind takes ``scaling``, one of :data:`SCALINGS`, in place of the
        usual one: colour images to [-1, 1], grey ones to [0, 1]. ``Federation.settings`` is such a dict.
    root : path, optional
        Folder of prepared data sets, as for :func:`fltnb.load`.
    """
    full = complete(settings)
    return made(load(full["dataset"], root), full)


def made(images: ImageSet, settings: dict[str, Any]) -> Federation:
    """Make the federation that ``settings`` describe of images that are loaded already; see :func:`build`."""
    full = _without_data_set(complete(settings | {"dataset": source(images)["dataset"]}))
    make, scaling = KINDS[full.pop("kind")], full.pop("scaling", None)
    fed = make(images, **full)
    return fed if scaling is None else fed.scaled(scaling)


def _base(name: str, value: Any) -> dict[str, Any]:
    """Return the complete settings of a federation that another one is laid over, or refuse them."""
    if isinstance(value, dict) and "dataset" in value:
        raise FltnbError(f"{name} names a data set, but the images are given already: leave it out.")
    return _without_data_set(complete(value | {"dataset": ""} if isinstance(value, dict) else value))


Base = Annotated[dict, _base]
"""Settings of the federation below, as :func:`build` takes them but without ``dataset``."""


def _without_data_set(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != "dataset"}


def _plain(value: Any, whole: bool = False) -> Any:
    """Return lists and Python's numbers, as JSON has them; with ``whole``, floats without fraction as integers."""
    if isinstance(value, dict):
        return {key: _plain(one, whole) for key, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one, whole) for one in value]
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if whole and isinstance(value, float) and value.is_integer() else value
