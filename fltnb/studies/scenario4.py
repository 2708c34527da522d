"""Runs of notebook 04: FLT Tables 4 and 10, Figures 5, 6, 7, 11, structured non-IID data.

Besides the runs (:func:`specs`) there is a study of the clustering alone (:func:`clusterings`), without training.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..encoders import EncoderSpec
from ..methods.base import resolve_rule
from ..oneshot import ClusterSpec
from ..store import Spec
from .common import MOMENTUM, SEEDS, pixels

METHODS = ("fedavg", "pca_km_hc", "fedsem", "flt")  # rows of Table 4
OURS = ("flt_given", "transport", "oracle")  # FLT told the number of clusters; our signatures; the true clusters
DATASETS = {"demo": "digits", "small": "emnist_bymerge", "paper": "emnist_balanced"}
N_CLUSTERS = {"digits": 5}  # 10 for EMNIST's 47 characters
CLIENTS = {"demo": {"mlp": 40}, "small": {"mlp": 2400}, "paper": {"mlp": 2400, "leaf_cnn": 600}}
MATRIX_CLIENTS = {"demo": 40, "small": 240, "paper": 240}  # Figures 6 and 7
MATRIX_METHODS = ("flt", "fedsem", "pca_km_hc")
FORMATION_ROUNDS = (1, 3, 6, 9, 12, 15, 18, 50)  # Figure 7
# FLT's published aggregation at M = 2,400 multiplies a 2,400 x 2,400 matrix by all models in every round: hours on two
# cores. The clustered rows of the published variant are therefore run at M = 240 only.
SMALL_PUBLISHED = ("fedavg", "fedsem")
SWITCHES: dict[str, dict[str, Any]] = {
    "test set of the last cluster: published": {"test": "as_run"},
    "members read in leaf order": {"membership": "leaf_order"},
    "one local epoch": {"local_epochs": 1},
}


def specs(profile: str) -> list[Spec]:
    """Return the rows of Tables 4 and 10; the runs behind Figures 6 and 7; single switches."""
    runs = [
        row(name, model, variant, seed, profile)
        for model in CLIENTS[profile]
        for variant in ("as_written", "as_run")
        for name in METHODS + (OURS if variant == "as_written" else ("oracle",))
        for seed in SEEDS[profile][: 1 if profile == "small" else None]
        if (profile, variant) != ("small", "as_run") or name in SMALL_PUBLISHED
    ]
    runs += [
        row(name, "mlp", variant, 0, profile, matrix=True)
        for variant in ("as_written", "as_run")
        for name in MATRIX_METHODS
    ]
    runs += [
        row(name, "mlp", "as_written", seed, profile, matrix=True, switch=switch)
        for name in ("flt_given", "oracle")
        for switch in ("", *SWITCHES)
        for seed in SEEDS[profile]
        if name == "flt_given" or "leaf" not in switch
    ]
    return runs


def row(name: str, model: str, variant: str, seed: int, profile: str, matrix: bool = False, switch: str = "") -> Spec:
    """One run of Table 4, or (``matrix``) of the smaller federation of Figures 6 and 7, with or without a switch."""
    dataset = DATASETS[profile]
    n_clients = MATRIX_CLIENTS[profile] if matrix else CLIENTS[profile][model]
    change = dict(SWITCHES.get(switch, {}))
    test = change.pop("test", "as_run" if variant == "as_run" else "clean")
    epochs = 5 if variant == "as_written" or name == "fedsem" else 1  # the code's files: 1, FedSEM alone 5
    training = {
        "local_epochs": change.pop("local_epochs", epochs),
        "eval_every": 1 if matrix or profile == "demo" else 5,
    }
    training |= {"rounds": 15 if profile == "demo" else 50 if matrix else 100, "participation": 0.2, "batch_size": 10}
    training |= {"lr": 0.05 if profile == "demo" else 0.01, "momentum": MOMENTUM[variant]}
    note = ", ".join(text for text in (f"M = {n_clients}" * matrix, switch) if text)
    return Spec(
        federation(dataset, n_clients, seed, test),
        method(name, dataset, variant) | change,
        model=model,
        **training,
        seed=seed,
        experiment="04_scenario4_structured",
        dataset=dataset,
        method_id=name,
        variant=variant,
        note=note,
    )


def federation(dataset: str, n_clients: int, seed: int, test: str = "clean", **options: Any) -> dict[str, Any]:
    """Algorithm 4's federation; ByMerge is cut to Balanced's 2,400 training images per class."""
    settings = {"kind": "structured", "dataset": dataset, "n_clients": n_clients, "seed": seed, "test": test}
    if dataset == "digits":
        settings["classes_per_cluster"] = 2
    if dataset == "emnist_bymerge":
        settings["max_per_class"] = 2400
    return settings | options


def encoder(dataset: str, finetune_epochs: int = 5) -> dict[str, Any]:
    """Enc2: pretrained on Fashion-MNIST, tuned on each client (FLT, Section 4.1); the digits are too small for it."""
    if dataset == "digits":
        return pixels()
    return asdict(EncoderSpec("convae", "fashion_mnist", 5, finetune_epochs))


def clusterer(dataset: str, variant: str, **options: Any) -> dict[str, Any]:
    """FCR as written or as run; in scenario 4 both have k = 5."""
    settings: dict[str, Any] = {"name": "FCR", "k": 5, "threshold": 1.0, "random_state": 42}
    settings["distance"] = "matching" if variant == "as_run" else "min"
    if dataset == "digits":
        settings |= {"k": 2, "n_neighbors": 5}  # small clients: see notebook 00
    return settings | options


def method(name: str, dataset: str, variant: str) -> dict[str, Any]:
    """Return the settings of one row of Table 4."""
    settings: dict[str, Any] = {"name": name, "rule": resolve_rule(None, variant)}
    graph = {"as_written": "clusters", "as_run": "full"}[variant]  # no HC in the code's scenario 4
    n_clusters = N_CLUSTERS.get(dataset, 10)
    if name == "fedsem":
        settings |= {"n_clusters": n_clusters}
    elif name == "pca_km_hc":
        how = {"name": "PCAKMeans", "n_clusters": n_clusters, "random_state": 43}
        how |= {"n_components": 16, "k": 2} if dataset == "digits" else {"n_components": 128}
        settings |= {"kind": "PCAKMHC", "graph": graph, "clusterer": how, "encoder": pixels()}
    elif name == "transport":
        settings |= {"kind": "FLT", "graph": graph, "clusterer": transport(dataset)}
        settings |= {"encoder": encoder(dataset, finetune_epochs=0)}
    elif name.startswith("flt"):
        given = {"n_clusters": n_clusters} if name == "flt_given" else {}
        settings |= {"kind": "FLT", "graph": graph, "clusterer": clusterer(dataset, variant, **given)}
        settings |= {"encoder": encoder(dataset)}
    return settings


def transport(dataset: str) -> dict[str, Any]:
    """Our transport signatures, never told the number of clusters."""
    return {"name": "TransportSignatures", "random_state": 42} | ({"k": 5} if dataset == "digits" else {})


# ---------------------------------------------------------------- clustering alone

CLUSTER_SEEDS = {"demo": range(1), "small": range(10), "paper": range(10)}
DEPENDS_SEEDS = {"demo": range(1), "small": range(2), "paper": range(3)}


def clusterings(profile: str) -> list[ClusterSpec]:
    """How well the 10 clusters are found, over seeds; then FCR as written with one thing changed at a time."""
    dataset = DATASETS[profile]
    n_clients, n_clusters = MATRIX_CLIENTS[profile], N_CLUSTERS.get(dataset, 10)
    tuned, frozen = encoder(dataset), encoder(dataset, finetune_epochs=0)
    ways = {
        "fcr_written": (clusterer(dataset, "as_written"), tuned),
        "fcr_written_given": (clusterer(dataset, "as_written", n_clusters=n_clusters), tuned),
        "fcr_run": (clusterer(dataset, "as_run"), tuned),
        "fcr_run_given": (clusterer(dataset, "as_run", n_clusters=n_clusters), tuned),
        "pca_km_hc": (method("pca_km_hc", dataset, "as_written")["clusterer"], pixels()),
        "transport": (transport(dataset), frozen),
    }
    wanted = [
        _clustering(dataset, name, how, what, n_clients, seed, "seeds", "", "")
        for seed in CLUSTER_SEEDS[profile]
        for name, (how, what) in ways.items()
    ]
    for seed in DEPENDS_SEEDS[profile]:
        for factor, level, change in _levels(dataset):
            what = change.pop("encoder", tuned)
            samples = {"max_per_class": change.pop("max_per_class")} if "max_per_class" in change else {}
            for name in ("fcr_written", "fcr_written_given"):
                how = ways[name][0] | change
                wanted.append(
                    _clustering(dataset, name, how, what, n_clients, seed, "depends", factor, level, **samples)
                )
    return wanted


def _levels(dataset: str):
    """Yield (factor, level, change): what Section 4.6's finding could depend on."""
    small = dataset == "digits"
    for k in (1, 2, 3) if small else (2, 5, 10):
        yield "k", k, {"k": k}
    for gamma in (0.5, 1.0, 2.0):
        yield "gamma", gamma, {"threshold": gamma}
    for neighbors in (3, 5, 15) if small else (5, 15, 50):
        yield "UMAP neighbours", neighbors, {"n_neighbors": neighbors}
    if small:
        yield "encoder", "pixels", {}
        yield "encoder", "PCA, 16 axes", {"encoder": asdict(EncoderSpec("pca", "digits", latent=16))}
        return
    yield "encoder", "Enc2, tuned 5 epochs", {}
    yield "encoder", "Enc2, not tuned", {"encoder": encoder(dataset, finetune_epochs=0)}
    yield "encoder", "Enc1 (EMNIST)", {"encoder": asdict(EncoderSpec("convae", "emnist_balanced", 8, 0))}
    for most in (600, 1200, 2400):
        yield "training images per class", most, {"max_per_class": most}


def _clustering(dataset, name, how, what, n_clients, seed, part, factor, level, **samples) -> ClusterSpec:
    return ClusterSpec(
        federation(dataset, n_clients, seed, **samples),
        how,
        what,
        seed=seed,
        experiment="04_scenario4_structured",
        dataset=dataset,
        method_id=name,
        axes={"part": part, "factor": factor, "level": str(level)},
    )
