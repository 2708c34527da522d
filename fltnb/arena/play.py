"""Runs of every method on every cell and seed, each stored when it ends.

The file of a run is named by what determines its numbers: the cell's settings with the
hash of the images, the seed, the method's source and options. Stopping loses only the
current runs; the same command continues from there.
"""

import functools
import json
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from .. import metrics, paths
from ..errors import FltnbError, lost_processes
from ..experiments.key import digest, versions
from ..federations import Federation
from ..progress import bar
from ..record import Run
from ..rounds import run
from ..settings import Count, check, plain
from . import tracks, tuning
from .entry import Entry, entry, said
from .guard import UndeclaredError, guarded
from .tracks import Cell

LIMIT = 120.0
"""Seconds of processor time after which a run is stopped, and counts as failed."""
PATIENCE = 10
"""A run that only waits is stopped after this multiple of its limit by the clock."""
USUAL = 4.0
"""Seconds that a run takes, if none was timed yet."""
PLAYED = ("accuracy", "worst", "ari", "n_clusters", "bytes", "seconds")
"""Numbers of a run."""


@dataclass(frozen=True)
class Task:
    """A requested run.

    Attributes
    ----------
    where : str
        The entry, as for :func:`fltnb.arena.entry.entry`.
    cell : Cell
    seed : int
        Seed of the run; the cell is also drawn by it.
    options : dict
        Options of the method, besides K.
    validated : bool
        Whether it is tested on validation samples, for tuning.
    limit : float
        Seconds of processor time.
    """

    where: str
    cell: Cell
    seed: int
    options: dict[str, Any]
    validated: bool = False
    limit: float = LIMIT

    def federation(self) -> Federation:
        """Make the federation of the run."""
        fed = self.cell.build()
        return tracks.validated(fed) if self.validated else fed

    def counted(self, fed: Federation) -> np.ndarray:
        """Return which of its clients count, bool (M,)."""
        return self.cell.counted(fed, self.seed)

    def file(self, who: Entry) -> Path:
        """Return the file of its numbers."""
        settings = {
            "cell": self.cell.settings(),
            "seed": self.seed,
            "source": who.digest,
            "class": who.name,
            "options": plain(self.options),
            "validated": self.validated,
            "numerics": versions(["core"]),
        }
        return folder() / f"{digest(settings)}.json"


def folder() -> Path:
    """Return the folder of stored runs."""
    return paths.store() / "arena"


class OutOfTimeError(BaseException):
    """A run takes too long; ``except Exception`` does not catch it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise :class:`OutOfTimeError` after a number of seconds of processor time.

    So other work on the machine makes no method fail. A method that only waits is
    stopped by the clock, after ten times as long. This works only in a process's main
    thread and on systems with alarms; elsewhere there is no limit. A single call of a
    compiled function is not interrupted.
    """
    alarms = hasattr(signal, "setitimer")
    if not alarms or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise OutOfTimeError

    clocks = {
        signal.SIGPROF: (signal.ITIMER_PROF, seconds),
        signal.SIGALRM: (signal.ITIMER_REAL, PATIENCE * seconds),
    }
    before = {}
    for number, (clock, most) in clocks.items():
        before[number] = signal.signal(number, ring)
        signal.setitimer(clock, most)
    try:
        yield
    finally:
        for number, (clock, _) in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])


def _entry(where: str) -> Entry:
    """Return the entry, read once for each version of the file.

    Importing a file a second time would make other classes of the same name.
    """
    file = Path(where.rpartition(":")[0])
    written = file.stat().st_mtime_ns if file.is_file() else 0
    return _entry_of(where, written)


@functools.cache
def _entry_of(where: str, written: int) -> Entry:
    """Return the entry; ``written`` is the time of the file."""
    return entry(where)


def played(task: Task, who: Entry) -> dict[str, Any]:
    """Return the numbers of a run, computed now, also if it fails.

    Parameters
    ----------
    task : Task
    who : Entry
        The entry of the task.

    Returns
    -------
    dict
        ``track, family, level, method, seed, options`` of the task, the numbers
        :data:`PLAYED`, and ``failed``: the reason, or "". For a failed run accuracy and
        worst are 0, the others None, except for its seconds.

    Raises
    ------
    UndeclaredError
        The method used what its ``needs`` does not name.
    """
    row = _failed_row(task, who)
    fed = task.federation()
    begun = time.monotonic()
    try:
        done = _run(task, who, fed)
        row.update(_measured(done, fed, task.counted(fed)))
    except UndeclaredError:
        raise
    except OutOfTimeError:
        row["failed"] = f"It took longer than {task.limit:g} s."
    except (Exception, SystemExit) as error:
        # after any error of external code, other runs continue
        row["failed"] = said(error)
    spent = time.monotonic() - begun
    row["seconds"] = round(spent, 2)
    return row


def _failed_row(task: Task, who: Entry) -> dict[str, Any]:
    """Return what is known of a run before it starts."""
    row = {
        "track": task.cell.track,
        "family": task.cell.family,
        "level": task.cell.level,
        "method": who.name,
        "seed": task.seed,
        "options": plain(task.options),
    }
    row.update(dict.fromkeys(PLAYED))
    row["accuracy"] = 0.0
    row["worst"] = 0.0
    row["failed"] = ""
    return row


def _run(task: Task, who: Entry, fed: Federation) -> Run:
    """Run the method on a federation, within the time limit.

    It is built inside the limit, as external code may also take long there.
    """
    cell = task.cell
    hidden = task.counted(fed) if cell.unlabelled else None
    kind = guarded(who, hidden)
    options = who.options(cell.told, cell.federation.dataset, task.options)
    numbers = cell.training | {"seed": task.seed}
    with within(task.limit), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the method
        method = kind(**options)
        return run(method, fed, cell.model, n_workers=1, progress=False, **numbers)


def _measured(done: Run, fed: Federation, counted: np.ndarray) -> dict[str, Any]:
    """Return a run's numbers, over the clients (M,) that count."""
    accuracy = _accuracy(done)[counted]
    last = done.history.iloc[-1]
    sent = last["bytes_up"] + last["bytes_down"]
    return {
        "accuracy": round(metrics.mean_accuracy(accuracy), 6),
        "worst": round(metrics.worst(accuracy), 6),
        "bytes": int(sent),
        **_clustering(done.labels, fed.clusters),
    }


def _accuracy(done: Run) -> np.ndarray:
    """Return the clients' test accuracy (M,), percent.

    It is counted from what the loop saw, not from what the method reports, except for a
    method that makes its own predictions.
    """
    if done.confusion is None:
        return done.clients["test"].to_numpy()
    right = done.confusion.trace(axis1=1, axis2=2)
    total = done.confusion.sum(axis=(1, 2))
    return metrics.accuracy(right, total)


def _clustering(
    labels: np.ndarray | None, true: np.ndarray | None
) -> dict[str, float | None]:
    """Return how well clusters (M,) were found, if there are any."""
    if labels is None:
        return {"ari": None, "n_clusters": None}
    found = len(np.unique(labels))
    if true is None:
        return {"ari": None, "n_clusters": found}
    index = metrics.adjusted_rand_index(true, labels)
    return {"ari": round(index, 6), "n_clusters": found}


def check_limits(budget: float | None, jobs: int) -> None:
    """Refuse a budget, in seconds, that is too small for a run, or no processes."""
    check("jobs", jobs, Count)
    if budget is not None and budget < USUAL:
        raise FltnbError(
            f"A budget of {budget:g} s is too small for one run, which takes about "
            f"{USUAL:g} s: give {3 * USUAL:g}s or more."
        )


def play(
    tasks: Sequence[Task],
    budget: float | None = None,
    jobs: int = 1,
    tell: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Return the numbers of runs, in order, as far as they fit into a time.

    Parameters
    ----------
    tasks : sequence of Task
    budget : float, optional
        Seconds; stored runs take no time.
    jobs : int
        Runs in parallel, in separate processes.
    tell : callable
        Called with a sentence on how many runs are left.

    Raises
    ------
    UndeclaredError
        As for :func:`played`.
    """
    jobs = check("jobs", jobs, Count)
    kept = [stored(task) for task in tasks]
    missing = [place for place, numbers in enumerate(kept) if numbers is None]
    begun = time.monotonic()
    took: list[float] = []
    progress = bar(total=len(missing), desc="arena", unit="run")

    def affordable() -> Iterator[Any]:
        """Yield calls while there is time for them."""
        for place in missing:
            spent = time.monotonic() - begun
            usual = np.mean(took) if took else USUAL
            if budget is not None and spent + usual > budget:
                return
            yield joblib.delayed(_placed)(place, tasks[place])

    parallel = joblib.Parallel(
        n_jobs=jobs,
        return_as="generator_unordered",
        pre_dispatch=jobs,
        batch_size=1,
    )
    with lost_processes(), progress:
        for place, numbers in parallel(affordable()):
            kept[place] = numbers
            took.append(numbers["seconds"])
            progress.update()

    there = [numbers for numbers in kept if numbers is not None]
    left = len(tasks) - len(there)
    if left:
        tell(f"{left} of {len(tasks)} runs are left: the same command continues.")
    return there


def stored(task: Task) -> dict[str, Any] | None:
    """Return the numbers of a stored run."""
    file = task.file(_entry(task.where))
    if not file.is_file():
        return None
    return json.loads(file.read_text(encoding="utf-8"))


def _placed(place: int, task: Task) -> tuple[int, dict[str, Any]]:
    """Compute a run and store its numbers; return its position with them.

    Called in another process, from which runs come back in the order in which they end.
    """
    who = _entry(task.where)
    numbers = played(task, who)
    paths.write_text(task.file(who), json.dumps(numbers))
    return place, numbers


def tuned(
    entries: Sequence[Entry], cells: Sequence[Cell], **options: Any
) -> dict[str, dict[str, Any]]:
    """Return the best of the trials of every method on every cell.

    They are compared on validation samples. ``cells`` are drawn by
    :data:`fltnb.arena.tuning.SEED`; ``options`` are those of :func:`play`.

    Returns
    -------
    dict
        "method cell" -> options, if the method declares a space.

    Raises
    ------
    FltnbError
        The budget ends before all trials are computed.
    """
    tasks = []
    for who, cell in product(entries, cells):
        tasks += trial_tasks(who, cell)
    results = play(tasks, **options)
    if len(results) < len(tasks):
        raise FltnbError(
            "The budget ended before all trials were computed: run the same command "
            "again, which continues, or give a larger budget."
        )
    found: dict[str, list[float]] = {}
    for task, numbers in zip(tasks, results, strict=True):
        name = f"{numbers['method']} {task.cell.name}"
        found.setdefault(name, []).append(numbers["accuracy"])
    best = {}
    for who, cell in product(entries, cells):
        name = f"{who.name} {cell.name}"
        if name in found:
            best[name] = tuning.best(who.space, found[name])
    return best


def trial_tasks(who: Entry, cell: Cell) -> list[Task]:
    """Return the trials of a method on a cell drawn by :data:`tuning.SEED`.

    They are tested on validation samples. No task: the method has no space.
    """
    trials = tuning.trials(who.space)
    return [Task(who.where, cell, tuning.SEED, one, validated=True) for one in trials]
