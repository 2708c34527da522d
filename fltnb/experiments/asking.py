"""From a grid, or the name of a notebook, to results.

An experiment is found by its settings, in the ledger of any notebook.
"""

import functools
from collections import defaultdict
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
    """Results of a grid, of which some may be missing.

    Attributes
    ----------
    asked : Grid, optional
        The requested grid; None for a selection or a sum, of which nothing is missing.
    """

    asked: Grid | None = None

    def __repr__(self) -> str:
        if self.asked is None:
            return f"{len(self)} run{'' if len(self) == 1 else 's'}"
        told = f"{len(self)} of {len(self.asked)} runs"
        if len(self) == len(self.asked):
            return told
        return f"{told}; {missing_in_words(self.asked)}"


def results(
    grid: Grid | str, compute: bool = False, n_jobs: int = 1, device: str = "auto"
) -> Results:
    """Return the stored results of a grid; with ``compute``, compute missing ones.

    Parameters
    ----------
    grid : Grid of :func:`fltnb.grid`, or the number or name of a notebook
        For a notebook: everything in its ledger.
    compute : bool
        Compute the results that are not stored. By default they are left out, and the
        text form of the result says how many.
    n_jobs, device : as for :func:`fltnb.compute`

    Raises
    ------
    FltnbError
        A notebook has no results, this is no clone of the repository and so there are
        none of any notebook, or an experiment cannot run.

    Examples
    --------
    >>> import fltnb as fl
    >>> results = fl.results("01")  # what is stored for notebook 01
    >>> len(results.runs) > 100
    True
    """
    if isinstance(grid, str):
        return _of_notebook(grid)
    if _collected:
        _collected[-1].append(grid)
        return Found([])
    if compute:
        books = [Ledger(name) for name in ledger_names()]
        done = compute_rows(grid, n_jobs, device=device, ledgers=books)
        found = Found(("", one) for one in done)
    else:
        there = stored()
        asked = [row for row in grid if row.experiment.id in there]
        found = Found(_read(row, there[row.experiment.id]) for row in asked)
    found.asked = grid
    return found


def missing_in_words(grid: Grid) -> str:
    """Say how much of a grid is not stored, and how long it takes on this machine.

    Without an earlier run of the same kind here, the time is not known.
    """
    there = stored()
    every = []
    for held in there.values():
        for _, done in held:
            every.append(done)
    planned = plan(grid, set(there), every)
    told = f"{len(planned)} are not stored"
    seconds = 0.0
    for one in planned:
        if one.seconds is None:
            return f"{told} (their time on this machine is not known)"
        seconds += one.seconds
    return f"{told} (about {seconds / 60:.0f} min on this machine)"


@contextmanager
def collecting() -> Iterator[list[Grid]]:
    """Record the grids that are requested from :func:`results` instead of reading them.

    Yields a list that grows with every call. So the grids of a notebook can be had from
    its cells without results.
    """
    asked: list[Grid] = []
    _collected.append(asked)
    try:
        yield asked
    finally:
        _collected.pop()


def _files() -> list[Path]:
    """Return the committed ledgers, one for each notebook."""
    return sorted(paths.ledgers().glob("[0-9]*.csv"))


def ledger_names() -> list[str]:
    """Return the notebooks that have a ledger."""
    return [file.stem for file in _files()]


Stored = dict[str, list[tuple[str, Finished]]]
"""Id of an experiment -> notebooks and results."""


def stored() -> Stored:
    """Return the contents of all ledgers; they are read again if a file has changed.

    Results of an older version of the numerics are kept in the files, but not shown.

    Returns
    -------
    dict
        Id of an experiment -> pairs of notebook and result. Several notebooks may have
        the same experiment, with different stored arrays.

    Examples
    --------
    >>> import fltnb as fl
    >>> len(fl.experiments.stored()) > 1000
    True
    """
    files = [(file, file.stat().st_mtime_ns) for file in _files()]
    return _stored(tuple(files))


@functools.lru_cache(maxsize=2)
def _stored(files: tuple[tuple[Path, int], ...]) -> Stored:
    """Read the ledgers of some files.

    ``files``: each with the time of its last change, so that changed files are read.
    """
    found: Stored = defaultdict(list)
    for file, _ in files:
        for done in Ledger(file.stem).finished():
            record = done.record
            data = record["provenance"]["data"]
            current = key_of(record["id"], record["settings"], data)
            if done.key == current:
                found[record["id"]].append((file.stem, done))
    return dict(found)


def _read(row: Row, held: list[tuple[str, Finished]]) -> tuple[str, Finished]:
    """Return notebook and result of a stored experiment, under its axes.

    ``held``: what is stored of it. A result with all arrays that it requests is
    preferred.
    """
    wanted = set(row.experiment.keep)
    notebook, done = held[0]
    if wanted:
        for where, one in held:
            if wanted <= set(one.arrays):
                notebook, done = where, one
                break
    done = copy(done)
    done.axes = dict(row.axes)
    return notebook, done


def _of_notebook(name: str) -> Results:
    """Return everything in the ledger of a notebook, given its number or name."""
    stem = Path(name).stem
    known = ledger_names()
    for notebook in known:
        number, _, _ = notebook.partition("_")
        if stem in (notebook, number):
            return Results((notebook, done) for done in Ledger(notebook).finished())
    paths.notebooks()  # outside a clone nothing can be computed either
    others = f"choose one of {', '.join(known)}, or " if known else ""
    raise FltnbError(
        f"Nothing is stored for a notebook {name!r}: {others}run `python -m fltnb "
        f"compute {stem}`, first with --plan to see how long it takes."
    )
