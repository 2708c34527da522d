"""Runs of notebook 15: every one-shot clusterer where it gets hard, and every method on every kind of federation.

No paper has this comparison. Settings are the papers' own (or, where a paper tuned one per data set, as the notebook
says), the same on all federations: nothing is tuned to win here.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from ..federations import DIGITS_TASKS, FASHION_TASKS
from ..results import Job
from .common import SEEDS, Settings, pixels, unseen

AXES = {
    "samples": "training and validation samples per client",
    "overlap": "samples from a pool that all clients share, %",
    "rotation": "degrees between the rotations of neighbouring clusters",
    "backdoor": "attackers' shades, times the paper's",
    "noise": "noise on what is sent, times its spread",
}
"""What is made harder; everything else stays as it is at the easiest level of the axis."""
TURNED = 3
"""Degrees by which all rotations of the axes are off a right angle: those alone need no interpolation, whose blur
would give their cluster away."""
HARDER_IS_LESS = ("samples", "rotation", "backdoor")
LEVELS: dict[str, dict[str, tuple[float, ...]]] = {
    "demo": {
        "samples": (100, 20),
        "overlap": (0, 50),
        "rotation": (90, 10),
        "backdoor": (4, 1),
        "noise": (0, 2),
    },
    "small": {
        "samples": (600, 300, 150, 80, 40, 20),
        "overlap": (0, 25, 50, 75, 90, 100),
    }
    | {
        "rotation": (90, 45, 30, 20, 15, 10, 5),
        "backdoor": (4, 2, 1, 0.5, 0.25),
        "noise": (0, 0.1, 0.3, 1, 3),
    },
}
LEVELS["paper"] = LEVELS["small"]
CURVE_SEEDS = SEEDS | {"paper": tuple(range(10))}
CLIENTS, EACH = (
    {"demo": 8, "small": 20, "paper": 40},
    {"demo": 100, "small": 300, "paper": 600},
)

CLUSTERERS: dict[str, Settings] = {
    "fcr_written": {"name": "FCR"},
    "transport": {"name": "TransportSignatures"},
    "emdcfl": {"name": "EMDClustering"},
    "emdcfl_auto": {"name": "EMDClustering", "tolerance": "auto"},
    "eigen": {"name": "EigenRelevance"},
    "pacfl": {
        "name": "PACFL",
        "threshold": 12,
    },  # EMD-CFL's value for its rotated images
    "pca_km_hc": {"name": "PCAKMeans"},
    "mean_image": {"name": "MeanImage"},
}
"""Clusterers in their papers' settings, without a number of clusters."""
ON_PIXELS = ("eigen", "pacfl", "pca_km_hc", "mean_image", "merge_gain")
NOT_IN_DEMO = ("fcr_written", "emdcfl_auto", "pca_km_hc", "mean_image")  # to be short


class Kind(NamedTuple):
    """One federation of the comparison of methods.

    ``clusters`` is the K that methods are told which need one; 3 where nobody knows it, as in FLT's runs on FEMNIST.
    ``options`` replace settings of :data:`TRAINING`.
    """

    dataset: str
    settings: Settings
    clusters: int
    model: str = "mlp_plain"
    options: Settings = {}  # noqa: RUF012 - read only


TRAINING = {
    "demo": {
        "rounds": 3,
        "local_epochs": 5,
        "batch_size": 20,
        "lr": 0.1,
        "momentum": 0.0,
    }
}
TRAINING["small"] = {
    "rounds": 10,
    "local_epochs": 5,
    "batch_size": 32,
    "lr": 0.05,
    "momentum": 0.9,
}
TRAINING["paper"] = TRAINING["small"] | {"rounds": 50}
NEEDS_K = (
    "fedsem",
    "fesem",
    "ifca",
    "flexcfl",
    "cflgp",
    "fedem",
    "fedsoft",
    "fedrc",
    "fedce",
)
"""Methods that cannot do without a number of clusters."""
TOLD_K = ("flt_given", "pacfl", "fedclust", "flt_eigen", "pca_km_hc", "mthfl")
"""Methods that could, by a threshold that their papers tune per data set or by a rule: told K instead."""
NO_CLUSTERS = ("fedavg", "fedprox", "local", "pfedgraph", "fedsac")
METHODS = (
    *NO_CLUSTERS,
    "cfl",
    "emdcfl",
    "transport",
    "flt",
    "flt_soft",
    *TOLD_K,
    *NEEDS_K,
    "oracle",
)
"""Rows of the comparison: without clusters; with clusters that they find by themselves; told K; told the clusters."""
DEMO_KINDS = ("labels", "rotated", "tasks", "backdoor")
DEMO_METHODS = ("fedavg", "emdcfl", "transport", "pacfl", "ifca", "oracle")


def jobs(profile: str) -> list[Job]:
    """Every clusterer at every level of every axis, with and without K; every method on every kind of federation.

    Clusterings that see one federation through one encoder follow each other, so that it is embedded once.
    """
    result = list(_clusterings(profile))
    names = DEMO_METHODS if profile == "demo" else METHODS
    for (shown, kind), name, seed in product(
        kinds(profile).items(), names, SEEDS[profile]
    ):
        if name != "oracle" or shown not in UNKNOWN:
            result.append(training(name, shown, kind, profile, seed))
    return result


def _clusterings(profile: str) -> Iterator[Job]:
    for axis, seed in product(LEVELS[profile], CURVE_SEEDS[profile]):
        for level in LEVELS[profile][axis]:
            fed, clusters = graded(axis, level, profile, seed)
            about = {
                "dataset": fed["dataset"],
                "difficulty": axis,
                "level": float(level),
            }
            for name in CLUSTERERS:
                # PCA+kM+HC fails on these federations without any noise
                if (axis, name) == ("noise", "pca_km_hc") or (
                    profile == "demo" and name in NOT_IN_DEMO
                ):
                    continue
                # again EMD-CFL's threshold for these images
                usual = CLUSTERERS[name] | (
                    {"threshold": 2.5} if (name, axis) == ("pacfl", "backdoor") else {}
                )
                see, noise = (
                    encoder(name, fed["dataset"], axis == "backdoor", seed),
                    level * (axis == "noise"),
                )
                for given in (False,) if name == "emdcfl_auto" else (False, True):
                    how, axes = (
                        usual | ({"n_clusters": clusters} if given else {}),
                        {"method": name, "k_given": given},
                    )
                    yield Job.clustering(
                        fed, how, see, seed=seed, noise=noise, axes=about | axes
                    )


def training(
    name: str, shown: str, kind: Kind, profile: str, seed: int, rounds: int = 0
) -> Job:
    """Return the run of a method on a federation, or one of more ``rounds``, logged at every tenth."""
    fed = kind.settings | {"seed": seed}
    if "base" in fed:
        fed["base"] = fed["base"] | {"seed": seed}
    how = (
        TRAINING[profile]
        | {"participation": 1.0, "eval_every": TRAINING[profile]["rounds"]}
        | kind.options
    )
    how |= {"rounds": rounds, "eval_every": 10} if rounds else {}
    axes = {"dataset": fed["dataset"], "variant": "as_written", "federation": shown}
    axes |= {"k_given": name in (*NEEDS_K, *TOLD_K, "mean_image")} | (
        {"part": "long"} if rounds else {}
    )
    return Job.training(
        fed, method(name, kind), kind.model, **how, seed=seed, axes=axes
    )


UNKNOWN = ("writers",)
"""Federations whose true clusters nobody knows."""


def kinds(profile: str) -> dict[str, Kind]:
    """Return one federation of every kind, by name; all have validation samples, which EMD-CFL needs."""
    digits = profile == "demo"
    grey, clothes = ("digits", "digits") if digits else ("mnist", "fashion_mnist")
    size = (
        1 if profile == "small" else 5
    )  # the paper profile has five times the images a client
    m, each = (12, 80) if digits else (20, 150 * size)

    def with_validation(dataset: str, **base: Any) -> Settings:
        return {"kind": "held_out", "dataset": dataset, "base": base}

    tested = {"samples_per_client": each, "test_per_client": 20 if digits else 100}
    turned = {"kind": "rotated_copies", "dataset": grey, "n_clients": m} | tested
    labels = {
        "kind": "label_clusters",
        "n_clients": 10 if digits else m,
        "n_clusters": 5,
        "samples_per_client": each,
    }
    shared = {"classes_per_cluster": 3, "shared_classes": 1}
    mixtures = {
        "kind": "dirichlet",
        "n_clients": m,
        "alpha": 0.3,
        "n_clusters": 4,
        "max_train": m * each,
    }
    power = {"kind": "structured", "n_clients": 30, "max_per_class": 120 * size}
    hands = {"kind": "pseudo_writers", "n_clients": m, "mean_samples": each}
    of_tasks = {
        "kind": "tasks",
        "tasks": [list(t) for t in (DIGITS_TASKS if digits else FASHION_TASKS)],
    }
    of_tasks |= {
        "users_per_task": [4, 2, 2] if digits else [8, 6, 4],
        "samples_per_user": each,
        "minority": 0.1,
    }
    coloured = {
        "kind": "backdoor_colours",
        "dataset": grey,
        "n_clients": 6 if digits else 15,
    } | tested
    patches = {
        "kind": "backdoor_patches",
        "dataset": "cifar10",
        "n_clients": 9,
    } | tested
    every = {
        "labels": Kind(grey, with_validation(grey, **labels, classes_per_cluster=2), 5),
        "labels, one shared": Kind(grey, with_validation(grey, **labels, **shared), 5),
        "mixtures": Kind(
            "fashion_mnist", with_validation("fashion_mnist", **mixtures), 4
        ),
        "power law": Kind(
            "emnist", with_validation("emnist_balanced_small", **power), 10
        ),
        "writers": Kind("emnist", with_validation("emnist_byclass", **hands), 3),
        "tasks": Kind(clothes, with_validation(clothes, **of_tasks), 3),
        "rotated": Kind(grey, turned, 4),
        "one cluster": Kind(grey, turned | {"angles": [[0]]}, 1),
        # colours have three channels, and with the others' step of 0.05 networks die: equal outputs for all images
        "backdoor": Kind(
            "colours", coloured, 3, options={} if digits else {"lr": 0.01}
        ),
        "backdoor patches": Kind("cifar10", patches, 3, "lenet", {"lr": 0.01}),
    }
    return {name: every[name] for name in DEMO_KINDS} if digits else every


def method(name: str, kind: Kind) -> Settings:
    """Return the settings of one method, as its own paper describes it."""
    told = {"n_clusters": kind.clusters}

    def on(clusterer: str, encoder: Settings, **more: Any) -> Settings:
        return {"clusterer": {"name": clusterer} | more, "encoder": encoder}

    see = unseen(kind.dataset)
    own = {
        **dict.fromkeys((*NEEDS_K, "fedclust"), told),
        **dict.fromkeys(
            ("ifca", "fedce"), told | {"split": "train"}
        ),  # a client's validation samples are one batch
        "cfl": {
            "warmup": 1
        },  # as in EMD-CFL's runs: the default of 20 is longer than the training here
        "pacfl": {"clusterer": {"name": "PACFL"} | told},
        "mthfl": on("EigenRelevance", pixels(), **told),
        "flt_eigen": on("EigenRelevance", pixels(), **told)
        | {"kind": "FLT", "graph": "clusters"},
        "pca_km_hc": on("PCAKMeans", pixels(), **told),
        "mean_image": on("MeanImage", pixels(), **told) | {"kind": "FLT"},
        "flt": on("FCR", see, random_state=0) | {"kind": "FLT"},
        "flt_given": on("FCR", see, random_state=0, **told) | {"kind": "FLT"},
        "flt_soft": on("FCR", see, random_state=0) | {"kind": "SoftFLT"},
        "transport": on("TransportSignatures", see, random_state=0) | {"kind": "FLT"},
        "merge_gain": on("MergeGain", pixels(), random_state=0) | {"kind": "FLT"},
    }
    return {"name": name} | own.get(name, {})


def graded(axis: str, level: float, profile: str, seed: int) -> tuple[Settings, int]:
    """Return the federation of one level of an axis, and its true number of clusters."""
    dataset, clients = "digits" if profile == "demo" else "mnist", CLIENTS[profile]
    each = int(level) if axis == "samples" else EACH[profile]
    held = {
        "dataset": dataset,
        "seed": seed,
        "samples_per_client": each,
        "test_per_client": 10,
    }
    if axis in ("samples", "rotation", "noise"):
        angles = [
            [TURNED + (level if axis == "rotation" else 90) * turn] for turn in range(4)
        ]
        return held | {
            "kind": "rotated_copies",
            "n_clients": clients,
            "angles": angles,
        }, 4
    if axis == "backdoor":
        return held | {
            "kind": "backdoor_colours",
            "n_clients": 3 * max(2, clients // 4),
            "intensity": level,
        }, 3
    # two digits a cluster; at 100 % everybody holds all ten in equal parts
    tasks = [[2 * t, 2 * t + 1] for t in range(5)]
    base = {
        "kind": "tasks",
        "tasks": tasks,
        "users_per_task": [max(2, clients // 5)] * 5,
        "samples_per_user": each,
    }
    base |= {"minority": round(0.8 * level / 100, 6), "seed": seed}
    return {"kind": "held_out", "dataset": dataset, "base": base, "seed": seed}, 5


def encoder(name: str, dataset: str, colour: bool, seed: int) -> Settings:
    """Return what a clusterer looks at: pixels, its clients' own models, or an encoder that has seen no client's data.

    There is no encoder for coloured digits, so FCR and the signatures see their pixels.
    """
    if name.startswith("emdcfl"):
        # 100 of the digits are four batches an epoch: a larger step, or the networks stay where they started
        return {"kind": "own", "seed": seed} | (
            {"lr": 0.05} if dataset == "digits" else {}
        )
    return pixels() if name in ON_PIXELS or colour else unseen(dataset)
