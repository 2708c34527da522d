"""Jobs of notebook 09: MT-HFL's Tables I and II and Figure 4, and what its clustering finds beside others.

The paper states neither samples per user nor the minority share of Fashion-MNIST: both are choices here. Training on
the clusters as the paper does it is notebook 10; here FLT trains on them, on the digits in every profile.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..analyses.mthfl_similarity import (  # noqa: F401 - by name
    cost,
    figure4,
    margins,
    mean_image,
    scales,
    separation,
    table1,
    table2,
    tables2,
    users,
)
from ..federations import CIFAR10_TASKS, DIGITS_TASKS, FASHION_TASKS
from ..results import Job
from .common import CLIPS, SEEDS, Settings, pixels, spec

EIGENVECTORS = 5  # "only five" (Section III)
SEEDS_OF = {
    "demo": {"ours": 3, "features": 1, "rivals": 1, "curves": 1, "tables": 2},
    "small": {"ours": 20, "features": 3, "rivals": 5, "curves": 5, "tables": 3},
    "paper": {"ours": 20, "features": 20, "rivals": 20, "curves": 20, "tables": 10},
}
MINORITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
EPSILONS = {
    "digits": (1, 10, 100, 1000),
    "fashion_mnist": (0.1, 0.3, 1, 3, 10, 30, 100),
}
_ONE = (tuple(range(10)),)
_TASKS = {
    "digits": {
        3: (DIGITS_TASKS, (5, 3, 2), (100, 60, 40)),
        2: (((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)), (5, 5), (80, 80)),
        1: (_ONE, (10,), (80,)),
    },
    "fashion_mnist": {
        3: (FASHION_TASKS, (5, 3, 2), (1500, 1000, 500)),
        1: (_ONE, (10,), (1000,)),
    },
    "cifar10": {2: (CIFAR10_TASKS, (5, 5), (500, 500)), 1: (_ONE, (10,), (500,))},
}
"""Data set -> number of tasks -> their labels, users and samples of a user."""


def datasets(profile: str) -> tuple[str, ...]:
    """Return the data sets of a profile."""
    return ("digits",) if profile == "demo" else ("fashion_mnist", "cifar10")


def federation(
    dataset: str, count: int, seed: int = 0, minority: float = 0.1
) -> Settings:
    """Return the federation of 10 users with one, two or three tasks."""
    tasks, each, samples = _TASKS[dataset][count]
    held = {
        "kind": "tasks",
        "dataset": dataset,
        "tasks": [list(labels) for labels in tasks],
        "seed": seed,
    }
    held |= {"users_per_task": list(each), "samples_per_user": list(samples)}
    return held | {"minority": minority if count > 1 else 0.0}


def features(dataset: str) -> dict[str, Settings]:
    """Return the feature maps Phi that are compared, by name; none has seen a user's data."""
    if dataset == "digits":
        return {"pixels": pixels(), "PCA": spec("pca", "digits", latent=16)}
    grey = dataset == "fashion_mnist"
    public, random = (
        "emnist_balanced" if grey else "cifar100_disjoint",
        spec("resnet18", "random"),
    )
    maps = {"pixels": pixels(), "PCA": spec("pca", public, latent=32 if grey else 64)}
    return (
        maps
        | {"ConvAE": spec("convae", public, 8)}
        | ({} if grey else {"ResNet-18, random": random})
    )


def jobs(profile: str) -> list[Job]:
    """Tables I and II, Figure 4 and what is sent; the study of clusterings; FLT trained on the clusters."""
    # FLT's case II on the clusters of eigen-relevance: three tasks of the embedded digits, in every profile
    found = {
        "kind": "FLT",
        "graph": "clusters",
        "clusterer": clusterer("mthfl", "digits", 3)[0],
        "encoder": pixels(),
    }
    training = {
        "model": "mlp",
        "rounds": 15,
        "local_epochs": 2,
        "participation": 1.0,
        "batch_size": 10,
        "lr": 0.05,
    }
    axes = {"dataset": "digits", "variant": "as_written", "tasks": 3}
    trainings = [
        Job.training(
            federation("digits", 3, seed),
            how | {"rule": "participants"},
            **training,
            seed=seed,
            axes=axes,
        )
        for how in (
            {"name": "fedavg"},
            {"name": "flt_eigen"} | found,
            {"name": "oracle"},
        )
        for seed in SEEDS[profile]
    ]
    return [*_tables(profile), *_study(profile), *_curves(profile), *trainings]


def _tables(profile: str) -> Iterator[Job]:
    def study(function: str, dataset: str, settings: Settings, **axes: Any) -> Job:
        axes = {"method": "mthfl", "variant": "as_written", "dataset": dataset} | axes
        return Job.study(f"mthfl_similarity.{function}", settings, axes=axes)

    dataset, seeds = datasets(profile)[0], SEEDS_OF[profile]["tables"]
    objects, each = ("digits", 140) if profile == "demo" else ("cifar10", 1000)
    five = federation(objects, 2, minority=0.0) | {
        "users_per_task": [2, 3],
        "samples_per_user": [each, each],
    }
    maps = features(objects)
    if profile == "paper":  # the paper's own, where its weights can be had
        maps = maps | {
            "ResNet-18, ImageNet": maps["ResNet-18, random"] | {"pretrain": "imagenet"}
        }
    how = {"encoders": maps, "seeds": seeds}
    yield study("table1", objects, how | {"federation": five}, table="TI")
    if profile != "demo":
        other = {"EfficientNet-Lite0, ImageNet": spec("efficientnet", "imagenet")}
        yield study(
            "table1",
            objects,
            {"encoders": other, "seeds": 3, "federation": five},
            part="ImageNet",
        )
        three = {
            "kind": "cross_tasks",
            "dataset": "cifar10",
            "other": "cifar100",
            "samples_per_user": 1000,
            "seed": 0,
        }
        yield study(
            "table2", "cifar10_cifar100", how | {"federation": three}, table="TII"
        )
        yield study("scales", objects, {"federation": five, "seeds": 3}, part="scales")
        yield study(
            "margins", objects, {"federation": five, "seeds": 2}, part="margins"
        )
        for users, fed in {"Table I": five, "Table II": three}.items():
            at = {
                "dataset": objects,
                "users": users,
                "part": "mean image",
                "variant": "as_written",
            }
            yield Job.study(
                "mthfl_similarity.mean_image", {"federation": fed, "seeds": 10}, axes=at
            )
    ten, sent = (
        federation(dataset, 3),
        features(dataset)["PCA" if dataset == "digits" else "ConvAE"],
    )
    yield study("figure4", dataset, {"federation": ten}, tasks=3, part="figure 4")
    yield study(
        "cost", dataset, {"federation": ten, "sent": sent}, tasks=3, part="cost"
    )
    for name in ("digits", *(name for name in datasets(profile) if name != "digits")):
        count, seeds = (
            max(_TASKS[name]),
            3 if profile == "demo" else 20 if name == "digits" else 10,
        )
        for share in (0.1, 0.3):
            settings = {
                "federation": federation(name, count, minority=share),
                "seeds": seeds,
            }
            at = {
                "dataset": name,
                "tasks": count,
                "level": share,
                "part": "mean image",
                "variant": "as_written",
            }
            yield Job.study("mthfl_similarity.mean_image", settings, axes=at)


def clusterer(
    name: str, dataset: str, n_clusters: int | None, **options: Any
) -> tuple[Settings, str]:
    """Return the settings of a clusterer, eigen-relevance as the paper has it, and the feature map it needs."""
    digits = dataset == "digits"
    phi = "PCA" if digits else "ConvAE"
    made, phi = {
        "mthfl": ({"name": "EigenRelevance", "n_eigenvectors": EIGENVECTORS}, "pixels"),
        "pca_km_hc": (
            {"name": "PCAKMeans"} | ({"n_components": 16} if digits else {}),
            "pixels",
        ),
        "mean_image": ({"name": "MeanImage"}, "pixels"),
        "transport": ({"name": "TransportSignatures"}, phi),
        # ten users with five centroids each: UMAP's neighbourhood must stay below what one label has over all users
        "flt": ({"name": "FCR", "k": 5, "n_neighbors": 5}, phi),
    }[name]
    return made | {"n_clusters": n_clusters} | options, phi


def _study(profile: str) -> Iterator[Job]:
    """T given: every feature map, the linkages, and the other clusterers on the same federations; T not given."""
    count = SEEDS_OF[profile]
    for dataset in dict.fromkeys((*datasets(profile), "digits")):
        here = dataset in datasets(
            profile
        )  # in the other profiles digits only say how often little data suffice
        for tasks in [tasks for tasks in _TASKS[dataset] if tasks > 1]:
            for phi in features(dataset) if here else ["pixels"]:
                for seed in range(count["ours" if phi == "pixels" else "features"]):
                    yield _job("mthfl", dataset, tasks, seed, "study", phi)
            for how in ("complete", "single", "ward") if tasks == 3 and here else ():
                for seed in range(count["ours"]):
                    yield _job(
                        "mthfl",
                        dataset,
                        tasks,
                        seed,
                        "linkage",
                        more={"linkage": how},
                        linkage=how,
                    )
            for name in ("transport", "flt", "pca_km_hc") if here else ():
                # there a 3,072 x 3,072 decomposition for each user: minutes for a row that links everybody
                if (name, dataset) != ("pca_km_hc", "cifar10"):
                    yield from (
                        _job(name, dataset, tasks, seed, "study")
                        for seed in range(count["rivals"])
                    )
        for tasks in (
            _TASKS[dataset] if here else ()
        ):  # T not given, where there are several tasks and one
            for name, which in (
                ("mthfl_chosen", "ours"),
                ("mean_image", "rivals"),
                ("transport", "rivals"),
            ):
                yield from (
                    _job(name, dataset, tasks, seed, "chosen")
                    for seed in range(count[which])
                )


def _curves(profile: str) -> Iterator[Job]:
    """Three tasks: ever more labels of other tasks, noise on the eigenvectors, a private release. T given."""
    dataset, both = datasets(profile)[0], ("mthfl", "transport")
    for seed in range(SEEDS_OF[profile]["curves"]):
        for share, name in product(MINORITIES, (*both, "mean_image")):
            yield _job(name, dataset, 3, seed, "minority", level=share)
        for noise in NOISES:
            yield _job(
                "mthfl", dataset, 3, seed, "noise", more={"noise": noise}, level=noise
            )
        for epsilon, name in product(
            EPSILONS[dataset], both
        ):  # few dimensions: the noise grows with them
            budget = {"epsilon": epsilon, "clip": CLIPS[dataset]}
            yield _job(
                name, dataset, 3, seed, "epsilon", "PCA", budget, level=float(epsilon)
            )


def _job(
    name: str,
    dataset: str,
    tasks: int,
    seed: int,
    part: str,
    phi: str = "",
    more: Settings | None = None,
    **axes: Any,
) -> Job:
    """One clustering; T is told but where the part is that it is "chosen"."""
    made, usual = clusterer(
        name.removesuffix("_chosen"),
        dataset,
        None if part == "chosen" else tasks,
        **(more or {}),
    )
    fed, phi = (
        federation(dataset, tasks, seed, axes["level"] if part == "minority" else 0.1),
        phi or usual,
    )
    axes = {
        "dataset": dataset,
        "method": name,
        "part": part,
        "tasks": tasks,
        "features": phi,
        **axes,
    }
    return Job.clustering(fed, made, features(dataset)[phi], seed=seed, axes=axes)
