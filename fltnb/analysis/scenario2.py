"""Scenario 2: each switch alone, and the paper's claims about Table 2 and about scenarios 1 and 2 together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .scenario1 import table_means

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims

COMMENTS_T2 = {
    ("pca_km_hc", "accuracy"): "threshold 1.2 is in units of the raw pixels; the paper's text says 1",
    ("fedsem", "accuracy"): "groups follow from parameters: starts differ, results scatter",
    ("flt_enc1", "accuracy"): "depends on whether FCR finds the clusters: section 2",
}


def switches_table(tidy: pd.DataFrame) -> pd.DataFrame:
    """One row per method and switch: accuracy, variance, ARI, and what the switch alone moved.

    Parameters
    ----------
    tidy : DataFrame
        Results of scenario 2 (:func:`fltnb.store.tidy`); the rows of the described variant are used.

    Returns
    -------
    DataFrame
        ``dataset, method, switch, accuracy, moved, variance, ARI, seeds``. ``moved`` is the mean difference of the
        accuracy to the run without the switch, seed by seed, in points; its ± is the spread of these differences.
    """
    import pandas as pd

    from ..metrics import seed_spread

    rows = tidy[(tidy["variant"] == "as_written") & (tidy["split"].isin(["test", ""]))]
    wide = rows.pivot_table(index=["dataset", "method", "note", "seed"], columns="metric", values="value", sort=False)
    out = []
    for (dataset, method, switch), group in wide.groupby(level=[0, 1, 2], sort=False):
        base = wide.loc[(dataset, method, "")] if (dataset, method, "") in wide.index else None
        switched = (wide.index.get_level_values(1) == method) & (wide.index.get_level_values(2) != "")
        if base is None or not switched.any():
            continue
        group = group.droplevel([0, 1, 2])
        moved = (group["accuracy"] - base["accuracy"]).dropna()
        spread = f" ± {seed_spread(moved):.2f}" if len(moved) > 1 else ""
        out.append(
            {
                "dataset": dataset,
                "method": method,
                "switch": switch or "none: as described",
                "accuracy": group["accuracy"].mean(),
                "moved": f"{moved.mean():+.2f}{spread}" if switch else "",
                "variance": group["accuracy_variance"].mean(),
                "ARI": group["ari"].mean() if "ari" in group else float("nan"),
                "seeds": len(group),
            }
        )
    order = list(dict.fromkeys(row["method"] for row in out))
    table = pd.DataFrame(out, columns=["dataset", "method", "switch", "accuracy", "moved", "variance", "ARI", "seeds"])
    return table.sort_values("method", key=lambda m: m.map(order.index), kind="stable", ignore_index=True)


def scenario2_claims(tidy: pd.DataFrame, curves: pd.DataFrame, scenario1: pd.DataFrame | None = None) -> Claims:
    """Check FLT's claims about Table 2.

    Parameters
    ----------
    tidy, curves : DataFrame
        Results of scenario 2 (:func:`fltnb.store.tidy`, :func:`fltnb.store.curves`).
    scenario1 : DataFrame, optional
        Results of scenario 1 of the same profile, for the claims that compare the two.
    """
    from ..notebook import Claims

    claims = Claims()
    for dataset in dict.fromkeys(tidy["dataset"]):
        for variant in ("as_written", "as_run"):
            mean = table_means(tidy, dataset, variant, "accuracy")
            if {"fedavg", "fedsem", "flt_enc1"} <= set(mean):
                _table2_claims(claims, f"{dataset}, {variant}", dataset, mean, table_means(tidy, dataset, variant))
                chosen = curves[(curves["dataset"] == dataset) & (curves["variant"] == variant)]
                _figure9_claims(claims, f"{dataset}, {variant}", dataset, chosen)
        if scenario1 is not None:
            _local_claim(claims, dataset, tidy, scenario1)
    return claims


def _table2_claims(claims: Claims, where: str, dataset: str, mean: dict, variance: dict) -> None:
    encoders = [mean[m] for m in ("flt_enc1", "flt_enc2") if m in mean]
    flt = sum(encoders) / len(encoders)
    gap = flt - mean["fedavg"]
    if "oracle" in mean:
        worth = mean["oracle"] - mean["fedavg"]
        sentence = f"{where}: the true clusters are worth more than one model for all"
        claims.check(sentence, bool(worth > 0), f"{worth:+.1f}", must=True)
    claims.check(f"{where}: FLT beats FedAvg", bool(gap > 0), f"{gap:+.1f}")
    if len(encoders) == 2:
        apart = abs(encoders[0] - encoders[1])
        claims.check(f"{where}: Enc1 and Enc2 agree within 0.1 points", apart <= 0.1, f"{apart:.2f}", claim="flt-t1-1")
    rivals = {name: value for name, value in mean.items() if name != "oracle"}  # the oracle is told the clusters
    best = max(rivals, key=rivals.get)
    claims.check(f"{where}: FLT has the best accuracy", best.startswith("flt"), f"best is {best}", claim="flt-t1-4")
    lead = flt - mean["fedsem"]
    claims.check(
        f"{where}: FLT leads FedSEM by 7 to 9 points" if dataset == "cifar10" else f"{where}: FLT leads FedSEM",
        bool(7 <= lead <= 9 if dataset == "cifar10" else lead > 0),
        f"{lead:+.1f}",
        claim="flt-t1-5",
    )
    if dataset in ("mnist", "cifar10"):
        said = {"mnist": 3, "cifar10": 9}[dataset]
        claims.check(
            f"{where}: FLT improves on FedSEM by about {said} points (within 1)",
            bool(abs(lead - said) <= 1),
            f"{lead:+.1f}",
            claim="flt-text-headline",
        )
    if "local" in mean:
        behind = max(mean["fedsem"], flt) - mean["local"]
        evidence = f"{behind:.1f} behind"
        claims.check(
            f"{where}: Local is not competitive (3 points or more behind)",
            bool(behind >= 3),
            evidence,
            claim="flt-text-local",
        )
    calm = {name: value for name, value in variance.items() if name != "oracle"}
    least = min(calm, key=calm.get)
    claims.check(f"{where}: FLT has the least variance", least.startswith("flt"), f"{least}", claim="flt-text-variance")


def _figure9_claims(claims: Claims, where: str, dataset: str, curves: pd.DataFrame) -> None:
    test = curves[(curves["split"] == "test") & (curves["note"] == "") & (curves["round"] > 0)]
    mean = test.pivot_table(index="round", columns="method", values="accuracy").drop(columns="oracle", errors="ignore")
    flt = [name for name in ("flt_enc1", "flt_enc2") if name in mean]
    if dataset == "cifar10":
        ahead = (mean[flt].min(axis=1) > mean.drop(columns=flt).max(axis=1)).mean()
        claims.check(
            f"{where}: FLT leads throughout training",
            bool(ahead == 1),
            f"{100 * ahead:.0f} % of rounds",
            claim="flt-fig8-1",
        )
    if len(flt) == 2:
        apart = float((mean[flt[0]] - mean[flt[1]]).abs().max())
        claims.check(
            f"{where}: the curves of Enc1 and Enc2 nearly coincide (2 points at most)",
            apart <= 2,
            f"{apart:.1f} apart",
            claim="flt-fig8-2",
        )


def _local_claim(claims: Claims, dataset: str, tidy: pd.DataFrame, scenario1: pd.DataFrame) -> None:
    one, two = (table_means(t, dataset, "as_written", "accuracy") for t in (scenario1, tidy))
    if {"local", "oracle"} <= set(one) & set(two):
        fell = (one["oracle"] - one["local"], two["oracle"] - two["local"])
        claims.check(
            f"{dataset}: Local falls further behind the oracle in scenario 2 than in scenario 1",
            bool(fell[1] > fell[0]),
            f"{fell[0]:.1f} points behind in scenario 1, {fell[1]:.1f} in scenario 2",
            claim="flt-t1-3",
        )
