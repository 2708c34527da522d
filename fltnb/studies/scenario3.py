"""Runs of notebook 03: FLT Tables 3 and 9, Figures 3, 4, 10, 12: writers, with no clusters known beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..federations import build
from ..methods.base import resolve_rule
from ..results import Job
from .common import MOMENTUM, SEEDS, VARIANTS, picture, pixels
from .scenario4 import clusterer, encoder

METHODS = ("fedavg", "pca_km_hc", "ifca", "cfl", "fedsem", "flt", "flt_c2", "flt_c3", "flt_c5", "flt_c7")
# Rounds; IFCA begins with FedAvg ("weight sharing") for a third of its own, longer run (FLT, Section 4.5)
ROUNDS = {
    "demo": {"mlp": {"rounds": 4, "ifca": 6}},
    "small": {"mlp": {"rounds": 200, "ifca": 300}},
    "paper": {"mlp": {"rounds": 1000, "ifca": 1500}, "leaf_cnn": {"rounds": 100, "ifca": 1500}},
}
DATASETS = {"demo": "digits", "small": "emnist_byclass", "paper": "femnist"}
NAMES = {"demo": "digits", "small": "pseudo_writers", "paper": "femnist"}  # how tables call the data


def jobs(profile: str) -> list[Job]:
    """Rows of Tables 3 and 9 and Figure 12, FCR's client graph, and a few images.

    ``small`` has one seed and no as-run rows (five times the cost).
    """
    dataset, name = DATASETS[profile], NAMES[profile]
    variants = VARIANTS[:1] if profile == "small" else VARIANTS
    return [
        *(
            _row(method, model, variant, seed, profile)
            for model in ROUNDS[profile]
            for variant in variants
            for method in METHODS
            for seed in SEEDS[profile][: 1 if profile == "small" else None]
        ),
        *(
            picture(
                federation(profile), clusterer(dataset, how), encoder(dataset), dataset=name, method="flt", variant=how
            )
            for how in VARIANTS
        ),
        Job.study("scenario3.handwriting", {"federation": federation(profile)}, axes={"dataset": name, "seed": 0}),
    ]


def federation(profile: str, seed: int = 0) -> dict[str, Any]:
    """Return FEMNIST's first 200 writers, or pseudo-writers where it is not at hand."""
    if profile == "paper":
        return {"kind": "writers", "dataset": "femnist", "n_clients": 200}
    n_clients = 30 if profile == "demo" else 200
    return {"kind": "pseudo_writers", "dataset": DATASETS[profile], "n_clients": n_clients, "seed": seed}


def handwriting(federation: Mapping[str, Any], writers: int = 5, each: int = 10) -> dict[str, Any]:
    """Return the first training images of a few clients.

    Returns a dict: ``arrays``: ``images`` (writers, each, height, width) uint8.
    """
    fed = build(dict(federation))
    return {"arrays": {"images": np.stack([fed.images[own[:each]] for own in fed.train[:writers]])}}


def _row(name: str, model: str, variant: str, seed: int, profile: str) -> Job:
    rounds = ROUNDS[profile][model]["ifca" if name == "ifca" else "rounds"]
    return Job.training(
        federation(profile, seed),
        method(name, DATASETS[profile], variant, rounds),
        model=model,
        rounds=rounds,
        local_epochs=5,
        # the paper says 0.2, the code's file for this scenario all clients in every round
        participation=0.2 if variant == "as_written" else 1.0,
        lr=0.05 if profile == "demo" else 0.01,
        momentum=MOMENTUM[variant],
        eval_every={"demo": 1, "small": 10, "paper": 10}[profile],
        seed=seed,
        axes={"dataset": NAMES[profile], "method": name, "variant": variant},
    )


def method(name: str, dataset: str, variant: str, rounds: int) -> dict[str, Any]:
    """Return the settings of one row of Table 3; given C: PCA+kM+HC 3, IFCA 3, FedSEM 5 (FLT, Section 4.5)."""
    settings: dict[str, Any] = {"name": name, "rule": resolve_rule(None, variant)}
    slip = {} if variant == "as_written" else {"membership": "leaf_order"}  # how the code read clusters off
    if name == "fedsem":
        settings |= {"n_clusters": 5}
    elif name == "ifca":
        settings = {"name": name, "n_clusters": 3, "warmup": rounds // 3, "shared": "lower"}
    elif name == "cfl":
        settings = {"name": name}
    elif name == "pca_km_hc":
        how = {"name": "PCAKMeans", "n_clusters": 3, "random_state": 43}
        how |= {"n_components": 16, "k": 2} if dataset == "digits" else {"n_components": 128}
        settings |= {"kind": "PCAKMHC", "graph": "clusters", "clusterer": how, "encoder": pixels()} | slip
    elif name == "flt":
        settings |= {"kind": "FLT", "graph": "full", "clusterer": clusterer(dataset, variant)}
        settings |= {"encoder": encoder(dataset)}
    elif name.startswith("flt_c"):
        how = clusterer(dataset, variant, n_clusters=int(name.removeprefix("flt_c")))
        settings |= {"kind": "FLT", "graph": "clusters", "clusterer": how, "encoder": encoder(dataset)} | slip
    return settings
