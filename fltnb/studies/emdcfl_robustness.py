"""Studies of notebook 14: what EMD-CFL's clusters depend on (Figures 8 to 17, Tables 4 and 9).

A :class:`Study` is one matrix of distances between clients that have trained alone once, from a common start. The
tolerance is no part of it: the clusters at every tolerance follow from the matrix. :func:`specs` are the runs of
Table 4. Images per client are fewer in ``small`` and ``demo``, and networks smaller; ``paper`` has the published ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..store import Spec
from . import emdcfl, emdcfl_rotated
from .common import SEEDS

NOTEBOOK = "14_emdcfl_robustness"
PROJECTIONS = (None, 0.9, 0.5, 0.1)  # kept share of the embedding's dimensions
OTHERS = ("parameters", "last layer", "updates", "angles")
"""What is compared with the distances of embeddings: models (Figure 14, Table 9), updates (15), inputs (16)."""
SHOWN = {
    "rotated_digits": "Rotated digits",
    "rotated_digits_min": "Rotated digits, Min",
    "rotated_digits_two": "Rotated digits, Two",
    "rotated_digits_base": "Rotated digits, Base",
    "backdoor_digits": "Backdoor digits",
    "rotated_mnist": "Rotated MNIST",
    "rotated_mnist_min": "Rotated MNIST, Min",
    "rotated_mnist_two": "Rotated MNIST, Two",
    "rotated_mnist_base": "Rotated MNIST, Base",
    "rotated_cifar10": "Rotated CIFAR-10",
    "pacs": "PACS",
    "backdoor_mnist": "Backdoor MNIST",
    "backdoor_cifar10": "Backdoor CIFAR-10",
}
_ANGLES = [[0], [90], [180], [270]]
_KINDS: dict[str, dict[str, Any]] = {
    "rotated": {"kind": "rotated_copies", "n_clients": 40, "angles": _ANGLES},
    "backdoor": {"kind": "backdoor_colours", "n_clients": 30, "variant": "as_run"},
    "patches": {"kind": "backdoor_patches", "n_clients": 15},
    "pacs": {"kind": "domains", "dataset": "pacs"},
}
_PACS_LR = 0.001  # Table 5
_TRAINING = ("local_epochs", "batch_size", "lr", "momentum", "weight_decay")

DATASETS: dict[str, dict[str, dict[str, Any]]] = {
    "demo": {
        "rotated_digits": {"model": "mlp_plain", "samples": 119, "clients": 12, "batch_size": 10},
        "backdoor_digits": {"model": "mlp_plain", "samples": 119, "clients": 12, "batch_size": 10},
    },
    "small": {
        "rotated_mnist": {"model": "mlp_plain", "samples": 500},
        # as in notebook 13, where this clustering has ten seeds: of fewer images nobody learns the shades
        "backdoor_mnist": {"model": "cnn_small", "samples": None, "batch_size": 32, "lr": 0.02},
        "rotated_cifar10": {"model": "lenet", "samples": 1000},
        "pacs": {"model": "lenet", "samples": 500},
        "backdoor_cifar10": {"model": "lenet", "samples": 1000},
    },
    "paper": {
        "rotated_mnist": {"model": "emdcfl_cnn", "samples": None},
        "backdoor_mnist": {"model": "emdcfl_cnn", "samples": None},
        "rotated_cifar10": {"model": "resnet18", "samples": None},
        "pacs": {"model": "resnet18", "samples": None, "lr": _PACS_LR},
        "backdoor_cifar10": {"model": "resnet18", "samples": None},
    },
}
"""By profile and data set: network, images of a client (training and validation; None: all), and what departs from
:data:`fltnb.experiments.emdcfl.TRAINING`."""

_ROTATED = {"demo": "rotated_digits", "small": "rotated_mnist", "paper": "rotated_cifar10"}
NETWORKS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "demo": (("mlp_plain", {}), ("mlp32", {}), ("cnn_small", {"lr": 0.05})),
    "small": (("mlp_plain", {}), ("mlp32", {}), ("lenet", {}), ("mnist_cnn", {}), ("cnn_small", {})),
    "paper": (
        *(("resnet18", {}), ("resnet50", {}), ("efficientnet_b3", {})),
        *(("vit_b_16", {"lr": 0.003}), ("convnext_base", {"lr": 0.003})),
    ),
}
"""Networks of Figures 10 and 11, with learning rates where they differ (``paper``: Table 5)."""
EPOCHS = {"demo": (1, 10), "small": (1, 3, 10, 20), "paper": (1, 3, 10, 20)}
IMAGES = {"demo": (40, 119), "small": (100, 200, 500, 1000), "paper": (500, 1000, 2000, 5000)}
RUNS = {"demo": 1, "small": 3, "paper": 3}  # seeds of the plateau, in ``small`` of the first data set alone
ONE_EPSILON = {
    "demo": {"data": "digits", "samples": 240, "seeds": 2},
    # twice the images of notebook 11: of 500 the farthest pair inside a cluster reaches above 0.0125
    "small": {"data": "mnist", "samples": 1000, "seeds": 10},
    "paper": {"data": "mnist", "samples": None, "seeds": 10},
}
"""Rotated, Min, Two and Base as in notebook 11, with so many images of a client, and the backdoor of
:data:`DATASETS`: is there one epsilon for all five?"""
DIRECTIONS = 64  # of the sliced distance: more are slower than the exact one at these sizes


@dataclass(frozen=True)
class Study:
    """One matrix of distances between clients.

    Parameters
    ----------
    federation : dict
        What :func:`fltnb.federations.build` takes.
    model : str
        Network that each client trains alone, from a common start.
    training : dict
        Options of :class:`fltnb.training.TrainSpec`, without the seed.
    seed : int
        Of initial weights, sample orders, and the clusterer's draws.
    measure : dict
        ``{"name": "EMDClustering", ...}`` with its options, or ``{"name": n}`` with n of :data:`OTHERS`.
    part, dataset, note : str
        Labels: what the study belongs to, and what it varies.
    """

    federation: dict[str, Any]
    model: str
    training: dict[str, Any]
    seed: int
    measure: dict[str, Any]
    part: str
    dataset: str
    note: str = ""

    def models(self) -> dict[str, Any]:
        """Return what decides the clients' models."""
        return {name: getattr(self, name) for name in ("federation", "model", "training", "seed")}


def studies(profile: str) -> list[Study]:
    """Return all studies of a profile."""
    return [
        *(study for dataset in DATASETS[profile] for study in _plateau(profile, dataset)),
        *_networks(profile),
        *_scale(profile),
        *_one_epsilon(profile),
        *(study for dataset in DATASETS[profile] for study in _matrices(profile, dataset)),
    ]


def emd(distance: str = "exact", projection: float | None = 0.9, reference: str = "pair") -> dict[str, Any]:
    """Return the settings of EMD-CFL's distances."""
    found = {"name": "EMDClustering", "distance": distance, "projection": projection, "reference": reference}
    return found | ({"n_directions": DIRECTIONS} if distance == "sliced" else {})


def kept(projection: float | None) -> str:
    """Words for a projection."""
    return "all" if projection is None else f"{projection:.0%}"


def study(
    profile: str, dataset: str, measure: dict[str, Any], part: str, note: str = "", seed: int = 0, **changes: Any
) -> Study:
    """Return one study; ``changes`` replace what :data:`DATASETS` and the paper's training say."""
    size = DATASETS[profile][dataset] | changes
    return Study(federation(dataset, size, seed), size["model"], _training(size), seed, measure, part, dataset, note)


def _training(size: dict[str, Any]) -> dict[str, Any]:
    return {name: size.get(name, emdcfl.TRAINING[name]) for name in _TRAINING}


def federation(dataset: str, size: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the federation of a data set, of the size that an entry of :data:`DATASETS` names."""
    kind, _, images = dataset.partition("_")
    kind = "patches" if dataset == "backdoor_cifar10" else kind
    settings = _KINDS[kind] | ({"dataset": images} if images else {})
    if "clients" in size:
        settings = settings | {"n_clients": size["clients"]}
    scaling = emdcfl.scaling(size["model"], not dataset.startswith("rotated") or images == "cifar10")
    return settings | {"samples_per_client": size["samples"], "seed": seed} | scaling


def _plateau(profile: str, dataset: str) -> Iterator[Study]:
    """Figures 8, 9, 12 and 13: every projection, both references, and the approximations."""
    toy = profile == "demo"
    brief = (profile == "small" and not dataset.endswith("_mnist")) or dataset == "backdoor_digits"  # fewer variants
    for share in (None, 0.9, 0.1) if toy else PROJECTIONS:
        for seed in range(1 if profile == "small" and dataset != "rotated_mnist" else RUNS[profile]):
            yield study(profile, dataset, emd(projection=share), "plateau", kept(share), seed)
    for share in () if brief else (0.5,) if toy else (0.9, 0.5, 0.1):  # with all dimensions the references are one
        yield study(profile, dataset, emd(projection=share, reference="client"), "reference", kept(share))
    for share in (0.9,) if brief or toy else PROJECTIONS:
        yield study(profile, dataset, emd("sinkhorn", share), "sinkhorn", kept(share))
    if not brief:
        yield study(profile, dataset, emd("sliced"), "sliced", kept(0.9))


def _networks(profile: str) -> Iterator[Study]:
    """Figures 10 and 11."""
    for model, changes in NETWORKS[profile]:
        for distance in ("exact", "sinkhorn"):
            if profile != "demo" or distance == "exact":
                measure, part = emd(distance), f"network, {distance}"
                yield study(profile, _ROTATED[profile], measure, part, model, model=model, **changes)


def _scale(profile: str) -> Iterator[Study]:
    """How far apart clients are after how much local training, and with how many images."""
    dataset = next(iter(DATASETS[profile]))
    for epochs in EPOCHS[profile]:
        yield study(profile, dataset, emd(), "epochs", str(epochs), local_epochs=epochs)
    for images in IMAGES[profile]:
        yield study(profile, dataset, emd(), "images", str(images), samples=images)


def _one_epsilon(profile: str) -> Iterator[Study]:
    """Everything on which the paper finds the clusters in every run, over many seeds."""
    size = ONE_EPSILON[profile]
    data, seeds = size["data"], range(size["seeds"])
    local = emdcfl_rotated.SIZES[profile][data]
    for version in emdcfl_rotated.VERSIONS:
        name, note = emdcfl_rotated.dataset(data, version), f"{size['samples'] or 'all'} images"
        for seed in seeds:
            fed = emdcfl_rotated.federation(profile, data, version, seed) | {"samples_per_client": size["samples"]}
            yield Study(fed, local["model"], _training(local), seed, emd(), "one epsilon", name, note)
    name = f"backdoor_{data}"
    note = f"{DATASETS[profile][name]['samples'] or 'all'} images"
    for seed in seeds:
        yield study(profile, name, emd(), "one epsilon", note, seed)


def _matrices(profile: str, dataset: str) -> Iterator[Study]:
    """Figures 14 to 17 and Table 9."""
    for name in OTHERS:
        yield study(profile, dataset, {"name": name}, "matrices", name)
    yield study(profile, dataset, emd(), "matrices", "emd")


def specs(profile: str) -> list[Spec]:
    """Return Table 4's pair of runs, evaluated at the end alone, so that their seconds are those of training."""
    dataset = next(iter(DATASETS[profile]))
    size = DATASETS[profile][dataset]
    rounds = 3 if profile == "demo" else emdcfl.TRAINING["rounds"]
    changes = {"batch_size": size["batch_size"]} if "batch_size" in size else {}
    return [
        emdcfl.row(
            name,
            federation(dataset, size, seed) | ({} if profile == "demo" else {"test_per_client": 220}),
            dataset,
            seed,
            experiment=NOTEBOOK,
            model=size["model"],
            n_clusters=len(_ANGLES),
            rounds=rounds,
            eval_every=rounds,
            **changes,
        )
        for seed in SEEDS[profile]
        for name in ("oracle", "emdcfl")
    ]
