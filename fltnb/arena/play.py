"""Playing: every method on every cell and seed, each run kept as it ends.

A run's file is named by what decides its numbers: the cell's settings with the hash of
the images, the seed, the method's source and options. Stopping loses the runs that were
under way; the same command goes on from there.
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
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from .. import metrics, paths
from ..errors import FltnbError
from ..experiments.key import digest, versions
from ..federations import Federation
from ..progress import bar
from ..record import Run
from ..rounds import run
from ..settings import plain
from . import tracks, tuning
from .entry import Entry, entry, said
from .guard import UndeclaredError, guarded
from .tracks import Cell

LIMIT = 120.0
"""Seconds after which a run is ended, and counts as failed."""
USUAL = 4.0
"""Seconds that a run takes, where none was timed yet."""
PLAYED = ("accuracy", "worst", "ari", "n_clusters", "bytes", "seconds")
"""Numbers of a run."""


@dataclass(frozen=True)
class Task:
    """A run that is asked for.

    Attributes
    ----------
    where : str
        Who plays, as :func:`fltnb.arena.entry.entry` takes it.
    cell : Cell
    seed : int
        Of the run; the cell is drawn by it, too.
    options : dict
        Of the method, besides K.
    validated : bool
        Tested on validation samples, for tuning.
    limit : float
        Seconds.
    """

    where: str
    cell: Cell
    seed: int
    options: dict[str, Any]
    validated: bool = False
    limit: float = LIMIT

    def federation(self) -> Federation:
        """Make the federation that is played on."""
        fed = self.cell.build()
        return tracks.validated(fed) if self.validated else fed

    def counted(self, fed: Federation) -> np.ndarray:
        """Which of its clients count, bool (M,)."""
        return self.cell.counted(fed, self.seed)

    def file(self, who: Entry) -> Path:
        """Where its numbers are kept."""
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
    """Return where runs are kept."""
    return paths.store() / "arena"


class OutOfTimeError(BaseException):
    """A run takes too long; no ``except Exception`` holds it up."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise :class:`OutOfTimeError` after so many seconds.

    Only in a process's main thread, and where the system has alarms: elsewhere there is
    no limit. A single call of a compiled function is waited for.
    """
    alarms = hasattr(signal, "setitimer")
    if not alarms or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _entry(where: str) -> Entry:
    """Return who is meant, read once for each version of the file."""
    file = Path(where.rpartition(":")[0])
    written = file.stat().st_mtime_ns if file.is_file() else 0
    return _entry_of(where, written)


@functools.cache
def _entry_of(where: str, written: int) -> Entry:
    """Return who is meant; ``written`` is when the file was."""
    return entry(where)


def played(task: Task, who: Entry) -> dict[str, Any]:
    """Return the numbers of a run, computed now, whatever happens in it.

    Parameters
    ----------
    task : Task
    who : Entry
        Whom the task names.

    Returns
    -------
    dict
        ``track, family, level, method, seed, options`` of the task, the numbers
        :data:`PLAYED`, and ``failed``: why, or "". Of a failed run accuracy and worst
        are 0, the others None.

    Raises
    ------
    UndeclaredError
        The method looked at what its ``needs`` does not name.
    """
    row = _failed_row(task, who)
    fed = task.federation()
    begun = time.monotonic()
    try:
        done = _run(task, who, fed)
        row |= _measured(done, fed, task.counted(fed))
    except UndeclaredError:
        raise
    except OutOfTimeError:
        row["failed"] = f"It took longer than {task.limit:g} s."
    except (Exception, SystemExit) as error:
        # whatever a stranger's code does, the others' runs go on
        row["failed"] = said(error)
    spent = time.monotonic() - begun
    row["seconds"] = round(spent, 2)
    return row


def _failed_row(task: Task, who: Entry) -> dict[str, Any]:
    """Return what is known of a run before it is played."""
    row = {
        "track": task.cell.track,
        "family": task.cell.family,
        "level": task.cell.level,
        "method": who.name,
        "seed": task.seed,
        "options": plain(task.options),
    }
    row |= dict.fromkeys(PLAYED)
    row["accuracy"] = 0.0
    row["worst"] = 0.0
    row["failed"] = ""
    return row


def _run(task: Task, who: Entry, fed: Federation) -> Run:
    """Run the method on a federation, within the time limit."""
    cell = task.cell
    hidden = task.counted(fed) if cell.unlabelled else None
    kind = guarded(who, hidden)
    options = who.options(cell.told, task.options)
    numbers = cell.training | {"seed": task.seed}
    with within(task.limit), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the method: its numbers tell
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

    It is counted from what the loop saw, not from what the method says, but for a
    method that predicts by itself.
    """
    if done.confusion is None:
        return done.clients["test"].to_numpy()
    right = done.confusion.trace(axis1=1, axis2=2)
    total = done.confusion.sum(axis=(1, 2))
    return metrics.accuracy(right, total)


def _clustering(
    labels: np.ndarray | None, true: np.ndarray | None
) -> dict[str, float | None]:
    """Return how well clusters (M,) were found, as far as there are any."""
    if labels is None:
        return {"ari": None, "n_clusters": None}
    found = len(np.unique(labels))
    if true is None:
        return {"ari": None, "n_clusters": found}
    index = metrics.adjusted_rand_index(true, labels)
    return {"ari": round(index, 6), "n_clusters": found}


def check_budget(budget: float | None) -> None:
    """Refuse a budget, in seconds, that is too small for a run."""
    if budget is not None and budget < USUAL:
        raise FltnbError(
            f"A budget of {budget:g} s is too small for one cell, which takes about "
            f"{USUAL:g} s: give {3 * USUAL:g}s or more."
        )


def play(
    tasks: Sequence[Task],
    budget: float | None = None,
    jobs: int = 1,
    tell: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Return the numbers of runs, in their order; those that fit into a time.

    Parameters
    ----------
    tasks : sequence of Task
    budget : float, optional
        Seconds; runs that are kept already take none.
    jobs : int
        Runs at a time, in processes of their own.
    tell : callable
        What says, in one sentence, how many runs are left for another time.

    Raises
    ------
    UndeclaredError
        As :func:`played`.
    """
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
    for place, numbers in parallel(affordable()):
        kept[place] = numbers
        took.append(numbers["seconds"])
        progress.update()
    progress.close()

    there = [numbers for numbers in kept if numbers is not None]
    left = len(tasks) - len(there)
    if left:
        tell(f"{left} of {len(tasks)} runs are left: the same command goes on.")
    return there


def stored(task: Task) -> dict[str, Any] | None:
    """Return the numbers of a run that was played before."""
    file = task.file(_entry(task.where))
    if not file.is_file():
        return None
    return json.loads(file.read_text(encoding="utf-8"))


def _placed(place: int, task: Task) -> tuple[int, dict[str, Any]]:
    """Play a run and keep its numbers; return its place with them."""
    who = _entry(task.where)
    numbers = played(task, who)
    paths.write_text(task.file(who), json.dumps(numbers))
    return place, numbers


def tuned(
    entries: Sequence[Entry], cells: Sequence[Cell], **options: Any
) -> dict[str, dict[str, Any]]:
    """Return the best of the trials of every method on every cell.

    Compared by validation samples. ``cells`` are drawn by
    :data:`fltnb.arena.tuning.SEED`; ``options`` are those of :func:`play`.

    Returns
    -------
    dict
        "method cell" -> options, where the method declares a space.

    Raises
    ------
    FltnbError
        The budget ends before all trials are there.
    """
    tasks = []
    for who in entries:
        for cell in cells:
            for one in tuning.trials(who.space):
                task = Task(who.where, cell, tuning.SEED, one, validated=True)
                tasks.append(task)
    results = play(tasks, **options)
    if len(results) < len(tasks):
        raise FltnbError(
            "The budget ends before tuning does: the same command goes on, or give "
            "more of it."
        )
    best = {}
    highest: dict[str, float] = {}
    for task, numbers in zip(tasks, results, strict=True):
        name = f"{numbers['method']} {task.cell.name}"
        if numbers["accuracy"] > highest.get(name, -1.0):
            highest[name] = numbers["accuracy"]
            best[name] = task.options
    return best
