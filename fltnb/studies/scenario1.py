"""Runs of notebook 01: FLT Tables 1 and 7, Figure 8."""

from __future__ import annotations

from ..results import Job
from .common import SEEDS, VARIANTS, datasets, picture, row, table_methods


def jobs(profile: str) -> list[Job]:
    """FLT Tables 1 and 7, Figure 8: six methods in both variants, and the switches that move FedAvg and FLT."""
    result, seeds = [], SEEDS[profile]
    for dataset in datasets(profile):
        result += [
            row(name, dataset, variant, seed, profile)
            for variant in VARIANTS
            for name in table_methods(dataset, profile)
            for seed in seeds
        ]
        if dataset != "cifar10":
            result += [
                row(name, dataset, "as_run", seed, profile, rule=rule)
                for name in ("fedavg", "flt_enc1")
                for rule in ("participants", "last_aggregate")
                for seed in seeds
            ]
    return result + [picture(dataset, variant, profile) for dataset in datasets(profile) for variant in VARIANTS]
