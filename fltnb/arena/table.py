"""All methods of this package on the same cells and seeds: one table of runs.

A stranger's card has seeds of its own, drawn from its source. The methods here share
five seeds, so that every method is paired with every other one. Their runs stand in
``results/arena/runs.csv``, a line a run, and what computed them in ``machines.json``
beside it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from .. import paths
from ..encoders import pretrain, unseen
from ..errors import FltnbError, choose
from ..experiments.key import digest, versions
from ..methods import METHODS
from . import files, statistics, tracks
from .entry import BESIDE, ENCODED, IDS_OF_OURS, PLAYERS, Entry, entry
from .play import Task, check_budget, play

SEEDS = (0, 1, 2, 3, 4)
"""Fixed before the first run of the table. Nobody submits these methods, so that a
draw from their source would protect nobody, and cost the pairs."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Table:
    """Runs of methods of this package.

    Attributes
    ----------
    runs : DataFrame
        A row a run, as :func:`fltnb.arena.statistics.table_of` makes it, with
        ``machine`` (the number of one of ``machines``).
    asked : dict
        Seed -> how many of its runs were asked for; the others are not computed.
    machines : list of dict
        What computed them: commit, hardware, versions.

    Examples
    --------
    >>> from fltnb import arena
    >>> print(arena.everybody(["FedAvg"], ["drift"], seeds=[0]))
    6 of 6 runs, 1 method, 6 cells, seeds 0.
    """

    runs: pd.DataFrame
    asked: dict[int, int]
    machines: list[dict[str, Any]]

    @property
    def ids(self) -> dict[str, str]:
        """Class of a method -> its id, which has a name and a colour in pictures."""
        of_methods = {name: kind.name for name, kind in METHODS.items()}
        return of_methods | IDS_OF_OURS

    def __str__(self) -> str:
        """Say how much of what was asked for is there."""
        n_methods = self.runs["method"].nunique()
        seeds = ", ".join(map(str, sorted(self.runs["seed"].unique())))
        methods = "method" if n_methods == 1 else "methods"
        n_asked = sum(self.asked.values())
        return (
            f"{len(self.runs):,} of {n_asked:,} runs, {n_methods} {methods}, "
            f"{self.runs['cell'].nunique()} cells, seeds {seeds}."
        )

    def whole(self) -> "Table":
        """Return the table without the seeds of which a run is missing.

        So every method has played the same cells with the same seeds, and a table that
        is still being computed favours nobody. FltnbError: no seed is complete.
        """
        there = self.runs["seed"].value_counts()
        seeds = {seed: n for seed, n in self.asked.items() if there.get(seed) == n}
        if not seeds:
            raise FltnbError("No seed has all its runs: compute them, or ask for less.")
        runs = self.runs[self.runs["seed"].isin(list(seeds))]
        return Table(runs.reset_index(drop=True), seeds, self.machines)

    def ranks(self) -> pd.Series:
        """Return mean ranks over all cells by method, the best first."""
        ranks, _ = statistics.mean_ranks(self.runs)
        return pd.Series(ranks).sort_values(kind="stable")

    def rows(self) -> list[dict[str, Any]]:
        """Return the table: a row for each method, the best mean rank first."""
        means = statistics.means(self.runs)
        played = set(means)
        rows = []
        for name, rank in self.ranks().items():
            others = [one for one in BESIDE if one in played and one != name]
            comparisons = statistics.compared(self.runs, str(name), others)
            row = {"method": name, **means[str(name)], "rank": round(rank, 4)}
            row["better than"] = statistics.better_than(comparisons)
            rows.append(row)
        return rows


def everybody(
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
    """Return the runs of this package's methods; compute those that are missing.

    Parameters
    ----------
    methods : sequence of str, optional
        Of :data:`fltnb.arena.entry.PLAYERS`; by default all.
    played : sequence of str, optional
        Tracks; by default all.
    seeds : sequence of int
        All methods are played with one seed before the next begins, so that a stopped
        table is whole for those it has.
    demo : bool
        Small federations of the digits.
    compute : bool
        Play what is missing, and add it to the table. Runs are kept as they end.
    jobs : int
        Runs at a time.
    budget : float, optional
        Seconds.
    tell : callable
        What is told sentences.

    Raises
    ------
    FltnbError
        There is no such method or track; the budget is too small for a run; or no run
        is there.

    Examples
    --------
    >>> from fltnb import arena
    >>> table = arena.everybody(["FedAvg", "Local"], ["few-samples"], seeds=[0])
    >>> sorted(table.ranks().index)
    ['FedAvg', 'Local']
    """
    who = players(methods)
    asked = _asked(who, tracks_of(played), seeds, demo)
    today = {name: version(one) for name, one in who.items()}
    lines = files.read(folder(demo), today)
    if compute:
        check_budget(budget)
        missing = [task for name, task in asked.items() if name not in lines.runs]
        missing = playable(missing, demo, tell)
        lines.add(play(missing, budget, jobs, tell), today)
    there = [lines.runs[name] for name in asked if name in lines.runs]
    if not there:
        raise FltnbError(
            "No run of these methods on these tracks is stored: give compute=True, "
            "which plays them."
        )
    n_asked = Counter(name[-1] for name in asked)
    return Table(statistics.table_of(there), dict(n_asked), lines.machines)


def players(methods: Sequence[str] | None) -> dict[str, Entry]:
    """Return participants of this package by name; None: all."""
    chosen = [choose(name, PLAYERS, "method") for name in methods or PLAYERS]
    return {name: entry(name) for name in chosen}


def tracks_of(played: Sequence[str] | None) -> list[str]:
    """Return the names of tracks, checked; None: all."""
    return [choose(track, tracks.TRACKS, "track") for track in played or tracks.TRACKS]


def _asked(
    who: dict[str, Entry], on: Sequence[str], seeds: Sequence[int], demo: bool
) -> dict[tuple, Task]:
    """Return the runs that are asked for, by name, in the order they are played in.

    Seed by seed, so that a table that is stopped early is whole for the first seeds. A
    method that must be told the true clusters has no run on cells where nobody knows
    them.
    """
    asked = {}
    for seed in seeds:
        for track in on:
            for cell in tracks.cells(seed, track, demo):
                for name, one in who.items():
                    if not one.plays(cell.known):
                        continue
                    where = (cell.track, cell.family, cell.level, name, seed)
                    asked[where] = Task(one.where, cell, seed, {})
    return asked


def playable(tasks: Sequence[Task], demo: bool, tell: Tell) -> list[Task]:
    """Return the runs whose data are here, with their encoders trained.

    The families that are left out are told. Encoders are trained before, as no run's
    time limit should hold it.
    """
    lacking = tracks.lacking(demo) if tasks else {}
    for family, why in lacking.items():
        tell(f"{family} is left out: {why}")
    here = [task for task in tasks if task.cell.family not in lacking]
    needed = {
        unseen(task.cell.federation.dataset) for task in here if task.where in ENCODED
    }
    for spec in needed:
        if spec.kind != "pixels":
            pretrain(spec, progress=True)
    return here


def version(who: Entry) -> str:
    """Return what a run's numbers depend on besides cell and seed, as a short hash."""
    return digest({"method": who.digest, "core": versions(["core"])})[:12]


def folder(demo: bool) -> Path:
    """Return where the table stands."""
    return paths.ROOT / "results" / ("demo" if demo else "") / "arena"
