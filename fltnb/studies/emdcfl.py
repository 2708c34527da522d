"""Settings that EMD-CFL's notebooks (11 to 14) share: the 17 rows of its tables, and local training.

From the paper: SGD with momentum 0.9 and weight decay 1e-6, tolerance 0.025, projection to 0.9 d, at most 512 samples.
From the authors' public configuration, where the text at hand has no number: 10 rounds of 10 local epochs, batches of
64, everybody in every round, learning rate 0.01 (0.001 for ResNet-18 on PACS).
"""

from __future__ import annotations

from typing import Any

from ..results import Job

METHODS = (
    *("oracle", "emdcfl", "pacfl", "fedclust", "flexcfl", "cflgp", "cfl", "ifca", "fesem"),
    *("fedem", "fedsoft", "fedrc", "fedce", "fedavg", "fedprox", "pfedgraph", "fedsac"),
)
"""Rows of Table 1: hard clusters, soft ones, one model for all, one model each."""
HARD = METHODS[1:9]  # those with an ARI, besides the oracle
GIVEN_K = ("flexcfl", "cflgp", "ifca", "fesem", "fedem", "fedsoft", "fedrc", "fedce")
CUT = ("pacfl", "fedclust")  # the paper tunes their threshold until the first split fits the truth best
DEPARTS = ("fedclust", "flexcfl", "fedem", "fedrc", "cflgp", "pacfl", "fedsoft", "fedce")
"""Rows whose published number comes from code that is not the method as described (docs/differences.md), run both ways.
FeSEM's departure, a first k-means on models that are all equal, is not part of our FeSEM."""

TRAINING = {"rounds": 10, "local_epochs": 10, "participation": 1.0, "batch_size": 64, "momentum": 0.9}
TRAINING |= {"weight_decay": 1e-6, "lr": 0.01, "eval_every": 1}
TOLERANCE = 0.025
CNNS = ("emdcfl_cnn", "cnn_small")  # the paper's own network, and its light stand-in


def scaling(model: str, coloured: bool) -> dict[str, str]:
    """Return how the table's code scales the pixels that a network sees, as a setting of the federation.

    Grey digits by MNIST's mean and deviation, everything in colour by ImageNet's, channel by channel; networks with
    ImageNet weights do that themselves here. Our own networks keep the package's usual scaling, except ``cnn_small`` on
    colours, where it stands for the paper's CNN.
    """
    from ..models.vision import NETWORKS

    if model in NETWORKS:
        return {"scaling": "unit"}
    if model in CNNS and (coloured or model == "emdcfl_cnn"):
        return {"scaling": "imagenet" if coloured else "mnist"}
    return {}


def local(size: dict[str, Any]) -> dict[str, Any]:
    """Return how a client trains by itself: as ``size`` says, else as :data:`TRAINING` does."""
    return {name: size.get(name, TRAINING[name]) for name in ("local_epochs", "batch_size", "lr", "momentum")}


def method(name: str, n_clusters: int, variant: str = "as_written", **options: Any) -> dict[str, Any]:
    """Return the settings of one row.

    Parameters
    ----------
    name : str, one of :data:`METHODS`
    n_clusters : int, K for those that are told it. PACFL and FedClust cut their dendrogram into K clusters; the paper
        tuned their thresholds to the truth instead, which need not give the same.
    variant : {"as_written", "as_run"}, the method as its own paper describes it, or as the table's code ran it
    options, further options of the method
    """
    settings: dict[str, Any] = {"name": name} | options
    if name in ("oracle", "fedavg"):
        return {"rule": "participants"} | settings
    if name in GIVEN_K or name == "fedclust":
        settings |= {"n_clusters": n_clusters}
    if name == "fedprox":
        settings |= {"mu": 0.1, "rule": "participants"}
    elif name == "cfl":
        settings |= {"warmup": 1, "weighting": "samples"}
    elif name == "ifca":
        settings |= {"split": "val"}
    elif name == "fesem":
        settings = {"lam": 0.05, "rule": "participants"} | settings  # twice that pulls: 0.1, as FedProx's mu
    elif name == "pacfl":
        settings |= {"clusterer": {"name": "PACFL", "n_clusters": n_clusters}, "rule": "participants"}
    elif name == "emdcfl":
        settings |= {"clusterer": {"name": "EMDClustering", "tolerance": TOLERANCE} | settings.get("clusterer", {})}
    if variant == "as_run" and name not in ("ifca", "cfl"):
        settings = {key: value for key, value in settings.items() if key != "rule"} | {"variant": variant}
    return settings


def row(
    name: str,
    federation: dict[str, Any],
    dataset: str,
    seed: int,
    *,
    model: str,
    n_clusters: int,
    variant: str = "as_written",
    options: dict[str, Any] | None = None,
    axes: dict[str, Any] | None = None,
    **training: Any,
) -> Job:
    """Return one run of a table; ``options`` go to the method, ``training`` replaces what :data:`TRAINING` says."""
    return Job.training(
        federation,
        method(name, n_clusters, variant, **(options or {})),
        model,
        seed=seed,
        axes={"dataset": dataset, "method": name, "variant": variant} | (axes or {}),
        **TRAINING | training,
    )
