"""Jobs of notebook 04: FLT Tables 4 and 10, Figures 5, 6, 7, 11, structured non-IID data."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..analyses.scenario4 import cuts as cuts
from ..results import Job
from . import common
from .common import (
    FEWER_SEEDS,
    SEEDS,
    VARIANTS,
    Settings,
    clusterer,
    pixels,
    spec,
    table_row,
    transport,
    unseen,
)

METHODS = ("fedavg", "pca_km_hc", "fedsem", "flt")  # rows of Table 4
OURS = (
    "flt_given",
    "transport",
    "oracle",
)  # FLT told the number of clusters; our signatures; the true clusters
DATASETS = {"demo": "digits", "small": "emnist_bymerge", "paper": "emnist_balanced"}
CLIENTS = {
    "demo": {"mlp": 40},
    "small": {"mlp": 2400},
    "paper": {"mlp": 2400, "leaf_cnn": 600},
}
FEW = {"demo": 40, "small": 240, "paper": 240}  # clients in Figures 6 and 7
FEW_METHODS = ("flt", "fedsem", "pca_km_hc")
SMALL_AS_RUN = ("fedavg", "fedsem")  # the others keep 2,400 models
SWITCHES: dict[str, Settings] = {
    "test set as run": {"test": "as_run"},
    "members read in leaf order": {"membership": "leaf_order"},
    "one local epoch": {"local_epochs": 1},
}
LEVEL = {
    "level": True,
    "max_per_class": None,
}  # federations whose clusters have about the printed sizes
CONSECUTIVE = {"classes": "consecutive"}
"""Axis of runs on ByMerge's clusters of consecutive classes, whose sizes are far from the printed ones."""
FOUND_SEEDS = {"demo": range(1), "small": range(10), "paper": range(10)}
CHANGE_SEEDS = {"demo": range(1), "small": range(2), "paper": range(3)}
CUT_SEEDS = {"demo": range(1), "small": range(3), "paper": range(10)}


def jobs(profile: str) -> list[Job]:
    """Rows of Tables 4 and 10; the runs behind Figures 6 and 7; single switches; the clusterings alone."""
    runs = []
    for model, variant in product(CLIENTS[profile], VARIANTS):
        for name in METHODS + (OURS if variant == "as_written" else ("oracle",)):
            if (profile, variant) != ("small", "as_run") or name in SMALL_AS_RUN:
                runs += [
                    _row(name, model, variant, seed, profile)
                    for seed in FEWER_SEEDS[profile]
                ]
    runs += [
        _row(name, "mlp", variant, 0, profile, few=True)
        for variant, name in product(VARIANTS, FEW_METHODS)
    ]
    for name, switch, seed in product(
        ("flt_given", "oracle"), ("", *SWITCHES), SEEDS[profile]
    ):
        if name == "flt_given" or "leaf" not in switch:
            runs.append(
                _row(name, "mlp", "as_written", seed, profile, few=True, switch=switch)
            )
    return [*runs, *_clusterings(profile), *(_levelled() if profile == "small" else ())]


def _levelled() -> Iterator[Job]:
    """Tables 4 and 10 and Figures 6 and 7 on clusters as near to the printed sizes as ByMerge allows.

    Nine of 10,285 to 10,713 images, one of 4,792 (paper: 12,000, 4,800); CNN: 600 clients, 30 of 100 rounds.
    """
    for variant, name in product(VARIANTS, (*METHODS, *OURS)):
        if variant == "as_written" or name not in OURS[:2]:
            yield from (
                _row(name, "mlp", variant, seed, "small", level=True)
                for seed in SEEDS["small"]
            )
    yield from (
        _row(name, "leaf_cnn", "as_written", 0, "small", level=True) for name in METHODS
    )
    for variant, name in product(VARIANTS, FEW_METHODS):
        yield _row(name, "mlp", variant, 0, "small", few=True, level=True)
    for seed in CUT_SEEDS["small"]:
        yield _cuts(federation(DATASETS["small"], FEW["small"], seed, **LEVEL), seed)


def _row(
    name: str,
    net: str,
    variant: str,
    seed: int,
    profile: str,
    few: bool = False,
    switch: str = "",
    level: bool = False,
) -> Job:
    """One run of Table 4, or of the smaller federation of Figures 6 and 7 (``few``), with or without a switch."""
    dataset, demo = DATASETS[profile], profile == "demo"
    cnn = level and net == "leaf_cnn"
    n_clients = FEW[profile] if few else 600 if cnn else CLIENTS[profile][net]
    change = dict(SWITCHES.get(switch, {}))
    test = change.pop("test", "as_run" if variant == "as_run" else "clean")
    fed = federation(dataset, n_clients, seed, test, **(LEVEL if level else {}))
    # the code's files: 1 epoch, FedSEM alone 5
    epochs = change.pop(
        "local_epochs", 5 if variant == "as_written" or name == "fedsem" else 1
    )
    rounds = 6 if demo else 50 if few else 30 if cnn else 100
    training = {"rounds": rounds, "local_epochs": epochs, "lr": 0.05 if demo else 0.01}
    training |= {
        "momentum": common.MOMENTUM[variant],
        "eval_every": 1 if few or demo else 5,
    }
    axes = {"dataset": dataset, "method": name, "variant": variant}
    axes |= ({"clients": n_clients} if few else {}) | (
        {"switch": switch} if switch else {}
    )
    axes |= _version(profile, level)
    return Job.training(
        fed,
        method(name, dataset, variant) | change,
        net,
        **training,
        seed=seed,
        axes=axes,
    )


def _version(profile: str, level: bool = False) -> Settings:
    """Return the axis of what is not the tables' version: EMNIST Balanced's consecutive classes have equal sizes."""
    return CONSECUTIVE if profile == "small" and not level else {}


def federation(
    dataset: str, n_clients: int, seed: int, test: str = "clean", **options: Any
) -> Settings:
    """Algorithm 4's federation; ByMerge is cut to Balanced's 2,400 training images per class."""
    settings = {
        "kind": "structured",
        "dataset": dataset,
        "n_clients": n_clients,
        "seed": seed,
        "test": test,
    }
    own = {
        "digits": {"classes_per_cluster": 2},
        "emnist_bymerge": {"max_per_class": 2400},
    }
    return settings | own.get(dataset, {}) | options


def encoder(dataset: str, finetune_epochs: int = 5) -> Settings:
    """Enc2: pretrained on Fashion-MNIST, tuned on each client (FLT, Section 4.1); the digits are too small for it."""
    return (
        pixels()
        if dataset == "digits"
        else spec("convae", "fashion_mnist", 5, finetune_epochs)
    )


def pca(dataset: str) -> Settings:
    """Return the options of PCA+kM+HC."""
    return (
        {"n_components": 16, "k": 2} if dataset == "digits" else {"n_components": 128}
    )


def method(name: str, dataset: str, variant: str) -> Settings:
    """Return the settings of one row of Table 4; there is no HC in the code's scenario 4."""
    n_clusters, ours = (
        5 if dataset == "digits" else 10,
        name == "transport",
    )  # 10 for EMNIST's 47 characters
    given = {"n_clusters": n_clusters} if name == "flt_given" else {}
    found = transport(dataset) if ours else clusterer(dataset, variant, 5, **given)
    enc = encoder(dataset, finetune_epochs=0 if ours else 5)
    return table_row(
        name,
        variant,
        n_clusters,
        common.GRAPHS[variant],
        pca=pca(dataset),
        found=found,
        encoder=enc,
    )


def _clusterings(profile: str) -> Iterator[Job]:
    """How well the clusters are found, over seeds; FCR as written with one thing changed; four ways to cut."""
    dataset, few = DATASETS[profile], FEW[profile]
    shown = [(name, variant) for variant in VARIANTS for name in ("flt", "flt_given")]
    shown += [("pca_km_hc", ""), ("transport", "")]
    ways = {
        (name, variant): method(name, dataset, variant or "as_written")
        for name, variant in shown
    }
    shared = {"dataset": dataset, "clients": few} | _version(profile)
    for seed in FOUND_SEEDS[profile]:
        fed = federation(dataset, few, seed)
        for (name, variant), how in ways.items():
            axes = {"method": name, "variant": variant, **shared}
            yield Job.clustering(
                fed, how["clusterer"], how["encoder"], seed=seed, axes=axes
            )
    for seed in CUT_SEEDS[profile]:
        yield _cuts(federation(dataset, few, seed), seed, **_version(profile))
    for seed in CHANGE_SEEDS[profile]:
        for (change, options, what, samples), name in product(
            _changes(dataset), ("flt", "flt_given")
        ):
            how = ways[name, "as_written"]["clusterer"] | options
            axes = {"method": name, "variant": "as_written", "change": change, **shared}
            yield Job.clustering(
                federation(dataset, few, seed, **samples),
                how,
                what,
                seed=seed,
                axes=axes,
            )


def _cuts(fed: Settings, seed: int, **axes: str) -> Job:
    dataset = fed["dataset"]
    settings = {variant: clusterer(dataset, variant, 5) for variant in VARIANTS}
    settings = {"federation": fed, "clusterers": settings, "encoder": encoder(dataset)}
    axes = {"dataset": dataset, "seed": seed, "clients": fed["n_clients"], **axes}
    return Job.study("scenario4.cuts", settings, axes=axes)


def _changes(dataset: str) -> Iterator[tuple[str, Settings, Settings, Settings]]:
    """Yield (change, of the clusterer, encoder, of the federation): what Section 4.6's finding could depend on."""
    small, tuned = dataset == "digits", encoder(dataset)
    for k in (1,) if small else (2, 10):
        yield f"k = {k}", {"k": k}, tuned, {}
    for gamma in (0.5,) if small else (0.5, 2.0):
        yield f"γ = {gamma}", {"threshold": gamma}, tuned, {}
    for neighbors in (15,) if small else (5, 15, 50):  # 15 is the default
        yield f"{neighbors} UMAP neighbours", {"n_neighbors": neighbors}, tuned, {}
    if small:
        yield "encoder: PCA, 16 axes", {}, unseen("digits"), {}
        return
    yield "encoder: Enc2, not tuned", {}, encoder(dataset, finetune_epochs=0), {}
    yield "encoder: Enc1 (EMNIST)", {}, spec("convae", "emnist_balanced", 8, 0), {}
    for most in (600, 1200):
        yield f"{most:,} images per class", {}, tuned, {"max_per_class": most}
