"""What the numbers say: who is better than whom, and mean ranks.

Pairs are runs of two methods on the same cell and seed. A failed run counts 0 %.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

LEVEL = 0.01
"""Largest corrected p at which a method is called better."""
RANK_LEVEL = 0.05
"""Of the critical difference of mean ranks."""
MEASURES = ("accuracy", "worst", "ari", "bytes", "seconds")

Rows = Sequence[dict[str, Any]]
"""Runs, as :func:`fltnb.arena.play.played` gives them."""


def holm(p: Sequence[float]) -> list[float]:
    """Correct p-values of several tests (Holm 1979), in their order.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none may be
    below one before it, or above 1.

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
    """Return the two-sided p of Wilcoxon's signed-rank test; 1 where all are equal."""
    from scipy import stats

    if not np.any(differences):
        return 1.0
    return float(stats.wilcoxon(differences).pvalue)


def cell_of(row: dict[str, Any]) -> str:
    """Return the name of a run's cell."""
    return "/".join([row["track"], row["family"], row["level"]])


def of_cell(rows: Rows, cell: str) -> list[dict[str, Any]]:
    """Return the runs on a cell, given by its name."""
    return [row for row in rows if cell_of(row) == cell]


def values_of(rows: Rows, measure: str) -> list[float]:
    """Return the numbers of runs, without those that a run has not."""
    return [row[measure] for row in rows if row[measure] is not None]


def accuracies(rows: Rows, method: str) -> dict[tuple[str, int], float]:
    """Return a method's accuracy by cell and seed."""
    found = {}
    for row in rows:
        if row["method"] == method:
            place = cell_of(row), row["seed"]
            found[place] = row["accuracy"]
    return found


def compared(rows: Rows, method: str, others: Sequence[str]) -> list[dict[str, Any]]:
    """Compare a method with others, by paired Wilcoxon tests with Holm's correction.

    Returns
    -------
    list of dict
        For each other one: ``other``, ``pairs`` (their number), ``difference`` (mean,
        points), ``p`` (two-sided), ``corrected``, ``verdict`` ("better", "worse" or
        "not told apart").
    """
    found = []
    own = accuracies(rows, method)
    for other in others:
        theirs = accuracies(rows, other)
        shared = [place for place in own if place in theirs]
        differences = np.array([own[place] - theirs[place] for place in shared])
        mean = float(differences.mean()) if shared else 0.0
        one = {"other": other, "pairs": len(shared), "difference": round(mean, 4)}
        one["p"] = wilcoxon(differences)
        found.append(one)

    corrected = holm([one["p"] for one in found])
    for one, p in zip(found, corrected, strict=True):
        one["corrected"] = p
        one["verdict"] = "not told apart"
        if p < LEVEL:
            better = one["difference"] > 0
            one["verdict"] = "better" if better else "worse"
    return found


def mean_ranks(rows: Rows, methods: Sequence[str]) -> tuple[dict[str, float], int]:
    """Return each method's mean rank over cells, and the number of cells.

    In a cell, methods are ranked by their mean accuracy over the seeds that all have
    played there: 1 is best, equal ones share their ranks. Cells that somebody has not
    played are left out.
    """
    from scipy import stats

    each = [accuracies(rows, method) for method in methods]
    shared = set(each[0]).intersection(*each)
    seeds = {}
    for cell, seed in sorted(shared):
        seeds.setdefault(cell, []).append(seed)
    if not seeds:
        return dict.fromkeys(methods, math.nan), 0

    ranks = []
    for cell, own in seeds.items():
        means = []
        for one in each:
            values = [one[cell, seed] for seed in own]
            means.append(round(float(np.mean(values)), 6))
        ranks.append(stats.rankdata(np.negative(means)))
    mean = np.mean(ranks, axis=0).tolist()
    return dict(zip(methods, mean, strict=True)), len(ranks)


def critical_difference(n_methods: int, n_cells: int) -> float:
    """Return by how much mean ranks must differ (Nemenyi's test at 0.05).

    Demsar, Journal of Machine Learning Research 7, 2006, Section 3.2.2: q is the
    quantile of the studentised range, over the root of 2. NaN: there is nothing to
    tell apart.
    """
    from scipy import stats

    if n_methods < 2 or n_cells == 0:
        return math.nan
    q = stats.studentized_range.ppf(1 - RANK_LEVEL, n_methods, math.inf)
    spread = math.sqrt(n_methods * (n_methods + 1) / (6 * n_cells))
    return float(q / math.sqrt(2) * spread)


def means(rows: Rows, method: str) -> dict[str, Any]:
    """Return a method's means over its runs; numbers that a run lacks are left out."""
    own = [row for row in rows if row["method"] == method]
    failed = [row for row in own if row["failed"]]
    found = {"runs": len(own), "failed": len(failed)}
    for measure in MEASURES:
        values = values_of(own, measure)
        found[measure] = _rounded(float(np.mean(values))) if values else None
    return found


def summary(rows: Rows, method: str) -> dict[str, Any]:
    """Return everything that a card says about its runs."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    others = [one for one in methods if one != method]
    ranks, n_cells = mean_ranks(rows, methods)
    apart = critical_difference(len(methods), n_cells)
    return {
        "means": {one: means(rows, one) for one in methods},
        "comparisons": compared(rows, method, others),
        "ranks": {one: _rounded(rank) for one, rank in ranks.items()},
        "cells": n_cells,
        "critical_difference": _rounded(apart),
    }


def _rounded(number: float) -> float | None:
    """Return a number as cards have it; None where it is not known."""
    return None if math.isnan(number) else round(number, 4)
