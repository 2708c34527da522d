"""The ledger: what all machines and days have computed for one notebook, in three files that are committed.

``results/ledger/<notebook>.csv`` has one line per finished job: its axes and final numbers, for people and for git.
``<notebook>.json`` has each job's settings and where its numbers come from, ``<notebook>.npz`` curves, clients and kept
arrays. Writing merges by key: results of different days and machines add up, and none is lost. The CSV is written last
and says what counts, so a writer that is killed leaves the old ledger or the new one.
"""

import csv
import fcntl
import functools
import json
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from .. import paths
from ..errors import FltnbError
from ..settings import plain
from .finished import TABLES, Finished, below, columns_of, read_arrays, table_of
from .grid import COMMON
from .key import digest

FORMAT = 2
_FOUND = " found"  # behind the name of a number that is the name of an axis, too
_LAST = ("stopped", "key", "record")
_READ = {"bool": "True".__eq__, "int": int, "float": float, "text": str}
_SAME = 1e-9  # relative: numbers of one key that differ by more came from two different computations
_SHARED = (
    "federation",
    "method",
    "clusterer",
    "encoder",
    "training",
    "measure",
)  # settings that many jobs repeat


@dataclass(frozen=True)
class Ledger:
    """The files of one notebook; nothing is read before it is asked for."""

    notebook: str
    folder: Path | None = None

    def path(self, ending: str) -> Path:
        """Return one of the three files."""
        where = paths.ledgers() if self.folder is None else self.folder
        return where / f"{self.notebook}.{ending}"

    @property
    def exists(self) -> bool:
        """Whether anything is stored."""
        return self.path("csv").exists()

    @functools.cached_property
    def lines(self) -> list[dict[str, Any]]:
        """Lines of the CSV with typed values; missing ones are left out."""
        if not self.exists:
            return []
        read = {name: _READ[kind] for name, kind in self._book["columns"].items()}
        with self.path("csv").open(encoding="utf-8", newline="") as file:
            try:
                names, *lines = csv.reader(file)
                rows = [zip(names, line, strict=True) for line in lines]
                return [
                    {name: read[name](text) for name, text in row if text != ""}
                    for row in rows
                ]
            except (
                ValueError,
                KeyError,
            ) as error:  # such as what git puts where two branches differ
                raise _damaged(self.path("csv"), error) from error

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """Names of this notebook's own axes, in order."""
        return tuple(self._book["axes"]) if self.exists else ()

    @functools.cached_property
    def _book(self) -> dict[str, Any]:
        path = self.path("json")
        try:
            book = json.loads(path.read_text(encoding="utf-8"))
            newer = book["format"] > FORMAT
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error
        if newer:
            raise FltnbError(
                f"{path} has format {book['format']}, of a newer fltnb than this one: update the package."
            )
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
            return _unpack(read_arrays(path.read_bytes()))
        except Exception as error:
            raise _damaged(
                path,
                error,
                f"; the numbers in {self.path('csv').name} are not affected",
            ) from error

    @functools.cached_property
    def _kept(self) -> dict[str, dict[str, np.ndarray]]:
        found: dict[str, dict] = {}
        for name, value in below("arrays", self._arrays).items():
            record, _, own = name.partition("/")
            found.setdefault(record, {})[own] = value
        return found

    def arrays(self, record: str) -> dict[str, np.ndarray]:
        """Return the kept arrays of one job."""
        return dict(self._kept.get(record, {}))

    def _numbers(self, line: dict[str, Any]) -> dict[str, Any]:
        return {
            name.removesuffix(_FOUND): value
            for name, value in line.items()
            if name not in (*COMMON, *self.axes, "key", "record")
        }

    def finished(self, keys: Collection[str] | None = None) -> Iterator[Finished]:
        """Yield the jobs, or those with the given keys, with everything that is stored about them.

        Those whose key stands here with different numbers are left out, and a warning names them.
        """
        first, disputed = {}, {}
        for line in self.lines:
            one = first.setdefault(line["key"], line)
            if one is not line and (
                name := _differing(self._numbers(one), self._numbers(line))
            ):
                disputed.setdefault(line["key"], f"{name} {one[name]} and {line[name]}")
        for key, how in disputed.items():
            text = f"{self.path('csv')} has different results for key {key} ({how}): none of them is used"
            warnings.warn(
                f"{text} until you delete all lines but the right one.", stacklevel=3
            )
        left = (line for line in self.lines if line["key"] not in disputed)
        yield from self._made(
            line for line in left if keys is None or line["key"] in keys
        )

    def _made(self, lines: Iterable[dict]) -> Iterator[Finished]:
        for line in lines:
            axes = {
                name: line[name] for name in (*COMMON[2:], *self.axes) if name in line
            }
            yield _Held(
                line["key"],
                line["kind"],
                axes,
                {"stopped": ""} | self._numbers(line),
                self,
                line["record"],
            )

    @functools.cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        names, tables = (
            self._arrays["records"],
            {which: table_of(self._arrays, which) for which in TABLES},
        )
        return {
            which: table.assign(record=names[table.pop("job")])
            for which, table in tables.items()
            if len(table)
        }

    def rows(self, which: str, places: Mapping[int, str]) -> pd.DataFrame:
        """Return the curves or the clients of jobs, given as place -> record, with the place in the column ``job``.

        Columns that none of them has are left out.
        """
        wanted = pd.DataFrame({"job": list(places), "record": list(places.values())})
        if which not in self._tables:
            return wanted[:0]
        return (
            wanted.merge(self._tables[which], on="record")
            .drop(columns="record")
            .dropna(axis=1, how="all")
        )

    def merge(self, found: Sequence[Finished]) -> Self:
        """Add finished jobs, or refresh the axes of those that are there; return the new ledger.

        A job that is there with other numbers is added beside the old one: see :meth:`finished`. FltnbError: the folder
        cannot be written, or a file of the old ledger is damaged.
        """
        lock = paths.store() / "ledger.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # one process at a time
            before = Ledger(self.notebook, self.folder)
            there = {
                line["record"]: done
                for line, done in zip(
                    before.lines, before._made(before.lines), strict=True
                )
            }
            for done in found:
                wanted = [
                    one.axes for one in found if one.key == done.key
                ]  # equal settings under several names
                alike = (name for name, held in there.items() if held.key == done.key)
                twins = [
                    name
                    for name in alike
                    if not _differing(there[name].numbers, done.numbers)
                ]
                named = [name for name in twins if there[name].axes == done.axes]
                named += [
                    name for name in twins if there[name].axes not in wanted
                ]  # its axes have new names
                if named:
                    there[named[0]].axes = dict(done.axes)
                    there[named[0]].arrays |= _for_ledger(done)
                else:
                    about = done.record["provenance"]
                    own = [
                        about.get("finished", ""),
                        about.get("hardware", ""),
                        sorted(done.axes.items()),
                    ]
                    there[
                        digest([done.key, str(own), str(sorted(done.numbers.items()))])[
                            :12
                        ]
                    ] = done
            _write(before, there)
        return Ledger(self.notebook, self.folder)


def merge_folder(folder: str | Path) -> Iterator[str]:
    """Add all ledgers of another ``results`` folder to these; yield a sentence for each.

    FltnbError: there is no ledger in the folder, or one of them cannot be read.
    """
    folder = Path(folder)
    if (folder / "ledger").is_dir():
        folder = folder / "ledger"
    files = sorted(folder.glob("[0-9]*.json"))
    if not files:
        raise FltnbError(
            f"There is no ledger in {folder}: give the results folder that the other "
            "machine wrote."
        )
    for file in files:
        other = Ledger(file.stem, folder)
        here = Ledger(file.stem)
        before = len(here.lines)
        after = here.merge(list(other.finished()))
        new = len(after.lines) - before
        yield f"{file.stem}: {new} new results, {len(after.lines)} in all."


class _Held(Finished):
    """A finished job whose curves, clients, arrays and record are read when they are asked for."""

    def __init__(
        self, key: str, kind: str, axes: dict, numbers: dict, ledger: Ledger, name: str
    ):
        self.key, self.kind, self.axes, self.numbers, self.ledger, self.name = (
            key,
            kind,
            axes,
            numbers,
            ledger,
            name,
        )

    def _part(self, which: str) -> pd.DataFrame | None:
        found = self.ledger.rows(which, {0: self.name})
        return found.drop(columns="job") if len(found) else None

    curves = functools.cached_property(lambda self: self._part("curves"))
    clients = functools.cached_property(lambda self: self._part("clients"))
    arrays = functools.cached_property(lambda self: self.ledger.arrays(self.name))
    record = functools.cached_property(lambda self: self.ledger.record(self.name))


def stacked(finished: Iterable[Finished], which: str) -> pd.DataFrame:
    """Stack the curves or the clients of jobs, with the job's place as first column ``job``."""
    held: dict[int, tuple[Ledger, dict[int, str]]] = {}
    fresh = []
    for place, done in enumerate(finished):
        if isinstance(done, _Held):  # a ledger has them in one piece
            held.setdefault(id(done.ledger), (done.ledger, {}))[1][place] = done.name
        elif getattr(done, which) is not None:
            fresh.append(getattr(done, which).assign(job=place))
    parts = [ledger.rows(which, places) for ledger, places in held.values()] + fresh
    parts = [part for part in parts if len(part)] or [
        pd.DataFrame({"job": pd.Series(dtype=np.int64)})
    ]
    whole = pd.concat(parts).sort_values("job", kind="stable", ignore_index=True)
    return whole[["job", *whole.columns.drop("job")]]


def _damaged(path: Path, error: Exception, rest: str = "") -> FltnbError:
    return FltnbError(
        f"{path} is damaged ({error!r}): restore it with `git checkout -- {path}`{rest}."
    )


def _for_ledger(done: Finished) -> dict[str, np.ndarray]:
    """Arrays that the ledger keeps: of a new training its labels and what its job asks for, but never the models."""
    if isinstance(done, _Held) or done.kind != "training":
        return done.arrays
    names = {"labels", "labels_at", *done.keep} - {"models", "rows"}
    return {
        name: value
        for name, value in done.arrays.items()
        if name.partition("/")[0] in names
    }


def _differing(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Name the first number that two results do not share, if there is one; seconds may differ."""
    for name in (name for name in one if name in other and "seconds" not in name):
        a, b = one[name], other[name]
        near = (
            isinstance(a, float)
            and isinstance(b, float)
            and np.isclose(a, b, _SAME, 0, equal_nan=True)
        )
        if a != b and not near:
            return name
    return ""


def _write(ledger: Ledger, there: dict[str, Finished]) -> None:
    columns: dict[str, str] = {}
    axes: dict[str, None] = {}
    lines = []
    for done in there.values():
        axes |= dict.fromkeys(axis for axis in done.axes if axis not in COMMON)
    for name, done in there.items():
        line = {"notebook": ledger.notebook, "kind": done.kind} | plain(done.axes)
        line |= {
            column + _FOUND * (column in axes): value
            for column, value in plain(done.numbers).items()
            if value is not None and value == value
        }
        line |= {"key": done.key, "record": name}
        for column, value in line.items():
            kind = type(value).__name__ if type(value).__name__ in _READ else "text"
            both = {
                columns.get(column, kind),
                kind,
            }  # the type that holds two columns' values
            columns[column] = (
                kind
                if len(both) == 1
                else "float"
                if both == {"int", "float"}
                else "text"
            )
        lines.append(line)
    numbers = [column for column in columns if column not in (*COMMON, *axes, *_LAST)]
    order = [name for name in (*COMMON, *axes, *numbers, *_LAST) if name in columns]
    packed: dict[str, np.ndarray] = {"records": np.array(list(there))}
    for which in TABLES:
        table = stacked(there.values(), which).drop(columns="seconds", errors="ignore")
        packed |= {
            name: _compact(column)
            for name, column in columns_of(which, table).items()
            if len(column)
        }
    for name, done in there.items():
        packed |= {
            f"arrays/{name}/{column}": value
            for column, value in _for_ledger(done).items()
        }
    book = _book(there, {name: columns[name] for name in order}, list(axes))
    text = pd.DataFrame(lines, columns=order, dtype=object).to_csv(index=False)
    paths.write_atomically(
        ledger.path("npz"), lambda file: np.savez_compressed(file, **_pack(packed))
    )
    paths.write_atomically(ledger.path("json"), lambda file: file.write(book.encode()))
    paths.write_atomically(ledger.path("csv"), lambda file: file.write(text.encode()))


def _book(there: dict[str, Finished], columns: dict[str, str], axes: list[str]) -> str:
    """Return the JSON file's text: what many records share stands once, and every record is one line."""
    parts: dict[str, int] = {}
    machines: dict[str, int] = {}
    records = {}
    words = ("data", "seconds", "finished", "formerly", "graph", "trained_as")
    for name, done in there.items():
        settings = dict(done.record["settings"])
        for word in _SHARED:
            if isinstance(settings.get(word), dict):
                settings[word] = parts.setdefault(
                    json.dumps(settings[word], sort_keys=True), len(parts)
                )
        about = dict(done.record["provenance"])
        own = {word: about.pop(word) for word in words if word in about}
        machine = machines.setdefault(json.dumps(about, sort_keys=True), len(machines))
        records[name] = {
            "id": done.record["id"],
            "settings": settings,
            "machine": machine,
            **own,
        }
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in records.items()]
    blocks = [
        f'"format": {FORMAT}',
        f'"axes": {json.dumps(axes)}',
        f'"columns": {json.dumps(columns)}',
    ]
    blocks += [
        f'"{name}": [\n' + ",\n".join(own) + "\n]"
        for name, own in (("machines", machines), ("parts", parts))
    ]
    blocks.append('"records": {\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _pack(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Put arrays of one type end to end: in an archive, each file costs as much as a hundred labels."""
    layout = [(name, value.dtype.str, value.shape) for name, value in arrays.items()]
    kinds = dict.fromkeys(kind for _, kind, _ in layout)
    ends = {
        kind: np.concatenate(
            [one.ravel() for one in arrays.values() if one.dtype.str == kind]
        )
        for kind in kinds
    }
    return {"layout": np.array(json.dumps(layout))} | ends


def _unpack(packed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Undo :func:`_pack`; files of format 1 are not packed."""
    if "layout" not in packed:
        return packed
    arrays, at = {}, dict.fromkeys(packed, 0)
    for name, kind, shape in json.loads(str(packed["layout"])):
        start, at[kind] = at[kind], at[kind] + math.prod(shape)
        arrays[name] = packed[kind][start : at[kind]].reshape(shape)
    return arrays


def _compact(values: np.ndarray) -> np.ndarray:
    """Curves and clients need no more than seven digits; whole numbers stay whole."""
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        if np.mod(finite, 1).any():
            with np.errstate(over="ignore"):
                return values.astype(np.float32)
        exact = len(finite) == len(values) and np.abs(values).max(initial=0) < 2**53
        values = values.astype(np.int64) if exact else values
    return (
        values.astype(np.int32)
        if values.dtype.kind == "i" and np.abs(values).max(initial=0) < 2**31
        else values
    )
