"""From a grid to its results: read by what an experiment is, or computed as well."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from .. import paths
from ..methods.ownmodels import OwnModels
from ..results.computing import compute as compute_jobs
from ..results.job import Job, digest
from ..results.ledger import Ledger
from ..results.reading import Results
from .grid import Grid

_collected: list[list[Grid]] = []


class Found(Results):
    """Results of a grid, which may lack some."""

    asked = 0

    def __repr__(self) -> str:
        missing = self.asked - len(self)
        told = f"{len(self)} of {self.asked} runs"
        return f"{told}; {missing} are not stored" if missing else told


def results(
    jobs: Grid, compute: bool = False, n_jobs: int = 1, device: str = "auto"
) -> Results:
    """Return the results of a grid: what is stored, or with ``compute`` all of it.

    Parameters
    ----------
    jobs : Grid, of :func:`fltnb.grid`
    compute : bool, compute what is not stored
    n_jobs, device : as for :func:`fltnb.compute`
    """
    if _collected:
        _collected[-1].append(jobs)
        return Found([])
    made = [row.experiment.job(row.axes) for row in jobs]
    if compute:
        books = [Ledger(profile, name) for profile, name in _books()]
        own = [job for job in made if _own_networks(job.settings)]
        there = {job.id: job for job in own if job.id in _stored()}
        missing = [job for job in made if job.id not in there]
        done = compute_jobs(
            missing, n_jobs, progress=False, device=device, ledgers=books
        )
        finished = [("", "", one) for one in done]
        finished += [_read(job) for job in made if job.id in there]
    else:
        finished = [_read(job) for job in made if job.id in _stored()]
    found = Found(finished)
    found.asked = len(made)
    return found


@contextmanager
def collecting() -> Iterator[list[Grid]]:
    """Note the grids that :func:`results` is asked for, in place of reading them."""
    asked: list[Grid] = []
    _collected.append(asked)
    try:
        yield asked
    finally:
        _collected.pop()


def _books() -> list[tuple[str, str]]:
    """Return profile and notebook of every ledger, the most trusted first."""
    found = []
    for profile in ("paper", "small"):
        for file in sorted(paths.results(profile).glob("[0-9]*.csv")):
            found.append((profile, file.stem))
    return found


@functools.cache
def _stored() -> dict[str, list[tuple[str, str, Any]]]:
    """Return what is stored, by what the experiment is, the most trusted first."""
    found: dict[str, list[tuple[str, str, Any]]] = {}
    for profile, notebook in _books():
        for done in Ledger(profile, notebook).finished():
            found.setdefault(_id(done), []).append((notebook, profile, done))
    return found


def _read(job: Job) -> tuple[str, str, Any]:
    """Return notebook, profile and result of a job that is stored, under its axes.

    Ledgers keep different arrays of the same result: take one that has the job's.
    """
    held = _stored()[job.id]
    whole = []
    if job.keep:
        whole = [one for one in held if set(job.keep) <= set(one[2].arrays)]
    notebook, profile, done = (whole or held)[0]
    done = copy(done)
    done.axes = dict(job.axes)
    return notebook, profile, done


def _id(done: Any) -> str:
    """Return what a stored result is found by.

    Clients' own networks were stored with options that equal a default, which
    :meth:`fltnb.OwnModels.settings` leaves out.
    """
    settings = done.record["settings"]
    if not _own_networks(settings):
        return done.record["id"]
    options = {name: settings["encoder"][name] for name in settings["encoder"]}
    del options["kind"]
    encoder = OwnModels(**options).settings()
    return digest({"kind": done.kind, "settings": settings | {"encoder": encoder}})


def _own_networks(settings: dict[str, Any]) -> bool:
    """Whether a clustering sees samples through every client's own network."""
    return settings.get("encoder", {}).get("kind") == "own"
