"""Small tables that are no runs: written with their provenance, read back to be shown below the live ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import paths
from ..provenance import environment
from ..rounds import plain

if TYPE_CHECKING:
    import pandas as pd


def write_tables(tables: dict[str, pd.DataFrame], settings: dict[str, Any], profile: str, name: str) -> None:
    """Write ``results/<profile>/<name>_<table>.csv`` and ``<name>_tables_provenance.json``.

    Parameters
    ----------
    tables : dict
        Name -> table.
    settings : dict
        What they were computed with, JSON-able.
    profile, name : str
        Profile and notebook.
    """
    where = paths.results(profile)
    record = {
        "tables": list(tables),
        "settings": plain(settings),
        "provenance": {**environment(), "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
    }
    texts = {f"{name}_{table}.csv": held.to_csv(index=False, float_format="%.6g") for table, held in tables.items()}
    texts[f"{name}_tables_provenance.json"] = json.dumps(record, indent=1)
    for file, text in texts.items():
        paths.write_atomically(where / file, lambda handle, text=text: handle.write(text.encode()))


class StoredTables(NamedTuple):
    """Committed tables of one profile."""

    profile: str
    tables: dict[str, pd.DataFrame]
    caption: str


def stored_tables(name: str) -> list[StoredTables]:
    """Return what :func:`write_tables` left for the committed profiles."""
    import pandas as pd

    found = []
    for profile in ("small", "paper"):
        where = paths.results(profile)
        file = where / f"{name}_tables_provenance.json"
        if file.exists():
            record = json.loads(file.read_text(encoding="utf-8"))
            about = record["provenance"]
            caption = f"commit {about['commit']}, {about['hardware']}, {about['finished'][:10]}"
            tables = {table: pd.read_csv(where / f"{name}_{table}.csv") for table in record["tables"]}
            found.append(StoredTables(profile, tables, caption))
    return found
