"""The papers' printed numbers, and the table that puts them beside the reproduced ones.

``published_results.csv`` holds one row per printed number of the four papers, as printed. Values are read as text,
because "98.0" and "98.00" are different statements, and a numeric column is added beside them. ``claims.csv`` holds
one row per claim that a paper makes about its figures, tables and theorems.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from .errors import FltnbError, choose
from .methods.base import VARIANTS, resolve_rule
from .metrics import binomial_error, seed_spread

if TYPE_CHECKING:
    import pandas as pd

RESULT_COLUMNS = (
    *("experiment", "dataset", "model", "method", "variant", "rule", "seed"),
    *("split", "metric", "value", "n"),
)
"""Columns of tidy results: one row per number of one run."""

RULES = {variant: resolve_rule(None, variant) for variant in VARIANTS}
"""What clients that sit a round out contribute, in the text of FLT and in the code behind its Tables 1 and 2."""

PAPERS = {"flt": "FLT", "fesem": "FeSEM", "mthfl": "MT-HFL", "emdcfl": "EMD-CFL"}

_NAMES = {"variance": "accuracy_variance"}  # run.history's short name for the same number
_EVERYWHERE = "local model not stated in the paper"  # said once in the caption, not on every row
_KEY = ["dataset", "model", "method", "split", "metric"]
_RUNS = ["dataset", "model", "method", "variant", "rule", "split", "metric"]


@cache
def _all() -> pd.DataFrame:
    import pandas as pd

    with resources.files(__package__).joinpath("papers/published_results.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    table["number"] = pd.to_numeric(table["value"], errors="raise")
    table["number_error"] = pd.to_numeric(table["error"].replace("", None))
    return table


def numbers(paper: str | None = None, table: str | None = None, **filters) -> pd.DataFrame:
    """Select printed numbers.

    Parameters
    ----------
    paper : {"flt", "fesem", "mthfl", "emdcfl"}, optional
        All papers if left out.
    table : str, optional
        ``"T1"``, ``"T7"``, ... (MT-HFL: ``"TI"``, ``"TII"``).
    **filters
        A column (``setting``, ``dataset``, ``model``, ``method``, ``split``, ``metric``) and its value or list of
        values.

    Returns
    -------
    DataFrame
        In the order of the papers: ``paper, table, setting, dataset, model, method, split, metric, value, error,
        params, note`` as printed (text; ``params`` is JSON), ``number`` and ``number_error`` (float, NaN where none).
        Accuracies and F1 in percent, variances in percent squared. An empty selection of known values is empty.

    Raises
    ------
    FltnbError
        An unknown column, or a value that occurs nowhere in its column.
    """
    found = _all()
    wanted = {"paper": paper, "table": table, **filters}
    for column, value in wanted.items():
        if value is None:
            continue
        choose(column, [c for c in _all().columns if not c.startswith("number")], "column of published numbers")
        values = [value] if isinstance(value, str) else list(value)
        for one in values:
            # a table id means nothing without its paper: T11 is EMD-CFL's
            choose(one, (found if column == "table" else _all())[column].unique(), f"published {column}")
        found = found[found[column].isin(values)]
    return found.reset_index(drop=True)


@cache
def _claims() -> pd.DataFrame:
    import pandas as pd

    with resources.files(__package__).joinpath("papers/claims.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)


def claims(paper: str | None = None) -> pd.DataFrame:
    """List what the papers claim, one row per claim, whether or not anything here has tested it.

    Parameters
    ----------
    paper : str, optional
        One that has claims registered; all of them if left out.

    Returns
    -------
    DataFrame of text
        ``id`` (what ``Claims.check(..., claim=id)`` takes), ``paper``, ``source`` (figure, table or section),
        ``notebook`` (which test it), ``claim`` (in our words), ``testable`` (what stands in the way of testing it as
        the paper means it, else empty). Several sources or notebooks are separated by "; ".

    Raises
    ------
    FltnbError
        No claims are registered for this paper.
    """
    found = _claims()
    if paper is not None:
        found = found[found["paper"] == choose(paper, found["paper"].unique(), "paper with claims")]
    return found.reset_index(drop=True)


def inconsistencies(paper: str = "flt") -> pd.DataFrame:
    """List numbers that a paper prints more than once, and differently.

    Parameters
    ----------
    paper : str
        As in :func:`numbers`.

    Returns
    -------
    DataFrame
        ``setting, dataset, model, method, split, metric, printed``; ``printed`` is a dict table -> value as printed.
        FLT's ablation (Table 5) repeats Scenario 2 of Table 2 in one of its lines and is compared with it.
    """
    import pandas as pd

    rows = numbers(paper)
    rows = rows[rows["method"] != ""]
    rows = rows.assign(
        setting=rows["setting"].replace({"ablation": "scenario2"} if paper == "flt" else {}),
        same=[_setting(params, setting) for params, setting in zip(rows["params"], rows["setting"], strict=True)],
    )
    found = []
    keys = ["setting", *_KEY]
    for key, group in rows.groupby([*keys, "same"], sort=False):
        if group["table"].nunique() > 1 and group["value"].nunique() > 1:
            found.append(
                {
                    **dict(zip(keys, key, strict=False)),
                    "printed": dict(zip(group["table"], group["value"], strict=True)),
                }
            )
    return pd.DataFrame(found, columns=[*keys, "printed"])


def _setting(params: str, setting: str) -> str:
    """Part of the printed parameters that tells two experiments apart.

    Table 5 alone names the fine-tuning epochs J, and its T is a variable; Tables 3 and 9 disagree on IFCA's T.
    """
    without = {"J"} if setting in ("scenario2", "ablation") else {"J", "T"}
    return json.dumps({k: v for k, v in json.loads(params or "{}").items() if k not in without}, sort_keys=True)


def aggregate(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and spread over seeds of tidy results.

    Parameters
    ----------
    results : DataFrame
        Columns :data:`RESULT_COLUMNS`: ``variant`` is "as_written" or "as_run", ``rule`` what non-participants
        contribute ("" or NaN where the question does not arise), ``value`` in percent or percent squared, ``n`` the
        distinct samples of the pooled split (NaN if unknown).

    Returns
    -------
    DataFrame
        ``dataset, model, method, variant, rule, split, metric``, ``mean``, ``spread`` (sample standard deviation over
        seeds; NaN for one), ``seeds`` (int), ``binomial_error`` (of the mean; NaN without ``n`` and for other metrics).

    Raises
    ------
    FltnbError
        A column is missing, or a seed occurs twice for the same setting.
    """
    import pandas as pd

    missing = [column for column in RESULT_COLUMNS if column not in results.columns]
    if missing:
        raise FltnbError(
            f"The results lack the column{'s' * (len(missing) > 1)} {', '.join(missing)}:"
            " give one row per number with the columns of published.RESULT_COLUMNS."
        )
    results = results.assign(
        metric=results["metric"].replace(_NAMES),
        **{column: results[column].astype(object).fillna("").astype(str) for column in ("model", "rule", "split")},
    )
    for variant in results["variant"].unique():
        choose(variant, RULES, "variant")
    twice = results[results.duplicated([*_RUNS, "seed"])]
    if len(twice):
        one = twice.iloc[0]
        raise FltnbError(
            f"Seed {one['seed']} of {one['method']} on {one['dataset']} occurs twice for {one['metric']}:"
            " select one experiment before comparing."
        )
    rows = []
    for key, group in results.groupby(_RUNS, sort=False):
        mean, n = float(group["value"].mean()), group["n"].iloc[0]
        pooled = key[-1] == "accuracy" and pd.notna(n)
        rows.append(
            {
                **dict(zip(_RUNS, key, strict=True)),
                "mean": mean,
                "spread": seed_spread(group["value"]),
                "seeds": len(group),
                "binomial_error": binomial_error(mean, n) if pooled else float("nan"),
            }
        )
    return pd.DataFrame(rows, columns=[*_RUNS, "mean", "spread", "seeds", "binomial_error"])


def comparison(
    results: pd.DataFrame,
    table: str,
    dataset: str | None = None,
    comments: Mapping | None = None,
    *,
    paper: str = "flt",
    rules: Mapping[str, str] = RULES,
) -> pd.DataFrame:
    """Put a printed table beside the reproduced numbers.

    Parameters
    ----------
    results : DataFrame
        Tidy results, see :func:`aggregate`; may be empty.
    table : str
        Printed table, such as ``"T1"``.
    dataset : str, optional
        One data set. A set that the table does not print (digits) gets the same rows with "–" as published. By default
        the table's own sets, or those of the results if the table has none of them.
    comments : mapping, optional
        Method, or (method, metric), -> text for the last column.
    paper : str
        Whose table.
    rules : mapping
        Variant -> rule for non-participants that fills its column; runs under another rule get a column of their own.

    Returns
    -------
    DataFrame of text
        ``dataset, [model,] method, split, metric, published`` (as printed with the printed error), ``described`` and
        ``published variant`` ("mean ± spread over seeds (number of seeds) [binomial error]"), two differences
        (reproduced mean minus printed), ``comment``. A run that does not exist reads "not run". ``.attrs["caption"]``
        explains the notation.

    Raises
    ------
    FltnbError
        Bad results (see :func:`aggregate`), or a table that prints one method under several settings.
    """
    import pandas as pd

    printed = numbers(paper, table)
    if printed.duplicated(_KEY).any():
        raise FltnbError(
            f"Table {table} of {paper} prints a method under several settings, which this table cannot tell apart:"
            " use numbers() and compare setting by setting."
        )
    ours = aggregate(results)
    sets = _data_sets(printed, ours, dataset)
    toy = not set(sets) & set(printed["dataset"])
    # extra rules get a column each, so that no cell mixes two of them
    pairs = [(v, r) for v, r in ours[["variant", "rule"]].drop_duplicates().itertuples(index=False) if r]
    others = sorted(pair for pair in pairs if pair[1] != rules[pair[0]])
    repeated = {} if toy else _repeated(paper, table)
    rows = []
    for key, line in _lines(printed, ours, sets):
        cells = {"as_written": _pick(ours, key, "as_written", (rules["as_written"], ""))}
        cells["as_run"] = _pick(ours, key, "as_run", (rules["as_run"], ""))
        extra = {f"{variant}, {rule}": _pick(ours, key, variant, (rule,)) for variant, rule in others}
        number = None if line is None else line["number"]
        row = {**key, "published": "–" if line is None else _as_printed(line)}
        row |= {name: _cell(cell) for name, cell in cells.items()}
        row |= {f"{name} - printed": _difference(cell, number) for name, cell in cells.items()}
        row |= {name: _cell(cell) for name, cell in extra.items()}
        row["comment"] = _comment(key, line, comments or {}, repeated)
        rows.append(row)
    compared = pd.DataFrame(rows)
    if not any(compared["model"]):
        compared = compared.drop(columns="model")
    compared.attrs["caption"] = _caption(paper, table, printed, sets, toy)
    return compared


def accuracy_and_variance(
    results: pd.DataFrame, table: str, dataset: str, split: str = "test", *, paper: str = "flt"
) -> pd.DataFrame:
    """Accuracy and variance of each method, printed and reproduced, for ``plots.accuracy_variance_plane``.

    Returns
    -------
    DataFrame
        ``method, source, accuracy, variance``; ``source`` is "printed" or the rule for non-participants (the variant
        where there is no rule, "variant, rule" where both variants ran under it). Means over seeds.
    """
    import pandas as pd

    ours = aggregate(results)
    ours = ours[(ours["dataset"] == dataset) & (ours["split"] == split)]
    printed = numbers(paper, table, split=split)
    printed = printed[printed["dataset"] == dataset].rename(columns={"number": "mean"}).assign(source="printed")
    used = ours.groupby("rule")["variant"].nunique()
    ours = ours.assign(
        source=[
            v if not r else (r if used[r] == 1 else f"{v}, {r}")
            for v, r in zip(ours["variant"], ours["rule"], strict=True)
        ]
    )
    long = pd.concat([printed, ours])[["method", "model", "source", "metric", "mean"]]
    long = long[long["metric"].isin(["accuracy", "accuracy_variance"])]
    if long.duplicated(["method", "source", "metric"]).any():
        raise FltnbError(f"The results on {dataset} hold several models: select one before drawing the plane.")
    wide = long.pivot(index=["method", "source"], columns="metric", values="mean").reset_index()
    wide = wide.rename(columns={"accuracy_variance": "variance"}).rename_axis(columns=None)
    order = list(dict.fromkeys(long["method"]))
    return wide.sort_values("method", key=lambda m: m.map(order.index), kind="stable", ignore_index=True)


def _data_sets(printed: pd.DataFrame, ours: pd.DataFrame, dataset: str | None) -> list[str]:
    if dataset is not None:
        return [dataset]
    table, run = list(dict.fromkeys(printed["dataset"])), list(dict.fromkeys(ours["dataset"]))
    return table if not run or set(table) & set(run) else run


def _lines(printed: pd.DataFrame, ours: pd.DataFrame, sets: list[str]):
    """Yield (key, printed row or None) per data set: the table's rows first, then methods it does not have."""
    asked = printed[["split", "metric"]].drop_duplicates().itertuples(index=False)
    asked = [tuple(pair) for pair in asked]
    for name in sets:
        here = printed[printed["dataset"] == name]
        for line in here.to_dict("records"):
            yield {column: line[column] for column in _KEY}, line
        if here.empty:  # a set that the paper does not use: the same rows without numbers
            for values in printed[_KEY[1:]].drop_duplicates().itertuples(index=False):
                yield dict(zip(_KEY, (name, *values), strict=True)), None
        unknown = ours[(ours["dataset"] == name) & ~ours["method"].isin(printed["method"])]
        for method in dict.fromkeys(unknown["method"]):
            models = printed["model"].unique() if any(printed["model"]) else [""]
            for model in models:
                for split, metric in asked:
                    yield dict(zip(_KEY, (name, model, method, split, metric), strict=True)), None


def _pick(ours: pd.DataFrame, key: dict, variant: str, rules: tuple[str, ...]) -> dict | None:
    """Find the aggregated run of one cell, or None."""
    mask = (ours["variant"] == variant) & ours["rule"].isin(rules)
    for column in _KEY:
        if column != "model" or key["model"]:  # where the paper does not name the model, any single one will do
            mask &= ours[column] == key[column]
    cell = ours[mask]
    if len(cell) > 1:
        raise FltnbError(
            f"The {variant} results of {key['method']} on {key['dataset']} hold several models or rules"
            f" ({', '.join((cell['model'] + ' ' + cell['rule']).str.strip())}): select one before comparing."
        )
    return None if cell.empty else cell.iloc[0].to_dict()


def _as_printed(line: dict) -> str:
    return f"{line['value']} ± {line['error']}" if line["error"] else line["value"]


def _cell(cell: dict | None) -> str:
    if cell is None:
        return "not run"
    seeds = f"({cell['seeds']} seed{'s' * (cell['seeds'] != 1)})"
    spread = f" ± {cell['spread']:.2f}" if cell["seeds"] > 1 else ""
    binomial = f" [{cell['binomial_error']:.2f}]" if cell["binomial_error"] == cell["binomial_error"] else ""
    return f"{cell['mean']:.2f}{spread} {seeds}{binomial}"


def _difference(cell: dict | None, number: float | None) -> str:
    return "–" if cell is None or number is None else f"{cell['mean'] - number:+.2f}"


def _repeated(paper: str, table: str) -> dict[tuple, str]:
    """Cell key -> what the paper prints for it elsewhere."""
    found = {}
    for row in inconsistencies(paper).to_dict("records"):
        elsewhere = [f"{value} in {name}" for name, value in row["printed"].items() if name != table]
        if table in row["printed"] and elsewhere:
            found[tuple(row[column] for column in _KEY)] = f"the paper also prints {', '.join(elsewhere)}"
    return found


def _comment(key: dict, line: dict | None, comments: Mapping, repeated: Mapping[tuple, str]) -> str:
    parts = [comments.get((key["method"], key["metric"]), comments.get(key["method"], ""))]
    notes = [] if line is None else line["note"].split("; ")
    # "printed a in T2 but b in T8" is said by the computed remark
    parts += [note for note in notes if note != _EVERYWHERE and not note.startswith("printed ")]
    parts += [note for note in notes if note.startswith("printed ") and " in T" not in note]
    parts.append(repeated.get(tuple(key[column] for column in _KEY), ""))
    return "; ".join(part for part in parts if part)


def _caption(paper: str, table: str, printed: pd.DataFrame, sets: list[str], toy: bool) -> str:
    name = f"Table {table[1:]} of {PAPERS[paper]}"
    notation = (
        "± behind a reproduced number is the sample standard deviation over seeds, [ ] the binomial error of the pooled"
        " samples; accuracy in percent, variance over clients in percent squared."
    )
    if toy:
        return f"Toy scale ({', '.join(sets)}); not comparable with {name}. {notation}"
    parts = [f"{name}, printed and reproduced.", notation]
    if paper == "flt":
        parts.append("± behind a printed number is what FLT calls standard error: the binomial one.")
    if printed["note"].str.contains(_EVERYWHERE).any():
        parts.append("The paper does not say which local model it used here.")
    return " ".join(parts)
