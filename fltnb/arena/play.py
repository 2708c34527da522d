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
    return entry(where)


def played(task: Task, who: Entry) -> dict[str, Any]:
    """Return the numbers of a run, computed now, whatever happens in it.

    Raises
    ------
    UndeclaredError
        The method looked at what its ``needs`` does not name.
    """
    cell = task.cell
    row = {"track": cell.track, "family": cell.family, "level": cell.level}
    row |= {"method": who.name, "seed": task.seed, "options": plain(task.options)}
    row |= dict.fromkeys(PLAYED) | {"accuracy": 0.0, "worst": 0.0, "failed": ""}
    fed = cell.build()
    if task.validated:
        fed = tracks.validated(fed)
    counted = cell.counted(fed, task.seed)
    begun = time.monotonic()
    try:
        with within(task.limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the method: its numbers tell
            kind = guarded(who, counted if cell.unlabelled else None)
            method = kind(**who.options(cell.told, task.options))
            options = cell.training | {"seed": task.seed}
            done = run(method, fed, cell.model, n_workers=1, progress=False, **options)
        row |= _measured(done, fed, counted)
    except UndeclaredError:
        raise
    except OutOfTimeError:
        row["failed"] = f"It took longer than {task.limit:g} s."
    except Exception as error:  # of a stranger's code: it counts as failed
        row["failed"] = said(error)
    row["seconds"] = round(time.monotonic() - begun, 2)
    return row


def _measured(done: Run, fed: Federation, counted: np.ndarray) -> dict[str, Any]:
    """Return a run's numbers, over the clients (M,) that count."""
    accuracy = done.clients["test"].to_numpy()
    if done.confusion is not None:  # counted by the loop, whatever the method says
        right = done.confusion.trace(axis1=1, axis2=2)
        accuracy = metrics.accuracy(right, done.confusion.sum(axis=(1, 2)))
    accuracy = accuracy[counted]
    ari = None
    n_clusters = None
    if done.labels is not None:
        n_clusters = len(np.unique(done.labels))
        if fed.clusters is not None:
            ari = round(metrics.adjusted_rand_index(fed.clusters, done.labels), 6)
    sent = done.history.iloc[-1]
    return {
        "accuracy": round(metrics.mean_accuracy(accuracy), 6),
        "worst": round(metrics.worst(accuracy), 6),
        "ari": ari,
        "n_clusters": n_clusters,
        "bytes": int(sent["bytes_up"] + sent["bytes_down"]),
    }


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
    kept = {}
    missing = []
    for place, task in enumerate(tasks):
        numbers = stored(task)
        if numbers is None:
            missing.append(place)
        else:
            kept[place] = numbers

    begun = time.monotonic()
    took = []
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
        n_jobs=jobs, return_as="generator_unordered", pre_dispatch=jobs, batch_size=1
    )
    for place, numbers in parallel(affordable()):
        kept[place] = numbers
        took.append(numbers["seconds"])
        progress.update()
    progress.close()
    left = len(tasks) - len(kept)
    if left:
        tell(f"{left} of {len(tasks)} runs are left: the same command goes on.")
    return [kept[place] for place in sorted(kept)]


def stored(task: Task) -> dict[str, Any] | None:
    """Return the numbers of a run that was played before."""
    file = task.file(_entry(task.where))
    if not file.is_file():
        return None
    return json.loads(file.read_text(encoding="utf-8"))


def _placed(place: int, task: Task) -> tuple[int, dict[str, Any]]:
    """Play a run and keep its numbers."""
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
    highest = {}
    for task, numbers in zip(tasks, results, strict=True):
        name = f"{numbers['method']} {task.cell.name}"
        if numbers["accuracy"] > highest.get(name, -1.0):
            highest[name] = numbers["accuracy"]
            best[name] = task.options
    return best
