"""EMD-CFL's tables number by number, for the report: what notebooks 11, 12 and 13 have stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .. import paths, store
from ..experiments import emdcfl_backdoor, emdcfl_pacs, emdcfl_rotated
from ..experiments.emdcfl import TRAINING
from ..metrics import seed_spread

if TYPE_CHECKING:
    import pandas as pd

NETWORK = {"simple_cnn": "emdcfl_cnn", "resnet18": "resnet18"}  # printed name -> ours
LEVEL = re.compile(r"(\d+) of 40 clients")
TARGETS = 0  # the cluster whose accuracy Tables 3 and 8 print


def reproduced(notebook: str) -> dict[str, pd.DataFrame]:
    """Return profile -> rows of :data:`fltnb.report.reproduced.COLUMNS`, one per number, variant and profile.

    Parameters
    ----------
    notebook : str
        ``11_emdcfl_rotated``, ``12_emdcfl_pacs`` or ``13_emdcfl_backdoor``.
    """
    import pandas as pd

    found = {}
    for stored in store.stored(notebook):
        keys = ["dataset", "method", "variant", "note"]
        clients = pd.read_csv(paths.results(stored.profile) / f"{notebook}_clients.csv")
        rows = []
        for (dataset, method, variant, note), runs in stored.tidy.groupby(keys, sort=False):
            place = _place(notebook, dataset, note)
            if place is None:
                continue
            entries = [stored.record[key] for key in dict.fromkeys(runs["key"])]
            fixed = place | {"method": method, "variant": variant, "data": dataset, "departs": _departs(entries, place)}
            fixed["origin"] = "; ".join(sorted({entry["provenance"]["data_origin"] for entry in entries}))
            for (metric, split), values in _values(notebook, runs, clients).items():
                spread = seed_spread(values)
                measured = {"mean": values.mean(), "spread": 0.0 if len(values) < 2 else spread, "seeds": len(values)}
                rows.append(fixed | {"metric": metric, "split": split} | measured)
        found[stored.profile] = pd.DataFrame(rows)
    return found


def _place(notebook: str, dataset: str, note: str) -> dict[str, Any] | None:
    """Which printed table a row of ours belongs to: data set, network, setting and params; None: to none."""
    level = LEVEL.fullmatch(note)
    if note and not level:
        return None
    if notebook == emdcfl_pacs.NOTEBOOK:
        return {"dataset": dataset, "model": "resnet18", "setting": "pacs", "match": {}}
    if notebook == emdcfl_backdoor.NOTEBOOK:
        model = "simple_cnn" if dataset.endswith("mnist") else "resnet18"
        return {"dataset": dataset, "model": model, "setting": "backdoor", "match": {}}
    for data, model in (("mnist", "simple_cnn"), ("cifar10", "resnet18")):
        for version in emdcfl_rotated.VERSIONS:
            if dataset == emdcfl_rotated.dataset(data, version):
                setting = "rotated" if version == "rotated" else f"rotated_{version}"
                match = {"participants": int(level[1])} if level else {}
                setting = "partial_participation" if level else setting
                return {"dataset": f"rotated_{data}", "model": model, "setting": setting, "match": match}
    return None


def _values(notebook: str, runs: pd.DataFrame, clients: pd.DataFrame) -> dict[tuple[str, str], pd.Series]:
    """Return printed metric and split -> one value per seed."""

    def of(split: str, metric: str) -> pd.Series:
        return runs[(runs["split"] == split) & (runs["metric"] == metric)]["value"]

    found = {("ari", ""): of("", "ari")}
    if notebook == emdcfl_backdoor.NOTEBOOK:
        own = clients[clients["key"].isin(set(runs["key"])) & (clients["true_cluster"] == TARGETS)]
        of_targets = own.groupby("key", sort=False)[["test", "probe"]].mean()
        found |= {("clean_accuracy", "test"): of_targets["test"], ("backdoor_accuracy", "test"): of_targets["probe"]}
    else:
        found |= {("avg_accuracy", "test"): of("test", "accuracy"), ("worst_accuracy", "test"): of("test", "worst")}
    return {place: values for place, values in found.items() if len(values)}


def _departs(entries: list[dict[str, Any]], place: dict[str, Any]) -> str:
    """How the runs depart from the paper's, in words."""
    settings = entries[0]["settings"]
    federation = settings["federation"]
    parts = [settings["model"]] * (settings["model"] != NETWORK[place["model"]])
    if (images := federation.get("samples_per_client")) is not None:
        parts.append(f"{images} images a client")
    for name, letter in (("rounds", "T"), ("local_epochs", "E")):
        if settings[name] != TRAINING[name]:
            parts.append(f"{letter} = {settings[name]} for {TRAINING[name]}")
    if federation.get("intensity", 1.0) != 1.0:
        parts.append(f"shades {federation['intensity']:g} times as far apart")
    return ", ".join(parts)
