"""Studies of notebook 14: what EMD-CFL's clusters depend on (arXiv 2506.07769, Figures 8 to 17, Tables 4, 5 and 9).

One matrix of distances between clients that have trained alone once, from a common start, is one job. The tolerance is
no part of it: the clusters at every tolerance follow from the matrix.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..analyses.emdcfl_robustness import NETWORKS as WIDTHS
from ..analyses.emdcfl_robustness import table4, table5, table9, timed_pair  # noqa: F401 - by name
from ..results import Job
from . import emdcfl
from .common import SEEDS, Settings
from .emdcfl import VERSIONS

PROJECTIONS = (None, 0.9, 0.5, 0.1)  # kept share of the embedding's dimensions
OTHERS = ("parameters", "last layer", "updates", "angles")
"""What is compared with the distances of embeddings: models (Figure 14, Table 9), updates (15), inputs (16)."""
DATASETS: dict[str, dict[str, Settings]] = {
    "demo": {
        "rotated_digits": {
            "model": "mlp_plain",
            "samples": 119,
            "clients": 12,
            "batch_size": 10,
        },
        "backdoor_digits": {
            "model": "mlp_plain",
            "samples": 119,
            "clients": 12,
            "batch_size": 10,
        },
    },
    "small": {
        "rotated_mnist": {"model": "mlp_plain", "samples": 500},
        # as in notebook 13, where this clustering has ten seeds: of fewer images nobody learns the shades
        "backdoor_mnist": {
            "model": "cnn_small",
            "samples": None,
            "batch_size": 32,
            "lr": 0.02,
        },
        "rotated_cifar10": {"model": "lenet", "samples": 1000},
        "pacs": {"model": "lenet", "samples": 500},
        "backdoor_cifar10": {"model": "lenet", "samples": 1000},
    },
    "paper": {
        "rotated_mnist": {"model": "emdcfl_cnn", "samples": None},
        "backdoor_mnist": {"model": "emdcfl_cnn", "samples": None},
        "rotated_cifar10": {"model": "resnet18", "samples": None},
        "pacs": {"model": "resnet18", "samples": None, "lr": 0.001},  # Table 5
        "backdoor_cifar10": {"model": "resnet18", "samples": None},
    },
}
"""By profile and data set: network, images of a client (training and validation; None: all), and what departs from
:data:`fltnb.studies.emdcfl.TRAINING`."""

_ROTATED = {
    "demo": "rotated_digits",
    "small": "rotated_mnist",
    "paper": "rotated_cifar10",
}
NETWORKS: dict[str, dict[str, Settings]] = {
    "demo": {"mlp_plain": {}, "cnn_small": {"lr": 0.05}},
    "small": {
        "mlp_plain": {},
        "mlp32": {},
        "lenet": {},
        "mnist_cnn": {},
        "cnn_small": {},
    },
    "paper": {"resnet18": {}, "resnet50": {}, "efficientnet_b3": {}}
    | {"vit_b_16": {"lr": 0.003}, "convnext_base": {"lr": 0.003}},
}
"""Networks of Figures 10 and 11, with learning rates where they differ (``paper``: Table 5)."""
EPOCHS = {"demo": (1, 10), "small": (1, 3, 10, 20), "paper": (1, 3, 10, 20)}
IMAGES = {
    "demo": (40, 119),
    "small": (100, 200, 500, 1000),
    "paper": (500, 1000, 2000, 5000),
}
ONE_EPSILON = {"demo": (119, 1), "small": (1000, 10), "paper": (None, 10)}
"""Images of a client (``small``: twice those of notebook 11: of 500 the farthest pair inside a cluster reaches above
0.0125) and seeds of Rotated, Min, Two and Base, beside the backdoor of :data:`DATASETS`: is there one epsilon for all
five?"""
DIRECTIONS = (
    64  # of the sliced distance: more are slower than the exact one at these sizes
)


def jobs(profile: str) -> list[Job]:
    """Distances (Figures 8 to 17), Table 4's pair of runs, and Tables 4, 5 and 9.

    The axis ``part`` says what a matrix belongs to: "projection" (Figures 8, 12, 13), "reference", "sinkhorn",
    "sliced", "network" (10, 11), "epochs", "images", "measures" (14 to 17), "published" (the paper's own CNN on all
    images). One that belongs to two parts is two jobs with the same settings, computed once.
    """
    found = [
        job for dataset in DATASETS[profile] for job in _projections(profile, dataset)
    ]
    for model, changes in NETWORKS[profile].items():
        for distance in ("exact",) if profile == "demo" else ("exact", "sinkhorn"):
            found.append(
                pairs(
                    profile,
                    _ROTATED[profile],
                    emd(distance),
                    "network",
                    model=model,
                    **changes,
                )
            )
    (first, size), *_ = DATASETS[profile].items()
    demo = profile == "demo"
    found += [
        pairs(profile, first, emd(), "epochs", local_epochs=epochs)
        for epochs in EPOCHS[profile]
    ]
    found += [
        pairs(profile, first, emd(), "images", samples=images)
        for images in IMAGES[profile]
    ]
    for dataset in DATASETS[profile]:
        found += [
            pairs(profile, dataset, how, "measures")
            for how in (*({"name": name} for name in OTHERS), emd())
        ]
        found.append(_table9(found[-1]))
    for dataset in emdcfl.OWN_NETWORK if profile == "small" else ():
        found += (own := list(_published(dataset)))
        found += map(_table9, {job.axes["seed"]: job for job in own}.values())
    for seed in SEEDS[profile]:
        fed = emdcfl.federation(first, size, seed)
        fed |= {} if demo else {"test_per_client": 220}
        axes = {"dataset": first, "model": size["model"], "seed": seed}
        how = emdcfl.TRAINING | {"rounds": 3 if demo else 10}
        del how["eval_every"]
        how |= {"batch_size": size.get("batch_size", 64), "seed": seed}
        about = {"federation": fed, "model": size["model"], **how}
        for job in timed_pair(**about):
            more = {"dataset": first, "variant": "as_written"}
            found.append(replace(job, axes=job.axes | more))
        axes |= {"table": "T4"}
        found.append(Job.study("emdcfl_robustness.table4", about, axes=axes))
    networks = {"simple_cnn": "emdcfl_cnn"} if demo else WIDTHS
    found.append(
        Job.study(
            "emdcfl_robustness.table5", {"networks": networks}, axes={"table": "T5"}
        )
    )
    if profile == "small":
        found.append(_bounds())
    return [*found, *_one_epsilon(profile)]


def emd(
    distance: str = "exact", projection: float | None = 0.9, reference: str = "pair"
) -> Settings:
    """Return the settings of EMD-CFL's distances."""
    found = {
        "name": "EMDClustering",
        "distance": distance,
        "projection": projection,
        "reference": reference,
    }
    return found | ({"n_directions": DIRECTIONS} if distance == "sliced" else {})


def pairs(
    profile: str,
    dataset: str,
    measure: Settings,
    part: str,
    seed: int = 0,
    **changes: Any,
) -> Job:
    """Return the job of one matrix; ``changes`` replace what :data:`DATASETS` and the paper's training say."""
    own = DATASETS[profile]
    size = (
        own.get(dataset) or own[dataset.rpartition("_")[0]]
    ) | changes  # or another version of the same set
    training = emdcfl.local(size, "weight_decay", "precision")
    axes = {
        "dataset": dataset,
        "part": part,
        "measure": measure["name"],
        "local_epochs": training["local_epochs"],
    }
    if measure["name"] == "EMDClustering":
        axes |= {
            "measure": "emd",
            "transport": measure["distance"],
            "kept": measure["projection"] or 1.0,
        }
        axes |= {"reference": measure["reference"]}
    axes |= {"images": size["samples"]} if size["samples"] else {}
    return Job.distances(
        emdcfl.federation(dataset, size, seed),
        size["model"],
        training,
        measure,
        seed=seed,
        axes=axes,
    )


def _projections(profile: str, dataset: str) -> Iterator[Job]:
    """Figures 8, 9, 12 and 13: every projection, both references, and the approximations."""
    toy = profile == "demo"
    brief = (
        profile == "small" and not dataset.endswith("_mnist")
    ) or dataset == "backdoor_digits"  # fewer variants
    for share in (None, 0.9, 0.1) if toy else PROJECTIONS:
        for seed in SEEDS[profile][
            : 1 if profile == "small" and dataset != "rotated_mnist" else None
        ]:
            yield pairs(profile, dataset, emd(projection=share), "projection", seed)
    for share in (
        () if brief else (0.5,) if toy else (0.9, 0.5, 0.1)
    ):  # with all dimensions the references are one
        yield pairs(
            profile, dataset, emd(projection=share, reference="client"), "reference"
        )
    for share in (0.9,) if brief or toy else PROJECTIONS:
        yield pairs(profile, dataset, emd("sinkhorn", share), "sinkhorn")
    if not brief:
        yield pairs(profile, dataset, emd("sliced"), "sliced")


def _bounds() -> Job:
    """Ask for the inequalities of Section 2."""
    fed = {"kind": "rotated_copies", "dataset": "mnist", "n_clients": 12}
    training = {"rounds": 1, "local_epochs": 2, "participation": 1.0}
    training |= {"batch_size": 64, "lr": 0.01, "momentum": 0.9}
    about = {"federation": fed | {"samples_per_client": 500}, "model": "emdcfl_cnn"}
    about |= {"training": training, "samples": 150}
    axes = {"dataset": "rotated_mnist", "part": "bounds"}
    return Job.study("embedding_bounds.inequalities", about, axes=axes)


def _one_epsilon(profile: str) -> Iterator[Job]:
    """Matrices of five data sets and many seeds."""
    (first, second, *_), (samples, runs) = DATASETS[profile], ONE_EPSILON[profile]
    # 3 degrees move no pixel of 8 x 8
    versions = ("rotated", "base") if profile == "demo" else VERSIONS
    names = [first + f"_{version}".replace("_rotated", "") for version in versions]
    for seed in range(runs):
        for name in names:
            how = {"samples": samples}
            yield pairs(profile, name, emd(), "one epsilon", seed, **how)
        yield pairs(profile, second, emd(), "one epsilon", seed)


def _published(dataset: str) -> Iterator[Job]:
    """Every distance after one local round of the paper's own CNN: its convolutions in bfloat16, else as published."""
    measures = [
        *(emd(projection=share) for share in PROJECTIONS),
        emd("sinkhorn"),
        *({"name": one} for one in OTHERS),
    ]
    for seed in range(emdcfl.OWN_NETWORK[dataset]):
        for how in measures:
            yield pairs("paper", dataset, how, "published", seed, precision="bfloat16")


def _table9(pairs: Job) -> Job:
    """Table 9 of the same trained clients."""
    about = {
        name: pairs.settings[name] for name in ("federation", "model", "seed")
    } | pairs.settings["training"]
    axes = {
        "dataset": pairs.axes["dataset"],
        "model": about["model"],
        "seed": about["seed"],
        "table": "T9",
    }
    return Job.study("emdcfl_robustness.table9", about, axes=axes)
