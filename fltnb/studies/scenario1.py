"""Runs of notebook 01: FLT Tables 1 and 7, Figure 8."""

from __future__ import annotations

from typing import Any

from ..results import Job
from .common import (
    SCENARIO1_METHODS,
    SEEDS,
    VARIANTS,
    clusterer,
    datasets,
    encoder,
    federation,
    method,
    picture,
    training,
)

# Rows of CIFAR-10 that `small` runs: each takes 15 minutes or more of a core. The others are shown as not run.
SMALL_CIFAR10 = {
    ("as_written", "fedavg"),
    ("as_written", "local"),
    ("as_written", "fedsem"),
    ("as_written", "flt_enc1"),
}


def jobs(profile: str) -> list[Job]:
    """FLT Tables 1 and 7, Figure 8: six methods in both variants, and the switches that move FedAvg and FLT."""
    result = []
    for dataset in datasets(profile):
        # CIFAR-10 takes minutes a run on two cores: one seed there
        seeds = SEEDS[profile][:1] if (profile, dataset) == ("small", "cifar10") else SEEDS[profile]
        for variant in VARIANTS:
            result += [
                _row(dataset, name, variant, seed, profile)
                for name in SCENARIO1_METHODS
                for seed in seeds
                if (profile, dataset) != ("small", "cifar10") or (variant, name) in SMALL_CIFAR10
            ]
        if dataset != "cifar10":
            result += [
                _row(dataset, name, "as_run", seed, profile, rule=rule)
                for name in ("fedavg", "flt_enc1")
                for rule in ("participants", "last_aggregate")
                for seed in seeds
            ]
    return result + [_clustering(dataset, variant, profile) for dataset in datasets(profile) for variant in VARIANTS]


def _clustering(dataset: str, variant: str, profile: str) -> Job:
    """Return the clustering of FCR with Enc1."""
    enc = encoder(dataset, "enc1", variant, profile)
    axes = {"dataset": dataset, "method": "flt_enc1", "variant": variant}
    return picture(federation(dataset, variant, 0), clusterer(dataset, variant), enc, **axes)


def _row(dataset: str, name: str, variant: str, seed: int, profile: str, **switches: Any) -> Job:
    return Job.training(
        federation(dataset, variant, seed),
        method(name, dataset, variant, profile, **switches),
        **training(dataset, variant, profile),
        seed=seed,
        axes={"dataset": dataset, "method": name, "variant": variant, **switches},
    )
