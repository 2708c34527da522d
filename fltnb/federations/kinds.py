"""What all kinds of federation share: their list, their options and settings, building them from settings.

A kind is a function of an :class:`~fltnb.data.ImageSet` and options, entered by :func:`kind` under its name. In all of
them ``n_clients`` is the number of clients M and ``seed`` decides what is drawn; an option out of range, or too few
images or clients for what is asked, raises FltnbError.
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
"""Partitions that :func:`build` knows: functions of an ImageSet and options."""


def kind(
    make: Callable[..., Federation], like: Callable | None = None, **defaults: Any
) -> Callable[..., Federation]:
    """Enter a function ``make(images, /, ...)`` as a kind of federation: options are checked, settings are attached.

    ``like`` is another kind whose options this one has, with some ``defaults`` of its own.
    """
    name, signature = make.__name__, inspect.signature(like or make, eval_str=True)
    options = [
        one.replace(default=defaults.get(one.name, one.default))
        for one in signature.parameters.values()
    ]
    make.__signature__ = signature.replace(parameters=options)

    @functools.wraps(make)
    def making(images: ImageSet, /, *given: Any, **options: Any) -> Federation:
        if not isinstance(images, ImageSet):
            raise FltnbError(
                f"Images must be an ImageSet such as fl.load('digits'), not {type(images).__name__}."
            )
        own = (
            {} if images.name in NAMES else {"content": images.digest}
        )  # names the images of a user's own
        named = inspect.signature(make).bind(images, *given, **options).arguments
        full = checked(make, dict(list(named.items())[1:]), f"a {name} federation")
        return replace(
            make(images, **full),
            settings={"kind": name, "dataset": images.name, **own, **plain(full)},
        )

    KINDS[name] = making
    return making


def complete(settings: dict[str, Any]) -> dict[str, Any]:
    """Return federation settings with every default filled in, or raise FltnbError for bad ones; loads nothing."""
    if not isinstance(settings, dict):
        raise FltnbError(
            f"The settings of a federation must be a dict with a kind, not {settings!r}."
        )
    settings = dict(settings)
    name = settings.pop("kind", None)
    if name == "from_arrays":
        raise FltnbError(
            "A federation of your own arrays cannot be rebuilt: call Federation.from_arrays again."
        )
    make = KINDS[choose(name, KINDS, "kind of federation")]
    if "content" in settings:
        raise FltnbError(
            f"{settings.get('dataset')!r}, images of your own, cannot be rebuilt: call {name} with them."
        )
    head = {"kind": name} | (
        {"dataset": settings.pop("dataset")} if "dataset" in settings else {}
    )
    scaling = (
        {"scaling": choose(settings.pop("scaling"), SCALINGS, "scaling")}
        if "scaling" in settings
        else {}
    )
    return head | plain(checked(make, settings, f"a {name} federation")) | scaling


def canonical(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as they are hashed, without what equals a default, also in the ``base``, and with 1 for 1.0."""
    full = complete(settings)
    short = {key: full[key] for key in ("kind", "dataset", "scaling") if key in full}
    short |= brief(KINDS[full["kind"]], full)
    if "base" in short:
        short["base"] = canonical(short["base"])
    return plain(short, whole=True)


def build(settings: dict[str, Any], root: Path | str | None = None) -> Federation:
    """Make the federation that ``settings`` describe; FltnbError as :func:`complete`, the data set or the kind.

    ``Federation.settings`` is such a dict: ``kind`` (one of :data:`KINDS`), ``dataset`` (a name that :func:`fltnb.load`
    knows, which ``root`` is for) and options of the kind. Any kind takes ``scaling``, one of :data:`SCALINGS`, in place
    of the usual one: colour images to [-1, 1], grey ones to [0, 1].
    """
    full = complete(settings)
    if "dataset" not in full:
        raise FltnbError(
            f'The settings of a {full["kind"]} federation need a dataset, such as "digits": add it.'
        )
    return made(load(full["dataset"], root), full)


def made(images: ImageSet, settings: dict[str, Any]) -> Federation:
    """Make the federation that ``settings`` describe of images that are loaded already; see :func:`build`."""
    full = complete(settings)
    make, scaling, _ = (
        KINDS[full.pop("kind")],
        full.pop("scaling", None),
        full.pop("dataset", None),
    )
    fed = make(images, **full)
    return fed if scaling is None else fed.scaled(scaling)


def _base(name: str, value: Any) -> dict[str, Any]:
    """Return the complete settings of a federation that another one is laid over, or refuse them."""
    if isinstance(value, dict) and "dataset" in value:
        raise FltnbError(
            f"{name} names a data set, but the images are given already: leave it out."
        )
    return complete(value)


Base = Annotated[dict, _base]
"""Settings of the federation below, as :func:`build` takes them but without ``dataset``."""
