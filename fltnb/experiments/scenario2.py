"""Runs of notebook 02: FLT Tables 2 and 8, Figure 9: three labels per client, neighbouring clusters share one."""

from __future__ import annotations

from ..store import Spec
from .common import SCENARIO1_METHODS, SEEDS, datasets, federation, method, training

METHODS = SCENARIO1_METHODS
# Rows of CIFAR-10 that `small` runs: each takes 15 minutes or more of a core. The others are shown as not run.
SMALL_CIFAR10 = {
    ("described", "fedavg"),
    ("described", "fedsem"),
    ("described", "flt_enc1"),
    ("published", "flt_enc1"),
}


def specs(profile: str) -> list[Spec]:
    """FLT Tables 2 and 8, Figure 9: six methods and the oracle in both variants."""
    return [
        row(dataset, name, variant, seed, profile)
        for dataset in datasets(profile)
        for variant in ("described", "published")
        for name in METHODS
        # CIFAR-10 takes minutes a run on two cores: one seed there
        for seed in (SEEDS[profile][:1] if (profile, dataset) == ("small", "cifar10") else SEEDS[profile])
        if (profile, dataset) != ("small", "cifar10") or (variant, name) in SMALL_CIFAR10
    ]


def row(dataset: str, name: str, variant: str, seed: int, profile: str) -> Spec:
    """One run of scenario 2."""
    return Spec(
        federation(dataset, variant, seed, shared_classes=1),
        method(name, dataset, variant, profile, n_classes=3),
        **training(dataset, variant, profile),
        seed=seed,
        experiment="02_scenario2",
        dataset=dataset,
        method_id=name,
        variant=variant,
    )
