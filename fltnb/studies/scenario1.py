"""Runs of notebook 01: FLT Tables 1 and 7, Figure 8."""

from __future__ import annotations

from ..results import Job
from .common import SCENARIO1_METHODS, SEEDS, VARIANTS, datasets, picture, row

# What `small` runs of CIFAR-10, as written and with one seed: a row takes 15 minutes or more of a core. The others are
# shown as not run.
SMALL_CIFAR10 = ("fedavg", "local", "fedsem", "flt_enc1")


def jobs(profile: str) -> list[Job]:
    """FLT Tables 1 and 7, Figure 8: six methods in both variants, and the switches that move FedAvg and FLT."""
    result = []
    for dataset in datasets(profile):
        few = (profile, dataset) == ("small", "cifar10")
        seeds = SEEDS[profile][: 1 if few else None]
        result += [
            row(name, dataset, variant, seed, profile)
            for variant in VARIANTS
            for name in SCENARIO1_METHODS
            for seed in seeds
            if not few or (variant == "as_written" and name in SMALL_CIFAR10)
        ]
        if dataset != "cifar10":
            result += [
                row(name, dataset, "as_run", seed, profile, rule=rule)
                for name in ("fedavg", "flt_enc1")
                for rule in ("participants", "last_aggregate")
                for seed in seeds
            ]
    return result + [picture(dataset, variant, profile) for dataset in datasets(profile) for variant in VARIANTS]
