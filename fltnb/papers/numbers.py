"""The papers' numbers (``published_results.csv``) and claims (``claims.csv``).

Values are read as text, because "98.0" and "98.00" are different statements. Numeric
columns are added.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

from ..errors import choose

KEY = ("dataset", "model", "method", "split", "metric")
"""Columns that identify a printed number, apart from its experiment's setting."""


@cache
def read(name: str) -> pd.DataFrame:
    """Read a table from this module's folder, as text; do not change the frame."""
    file = resources.files(__package__).joinpath(name)
    with pd.option_context("mode.string_storage", "python"), file.open("rb") as lines:
        return pd.read_csv(lines, dtype=str, keep_default_na=False)


def params_of(text: str) -> dict[str, Any]:
    """Return what a printed line names in its column ``params``, JSON or empty.

    Examples
    --------
    >>> params_of('{"M": 100, "rho": 0.2}'), params_of("")
    ({'M': 100, 'rho': 0.2}, {})
    """
    return json.loads(text or "{}")


@cache
def _numbers() -> pd.DataFrame:
    """Return all printed numbers, and the table that prints each one first."""
    table = read("published_results.csv").copy()
    table["number"] = pd.to_numeric(table["value"])
    table["number_error"] = pd.to_numeric(table["error"].replace("", None))

    # lines of an ablation differ only in their parameters
    line = table["params"].where(table["setting"] == "ablation", "")
    same = ["paper", *KEY, "setting", "line", "number"]
    repeated = table.assign(line=line).groupby(same)
    table["first"] = repeated["table"].transform("first")
    return table


def numbers(
    paper: str | None = None, table: str | None = None, **filters
) -> pd.DataFrame:
    """Select printed numbers, in the order of the papers.

    Parameters
    ----------
    paper : {"flt", "fesem", "mthfl", "emdcfl"}, optional
        By default all papers.
    table : str, optional
        "T1", "T7", ... (MT-HFL: "TI", "TII"); by default all tables.
    **filters
        A column, and its value or a list of values.

    Returns
    -------
    DataFrame
        ``paper, table, setting, dataset, model, method, split, metric, value, error,
        params, note`` as printed (text; ``params`` is JSON); ``number`` and
        ``number_error`` (float, NaN if there is none); ``first``: the table that prints
        this number first. A number counts only if ``first`` equals ``table``; 925 of
        1,099 do. Accuracies and F1 are in percent, variances in percent squared. Empty
        if no row has all the values.

    Raises
    ------
    FltnbError
        A column is unknown, or a value does not occur in its column.

    Examples
    --------
    >>> import fltnb as fl
    >>> table = fl.papers.numbers("flt", table="T1")
    >>> len(table), table["number"].max().item()
    (24, 695.01)
    """
    found = _numbers()
    columns = read("published_results.csv").columns
    for column, value in {"paper": paper, "table": table, **filters}.items():
        if value is None:
            continue
        choose(column, columns, "column of printed numbers")
        values = [value] if isinstance(value, str) else list(value)
        # a table's name means nothing without its paper: T11 is EMD-CFL's
        known = found if column == "table" else _numbers()
        for one in values:
            choose(one, known[column].unique(), f"printed {column}")
        found = found[found[column].isin(values)]
    return found.reset_index(drop=True)


def claims() -> pd.DataFrame:
    """Return the papers' claims, tested or not.

    Returns
    -------
    DataFrame of text
        One row per claim: ``id``, ``paper``, ``source`` (figure, table or section),
        ``notebook`` (the notebooks that test it), ``claim`` (in our words),
        ``testable`` (what prevents a test as the paper means it, else empty). Several
        sources or notebooks are separated by "; ".

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.papers.claims().columns.tolist()
    ['id', 'paper', 'source', 'notebook', 'claim', 'testable']
    """
    return read("claims.csv").copy()


def inconsistencies(paper: str = "flt") -> pd.DataFrame:
    """Return numbers that a paper prints more than once with different values.

    FLT's ablation (Table 5) repeats scenario 2 of Table 2 in one line and is compared
    with it.

    Parameters
    ----------
    paper : {"flt", "fesem", "mthfl", "emdcfl"}

    Returns
    -------
    DataFrame
        ``setting, dataset, model, method, split, metric``; ``printed``: a dict table ->
        value as printed.

    Examples
    --------
    >>> import fltnb as fl
    >>> len(fl.papers.inconsistencies("flt")) > 0
    True
    """
    rows = numbers(paper)
    rows = rows[rows["method"] != ""]
    if paper == "flt":
        setting = rows["setting"].replace("ablation", "scenario2")
        rows = rows.assign(setting=setting)
    same = []
    for params, setting in zip(rows["params"], rows["setting"], strict=True):
        same.append(_telling(params, setting))
    rows = rows.assign(same=same)

    keys = ["setting", *KEY]
    found = []
    for _, group in rows.groupby([*keys, "same"], sort=False):
        by_table = group.set_index("table")["value"]
        if by_table.index.nunique() == 1 or by_table.nunique() == 1:
            continue
        row = group[keys].iloc[0].to_dict()
        row["printed"] = by_table.to_dict()
        found.append(row)
    return pd.DataFrame(found, columns=[*keys, "printed"])


def _telling(params: str, setting: str) -> str:
    """Return the parameters that distinguish experiments, as text.

    Only Table 5 names J, and it varies T; Tables 3 and 9 disagree on T.
    """
    left_out = ["J"]
    if setting != "scenario2":
        left_out.append("T")
    kept = params_of(params)
    for name in left_out:
        kept.pop(name, None)
    return str(sorted(kept.items()))
