"""A printed table beside the reproduced one: paper, as written, as run, and how far they are apart.

``results`` is what :func:`fltnb.results` returns; None stands for no results at all.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from ..errors import FltnbError, choose
from ..metrics import binomial_error, seed_spread
from .names import PAPERS, VARIANTS, label
from .numbers import KEY, inconsistencies, numbers, read
from .settings import (
    NOTEBOOKS,
    RULES,
    SAME,
    STAND_INS,
    TOY,
    WITHOUT_CODE,
    Row,
    departures,
    stand_in,
)

COLUMNS = {
    **{("accuracy", "test"): "accuracy", ("accuracy_variance", "test"): "variance"},
    **{
        ("accuracy", "train"): "train_accuracy",
        ("accuracy_variance", "train"): "train_variance",
    },
    **{("micro_accuracy", "test"): "micro", ("micro_f1", "test"): "micro_f1"},
    **{("macro_accuracy", "test"): "accuracy", ("macro_f1", "test"): "macro_f1"},
    **{
        ("avg_accuracy", "test"): "accuracy",
        ("worst_accuracy", "test"): "worst",
        ("ari", ""): "ari",
    },
}
"""Printed metric and split -> column of ``runs``."""
TARGETS = {"clean_accuracy": "test", "backdoor_accuracy": "probe"}
"""Printed metric -> column of ``clients``: EMD-CFL's Tables 3 and 8 print means over the clients of true cluster 0."""
AXES = {
    ("flt", "T5"): {
        "clients": "M",
        "participation": "rho",
        "local_epochs": "E",
        "round": "T",
    },
    ("emdcfl", "T6"): {"participation": "participants"},
}
"""Table that prints one method under several settings -> axis of the runs -> printed parameter; ``round`` is read off
the curves, and a participation of ``participants`` is their share of all clients."""
PROFILES = ("paper", "small", "demo", "")  # most trusted first
NOT_RUN = {
    "mean": float("nan"),
    "spread": float("nan"),
    "seeds": 0,
    "n": float("nan"),
    "departs": (),
    "keys": (),
}
NOT_RUN |= {"status": "not run", "on_copies": False, "minutes": float("nan")}
_ERRORS = {
    "flt": "± behind a printed number is what FLT calls standard error, the binomial one of the pooled samples; ours is"
    " in [ ].",
    "emdcfl": "± behind a printed number is the paper's spread over three runs.",
}


def measured(
    results: Any,
    paper: str,
    table: str,
    datasets: Sequence[str] | None = None,
    beside: Sequence[str] = (),
) -> pd.DataFrame:
    """Find what was measured for every number of a printed table, such as ``"flt", "T1"``.

    Of the jobs with the same data, method, variant and model those count that have no switch set: an axis of this
    notebook that others lack. Where several have a number, the one nearest to the printed setting counts. A study
    stands beside the tables that its axis ``table`` names, with its own table "printed": one row per number with
    ``value``, whatever tells the numbers apart (``method``, ``user_i``, ...) and, if it departs, ``otherwise``. Returns
    DataFrame: one row per printed number and variant: the columns of :func:`fltnb.papers.numbers` (``number`` NaN where
    the paper has none), ``variant``, ``mean``, ``spread`` (sample standard deviation over ``seeds``), ``n`` (distinct
    samples behind an accuracy), ``departs`` (phrases of :func:`fltnb.papers.departures`), ``keys`` of the jobs,
    ``status`` ("reproduced", "otherwise", "not run"), ``on_copies`` (the pixels are those of compressed copies),
    ``minutes`` (cost of a gap, NaN if unknown). FltnbError: several jobs of one seed fit a number, as where two models
    were run and the paper names none.

    ``datasets``: by default the table's own; one that it does not print (digits) gets its rows without printed numbers.
    ``beside``: methods that the paper does not have and that get rows, too.
    """
    for book in set(getattr(results, "runs", {}).get("notebook", ())):
        if table not in NOTEBOOKS[choose(paper, NOTEBOOKS, "paper")].get(
            book, (table,)
        ):
            raise FltnbError(
                f"{book} has no results for {table} of {paper}: take those of the table's own notebook."
            )
    found = _Found(results, paper, table)
    lines = _lines(numbers(paper, table).to_dict("records"), datasets, beside)
    rows = [
        line | {"variant": one} | found.cell(line, one)
        for line, one in product(lines, VARIANTS)
    ]
    return pd.DataFrame(rows, columns=[*numbers().columns, "variant", *NOT_RUN])


class _Found:
    """The jobs of one notebook that may stand beside one table, indexed by data set, method and variant."""

    def __init__(self, results: Any, paper: str, table: str):
        self.results, self.paper = results, paper
        self.level = AXES.get((paper, table), {})
        empty = pd.DataFrame(
            {name: [] for name in ("kind", "dataset", "method", "variant")}
        )
        runs = empty if results is None else results.runs
        trainings = runs[runs["kind"] == "training"]
        self.main = self._index(trainings, trainings)
        gaps = results.missing() if hasattr(results, "missing") else empty
        self.gaps = (
            self._index(gaps[gaps["kind"] == "training"], trainings)
            if "minutes" in gaps
            else {}
        )
        named = (
            runs[runs["kind"] == "study"] if "table" in runs else empty.assign(table="")
        )
        studies = named[[table in tables.split() for tables in named["table"]]]
        self.studies = [
            {
                name: run[name]
                for name in ("dataset", "variant", "seed", "model", "profile", "key")
            }
            | {"network": row.get("model", "")}
            | row
            for run in studies.to_dict("records")
            for row in results.table(run["key"], "printed").to_dict("records")
        ]

    def _index(
        self, frame: pd.DataFrame, trainings: pd.DataFrame
    ) -> dict[tuple, list[dict]]:
        """Keep the rows without a switch, by (data set, method, variant)."""
        for name in self.results.axes if self.results is not None else ():
            if name not in frame or name in (
                "table",
                "precision",
            ):  # the latter is no other setting in print
                continue
            values = frame[name]
            absent = values.isna() | (values.astype(str) == "")
            if name == "rule":
                usual = values == frame["variant"].map(RULES)
                frame = frame[
                    absent | usual | (self.paper != "flt") & (values == "participants")
                ]
            elif name in self.level:
                frame = frame[~absent]
            elif trainings[name].nunique(dropna=False) > 1:
                frame = frame[absent]
        return {
            key: own.to_dict("records")
            for key, own in frame.groupby(["dataset", "method", "variant"], sort=False)
        }

    def cell(self, line: Row, variant: str) -> dict[str, Any]:
        """Return the row's numbers, or :data:`NOT_RUN` with the cost of the gap."""
        params = json.loads(line["params"] or "{}")
        at_round = params.get(self.level.get("round"))
        jobs = [(row, row["value"]) for row in self._studied(line, params, variant)]
        candidates = self._candidates(self.main, line, params, variant)
        jobs += [(row, self._value(row, line, at_round)) for row in candidates]
        groups: dict[tuple, list[tuple[dict, float]]] = {}  # studies apart from runs
        for row, value in jobs:
            if value == value:
                departs = departures(
                    self.results.record(row["key"]),
                    line,
                    row["dataset"],
                    variant,
                    at_round,
                )
                departs += filter(
                    None,
                    [
                        row.get("otherwise"),
                        row.get("stopped") and "a run stopped early",
                    ],
                )
                groups.setdefault(
                    (tuple(departs), row["profile"], row.get("kind")), []
                ).append((row, float(value)))
        if not groups:
            minutes = [
                gap["minutes"]
                for gap in self._candidates(self.gaps, line, params, variant)
            ]
            return NOT_RUN | ({"minutes": sum(minutes)} if minutes else {})
        # in the printed setting, on the printed data, most trusted, nearest, with most seeds
        order = [
            (
                bool(departs),
                _on_stand_in(departs),
                PROFILES.index(profile),
                len(departs),
                -len(own),
                departs,
                own,
            )
            for (departs, profile, _), own in groups.items()
        ]
        *_, departs, best = min(order, key=lambda group: group[:5])
        rows, values = [row for row, _ in best], [value for _, value in best]
        if len({row["seed"] for row in rows}) < len(rows):
            models = ", ".join(dict.fromkeys(label(row["model"]) for row in rows))
            where = f"{label(line['method'])} on {label(line['dataset'])} {label(variant)} ({models})"
            raise FltnbError(
                f"Several jobs of one seed fit {where}: select one with results.where() before."
            )
        n = rows[0].get(
            "n_train" if line["split"] == "train" else "n_test", float("nan")
        )
        return NOT_RUN | {
            **{
                "mean": sum(values) / len(values),
                "spread": seed_spread(values),
                "seeds": len(values),
                "n": float(n),
            },
            **{"departs": departs, "keys": tuple(row["key"] for row in rows)},
            "status": "otherwise" if departs else "reproduced",
            "on_copies": "copies"
            in self.results.record(rows[0]["key"])["provenance"].get("data_origin", ""),
        }

    def _candidates(
        self, index: Mapping[tuple, list[dict]], line: Row, params: Row, variant: str
    ) -> list[dict]:
        """Return the rows with the data, the method, the kind of network and the level of one printed number."""
        keys = [
            (name, line["method"], kind)
            for name in _names(line)
            for kind in _kinds(variant)
        ]
        own = [row for key in keys for row in index.get(key, ())]
        if (
            self.paper == "flt" and line["model"]
        ):  # the only tables with two networks on one data set
            own = [
                row
                for row in own
                if row["model"].startswith("mlp") == (line["model"] == "mlp")
            ]
        for name, short in self.level.items():
            wanted = params[short] / (
                params["clients"] if short == "participants" else 1
            )
            own = [
                row
                for row in own
                if name == "round" or (name in row and abs(row[name] - wanted) < 1e-9)
            ]
        return own

    def _value(self, row: Row, line: Row, at_round: int | None) -> float:
        """Return a run's number: at its end, at a round of its curve, or over the backdoor's targets; NaN if none."""
        column = COLUMNS.get((line["metric"], line["split"]), "")
        if line["metric"] in TARGETS:
            return self._targets[TARGETS[line["metric"]]].get(row["key"], float("nan"))
        if at_round is None:
            return float(row.get(column, "nan"))
        curves = self.results.curves
        there = (
            (curves["key"] == row["key"])
            & (curves["round"] == at_round)
            & (curves["split"] == line["split"])
        )
        return float(curves.loc[there, column].mean())

    @functools.cached_property
    def _targets(self) -> pd.DataFrame:
        clients = self.results.clients
        return (
            clients[clients["true_cluster"] == 0]
            .groupby("key")[list(TARGETS.values())]
            .mean()
        )

    def _studied(self, line: Row, params: Row, variant: str) -> list[dict]:
        """Return what studies measured for a number."""
        wanted = {name: [line[name]] for name in KEY if line[name] and name != "model"}
        wanted |= {"dataset": _names(line)} if line["dataset"] else {}
        wanted |= {name: [value] for name, value in params.items()} | {
            "variant": _kinds(variant)
        }
        wanted["network"] = ["", line["model"]]
        return [
            row
            for row in self.studies
            if all(row[name] in wanted[name] for name in wanted.keys() & row.keys())
        ]


def _on_stand_in(departs: Sequence[str]) -> bool:
    return any(phrase.startswith("stand-in") for phrase in departs)


def _kinds(variant: str) -> tuple[str, ...]:
    return (variant, "") if variant == "as_written" else (variant,)


def _names(line: Row) -> list[str]:
    """Name the data sets of runs that may stand beside a printed line: its own and those that stand in for it."""
    version = (
        line["setting"].removeprefix("rotated")
        if line["setting"].startswith("rotated_")
        else ""
    )
    own = line["dataset"] + version
    return [
        own,
        *(name for name, printed in (STAND_INS | SAME).items() if printed == own),
    ]


def _lines(
    printed: list[dict], datasets: Sequence[str] | None, beside: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the printed lines by data set, then lines without numbers for methods that the table does not have."""
    empty = {
        "value": "",
        "error": "",
        "note": "",
        "number": float("nan"),
        "number_error": float("nan"),
    }
    first = [
        one
        for one in printed
        if (one["dataset"], one["model"])
        == (printed[0]["dataset"], printed[0]["model"])
    ]
    for name in datasets or dict.fromkeys(line["dataset"] for line in printed):
        own = [line for line in printed if line["dataset"] == name]
        # a set that the paper does not use: the rows of the first one, without numbers
        own = own or [line | empty | {"dataset": name} for line in first]
        yield from own
        for method in beside:
            yield from (
                line | empty | {"method": method}
                for line in own
                if line["method"] == own[0]["method"]
            )


def compare(
    results: Any,
    paper: str,
    table: str,
    dataset: str | None = None,
    beside: Sequence[str] = (),
) -> pd.DataFrame:
    """Put a printed table beside the reproduced numbers, in the paper's order and in words for people.

    Returns a DataFrame of text: ``data, [model,] method, [what tells a method's settings apart,] measure``; ``paper``
    (as printed with the printed error), ``as written`` and ``as run``: "mean ± spread (seeds) [binomial error, FLT
    only]", or "not run" with its cost where that is known; "as written − paper", "as run − paper" (where the data are
    the paper's); ``otherwise``: how a run departs from the printed setting and data; ``note``. Columns without entries
    are left out. A symmetric matrix is shown once, without its diagonal. ``.attrs["caption"]`` explains the notation.
    FltnbError, ``beside``: as :func:`measured`. ``dataset``: by default the table's own sets, or the toy data where
    the results have no others.
    """
    sets = [] if results is None else list(dict.fromkeys(results.runs["dataset"]))
    datasets = None if dataset is None else [dataset]
    if dataset is None and sets and all(map(TOY.search, sets)):
        datasets = list(
            dict.fromkeys(re.sub("_(min|two|base)$", "", name) for name in sets)
        )
    return worded(
        measured(results, paper, table, datasets, beside), results, paper, table
    )


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Put a table of :func:`compare` into the paper's form: a line per method, its measures side by side.

    Differences to the printed number stand in ( ) behind the seeds; ``.attrs["caption"]`` says so.
    """
    lines = list(table.columns[: table.columns.get_loc("measure")])
    kinds = [
        name
        for name in ("paper", *VARIANTS.values())
        if name in table and (table[name] != "not run").any()
    ]
    cells = table.copy()
    for kind in kinds:
        apart = table.get(f"{kind} − paper", pd.Series("", index=table.index))
        pairs = zip(table[kind], apart, strict=True)
        cells[kind] = [
            re.sub(r"(\(\d+ seeds?)", rf"\1; {gap}", text) if gap else text
            for text, gap in pairs
        ]
    out = table[lines].drop_duplicates().set_index(lines)
    for measure, own in cells.groupby("measure", sort=False):
        out = out.join(
            own.set_index(lines)[kinds].rename(
                columns=lambda name, measure=measure: f"{measure}: {name}"
            )
        )
    caption = (
        table.attrs.get("caption", "") + " In ( ): seeds, and the difference to print."
    )
    ran = (table[[name for name in kinds if name != "paper"]] != "not run").any(axis=1)
    said = table.get("otherwise", pd.Series("", index=table.index))[ran]
    usual = said[said != ""].mode().get(0, "")
    written, run = VARIANTS.values()
    whole = {
        "": "",
        f"{written}: {usual}": f" {run}",
        f"{run}: {usual}": f" {written}",
    }  # in the printed setting
    if usual and said[said != usual].isin(list(whole)).all():
        own = table.loc[
            said.index[said != usual], ["method", "measure", "otherwise"]
        ].itertuples(index=False)
        caption += f" All runs: {usual}" + "; in the printed setting: " * any(
            said != usual
        )
        caption += (
            ", ".join(
                f"{measure} of {method}{whole[text]}" for method, measure, text in own
            )
            + "."
        )
    elif usual:
        departs = table.loc[table["otherwise"] != "", [*lines, "otherwise"]]
        out = out.join(departs.groupby(lines, sort=False)["otherwise"].first())
    out = out.fillna("").reset_index()
    out = out[
        [
            name
            for name in out.columns
            if name not in lines or out[name].nunique() > 1 or name == "method"
        ]
    ]
    out.attrs["caption"] = caption
    return out


def worded(found: pd.DataFrame, results: Any, paper: str, table: str) -> pd.DataFrame:
    """Put what :func:`measured` found into the words of :func:`compare`."""
    shown = found[[above_diagonal(params) for params in found["params"]]]
    told, repeated = _told_apart(found), _repeated(paper)
    each = [note.split("; ") for note in found["note"][found["number"].notna()]] or [
        [""]
    ]  # printed rows
    everywhere = [
        note for note in each[0] if note and all(note in notes for notes in each)
    ]
    pairs = (
        shown[shown["variant"] == variant].to_dict("records") for variant in VARIANTS
    )
    rows = []
    for cells in zip(*pairs, strict=True):
        line, params = cells[0], json.loads(cells[0]["params"] or "{}")
        row = {
            "data": label(line["dataset"]),
            "model": label(line["model"]),
            "method": label(line["method"]),
        }
        row |= {title: show(line, params) for title, show in told.items()}
        row["measure"] = "train " * (line["split"] == "train") + label(line["metric"])
        row["paper"] = (
            f"{int(line['value']):,}" if line["value"].isdigit() else line["value"]
        )
        row["paper"] += f" ± {line['error']}" * bool(line["error"])
        row |= {label(cell["variant"]): cell_text(cell, paper) for cell in cells}
        for cell in cells:
            apart = (
                float("nan")
                if _on_stand_in(cell["departs"])
                else cell["mean"] - cell["number"]
            )
            row[f"{label(cell['variant'])} − paper"] = (
                f"{apart:+.2f}" if apart == apart else ""
            )
        said = {
            label(cell["variant"]): "; ".join(cell["departs"])
            for cell in cells
            if cell["status"] != "not run"
        }
        each_its_own = "; ".join(
            f"{name}: {text}" for name, text in said.items() if text
        )
        row["otherwise"] = (
            next(iter(said.values())) if len(set(said.values())) == 1 else each_its_own
        )
        notes = [note for note in line["note"].split("; ") if note not in everywhere]
        # "printed a in T2 but b in T8" is said by the computed remark
        notes = [
            note
            for note in notes
            if not (note.startswith("printed ") and " in T" in note)
        ]
        notes += [
            repeated.get((table, *(line[name] for name in KEY), line["value"]), "")
        ]
        row["note"] = "; ".join(filter(None, notes))
        rows.append(row)
    out = pd.DataFrame(rows)
    kept = [
        name
        for name in out.columns
        if name in VARIANTS.values() or (out[name] != "").any()
    ]
    out = out[
        [name for name in kept if not (paper in WITHOUT_CODE and name == "as run")]
    ]
    name = f"Table {table[1:]} of {PAPERS[paper]}"
    parts = [
        f"{name}, printed and reproduced.",
        _ERRORS.get(paper, "± behind a printed number is the paper's."),
    ]
    if found["number"].isna().all():
        parts = [
            f"Toy scale ({', '.join(dict.fromkeys(out['data']))}); not comparable with {name}."
        ]
    parts.append(
        "± behind a reproduced number is the sample standard deviation over seeds."
    )
    ours = list(
        read("remarks.csv").query("paper == @paper and table == @table")["remark"]
    )
    remarks = [
        f"Of every printed number: {note}." for note in everywhere
    ] + ours * bool(found["number"].count())
    if paper in WITHOUT_CODE:
        remarks.append("The paper has no public code, so nothing can be run as run.")
    if len(shown) < len(found):
        remarks.append(
            "The printed matrix is symmetric with ones on its diagonal; each pair of users is shown once."
        )
    used = dict.fromkeys(key for keys in found["keys"] for key in keys)
    origins = dict.fromkeys(
        results.record(key)["provenance"].get("data_origin", "") for key in used
    )
    for origin in filter(
        None, origins
    ):  # but for what another says, too: features name the pictures they are of
        if not (
            origin.startswith("official")
            or stand_in("", origin)
            or sum(origin in one for one in origins) > 1
        ):
            remarks.append(f"Data: {origin}.")
    out.attrs["remarks"] = remarks
    out.attrs["caption"] = " ".join(parts + remarks)
    return out


def above_diagonal(params: str) -> bool:
    """Whether a number is no repetition within a symmetric matrix."""
    pair = json.loads(params or "{}")
    return pair.get("user_i", 0) < pair.get("user_j", 1)


def _told_apart(found: pd.DataFrame) -> dict[str, Any]:
    """Column title -> text of a line, for what tells the settings apart under which the table prints one method."""
    lines = found.drop_duplicates([*KEY, "setting", "params"])
    if not lines.duplicated(list(KEY)).any():
        return {}
    if lines["setting"].nunique() > 1:
        return {"version": lambda line, params: label(line["setting"])}
    varied: dict[str, None] = {}
    for _, group in lines.groupby(list(KEY), sort=False):
        each = [json.loads(params) for params in group["params"]]
        varied |= {
            name: None
            for name in each[0]
            if len({str(one.get(name)) for one in each}) > 1
        }
    if "user_j" in varied:
        return {"users": _users}
    return {
        label(name): lambda line, params, name=name: label(f"{params[name]}")
        for name in varied
    }


def _users(line: Row, params: Row) -> str:
    if "labels_i" in params:
        return f"{label(params['labels_i'])} and {label(params['labels_j'])}"
    themes = {1: "vehicles", 2: "animals"}
    return " and ".join(
        f"user {params[f'user_{x}']} ({themes[params[f'task_{x}']]})" for x in "ij"
    )


def cell_text(cell: Row, paper: str) -> str:
    """Say one reproduced number: mean, spread, seeds and, of FLT, the binomial error; or what the gap costs."""
    if cell["status"] == "not run":
        minutes = cell["minutes"]
        cost = (
            f"{max(1, round(minutes))} min" if minutes < 90 else f"{minutes / 60:.0f} h"
        )
        return "not run" + f" (about {cost})" * (minutes == minutes)
    digits = (
        max(2, len(cell["value"].partition(".")[2]))
        if not cell["value"].isdigit()
        else 0
    )
    digits += 2 * (cell["metric"] == "hours")  # ours are seconds
    spread = f" ± {cell['spread']:.{digits}f}" if cell["seeds"] > 1 else ""
    seeds = f" ({cell['seeds']} seed{'s' * (cell['seeds'] != 1)})"
    pooled = paper == "flt" and cell["metric"] == "accuracy" and cell["n"] == cell["n"]
    binomial = f" [{binomial_error(cell['mean'], cell['n']):.2f}]" if pooled else ""
    return f"{cell['mean']:{',' * (digits == 0)}.{digits}f}{spread}{seeds}{binomial}"


@functools.cache
def _repeated(paper: str) -> dict[tuple, str]:
    """Table, key and value of a number -> what the paper prints for it elsewhere."""
    found = {}
    for row in inconsistencies(paper).to_dict("records"):
        for table, value in row["printed"].items():
            others = ", ".join(
                f"{other} in {name}"
                for name, other in row["printed"].items()
                if name != table
            )
            found[(table, *(row[name] for name in KEY), value)] = (
                f"the paper also prints {others}"
            )
    return found
