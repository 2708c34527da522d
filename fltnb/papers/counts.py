"""How many printed numbers are reproduced, and how well; each counts once, however many tables print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from .compare import measured
from .names import VARIANTS
from .settings import NOTEBOOKS, in_order

STATUS = ("reproduced", "otherwise", "not_run")
NEARNESS = ("paper", "variant", "accuracies", "printed_error", "points_1", "points_3", "variances", "percent_25")
NEAR = 0.25  # variances within a quarter of the printed one count as near


def committed() -> dict[str, Any]:
    """Return notebook -> its committed results and what it asks for, for every notebook with a printed table."""
    from ..results import stored
    from ..studies import jobs

    return {name: stored(name, jobs) for books in NOTEBOOKS.values() for name in books}


def all_measured(results_by_notebook: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return :func:`fltnb.papers.measured` of every printed table, in the papers' order; by default as committed."""
    held = committed() if results_by_notebook is None else results_by_notebook
    tables = [measured(held.get(book), paper, table) for paper, table, book in in_order()]
    return pd.concat(tables, ignore_index=True)


def counts(results_by_notebook: Mapping[str, Any] | None = None, found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Count what was reproduced; ``found``: :func:`all_measured` of the results, made if left out.

    Returns a DataFrame: ``paper, variant, printed, reproduced`` (in the printed setting on the printed data),
    ``otherwise`` (a lighter network, fewer images, clients or rounds, stand-in data), ``not_run``.
    """
    found = all_measured(results_by_notebook) if found is None else found
    found = found[found["table"] == found["first"]]
    rows = []
    for paper in NOTEBOOKS:
        for variant in VARIANTS:
            status = found.loc[(found["paper"] == paper) & (found["variant"] == variant), "status"]
            row = {"paper": paper, "variant": variant, "printed": len(status)}
            row |= {word: int((status == word.replace("_", " ")).sum()) for word in STATUS}
            rows.append(row)
    return pd.DataFrame(rows)


def nearness(results_by_notebook: Mapping[str, Any] | None = None, found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Count how near the reproduced numbers come to the printed ones; parameters as for :func:`counts`.

    Returns a DataFrame: ``paper, variant``; of the reproduced ``accuracies`` (and F1) those within the
    ``printed_error`` (FLT: the binomial one), within 1 and within 3 points (``points_1``, ``points_3``); of the
    ``variances`` those within 25 % (``percent_25``). Papers without a reproduced number are left out.
    """
    found = all_measured(results_by_notebook) if found is None else found
    found = found[(found["table"] == found["first"]) & (found["status"] == "reproduced")]
    found = found.assign(off=(found["mean"] - found["number"]).abs())
    rows = []
    for (paper, variant), own in found.groupby(["paper", "variant"], sort=False):
        scores = own[own["metric"].str.contains("accuracy$|f1$")]
        variances = own[own["metric"] == "accuracy_variance"]
        row = {"paper": paper, "variant": variant, "accuracies": len(scores)}
        row["printed_error"] = int((scores["off"] <= scores["number_error"]).sum())
        row |= {f"points_{points}": int((scores["off"] <= points).sum()) for points in (1, 3)}
        row |= {"variances": len(variances), "percent_25": (variances["off"] <= NEAR * variances["number"]).sum()}
        rows.append(row)
    return pd.DataFrame(rows, columns=NEARNESS)
