"""Runs of notebook 08: FeSEM's Tables 2 and 3 and Figure 3, choosing K, and one-shot methods beside them.

From the paper: 80 % of each device's samples for training, everybody in every round, 5 local epochs at rate 0.003 on
FEMNIST and 10 at 0.03 on FedCelebA, FedProx's factor 0.1, 100 iterations (Figure 3). It names neither lambda, batch
nor the number of clients; 10 a batch is the public code's. Where LEAF's files are not at hand, pseudo-writers and
mixtures of EMNIST's classes (Dirichlet, 0.5) take their place, under names of their own.
"""

from __future__ import annotations

from typing import Any

from ..store import Spec
from .common import SEEDS, pixels
from .scenario4 import clusterer, encoder, transport

NOTEBOOK = "08_fesem"
CENTERS = (2, 3, 4)
FESEM = tuple(f"fesem_{k}" for k in CENTERS)
METHODS = (
    *("nofed", "fedsgd", "fedavg", "feddist", "feddist_ws", "robust_tkm", "fedcluster", "hypocluster_3"),
    *("feddane", "fedprox", *FESEM, "fesem_ma_3"),
)
"""The fourteen rows of Tables 2 and 3."""
ONE_SHOT = ("flt", "transport", "pacfl", "emdcfl")
SWITCHES = {
    "no distance term": ("fesem_3", {"lam": 0.0}),
    "weights by samples": ("fesem_3", {"weighting": "samples"}),
}
"""Single switches of FeSEM: what Equation 7's term and Equation 9's equal weights do."""
LATE = 5  # FedCluster tries its first cut after a fifth of the rounds; the public code after 30, of a number unknown

SIZES: dict[str, dict[str, Any]] = {
    "demo": {
        "federations": ("digits writers", "digits mixtures"),
        "clients": 12,
        "model": "mlp_plain",
        "training": {"rounds": 3, "local_epochs": 3, "batch_size": 20, "lr": 0.1},
        "tried": (1, 2, 3, 4),
        "sample": {"clients": 6, "draws": 1, "rounds": 2},
        "shown": (1, 2, 3),
    },
    "small": {
        "federations": ("pseudo-writers", "dirichlet"),
        "clients": 50,
        "model": "cnn_small",
        # twenty rounds: the paper's step of 0.003 would have moved these networks next to nowhere
        "training": {"rounds": 20, "local_epochs": 5, "batch_size": 32, "lr": 0.1},
        "tried": (1, 2, 3, 4, 5, 6),
        "sample": {"clients": 20, "draws": 3, "rounds": 3},
        "shown": (1, 5, 10, 20),
    },
    "paper": {
        "federations": ("femnist", "fedceleba"),
        "clients": 400,
        "model": "leaf_cnn",
        "training": {"rounds": 100, "local_epochs": 5, "batch_size": 10, "lr": 0.003},
        "tried": (1, 2, 3, 4, 5, 6),
        "sample": {"clients": 100, "draws": 3, "rounds": 3},
        "shown": (1, 5, 10, 100),
    },
}
"""By profile: federations; clients of each (the paper does not say how many it used; 400 are in Figure 4); network;
training; numbers of centres K that are tried; the clients, draws and rounds of the short runs that choose K; the rounds
at which local models are drawn."""
OF_FEDERATION = {"fedceleba": {"model": "cnn_small", "local_epochs": 10, "lr": 0.03}}
"""What departs from the profile; LEAF's CNN for FEMNIST would have 58 million parameters on CelebA's pictures."""
DATASETS = {
    **{"digits writers": "digits", "digits mixtures": "digits"},
    **{"pseudo-writers": "emnist_byclass", "dirichlet": "emnist_balanced", "femnist": "femnist", "fedceleba": "celeba"},
}
"""Federation -> image set."""
SHUFFLED = "shuffled"  # note of the runs on the IID partition


def specs(profile: str) -> list[Spec]:
    """Return the tables' rows and the one-shot methods', and of one seed what belongs to the other sections.

    Those are other numbers of centres, single switches, the shipped code, the IID shuffle, and one-shot methods on the
    second federation; notes say which.
    """
    seeds, size = SEEDS[profile], SIZES[profile]
    runs = []
    for name in size["federations"]:
        runs += [row(profile, name, method, seed) for method in METHODS for seed in seeds]
        runs += [
            row(profile, name, f"fesem_{k}", seeds[0], note="choosing K") for k in size["tried"] if k not in CENTERS
        ]
        for note, (method, options) in SWITCHES.items():
            runs.append(row(profile, name, method, seeds[0], note=note, **options))
        runs += [row(profile, name, method, seeds[0], "as_run") for method in FESEM]
        few = seeds if name == size["federations"][0] else seeds[:1]
        runs += [row(profile, name, method, seed) for method in ONE_SHOT for seed in few]
    first = size["federations"][0]
    runs += [row(profile, first, method, seeds[0], note=SHUFFLED) for method in ("nofed", "fedavg", *FESEM)]
    return runs


def federation(
    profile: str, name: str, seed: int = 0, shuffled: bool = False, validation: bool = False
) -> dict[str, Any]:
    """Return a federation, 80 % of every client's samples for training.

    Parameters
    ----------
    profile : str
    name : str
        A key of :data:`DATASETS`.
    seed : int
        Of the partition; of who is drawn among LEAF's people.
    shuffled : bool
        Deal all samples out anew at random: the paper's IID partition.
    validation : bool
        Keep a tenth of the training samples for validation, which EMD-CFL cannot do without.
    """
    m, dataset = SIZES[profile]["clients"], DATASETS[name]
    if name in ("pseudo-writers", "digits writers"):
        whole = {"kind": "pseudo_writers", "n_clients": m, "train_fraction": 0.8, "seed": seed}
    else:
        if name in ("dirichlet", "digits mixtures"):
            # with the test part, which is dealt out whole, about 170 samples each
            few = {"max_train": 1600} if name == "dirichlet" else {"min_samples": 5}
            base = {"kind": "dirichlet", "n_clients": m, "alpha": 0.5, "seed": seed} | few
        else:
            base = {"kind": "writers", "n_clients": m, "seed": seed}
        whole = {"kind": "divided", "base": base, "train_fraction": 0.8, "seed": seed}
    if shuffled:
        whole = {"kind": "shuffled", "base": whole, "seed": seed}
    if validation:
        whole = {"kind": "held_out", "base": whole, "val_fraction": 0.1, "seed": seed}
    return whole | {"dataset": dataset}


def row(
    profile: str, name: str, method_id: str, seed: int, variant: str = "as_written", note: str = "", **options: Any
) -> Spec:
    """Return one run; ``options`` go to the method."""
    size = SIZES[profile]
    training = {"model": size["model"], **size["training"]} | OF_FEDERATION.get(name, {})
    rounds = training["rounds"]
    if method_id == "fedsgd":  # as many passes over the data as the others
        training["rounds"] = rounds * training["local_epochs"]
    return Spec(
        federation(profile, name, seed, note == SHUFFLED, method_id == "emdcfl"),
        method(method_id, DATASETS[name], rounds, variant, **options),
        **training,
        participation=1.0,
        seed=seed,
        eval_every=training["rounds"] // rounds,
        experiment=NOTEBOOK,
        dataset=name,
        method_id=method_id,
        variant=variant,
        note=note,
    )


def method(name: str, dataset: str, rounds: int, variant: str = "as_written", **options: Any) -> dict[str, Any]:
    """Return the settings of one row."""
    if name == "nofed":
        return {"name": "local"}
    if name == "fedprox":
        return {"name": "fedprox", "mu": 0.1, "rule": "participants"}
    if name == "fedcluster":
        return {"name": "fedcluster", "period": max(rounds // LATE, 1)}
    if name in ("robust_tkm", "hypocluster_3"):
        return {"name": name.removesuffix("_3"), "n_clusters": 3}
    if name.startswith("fesem"):
        kind, k = name.rsplit("_", 1)
        return {"name": kind, "n_clusters": int(k), "variant": variant} | options
    if name == "fedavg":
        return {"name": "fedavg", "rule": "participants"}
    if name == "flt":
        return {"name": "flt", "graph": "clusters", "clusterer": clusterer(dataset, "as_written")} | _encoded(dataset)
    if name == "transport":
        return {"name": "transport", "kind": "FLT", "graph": "clusters", "clusterer": transport(dataset)} | _encoded(
            dataset
        )
    if name == "pacfl":
        return {"name": "pacfl", "clusterer": {"name": "PACFL", "threshold": 12}}
    return {"name": name}


def _encoded(dataset: str) -> dict[str, Any]:
    grey = dataset != "celeba"  # FLT's encoders are for one channel
    return {"encoder": encoder(dataset, finetune_epochs=0) if grey else pixels()}
