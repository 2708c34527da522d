"""Every folder and file-writing habit of the project, in one place.

Kernels start in different working directories (JupyterLab and nbval in the notebook's folder, papermill in the
caller's), so no other module builds a relative path.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from .errors import FltnbError

ROOT = Path(__file__).resolve().parent.parent


def results(profile: str) -> Path:
    """Tidy CSV results of one profile."""
    return ROOT / "results" / profile


def figures(profile: str) -> Path:
    """Figures of one profile."""
    return ROOT / "figures" / profile


def store() -> Path:
    """Return the folder of computed runs and trained encoders (``$FLTNB_STORE``, else ``results/store``)."""
    return ROOT / (os.environ.get("FLTNB_STORE") or "results/store")


def data() -> list[Path]:
    """Folders searched for prepared data sets, in order (``$FLTNB_DATA``, then ``data/``)."""
    given = os.environ.get("FLTNB_DATA")
    return ([ROOT / given] if given else []) + [ROOT / "data"]


def write_atomically(path: Path | str, write: Callable[[IO[bytes]], None]) -> Path:
    """Write a file so that a reader sees the old one or the whole new one, never half of it.

    Parameters
    ----------
    path : path
        Final name; its folder is made if need be.
    write : callable
        Gets a binary file open for writing.

    Raises
    ------
    FltnbError
        The disk is full or the folder cannot be written; the old file, if any, is untouched.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # NamedTemporaryFile makes it private; results are meant to be shared
        temporary.replace(path)
    except OSError as error:
        raise FltnbError(
            f"Cannot write {path} ({error.strerror or error}): free some space or choose another folder, then run"
            " the same command again; what was computed before is kept."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path
