"""Tables of a page: printed numbers beside ours, further axes, verdicts."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from IPython import display

from ..papers import label, numbers
from ..papers.measured import COLUMNS
from ..papers.names import NAMES, SHORT
from ..papers.settings import NETWORKS, SAME, STAND_INS
from .html import html

TINTS = {1: "#dff1df", 3: "#f6f3cf", 10: "#fbe3c8", np.inf: "#f6cdc8"}
"""Points between a number and the printed one, at most -> colour of its cell."""
HUNDREDTHS = ("ari",)
"""Measures between 0 and 1: their tints count hundredths in place of points."""
HEADS = {"dataset": "data", "variant": "following", "n_clusters": "clusters"}
"""Columns of runs -> what stands above them."""
UNTINTED = ("variance", "train_variance", "n_clusters", "bytes")
SIGNS = {"agrees": ("✔", TINTS[1]), "partly": ("◐", TINTS[3])}
SIGNS["disagrees"] = ("✘", TINTS[np.inf])


def printed(paper: str, table: str, **where: Any) -> pd.DataFrame:
    """Return printed numbers with the column ``measure``, as ``runs`` call it.

    ``where``: a column, or a printed parameter such as ``participants``, and its value.
    """
    lines = numbers(paper, table)
    pairs = zip(lines["metric"], lines["split"], strict=True)
    lines = lines.assign(measure=[COLUMNS.get(pair, pair[0]) for pair in pairs])
    for name, value in where.items():
        have = lines[name] if name in lines else lines["params"].map(_reader(name))
        lines = lines[have == value]
    return lines


def _reader(name: str) -> Callable[[str], Any]:
    return lambda params: json.loads(params or "{}").get(name)


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
    runs = _runs(found)
    runs = runs[runs["kind"] == "training"]
    rows = []
    by = ["dataset", "model", "method"]
    for (dataset, model, method), own in runs.groupby(by, sort=False):
        beside = _beside(lines, dataset, model)
        beside = beside[beside["method"] == method].groupby("measure")["number"].first()
        for measure in measures:
            want = beside.get(measure, np.nan)
            about = {"dataset": dataset, "model": model, "method": method}
            about |= {"measure": measure, "printed": want}
            rows.append(about | {"source": "printed", "value": want, "seeds": 0})
            for variant, part in own.groupby("variant", sort=False):
                values = part[measure].astype(float)
                row = {"source": variant, "value": values.mean()}
                row |= {"spread": values.std(), "seeds": part["seed"].nunique()}
                rows.append(about | row)
    return pd.DataFrame(rows).dropna(subset="value").reset_index(drop=True)


def _runs(found: Any) -> pd.DataFrame:
    """Return the rows of results; a table of them is returned as it is."""
    return found if isinstance(found, pd.DataFrame) else found.runs


def _beside(lines: pd.DataFrame, dataset: str, model: str) -> pd.DataFrame:
    """Return the printed lines for a data set, or the one it stands in for."""
    own = lines[lines["dataset"] == (STAND_INS | SAME).get(dataset, dataset)]
    if own["model"].nunique() < 2:
        return own
    names = {ours: theirs for theirs, ours in NETWORKS.items()}
    plain = "mlp" if model.startswith("mlp") else "cnn"
    return own[own["model"] == names.get(model, plain)]


def groups(lines: pd.DataFrame) -> pd.Series:
    """Name what tells the rows of :func:`scores` apart besides method and source."""
    told = [one for one in ("dataset", "measure") if lines[one].nunique() > 1]
    if lines.groupby("dataset")["model"].nunique().max() > 1:
        told.insert(1, "model")
    told = told or ["dataset"]
    return lines[told].apply(lambda row: ", ".join(map(label, row)), axis=1)


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
    lines = lines.assign(group=groups(lines))
    if methods:
        lines = lines[lines["method"].isin(methods)]
    cells: dict[tuple, dict[str, str]] = {}
    tints: dict[tuple, dict[str, str]] = {}
    for line in lines.to_dict("records"):
        head = line["group"], words(line["source"])
        cells.setdefault(head, {})[line["method"]] = _score(line)
        tints.setdefault(head, {})[line["method"]] = _tint(line)
    rows = list(methods) or list(dict.fromkeys(lines["method"]))
    names = [label(name) for name in rows]
    first = list(dict.fromkeys(lines["group"]))
    heads = sorted(cells, key=lambda head: first.index(head[0]))
    table, tints = (
        pd.DataFrame(one)[heads].reindex(rows).fillna("").set_axis(names)
        for one in (cells, tints)
    )
    said = [caption] if caption else []
    return html(table, tints, " ".join([*said, *_legend(lines)]))


def _score(line: Mapping[str, Any]) -> str:
    """Write one number with its spread, an ARI and what is printed to two decimals."""
    exact = line["source"] == "printed" or line["measure"] in HUNDREDTHS
    text = f"{line['value']:.{2 if exact else 1}f}"
    if line["spread"] > 0:
        text += f" ± {line['spread']:.{2 if line['measure'] in HUNDREDTHS else 1}f}"
    return text


def _tint(line: Mapping[str, Any]) -> str:
    """Return the colour of a number by its distance from the printed one."""
    off = abs(line["value"] - line["printed"])
    untinted = line["source"] == "printed" or line["measure"] in UNTINTED
    if untinted or np.isnan(off):
        return ""
    if line["measure"] in HUNDREDTHS:
        off *= 100
    return next(color for limit, color in TINTS.items() if off <= limit)


def _legend(lines: pd.DataFrame) -> list[str]:
    """Say what the numbers of a table are."""
    seeds = sorted(set(lines["seeds"]) - {0})
    many = "–".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))
    said = ["One seed." if seeds == [1] else f"Mean ± spread over {many} seeds."]
    measures = set(lines["measure"])
    if measures & {"variance", "train_variance"}:
        said.append("Variance: over clients, percent squared.")
    if lines["printed"].isna().all():
        return [*said, "The paper has no such data."]
    if measures <= set(UNTINTED):
        return said

    names = ["1 point", "3", "10", "more"]
    tinted = []
    for name, color in zip(names, TINTS.values(), strict=True):
        look = f"background-color:{color};color:#222;padding:1px 6px"
        tinted.append(f'<span style="{look}">{name}</span>')
    said.append("Tint: points from print, at most " + " ".join(tinted))
    if measures & set(HUNDREDTHS):
        said.append("(ARI: hundredths)")
    return said


def mean_table(
    found: Any,
    by: Sequence[str] = ("dataset", "variant", "method"),
    of: Sequence[str] = ("accuracy",),
    names: Mapping[str, str] | None = None,
    caption: str = "",
) -> display.HTML:
    """Lay out means over seeds: a row for each value of ``by``, a column per number.

    ``names``: columns and values -> what to call them ("": where there is none).
    """
    rows = []
    seeds = set()
    for values, own in _runs(found).groupby(list(by), sort=False, dropna=False):
        row = {}
        for name, value in zip(by, values, strict=True):
            row[_name(name, names)] = _name(value, names)
        for name in of:
            row[_name(name, names)] = _mean(own[name].astype(float), name)
        seeds.add(own["seed"].nunique())
        rows.append(row)
    return html(pd.DataFrame(rows), caption=f"{caption} {_over(seeds)}".strip())


def axis_table(
    found: Any,
    axis: str,
    of: str = "accuracy",
    by: Sequence[str] = ("method",),
    print_: Callable[[Any], pd.DataFrame] | None = None,
    names: Mapping[str, str] | None = None,
    caption: str = "",
) -> display.HTML:
    """Lay out means over seeds with the values of an axis side by side.

    Parameters
    ----------
    found : Results
    axis : str, the column of ``runs`` whose values stand side by side
    of : str, the number
    by : columns of ``runs`` whose values are the rows
    print_ : callable, optional
        Value of the axis -> lines of :func:`printed`, whose numbers for a row's method
        stand in brackets.
    names : columns and values -> what to call them
    """
    cells: dict[str, dict[tuple, str]] = {}
    seeds = set()
    for values, own in _runs(found).groupby([*by, axis], sort=False, dropna=False):
        *row, at = values
        text = _mean(own[of].astype(float), of)
        if print_:
            lines = print_(at)
            same = (lines["measure"] == of) & lines["method"].isin(
                [own["method"].iloc[0]]
            )
            text += "".join(f" ({number:.2f})" for number in lines["number"][same][:1])
        place = tuple(_name(value, names) for value in row)
        cells.setdefault(_name(at, names), {})[place] = text
        seeds.add(own["seed"].nunique())
    table = pd.DataFrame(cells).fillna("")
    table.index = pd.MultiIndex.from_tuples(table.index)
    table.columns = pd.MultiIndex.from_product([[_name(axis, names)], table.columns])
    said = [caption, _over(seeds), "In brackets: printed." if print_ else ""]
    return html(table, caption=" ".join(filter(None, said)))


def _name(value: Any, names: Mapping[str, str] | None) -> str:
    """Return what people call a column or a value; ``names[""]``: a missing one."""
    value = "" if _missing(value) else value
    names = HEADS | dict(names or {})
    if value in names:
        return names[value]
    if value == "":
        return "–"
    if value in SHORT:
        return SHORT[value]
    return label(value) if isinstance(value, str) else f"{value:g}"


def _mean(values: pd.Series, name: str) -> str:
    """Write a mean and its spread."""
    digits = 2 if name.startswith(HUNDREDTHS) else 1
    if values.isna().all():
        return ""
    text = _signed(values.mean(), digits)
    return f"{text} ± {values.std():.{digits}f}" if values.std() > 0 else text


def _signed(value: float, digits: int) -> str:
    """Write a number with a minus sign, and zero without one."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def _over(seeds: set[int]) -> str:
    if max(seeds) < 2:
        return "One seed." if seeds == {1} else ""
    many = "–".join(str(count) for count in dict.fromkeys((min(seeds), max(seeds))))
    return f"Mean ± spread over {many} seeds."


def switched(
    found: Any, names: Mapping[str, str] | None = None, plain: str = "as in the table"
) -> pd.DataFrame:
    """Return the rows of results with the column ``switch``: what they do otherwise.

    That is each axis of their own with its value, ``plain`` where there is none.
    ``names``: axes and values -> what to call them.
    """
    runs = found.runs
    said = []
    for run in runs[list(found.axes)].to_dict("records"):
        there = [axis for axis, value in run.items() if not _missing(value)]
        parts = [f"{_name(axis, names)} {_name(run[axis], names)}" for axis in there]
        said.append(", ".join(parts) or plain)
    return runs.assign(switch=said)


def _missing(value: Any) -> bool:
    return pd.isna(value) or value == ""


def verdict_table(tested: pd.DataFrame, columns: int = 8) -> display.HTML:
    """Lay out what became of claims: claim, printed, here, tested on, outcome.

    Data sets, networks and variants stand side by side if they are at most ``columns``,
    else in words. ``tested``: of :func:`fltnb.papers.judge`.
    """
    from ..papers import outcomes

    told = outcomes(tested)
    shown = tested[tested["text"] != ""]
    shown = shown.assign(where=_where(shown))
    heads = shown[["dataset", "where", "variant"]].drop_duplicates()
    heads = heads.sort_values("dataset", key=_rank, kind="stable")
    side_by_side = len(heads) <= columns

    rows, tints = [], []
    for line in told.to_dict("records"):
        cells = {("", "claim"): line["claim"]}
        looks = {}
        own = shown[shown["id"] == line["id"]]
        if side_by_side:
            for one in own.to_dict("records"):
                head, text, tint = _number(one)
                cells[head], looks[head] = text, tint
        else:
            cells["", "printed"], cells["", "here"] = line["printed"], line["here"]
        cells["", "tested on"] = _tested_on(line)
        cells["", "outcome"] = f"{line['outcome']} {line['sign']}"
        rows.append(cells)
        tints.append(looks)

    order = _order(heads) if side_by_side else [("", "printed"), ("", "here")]
    order = [("", "claim"), *order, ("", "tested on"), ("", "outcome")]
    index = pd.MultiIndex.from_tuples(order)
    table, tints = (
        pd.DataFrame(one, columns=index, dtype=object).fillna("")
        for one in (rows, tints)
    )
    said = "Points of accuracy where nothing else is said. ✔ agrees, ◐ partly, "
    said += "✘ disagrees, ○ not tested; in brackets: on other data or settings than "
    return html(table, tints, said + "the paper's, which counts neither way.")


def _rank(datasets: pd.Series) -> pd.Series:
    """Return the place of each data set among the names for people."""
    order = list(NAMES)
    return datasets.map(lambda name: order.index(name) if name in order else len(order))


def _where(tested: pd.DataFrame) -> pd.Series:
    """Name what tells rows apart: data set, and network where a data set has several."""
    many = tested.groupby("dataset")["model"].nunique().max() > 1
    one_dataset = many and tested["dataset"].nunique() == 1
    named = []
    for dataset, model in zip(tested["dataset"], tested["model"], strict=True):
        parts = [] if one_dataset or not dataset else [label(dataset)]
        parts += [label(model)] if many and model else []
        named.append(", ".join(parts))
    return pd.Series(named, index=tested.index, dtype=object)


def _number(one: Mapping[str, Any]) -> tuple[tuple[str, str], str, str]:
    """Return the column of a tested number, its text and its colour."""
    text = re.split(r" \(|; |, ", one["text"])[0]
    if one["variant"] == "printed":
        return ("printed", one["where"]), text, ""
    sign, tint = SIGNS[one["outcome"]]
    return (_here(one["where"]), words(one["variant"])), f"{text} {sign}", tint


def _here(where: str) -> str:
    return f"here: {where}" if where else "here"


def _order(heads: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the columns of numbers: first printed, then by data set and variant."""
    first = heads[heads["variant"] == "printed"]
    order = [("printed", where) for where in first["where"]]
    for where, own in heads[heads["variant"] != "printed"].groupby("where", sort=False):
        kinds = [kind for kind in (*SHORT, "") if kind in set(own["variant"])]
        order += [(_here(where), words(kind)) for kind in kinds]
    return order


def _tested_on(line: Mapping[str, Any]) -> str:
    if not line["tested_on"]:
        return line["why"]
    seeds = line["seeds"]
    return f"{line['tested_on']}, {seeds} seed{'' if seeds == 1 else 's'}"
