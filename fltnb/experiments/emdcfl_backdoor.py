"""Runs of notebook 13: EMD-CFL's backdoors, in colours (MNIST) and in patches (CIFAR-10), Tables 3 and 8.

From the paper: 30 and 15 clients in three groups, a tenth of the training data for validation, three runs. Attackers
hold twice as many digits as the others: that is in the authors' notebook and not in the paper, so it is the table's
partition. ``small`` and ``demo`` also paint the attackers' shades farther apart than the paper does, by
:data:`INTENSITY`: of the published ones light networks learn next to nothing, as the notebook shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..oneshot import ClusterSpec
from ..store import Spec
from . import emdcfl
from .common import SEEDS
from .emdcfl_robustness import Study, emd

NOTEBOOK = "13_emdcfl_backdoor"
CLUSTERS = 3  # targets, attackers, others
INTENSITY = 4.0
"""Times the published difference between the attackers' shades and the targets' green, in ``small`` and ``demo``."""
SUBTLE = "published shades"  # note of the runs with the paper's own, where the others have plainer ones
ANATOMY = ("fedavg", "oracle", "emdcfl")  # methods that the notebook looks into, class by class
BOTH_WAYS = {"demo": (), "small": ("fedclust", "flexcfl", "fedem", "fedrc"), "paper": emdcfl.DEPARTS}
"""Rows that are run as the table's code ran them, too; notebook 11 has all of them at the smaller profiles."""
LIGHT = ("oracle", "emdcfl", "fedavg", "fedprox", "pacfl")

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "demo": {
        "digits": {"model": "mlp_plain", "clients": 6, "samples": 150, "test": 80, "val_fraction": 0.2}
        | {"rounds": 3, "local_epochs": 5, "batch_size": 10, "lr": 0.02, "intensity": INTENSITY, "seeds": 1}
        | {"clusterings": ((INTENSITY, 0.025, 3), (INTENSITY, "auto", 1), (1.0, 0.025, 1))},
    },
    "small": {
        # a ninth of the published images, a network that two cores can train, and four rounds
        "mnist": {"model": "cnn_small", "clients": 30, "samples": 600, "test": 200}
        | {"rounds": 4, "batch_size": 32, "lr": 0.02, "intensity": INTENSITY, "seeds": 1}
        | {"clusterings": ((INTENSITY, 0.025, 10), (INTENSITY, "auto", 3), (1.0, 0.025, 3))},
        "cifar10": {"model": "cnn_small", "clients": 15, "samples": 600, "test": 200, "methods": LIGHT}
        | {"rounds": 4, "batch_size": 32, "lr": 0.02, "seeds": 1}
        | {"clusterings": ((1.0, 0.025, 3), (1.0, "auto", 3))},
    },
    "paper": {
        "mnist": {"model": "emdcfl_cnn", "clients": 30, "samples": None, "test": None}
        | {"clusterings": ((1.0, 0.025, 10), (1.0, "auto", 10))},
        "cifar10": {"model": "resnet18", "clients": 15, "samples": None, "test": None}
        | {"clusterings": ((1.0, 0.025, 3), (1.0, "auto", 3))},
    },
}
"""By profile and data set: network, clients, images of a client (training and validation; None: all there are; for
digits those of an attacker, the others keep half of the training part), test images, what departs from
:data:`fltnb.experiments.emdcfl.TRAINING`, seeds (3), methods (all), and of clusterings alone: intensity, tolerance,
seeds."""
_TRAINING = ("rounds", "local_epochs", "batch_size", "lr")


def specs(profile: str) -> list[Spec]:
    """Return the rows of the table, then the table's code where it departs, then the paper's own shades."""
    runs = []
    for data, size in SIZES[profile].items():
        seeds = SEEDS[profile][: size.get("seeds", 3)]
        runs += [row(profile, data, name, s) for name in size.get("methods", emdcfl.METHODS) for s in seeds]
        if "methods" not in size:
            runs += [row(profile, data, name, s, variant="published") for name in BOTH_WAYS[profile] for s in seeds]
        if size.get("intensity", 1.0) != 1.0:
            runs += [row(profile, data, name, s, intensity=1.0, note=SUBTLE) for name in ANATOMY for s in seeds]
    return runs


def clusterings(profile: str) -> list[ClusterSpec]:
    """Return EMD-CFL's clustering alone, for more seeds: the published tolerance, and the one taken from the data."""
    return list(_clusterings(profile))


def _clusterings(profile: str) -> Iterator[ClusterSpec]:
    for data, size in SIZES[profile].items():
        training = emdcfl.TRAINING | {name: size[name] for name in _TRAINING if name in size}
        own = {name: training[name] for name in ("local_epochs", "batch_size", "lr", "momentum")}
        for intensity, tolerance, seeds in size["clusterings"]:
            for seed in range(seeds):
                yield ClusterSpec(
                    federation(profile, data, seed, intensity) | {"test": "clean"},
                    {"name": "EMDClustering", "tolerance": tolerance},
                    {"kind": "own", "model": size["model"], **own, "seed": seed},
                    seed=seed,
                    experiment=NOTEBOOK,
                    dataset=dataset(data),
                    method_id="emdcfl",
                    axes={"shades": intensity, "tolerance": str(tolerance)},
                )


def studies(profile: str) -> list[Study]:
    """Return the distances of all pairs for one seed, with plainer shades and with the paper's; ``note`` says which."""
    found = []
    for data, size in SIZES[profile].items():
        training = emdcfl.TRAINING | {name: size[name] for name in _TRAINING if name in size}
        own = {name: training[name] for name in ("local_epochs", "batch_size", "lr", "momentum", "weight_decay")}
        for intensity in dict.fromkeys((size.get("intensity", 1.0), 1.0)):
            fed = federation(profile, data, 0, intensity) | {"test": "clean"}
            note = f"shades {intensity:g} times the paper's" if data != "cifar10" else "patches"
            found.append(Study(fed, size["model"], own, 0, emd(), "pairs", dataset(data), note))
    return found


def dataset(data: str) -> str:
    """Return the data set's name in tables."""
    return f"backdoor_{data}"


def federation(profile: str, data: str, seed: int, intensity: float | None = None) -> dict[str, Any]:
    """Return the federation of a data set; ``intensity`` replaces the profile's (digits only)."""
    size = SIZES[profile][data]
    settings = {
        "kind": "backdoor_patches" if data == "cifar10" else "backdoor_colours",
        "dataset": data,
        "n_clients": size["clients"],
        "samples_per_client": size["samples"],
        "test_per_client": size["test"],
        "val_fraction": size.get("val_fraction", 0.1),
        "test": "both",
        "seed": seed,
    }
    if data != "cifar10":
        settings |= {"variant": "published", "intensity": intensity or size.get("intensity", 1.0)}
    return settings


def row(
    profile: str,
    data: str,
    name: str,
    seed: int,
    variant: str = "described",
    intensity: float | None = None,
    note: str = "",
) -> Spec:
    """Return one run of the table."""
    size = SIZES[profile][data]
    return emdcfl.row(
        name,
        federation(profile, data, seed, intensity),
        dataset(data),
        seed,
        experiment=NOTEBOOK,
        model=size["model"],
        n_clusters=CLUSTERS,
        variant=variant,
        note=note,
        **{name: size[name] for name in _TRAINING if name in size},
    )
