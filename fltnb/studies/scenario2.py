"""Jobs of notebook 02: FLT Tables 2 and 8, Figure 9: three labels per client, neighbouring clusters share one."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import federations
from ..results import Job
from .common import (
    MOMENTUM,
    SCENARIO1_METHODS,
    SEEDS,
    VARIANTS,
    clusterer,
    datasets,
    encoder,
    method,
    picture,
    training,
)
from .common import federation as labels

# What the code behind the tables did differently from the text, each changed alone, all else as written
SWITCHES: dict[str, list[dict[str, Any]]] = {
    "fedavg": [{"rule": "last_local"}, {"rule": "last_aggregate"}, {"momentum": 0.5}, {"partition": "as_run"}],
    "flt_enc1": [
        *({"rule": "last_local"}, {"rule": "last_aggregate"}, {"momentum": 0.5}, {"partition": "as_run"}),
        *({"k": 3}, {"distance": "matching"}, {"graph": "full"}, {"membership": "leaf_order"}),
    ],
}


def jobs(profile: str) -> list[Job]:
    """FLT Tables 2 and 8, Figure 9: six methods and the oracle in both variants, every switch alone; partitions.

    ``small`` has no CIFAR-10: a row takes 15 minutes or more of a core. Notebook 05 has shorter settings of the same
    federation.
    """
    sets, seeds = datasets(profile), SEEDS[profile]
    trained = sets[:1] if profile == "small" else sets
    rows = [
        _row(dataset, name, variant, seed, profile)
        for dataset in trained
        for variant in VARIANTS
        for name in SCENARIO1_METHODS
        for seed in seeds
    ]
    alone = [
        _row(sets[0], name, "as_written", seed, profile, **switch)
        for name, switches in SWITCHES.items()
        for switch in (switches[1::2] if profile == "demo" else switches)
        for seed in seeds
    ]
    # PCA+kM+HC's threshold was 1 in the text, 1.2 in the code of the tables and 3 a few days before
    alone += [_row(sets[0], "pca_km_hc", "as_run", seed, profile, threshold=3.0) for seed in seeds if profile != "demo"]
    found = [
        picture(
            _federation(dataset, variant),
            clusterer(dataset, variant, n_classes=3),
            encoder(dataset, "enc1", variant, profile),
            **{"dataset": dataset, "method": "flt_enc1", "variant": variant},
        )
        for dataset in trained
        for variant in VARIANTS
    ]
    held = [
        Job.study("scenario2.holdings", {"federation": _federation(name, how)}, axes={"dataset": name, "variant": how})
        for name in sets
        for how in VARIANTS
    ]
    return rows + alone + found + held


def _federation(dataset: str, variant: str, seed: int = 0) -> dict[str, Any]:
    return labels(dataset, variant, seed, shared_classes=1)


def _row(dataset: str, name: str, variant: str, seed: int, profile: str, **switch: Any) -> Job:
    change = dict(switch)
    fed = _federation(dataset, change.pop("partition", variant), seed)
    settings = training(dataset, variant, profile) | {"momentum": change.pop("momentum", MOMENTUM[variant])}
    how = method(name, dataset, variant, profile, n_classes=3)
    inner = {option: change.pop(option) for option in ("k", "distance", "threshold") if option in change}
    if inner:
        how["clusterer"] |= inner
    axes = {"dataset": dataset, "method": name, "variant": variant, **switch}
    return Job.training(fed, how | change, **settings, seed=seed, axes=axes)


def holdings(federation: dict[str, Any]) -> dict[str, Any]:
    """Count what the clients of a federation hold.

    Returns a dict: ``numbers``: ``images`` (different training images) and ``held_twice`` (those that several clients
    hold); ``arrays``: ``label_counts`` (M, classes) of the training images, and the true ``clusters`` (M,).
    ``federation``: settings, as :func:`fltnb.federations.build` takes them.
    """
    fed = federations.build(federation)
    images, holders = np.unique(np.concatenate([np.unique(own) for own in fed.train]), return_counts=True)
    numbers = {"images": len(images), "held_twice": int((holders > 1).sum())}
    counts = np.asarray(fed.label_counts("train"), dtype=np.int32)
    return {"numbers": numbers, "arrays": {"label_counts": counts, "clusters": fed.clusters}}
