"""The ledger: what all machines and days have computed for one notebook, in three files that are committed.

``results/<profile>/<notebook>.csv`` has one line per finished job: its axes and final numbers, for people and for git.
``<notebook>.json`` has each job's settings and where its numbers come from, ``<notebook>.npz`` curves, clients and kept
arrays. Writing merges by key: results of different days and machines add up, and none is lost. The CSV is written last
and says what counts, so a writer that is killed leaves the old ledger or the new one.
"""

from __future__ import annotations

import csv
import fcntl
import functools
import io
import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import paths
from ..errors import FltnbError
from .finished import Finished, stacked, text_or_numbers
from .job import COMMON, digest

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
_LAST = ("stopped", "key", "record")
_SAME = 1e-9  # relative: numbers of one key that differ by more came from two different computations
_SHARED = ("federation", "method", "clusterer", "encoder", "training", "measure")  # settings that many jobs repeat


@dataclass(frozen=True)
class Ledger:
    """The files of one notebook and profile; nothing is read before it is asked for."""

    profile: str
    notebook: str
    folder: Path | None = None

    def path(self, ending: str) -> Path:
        """Return one of the three files."""
        where = paths.results(self.profile) if self.folder is None else self.folder / self.profile
        return where / f"{self.notebook}.{ending}"

    @property
    def exists(self) -> bool:
        """Whether anything is stored."""
        return self.path("csv").exists() and self.path("json").exists()

    @functools.cached_property
    def lines(self) -> list[dict[str, Any]]:
        """Lines of the CSV with typed values; missing ones are left out."""
        if not self.exists:
            return []
        kinds = self._book["columns"]
        with self.path("csv").open(encoding="utf-8", newline="") as file:
            return [
                {name: _typed(text, kinds[name]) for name, text in line.items() if text != ""}
                for line in csv.DictReader(file)
            ]

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """Names of this notebook's own axes, in order."""
        return tuple(self._book["axes"]) if self.exists else ()

    @functools.cached_property
    def _book(self) -> dict[str, Any]:
        try:
            book = json.loads(self.path("json").read_text(encoding="utf-8"))
            if book["format"] > FORMAT:
                raise FltnbError(
                    f"{self.path('json')} has format {book['format']}, written by a newer fltnb than this one, which"
                    f" reads up to {FORMAT}: update the package."
                )
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, FltnbError):
                raise
            raise FltnbError(
                f"{self.path('json')} is damaged ({error!r}): restore it with `git checkout -- {self.path('json')}`."
            ) from error
        return book

    def record(self, name: str) -> dict[str, Any]:
        """Return settings and provenance of a record."""
        held = dict(self._book["records"][name])
        parts, settings = self._book["parts"], dict(held.pop("settings"))
        for word in _SHARED:
            if isinstance(settings.get(word), int):
                settings[word] = parts[settings[word]]
        about = self._book["machines"][held.pop("machine")]
        return {"id": held.pop("id"), "settings": settings, "provenance": about | held}

    @functools.cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        path = self.path("npz")
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except Exception as error:  # a damaged zip raises many types
            raise FltnbError(
                f"{path} is damaged ({error!r}): restore it with `git checkout -- {path}`; the numbers in"
                f" {self.path('csv').name} are not affected."
            ) from error

    def arrays(self, record: str) -> dict[str, np.ndarray]:
        """Return the kept arrays of one job."""
        start = f"arrays/{record}/"
        return {name.removeprefix(start): value for name, value in self._arrays.items() if name.startswith(start)}

    def disputed(self) -> dict[str, list[dict[str, Any]]]:
        """Keys that stand here with different numbers, and their lines: none of them is used until one is chosen."""
        by_key: dict[str, list[dict]] = {}
        for line in self.lines:
            by_key.setdefault(line["key"], []).append(line)
        return {
            key: lines
            for key, lines in by_key.items()
            if not all(_same(lines[0], line, (*COMMON, *self.axes, "record")) for line in lines)
        }

    def settled(self) -> list[dict[str, Any]]:
        """Lines whose key stands here once; a warning names the others."""
        disputed = self.disputed()
        for key, lines in disputed.items():
            own = [name for name in lines[0] if name not in (*COMMON, *self.axes, "record")]
            differing = next(name for name in own if len({line.get(name) for line in lines}) > 1)
            values = " and ".join(str(value) for value in dict.fromkeys(line.get(differing) for line in lines))
            warnings.warn(
                f"{self.path('csv')} has different results for key {key} ({differing} {values}): none of them is used"
                " until you delete all lines but the right one.",
                stacklevel=3,
            )
        return [line for line in self.lines if line["key"] not in disputed]

    def finished(self, keys: Iterable[str] | None = None) -> Iterator[Finished]:
        """Yield the settled jobs, or those with the given keys, with everything that is stored about them."""
        lines = self.settled()
        if keys is not None:
            wanted = set(keys)
            lines = [line for line in lines if line["key"] in wanted]
        if lines:
            yield from self._made(lines)

    def _made(self, lines: list[dict]) -> Iterator[Finished]:
        for line in lines:
            axes = {name: line[name] for name in (*COMMON[2:], *self.axes) if name in line}
            numbers = {name: line[name] for name in line if name not in (*COMMON, *self.axes, "key", "record")}
            yield _Held(line["key"], line["kind"], axes, {"stopped": ""} | numbers, self, line["record"])

    @functools.cached_property
    def _places(self) -> dict[str, dict[str, slice]]:
        """Of ``curves`` and ``clients``: the rows of each record, which stand together."""
        names, places = self._arrays["records"] if self.exists else [], {}
        for which in ("curves", "clients"):
            job = self._arrays.get(f"{which}/job", np.zeros(0, dtype=np.int64))
            ends = np.searchsorted(job, np.arange(len(names) + 1))
            places[which] = {name: slice(*ends[i : i + 2]) for i, name in enumerate(names) if ends[i] < ends[i + 1]}
        return places

    def part(self, which: str, record: str) -> pd.DataFrame | None:
        """Return the curves or the clients of one job; columns that it does not have are left out."""
        place = self._places[which].get(record)
        if place is None:
            return None
        return self._tables[which].iloc[place].reset_index(drop=True).dropna(axis=1, how="all")

    @functools.cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        import pandas as pd

        def columns(start: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(start): value for name, value in self._arrays.items() if name.startswith(start)}

        return {which: pd.DataFrame(columns(f"{which}/")).drop(columns="job") for which in ("curves", "clients")}

    def merge(self, found: Sequence[Finished]) -> Ledger:
        """Add finished jobs, or refresh the axes of those that are there; return the new ledger.

        A job that is there with other numbers is added beside the old one: see :meth:`settled`.

        Raises
        ------
        FltnbError
            The folder cannot be written, or a file of the old ledger is damaged.
        """
        with _locked(self.profile):
            before = Ledger(self.profile, self.notebook, self.folder)
            there = {line["record"]: done for line, done in zip(before.lines, before._made(before.lines), strict=True)}
            by_key: dict[str, list[str]] = {}
            for name, done in there.items():
                by_key.setdefault(done.key, []).append(name)
            for done in found:
                wanted = [one.axes for one in found if one.key == done.key]  # equal settings under several names
                twins = [name for name in by_key.get(done.key, []) if _same(there[name].numbers, done.numbers)]
                named = [name for name in twins if there[name].axes == done.axes]
                named += [name for name in twins if there[name].axes not in wanted]  # its axes have new names
                if named:
                    there[named[0]].axes = dict(done.axes)
                    there[named[0]].arrays |= done.arrays
                else:
                    about = done.record["provenance"]
                    own = [about.get("finished", ""), about.get("hardware", ""), sorted(done.axes.items())]
                    name = digest([done.key, str(own), str(sorted(done.numbers.items()))])[:12]
                    there[name] = done
                    by_key.setdefault(done.key, []).append(name)
            _write(before, there)
        return Ledger(self.profile, self.notebook, self.folder)


def merge_folder(folder: str | Path) -> Iterator[str]:
    """Add all ledgers of another ``results`` folder to these; yield a sentence for each.

    Raises
    ------
    FltnbError
        There is no ledger in the folder, or one of them cannot be read.
    """
    files = sorted(Path(folder).glob("*/*.json"))
    if not files:
        raise FltnbError(f"There is no ledger in {folder}: give the results folder that the other machine wrote.")
    for file in files:
        other = Ledger(file.parent.name, file.stem, Path(folder))
        here = Ledger(other.profile, other.notebook)
        before = len(here.lines)
        after = here.merge(list(other.finished()))
        yield f"{other.profile}/{other.notebook}: {len(after.lines) - before} new jobs, {len(after.lines)} in all."


class _Held(Finished):
    """A finished job whose curves, clients, arrays and record are read when they are asked for."""

    def __init__(self, key: str, kind: str, axes: dict, numbers: dict, ledger: Ledger, name: str):
        self.key, self.kind, self.axes, self.numbers, self._ledger, self._name = key, kind, axes, numbers, ledger, name

    def with_axes(self, axes: Mapping[str, Any]) -> Finished:
        return _Held(self.key, self.kind, dict(axes), self.numbers, self._ledger, self._name)

    curves = functools.cached_property(lambda self: self._ledger.part("curves", self._name))
    clients = functools.cached_property(lambda self: self._ledger.part("clients", self._name))
    arrays = functools.cached_property(lambda self: self._ledger.arrays(self._name))
    record = functools.cached_property(lambda self: self._ledger.record(self._name))


def _same(one: dict[str, Any], other: dict[str, Any], but: Sequence[str] = ()) -> bool:
    return all(_equal(one[name], other[name], name) for name in (one.keys() & other.keys()) - set(but))


def _equal(one: Any, other: Any, name: str) -> bool:
    if "seconds" in name:
        return True
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_SAME) or (math.isnan(one) and math.isnan(other))
    return one == other


def _write(ledger: Ledger, there: dict[str, Finished]) -> None:
    names = list(there)
    jobs = list(there.values())
    columns: dict[str, str] = {}
    axes: dict[str, None] = {}
    lines = []
    for name, done in there.items():
        own = {axis: value for axis, value in done.axes.items() if axis not in COMMON}
        axes |= dict.fromkeys(own)
        line = {"notebook": ledger.notebook, "kind": done.kind} | done.axes
        line |= {column: value for column, value in done.numbers.items() if value is not None and value == value}
        line |= {"key": done.key, "record": name}
        for column, value in line.items():
            columns[column] = _wider(columns.get(column), _kind(value))
        lines.append(line)
    numbers = [column for column in columns if column not in (*COMMON, *axes, *_LAST)]
    order = [name for name in (*COMMON, *axes, *numbers, *_LAST) if name in columns]
    packed: dict[str, np.ndarray] = {"records": np.array(names)}
    for which in ("curves", "clients"):
        table = stacked([getattr(done, which) for done in jobs])
        if len(table):
            packed |= {f"{which}/{column}": _compact(table[column]) for column in table if column != "seconds"}
    for name, done in there.items():
        packed |= {f"arrays/{name}/{column}": value for column, value in done.arrays.items() if column != "models"}
    book = _book(ledger, there, {name: columns[name] for name in order}, list(axes))
    text = io.StringIO()
    writer = csv.DictWriter(text, order, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _text(value) for name, value in line.items()} for line in lines)
    paths.write_atomically(ledger.path("npz"), lambda file: np.savez_compressed(file, **packed))
    paths.write_atomically(ledger.path("json"), lambda file: file.write(book.encode()))
    paths.write_atomically(ledger.path("csv"), lambda file: file.write(text.getvalue().encode()))


def _book(ledger: Ledger, there: dict[str, Finished], columns: dict[str, str], axes: list[str]) -> str:
    """Return the JSON file's text: what many records share stands once, and every record is one line."""
    parts: dict[str, int] = {}
    machines: dict[str, int] = {}
    records = {}
    for name, done in there.items():
        settings = dict(done.record["settings"])
        for word in _SHARED:
            if isinstance(settings.get(word), dict):
                text = json.dumps(settings[word], sort_keys=True)
                settings[word] = parts.setdefault(text, len(parts))
        about = dict(done.record["provenance"])
        own = {word: about.pop(word) for word in ("data", "seconds", "finished", "formerly", "graph") if word in about}
        machine = machines.setdefault(json.dumps(about, sort_keys=True), len(machines))
        records[name] = {"id": done.record["id"], "settings": settings, "machine": machine, **own}
    blocks = [
        f'"format": {FORMAT}',
        f'"axes": {json.dumps(axes)}',
        f'"columns": {json.dumps(columns)}',
        '"machines": [\n' + ",\n".join(machines) + "\n]",
        '"parts": [\n' + ",\n".join(parts) + "\n]",
        '"records": {\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in records.items())
        + "\n}",
    ]
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _kind(value: Any) -> str:
    for kind, name in ((bool, "bool"), (int, "int"), (float, "float")):
        if isinstance(value, kind):
            return name
    if isinstance(value, np.generic):
        return _kind(value.item())
    return "text"


def _wider(one: str | None, other: str) -> str:
    if one is None or one == other:
        return other
    return "float" if {one, other} == {"int", "float"} else "text"


def _text(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    return repr(value) if isinstance(value, float) else str(value)


def _typed(text: str, kind: str) -> Any:
    return {"bool": lambda: text == "True", "int": lambda: int(text), "float": lambda: float(text)}.get(
        kind, lambda: text
    )()


def _compact(column: Any) -> np.ndarray:
    """Curves and clients need no more than seven digits; whole numbers stay whole."""
    values = text_or_numbers(column)
    if values.dtype.kind == "f" and not np.all(np.mod(values[np.isfinite(values)], 1) == 0):
        with np.errstate(over="ignore"):
            return values.astype(np.float32)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return values
    if values.dtype.kind in "fi" and (not len(values) or np.abs(values).max() < 2**31):
        return values.astype(np.int32)
    return values.astype(np.int64) if values.dtype.kind == "f" else values


@contextmanager
def _locked(profile: str) -> Iterator[None]:
    """Let one process at a time merge into the ledgers of a profile."""
    path = paths.store() / f"{profile}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
