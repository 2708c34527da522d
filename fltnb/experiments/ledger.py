"""The ledger: results of one notebook from all machines and days.

Three files per notebook are committed. ``results/ledger/<notebook>.csv`` has one line
per finished experiment with its axes and final numbers, for people and for git.
``<notebook>.json`` has each experiment's settings and provenance, ``<notebook>.npz``
curves, clients and stored arrays. Writing merges by key: results of different days and
machines add up, and none is lost. The CSV is written last and only its lines count, so
a writer that is killed leaves the old ledger or the new one.
"""

import csv
import fcntl
import functools
import json
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from .. import paths
from ..errors import FltnbError
from .book import FORMAT, FOUND, book_text, record_of, table_text, types_of_both
from .finished import (
    TABLES,
    Arrays,
    Finished,
    Records,
    Values,
    below,
    columns_of,
    read_arrays,
    table_of,
)
from .grid import COMMON
from .key import digest
from .pack import compact, pack, unpack

# If numbers of one key differ by more (relative), they are from two computations.
_SAME = 1e-9
# Number of attempts, and seconds between them, to read a ledger that is being written.
READINGS = 20
PAUSE = 0.5


@dataclass(frozen=True)
class Ledger:
    """The files of one notebook; they are only read when needed.

    Attributes
    ----------
    notebook : str
        Name of the notebook, without its ending.
    folder : Path or None
        Folder of the files; None for the project's own.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.experiments.Ledger("01_scenario1").notebook
    '01_scenario1'
    """

    notebook: str
    folder: Path | None = None

    def path(self, ending: str) -> Path:
        """Return one of the three files: ``csv``, ``json`` or ``npz``."""
        folder = self.folder
        if folder is None:
            folder = paths.ledgers()
        return folder / f"{self.notebook}.{ending}"

    @property
    def exists(self) -> bool:
        """Return whether anything is stored."""
        return self.path("csv").exists()

    @functools.cached_property
    def lines(self) -> list[Values]:
        """Return lines of the CSV with typed values; missing ones are left out.

        Raises FltnbError if the file is damaged.
        """
        if not self.exists:
            return []
        types = self._book["columns"]
        path = self.path("csv")
        try:
            with path.open(encoding="utf-8", newline="") as file:
                names, *texts = csv.reader(file)
            lacking = {"kind", "key", "record"} - set(names)
            if lacking:
                raise ValueError(f"it has no column {min(lacking)}")
            return [_typed_line(names, text, types) for text in texts]
        # Such as the marks of a merge conflict in git.
        except (ValueError, KeyError, csv.Error) as error:
            raise _damaged(path, error) from error

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the names of this notebook's own axes, in order."""
        return tuple(self._book["axes"]) if self.exists else ()

    @functools.cached_property
    def _book(self) -> Values:
        """Return the JSON, see :func:`fltnb.experiments.book.book_text`."""
        path = self.path("json")
        try:
            text = path.read_text(encoding="utf-8")
            book = json.loads(text)
            newer = book["format"] > FORMAT
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error
        if newer:
            raise FltnbError(
                f"{path} has format {book['format']}, of a newer fltnb than this one: "
                "update the package."
            )
        return book

    def record(self, name: str) -> Values:
        """Return ``id``, ``settings`` and ``provenance`` of a record, given its name.

        The name is that in the column ``record`` of the CSV.
        """
        return record_of(self._book, name)

    @functools.cached_property
    def _arrays(self) -> Arrays:
        """Return all arrays of the archive: see :func:`_arrays_of`."""
        path = self.path("npz")
        try:
            content = path.read_bytes()
            return unpack(read_arrays(content))
        except Exception as error:
            rest = f"; the numbers in {self.path('csv').name} are not affected"
            raise _damaged(path, error, rest) from error

    @functools.cached_property
    def _kept(self) -> dict[str, Arrays]:
        """Return stored arrays by record and name."""
        kept: dict[str, Arrays] = defaultdict(dict)
        for name, value in below("arrays", self._arrays).items():
            record, _, own = name.partition("/")
            kept[record][own] = value
        return kept

    def arrays(self, record: str) -> Arrays:
        """Return the stored arrays of one experiment by name.

        ``record``: its name in the column ``record`` of the CSV. Raises FltnbError if
        the archive is damaged.
        """
        kept = self._kept.get(record, {})
        return dict(kept)

    def experiments(self) -> dict[str, "_Held"]:
        """Return the result of every line by its record, whether disputed or not."""
        return {line["record"]: self._experiment(line) for line in self.lines}

    def _experiment(self, line: Values) -> "_Held":
        """Separate the axes in a line from the numbers."""
        own = self._book["axes"]
        axes = {name: line[name] for name in (*COMMON[2:], *own) if name in line}

        no_numbers = (*COMMON, *own, "key", "record")
        numbers = {"stopped": ""}
        for name, value in line.items():
            if name not in no_numbers:
                numbers[name.removesuffix(FOUND)] = value

        return _Held(
            key=line["key"],
            kind=line["kind"],
            axes=axes,
            numbers=numbers,
            ledger=self,
            name=line["record"],
        )

    def finished(self, keys: Collection[str] | None = None) -> Iterator["_Held"]:
        """Yield the experiments with all their stored data.

        Tables, arrays and records are read when needed.

        Parameters
        ----------
        keys : collection of str, optional
            Only the experiments with these keys.

        Warns
        -----
        UserWarning
            A key has different numbers: its experiments are left out.
        """
        found = list(self.experiments().values())
        disputed = _disputed(found)
        for key, how in disputed.items():
            warnings.warn(
                f"{self.path('csv')} has different results for key {key} ({how}): "
                "none of them is used until you delete all lines but the right one.",
                stacklevel=3,
            )
        for done in found:
            if done.key in disputed:
                continue
            if keys is None or done.key in keys:
                yield done

    def read_all(self) -> list[Finished]:
        """Return the experiments of :meth:`finished`, everything read now."""
        found = list(self.finished())
        for done in found:
            self.record(done.name)
            self.arrays(done.name)
        if found:
            self._tables.keys()
        return [*found]

    @functools.cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        """Return curves and clients of all experiments, named by ``record``."""
        names = self._arrays["records"]
        tables = {}
        for which in TABLES:
            table = table_of(self._arrays, which)
            if table.empty:
                continue
            places = table.pop("job")
            tables[which] = table.assign(record=names[places])
        return tables

    def rows(self, which: str, places: Mapping[int, str]) -> pd.DataFrame:
        """Return the curves or the clients of some experiments.

        Parameters
        ----------
        which : str
            "curves" or "clients".
        places : dict
            Position of an experiment among the requested ones -> its record.

        Returns
        -------
        DataFrame
            The column ``job`` has the position. Columns that no experiment has are
            left out.
        """
        wanted = pd.DataFrame({"job": list(places), "record": list(places.values())})
        if which not in self._tables:
            return wanted[:0]
        found = wanted.merge(self._tables[which], on="record")
        found = found.drop(columns="record")
        return found.dropna(axis=1, how="all")

    def merge(self, found: Sequence[Finished]) -> Self:
        """Add finished experiments, or update the axes of existing ones.

        One process writes at a time; others wait.

        Parameters
        ----------
        found : sequence of Finished
            If an experiment exists with other numbers, the new one is added beside it,
            and neither is used: see :meth:`finished`.

        Returns
        -------
        Ledger
            The new one; this one keeps its earlier contents.

        Raises
        ------
        FltnbError
            The folder cannot be written, or a file of the old ledger is damaged.
        """
        if not found:
            return type(self)(self.notebook, self.folder)
        lock = paths.store() / "ledger.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # one process at a time
            before = Ledger(self.notebook, self.folder)
            records: Records = {**before.experiments()}
            _add(records, found)
            _write(before, records)
        return type(self)(self.notebook, self.folder)


def merge_folder(folder: str | Path) -> Iterator[str]:
    """Add all ledgers of another ``results`` folder to those here.

    Parameters
    ----------
    folder : str or Path
        A folder ``results`` of another machine, or the ``ledger`` inside it.

    Yields
    ------
    str
        For each notebook a sentence with the number of new results.

    Raises
    ------
    FltnbError
        There is no ledger in the folder, one of them cannot be read, or this is no
        clone of the repository.
    """
    paths.notebooks()  # elsewhere nothing would read what is merged
    folder = Path(folder)
    inner = folder / "ledger"
    if inner.is_dir():
        folder = inner
    files = sorted(folder.glob("[0-9]*.json"))
    if not files:
        raise FltnbError(
            f"There is no ledger in {folder}: give the results folder that the other "
            "machine wrote."
        )

    for file in files:
        found = _finished_elsewhere(file.stem, folder)
        here = Ledger(file.stem)
        before = len(here.lines)
        all_of_them = len(here.merge(found).lines)
        new = all_of_them - before
        yield f"{file.stem}: {new} new results, {all_of_them} in all."


def _finished_elsewhere(notebook: str, folder: Path) -> list[Finished]:
    """Return all experiments of a ledger that another process may be writing.

    Its three files must belong together. Raises FltnbError if they change all the time,
    or one of them is damaged.
    """
    for _ in range(READINGS):
        other = Ledger(notebook, folder)
        before = _stamps(other)
        try:
            found = other.read_all()
        except (FltnbError, KeyError, IndexError) as error:
            if _stamps(other) == before:
                if isinstance(error, FltnbError):
                    raise
                raise _damaged(other.path("json"), error) from error
        else:
            if _stamps(other) == before:
                return found
        time.sleep(PAUSE)
    raise FltnbError(
        f"{other.path('csv')} is being written all the time: merge again when the "
        "other process is done."
    )


def _stamps(ledger: Ledger) -> list[int]:
    """Return when each of the three files was written, 0 if it does not exist."""
    files = [ledger.path(ending) for ending in ("csv", "json", "npz")]
    return [file.stat().st_mtime_ns if file.exists() else 0 for file in files]


class _Held(Finished):
    """An experiment of a ledger, which reads tables, arrays and record when needed.

    Attributes
    ----------
    ledger : Ledger
    name : str
        Name of its record in the ledger.
    """

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
        """Return a table of the experiment, or None if it has none."""
        found = self.ledger.rows(which, {0: self.name})
        if found.empty:
            return None
        return found.drop(columns="job")

    @functools.cached_property
    def curves(self) -> pd.DataFrame | None:
        return self._table("curves")

    @functools.cached_property
    def clients(self) -> pd.DataFrame | None:
        return self._table("clients")

    @functools.cached_property
    def arrays(self) -> Arrays:  # type: ignore[override]  # read when asked for
        return self.ledger.arrays(self.name)

    @functools.cached_property
    def record(self) -> Values:  # type: ignore[override]  # read when asked for
        return self.ledger.record(self.name)


def stacked(finished: Iterable[Finished], which: str) -> pd.DataFrame:
    """Stack curves or clients of experiments.

    A ledger has the tables of all its experiments in one piece, so experiments of one
    ledger are read together.

    Parameters
    ----------
    finished : iterable of Finished
    which : str
        "curves" or "clients".

    Returns
    -------
    DataFrame
        The first column, ``job``, is the experiment's position in ``finished``. Rows
        of an experiment keep their order.
    """
    held: dict[int, tuple[Ledger, dict[int, str]]] = {}
    fresh = []
    for place, done in enumerate(finished):
        if isinstance(done, _Held):
            ledger = done.ledger
            _, places = held.setdefault(id(ledger), (ledger, {}))
            places[place] = done.name
            continue
        table = getattr(done, which)
        if table is not None:
            fresh.append(table.assign(job=place))

    read = [ledger.rows(which, places) for ledger, places in held.values()]
    parts = [part for part in read + fresh if len(part)]
    if not parts:
        nothing = pd.Series(dtype=np.int64)
        return pd.DataFrame({"job": nothing})
    whole = pd.concat(parts)
    whole = whole.sort_values("job", kind="stable", ignore_index=True)
    others = whole.columns.drop("job")
    return whole[["job", *others]]


def _damaged(path: Path, error: Exception, rest: str = "") -> FltnbError:
    """Return the error for a file that cannot be read; ``rest`` ends its sentence."""
    mend = f"restore it with `git checkout -- {path}`{rest}."
    return FltnbError(f"{path} is damaged ({error!r}): {mend}")


def _typed_line(names: list[str], texts: list[str], types: Mapping[str, str]) -> Values:
    """Return a line of the CSV by column, without what is missing.

    ValueError or KeyError: the line does not fit the columns or their types.
    """
    line = {}
    for name, text in zip(names, texts, strict=True):
        if text != "":
            line[name] = _typed(text, types[name])
    return line


def _typed(text: str, kind: str) -> Any:
    """Return a value of the CSV; ``kind`` is one of ``book.TYPES``."""
    if kind == "bool":
        return text == "True"
    read = {"int": int, "float": float, "text": str}[kind]
    return read(text)


def _disputed(finished: Iterable[Finished]) -> dict[str, str]:
    """Return the keys that have different numbers, and the differences.

    The words are for people, such as "accuracy 50.0 and 51.0".
    """
    first: dict[str, Values] = {}
    disputed: dict[str, str] = {}
    for done in finished:
        # Texts that are not in the CSV are ignored.
        numbers = {name: value for name, value in done.numbers.items() if value != ""}

        one = first.setdefault(done.key, numbers)
        if one is numbers:
            continue
        name = _differing(one, numbers)
        if name:
            how = f"{name} {one[name]} and {numbers[name]}"
            disputed.setdefault(done.key, how)
    return disputed


def _differing(one: Values, other: Values) -> str:
    """Return the name of the first number that differs in two results, or "".

    Seconds may differ.
    """
    for name, value in one.items():
        if name not in other or "seconds" in name:
            continue
        if not _equal(value, other[name]):
            return name
    return ""


def _equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal, floats up to rounding; NaN equals NaN."""
    if isinstance(a, float) and isinstance(b, float):
        both_missing = math.isnan(a) and math.isnan(b)
        return both_missing or math.isclose(a, b, rel_tol=_SAME)
    return a == b


def _add(records: Records, found: Sequence[Finished]) -> None:
    """Add finished experiments to those of a ledger.

    If an experiment with the same key and numbers exists, it gets the axes and arrays
    of the new one.
    """
    for done in found:
        name = _record_of_twin(records, done, found)
        if name is None:
            new = _new_record(done)
            records[new] = done
            continue
        twin = records[name]
        twin.axes = dict(done.axes)
        twin.arrays.update(_for_ledger(done))


def _record_of_twin(
    records: Records, done: Finished, found: Sequence[Finished]
) -> str | None:
    """Return the record that an experiment with the same key and numbers replaces.

    The first choice is one with the same axes; then one whose axes are not requested
    now, because its axes have new names.

    Parameters
    ----------
    records : dict
        Those of the ledger, by record.
    done : Finished
        The experiment that is added.
    found : sequence of Finished
        All experiments that are added.
    """
    # Equal settings may be requested under several names.
    wanted = [one.axes for one in found if one.key == done.key]
    renamed = None
    for name, held in records.items():
        if held.key != done.key or _differing(held.numbers, done.numbers):
            continue
        if held.axes == done.axes:
            return name
        if renamed is None and held.axes not in wanted:
            renamed = name
    return renamed


def _new_record(done: Finished) -> str:
    """Name a record by 12 hexadecimal digits.

    Equal experiments of different times, machines or axes are different records.
    """
    about = done.record["provenance"]
    finished = about.get("finished", "")
    hardware = about.get("hardware", "")
    own = [finished, hardware, sorted(done.axes.items())]
    numbers = sorted(done.numbers.items())
    return digest([done.key, str(own), str(numbers)])[:12]


def _for_ledger(done: Finished) -> Arrays:
    """Return the arrays that the ledger keeps.

    For a new training: its labels and the requested arrays, but never the models.
    """
    if isinstance(done, _Held) or done.kind != "training":
        return done.arrays
    wanted = {"labels", "labels_at", *done.keep} - {"models", "rows"}
    kept = {}
    for name, value in done.arrays.items():
        start = name.partition("/")[0]
        if start in wanted:
            kept[name] = value
    return kept


def _arrays_of(records: Records) -> Arrays:
    """Return the contents of the archive, for experiments given by record.

    ``records`` are the names, ``curves/<column>`` and ``clients/<column>`` the tables
    of all experiments, and ``arrays/<record>/<name>`` their stored arrays.
    """
    arrays = {"records": np.array(list(records))}
    for which in TABLES:
        table = stacked(records.values(), which)
        table = table.drop(columns="seconds", errors="ignore")
        for name, column in columns_of(which, table).items():
            if len(column):
                arrays[name] = compact(column)

    for record, done in records.items():
        for name, value in _for_ledger(done).items():
            arrays[f"arrays/{record}/{name}"] = value
    return arrays


def _write(ledger: Ledger, records: Records) -> None:
    """Write the three files, the CSV last.

    All texts are made before the first file is written. Where axes have other names or
    types than before, the JSON is first one by which the old CSV can be read as well.
    """
    packed: Values = dict(pack(_arrays_of(records)))
    table, types = table_text(ledger.notebook, records)
    book = book_text(records, types)
    before = ledger._book["columns"] if ledger.exists else {}
    of_both = book_text(records, types_of_both(before, types), ledger.axes)

    archive = ledger.path("npz")
    paths.write_atomically(archive, lambda file: np.savez_compressed(file, **packed))
    paths.write_text(ledger.path("json"), of_both)
    paths.write_text(ledger.path("csv"), table)
    if of_both != book:
        paths.write_text(ledger.path("json"), book)
