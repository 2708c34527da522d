"""The table of this package's methods, each tuned by the same number of trials.

On every cell a method with a space of options runs five trials, with a seed of their
own, and is tested on validation samples. The best trial is then run with the seeds of
the table. Methods without a space keep their runs of the table that is not tuned. The
runs are in ``results/arena/tuned``; lines with the seed
:data:`fltnb.arena.tuning.SEED` are trials, with accuracies on validation samples.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import FltnbError
from ..experiments.key import digest
from ..settings import plain
from . import files, statistics, table, tracks, tuning
from .entry import Entry
from .files import Lines
from .play import Task, check_limits, play, trial_tasks
from .table import Table, Tell
from .tracks import Cell

SEEDS = table.SEEDS[:3]
"""Three of the table's seeds: tuning adds five runs to each method and cell."""
ORDER = ("middle", "easy", "hard")
"""Levels in the order of computation: methods differ most at the middle one."""


def everybody_tuned(
    methods: Sequence[str] | None = None,
    played: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    *,
    demo: bool = False,
    compute: bool = False,
    jobs: int = 1,
    budget: float | None = None,
    tell: Tell = print,
) -> Table:
    """Return the runs of this package's methods with tuned options.

    They are computed cell by cell: the trials of all methods, then the runs with each
    method's best trial. Only cells with all runs are returned, so that a table that is
    still being computed favours no method. The column ``options`` has a run's options,
    in JSON; None: the method has no space, and the run is that of
    :func:`fltnb.arena.everybody`.

    Parameters
    ----------
    methods, played, seeds, demo, compute, jobs, budget, tell
        As for :func:`fltnb.arena.everybody`.

    Raises
    ------
    FltnbError
        There is no such method or track; or no cell has all its runs.

    Examples
    --------
    >>> from fltnb import arena
    >>> table = arena.everybody_tuned(["FedAvg"], ["told-K"], seeds=[0])
    >>> table.runs["method"].unique().tolist()  # no option, so these are its usual runs
    ['FedAvg']
    """
    who = table.players(methods)
    seeds = list(dict.fromkeys(seeds))
    cells = []
    for track in table.tracks_of(played):
        cells += tracks.cells(tuning.SEED, track, demo)
    today = {name: _version(one) for name, one in who.items()}
    usual = {name: table.version(one) for name, one in who.items()}
    tuned = _Tuned(
        who,
        seeds,
        demo,
        files.read(table.folder(demo) / "tuned", today, files.WITH_OPTIONS),
        files.read(table.folder(demo), usual),
    )
    if compute:
        check_limits(budget, jobs)
        _compute(tuned, cells, today, jobs, budget, tell)

    n_asked = 0
    there = []
    for cell in cells:
        found = tuned.found(cell)
        n_asked += len(found)
        known = [line for line in found if line is not None]
        if len(known) == len(found):
            there += known
    if not there:
        raise FltnbError(
            "No cell has all its runs: compute the tuned ones with compute=True, and "
            "those of methods without a space with everybody(compute=True)."
        )
    asked = dict.fromkeys(seeds, n_asked // len(seeds))
    machines = [*tuned.lines.machines, *tuned.usual.machines]
    return Table(statistics.table_of(there), asked, machines)


def _compute(
    tuned: "_Tuned",
    cells: Sequence[Cell],
    today: Mapping[str, str],
    jobs: int,
    budget: float | None,
    tell: Tell,
) -> None:
    """Compute what is missing, cell by cell, until the budget ends."""
    ends = None if budget is None else time.monotonic() + budget
    once = functools.cache(tell)  # the same families are left out at every cell
    for cell in sorted(cells, key=lambda cell: ORDER.index(cell.level)):
        for missing in (tuned.missing_trials, tuned.missing_runs):
            tasks = table.playable(missing(cell), once)
            left = None if ends is None else max(ends - time.monotonic(), 0.0)
            runs = play(tasks, left, jobs, tell)
            tuned.lines.add([files.line_of(run) for run in runs], today)
            if len(runs) < len(tasks):
                return


def _version(who: Entry) -> str:
    """Return what a tuned run depends on besides its name: also the space."""
    return digest({"run": table.version(who), "space": plain(who.space)})[:12]


@dataclass
class _Tuned:
    """Stored runs, and what is asked for of a cell, which is drawn by the trials' seed.

    ``lines``: trials and tuned runs; ``usual``: the runs that are not tuned.
    """

    who: dict[str, Entry]
    seeds: Sequence[int]
    demo: bool
    lines: Lines
    usual: Lines

    def missing_trials(self, cell: Cell) -> list[Task]:
        """Return the trials that are not stored; equal ones of a method once."""
        missing = {}
        for one in self._players(cell):
            for task in trial_tasks(one, cell):
                name = files.name_of(task, one.name)
                if name not in self.lines.runs:
                    missing[name] = task
        return list(missing.values())

    def missing_runs(self, cell: Cell) -> list[Task]:
        """Return the runs with the best trials that are not stored."""
        missing = []
        for one in self._players(cell):
            for task in self._chosen(one, cell):
                if files.name_of(task, one.name) not in self.lines.runs:
                    missing.append(task)
        return missing

    def found(self, cell: Cell) -> list[dict[str, Any] | None]:
        """Return the line of each method and seed; None: it is not there yet."""
        found: list[dict[str, Any] | None] = []
        for one in self._players(cell):
            if not one.space:
                found += [self._usual(one, cell, seed) for seed in self.seeds]
                continue
            tasks = self._chosen(one, cell)
            names = [files.name_of(task, one.name) for task in tasks]
            lines = [self.lines.runs.get(name) for name in names]
            found += lines or [None] * len(self.seeds)
        return found

    def _players(self, cell: Cell) -> list[Entry]:
        """Return the methods that play on a cell."""
        return [one for one in self.who.values() if one.plays(cell.known)]

    def _chosen(self, one: Entry, cell: Cell) -> list[Task]:
        """Return a method's runs with its best trial; none while a trial is missing."""
        names = [files.name_of(task, one.name) for task in trial_tasks(one, cell)]
        if not names or any(name not in self.lines.runs for name in names):
            return []
        scores = [self.lines.runs[name]["accuracy"] for name in names]
        options = tuning.best(one.space, scores)
        level = tracks.LEVELS.index(cell.level)
        tasks = []
        for seed in self.seeds:
            own = tracks.cell(cell.track, cell.family, level, seed, self.demo)
            tasks.append(Task(one.where, own, seed, options))
        return tasks

    def _usual(self, one: Entry, cell: Cell, seed: int) -> dict[str, Any] | None:
        """Return a run of a method without a space, with its place among machines."""
        name = (cell.track, cell.family, cell.level, one.name, seed)
        line = self.usual.runs.get(name)
        if line is None:
            return None
        return files.behind(self.lines.machines, line) | {"options": None}
