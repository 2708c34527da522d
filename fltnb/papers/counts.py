"""How many printed numbers stand beside ours, and how near they come.

Each counts once, however many tables print it.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..experiments import results
from ..experiments.asking import ledger_names
from .measured import measured
from .names import label
from .numbers import claims
from .settings import TESTED_ON, in_order

SCORES = ("avg_accuracy", "worst_accuracy", "clean_accuracy", "backdoor_accuracy")
"""Measures by which EMD-CFL's tables order methods."""


def committed() -> dict[str, Any]:
    """Return notebook -> its committed results, for all that bear on a paper."""
    names = {book for _, _, book in in_order()}
    for several in claims()["notebook"]:
        names.update(several.split("; "))
    return {name: results(name) for name in ledger_names() if name in names}


def all_measured(held: Mapping[str, Any]) -> pd.DataFrame:
    """Return :func:`measured` of every printed table; ``held``: notebook -> results."""
    each = [measured(held.get(book), paper, table) for paper, table, book in in_order()]
    return pd.concat(each, ignore_index=True)


def counts(found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Count how printed numbers were tested.

    Returns a DataFrame: ``paper, variant, printed``; of these, how many were run in the
    ``printed_setting``, in a ``reduced_setting``, on ``stand_in_data``, ``not_run``; of
    the first ``on_copies``: on compressed copies of the printed data's images.
    ``found``: of :func:`all_measured`; the committed results if left out.
    """
    found = all_measured(committed()) if found is None else found
    found = found[found["table"] == found["first"]].assign(printed=1)
    names = []
    for status in (*TESTED_ON, "not run"):
        names.append(status.replace(" ", "_").replace("-", "_"))
        found[names[-1]] = found["status"] == status
    found["on_copies"] &= found["printed_setting"]
    groups = found.groupby(["paper", "variant"], sort=False)
    return groups[["printed", *names, "on_copies"]].sum().reset_index()


def nearness(found: pd.DataFrame) -> pd.DataFrame:
    """Count how near numbers of the printed setting come to the printed ones.

    Returns a DataFrame: ``paper, variant``; of the ``accuracies`` (and F1) those within
    the ``printed_error`` (FLT: the binomial one), within 1 and within 3 points
    (``points_1, points_3``); of the ``variances`` those within 25 % (``percent_25``).
    Papers without such a number are left out. ``found``: of :func:`all_measured`.
    """
    counted = (found["table"] == found["first"]) & (
        found["status"] == "printed setting"
    )
    found = found[counted]
    off = (found["mean"] - found["number"]).abs()
    score = found["metric"].str.contains("accuracy$|f1$")
    variance = found["metric"] == "accuracy_variance"
    found = found.assign(
        accuracies=score,
        printed_error=score & (off <= found["number_error"]),
        points_1=score & (off <= 1),
        points_3=score & (off <= 3),
        variances=variance,
        percent_25=variance & (off <= 0.25 * found["number"]),
    )
    names = ["accuracies", "printed_error", "points_1", "points_3"]
    groups = found.groupby(["paper", "variant"], sort=False)
    return groups[[*names, "variances", "percent_25"]].sum().reset_index()


def rank_agreement(
    results: Any, paper: str, table: str, least: int = 8
) -> pd.DataFrame:
    """Compare the order of a table's methods, ours and printed, by Spearman's rho.

    Returns a DataFrame: ``dataset, setting, metric``; ``rows``: "text", or "code where
    run" (else text); ``methods`` compared (``least`` or more); ``rho`` of the means
    over seeds, ``lowest`` and ``highest`` of full seeds; ``off``: the three methods
    whose rank departs most, with the places by which they are better here.
    Other parameters as for :func:`fltnb.papers.measured`.
    """
    whole = _orders(results, paper, table)
    seeds = sorted(set(results.where(kind="training").runs["seed"]))
    single = [_orders(results.where(seed=seed), paper, table) for seed in seeds]
    for one in single:
        # a row of the text does not stand in for one of the code that lacks this seed
        run = whole["as_run"].notna().reindex(one.index)
        one["mixed"] = one["as_run"].where(run, one["as_written"])

    rows = []
    where = ["dataset", "setting", "metric"]
    for place, own in whole.groupby(where, sort=False):
        for column, name in {"as_written": "text", "mixed": "code where run"}.items():
            both = own[["number", column]].dropna()
            if len(both) < least or (column == "mixed" and own["as_run"].isna().all()):
                continue
            row = dict(zip(where, place, strict=True))
            row |= {"rows": name, "methods": len(both), "rho": _rho(both)}
            each = [one.loc[both.index, ["number", column]] for one in single]
            rhos = [_rho(one) for one in each if one[column].notna().all()]
            row |= {"lowest": min(rhos, default=None)}
            row |= {"highest": max(rhos, default=None), "off": _farthest(both)}
            rows.append(row)
    columns = [*where, "rows", "methods", "rho", "lowest", "highest", "off"]
    return pd.DataFrame(rows, columns=columns)


def _orders(results: Any, paper: str, table: str) -> pd.DataFrame:
    """Return printed and measured scores: a row per number, a column per variant."""
    found = measured(results, paper, table)
    found = found[found["metric"].isin(SCORES)]
    keys = ["dataset", "setting", "metric", "method"]
    wide = found.pivot(index=[*keys, "number"], columns="variant", values="mean")
    wide = wide.astype(float).reset_index("number")
    return wide.assign(mixed=wide["as_run"].fillna(wide["as_written"]))


def _rho(both: pd.DataFrame) -> float:
    return both.corr(method="spearman").iloc[0, 1]


def _farthest(both: pd.DataFrame) -> str:
    """Name the three methods whose rank departs most."""
    ranks = both.rank()
    places = (ranks.iloc[:, 1] - ranks.iloc[:, 0]).droplevel([0, 1, 2])
    far = places.reindex(places.abs().sort_values(ascending=False, kind="stable").index)
    named = [
        f"{label(name)} {value:+g}" for name, value in far.iloc[:3].items() if value
    ]
    return ", ".join(named)
