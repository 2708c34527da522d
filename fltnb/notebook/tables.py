"""Tables of runs: means over seeds by whatever the runs differ in."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from IPython import display

from ..errors import FltnbError
from ..papers import label
from ..papers.names import SHORT
from .html import html, signed

HEADS = {"dataset": "data", "variant": "following", "n_clusters": "clusters"}
"""Columns of runs -> what stands above them."""
Names = Mapping[Any, str]
"""Columns and values -> what to call them; "": where a value is missing."""


def mean_table(
    found: Any,
    by: Sequence[str] = ("dataset", "variant", "method"),
    of: Sequence[str] = ("accuracy",),
    names: Names | None = None,
) -> display.HTML:
    """Lay out means over seeds: a row for each value of ``by``, a column per number.

    ``found``: Results, or rows of their ``runs``; ``names``: :data:`Names`.
    """
    groups = _filled(rows_of(found), by, of).groupby(list(by), sort=False)
    table = groups[list(of)].agg(mean_text).reset_index()
    for column in by:
        table[column] = [name_of(value, names) for value in table[column]]
    table.columns = [name_of(column, names) for column in table.columns]
    return html(table, caption=over_seeds(groups))


def axis_table(
    found: Any,
    axis: str,
    of: str = "accuracy",
    by: Sequence[str] = ("method",),
    names: Names | None = None,
    caption: str = "",
) -> display.HTML:
    """Lay out means over seeds of the number ``of`` with an axis side by side.

    ``by``: columns whose values are the rows; the rest as for :func:`mean_table`.
    """
    runs = _filled(rows_of(found), [*by, axis], [of])
    groups = runs.groupby([*by, axis], sort=False)
    table = groups[of].agg(mean_text).unstack(axis, sort=False).fillna("")
    heads = [name_of(value, names) for value in table.columns]
    table.columns = pd.MultiIndex.from_product([[name_of(axis, names)], heads])
    rows = [_named(row, names) for row in table.index.to_frame().to_numpy()]
    table.index = pd.MultiIndex.from_tuples(rows)
    return html(table, caption=f"{caption} {over_seeds(groups)}".strip())


def switched(
    found: Any, names: Names | None = None, plain: str = "as in the table"
) -> pd.DataFrame:
    """Return the rows of results with the column ``switch``: what they do otherwise.

    That is each axis of their own with its value, ``plain`` where there is none.
    """
    said = []
    for run in found.runs[list(found.axes)].to_dict("records"):
        parts = []
        for axis, value in run.items():
            if not missing(value):
                parts.append(f"{name_of(axis, names)} {name_of(value, names)}")
        said.append(", ".join(parts) or plain)
    return found.runs.assign(switch=said)


def rows_of(found: Any) -> pd.DataFrame:
    """Return the rows of results; a table of them is returned as it is.

    FltnbError: there is none.
    """
    rows = found if isinstance(found, pd.DataFrame) else found.runs
    if rows.empty:
        raise FltnbError(
            "None of these runs is stored: give compute=True (papermill: -p compute "
            "True) to compute them."
        )
    return rows


def name_of(value: Any, names: Names | None = None) -> str:
    """Return what people call a column or a value; "–" for a missing one."""
    value = "" if missing(value) else value
    known = {"": "–"} | HEADS | SHORT | dict(names or {})
    if value in known:
        return known[value]
    return label(value) if isinstance(value, str) else f"{value:g}"


def mean_text(values: pd.Series) -> str:
    """Write a mean over seeds and its spread; an ARI to two decimals."""
    values = values.astype(float)
    if values.isna().all():
        return ""
    digits = 2 if str(values.name).startswith("ari") else 1
    text = signed(values.mean(), digits)
    spread = values.std()
    return f"{text} ± {spread:.{digits}f}" if spread > 0 else text


def over_seeds(groups: Any) -> str:
    """Say over how many seeds the means of groups of runs are."""
    seeds = groups["seed"].nunique()
    return seeds_text(seeds.min(), seeds.max())


def seeds_text(fewest: int, most: int) -> str:
    """Say over how many seeds means are; "" where nothing has a seed."""
    if most < 2:
        return "One seed." if most else ""
    many = str(most) if fewest == most else f"{fewest}–{most}"
    return f"Mean ± spread over {many} seeds."


def missing(value: Any) -> bool:
    """Whether a column of runs has no value here."""
    return pd.isna(value) or value == ""


def _filled(runs: pd.DataFrame, by: Sequence[str], of: Sequence[str]) -> pd.DataFrame:
    """Put "" for missing values of ``by``, which a group would leave out.

    Columns that no run has are missing everywhere: a grid may have nothing stored.
    """
    wanted = dict.fromkeys([*runs.columns, *by, *of])
    runs = runs.reindex(columns=list(wanted))
    for column in by:
        runs[column] = ["" if missing(value) else value for value in runs[column]]
    return runs


def _named(values: Sequence[Any], names: Names | None) -> tuple[str, ...]:
    return tuple(name_of(value, names) for value in values)
