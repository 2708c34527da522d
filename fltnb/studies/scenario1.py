"""Runs of notebook 01: FLT Tables 1 and 7, Figure 8; how many centroids FCR needs."""

from itertools import product

from ..results import Job
from . import centroids
from .common import (
    DATASETS,
    SCENARIO1_METHODS,
    SEEDS,
    VARIANTS,
    alone,
    picture,
    rows,
    steps,
)


def jobs(profile: str) -> list[Job]:
    """FLT Tables 1 and 7, Figure 8: six methods in both variants, the switches that move them, and the study of k."""
    result = []
    for dataset in DATASETS[profile]:
        wanted = [
            (name, variant, {})
            for variant, name in product(VARIANTS, SCENARIO1_METHODS)
        ]
        wanted += [("flt_enc1", "as_written", {"k": 2})] * (
            dataset == "cifar10"
        )  # a client's number of classes
        if dataset != "cifar10":
            rules = ("participants", "last_aggregate")[
                profile != "demo" :
            ]  # steps() has the first one
            wanted += [
                (name, "as_run", {"rule": rule})
                for name, rule in product(("fedavg", "flt_enc1"), rules)
            ]
        if (
            profile != "demo"
        ):  # PCA+kM+HC's threshold was 3 a few days before the tables, and 1.2 then
            wanted.append(("pca_km_hc", "as_run", {"threshold": 3.0}))
        for name, variant, switch in wanted:
            result += rows(name, dataset, variant, profile, SEEDS[profile], **switch)
        result += steps(dataset, profile) if profile != "demo" else []
    result += alone("mnist", profile, SEEDS[profile]) if profile != "demo" else []
    result += centroids.jobs(profile)
    return result + [
        picture(dataset, variant, profile)
        for dataset in DATASETS[profile]
        for variant in VARIANTS
    ]
