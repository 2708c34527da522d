"""Tests of FLT's claims about writers and structured data: scenarios 3 and 4."""

import numpy as np
import pandas as pd

from ... import clustering, federations, metrics
from .claim import Finding, claim, not_tested
from .numbers import Numbers, ahead

WRITERS = ("fedavg", "pca_km_hc", "ifca", "cfl", "fedsem")
"""Methods with which scenario 3 compares FLT."""
STRUCTURED = ("fedavg", "pca_km_hc", "fedsem")
"""Methods with which scenario 4 compares FLT."""
FORCED = ("flt", "flt_c2", "flt_c3", "flt_c5", "flt_c7")
"""FLT with its graph, and with the graph cut into clusters."""
FEW = {"n_clients": 240}
"""Clients of Figures 6 and 7."""


# ---------------------------------------------------------------- scenario 3


@claim("flt-fig3", tables=("T3",), unit="groups", show="{:.0f}")
def two_groups_without_blocks(t: Numbers) -> Finding:
    """FEMNIST's graph has no sharp blocks, yet its dendrogram shows two groups."""
    found = t.clusterings(method="flt")
    if found.empty:
        return not_tested("no clustering of the writers")
    kept = t.arrays(found["key"].iloc[0])
    linked, tree = kept["adjacency"].astype(bool), kept["linkage"].astype(float)

    group = clustering.cuts.cut(tree, 2)
    same = group[:, None] == group
    inside = linked[same & ~np.eye(len(group), dtype=bool)].mean()
    across = linked[~same].mean()
    blurred = inside < 0.95 or across > 0.05

    # the largest gap between the heights of two merges leaves so many groups
    groups = len(tree) - int(np.argmax(np.diff(tree[:, 2])))
    text = f"{groups} groups; links: {inside:.0%} inside two, {across:.0%} across"
    return Finding(groups, blurred and groups == 2, text)


@claim("flt-t3-1", tables=("T3",), show="{:+.2f}")
def full_graph_is_ahead(t: Numbers) -> Finding:
    """FLT with the full graph leads every other method after FLT's rounds."""
    lead = ahead(t.at_last_round_of("flt", *WRITERS))
    return Finding(lead, lead > 0)


@claim("flt-t3-2", tables=("T3",))
def cutting_costs(t: Numbers) -> Finding:
    """Cutting FLT's graph into 2, 3 and 5 clusters lowers accuracy step by step."""
    return _steps_down(t.means(*FORCED[:4]))


@claim("flt-fig12", tables=("T3",))
def forcing_clusters_costs(t: Numbers) -> Finding:
    """Forcing clusters on FLT costs accuracy, and more clusters cost more."""
    return _steps_down(t.means(*FORCED))


def _steps_down(accuracy: pd.Series) -> Finding:
    """Judge that numbers fall from one to the next, by the highest of the steps."""
    steps = np.diff(accuracy.to_numpy())
    text = f"steps {', '.join(f'{step:+.1f}' for step in steps)}"
    return Finding(np.max(steps), np.max(steps) <= 0, text)


@claim("flt-text-clustered", tables=("T3",))
def beats_clustered_methods(t: Numbers) -> Finding:
    """FLT beats PCA+kM+HC, IFCA, CFL and FedSEM, and FedSEM beats CFL (least lead)."""
    score = t.at_last_round_of("flt", "pca_km_hc", "ifca", "cfl", "fedsem")
    least = np.min([ahead(score), score["fedsem"] - score["cfl"]])
    return Finding(least, least > 0)


@claim("flt-text-scenario3", tables=("T3",))
def leads_in_scenario_3(t: Numbers) -> Finding:
    """FLT leads PCA+kM+HC, IFCA, FedSEM by 2, 12, 1.5 (MLP), 2, 0.5, 2 (CNN)."""
    others = ["pca_km_hc", "ifca", "fedsem"]
    mlp = t.model.startswith("mlp")
    said = np.array([2, 12, 1.5] if mlp else [2, 0.5, 2])
    score = t.at_last_round_of("flt", *others)
    leads = score["flt"] - score[others].to_numpy()
    off = np.max(np.abs(leads - said))
    text = ", ".join(f"{lead:+.1f}" for lead in leads)
    return Finding(off, off <= 1, text)


@claim("flt-fig4-1", tables=("T3",))
def rises_fastest(t: Numbers) -> Finding:
    """FLT rises fastest: best on average over the first tenth of the rounds."""
    curves = t.curves("flt", *WRITERS)
    if curves.empty:
        return not_tested("it needs the curves of all methods")
    last = curves["flt"].last_valid_index()
    lead = ahead(curves.loc[: last // 10].mean())
    return Finding(lead, lead > 0)


@claim(
    "flt-fig4-2",
    models=("cnn",),
    tables=("T3",),
    show="{:.1f}",
    unit="times the rounds",
)
def ifca_needs_ten_times_the_rounds(t: Numbers) -> Finding:
    """IFCA needs ten times FLT's rounds for FLT's final accuracy less a point."""
    flt, ifca = t.curve("flt").dropna(), t.curve("ifca").dropna()
    if flt.empty or ifca.empty:
        return not_tested("it needs the curves of FLT and IFCA")
    target = flt.iloc[-1] - 1
    needed = flt.index[flt >= target].min()
    reached = ifca.index[ifca >= target]
    if len(reached):
        times = reached.min() / needed
        return Finding(times, times >= 10)
    times = ifca.index.max() / needed
    if times < 10:
        return not_tested(
            f"IFCA has not come so far, but ran for {times:.1f} times only"
        )
    return Finding(times, True, f"more than {times:.0f}")


@claim("flt-fig10-1", tables=("T9", "T10"), unit="rank correlation", show="{:.2f}")
def same_order_in_training(t: Numbers) -> Finding:
    """The methods have the same order on training as on test data."""
    train, test = _both_splits(t)
    rho = train.corr(test, method="spearman")
    return Finding(rho, rho > 1 - 1e-9)


@claim("flt-fig10-2", tables=("T9", "T10"))
def training_is_above_test(t: Numbers) -> Finding:
    """Training accuracy is above test accuracy for every method (least gap)."""
    train, test = _both_splits(t)
    least = np.min((train - test).to_numpy())
    return Finding(least, least > 0)


def _both_splits(t: Numbers) -> tuple[pd.Series, pd.Series]:
    """Return training and test accuracy of a table's methods after FLT's rounds."""
    # CFL has no row in Table 9
    others = (
        ["fedavg", "pca_km_hc", "ifca", "fedsem"] if t.table == "T9" else STRUCTURED
    )
    train = t.at_last_round_of("flt", *others, split="train")
    return train, t.at_last_round_of("flt", *others)


# ---------------------------------------------------------------- scenario 4


@claim("flt-t4-1", tables=("T4",))
def wide_margin(t: Numbers) -> Finding:
    """FLT leads the best other method by 17 points or more."""
    lead = ahead(t.means("flt", *STRUCTURED))
    return Finding(lead, lead >= 17)


@claim("flt-text-scenario4", tables=("T4",))
def leads_in_scenario_4(t: Numbers) -> Finding:
    """FLT leads FedSEM by 40 points (MLP) and by 17 points (CNN), within 3."""
    lead = ahead(t.means("flt", "fedsem"))
    said = 40 if t.model.startswith("mlp") else 17
    return Finding(lead, abs(lead - said) <= 3)


@claim("flt-fig5-1", tables=("T4",), unit="rounds", show="{:.0f}")
def converged_by_round_20(t: Numbers) -> Finding:
    """FLT has 98 % of its best accuracy by round 20 of 100."""
    flt = t.curve("flt").dropna()
    if flt.empty:
        return not_tested("it needs FLT's curve")
    there = flt.index[flt >= 0.98 * flt.max()].min()
    last = flt.index.max()
    return Finding(there, there <= _early(last), f"round {there} of {last}")


def _early(last: int) -> int:
    """Return the round that stands for the paper's round 20 of 100."""
    return 20 if last > 20 else last // 5


@claim("flt-text-round20", tables=("T4",))
def far_ahead_at_round_20(t: Numbers) -> Finding:
    """FLT leads the other methods by 10 points or more at round 20."""
    curves = t.curves("flt", *STRUCTURED)
    if curves.empty:
        return not_tested("it needs the curves of all methods")
    by_then = curves.loc[: _early(curves.index.max())]
    if by_then.empty:
        return not_tested("it needs the curves at a fifth of the rounds")
    lead = ahead(by_then.iloc[-1])
    return Finding(lead, lead >= 10)


@claim("flt-fig5-2", models=("mlp",), tables=("T4",))
def fedsem_is_no_better_than_fedavg(t: Numbers) -> Finding:
    """FedSEM is no better than FedAvg with the MLP (5 points at most)."""
    gap = ahead(t.means("fedsem", "fedavg"))
    return Finding(gap, gap <= 5)


@claim("flt-fig5-3", models=("cnn",), tables=("T4",))
def fedsem_is_between(t: Numbers) -> Finding:
    """FedSEM is 5 points or more above FedAvg with the CNN, and below FLT."""
    mean = t.means("fedsem", "fedavg", "flt")
    gap = mean["fedsem"] - mean["fedavg"]
    return Finding(gap, gap >= 5 and mean["fedsem"] < mean["flt"])


@claim("flt-fig6", tables=("T4",), unit="ARI", show="{:.2f}", setting=FEW)
def ten_blocks(t: Numbers) -> Finding:
    """FLT's clusters are ten almost perfect blocks (ARI 0.9), the others' are not."""
    few = {"n_clients": pd.notna}
    ari = t.means("flt", "fedsem", "pca_km_hc", measure="ari", **few)
    others = np.max(ari[["fedsem", "pca_km_hc"]].to_numpy())
    if np.isnan(others):
        return not_tested("the three methods were not run with few clients")
    if others >= 0.9:
        return Finding(ari["flt"], False, f"{ari['flt']:.2f}; others {others:.2f}")
    if t.variant != "as_run":
        right = (t.seeds("flt", "n_clusters", **few) == 10).all()
        return Finding(ari["flt"], ari["flt"] >= 0.9 and right)

    # the code has no clusters here, only the graph
    graphs = t.clusterings(method="flt", **few)
    if graphs.empty:
        return not_tested("the graph of few clients was not kept")
    inside, across = graphs["links_inside"].mean(), graphs["links_across"].mean()
    text = f"links: {inside:.0%} inside, {across:.0%} across"
    return Finding(inside, [inside >= 0.9, across == 0], text)


@claim("flt-fig7", tables=("T4",), unit="ARI", show="{:+.2f}", setting=FEW)
def fedsem_stops_improving(t: Numbers) -> Finding:
    """FedSEM's clusters stop improving by round 15 and end slightly worse."""
    runs = t.trainings("fedsem", n_clients=pd.notna)
    clients = t.clients("fedsem", n_clients=pd.notna)
    if runs.empty or clients.empty:
        return not_tested("FedSEM was not run with few clients")
    key = runs["key"].iloc[0]
    truth = clients[clients["key"] == key].sort_values("client")["true_cluster"]
    ari = {}
    for name, labels in t.arrays(key).items():
        if name.startswith("labels_at/"):
            ari[int(name.split("/")[1])] = metrics.adjusted_rand_index(truth, labels)
    by_round = pd.Series(ari, dtype=float).sort_index()
    if by_round.empty or by_round.index.max() < 30:
        return not_tested("the clusters of each round were not kept, or too few rounds")

    then, end = by_round.loc[15], by_round.iloc[-1]
    later = by_round.loc[16:].max()
    stopped = later <= then + 0.05
    slightly_worse = 0 < then - end <= 0.15
    text = f"{then:.2f} at round 15, then {later:.2f} at most, {end:.2f} at the end"
    return Finding(end - then, [True, slightly_worse] if stopped else False, text)


@claim(
    "flt-text-10clusters",
    tables=("T4",),
    unit="share of partitions",
    show="{:.0%}",
    setting=FEW,
)
def finds_ten_clusters(t: Numbers) -> Finding:
    """FLT finds the ten clusters by itself, by one of two rules for the cut."""
    found = t.study("cuts")
    if found.empty:
        found = t.clusterings(method="flt", n_clients=pd.notna).assign(cut="modularity")
    else:  # one study has both variants
        found = found[found["variant"] == t.variant]
        found = found[~found["cut"].str.contains("C given")]
    if found.empty:
        return not_tested("no clustering of the structured federation")

    right = (found["n_clusters"] == 10) & (found["ari"] >= 0.98)
    share = right.groupby(found["cut"]).mean()
    fewest, most = found["n_clusters"].min(), found["n_clusters"].max()
    low, high = found["ari"].min(), found["ari"].max()
    text = f"{share.max():.0%} right; {fewest:.0f} to {most:.0f} clusters, "
    text += f"ARI {low:.2f} to {high:.2f}"
    every, some = share.max() == 1, right.any()
    return Finding(share.max(), [True, False] if some and not every else every, text)


@claim("flt-text-smallest", whole=True, unit="images", show="{:.0f}")
def smallest_clients(t: Numbers) -> Finding:
    """Some clients hold about 20 images (15 to 25), and none holds fewer."""
    # EMNIST Balanced has 2,400 training images a class; 2,400 clients, ten clusters
    images = {"nine clusters": 5 * 2400, "the tenth": 2 * 2400}
    return about_twenty(
        {
            name: int(federations.power_law_sizes(number, 240).min())
            for name, number in images.items()
        }
    )


def about_twenty(smallest: dict[str, int]) -> Finding:
    """Judge the sizes of the smallest clients: down to 20, neither more nor less."""
    least = min(smallest.values())
    text = ", ".join(f"{size} in {name}" for name, size in smallest.items())
    return Finding(least, [least <= 25, least >= 15], text)
