"""The texts of a ledger: its CSV, and the JSON with settings and provenance.

What many records share, such as a federation or a machine, stands once in the JSON.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from ..settings import plain
from .finished import Finished
from .grid import COMMON

FORMAT = 2
FOUND = " found"  # ends the name of a number that is the name of an axis, too
TYPES = ("bool", "int", "float", "text")
_LAST = ("stopped", "key", "record")
_PARTS = ("federation", "method", "clusterer", "encoder", "training", "measure")
_OWN = ("data", "seconds", "finished", "formerly", "graph", "trained_as")


def own_axes(jobs: Iterable[Finished]) -> list[str]:
    """Return the names of a notebook's own axes, in order."""
    names: dict[str, None] = {}
    for done in jobs:
        names |= dict.fromkeys(done.axes)
    return [name for name in names if name not in COMMON]


def table_text(
    notebook: str, jobs: Mapping[str, Finished]
) -> tuple[str, dict[str, str]]:
    """Return the CSV, one line a job, and the type of each column."""
    axes = own_axes(jobs.values())
    lines = []
    types: dict[str, str] = {}
    for record, done in jobs.items():
        line = {"notebook": notebook, "kind": done.kind}
        line |= plain(done.axes)
        for name, value in plain(done.numbers).items():
            if pd.notna(value):
                line[name + FOUND if name in axes else name] = value
        line |= {"key": done.key, "record": record}
        for name, value in line.items():
            types[name] = _common_type(types.get(name), value)
        lines.append(line)

    front = [*COMMON, *axes]
    numbers = [name for name in types if name not in (*front, *_LAST)]
    order = [name for name in (*front, *numbers, *_LAST) if name in types]
    text = pd.DataFrame(lines, columns=order, dtype=object).to_csv(index=False)
    return text, {name: types[name] for name in order}


def _common_type(known: str | None, value: Any) -> str:
    """Return the type that holds what a column has so far and one more value."""
    kind = type(value).__name__
    if kind not in TYPES:
        kind = "text"
    if known in (None, kind):
        return kind
    return "float" if {known, kind} == {"int", "float"} else "text"


def book_text(jobs: Mapping[str, Finished], types: dict[str, str]) -> str:
    """Return the JSON: every record, machine and part of settings is one line."""
    machines: dict[str, int] = {}
    parts: dict[str, int] = {}
    records = []
    for name, done in jobs.items():
        settings = dict(done.record["settings"])
        for word in _PARTS:
            if isinstance(settings.get(word), dict):
                settings[word] = _place(parts, settings[word])
        about = dict(done.record["provenance"])
        own = {word: about.pop(word) for word in _OWN if word in about}
        record = {
            "id": done.record["id"],
            "settings": settings,
            "machine": _place(machines, about),
        }
        records.append(f"{json.dumps(name)}: {json.dumps(record | own)}")

    blocks = [
        f'"format": {FORMAT}',
        f'"axes": {json.dumps(own_axes(jobs.values()))}',
        f'"columns": {json.dumps(types)}',
        '"machines": [\n' + ",\n".join(machines) + "\n]",
        '"parts": [\n' + ",\n".join(parts) + "\n]",
        '"records": {\n' + ",\n".join(records) + "\n}",
    ]
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _place(lines: dict[str, int], what: dict[str, Any]) -> int:
    """Return the number of a line, which is added if it is new."""
    return lines.setdefault(json.dumps(what, sort_keys=True), len(lines))


def record_of(book: dict[str, Any], name: str) -> dict[str, Any]:
    """Return ``id``, ``settings`` and ``provenance`` of a record."""
    own = dict(book["records"][name])
    settings = dict(own.pop("settings"))
    for word in _PARTS:
        if isinstance(settings.get(word), int):
            settings[word] = book["parts"][settings[word]]
    name = own.pop("id")
    machine = book["machines"][own.pop("machine")]
    return {"id": name, "settings": settings, "provenance": machine | own}
