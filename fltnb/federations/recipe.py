"""A federation described without its data: its settings, and how to make it."""

import functools
from dataclasses import dataclass, field
from typing import Any

from ..errors import FltnbError
from .base import Federation


@dataclass(frozen=True)
class Recipe:
    """Settings of a federation; made by :func:`recipe`.

    Examples
    --------
    >>> import fltnb as fl
    >>> sizes = {"n_clients": 6, "n_clusters": 3, "classes_per_cluster": 3}
    >>> fl.recipe("label_clusters", "digits", **sizes).settings["n_clients"]
    6
    """

    settings: dict[str, Any] = field(hash=False)

    @property
    def dataset(self) -> str:
        """Name of the image set; "" if only a federation on this one names it."""
        return self.settings.get("dataset", "")

    @functools.cached_property
    def _made(self) -> Federation:
        """The federation; it is built at its first use."""
        from . import build

        return build(self.settings)

    def build(self) -> Federation:
        """Make the federation.

        Raises FltnbError if the settings do not fit the data.
        """
        return self._made


def recipe(
    kind: str, dataset: str = "", base: Recipe | None = None, **options: Any
) -> Recipe:
    """Describe a federation without loading its data.

    Parameters
    ----------
    kind : str, a function of :mod:`fltnb.federations`, such as "label_clusters"
    dataset : str, the image set, such as "mnist"; by default that of ``base``
    base : Recipe, the federation that this one modifies
    **options, options of the function

    Raises FltnbError if ``base`` is no recipe, or one with another image set.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.recipe("pseudo_writers", "digits", n_clients=5).settings
    {'kind': 'pseudo_writers', 'dataset': 'digits', 'n_clients': 5}
    """
    if base is not None and not isinstance(base, Recipe):
        raise FltnbError(
            f"base must be a recipe, fl.recipe(kind, ...), not {type(base).__name__}."
        )
    inner = {} if base is None else dict(base.settings)
    # the image set is named once, for the whole federation
    named = inner.pop("dataset", dataset)
    if dataset and named != dataset:
        raise FltnbError(
            f"A federation of {dataset} cannot have a base of {named}: name one data "
            "set."
        )
    settings: dict[str, Any] = {"kind": kind}
    if named:
        settings["dataset"] = named
    if inner:
        settings["base"] = inner
    return Recipe(settings | options)
