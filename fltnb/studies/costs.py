"""Notebook 06: what FLT's methods send (FLT, arXiv 2103.15947, Table 6), network sizes, and jobs of its two theorems.

The runs take scenario 1's settings, so what that notebook has computed is not computed again (but for `demo`, which is
shorter here). The tables of the theorems are made in :mod:`fltnb.studies.theory`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import choose
from ..methods import FLT, METHODS
from ..results import Job
from .common import clusterer, datasets, encoder, federation, method, training

COUNTED = (
    *("FedAvg", "FedProx", "Local", "Oracle", "FLT", "PCAKMHC", "FedSEM", "FeSEM", "IFCA", "CFL", "DynamicFLT"),
    "SoftFLT",
)
"""FLT's methods and their kin; what the other papers' methods send is counted in those papers' notebooks."""
N_CLUSTERS = 5
DEMO_ROUNDS = 20
WARMUP = {"demo": 6, "small": 30, "paper": 30}  # IFCA's first rounds as plain FedAvg, in the runs that have them
TAU = {"demo": 8, "small": 40, "paper": 40}  # rounds between two clusterings of dynamic FLT; T is no multiple
WEIGHED = 4  # rounds whose arrays are weighed; half of them are the warm-up of an IFCA that has one

# FCR on growing clients: training images per client; the smallest must serve k centroids
SAMPLES = {"demo": (4, 6, 10, 16, 24, 40), "small": (6, 10, 20, 40, 80, 160, 320, 500)}
SAMPLE_SEEDS = {"demo": (0, 1), "small": (0, 1, 2), "paper": tuple(range(10))}

SEEDS = {"rounds": 1000, "seeds": tuple(range(10))}
_SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "theorem1": ("centroids", {"errors": (0.1, 0.2, 0.3, 0.4), "samples": (1, 2, 4, 8, 16, 32, 64), "repeats": 2000}),
    "pipeline": ("pipeline", {"p": 0.2, "samples": (2, 4, 8, 16, 32, 64), "ks": (1, 2, 5), "repeats": 100}),
    "lines": ("proof_lines", {}),
    "gap": ("gap_curves", {"kinds": ("least squares", "logistic"), **SEEDS}),
    "steps": ("steps", {"steps": (0.1, 0.3, 0.6, 0.9, 1.5, 1.9, 2.1, 3.0, 4.0, 6.0), **SEEDS}),
    "epochs": ("epochs", {"local_steps": (1, 2, 5, 10, 20, 50), **SEEDS, "rounds": 200}),
    "graphs": ("client_graphs", SEEDS),
}
_DEMO: dict[str, dict[str, Any]] = {
    "theorem1": {"errors": (0.2, 0.4), "repeats": 200},
    "pipeline": {"samples": (2, 4, 8, 16), "repeats": 5},
    **{name: {"rounds": 200, "seeds": (0, 1, 2)} for name in ("gap", "steps", "graphs")},
    "epochs": {"rounds": 100, "seeds": (0, 1)},
}


def jobs(profile: str) -> list[Job]:
    """One run per method of :data:`COUNTED`, IFCA again with a warm-up, FCR on growing clients, and the studies."""
    dataset = datasets(profile)[0]
    axes = {"dataset": dataset, "variant": "as_written"}
    options = training(dataset, "as_written", profile) | ({"rounds": DEMO_ROUNDS} if profile == "demo" else {})
    runs = {name: settings_of(METHODS[name], dataset, profile) for name in COUNTED}
    runs["warm"] = runs["IFCA"] | {"warmup": WARMUP[profile]}
    result = []
    for settings in runs.values():
        own = axes | {"method": settings["name"]} | ({"warmup": settings["warmup"]} if "warmup" in settings else {})
        result.append(Job.training(federation(dataset, "as_written", 0), settings, **options, axes=own))
    own = {"federation": federation(dataset, "as_written", 0), "methods": runs, "training": options, "weighed": WEIGHED}
    result += [
        Job.study("costs.traffic", own, axes=axes | {"study": "traffic"}),
        Job.study("costs.networks", axes={"study": "networks"}),
    ]
    enc = encoder(dataset, "enc1", "as_written", profile)
    for samples in SAMPLES.get(profile, SAMPLES["small"]):
        held = [federation(dataset, "as_written", seed) | {"samples_per_client": samples} for seed in range(10)]
        own = axes | {"method": "flt", "samples": samples}
        result += [
            Job.clustering(held[seed], clusterer(dataset, "as_written"), enc, seed=seed, axes=own | {"seed": seed})
            for seed in SAMPLE_SEEDS[profile]
        ]
        # embedding is most of the work: one seed tells the error of a single sample
        settings = {"federation": held[0], "encoder": enc, "seeds": SAMPLE_SEEDS[profile]}
        result.append(Job.study("theory.sample_bound", settings, axes=own | {"study": "sample_bound"}))
    for name, (function, settings) in _SMALL.items():
        own = settings | (_DEMO.get(name, {}) if profile == "demo" else {})
        result.append(Job.study(f"theory.{function}", own, axes={"study": name}))
    return result


def settings_of(cls: type, dataset: str, profile: str) -> dict[str, Any]:
    """Return a method's settings in scenario 1; what :func:`~fltnb.studies.common.method` does not know is plain.

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


# ---------------------------------------------------------------- Table 6

ROUNDS = "2ρMW_local·T"  # one model down and one up per participant
FORMULAS = {
    "flt": ("M·W_enc + kMe + 2ρMW_local·T", "Table 6"),
    "fedsem": (ROUNDS, "Table 6"),
    "ifca": ("ρMW_local·T(C + 1)", "Table 6"),
    "fesem": (ROUNDS, "not in the paper: as FedSEM, whose original it is"),
    "fedavg": (ROUNDS, "not in the paper: one model each way"),
    "fedprox": (ROUNDS, "not in the paper: as FedAvg, the proximal term is local"),
    "oracle": (ROUNDS, "not in the paper: FedAvg inside the true clusters"),
    "cfl": (ROUNDS, "not in the paper: a client gets its own cluster's model only"),
    "flt_dynamic": (
        "M·W_enc + (R + 1)kMe + 2ρMW_local·T",
        "not in the paper, which leaves the option open: FLT with R further clusterings",
    ),
    "flt_soft": (
        "M·W_enc + kMe + 2ρMW_local·T",
        "not in the paper, which leaves the option open: FLT, only the weights of the averages differ",
    ),
    "pca_km_hc": ("kMe + 2ρMW_local·T", "not in the paper: FLT without encoder, each client makes its own PCA"),
    "local": ("0", "not in the paper: nothing is sent"),
}
"""Method id -> formula in the paper's symbols, and where it comes from."""

PRINTED_SIZES = {"MLP": 169_462, "CNN": 3_459_582, "ConvAE": 51_577}
"""Parameters as printed in Tables 11, 12 and 13."""
SCENARIO3 = {"M": 200, "rho": 0.2, "k": 5, "e": 128, "C": 3}
SCENARIO3 |= {"W_local": PRINTED_SIZES["CNN"], "W_enc": PRINTED_SIZES["ConvAE"]}
"""Sizes of scenario 3 with the CNN: Table 3, Tables 12 and 13 as printed, section 4."""


@dataclass(frozen=True)
class Cost:
    """Scalars sent in a whole run, up and down together: once before round 1, and in all rounds."""

    once: float
    rounds: float

    @property
    def total(self) -> float:
        """Both."""
        return self.once + self.rounds


def formula(
    method: str,
    M: int,
    rho: float,
    T: int,
    W_local: int,
    W_enc: int = 0,
    k: int = 0,
    e: int = 0,
    C: int = 1,
    warmup: int = 0,
    again: int = 0,
) -> Cost:
    """Table 6 of FLT, and the same reckoning for the methods that it leaves out.

    Parameters
    ----------
    method : str
        A key of :data:`FORMULAS`.
    M, rho, T : int, float, int
        Clients, share of them per round, rounds.
    W_local, W_enc : int
        Parameters of the local model and of what is sent of the encoder.
    k, e : int
        Centroids per client and their dimension.
    C : int
        Models that IFCA sends.
    warmup : int
        IFCA's first rounds as plain FedAvg, which Table 6 ignores.
    again : int
        R, clusterings of dynamic FLT after the first.

    Raises
    ------
    FltnbError
        No formula is known for the method.
    """
    choose(method, FORMULAS, "method with a formula")
    a_model = rho * M * W_local
    if method == "local":
        return Cost(0, 0)
    if method == "ifca":
        return Cost(0, a_model * (2 * warmup + (T - warmup) * (C + 1)))
    clustering = k * M * e + (M * W_enc if method.startswith("flt") else 0)
    once = clustering if method == "pca_km_hc" or method.startswith("flt") else 0
    return Cost(once, 2 * a_model * T + again * k * M * e)


def scenario3(T: int = 100, T_ifca: int = 1500, warmup: int = 500):
    """Evaluate Table 6 for scenario 3 with the CNN, at the rounds that were run there.

    Returns
    -------
    DataFrame
        ``method, rounds, once, rounds' scalars, one-off share (percent), times FLT``.
    """
    import pandas as pd

    rows = []
    for name, label, rounds, first in (
        ("flt", "FLT", T, 0),
        ("fedsem", "FedSEM", T, 0),
        ("ifca", "IFCA", T, 0),
        ("ifca", "IFCA", T_ifca, 0),
        ("ifca", f"IFCA, {warmup} rounds as FedAvg", T_ifca, warmup),
    ):
        cost = formula(name, T=rounds, warmup=first, **SCENARIO3)
        row = {"method": label, "rounds": rounds, "once": f"{cost.once:.2e}", "in the rounds": f"{cost.rounds:.2e}"}
        rows.append(row | {"one-off share, %": 100 * cost.once / cost.total, "total": cost.total})
    table = pd.DataFrame(rows)
    return table.assign(**{"times FLT": table["total"] / table["total"].iloc[0]}).drop(columns="total")


def networks() -> dict[str, Any]:
    """Count the parameters of the networks that Tables 11 to 13 describe, beside the printed counts."""
    import pandas as pd

    from .. import encoders, models

    ours = {
        "MLP": models.make("mlp", (1, 28, 28), 62).n_parameters,
        "CNN": models.make("leaf_cnn", (1, 28, 28), 62).n_parameters,
        # all of the autoencoder travels only if clients tune it
        "ConvAE": encoders.sent_parameters(encoders.EncoderSpec("convae", finetune_epochs=1), (1, 28, 28)),
    }
    rows = [{"network": name, "paper": PRINTED_SIZES[name], "as written": count} for name, count in ours.items()]
    return {"tables": {"table": pd.DataFrame(rows)}}


# ---------------------------------------------------------------- what runs move


class Scales:
    """An engine that weighs what passes between the server and the clients of one round, in scalars.

    ``down`` is the size of all different models that a participant trains or tests, ``up`` that of all that come back.
    """

    def __init__(self, engine: Any):
        self._engine, self._held, self.up = engine, set(), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def down(self) -> int:
        """Scalars that reached clients."""
        return sum(size for _, _, size in self._held)

    def _receive(self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int]) -> None:
        models = [theta[row].tobytes() for row in range(len(theta))]
        self._held |= {(int(i), hash(models[row]), theta.shape[1]) for row, i in zip(rows, clients, strict=True)}

    def train(self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int], *rest: Any) -> Any:
        """Train, and weigh the models both ways."""
        self._receive(theta, rows, clients)
        trained = self._engine.train(theta, rows, clients, *rest)
        self.up += trained.theta.size
        return trained

    def evaluate(self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int], *rest: Any) -> Any:
        """Test, and weigh the models on their way down."""
        self._receive(theta, rows, clients)
        return self._engine.evaluate(theta, rows, clients, *rest)


def moved(fed, method, training: Mapping[str, Any]) -> tuple[int, int]:
    """Scalars that a run really moves, ``(once, in all rounds)``: the arrays themselves, not what the method declares.

    Parameters
    ----------
    fed : Federation
    method : Method
        Unfitted. What it clusters by is weighed as the numbers of its clusterer's ``centroids_`` and of the encoder.
    training : dict
        Arguments of :func:`fltnb.run`, ``model`` and ``rounds`` among them.
    """
    from .. import rounds
    from ..encoders import networks, pretrain
    from ..methods import Context
    from ..training import make_engine

    spec, net = rounds.check(method, fed, **training)
    once, total, context = 0, 0, Context(spec.seed)
    if hasattr(method, "encoder"):
        method.clusterer = method.fitted(fed, context)  # fitted once, and taken as it is by `start`
        once = int(np.isfinite(method.clusterer.centroids_).sum())
        weights = {name: value for name, value in pretrain(method.encoder).items() if name != "input_shape"}
        if method.encoder.kind == "convae":  # the part that embeds; it is used as it is
            weights = networks.load("convae", fed.input_shape, method.encoder.latent, weights).encoder_state()
        once += fed.n_clients * sum(int(np.prod(value.shape)) for value in weights.values())
    with make_engine(fed, net, spec, "auto", "cpu") as engine:
        state = method.start(fed, net, context)
        for round in range(1, training["rounds"] + 1):
            clients = rounds.participants(fed.n_clients, training["participation"], spec.seed, round)
            scales = Scales(engine)
            state = method.observe(state, clients, round, scales)
            state, trained = method.train(state, clients, round, scales)
            state = method.revise(method.collect(state, clients, trained.theta, round), fed, round, context)
            total += scales.down + scales.up
    return once, total


def traffic(
    federation: Mapping[str, Any], methods: Mapping[str, Any], training: Mapping[str, Any], weighed: int
) -> dict[str, Any]:
    """Put numbers into the formulas for a set of runs, and weigh a few rounds of those that Table 6 has.

    Parameters
    ----------
    federation, methods, training : dict
        Of the runs; ``methods`` has one entry for each.
    weighed : int
        Rounds of :func:`moved`. An IFCA with a warm-up has it in half of them.

    Returns
    -------
    dict
        ``tables["table"]``: ``method, warmup, formula, source``; by formula for all T rounds ``once, total`` (scalars);
        for the weighed rounds ``weighed_formula`` and ``weighed_moved`` (scalars; NaN where Table 6 has no row).
    """
    import pandas as pd

    from .. import encoders, federations, models
    from ..methods import build

    fed = federations.build(federation)
    rows = []
    for settings in methods.values():
        made, family = build(settings), settings["name"].partition("_enc")[0]
        warmup = settings.get("warmup", 0)
        sizes = {"M": fed.n_clients, "rho": training["participation"], "C": settings.get("n_clusters", 1)}
        sizes["W_local"] = models.make(training["model"], fed.input_shape, fed.n_classes).n_parameters
        if hasattr(made, "encoder"):
            sizes |= {"W_enc": encoders.sent_parameters(made.encoder, fed.input_shape), "k": made.clusterer.k}
            sizes["e"] = made.clusterer.n_components if family == "pca_km_hc" else made.encoder.latent
        again = training["rounds"] // settings["tau"] if "tau" in settings else 0
        cost = formula(family, T=training["rounds"], warmup=warmup, again=again, **sizes)
        written, source = FORMULAS[family]
        row = {"method": settings["name"], "warmup": warmup, "formula": written, "source": source}
        row |= {"once": cost.once, "total": cost.total, "weighed_formula": np.nan, "weighed_moved": np.nan}
        if source == "Table 6":
            made = build(settings | ({"warmup": weighed // 2} if warmup else {}))
            short = formula(family, T=weighed, warmup=weighed // 2 if warmup else 0, **sizes)
            row["weighed_formula"] = short.total
            row["weighed_moved"] = sum(moved(fed, made, {**training, "rounds": weighed}))
        rows.append(row)
    return {"tables": {"table": pd.DataFrame(rows)}}
