"""The papers' printed numbers (``published_results.csv``) and claims (``claims.csv``), one row each.

Values are read as text, because "98.0" and "98.00" are different statements; a numeric column is added beside them.
"""

import json
from functools import cache
from importlib import resources

import pandas as pd

from ..errors import choose

KEY = ("dataset", "model", "method", "split", "metric")
"""What a printed number is about, apart from the setting of its experiment."""


@cache
def read(name: str) -> pd.DataFrame:
    """Read a table of text that lies beside this module; do not change what is returned."""
    with resources.files(__package__).joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)


@cache
def _numbers() -> pd.DataFrame:
    table = read("published_results.csv").copy()
    table["number"] = pd.to_numeric(table["value"], errors="raise")
    table["number_error"] = pd.to_numeric(table["error"].replace("", None))
    # lines of an ablation differ in nothing but their parameters
    line = table["params"].where(table["setting"] == "ablation", "")
    same = ["paper", *KEY, "setting", "line", "number"]
    table["first"] = table.assign(line=line).groupby(same)["table"].transform("first")
    return table


def numbers(
    paper: str | None = None, table: str | None = None, **filters
) -> pd.DataFrame:
    """Select printed numbers.

    Returns a DataFrame: in the order of the papers: ``paper, table, setting, dataset, model, method, split, metric,
    value, error, params, note`` as printed (text; ``params`` is JSON), ``number`` and ``number_error`` (float, NaN
    where none), and ``first``: the table that prints this number first. Where it is ``table`` the number counts; that
    leaves 925 of 1,099. Accuracies and F1 in percent, variances in percent squared. ``paper``: "flt", "fesem", "mthfl"
    or "emdcfl". ``table``: ``"T1"``, ``"T7"``, ... (MT-HFL: ``"TI"``, ``"TII"``). ``filters``: a column and its value
    or list of values. An empty selection of known values is empty. FltnbError: an unknown column, or a value that
    occurs nowhere in its column.
    """
    found = _numbers()
    for column, value in {"paper": paper, "table": table, **filters}.items():
        if value is None:
            continue
        choose(
            column, read("published_results.csv").columns, "column of printed numbers"
        )
        values = [value] if isinstance(value, str) else list(value)
        for one in values:
            # a table id means nothing without its paper: T11 is EMD-CFL's
            choose(
                one,
                (found if column == "table" else _numbers())[column].unique(),
                f"printed {column}",
            )
        found = found[found[column].isin(values)]
    return found.reset_index(drop=True)


def claims() -> pd.DataFrame:
    """List what the papers claim, one row per claim, whether or not anything here has tested it.

    Returns a DataFrame of text: ``id`` (what :func:`fltnb.papers.check` takes), ``paper``, ``source`` (figure, table or
    section), ``notebook`` (which test it), ``claim`` (in our words), ``testable`` (what stands in the way of testing it
    as the paper means it, else empty). Several sources or notebooks are separated by "; ".
    """
    return read("claims.csv").copy()


def inconsistencies(paper: str = "flt") -> pd.DataFrame:
    """List numbers that a paper prints more than once, and differently.

    Returns a DataFrame: ``setting, dataset, model, method, split, metric, printed``; ``printed`` is a dict table ->
    value as printed. FLT's ablation (Table 5) repeats Scenario 2 of Table 2 in one of its lines and is compared with
    it. ``paper``: as in :func:`numbers`.
    """

    def same(params: str, setting: str) -> str:
        """Parameters that tell experiments apart: Table 5 alone names J, and T varies; Tables 3 and 9 disagree on T."""
        without = {"J"} if setting in ("scenario2", "ablation") else {"J", "T"}
        return json.dumps(
            {k: v for k, v in json.loads(params or "{}").items() if k not in without},
            sort_keys=True,
        )

    rows = numbers(paper).query("method != ''")
    rows = rows.assign(
        setting=rows["setting"].replace(
            {"ablation": "scenario2"} if paper == "flt" else {}
        ),
        same=[
            same(*pair) for pair in zip(rows["params"], rows["setting"], strict=True)
        ],
    )
    keys = ["setting", *KEY]
    found = [
        {
            **dict(zip(keys, key, strict=False)),
            "printed": dict(zip(group["table"], group["value"], strict=True)),
        }
        for key, group in rows.groupby([*keys, "same"], sort=False)
        if group["table"].nunique() > 1 and group["value"].nunique() > 1
    ]
    return pd.DataFrame(found, columns=[*keys, "printed"])
