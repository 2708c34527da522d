"""The project's folders, and functions that write its files.

Kernels start in different working directories (JupyterLab and nbval in the notebook's
folder, papermill in the caller's), so no other module builds a relative path.
"""

import glob
import os
import platform
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from .errors import FltnbError

HOME = Path(__file__).resolve().parent.parent
ROOT = HOME if (HOME / "pyproject.toml").is_file() else Path.cwd()
"""The project's folder; for an installed wheel the working directory."""
DAY = 24 * 60 * 60  # seconds
PROFILES = ("stored", "demo", "paper")
TEMPORARY = re.compile(r".*\.(\d+)\.[0-9a-f]{8}")
"""How the name of a temporary file ends: with the writer's process, and at random."""


def notebooks() -> list[Path]:
    """Return the files of all notebooks, in order.

    Raises FltnbError outside a clone of the repository.
    """
    found = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    if not found:
        raise FltnbError(
            f"This needs the notebooks and the stored results: a wheel has none, nor "
            f"has {ROOT}, so start Python in a clone of the repository."
        )
    return found


def ledgers() -> Path:
    """Return the folder of the committed results, three files per notebook."""
    return ROOT / "results" / "ledger"


def results(profile: str) -> Path:
    """Return the folder of the executed notebooks of one profile."""
    return ROOT / "results" / profile


def figures(profile: str) -> Path:
    """Return the folder for figures (``$FLTNB_FIGURES``, else ``figures``)."""
    return _given("FLTNB_FIGURES", "figures") / profile


def store() -> Path:
    """Return the folder of computed runs and trained encoders.

    It is ``$FLTNB_STORE``, else ``results/store``. A relative path begins at
    :data:`ROOT`.
    """
    return _given("FLTNB_STORE", "results/store")


def data() -> list[Path]:
    """Return the folders with prepared data sets: ``$FLTNB_DATA``, then ``data/``."""
    folders = [ROOT / "data"]
    if os.environ.get("FLTNB_DATA"):
        folders.insert(0, _given("FLTNB_DATA", "data"))
    return folders


def _given(variable: str, usual: str) -> Path:
    """Return the folder that an environment variable names, or the usual one."""
    return ROOT / Path(os.environ.get(variable) or usual).expanduser()


def remove_left_over(path: Path) -> None:
    """Remove the temporary files of a path whose writers no longer run.

    Files of another machine are removed after a day. Their names end with the writer's
    machine and process: :func:`write_atomically`.
    """
    here = f".{path.name}.{platform.node()}."
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        ours = TEMPORARY.fullmatch(left.name)
        if ours is None:
            continue
        with suppress(OSError):  # another process was faster
            dead = left.name.startswith(here) and not lives(int(ours[1]))
            if dead or time.time() - left.stat().st_mtime > DAY:
                left.unlink()


def lives(pid: int) -> bool:
    """Return whether a process of this machine still runs."""
    try:
        os.kill(pid, 0)  # sends no signal, only checks
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # or another user's
    return True


def write_text(path: Path | str, text: str) -> Path:
    """Write a text in UTF-8 as :func:`write_atomically` does."""
    return write_atomically(path, lambda file: file.write(text.encode()))


def write_atomically(path: Path | str, write: Callable[[IO[bytes]], object]) -> Path:
    """Write a file so that readers see the old one or the whole new one, never half.

    The folder is made if needed, and temporary files of killed writers of the same path
    are removed. Who may read the file is the user's umask, as for any new file.

    Parameters
    ----------
    path : Path or str
    write : callable
        Gets a binary file open for writing.

    Returns
    -------
    Path

    Raises
    ------
    FltnbError
        The disk is full or the folder is not writable; an old file is not changed.
    """
    path = Path(path).expanduser()
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_left_over(path)
        writer = f".{path.name}.{platform.node()}.{os.getpid()}."
        temporary = path.with_name(writer + uuid.uuid4().hex[:8])
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        why = error.strerror or error
        raise FltnbError(
            f"Cannot write {path} ({why}): fix that first; what was computed is kept."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path
