"""What no run reproduces, and why."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import experiments, published
from .reproduced import NOTEBOOKS, NUMBER, preferred, rows_for

if TYPE_CHECKING:
    import pandas as pd


CALLED = {"08_fesem": "cnn"}
"""Notebook -> what its paper calls every network."""


def missing(table: pd.DataFrame) -> pd.DataFrame:
    """List what no run reproduces in the printed setting and on the printed data, and why.

    Parameters
    ----------
    table : DataFrame
        From :func:`numbers`.

    Returns
    -------
    DataFrame
        ``paper, table, dataset, model, variant, numbers`` (how many), ``methods, why``: one row per reason.
    """
    import pandas as pd

    best = preferred(table)
    rows = []
    for variant in published.RULES:
        own = best[best["variant"] == variant]
        known = {tuple(row[c] for c in NUMBER): row for row in own.to_dict("records")}
        for line in table.drop_duplicates(NUMBER).to_dict("records"):
            run = known.get(tuple(line[c] for c in NUMBER))
            if run is None or run["status"] != "reproduced":
                row = {name: line[name] for name in ("paper", "table", "dataset", "model", "method")}
                rows.append(row | {"variant": variant, "why": _why(line, variant) if run is None else _instead(run)})
    place = ["paper", "table", "dataset", "model", "variant", "why"]
    columns = [*place[:-1], "numbers", "methods", "why"]
    if not rows:
        return pd.DataFrame(columns=columns)
    groups = pd.DataFrame(rows).groupby(place, sort=False)["method"]
    out = groups.agg(numbers="size", methods=lambda names: ", ".join(dict.fromkeys(names))).reset_index()
    tables = list(dict.fromkeys(table["table"]))
    out = out.sort_values(
        ["paper", "table"], key=lambda c: c.map(tables.index) if c.name == "table" else c, kind="stable"
    )
    return out[columns].reset_index(drop=True)


def _instead(run: dict[str, Any]) -> str:
    if run["status"] == "other setting":
        return f"run in another setting: {run['departs']}"
    return f"run on {run['data']} in place of the paper's data" + (f", {run['departs']}" if run["departs"] else "")


def _why(line: dict[str, Any], variant: str) -> str:
    notebook = _notebook(line["paper"], line["table"])
    if not notebook:
        return "its notebook shows it beside what is at hand; it is not counted here"
    params = json.loads(line["params"] or "{}")
    note = "M = {M}, rho = {rho}, E = {E}".format(**params) if notebook == "05_ablation" else ""
    for profile in ("small", "paper"):
        for data, model, *row in _asked(notebook, profile):
            near = rows_for(data, notebook, profile) == [line["dataset"]] and line["model"] in ("", model)
            if near and row == [line["method"], variant, note]:
                if profile == "small":
                    return "profile small has it, but no results of it are stored"
                return "only profile paper runs it (a GPU), and no results of it are stored"
    return "no profile runs the published variant of it" if variant == "as_run" else "no profile runs it"


def _notebook(paper: str, table: str) -> str:
    return next((book for book, tables in NOTEBOOKS.get(paper, {}).items() if table in tables), "")


@cache
def _asked(notebook: str, profile: str) -> frozenset[tuple[str, ...]]:
    """Collect (data, network, method, variant, note) of all runs that a profile has."""
    from ..analysis.standins import MODELS

    if notebook not in experiments.NOTEBOOKS:
        return frozenset()
    return frozenset(
        (
            spec.dataset,
            CALLED.get(notebook) or MODELS.get(spec.model, spec.model),
            *(spec.method_id, spec.variant, spec.note),
        )
        for spec in experiments.specs(notebook, profile)
    )
