"""FeSEM's tables number by number, for the report: what notebook 08 has stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import store
from ..experiments import fesem as experiment
from ..metrics import seed_spread
from .fesem import MEASURES, NAME, PAPER, PRINTED, TABLES

if TYPE_CHECKING:
    import pandas as pd


def reproduced(notebook: str = NAME) -> dict[str, pd.DataFrame]:
    """Return profile -> rows of :data:`fltnb.report.reproduced.COLUMNS`, with ``stand_in``: data not the paper's."""
    import pandas as pd

    found = {}
    for stored in store.stored(notebook):
        rows = []
        main = stored.tidy[stored.tidy["note"] == ""]
        for (name, method, variant), runs in main.groupby(["dataset", "method", "variant"], sort=False):
            if name not in TABLES or method not in experiment.METHODS:
                continue
            entries = [stored.record[key] for key in dict.fromkeys(runs["key"])]
            dataset = TABLES[name][1]
            fixed = {"dataset": dataset, "model": "cnn", "setting": "benchmark", "match": {}, "method": method}
            fixed |= {
                "variant": variant,
                "data": name,
                "stand_in": name != dataset,
                "departs": _departs(entries, dataset),
            }
            fixed["origin"] = "; ".join(sorted({entry["provenance"]["data_origin"] for entry in entries}))
            for measure, metric in PRINTED.items():
                split, ours = MEASURES[measure]
                values = runs.loc[(runs["split"] == split) & (runs["metric"] == ours), "value"]
                if len(values):
                    spread = seed_spread(values) if len(values) > 1 else 0.0
                    measured = {"mean": values.mean(), "spread": spread, "seeds": len(values)}
                    rows.append(fixed | {"metric": metric, "split": split} | measured)
        found[stored.profile] = pd.DataFrame(rows)
    return found


def _departs(entries: list[dict[str, Any]], dataset: str) -> str:
    """How the runs depart from what the paper says, in words."""
    settings = entries[0]["settings"]
    network, clients, epochs, rate = PAPER[dataset]
    inner = settings["federation"]
    while "n_clients" not in inner:  # of a division of another federation
        inner = inner["base"]
    said = [settings["model"]] * (settings["model"] != network)
    said += [f"{inner['n_clients']:,} of {clients:,} clients"] * (inner["n_clients"] != clients)
    said += [f"E = {settings['local_epochs']} for {epochs}"] * (settings["local_epochs"] != epochs)
    said += [f"learning rate {settings['lr']:g} for {rate:g}"] * (settings["lr"] != rate)
    said += ["a run stopped early"] * any(entry["provenance"].get("stopped") for entry in entries)
    return ", ".join(said)
