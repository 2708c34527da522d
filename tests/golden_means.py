"""Means over seeds of all that the ledgers hold, cell by cell.

A cell is a notebook, a kind of experiment and its axes without the seed.
``golden/means.jsonl.xz`` has a line for each; ``python -m tests.golden means`` adds
those that are new and leaves alone those that are there.
"""

import json
import lzma
import math
from pathlib import Path

import numpy as np

from fltnb import paths
from fltnb.experiments import Ledger
from fltnb.experiments.grid import COMMON

FILE = Path(__file__).parent / "golden" / "means.jsonl.xz"
NOT_RESULTS = ("key", "record", "stopped", "seconds", "training_seconds")


def stored() -> list[dict]:
    """Return the frozen cells."""
    with lzma.open(FILE, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def name_of(cell: dict) -> str:
    """Return what tells a cell from all others."""
    named = [cell["notebook"], cell["kind"], cell["axes"]]
    return json.dumps(named, sort_keys=True)


def lines() -> dict[str, dict]:
    """Return the cells of today's ledgers by name, with numbers by seed."""
    cells: dict[str, dict] = {}
    for file in sorted(paths.ledgers().glob("[0-9]*.csv")):
        ledger = Ledger(file.stem)
        words = {*COMMON, *ledger.axes}
        for line in ledger.lines:
            axes = {word: line[word] for word in sorted(words) if word in line}
            for word in ("notebook", "kind", "seed"):
                axes.pop(word, None)

            cell = {"notebook": file.stem, "kind": line["kind"], "axes": axes}
            cell = cells.setdefault(name_of(cell), cell | {"numbers": {}})
            numbers = numbers_of(line, words)
            if line["kind"] == "study":
                numbers |= table_means(ledger.arrays(line["record"]))
            cell["numbers"][line.get("seed")] = numbers
    return cells


def numbers_of(line: dict, axes: set[str]) -> dict[str, float]:
    """Return the results in a line of a ledger: neither axes nor names nor times."""
    found = {}
    for name, value in line.items():
        if name in axes or name in NOT_RESULTS or isinstance(value, str):
            continue
        found[name.removesuffix(" found")] = float(value)
    return found


def table_means(arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the mean of every array of numbers that a study keeps."""
    found = {}
    for name, values in arrays.items():
        if "seconds" in name or values.dtype.kind not in "bifu" or not values.size:
            continue
        finite = values[np.isfinite(values)].astype(np.float64)
        if finite.size:
            found[f"mean of {name}"] = math.fsum(finite.ravel()) / finite.size
    return found


def means(numbers: dict, seeds: list) -> dict[str, list]:
    """Return the mean over these seeds and their number, for every metric."""
    found: dict[str, list] = {}
    for seed in seeds:
        for name, value in numbers[seed].items():
            found.setdefault(name, []).append(value)
    return {name: [mean(values), len(values)] for name, values in found.items()}


def mean(values: list[float]) -> float:
    """Return a mean with 14 digits: more than two parts in 1e12 need."""
    return float(f"{math.fsum(values) / len(values):.14g}")


def write() -> None:
    """Add the cells that are new since the last time."""
    frozen = {name_of(cell): cell for cell in stored()} if FILE.exists() else {}
    for name, cell in lines().items():
        if name in frozen:
            continue
        numbers = cell.pop("numbers")
        seeds = sorted(numbers, key=str)
        frozen[name] = cell | {"seeds": seeds, "means": means(numbers, seeds)}

    text = "".join(json.dumps(frozen[name]) + "\n" for name in sorted(frozen))
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
