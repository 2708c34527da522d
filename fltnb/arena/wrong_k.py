"""Methods that are given a wrong number of clusters.

The cells are those of the track ``told-K`` at the middle level, with the seeds of the
table. A method that needs K and is given the true number runs as in the table, so that
run is taken from there. The other runs are in ``results/arena/wrong_k``.
"""

from collections import Counter
from collections.abc import Sequence

from ..errors import FltnbError
from . import files, statistics, table, tracks
from .entry import Entry
from .play import Task, check_limits, play
from .table import Table, Tell
from .tracks import Cell

TRACK = "told-K"
LEVEL = "middle"
OFF = (-2, -1, 0, 1, 2, 4)
"""Given number of clusters minus the true one, which is 4 or 5. FedClust fails with
more clusters than participants in the first round, which are ten."""
TOLD = ("FedSEM", "FeSEM", "IFCA", "FLHC", "FedClust", "FlexCFL", "FLT")
"""Methods that are given K: six that need it, and FLT, which determines it if it is not
given. Left out are HypoCluster and FeSEMMA, which are IFCA and FeSEM on these cells,
mixtures of models (FedEM, FedRC, FedSoft), and, to save time, CFLGP and FedCE. EMD-CFL
always determines K itself."""
UNTOLD = ("FedAvg", "Local", "MergeGain")
"""Methods for comparison, which are not given K: equal at each number."""


def everybody_wrong_k(
    seeds: Sequence[int] = table.SEEDS,
    *,
    demo: bool = False,
    compute: bool = False,
    jobs: int = 1,
    budget: float | None = None,
    tell: Tell = print,
) -> Table:
    """Return the runs of methods that are given a wrong number of clusters.

    The column ``off`` has the given number minus the true one. Each number is a cell of
    its own, on which methods that are not given K have the same run as on the others.
    These runs, and those with the true number, are of :func:`fltnb.arena.everybody`,
    which computes them.

    Parameters
    ----------
    seeds, demo, compute, jobs, budget, tell
        As for :func:`fltnb.arena.everybody`.

    Raises
    ------
    FltnbError
        None of the runs is stored.

    Examples
    --------
    >>> from fltnb import arena
    >>> runs = arena.everybody_wrong_k(seeds=[0]).runs
    >>> sorted(runs["off"].unique().tolist())
    [-2, -1, 0, 1, 2, 4]
    """
    who = table.players((*TOLD, *UNTOLD))
    seeds = list(dict.fromkeys(seeds))
    today = {name: table.version(one) for name, one in who.items()}
    usual = files.read(table.folder(demo), today)
    lines = files.read(table.folder(demo) / "wrong_k", today, files.WITH_OPTIONS)
    asked = _asked(list(who.values()), seeds, demo)
    if compute:
        check_limits(budget, jobs)
        missing = []
        for one, _, task in asked:
            if task.options and files.name_of(task, one.name) not in lines.runs:
                missing.append(task)
        runs = play(table.playable(missing, tell), budget, jobs, tell)
        lines.add([files.line_of(run) for run in runs], today)

    there = dict(lines.runs)
    for name, line in usual.runs.items():
        there[*name, files.text_of({})] = files.behind(lines.machines, line)
    found = []
    for one, off, task in asked:
        if run := there.get(files.name_of(task, one.name)):
            found.append(run | {"off": off})
    if not found:
        raise FltnbError(
            "No run is stored: give compute=True, or run "
            "`python -m fltnb arena all --wrong-k`."
        )
    runs = statistics.table_of(found)
    runs["cell"] += runs["off"].map(", K {:+d}".format)
    n_asked = Counter(task.seed for _, _, task in asked)
    return Table(runs, dict(n_asked), [*lines.machines, *usual.machines])


def _asked(
    who: Sequence[Entry], seeds: Sequence[int], demo: bool
) -> list[tuple[Entry, int, Task]]:
    """Return the requested runs, each with the error of its K, seed by seed."""
    asked = []
    level = tracks.LEVELS.index(LEVEL)
    for seed in seeds:
        for family in tracks.TRACKS[TRACK]:
            cell = tracks.cell(TRACK, family, level, seed, demo)
            for one in who:
                for off in OFF:
                    asked.append((one, off, _task(one, cell, seed, off)))
    return asked


def _task(who: Entry, cell: Cell, seed: int, off: int) -> Task:
    """Return a run; one without options is that of the table."""
    as_usual = who.name in UNTOLD or (off == 0 and "n_clusters" in who.needs)
    options = {} if as_usual else {"n_clusters": cell.told + off}
    return Task(who.where, cell, seed, options)
