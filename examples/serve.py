"""Predict the rows of a table where fltnb is not installed: torch and pandas alone.

``python examples/serve.py MODELS CLUSTER TABLE.csv`` prints one answer a line. MODELS
is the folder that ``examples/hospitals.py`` wrote: run.json, of ``run.save``, says how
rows become numbers, and ``cluster_K.pt2`` is the network of cluster K.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch


def inputs(table: pd.DataFrame, how: dict) -> torch.Tensor:
    """Fill gaps, scale numbers, and make a 0 or 1 of each category: (n, 1, 1, d)."""
    numbers = table[how["numbers"]].to_numpy(dtype=float)
    fill = np.array(how["fill"], dtype=float)
    numbers = np.where(np.isnan(numbers), fill, numbers)
    parts = [(numbers - how["mean"]) / how["std"]]
    for column, categories in how["categories"].items():
        texts = table[column].fillna("(missing)").astype(str).str.strip().to_numpy()
        parts.append(texts[:, None] == np.array(categories, dtype=object))
    rows = np.hstack(parts).astype(np.float32)
    return torch.from_numpy(rows)[:, None, None]


def main(folder: Path, cluster: str, table: Path) -> None:
    """Print what the network of a cluster says of each row."""
    reader = json.loads((folder / "run.json").read_text(encoding="utf-8"))["reader"]
    network = torch.export.load(folder / f"cluster_{cluster}.pt2").module()
    answers = network(inputs(pd.read_csv(table), reader["preprocessing"]))
    for place in answers.argmax(dim=1).tolist():
        print(reader["class_names"][place])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
