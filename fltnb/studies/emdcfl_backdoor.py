"""Jobs of notebook 13: EMD-CFL's backdoors, in colours (MNIST) and in patches (CIFAR-10), Tables 3 and 8.

From the paper: 30 and 15 clients in three groups, a tenth of the training data for validation, three runs. Attackers
hold twice as many digits as the others, and colours are scaled by ImageNet's mean and deviation: both are in the
authors' public code and not in the paper, so they are the table's. ``demo`` also paints the attackers' shades four
times as far from the targets' green as the paper does: of a few small digits a network learns next to nothing of them.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from .. import federations, rounds
from ..data import load
from ..federations import Federation, backdoor
from ..methods import build
from ..results import Job
from . import emdcfl
from .common import FEWER_SEEDS, SEEDS, Settings, Study

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


def by_class(
    federation: Settings, model: str, training: Settings, methods: list[Settings]
) -> Study:
    """Train methods and look at the targets' test images, clean and under the trigger, class by class.

    Returns a dict: Table ``classes``: ``method, class, clean, triggered, announced`` (percent over all targets; the
    last: triggered images taken for the class that the trigger announces), for the classes that targets have.
    """
    from .. import models

    fed = federations.build(federation)
    net, targets, told = (
        models.make(model, fed.input_shape, fed.n_classes),
        fed.clusters == TARGET,
        announced(fed),
    )
    classes = []
    for settings in methods:
        done = rounds.run(build(settings), fed, model, **training, progress=False)
        clean, triggered = (
            rounds.confusion(net, done.theta, done.rows, fed, split)[targets].sum(
                axis=0
            )
            for split in ("test", "probe")
        )
        for c in np.flatnonzero(clean.sum(axis=1)):
            shares = 100 * triggered[c] / triggered[c].sum()
            row = {"method": settings["name"], "class": str(fed.class_names[c])}
            row |= {"clean": 100 * clean[c, c] / clean[c].sum(), "triggered": shares[c]}
            classes.append(
                row | {"announced": shares[told[c]] if told[c] != c else np.nan}
            )
    return {"tables": {"classes": pd.DataFrame(classes)}}


def announced(fed: Federation) -> np.ndarray:
    """Class that the trigger on an image announces, by the image's class; -1 for classes the targets do not have."""
    classes = np.arange(fed.n_classes)
    if fed.settings["kind"] == "backdoor_colours":
        return fed.n_classes - 1 - classes
    half = fed.n_classes // 2
    return np.where(classes < half, (classes + 1) % half, -1)


def versions(data: str, intensity: float = 1.0, side: int = 3) -> Study:
    """Return, as arrays, one test image of each class as the three groups have it, and under the trigger.

    Of CIFAR-10 these are the classes of the targets, and as many others. The table ``classes`` names them.
    """
    images = load(data)
    colours = images.images.ndim == 3
    half, held = images.n_classes // 2, images.test_index
    classes = np.arange(images.n_classes if colours else half)
    first = images.images[
        held[np.unique(images.labels[held], return_index=True)[1]]
    ]  # of every class
    own = first[classes]
    if colours:
        paint = {
            "target": np.array([backdoor.GREEN]),
            "attacker": backdoor.shade(classes, intensity),
        }
        paint["trigger"] = backdoor.shade(images.n_classes - 1 - classes, intensity)
        paint["other"] = np.array([backdoor.PURPLE])
        found = {name: backdoor.tinted(own, colour) for name, colour in paint.items()}
    else:
        patch = {"attacker": classes, "trigger": (classes + 1) % half}
        found = {"target": own} | {
            name: backdoor.patched(own, c, side) for name, c in patch.items()
        }
        found["other"] = first[classes + half]
    named = pd.DataFrame({"class": [str(images.class_names[c]) for c in classes]})
    return {"arrays": found, "tables": {"classes": named}}
