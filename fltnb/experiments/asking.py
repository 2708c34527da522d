"""From a grid, or the name of a notebook, to results."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path

from .. import paths
from ..errors import FltnbError
from .computing import compute as compute_rows
from .finished import Finished
from .grid import Grid, Row
from .key import key_of
from .ledger import Ledger
from .plan import plan
from .reading import Results

_collected: list[list[Grid]] = []


class Found(Results):
    """Results of a grid, which may lack some."""

    asked: Grid = Grid([])

    def __repr__(self) -> str:
        told = f"{len(self)} of {len(self.asked)} runs"
        if len(self) == len(self.asked):
            return told
        return f"{told}; {missing_in_words(self.asked)}"


def results(
    jobs: Grid | str, compute: bool = False, n_jobs: int = 1, device: str = "auto"
) -> Results:
    """Return the results of a grid: what is stored, or with ``compute`` all of it.

    Parameters
    ----------
    jobs : Grid of :func:`fltnb.grid`, or the number or name of a notebook
        Of a notebook all that its ledger has.
    compute : bool, compute what is not stored
    n_jobs, device : as for :func:`fltnb.compute`

    Raises
    ------
    FltnbError
        A notebook without results, or an experiment that cannot run.
    """
    if isinstance(jobs, str):
        return _of_notebook(jobs)
    if _collected:
        _collected[-1].append(jobs)
        return Found([])
    if compute:
        books = [Ledger(name) for name in ledger_names()]
        done = compute_rows(jobs, n_jobs, device=device, ledgers=books)
        found = Found([("", one) for one in done])
    else:
        there = stored()
        found = Found([_read(row) for row in jobs if row.experiment.id in there])
    found.asked = jobs
    return found


def missing_in_words(jobs: Grid) -> str:
    """Say how much of a grid is not stored, and what it takes on this machine."""
    there = stored()
    every = [done for held in there.values() for _, done in held]
    planned = plan(jobs, set(there), every)
    known = [one.seconds for one in planned if one.seconds is not None]
    told = f"{len(planned)} are not stored"
    if len(known) < len(planned):
        return f"{told} (what they take on this machine is not known)"
    return f"{told} (about {sum(known) / 60:.0f} min on this machine)"


@contextmanager
def collecting() -> Iterator[list[Grid]]:
    """Note the grids that :func:`results` is asked for, in place of reading them."""
    asked: list[Grid] = []
    _collected.append(asked)
    try:
        yield asked
    finally:
        _collected.pop()


def ledger_names() -> list[str]:
    """Return the notebooks that have a ledger."""
    return sorted(file.stem for file in paths.ledgers().glob("[0-9]*.csv"))


def stored() -> dict[str, list[tuple[str, Finished]]]:
    """Return all ledgers: id of an experiment -> notebooks and results.

    Several notebooks may have the same experiment, with other arrays kept.
    """
    files = sorted(paths.ledgers().glob("[0-9]*.csv"))
    return _stored(tuple((file, file.stat().st_mtime_ns) for file in files))


@functools.lru_cache(maxsize=2)
def _stored(files: tuple[tuple[Path, int], ...]) -> dict:
    found: dict[str, list[tuple[str, Finished]]] = {}
    for file, _ in files:
        for done in Ledger(file.stem).finished():
            record = done.record
            name, data = record["id"], record["provenance"]["data"]
            # Results of an older version of the numerics are kept, but not shown.
            if done.key == key_of(name, record["settings"], data):
                found.setdefault(name, []).append((file.stem, done))
    return found


def _read(row: Row) -> tuple[str, Finished]:
    """Return notebook and result of an experiment that is stored, under its axes."""
    held = stored()[row.experiment.id]
    keep = set(row.experiment.keep)
    whole = [one for one in held if keep <= set(one[1].arrays)] if keep else []
    notebook, done = (whole or held)[0]
    done = copy(done)
    done.axes = dict(row.axes)
    return notebook, done


def _of_notebook(name: str) -> Results:
    """Return all that the ledger of a notebook has."""
    stem = Path(name).stem
    known = ledger_names()
    names = [full for full in known if stem in (full, full.partition("_")[0])]
    if not names:
        raise FltnbError(
            f"Nothing is stored for a notebook {name!r}: choose one of "
            f"{', '.join(known)}, or run `python -m fltnb compute {stem}`, first with "
            "--plan to see what it takes."
        )
    (full,) = names
    return Results([(full, done) for done in Ledger(full).finished()])
