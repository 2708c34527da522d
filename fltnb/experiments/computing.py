"""The one way from experiments to results: look up, resume or compute.

Here, in processes or on a Dask cluster.
"""

import functools
import json
import multiprocessing
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from typing import Any
from unittest.mock import patch

import joblib

from ..errors import FltnbError
from ..methods import Context
from ..progress import bar as progress_bar
from ..settings import Count, check
from . import machines, measure
from .finished import Finished, load, read_arrays, save
from .grid import Row
from .ledger import Ledger
from .saving import arrays_path, cached_arrays
from .task import Task, prepare
from .train import checkpoint_path, train

_BEGUN = time.time()


def compute(
    rows: Sequence[Row],
    n_jobs: int = 1,
    fresh: bool | None = None,
    progress: bool = True,
    device: str = "auto",
    backend: str = "auto",
    ledgers: Iterable[Ledger] = (),
) -> list[Finished]:
    """Return what experiments give, in their order.

    From a ledger or the store, resumed, or computed and stored.

    Parameters
    ----------
    rows : sequence of Row, such as a grid
    n_jobs : int
        Experiments at a time, in processes of their own. A Dask cluster takes their
        place (:mod:`fltnb.experiments.machines`).
    fresh : bool, optional
        Ignore what was stored before this call; by default ``FLTNB_FRESH`` decides.
        What this process stored counts.
    progress : bool
    device, backend : str, as for :func:`fltnb.training.make_engine`
    ledgers : iterable of Ledger, where to look before anything is computed

    Raises
    ------
    FltnbError
        An experiment cannot run (unknown model, too many clusters, ...), or the Dask
        cluster cannot be used. Found before any of them starts.

    Warns
    -----
    UserWarning
        A client's loss was not finite: the run is stored up to the round before.
    """
    n_jobs = check("n_jobs", n_jobs, Count)
    tasks = [prepare(row) for row in rows]
    since = ignored_before(fresh)
    known = look_up(tasks, since, () if since else ledgers)
    for key in known:  # of a run that was killed when it had just been saved
        checkpoint_path(key).unlink(missing_ok=True)
    missing = {task.key: task for task in tasks if task.key not in known}
    for task in missing.values():
        if task.experiment.kind == "clustering":
            measure.check_clustering(task)

    done = _done(list(missing.values()), n_jobs, progress, device, backend, since)
    for one in progress_bar(done, progress, total=len(missing), desc="experiments"):
        known[one.key] = one

    results = []
    for task in tasks:
        one = copy(known[task.key])  # equal settings may stand under several axes
        one.axes = dict(task.row.axes)
        one.keep = task.experiment.keep
        results.append(one)
        if one.numbers.get("stopped"):
            warnings.warn(f"{task.row}: {one.numbers['stopped']}", stacklevel=2)
    return results


def look_up(
    tasks: Sequence[Task], since: float = 0.0, ledgers: Iterable[Ledger] = ()
) -> dict[str, Finished]:
    """Return what is there already, by key: from the store, else from a ledger."""
    known: dict[str, Finished] = {}
    wanted = {task.key for task in tasks}
    for key in wanted:
        done = load(key, since)
        if done is not None:
            known[key] = done
    for ledger in ledgers:
        left = wanted - set(known)
        if left and ledger.exists:
            for done in ledger.finished(left):
                known[done.key] = done
    return known


def ignored_before(fresh: bool | None) -> float:
    """Return the time before which stored files are ignored: 0 for none.

    With ``FLTNB_FRESH`` it is the start of this process.
    """
    if fresh is None:
        wished = os.environ.get("FLTNB_FRESH", "") not in ("", "0")
        return _BEGUN if wished else 0.0
    return time.time() if fresh else 0.0


def _done(
    missing: list[Task],
    n_jobs: int,
    progress: bool,
    device: str,
    backend: str,
    since: float,
) -> Iterator[Finished]:
    """Compute what is missing: the trainings last."""
    trainings = [task for task in missing if task.experiment.kind == "training"]
    cluster = machines.active() if trainings else None
    if cluster is not None:
        machines.check(cluster)
    yield from _without_training(missing, n_jobs)

    used = _clusterings(trainings, progress, since, cluster)
    calls = {
        task.key: (task.row, task.key, device, backend, since) for task in trainings
    }
    if cluster is not None:
        yield from _on_cluster(cluster, calls, used, since)
    elif n_jobs == 1 or len(trainings) < 2:
        cache = functools.partial(cached_arrays, since=since)
        for task in trainings:
            known = load(task.key, since)  # a study may have computed it
            yield known or train(task, cache, device, backend, None, progress, since)
    else:
        delayed = (joblib.delayed(_one)(*call) for call in calls.values())
        yield from joblib.Parallel(n_jobs=n_jobs, return_as="generator")(delayed)


_SHARED = {
    "clustering": ("federation", "encoder"),
    "distances": ("federation", "model", "training", "seed"),
}
"""Kind -> settings whose embedding or local models several experiments share."""


def _without_training(missing: list[Task], n_jobs: int) -> Iterator[Finished]:
    """Yield clusterings, distances and studies; shared work is done once."""
    groups: dict[str, dict[str, list[Task]]] = {"clustering": {}, "distances": {}}
    for task in missing:
        kind = task.experiment.kind
        if kind in groups:
            settings = task.experiment.settings
            same = json.dumps([settings.get(name) for name in _SHARED[kind]])
            groups[kind].setdefault(same, []).append(task)

    clusterings = list(groups["clustering"].values())
    at_a_time = n_jobs if len(clusterings) > 1 else 1
    each = n_jobs // at_a_time
    calls = (joblib.delayed(measure.cluster)(group, each) for group in clusterings)
    for done in joblib.Parallel(n_jobs=at_a_time, return_as="generator")(calls):
        yield from done
    for group in groups["distances"].values():
        yield from measure.distances(group, n_jobs)
    for task in missing:
        if task.experiment.kind == "study":
            yield measure.study(task)


def _clusterings(
    trainings: list[Task], progress: bool, since: float, cluster: Any
) -> dict[str, list]:
    """Make the clusterings that many runs share, each once and with all cores.

    Return the files that each run uses.
    """
    used: dict[str, list] = {task.key: [] for task in trainings}
    here = nullcontext()
    if cluster is not None:
        here = joblib.parallel_config(backend="loky")
    with here:
        for task in trainings:

            def cache(key, make, files=used[task.key]):
                files.append(arrays_path(key))
                return cached_arrays(key, make, since)

            context = Context(task.experiment.seed, cache, progress)
            task.experiment.method.prepare(task.fed, context)
    return used


def _on_cluster(
    cluster: Any, calls: dict[str, tuple], used: dict[str, list], since: float
) -> Iterator[Finished]:
    """Compute trainings on a Dask cluster, which gets the clusterings that they use."""
    files = {}
    needs = {}
    for key, paths in used.items():
        needs[key] = [path.name for path in paths]
        for path in paths:
            files[path.name] = path.read_bytes()
    for key, done in machines.gather(cluster, _remote, calls, files, needs):
        # Without a common file system the worker's store is not this one.
        yield load(key, since) or save(done)


def _one(
    row: Row, key: str, device: str, backend: str, since: float, cache: Any = None
) -> Finished:
    """Compute one training in a process of its own.

    What another process has just computed is not computed again.
    """
    task = prepare(row)
    if task.key != key:
        raise FltnbError(
            f"{row}: its code or its data are not the caller's; give every machine "
            "the same."
        )
    known = load(key, since)
    if known is not None:
        return known
    cache = cache or functools.partial(cached_arrays, since=since)
    return train(task, cache, device, backend, 1, False, since)


# Two runs in one process would undo each other's limits on threads.
_ALONE = threading.Lock()


def _remote(
    row: Row,
    key: str,
    device: str,
    backend: str,
    since: float,
    clusterings: dict[str, bytes],
) -> Finished:
    """Compute one training on a Dask worker, with the clusterings of the caller."""

    def cache(arrays_key: dict[str, Any], make):
        content = clusterings.get(arrays_path(arrays_key).name)
        if content is None:
            return cached_arrays(arrays_key, make, since)
        return read_arrays(content)

    # A daemonic process may have no processes of its own: it would train with another
    # engine, which differs in the last bits. Dask's own switch must be set on every
    # machine beforehand, which is easily forgotten.
    config = getattr(multiprocessing.current_process(), "_config", {})
    with _ALONE, patch.dict(config, daemon=False):
        try:
            return _one(row, key, device, backend, since, cache)
        except FltnbError as error:
            where = socket.gethostname()
            raise FltnbError(
                f"{row} cannot run on the Dask worker on {where}: {error}"
            ) from error
