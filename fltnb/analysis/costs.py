"""What methods send: Table 6 of FLT, the formulas of the others, and the bytes counted in real runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import choose

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims
    from ..store import Result

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

_PRINTED = {"W_local": PRINTED_SIZES["CNN"], "W_enc": PRINTED_SIZES["ConvAE"]}
SCENARIO3 = {"M": 200, "rho": 0.2, "k": 5, "e": 128, "C": 3, **_PRINTED}
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


def cost_table(results: Sequence[Result]) -> pd.DataFrame:
    """Compare formulas with the bytes counted by the round loop, one row per run.

    Returns
    -------
    DataFrame
        ``method, note, formula, source, scalars (formula), scalars (counted), counted / formula, one-off share
        (counted, percent), against FedAvg (counted)``. A method without a formula has NaN there.
    """
    import pandas as pd

    rows = []
    for result in results:
        written, source = FORMULAS.get(_family(result.spec.method_id), ("none", "no formula: counted only"))
        expected = _expected(result)
        once, counted = _counted(result)
        rows.append(
            {
                "method": result.spec.method_id,
                "note": result.spec.note,
                "formula": written,
                "source": source,
                "scalars (formula)": expected,
                "scalars (counted)": counted,
                "counted / formula": counted / expected if expected else (1.0 if counted == expected else np.nan),
                "one-off share, %": 100 * once / counted if counted else 0.0,
            }
        )
    table = pd.DataFrame(rows)
    whole = ["scalars (formula)", "scalars (counted)"]
    table[whole] = table[whole].round().astype("Int64")
    fedavg = table.loc[table["method"] == "fedavg", "scalars (counted)"]
    return table.assign(**{"against FedAvg": table["scalars (counted)"] / fedavg.iloc[0] if len(fedavg) else np.nan})


def _family(method: str) -> str:
    """Drop what encoder FLT has from its id."""
    return "flt" if method.startswith("flt_enc") else method


def _expected(result: Result) -> float:
    """Value of the formula with the sizes of a run; NaN without a formula."""
    from .. import encoders, methods, models

    spec = result.spec
    name = _family(spec.method_id)
    if name not in FORMULAS:
        return float("nan")
    fed = spec.federation_built()
    W_local = models.make(spec.model, fed.input_shape, fed.n_classes).n_parameters
    sizes = {"C": spec.method.get("n_clusters", 1), "warmup": spec.method.get("warmup", 0)}
    if spec.method.get("tau"):
        sizes["again"] = spec.rounds // spec.method["tau"]
    if "clusterer" in spec.method:
        method = methods.build(spec.method)
        clusterer = method.clusterer
        sizes |= {"W_enc": encoders.sent_parameters(method.encoder, fed.input_shape), "k": clusterer.k}
        sizes |= {"e": getattr(clusterer, "n_components", 0) if name == "pca_km_hc" else method.encoder.latent}
    return formula(name, fed.n_clients, spec.participation, spec.rounds, W_local, **sizes).total


def _counted(result: Result) -> tuple[int, int]:
    """Scalars counted by a run: before round 1, and in all; four bytes each."""
    sent = result.history[result.history["split"] == "test"]
    total = (sent["bytes_up"] + sent["bytes_down"]).to_numpy() // 4
    return int(total[0]), int(total[-1])


def scenario3_table(T: int = 100, T_ifca: int = 1500, warmup: int = 500) -> pd.DataFrame:
    """Evaluate Table 6 for scenario 3 with the CNN, at the rounds that were run there.

    Returns
    -------
    DataFrame
        ``method, rounds, one-off, rounds' traffic, one-off share (percent), times FLT``.
    """
    import pandas as pd

    rows = []
    for method, label, rounds, first in (
        ("flt", "FLT", T, 0),
        ("fedsem", "FedSEM", T, 0),
        ("ifca", "IFCA", T, 0),
        ("ifca", "IFCA", T_ifca, 0),
        ("ifca", f"IFCA, {warmup} rounds as FedAvg", T_ifca, warmup),
    ):
        cost = formula(method, T=rounds, warmup=first, **SCENARIO3)
        row = {"method": label, "rounds": rounds, "one-off": f"{cost.once:.2e}", "in the rounds": f"{cost.rounds:.2e}"}
        rows.append(row | {"one-off share, %": 100 * cost.once / cost.total, "total": cost.total})
    table = pd.DataFrame(rows)
    return table.assign(**{"times FLT": table["total"] / table["total"].iloc[0]}).drop(columns="total")


def bytes_to_reach(curves: pd.DataFrame, levels: Sequence[float]) -> pd.DataFrame:
    """Megabytes sent, all clients together, until the mean test accuracy first reaches each level.

    Parameters
    ----------
    curves : DataFrame
        Of one federation, :func:`fltnb.store.curves`.
    levels : sequence of float
        Accuracies in percent.

    Returns
    -------
    DataFrame
        ``method, note``, a column per level (NaN where it is never reached), ``last accuracy, MB in all``.
    """
    import pandas as pd

    rows = []
    for (method, note), run in curves[curves["split"] == "test"].groupby(["method", "note"], sort=False):
        sent = (run["bytes_up"] + run["bytes_down"]).to_numpy() / 1e6
        accuracy = run["accuracy"].to_numpy()
        row = {"method": method, "note": note}
        for level in levels:
            there = np.flatnonzero(accuracy >= level)
            row[f"MB to {level:g} %"] = sent[there[0]] if len(there) else np.nan
        rows.append(row | {"last accuracy": accuracy[-1], "MB in all": sent[-1]})
    return pd.DataFrame(rows)


def network_table() -> pd.DataFrame:
    """Count the parameters of the networks that Tables 11 to 13 describe, beside the printed counts."""
    import pandas as pd

    from .. import encoders, models

    ours = {
        "MLP": models.make("mlp", (1, 28, 28), 62).n_parameters,
        "CNN": models.make("leaf_cnn", (1, 28, 28), 62).n_parameters,
        # all of the autoencoder travels only if clients tune it
        "ConvAE": encoders.sent_parameters(encoders.EncoderSpec("convae", finetune_epochs=1), (1, 28, 28)),
    }
    rows = [{"network": name, "printed": PRINTED_SIZES[name], "as described": count} for name, count in ours.items()]
    return pd.DataFrame(rows)


def cost_claims(claims: Claims, table: pd.DataFrame, C: int = 5) -> None:
    """Check what the paper says about Table 6.

    Parameters
    ----------
    claims : Claims
        List to add to.
    table : DataFrame
        Of :func:`cost_table`.
    C : int
        Models that IFCA was given.
    """
    ratio = table["counted / formula"].dropna()
    claims.check(
        "what the runs counted is what the formulas say, for every method that has one",
        bool(np.allclose(ratio, 1)),
        f"{len(ratio)} runs, {ratio.min():.4f} to {ratio.max():.4f}",
        must=True,
        claim="flt-t6-1",
    )
    counted = table[table["note"] == ""].set_index("method")["scalars (counted)"]
    if {"ifca", "fedsem"} <= set(counted.index):
        times = counted["ifca"] / counted["fedsem"]
        claims.check(
            "IFCA sends (C + 1) / 2 times as much as FedSEM",
            bool(np.isclose(times, (C + 1) / 2)),
            f"{times:.2f} with C = {C}",
            claim="flt-t6-3",
        )
    one_off = table.loc[table["method"].map(_family) == "flt", "one-off share, %"].iloc[0]
    scenario3 = scenario3_table().iloc[0]["one-off share, %"]
    claims.check(
        "FLT costs what FedSEM costs, but for a one-off part that can be neglected (below 1 %)",
        bool(scenario3 < 1),
        f"{scenario3:.2f} % in scenario 3; {one_off:.2f} % of the run above",
        claim="flt-t6-2",
    )
    sizes = network_table()
    wrong = sizes[sizes["printed"] != sizes["as described"]]
    claims.check(
        "the networks as described have the printed numbers of parameters",
        wrong.empty,
        "; ".join(f"{row[0]} {row[2]:,}, printed {row[1]:,}" for row in wrong.itertuples(index=False)),
        claim="flt-t11",
    )
