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

    chosen = tidy[(tidy["variant"] == "as_run") & tidy["method"].isin(["fedavg", "flt_enc1"])]
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
    rows = rows[(rows["variant"] == "as_run") & (rows["note"] == note)]
    late = rows[rows["round"] >= 0.6 * rows["round"].max()]["variance"]
    return float(late.min()), float(late.max())


def evaluation_table(tidy: pd.DataFrame) -> pd.DataFrame:
    """Evaluate the published variant of Table 1 on all clients, and on the first client of each cluster only.

    The authors' code tests one client per cluster wherever it holds clients of a cluster to be interchangeable. They
    are not where the published partition filled up clients with repeats.
    """
    import pandas as pd

    from .. import published

    chosen = tidy[(tidy["variant"] == "as_run") & (tidy["note"].fillna("") == "") & (tidy["split"] == "test")]
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
        for variant in ("as_written", "as_run"):
            mean = table_means(tidy, dataset, variant, "accuracy")
            if {"fedavg", "local", "fedsem", "flt_enc1"} <= set(mean):
                where = f"{dataset}, {variant}"
                _table1_claims(claims, where, dataset, mean)
                _fairness_claim(claims, where, table_means(tidy, dataset, variant))
                _figure8_claims(claims, where, dataset, curves, variant)
        _rule_claims(claims, tidy, curves, dataset)
        _printed_rows_claim(claims, tidy, dataset)
    return claims


def _clustering_claim(claims: Claims, tidy: pd.DataFrame, dataset: str) -> None:
    """Check that FCR finds the true clusters by itself, from the final clusters of the FLT runs."""
    rows = tidy[(tidy["dataset"] == dataset) & (tidy["variant"] == "as_written") & tidy["method"].isin(ENCODERS)]
    ari, number = (rows.loc[rows["metric"] == metric, "value"] for metric in ("ari", "n_clusters"))
    if len(ari):
        whole = bool((ari == 1).all() and (number == 5).all())
        evidence = f"ARI {ari.min():.2f} or more, {number.min():.0f} to {number.max():.0f} clusters, {len(ari)} runs"
        claims.check(f"{dataset}: FCR as described finds the five clusters by itself", whole, evidence)


def _table1_claims(claims: Claims, where: str, dataset: str, mean: dict[str, float]) -> None:
    encoders = [mean[name] for name in ENCODERS if name in mean]
    flt = sum(encoders) / len(encoders)
    gap = flt - mean["fedavg"]
    claims.check(f"{where}: FLT beats FedAvg by 10 points or more", gap > 10, f"{gap:+.1f}", must=dataset != "cifar10")
    if dataset == "cifar10":
        others = {name: value for name, value in mean.items() if name not in ("fedavg", "oracle")}
        for name, value in {max(others, key=others.get): max(others.values()), "FLT": flt}.items():
            sentence = f"{where}: FedAvg collapses, 40 points or more behind {name} (printed: 54 behind FLT)"
            evidence = f"{mean['fedavg']:.1f} against {value:.1f}"
            claims.check(sentence, value - mean["fedavg"] > 40, evidence, claim="flt-t1-2")
    if len(encoders) == 2:
        apart = abs(encoders[0] - encoders[1])
        sentence = f"{where}: Enc1 and Enc2 agree within 0.1 points"
        claims.check(sentence, apart <= 0.1, f"{apart:.2f} apart", claim="flt-t1-1")
    mean = {name: value for name, value in mean.items() if name != "oracle"}  # the oracle is told the clusters
    best = max(mean, key=mean.get)
    leads = flt >= mean[best] - 0.1
    claims.check(f"{where}: FLT is best, or within 0.1 points of it", leads, f"best is {best}", claim="flt-t1-4")
    lead = flt - mean["fedsem"]
    near = 7 <= lead <= 9 if dataset == "cifar10" else abs(lead) <= 1
    sentence = "FLT leads FedSEM by 7 to 9 points" if dataset == "cifar10" else "FLT and FedSEM within 1 point"
    claims.check(f"{where}: {sentence}", near, f"{lead:+.1f}", claim="flt-t1-5")
    if dataset in ("mnist", "cifar10"):
        least = {"mnist": 2, "cifar10": 7}[dataset]  # "about 3" and "about 9"
        sentence = f"{where}: FLT improves on FedSEM as the abstract says, by {least} points or more"
        claims.check(sentence, lead >= least, f"{lead:+.1f}", claim="flt-text-headline")
    behind = mean["local"] < min(flt, mean["fedsem"])
    evidence = f"Local {mean['local']:.1f}, FedSEM {mean['fedsem']:.1f}, FLT {flt:.1f}"
    claims.check(f"{where}: Local is behind both FLT and FedSEM", behind, evidence, claim="flt-text-local")


def _fairness_claim(claims: Claims, where: str, variance: dict[str, float]) -> None:
    calm = {name: value for name, value in variance.items() if name != "oracle"}
    if calm:
        least = min(calm, key=calm.get)
        evidence = f"least is {least}"
        claims.check(
            f"{where}: FLT has the least variance", least.startswith("flt"), evidence, claim="flt-text-variance"
        )


def _figure8_claims(claims: Claims, where: str, dataset: str, curves: pd.DataFrame, variant: str) -> None:
    """Check the two things that Figure 8 shows, on the mean curve over seeds."""
    rows = curves[(curves["dataset"] == dataset) & (curves["variant"] == variant) & (curves["split"] == "test")]
    rows = rows[rows["note"].fillna("") == ""]
    mean = rows.pivot_table(index="round", columns="method", values="accuracy").drop(columns="oracle", errors="ignore")
    flt = [name for name in ENCODERS if name in mean]
    if not flt:
        return
    late = mean[mean.index >= 0.2 * mean.index.max()]
    if dataset == "cifar10":
        rivals = late.drop(columns=flt).max(axis=1)
        ahead = late[flt].min(axis=1) > rivals
        sentence = f"{where}: FLT leads at every evaluated round after the first fifth"
        claims.check(sentence, bool(ahead.all()), f"{ahead.sum()} of {len(ahead)} rounds", claim="flt-fig8-1")
    if len(flt) == 2:
        apart = (late[flt[0]] - late[flt[1]]).abs()
        sentence = f"{where}: the curves of Enc1 and Enc2 stay within 1 point after the first fifth of the rounds"
        claims.check(sentence, bool(apart.max() <= 1), f"{apart.max():.1f} at most", claim="flt-fig8-2")


def _rule_claims(claims: Claims, tidy: pd.DataFrame, curves: pd.DataFrame, dataset: str) -> None:
    """Check what tells the rules for absent clients apart in the row of FedAvg."""
    rows = tidy[(tidy["method"] == "fedavg") & (tidy["variant"] == "as_run") & (tidy["dataset"] == dataset)]
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
        ours = table_means(tidy, dataset, "as_run", metric)
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


def table_means(tidy: pd.DataFrame, dataset: str, variant: str, metric: str = "accuracy_variance") -> dict[str, float]:
    """Mean over seeds of a test metric by method, single switches left out."""
    rows = tidy[(tidy["dataset"] == dataset) & (tidy["variant"] == variant) & (tidy["note"].fillna("") == "")]
    rows = rows[(rows["split"] == "test") & (rows["metric"] == metric)]
    return rows.groupby("method", sort=False)["value"].mean().to_dict()
