"""Jobs of notebook 08: FeSEM's Tables 1 to 3, Figures 3 to 5, choosing K, and one-shot methods beside them.

From the paper (arXiv 2108.08647, Section 6.1): 80 % of each device's samples for training, everybody in every round, 5
local epochs at rate 0.003 on FEMNIST and 10 at 0.03 on FedCelebA, FedProx's factor 0.1, 100 iterations (Figure 3). It
names neither lambda, batch nor the number of clients; 10 a batch is the public code's. Where LEAF's files are not at
hand, pseudo-writers and mixtures of EMNIST's classes (Dirichlet, 0.5) take their place, under names of their own.
"""

from itertools import product
from typing import Any

from ..results import Job
from . import head_to_head
from .common import SEEDS, Settings, clusterer, pixels, spec, transport

FESEM = ("fesem_2", "fesem_3", "fesem_4")
METHODS = (
    *(
        "nofed",
        "fedsgd",
        "fedavg",
        "feddist",
        "feddist_ws",
        "robust_tkm",
        "fedcluster",
        "hypocluster_3",
    ),
    *("feddane", "fedprox", *FESEM, "fesem_ma_3"),
)
"""The fourteen rows of Tables 2 and 3."""
ONE_SHOT = ("flt", "transport", "pacfl", "emdcfl")
SWITCHES: tuple[Settings, ...] = ({"lam": 0.0}, {"weighting": "samples"})
"""Single switches of FeSEM(3): what Equation 7's term and Equation 9's equal weights do."""
GRID: tuple[Settings, ...] = tuple(
    lam | weights
    for lam in ({}, {"lam": 0.0}, {"lam": 0.001}, {"lam": 0.01})
    for weights in ({}, SWITCHES[1])
)
"""Lambda (its default is 0.1) and weights together, after :data:`LONG` rounds: on clients that share :data:`STYLES`
hands and, on one seed, on clients with one hand each."""
STYLES = 3
LONG = 100
"""Rounds of Figure 3, for Table 2's rows on one seed and for the grid."""

SIZES: dict[str, Settings] = {
    "demo": {"federations": ("digits writers",), "clients": 12, "tried": (1, 2, 3, 4)}
    | {
        "training": {
            "model": "mlp_plain",
            "rounds": 3,
            "local_epochs": 3,
            "batch_size": 20,
            "lr": 0.1,
        }
    }
    | {"sample": {"clients": 6, "draws": 1, "rounds": 2}, "shown": (1, 2, 3)},
    # twenty rounds: the paper's step of 0.003 would have moved these networks next to nowhere
    "small": {
        "federations": ("pseudo-writers", "dirichlet"),
        "clients": 50,
        "tried": (1, 2, 3, 4, 5, 6),
    }
    | {
        "training": {
            "model": "cnn_small",
            "rounds": 20,
            "local_epochs": 5,
            "batch_size": 32,
            "lr": 0.1,
        }
    }
    | {"sample": {"clients": 20, "draws": 3, "rounds": 3}, "shown": (1, 5, 10, 20)},
    "paper": {
        "federations": ("femnist", "fedceleba"),
        "clients": 400,
        "tried": (1, 2, 3, 4, 5, 6),
    }
    | {
        "training": {
            "model": "leaf_cnn",
            "rounds": 100,
            "local_epochs": 5,
            "batch_size": 10,
            "lr": 0.003,
        }
    }
    | {"sample": {"clients": 100, "draws": 3, "rounds": 3}, "shown": (1, 5, 10, 100)},
}
"""By profile: federations; clients of each (the paper does not say how many it used; 400 are in Figure 4); numbers of
centres K that are tried; training; the clients, draws and rounds of the short runs that choose K; the rounds at which
local models are drawn."""
OF_FEDERATION = {"fedceleba": {"model": "cnn_small", "local_epochs": 10, "lr": 0.03}}
"""What departs from the profile; LEAF's CNN for FEMNIST would have 58 million parameters on CelebA's pictures."""
DATASETS = {"digits writers": "digits"}
DATASETS |= dict.fromkeys(("pseudo-writers", "shared hands"), "emnist_byclass")
DATASETS |= {
    "dirichlet": "emnist_balanced",
    "femnist": "femnist",
    "fedceleba": "celeba",
}
"""Federation -> image set."""
HANDS = (
    "pseudo-writers",
    "digits writers",
    "shared hands",
)  # clients whose images are kept for pictures: no persons'


def jobs(profile: str) -> list[Job]:
    """Return the tables' rows and the one-shot methods', and of one seed what belongs to the other sections.

    Those are other numbers of centres, single switches, the variant as run, the IID shuffle, one-shot methods on the
    second federation, and the studies of :mod:`fltnb.studies.fesem_models`.
    """
    seeds, size = SEEDS[profile], SIZES[profile]
    result = []
    for name in size["federations"]:
        first = name == size["federations"][0]
        result += [
            row(profile, name, method, seed) for method in METHODS for seed in seeds
        ]
        others = [f"fesem_{k}" for k in size["tried"] if f"fesem_{k}" not in FESEM]
        alone = [(method, {}) for method in others] + [
            ("fesem_3", switch) for switch in SWITCHES
        ]
        alone += [(method, {"variant": "as_run"}) for method in FESEM]
        result += [row(profile, name, method, seeds[0], **how) for method, how in alone]
        result += [
            row(profile, name, method, seed)
            for method in ONE_SHOT
            for seed in (seeds if first else seeds[:1])
        ]
        for method in ("nofed", "fedavg", *FESEM) if first else ():
            result.append(row(profile, name, method, seeds[0], shuffled=True))
        result += _studies(profile, name, seeds[0])
    studied = [("shared hands", seed) for seed in seeds] + [("pseudo-writers", 0)]
    for name, seed in studied if profile == "small" else ():
        others = [
            (method, {})
            for method in (("fedavg", "oracle") if name == "shared hands" else METHODS)
        ]
        grid = [(f"fesem_{k}", switch) for switch in GRID for k in (1, 2, 3, 4)]
        result += [
            row(profile, name, method, seed, rounds=LONG, **switch)
            for method, switch in others + grid
        ]
    kinds = head_to_head.kinds(
        "small"
    )  # of notebook 15, whose runs have ten rounds: does FeSEM's lead last?
    lasting = product(
        ("labels", "rotated", "tasks"), ("fedavg", "fesem", "oracle"), SEEDS["small"]
    )
    for name, which, seed in lasting if profile == "small" else ():
        result.append(
            head_to_head.training(which, name, kinds[name], "small", seed, rounds=LONG)
        )
    return list({job.id: job for job in result}.values())


def _studies(profile: str, name: str, seed: int) -> list[Job]:
    """Return what is neither a training nor a clustering, on one federation."""
    size, about = SIZES[profile], {"dataset": name, "seed": seed}
    common = training(profile, name) | {
        "federation": federation(profile, name, seed),
        "seed": seed,
    }

    def study(function: str, settings: Settings, **axes: Any) -> Job:
        return Job.study(
            f"fesem_models.{function}",
            settings,
            axes=about | {"study": function} | axes,
        )

    result = [
        study(
            "statistics",
            {"federation": common["federation"], "shown": 6 if name in HANDS else 0},
            table="T1",
        )
    ]
    for switch in ({}, {"grouping": "random"}):
        settings = common | {
            "method": method("fesem_4", "", 0) | switch,
            "shown": size["shown"],
        }
        result.append(
            study(
                "local_models",
                settings,
                method="fesem_4",
                variant="as_written",
                **switch,
            )
        )
    for centers in FESEM:
        settings = common | {"method": method(centers, "", 0, "as_run")}
        result.append(study("centers", settings, method=centers, variant="as_run"))
    small = {
        "method": {"name": "fesem", "n_clusters": 2},
        "tried": size["tried"],
        "sample": size["sample"],
    }
    return [*result, study("choosing_k", common | small)]


def federation(
    profile: str,
    name: str,
    seed: int = 0,
    shuffled: bool = False,
    validation: bool = False,
) -> Settings:
    """Return a federation of :data:`DATASETS`, 80 % of every client's samples for training.

    ``seed`` draws the partition, or who is taken of LEAF's people. ``shuffled`` deals all samples out anew at random:
    the paper's IID partition. ``validation`` keeps a tenth of the training samples, which EMD-CFL cannot do without.
    """
    whole: Settings = {"n_clients": SIZES[profile]["clients"], "seed": seed}
    if name in HANDS:
        whole |= {"kind": "pseudo_writers", "train_fraction": 0.8}
        whole |= {"n_styles": STYLES, "strength": 2.0} if name == "shared hands" else {}
    else:
        # with the test part, which is dealt out whole, about 170 samples each
        mixed = {"kind": "dirichlet", "alpha": 0.5, "max_train": 1600}
        base = whole | (mixed if name == "dirichlet" else {"kind": "writers"})
        whole = {"kind": "divided", "base": base, "train_fraction": 0.8, "seed": seed}
    if shuffled:
        whole = {"kind": "shuffled", "base": whole, "seed": seed}
    if validation:
        whole = {"kind": "held_out", "base": whole, "val_fraction": 0.1, "seed": seed}
    return whole | {"dataset": DATASETS[name]}


def training(profile: str, name: str) -> Settings:
    """Return the training settings of a federation."""
    return (
        SIZES[profile]["training"]
        | OF_FEDERATION.get(name, {})
        | {"participation": 1.0}
    )


def row(
    profile: str,
    name: str,
    which: str,
    seed: int,
    variant: str = "as_written",
    shuffled: bool = False,
    rounds: int = 0,
    **switch: Any,
) -> Job:
    """Return one run; a ``switch`` is an option of the method, and an axis, as are ``rounds`` if not the profile's."""
    options = training(profile, name)
    beside = ({"shuffled": True} if shuffled else {}) | (
        {"rounds": rounds} if rounds else {}
    )
    rounds = rounds or options["rounds"]
    passes = (
        options["local_epochs"] if which == "fedsgd" else 1
    )  # as many passes over the data as the others
    options |= {"seed": seed, "rounds": rounds * passes, "eval_every": passes}
    how = method(which, DATASETS[name], rounds, variant) | switch
    axes = {"dataset": name, "method": which, "variant": variant} | switch | beside
    return Job.training(
        federation(profile, name, seed, shuffled, which == "emdcfl"),
        how,
        **options,
        axes=axes,
    )


def method(
    name: str, dataset: str, rounds: int, variant: str = "as_written"
) -> Settings:
    """Return the settings of one row."""
    if name.startswith("fesem"):
        kind, k = name.rsplit("_", 1)
        return {"name": kind, "n_clusters": int(k), "variant": variant}
    if name in ("flt", "transport"):
        found = (
            transport(dataset)
            if name == "transport"
            else clusterer(dataset, "as_written")
        )
        # FLT's encoders are for one channel, and the digits are too small for them
        encoder = (
            pixels()
            if dataset in ("celeba", "digits")
            else spec("convae", "fashion_mnist", 5, 0)
        )
        return {
            "name": name,
            "kind": "FLT",
            "graph": "clusters",
            "clusterer": found,
            "encoder": encoder,
        }
    return {
        "nofed": {"name": "local"},
        "fedavg": {"name": "fedavg", "rule": "participants"},
        "fedprox": {"name": "fedprox", "mu": 0.1, "rule": "participants"},
        # its first cut comes after a fifth of the rounds; in the public code after 30, of a number unknown
        "fedcluster": {"name": "fedcluster", "period": max(rounds // 5, 1)},
        "robust_tkm": {"name": "robust_tkm", "n_clusters": 3},
        "hypocluster_3": {"name": "hypocluster", "n_clusters": 3},
        "pacfl": {"name": "pacfl", "clusterer": {"name": "PACFL", "threshold": 12}},
    }.get(name, {"name": name})
