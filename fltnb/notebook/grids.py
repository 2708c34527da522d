"""What a notebook asks for: its cells of parameters and experiments, by themselves."""

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import experiments, paths
from ..errors import FltnbError
from .parameters import assigned, checked

AS_IT_STANDS = ("", "stored", "paper", "small")
"""Profiles that change no parameter where there is no file for them."""


def grids(
    notebook: str, profile: str = "", given: Mapping[str, Any] | None = None
) -> list[Any]:
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
    own = assigned(cells["parameters"][0])
    namespace = own | checked(own, profile_values(notebook, profile, own))
    namespace |= checked(own, given or {})
    silent = contextlib.redirect_stdout(io.StringIO())
    with experiments.collecting() as asked, silent:
        for source in cells["experiment"]:
            exec(compile(source, f"<notebook {notebook[:2]}>", "exec"), namespace)
    return asked


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
    """Return what papermill puts into a notebook for a profile, which computes.

    A notebook of the older form is told the profile itself.
    """
    own = assigned(tagged_cells(notebook)["parameters"][0])
    if "profile" in own:
        return {"profile": profile}
    return profile_values(notebook, profile, own) | {"compute": True}


def code_cells(notebook: str) -> dict[str, list[str]]:
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


def tagged_cells(notebook: str) -> dict[str, list[str]]:
    """Return the sources of a notebook's cells with the tags of a page."""
    found: dict[str, list[str]] = {"parameters": [], "experiment": []}
    written = json.loads(notebook_file(notebook).read_text(encoding="utf-8"))
    for cell in written["cells"]:
        for tag in cell["metadata"].get("tags", []):
            if tag in found:
                found[tag].append("".join(cell["source"]))
    return found


def notebook_file(notebook: str) -> Path:
    """Return the file of a notebook by its number or name."""
    folder = paths.ROOT / "notebooks"
    name = notebook.removesuffix(".ipynb")
    files = [*folder.glob(f"{name}.ipynb"), *folder.glob(f"{name}_*.ipynb")]
    if not files:
        known = ", ".join(sorted(file.stem for file in folder.glob("[0-9]*.ipynb")))
        raise FltnbError(f"There is no notebook {notebook!r}: choose one of {known}.")
    return files[0]
