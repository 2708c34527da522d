"""The ledger: what all machines and days have computed for one notebook.

Three files of a notebook are committed. ``results/ledger/<notebook>.csv`` has one line
per finished job, its axes and final numbers, for people and for git.
``<notebook>.json`` has each job's settings and where its numbers come from,
``<notebook>.npz`` curves, clients and kept arrays. Writing merges by key: results of
different days and machines add up, and none is lost. The CSV is written last and says
what counts, so a writer that is killed leaves the old ledger or the new one.
"""

import csv
import fcntl
import functools
import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from .. import paths
from ..errors import FltnbError
from .book import FORMAT, FOUND, book_text, record_of, table_text
from .finished import TABLES, Finished, below, columns_of, read_arrays, table_of
from .grid import COMMON
from .key import digest
from .pack import compact, pack, unpack

# Numbers of one key that differ by more (relative) came from two computations.
_SAME = 1e-9


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
        types = self._book["columns"]
        lines = []
        try:
            with self.path("csv").open(encoding="utf-8", newline="") as file:
                names, *texts = csv.reader(file)
            for text in texts:
                line = {}
                for name, value in zip(names, text, strict=True):
                    if value != "":
                        line[name] = _typed(value, types[name])
                lines.append(line)
        # Such as what git puts where two branches differ.
        except (ValueError, KeyError) as error:
            raise _damaged(self.path("csv"), error) from error
        return lines

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
                f"{path} has format {book['format']}, of a newer fltnb than this one: "
                "update the package."
            )
        return book

    def record(self, name: str) -> dict[str, Any]:
        """Return settings and provenance of a record."""
        return record_of(self._book, name)

    @functools.cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        path = self.path("npz")
        try:
            return unpack(read_arrays(path.read_bytes()))
        except Exception as error:
            rest = f"; the numbers in {self.path('csv').name} are not affected"
            raise _damaged(path, error, rest) from error

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

    def _job(self, line: dict[str, Any]) -> "_Held":
        """Return the job of a line."""
        axes = {}
        for name in (*COMMON[2:], *self.axes):
            if name in line:
                axes[name] = line[name]
        numbers = {"stopped": ""}
        for name, value in line.items():
            if name not in (*COMMON, *self.axes, "key", "record"):
                numbers[name.removesuffix(FOUND)] = value
        return _Held(line["key"], line["kind"], axes, numbers, self, line["record"])

    def finished(self, keys: Collection[str] | None = None) -> Iterator[Finished]:
        """Yield the jobs, or those with the given keys, with all that is stored.

        Those whose key stands here with different numbers are left out, and a warning
        names them.
        """
        jobs = [self._job(line) for line in self.lines]
        disputed = _disputed(jobs)
        for key, how in disputed.items():
            warnings.warn(
                f"{self.path('csv')} has different results for key {key} ({how}): "
                "none of them is used until you delete all lines but the right one.",
                stacklevel=3,
            )
        for done in jobs:
            if done.key not in disputed and (keys is None or done.key in keys):
                yield done

    @functools.cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        names = self._arrays["records"]
        tables = {}
        for which in TABLES:
            table = table_of(self._arrays, which)
            if len(table):
                places = table.pop("job")
                tables[which] = table.assign(record=names[places])
        return tables

    def rows(self, which: str, places: Mapping[int, str]) -> pd.DataFrame:
        """Return the curves or the clients of jobs, given as place -> record.

        The place is the column ``job``. Columns that none of them has are left out.
        """
        wanted = pd.DataFrame({"job": list(places), "record": list(places.values())})
        if which not in self._tables:
            return wanted[:0]
        found = wanted.merge(self._tables[which], on="record")
        return found.drop(columns="record").dropna(axis=1, how="all")

    def merge(self, found: Sequence[Finished]) -> Self:
        """Add finished jobs, or refresh the axes of those that are there.

        Returns the new ledger. A job that is there with other numbers is added beside
        the old one: see :meth:`finished`. FltnbError: the folder cannot be written, or
        a file of the old ledger is damaged.
        """
        lock = paths.store() / "ledger.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # one process at a time
            before = Ledger(self.notebook, self.folder)
            jobs = {line["record"]: before._job(line) for line in before.lines}
            _add(jobs, found)
            _write(before, jobs)
        return Ledger(self.notebook, self.folder)


def merge_folder(folder: str | Path) -> Iterator[str]:
    """Add all ledgers of another ``results`` folder to these.

    Yields a sentence for each. FltnbError: there is no ledger in the folder, or one of
    them cannot be read.
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
    """A job of a ledger, which reads tables, arrays and record when asked for them."""

    def __init__(
        self, key: str, kind: str, axes: dict, numbers: dict, ledger: Ledger, name: str
    ):
        self.key = key
        self.kind = kind
        self.axes = axes
        self.numbers = numbers
        self.ledger = ledger
        self.name = name

    def _table(self, which: str) -> pd.DataFrame | None:
        found = self.ledger.rows(which, {0: self.name})
        return found.drop(columns="job") if len(found) else None

    @functools.cached_property
    def curves(self) -> pd.DataFrame | None:
        return self._table("curves")

    @functools.cached_property
    def clients(self) -> pd.DataFrame | None:
        return self._table("clients")

    @functools.cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        return self.ledger.arrays(self.name)

    @functools.cached_property
    def record(self) -> dict[str, Any]:
        return self.ledger.record(self.name)


def stacked(finished: Iterable[Finished], which: str) -> pd.DataFrame:
    """Stack curves or clients of jobs, with the job's place as first column ``job``."""
    held: dict[int, dict[int, str]] = {}
    ledgers: dict[int, Ledger] = {}
    fresh = []
    for place, done in enumerate(finished):
        if isinstance(done, _Held):
            ledgers[id(done.ledger)] = done.ledger
            held.setdefault(id(done.ledger), {})[place] = done.name
            continue
        table = getattr(done, which)
        if table is not None:
            fresh.append(table.assign(job=place))

    # A ledger has the tables of all its jobs in one piece.
    read = [ledgers[name].rows(which, places) for name, places in held.items()]
    parts = [part for part in (*read, *fresh) if len(part)]
    if not parts:
        return pd.DataFrame({"job": pd.Series(dtype=np.int64)})
    whole = pd.concat(parts).sort_values("job", kind="stable", ignore_index=True)
    return whole[["job", *whole.columns.drop("job")]]


def _damaged(path: Path, error: Exception, rest: str = "") -> FltnbError:
    mend = f"restore it with `git checkout -- {path}`{rest}."
    return FltnbError(f"{path} is damaged ({error!r}): {mend}")


def _typed(text: str, kind: str) -> Any:
    """Return a value of the CSV."""
    if kind == "bool":
        return text == "True"
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    return text


def _disputed(jobs: Iterable[Finished]) -> dict[str, str]:
    """Return the keys that have different numbers, and what differs."""
    first: dict[str, dict[str, Any]] = {}
    disputed: dict[str, str] = {}
    for done in jobs:
        # A text that is not in the CSV says nothing.
        numbers = {name: value for name, value in done.numbers.items() if value != ""}
        one = first.setdefault(done.key, numbers)
        name = _differing(one, numbers)
        if name:
            how = f"{name} {one[name]} and {numbers[name]}"
            disputed.setdefault(done.key, how)
    return disputed


def _differing(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Name the first number that two results do not share; seconds may differ."""
    for name, a in one.items():
        if name in other and "seconds" not in name and not _equal(a, other[name]):
            return name
    return ""


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, _SAME, 0, equal_nan=True))
    return a == b


def _add(jobs: dict[str, Finished], found: Sequence[Finished]) -> None:
    """Put finished jobs to those of a ledger, given by record."""
    for done in found:
        name = _record_of_twin(jobs, done, found)
        if name is None:
            jobs[_new_record(done)] = done
        else:
            jobs[name].axes = dict(done.axes)
            jobs[name].arrays |= _for_ledger(done)


def _record_of_twin(
    jobs: dict[str, Finished], done: Finished, found: Sequence[Finished]
) -> str | None:
    """Return the record that a job with the same key and numbers takes the place of.

    First choice is one with the same axes; then one whose axes nobody asks for now,
    since its axes have new names.
    """
    # Equal settings may be asked for under several names.
    wanted = [one.axes for one in found if one.key == done.key]
    renamed = None
    for name, held in jobs.items():
        if held.key != done.key or _differing(held.numbers, done.numbers):
            continue
        if held.axes == done.axes:
            return name
        if renamed is None and held.axes not in wanted:
            renamed = name
    return renamed


def _new_record(done: Finished) -> str:
    about = done.record["provenance"]
    axes = sorted(done.axes.items())
    own = [about.get("finished", ""), about.get("hardware", ""), axes]
    numbers = sorted(done.numbers.items())
    return digest([done.key, str(own), str(numbers)])[:12]


def _for_ledger(done: Finished) -> dict[str, np.ndarray]:
    """Return the arrays that the ledger keeps.

    Of a new training: its labels and what its job asks for, but never the models.
    """
    if isinstance(done, _Held) or done.kind != "training":
        return done.arrays
    names = {"labels", "labels_at", *done.keep} - {"models", "rows"}
    kept = {}
    for name, value in done.arrays.items():
        if name.partition("/")[0] in names:
            kept[name] = value
    return kept


def _write(ledger: Ledger, jobs: dict[str, Finished]) -> None:
    """Write the three files, the CSV last; jobs are given by record."""
    arrays = {"records": np.array(list(jobs))}
    for which in TABLES:
        table = stacked(jobs.values(), which).drop(columns="seconds", errors="ignore")
        for name, column in columns_of(which, table).items():
            if len(column):
                arrays[name] = compact(column)
    for record, done in jobs.items():
        for name, value in _for_ledger(done).items():
            arrays[f"arrays/{record}/{name}"] = value
    packed = pack(arrays)

    text, types = table_text(ledger.notebook, jobs)
    book = book_text(jobs, types)
    paths.write_atomically(
        ledger.path("npz"), lambda file: np.savez_compressed(file, **packed)
    )
    paths.write_atomically(ledger.path("json"), lambda file: file.write(book.encode()))
    paths.write_atomically(ledger.path("csv"), lambda file: file.write(text.encode()))
