"""Runs of notebook 13: EMD-CFL's backdoors, in colours (MNIST) and in patches (CIFAR-10), Tables 3 and 8.

From the paper: 30 and 15 clients in three groups, a tenth of the training data for validation, three runs. Attackers
hold twice as many digits as the others, and colours are scaled by ImageNet's mean and deviation: both are in the
authors' public code and not in the paper, so they are the table's. ``demo`` also paints the attackers' shades farther
apart than the paper does, by :data:`INTENSITY`: of a few small digits a network learns next to nothing of them.
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
"""Times the published difference between the attackers' shades and the targets' green, in ``demo``."""
OTHERWISE = "not the table's settings"  # note of clusterings that say what the result depends on
SUBTLE = "published shades"  # note of the runs with the paper's own, where the others have plainer ones
ANATOMY = ("fedavg", "oracle", "emdcfl")  # methods that the notebook looks into, class by class
BOTH_WAYS = {"demo": (), "small": ("fedclust", "flexcfl", "fedem", "fedrc"), "paper": emdcfl.DEPARTS}
"""Rows that are run as the table's code ran them, too; notebook 11 has all of them at the smaller profiles."""
LIGHT = ("oracle", "emdcfl", "fedavg", "fedprox", "pacfl")

PUBLISHED = {"clients": 30, "samples": None, "batch_size": 64, "lr": 0.01}
"""Backdoor MNIST as published, all images, and the table's local training: short of the network everything."""
STRONGER = {"batch_size": 32, "lr": 0.02}  # four times the published training, for a network that learns more slowly

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "demo": {
        "digits": {"model": "mlp_plain", "clients": 6, "samples": 150, "test": 80, "val_fraction": 0.2}
        | {"rounds": 3, "local_epochs": 5, "batch_size": 10, "lr": 0.02, "intensity": INTENSITY, "seeds": 1}
        | {"clusterings": ({"seeds": 3}, {"tolerance": "auto", "seeds": 1})}
        | {"otherwise": ({"intensity": 1.0, "seeds": 1},)}
        | {"studies": {f"shades {INTENSITY:g} times the paper's": {}, "the paper's shades": {"intensity": 1.0}}},
    },
    "small": {
        # a third of the clients, two thirds of their images, and a network that two cores can train, in larger steps
        "mnist": {"model": "cnn_small", "clients": 9, "samples": 4000, "test": 400}
        | {"rounds": 3, "batch_size": 32, "lr": 0.02, "seeds": 1}
        | {
            "clusterings": (
                PUBLISHED | STRONGER | {"seeds": 10},
                PUBLISHED | STRONGER | {"tolerance": "auto", "seeds": 3},
            )
        }
        | {
            "otherwise": (
                PUBLISHED | {"batch_size": 32, "seeds": 2},
                PUBLISHED | {"seeds": 1},
                {"clients": 30, "samples": 600, "seeds": 3},
                {"scaling": "symmetric", "seeds": 3},
            )
        }
        | {"studies": {"4,000 images a client": {}, "600 images a client": {"samples": 600}}},
        "cifar10": {"model": "cnn_small", "clients": 15, "samples": 600, "test": 200, "methods": LIGHT}
        | {"rounds": 4, "batch_size": 32, "lr": 0.02, "seeds": 1}
        | {"clusterings": ({"seeds": 3}, {"tolerance": "auto", "seeds": 3})},
    },
    "paper": {
        "mnist": {"model": "emdcfl_cnn", "clients": 30, "samples": None, "test": None}
        | {"clusterings": ({"seeds": 10}, {"tolerance": "auto", "seeds": 10})},
        "cifar10": {"model": "resnet18", "clients": 15, "samples": None, "test": None}
        | {"clusterings": ({"seeds": 3}, {"tolerance": "auto", "seeds": 3})},
    },
}
"""By profile and data set: network, clients, images of a client (training and validation; None: all there are; for
digits those of an attacker, the others keep half of the training part), test images, what departs from
:data:`fltnb.experiments.emdcfl.TRAINING`, seeds (3), methods (all); and what is changed of that for the clusterings
alone, with their tolerance (0.025) and seeds, for others that say what the result depends on, and for the matrices of
distances."""
_TRAINING = ("rounds", "local_epochs", "batch_size", "lr")


def specs(profile: str) -> list[Spec]:
    """Return the rows of the table, then the table's code where it departs, then the paper's own shades."""
    runs = []
    for data, size in SIZES[profile].items():
        seeds = SEEDS[profile][: size.get("seeds", 3)]
        runs += [row(profile, data, name, s) for name in size.get("methods", emdcfl.METHODS) for s in seeds]
        if "methods" not in size:
            runs += [row(profile, data, name, s, variant="as_run") for name in BOTH_WAYS[profile] for s in seeds]
        if size.get("intensity", 1.0) != 1.0:
            runs += [row(profile, data, name, s, intensity=1.0, note=SUBTLE) for name in ANATOMY for s in seeds]
    return runs


def clusterings(profile: str) -> list[ClusterSpec]:
    """Return EMD-CFL's clustering alone, for more seeds: the published tolerance, and the one taken from the data."""
    return list(_clusterings(profile))


def _clusterings(profile: str) -> Iterator[ClusterSpec]:
    for data, size in SIZES[profile].items():
        varied = [("", changes) for changes in size["clusterings"]]
        for note, changes in [*varied, *((OTHERWISE, changes) for changes in size.get("otherwise", ()))]:
            size = SIZES[profile][data] | changes
            own, tolerance = _own(size), size.get("tolerance", emdcfl.TOLERANCE)
            for seed in range(changes["seeds"]):
                fed = federation(profile, data, seed, **changes)
                axes = {"shades": size.get("intensity", 1.0), "clients": size["clients"]}
                axes |= {"images": str(size["samples"] or "all"), "network": size["model"]}
                axes |= {"lr": own["lr"], "batch": own["batch_size"]}
                axes |= {"scaling": fed.get("scaling", "usual"), "tolerance": str(tolerance)}
                yield ClusterSpec(
                    fed | {"test": "clean"},
                    {"name": "EMDClustering", "tolerance": tolerance},
                    {"kind": "own", "model": size["model"], **own, "seed": seed},
                    seed=seed,
                    experiment=NOTEBOOK,
                    dataset=dataset(data),
                    method_id="emdcfl",
                    note=note,
                    axes=axes,
                )


def studies(profile: str) -> list[Study]:
    """Return the distances of all pairs for one seed; ``note`` says what was changed of the profile's settings."""
    found = []
    for data in SIZES[profile]:
        for note, changes in SIZES[profile][data].get("studies", {"as in the table": {}}).items():
            size = SIZES[profile][data] | changes
            own = _own(size) | {"weight_decay": emdcfl.TRAINING["weight_decay"]}
            fed = federation(profile, data, 0, **changes) | {"test": "clean"}
            found.append(Study(fed, size["model"], own, 0, emd(), "pairs", dataset(data), note))
    return found


def _own(size: dict[str, Any]) -> dict[str, Any]:
    training = emdcfl.TRAINING | {name: size[name] for name in _TRAINING if name in size}
    return {name: training[name] for name in ("local_epochs", "batch_size", "lr", "momentum")}


def dataset(data: str) -> str:
    """Return the data set's name in tables."""
    return f"backdoor_{data}"


def federation(profile: str, data: str, seed: int, **changes: Any) -> dict[str, Any]:
    """Return the federation of a data set; ``changes`` replace what :data:`SIZES` says, or the scaling of pixels."""
    size = SIZES[profile][data] | changes
    settings = {
        "kind": "backdoor_patches" if data == "cifar10" else "backdoor_colours",
        "dataset": data,
        "n_clients": size["clients"],
        "samples_per_client": size["samples"],
        "test_per_client": size["test"],
        "val_fraction": size.get("val_fraction", 0.1),
        "test": "both",
        "seed": seed,
        **emdcfl.scaling(size["model"], coloured=True),
    }
    if data != "cifar10":
        settings |= {"variant": "as_run", "intensity": size.get("intensity", 1.0)}
    return settings | ({"scaling": size["scaling"]} if "scaling" in size else {})


def row(
    profile: str,
    data: str,
    name: str,
    seed: int,
    variant: str = "as_written",
    note: str = "",
    **changes: Any,
) -> Spec:
    """Return one run of the table; ``changes`` as for :func:`federation`."""
    size = SIZES[profile][data]
    return emdcfl.row(
        name,
        federation(profile, data, seed, **changes),
        dataset(data),
        seed,
        experiment=NOTEBOOK,
        model=size["model"],
        n_clusters=CLUSTERS,
        variant=variant,
        note=note,
        **{name: size[name] for name in _TRAINING if name in size},
    )
