"""Tables of runs: means over seeds, grouped by the columns in which runs differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from IPython import display

from ..errors import FltnbError
from ..experiments.reading import NOTHING_STORED
from ..papers import label
from ..papers.names import SHORT
from .html import html, signed

HEADS = {"dataset": "data", "variant": "following", "n_clusters": "clusters"}
"""Columns of runs -> their heads."""
Names = Mapping[Any, str]
"""Columns and values -> their displayed names; "": for a missing value."""


def mean_table(
    found: Any,
    by: Sequence[str] = ("dataset", "variant", "method"),
    of: Sequence[str] = ("accuracy",),
    names: Names | None = None,
) -> display.HTML:
    """Lay out means over seeds: a row for each value of ``by``, a column per number.

    Parameters
    ----------
    found : Results, or rows of their ``runs``
    by : sequence of str
        Columns whose values define the rows.
    of : sequence of str
        Columns of numbers, whose means are shown.
    names : dict, optional
        :data:`Names`.

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> columns = {"method": ["fedavg", "fedavg", "local"], "k": [3, 5, 3], "seed": 0}
    >>> runs = pd.DataFrame(columns | {"accuracy": [80.0, 82.0, 97.0]})
    >>> table = fl.notebook.mean_table(runs, by=["method"]).data
    >>> "81.0" in table, "One seed." in table  # FedAvg's mean of 80 and 82
    (True, True)
    """
    runs = _filled(rows_of(found), by, of)
    groups = runs.groupby(list(by), sort=False)
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
    """Lay out means over seeds with the values of an axis as columns.

    Parameters
    ----------
    found : Results, or rows of their ``runs``
    axis : str
        A column whose values are the columns of the table.
    of : str
        The number whose means are shown.
    by : sequence of str
        Columns whose values are the rows.
    names : dict, optional
        :data:`Names`.
    caption : str
        Text below the table, before the number of seeds.

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> columns = {"method": ["fedavg", "fedavg", "local"], "k": [3, 5, 3], "seed": 0}
    >>> runs = pd.DataFrame(columns | {"accuracy": [80.0, 82.0, 97.0]})
    >>> table = fl.notebook.axis_table(runs, "k").data
    >>> table.index("80.0") < table.index("82.0")  # k = 3 stands left of k = 5
    True
    """
    runs = _filled(rows_of(found), [*by, axis], [of])
    groups = runs.groupby([*by, axis], sort=False)
    means = groups[of].agg(mean_text)
    table = means.unstack(axis, sort=False).fillna("")
    heads = [name_of(value, names) for value in table.columns]
    table.columns = pd.MultiIndex.from_product([[name_of(axis, names)], heads])

    rows = []
    for values in table.index.to_frame().to_numpy():
        rows.append(tuple(name_of(value, names) for value in values))
    table.index = pd.MultiIndex.from_tuples(rows)
    below = f"{caption} {over_seeds(groups)}"
    return html(table, caption=below.strip())


def switched(
    found: Any, names: Names | None = None, plain: str = "as in the table"
) -> pd.DataFrame:
    """Return the rows of results with the column ``switch``: their differences.

    Parameters
    ----------
    found : Results
    names : dict, optional
        :data:`Names`.
    plain : str
        Text for a run without a value for any of the notebook's own axes. For other
        runs each axis is shown with its value.

    Examples
    --------
    >>> import fltnb as fl
    >>> runs = fl.notebook.switched(fl.results("02"))
    >>> "momentum 0.5" in set(runs["switch"])
    True
    """
    said = []
    own = found.runs[list(found.axes)]
    for run in own.to_dict("records"):
        parts = []
        for axis, value in run.items():
            if not missing(value):
                parts.append(f"{name_of(axis, names)} {name_of(value, names)}")
        said.append(", ".join(parts) or plain)
    return found.runs.assign(switch=said)


def rows_of(found: Any) -> pd.DataFrame:
    """Return the rows of results; a table is returned unchanged.

    Raises FltnbError if there are none.

    Examples
    --------
    >>> import fltnb as fl
    >>> results = fl.results("01").where(kind="training")
    >>> len(fl.notebook.rows_of(results)) == len(results.runs)
    True
    """
    rows = found if isinstance(found, pd.DataFrame) else found.runs
    if rows.empty:
        raise FltnbError(NOTHING_STORED)
    return rows


def name_of(value: Any, names: Names | None = None) -> str:
    """Return the displayed name of a column or a value; "–" for a missing one.

    ``names`` come first, then :data:`HEADS`, then the short names of methods and
    variants, then labels.

    Examples
    --------
    >>> name_of("variant"), name_of(0.5), name_of(None), name_of(1, {1: "one"})
    ('following', '0.5', '–', 'one')
    """
    if missing(value):
        value = ""
    known = {"": "–"} | HEADS | SHORT | dict(names or {})
    if value in known:
        return known[value]
    if isinstance(value, str):
        return label(value)
    return f"{value:g}"


def mean_text(values: pd.Series) -> str:
    """Write a mean over seeds and its spread; an ARI to two decimals.

    "" where no run has a value.
    """
    values = values.astype(float)
    if values.isna().all():
        return ""
    digits = 1
    if str(values.name).startswith("ari"):
        digits = 2
    text = signed(values.mean(), digits)
    return text + spread_text(values.std(), digits)


def spread_text(spread: float, digits: int) -> str:
    """Write what follows a mean; "" where there is no spread.

    Examples
    --------
    >>> spread_text(0.26, 1), spread_text(float("nan"), 1)
    (' ± 0.3', '')
    """
    return f" ± {spread:.{digits}f}" if spread > 0 else ""


def over_seeds(groups: Any) -> str:
    """Say over how many seeds the means of groups of runs are."""
    seeds = groups["seed"].nunique()
    return seeds_text(seeds.min(), seeds.max())


def seeds_text(fewest: int, most: int) -> str:
    """Say over how many seeds means are; "" where nothing has a seed.

    Examples
    --------
    >>> seeds_text(3, 5), seeds_text(1, 1)
    ('Mean ± spread over 3–5 seeds.', 'One seed.')
    """
    if most == 0:
        return ""
    if most == 1:
        return "One seed."
    many = f"{fewest}–{most}"
    if fewest == most:
        many = f"{most}"
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
