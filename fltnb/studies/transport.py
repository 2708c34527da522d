"""Jobs of notebook 16: how well transport signatures find clusters, where they break, and what training gains.

This project's own method, not part of any paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..results import Job
from .common import SEEDS, federation, method, pixels, training, unseen

ROTATIONS = {"4": [[0], [90], [180], [270]], "Two": [[-3, 3], [177, 183]], "Min": [[-3, -1, 1, 3]], "Base": [[0]]}
"""EMD-CFL's four versions of Rotated MNIST: four clusters, two, one, one."""

OVERLAPS = ((2, 0), (3, 1), (4, 2))  # classes per cluster, of these shared with the next one (scenario 2: 3 and 1)
STUDY_SEEDS = {"demo": 1, "small": 10, "paper": 10}
RIVAL_SEEDS = {"demo": 1, "small": 3, "paper": 10}
CURVE_SEEDS = {"demo": 1, "small": 3, "paper": 10}
SAMPLES = {"demo": (6, 24), "small": (6, 12, 25, 50, 100), "paper": (6, 12, 25, 50, 100, 200)}
EPSILONS = (1, 3, 10, 30, 100)
CLIPS = {"digits": 2.5, "mnist": 80.0}  # a rough norm of the embeddings of *public* images
NAMES = {"transport": "TransportSignatures", "flt": "FCR", "pca_km_hc": "PCAKMeans"}


def jobs(profile: str) -> list[Job]:
    """Return the study over seeds, the curves of overlap, samples and noise, and training on 25 clients of the digits.

    Training is FLT's case II on our clusters, on FCR's and on the true ones.
    """
    ours = {"name": "transport", "kind": "FLT", "graph": "clusters", "clusterer": {"name": NAMES["transport"]}}
    rows = {
        "fedavg": method("fedavg", "digits", "as_written", profile),
        "flt": method("flt_enc1", "digits", "as_written", profile) | {"name": "flt"},
        "transport": ours | {"rule": "participants", "encoder": unseen("digits")},
        "oracle": {"name": "oracle"},
    }
    how = training("digits", "as_written", profile) | ({} if profile == "demo" else {"rounds": 30})
    trainings = [
        Job.training(
            federation("digits", "as_written", seed),
            settings,
            **how,
            seed=seed,
            axes={"dataset": "digits", "method": name, "variant": "as_written"},
        )
        for name, settings in rows.items()
        for seed in SEEDS[profile]
    ]
    return [*_study(profile), *_curves(profile), *trainings]


def clusterer(name: str, dataset: str, **options: Any) -> dict[str, Any]:
    """Return a clusterer that is not told the number of clusters."""
    settings: dict[str, Any] = {"name": NAMES[name]}
    if name == "flt" and dataset == "digits":
        settings |= {"k": 2, "n_neighbors": 5}  # the published 5 and 15 glue digits together at this size
    if name == "pca_km_hc" and dataset == "digits":
        settings |= {"n_components": 16}
    return settings | options


def _study(profile: str) -> Iterator[Job]:
    for shown, dataset, settings, rivals in _federations(profile):
        for name in NAMES:
            seeds = STUDY_SEEDS[profile] if name == "transport" else RIVAL_SEEDS[profile] if rivals else 0
            for seed in range(seeds):
                yield _job(name, dataset, settings | {"seed": seed}, seed, part="study", federation=shown)
        if "scenario 1" in shown:  # a seed of its own, with what a picture needs
            keep, seed = ("adjacency", "leaf_order"), STUDY_SEEDS["paper"]
            drawn = settings | {"seed": seed}
            yield _job("transport", dataset, drawn, seed, keep=keep, part="picture", federation=shown)


def _federations(profile: str) -> Iterator[tuple[str, str, dict[str, Any], bool]]:
    """Name, data set, settings, whether the other clusterers run on it too."""
    digits = {"dataset": "digits"}
    yield "digits, scenario 1", "digits", _labels("digits", *OVERLAPS[0]), True
    groups = {"kind": "dirichlet", "alpha": 0.3, "n_clusters": 5}
    yield "digits, Dirichlet groups", "digits", digits | groups | {"n_clients": 20}, True
    structured = {"kind": "structured", "classes_per_cluster": 2, "n_clients": 40}
    yield "digits, power law", "digits", digits | structured, True
    for name in ("4", "Base"):
        turned = {"kind": "rotated", "n_clients": 20, "angles": ROTATIONS[name], "test_per_client": 10}
        yield f"digits, rotated {name}", "digits", digits | turned | {"samples_per_client": 65}, True
    if profile == "demo":
        return
    mnist = {"dataset": "mnist"}
    yield "MNIST, scenario 1, 100 clients", "mnist", _labels("mnist", *OVERLAPS[0]), True
    yield "MNIST, Dirichlet groups, 50 clients", "mnist", mnist | groups | {"n_clients": 50}, False
    for each in (100, 600, 1350):
        for name, angles in ROTATIONS.items():
            turned = {"kind": "rotated", "n_clients": 40, "angles": angles, "samples_per_client": each}
            yield f"MNIST, rotated {name}, {each} images", "mnist", mnist | turned, each == 600
    emnist = {"kind": "structured", "dataset": "emnist_balanced"}
    if profile == "small":
        emnist = {"kind": "structured", "dataset": "emnist_bymerge", "max_per_class": 2400}
    for n_clients in (240, 760, 2400):
        shown = f"EMNIST, scenario 4, {n_clients:,} clients"
        yield shown, emnist["dataset"], emnist | {"n_clients": n_clients}, n_clients == 240


def _curves(profile: str) -> Iterator[Job]:
    """Where it breaks: shared classes, few samples, noise for privacy."""
    dataset = "digits" if profile == "demo" else "mnist"
    for seed in range(CURVE_SEEDS[profile]):
        for classes, shared in OVERLAPS:
            for name in ("transport", "flt"):
                settings = _labels(dataset, classes, shared) | {"seed": seed}
                yield _job(name, dataset, settings, seed, part="overlap", level=shared / classes)
        for samples in SAMPLES[profile]:
            for name in ("transport", "flt"):
                # a client holds two classes, and k centroids need k samples
                options = {"k": 2} if name != "transport" else {}
                settings = _labels(dataset, *OVERLAPS[0]) | {"seed": seed, "samples_per_client": samples}
                yield _job(name, dataset, settings, seed, options, part="samples", level=float(samples))
        for epsilon in EPSILONS:
            settings = _labels(dataset, *OVERLAPS[0]) | {"seed": seed}
            options = {"epsilon": epsilon, "clip": CLIPS[dataset]}
            yield _job("transport", dataset, settings, seed, options, part="noise", level=float(epsilon))


def _labels(dataset: str, classes: int, shared: int) -> dict[str, Any]:
    held = federation(dataset, "as_written", 0)
    return held | {"classes_per_cluster": classes, "shared_classes": shared}


def _job(
    name: str,
    dataset: str,
    settings: dict[str, Any],
    seed: int,
    options: dict[str, Any] | None = None,
    keep: Sequence[str] = (),
    **axes: Any,
) -> Job:
    return Job.clustering(
        settings,
        clusterer(name, dataset, **(options or {})),
        pixels() if name == "pca_km_hc" else unseen(dataset),
        seed=seed,
        axes={"dataset": dataset, "method": name, **axes},
        keep=keep,
    )
