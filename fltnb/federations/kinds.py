"""The common part of all kinds of federation: list, options, settings, building.

A kind is a function of an :class:`~fltnb.data.ImageSet` and options, registered by
:func:`kind` under its name. In all of them ``n_clients`` is the number of clients M and
``seed`` determines all draws. Raises FltnbError if an option is out of range, or there
are too few images or clients.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from ..data import ImageSet, load
from ..data.prepared import NAMES
from ..errors import FltnbError, choose
from ..settings import brief, checked, plain
from .base import Federation
from .pixels import SCALINGS

KINDS: dict[str, Callable[..., Federation]] = {}
"""Kinds of federation by name: functions of an ImageSet and options."""


def kind(make: Callable[..., Federation]) -> Callable[..., Federation]:
    """Register a function ``make(images, /, ...)`` as a kind of federation.

    Its options are checked by its signature, and settings are attached to the
    federation that it makes.
    """
    name = make.__name__
    signature = inspect.signature(make)

    @functools.wraps(make)
    def making(images: ImageSet, /, *given: Any, **options: Any) -> Federation:
        if not isinstance(images, ImageSet):
            raise FltnbError(
                "Images must be an ImageSet such as fl.load('digits'), not "
                f"{type(images).__name__}."
            )
        named = signature.bind(images, *given, **options).arguments
        named.pop("images")
        full = checked(make, named, f"a {name} federation")

        settings = {"kind": name, "dataset": images.name}
        if images.name not in NAMES:  # images of a user's own
            settings["content"] = images.digest
        return replace(make(images, **full), settings=settings | plain(full))

    KINDS[name] = making
    return making


def complete(settings: dict[str, Any]) -> dict[str, Any]:
    """Return federation settings with all defaults; it loads no data.

    Raises FltnbError if the settings are wrong.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fl.federations.complete(base | {"dataset": "digits"})["seed"]
    0
    """
    if not isinstance(settings, dict):
        raise FltnbError(
            "The settings of a federation must be a dict with a kind, not "
            f"{settings!r}."
        )
    options = dict(settings)
    name = options.pop("kind", None)
    if name == "from_arrays":
        raise FltnbError(
            "A federation of your own arrays cannot be rebuilt: call "
            "Federation.from_arrays again."
        )
    make = KINDS[choose(name, KINDS, "kind of federation")]
    if "content" in options:
        raise FltnbError(
            f"{options.get('dataset')!r} are images of your own, which no settings can "
            f"rebuild: call {name} with them."
        )
    full = {"kind": name}
    if "dataset" in options:
        full["dataset"] = options.pop("dataset")
    if "scaling" in settings:
        choose(options.pop("scaling"), SCALINGS, "scaling")
    full.update(plain(checked(make, options, f"a {name} federation")))
    if "scaling" in settings:
        full["scaling"] = settings["scaling"]
    return full


def canonical(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as they are hashed: without defaults, also in the ``base``.

    1.0 is the same as 1.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> full = fl.federations.complete(base | {"dataset": "digits"})
    >>> "seed" in full, "seed" in fl.federations.canonical(full)
    (True, False)
    """
    full = complete(settings)
    names = ("kind", "dataset", "scaling")
    short: dict[str, Any] = {key: full[key] for key in names if key in full}
    short.update(brief(KINDS[full["kind"]], full))
    if "base" in short:
        short["base"] = canonical(short["base"])
    return plain(short, whole=True)


def build(settings: dict[str, Any], root: Path | str | None = None) -> Federation:
    """Make the federation that ``settings`` describe.

    ``Federation.settings`` is such a dict: ``kind`` (one of :data:`KINDS`), ``dataset``
    (a name that :func:`fltnb.load` knows; it uses ``root``) and options of the kind.
    Any kind takes ``scaling``, one of :data:`SCALINGS`, instead of the usual one:
    colour images to [-1, 1], grey ones to [0, 1]. Raises FltnbError if the settings are
    wrong (:func:`complete`), or the data set or the kind is unknown.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> base["dataset"] = "digits"
    >>> fl.federations.build(base).n_clients
    6
    """
    full = complete(settings)
    if "dataset" not in full:
        raise FltnbError(
            f"The settings of a {full['kind']} federation need a dataset, such as "
            '"digits": add it.'
        )
    return made(load(full["dataset"], root), full)


def made(images: ImageSet, settings: dict[str, Any]) -> Federation:
    """Make the federation that ``settings`` describe from loaded images.

    See :func:`build`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fl.federations.made(digits, base).n_clients
    6
    """
    options = complete(settings)
    options.pop("dataset", None)
    scaling = options.pop("scaling", None)
    make = KINDS[options.pop("kind")]
    fed = make(images, **options)
    return fed if scaling is None else fed.scaled(scaling)


def _base(name: str, value: Any) -> dict[str, Any]:
    """Return the complete settings of a base federation, or refuse them."""
    if isinstance(value, dict) and "dataset" in value:
        raise FltnbError(
            f"{name} names a data set, but the images are given already: leave it out."
        )
    return complete(value)


Base = Annotated[dict, _base]
"""Settings of the base federation, as for :func:`build`, without ``dataset``."""
