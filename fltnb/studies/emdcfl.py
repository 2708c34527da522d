"""Settings that EMD-CFL's notebooks (11 to 14) share: the 17 rows of its tables, and local training.

From the paper: SGD with momentum 0.9 and weight decay 1e-6, tolerance 0.025, projection to 0.9 d, at most 512 samples.
From the authors' public configuration, where the text at hand has no number: 10 rounds of 10 local epochs, batches of
64, everybody in every round, learning rate 0.01 (0.001 for ResNet-18 on PACS).
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from ..analyses.emdcfl import angles as angles
from ..analyses.emdcfl import one_shot as one_shot
from ..results import Job
from .common import Settings

METHODS = (
    *(
        "oracle",
        "emdcfl",
        "pacfl",
        "fedclust",
        "flexcfl",
        "cflgp",
        "cfl",
        "ifca",
        "fesem",
    ),
    *("fedem", "fedsoft", "fedrc", "fedce", "fedavg", "fedprox", "pfedgraph", "fedsac"),
)
"""Rows of Table 1: hard clusters, soft ones, one model for all, one model each."""
HARD = METHODS[1:9]  # those with an ARI, besides the oracle
GIVEN_K = ("flexcfl", "cflgp", "ifca", "fesem", "fedem", "fedsoft", "fedrc", "fedce")
CUT = (
    "pacfl",
    "fedclust",
)  # the paper tunes their threshold until the first split fits the truth best
DEPARTS = (
    "fedclust",
    "flexcfl",
    "fedem",
    "fedrc",
    "cflgp",
    "pacfl",
    "fedsoft",
    "fedce",
    "pfedgraph",
    "fedsac",
)
DEPARTS += ("fesem",)
"""Rows whose printed number comes from code that is not the method as described (docs/differences.md), run twice."""

VERSIONS = {
    "rotated": [[0], [90], [180], [270]],
    "min": [[-3, -1, 1, 3]],
    "two": [[-3, 3], [177, 183]],
    "base": [[0, 0, 0, 0]],
}
"""Angles of the true clusters, one copy of the image set each; "base" has four copies too, so that clients hold as many
images. The first version is Table 1's, the others are Table 10's (MNIST) and Table 11's (CIFAR-10)."""

TRAINING = {
    "rounds": 10,
    "local_epochs": 10,
    "participation": 1.0,
    "batch_size": 64,
    "momentum": 0.9,
}
TRAINING |= {"weight_decay": 1e-6, "lr": 0.01, "eval_every": 1}
TOLERANCE = 0.025
DEGREES = {
    "rotated": 12.0,
    "pacs": 11.0,
    "backdoor_mnist": 2.5,
    "backdoor_cifar10": 10.5,
}
"""Thresholds of PACFL that the paper tuned to the truth (Appendix D.3)."""
OWN_NETWORK = {"rotated_mnist": 3, "backdoor_mnist": 5}
"""Seeds for which ``small`` trains the paper's own CNN on all images, for the one local round that decides clusters."""
FEATURES = "-features"
"""End of the name of images that are shown as an ImageNet network sees them."""


def federation(dataset: str, size: Settings, seed: int, **more: Any) -> Settings:
    """Return the federation of a data set, such as ``rotated_mnist_two``, ``backdoor_cifar10-features`` or ``pacs``.

    ``size``: the ``model``, and what departs from the published ``clients``, images (``samples`` for training and
    validation, ``test``), ``val_fraction``, ``test_fraction``, ``intensity`` of a backdoor's shades and ``scaling``.
    ``more``: options of the kind.
    """
    from ..models.vision import NETWORKS

    kind, _, rest = dataset.partition("_")
    images, _, version = rest.partition("_")
    seen, images = images.endswith(FEATURES), images.removesuffix(FEATURES)
    settings: Settings = {
        "rotated": {"kind": "rotated_copies", "dataset": images, "n_clients": 40},
        "backdoor": {
            "kind": "backdoor_colours",
            "dataset": images,
            "n_clients": 30,
            "variant": "as_run",
        },
        "pacs": {
            "kind": "domains",
            "dataset": dataset,
        },  # pictures, or features of them
        "renderings": {"kind": "renderings", "dataset": "digits", "min_samples": 200},
    }[kind]
    if (kind, images) == ("backdoor", "cifar10"):
        settings = {"kind": "backdoor_patches", "dataset": images, "n_clients": 15}
    settings |= {"angles": VERSIONS[version or "rotated"]} if kind == "rotated" else {}
    settings["seed"], model = seed, size["model"]
    coloured = kind in ("backdoor", "pacs") or images == "cifar10"
    # As the table's code: grey digits by MNIST's mean and deviation, everything in colour by ImageNet's, channel by
    # channel; networks with ImageNet weights do that themselves here. Our own networks keep the usual scaling,
    # except `cnn_small` on colours, where it stands for the paper's CNN.
    if model in NETWORKS:
        settings["scaling"] = "unit"
    elif model == "emdcfl_cnn" or (coloured and model == "cnn_small"):
        settings["scaling"] = "imagenet" if coloured else "mnist"
    named = {
        "clients": "n_clients",
        "samples": "samples_per_client",
        "test": "test_per_client",
    }
    named |= {
        name: name for name in ("val_fraction", "test_fraction", "scaling", "intensity")
    }
    settings |= {
        name: size[ours] for ours, name in named.items() if ours in size
    } | more
    return (
        {"kind": "seen", "dataset": settings.pop("dataset"), "base": settings}
        if seen
        else settings
    )


def training(size: Settings) -> Settings:
    """Return how a table's networks are trained: as ``size`` says, else as :data:`TRAINING` does."""
    return TRAINING | {
        name: size[name] for name in (*TRAINING, "precision") if name in size
    }


def local(size: Settings, *more: str) -> Settings:
    """Return the part of it that decides how a client trains by itself, and ``more`` where there is more."""
    how = training(size)
    return {
        name: how[name]
        for name in ("local_epochs", "batch_size", "lr", "momentum", *more)
        if name in how
    }


def method(
    name: str, n_clusters: int, variant: str = "as_written", **options: Any
) -> Settings:
    """Return the settings of one row of :data:`METHODS`, as its own paper describes it or as the table's code ran it.

    ``n_clusters`` is K for those that are told it. :data:`CUT` cut their dendrogram into K clusters; the thresholds of
    the paper (:func:`angles`, notebook 14) need not give the same. ``options`` go to the method.
    """
    sampled = {"rule": "participants"}
    own: dict[str, Settings] = {
        "oracle": sampled,
        "fedavg": sampled,
        "fedprox": sampled | {"mu": 0.1},
        "fesem": sampled | {"lam": 0.05},  # twice that pulls: 0.1, as FedProx's mu
        "cfl": {"warmup": 1, "weighting": "samples"},
        "ifca": {"split": "val"},
        "pacfl": sampled | {"clusterer": {"name": "PACFL", "n_clusters": n_clusters}},
        "emdcfl": {"clusterer": {"name": "EMDClustering", "tolerance": TOLERANCE}},
    }
    given = {"n_clusters": n_clusters} if name in (*GIVEN_K, "fedclust") else {}
    settings = {"name": name} | given | own.get(name, {}) | options
    if variant == "as_run" and name == "fesem":  # FeSEM's own "as run" is another code
        return settings | {"grouping": "equal", "weighting": "samples"}
    if variant == "as_run" and name not in ("oracle", "fedavg", "ifca", "cfl"):
        settings = {key: value for key, value in settings.items() if key != "rule"} | {
            "variant": variant
        }
    return settings


def rows(
    how: Settings,
    dataset: str,
    seeds: Iterable[int],
    size: Settings,
    variant: str = "as_written",
    **axes: Any,
) -> list[Job]:
    """Return the runs of a row of a table, one for each seed; of a backdoor, tested under the trigger as well.

    ``how``: of :func:`method`; ``size``: ``model``, what :func:`federation` takes, what departs from :data:`TRAINING`.
    """
    tested = {"test": "both"} if dataset.startswith("backdoor") else {}
    options = {
        "axes": {"dataset": dataset, "variant": variant, **axes},
        **training(size),
    }
    feds = ((seed, federation(dataset, size, seed, **tested)) for seed in seeds)
    return [
        Job.training(fed, how, size["model"], seed=seed, **options)
        for seed, fed in feds
    ]


def clusterings(
    dataset: str,
    seeds: int,
    size: Settings,
    tolerance: float | str,
    axes: Settings,
    keep: tuple = (),
) -> Iterator[Job]:
    """EMD-CFL's clustering alone, by the models that clients of this ``size`` train by themselves.

    ``keep``: arrays that are kept of the first seed.
    """
    made = {"name": "EMDClustering", "tolerance": tolerance}
    axes = {"dataset": dataset, "method": "emdcfl"} | axes
    for seed in range(seeds):
        fed, own = (
            federation(dataset, size, seed),
            {"kind": "own", "model": size["model"], **local(size), "seed": seed},
        )
        yield Job.clustering(
            fed, made, own, seed=seed, axes=axes, keep=keep if seed == 0 else ()
        )


def pacfl(federation: Settings, dataset: str, seeds: int = 3) -> Job:
    """Return the study :func:`angles` of a data set, of all its images, at the printed threshold."""
    threshold = next(
        value for name, value in DEGREES.items() if dataset.startswith(name)
    )
    grey = dataset.startswith("rotated_mnist")
    whole = federation | {
        "samples_per_client": None,
        "scaling": "mnist" if grey else "imagenet",
    }
    axes = {
        "dataset": dataset,
        "method": "pacfl",
        "variant": "as_run",
        "part": "thresholds",
        "table": tables(dataset),
    }
    return Job.study(
        "emdcfl.angles",
        {"federation": whole, "threshold": threshold, "seeds": seeds},
        axes=axes,
    )


def one_shots(dataset: str) -> Iterator[Job]:
    """Ask for :func:`one_shot` with the paper's own CNN, whose convolutions compute in bfloat16."""
    size = {"model": "emdcfl_cnn", "samples": None, "precision": "bfloat16"}
    for seed in range(OWN_NETWORK[dataset]):
        about = {
            "federation": federation(dataset, size, seed),
            "model": size["model"],
            "seed": seed,
        }
        axes = {
            "dataset": dataset,
            "model": size["model"],
            "seed": seed,
            "table": tables(dataset),
        }
        yield Job.study(
            "emdcfl.one_shot",
            about | local(size, "weight_decay", "precision"),
            axes=axes,
        )


def printed_ari(results: Any, dataset: str) -> pd.Series:
    """Mean ARI by (variant, method) of :func:`pacfl` and :func:`one_shots` (FedClust told K); empty where none was run.

    ``results``: of a notebook (:class:`fltnb.results.Results`).
    """
    found = [pd.DataFrame(columns=["variant", "method", "value"], dtype=object)]
    for run in results.where(
        kind="study", dataset=dataset, table=lambda names: names != ""
    ).runs.itertuples():
        own = pd.concat([results.table(run.key, name) for name in ("printed", "told")])
        found.append(own.assign(variant=run.variant) if run.variant else own)
    return (
        pd.concat(found)
        .astype({"value": float})
        .groupby(["variant", "method"])["value"]
        .mean()
    )


def tables(dataset: str) -> str:
    """Return the paper's tables of a data set, such as ``T10``, or ``T2 T7`` where rows are printed twice."""
    kind, _, rest = dataset.partition("_")
    if kind == "rotated" and "_" in rest:
        return {"mnist": "T10", "cifar10": "T11"}[rest.partition("_")[0]]
    return {"rotated": "T1", "pacs": "T2 T7", "backdoor": "T3 T8"}[kind]
