"""A finished job, its file in the local store, and the tables that many of them make."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import paths

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Finished:
    """What a job left behind.

    Attributes
    ----------
    key, kind : str
    axes : dict
        Values under which tables show it.
    numbers : dict
        Final numbers, name to float, int or text.
    curves, clients : DataFrame or None
        Round by round and client by client.
    arrays : dict
        Labels, matrices, tables of studies as ``table/<name>/<column>``.
    record : dict
        ``id``, ``settings`` and ``provenance``.
    """

    key: str
    kind: str
    axes: dict[str, Any]
    numbers: dict[str, Any]
    curves: pd.DataFrame | None = None
    clients: pd.DataFrame | None = None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)

    def with_axes(self, axes: Mapping[str, Any]) -> Finished:
        """Return the same under other axes."""
        return replace(self, axes=dict(axes))


def store_path(key: str) -> Path:
    """Return the file of a finished job in the local store."""
    return paths.store() / "jobs" / f"{key}.npz"


def save(done: Finished) -> Finished:
    """Write a finished job to the local store: one file, which is there whole or not at all."""
    meta = {"format": 1, "key": done.key, "kind": done.kind, "numbers": done.numbers, "record": done.record}
    columns = {"meta": np.array(json.dumps(meta))}
    for name in ("curves", "clients"):
        table = getattr(done, name)
        if table is not None:
            columns |= {f"{name}/{column}": text_or_numbers(table[column]) for column in table}
    columns |= {f"arrays/{name}": value for name, value in done.arrays.items()}
    paths.write_atomically(store_path(done.key), lambda file: np.savez_compressed(file, **columns))
    return done


def load(key: str, axes: Mapping[str, Any]) -> Finished | None:
    """Return a finished job from the local store, or None if it is not there (or damaged: then a warning names it)."""
    import pandas as pd

    path = store_path(key)
    if not path.exists():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        meta = json.loads(str(held.pop("meta")))
        parts: dict[str, dict[str, np.ndarray]] = {"curves": {}, "clients": {}, "arrays": {}}
        for name, value in held.items():
            part, _, column = name.partition("/")
            parts[part][column] = value
        tables = {name: pd.DataFrame(parts[name]) if parts[name] else None for name in ("curves", "clients")}
        return Finished(
            key, meta["kind"], dict(axes), meta["numbers"], **tables, arrays=parts["arrays"], record=meta["record"]
        )
    except Exception as error:  # damage shows in many ways; whatever it is, the remedy is the same
        warnings.warn(f"Store entry {path} is damaged ({error!r}): only this job is computed again.", stacklevel=2)
        return None


def text_or_numbers(column: Any) -> np.ndarray:
    """Return a column as an array that needs no pickle."""
    values = np.asarray(column)
    return values.astype(str) if values.dtype == object else values


def table_arrays(tables: Mapping[str, pd.DataFrame]) -> dict[str, np.ndarray]:
    """Return tables as arrays named ``table/<name>/<column>``."""
    return {
        f"table/{name}/{column}": text_or_numbers(table[column]) for name, table in tables.items() for column in table
    }


def table_of(arrays: Mapping[str, np.ndarray], name: str) -> pd.DataFrame:
    """Return a table that :func:`table_arrays` took apart; empty if it is not there."""
    import pandas as pd

    start = f"table/{name}/"
    return pd.DataFrame({key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)})


def stacked(tables: Sequence[pd.DataFrame | None], name: str = "job") -> pd.DataFrame:
    """Stack tables, with their place in the sequence as first column."""
    import pandas as pd

    parts = [table.assign(**{name: place}) for place, table in enumerate(tables) if table is not None and len(table)]
    if not parts:
        return pd.DataFrame({name: pd.Series(dtype=np.int64)})
    whole = pd.concat(parts, ignore_index=True)
    return whole[[name, *(column for column in whole.columns if column != name)]]
