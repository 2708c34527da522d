"""The one way from jobs to results: look up, resume or compute, here or on a Dask cluster."""

import functools
import json
import multiprocessing
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from typing import Any
from unittest.mock import patch

import joblib

from ..errors import FltnbError
from ..methods import Context
from ..progress import bar as progress_bar
from ..settings import Count, check
from . import machines, work
from .finished import Finished, load, read_arrays, save
from .job import Job, Prepared, prepare
from .ledger import Ledger

_BEGUN = time.time()


def compute(
    jobs: Sequence[Job] | Job,
    n_jobs: int = 1,
    fresh: bool | None = None,
    progress: bool = True,
    device: str = "auto",
    backend: str = "auto",
    ledgers: Iterable[Ledger] = (),
) -> list[Finished]:
    """Return what jobs give, in their order: from a ledger or the store, resumed, or computed and stored.

    FltnbError: a job cannot run (unknown method, too many clusters, ...), or the Dask cluster cannot be used; found
    before any of them starts. UserWarning: a client's loss was not finite; the run is stored up to the round before.

    Parameters
    ----------
    jobs : sequence of Job
    n_jobs : int
        Jobs at a time, in processes of their own. A Dask cluster takes their place (:mod:`fltnb.results.machines`).
    fresh : bool, optional
        Ignore what was stored before this call; by default ``FLTNB_FRESH`` decides; what this process stored counts.
    progress : bool
    device, backend : str, as for :func:`fltnb.training.make_engine`
    ledgers : iterable of Ledger, where to look before anything is computed
    """
    jobs = [jobs] if isinstance(jobs, Job) else list(jobs)
    n_jobs = check("n_jobs", n_jobs, Count)
    prepared = [prepare(job) for job in jobs]
    since = ignored_before(fresh)
    known = look_up(prepared, since, () if since else ledgers)
    for key in known:  # of a run that was killed when it had just been saved
        work.checkpoint_path(key).unlink(missing_ok=True)
    missing = {made.key: made for made in prepared if made.key not in known}
    for made in missing.values():
        if made.job.kind == "clustering":
            work.check_clustering(made)
    done = _done(list(missing.values()), n_jobs, progress, device, backend, since)
    known |= {
        one.key: one
        for one in progress_bar(done, progress, total=len(missing), desc="jobs")
    }
    results = []
    for made in prepared:
        done = copy(known[made.key])  # equal settings may stand under several names
        done.axes, done.keep = dict(made.job.axes), made.job.keep
        results.append(done)
        if done.numbers.get("stopped"):
            warnings.warn(f"{made.job}: {done.numbers['stopped']}", stacklevel=2)
    return results


def look_up(
    prepared: Sequence[Prepared], since: float = 0.0, ledgers: Iterable[Ledger] = ()
) -> dict[str, Finished]:
    """Return what is there already, by key: from the store, else from a ledger."""
    known = {
        key: done
        for key in {made.key: made for made in prepared}
        if (done := load(key, since)) is not None
    }
    for ledger in ledgers:
        wanted = {made.key for made in prepared} - set(known)
        if wanted and ledger.exists:
            known |= {done.key: done for done in ledger.finished(wanted)}
    return known


def ignored_before(fresh: bool | None) -> float:
    """Return the time before which stored files are ignored: 0, now, or with FLTNB_FRESH the process's start."""
    if fresh is None:
        return _BEGUN if os.environ.get("FLTNB_FRESH", "") not in ("", "0") else 0.0
    return time.time() if fresh else 0.0


def _done(
    missing: list[Prepared],
    n_jobs: int,
    progress: bool,
    device: str,
    backend: str,
    since: float,
) -> Iterator[Finished]:
    """Compute what is missing: the trainings last, here, in processes or on a Dask cluster."""
    trainings = [made for made in missing if made.job.kind == "training"]
    cluster = machines.active() if trainings else None
    if cluster is not None:
        machines.check(cluster)
    yield from _studies(missing, n_jobs)
    for made in trainings:
        with suppress(
            OSError
        ):  # a checkpoint from before is ignored with what was stored before
            path = work.checkpoint_path(made.key)
            if path.stat().st_mtime < since:
                path.unlink()
    used = _clusterings(trainings, progress, since, cluster)
    tasks = {
        made.key: (made.job, made.key, device, backend, since) for made in trainings
    }
    if cluster is not None:
        files = {
            path.name: path.read_bytes() for paths in used.values() for path in paths
        }
        needs = {key: [path.name for path in paths] for key, paths in used.items()}
        for key, done in machines.gather(cluster, _remote, tasks, files, needs):
            # without a common file system the worker's store is not this one
            yield load(key, since) or save(done)
    elif n_jobs == 1 or len(trainings) < 2:
        cache = functools.partial(work.cached_arrays, since=since)
        for made in trainings:
            # a study may have computed it
            yield load(made.key, since) or work.train(
                made, cache, device, backend, None, progress, since
            )
    else:
        calls = (joblib.delayed(_one)(*task) for task in tasks.values())
        yield from joblib.Parallel(n_jobs=n_jobs, return_as="generator")(calls)


def _studies(missing: list[Prepared], n_jobs: int) -> Iterator[Finished]:
    """Clusterings, distances and other studies; those that share an embedding or local models are made together."""
    groups: dict[str, dict[str, list[Prepared]]] = {
        "clustering": {},
        "distances": {},
        "study": {},
    }
    shared = {
        "clustering": ("federation", "encoder"),
        "distances": ("federation", "model", "training", "seed"),
    }
    for made in missing:
        if made.job.kind in groups:
            same = [
                made.job.canonical.get(name) for name in shared.get(made.job.kind, ())
            ] or made.key
            groups[made.job.kind].setdefault(
                json.dumps(same, sort_keys=True), []
            ).append(made)
    clusterings, distances, studies = (
        list(alike.values()) for alike in groups.values()
    )
    groups_at_a_time = n_jobs if len(clusterings) > 1 else 1
    calls = (
        joblib.delayed(work.cluster)(group, n_jobs // groups_at_a_time)
        for group in clusterings
    )
    for done in joblib.Parallel(n_jobs=groups_at_a_time, return_as="generator")(calls):
        yield from done
    for group in distances:
        yield from work.distances(group, n_jobs)
    for (made,) in studies:
        yield work.study(made)


def _clusterings(
    trainings: list[Prepared], progress: bool, since: float, cluster
) -> dict[str, list]:
    """Make the clusterings that many runs share, each once and with all cores; return the files that each run uses."""
    used: dict[str, list] = {made.key: [] for made in trainings}
    with (
        joblib.parallel_config(backend="loky") if cluster is not None else nullcontext()
    ):
        for made in trainings:

            def cache(key, make, files=used[made.key]):
                files.append(work.arrays_path(key))
                return work.cached_arrays(key, make, since)

            made.job.method.prepare(made.fed, Context(made.job.seed, cache, progress))
    return used


def _one(
    job: Job, key: str, device: str, backend: str, since: float, cache=None
) -> Finished:
    """Compute one training in a process of its own; what another one has just computed is not computed again."""
    made = prepare(job)
    if made.key != key:
        raise FltnbError(
            f"{job}: its code or its data are not the caller's; give every machine the same."
        )
    if (known := load(key, since)) is not None:
        return known
    cache = cache or functools.partial(work.cached_arrays, since=since)
    return work.train(made, cache, device, backend, 1, False, since)


_ALONE = (
    threading.Lock()
)  # two runs in one process would undo each other's limits on threads


def _remote(
    job: Job,
    key: str,
    device: str,
    backend: str,
    since: float,
    clusterings: dict[str, bytes],
) -> Finished:
    """Compute one training on a Dask worker, with the clusterings that the caller made."""

    def cache(arrays_key: dict[str, Any], make):
        content = clusterings.get(work.arrays_path(arrays_key).name)
        return (
            work.cached_arrays(arrays_key, make, since)
            if content is None
            else read_arrays(content)
        )

    # Without processes of its own, which a daemonic process may not have, a worker would train with another engine,
    # which differs in the last bits. Dask's own switch must be set on every machine beforehand: easily forgotten.
    with (
        _ALONE,
        patch.dict(
            getattr(multiprocessing.current_process(), "_config", {}), daemon=False
        ),
    ):
        try:
            return _one(job, key, device, backend, since, cache)
        except FltnbError as error:
            raise FltnbError(
                f"{job} cannot run on the Dask worker on {socket.gethostname()}: {error}"
            ) from error
