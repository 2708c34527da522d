"""Checkpoints: a run that was stopped goes on from here and ends with the same bits."""

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FltnbError
from .methods import Method
from .paths import remove_left_over, write_atomically
from .record import Progress

SECONDS = 20.0
"""At least so long between two checkpoints."""


class Checkpoint:
    """The file of one run; without a path, nothing is kept."""

    def __init__(self, path: str | Path | None, settings: dict[str, Any]):
        self.path = path
        self.settings = settings
        self.written = time.monotonic()
        self.pause = SECONDS

    def load(self, method: Method) -> Progress:
        """How far the run is: saved, or at its beginning."""
        saved = None
        if self.path:
            saved = load(self.path, self.settings, method)
        return saved or Progress()

    def save_if_due(self, done: Progress, begun: float) -> None:
        """Save a run that began at ``begun`` on the monotonic clock, now and then."""
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
    arrays = {"state": done.state.arrays(), "labels_at": done.labels_at}
    meta = vars(done) | {"settings": settings}
    members = {}
    for part, own in arrays.items():
        meta[part] = list(own)
        for name, value in own.items():
            members[f"{part}/{name}"] = value
    text = json.dumps(meta, default=repr)
    write_atomically(path, lambda file: np.savez(file, meta=text, **members))


def load(path: str | Path, settings: dict[str, Any], method: Method) -> Progress | None:
    """Return the saved run, or None if there is none or it is damaged.

    That of other settings raises :class:`fltnb.FltnbError`.
    """
    path = Path(path)
    remove_left_over(path)
    if not path.exists():
        return None
    try:
        meta = _read(path)
        meta["state"] = method.state_type(**meta["state"])
        found = meta.pop("settings")
        done = Progress(**meta)
    # a damaged zip raises many types; whatever it is, the remedy is the same
    except Exception as error:
        aside = path.replace(f"{path}.damaged").name  # it may be any file
        warnings.warn(
            f"Checkpoint {path} is damaged ({error}), and now {aside}: "
            "this run starts from round 1.",
            stacklevel=2,
        )
        return None
    if found != json.loads(json.dumps(settings, default=repr)):
        raise FltnbError(
            f"Checkpoint {path} belongs to a run with other settings: "
            "delete it or name another file."
        )
    return done


def _read(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(str(file["meta"]))
        for part in ("state", "labels_at"):
            meta[part] = {name: file[f"{part}/{name}"] for name in meta[part]}
    return meta
