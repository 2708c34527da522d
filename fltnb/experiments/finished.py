"""A finished experiment, its file in the local store, and its tables as arrays."""

import fcntl
import io
import json
import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import paths

Arrays = dict[str, np.ndarray]
"""Arrays by name."""
Values = dict[str, Any]
"""Numbers, axes or settings by name, JSON-able."""
TABLES = ("curves", "clients")
"""Tables of an experiment: round by round, and client by client."""


@dataclass
class Finished:
    """The result of an experiment.

    Attributes
    ----------
    key : str, the hash of settings, data and versions of the numerics
    kind : str, "training", "clustering", "distances" or "study"
    axes : dict, values of the axes under which tables show it
    numbers : dict, final numbers, name to float, int or text
    curves, clients : DataFrame or None, round by round and client by client
    arrays : dict, labels, matrices, tables of studies as ``table/<name>/<column>``
    record : dict, ``id``, ``settings`` and ``provenance``
    keep : tuple of str, names of arrays that the ledger should keep

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> def plan(rounds):
    ...     method = fl.methods.FedAvg()
    ...     return fl.Training(clients, method, "mlp32", rounds=rounds)
    >>> finished = fl.compute(fl.grid(plan, rounds=[1]), progress=False)[0]
    >>> finished.axes["rounds"], "accuracy" in finished.numbers
    (1, True)
    """

    key: str
    kind: str
    axes: Values
    numbers: Values
    curves: pd.DataFrame | None = None
    clients: pd.DataFrame | None = None
    arrays: Arrays = field(default_factory=dict)
    record: Values = field(default_factory=dict)
    keep: tuple[str, ...] = ()


Records = dict[str, Finished]
"""A ledger's experiments by the name of their record."""


def store_path(key: str) -> Path:
    """Return the file of a finished experiment in the local store."""
    return paths.store() / "jobs" / f"{key}.npz"


@contextmanager
def alone(key: str) -> Iterator[None]:
    """Let one process at a time compute the result of a key; others wait."""
    lock = paths.store() / "locks" / key
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = False
    while not held:
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # the one before removed its file: whoever comes next makes another
            held = os.fstat(file.fileno()).st_nlink > 0
            if not held:
                continue
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)


def save(done: Finished) -> Finished:
    """Write a finished experiment to the local store, as one file, atomically."""
    meta = {
        "format": 1,
        "key": done.key,
        "kind": done.kind,
        "numbers": done.numbers,
        "record": done.record,
    }
    columns: dict[str, Any] = {"meta": np.array(json.dumps(meta))}
    for name, value in done.arrays.items():
        columns[f"arrays/{name}"] = value
    columns.update(columns_of("curves", done.curves))
    columns.update(columns_of("clients", done.clients))

    path = store_path(done.key)
    paths.write_atomically(path, lambda file: np.savez_compressed(file, **columns))
    return done


def load(key: str, since: float = 0.0, needed: Collection[str] = ()) -> Finished | None:
    """Return a finished experiment from the local store, without axes.

    None if it is not there, from before ``since`` (seconds of Unix time), has not all
    ``needed`` arrays or, with a warning, is damaged.
    """
    path = store_path(key)
    if not path.exists() or path.stat().st_mtime < since:
        return None
    try:
        done = _from_store(key, read_arrays(path.read_bytes()))
    # Damage causes many kinds of errors; all are treated in the same way.
    except Exception as error:
        told = f"Stored result {path} is damaged ({error!r}): "
        warnings.warn(told + "this experiment is computed again.", stacklevel=2)
        return None
    return done if set(needed) <= set(done.arrays) else None


def _from_store(key: str, held: Arrays) -> Finished:
    """Return a finished experiment from the arrays of its file."""
    meta = json.loads(str(held["meta"]))
    tables = {}
    for which in TABLES:
        table = table_of(held, which)
        tables[which] = None if table.columns.empty else table
    return Finished(
        key=key,
        kind=meta["kind"],
        axes={},
        numbers=meta["numbers"],
        arrays=below("arrays", held),
        record=meta["record"],
        **tables,
    )


def read_arrays(content: bytes) -> Arrays:
    """Return the arrays of a file; a damaged one raises exceptions of many types."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = dict(file)
    if not arrays:
        raise ValueError("it is empty")
    return arrays


def columns_of(start: str, table: pd.DataFrame | None) -> Arrays:
    """Return a table's columns as arrays ``<start>/<column>`` that need no pickle."""
    arrays: Arrays = {}
    if table is None:
        return arrays
    for name in table:
        values = np.asarray(table[name])
        if values.dtype == object:
            values = values.astype(str)
        arrays[f"{start}/{name}"] = values
    return arrays


def below(start: str, arrays: Arrays) -> Arrays:
    """Return the arrays ``<start>/<name>`` by name."""
    found = {}
    for name, value in arrays.items():
        if name.startswith(f"{start}/"):
            found[name.removeprefix(f"{start}/")] = value
    return found


def table_of(arrays: Arrays, start: str) -> pd.DataFrame:
    """Return a table that :func:`columns_of` took apart; empty if it is not there."""
    return pd.DataFrame(below(start, arrays))
