"""The table of verdicts: claim, outcome, tested on, printed, here."""

import re
from typing import Any

import pandas as pd
from IPython import display

from ..papers import label, outcomes
from ..papers.names import NAMES, SHORT
from ..papers.settings import TESTED_ON
from .html import html, pairs_of
from .scores import FAR, TINTS, words

SIGNS = {
    "agrees": "✔",
    "partly": "◐",
    "disagrees": "✘",
}
COLORS = {
    "agrees": TINTS[1],
    "partly": TINTS[3],
    "disagrees": TINTS[FAR],
}
"""Outcome of a number -> colour of its cell."""
SHORT_CELL = 12
"""Cells up to this length stay on one line, because there are many columns."""
CAPTION = (
    "Points of accuracy where nothing else is said. ✔ agrees, ◐ partly, ✘ disagrees, "
    "○ not tested; in brackets: on other data or settings than the paper's, which "
    "counts neither way."
)
COUNTS = TESTED_ON[0]
"""Only numbers of this setting count for or against a paper, and are tinted."""
Line = dict[str, Any]
"""A row of a table of verdicts or outcomes, column -> value."""


def verdict_table(tested: pd.DataFrame, columns: int = 8) -> display.HTML:
    """Lay out the outcomes of claims, a row for each.

    Parameters
    ----------
    tested : DataFrame
        Result of :func:`fltnb.papers.judge`: a row for each tested number.
    columns : int
        Data sets, networks and variants are columns if there are at most this number;
        otherwise they are described in words.

    Examples
    --------
    >>> import fltnb as fl
    >>> tested = fl.papers.judge("01_scenario1", fl.results("01"))
    >>> "✘" in fl.notebook.verdict_table(tested).data
    True
    """
    told = outcomes(tested).set_index("id")
    shown = _placed(tested[tested["text"] != ""])
    heads = pairs_of(shown, "above", "head")

    # The outcome stands beside the claim: what a narrow window cuts off is detail.
    table = pd.DataFrame({("", "claim"): told["claim"]})
    table["", "outcome"] = told["outcome"] + " " + told["sign"]
    table["", "tested on"] = [_tested_on(one) for one in told.to_dict("records")]
    colors = pd.DataFrame("", table.index, table.columns)
    if heads and len(heads) <= columns:
        cells = shown.set_index(["id", "above", "head"])
        wide = cells[["cell", "color"]].unstack(["above", "head"])
        wide = wide.reindex(told.index)
        table = table.join(wide["cell"][heads])
        colors = colors.join(wide["color"][heads])
    else:
        table["", "printed"] = told["printed"]
        table["", "here"] = told["here"]

    # Cells without a printed number, or without ours, are empty.
    colors = colors.reindex(columns=table.columns)
    colors = colors.astype(object).fillna("")
    table = table.astype(object).fillna("")
    return html(table.reset_index(drop=True), colors, CAPTION, unbroken=SHORT_CELL)


def _placed(tested: pd.DataFrame) -> pd.DataFrame:
    """Say in which column of the table each number stands, and how.

    Printed numbers stand first, then ours by data set and variant.

    Returns
    -------
    DataFrame
        ``id`` of the claim, ``cell`` (the number), ``color``, ``above`` and ``head``
        (two lines of the head of the column), ``order``.
    """
    rows = []
    tested = tested.assign(where=_where(tested))
    for line in tested.to_dict("records"):
        where = line["where"]
        row = {
            "id": line["id"],
            "cell": _cell(line),
            "color": "",
            "above": "printed",
            "head": where,
            "order": _order(line),
        }
        if line["variant"] != "printed":
            outcome = line["outcome"]
            row["cell"] += f" {SIGNS[outcome]}"
            if line["tested_on"] == COUNTS:
                row["color"] = COLORS[outcome]
            row["above"] = f"here: {where}" if where else "here"
            row["head"] = words(line["variant"])
        rows.append(row)
    names = ["id", "cell", "color", "above", "head", "order"]
    return pd.DataFrame(rows, columns=names).sort_values("order", kind="stable")


def _cell(line: Line) -> str:
    """Return a number's text: its beginning, which is enough where a claim agrees."""
    if line["outcome"] not in ("", "agrees") and line["variant"] != "printed":
        return line["text"]
    return re.split(r" \(|; |, ", line["text"])[0]


def _order(line: Line) -> tuple[bool, int, str, int]:
    """Return the place of a number's column: what sorts before it comes first.

    Data sets and variants that have no name for people come last.
    """
    variant = line["variant"]
    dataset = line["dataset"]
    variants = ["printed", *SHORT, variant]
    datasets = [*NAMES, dataset]
    return (
        variant != "printed",
        datasets.index(dataset),
        line["where"],
        variants.index(variant),
    )


def _where(tested: pd.DataFrame) -> list[str]:
    """Name what tells rows apart: data set, and network where there are several.

    Where all rows are on one data set, the network alone tells them apart.
    """
    networks = tested.groupby("dataset")["model"].nunique()
    several = networks.max() > 1
    datasets = tested["dataset"].replace("", None)
    by_network = several and datasets.nunique() == 1

    named = []
    for dataset, model in zip(tested["dataset"], tested["model"], strict=True):
        parts = []
        if dataset and not by_network:
            parts.append(label(dataset))
        if several and model:
            parts.append(label(model))
        named.append(", ".join(parts))
    return named


def _tested_on(line: Line) -> str:
    """Say on what a claim was tested, or why it was not."""
    if not line["tested_on"]:
        return line["why"]
    alone = ""
    if line["alone"]:
        alone = f" ({line['alone']} alone)"
    seeds = {0: "", 1: ", 1 seed"}.get(line["seeds"], f", {line['seeds']} seeds")
    return f"{line['tested_on']}{alone}{seeds}"
