"""The grids of a notebook: its cells of parameters and experiments, run separately."""

import contextlib
import io
import json
import os
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import experiments, paths
from ..errors import FltnbError, first_line
from ..experiments import Grid, Row
from .parameters import Values, assigned, checked


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook.

    Attributes
    ----------
    source : str
    tables : tuple of str
        The printed tables named by its tags, such as T1.
    """

    source: str
    tables: tuple[str, ...] = ()


Cells = dict[str, list[Cell]]
"""Tag ("parameters" or "experiment") -> the cells that have it, in order."""

AS_IT_STANDS = ("", "paper")
"""Profiles that change no parameter if they have no file."""


def grids(notebook: str, profile: str = "", given: Values | None = None) -> list[Grid]:
    """Return the grids that a notebook passes to :func:`fltnb.results`, in order.

    Its cells of parameters and experiments are executed, the others are not. Nothing is
    read or computed.

    Parameters
    ----------
    notebook : str
        Number or name of the notebook, such as "01".
    profile : str
        Such as "demo": parameters are changed as in
        ``notebooks/profiles/<profile>/<number>.yaml``.
    given : dict, optional
        Parameter -> value, further changes.

    Raises
    ------
    FltnbError
        An unknown notebook, a parameter that it does not have, or a grid that cannot be
        made.
    """
    cells = code_cells(notebook)
    own = assigned(cells["parameters"][0].source)
    namespace = own | checked(own, profile_values(notebook, profile, own))
    namespace.update(checked(own, given or {}))
    return _grids(notebook, cells["experiment"], namespace)


def check_experiments(notebook: str, values: Mapping[str, Any]) -> None:
    """Check all experiments of a notebook before the first one is computed.

    So what a late cell would refuse does not stop a notebook after hours. Federations
    are built, nothing is read from ledgers or computed.

    Parameters
    ----------
    notebook : str
        Number or name.
    values : mapping
        Its parameters, name -> value. If one of the stored notebook's is missing, this
        is another notebook, and nothing is checked.

    Raises
    ------
    FltnbError
        An experiment cannot run, or a cell fails with these parameters.
    """
    cells = tagged_cells(notebook)
    own = "\n".join(cell.source for cell in cells["parameters"])
    names = assigned(own)
    if not names.keys() <= values.keys():
        return
    namespace = deepcopy({name: values[name] for name in names})
    try:
        for grid in _grids(notebook, cells["experiment"], namespace):
            experiments.check_all(grid)
    except FltnbError:
        raise
    except Exception as error:
        raise FltnbError(
            f"With these parameters a cell of experiments of notebook {notebook} fails "
            f"({type(error).__name__}: {first_line(error)}): compare the cell of "
            "parameters with the stored one."
        ) from error


def _grids(notebook: str, cells: list[Cell], namespace: Values) -> list[Grid]:
    """Return the grids of cells of experiments, which are executed in a namespace."""
    silent = contextlib.redirect_stdout(io.StringIO())
    found: list[Grid] = []
    with experiments.asking.collecting() as asked, silent:
        for cell in cells:
            source = compile(cell.source, f"<notebook {notebook[:2]}>", "exec")
            exec(source, namespace)
            for grid in asked[len(found) :]:
                rows = [_with_tables(row, cell.tables) for row in grid]
                found.append(Grid(rows, cell.tables))
    return found


def _with_tables(row: Row, tables: tuple[str, ...]) -> Row:
    """Name the printed tables to which a study's numbers belong.

    So the report finds them in the ledger; a grid may also have an axis ``table``.
    """
    if row.experiment.kind != "study" or not tables or "table" in row.axes:
        return row
    beside = {"table": " ".join(tables)}
    return Row(row.axes | beside, row.experiment)


def profile_values(notebook: str, profile: str, own: Values) -> Values:
    """Return the parameters that a profile changes, checked against the notebook's.

    Parameters
    ----------
    notebook : str
        Number or name.
    profile : str
        The name of a folder of ``notebooks/profiles``; those of :data:`AS_IT_STANDS`
        need none.
    own : dict
        The notebook's own parameters.

    Raises
    ------
    FltnbError
        There is no such profile for the notebook, or it has values that the notebook
        cannot use.
    """
    import yaml

    number = notebook[:2]
    profiles = paths.ROOT / "notebooks" / "profiles"
    file = profiles / profile / f"{number}.yaml"
    shown = os.path.relpath(file, paths.ROOT)
    if file.is_file():
        try:
            given = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        except yaml.YAMLError as error:
            raise FltnbError(
                f"{shown} is not YAML ({first_line(error)}): write a line such as "
                "`rounds: 20` for each parameter."
            ) from error
        if not isinstance(given, dict):
            raise FltnbError(
                f"{shown} names no parameters: write a line such as `rounds: 20` for "
                "each of them."
            )
        return checked(own, given, shown)
    if profile in AS_IT_STANDS:
        return {}
    there = {one.parent.name for one in profiles.glob(f"*/{number}.yaml")}
    there.add("paper")
    raise FltnbError(
        f"The profile {profile!r} has no parameters for notebook {number} ({shown}): "
        f"choose {' or '.join(sorted(there))}."
    )


def papermill_parameters(notebook: str, profile: str) -> Values:
    """Return what papermill puts into a notebook for a profile, which computes."""
    cells = tagged_cells(notebook)
    own = assigned(cells["parameters"][0].source)
    return profile_values(notebook, profile, own) | {"compute": True}


def code_cells(notebook: str) -> Cells:
    """Return the sources of the cells of a page: one of parameters, some experiments.

    Raises FltnbError if the notebook has no such cells.
    """
    found = tagged_cells(notebook)
    if len(found["parameters"]) != 1 or not found["experiment"]:
        raise FltnbError(
            f"Notebook {notebook} has no cells of parameters and experiments: "
            "tag them parameters and experiment."
        )
    return found


def tagged_cells(notebook: str) -> Cells:
    """Return a notebook's cells with the tags of a page."""
    found: Cells = {"parameters": [], "experiment": []}
    text = notebook_file(notebook).read_text(encoding="utf-8")
    for cell in json.loads(text)["cells"]:
        tags = cell["metadata"].get("tags", [])
        tables = [tag for tag in tags if re.fullmatch("T([0-9]+|I+)", tag)]
        for tag in found:
            if tag in tags:
                source = "".join(cell["source"])
                found[tag].append(Cell(source, tuple(tables)))
    return found


def all_notebooks() -> list[str]:
    """Return the names of all notebooks in order.

    Raises FltnbError outside a clone of the repository.
    """
    return [file.stem for file in paths.notebooks()]


def with_experiments() -> list[str]:
    """Return the names of the notebooks that have cells of experiments."""
    return [name for name in all_notebooks() if tagged_cells(name)["experiment"]]


def notebook_file(notebook: str) -> Path:
    """Return the file of a notebook by its number or name.

    Raises FltnbError if there is no such notebook.
    """
    name = notebook.removesuffix(".ipynb")
    known = all_notebooks()
    for one in known:
        if one == name or one.startswith(f"{name}_"):
            return paths.ROOT / "notebooks" / f"{one}.ipynb"
    every = ", ".join(known)
    raise FltnbError(f"There is no notebook {notebook!r}: choose one of {every}.")
