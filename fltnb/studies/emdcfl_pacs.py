"""Jobs of notebook 12: EMD-CFL on PACS, four domains over 18 clients (Tables 2 and 7, Figure 2).

From the paper: the clients, ResNet-18 with ImageNet weights, learning rate 0.001, three runs. ``small`` has pictures of
96 pixels, a light network without pretraining, and fewer pictures and rounds, and beside it another ImageNet network;
PACS is no part of this package, so ``demo`` draws digits in four styles instead (:mod:`fltnb.federations.renderings`).
"""

from collections.abc import Iterator
from itertools import product

from ..results import Job
from . import emdcfl
from .common import FEWER_SEEDS, SEEDS, Settings, pixels, spec

_PACS = ("art painting", "cartoon", "photo", "sketch")
DOMAINS = {
    "renderings": ("plain", "inverted", "thick", "outline"),
    "pacs": _PACS,
    "pacs_features": _PACS,
}
CLUSTERS = 4
SHARES = {
    "val_fraction": 0.16,
    "test_fraction": 0.2,
}  # the authors' notebook; the paper's 0.1 leaves few of few

SIZES: dict[str, Settings] = {
    "demo": {
        "dataset": "renderings",
        "model": "mlp_plain",
        "samples": 150,
        "rounds": 3,
        "local_epochs": 5,
    }
    | {"batch_size": 10, "lr": 0.02, "figure": ({},)}
    | SHARES,
    # under a third of the pictures and two rounds: a picture has nine times the pixels of CIFAR-10's
    "small": {
        "dataset": "pacs",
        "model": "cnn_small",
        "samples": 150,
        "rounds": 2,
        "batch_size": 32,
        "lr": 0.02,
    }
    | {
        "figure": (
            {},
            {
                "model": "resnet18:random",
                "samples": 100,
                "lr": 0.001,
                "local_epochs": 3,
            },
        )
    }
    | SHARES,
    "paper": {
        "dataset": "pacs",
        "model": "resnet18",
        "samples": None,
        "lr": 0.001,
        "figure": ({},),
    },
}
"""By profile: network, images of a client (training, validation and test; None: all there are), what departs from
:data:`fltnb.studies.emdcfl.TRAINING`, and what is changed of that for the networks of Figure 2."""
FEATURES: Settings = {
    "dataset": "pacs_features",
    "model": "mlp_plain",
    "samples": None,
    "figure": ({},),
} | SHARES
"""A second size of ``small``: all pictures as an ImageNet network sees them (:mod:`fltnb.data.features`), a trained
head, the published rounds; the learning rate is that of EMD-CFL's other networks, since nothing is fine-tuned."""
MAPS: Settings = {
    "dataset": "pacs_maps",
    "model": "efficientnet_lite0_stage",
    "samples": None,
    "lr": 0.001,
} | SHARES
MAPS |= {"rows": ("oracle", "emdcfl", "fedavg"), "figure": ()}
"""A third size of ``small``: of the same network the last stage is tuned, with the published rounds and learning rate.
It departs in the network, in what is tuned of it, in pictures of 128 pixels for that, in rows and in seeds (one)."""


def jobs(profile: str) -> list[Job]:
    """Return the rows of Table 7 (in ``paper`` as run, too), clusterings alone, and the matrices of Figure 2."""
    dataset, found = SIZES[profile]["dataset"], [*_of_size(profile, SIZES[profile])]
    if profile == "small":
        found += [*_of_size(profile, FEATURES), *_of_size(profile, MAPS)]
    # clusterers that train nothing, on pixels, and on a network that nobody has trained: not of digits, as it wants
    # colour; TransportSignatures would take minutes on 27,648 pixels
    demo = profile == "demo"
    network = "pixels" if demo else "ResNet-18, random"
    others = [("pacfl", "PACFL", "pixels"), ("eigen", "EigenRelevance", "pixels")]
    others += [] if demo else [("eigen", "EigenRelevance", network)]
    others.append(("transport", "TransportSignatures", network))
    for seed, (name, clusterer, phi) in product(SEEDS[profile], others):
        encoder = pixels() if phi == "pixels" else spec("resnet18", "random")
        free = (
            {"11 degrees": {"threshold": 11}} if name == "pacfl" else {"K chosen": {}}
        )
        for given, how in (
            free | {f"K = {CLUSTERS}": {"n_clusters": CLUSTERS}}
        ).items():
            fed, made = (
                emdcfl.federation(dataset, SIZES[profile], seed),
                {"name": clusterer} | how,
            )
            axes = {"dataset": dataset, "method": name, "features": phi, "given": given}
            found.append(Job.clustering(fed, made, encoder, seed=seed, axes=axes))
    return (
        found
        if demo
        else [
            *found,
            emdcfl.pacfl(
                emdcfl.federation(dataset, SIZES[profile] | SHARES, 0), dataset
            ),
        ]
    )


def _of_size(profile: str, size: Settings) -> Iterator[Job]:
    dataset, whole = size["dataset"], profile == "paper" or size is FEATURES
    rows = [("as_written", name) for name in size.get("rows", emdcfl.METHODS)]
    rows += [("as_run", name) for name in emdcfl.DEPARTS if whole]
    for variant, name in rows:
        seeds = SEEDS[profile] if size is FEATURES else FEWER_SEEDS[profile]
        yield from emdcfl.rows(
            emdcfl.method(name, CLUSTERS, variant), dataset, seeds, size, variant
        )
    for tolerance in (emdcfl.TOLERANCE, "auto"):
        given = (
            "gap in the distances" if tolerance == "auto" else f"tolerance {tolerance}"
        )
        about, seeds = (
            {"features": "own models", "given": given},
            1 if profile == "demo" or size is MAPS else 3,
        )
        yield from emdcfl.clusterings(dataset, seeds, size, tolerance, about)
    for changes in size["figure"]:
        own = size | changes
        fed = emdcfl.federation(dataset, size | {"samples": own["samples"]}, 0)
        how = emdcfl.local(own, "weight_decay")
        yield Job.distances(
            fed, own["model"], how, {"name": "EMDClustering"}, axes={"dataset": dataset}
        )
