"""What a notebook asks for: its cells of parameters and experiments, by themselves."""

import contextlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import experiments, paths
from ..errors import FltnbError
from ..experiments import Grid, Row
from .parameters import assigned, checked


@dataclass(frozen=True)
class Cell:
    """Source of a cell, and the printed tables that its tags name, such as T1."""

    source: str
    tables: tuple[str, ...] = ()


AS_IT_STANDS = ("", "paper")
"""Profiles that change no parameter where there is no file for them."""


def grids(
    notebook: str, profile: str = "", given: Mapping[str, Any] | None = None
) -> list[Grid]:
    """Return the grids that a notebook passes to :func:`fltnb.results`, in order.

    Nothing is read or computed. FltnbError: an unknown notebook, a parameter that it
    does not have, or a grid that cannot be made.

    Parameters
    ----------
    notebook : str, number or name of the notebook, such as "01"
    profile : str, such as "demo": parameters are changed as in
        ``notebooks/profiles/<profile>/<number>.yaml``
    given : parameter -> value, changed besides
    """
    cells = code_cells(notebook)
    own = assigned(cells["parameters"][0].source)
    namespace = own | checked(own, profile_values(notebook, profile, own))
    namespace |= checked(own, given or {})
    silent = contextlib.redirect_stdout(io.StringIO())
    found: list[Grid] = []
    with experiments.collecting() as asked, silent:
        for cell in cells["experiment"]:
            source = compile(cell.source, f"<notebook {notebook[:2]}>", "exec")
            exec(source, namespace)
            for grid in asked[len(found) :]:
                rows = [_with_tables(row, cell.tables) for row in grid]
                found.append(Grid(rows, cell.tables))
    return found


def _with_tables(row: Row, tables: tuple[str, ...]) -> Row:
    """Name the printed tables beside which a study's numbers stand.

    So the report finds them in the ledger; a grid may have an axis ``table`` itself.
    """
    if row.experiment.kind != "study" or not tables or "table" in row.axes:
        return row
    return Row(row.axes | {"table": " ".join(tables)}, row.experiment)


def profile_values(
    notebook: str, profile: str, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters that a profile changes, checked against the notebook's."""
    import yaml

    file = paths.ROOT / "notebooks" / "profiles" / profile / f"{notebook[:2]}.yaml"
    if not file.is_file() and profile in AS_IT_STANDS:
        return {}
    if not file.is_file():
        there = sorted(folder.name for folder in file.parents[1].glob("*"))
        raise FltnbError(
            f"The profile {profile!r} has no parameters for notebook {notebook[:2]} "
            f"({file.relative_to(paths.ROOT)}): choose paper or {', '.join(there)}."
        )
    given = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    return checked(own, given, str(file.relative_to(paths.ROOT)))


def papermill_parameters(notebook: str, profile: str) -> dict[str, Any]:
    """Return what papermill puts into a notebook for a profile, which computes."""
    own = assigned(tagged_cells(notebook)["parameters"][0].source)
    return profile_values(notebook, profile, own) | {"compute": True}


def code_cells(notebook: str) -> dict[str, list[Cell]]:
    """Return the sources of the cells of a page: one of parameters, some experiments.

    FltnbError: the notebook has no such cells.
    """
    found = tagged_cells(notebook)
    if len(found["parameters"]) != 1 or not found["experiment"]:
        raise FltnbError(
            f"Notebook {notebook} has no cells of parameters and experiments: "
            "tag them parameters and experiment."
        )
    return found


def tagged_cells(notebook: str) -> dict[str, list[Cell]]:
    """Return a notebook's cells with the tags of a page."""
    found: dict[str, list[Cell]] = {"parameters": [], "experiment": []}
    written = json.loads(notebook_file(notebook).read_text(encoding="utf-8"))
    for cell in written["cells"]:
        tags = cell["metadata"].get("tags", [])
        tables = tuple(tag for tag in tags if re.fullmatch("T([0-9]+|I+)", tag))
        for tag in tags:
            if tag in found:
                found[tag].append(Cell("".join(cell["source"]), tables))
    return found


def with_experiments() -> list[str]:
    """Return the names of the notebooks that have cells of experiments."""
    files = sorted((paths.ROOT / "notebooks").glob("[0-9]*.ipynb"))
    return [file.stem for file in files if tagged_cells(file.stem)["experiment"]]


def notebook_file(notebook: str) -> Path:
    """Return the file of a notebook by its number or name."""
    folder = paths.ROOT / "notebooks"
    name = notebook.removesuffix(".ipynb")
    files = [*folder.glob(f"{name}.ipynb"), *folder.glob(f"{name}_*.ipynb")]
    if not files:
        known = ", ".join(sorted(file.stem for file in folder.glob("[0-9]*.ipynb")))
        raise FltnbError(f"There is no notebook {notebook!r}: choose one of {known}.")
    return files[0]
