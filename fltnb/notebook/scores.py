"""Printed numbers beside ours, and the table of them."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from IPython import display

from ..papers import label, numbers
from ..papers.measured import COLUMNS
from ..papers.names import SHORT
from ..papers.settings import NETWORKS, SAME, STAND_INS
from .html import html
from .tables import rows_of, seeds_text

TINTS = {1: "#dff1df", 3: "#f6f3cf", 10: "#fbe3c8", np.inf: "#f6cdc8"}
"""Points between a number and the printed one, at most -> colour of its cell."""
TINT_NAMES = ("1 point", "3", "10", "more")
VARIANCES = ("variance", "train_variance")
UNTINTED = (*VARIANCES, "n_clusters", "bytes")


def printed(paper: str, table: str, **where: Any) -> pd.DataFrame:
    """Return printed numbers with the column ``measure``, as ``runs`` call it.

    ``where``: a column, or a printed parameter such as ``participants``, and its value.
    """
    lines = numbers(paper, table)
    measures = []
    for metric, split in zip(lines["metric"], lines["split"], strict=True):
        measures.append(COLUMNS.get((metric, split), metric))
    lines = lines.assign(measure=measures)

    parameters = [json.loads(text or "{}") for text in lines["params"]]
    keep = np.ones(len(lines), dtype=bool)
    for name, wanted in where.items():
        if name in lines:
            keep &= lines[name] == wanted
        else:
            keep &= [one.get(name) == wanted for one in parameters]
    return lines[keep]


def scores(
    found: Any,
    paper: str,
    table: str,
    measures: Sequence[str] = ("accuracy",),
    **where: Any,
) -> pd.DataFrame:
    """Put printed numbers beside the means of trainings.

    Returns a DataFrame, one row per number: ``dataset, model, method, measure``,
    ``source`` ("printed", "as_written", "as_run"), ``value``, ``spread`` (sample
    standard deviation over ``seeds``), ``printed`` (NaN where the paper has none).
    ``where``: as for :func:`printed`.
    """
    lines = printed(paper, table, **where)
    runs = rows_of(found)
    runs = runs[runs["kind"] == "training"]
    rows = []
    for (dataset, model, method), own in runs.groupby(
        ["dataset", "model", "method"], sort=False
    ):
        about = {"dataset": dataset, "model": model, "method": method}
        beside = _beside(lines, about).groupby("measure")["number"].first()
        for measure in measures:
            in_print = beside.get(measure, np.nan)
            same = about | {"measure": measure, "printed": in_print}
            rows.append(same | {"source": "printed", "value": in_print, "seeds": 0})
            for variant, values in own.groupby("variant", sort=False)[measure]:
                values = values.astype(float)
                row = {
                    "source": variant,
                    "value": values.mean(),
                    "spread": values.std(),
                    "seeds": len(values),
                }
                rows.append(same | row)
    return pd.DataFrame(rows).dropna(subset="value").reset_index(drop=True)


def _beside(lines: pd.DataFrame, about: dict[str, str]) -> pd.DataFrame:
    """Return what is printed of a method, on its data set or what that replaces."""
    dataset = about["dataset"]
    dataset = (STAND_INS | SAME).get(dataset, dataset)
    own = lines[lines["dataset"] == dataset]
    if own["model"].nunique() > 1:
        model = about["model"]
        kind = "mlp" if model.startswith("mlp") else "cnn"
        in_print = {ours: theirs for theirs, ours in NETWORKS.items()}
        own = own[own["model"] == in_print.get(model, kind)]
    return own[own["method"] == about["method"]]


def groups(lines: pd.DataFrame) -> pd.Series:
    """Name what tells the rows of :func:`scores` apart besides method and source."""
    told = [one for one in ("dataset", "measure") if lines[one].nunique() > 1]
    if lines.groupby("dataset")["model"].nunique().max() > 1:
        told.insert(1, "model")
    names = lines[told or ["dataset"]].map(label)
    return names.agg(", ".join, axis=1)


def words(source: str) -> str:
    """Return the head of a column: printed, text, code, or a word of one's own."""
    return SHORT.get(source, source.replace("_", " ")) or "here"


def score_table(
    lines: pd.DataFrame, methods: Sequence[str] = (), caption: str = ""
) -> display.HTML:
    """Lay out :func:`scores`: a row per method, tinted by the distance from print.

    Parameters
    ----------
    lines : DataFrame, of :func:`scores`
    methods : the rows in order, by default all
    caption : str, said before what is said of every table
    """
    rows = list(methods) or lines["method"].unique().tolist()
    lines = lines[lines["method"].isin(rows)]
    records = lines.to_dict("records")
    lines = lines.assign(
        group=groups(lines),
        head=lines["source"].map(words),
        text=[_text(line) for line in records],
        tint=[_tint(line) for line in records],
    )
    order = lines.sort_values("group", key=_first_seen, kind="stable")
    heads = order[["group", "head"]].drop_duplicates()
    heads = list(heads.itertuples(index=False, name=None))

    cells = lines.set_index(["method", "group", "head"])[["text", "tint"]]
    wide = cells.unstack(["group", "head"]).reindex(rows).fillna("")
    wide.index = [label(name) for name in rows]
    text = f"{caption} {_legend(lines)}".strip()
    return html(wide["text"][heads], wide["tint"][heads], text)


def _first_seen(values: pd.Series) -> pd.Series:
    """Return the place of each value in the order in which they come."""
    order = values.unique().tolist()
    return values.map(order.index)


def _text(line: dict[str, Any]) -> str:
    """Write one number with its spread, an ARI and what is printed to two decimals."""
    value = line["value"]
    if line["source"] == "printed":
        return f"{value:.2f}"
    spread = line["spread"]
    digits = 2 if line["measure"] == "ari" else 1
    text = f"{value:.{digits}f}"
    return f"{text} ± {spread:.{digits}f}" if spread > 0 else text


def _tint(line: dict[str, Any]) -> str:
    """Return the colour of a number by its distance from print, an ARI's by 0.01."""
    off = abs(line["value"] - line["printed"])
    if line["source"] == "printed" or line["measure"] in UNTINTED or np.isnan(off):
        return ""
    if line["measure"] == "ari":
        off *= 100
    return next(color for limit, color in TINTS.items() if off <= limit)


def _legend(lines: pd.DataFrame) -> str:
    """Say what the numbers of a table are."""
    seeds = lines["seeds"][lines["seeds"] > 0]
    said = [seeds_text(int(seeds.min()), int(seeds.max()))]
    measures = set(lines["measure"])
    if measures & set(VARIANCES):
        said.append("Variance: over clients, percent squared.")
    if lines["printed"].isna().all():
        said.append("The paper has no such data.")
    elif not measures <= set(UNTINTED):
        said.append("Tint: points from print, at most")
        for name, color in zip(TINT_NAMES, TINTS.values(), strict=True):
            look = f"background-color:{color};color:#222;padding:1px 6px"
            said.append(f'<span style="{look}">{name}</span>')
        if "ari" in measures:
            said.append("(ARI: hundredths)")
    return " ".join(said)
