"""Tests of FeSEM's claims."""

from itertools import pairwise

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, permutation_test

from ...federations.writers import STYLE, writer_styles
from ..settings import run_setting
from .claim import Finding, claim, not_tested
from .numbers import Numbers, ahead

BASELINES = (
    *("nofed", "fedsgd", "fedavg", "feddist", "feddist_ws", "robust_tkm"),
    *("fedcluster", "hypocluster_3", "feddane", "fedprox"),
)
"""Methods with which Tables 2 and 3 compare FeSEM."""
CENTRES = ("fesem_2", "fesem_3", "fesem_4")
"""FeSEM by its number of centres."""
FOUR = ("micro", "accuracy", "micro_f1", "macro_f1")
"""The measures of Tables 2 and 3: micro and macro accuracy, micro and macro F1."""
TABLES = ("T2", "T3")
FEMNIST, CELEBA = ("femnist",), ("fedceleba",)
TEXT = ("as_written",)
"""The code reports its best centre on all clients, so that only the text is judged."""


def steps(t: Numbers, *measures: str) -> np.ndarray:
    """Return what each further centre adds, of all measures."""
    each = [np.diff(t.means(*CENTRES, measure=measure)) for measure in measures]
    return np.concatenate(each)


def gains(t: Numbers, *measures: str) -> pd.DataFrame:
    """Return what neuron matching adds at three centres: seed x measure."""
    found = {}
    for measure in measures:
        both = t.by_seed("fesem_ma_3", "fesem_3", measure=measure)
        found[measure] = both["fesem_ma_3"] - both["fesem_3"]
    return pd.DataFrame(found)


def _leads_all(t: Numbers) -> Finding:
    """Judge FeSEM(4) against all baselines, in micro and macro accuracy."""
    leads = [ahead(t.means("fesem_4", *BASELINES, measure=one)) for one in FOUR[:2]]
    text = f"micro {leads[0]:+.1f}, macro {leads[1]:+.1f}"
    return Finding(np.min(leads), min(leads) > 0, text)


@claim("fesem-t1", tables=("T1",), unit="samples", show="{:,.0f}")
def sizes_of_the_data(t: Numbers) -> Finding:
    """FEMNIST and FedCelebA have the printed samples, devices and classes."""
    sizes = {"femnist": [805263, 3550, 62], "fedceleba": [200288, 9343, 2]}
    if t.dataset not in sizes:
        return not_tested("LEAF's files are not at hand")
    names = ["num_samples", "num_clients", "num_classes"]
    if t.printed:
        found = t.trainings("").iloc[0]
    else:
        table = t.study("printed", study="statistics")
        if table.empty:
            return not_tested("the samples were not counted")
        found = table.set_index("metric")["value"]
    equal = [
        found[name] == size for name, size in zip(names, sizes[t.dataset], strict=True)
    ]
    return Finding(found["num_samples"], equal)


@claim("fesem-t2-1", data=FEMNIST, tables=TABLES)
def leads_on_femnist(t: Numbers) -> Finding:
    """FeSEM(4) beats every baseline in micro and macro accuracy (FEMNIST)."""
    return _leads_all(t)


@claim("fesem-t3-1", data=CELEBA, tables=TABLES)
def leads_on_celeba(t: Numbers) -> Finding:
    """FeSEM(4) beats every baseline in micro and macro accuracy (FedCelebA)."""
    return _leads_all(t)


@claim("fesem-t2-2", data=FEMNIST, tables=TABLES)
def grows_with_centres(t: Numbers) -> Finding:
    """Accuracies and micro F1 grow with K = 2, 3, 4 (least step)."""
    least = np.min(steps(t, *FOUR[:3]))
    return Finding(least, least > 0)


@claim("fesem-t2-3", data=FEMNIST, tables=TABLES)
def matching_raises_all(t: Numbers) -> Finding:
    """Neuron matching at K = 3 raises all four measures, in most seeds (least)."""
    added = gains(t, *FOUR, "pooled_f1")
    macro = (added[list(FOUR)] > 0).all(axis=1).mean()
    pooled = (added[[*FOUR[:3], "pooled_f1"]] > 0).all(axis=1).mean()
    least = np.min(added[list(FOUR)].mean().to_numpy())
    return Finding(least, max(macro, pooled) > 0.5)


@claim("fesem-t3-2", data=CELEBA, tables=TABLES)
def matching_raises_macro_f1(t: Numbers) -> Finding:
    """Neuron matching at K = 3 raises macro F1 and no other measure."""
    added = gains(t, *FOUR).mean()
    others = np.max(added[list(FOUR[:3])].to_numpy())
    text = ", ".join(f"{value:+.2f}" for value in added)
    gain = added["macro_f1"] if others == others else np.nan
    return Finding(gain, gain > 0 and others <= 0, text)


@claim("fesem-text-best", tables=TABLES, unit="of 4 measures", show="{:.0f}")
def best_in_most_cases(t: Numbers) -> Finding:
    """A row of FeSEM is the best in most of the four measures."""
    rows = (*BASELINES, *CENTRES, "fesem_ma_3")
    won = 0
    for measure in FOUR:
        score = t.means(*rows, measure=measure)
        if score.isna().any():
            return not_tested("not all rows were run")
        won += score.idxmax().startswith("fesem")
    return Finding(won, won > 2)


@claim("fesem-text-clusters", variants=TEXT, tables=TABLES)
def more_centres_are_better(t: Numbers) -> Finding:
    """Micro accuracy grows with the number of centres (least step)."""
    least = np.min(steps(t, "micro"))
    return Finding(least, least >= 0)


@claim("fesem-text-matching", tables=TABLES, show="{:+.2f}")
def matching_is_level_or_worse(t: Numbers) -> Finding:
    """FeSEM-MA(3) is level with FeSEM(3), or worse (0.5 points at most)."""
    most = np.max(gains(t, *FOUR[:2]).mean().to_numpy())
    return Finding(most, most <= 0.5)


@claim("fesem-text-baselines", data=FEMNIST, tables=TABLES)
def plain_baselines_beat_clustered(t: Numbers) -> Finding:
    """NoFed and FedAvg are better than some clustered baseline."""
    clustered = ["robust_tkm", "fedcluster", "hypocluster_3"]
    score = t.means("nofed", "fedavg", *clustered, measure="micro")
    worst = np.min(score[clustered].to_numpy())
    over = [score["nofed"] - worst, score["fedavg"] - worst]
    text = f"NoFed {over[0]:+.1f}, FedAvg {over[1]:+.1f} over the worst of them"
    return Finding(np.min(over), [lead > 0 for lead in over], text)


@claim("fesem-text-weights", data=CELEBA, tables=TABLES)
def weights_by_samples_help(t: Numbers) -> Finding:
    """Weights by samples raise FeSEM's micro F1."""
    weighed = t.mean("fesem_3", "micro_f1", weighting="samples")
    gain = weighed - t.mean("fesem_3", "micro_f1")
    return Finding(gain, gain > 0)


# ---------------------------------------------------------------- figures


def long_curves(t: Numbers) -> pd.DataFrame:
    """Return micro accuracy by round of the longest runs: round x centres."""
    long = t.curves(*CENTRES, measure="micro", rounds=pd.notna)
    return long if len(long) else t.curves(*CENTRES, measure="micro")


@claim("fesem-fig3-1", data=FEMNIST, variants=TEXT, tables=TABLES)
def converged_after_100_rounds(t: Numbers) -> Finding:
    """FeSEM has converged: 1 point at most in the last fifth of 100 rounds."""
    curves = long_curves(t)
    if curves.empty or curves.index.max() < 100:
        return not_tested("fewer than 100 rounds were run")
    before = curves.index[curves.index <= 0.8 * curves.index.max()].max()
    most = (curves.iloc[-1] - curves.loc[before]).abs().max()
    return Finding(most, most <= 1)


@claim("fesem-fig3-2", data=FEMNIST, variants=TEXT, tables=TABLES)
def four_centres_end_highest(t: Numbers) -> Finding:
    """FeSEM ends with the highest micro accuracy at K = 4."""
    curves = long_curves(t)
    if curves.empty or curves.index.max() < 100:
        return not_tested("fewer than 100 rounds were run")
    lead = ahead(curves.iloc[-1][["fesem_4", "fesem_2", "fesem_3"]])
    return Finding(lead, lead > 0)


@claim(
    "fesem-fig4-1",
    data=FEMNIST,
    variants=TEXT,
    tables=TABLES,
    unit="silhouette",
    show="{:.2f}",
)
def four_groups_of_models(t: Numbers) -> Finding:
    """Models of FeSEM(4) form four groups, farther apart than random ones."""
    found = t.study("separation", study="local_models")
    if found.empty:
        return not_tested("the clients' models were not kept")
    drawn = found["grouping"] == "random"
    own, random = found[~drawn], found[drawn]
    first = own[own["round"] == own["round"].min()].iloc[0]
    last = own[own["round"] == own["round"].max()].iloc[0]
    four = len(last["sizes"].split(", ")) == 4
    holds = four and first["in the plane"] >= 0.25
    text = f"{first['in the plane']:.2f} in the plane in round {first['round']}, "
    text += f"{last['silhouette']:.2f} in round {last['round']}"
    if len(random):
        apart = random[random["round"] == random["round"].max()]["silhouette"].iloc[0]
        holds = holds and last["silhouette"] >= apart + 0.1
        text += f", random groups {apart:.2f}"
    return Finding(last["silhouette"], holds, f"{text}, sizes {last['sizes']}")


@claim(
    "fesem-fig4-2",
    data=FEMNIST,
    variants=TEXT,
    tables=TABLES,
    unit="of the clients",
    show="{:.0%}",
)
def clusters_settle(t: Numbers) -> Finding:
    """After round 10 at most 5 % of the clients change cluster in any round."""
    late = []
    for key in t.trainings(*CENTRES)["key"]:
        formed = {}
        for name, labels in t.arrays(key).items():
            if name.startswith("labels_at/"):
                formed[int(name.split("/")[1])] = labels
        rounds = sorted(formed)
        for before, now in pairwise(rounds):
            if now > 10:
                late.append((formed[before] != formed[now]).mean())
    if not late:
        return not_tested("the clusters of rounds beyond the tenth were not kept")
    return Finding(max(late), max(late) <= 0.05)


@claim(
    "fesem-fig5-1",
    data=FEMNIST,
    variants=TEXT,
    tables=TABLES,
    unit="of the seeds",
    show="{:.0%}",
)
def clusters_are_hands(t: Numbers) -> Finding:
    """FeSEM(2)'s clusters differ in stroke width or size, in most seeds."""
    told = []
    runs = t.trainings("fesem_2")
    if runs.empty or not t.dataset.startswith("pseudo"):
        return not_tested("the hands of these writers were not measured")
    for key in runs["key"]:
        clients = t.clients("fesem_2")
        clients = clients[clients["key"] == key].sort_values("client")
        p = _by_chance(run_setting(t.record(key)), clients["cluster"].to_numpy())
        if p is not None:
            told.append(p < 0.05 / 2)  # two attributes are looked at
    if not told:
        return not_tested("the two clusters are too uneven to tell")
    share = np.mean(told)
    return Finding(share, share > 0.5)


def _by_chance(setting: dict, cluster: np.ndarray, least: int = 5) -> float | None:
    """Return the lower p-value of stroke width and size; None for a small cluster."""
    first = cluster == cluster[0] if len(cluster) else cluster
    if min(first.sum(), (~first).sum()) < least or "n_clients" not in setting:
        return None
    how = (setting["n_clients"], setting.get("seed", 0), setting.get("strength", 1.0))
    styles = dict(zip(STYLE, writer_styles(*how).T, strict=True))

    def apart(one: np.ndarray, other: np.ndarray) -> float:
        return one.mean() - other.mean()

    found = []
    for name in ("width", "size"):
        groups = styles[name][first], styles[name][~first]
        found.append(permutation_test(groups, apart, n_resamples=4999, rng=0).pvalue)
    return min(found)


@claim("fesem-fig5-2", data=CELEBA, tables=TABLES)
def clusters_are_ages(t: Numbers) -> Finding:
    """FeSEM(2)'s clusters of FedCelebA are younger and older faces."""
    return not_tested("a judgement of the eye on pictures that may not be handed on")


@claim(
    "fesem-text-choosing",
    data=FEMNIST,
    variants=TEXT,
    tables=TABLES,
    unit="tau",
    show="{:.2f}",
)
def short_runs_rank_centres(t: Numbers) -> Finding:
    """A short run of few clients ranks K as the long run does (tau 0.7)."""
    short = t.study("short", study="choosing_k")
    numbers = [f"fesem_{K}" for K in range(1, 10)]
    long = t.trainings(*numbers, rounds=pd.notna)
    if len(long) < 3:
        long = t.trainings(*numbers)
    if short.empty or len(long) < 3:
        return not_tested("the numbers of centres were not ranked")
    long = long[long["seed"] == long["seed"].min()]
    micro = long.set_index(long["method"].str[6:].astype(int))["micro"].sort_index()
    if micro.max() - micro.min() < 2:
        return not_tested("the long run has nothing to rank: within 2 points")

    mean = {}
    for name, sign in (("accuracy", 1), ("inside", -1)):
        each = []
        for _, own in short.groupby("draw"):
            ranked = sign * own.set_index("K")[name].reindex(micro.index)
            each.append(kendalltau(ranked, micro).statistic)
        mean[name] = np.mean(each)
    text = f"{mean['accuracy']:.2f} by accuracy, {mean['inside']:.2f} by distance"
    return Finding(mean["accuracy"], [tau >= 0.7 for tau in mean.values()], text)
