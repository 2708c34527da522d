"""Notebook 06: what FLT's methods send (FLT, arXiv 2103.15947, Table 6), network sizes, and jobs of its two theorems.

The runs take scenario 1's settings, so what that notebook has computed is not computed again (but for `demo`, which is
shorter here). The tables of the theorems are made in :mod:`fltnb.studies.theory`. What bfloat16 convolutions change
stands beside float32 and the spread over seeds: LeNet in scenario 1 on CIFAR-10 (20 of its 100 rounds), and EMD-CFL's
own network on a small Rotated MNIST, where the processor or the GPU has them; nothing else here chooses bfloat16.
"""

from itertools import product

from ..analyses.costs import networks, traffic  # noqa: F401 - by name
from ..results import Job
from . import common, emdcfl
from .common import (
    DATASETS,
    Settings,
    clusterer,
    encoder,
    federation,
    method,
    training,
)

DEMO_ROUNDS = 8
WARMUP = {
    "demo": 2,
    "small": 30,
    "paper": 30,
}  # IFCA's first rounds as plain FedAvg, in the runs that have them
TAU = {
    "demo": 3,
    "small": 40,
    "paper": 40,
}  # rounds between two clusterings of dynamic FLT; T is no multiple
WEIGHED = 4  # rounds whose arrays are weighed; half of them are the warm-up of an IFCA that has one

# FCR on growing clients: training images per client; the smallest must serve k centroids
SAMPLES = {"demo": (4, 10, 40), "small": (6, 10, 20, 40, 80, 160, 320, 500)}
SAMPLES["paper"] = SAMPLES["small"]
SAMPLE_SEEDS = {"demo": (0,), "small": (0, 1, 2), "paper": tuple(range(10))}

SHORT = {
    "rounds": 5,
    "local_epochs": 3,
    "batch_size": 16,
}  # of EMD-CFL's network: as many steps as take a minute
SEEDS = {"rounds": 1000, "seeds": tuple(range(10))}
_SMALL: dict[str, tuple[str, Settings]] = {
    "theorem1": (
        "centroids",
        {
            "errors": (0.1, 0.2, 0.3, 0.4),
            "samples": (1, 2, 4, 8, 16, 32, 64),
            "repeats": 2000,
        },
    ),
    "pipeline": (
        "pipeline",
        {"p": 0.2, "samples": (2, 4, 8, 16, 32, 64), "ks": (1, 2, 5), "repeats": 100},
    ),
    "lines": ("proof_lines", {}),
    "gap": ("gap_curves", {"kinds": ("least squares", "logistic"), **SEEDS}),
    "steps": (
        "steps",
        {"steps": (0.1, 0.3, 0.6, 0.9, 1.5, 1.9, 2.1, 3.0, 4.0, 6.0), **SEEDS},
    ),
    "epochs": (
        "epochs",
        {"local_steps": (1, 2, 5, 10, 20, 50), **SEEDS, "rounds": 200},
    ),
    "graphs": ("client_graphs", SEEDS),
}
_DEMO: dict[str, Settings] = {
    "theorem1": {"errors": (0.2, 0.4), "repeats": 200},
    "pipeline": {"samples": (2, 4, 8, 16), "repeats": 5},
    **{
        name: {"rounds": 100, "seeds": (0, 1)}
        for name in ("gap", "steps", "epochs", "graphs")
    },
}


def counted(dataset: str, profile: str) -> dict[str, Settings]:
    """Return the settings of FLT's methods and their kin in scenario 1, by class, and of IFCA with a warm-up.

    What the other papers' methods send is counted in those papers' notebooks.
    """
    names = ("flt_enc1", "pca_km_hc", "fedsem", "fedavg")
    flt, pca, fedsem, fedavg = (
        method(name, dataset, "as_written", profile) for name in names
    )
    shared = {name: flt[name] for name in ("rule", "clusterer", "encoder")}
    ifca = {"name": "ifca", "n_clusters": 5}
    return {
        **{
            "FedAvg": fedavg,
            "FedProx": {"name": "fedprox"},
            "Local": {"name": "local"},
            "Oracle": {"name": "oracle"},
        },
        **{
            "FLT": flt,
            "PCAKMHC": pca,
            "FedSEM": fedsem,
            "FeSEM": {"name": "fesem", "n_clusters": 5},
            "IFCA": ifca,
        },
        "CFL": {"name": "cfl"},
        "DynamicFLT": {"kind": "DynamicFLT", "name": "flt_dynamic", "tau": TAU[profile]}
        | shared,
        "SoftFLT": {"kind": "SoftFLT", "name": "flt_soft"} | shared,
        "warm": ifca | {"warmup": WARMUP[profile]},
    }


def jobs(profile: str) -> list[Job]:
    """One run per method of :func:`counted`, FCR on growing clients, the studies, and runs in both precisions."""
    dataset = DATASETS[profile][0]
    axes, fed = (
        {"dataset": dataset, "variant": "as_written"},
        federation(dataset, "as_written", 0),
    )
    options = training(dataset, "as_written", profile) | (
        {"rounds": DEMO_ROUNDS} if profile == "demo" else {}
    )
    runs = counted(dataset, profile)
    shown = [
        (one, {"warmup": one["warmup"]} if "warmup" in one else {})
        for one in runs.values()
    ]
    result = [
        Job.training(fed, one, **options, axes=axes | more) for one, more in shown
    ]
    own = {"federation": fed, "methods": runs, "training": options, "weighed": WEIGHED}
    result.append(Job.study("costs.traffic", own, axes=axes | {"study": "traffic"}))
    result.append(Job.study("costs.networks", axes={"study": "networks"}))
    enc, fcr = (
        encoder(dataset, "enc1", "as_written", profile),
        clusterer(dataset, "as_written"),
    )
    for samples in SAMPLES[profile]:
        own = axes | {"method": "flt", "samples": samples}
        for seed in SAMPLE_SEEDS[profile]:
            held = federation(dataset, "as_written", seed) | {
                "samples_per_client": samples
            }
            result.append(
                Job.clustering(held, fcr, enc, seed=seed, axes=own | {"seed": seed})
            )
        # embedding is most of the work: one seed tells the error of a single sample
        settings = {
            "federation": fed | {"samples_per_client": samples},
            "encoder": enc,
            "seeds": SAMPLE_SEEDS[profile],
        }
        result.append(
            Job.study(
                "theory.sample_bound", settings, axes=own | {"study": "sample_bound"}
            )
        )
    for name, (function, settings) in _SMALL.items():
        own = settings | (_DEMO.get(name, {}) if profile == "demo" else {})
        result.append(Job.study(f"theory.{function}", own, axes={"study": name}))
    if profile == "demo":  # its networks have no convolution
        return result
    for seed, precision in product(common.SEEDS[profile], ("float32", "bfloat16")):
        axes = {"dataset": "cifar10", "variant": "as_written", "precision": precision}
        fed, options = (
            federation("cifar10", "as_written", seed),
            training("cifar10", "as_written", profile),
        )
        options |= {"rounds": 20, "precision": precision, "seed": seed}
        for name in ("fedavg", "fedsem", "oracle"):
            result.append(
                Job.training(
                    fed,
                    method(name, "cifar10", "as_written", profile),
                    **options,
                    axes=axes,
                )
            )
        size = {
            "model": "emdcfl_cnn",
            "clients": 8,
            "samples": 300,
            "test": 100,
            "precision": precision,
        } | SHORT
        for how in (emdcfl.method(name, 4) for name in ("fedavg", "emdcfl", "oracle")):
            result += emdcfl.rows(
                how, "rotated_mnist", [seed], size, precision=precision, clients=8
            )
    return result
