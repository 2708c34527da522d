"""Printed numbers and ours, and the table that compares them.

:func:`scores` gives one row per number, printed or ours. :func:`score_table` lays these
out, and :func:`fltnb.notebook.dots` draws them.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from IPython import display

from ..papers import label, numbers
from ..papers.measured import COLUMNS
from ..papers.names import SHORT
from ..papers.settings import NETWORKS, SAME, STAND_INS, network_in_print
from .html import html, pairs_of
from .tables import rows_of, seeds_text, spread_text

FAR = np.inf
TINTS = {
    1: "#dff1df",
    3: "#f6f3cf",
    10: "#fbe3c8",
    FAR: "#f6cdc8",
}
"""Points between a number and the printed one, at most -> colour of its cell."""
TINT_NAMES = ("1 point", "3", "10", "more")
"""Names of the tints in the legend."""
VARIANCES = ("variance", "train_variance")
UNTINTED = (*VARIANCES, "n_clusters", "bytes")
"""Measures whose distance from print is not in points."""


def printed(paper: str, table: str, **where: Any) -> pd.DataFrame:
    """Return printed numbers with the column ``measure``, named as in ``runs``.

    Parameters
    ----------
    paper, table : str
        Such as "flt" and "T1".
    **where
        A column, or a printed parameter such as ``participants``, and its value.

    Returns
    -------
    DataFrame
        Rows of :func:`fltnb.papers.numbers`.

    Examples
    --------
    >>> import fltnb as fl
    >>> len(fl.notebook.printed("flt", "T1", dataset="mnist")) > 5
    True
    """
    lines = numbers(paper, table)
    measures = []
    for metric, split in zip(lines["metric"], lines["split"], strict=True):
        measures.append(COLUMNS.get((metric, split), metric))
    lines = lines.assign(measure=measures)

    parameters = [json.loads(text or "{}") for text in lines["params"]]
    # Names that are not columns of printed numbers are their parameters.
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
    """Combine printed numbers with the means of trainings.

    Parameters
    ----------
    found : Results, or rows of their ``runs``
    paper, table : str
        Such as "flt" and "T1".
    measures : sequence of str
        Columns of ``runs``.
    **where
        As for :func:`printed`.

    Returns
    -------
    DataFrame
        One row per number: ``dataset, model, method, measure``, ``source`` ("printed",
        "as_written", "as_run"), ``value``, ``spread`` (sample standard deviation over
        ``seeds``), ``printed`` (NaN if the paper has none), ``stands_in`` (whether data
        or network replace the paper's).

    Examples
    --------
    >>> import fltnb as fl
    >>> lines = fl.notebook.scores(fl.results("01"), "flt", "T1")
    >>> lines["source"].unique().tolist()
    ['printed', 'as_written', 'as_run']
    """
    lines = printed(paper, table, **where)
    runs = rows_of(found)
    trainings = runs[runs["kind"] == "training"]
    rows = []
    for names, own in trainings.groupby(["dataset", "model", "method"], sort=False):
        dataset, model, method = names
        beside = _beside(lines, dataset, model, method)
        in_print = beside.groupby("measure")["number"].first()
        for measure in measures:
            same = {
                "dataset": dataset,
                "model": model,
                "method": method,
                "measure": measure,
                "printed": in_print.get(measure, np.nan),
                "stands_in": _stands_in(beside, dataset, model),
            }
            print_row = {"source": "printed", "value": same["printed"], "seeds": 0}
            rows.append(same | print_row)
            for variant, values in own.groupby("variant", sort=False)[measure]:
                values = values.astype(float)
                our_row = {
                    "source": variant,
                    "value": values.mean(),
                    "spread": values.std(),
                    "seeds": int(values.count()),  # a run may lack the measure
                }
                rows.append(same | our_row)
    table = pd.DataFrame(rows).dropna(subset="value")
    return table.reset_index(drop=True)


def _beside(lines: pd.DataFrame, dataset: str, model: str, method: str) -> pd.DataFrame:
    """Return what is printed of a method.

    Parameters
    ----------
    lines : DataFrame
        Of :func:`printed`.
    dataset : str
        Ours: a stand-in stands beside the numbers of what it replaces.
    model : str
        Ours. Where a table has several networks, only the numbers of this one, or of
        its kind, count.
    method : str
    """
    dataset = (STAND_INS | SAME).get(dataset, dataset)
    own = lines[lines["dataset"] == dataset]
    if own["model"].nunique() > 1:
        own = own[own["model"] == network_in_print(model)]
    return own[own["method"] == method]


def _stands_in(beside: pd.DataFrame, dataset: str, model: str) -> bool:
    """Whether data or network take the place of those of printed numbers.

    Where a paper names no network, none takes its place.

    Parameters
    ----------
    beside : DataFrame
        What is printed of the method: see :func:`_beside`.
    dataset, model : str
        Ours.
    """
    networks = {NETWORKS.get(name, name) for name in beside["model"] if name}
    another = bool(networks) and model not in networks
    return another or dataset in STAND_INS


def groups(lines: pd.DataFrame) -> pd.Series:
    """Name what tells the rows of :func:`scores` apart besides method and source.

    These are the data set, the measure and the network, each where there are several.
    """
    told = [name for name in ("dataset", "measure") if lines[name].nunique() > 1]
    networks = lines.groupby("dataset")["model"].nunique()
    if networks.max() > 1:
        told.insert(1, "model")
    names = lines[told or ["dataset"]].map(label)
    return names.agg(", ".join, axis=1)


def words(source: str) -> str:
    """Return the head of a column: printed, text, code, or a custom word.

    ``source``: as of :func:`scores`, or what a notebook adds.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.notebook.words("as_run"), fl.notebook.words("half_the_rounds")
    ('code', 'half the rounds')
    """
    return SHORT.get(source, source.replace("_", " ")) or "here"


def score_table(
    lines: pd.DataFrame, methods: Sequence[str] = (), caption: str = ""
) -> display.HTML:
    """Lay out :func:`scores`: a row per method, tinted by the distance from print.

    Values on stand-in data or networks are not tinted, because their distance says
    nothing about the paper.

    Parameters
    ----------
    lines : DataFrame
        Of :func:`scores`.
    methods : sequence of str
        The rows in order, by default all.
    caption : str
        Text before the general caption.

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> who = {
    ...     "dataset": "mnist",
    ...     "model": "mlp",
    ...     "method": "fedavg",
    ...     "measure": "accuracy",
    ... }
    >>> numbers = {"source": ["printed", "as_written"], "value": [82.7, 83.5]}
    >>> lines = pd.DataFrame(
    ...     numbers | who | {"spread": 0.0, "seeds": 1, "printed": 82.7}
    ... )
    >>> table = fl.notebook.score_table(lines).data
    >>> "82.7" in table, "83.5" in table
    (True, True)
    """
    rows = list(methods) or lines["method"].unique().tolist()
    lines = lines[lines["method"].isin(rows)]
    # Lines that a notebook adds may lack the column for stand-ins.
    known = lines.reindex(columns=["stands_in"])["stands_in"]
    lines = lines.assign(stands_in=known.eq(True))
    records = lines.to_dict("records")
    lines = lines.assign(
        group=groups(lines),
        head=lines["source"].map(words),
        text=[_text(line) for line in records],
        tint=[_tint(line) for line in records],
    )
    ordered = lines.sort_values("group", key=_first_seen, kind="stable")
    heads = pairs_of(ordered, "group", "head")

    cells = lines.set_index(["method", "group", "head"])
    wide = cells[["text", "tint"]].unstack(["group", "head"])
    wide = wide.reindex(rows).fillna("")
    wide.index = [label(name) for name in rows]
    below = f"{caption} {_legend(lines)}".strip()
    return html(wide["text"][heads], wide["tint"][heads], below)


def order_table(agreement: pd.DataFrame) -> display.HTML:
    """Show how far the order of the methods here is that in print.

    Setting and measure are shown where they differ between rows.

    Parameters
    ----------
    agreement : DataFrame
        Results of :func:`fltnb.papers.rank_agreement`, one below the other.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.papers.rank_agreement(fl.results("11"), "emdcfl", "T1")
    >>> "FedCE" in fl.notebook.order_table(found).data
    True
    """
    shown = agreement.drop(columns="methods")
    for name in ("dataset", "setting", "metric"):
        shown[name] = shown[name].map(label)
        if name != "dataset" and shown[name].nunique() == 1:
            shown = shown.drop(columns=name)
    caption = (
        "Order of the methods here and in print: Spearman's rho of the means over "
        "seeds, lowest and highest rho of single seeds, and the methods whose ranks "
        "differ most (+: better here)."
    )
    return html(shown.set_index("dataset").reset_index(), caption=caption, digits=2)


def _first_seen(values: pd.Series) -> pd.Series:
    """Return the place of each value in the order in which they come.

    Sorting by it keeps values in this order and brings equal ones together.
    """
    order = values.unique().tolist()
    return values.map(order.index)


def _text(line: dict[str, Any]) -> str:
    """Write one number with its spread.

    An ARI and what is printed have two decimals, other numbers one.
    """
    value = line["value"]
    if line["source"] == "printed":
        return f"{value:.2f}"
    digits = 2 if line["measure"] == "ari" else 1
    text = f"{value:.{digits}f}"
    return text + spread_text(line["spread"], digits)


def _tint(line: dict[str, Any]) -> str:
    """Return the colour of a number by its distance from print, an ARI's by 0.01.

    "" for a printed number, a stand-in, and where nothing is printed.
    """
    if line["source"] == "printed" or line["measure"] in UNTINTED:
        return ""
    if line["stands_in"]:
        return ""
    off = abs(line["value"] - line["printed"])
    if line["measure"] == "ari":
        off *= 100
    for limit, color in TINTS.items():
        if off <= limit:
            return color
    return ""


def _legend(lines: pd.DataFrame) -> str:
    """Say what the numbers of a table are, and what their tints mean.

    Tints are not explained where no number has one: for measures that are not in
    points, or where all runs are on stand-ins.
    """
    seeds = lines["seeds"][lines["seeds"] > 0]
    said = [seeds_text(int(seeds.min()), int(seeds.max()))]
    measures = set(lines["measure"])
    if measures & set(VARIANCES):
        said.append("Variance: over clients, percent squared.")
    if lines["printed"].isna().all():
        said.append("The paper has no such data.")
    elif not measures <= set(UNTINTED):
        if not lines["stands_in"].all():
            said += _tints_explained(measures)
        if lines["stands_in"].any():
            said.append("No tint: data or network stand in for the paper's.")
    return " ".join(said)


def _tints_explained(measures: set[str]) -> list[str]:
    """Say in its colour what each tint means; ``measures``: those of the table."""
    said = ["Tint: points from print, at most"]
    for name, color in zip(TINT_NAMES, TINTS.values(), strict=True):
        look = f"background-color:{color};color:#222;padding:1px 6px"
        said.append(f'<span style="{look}">{name}</span>')
    if "ari" in measures:
        said.append("(ARI: hundredths)")
    return said
