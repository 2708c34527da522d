"""Clusterings of notebook 09: what MT-HFL's eigen-relevance finds, and how much noise it bears, beside others.

:func:`clusterings` is the study; :func:`table1` and :func:`table2` say who the users of the paper's tables are;
:func:`specs` trains FLT on the clusters, on the embedded digits in every profile. Training as the paper does it is
notebook 10. The paper states neither samples per user nor the minority share of Fashion-MNIST: both are choices here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..encoders import EncoderSpec
from ..federations import CIFAR10_TASKS, DIGITS_TASKS, FASHION_TASKS
from ..oneshot import ClusterSpec
from ..store import Spec
from .common import SEEDS, pixels

NOTEBOOK = "09_mthfl_similarity"
EIGENVECTORS = 5  # "only five" (Section III)
CURVE = 50  # eigenvectors of Figure 4

SEEDS_OF = {
    "demo": {"ours": 20, "features": 1, "rivals": 1, "curves": 3},
    "small": {"ours": 20, "features": 3, "rivals": 5, "curves": 5},
    "paper": {"ours": 20, "features": 20, "rivals": 20, "curves": 20},
}
MINORITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
EPSILONS = {"digits": (1, 10, 100, 1000), "fashion_mnist": (0.1, 0.3, 1, 3, 10, 30, 100)}
CLIPS = {"digits": 2.5, "fashion_mnist": 8.0}  # a rough norm of the embeddings of *public* images

_TASKS = {
    "digits": {
        "3 tasks": (DIGITS_TASKS, (5, 3, 2), (100, 60, 40)),
        "2 tasks": (((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)), (5, 5), (80, 80)),
        "1 task": ((tuple(range(10)),), (10,), (80,)),
    },
    "fashion_mnist": {
        "3 tasks": (FASHION_TASKS, (5, 3, 2), (1500, 1000, 500)),
        "1 task": ((tuple(range(10)),), (10,), (1000,)),
    },
    "cifar10": {
        "2 tasks": (CIFAR10_TASKS, (5, 5), (500, 500)),
        "1 task": ((tuple(range(10)),), (10,), (500,)),
    },
}
SHOWN = {"digits": "digits", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}


def datasets(profile: str) -> tuple[str, ...]:
    """Return the data sets of a profile."""
    return ("digits",) if profile == "demo" else ("fashion_mnist", "cifar10")


def federation(dataset: str, which: str, seed: int = 0, minority: float = 0.1) -> dict[str, Any]:
    """Return the federation of 10 users with one, two or three tasks."""
    tasks, users, samples = _TASKS[dataset][which]
    return {
        "kind": "tasks",
        "dataset": dataset,
        "tasks": [list(labels) for labels in tasks],
        "users_per_task": list(users),
        "samples_per_user": list(samples),
        "minority": minority if len(tasks) > 1 else 0.0,
        "seed": seed,
    }


def table1(profile: str, seed: int = 0) -> dict[str, Any]:
    """Return the five users of Table I, pure: two of one task, three of the other."""
    dataset = "digits" if profile == "demo" else "cifar10"
    settings = federation(dataset, "2 tasks", seed, minority=0.0)
    return settings | {"users_per_task": [2, 3], "samples_per_user": [140, 140] if profile == "demo" else [1000, 1000]}


def table2(seed: int = 0) -> dict[str, Any]:
    """Return the three users of Table II."""
    return {"kind": "cross_tasks", "dataset": "cifar10", "other": "cifar100", "samples_per_user": 1000, "seed": seed}


def features(dataset: str) -> dict[str, dict[str, Any]]:
    """Return the feature maps Phi that are compared, by name; none has seen a user's data."""
    if dataset == "digits":
        return {"pixels": pixels(), "PCA": asdict(EncoderSpec("pca", "digits", latent=16))}
    grey = dataset == "fashion_mnist"
    public = "emnist_balanced" if grey else "cifar100_disjoint"
    maps = {
        "pixels": pixels(),
        "PCA": asdict(EncoderSpec("pca", public, latent=32 if grey else 64)),
        "ConvAE": asdict(EncoderSpec("convae", public, 8)),
    }
    return maps if grey else maps | {"ResNet-18, random": asdict(EncoderSpec("resnet18", "random"))}


def clusterings(profile: str) -> list[ClusterSpec]:
    """Return the study over seeds, T given and chosen, then the curves of minority, noise and privacy."""
    return [*_study(profile), *_chosen(profile), *_curves(profile)]


def ours(n_clusters: int | None, **options: Any) -> dict[str, Any]:
    """Return settings of eigen-relevance as the paper has it."""
    return {"name": "EigenRelevance", "n_clusters": n_clusters, "n_eigenvectors": EIGENVECTORS} | options


def rival(name: str, dataset: str, n_clusters: int | None, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return another clusterer and the encoder it needs."""
    encoder = features(dataset)["PCA" if dataset == "digits" else "ConvAE"]
    if name == "pca_km_hc":
        size = {"n_components": 16} if dataset == "digits" else {}
        return {"name": "PCAKMeans", "n_clusters": n_clusters} | size | options, pixels()
    if name == "transport":
        return {"name": "TransportSignatures", "n_clusters": n_clusters} | options, encoder
    # ten users with five centroids each: UMAP's neighbourhood must stay below what one label has over all users
    return {"name": "FCR", "n_clusters": n_clusters, "k": 5, "n_neighbors": 5} | options, encoder


def _study(profile: str) -> Iterator[ClusterSpec]:
    """T given: every feature map, the linkages, and the other clusterers on the same federations."""
    count = SEEDS_OF[profile]
    for dataset in datasets(profile):
        for which in [name for name in _TASKS[dataset] if name != "1 task"]:
            T = len(_TASKS[dataset][which][0])
            for name, encoder in features(dataset).items():
                for seed in range(count["ours" if name == "pixels" else "features"]):
                    settings = federation(dataset, which, seed)
                    yield _spec("mthfl", dataset, which, settings, ours(T), encoder, seed, "study", name)
            for linkage in ("complete", "single", "ward") if which == "3 tasks" else ():
                for seed in range(count["ours"]):
                    settings, made = federation(dataset, which, seed), ours(T, linkage=linkage)
                    yield _spec("mthfl", dataset, which, settings, made, pixels(), seed, "linkage", "pixels", linkage)
            for name in ("transport", "flt", "pca_km_hc"):
                if (name, dataset) == ("pca_km_hc", "cifar10"):
                    continue  # a 3,072 x 3,072 decomposition for each user: minutes for a row that links everybody
                for seed in range(count["rivals"]):
                    settings, (made, encoder) = federation(dataset, which, seed), rival(name, dataset, T)
                    phi = "pixels" if name == "pca_km_hc" else "PCA" if dataset == "digits" else "ConvAE"
                    yield _spec(name, dataset, which, settings, made, encoder, seed, "study", phi)


def _chosen(profile: str) -> Iterator[ClusterSpec]:
    """T not given, where there are several tasks and where there is one."""
    for dataset in datasets(profile):
        for which in _TASKS[dataset]:
            for seed in range(SEEDS_OF[profile]["ours"]):
                settings = federation(dataset, which, seed)
                yield _spec("mthfl_chosen", dataset, which, settings, ours(None), pixels(), seed, "chosen", "pixels")
            for seed in range(SEEDS_OF[profile]["rivals"]):
                settings, (made, encoder) = federation(dataset, which, seed), rival("transport", dataset, None)
                phi = "PCA" if dataset == "digits" else "ConvAE"
                yield _spec("transport", dataset, which, settings, made, encoder, seed, "chosen", phi)


def _curves(profile: str) -> Iterator[ClusterSpec]:
    """Three tasks: ever more labels of other tasks, noise on the eigenvectors, a private release. T given."""
    dataset = datasets(profile)[0]
    public = features(dataset)["PCA"]  # few dimensions: the noise of a private release grows with them
    for seed in range(SEEDS_OF[profile]["curves"]):
        for share in MINORITIES:
            settings = federation(dataset, "3 tasks", seed, share)
            at = {"part": "minority", "level": share}
            yield _spec("mthfl", dataset, "3 tasks", settings, ours(3), pixels(), seed, phi="pixels", **at)
            made, encoder = rival("transport", dataset, 3)
            phi = "PCA" if dataset == "digits" else "ConvAE"
            yield _spec("transport", dataset, "3 tasks", settings, made, encoder, seed, phi=phi, **at)
        settings = federation(dataset, "3 tasks", seed)
        for noise in NOISES:
            made = ours(3, noise=noise)
            at = {"part": "noise", "level": noise}
            yield _spec("mthfl", dataset, "3 tasks", settings, made, pixels(), seed, phi="pixels", **at)
        for epsilon in EPSILONS[dataset]:
            at = {"part": "epsilon", "level": float(epsilon)}
            budget = {"epsilon": epsilon, "clip": CLIPS[dataset]}
            for name, made in (
                ("mthfl", ours(3, **budget)),
                ("transport", rival("transport", dataset, 3, **budget)[0]),
            ):
                yield _spec(name, dataset, "3 tasks", settings, made, public, seed, phi="PCA", **at)


def _spec(
    name: str,
    dataset: str,
    which: str,
    settings: dict[str, Any],
    made: dict[str, Any],
    encoder: dict[str, Any],
    seed: int,
    part: str,
    phi: str,
    linkage: str = "",
    level: float = 0.0,
) -> ClusterSpec:
    return ClusterSpec(
        settings,
        made,
        encoder,
        seed=seed,
        experiment=NOTEBOOK,
        dataset=dataset,
        method_id=name,
        note=linkage,
        axes={"part": part, "federation": f"{SHOWN[dataset]}, {which}", "features": phi, "level": level},
    )


def specs(profile: str) -> list[Spec]:
    """FLT's case II on the clusters of eigen-relevance: three tasks of the embedded digits, in every profile."""
    rows: dict[str, dict[str, Any]] = {
        "fedavg": {"name": "fedavg"},
        "flt_eigen": {
            "name": "flt_eigen",
            "kind": "FLT",
            "graph": "clusters",
            "clusterer": ours(3),
            "encoder": pixels(),
        },
        "oracle": {"name": "oracle"},
    }
    return [
        Spec(
            federation("digits", "3 tasks", seed),
            settings | {"rule": "participants"},
            model="mlp",
            rounds=15,
            local_epochs=2,
            participation=1.0,
            batch_size=10,
            lr=0.05,
            seed=seed,
            experiment=NOTEBOOK,
            dataset="digits",
            method_id=name,
        )
        for name, settings in rows.items()
        for seed in SEEDS[profile]
    ]
