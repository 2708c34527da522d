"""Comparisons: which method is better than which, and mean ranks.

Runs are the rows of a DataFrame, as :func:`table_of` makes it. Pairs are runs of two
methods on the same cell and seed. A failed run counts as 0 %.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

LEVEL = 0.01
"""Corrected p below which a method is called better."""
RANK_LEVEL = 0.05
"""Level of the critical difference of mean ranks."""
MEASURES = ["accuracy", "worst", "ari", "bytes", "seconds"]
"""Numbers of a run that have a mean."""
PLACE = ["track", "family", "level"]
"""Columns that identify a cell."""


def table_of(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a card's runs as a table; missing values are NaN."""
    table = pd.DataFrame(runs)
    table[MEASURES] = table[MEASURES].astype(np.float64)
    table["cell"] = table[PLACE].agg("/".join, axis=1)
    return table


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them: None for what is missing."""
    known = table.notna()
    plain = table.astype(object).where(known, None)
    return plain.to_dict("records")


def holm(p: Sequence[float]) -> list[float]:
    """Correct p-values of several tests (Holm 1979), in their order.

    The smallest of m is multiplied by m, the next by m - 1, and so on. None may be
    smaller than one before it, or above 1.

    Examples
    --------
    >>> [round(one, 2) for one in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected = [1.0] * len(p)
    least = 0.0
    left = len(p)
    for place in np.argsort(p, kind="stable"):
        least = max(least, left * p[place])
        corrected[place] = min(least, 1.0)
        left -= 1
    return corrected


def wilcoxon(differences: np.ndarray) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test; 1 if all are equal.

    Differences of 0 are left out, as in Wilcoxon's original test.
    """
    from scipy import stats

    if not np.any(differences):
        return 1.0
    p = stats.wilcoxon(differences).pvalue
    return float(f"{p:.6g}")  # the same in every version


def scores(runs: pd.DataFrame) -> pd.DataFrame:
    """Return accuracies: a row for each cell and seed, a column for each method."""
    return runs.pivot(index=["cell", "seed"], columns="method", values="accuracy")


def compared(
    runs: pd.DataFrame, method: str, others: Sequence[str]
) -> list[dict[str, Any]]:
    """Compare a method with others, by paired Wilcoxon tests with Holm's correction.

    A federation and seed are one pair. If methods were told several numbers of
    clusters, its difference is the mean over those with which both have played.

    Returns
    -------
    list of dict
        For each other one: ``other``, ``pairs`` (their number), ``difference`` (mean,
        points), ``p`` (two-sided), ``corrected``, ``verdict`` ("better", "worse" or
        "not told apart").
    """
    each = [*PLACE, "seed"]
    table = runs.pivot(index=[*each, "cell"], columns="method", values="accuracy")
    found = []
    for other in others:
        # cells and seeds that both have played
        pairs = table.reindex(columns=[method, other]).dropna()
        pairs = pairs.groupby(level=each).mean()
        differences = pairs[method] - pairs[other]
        mean = float(differences.sum() / max(len(pairs), 1))
        p = wilcoxon(differences.to_numpy())
        one: dict[str, Any] = {
            "other": other,
            "pairs": len(pairs),
            "difference": mean,
            "p": p,
        }
        found.append(one)

    corrected = holm([one["p"] for one in found])
    for one, p in zip(found, corrected, strict=True):
        one["corrected"] = p
        one["verdict"] = verdict(one["difference"], p)
        one["difference"] = round(one["difference"], 4)
    return found


def better_than(comparisons: Sequence[dict[str, Any]]) -> str:
    """Return the names of the others that a method is better than, or "nobody".

    ``comparisons``: those of :func:`compared`.
    """
    names = [one["other"] for one in comparisons if one["verdict"] == "better"]
    return ", ".join(names) or "nobody"


def verdict(difference: float, p: float) -> str:
    """Return the verdict for a mean difference with a corrected p.

    A difference that may be chance is no tie: "not told apart" says only that these
    runs do not show which method is better.
    """
    if p >= LEVEL:
        return "not told apart"
    return "better" if difference > 0 else "worse"


def mean_ranks(runs: pd.DataFrame) -> tuple[dict[str, float], int]:
    """Return each method's mean rank over cells, and the number of cells.

    In a cell, methods are ranked by their mean accuracy over the seeds that all of them
    have: 1 is best, and equal ones share their ranks. Cells that some method has not
    run are left out. Every cell has the same weight: seeds of one cell are not
    independent, as they share its kind of federation and its level of difficulty.
    Accuracies are rounded, so that processors with other last digits give equal ranks.
    """
    shared = scores(runs).dropna()
    by_cell = shared.groupby(level="cell").mean()
    ranks = by_cell.round(6).rank(axis=1, ascending=False)
    return ranks.mean().to_dict(), len(by_cell)


def critical_difference(n_methods: int, n_cells: int) -> float:
    """Return by how much mean ranks must differ (Nemenyi's test at 0.05).

    It is ``q sqrt(k (k + 1) / (6 N))`` for k methods and N cells (Demsar, Journal of
    Machine Learning Research 7, 2006, Section 3.2.2), where q is the quantile of the
    studentised range, divided by the root of 2. NaN: there is nothing to compare.
    """
    from scipy import stats

    if n_methods < 2 or n_cells == 0:
        return math.nan
    q = stats.studentized_range.ppf(1 - RANK_LEVEL, n_methods, math.inf)
    spread = math.sqrt(n_methods * (n_methods + 1) / (6 * n_cells))
    return float(q / math.sqrt(2) * spread)


def means(runs: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return each method's means over its runs, and how many failed.

    Missing numbers are left out: clusters of a method that makes none, and the bytes of
    failed runs.
    """
    found: dict[str, dict[str, Any]] = {}
    for method, own in runs.groupby("method", sort=False):
        failed = own["failed"] != ""
        found[method] = {"runs": len(own), "failed": int(failed.sum())}
        for measure, mean in own[MEASURES].mean().items():
            found[method][measure] = rounded(mean)
    return found


def summary(runs: Sequence[dict[str, Any]], method: str) -> dict[str, Any]:
    """Return all statistics of a card's runs, rounded as they are written.

    The card's method is compared with each other one; ranks are among all of them.
    """
    table = table_of(runs)
    each = means(table)
    others = [one for one in each if one != method]
    ranks, n_cells = mean_ranks(table)
    apart = critical_difference(len(each), n_cells)
    return {
        "means": each,
        "comparisons": compared(table, method, others),
        "ranks": {one: rounded(ranks[one]) for one in each},
        "cells": n_cells,
        "critical_difference": rounded(apart),
    }


def rounded(number: float) -> float | None:
    """Return a number in the form of cards; None if it is not known."""
    if math.isnan(number):
        return None
    return round(float(number), 4)
