"""Tests of FeSEM's claims.

"Micro" is the accuracy over all samples, "macro" the mean over clients.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, permutation_test

from ...federations.writers import STYLE, writer_styles
from ..settings import run_setting
from .claim import Finding, NotTestedError, claim, complete, needed
from .numbers import Numbers
from .words import joined, so_many

BASELINES = (
    "nofed",
    "fedsgd",
    "fedavg",
    "feddist",
    "feddist_ws",
    "robust_tkm",
    "fedcluster",
    "hypocluster_3",
    "feddane",
    "fedprox",
)
"""Methods with which Tables 2 and 3 compare FeSEM."""
CENTRES = ("fesem_2", "fesem_3", "fesem_4")
"""FeSEM by its number of centres."""
FOUR = ("micro", "accuracy", "micro_f1", "macro_f1")
"""The measures of Tables 2 and 3: micro and macro accuracy, micro and macro F1."""
ACCURACIES = ("micro", "accuracy")
ALL_BUT_MACRO_F1 = ("micro", "accuracy", "micro_f1")

ANYWHERE = {"tables": ("T2", "T3")}
FEMNIST = {"data": ("femnist",), "tables": ("T2", "T3")}
CELEBA = {"data": ("fedceleba",), "tables": ("T2", "T3")}
TEXT = ("as_written",)
"""The code reports its best centre on all clients, so only the text is judged."""


# ---------------------------------------------------------------- tables

SIZES = {
    "femnist": {"num_samples": 805263, "num_clients": 3550, "num_classes": 62},
    "fedceleba": {"num_samples": 200288, "num_clients": 9343, "num_classes": 2},
}
"""The numbers of Table 1."""


@claim("fesem-t1", tables=("T1",), unit="samples", show="{:,.0f}")
def sizes_of_the_data(t: Numbers) -> Finding:
    """FEMNIST and FedCelebA have the printed samples, devices and classes.

    The number is the number of samples.
    """
    if t.dataset not in SIZES:
        raise NotTestedError("LEAF's files are not at hand")
    if t.printed:
        found = t.trainings("").iloc[0]
    else:
        table = t.study("printed", study="statistics")
        needed(table, "the samples were not counted")
        found = table.set_index("metric")["value"]
    printed = SIZES[t.dataset]
    equal = [found[name] == size for name, size in printed.items()]
    return Finding(found["num_samples"], equal)


def _leads_all(t: Numbers) -> Finding:
    """Compare FeSEM(4) with all baselines, in micro and macro accuracy.

    The number is the lower lead.
    """
    micro = t.lead("fesem_4", *BASELINES, measure="micro")
    macro = t.lead("fesem_4", *BASELINES)
    least = np.min([micro, macro])
    return Finding(
        number=least,
        holds=least > 0,
        text=f"micro {micro:+.1f}, macro {macro:+.1f}",
    )


@claim("fesem-t2-1", **FEMNIST)
def leads_on_femnist(t: Numbers) -> Finding:
    """FeSEM(4) beats every baseline in micro and macro accuracy (FEMNIST).

    Table 2 prints leads of 5.4 (micro) and 6.1 points (macro).
    """
    return _leads_all(t)


@claim("fesem-t3-1", **CELEBA)
def leads_on_celeba(t: Numbers) -> Finding:
    """FeSEM(4) beats every baseline in micro and macro accuracy (FedCelebA).

    Table 3 prints leads of 3.5 (micro) and 4.0 points (macro).
    """
    return _leads_all(t)


def least_step(t: Numbers, *measures: str) -> float:
    """Return the smallest gain of a further centre over all measures."""
    steps = []
    for measure in measures:
        by_centres = t.means(*CENTRES, measure=measure)
        steps.extend(np.diff(by_centres))
    return np.min(steps)


@claim("fesem-t2-2", **FEMNIST)
def grows_with_centres(t: Numbers) -> Finding:
    """Accuracies and micro F1 grow with K = 2, 3, 4 (least step).

    Macro F1 is left out, as the claim is. In Table 2 the least step is 2.1 points.
    """
    least = least_step(t, *ALL_BUT_MACRO_F1)
    return Finding(least, least > 0)


@claim("fesem-text-clusters", **ANYWHERE, variants=TEXT)
def more_centres_are_better(t: Numbers) -> Finding:
    """Micro accuracy grows with the number of centres (least step).

    Section 6.2 says it of both data sets; Table 3 prints a step of -1.0 for FedCelebA.
    """
    least = least_step(t, "micro")
    return Finding(least, least >= 0)


def gains(t: Numbers, *measures: str) -> pd.DataFrame:
    """Return the gain of neuron matching with three centres: seed x measure."""
    found = {}
    for measure in measures:
        both = t.by_seed("fesem_ma_3", "fesem_3", measure=measure)
        found[measure] = both["fesem_ma_3"] - both["fesem_3"]
    return pd.DataFrame(found)


@claim("fesem-t2-3", **FEMNIST)
def matching_raises_all(t: Numbers) -> Finding:
    """Neuron matching at K = 3 raises all four measures, in most seeds (least).

    The number is the least gain, as a mean over seeds. The macro F1 may be the mean
    over clients or that of all clients' samples together.

    In Table 2 the least gain is 0.1 points, so that only the signs can be judged.
    """
    added = gains(t, *FOUR, "pooled_f1")
    mean_of_clients = added[list(FOUR)]
    of_all_samples = added[[*ALL_BUT_MACRO_F1, "pooled_f1"]]
    best = max(_all_raised(mean_of_clients), _all_raised(of_all_samples), key=sum)
    least = np.min(mean_of_clients.mean().to_numpy())
    text = f"{least:+.2f}"
    if not t.printed:
        text += f"; all four raised in {so_many(best, 'seeds')}"
    return Finding(
        number=least,
        holds=sum(best) > len(best) / 2,
        text=text,
    )


def _all_raised(added: pd.DataFrame) -> list[bool]:
    """Return, for each seed, whether all measures are raised."""
    return (added > 0).all(axis=1).tolist()


@claim("fesem-t3-2", **CELEBA)
def matching_raises_macro_f1(t: Numbers) -> Finding:
    """Neuron matching at K = 3 raises macro F1 and no other measure.

    The number is its gain in macro F1.

    Table 3 prints +7.1 in macro F1, and -3.6, -2.4, -0.2 in the others.
    """
    added = gains(t, *FOUR).mean()
    macro_f1 = added["macro_f1"]
    others = complete(added[list(ALL_BUT_MACRO_F1)], "a number is missing")
    return Finding(
        number=macro_f1,
        holds=macro_f1 > 0 and others.max() <= 0,
        text=f"macro F1 {macro_f1:+.2f}, others {joined(others, '{:+.2f}')}",
    )


@claim("fesem-text-best", **ANYWHERE, unit="of 4 measures", show="{:.0f}")
def best_in_most_cases(t: Numbers) -> Finding:
    """A row of FeSEM is the best in most of the four measures.

    That is, in three of them; any number of centres counts, also with matching.

    In both printed tables it is three of the four.
    """
    rows = (*BASELINES, *CENTRES, "fesem_ma_3")
    won = 0
    for measure in FOUR:
        score = complete(t.means(*rows, measure=measure), "not all rows were run")
        best = score.idxmax()
        won += best.startswith("fesem")
    return Finding(won, won > 2)


@claim("fesem-text-matching", **ANYWHERE, show="{:+.2f}")
def matching_is_level_or_worse(t: Numbers) -> Finding:
    """FeSEM-MA(3) is level with FeSEM(3), or worse (0.5 points at most).

    This is about micro and macro accuracy; the number is its largest gain.

    Section 6.2 says so; Table 2 prints gains of up to 3.4 points, Table 3 losses.
    """
    added = gains(t, *ACCURACIES).mean()
    most = np.max(added.to_numpy())
    return Finding(most, most <= 0.5)


@claim("fesem-text-baselines", **FEMNIST)
def plain_baselines_beat_clustered(t: Numbers) -> Finding:
    """NoFed and FedAvg are better than some clustered baseline.

    This is about micro accuracy; the number is the smaller lead over the worst one.

    In Table 2 NoFed is 0.6 and FedAvg 6.5 points above the worst of RobustTKM,
    FedCluster and HypoCluster(3).
    """
    clustered = ["robust_tkm", "fedcluster", "hypocluster_3"]
    score = t.means("nofed", "fedavg", *clustered, measure="micro")
    worst = np.min(score[clustered].to_numpy())
    nofed = score["nofed"] - worst
    fedavg = score["fedavg"] - worst
    return Finding(
        number=np.min([nofed, fedavg]),
        holds=[nofed > 0, fedavg > 0],
        text=f"NoFed {nofed:+.1f}, FedAvg {fedavg:+.1f} over the worst of them",
    )


@claim("fesem-text-weights", **CELEBA)
def weights_by_samples_help(t: Numbers) -> Finding:
    """Weights by samples raise FeSEM's micro F1.

    Section 6.2 suspects that FeSEM's micro F1 suffers on FedCelebA since its objective
    counts clients and not samples. If so, weights by samples must raise it.
    """
    weighed = t.mean("fesem_3", "micro_f1", weighting="samples")
    gain = weighed - t.mean("fesem_3", "micro_f1")
    return Finding(gain, gain > 0)


# ---------------------------------------------------------------- Figure 3


def long_curves(t: Numbers) -> pd.DataFrame:
    """Return micro accuracy by round of the longest runs: round x centres.

    They must have at least 100 rounds.
    """
    curves = t.curves(*CENTRES, measure="micro", rounds=pd.notna)
    if curves.empty:
        curves = t.curves(*CENTRES, measure="micro")
    if curves.empty or curves.index.max() < 100:
        raise NotTestedError("fewer than 100 rounds were run")
    return curves


@claim("fesem-fig3-1", **FEMNIST, variants=TEXT)
def converged_after_100_rounds(t: Numbers) -> Finding:
    """FeSEM has converged: 1 point at most in the last fifth of 100 rounds.

    This must hold for every number of centres; the number is the largest change.

    The figure has curves without numbers. The last fifth are rounds 80 to 100.
    """
    curves = long_curves(t)
    rounds = curves.index
    before = rounds[rounds <= 0.8 * rounds.max()].max()
    change = curves.iloc[-1] - curves.loc[before]
    most = change.abs().max()
    return Finding(most, most <= 1)


@claim("fesem-fig3-2", **FEMNIST, variants=TEXT)
def four_centres_end_highest(t: Numbers) -> Finding:
    """FeSEM ends with the highest micro accuracy at K = 4.

    The number is its lead over the better of K = 2 and K = 3.
    """
    end = long_curves(t).iloc[-1]
    others = end[["fesem_2", "fesem_3"]]
    lead = end["fesem_4"] - np.max(others.to_numpy())
    return Finding(lead, lead > 0)


# ---------------------------------------------------------------- Figures 4 and 5


@claim("fesem-fig4-1", **FEMNIST, variants=TEXT, unit="silhouette", show="{:.2f}")
def four_groups_of_models(t: Numbers) -> Finding:
    """Models of FeSEM(4) form four groups, farther apart than random ones.

    In the first round that was looked at the silhouette in the plane is 0.25 or more;
    in the last one there are four groups in every seed, and the silhouette of whole
    models, which is the number, is 0.1 above that of random groups. Silhouettes are
    means over seeds.

    The figure has no numbers. From 0.25 on groups are usually said to be more than
    artificial; training draws the models of any group together, so that groups without
    a meaning have a high silhouette as well: hence the comparison with random ones.
    """
    found = t.study("separation", study="local_models")
    needed(found, "the clients' models were not kept")
    is_random = found["grouping"] == "random"
    own = found[~is_random]
    random = needed(found[is_random], "no random groups were trained beside them")
    begin = own["round"].min()
    end = own["round"].max()
    first = own[own["round"] == begin]
    last = own[own["round"] == end]
    random_last = random[random["round"] == random["round"].max()]

    in_the_plane = first["in the plane"].mean()
    apart = last["silhouette"].mean()
    by_chance = random_last["silhouette"].mean()
    four_groups = (last["sizes"].str.count(",") == 3).all()
    far_apart = apart >= by_chance + 0.1
    text = f"{in_the_plane:.2f} in the plane in round {begin}, "
    text += f"{apart:.2f} in round {end}, random groups {by_chance:.2f}, "
    text += f"sizes {' | '.join(last['sizes'])}"
    return Finding(
        number=apart,
        holds=bool(in_the_plane >= 0.25 and four_groups and far_apart),
        text=text,
    )


@claim("fesem-fig4-2", **FEMNIST, variants=TEXT, unit="of the clients", show="{:.0%}")
def clusters_settle(t: Numbers) -> Finding:
    """After round 10 at most 5 % of the clients change cluster in any round.

    With two, three and four centres; the number is the highest share.

    Section 6.2 says that the clusters settle in about 10 rounds. A few clients between
    two centres may go on changing.
    """
    late = []
    for key in t.trainings(*CENTRES)["key"]:
        by_round = t.labels_by_round(key)
        for before, now in pairwise(by_round):
            if now > 10:
                changed = by_round[before] != by_round[now]
                late.append(changed.mean())
    if not late:
        raise NotTestedError("the clusters of rounds beyond the tenth were not kept")
    most = max(late)
    return Finding(most, most <= 0.05)


@claim("fesem-fig5-1", **FEMNIST, variants=TEXT, unit="of the seeds", show="{:.0%}")
def clusters_are_hands(t: Numbers) -> Finding:
    """FeSEM(2)'s clusters differ in stroke width or size, in most seeds.

    By a permutation test at 5 %, divided by the number of attributes looked at. MNIST's
    images all have one size, so among its writers only the stroke counts.
    """
    runs = t.trainings("fesem_2")
    clients = t.clients("fesem_2")
    if runs.empty or clients.empty:  # print has no clients
        raise NotTestedError("FeSEM with two centres was not run")
    clients = clients.sort_values("client")
    told = []
    for key, seed in zip(runs["key"], runs["seed"], strict=True):
        cluster = clients["cluster"][clients["key"] == key].to_numpy()
        hands = _hands(t, key, seed)
        p = _by_chance(hands, cluster)
        if p is not None:
            told.append(p < 0.05 / len(hands))
    if not told:
        raise NotTestedError("the two clusters are too uneven to tell")
    share = float(np.mean(told))
    return Finding(share, share > 0.5)


def _hands(t: Numbers, key: str, seed: int) -> dict[str, np.ndarray]:
    """Return attribute -> values (M,) of the writers of a run.

    Those of pseudo-writers are known, those of people were measured in their images.
    """
    setting = run_setting(t.record(key))
    if t.dataset.startswith("pseudo") and "n_clients" in setting:
        styles = writer_styles(
            setting["n_clients"],
            setting.get("seed", 0),
            setting.get("strength", 1.0),
        )
        return {name: styles[:, STYLE.index(name)] for name in ("width", "size")}

    measured = t.study("hands", study="hands", seed=seed)
    needed(measured, "the hands of these writers were not measured")
    return {"stroke": measured.sort_values("client")["stroke"].to_numpy()}


FEWEST_WRITERS = 5
"""Writers in the smaller cluster below which a permutation test has no power."""


def _by_chance(hands: Mapping[str, np.ndarray], cluster: np.ndarray) -> float | None:
    """Return the lowest p-value of the attributes; None for a small cluster.

    A permutation test: how often are the means of two random groups of these sizes at
    least as far apart as those of the clusters?

    Parameters
    ----------
    hands : attribute -> values (M,), of the writers
    cluster : int array (M,), of the writers
    """
    if not len(cluster):
        return None
    first = cluster == cluster[0]
    if min(first.sum(), (~first).sum()) < FEWEST_WRITERS:
        return None

    p_values = []
    for of_writers in hands.values():
        groups = (of_writers[first], of_writers[~first])
        test = permutation_test(groups, _apart, n_resamples=4999, rng=0)
        p_values.append(test.pvalue)
    return min(p_values)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return how far two means are apart."""
    return one.mean() - other.mean()


@claim("fesem-fig5-2", **CELEBA)
def clusters_are_ages(t: Numbers) -> Finding:
    """FeSEM(2)'s clusters of FedCelebA are younger and older faces.

    The paper reads it off pictures of faces.
    """
    raise NotTestedError("a judgement of the eye on pictures that may not be handed on")


# ---------------------------------------------------------------- choosing K


@claim("fesem-text-choosing", **FEMNIST, variants=TEXT, unit="tau", show="{:.2f}")
def short_runs_rank_centres(t: Numbers) -> Finding:
    """A short run of few clients ranks K as the long run does (tau 0.7).

    The long run is the first seed's, by micro accuracy. Kendall's tau, mean over draws
    of clients, is that of their accuracy, the number, and of the distance of models
    inside clusters.
    """
    short = t.study("short", study="choosing_k")
    micro = _by_centres(t)
    needed(short, "the numbers of centres were not ranked")
    if micro.max() - micro.min() < 2:
        raise NotTestedError("the long run has nothing to rank: within 2 points")
    accuracy = _mean_tau(short, "accuracy", micro)
    near = _mean_tau(short.assign(inside=-short["inside"]), "inside", micro)
    return Finding(
        number=accuracy,
        holds=[accuracy >= 0.7, near >= 0.7],
        text=f"{accuracy:.2f} by accuracy, {near:.2f} by distance",
    )


def _by_centres(t: Numbers) -> pd.Series:
    """Return the micro accuracy of the first seed of the longest runs, by K.

    Runs whose rounds are an axis are the longer ones. Fewer than three numbers of
    centres have no order that could be predicted.
    """
    numbers = [f"fesem_{K}" for K in range(1, 10)]
    long = t.trainings(*numbers, rounds=pd.notna)
    if len(long) < 3:
        long = t.trainings(*numbers)
    if len(long) < 3:
        raise NotTestedError("the numbers of centres were not ranked")
    first = long[long["seed"] == long["seed"].min()]
    centres = first["method"].str.removeprefix("fesem_").astype(int)
    return first.set_index(centres)["micro"].sort_index()


def _mean_tau(short: pd.DataFrame, column: str, micro: pd.Series) -> float:
    """Return the mean over draws of Kendall's tau between a column and accuracies."""
    each = []
    for _, draw in short.groupby("draw"):
        values = draw.set_index("K")[column].reindex(micro.index)
        each.append(kendalltau(values, micro).statistic)
    return np.mean(each)
