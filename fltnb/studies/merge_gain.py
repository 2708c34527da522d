"""Jobs of notebook 17: merge by gain on seeds that chose nothing, on federations new to it, and where it breaks.

This project's own method, not part of any paper. The ten federations and the axes are those of notebook 15.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from ..analyses.merge_gain import by_transport, made, soft, without_labels  # noqa: F401 - by name
from ..federations import FASHION_TASKS
from ..results import Job
from . import head_to_head as rival
from .common import Settings, federation, unseen

SEEN = {"demo": (), "small": tuple(range(10)), "paper": tuple(range(10))}
"""Seeds that were looked at before the rule was what it is now (docs/merge_gain.md)."""
BLIND = {"demo": (5,), "small": (10, 11, 12, 13, 14), "paper": (10, 11, 12, 13, 14)}
"""Seeds that nobody had looked at when the rule and its constants were written down."""
FEW = 3  # of these, where more would take long
METHODS = (
    "fedavg",
    "local",
    "pfedgraph",
    "cfl",
    "pacfl",
    "flt",
    "transport",
    "mean_image",
    "merge_gain",
    "oracle",
)
DEMO_METHODS = ("fedavg", "transport", "merge_gain", "oracle")
CLUSTERERS: dict[str, Settings] = {
    "merge_gain": {"name": "MergeGain", "random_state": 0}
}
CLUSTERERS |= {
    name: rival.CLUSTERERS[name]
    for name in ("transport", "eigen", "mean_image", "pacfl")
}
EPSILONS = (3, 10, 30, 100, 300)
CLIP = 4.0  # chosen without looking at any client's data
D = (16, 32, 64, 128, 256)
SWITCHES: dict[str, Settings] = {
    **{f"d = {d}": {"n_features": d} for d in D if d != 64},
    **{f"F = {folds}": {"folds": folds} for folds in (2, 5)},
    "another draw": {"random_state": 1},
    "4 draws of d = 32": {"n_features": 32, "n_draws": 4},
}
ABLATED = ("mixtures", "power law", "tasks", "rotated", "backdoor patches")


def jobs(profile: str) -> list[Job]:
    """Clusterings of all parts, the studies, then trainings on the ten federations."""
    trainings = [
        _training(name, shown, kind, profile, seed)
        for name in (DEMO_METHODS if profile == "demo" else METHODS)
        for shown, kind in rival.kinds(profile).items()
        for seed in BLIND[profile]
        + (SEEN[profile][:3] if name == "merge_gain" else ())  # there 15 has all others
        if not (name == "oracle" and shown in rival.UNKNOWN)
    ]
    return [*_federations(profile), *_axes(profile), *_new(profile), *trainings]


def _training(name: str, shown: str, kind: rival.Kind, profile: str, seed: int) -> Job:
    """Return a training of notebook 15, of a backdoor with the trigger's test images, at which no training looks."""
    if kind.settings["kind"].startswith("backdoor"):
        kind = kind._replace(settings=kind.settings | {"test": "both"})
    return rival.training(name, shown, kind, profile, seed)


def _clustering(
    name: str,
    fed: Settings,
    options: Settings | None = None,
    noise: float = 0.0,
    **axes: Any,
) -> Job:
    axes = {"dataset": fed["dataset"], "method": name, **axes}
    how, seed = CLUSTERERS[name] | (options or {}), fed["seed"]
    encoder = rival.encoder(
        name, fed["dataset"], fed["kind"] == "backdoor_colours", seed
    )
    return Job.clustering(
        fed,
        how,
        encoder,
        seed=seed,
        noise=noise,
        axes=axes,
        keep=["loss"] * (name == "merge_gain"),
    )


def _federations(profile: str) -> Iterator[Job]:
    """Clusterings of the ten federations; with other options and with noise for privacy on some of them.

    Where training is cheap, the clusters of a private release are trained on as well.
    """
    switches, epsilons = (
        ({}, EPSILONS[-1:]) if profile == "demo" else (SWITCHES, EPSILONS)
    )
    for (shown, kind), seed in product(
        rival.kinds(profile).items(), SEEN[profile] + BLIND[profile]
    ):
        training = rival.training("merge_gain", shown, kind, profile, seed)
        fed, method = training.settings["federation"], training.settings["method"]
        yield _clustering("merge_gain", fed, part="federations", federation=shown)
        if seed not in BLIND[profile][:FEW] or shown not in (*ABLATED, "writers"):
            continue
        about = {
            "dataset": fed["dataset"],
            "method": "merge_gain",
            "federation": shown,
            "seed": seed,
        }
        yield Job.study(
            "merge_gain.soft", {"federation": fed}, axes=about | {"part": "soft"}
        )
        if shown == "writers":  # nobody knows their clusters
            continue
        for switch, options in switches.items():
            yield _clustering(
                "merge_gain",
                fed,
                options,
                part="ablation",
                federation=shown,
                switch=switch,
            )
        about |= {"part": "ablation"}
        yield Job.study(
            "merge_gain.without_labels",
            {"federation": fed},
            axes=about | {"switch": "without labels"},
        )
        how = {"federation": fed, "encoder": unseen(fed["dataset"])}
        yield Job.study(
            "merge_gain.by_transport",
            how,
            axes=about | {"switch": "transport's order of merges"},
        )
        for epsilon in epsilons:
            private, axes = (
                {"epsilon": epsilon, "clip": CLIP},
                {"part": "privacy", "level": float(epsilon)},
            )
            if kind.model != "mlp_plain":
                yield _clustering("merge_gain", fed, private, federation=shown, **axes)
                continue
            method = method | {"clusterer": method["clusterer"] | private}
            yield replace(
                training,
                settings=training.settings | {"method": method},
                axes=training.axes | axes,
            )


def _axes(profile: str) -> Iterator[Job]:
    for (axis, levels), seed in product(rival.LEVELS[profile].items(), BLIND[profile]):
        for level, name in product(levels, ("merge_gain", "transport")):
            fed, _ = rival.graded(axis, level, profile, seed)
            about = {"part": "axes", "difficulty": axis, "level": float(level)}
            yield _clustering(name, fed, noise=level * (axis == "noise"), **about)


def _new(profile: str) -> Iterator[Job]:
    """Federations that nobody looked at while the rule was made, beside the other clusterers."""
    for seed in BLIND[profile][:FEW]:
        for shown, fed in _unseen(profile).items():
            for name in (
                ("merge_gain",) if "2,400" in shown else CLUSTERERS
            ):  # others: cost of all pairs
                yield _clustering(
                    name, fed | {"seed": seed}, part="new", federation=shown
                )
        dataset = "digits" if profile == "demo" else "mnist"
        for what, levels in {
            "permuted labels": (2, 4, 10),
            "styles": (2, 3, 4),
        }.items():
            for level in levels:
                axes = {
                    "dataset": dataset,
                    "method": "merge_gain",
                    "part": "new",
                    "federation": what,
                    "seed": seed,
                }
                settings = {
                    "what": what,
                    "dataset": dataset,
                    "level": level,
                    "seed": seed,
                }
                yield Job.study(
                    "merge_gain.made", settings, axes=axes | {"level": float(level)}
                )


def _unseen(profile: str) -> dict[str, Settings]:
    if profile == "demo":
        return {"scenario 1": federation("digits", "as_written", 0)}
    labels, pacs = (
        federation("mnist", "as_written", 0),
        {"kind": "domains", "dataset": "pacs"},
    )
    few = {
        "kind": "rotated_copies",
        "dataset": "mnist",
        "n_clients": 20,
        "test_per_client": 10,
    }
    structured = {
        "kind": "structured",
        "dataset": "emnist_bymerge",
        "max_per_class": 2400,
    }
    odd = {
        "kind": "tasks",
        "dataset": "fashion_mnist",
        "tasks": [list(t) for t in FASHION_TASKS[:2]],
    }
    return {
        "scenario 1": federation("cifar10", "as_written", 0),
        "scenario 2": federation("cifar10", "as_written", 0, 1),
        "quantity skew": odd
        | {"users_per_task": [10, 10], "samples_per_user": [20, 500]},
        "one odd client": odd | {"users_per_task": [19, 1], "samples_per_user": 150},
        "5 samples a client, two classes": labels
        | {"n_clients": 20, "samples_per_client": 5},
        **{f"{n} samples a client": few | {"samples_per_client": n} for n in (10, 20)},
        **{
            "PACS": pacs,
            "PACS, ImageNet features": pacs | {"dataset": "pacs_features"},
        },
        **{
            f"scenario 4, {n:,} clients": structured | {"n_clients": n}
            for n in (240, 2400)
        },
    }
