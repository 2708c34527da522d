"""Runs of notebook 02: FLT Tables 2 and 8, Figure 9: three labels per client, neighbouring clusters share one."""

from __future__ import annotations

from typing import Any

from ..store import Spec
from .common import MOMENTUM, SCENARIO1_METHODS, SEEDS, datasets, federation, method, training

METHODS = SCENARIO1_METHODS
# `small` runs no row of CIFAR-10: each takes 15 minutes or more of a core. They are shown as not run; notebook 05 has
# the shorter settings of the same federation.
SMALL_CIFAR10: set[tuple[str, str]] = set()

# What the published runs did differently from the text, each changed alone, all else as described (docs/differences.md)
SWITCHES: dict[str, dict[str, Any]] = {
    "absent clients: last local model": {"rule": "last_local"},
    "absent clients: last aggregate": {"rule": "last_aggregate"},
    "momentum 0.5": {"momentum": 0.5},
    "partition: published": {"partition": "as_run"},
    "k = true number of labels": {"clusterer": {"k": 3}},
    "distance: matching": {"clusterer": {"distance": "matching"}},
    "average over the full graph": {"graph": "full"},
    "members read in leaf order": {"membership": "leaf_order"},
}
_OF_FEDAVG = ("rule", "momentum", "partition")  # the others are about the clustering


def specs(profile: str) -> list[Spec]:
    """FLT Tables 2 and 8, Figure 9: six methods and the oracle in both variants; then every switch alone."""
    main = [
        row(dataset, name, variant, seed, profile)
        for dataset in datasets(profile)
        for variant in ("as_written", "as_run")
        for name in METHODS
        # CIFAR-10 takes minutes a run on two cores: one seed there
        for seed in (SEEDS[profile][:1] if (profile, dataset) == ("small", "cifar10") else SEEDS[profile])
        if (profile, dataset) != ("small", "cifar10") or (variant, name) in SMALL_CIFAR10
    ]
    alone = [
        row(datasets(profile)[0], name, "as_written", seed, profile, switch)
        for name in ("fedavg", "flt_enc1")
        for switch, change in SWITCHES.items()
        for seed in SEEDS[profile]
        if name != "fedavg" or set(change) <= set(_OF_FEDAVG)
    ]
    return main + alone


def row(dataset: str, name: str, variant: str, seed: int, profile: str, switch: str = "") -> Spec:
    """One run of scenario 2, with one of :data:`SWITCHES` changed if asked."""
    change = dict(SWITCHES.get(switch, {}))
    partition = change.pop("partition", variant)
    settings = training(dataset, variant, profile) | {"momentum": change.pop("momentum", MOMENTUM[variant])}
    how = method(name, dataset, variant, profile, n_classes=3)
    if "clusterer" in how:
        how["clusterer"] |= change.pop("clusterer", {})
    return Spec(
        federation(dataset, partition, seed, shared_classes=1),
        how | change,
        **settings,
        seed=seed,
        experiment="02_scenario2",
        dataset=dataset,
        method_id=name,
        variant=variant,
        note=switch,
    )
