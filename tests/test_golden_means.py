"""Every mean of the first version's tables, but for rows run anew since, is what the ledgers give today."""

import csv
import math
from pathlib import Path

import pytest

from fltnb.results import Ledger
from fltnb.results.job import COMMON

GOLDEN = Path(__file__).parent / "golden/means.csv"
NAMES = {"accuracy_variance": "variance", "micro_accuracy": "micro"}
PREFIX = {"test": "", "train": "train_", "probe": "probe_", "": ""}


def golden() -> dict[str, list[dict]]:
    """Rows by notebook; a blank list of keys is that of the row above."""
    rows: dict[str, list[dict]] = {}
    keys = ""
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            keys = row["keys"] or keys
            rows.setdefault(row["notebook"], []).append(row | {"keys": keys.split()})
    return rows


ROWS = golden()


def column(row: dict) -> str:
    name = NAMES.get(row["metric"], row["metric"])
    return (
        name
        if name.startswith("first_") or row["source"] == "clusterings"
        else PREFIX[row["split"]] + name
    )


@pytest.fixture(params=sorted(ROWS))
def notebook(request):
    """Name of a notebook, and its ledger's lines by the first digits of the keys that they had then."""
    ledger, found = Ledger("small", request.param), {}
    for line in ledger.lines:  # equal settings may stand under several names
        old = ledger.record(line["record"])["provenance"].get("formerly", "")
        for n in range(8, len(old) + 1):
            found.setdefault(old[:n], []).append(line)
    return request.param, ledger, found


def test_every_mean_is_as_it_was(notebook):
    name, _, found = notebook
    for row in ROWS[name]:
        lost = [key for key in row["keys"] if key not in found]
        assert not lost, f"{row} has lost its results {lost}"
        values = [
            found[key][0][column(row)]
            for key in row["keys"]
            if column(row) in found[key][0]
        ]
        mean = math.fsum(values) / len(values) if values else math.nan
        stored = float(row["mean"]) if row["mean"] else math.nan
        assert mean == pytest.approx(stored, rel=1e-12, abs=1e-12, nan_ok=True), row


def test_what_was_one_mean_is_one_cell_of_the_axes(notebook):
    name, ledger, found = notebook
    axes = [
        axis for axis in (*COMMON, *ledger.axes) if axis not in ("seed", "notebook")
    ]
    for row in ROWS[name]:
        if (row["metric"], row["split"]) in (
            ("accuracy", "test"),
            ("n_clusters", ""),
        ) and len(row["keys"]) > 1:
            cells = [
                {tuple(line.get(axis) for axis in axes) for line in found[key]}
                for key in row["keys"]
            ]
            assert set.intersection(*cells), f"the seeds of {row} have different axes"
