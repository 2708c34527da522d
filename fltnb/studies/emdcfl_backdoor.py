"""Jobs of notebook 13: EMD-CFL's backdoors, in colours (MNIST) and in patches (CIFAR-10), Tables 3 and 8.

From the paper: 30 and 15 clients in three groups, a tenth of the training data for validation, three runs. Attackers
hold twice as many digits as the others, and colours are scaled by ImageNet's mean and deviation: both are in the
authors' public code and not in the paper, so they are the table's. ``demo`` also paints the attackers' shades four
times as far from the targets' green as the paper does: of a few small digits a network learns next to nothing of them.
"""

from collections.abc import Iterator

from ..analyses.emdcfl_backdoor import (  # noqa: F401 - by name
    announced,
    by_class,
    versions,
)
from ..results import Job
from . import emdcfl
from .common import FEWER_SEEDS, SEEDS, Settings

CLUSTERS = 3  # targets, attackers, others
FEW = {
    "rounds": 3
}  # of the rows that stand beside the published ten, and where single classes are looked at
TARGET = (
    0  # the cluster that is to be protected; the printed accuracies are its clients'
)
ANATOMY = (
    "fedavg",
    "oracle",
    "emdcfl",
)  # methods that the notebook looks into, class by class

PUBLISHED = {"clients": 30, "samples": None, "batch_size": 64, "lr": 0.01}
"""Backdoor MNIST as published, all images, and the table's local training: short of the network everything."""
STRONGER = PUBLISHED | {
    "batch_size": 32,
    "lr": 0.02,
}  # four times the training, for a network that learns more slowly

SIZES: dict[str, dict[str, Settings]] = {
    "demo": {
        "digits": {
            "model": "mlp_plain",
            "clients": 6,
            "samples": 150,
            "test": 80,
            "val_fraction": 0.2,
        }
        | {
            "rounds": 3,
            "local_epochs": 5,
            "batch_size": 10,
            "lr": 0.02,
            "intensity": 4.0,
        }
        | {
            "clusterings": (
                {"seeds": 1},
                {"tolerance": "auto", "seeds": 1},
                {"intensity": 1.0, "seeds": 1},
            )
        }
        | {"studies": ({}, {"intensity": 1.0})},
    },
    "small": {
        # a third of the clients, two thirds of their images, and a network that two cores can train, in larger steps
        "mnist": {"model": "cnn_small", "clients": 9, "samples": 4000, "test": 400}
        | {"batch_size": 32, "lr": 0.02, "studies": ({}, {"samples": 600})}
        | {
            "clusterings": (
                STRONGER | {"seeds": 10},
                STRONGER | {"tolerance": "auto", "seeds": 3},
                PUBLISHED | {"batch_size": 32, "seeds": 2},
                PUBLISHED | {"seeds": 1},
                {"clients": 30, "samples": 600, "seeds": 3},
                {"scaling": "symmetric", "seeds": 3},
            )
        },
        "cifar10": {
            "model": "cnn_small",
            "clients": 15,
            "samples": 600,
            "test": 200,
            "rows": False,
        }
        | {"batch_size": 32, "lr": 0.02}
        | {"clusterings": ({"seeds": 3}, {"tolerance": "auto", "seeds": 3})},
        # heads on what an ImageNet network sees, which nobody tunes here
        "cifar10-features": {
            "model": "mlp_plain",
            "clients": 15,
            "samples": 600,
            "test": 200,
        }
        | {"clusterings": ({"seeds": 1},)},
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
:data:`fltnb.studies.emdcfl.TRAINING`, whether rows are trained (yes); and what is changed of that for the clusterings
alone, with their tolerance (0.025) and seeds, and for the matrices of distances."""


def jobs(profile: str) -> list[Job]:
    """Return the rows of the table (some as run, too), clusterings alone, pictures, single classes."""
    rows, others = [], []
    for data, size in SIZES[profile].items():
        name, seeds = (
            f"backdoor_{data}",
            (SEEDS if data == "mnist" else FEWER_SEEDS)[profile],
        )
        wanted = [
            ("as_written", method, seeds, {})
            for method in emdcfl.METHODS
            if size.get("rows", True)
        ]
        wanted += [
            ("as_run", method, seeds, {})
            for method in emdcfl.DEPARTS
            if wanted and profile != "demo"
        ]
        if (
            profile == "small" and data == "mnist"
        ):  # and after three rounds: what later ones change
            wanted += [
                (variant, method, seeds[:1], FEW) for variant, method, *_ in wanted
            ]
        for variant, method, seeds, few in wanted:
            rows += emdcfl.rows(
                emdcfl.method(method, CLUSTERS, variant),
                name,
                seeds,
                size | few,
                variant,
                **few,
            )
        others += _alone(name, size)
        others += (
            emdcfl.one_shots(name)
            if profile == "small" and name in emdcfl.OWN_NETWORK
            else []
        )
        if data.endswith(
            emdcfl.FEATURES
        ):  # the pictures that are seen are the other set's
            continue
        if profile != "demo":
            clients = PUBLISHED["clients"] if data == "mnist" else size["clients"]
            others.append(
                emdcfl.pacfl(
                    emdcfl.federation(name, size | {"clients": clients}, 0), name
                )
            )
        others.append(
            Job.study(
                "emdcfl_backdoor.versions", {"data": data}, axes={"dataset": name}
            )
        )
    data, size = next(
        iter(SIZES[profile].items())
    )  # single classes and images, of the first data set
    settings = {
        "federation": emdcfl.federation(f"backdoor_{data}", size, 0) | {"test": "both"}
    }
    settings |= {"model": size["model"], "training": emdcfl.training(size | FEW)}
    settings["methods"] = [emdcfl.method(name, CLUSTERS) for name in ANATOMY]
    axes = {
        "dataset": f"backdoor_{data}",
        "model": size["model"],
        "variant": "as_written",
        "seed": 0,
    }
    return [*rows, *others, Job.study("emdcfl_backdoor.by_class", settings, axes=axes)]


def _shown(size: Settings) -> Settings:
    shown = {"intensity": size.get("intensity", 1.0), "clients": size["clients"]}
    return shown | ({"images": size["samples"]} if size["samples"] else {})


def _alone(dataset: str, whole: Settings) -> Iterator[Job]:
    """EMD-CFL's clustering alone, for more seeds and settings; distances, also with another amount to learn."""
    for changes in whole["clusterings"]:
        size = whole | changes
        own, tolerance = emdcfl.local(size), size.get("tolerance", emdcfl.TOLERANCE)
        axes = {
            "model": size["model"],
            **_shown(size),
            "lr": own["lr"],
            "batch": own["batch_size"],
        }
        axes |= {
            "tolerance": str(tolerance),
            "scaling": emdcfl.federation(dataset, size, 0).get("scaling", "usual"),
        }
        yield from emdcfl.clusterings(dataset, changes["seeds"], size, tolerance, axes)
    for changes in whole.get("studies", ({},)):
        size = whole | changes
        fed, own = (
            emdcfl.federation(dataset, size, 0),
            emdcfl.local(size, "weight_decay"),
        )
        axes = {"dataset": dataset, **_shown(size)}
        yield Job.distances(
            fed, size["model"], own, {"name": "EMDClustering"}, axes=axes
        )
