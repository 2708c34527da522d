"""The one way from experiments to results: look up, resume or compute.

All errors are found first, before any long computation. Missing results are computed
here, in processes or on a Dask cluster: clusterings, distances and studies, then the
clusterings that trainings share, then the trainings.
"""

import functools
import json
import multiprocessing
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import joblib

from ..errors import FltnbError, lost_processes
from ..methods import Context
from ..progress import bar as progress_bar
from ..settings import Count, check
from . import machines, measure
from .finished import Arrays, Finished, Values, load, read_arrays, save
from .grid import Row, noted
from .ledger import Ledger
from .saving import arrays_path, cached_arrays
from .task import Task, prepare
from .train import Cache, How, checkpoint_path, groups, train, train_together

_BEGUN = time.time()
Files = dict[str, list[Path]]
"""Key of a training -> files of the clusterings that it uses."""


def compute(
    rows: Sequence[Row],
    n_jobs: int = 1,
    fresh: bool | None = None,
    progress: bool = True,
    device: str = "auto",
    backend: str = "auto",
    ledgers: Iterable[Ledger] = (),
) -> list[Finished]:
    """Return the results of experiments, in their order.

    They come from a ledger or the store, or are computed (or resumed) and stored.

    Parameters
    ----------
    rows : sequence of Row
        Such as a grid of :func:`fltnb.grid`.
    n_jobs : int
        Experiments in parallel, in separate processes. A Dask cluster replaces
        them (:mod:`fltnb.experiments.machines`).
    fresh : bool, optional
        True: ignore results that were stored before this call. False: use them. None:
        if ``FLTNB_FRESH`` is set in the environment, ignore those that were stored
        before this process began.
    progress : bool
        Show a bar of experiments, and one of rounds if one runs at a time.
    device, backend : str
        As for :func:`fltnb.training.make_engine`.
    ledgers : iterable of Ledger
        Ledgers to search before anything is computed, unless ``fresh``.

    Returns
    -------
    list of Finished
        One per row, under the row's axes. Equal experiments are computed once.

    Raises
    ------
    FltnbError
        An experiment cannot run (unknown model, too many clusters, ...), or the Dask
        cluster cannot be used. It is raised before any of them starts.

    Warns
    -----
    UserWarning
        A training diverged: it is stored up to the round before.

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> def plan(rounds):
    ...     method = fl.methods.FedAvg()
    ...     return fl.Training(clients, method, "mlp32", rounds=rounds)
    >>> rows = fl.grid(plan, rounds=[1])
    >>> finished = fl.compute(rows, progress=False)
    >>> finished[0].kind
    'training'
    """
    n_jobs = check("n_jobs", n_jobs, Count)
    tasks = [prepare(row) for row in rows]
    since = ignored_before(fresh)
    every = _once(tasks)
    known = look_up(every, since, () if since else ledgers)
    for key in known:  # of a run that was killed just after it was saved
        checkpoint_path(key).unlink(missing_ok=True)
    missing = [task for task in every if task.key not in known]
    for task in missing:
        _check(task)

    how = How(device, backend, since, progress)
    done = _done(missing, n_jobs, how)
    for one in progress_bar(done, progress, total=len(missing), desc="experiments"):
        known[one.key] = one

    results = []
    for task in tasks:
        one = copy(known[task.key])  # equal settings may occur with several axes
        one.axes = dict(task.row.axes)
        one.keep = task.experiment.keep
        results.append(one)
        if one.numbers.get("stopped"):
            warnings.warn(f"{task.row}: {one.numbers['stopped']}", stacklevel=2)
    return results


def check_all(rows: Iterable[Row]) -> None:
    """Refuse experiments that cannot run, as :func:`compute` does before it begins.

    Raises
    ------
    FltnbError
        The first experiment that cannot run.

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> def plan(seed):
    ...     return fl.Clustering(clients, fl.FCR(), seed=seed)
    >>> fl.experiments.check_all(fl.grid(plan, seed=[0]))
    """
    for row in {row.experiment.id: row for row in rows}.values():
        _check(prepare(row))


def _check(task: Task) -> None:
    """Refuse clusterings and distances that cannot be computed (FltnbError)."""
    with noted(task.row):
        if task.experiment.kind == "clustering":
            measure.check_clustering(task)
        if task.experiment.kind == "distances":
            measure.check_distances(task)


def look_up(
    tasks: Sequence[Task], since: float = 0.0, ledgers: Iterable[Ledger] = ()
) -> dict[str, Finished]:
    """Return existing results by key: from the store, or else from a ledger.

    Parameters
    ----------
    tasks : sequence of Task
        One for each key.
    since : float
        Files of the store from before this time (seconds of Unix time) are ignored.
    ledgers : iterable of Ledger
        The first one that has a result of a key counts.
    """
    known: dict[str, Finished] = {}
    wanted = {task.key: task.experiment.needed for task in tasks}
    for key, needed in wanted.items():
        done = load(key, since, needed)
        if done is not None:
            known[key] = done
    for ledger in ledgers:
        left = set(wanted) - set(known)
        if left and ledger.exists:
            for done in ledger.finished(left):
                needed = wanted[done.key]
                if not needed or needed <= set(done.arrays):
                    known[done.key] = done
    return known


def _once(tasks: Iterable[Task]) -> list[Task]:
    """Return one task for each key; it keeps the arrays that any of them keeps."""
    found: dict[str, Task] = {}
    for task in tasks:
        one = found.setdefault(task.key, task)
        keep = dict.fromkeys([*one.experiment.keep, *task.experiment.keep])
        if len(keep) > len(one.experiment.keep):
            experiment = replace(one.experiment, keep=tuple(keep))
            row = replace(one.row, experiment=experiment)
            found[task.key] = replace(one, row=row)
    return list(found.values())


def ignored_before(fresh: bool | None) -> float:
    """Return the time before which stored files are ignored: 0 for none.

    Parameters
    ----------
    fresh : bool or None
        True: files stored before this call; None: with ``FLTNB_FRESH`` in the
        environment, files stored before this process began.
    """
    if fresh is None:
        wished = os.environ.get("FLTNB_FRESH", "") not in ("", "0")
        return _BEGUN if wished else 0.0
    return time.time() if fresh else 0.0


def _done(missing: list[Task], n_jobs: int, how: How) -> Iterator[Finished]:
    """Compute missing results, and yield each one as soon as it is stored.

    Trainings come last, because a study may have computed one of them, and are all that
    is sent to a Dask cluster. Raises FltnbError, before anything is computed, if the
    cluster cannot be used.
    """
    trainings = [task for task in missing if task.experiment.kind == "training"]
    cluster = machines.active() if trainings else None
    together: list[list[Task]] = []
    if cluster is not None:
        machines.check(cluster)
    else:  # also refuses a missing device
        together = groups(trainings, how)
    with machines.here():
        yield from _without_training(missing, n_jobs, how)
        used = _clusterings(trainings, how)
    if cluster is not None:
        yield from _on_cluster(cluster, trainings, used, how)
    elif n_jobs == 1 or len(trainings) < 2:
        for group in together:
            yield from _here(group, how)
    else:
        given = ((task.row, task.key, how) for task in trainings)
        yield from _in_processes(_one, given, n_jobs)


def _in_processes(
    function: Callable[..., Any], given: Iterable[tuple[Any, ...]], n_jobs: int
) -> Iterator[Any]:
    """Yield ``function(*one)`` for each of ``given``, in order, as they are ready."""
    call = joblib.delayed(function)
    calls = (call(*one) for one in given)
    with lost_processes():
        yield from joblib.Parallel(n_jobs=n_jobs, return_as="generator")(calls)


def _here(group: list[Task], how: How) -> Iterator[Finished]:
    """Compute trainings in this process, together if there are several."""
    cache = functools.partial(cached_arrays, since=how.since)
    left = []
    for task in group:
        # a study may have computed it
        known = load(task.key, how.since, task.experiment.needed)
        if known is None:
            left.append(task)
        else:
            yield known
    if len(left) == 1:
        yield train(left[0], cache, how)
    elif left:
        yield from train_together(left, cache, how)


_SHARED = {
    "clustering": ("federation", "encoder"),
    "distances": ("federation", "model", "training", "seed"),
}
"""Kind -> settings whose embedding or local models several experiments share."""


def _alike(missing: list[Task], kind: str) -> list[list[Task]]:
    """Return the experiments of a kind in groups that share work.

    Clusterings share the embedding of the data, distances the models that clients
    trained alone.
    """
    groups: dict[str, list[Task]] = {}
    for task in missing:
        if task.experiment.kind == kind:
            settings = task.experiment.settings
            shared = json.dumps([settings.get(name) for name in _SHARED[kind]])
            groups.setdefault(shared, []).append(task)
    return list(groups.values())


def _without_training(missing: list[Task], n_jobs: int, how: How) -> Iterator[Finished]:
    """Yield clusterings, distances and studies; shared work is done once.

    Several groups of clusterings, and several studies, run in separate processes. A
    single group uses all processes for its embedding, as each group of distances does.
    """
    clusterings = _alike(missing, "clustering")
    at_a_time = n_jobs if len(clusterings) > 1 else 1
    own = n_jobs // at_a_time
    each = ((group, own, how.device, how.since) for group in clusterings)
    for done in _in_processes(measure.cluster, each, at_a_time):
        yield from done
    for group in _alike(missing, "distances"):
        yield from measure.distances(group, n_jobs, how.device)

    studies = [task for task in missing if task.experiment.kind == "study"]
    at_a_time = n_jobs if len(studies) > 1 else 1
    yield from _in_processes(measure.study, ((task,) for task in studies), at_a_time)


def _clusterings(trainings: list[Task], how: How) -> Files:
    """Make the clusterings that many runs share, each once and with all cores.

    Methods request them through the cache of their context, so a training uses the
    files that it requests.
    """
    used: Files = {}
    for task in trainings:
        files = used[task.key] = []

        def cache(key, make, files=files):
            before = list(files)
            arrays = cached_arrays(key, make, how.since)
            # what was requested on the way, such as embeddings, is not needed again
            files[:] = [*before, arrays_path(key)]
            return arrays

        context = Context(task.experiment.seed, cache, how.progress, device=how.device)
        with noted(task.row):
            task.experiment.method.prepare(task.fed, context)
    return used


def _on_cluster(
    cluster: Any, trainings: list[Task], used: Files, how: How
) -> Iterator[Finished]:
    """Compute trainings on a Dask cluster, which receives their clusterings.

    Each file is sent to the cluster once, for any number of trainings.
    """
    calls = {task.key: (task.row, task.key, how) for task in trainings}
    needed = {task.key: task.experiment.needed for task in trainings}
    files = {}
    needs = {}
    for key, paths in used.items():
        needs[key] = [path.name for path in paths]
        for path in paths:
            files[path.name] = path.read_bytes()
    for key, done in machines.gather(cluster, _remote, calls, files, needs):
        # Without a common file system the worker has another store.
        yield load(key, how.since, needed[key]) or save(done)


def _one(row: Row, key: str, how: How, cache: Cache | None = None) -> Finished:
    """Compute one training in a separate process.

    Results that another process has just computed are not computed again. FltnbError:
    this machine's code or data give the training another key.
    """
    task = prepare(row)
    if task.key != key:
        raise FltnbError(
            f"{row}: its code or data differ from the caller's; use the same on every "
            "machine."
        )
    known = load(key, how.since, task.experiment.needed)
    if known is not None:
        return known
    if cache is None:
        cache = functools.partial(cached_arrays, since=how.since)
    return train(task, cache, replace(how, progress=False, n_workers=1))


# Two runs in one process would undo each other's thread limits.
_ALONE = threading.Lock()


def _remote(row: Row, key: str, how: How, clusterings: dict[str, bytes]) -> Finished:
    """Compute one training on a Dask worker.

    Parameters
    ----------
    row, key, how
        The training, its key on the caller's machine, and how to compute it.
    clusterings : dict
        Name of a file -> its content on the caller's machine.
    """

    def cache(arrays_key: Values, make: Callable[[], Arrays]) -> Arrays:
        content = clusterings.get(arrays_path(arrays_key).name)
        if content is None:
            return cached_arrays(arrays_key, make, how.since)
        return read_arrays(content)

    # A daemonic process cannot start processes: it would train with another engine,
    # whose last bits differ. Dask's own switch would have to be set on every machine
    # beforehand, which is easily forgotten.
    config = getattr(multiprocessing.current_process(), "_config", {})
    with _ALONE, patch.dict(config, daemon=False):
        try:
            return _one(row, key, how, cache)
        except FltnbError as error:
            where = socket.gethostname()
            raise FltnbError(
                f"{row} cannot run on the Dask worker on {where}: {error}"
            ) from error
