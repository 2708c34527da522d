"""How many printed numbers are reproduced, and how well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .compare import measured
from .names import VARIANTS
from .settings import NOTEBOOKS

if TYPE_CHECKING:
    import pandas as pd

NEAR = 0.25  # variances within a quarter of the printed one count as near


def committed() -> dict[str, Any]:
    """Return notebook -> its committed results, for every notebook with a printed table."""
    from ..results import stored

    return {name: stored(name) for books in NOTEBOOKS.values() for name in books}


def all_measured(results_by_notebook: Mapping[str, Any]) -> pd.DataFrame:
    """Return :func:`fltnb.papers.measured` of every printed table, one below the other, in the papers' order."""
    import pandas as pd

    return pd.concat(
        [
            measured(results_by_notebook.get(notebook), paper, table)
            for paper, books in NOTEBOOKS.items()
            for table, notebook in sorted(
                ((table, notebook) for notebook, tables in books.items() for table in tables), key=_in_order
            )
        ],
        ignore_index=True,
    )


def _in_order(pair: tuple[str, str]) -> tuple[int, str]:
    return len(pair[0]), pair[0]


def counts(results_by_notebook: Mapping[str, Any] | None = None, found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Count what was reproduced, each printed number once, however many tables print it.

    Parameters
    ----------
    results_by_notebook : mapping, optional
        Notebook -> Results; the committed ones if left out.
    found : DataFrame, optional
        From :func:`all_measured` of these, which is made if left out.

    Returns
    -------
    DataFrame
        ``paper, variant, printed, reproduced`` (in the printed setting on the printed data), ``otherwise`` (a lighter
        network, fewer images, clients or rounds, stand-in data), ``not_run``.
    """
    found = _once(results_by_notebook, found)
    rows = []
    for paper in NOTEBOOKS:
        for variant in VARIANTS:
            status = found.loc[(found["paper"] == paper) & (found["variant"] == variant), "status"]
            row = {"paper": paper, "variant": variant, "printed": len(status)}
            words = {"reproduced": "reproduced", "otherwise": "otherwise", "not_run": "not run"}
            rows.append(row | {name: int((status == word).sum()) for name, word in words.items()})
    import pandas as pd

    return pd.DataFrame(rows)


def nearness(results_by_notebook: Mapping[str, Any] | None = None, found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Count how near the reproduced numbers come to the printed ones, each printed number once.

    Parameters
    ----------
    results_by_notebook, found
        As for :func:`counts`.

    Returns
    -------
    DataFrame
        ``paper, variant``; of the reproduced ``accuracies`` (and F1) those within FLT's ``printed_error`` (the
        binomial one; other papers: their own), within 1 and within 3 points (``points_1``, ``points_3``); of the
        ``variances`` those within 25 % (``percent_25``). Papers without a reproduced number are left out.
    """
    import pandas as pd

    found = _once(results_by_notebook, found)
    found = found[found["status"] == "reproduced"]
    rows = []
    for (paper, variant), own in found.groupby(["paper", "variant"], sort=False):
        scores = own[own["metric"].str.contains("accuracy$|f1$")]
        variances = own[own["metric"] == "accuracy_variance"]
        off = (scores["mean"] - scores["number"]).abs()
        apart = (variances["mean"] - variances["number"]).abs()
        row = {"paper": paper, "variant": variant, "accuracies": len(scores)}
        row |= {"printed_error": int((off <= scores["number_error"]).sum())}
        row |= {f"points_{points}": int((off <= points).sum()) for points in (1, 3)}
        rows.append(row | {"variances": len(variances), "percent_25": int((apart <= NEAR * variances["number"]).sum())})
    columns = ("paper", "variant", "accuracies", "printed_error", "points_1", "points_3", "variances", "percent_25")
    return pd.DataFrame(rows, columns=columns)


def _once(results_by_notebook: Mapping[str, Any] | None, found: pd.DataFrame | None) -> pd.DataFrame:
    if found is None:
        found = all_measured(committed() if results_by_notebook is None else results_by_notebook)
    return found[found["table"] == found["first"]]
