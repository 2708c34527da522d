"""Predict the rows of a table where fltnb is not installed: torch and pandas alone.

``python examples/serve.py MODELS CLUSTER TABLE.csv`` prints one answer a line. MODELS
is the folder that ``examples/hospitals.py`` wrote: run.json, of ``run.save``, says how
rows become numbers, and ``cluster_K.pt2`` is the network of cluster K.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch


def read(file: Path, how: dict) -> pd.DataFrame:
    """Read a table that has the columns of training; categories are text."""
    texts = dict.fromkeys(how["categories"], str)  # with gaps, 1 would become 1.0
    try:
        rows = pd.read_csv(file, dtype=texts)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{file} is no CSV table in UTF-8: {error}") from None
    lacking = [name for name in how["columns"] if name not in rows]
    if lacking:
        raise SystemExit(f"{file} lacks {', '.join(lacking)}: add these columns.")
    return rows


def inputs(table: pd.DataFrame, how: dict) -> torch.Tensor:
    """Fill gaps, scale numbers, and make a 0 or 1 of each category: (n, 1, 1, d)."""
    try:
        numbers = table[how["numbers"]].to_numpy(dtype=float)
    except ValueError as error:
        raise SystemExit(f"A column of numbers holds text: {error}.") from None
    fill = np.array(how["fill"], dtype=float)
    numbers = np.where(np.isnan(numbers), fill, numbers)
    parts = [(numbers - how["mean"]) / how["std"]]
    for column, categories in how["categories"].items():
        texts = table[column].fillna("(missing)").str.strip().to_numpy()
        parts.append(texts[:, None] == np.array(categories, dtype=object))
        new = sorted(set(texts) - set(categories))
        if new:
            print(f"{column}: {', '.join(new)} count as no category.", file=sys.stderr)
    with np.errstate(over="ignore"):
        rows = np.hstack(parts).astype(np.float32)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(wrong):
        raise SystemExit(f"Row {wrong[0]}, counted from 0, holds no finite numbers.")
    return torch.from_numpy(rows)[:, None, None]


def answers(outputs: torch.Tensor, reader: dict) -> list:
    """Return what outputs (n, C) say of each row: a class, or a number."""
    if reader["targets"] == "values":
        return outputs[:, 0].tolist()
    if outputs.shape[1] == 1:  # of two classes, trained with loss="binary"
        places = (outputs[:, 0] > 0).long()
    else:
        places = outputs.argmax(dim=1)
    return [reader["class_names"][place] for place in places.tolist()]


def main(folder: Path, cluster: str, table: Path) -> None:
    """Print what the network of a cluster says of each row."""
    reader = json.loads((folder / "run.json").read_text(encoding="utf-8"))["reader"]
    how = reader["preprocessing"]
    rows = read(table, how)
    network = torch.export.load(folder / f"cluster_{cluster}.pt2").module()
    for answer in answers(network(inputs(rows, how)), reader):
        print(answer)


def asked() -> argparse.Namespace:
    """Return the command line, if all files that it names are there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", type=Path, help="written by examples/hospitals.py")
    parser.add_argument("cluster", help="its number, such as 0")
    parser.add_argument("table", type=Path, help="a file of CSV")
    given = parser.parse_args()
    if not (given.models / "run.json").is_file():
        parser.error(
            f"There is no run in {given.models}: name the folder that "
            "examples/hospitals.py wrote."
        )
    if not (given.models / f"cluster_{given.cluster}.pt2").is_file():
        names = sorted(file.name for file in given.models.glob("cluster_*.pt2"))
        parser.error(
            f"There is no cluster {given.cluster} in {given.models}, which has "
            f"{', '.join(names)}: give the number of one of them."
        )
    if not given.table.is_file():
        parser.error(f"There is no file {given.table}: name the table of the rows.")
    return given


if __name__ == "__main__":
    given = asked()
    main(given.models, given.cluster, given.table)
