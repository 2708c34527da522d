"""Scenario 4: how well the clusters are found and what that depends on, the slip in the test sets, the claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .scenario1 import table_means
from .scenario3 import train_test_claims

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims

WAYS = {
    "fcr_written": "FCR as written (closest pair), C found",
    "fcr_written_given": "FCR as written, C given",
    "fcr_run": "FCR as run (matching), C found",
    "fcr_run_given": "FCR as run, C given",
    "pca_km_hc": "PCA+kM+HC, C given",
    "transport": "transport signatures (ours), C found",
}
COMMENTS_T4 = {
    ("flt", "accuracy"): "depends on the clusters that FCR finds: section 2",
    ("pca_km_hc", "accuracy"): "threshold 1.2 is in units of the raw pixels",
}


def found_table(table: pd.DataFrame) -> pd.DataFrame:
    """One row per way of clustering: ARI and number of clusters over the seeds.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`fltnb.oneshot.compute` for ``experiments.scenario4.clusterings``.
    """
    import pandas as pd

    rows = []
    for name, group in table[table["part"] == "seeds"].groupby("method", sort=False):
        number = group["n_clusters"]
        rows.append(
            {
                "clustering": WAYS.get(name, name),
                "seeds": len(group),
                "ARI": group["ari"].mean(),
                "ARI, least": group["ari"].min(),
                "clusters found": f"{number.min()} to {number.max()}" if number.nunique() > 1 else f"{number.iloc[0]}",
                "right number": f"{(number == group['true_clusters']).sum()} of {len(group)}",
                "links inside": group["links_inside"].mean(),
                "links across": group["links_across"].mean(),
            }
        )
    return pd.DataFrame(rows)


def depends_table(table: pd.DataFrame) -> pd.DataFrame:
    """FCR as written with one thing changed at a time: what the clustering depends on; means over seeds."""
    part = table[table["part"] == "depends"]
    columns = {"ari": "mean", "n_clusters": "mean", "links_inside": "mean", "links_across": "mean", "seed": "count"}
    grouped = part.groupby(["factor", "level", "method"], sort=False).agg(columns).unstack("method")
    out = grouped["ari"].rename(columns={"fcr_written": "ARI, C found", "fcr_written_given": "ARI, C given"})
    out["clusters found"] = grouped["n_clusters", "fcr_written"]
    out["links inside"] = grouped["links_inside", "fcr_written"]
    out["links across"] = grouped["links_across", "fcr_written"]
    out["seeds"] = grouped["seed", "fcr_written"].astype(int)
    return out.rename_axis(columns=None).reset_index()


def switch_table(tidy: pd.DataFrame) -> pd.DataFrame:
    """Accuracy, variance and worst client of the smaller federation, with one switch changed at a time.

    The switch of the test set concerns one cluster: its clients are tested on a class that nobody there trained on.
    """
    import pandas as pd

    rows = tidy[(tidy["variant"] == "as_written") & (tidy["split"] == "test") & tidy["note"].str.startswith("M = ")]
    rows = rows[rows["method"].isin(["flt_given", "oracle"])]
    wide = rows.pivot_table(index=["method", "note", "seed"], columns="metric", values="value", sort=False)
    mean = wide.groupby(level=[0, 1], sort=False).agg(["mean", "count"])
    return pd.DataFrame(
        [
            {
                "method": method,
                "switch": note.partition(", ")[2] or "none: as described",
                "accuracy": line["accuracy", "mean"],
                "variance": line["accuracy_variance", "mean"],
                "worst client": line["worst", "mean"],
                "seeds": int(line["accuracy", "count"]),
            }
            for (method, note), line in mean.iterrows()
        ]
    )


def rounds_to(curve: pd.DataFrame, share: float = 0.98) -> int:
    """First evaluated round at which the test accuracy reaches this share of its best, mean over seeds."""
    mean = curve[curve["split"] == "test"].groupby("round")["accuracy"].mean()
    return int(mean.index[np.argmax(mean.to_numpy() >= share * mean.max())])


def scenario4_claims(tidy: pd.DataFrame, curves: pd.DataFrame, clusterings: pd.DataFrame | None = None) -> Claims:
    """Check FLT's claims about Table 4 and Figures 5 to 7.

    Parameters
    ----------
    tidy, curves : DataFrame
        Results of notebook 04 (:func:`fltnb.store.tidy`, :func:`fltnb.store.curves`).
    clusterings : DataFrame, optional
        Rows of :func:`fltnb.oneshot.compute`, for the claims about the clustering alone.
    """
    from ..notebook import Claims

    claims = Claims()
    if clusterings is not None:
        _clustering_claims(claims, clusterings)
    for dataset in dict.fromkeys(tidy["dataset"]):
        mean = table_means(tidy, dataset, "as_written", "accuracy")
        if {"fedavg", "fedsem", "flt"} <= set(mean):
            _accuracy_claims(claims, dataset, mean, table_means(tidy, dataset, "as_written"))
            own = curves[(curves["dataset"] == dataset) & (curves["note"] == "") & (curves["variant"] == "as_written")]
            _curve_claims(claims, own[own["model"] == "mlp"])
            train_test_claims(claims, f"{dataset}, mlp", own[own["model"] == "mlp"])
            _cnn_claim(claims, own[(own["model"] == "leaf_cnn") & (own["split"] == "test")])
    _matrix_claims(claims, tidy)
    return claims


def _clustering_claims(claims: Claims, table: pd.DataFrame) -> None:
    seeds = table[table["part"] == "seeds"]
    for name, claim in (("fcr_written", "flt-text-10clusters"), ("fcr_run", "flt-text-10clusters"), ("transport", "")):
        group = seeds[seeds["method"] == name]
        if len(group):
            right = (group["n_clusters"] == group["true_clusters"]) & (group["ari"] >= 0.98)
            claims.check(
                f"{WAYS[name]}: all clusters found without being told their number",
                bool(right.all()),
                f"{right.sum()} of {len(group)} seeds, ARI {group['ari'].min():.2f} to {group['ari'].max():.2f}",
                claim=claim,
            )


def _accuracy_claims(claims: Claims, dataset: str, mean: dict[str, float], variance: dict[str, float]) -> None:
    rivals = {name: mean[name] for name in ("fedavg", "pca_km_hc", "fedsem") if name in mean}
    best = max(rivals, key=rivals.get)
    for name, who in (("flt", "FLT"), ("flt_given", "FLT with C given"), ("transport", "transport signatures")):
        if name in mean:
            lead = mean[name] - rivals[best]
            claims.check(
                f"{dataset}: {who} leads the best other method by tens of points",
                bool(lead >= 20),
                f"{lead:+.1f} over {best}",
                claim="flt-t4-1" if name == "flt" else "",
            )
    calm = {name: variance[name] for name in ("flt", *rivals)}
    least = min(calm, key=calm.get)
    claims.check(f"{dataset}: FLT has the least variance", least == "flt", f"{least} has", claim="flt-text-variance")
    if "oracle" in mean:
        lead = mean["oracle"] - mean["fedavg"]
        claims.check(
            f"{dataset}: the true clusters are worth more than one model for all",
            bool(lead > 0),
            f"{lead:+.1f}",
            must=True,
        )


def _cnn_claim(claims: Claims, test: pd.DataFrame) -> None:
    sentence = "With the CNN, FedSEM is clearly better than FedAvg (5 points) and below FLT"
    if test.empty:
        claims.untestable(sentence, "the CNN did not run in this profile", "flt-fig5-3")
        return
    end = test[test["round"] == test["round"].max()].groupby("method")["accuracy"].mean()
    holds = end["fedavg"] + 5 <= end["fedsem"] < end["flt"]
    claims.check(
        sentence, bool(holds), f"{end['fedavg']:.1f}, {end['fedsem']:.1f}, {end['flt']:.1f}", claim="flt-fig5-3"
    )


def smallest_claim(claims: Claims, sizes: np.ndarray) -> None:
    """Note the claim that Algorithm 4 leaves some clients as few as 20 samples (within 5)."""
    claims.check(
        "The smallest clients of Algorithm 4 hold about 20 training images (15 to 25)",
        bool(15 <= sizes.min() <= 25),
        f"{sizes.min()} with {len(sizes):,} clients and {sizes.sum():,} images",
        claim="flt-text-smallest",
    )


def _curve_claims(claims: Claims, curves: pd.DataFrame) -> None:
    own = curves[curves["method"] == "flt"]
    last = int(own["round"].max())
    when = rounds_to(own)
    claims.check(
        "FLT has converged (98 % of its best) within the first fifth of the rounds, the paper's round 20 of 100",
        when <= max(1, last // 5),
        f"round {when} of {last}",
        claim="flt-fig5-1",
    )
    test = curves[curves["split"] == "test"]
    fifth = test[test["round"] == last // 5].groupby("method")["accuracy"].mean()
    lead = fifth["flt"] - fifth[["fedavg", "fedsem"]].max()
    claims.check(
        "After a fifth of the rounds (the paper's round 20) FLT leads FedAvg and FedSEM by tens of points",
        bool(lead >= 20),
        f"{lead:+.1f} points at round {last // 5}",
        claim="flt-text-round20",
    )
    final = test[test["round"] == test["round"].max()].groupby("method")["accuracy"].mean()
    gap = final["fedsem"] - final["fedavg"]
    claims.check(
        "FedSEM ends at FedAvg's level with the MLP (within 5 points)",
        bool(abs(gap) <= 5),
        f"{gap:+.1f} points",
        claim="flt-fig5-2",
    )


def _matrix_claims(claims: Claims, tidy: pd.DataFrame) -> None:
    rows = tidy[tidy["note"].str.match(r"M = \d+$") & (tidy["metric"] == "ari") & (tidy["variant"] == "as_written")]
    ari = rows.groupby("method")["value"].mean()
    if "flt" in ari:
        claims.check(
            "Figure 6: FLT's clusters are an almost perfect block diagonal (ARI 0.95 or more)",
            bool(ari["flt"] >= 0.95),
            ", ".join(f"{name} {value:.2f}" for name, value in ari.items()),
            claim="flt-fig6",
        )


def formation_claim(claims: Claims, labels_at: dict[int, np.ndarray], clusters: np.ndarray) -> None:
    """Note Figure 7's claim: FedSEM's cluster formation stops improving around round 15."""
    from ..metrics import adjusted_rand_index

    ari = {round: adjusted_rand_index(clusters, labels) for round, labels in sorted(labels_at.items())}
    if max(ari) < 30:
        claims.untestable(
            "Figure 7: FedSEM's clusters stop improving around round 15", "the run is too short", "flt-fig7"
        )
        return
    early, late = max(v for r, v in ari.items() if r <= 15), max(v for r, v in ari.items() if r > 15)
    claims.check(
        "Figure 7: FedSEM's clusters stop improving around round 15 (later rounds add at most 0.05 to the ARI)",
        bool(late <= early + 0.05),
        f"best ARI {early:.2f} up to round 15, {late:.2f} after; {ari[max(ari)]:.2f} at round {max(ari)}",
        claim="flt-fig7",
    )
