"""Jobs of notebook 17: merge by gain on seeds that chose nothing, on federations new to it, and where it breaks.

This project's own method, not part of any paper. The ten federations and the axes are those of notebook 15.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from .. import metrics
from ..clustering.cuts import cut
from ..clustering.ours import MergeGain, TransportSignatures
from ..clustering.ours.ridge import Sums, losses
from ..data import load
from ..encoders import EncoderSpec, embed_clients
from ..federations import FASHION_TASKS, apply_style, build, writer_styles
from ..methods.flt import client_images
from ..randomness import stream
from ..results import Job
from . import head_to_head as rival
from .common import Settings, Study, federation, unseen

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


def made(
    what: str, dataset: str, level: int, seed: int, n_clients: int = 20, each: int = 135
) -> Study:
    """Cluster clients of like images that disagree: on the names of ``level`` classes (4 groups), or in 2 to 4 hands.

    Returns ``numbers``: ``ari``, ``n_clusters``, ``true_clusters``.
    """
    images, groups = load(dataset), 4 if what == "permuted labels" else level
    each = min(each, len(images.train_index) // n_clients)
    held = (
        stream(seed, "partition", 8)
        .permutation(images.train_index)[: n_clients * each]
        .reshape(n_clients, each)
    )
    truth, x, y = np.arange(n_clients) * groups // n_clients, [], []
    names, hands = (
        np.tile(np.arange(images.n_classes), (groups, 1)),
        writer_styles(groups, seed),
    )
    for group in range(groups if what == "permuted labels" else 0):
        names[group, :level] = np.roll(names[group, :level], group)
    for group, own in zip(truth, held, strict=True):
        drawn = (
            images.images[own]
            if what == "permuted labels"
            else apply_style(images.images[own], *hands[group])
        )
        x.append(drawn.reshape(each, -1) / 255)
        y.append(names[group][images.labels[own]])
    truth = (
        np.unique(names, axis=0, return_inverse=True)[1][truth]
        if what == "permuted labels"
        else truth
    )
    return {"numbers": _compared(truth, MergeGain().fit(x, y).labels_)}


def without_labels(federation: Settings, targets: int = 10) -> Study:
    """Cluster by the same rule where models predict random projections of a sample's pixels in place of its class."""
    fed = build(federation)
    x = [fed.images[index].reshape(len(index), -1) / 255 for index in fed.train]
    project = stream(federation["seed"], "method", 26).normal(
        size=(x[0].shape[1], targets)
    )
    y = [own @ project for own in x]
    middle, spread = np.concatenate(y).mean(0), np.concatenate(y).std()
    return {
        "numbers": _compared(
            fed.clusters,
            MergeGain().fit(x, [(own - middle) / spread for own in y]).labels_,
        )
    }


def by_transport(federation: Settings, encoder: Settings) -> Study:
    """Merge in the order of transport signatures' tree; the least summed loss says how often."""
    fed = build(federation)
    found, tree = (
        MergeGain(),
        TransportSignatures()
        .fit(embed_clients(fed, EncoderSpec(**encoder), n_jobs=1))
        .linkage_,
    )
    sums = Sums.of(found.sketches(*client_images(fed)))
    cuts = [cut(tree, k) for k in range(1, fed.n_clients + 1)]
    labels = min(
        cuts, key=lambda labels: losses(_grouped(sums, labels), found.folds)[0].sum()
    )
    return {"numbers": _compared(fed.clusters, labels)}


def soft(federation: Settings) -> Study:
    """Let every client weigh the other clusters' sums (0, 0.1, 0.3 or 1), one after the other, by its own loss.

    Returns ``numbers``: test accuracy in percent of the ridge regressions (the mean prediction of the F folds') by
    each client alone, by its cluster (``hard``), by weights (``soft``) and by everybody (``one``); ``weight``, the mean
    weight of a cluster that is not the client's own.
    """
    fed, found = build(federation), MergeGain()
    sketches = found.sketches(*client_images(fed))
    sums, labels = Sums.of(sketches), found.fit_sketches(sketches).labels_
    x, y = client_images(fed, "test")
    clusters, phis = _grouped(sums, labels), [found.random_features(own) for own in x]
    hits: dict[str, list[float]] = {
        name: [] for name in ("alone", "hard", "soft", "one", "weight")
    }

    def fitted(i: int, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss of client i, and its weights, under the model of these shares of the clusters."""
        pooled = [
            np.tensordot(weights, part, 1)[None]
            for part in (clusters.moments, clusters.products)
        ]
        size = np.array([weights @ clusters.size])
        loss, model = losses(
            Sums(*pooled, *(part[[i]] for part in sums[2:5]), size, sums.noise[[i]]),
            found.folds,
        )
        return loss[0], model[0]

    for i in range(fed.n_clients):
        own = np.eye(len(clusters.size))[labels[i]]
        mixed, best = own.copy(), fitted(i, own)[0]
        for other in np.flatnonzero(own == 0):
            for share in (0.1, 0.3, 1.0):
                tried = np.where(np.arange(len(own)) == other, share, mixed)
                if (loss := fitted(i, tried)[0]) < best:
                    mixed, best = tried, loss
        models = {
            "hard": fitted(i, own)[1],
            "soft": fitted(i, mixed)[1],
            "one": fitted(i, np.ones(len(own)))[1],
        }
        models["alone"] = losses(sums.take([i]), found.folds)[1][0]
        for name, model in models.items():
            hits[name].append(
                100 * ((phis[i] @ model).mean(0).argmax(1) == y[i]).mean()
            )
        hits["weight"].append(mixed[own == 0].mean() if len(own) > 1 else 0.0)
    return {"numbers": {name: float(np.mean(values)) for name, values in hits.items()}}


def _grouped(sums: Sums, labels: np.ndarray) -> Sums:
    """Add up the sums of each cluster, one row each."""
    return Sums(
        *(
            np.array([part[labels == c].sum(0) for c in np.unique(labels)])
            for part in sums
        )
    )


def _compared(truth: np.ndarray, labels: np.ndarray) -> Settings:
    ari = metrics.adjusted_rand_index(truth, labels)
    return {
        "ari": ari,
        "n_clusters": len(np.unique(labels)),
        "true_clusters": len(np.unique(truth)),
    }
