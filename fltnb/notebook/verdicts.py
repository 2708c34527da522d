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
COLORS = {
    "agrees": TINTS[1],
    "partly": TINTS[3],
    "disagrees": TINTS[float("inf")],
}
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
    heads = shown[["above", "head"]].drop_duplicates()
    heads = list(heads.itertuples(index=False, name=None))

    table = pd.DataFrame({("", "claim"): told["claim"]})
    colors = pd.DataFrame("", table.index, table.columns)
    if len(heads) <= columns:
        wide = shown.set_index(["id", "above", "head"])[["cell", "color"]]
        wide = wide.unstack(["above", "head"]).reindex(told.index)
        table = table.join(wide["cell"][heads])
        colors = colors.join(wide["color"][heads])
    else:
        table["", "printed"] = told["printed"]
        table["", "here"] = told["here"]
    table["", "tested on"] = [_tested_on(one) for one in told.to_dict("records")]
    table["", "outcome"] = told["outcome"] + " " + told["sign"]

    table = table.astype(object).fillna("")
    colors = colors.reindex(columns=table.columns).astype(object).fillna("")
    return html(table.reset_index(drop=True), colors, CAPTION)


def _placed(tested: pd.DataFrame) -> pd.DataFrame:
    """Add the column of each number (``above, head``), its text and its colour.

    Printed numbers stand first, then ours by data set and variant.
    """
    rows = []
    where = _where(tested)
    for line in tested.assign(where=where).to_dict("records"):
        cell = re.split(r" \(|; |, ", line["text"])[0]
        color = ""
        above = "printed"
        head = line["where"]
        if line["variant"] != "printed":
            cell = f"{cell} {SIGNS[line['outcome']]}"
            color = COLORS[line["outcome"]]
            above = f"here: {head}" if head else "here"
            head = words(line["variant"])
        rows.append((line["id"], cell, color, _order(line), above, head))
    names = ["id", "cell", "color", "order", "above", "head"]
    return pd.DataFrame(rows, columns=names).sort_values("order", kind="stable")


def _order(line: dict[str, Any]) -> tuple[bool, int, str, int]:
    """Return the place of a number's column."""
    variant = line["variant"]
    variants = ["printed", *SHORT, variant]
    datasets = [*NAMES, line["dataset"]]
    dataset = datasets.index(line["dataset"])
    return variant != "printed", dataset, line["where"], variants.index(variant)


def _where(tested: pd.DataFrame) -> list[str]:
    """Name what tells rows apart: data set, and network where there are several."""
    several = tested.groupby("dataset")["model"].nunique().max() > 1
    by_network = several and tested["dataset"].nunique() == 1
    named = []
    for dataset, model in zip(tested["dataset"], tested["model"], strict=True):
        parts = []
        if dataset and not by_network:
            parts.append(label(dataset))
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
