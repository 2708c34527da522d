"""Runs of notebook 06: FLT's methods once in scenario 1, for the bytes they send, and sizes of the theory's tables.

The runs take scenario 1's settings, so what that notebook has computed is not computed again (but for `demo`, which is
shorter here).
"""

from __future__ import annotations

import inspect
from typing import Any

from ..methods import FLT, METHODS
from ..oneshot import ClusterSpec
from ..store import Spec
from .common import clusterer, datasets, encoder, federation, method, training

COUNTED = (
    "FedAvg",
    "FedProx",
    "Local",
    "Oracle",
    "FLT",
    "PCAKMHC",
    "FedSEM",
    "FeSEM",
    "IFCA",
    "CFL",
    "DynamicFLT",
    "SoftFLT",
)
"""FLT's methods and their kin; what the other papers' methods send is counted in those papers' notebooks."""
N_CLUSTERS = 5
DEMO_ROUNDS = 20
WARMUP = {"demo": 6, "small": 30, "paper": 30}  # IFCA's first rounds as plain FedAvg, in the runs that have them
TAU = {"demo": 8, "small": 40, "paper": 40}  # rounds between two clusterings of dynamic FLT; T is no multiple

# FCR on growing clients: training images per client; the smallest must serve k centroids
SAMPLES = {
    "demo": (4, 6, 10, 16, 24, 40),
    "small": (6, 10, 20, 40, 80, 160, 320, 500),
    "paper": (6, 10, 20, 40, 80, 160, 320, 500),
}
SAMPLE_SEEDS = {"demo": (0, 1), "small": (0, 1, 2), "paper": tuple(range(10))}

_SMALL = {
    "theorem1": {"errors": (0.1, 0.2, 0.3, 0.4), "samples": (1, 2, 4, 8, 16, 32, 64), "repeats": 2000},
    "pipeline": {"p": 0.2, "samples": (2, 4, 8, 16, 32, 64), "ks": (1, 2, 5), "repeats": 100},
    "gap": {"rounds": 1000, "seeds": tuple(range(10))},
    "reading": {"rounds": 1000, "seeds": tuple(range(10))},
    "steps": {"steps": (0.1, 0.3, 0.6, 0.9, 1.5, 1.9, 2.1, 3.0, 4.0, 6.0), "rounds": 1000, "seeds": tuple(range(10))},
    "epochs": {"local_steps": (1, 2, 5, 10, 20, 50), "rounds": 200, "seeds": tuple(range(10))},
}
THEORY: dict[str, dict[str, dict[str, Any]]] = {
    "demo": {
        "theorem1": _SMALL["theorem1"] | {"errors": (0.2, 0.4), "repeats": 200},
        "pipeline": _SMALL["pipeline"] | {"samples": (2, 4, 8, 16), "repeats": 5},
        "gap": {"rounds": 200, "seeds": (0, 1, 2)},
        "reading": {"rounds": 200, "seeds": (0, 1, 2)},
        "steps": _SMALL["steps"] | {"rounds": 200, "seeds": (0, 1, 2)},
        "epochs": _SMALL["epochs"] | {"rounds": 100, "seeds": (0, 1)},
    },
    "small": _SMALL,
    "paper": _SMALL,
}
"""Arguments of the functions of :mod:`fltnb.analysis.theorem1` and :mod:`~fltnb.analysis.theorem2`."""


def specs(profile: str) -> list[Spec]:
    """Return one run per method of :data:`COUNTED`, and IFCA again with a warm-up."""
    dataset = datasets(profile)[0]
    runs = [_row(settings_of(METHODS[name], dataset, profile), profile) for name in COUNTED]
    warm = {"name": "ifca", "n_clusters": N_CLUSTERS, "warmup": WARMUP[profile]}
    return [*runs, _row(warm, profile, note=f"warm-up of {WARMUP[profile]} rounds")]


def settings_of(cls: type, dataset: str, profile: str) -> dict[str, Any]:
    """Return a method's settings in scenario 1; what :func:`~fltnb.experiments.common.method` does not know is plain.

    Options without a default get scenario 1's value where it is the number of clusters.
    """
    if cls.name == "flt":
        return method("flt_enc1", dataset, "as_written", profile)
    if cls.name in ("fedavg", "local", "pca_km_hc", "fedsem"):
        return method(cls.name, dataset, "as_written", profile)
    if issubclass(cls, FLT):
        flt = method("flt_enc1", dataset, "as_written", profile)
        shared = {name: flt[name] for name in ("rule", "clusterer", "encoder")}
        tau = {"tau": TAU[profile]} if "tau" in inspect.signature(cls).parameters else {}
        return {"kind": cls.__name__, "name": cls.name, **shared, **tau}
    needed = [p.name for p in inspect.signature(cls).parameters.values() if p.default is p.empty]
    return {"name": cls.name} | {name: N_CLUSTERS for name in needed if name == "n_clusters"}


def _row(settings: dict[str, Any], profile: str, note: str = "") -> Spec:
    dataset = datasets(profile)[0]
    options = training(dataset, "as_written", profile)
    if profile == "demo":
        options["rounds"] = DEMO_ROUNDS
    return Spec(
        federation(dataset, "as_written", 0),
        settings,
        **options,
        experiment="06_costs_and_theory",
        dataset=dataset,
        method_id=settings["name"],
        note=note,
    )


def clusterings(profile: str) -> list[ClusterSpec]:
    """Return FCR as scenario 1 runs it, on clients with more and more samples."""
    dataset = datasets(profile)[0]
    return [
        ClusterSpec(
            federation(dataset, "as_written", seed) | {"samples_per_client": samples},
            clusterer(dataset, "as_written"),
            encoder(dataset, "enc1", "as_written", profile),
            seed=seed,
            experiment="06_costs_and_theory",
            dataset=dataset,
            method_id="flt",
            axes={"samples": samples},
        )
        for samples in SAMPLES[profile]
        for seed in SAMPLE_SEEDS[profile]
    ]
