"""What every finished experiment is stored with, and one-off computations."""

import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import paths
from ..provenance import environment
from ..settings import plain
from .finished import Finished, read_arrays, save
from .key import digest, names_in, versions
from .task import Task


def saved(
    task: Task,
    numbers: dict[str, Any],
    arrays: dict[str, np.ndarray],
    curves: pd.DataFrame | None = None,
    clients: pd.DataFrame | None = None,
    key: str | None = None,
    settings: dict[str, Any] | None = None,
    **about: Any,
) -> Finished:
    """Save what an experiment gave, with its settings and where the numbers come from.

    ``key`` and ``settings`` are the experiment's own unless others are given.
    """
    about |= {"data_origin": "", "data": "", "seconds": numbers["seconds"]}
    if task.fed is not None:
        about["data_origin"] = task.fed.origin
        about["data"] = task.fed.fingerprint()
    about["finished"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    experiment = task.experiment
    name = experiment.id
    if settings is None:
        settings = experiment.settings
    elif settings != experiment.settings:
        name = digest({"kind": experiment.kind, "settings": settings})
    record = {"id": name, "settings": settings, "provenance": environment() | about}
    return save(
        Finished(
            key=key or task.key,
            kind=experiment.kind,
            axes=task.row.axes,
            numbers=numbers,
            curves=curves,
            clients=clients,
            arrays=arrays,
            record=record,
        )
    )


def arrays_path(key: Mapping[str, Any]) -> Path:
    """Return the file of a one-off computation.

    Versions of the numerics of what it names enter its name.
    """
    about = {"key": plain(key), "numerics": versions(names_in(key))}
    return paths.store() / "arrays" / f"{digest(about)}.npz"


def cached_arrays(
    key: Mapping[str, Any], compute: Callable[[], dict], since: float = 0.0
) -> dict[str, np.ndarray]:
    """Keep the arrays of a one-off computation in the store.

    Files from before ``since`` (seconds of Unix time) are ignored.
    """
    path = arrays_path(key)
    if path.exists() and path.stat().st_mtime >= since:
        try:
            return read_arrays(path.read_bytes())
        except Exception as error:
            told = f"Store entry {path} is damaged ({error}): "
            warnings.warn(told + "only this one is computed again.", stacklevel=2)
    arrays = compute()
    paths.write_atomically(path, lambda file: np.savez(file, **arrays))
    return arrays
