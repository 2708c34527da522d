"""Tests of FLT's claims about writers and structured data: scenarios 3 and 4."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ... import federations, metrics
from ...clustering import cuts
from .claim import Finding, NotTestedError, claim, needed
from .numbers import Numbers, ahead
from .words import joined, so_many

WRITERS = ("fedavg", "pca_km_hc", "ifca", "cfl", "fedsem")
"""Methods with which scenario 3 compares FLT."""
STRUCTURED = ("fedavg", "pca_km_hc", "fedsem")
"""Methods with which scenario 4 compares FLT."""
FORCED = ("flt", "flt_c2", "flt_c3", "flt_c5", "flt_c7")
"""FLT with its graph, and with the graph cut into clusters."""
SCENARIO_3 = {"tables": ("T3",)}
SCENARIO_4 = {"tables": ("T4",)}
BOTH_SPLITS = {"tables": ("T9", "T10")}
"""Tables with training and test accuracy of scenarios 3 and 4."""


# ---------------------------------------------------------------- scenario 3


@claim("flt-fig3", **SCENARIO_3, unit="groups", show="{:.0f}")
def two_groups_without_blocks(t: Numbers) -> Finding:
    """FEMNIST's graph has no sharp blocks, yet its dendrogram shows two groups.

    Two clusters count as sharp blocks if 95 % of the pairs inside and 5 % of the pairs
    across are linked. The largest gap between the heights of two merges gives the
    number of groups in the dendrogram, which is the number. Every seed is judged; of
    several the number is the mean.
    """
    found = needed(t.clusterings(method="flt"), "no clustering of the writers")
    seeds = pd.DataFrame([_two_groups(t.arrays(key)) for key in found["key"]])
    inside = seeds["inside"]
    across = seeds["across"]
    blurred = (inside < 0.95) | (across > 0.05)
    holds = blurred & (seeds["groups"] == 2)
    text = f"{joined(seeds['groups'], '{:.0f}')} groups; links: "
    text += f"{inside.mean():.0%} inside two, {across.mean():.0%} across"
    return Finding(
        number=seeds["groups"].mean(),
        holds=holds.tolist(),
        text=text,
    )


def _two_groups(kept: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the number of groups in a dendrogram, and the links if it is cut in two.

    Parameters
    ----------
    kept : dict
        Arrays of a clustering: ``adjacency`` (M, M), ``linkage`` (M - 1, 4).

    Returns
    -------
    dict
        ``groups`` by the largest gap between two merges; the share of pairs that are
        linked ``inside`` one of two clusters, and ``across`` both.
    """
    linked = kept["adjacency"].astype(bool)
    tree = kept["linkage"].astype(float)
    two = cuts.cut(tree, 2)
    same = np.equal.outer(two, two)
    itself = np.eye(len(two), dtype=bool)
    return {
        "groups": cuts.largest_gap(tree),
        "inside": linked[same & ~itself].mean(),
        "across": linked[~same].mean(),
    }


@claim("flt-t3-1", **SCENARIO_3, show="{:+.2f}")
def full_graph_is_ahead(t: Numbers) -> Finding:
    """FLT with the full graph leads every other method, each after its own rounds.

    Table 3 compares FLT with IFCA after 1,500 rounds. If a method has more rounds
    than FLT, the text also gives the lead after FLT's rounds, which does not count.

    The printed leads are 1.35 (MLP) and 0.50 points (CNN).
    """
    lead = t.lead("flt", *WRITERS)
    at_equal_rounds = ahead(t.at_last_round_of("flt", *WRITERS))
    text = f"{lead:+.2f}"
    if abs(at_equal_rounds - lead) >= 0.005:
        text += f"; {at_equal_rounds:+.2f} after FLT's rounds"
    return Finding(
        number=lead,
        holds=lead > 0,
        text=text,
    )


@claim("flt-t3-2", **SCENARIO_3)
def cutting_costs(t: Numbers) -> Finding:
    """Cutting FLT's graph into 2, 3 and 5 clusters lowers accuracy step by step.

    In print the steps are -1.3, -0.2, -0.6 (MLP) and -1.6, -0.8, -1.0 (CNN).
    """
    return _steps_down(t, *FORCED[:4])


@claim("flt-fig12", **SCENARIO_3)
def forcing_clusters_costs(t: Numbers) -> Finding:
    """Forcing clusters on FLT costs accuracy, and more clusters cost more.

    The figure adds seven clusters to the graphs of Table 3, and has no numbers.
    """
    return _steps_down(t, *FORCED)


def _steps_down(t: Numbers, *methods: str) -> Finding:
    """Judge that accuracy falls from method to method; the number is the highest step.

    A step is the next method's accuracy minus the previous one's.
    """
    accuracy = t.means(*methods)
    steps = np.diff(accuracy.to_numpy())
    highest = np.max(steps)
    return Finding(
        number=highest,
        holds=highest <= 0,
        text=f"steps {joined(steps, '{:+.1f}')}",
    )


@claim("flt-text-clustered", **SCENARIO_3)
def beats_clustered_methods(t: Numbers) -> Finding:
    """FLT beats PCA+kM+HC, IFCA, CFL and FedSEM, and FedSEM beats CFL (least lead).

    In print the least lead is 1.7 (MLP) and 0.7 points (CNN).
    """
    score = t.means("flt", "pca_km_hc", "ifca", "cfl", "fedsem")
    over_cfl = score["fedsem"] - score["cfl"]
    least = np.min([ahead(score), over_cfl])
    return Finding(least, least > 0)


@claim("flt-text-scenario3", **SCENARIO_3)
def leads_in_scenario_3(t: Numbers) -> Finding:
    """FLT leads PCA+kM+HC, IFCA, FedSEM by 2, 12, 1.5 (MLP), 2, 0.5, 2 (CNN).

    Within 1 point; the number is the largest deviation of a lead.

    The text (Sections 1, 4.5) rounds Table 3, which has 2.2, 12.9, 1.7 (MLP) and
    2.1, 0.7, 2.2 (CNN): a point covers the rounding.
    """
    others = ["pca_km_hc", "ifca", "fedsem"]
    said = [2, 12, 1.5] if t.model.startswith("mlp") else [2, 0.5, 2]
    score = t.means("flt", *others)
    leads = score["flt"] - score[others].to_numpy()
    off = np.max(np.abs(leads - said))
    return Finding(
        number=off,
        holds=off <= 1,
        text=joined(leads, "{:+.1f}"),
    )


@claim("flt-fig4-1", **SCENARIO_3)
def rises_fastest(t: Numbers) -> Finding:
    """FLT rises fastest: best on average over the first tenth of the rounds.

    The tenth is of FLT's rounds; the number is its lead there.

    The figure has no numbers. The mean over the first rounds is high for a curve that
    rises early, whatever its final accuracy.
    """
    curves = needed(t.curves("flt", *WRITERS), "it needs the curves of all methods")
    last = curves["flt"].last_valid_index()
    first_tenth = curves.loc[: last // 10]
    lead = ahead(first_tenth.mean())
    return Finding(lead, lead > 0)


@claim(
    "flt-fig4-2",
    **SCENARIO_3,
    models=("cnn",),
    show="{:.1f}",
    unit="times the rounds",
)
def ifca_needs_ten_times_the_rounds(t: Numbers) -> Finding:
    """IFCA needs ten times FLT's rounds for FLT's final accuracy less a point.

    If IFCA has not reached it in ten times the rounds, it needs more.

    A point is left off the final accuracy, as a curve that has converged reaches its
    last value only by chance.
    """
    flt = t.curve("flt").dropna()
    ifca = t.curve("ifca").dropna()
    if flt.empty or ifca.empty:
        raise NotTestedError("it needs the curves of FLT and IFCA")
    target = flt.iloc[-1] - 1
    needed_by_flt = flt.index[flt >= target].min()
    reached = ifca.index[ifca >= target]
    if len(reached):
        times = reached.min() / needed_by_flt
        return Finding(times, times >= 10)

    times = ifca.index.max() / needed_by_flt
    if times < 10:
        raise NotTestedError(
            f"IFCA has not come so far, but ran for {times:.1f} times only"
        )
    return Finding(
        number=times,
        holds=True,
        text=f"more than {times:.0f}",
    )


@claim("flt-fig10-1", **BOTH_SPLITS, unit="rank correlation", show="{:.2f}")
def same_order_in_training(t: Numbers) -> Finding:
    """The methods have the same order on training as on test data.

    Spearman's rank correlation of both must be 1.

    The printed tables do not have it throughout: their correlations are 0.50 and -0.30
    (Table 9), 1.00 and 1.00 (Table 10).
    """
    both = _both_splits(t)
    rho = both["train"].corr(both["test"], method="spearman")
    return Finding(rho, rho > 1 - 1e-9)


@claim("flt-fig10-2", **BOTH_SPLITS)
def training_is_above_test(t: Numbers) -> Finding:
    """Training accuracy is above test accuracy, method by method (least gap).

    In print it holds except for one method of Table 10 with the MLP.
    """
    both = _both_splits(t)
    gap = both["train"] - both["test"]
    least = np.min(gap.to_numpy())
    above = gap > 0
    return Finding(
        number=least,
        holds=above.tolist(),
        text=f"{so_many(above, 'methods')}, least {least:+.2f}",
    )


def _both_splits(t: Numbers) -> pd.DataFrame:
    """Return ``train`` and ``test`` accuracy by method after FLT's rounds."""
    methods = ["flt", *STRUCTURED]
    if t.table == "T9":  # it has no row of CFL
        methods.insert(3, "ifca")
    train = t.at_last_round_of(*methods, split="train")
    test = t.at_last_round_of(*methods)
    return pd.DataFrame({"train": train, "test": test})


# ---------------------------------------------------------------- scenario 4


@claim("flt-t4-1", **SCENARIO_4)
def wide_margin(t: Numbers) -> Finding:
    """FLT leads the best other method by 17 points or more.

    Table 4 prints 37.8 (MLP) and 17.5 points (CNN), the smaller of which sets the
    limit.
    """
    lead = t.lead("flt", *STRUCTURED)
    return Finding(lead, lead >= 17)


@claim("flt-text-scenario4", **SCENARIO_4)
def leads_in_scenario_4(t: Numbers) -> Finding:
    """FLT leads FedSEM by 40 points (MLP) and by 17 points (CNN), within 3.

    The number is the lead.

    Table 4 prints 43.0 and 17.5, so the text itself is 3 points off.
    """
    lead = t.lead("flt", "fedsem")
    said = 40 if t.model.startswith("mlp") else 17
    return Finding(lead, abs(lead - said) <= 3)


@claim("flt-fig5-1", **SCENARIO_4, unit="rounds", show="{:.0f}")
def converged_by_round_20(t: Numbers) -> Finding:
    """FLT has 98 % of its best accuracy by round 20 of 100.

    Runs of 20 rounds or fewer must have it after a fifth of them; the number is the
    first round.

    The figure has no numbers; 98 % of the best stands for "converged", as a curve moves
    as long as only a part of the clients is drawn for each round.
    """
    flt = t.curve("flt").dropna()
    if flt.empty:
        raise NotTestedError("it needs FLT's curve")
    enough = flt >= 0.98 * flt.max()
    there = flt.index[enough].min()
    last = flt.index.max()
    return Finding(
        number=there,
        holds=there <= _early(last),
        text=f"round {there} of {last}",
    )


def _early(last: int) -> int:
    """Return the round that corresponds to the paper's round 20 of 100."""
    return 20 if last > 20 else last // 5


@claim("flt-text-round20", **SCENARIO_4)
def far_ahead_at_round_20(t: Numbers) -> Finding:
    """FLT leads the other methods by 10 points or more at round 20.

    Runs of 20 rounds or fewer are judged after a fifth of them.

    The paper gives no number. Ten points are more than half of the smallest lead that
    Table 4 prints after all rounds, 17.5.
    """
    curves = t.curves("flt", *STRUCTURED)
    needed(curves, "it needs the curves of all methods")
    last = curves.index.max()
    by_then = curves.loc[: _early(last)]
    needed(by_then, "it needs the curves at a fifth of the rounds")
    lead = ahead(by_then.iloc[-1])
    return Finding(lead, lead >= 10)


@claim("flt-fig5-2", **SCENARIO_4, models=("mlp",))
def fedsem_is_no_better_than_fedavg(t: Numbers) -> Finding:
    """FedSEM is no better than FedAvg with the MLP (5 points at most).

    Table 4 prints FedSEM 3.0 points below FedAvg. A few points above still count as "no
    better": the paper contrasts it with the CNN, where they are 23.
    """
    gap = t.lead("fedsem", "fedavg")
    return Finding(gap, gap <= 5)


@claim("flt-fig5-3", **SCENARIO_4, models=("cnn",))
def fedsem_is_between(t: Numbers) -> Finding:
    """FedSEM is 5 points or more above FedAvg with the CNN, and below FLT.

    The number is its lead over FedAvg.

    Table 4 prints 22.6 points between them.
    """
    mean = t.means("fedsem", "fedavg", "flt")
    gap = mean["fedsem"] - mean["fedavg"]
    return Finding(gap, gap >= 5 and mean["fedsem"] < mean["flt"])


# ---------------------------------------------------------------- few clients

FIGURES_6_AND_7 = SCENARIO_4 | {"setting": {"n_clients": 240}}
WITH_FEW = {"n_clients": pd.notna}
"""The axis of runs with few clients."""


@claim("flt-fig6", **FIGURES_6_AND_7, unit="ARI", show="{:.2f}")
def ten_blocks(t: Numbers) -> Finding:
    """FLT's clusters are ten almost perfect blocks (ARI 0.9), the others' are not.

    The text's FLT must find ten clusters in every seed. The code has no clusters
    here, so the links of its graph are judged.
    """
    ari = t.means("flt", "fedsem", "pca_km_hc", measure="ari", **WITH_FEW)
    flt = ari["flt"]
    others = np.max(ari[["fedsem", "pca_km_hc"]].to_numpy())
    if np.isnan(others):
        raise NotTestedError("the three methods were not run with few clients")
    if others >= 0.9:
        return Finding(
            number=flt,
            holds=False,
            text=f"{flt:.2f}; others {others:.2f}",
        )
    if t.variant == "as_run":
        return _linked_blocks(t)
    n_clusters = t.seeds("flt", "n_clusters", **WITH_FEW)
    return Finding(flt, flt >= 0.9 and (n_clusters == 10).all())


def _linked_blocks(t: Numbers) -> Finding:
    """Judge the links of FLT's graph: the code has no clusters here, only the graph."""
    graphs = t.clusterings(method="flt", **WITH_FEW)
    needed(graphs, "the graph of few clients was not kept")
    inside = graphs["links_inside"].mean()
    across = graphs["links_across"].mean()
    return Finding(
        number=inside,
        holds=[inside >= 0.9, across == 0],
        text=f"links: {inside:.0%} inside, {across:.0%} across",
    )


@claim("flt-fig7", **FIGURES_6_AND_7, unit="ARI", show="{:+.2f}")
def fedsem_stops_improving(t: Numbers) -> Finding:
    """FedSEM's clusters stop improving by round 15 and end slightly worse.

    After round 15 the ARI rises by at most 0.05; the number, the ARI lost from round 15
    to the last round, is at most 0.15.

    The figure has no numbers: 0.05 and 0.15 of the ARI stand for "no better" and
    "slightly worse".
    """
    by_round = _aris_by_round(t, "fedsem")
    if by_round.empty or by_round.index.max() < 30:
        raise NotTestedError(
            "the clusters of each round were not kept, or too few rounds"
        )
    then = by_round.loc[15]
    later = by_round.loc[16:].max()
    end = by_round.iloc[-1]
    text = f"{then:.2f} at round 15, then {later:.2f} at most, {end:.2f} at the end"
    if later > then + 0.05:
        return Finding(
            number=end - then,
            holds=False,
            text=text,
        )
    slightly_worse = 0 < then - end <= 0.15
    return Finding(
        number=end - then,
        holds=[True, slightly_worse],
        text=text,
    )


def _aris_by_round(t: Numbers, method: str) -> pd.Series:
    """Return the ARI of a method with few clients by round, mean over its seeds."""
    runs = t.trainings(method, **WITH_FEW)
    clients = t.clients(method, **WITH_FEW)
    if runs.empty or clients.empty:
        raise NotTestedError("FedSEM was not run with few clients")
    by_client = clients.sort_values("client")
    points = []
    for key in runs["key"]:
        true = by_client["true_cluster"][by_client["key"] == key]
        for round, labels in t.labels_by_round(key).items():
            ari = metrics.adjusted_rand_index(true, labels)
            points.append((round, ari))
    found = pd.DataFrame(points, columns=["round", "ari"])
    return found.groupby("round")["ari"].mean()


@claim(
    "flt-text-10clusters",
    **FIGURES_6_AND_7,
    unit="share of partitions",
    show="{:.0%}",
)
def finds_ten_clusters(t: Numbers) -> Finding:
    """FLT finds the ten clusters by itself, by one of two rules for the cut.

    Ten clusters with an ARI of 0.98 count as right. The number is the better rule's
    share of right partitions: with 1 the claim agrees, with 0 it disagrees.
    """
    found = needed(_own_cuts(t), "no clustering of the structured federation")
    n_clusters = found["n_clusters"]
    ari = found["ari"]
    right = (n_clusters == 10) & (ari >= 0.98)
    best = right.groupby(found["cut"]).mean().max()
    holds = [best == 1, right.any()]
    text = f"{best:.0%} right; {n_clusters.min():.0f} to {n_clusters.max():.0f} "
    text += f"clusters, ARI {ari.min():.2f} to {ari.max():.2f}"
    return Finding(
        number=best,
        holds=holds,
        text=text,
    )


def _own_cuts(t: Numbers) -> pd.DataFrame:
    """Return the clusters that FLT found without knowing their number.

    Columns: ``cut``, the rule; ``n_clusters, ari``.
    """
    found = t.study("cuts")
    if found.empty:
        clusterings = t.clusterings(method="flt", **WITH_FEW)
        return clusterings.assign(cut="modularity")
    told = found["cut"].str.contains("C given")
    own_variant = found["variant"] == t.variant  # one study has both
    return found[own_variant & ~told]


@claim("flt-text-smallest", whole=True, unit="images", show="{:.0f}")
def smallest_clients(t: Numbers) -> Finding:
    """Some clients hold about 20 images (15 to 25), and none holds fewer.

    EMNIST Balanced has 2,400 training images per class. 2,400 clients form ten
    clusters: nine with five classes, and one with two.
    """
    images = {"nine clusters": 5 * 2400, "the tenth": 2 * 2400}
    smallest = {}
    for name, number in images.items():
        sizes = federations.power_law_sizes(number, 240)
        smallest[name] = int(sizes.min())
    return about_twenty(smallest)


def about_twenty(smallest: dict[str, int]) -> Finding:
    """Judge the sizes of the smallest clients: about 20, neither more nor less."""
    least = min(smallest.values())
    said = [f"{size} in {name}" for name, size in smallest.items()]
    return Finding(
        number=least,
        holds=[least <= 25, least >= 15],
        text=", ".join(said),
    )
