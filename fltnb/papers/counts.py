"""Counts of printed numbers that were run, and of ours that come near them.

A number that several tables print counts once.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from .. import paths
from ..experiments import results
from ..experiments.asking import ledger_names
from .measured import VARIANTS, measured
from .names import label
from .numbers import claims
from .settings import TESTED_ON, in_order

_TABLE = ("paper", "variant", "table", "setting", "dataset", "params")
"""Columns that are equal for all rows of a table that can be compared."""
SCORES = ("avg_accuracy", "worst_accuracy", "clean_accuracy", "backdoor_accuracy")
"""Measures for which the order of methods in EMD-CFL's tables is compared."""


def committed() -> dict[str, Any]:
    """Return notebook -> its committed results, for all notebooks about a paper.

    Raises FltnbError outside a clone of the repository.

    Examples
    --------
    >>> import fltnb as fl
    >>> list(fl.papers.committed())[:2]
    ['00_start_here', '01_scenario1']
    """
    paths.notebooks()  # outside a clone every count would be 0
    names = {book for _, _, book in in_order()}
    for several in claims()["notebook"]:
        names.update(several.split("; "))
    return {name: results(name) for name in ledger_names() if name in names}


def all_measured(held: Mapping[str, Any]) -> pd.DataFrame:
    """Return :func:`measured` of every printed table.

    Parameters
    ----------
    held : dict
        Notebook -> results.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.papers.all_measured({"01_scenario1": fl.results("01")})
    >>> ours = found[found["status"] != "not run"]
    >>> "T1" in set(ours["table"])
    True
    """
    each = []
    for paper, table, book in in_order():
        each.append(measured(held.get(book), paper, table))
    return pd.concat(each, ignore_index=True)


# ---------------------------------------------------------------- counts


def _counted_once(found: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers in the table that prints them first."""
    return found[found["table"] == found["first"]].copy()


def _sums(found: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Add up columns by paper and variant."""
    groups = found.groupby(["paper", "variant"], sort=False)
    return groups[columns].sum().reset_index()


def counts(found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Count how printed numbers were tested.

    Parameters
    ----------
    found : DataFrame, optional
        The result of :func:`all_measured`; by default for the committed results.

    Returns
    -------
    DataFrame
        ``paper, variant, printed``; the number of these that were run in the
        ``printed_setting``, in a ``reduced_setting``, on ``stand_in_data``, or were
        ``not_run``; and how many in the ``printed_setting`` are of a run that another
        row has too (``same_run``, see :func:`_repeats`), or were run ``on_copies``, on
        compressed copies of the printed data's images.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.papers.measured(fl.results("01"), "flt", "T1")
    >>> fl.papers.counts(found)["paper"].unique().tolist()
    ['flt']
    """
    if found is None:
        found = all_measured(committed())
    found = _counted_once(found)
    found["printed"] = 1
    columns = ["printed"]
    for status in (*TESTED_ON, "not run"):
        name = status.replace(" ", "_").replace("-", "_")
        found[name] = found["status"] == status
        columns.append(name)
    found["same_run"] = _repeats(found)
    for name in ("same_run", "on_copies"):
        found[name] &= found["printed_setting"]
    return _sums(found, [*columns, "same_run", "on_copies"])


def _repeats(found: pd.DataFrame) -> pd.Series:
    """Return whether a number is of the same run as an earlier row of its table.

    Methods that find the same clusters train the same models: their runs are one. Rows
    are of one run if all their accuracies and variances are equal in all digits; ARIs
    are not compared, as different runs often have an ARI of 1.
    """
    trained = found["metric"].str.contains("accuracy") & found["mean"].notna()
    of_runs = found[trained]
    tables = [of_runs[name].astype(str) for name in _TABLE]

    repeated = pd.Series(False, index=found.index)
    for _, rows in of_runs.groupby(tables, sort=False):
        seen = set()
        for _, own in rows.groupby("method", sort=False):
            shown = own[["metric", "split", "mean", "spread", "seeds"]].fillna(0.0)
            numbers = tuple(shown.itertuples(index=False, name=None))
            repeated[own.index] = numbers in seen
            seen.add(numbers)
    return repeated


def nearness(found: pd.DataFrame) -> pd.DataFrame:
    """Count our numbers in the printed setting that are near the printed ones.

    Parameters
    ----------
    found : DataFrame
        The result of :func:`all_measured`.

    Returns
    -------
    DataFrame
        ``paper, variant``; the number of ``accuracies`` (and F1), of these within the
        ``printed_error`` (FLT: the binomial error), within 1 and within 3 points
        (``points_1, points_3``); the number of ``variances``, of these within 25 %
        (``percent_25``). Papers without such a number are left out.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.papers.measured(fl.results("01"), "flt", "T1")
    >>> fl.papers.nearness(found)["variant"].tolist()
    ['as_written', 'as_run']
    """
    found = _counted_once(found)
    found = found[found["status"] == "printed setting"]
    off = (found["mean"] - found["number"]).abs()
    score = found["metric"].str.contains("accuracy$|f1$")
    variance = found["metric"] == "accuracy_variance"
    near = {
        "accuracies": score,
        "printed_error": score & (off <= found["number_error"]),
        "points_1": score & (off <= 1),
        "points_3": score & (off <= 3),
        "variances": variance,
        "percent_25": variance & (off <= 0.25 * found["number"]),
    }
    return _sums(found.assign(**near), list(near))


# ---------------------------------------------------------------- orders

_PLACE = ["dataset", "setting", "metric"]
"""Columns that define one order of a table's methods."""
_FOLLOWING = {"as_written": "text", "mixed": "code where run"}
"""Column of :func:`_orders` -> what its rows follow."""


def rank_agreement(
    results: Any, paper: str, table: str, least: int = 8
) -> pd.DataFrame:
    """Compare the order of methods in a table, ours and printed, by Spearman's rho.

    Parameters
    ----------
    results, paper, table
        As for :func:`fltnb.papers.measured`.
    least : int
        Orders with fewer methods are left out.

    Returns
    -------
    DataFrame
        ``dataset, setting, metric``; ``following``: "text", or "code where run" (else
        text); number of ``methods``; ``rho`` of the means over seeds; its ``lowest``
        and ``highest`` value over complete seeds; ``differ most``: the three methods
        whose ranks differ most, with the number of places by which ours is better.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.papers.rank_agreement(fl.results("11"), "emdcfl", "T1")
    >>> ", ".join(found.columns)
    'dataset, setting, metric, following, methods, rho, lowest, highest, differ most'
    """
    whole = _orders(results, paper, table)
    trained = results.where(kind="training").runs
    by_seed = []
    for seed in sorted(set(trained["seed"])):
        one = _orders(results.where(seed=seed), paper, table)
        # a row of the text does not replace a row of the code that lacks this seed
        by_code = whole["as_run"].notna().reindex(one.index)
        one["mixed"] = one["as_run"].where(by_code, one["as_written"])
        by_seed.append(one)

    rows = []
    for place, own in whole.groupby(_PLACE, sort=False):
        for column, name in _FOLLOWING.items():
            both = own[["number", column]].dropna()
            without_code = column == "mixed" and own["as_run"].isna().all()
            if len(both) < least or without_code:
                continue
            rhos = _rhos_by_seed(by_seed, both)
            row = {
                "following": name,
                "methods": len(both),
                "rho": _rho(both),
                "lowest": min(rhos, default=None),
                "highest": max(rhos, default=None),
                "differ most": _farthest(both),
            }
            row.update(zip(_PLACE, place, strict=True))
            rows.append(row)
    columns = [*_PLACE, "following", "methods", "rho", "lowest", "highest"]
    columns.append("differ most")
    return pd.DataFrame(rows, columns=columns)


def _orders(results: Any, paper: str, table: str) -> pd.DataFrame:
    """Return printed and measured scores, a row per number and a column per variant.

    The column ``mixed`` has the code's score, or the text's if the code was not run.
    """
    found = measured(results, paper, table)
    found = found[found["metric"].isin(SCORES)]
    index = [*_PLACE, "method", "number"]
    wide = found.pivot(index=index, columns="variant", values="mean")
    wide = wide.reindex(columns=list(VARIANTS)).astype(float).reset_index("number")
    mixed = wide["as_run"].fillna(wide["as_written"])
    return wide.assign(mixed=mixed)


def _rho(both: pd.DataFrame) -> float:
    """Return Spearman's rho of two columns."""
    return both.corr(method="spearman").iloc[0, 1]


def _rhos_by_seed(by_seed: list[pd.DataFrame], both: pd.DataFrame) -> list[float]:
    """Return rho for each seed that has all rows."""
    found = []
    for one in by_seed:
        own = one.loc[both.index, both.columns]
        if own.iloc[:, 1].notna().all():
            found.append(_rho(own))
    return found


def _farthest(both: pd.DataFrame) -> str:
    """Return the three methods whose ranks differ most, as text."""
    ranks = both.rank()
    printed = ranks.iloc[:, 0]
    places = ranks.iloc[:, 1] - printed
    far = places.abs().sort_values(ascending=False, kind="stable").index[:3]
    named = []
    for row in far:
        if places[row]:
            method = row[-1]
            named.append(f"{label(method)} {places[row]:+g}")
    return ", ".join(named)
