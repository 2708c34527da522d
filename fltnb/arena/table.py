"""All methods of this package on the same cells and seeds: one table of runs.

A card of an external method has its own seeds, drawn from its source. The methods here
share five seeds, so that every method is paired with every other one. Their runs are in
``results/arena/runs.csv``, one line per run, and the machines that computed them in
``machines.json`` beside it.
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
from .play import Task, check_limits, play

SEEDS = (0, 1, 2, 3, 4)
"""Fixed before the first run of the table. Seeds drawn from each method's source, as
for external methods, would give no pairs."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Table:
    """Runs of methods of this package.

    Attributes
    ----------
    runs : DataFrame
        One row per run, as :func:`fltnb.arena.statistics.table_of` makes it, with
        ``machine`` (a position in ``machines``).
    asked : dict
        Seed -> number of its requested runs, computed or not.
    machines : list of dict
        Commit, hardware and versions that computed the runs.

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

        So every method has the same cells and seeds, and a table that is still being
        computed favours no method. Raises FltnbError if no seed is complete.
        """
        there = self.runs["seed"].value_counts()
        seeds = {seed: n for seed, n in self.asked.items() if there.get(seed) == n}
        if not seeds:
            raise FltnbError(
                "No seed has all its runs: compute them, or choose fewer methods or "
                "tracks."
            )
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
        Tracks, of :data:`fltnb.arena.TRACKS`; by default all.
    seeds : sequence of int
        All methods run with one seed before the next begins, so that a stopped table is
        complete for the first seeds.
    demo : bool
        Small federations of the digits.
    compute : bool
        Compute missing runs, and add them to the table. Each is stored as it ends.
    jobs : int
        Runs in parallel, in separate processes.
    budget : float, optional
        Seconds after which no further run starts; by default there is no limit.
    tell : callable
        Called with messages, such as the families whose data are missing.

    Raises
    ------
    FltnbError
        There is no such method or track; the budget is too small for a run; or none of
        the runs is stored or could be computed.

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
        check_limits(budget, jobs)
        missing = [task for name, task in asked.items() if name not in lines.runs]
        missing = playable(missing, tell)
        lines.add(play(missing, budget, jobs, tell), today)
    there = [lines.runs[name] for name in asked if name in lines.runs]
    if not there:
        raise _nothing_there(compute)
    n_asked = Counter(name[-1] for name in asked)
    return Table(statistics.table_of(there), dict(n_asked), lines.machines)


def _nothing_there(compute: bool) -> FltnbError:
    """Return the error for a table without a run, to be computed or not."""
    what = "No run of these methods on these tracks"
    if compute:
        return FltnbError(
            f"{what} could be computed: get the data of the families that are left "
            "out, choose other tracks, or give a larger budget."
        )
    return FltnbError(f"{what} is stored: give compute=True to compute them.")


def players(methods: Sequence[str] | None) -> dict[str, Entry]:
    """Return entries of this package by name; None: all."""
    chosen = [choose(name, PLAYERS, "method") for name in methods or PLAYERS]
    return {name: entry(name) for name in chosen}


def tracks_of(played: Sequence[str] | None) -> list[str]:
    """Return the names of tracks, each once, checked; None: all."""
    chosen = dict.fromkeys(played or tracks.TRACKS)
    return [choose(track, tracks.TRACKS, "track") for track in chosen]


def _asked(
    who: dict[str, Entry], on: Sequence[str], seeds: Sequence[int], demo: bool
) -> dict[tuple, Task]:
    """Return the requested runs by name, in the order in which they are computed.

    This is seed by seed, so that a table that is stopped early is complete for the
    first seeds. A method that needs the true clusters has no run on cells where these
    are not known.
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


def playable(tasks: Sequence[Task], tell: Tell) -> list[Task]:
    """Return the runs whose data are here, after their encoders were trained.

    ``tell`` is called with the families that are left out. Encoders are trained here so
    that this does not count against the time limit of a run.
    """
    lacking = tracks.lacking(task.cell for task in tasks)
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
    """Return the folder of the table."""
    return paths.ROOT / "results" / ("demo" if demo else "") / "arena"
