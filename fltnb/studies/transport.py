"""Jobs of notebook 16: how well transport signatures find clusters, where they break, and what training gains.

This project's own method, not part of any paper.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from ..results import Job
from .common import CLIPS, SEEDS, Settings, federation, method, pixels, training, unseen

ROTATIONS = {
    "4": [[0], [90], [180], [270]],
    "Two": [[-3, 3], [177, 183]],
    "Min": [[-3, -1, 1, 3]],
    "Base": [[0]],
}
"""EMD-CFL's four versions of Rotated MNIST: four clusters, two, one, one."""

OVERLAPS = (
    (2, 0),
    (3, 1),
    (4, 2),
)  # classes per cluster, of these shared with the next one (scenario 2: 3 and 1)
STUDY_SEEDS = {"demo": 1, "small": 10, "paper": 10}
OTHER_SEEDS = {
    "demo": 1,
    "small": 3,
    "paper": 10,
}  # of the other clusterers, and of the curves
SAMPLES = {
    "demo": (6, 24),
    "small": (6, 12, 25, 50, 100),
    "paper": (6, 12, 25, 50, 100, 200),
}
EPSILONS = (1, 3, 10, 30, 100)
NAMES = {"transport": "TransportSignatures", "flt": "FCR", "pca_km_hc": "PCAKMeans"}
OF_DIGITS = {"flt": {"k": 2, "n_neighbors": 5}, "pca_km_hc": {"n_components": 16}}
"""What differs at the digits' size: FCR's published 5 and 15 glue digits together there."""


def jobs(profile: str) -> list[Job]:
    """Return the study over seeds, the curves of overlap, samples and noise, and training on 25 clients of the digits.

    Training is FLT's case II on our clusters, on FCR's and on the true ones.
    """
    fedavg, flt = (
        method(name, "digits", "as_written", profile) for name in ("fedavg", "flt_enc1")
    )
    ours = {"clusterer": {"name": NAMES["transport"]}, "encoder": unseen("digits")}
    rows = {"fedavg": fedavg, "flt": flt, "transport": flt | ours, "oracle": {}}
    options = training("digits", "as_written", profile) | {
        "rounds": 6 if profile == "demo" else 30
    }
    axes = {"dataset": "digits", "variant": "as_written"}
    trainings = [
        Job.training(
            federation("digits", "as_written", seed),
            how | {"name": name},
            **options,
            seed=seed,
            axes=axes,
        )
        for name, how in rows.items()
        for seed in SEEDS[profile]
    ]
    return [*_study(profile), *_curves(profile), *trainings]


def _study(profile: str) -> Iterator[Job]:
    for shown, dataset, settings, rivals in _federations(profile):
        for name in NAMES:
            seeds = (
                STUDY_SEEDS[profile]
                if name == "transport"
                else OTHER_SEEDS[profile]
                if rivals
                else 0
            )
            for seed in range(seeds):
                yield _job(
                    name, dataset, settings, seed, part="study", federation=shown
                )
        if "scenario 1" in shown:  # a seed of its own, with what a picture needs
            keep, seed = ("adjacency", "leaf_order"), STUDY_SEEDS["paper"]
            yield _job(
                "transport",
                dataset,
                settings,
                seed,
                keep=keep,
                part="picture",
                federation=shown,
            )


def _federations(profile: str) -> Iterator[tuple[str, str, Settings, bool]]:
    """Name, data set, settings, whether the other clusterers run on it too."""
    groups = {"kind": "dirichlet", "alpha": 0.3, "n_clusters": 5}
    yield "digits, scenario 1", "digits", _labels("digits", *OVERLAPS[0]), True
    yield "digits, Dirichlet groups", "digits", groups | {"n_clients": 20}, True
    yield (
        "digits, power law",
        "digits",
        {"kind": "structured", "classes_per_cluster": 2, "n_clients": 40},
        True,
    )
    turned = {
        "kind": "rotated",
        "n_clients": 20,
        "test_per_client": 10,
        "samples_per_client": 65,
    }
    for name in ("4", "Base"):
        yield (
            f"digits, rotated {name}",
            "digits",
            turned | {"angles": ROTATIONS[name]},
            True,
        )
    if profile == "demo":
        return
    yield (
        "MNIST, scenario 1, 100 clients",
        "mnist",
        _labels("mnist", *OVERLAPS[0]),
        True,
    )
    yield (
        "MNIST, Dirichlet groups, 50 clients",
        "mnist",
        groups | {"n_clients": 50},
        False,
    )
    for each, (name, angles) in product((100, 600, 1350), ROTATIONS.items()):
        turned = {
            "kind": "rotated",
            "n_clients": 40,
            "angles": angles,
            "samples_per_client": each,
        }
        yield f"MNIST, rotated {name}, {each} images", "mnist", turned, each == 600
    emnist, of = "emnist_balanced", {"kind": "structured"}
    if profile == "small":
        emnist, of = "emnist_bymerge", of | {"max_per_class": 2400}
    for n_clients in (240, 760, 2400):
        yield (
            f"EMNIST, scenario 4, {n_clients:,} clients",
            emnist,
            of | {"n_clients": n_clients},
            n_clients == 240,
        )


def _curves(profile: str) -> Iterator[Job]:
    """Where it breaks: shared classes, few samples, noise for privacy."""
    dataset = "digits" if profile == "demo" else "mnist"
    for seed in range(OTHER_SEEDS[profile]):
        for (classes, shared), name in product(OVERLAPS, ("transport", "flt")):
            yield _job(
                name,
                dataset,
                _labels(dataset, classes, shared),
                seed,
                part="overlap",
                level=shared / classes,
            )
        settings = _labels(dataset, *OVERLAPS[0])
        for samples in SAMPLES[profile]:
            held = settings | {"samples_per_client": samples}
            # a client holds two classes, and k centroids need k samples
            for name, options in {"transport": {}, "flt": {"k": 2}}.items():
                yield _job(
                    name,
                    dataset,
                    held,
                    seed,
                    options,
                    part="samples",
                    level=float(samples),
                )
        for epsilon in EPSILONS:
            options = {"epsilon": epsilon, "clip": CLIPS[dataset]}
            yield _job(
                "transport",
                dataset,
                settings,
                seed,
                options,
                part="noise",
                level=float(epsilon),
            )


def _labels(dataset: str, classes: int, shared: int) -> Settings:
    return federation(dataset, "as_written", 0) | {
        "classes_per_cluster": classes,
        "shared_classes": shared,
    }


def _job(
    name: str,
    dataset: str,
    settings: Settings,
    seed: int,
    more: Settings | None = None,
    keep: tuple = (),
    **axes: Any,
) -> Job:
    """One clustering, by a clusterer that is not told the number of clusters."""
    how = (
        {"name": NAMES[name]}
        | (OF_DIGITS.get(name, {}) if dataset == "digits" else {})
        | (more or {})
    )
    encoder = pixels() if name == "pca_km_hc" else unseen(dataset)
    axes = {"dataset": dataset, "method": name, **axes}
    return Job.clustering(
        settings | {"dataset": dataset, "seed": seed},
        how,
        encoder,
        seed=seed,
        axes=axes,
        keep=keep,
    )
