"""How many printed numbers are reproduced, and how well; each counts once, however many tables print it."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..results import stored
from ..studies import jobs
from .compare import measured
from .names import label
from .settings import NOTEBOOKS, in_order

STATUS = ("reproduced", "otherwise", "not_run")
SCORES = ("avg_accuracy", "worst_accuracy", "clean_accuracy", "backdoor_accuracy")
"""Measures by which EMD-CFL's tables order methods."""


def committed() -> dict[str, Any]:
    """Return notebook -> its committed results and what it asks for, for every notebook with a printed table."""
    return {name: stored(name, jobs) for books in NOTEBOOKS.values() for name in books}


def all_measured(held: Mapping[str, Any]) -> pd.DataFrame:
    """Return :func:`measured` of every printed table, in the papers' order; ``held``: notebook -> results."""
    return pd.concat(
        [measured(held.get(book), paper, table) for paper, table, book in in_order()],
        ignore_index=True,
    )


def counts(found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Count what was reproduced; ``found``: :func:`all_measured`, of the committed results if left out.

    Returns a DataFrame: ``paper, variant, printed, reproduced`` (in the printed setting on the printed data),
    ``otherwise`` (a lighter network, fewer images, clients or rounds, stand-in data), ``not_run``; of the reproduced,
    ``on_copies``: trained on compressed copies of the printed data's images.
    """
    found = all_measured(committed()) if found is None else found
    found = found[found["table"] == found["first"]].assign(printed=1)
    for word in STATUS:
        found[word] = (found["status"] == word.replace("_", " ")).astype(int)
    found["on_copies"] &= found["status"] == "reproduced"
    return (
        found.groupby(["paper", "variant"], sort=False)[
            ["printed", *STATUS, "on_copies"]
        ]
        .sum()
        .reset_index()
    )


def nearness(found: pd.DataFrame) -> pd.DataFrame:
    """Count how near the reproduced numbers come to the printed ones; ``found``: of :func:`all_measured`.

    Returns a DataFrame: ``paper, variant``; of the reproduced ``accuracies`` (and F1) those within the
    ``printed_error`` (FLT: the binomial one), within 1 and within 3 points (``points_1``, ``points_3``); of the
    ``variances`` those within 25 % (``percent_25``). Papers without a reproduced number are left out.
    """
    found = found[
        (found["table"] == found["first"]) & (found["status"] == "reproduced")
    ]
    off, scores = (
        (found["mean"] - found["number"]).abs(),
        found["metric"].str.contains("accuracy$|f1$"),
    )
    variances = found["metric"] == "accuracy_variance"
    held = {
        "accuracies": scores,
        "printed_error": scores & (off <= found["number_error"]),
    }
    held |= {f"points_{points}": scores & (off <= points) for points in (1, 3)}
    held |= {
        "variances": variances,
        "percent_25": variances & (off <= 0.25 * found["number"]),
    }
    return (
        found.assign(**held)
        .groupby(["paper", "variant"], sort=False)[list(held)]
        .sum()
        .reset_index()
    )


def rank_agreement(
    results: Any, paper: str, table: str, least: int = 8
) -> pd.DataFrame:
    """Compare the order of a table's methods, reproduced against printed, by Spearman's rank correlation.

    Returns a DataFrame: ``dataset, setting, metric``; ``rows``: "as written", or "as run where run"; ``methods``
    compared (``least`` or more); ``rho`` of the means over seeds, ``lowest`` and ``highest`` of full seeds; ``off``:
    the three methods whose rank departs most, with the places by which they are better here than in print. Parameters
    as for :func:`fltnb.papers.measured`.
    """
    keys = ["dataset", "setting", "metric", "method"]

    def both(part: Any) -> pd.DataFrame:
        found = measured(part, paper, table)
        found = found[found["metric"].isin(SCORES)].pivot(
            index=[*keys, "number"], columns="variant", values="mean"
        )
        found = found.astype(float).reset_index("number")
        return found.assign(mixed=found["as_run"].fillna(found["as_written"]))

    whole = both(results)
    single = [
        both(results.where(seed=seed))
        for seed in sorted(set(results.where(kind="training").runs["seed"]))
    ]
    for (
        one
    ) in single:  # no row as written stands in for one as run that lacks this seed
        one["mixed"] = one["as_run"].where(
            whole["as_run"].notna().reindex(one.index), one["as_written"]
        )
    rows = []
    for at, own in whole.groupby(keys[:3], sort=False):
        for column, words in {
            "as_written": "as written",
            "mixed": "as run where run",
        }.items():
            held = own[["number", column]].dropna()
            if len(held) < least or (column == "mixed" and own["as_run"].isna().all()):
                continue
            seeds = [one.loc[held.index, ["number", column]] for one in single]
            rhos = [
                one.corr(method="spearman").iloc[0, 1]
                for one in seeds
                if one[column].notna().all()
            ]
            places = held.rank().diff(axis=1)[column].droplevel(keys[:3])
            far = places.reindex(
                places.abs().sort_values(ascending=False, kind="stable").index[:3]
            )
            off = ", ".join(
                f"{label(name)} {value:+g}" for name, value in far.items() if value
            )
            rho = held.corr(method="spearman").iloc[0, 1]
            rows.append(
                (
                    *at,
                    words,
                    len(held),
                    rho,
                    min(rhos, default=None),
                    max(rhos, default=None),
                    off,
                )
            )
    return pd.DataFrame(
        rows, columns=[*keys[:3], "rows", "methods", "rho", "lowest", "highest", "off"]
    )
