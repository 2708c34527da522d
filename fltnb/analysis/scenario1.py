"""Scenario 1: the effect of single switches, who was tested, the paper's claims about Table 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .clustering import ENCODERS

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims

COMMENTS_T1 = {
    ("fedavg", "accuracy_variance"): "the rule for absent clients decides it: section 6",
    ("pca_km_hc", "accuracy"): "threshold 1.2 is in units of the raw pixels; the paper's text says 1",
    ("fedsem", "accuracy"): "groups follow from parameters: starts differ, results scatter",
    ("flt_enc1", "accuracy"): "depends on whether FCR finds the clusters: section 2",
}


def rules_table(tidy: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Accuracy and variance of FedAvg and FLT under each rule for absent clients, beside the printed numbers.

    Parameters
    ----------
    tidy, curves : DataFrame
        Results of scenario 1 (:func:`fltnb.store.tidy`, :func:`fltnb.store.curves`); the published variant is used,
        all else being equal.

    Returns
    -------
    DataFrame
        The last round (mean ± spread over seeds), and the range of the variance over all evaluated rounds of the last
        40 % of each run: one round is a draw, the range shows what it is drawn from.
    """
    import pandas as pd

    from .. import published

    chosen = tidy[(tidy["variant"] == "published") & tidy["method"].isin(["fedavg", "flt_enc1"])]
    ours = published.aggregate(chosen[chosen["split"] == "test"])
    printed = published.numbers("flt", "T1").set_index(["dataset", "method", "metric"])["value"]
    rows = []
    for (dataset, method, rule), group in ours.groupby(["dataset", "method", "rule"], sort=False):
        row = {"dataset": dataset, "method": method, "absent clients contribute": rule}
        for metric, name in (("accuracy", "accuracy"), ("accuracy_variance", "variance")):
            row[name] = _cell(group[group["metric"] == metric].iloc[0])
            row[f"printed {name}"] = printed.get((dataset, method, metric), "–")
        low, high = variance_range(curves, dataset, method, rule)
        row["variance, last 40 % of the rounds"] = f"{low:.1f} to {high:.1f}"
        rows.append(row | {"seeds": int(group["seeds"].iloc[0])})
    order = {"participants": 0, "last_local": 1, "last_aggregate": 2}
    by = ["dataset", "method", "absent clients contribute"]
    table = pd.DataFrame(rows)
    return table.sort_values(by, key=lambda c: c.map(order) if c.name == by[2] else c, kind="stable", ignore_index=True)


def variance_range(curves: pd.DataFrame, dataset: str, method: str, rule: str) -> tuple[float, float]:
    """Smallest and largest variance over clients in the last 40 % of the rounds, over all seeds (published variant)."""
    note = "" if rule == "last_local" else f"rule = {rule}"
    rows = curves[(curves["dataset"] == dataset) & (curves["method"] == method) & (curves["split"] == "test")]
    rows = rows[(rows["variant"] == "published") & (rows["note"] == note)]
    late = rows[rows["round"] >= 0.6 * rows["round"].max()]["variance"]
    return float(late.min()), float(late.max())


def evaluation_table(tidy: pd.DataFrame) -> pd.DataFrame:
    """Evaluate the published variant of Table 1 on all clients, and on the first client of each cluster only.

    The authors' code tests one client per cluster wherever it holds clients of a cluster to be interchangeable. They
    are not where the published partition filled up clients with repeats.
    """
    import pandas as pd

    from .. import published

    chosen = tidy[(tidy["variant"] == "published") & (tidy["note"].fillna("") == "") & (tidy["split"] == "test")]
    ours = published.aggregate(chosen)
    printed = published.numbers("flt", "T1").set_index(["dataset", "method", "metric"])["value"]
    pairs = {"accuracy": "first_clients_accuracy", "accuracy_variance": "first_clients_variance"}
    rows = []
    for (dataset, method), group in ours.groupby(["dataset", "method"], sort=False):
        cells = group.set_index("metric")
        row = {"dataset": dataset, "method": method}
        for metric, first in pairs.items():
            name = metric.replace("accuracy_", "")
            row[f"{name}: printed"] = printed.get((dataset, method, metric), "–")
            row[f"{name}: all clients"] = _cell(cells.loc[metric])
            row[f"{name}: first clients"] = _cell(cells.loc[first])
        rows.append(row)
    return pd.DataFrame(rows)


def _cell(cell: pd.Series) -> str:
    return f"{cell['mean']:.2f}" + (f" ± {cell['spread']:.2f}" if cell["seeds"] > 1 else "")


def scenario1_claims(tidy: pd.DataFrame, curves: pd.DataFrame) -> Claims:
    """Check FLT's claims about Table 1 (and our own about the clustering) on results.

    Parameters
    ----------
    tidy, curves : DataFrame
        Results of scenario 1.
    """
    from ..notebook import Claims

    claims = Claims()
    for dataset in dict.fromkeys(tidy["dataset"]):
        _clustering_claim(claims, tidy, dataset)
        for variant in ("described", "published"):
            mean = _means(tidy, dataset, variant, "accuracy")
            if {"fedavg", "local", "fedsem", "flt_enc1", "flt_enc2"} <= set(mean):
                _table1_claims(claims, f"{dataset}, {variant}", dataset, mean)
        _rule_claims(claims, tidy, curves, dataset)
        _printed_rows_claim(claims, tidy, dataset)
    return claims


def _clustering_claim(claims: Claims, tidy: pd.DataFrame, dataset: str) -> None:
    """Check that FCR finds the true clusters by itself, from the final clusters of the FLT runs."""
    rows = tidy[(tidy["dataset"] == dataset) & (tidy["variant"] == "described") & tidy["method"].isin(ENCODERS)]
    ari, number = (rows.loc[rows["metric"] == metric, "value"] for metric in ("ari", "n_clusters"))
    if len(ari):
        whole = bool((ari == 1).all() and (number == 5).all())
        evidence = f"ARI {ari.min():.2f} or more, {number.min():.0f} to {number.max():.0f} clusters, {len(ari)} runs"
        claims.check(f"{dataset}: FCR as described finds the five clusters by itself", whole, evidence)


def _table1_claims(claims: Claims, where: str, dataset: str, mean: dict[str, float]) -> None:
    flt = (mean["flt_enc1"] + mean["flt_enc2"]) / 2
    apart = abs(mean["flt_enc1"] - mean["flt_enc2"])
    gap = flt - mean["fedavg"]
    claims.check(f"{where}: FLT beats FedAvg by 10 points or more", gap > 10, f"{gap:+.1f}", must=True)
    claims.check(f"{where}: Enc1 and Enc2 agree within 0.1 points", apart <= 0.1, f"{apart:.2f} apart")
    mean = {name: value for name, value in mean.items() if name != "oracle"}  # the oracle is told the clusters
    best = max(mean, key=mean.get)
    leads = flt >= mean[best] - 0.1
    claims.check(f"{where}: FLT is best, or within 0.1 points of it", leads, f"best is {best}")
    if dataset == "cifar10":
        lead = flt - mean["fedsem"]
        claims.check(f"{where}: FLT leads FedSEM by 7 to 9 points", 7 <= lead <= 9, f"{lead:+.1f}")


def _rule_claims(claims: Claims, tidy: pd.DataFrame, curves: pd.DataFrame, dataset: str) -> None:
    """Check what tells the rules for absent clients apart in the row of FedAvg."""
    rows = tidy[(tidy["method"] == "fedavg") & (tidy["variant"] == "published") & (tidy["dataset"] == dataset)]
    rows = rows[(rows["split"] == "test") & (rows["metric"] == "accuracy")]
    mean = rows.groupby("rule")["value"].mean()
    if not {"participants", "last_local"} <= set(mean.index):
        return
    shift = mean["participants"] - mean["last_local"]
    sentence = f"{dataset}: FedAvg's mean does not tell the rules apart (within 2 points)"
    claims.check(sentence, bool(abs(shift) <= 2), f"participants {shift:+.1f}")
    swing = {rule: variance_range(curves, dataset, "fedavg", rule) for rule in ("participants", "last_local")}
    width = {rule: high - low for rule, (low, high) in swing.items()}
    claims.check(
        f"{dataset}: FedAvg's variance swings from round to round under participants, not under last_local",
        bool(width["participants"] > 3 * width["last_local"]),
        ", ".join(f"{rule} {low:.0f} to {high:.0f}" for rule, (low, high) in swing.items()),
    )


def _printed_rows_claim(claims: Claims, tidy: pd.DataFrame, dataset: str) -> None:
    """Check that the published variant meets the printed rows once the printed evaluation is used."""
    from .. import published

    printed = published.numbers("flt", "T1", metric="accuracy")
    printed = printed[printed["dataset"] == dataset].set_index("method")["number"]
    for where, metric in (("all clients", "accuracy"), ("the first client of each cluster", "first_clients_accuracy")):
        ours = _means(tidy, dataset, "published", metric)
        gaps = {
            m: abs(ours[m] - printed[m])
            for m in ("fedavg", "local", "fedsem", "flt_enc1")
            if m in ours and m in printed
        }
        if len(printed) and gaps:
            worst = max(gaps, key=gaps.get)
            claims.check(
                f"{dataset}, published, {where}: FedAvg, Local, FedSEM and FLT within 1 point of the printed accuracy",
                max(gaps.values()) <= 1,
                f"{worst} is {gaps[worst]:.2f} off",
            )


def _means(tidy: pd.DataFrame, dataset: str, variant: str, metric: str) -> dict[str, float]:
    rows = tidy[(tidy["dataset"] == dataset) & (tidy["variant"] == variant) & (tidy["note"].fillna("") == "")]
    rows = rows[(rows["split"] == "test") & (rows["metric"] == metric)]
    return rows.groupby("method", sort=False)["value"].mean().to_dict()
