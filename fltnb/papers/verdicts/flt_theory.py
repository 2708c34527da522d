"""Tests of FLT's claims about its ablation, costs, theory and absent clients."""

from itertools import product

import numpy as np
import pandas as pd

from ... import encoders, models
from ...theory import clustering, traffic
from .claim import Finding, claim, not_tested
from .numbers import Numbers

# ---------------------------------------------------------------- ablation

FACTORS = ["n_clients", "participation", "local_epochs", "rounds"]
"""What Table 5 varies."""
FLT = ("flt_enc1", "flt_enc2")


def ablation(t: Numbers) -> pd.DataFrame:
    """Return Table 5's lines: ``method, seed, accuracy, clusters`` and the factors.

    Both numbers of rounds are read off one run. ``clusters``: the ARI of what FLT
    found, which tells runs apart that differ in their clusters as well.
    """
    axes = {name: pd.notna for name in FACTORS[:3]}
    columns = ["method", "seed", *FACTORS, "accuracy", "clusters"]
    if t.printed:
        return t.trainings(*FLT, "fedsem").assign(clusters=0.0)[columns]

    runs = t.trainings(*FLT, "fedsem", **axes)
    points = t.points(runs)
    if points.empty:
        return pd.DataFrame(columns=columns)
    last = points["round"].max()
    points = points[points["round"].isin([last // 2, last])]
    found = points["ari"].round(3).where(points["method"] != "fedsem").fillna(0)
    return points.assign(rounds=points["round"], clusters=found)[columns]


def leads(lines: pd.DataFrame) -> pd.DataFrame:
    """Return by how much either FLT is above FedSEM in each line: line x encoder."""
    wide = lines.pivot_table("accuracy", [*FACTORS, "seed"], "method")
    wide = wide.reindex(columns=[*FLT, "fedsem"])
    ahead = wide[list(FLT)].sub(wide["fedsem"], axis=0)
    return ahead.groupby(level=FACTORS).mean()


def moves(lines: pd.DataFrame, factor: str) -> tuple[pd.Series, pd.Series]:
    """Return what the higher level of a factor adds, all else and the seed equal.

    Apart: the pairs with the same clusters, and those whose clusters differ as well.
    More clients are other clients: there the clusters are not compared.
    """
    line = ["method", *[name for name in FACTORS if name != factor]]
    if factor == "n_clients":
        lines = lines.assign(clusters=0.0)
    wide = lines.pivot_table(["accuracy", "clusters"], [*line, "seed"], factor).dropna()
    if wide.empty or wide["accuracy"].shape[1] < 2:
        return pd.Series(dtype=float), pd.Series(dtype=float)

    moved = wide["accuracy"].iloc[:, -1] - wide["accuracy"].iloc[:, 0]
    apart = (wide["clusters"].iloc[:, -1] - wide["clusters"].iloc[:, 0]).abs()
    moved = moved.groupby(line).mean()
    apart = apart.groupby(line).max()
    return moved[apart == 0], moved[apart != 0]


@claim("flt-t5-1", tables=("T5",), show="{:+.2f}")
def above_fedsem_everywhere(t: Numbers) -> Finding:
    """FLT is above FedSEM in every line, with either encoder (least lead)."""
    ahead = leads(ablation(t))
    if ahead.dropna(how="all").empty:
        return not_tested("no line of FLT and FedSEM")
    above = (ahead > 0).sum()
    lines = ahead.notna().sum()
    counts = [f"{above[name]} of {lines[name]}" for name in FLT]
    least = ahead.min().min()
    text = f"{' and '.join(counts)} lines, least {least:+.2f}"
    return Finding(least, (above == lines).tolist(), text)


@claim("flt-text-2to8", tables=("T5",), unit="share of lines", show="{:.0%}")
def two_to_eight_points(t: Numbers) -> Finding:
    """FLT is 2 to 8 points above FedSEM without exception, in whole points."""
    ahead = leads(ablation(t)).stack().dropna()
    if ahead.empty:
        return not_tested("no line of FLT and FedSEM")
    within = ahead.round().between(2, 8)
    text = f"{within.sum()} of {len(ahead)}, {ahead.min():+.1f} to {ahead.max():+.1f}"
    return Finding(within.mean(), within.all(), text)


@claim("flt-t5-2", tables=("T5",))
def clients_hardly_matter(t: Numbers) -> Finding:
    """The number of clients hardly matters: 3 points at most, for each method."""
    moved, _ = moves(ablation(t), "n_clients")
    if moved.empty:
        return not_tested("only one number of clients was run")
    most = moved.abs().groupby(level="method").max()
    text = f"{moved.min():+.1f} to {moved.max():+.1f}"
    return Finding(most.max(), (most <= 3).tolist(), text)


@claim("flt-t5-3", tables=("T5",))
def more_epochs_help(t: Numbers) -> Finding:
    """Five local epochs beat one for FLT in every pair (least gain)."""
    lines = ablation(t)
    return _helps([moves(lines[lines["method"] != "fedsem"], "local_epochs")])


@claim("flt-t5-4", tables=("T5",))
def more_rounds_and_participation_help(t: Numbers) -> Finding:
    """With one local epoch more rounds and more participation help in every pair."""
    lines = ablation(t)
    # five local epochs have saturated: the paper's exception
    one = lines[lines["local_epochs"] == 1]
    return _helps([moves(one, factor) for factor in ("rounds", "participation")])


def _helps(each: list[tuple[pd.Series, pd.Series]]) -> Finding:
    """Judge that something never hurts; pairs of other clusters only speak against.

    ``each``: of one or more factors, the pairs with the same clusters and the others.
    """
    if any(same.empty for same, _ in each):
        return not_tested("only one level was run")
    holds = []
    for same, other in each:
        holds.append((same >= 0).all())
        if (other < 0).any():
            holds.append(False)
    moved = pd.concat([same for same, _ in each])
    others = sum(len(other) for _, other in each)
    text = f"{(moved > 0).sum()} of {len(moved)} pairs, least {moved.min():+.1f}"
    if others:
        text += f"; {others} with other clusters"
    return Finding(moved.min(), holds, text)


# ---------------------------------------------------------------- costs


def _studied(t: Numbers, name: str) -> pd.DataFrame:
    """Return the table of a study of notebook 06."""
    return t.study("table", study=name)


@claim("flt-t6-1", whole=True, unit="times the formula", show="{:.4f}")
def traffic_is_what_the_formulas_say(t: Numbers) -> Finding:
    """Four rounds of FLT, FedSEM and IFCA send what the formulas say."""
    weighed = _weighed(t)
    if weighed.empty:
        return not_tested("no run was weighed")
    times = weighed["weighed_moved"] / weighed["weighed_formula"]
    farthest = times[(times - 1).abs().idxmax()]
    return Finding(farthest, (times == 1).all())


def _weighed(t: Numbers) -> pd.DataFrame:
    """Return the runs of which some rounds were weighed, without a warm-up."""
    table = _studied(t, "traffic")
    if table.empty:
        return table
    return table[table["warmup"] == 0].dropna(subset=["weighed_moved"])


@claim("flt-t6-2", whole=True, unit="%", show="{:.2f} %")
def once_can_be_neglected(t: Numbers) -> Finding:
    """FLT's one-off traffic is below 1 % of a run's (scenario 3, and here)."""
    shares = [_once_in_scenario_3()]
    table = _studied(t, "traffic")
    if not table.empty:
        flt = table[table["method"] == "flt_enc1"]
        shares += (100 * flt["once"] / flt["total"]).tolist()
    return Finding(max(shares), [share < 1 for share in shares])


def _once_in_scenario_3() -> float:
    """Return FLT's one-off share with the CNN in percent, by the printed sizes."""
    cost = traffic.formula(
        "flt",
        M=200,
        rho=0.2,
        T=100,
        W_local=traffic.PRINTED_SIZES["CNN"],
        W_enc=traffic.PRINTED_SIZES["ConvAE"],
        k=5,
        e=128,
    )
    return 100 * cost.once / cost.total


@claim("flt-t6-3", whole=True, unit="times", show="{:.2f}")
def ifca_sends_more(t: Numbers) -> Finding:
    """IFCA with C = 5 models sends (C + 1) / 2 = 3 times as much as FedSEM."""
    weighed = _weighed(t)
    if weighed.empty:
        return not_tested("no run was weighed")
    moved = weighed.set_index("method")["weighed_moved"]
    times = moved.get("ifca", np.nan) / moved.get("fedsem", np.nan)
    return Finding(times, times == 3)


@claim("flt-t11", whole=True, unit="networks", show="{:.0f}")
def networks_have_printed_sizes(t: Numbers) -> Finding:
    """The networks as described have the printed numbers of parameters."""
    convae = encoders.EncoderSpec("convae", finetune_epochs=1)
    ours = {
        "MLP": models.make("mlp", (1, 28, 28), 62).n_parameters,
        "CNN": models.make("leaf_cnn", (1, 28, 28), 62).n_parameters,
        "ConvAE": encoders.sent_parameters(convae, (1, 28, 28)),
    }
    return same_sizes(ours)


def same_sizes(ours: dict[str, int]) -> Finding:
    """Judge numbers of parameters beside the printed ones."""
    printed = traffic.PRINTED_SIZES
    wrong = [name for name, size in ours.items() if size != printed[name]]
    told = [f"{name} {ours[name]:,}, printed {printed[name]:,}" for name in wrong]
    text = "; ".join(told) or "all as printed"
    return Finding(len(wrong), [name not in wrong for name in ours], text)


# ---------------------------------------------------------------- theory


@claim("flt-thm1", whole=True, unit="settings", show="{:.0f}")
def theorem_1_bounds_the_error(t: Numbers) -> Finding:
    """Theorem 1 as printed bounds the error of clients that hold every label."""
    mixture = clustering.Mixture()
    shape = (mixture.n_clients, len(mixture.means))
    pairs = {}
    for error, samples in product((0.1, 0.2, 0.3, 0.4), (1, 2, 4, 8, 16, 32, 64)):
        setting = (np.full(shape, samples), mixture.dimension, error)
        exact = clustering.exact_error(*setting)
        pairs[error, samples] = (exact, clustering.bound(*setting, "printed"))
    return bounded(pairs)


def bounded(pairs: dict[tuple, tuple[float, float]]) -> Finding:
    """Judge a bound by all settings: setting -> (error, bound)."""
    broken = sum(error > bound for error, bound in pairs.values())
    text = f"too small in {broken} of {len(pairs)} settings"
    return Finding(broken, broken == 0, text)


@claim("flt-thm1-samples", whole=True, unit="images", show="{:.0f}")
def error_vanishes_with_samples(t: Numbers) -> Finding:
    """FCR's clusters become right, and stay so, as clients hold more images."""
    found = t.clusterings(samples=pd.notna)
    if found.empty:
        return not_tested("no clustering by number of images")
    ari = found.groupby("samples")["ari"]
    lowest = ari.min()
    right = lowest.index[lowest == 1]
    few, many = lowest.index.min(), lowest.index.max()
    text = f"mean ARI {ari.mean()[few]:.2f} with {few:.0f} images, "
    text += f"{ari.mean()[many]:.2f} with {many:.0f}"
    if right.empty:
        return Finding(np.inf, False, text)

    first = right.min()
    stays = (lowest.loc[first:] == 1).all()
    text += f"; right from {first:.0f} on"
    return Finding(first, lowest[few] < 1 and stays and first < many, text)


@claim("flt-thm2", whole=True, unit="share of cases", show="{:.0%}")
def theorem_2_bounds_the_step(t: Numbers) -> Finding:
    """Theorem 2's bound holds for every T above 1, also in cases built against it."""
    gaps = _studied(t, "gap")
    lines = _studied(t, "lines")
    if gaps.empty or lines.empty:
        return not_tested("the theorem was not studied")
    later = gaps[gaps["T"] > 1]  # at T = 1 its right side is 0
    holds = later["gap"] <= later["printed"]

    said = lines.set_index(["line", "says"])["holds"]
    built = [("28", "the same, T = 200"), ("21, linked clusters", "holds for any A")]
    against = [said.get(case) != "no" for case in built]
    text = (
        f"{holds.sum():,} of {len(holds):,} cases, {sum(against)} of 2 built against it"
    )
    return Finding(holds.mean(), [bool(holds.all()), *against], text)


@claim("flt-thm2-step", whole=True, unit="share of steps", show="{:.0%}")
def bound_needs_a_small_step(t: Numbers) -> Finding:
    """The printed bound is positive below the printed step limit only."""
    steps = _studied(t, "steps")
    if steps.empty:
        return not_tested("no step size was tried")
    right = (steps["printed factor"] > 0) == (steps["eta L"] < steps["limit"])
    return Finding(right.mean(), right.all())


@claim("flt-thm2-epochs", whole=True, unit="share of draws", show="{:.0%}")
def more_epochs_tighten_the_bound(t: Numbers) -> Finding:
    """Equation 38, which falls with the local epochs E, bounds the step (least)."""
    epochs = _studied(t, "epochs")
    if epochs.empty:
        return not_tested("no local epochs were tried")
    held = epochs.set_index("E")["38 holds"]
    text = ", ".join(f"E = {E}: {share:.0%}" for E, share in held.items())
    return Finding(held.min(), (held == 1).all(), text)


# ---------------------------------------------------------------- absent clients


@claim("flt-text-excluded")
def absent_clients_lose_nothing(t: Numbers) -> Finding:
    """Clients placed after the clustering are within 1 point of the oracle."""
    behind = {}
    for event in ("join and drift", "a new kind joins"):
        curves = t.curves(
            "oracle", "flt_nearest", measure="accuracy_joined", event=event
        ).dropna()
        if curves.empty:
            return not_tested("no clients joined")
        behind[event] = (curves["oracle"] - curves["flt_nearest"]).mean()
    worst_first = sorted(behind, key=behind.get, reverse=True)
    text = ", ".join(f"{behind[event]:.1f} ({event})" for event in worst_first)
    # the paper does not say which clients are left out
    return Finding(max(behind.values()), [gap <= 1 for gap in behind.values()], text)
