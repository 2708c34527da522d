"""The table of verdicts: claim, printed, here, tested on, outcome."""

import re
from typing import Any

import pandas as pd
from IPython import display

from ..papers import label, outcomes
from ..papers.names import NAMES, SHORT
from .html import html
from .scores import TINTS, words

SIGNS = {"agrees": "✔", "partly": "◐", "disagrees": "✘"}
COLORS = dict(zip(SIGNS, (TINTS[1], TINTS[3], TINTS[float("inf")]), strict=True))
CAPTION = (
    "Points of accuracy where nothing else is said. ✔ agrees, ◐ partly, ✘ disagrees, "
    "○ not tested; in brackets: on other data or settings than the paper's, which "
    "counts neither way."
)


def verdict_table(tested: pd.DataFrame, columns: int = 8) -> display.HTML:
    """Lay out what became of claims.

    Data sets, networks and variants stand side by side if they are at most ``columns``,
    else in words. ``tested``: of :func:`fltnb.papers.judge`.
    """
    told = outcomes(tested).set_index("id")
    shown = _placed(tested[tested["text"] != ""])
    heads = list(dict.fromkeys(zip(shown["above"], shown["head"], strict=True)))
    table = pd.DataFrame({("", "claim"): told["claim"]})
    colors = pd.DataFrame("", table.index, table.columns)
    if len(heads) <= columns:
        wide = shown.set_index(["id", "above", "head"])[["cell", "color"]]
        wide = wide.unstack([1, 2]).reindex(told.index)
        table = table.join(wide["cell"][heads])
        colors = colors.join(wide["color"][heads])
    else:
        table["", "printed"] = told["printed"]
        table["", "here"] = told["here"]
    table["", "tested on"] = [_tested_on(one) for one in told.to_dict("records")]
    table["", "outcome"] = told["outcome"] + " " + told["sign"]

    colors = colors.reindex(columns=table.columns).astype(object).fillna("")
    table = table.astype(object).fillna("")
    return html(table.reset_index(drop=True), colors, CAPTION)


def _placed(tested: pd.DataFrame) -> pd.DataFrame:
    """Add the column of each number (``above, head``), its text and its colour.

    Printed numbers stand first, then ours by data set and variant.
    """
    rows = []
    where = _where(tested)
    for line in tested.assign(where=where).to_dict("records"):
        ours = line["variant"] != "printed"
        cell = re.split(r" \(|; |, ", line["text"])[0]
        row = {"id": line["id"], "cell": cell, "color": "", "order": _order(line)}
        row |= {"above": "printed", "head": line["where"]}
        if ours:
            row["above"] = f"here: {line['where']}" if line["where"] else "here"
            row["head"] = words(line["variant"])
            row["cell"] = f"{cell} {SIGNS[line['outcome']]}"
            row["color"] = COLORS[line["outcome"]]
        rows.append(row)
    names = ["id", "cell", "color", "order", "above", "head"]
    return pd.DataFrame(rows, columns=names).sort_values("order", kind="stable")


def _order(line: dict[str, Any]) -> tuple[bool, int, str, int]:
    """Return the place of a number's column."""
    datasets = [*NAMES, line["dataset"]]
    kinds = ["printed", *SHORT, line["variant"]]
    ours = line["variant"] != "printed"
    data = datasets.index(line["dataset"])
    return ours, data, line["where"], kinds.index(line["variant"])


def _where(tested: pd.DataFrame) -> list[str]:
    """Name what tells rows apart: data set, and network where a data set has several."""
    several = tested.groupby("dataset")["model"].nunique().max() > 1
    by_network = several and tested["dataset"].nunique() == 1
    named = []
    for dataset, model in zip(tested["dataset"], tested["model"], strict=True):
        parts = [label(dataset)] if dataset and not by_network else []
        if several and model:
            parts.append(label(model))
        named.append(", ".join(parts))
    return named


def _tested_on(line: dict[str, Any]) -> str:
    if not line["tested_on"]:
        return line["why"]
    seeds = "1 seed" if line["seeds"] == 1 else f"{line['seeds']} seeds"
    alone = f" ({line['alone']} alone)" if line["alone"] else ""
    return f"{line['tested_on']}{alone}, {seeds}"
