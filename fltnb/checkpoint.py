"""Checkpoints: a stopped run continues from one and ends with the same bits.

A checkpoint is a NumPy archive. Its arrays are ``state/<field>``, those of the method's
state, and ``labels_at/<round>``. ``meta`` is the rest as JSON: the settings of the run,
its progress, and the names of the arrays.
"""

import json
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FltnbError, reading
from .methods import Method
from .paths import remove_left_over, write_atomically
from .record import Progress

ZIP = b"PK\x03\x04"  # the first bytes of a NumPy archive
SECONDS = 20.0
"""Shortest time between two checkpoints."""


class _DamagedError(Exception):
    """The content of a checkpoint is damaged."""


class Checkpoint:
    """The file of one run; without a path, nothing is kept."""

    def __init__(self, path: str | Path | None, settings: dict[str, Any]):
        self.path = path_of(path)
        self.settings = settings
        self.written = time.monotonic()
        self.pause = SECONDS

    def load(self, method: Method) -> Progress:
        """Return the progress of the run: saved, or at its beginning."""
        saved = None
        if self.path:
            saved = load(self.path, self.settings, method)
        return saved or Progress()

    def save_if_due(self, done: Progress, begun: float) -> None:
        """Save a run from time to time; it began at ``begun`` (monotonic clock)."""
        now = time.monotonic()
        if not self.path or now - self.written <= self.pause:
            return
        done.seconds = now - begun
        save(self.path, self.settings, done)
        self.written = time.monotonic()
        # a state of gigabytes is saved less often
        self.pause = SECONDS * max(1, self.written - now)


def save(path: str | Path, settings: dict[str, Any], done: Progress) -> None:
    """Write how far a run of these settings is."""
    assert done.state is not None
    arrays: dict[str, dict] = {
        "state": done.state.arrays(),
        "labels_at": done.labels_at,
    }
    meta = vars(done) | {"settings": settings}
    members: dict[str, Any] = {}
    for part, own in arrays.items():
        meta[part] = list(own)
        for name, value in own.items():
            members[f"{part}/{name}"] = value
    text = json.dumps(meta, default=_plain)
    write_atomically(path, lambda file: np.savez(file, meta=text, **members))


def load(path: str | Path, settings: dict[str, Any], method: Method) -> Progress | None:
    """Return the saved run, or None if there is none or it is damaged.

    :class:`fltnb.FltnbError`: the file belongs to a run with other settings, is not a
    checkpoint, or the disk cannot read it. The file is not changed.
    """
    path = Path(path)
    remove_left_over(path)
    if not path.exists():
        return None
    mend = "fix that, or name another file"
    try:
        with reading(f"Checkpoint {path}", mend, _DamagedError):
            _check_own(path)
            meta = _read(path)
            # first: another method's state would look like a damaged one
            if meta.pop("settings") != json.loads(json.dumps(settings, default=_plain)):
                raise FltnbError(
                    f"Checkpoint {path} belongs to a run with other settings: "
                    "delete it or name another file."
                )
            meta["state"] = method.state_type(**meta["state"])
            return Progress(**meta)
    except _DamagedError as error:
        _set_aside(path, error)
        return None


def _plain(value: Any) -> Any:
    """Return what JSON does not know: NumPy's numbers as Python's, else a text."""
    return value.item() if isinstance(value, np.generic) else repr(value)


def path_of(path: Any) -> Path | None:
    """Return the checkpoint's path, or None without one, or refuse it."""
    if path is None or path is False or path == "":
        return None
    if not isinstance(path, (str, Path)):
        raise FltnbError(
            f'checkpoint must be the path of a file, such as "run.npz", not {path!r}.'
        )
    path = Path(path).expanduser()
    if path.is_dir():
        raise FltnbError(
            f'{path} is a folder: name a file for the checkpoint, such as "run.npz".'
        )
    return path


def _check_own(path: Path) -> None:
    """Refuse a file that cannot be a checkpoint, intact or damaged."""
    with path.open("rb") as file:
        start = file.read(len(ZIP))
    if not start:
        raise FltnbError(
            f"{path} is empty and no checkpoint of a run: delete it to start from "
            "round 1, or name another file."
        )
    foreign = not ZIP.startswith(start)
    if not foreign and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            foreign = "meta.npy" not in archive.namelist()
    if foreign:
        raise FltnbError(
            f"{path} is no checkpoint of a run: name another file. This one was not "
            "changed."
        )


def _set_aside(path: Path, error: Exception) -> None:
    """Rename a damaged checkpoint, with a warning."""
    aside = path.replace(f"{path}.damaged").name
    warnings.warn(
        f"Checkpoint {path} is damaged ({error}) and was renamed to {aside}: "
        "this run starts from round 1.",
        stacklevel=4,
    )


def _read(path: Path) -> dict[str, Any]:
    """Read a written file: plain values, and the arrays of two parts by name."""
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(str(file["meta"]))
        for part in ("state", "labels_at"):
            names = meta[part]
            meta[part] = {name: file[f"{part}/{name}"] for name in names}
    return meta
