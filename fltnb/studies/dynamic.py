"""Runs of notebook 07: clients that join or get other data in the middle of a run, and soft client graphs.

None of this is in the paper's tables, so the settings are ours: those of scenario 1, described variant.
"""

from __future__ import annotations

from typing import Any

from ..store import Spec
from .common import SEEDS, federation, method, training

MIXED, NEW_KIND = "join and drift", "a new kind joins"
SCENARIOS = {"no label shared": 0, "one label shared": 1}  # soft against hard graphs: FLT's scenarios 1 and 2

# clients, newcomers, drifting clients; first round after the change, rounds; lambda low and high; tau
SIZES: dict[str, dict[str, int]] = {
    "demo": {"M": 30, "join": 5, "drift": 6, "event": 9, "rounds": 20, "low": 0, "high": 8, "tau": 6},
    "small": {"M": 100, "join": 20, "drift": 20, "event": 21, "rounds": 40, "low": 0, "high": 30, "tau": 14},
}
SIZES["paper"] = SIZES["small"]
# Newcomers flag at once, drifted clients when they are drawn. A low lambda therefore fires in the first round, a high
# one when most of the drifted have been drawn; the next multiple of tau comes some rounds after the change.

EVENT_METHODS = ("fedavg", "flt", "flt_tau", "flt_lambda_high", "flt_lambda", "flt_nearest", "oracle")
NEW_KIND_METHODS = ("flt", "flt_nearest", "flt_lambda", "oracle")
SOFT_METHODS = ("flt", "flt_full", "flt_soft", "flt_soft_linear", "oracle")


def specs(profile: str) -> list[Spec]:
    """Return the runs of both events and of both scenarios with soft graphs."""
    runs = [row(name, MIXED, seed, profile) for name in EVENT_METHODS for seed in SEEDS[profile]]
    runs += [row(name, NEW_KIND, seed, profile) for name in NEW_KIND_METHODS for seed in SEEDS[profile]]
    runs += [
        row(name, scenario, seed, profile)
        for scenario in scenarios(profile)
        for name in SOFT_METHODS
        for seed in SEEDS[profile]
    ]
    return runs


def scenarios(profile: str) -> list[str]:
    """Where soft graphs are tried; where no label is shared all graphs are one, which the demo need not show."""
    return list(SCENARIOS)[1 if profile == "demo" else 0 :]


def row(name: str, note: str, seed: int, profile: str) -> Spec:
    """One run; ``note`` names the event or the scenario."""
    size, dataset = SIZES[profile], dataset_of(profile)
    shared = SCENARIOS.get(note, 0)
    fed = federation(dataset, "as_written", seed, shared_classes=shared, n_clients=size["M"])
    if note not in SCENARIOS:
        named = fed.pop("dataset")
        fed = {"kind": "changing", "dataset": named, "base": fed, "events": events(note, profile), "seed": seed}
    settings = training(dataset, "as_written", profile) | {"rounds": size["rounds"]}
    # an evaluation costs more than a round of MNIST: every second one, and few where nothing happens
    settings["eval_every"] = (1 if profile == "demo" else 2) * (2 if note in SCENARIOS else 1)
    return Spec(
        fed,
        settings_of(name, dataset, profile, n_classes=2 + shared),
        **settings,
        seed=seed,
        experiment="07_dynamic_clustering",
        dataset=dataset,
        method_id=name,
        note=note,
    )


def dataset_of(profile: str) -> str:
    """Return the data set of a profile."""
    return "digits" if profile == "demo" else "mnist"


def events(note: str, profile: str) -> list[dict[str, int]]:
    """Return what happens to the federation (:func:`fltnb.federations.with_events`)."""
    size = SIZES[profile]
    if note == MIXED:
        return [{"round": size["event"], "join": size["join"], "drift": size["drift"]}]
    return [{"round": size["event"], "join": size["M"] // 5, "cluster": 4}]  # everybody of the last of five clusters


def settings_of(name: str, dataset: str, profile: str, n_classes: int = 2) -> dict[str, Any]:
    """Return the settings of a method: FLT with Enc1, as it is or with one thing more."""
    if not name.startswith("flt"):
        return {"name": name, "rule": "participants"}
    size = SIZES[profile]
    plain = method("flt_enc1", dataset, "as_written", profile, n_classes) | {"name": name}
    dynamic = {
        "flt_tau": {"tau": size["tau"]},
        "flt_lambda": {"lam": size["low"]},
        "flt_lambda_high": {"lam": size["high"]},
        "flt_nearest": {"newcomers": "nearest", "drifted": "nearest"},
    }
    if name in dynamic:
        return plain | {"kind": "DynamicFLT"} | dynamic[name]
    if name == "flt_full":
        return plain | {"graph": "full"}
    if name.startswith("flt_soft"):
        del plain["graph"]
        return plain | {"kind": "SoftFLT", "weight": "linear" if name.endswith("linear") else "gaussian"}
    return plain
