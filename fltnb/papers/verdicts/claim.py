"""Claims of the papers, as functions that return a number and a verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ...errors import FltnbError
from ..numbers import claims

OUTCOMES = {"agrees": "✔", "partly": "◐", "disagrees": "✘", "not tested": "○"}
"""Outcome of a claim -> its sign."""


@dataclass(frozen=True)
class Finding:
    """The result of a claim's test on one set of numbers.

    Parameters
    ----------
    number : float, the number that the rule uses; NaN (missing) means not tested
    holds : bool or sequence of bool, whether the rule holds; if values differ: partly
    text : str, shown instead of the number
    why : str, why the claim could not be tested
    departs : phrases, how the numbers depart from the paper's, in addition to what the
        runs' settings show, such as "stand-in: pixels"
    """

    number: float
    holds: bool | Sequence[bool] = False
    text: str = ""
    why: str = ""
    departs: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """One of :data:`OUTCOMES`."""
        if np.isnan(self.number):
            return "not tested"

        parts = np.atleast_1d(self.holds)
        if parts.all():
            return "agrees"
        if parts.any():
            return "partly"
        return "disagrees"


class NotTestedError(Exception):
    """A test of a claim lacks data; the message says which."""


def needed(found: pd.DataFrame, why: str) -> pd.DataFrame:
    """Return numbers that a test needs; the claim is not tested if there are none.

    Parameters
    ----------
    found : DataFrame, the numbers needed
    why : str, the message if it is empty
    """
    if found.empty:
        raise NotTestedError(why)
    return found


def complete(numbers: pd.Series, why: str = "not all methods were run") -> pd.Series:
    """Return numbers that a test needs; the claim is not tested if one is missing.

    Parameters
    ----------
    numbers : Series, such as the means of methods
    why : str, the message if one is NaN
    """
    if numbers.isna().any():
        raise NotTestedError(why)
    return numbers


Words = tuple[str, ...] | Mapping[str, tuple[str, ...]]
"""Words for all tables, or table -> words."""


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and its test, made by :func:`claim`.

    Attributes
    ----------
    function : callable
        The test: :class:`Numbers` to :class:`Finding`.
    short : str
        The claim in a short sentence.
    id, data, models, tables, variants, show, unit, whole, any_data, setting
        As for :func:`claim`.
    """

    id: str
    function: Callable[[Any], Finding]
    short: str
    data: Words = ()
    models: Words = ()
    tables: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    show: str = "{:+.1f}"
    unit: str = "points"
    whole: bool = False
    any_data: bool = False
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """The paper that makes the claim."""
        return self.id.partition("-")[0]

    @property
    def about_clusters(self) -> bool:
        """Whether its number is an ARI."""
        return self.unit == "ARI"

    def speaks_of(self, table: str, dataset: str, model: str) -> bool:
        """Whether the claim is about a data set and a network (printed names).

        "" means any data set, or a network that the paper does not name.
        """
        data = _for_table(self.data, table)
        networks = _for_table(self.models, table)
        on_data = not data or dataset in ("", *data)
        on_network = not networks or model in ("", *networks)
        return on_data and on_network

    def __call__(self, numbers: Any) -> Finding:
        """Test the claim on numbers (:class:`Numbers`)."""
        try:
            return self.function(numbers)
        except NotTestedError as missing:
            return Finding(np.nan, why=str(missing))


def _for_table(words: Words, table: str) -> tuple[str, ...]:
    """Return the words for a table."""
    if isinstance(words, Mapping):
        return words.get(table, ())
    return words


CLAIMS: dict[str, Claim] = {}
"""Id of a claim -> its test."""


def claim(id: str, **how: Any) -> Callable:
    """Register a function as the test of a claim: :class:`Numbers` to :class:`Finding`.

    The first line of its docstring is the claim as a short sentence, shown in tables;
    the other lines give the rule for the verdict. Missing data are reported by
    :func:`needed` or :class:`NotTestedError`. Raises FltnbError if ``claims.csv`` does
    not have the id, or it is registered twice.

    Parameters
    ----------
    id : str, the claim in ``claims.csv``
    data, models : printed names of the data sets and networks concerned; () for all;
        a dict by table if they differ
    tables : the printed tables for its test; the one of the notebook counts
    variants : "as_written", "as_run": the variants tested; () for both
    show : str, format of the number, "{:+.1f}" by default
    unit : str, unit of the number, "points" by default
    whole : bool, tested once for a notebook, not for each data set and variant
    any_data : bool, the claim is about all data, so that every data set tests it
    setting : printed settings that differ from the table's, such as those of a figure
    """
    if id not in set(claims()["id"]):
        raise FltnbError(f"claims.csv has no claim {id!r}: add it there first.")
    if id in CLAIMS:
        raise FltnbError(f"The claim {id!r} has a test already: remove one of the two.")

    def register(function: Callable[[Any], Finding]) -> Claim:
        first_line, *_ = (function.__doc__ or "").strip().splitlines()
        short = first_line.rstrip(".")
        CLAIMS[id] = Claim(id, function, short, **how)
        return CLAIMS[id]

    return register
