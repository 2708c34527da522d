"""Runs of notebook 01: FLT Tables 1 and 7, Figure 8; how many centroids FCR needs."""

from ..results import Job
from . import centroids
from .common import SCENARIO1_METHODS, SEEDS, VARIANTS, datasets, picture, row, steps


def jobs(profile: str) -> list[Job]:
    """FLT Tables 1 and 7, Figure 8: six methods in both variants, the switches that move them, and the study of k."""
    result, seeds = [], SEEDS[profile]
    for dataset in datasets(profile):
        result += [
            row(name, dataset, variant, seed, profile)
            for variant in VARIANTS
            for name in SCENARIO1_METHODS
            for seed in seeds
        ]
        if dataset != "cifar10":
            result += [
                row(name, dataset, "as_run", seed, profile, rule=rule)
                for name in ("fedavg", "flt_enc1")
                for rule in ("participants", "last_aggregate")[profile != "demo" :]  # steps() has the first one
                for seed in seeds
            ]
        if profile != "demo":  # PCA+kM+HC's threshold was 3 a few days before the tables, and 1.2 then
            result += [row("pca_km_hc", dataset, "as_run", seed, profile, threshold=3.0) for seed in seeds]
            result += steps(dataset, profile)
    result += centroids.jobs(profile)
    return result + [picture(dataset, variant, profile) for dataset in datasets(profile) for variant in VARIANTS]
