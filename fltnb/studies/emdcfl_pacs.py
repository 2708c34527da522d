"""Jobs of notebook 12: EMD-CFL on PACS, four domains over 18 clients (Tables 2 and 7, Figure 2).

From the paper: the clients, ResNet-18 with ImageNet weights, learning rate 0.001, three runs. ``small`` has pictures of
96 pixels, a light network without pretraining, and fewer pictures and rounds; PACS is no part of this package, so
``demo`` draws digits in four styles instead (:mod:`fltnb.federations.renderings`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..encoders import EncoderSpec
from ..results import Job
from . import emdcfl
from .common import SEEDS, pixels

DOMAINS = {
    "renderings": ("plain", "inverted", "thick", "outline"),
    "pacs": ("art painting", "cartoon", "photo", "sketch"),
}
CLUSTERS = 4
SHARES = {"val_fraction": 0.16, "test_fraction": 0.2}  # the authors' notebook; the paper's 0.1 leaves few of few

SIZES: dict[str, dict[str, Any]] = {
    "demo": {"dataset": "renderings", "model": "mlp_plain", "samples": 150, "rounds": 3, "local_epochs": 5}
    | {"batch_size": 10, "lr": 0.02, "methods": emdcfl.METHODS, "seeds": 1, "own_seeds": 1, "other_seeds": 1}
    | {"figure": (("mlp_plain", {}),)},
    # under a third of the pictures and two rounds: a picture has nine times the pixels of CIFAR-10's
    "small": {"dataset": "pacs", "model": "cnn_small", "samples": 150, "rounds": 2, "batch_size": 32, "lr": 0.02}
    | {"methods": emdcfl.METHODS, "seeds": 1, "own_seeds": 3, "other_seeds": 3}
    | {"figure": (("cnn_small", {}), ("resnet18:random", {"samples": 100, "lr": 0.001, "epochs": 3}))},
    "paper": {"dataset": "pacs", "model": "resnet18", "samples": None, "lr": 0.001}
    | {"methods": emdcfl.METHODS, "seeds": 3, "own_seeds": 3, "other_seeds": 3}
    | {"figure": (("resnet18", {}),)},
}
"""By profile: network, images of a client (training, validation and test; None: all there are), what departs from
:data:`fltnb.studies.emdcfl.TRAINING`, methods, seeds; and networks of Figure 2 with what differs for them."""
_TRAINING = ("rounds", "local_epochs", "batch_size", "lr")


def jobs(profile: str) -> list[Job]:
    """Return the rows of Table 7 (in ``paper`` as run, too), clusterings alone, and the matrices of Figure 2."""
    size = SIZES[profile]
    seeds = SEEDS[profile][: size["seeds"]]
    rows = [_row(profile, name, s) for name in size["methods"] for s in seeds]
    if profile == "paper":
        rows += [_row(profile, name, s, "as_run") for name in emdcfl.DEPARTS for s in seeds]
    return [*rows, *_own(profile), *_others(profile), *_figure2(profile)]


def _figure2(profile: str) -> Iterator[Job]:
    """One matrix of corrected distances for every network."""
    size = SIZES[profile]
    for model, changes in size["figure"]:
        own = {name: value for name, value in training(profile).items() if name != "rounds"}
        own |= {"weight_decay": emdcfl.TRAINING["weight_decay"], "lr": changes.get("lr", own["lr"])}
        own["local_epochs"] = changes.get("epochs", own["local_epochs"])
        fed = federation(profile, 0) | {"samples_per_client": changes.get("samples", size["samples"])}
        yield Job.distances(fed, model, own, {"name": "EMDClustering"}, axes={"dataset": size["dataset"]})


def federation(profile: str, seed: int) -> dict[str, Any]:
    """Return the federation: PACS's domains, or digits in four styles."""
    size = SIZES[profile]
    settings = {"kind": "domains", "dataset": "pacs", "samples_per_client": size["samples"], "seed": seed}
    if size["dataset"] != "pacs":
        settings |= {"kind": size["dataset"], "dataset": "digits", "min_samples": 200}
    settings |= {} if profile == "paper" else SHARES
    return settings | emdcfl.scaling(size["model"], coloured=size["dataset"] == "pacs")


def training(profile: str) -> dict[str, Any]:
    """Return rounds and local training."""
    both = emdcfl.TRAINING | {name: SIZES[profile][name] for name in _TRAINING if name in SIZES[profile]}
    return {name: both[name] for name in (*_TRAINING, "momentum")}


def _row(profile: str, name: str, seed: int, variant: str = "as_written") -> Job:
    """Return one run of the table."""
    size = SIZES[profile]
    return emdcfl.row(
        name,
        federation(profile, seed),
        size["dataset"],
        seed,
        model=size["model"],
        n_clusters=CLUSTERS,
        variant=variant,
        **training(profile),
    )


def _own(profile: str) -> Iterator[Job]:
    size = SIZES[profile]
    for tolerance in (emdcfl.TOLERANCE, "auto"):
        for seed in range(size["own_seeds"]):
            encoder = {"kind": "own", "model": size["model"], **emdcfl.local(size), "seed": seed}
            made = {"name": "EMDClustering", "tolerance": tolerance}
            given = "gap in the distances" if tolerance == "auto" else f"tolerance {tolerance}"
            yield _clustering(profile, "emdcfl", made, encoder, seed, "own models", given)


def _others(profile: str) -> Iterator[Job]:
    """Clusterers that train nothing: on pixels, and on a network that nobody has trained."""
    for seed in range(SIZES[profile]["other_seeds"]):
        features = {"pixels": pixels()}
        if profile != "demo":  # no digits: it wants colour; and TransportSignatures would take minutes on 27,648 pixels
            features["ResNet-18, random"] = asdict(EncoderSpec("resnet18", "random"))
        for phi, encoder in features.items():
            rows = {"pacfl": ("PACFL", {"threshold": 11})} if phi == "pixels" else {}
            rows |= {"eigen": ("EigenRelevance", {})}
            rows |= {"transport": ("TransportSignatures", {})} if phi != "pixels" or profile == "demo" else {}
            for name, (clusterer, options) in rows.items():
                given = "11 degrees" if name == "pacfl" else "K chosen"
                yield _clustering(profile, name, {"name": clusterer} | options, encoder, seed, phi, given)
                made = {"name": clusterer, "n_clusters": CLUSTERS}
                yield _clustering(profile, name, made, encoder, seed, phi, f"K = {CLUSTERS}")


def _clustering(profile: str, name: str, made: dict, encoder: dict, seed: int, features: str, given: str) -> Job:
    axes = {"dataset": SIZES[profile]["dataset"], "method": name, "features": features, "given": given}
    return Job.clustering(federation(profile, seed), made, encoder, seed=seed, axes=axes)
