"""The files of a table: ``runs.csv``, one line per run, and ``machines.json``."""

import fcntl
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from .. import paths
from ..provenance import environment
from ..settings import plain
from . import statistics, tracks
from .entry import PLAYERS
from .play import PLAYED, Task

NAMED = ("track", "family", "level", "method", "seed")
"""What names a run."""
WITH_OPTIONS = (*NAMED, "options")
"""What names a run whose options are not the defaults; they are in JSON."""
KNOWN = (*PLAYED, "failed", "version", "machine")
"""What is known of a run: ``version`` is a hash of what its numbers depend on, besides
cell and seed; ``machine`` the number of a line of ``machines.json``."""


@dataclass
class Lines:
    """Stored runs of a folder.

    Attributes
    ----------
    folder : Path
    named : tuple of str
        Columns that name a run.
    runs : dict
        Name -> line, in the values of JSON.
    machines : list of dict
        Commit, hardware and versions that computed the runs.
    """

    folder: Path
    named: tuple[str, ...]
    runs: dict[tuple, dict[str, Any]]
    machines: list[dict[str, Any]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the CSV."""
        return (*self.named, *KNOWN)

    def add(self, runs: Sequence[dict[str, Any]], versions: Mapping[str, str]) -> None:
        """Add runs that were computed here, and write both files.

        They join what other processes have written since these lines were read.

        Parameters
        ----------
        runs : sequence of dict
            As :func:`fltnb.arena.play.played` returns them.
        versions : mapping
            Method -> its version, as for :func:`read`.
        """
        if not runs:
            return
        lock = paths.store() / "arena.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # one process at a time
            there = read(self.folder, versions, self.named)
            self.runs, self.machines = there.runs, there.machines
            here = environment()
            if here not in self.machines:
                self.machines.append(here)
            for run in runs:
                line = {column: run.get(column) for column in self.columns}
                line["version"] = versions[run["method"]]
                line["machine"] = self.machines.index(here)
                name = tuple(line[column] for column in self.named)
                self.runs[name] = line
            self._write()

    def _write(self) -> None:
        """Write the files, in the order of tracks and methods.

        So they do not depend on the order of computation, and git shows as changed only
        the lines that are. Machines are written first, so that every run has one even
        if this is interrupted.
        """
        machines = json.dumps(self.machines, indent=1) + "\n"
        paths.write_text(self.folder / "machines.json", machines)
        table = pd.DataFrame(list(self.runs.values()), columns=list(self.columns))
        places = {
            "track": list(tracks.TRACKS),
            "family": list(tracks.FAMILIES),
            "level": list(tracks.LEVELS),
            "method": list(PLAYERS),
        }
        for column, order in places.items():
            # methods of another version of the package stay, at the end
            others = sorted(set(table[column]) - set(order))
            table[column] = pd.Categorical(table[column], [*order, *others])
        table = table.sort_values(list(self.named), kind="stable")
        whole = {"n_clusters": "Int64", "bytes": "Int64", "machine": "Int64"}
        text = table.astype(whole).to_csv(index=False, lineterminator="\n")
        paths.write_text(self.folder / "runs.csv", text)


def text_of(options: dict[str, Any]) -> str:
    """Return options as a file has them."""
    return json.dumps(plain(options), sort_keys=True)


def name_of(task: Task, method: str) -> tuple:
    """Return the name of a run in a file with options."""
    cell = task.cell
    options = text_of(task.options)
    return (cell.track, cell.family, cell.level, method, task.seed, options)


def line_of(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run with its options as a file has them."""
    return run | {"options": text_of(run["options"])}


def behind(machines: list[dict[str, Any]], line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of another table, whose machines are listed behind these."""
    return line | {"machine": len(machines) + line["machine"]}


def read(
    folder: Path, versions: Mapping[str, str], named: tuple[str, ...] = NAMED
) -> Lines:
    """Return the stored runs of a folder.

    A line of another version of its method or of the engine is no result of today's.

    Parameters
    ----------
    folder : Path
    versions : mapping
        Method -> its version today; lines of other methods are kept as they are.
    named : tuple of str
        Columns that name a run.
    """
    lines = Lines(folder, named, {}, [])
    file = folder / "runs.csv"
    if not file.is_file():
        return lines
    text = {"failed": str, "version": str, "options": str}
    table = pd.read_csv(file, dtype=text)
    table["failed"] = table["failed"].fillna("")
    for line in statistics.records(table):
        written = line["version"]
        if versions.get(line["method"], written) == written:
            name = tuple(line[column] for column in named)
            lines.runs[name] = line
    machines = (folder / "machines.json").read_text(encoding="utf-8")
    lines.machines = json.loads(machines)
    return lines
