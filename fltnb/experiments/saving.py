"""Saving of finished experiments, and computations that are shared between them."""

import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import paths
from ..data import NAMES, prepared
from ..provenance import environment
from ..settings import plain
from .finished import Arrays, Finished, Values, read_arrays, save
from .key import digest, names_in, versions
from .task import Task


def small(labels: np.ndarray) -> np.ndarray:
    """Return whole numbers as they are stored, in 32 bits."""
    return np.asarray(labels, dtype=np.int32)


def datasets(settings: Values) -> set[str]:
    """Return the data sets that settings of an experiment name.

    Those in the settings of an encoder are left out: clients do not have them.

    Examples
    --------
    >>> clients = {"dataset": "cifar10", "kind": "cross_tasks", "other": "cifar100"}
    >>> sorted(datasets({"federation": clients, "seeds": 3}))
    ['cifar10', 'cifar100']
    """
    found = set()
    for name, value in settings.items():
        if name in ("federation", "base"):
            found |= datasets(value)
        elif isinstance(value, str) and value in NAMES:
            found.add(value)
    return found


def origins(settings: Values) -> str:
    """Return the origin of the data sets that settings name, each after its name."""
    names = sorted(datasets(settings))
    # without reading the images, but for the digits, which have no file
    told = [prepared.origin(name) or prepared.load(name).origin for name in names]
    if len(names) > 1:
        told = [f"{name}: {origin}" for name, origin in zip(names, told, strict=True)]
    return "; ".join(told)


def saved(
    task: Task,
    numbers: Values,
    arrays: Arrays,
    curves: pd.DataFrame | None = None,
    clients: pd.DataFrame | None = None,
    key: str | None = None,
    settings: Values | None = None,
    **about: Any,
) -> Finished:
    """Save the result of an experiment, with its settings and provenance.

    Parameters
    ----------
    task : Task
    numbers : dict
        Final numbers, ``seconds`` among them.
    arrays : dict
    curves, clients : DataFrame, optional
    key, settings : optional
        By default the experiment's own.
    **about
        More for the provenance.
    """
    # a study without a federation may name a data set
    about["data_origin"] = task.origin or origins(task.experiment.settings)
    about["data"] = task.data
    about["seconds"] = numbers["seconds"]
    about["finished"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    experiment = task.experiment
    name = experiment.id
    if settings is None:
        settings = experiment.settings
    elif settings != experiment.settings:
        name = digest({"kind": experiment.kind, "settings": settings})
    record = {
        "id": name,
        "settings": settings,
        "provenance": environment() | about,
    }
    done = Finished(
        key=key or task.key,
        kind=experiment.kind,
        axes=task.row.axes,
        numbers=numbers,
        curves=curves,
        clients=clients,
        arrays=arrays,
        record=record,
    )
    return save(done)


def arrays_path(key: Mapping[str, Any]) -> Path:
    """Return the file of a shared computation.

    Its name contains the versions of the numerics of its parts.
    """
    numerics = versions(names_in(key))
    name = digest({"key": plain(key), "numerics": numerics})
    return paths.store() / "arrays" / f"{name}.npz"


def cached_arrays(
    key: Mapping[str, Any], compute: Callable[[], Arrays], since: float = 0.0
) -> Arrays:
    """Keep the arrays of a shared computation in the store.

    Parameters
    ----------
    key : dict
        Description of the computation, JSON-able.
    compute : callable
        Computes the arrays if they are not stored.
    since : float
        Files from before this time (seconds of Unix time) are ignored.

    Warns
    -----
    UserWarning
        The file is damaged: it is computed and written again.
    """
    path = arrays_path(key)
    if path.exists() and path.stat().st_mtime >= since:
        try:
            return read_arrays(path.read_bytes())
        except Exception as error:
            told = f"Stored result {path} is damaged ({error}): "
            warnings.warn(told + "only this one is computed again.", stacklevel=2)
    arrays = compute()
    named: Any = arrays  # NumPy's own options have other names
    paths.write_atomically(path, lambda file: np.savez(file, **named))
    return arrays
