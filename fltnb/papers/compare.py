"""A printed table beside ours, in words for people."""

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from .measured import measured
from .names import PAPERS, SHORT, label
from .numbers import KEY, inconsistencies, read
from .settings import TOY, WITHOUT_CODE, Row, stand_in

_ERRORS = {
    "flt": "± behind a printed number is the binomial error of the pooled samples.",
    "emdcfl": "± behind a printed number is the paper's spread over three runs.",
}
_THEMES = {1: "vehicles", 2: "animals"}
"""MT-HFL's tasks on CIFAR-10."""


def compare(
    results: Any,
    paper: str,
    table: str,
    dataset: str | None = None,
    beside: Sequence[str] = (),
) -> pd.DataFrame:
    """Put a printed table beside our numbers, in the paper's order.

    Returns a DataFrame of text: ``data, [model,] method, [what tells a method's
    settings apart,] measure``; ``printed`` (with the printed error); ``text`` and
    ``code`` (following the text and the authors' code): "mean ± spread (seeds)" or "not
    run"; ``text − printed`` and ``code − printed`` where the data are the paper's;
    ``setting``: how runs depart from the printed setting and data; ``note``. Columns
    without entries are left out; a symmetric matrix is shown once.
    ``.attrs["caption"]`` explains the notation.

    Parameters and FltnbError as for :func:`fltnb.papers.measured`. ``dataset``: by
    default the table's own sets, or the toy data where the results have no others.
    """
    sets = [] if results is None else list(results.runs["dataset"].unique())
    datasets = None if dataset is None else [dataset]
    if dataset is None and sets and all(map(TOY.search, sets)):
        datasets = sets
    found = measured(results, paper, table, datasets, beside)
    out = for_people(found)
    name = f"Table {table[1:]} of {PAPERS[paper]}"
    said = [f"{name}, printed and ours."]
    if found["number"].isna().all():
        said = [f"Toy data; not comparable with {name}."]
    said.append(_ERRORS.get(paper, "± behind a printed number is the paper's."))
    said.append("± behind ours is the sample standard deviation over seeds.")
    out.attrs["caption"] = " ".join([*said, *remarks(found, results)])
    return out


def for_people(
    found: pd.DataFrame, write: Callable[[Row], str] | None = None
) -> pd.DataFrame:
    """Put what :func:`measured` found into the words of :func:`compare`.

    ``write``: how one number of ours is written, by default :func:`cell_text`.
    """
    write = write or cell_text
    paper, everywhere = found["paper"].iloc[0], _notes_everywhere(found)
    shown = found[found["params"].map(above_diagonal)]
    levels = _levels(shown)
    rows = []
    records = shown.to_dict("records")
    for text, code in zip(records[0::2], records[1::2], strict=True):
        row = {name: label(text[key]) for name, key in _HEAD.items()}
        row |= {title: _level(text, title) for title in levels}
        row["measure"] = label(text["metric"])
        if text["split"] == "train":
            row["measure"] = f"train {row['measure']}"
        row["printed"] = _printed(text)
        row["text"], row["code"] = write(text), write(code)
        row["text − printed"] = _apart(text)
        row["code − printed"] = _apart(code)
        row["setting"] = _setting(text, code)
        row["note"] = _note(text, everywhere)
        rows.append(row)

    out = pd.DataFrame(rows)
    if paper in WITHOUT_CODE:
        out = out.drop(columns="code")
    empty = [name for name in out if (out[name] == "").all()]
    return out.drop(columns=empty)


_HEAD = {"data": "dataset", "model": "model", "method": "method"}


def above_diagonal(params: str) -> bool:
    """Whether a number is no repetition within a symmetric matrix."""
    pair = json.loads(params or "{}")
    return pair.get("user_i", 0) < pair.get("user_j", 1)


def _levels(found: pd.DataFrame) -> list[str]:
    """Return what tells the settings apart under which a table prints one method."""
    lines = found.drop_duplicates([*KEY, "setting", "params"])
    if not lines.duplicated(list(KEY)).any():
        return []
    if lines["setting"].nunique() > 1:
        return ["version"]
    varied: dict[str, None] = {}
    for _, group in lines.groupby(list(KEY), sort=False):
        each = pd.DataFrame([json.loads(params) for params in group["params"]])
        varied |= dict.fromkeys(each.columns[each.astype(str).nunique() > 1])
    if "user_j" in varied:
        return ["users"]
    return [label(name) for name in varied]


def _level(line: Row, title: str) -> str:
    """Return what tells one line apart: of a column of :func:`_levels`."""
    params = json.loads(line["params"] or "{}")
    if title == "version":
        return label(line["setting"])
    if title != "users":
        return next(str(params[name]) for name in params if label(name) == title)
    if "labels_i" in params:
        return f"{label(params['labels_i'])} and {label(params['labels_j'])}"
    users = []
    for which in "ij":
        theme = _THEMES[params[f"task_{which}"]]
        users.append(f"user {params[f'user_{which}']} ({theme})")
    return " and ".join(users)


def _printed(line: Row) -> str:
    value = line["value"]
    text = f"{int(value):,}" if value.isdigit() else value
    return f"{text} ± {line['error']}" if line["error"] else text


def cell_text(cell: Row, seeds: bool = True) -> str:
    """Write one number of ours: mean, spread and, if asked for, seeds; or "not run"."""
    if cell["status"] == "not run":
        return "not run"
    if cell["value"].isdigit():
        text = f"{cell['mean']:,.0f}"
        digits = 0
    else:
        digits = max(2, len(cell["value"].partition(".")[2]))
        digits += 2 if cell["metric"] == "hours" else 0  # ours are seconds
        text = f"{cell['mean']:.{digits}f}"
    if cell["seeds"] > 1:
        text += f" ± {cell['spread']:.{digits}f}"
    return f"{text} ({count(cell['seeds'], 'seed')})" if seeds else text


def count(number: int, word: str) -> str:
    """Write a number of things: "1 seed", "3 seeds"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _apart(cell: Row) -> str:
    off = cell["mean"] - cell["number"]
    if off != off or cell["status"] == "stand-in data":
        return ""
    return f"{off:+.2f}".replace("-", "−")


def _setting(*cells: Row) -> str:
    """Say how the runs of a line depart, once where all do so in the same way."""
    said = {}
    for cell in cells:
        if cell["status"] != "not run":
            said[SHORT[cell["variant"]]] = "; ".join(cell["departs"])
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{name}: {text}" for name, text in said.items() if text)


def _notes_everywhere(found: pd.DataFrame) -> list[str]:
    """Return the notes that all printed lines of a table have."""
    each = [set(note.split("; ")) for note in found["note"][found["number"].notna()]]
    shared = set.intersection(*each) if each else set()
    return sorted(shared - {""})


def _note(line: Row, everywhere: Sequence[str]) -> str:
    """Return the notes of one line, and what the paper prints elsewhere."""
    notes = []
    for note in line["note"].split("; "):
        # "printed a in T2 but b in T8" is told by what is printed elsewhere
        elsewhere = note.startswith("printed ") and " in T" in note
        if note and note not in everywhere and not elsewhere:
            notes.append(note)
    key = (line["table"], *(line[name] for name in KEY), line["value"])
    repeated = _repeated(line["paper"]).get(key)
    return "; ".join([*notes, repeated] if repeated else notes)


@functools.cache
def _repeated(paper: str) -> dict[tuple, str]:
    """Table, key and value of a number -> what the paper prints for it elsewhere."""
    found = {}
    for row in inconsistencies(paper).to_dict("records"):
        for table, value in row["printed"].items():
            others = []
            for name, other in row["printed"].items():
                if name != table:
                    others.append(f"{other} in {name}")
            key = (table, *(row[name] for name in KEY), value)
            found[key] = f"the paper also prints {', '.join(others)}"
    return found


def remarks(found: pd.DataFrame, results: Any) -> list[str]:
    """Return sentences about a whole table; ``found``: of :func:`measured`."""
    paper, table = found[["paper", "table"]].iloc[0]
    said = [f"Of every printed number: {note}." for note in _notes_everywhere(found)]
    if found["number"].notna().any():
        ours = read("remarks.csv")
        own = (ours["paper"] == paper) & (ours["table"] == table)
        said += ours["remark"][own].tolist()
    if paper in WITHOUT_CODE:
        said.append("The paper has no public code to follow.")
    if not found["params"].map(above_diagonal).all():
        said.append(
            "The printed matrix is symmetric; each pair of users is shown once."
        )
    return said + _origins(found, results)


def _origins(found: pd.DataFrame, results: Any) -> list[str]:
    """Say where data come from that are not the official ones."""
    keys = dict.fromkeys(key for keys in found["keys"] for key in keys)
    origins: dict[str, None] = {}
    for key in keys:
        origin = results.record(key)["provenance"].get("data_origin", "")
        if origin and not origin.startswith("official") and not stand_in("", origin):
            origins[origin] = None
    said = []
    for origin in origins:  # features name the pictures that they are of
        if not any(origin in other for other in origins if other != origin):
            said.append(f"Data: {origin}.")
    return said
