"""The texts of a ledger: its CSV, and the JSON with settings and provenance.

Parts that many records share, such as a federation or a machine, are stored once.
"""

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from ..settings import plain
from .finished import Finished, Records, Values
from .grid import COMMON

FORMAT = 2
FOUND = " found"
"""Suffix of a number's name that is also the name of an axis."""
TYPES = ("bool", "int", "float", "text")
"""Types of columns of the CSV."""
_LAST = ("stopped", "key", "record")
_PARTS = ("federation", "method", "clusterer", "encoder", "training", "measure")
"""Settings that many records share."""
_OWN = ("data", "seconds", "finished", "formerly", "graph", "trained_as")
"""Provenance of single records; the rest is that of the machine."""


Places = dict[str, int]
"""Lines of a list in the JSON, and their numbers."""


def own_axes(finished: Iterable[Finished]) -> list[str]:
    """Return the names of a notebook's own axes, in order."""
    names = []
    for done in finished:
        for name in done.axes:
            if name not in COMMON and name not in names:
                names.append(name)
    return names


def table_text(notebook: str, records: Records) -> tuple[str, dict[str, str]]:
    """Return the CSV and the type of each of its columns.

    Parameters
    ----------
    notebook : str
    records : dict
        Name of the record -> its experiment: one line each.

    Returns
    -------
    text : str
        Columns: those that all notebooks have, the notebook's own axes, numbers, then
        ``stopped``, ``key`` and ``record``. NaN and missing values are empty.
    types : dict
        Column -> one of :data:`TYPES`, in the order of the columns.
    """
    axes = own_axes(records.values())
    lines = []
    types: dict[str, str] = {}
    for record, done in records.items():
        line = _line(notebook, record, done, axes)
        lines.append(line)
        for name, value in line.items():
            types[name] = _common_type(types.get(name), _type_of(value))

    front = [*COMMON, *axes]
    numbers = [name for name in types if name not in (*front, *_LAST)]
    order = [name for name in (*front, *numbers, *_LAST) if name in types]
    table = pd.DataFrame(lines, columns=order, dtype=object)
    return table.to_csv(index=False), {name: types[name] for name in order}


def _line(notebook: str, record: str, done: Finished, axes: list[str]) -> Values:
    """Return a line of the CSV: column -> value, without what is missing.

    A number with the name of an axis gets the suffix :data:`FOUND`.
    """
    line = {"notebook": notebook, "kind": done.kind}
    line.update(plain(done.axes))
    for name, value in plain(done.numbers).items():
        if pd.isna(value):
            continue
        if name in axes:
            name += FOUND
        line[name] = value
    line["key"] = done.key
    line["record"] = record
    return line


def _type_of(value: Any) -> str:
    """Return the type of a value of the CSV, one of :data:`TYPES`."""
    kind = type(value).__name__
    return kind if kind in TYPES else "text"


def _common_type(known: str | None, kind: str) -> str:
    """Return the type that fits a column's values so far and those of another type.

    ``known``: its type so far, None for a new column.
    """
    if known is None or known == kind:
        return kind
    if {known, kind} == {"int", "float"}:
        return "float"
    return "text"


def types_of_both(before: dict[str, str], types: dict[str, str]) -> dict[str, str]:
    """Return types of columns by which two CSVs can be read, given those of each.

    Examples
    --------
    >>> types_of_both({"k": "text", "note": "text"}, {"k": "int"})
    {'k': 'text', 'note': 'text'}
    """
    both = dict(before)
    for name, kind in types.items():
        both[name] = _common_type(before.get(name), kind)
    return both


def book_text(
    records: Records, types: dict[str, str], former_axes: Iterable[str] = ()
) -> str:
    """Return the JSON: every record, machine and part of settings is one line.

    Parameters
    ----------
    records : dict
        Name of the record -> its experiment.
    types : dict
        Types of the columns of the CSV, from :func:`table_text`.
    former_axes : iterable of str
        Axes that the records no longer have, but the CSV that is there.

    Returns
    -------
    str
        ``format``, ``axes`` (the notebook's own), ``columns`` (their types),
        ``machines`` and ``parts`` (lists), and ``records``: name -> ``id``,
        ``settings`` (a number stands for an entry of ``parts``), ``machine`` (its place
        in the list) and the values of this record only.
    """
    machines: Places = {}
    parts: Places = {}
    written = []
    axes = list(dict.fromkeys([*own_axes(records.values()), *former_axes]))
    for name, done in records.items():
        record = _record(done, machines, parts)
        written.append(f"{json.dumps(name)}: {json.dumps(record)}")

    blocks = [
        f'"format": {FORMAT}',
        f'"axes": {json.dumps(axes)}',
        f'"columns": {json.dumps(types)}',
        '"machines": [\n' + ",\n".join(machines) + "\n]",
        '"parts": [\n' + ",\n".join(parts) + "\n]",
        '"records": {\n' + ",\n".join(written) + "\n}",
    ]
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _record(done: Finished, machines: Places, parts: Places) -> Values:
    """Return a record of the JSON.

    Its machine and its parts are added to ``machines`` and ``parts`` if they are new.
    """
    settings = dict(done.record["settings"])
    for word in _PARTS:
        part = settings.get(word)
        if isinstance(part, dict):
            settings[word] = _place(parts, part)

    about = dict(done.record["provenance"])
    own = {word: about.pop(word) for word in _OWN if word in about}
    record = {
        "id": done.record["id"],
        "settings": settings,
        "machine": _place(machines, about),
    }
    return record | own


def _place(lines: Places, what: Values) -> int:
    """Return the number of a line; it is added if it is new.

    The line is the given content, as JSON with sorted names.
    """
    line = json.dumps(what, sort_keys=True)
    return lines.setdefault(line, len(lines))


def record_of(book: Values, name: str) -> Values:
    """Return the contents of a record in the JSON, as before :func:`book_text`.

    Returns
    -------
    dict
        ``id``, ``settings`` and ``provenance`` of the experiment.
    """
    own = dict(book["records"][name])
    settings = dict(own.pop("settings"))
    for word in _PARTS:
        place = settings.get(word)
        if isinstance(place, int):
            settings[word] = book["parts"][place]
    machine = book["machines"][own.pop("machine")]
    return {"id": own.pop("id"), "settings": settings, "provenance": machine | own}
