"""Compute the experiments of a notebook, without Jupyter, into its ledger."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..data.prepared import origin
from ..errors import FltnbError
from ..experiments import Grid, Ledger, Row, compute, stored
from ..experiments.asking import ledger_names
from ..experiments.plan import Planned, plan, within
from ..experiments.saving import datasets
from .grids import grids, notebook_file


def asked(notebook: str, profile: str = "", table: str = "") -> Grid:
    """Return the experiments of a notebook, or those of one of its printed tables.

    Parameters
    ----------
    notebook : str
        Number or name.
    profile : str
        Such as "demo"; by default the notebook's own parameters.
    table : str
        Such as "T1"; by default all experiments.

    Raises
    ------
    FltnbError
        An unknown notebook or profile, or a table that the notebook does not have.
    """
    rows: list[Row] = []
    there: list[str] = []  # tables, in the order of the notebook
    for grid in grids(notebook, profile):
        for row in grid:
            own = _tables(row, grid)
            for name in own:
                if name not in there:
                    there.append(name)
            if not table or table in own:
                rows.append(row)
    if table and table not in there:
        mend = "it has none, so leave --table out"
        if there:
            mend = f"choose one of {', '.join(there)}"
        raise FltnbError(f"Notebook {notebook} has no table {table!r}: {mend}.")
    return Grid(rows)


def by_table(
    notebook: str, profile: str, planned: Sequence[Planned]
) -> dict[str, list[Planned]]:
    """Return the missing experiments of each printed table of a notebook.

    Parameters
    ----------
    notebook, profile : str
        As for :func:`asked`.
    planned : sequence of Planned
    """
    tables: dict[str, list[Planned]] = {}
    ids: dict[str, set[str]] = {}
    for grid in grids(notebook, profile):
        for row in grid:
            for name in _tables(row, grid):
                held = ids.setdefault(name, set())
                held.add(row.experiment.id)
    for name, held in ids.items():
        tables[name] = []
        for one in planned:
            first = one.rows[0]  # all of them are of one experiment
            if first.experiment.id in held:
                tables[name].append(one)
    return tables


def _tables(row: Row, grid: Grid) -> list[str]:
    """Return the printed tables of a row: of its axis ``table``, else of its grid."""
    if "table" in row.axes:
        return str(row.axes["table"]).split()
    return list(grid.tables)


def missing(rows: Grid, fresh: bool = False) -> list[Planned]:
    """Return experiments that no ledger has, the largest worth per minute first.

    A result on compressed copies of images is not the result of an experiment whose
    official images are prepared here, nor the other way round: it is computed anew. So
    is one that lacks an array of ``keep``.

    Parameters
    ----------
    rows : Grid
    fresh : bool
        Return all experiments, also stored ones.
    """
    held = stored()
    finished = []
    for found in held.values():
        for _, done in found:
            finished.append(done)
    there = set()
    if not fresh:
        here = functools.cache(origin)
        for one, wanted in _wanted(rows).items():
            for _, done in held.get(one, ()):
                serves = wanted <= set(done.arrays)
                if serves and _of_these_images(done.record, here):
                    there.add(one)
    return plan(rows, there, finished)


def _wanted(rows: Grid) -> dict[str, set[str]]:
    """Return the arrays that a result must have, by the id of its experiment."""
    wanted: dict[str, set[str]] = {}
    for row in rows:
        arrays = wanted.setdefault(row.experiment.id, set())
        arrays |= row.experiment.needed
    return wanted


def _of_these_images(record: dict[str, Any], here: Callable[[str], str]) -> bool:
    """Whether a result is on copies of as many sets as are copies here.

    Where a set is not prepared, nothing can be computed anew.

    Parameters
    ----------
    record : dict
        The result's settings and provenance.
    here : function
        The origin of a data set here, "" if it is not prepared.
    """
    origins = [here(name) for name in datasets(record["settings"])]
    if not all(origins):
        return True
    then = record["provenance"].get("data_origin", "")
    return then.count("copies") == " ".join(origins).count("copies")


def compute_all(notebook: str, rows: Grid, keep: bool = True, **options: Any) -> int:
    """Compute experiments and add them to the notebook's ledger; return their number.

    Parameters
    ----------
    notebook : str
        Number or name.
    rows : Grid
    keep : bool
        False leaves them in the local store, as for the profile ``demo``.
    **options
        Options of :func:`fltnb.compute`.
    """
    every = [Ledger(file) for file in _others(notebook)]
    done = compute(rows, ledgers=every, **options)
    if keep:
        _ledger(notebook).merge(done)
    return len({one.key for one in done})


def compute_within(
    notebook: str,
    planned: Sequence[Planned],
    seconds: float,
    keep: bool = True,
    **options: Any,
) -> int:
    """Compute the most useful missing experiments within a time; return their number.

    Each result is added to the ledger as soon as it is computed.

    Parameters
    ----------
    notebook : str
        Number or name.
    planned : sequence of Planned
        The result of :func:`missing`.
    seconds : float
        The available time.
    keep : bool
        As for :func:`compute_all`.
    **options
        Options of :func:`fltnb.compute`.

    Raises
    ------
    FltnbError
        The time is too short for any of them.
    """
    ledger = _ledger(notebook)

    def work(rows: list[Row]) -> None:
        done = compute(rows, **options)
        if keep:
            ledger.merge(done)

    return within(planned, seconds, work)


def _ledger(notebook: str) -> Ledger:
    """Return the ledger of a notebook."""
    return Ledger(notebook_file(notebook).stem)


def _others(notebook: str) -> list[str]:
    """Return the names of all ledgers, the notebook's own first."""
    own = notebook_file(notebook).stem
    return [own, *(name for name in ledger_names() if name != own)]
