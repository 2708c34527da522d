"""Scenario 3: what forcing clusters costs, rounds to a target, and the claims about Table 3 and Figures 3, 4 and 12."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .scenario1 import table_means

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ..notebook import Claims

FORCED = ("flt", "flt_c2", "flt_c3", "flt_c5", "flt_c7")
COMMENTS_T3 = {
    "ifca": "its run is half as long again, the first third of it FedAvg",
    "cfl": "thresholds of its public code; they depend on the network and on E",
    "pca_km_hc": "C = 3 given",
    "fedsem": "C = 5 given",
}


def rounds_to_target(curves: pd.DataFrame, target: float) -> pd.DataFrame:
    """Count the rounds that each method needs for a test accuracy (mean over seeds); NaN if it never gets there.

    Parameters
    ----------
    curves : DataFrame
        One variant and model.
    target : float
        Percent.
    """
    import pandas as pd

    rows = []
    for method, own in curves[curves["split"] == "test"].groupby("method", sort=False):
        mean = own.groupby("round")["accuracy"].mean()
        there = mean.index[mean >= target]
        rows.append(
            {
                "method": method,
                "rounds": float(there[0]) if len(there) else float("nan"),
                "best accuracy": mean.max(),
                "last accuracy": mean.iloc[-1],
            }
        )
    return pd.DataFrame(rows)


def scenario3_claims(tidy: pd.DataFrame, curves: pd.DataFrame, adjacency: np.ndarray | None = None) -> Claims:
    """Check FLT's claims about Table 3 and Figures 3, 4 and 12.

    Parameters
    ----------
    tidy, curves : DataFrame
        Results of notebook 03.
    adjacency : array (M, M), optional
        FCR's client graph, for Figure 3.
    """
    from ..notebook import Claims

    claims = Claims()
    if adjacency is not None:
        links = (adjacency.sum() - len(adjacency)) / (len(adjacency) * (len(adjacency) - 1))
        claims.check(
            "Figure 3: writers form no sharp blocks: between 5 and 95 % of the client pairs are linked",
            bool(0.05 < links < 0.95),
            f"{100 * links:.0f} % linked",
            claim="flt-fig3",
        )
    for dataset in dict.fromkeys(tidy["dataset"]):
        for model in dict.fromkeys(tidy["model"]):
            for variant in ("as_written", "as_run"):
                rows = tidy[tidy["model"] == model]
                mean = table_means(rows, dataset, variant, "accuracy")
                if {"fedavg", "flt", "flt_c2", "ifca", "fedsem"} <= set(mean):
                    where = f"{dataset}, {model}, {variant}"
                    own = curves[(curves["dataset"] == dataset) & (curves["variant"] == variant)]
                    own = own[own["model"] == model]
                    _table3_claims(claims, where, mean)
                    _variance_claim(claims, where, table_means(rows, dataset, variant))
                    _speed_claim(claims, where, own)
                    train_test_claims(claims, where, own)
    return claims


def _table3_claims(claims: Claims, where: str, mean: dict[str, float]) -> None:
    rivals = {name: value for name, value in mean.items() if name not in FORCED}
    best = max(rivals, key=rivals.get)
    lead = mean["flt"] - rivals[best]
    evidence = f"{lead:+.2f} points over {best}"
    claims.check(f"{where}: FLT with the full graph is best", bool(lead > 0), evidence, claim="flt-t3-1")
    forced = [mean[name] for name in FORCED[1:4] if name in mean]
    steps = bool(mean["flt"] > forced[0] and forced == sorted(forced, reverse=True))
    shown = ", ".join(f"{name} {mean[name]:.1f}" for name in FORCED if name in mean)
    claims.check(f"{where}: forcing C = 2, 3, 5 costs accuracy step by step", steps, shown, claim="flt-t3-2")
    claims.check(f"{where}: forcing clusters costs accuracy", bool(max(forced) < mean["flt"]), shown, claim="flt-fig12")

    if {"pca_km_hc", "cfl"} <= set(mean):
        beaten = [name for name in ("pca_km_hc", "ifca", "cfl", "fedsem") if mean["flt"] > mean[name]]
        claims.check(
            f"{where}: FLT beats PCA+kM+HC, IFCA, CFL and FedSEM, and FedSEM beats CFL",
            bool(len(beaten) == 4 and mean["fedsem"] > mean["cfl"]),
            f"FLT beats {', '.join(beaten) or 'none'}; FedSEM {mean['fedsem'] - mean['cfl']:+.1f} against CFL",
            claim="flt-text-clustered",
        )


def _variance_claim(claims: Claims, where: str, variance: dict[str, float]) -> None:
    calm = {name: value for name, value in variance.items() if name not in FORCED[1:]}
    least = min(calm, key=calm.get)
    shown = ", ".join(f"{name} {value:.0f}" for name, value in sorted(calm.items(), key=lambda item: item[1]))
    claims.check(f"{where}: FLT has the least variance", least == "flt", shown, claim="flt-text-variance")


def train_test_claims(claims: Claims, where: str, curves: pd.DataFrame) -> None:
    """Note the claims of Figures 10 and 11 on one variant and model: order on training data, gap to the test data.

    The order is that of the methods which the paper draws: without forced clusters, the oracle and our own.
    """
    curves = curves[curves["method"].isin(["fedavg", "pca_km_hc", "ifca", "fedsem", "flt"])]
    last = curves[curves["round"] == curves.groupby("method")["round"].transform("max")]
    end = last.pivot_table(index="method", columns="split", values="accuracy")
    order = [list(end[split].sort_values(ascending=False).index) for split in ("train", "test")]
    claims.check(
        f"{where}: same order of the methods on training as on test data",
        order[0] == order[1],
        f"train: {' > '.join(order[0])}; test: {' > '.join(order[1])}",
        claim="flt-fig10-1",
    )
    gap = end["train"] - end["test"]
    claims.check(
        f"{where}: training accuracy runs above test accuracy for every method",
        bool((gap > 0).all()),
        f"{gap.min():+.1f} to {gap.max():+.1f} points",
        claim="flt-fig10-2",
    )


def _speed_claim(claims: Claims, where: str, curves: pd.DataFrame) -> None:
    test = curves[curves["split"] == "test"]
    early = test[test["round"] <= test.loc[test["method"] == "flt", "round"].max() // 10]
    if early["round"].max() == 0:
        return
    start = (
        early[early["round"] > 0].groupby("method")["accuracy"].mean().drop(labels=list(FORCED[1:]), errors="ignore")
    )
    claims.check(
        f"{where}: FLT rises fastest (mean accuracy over the first tenth of the rounds)",
        start.idxmax() == "flt",
        ", ".join(f"{name} {value:.1f}" for name, value in start.sort_values(ascending=False).head(3).items()),
        claim="flt-fig4-1",
    )
    target = test[(test["method"] == "flt")].groupby("round")["accuracy"].mean().iloc[-1] - 1
    needed = rounds_to_target(curves, target).set_index("method")["rounds"]
    ifca = "never" if needed["ifca"] != needed["ifca"] else f"{needed['ifca']:.0f}"
    claims.check(
        f"{where}: IFCA needs many times FLT's rounds for FLT's final accuracy less one point",
        bool(not needed["ifca"] <= 5 * needed["flt"]),
        f"FLT {needed['flt']:.0f}, IFCA {ifca}",
        claim="flt-fig4-2",
    )
