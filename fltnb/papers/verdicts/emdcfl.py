"""Tests of EMD-CFL's claims about clusters and accuracies (Tables 1-3, 6-8, 10, 11).

Many of its methods have a form of their own in the code; where they have none, what
follows the text stands for it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ...rounds import participants
from ..names import label
from .claim import Finding, claim, not_tested
from .numbers import Numbers, ahead

HARD = ("emdcfl", "cfl", "pacfl", "fedclust", "ifca", "flexcfl", "fesem", "cflgp")
"""Methods with hard clusters, EMD-CFL first."""
SOFT = ("fedem", "fedsoft", "fedrc", "fedce")
UNCLUSTERED = ("fedavg", "pfedgraph", "fedsac")
OWN_NETWORKS = ("emdcfl_cnn", "resnet18")
"""The paper's networks: ARIs in its own setting stand in studies of these."""
MNIST, CIFAR = ("rotated_mnist",), ("rotated_cifar10",)
ARI = {"unit": "ARI", "show": "{:.2f}"}


def score(t: Numbers, method: str, measure: str = "accuracy", **axes) -> float:
    """Return a method's mean; where the code has no form of its own, the text's."""
    value = t.mean(method, measure, **axes)
    if np.isnan(value) and t.variant == "as_run":
        value = t.text().mean(method, measure, **axes)
    return value


def scores(t: Numbers, methods: Sequence[str], measure="accuracy", **axes) -> pd.Series:
    """Return :func:`score` of several methods."""
    return pd.Series({name: score(t, name, measure, **axes) for name in methods})


def aris(t: Numbers, method: str) -> list[float]:
    """Return a method's ARIs by seed: of the paper's own setting if there are any."""
    for name in ("printed", "told") if t.model in OWN_NETWORKS else ():
        studied = t.study(name)
        if studied.empty or "metric" not in studied:
            continue
        own = studied[(studied["metric"] == "ari") & (studied["method"] == method)]
        own = own[own["variant"].isin([t.variant, ""])]
        if len(own):
            return own["value"].tolist()
    found = t.seeds(method, "ari").tolist()
    if not found and t.variant == "as_run":
        found = t.text().seeds(method, "ari").tolist()
    return found


def _right(ari: float) -> bool:
    return bool(np.isclose(ari, 1))


def _told(found: dict[str, list[float]]) -> str:
    """Write ARIs by method, means over seeds."""
    return listed({name: float(np.mean(each)) for name, each in found.items()})


def listed(values: Mapping[str, float], form: str = "{:.2f}") -> str:
    """Write numbers by method."""
    return ", ".join(
        f"{label(name)} {form.format(one)}" for name, one in values.items()
    )


def find_clusters(t: Numbers, methods: Sequence[str]) -> Finding:
    """Judge that methods find the clusters in every seed.

    One that does not speaks against it; if some were not run it is not tested further.
    """
    found = {name: aris(t, name) for name in methods}
    found = {name: each for name, each in found.items() if each}
    holds = [_right(ari) for each in found.values() for ari in each]
    if not found or (len(found) < len(methods) and all(holds)):
        return not_tested(f"{len(found)} of {len(methods)} methods were run")
    lowest = min(min(each) for each in found.values())
    return Finding(lowest, holds, _told(found))


def alone_finds_clusters(t: Numbers) -> Finding:
    """Judge that EMD-CFL finds the clusters and no other method with hard ones does."""
    found = {name: aris(t, name) for name in HARD}
    found = {name: each for name, each in found.items() if each}
    if "emdcfl" not in found:
        return not_tested("EMD-CFL was not run")
    own = [_right(ari) for ari in found["emdcfl"]]
    others = [all(map(_right, found[name])) for name in HARD[1:] if name in found]
    if len(found) < len(HARD) and all(own) and not any(others):
        return not_tested(f"{len(found)} of {len(HARD)} methods were run")
    holds = all(own) and not any(others)
    return Finding(np.mean(found["emdcfl"]), holds, _told(found))


# ---------------------------------------------------------------- rotated sets


@claim("emdcfl-t1-1", data=MNIST, tables=("T1",), **ARI)
def five_find_the_rotations(t: Numbers) -> Finding:
    """EMD-CFL, PACFL, FedClust, FlexCFL and CFLGP find the clusters (Rotated MNIST)."""
    return find_clusters(t, ("emdcfl", "pacfl", "fedclust", "flexcfl", "cflgp"))


@claim("emdcfl-t1-2", data=MNIST, tables=("T1",), show="{:+.2f}")
def accurate_from_the_first_round(t: Numbers) -> Finding:
    """EMD-CFL and PACFL alone equal the oracle from round 1; others stay below it."""
    late = scores(t, ("fedclust", "flexcfl", "cflgp")) - score(t, "oracle")
    if late.isna().any():
        return not_tested("not all methods were run")
    holds = [(late <= -0.1).sum() >= 2]
    text = listed(late.to_dict(), "{:+.2f}")

    first = t.curves("oracle", *HARD)
    if len(first):
        gap = first.iloc[0] - first.iloc[0]["oracle"]
        others = gap[[name for name in HARD if name not in ("emdcfl", "pacfl")]]
        holds += [(gap[["emdcfl", "pacfl"]] >= -0.1).all(), (others < -0.1).all()]
        best = others.idxmax()
        text += (
            f", in round 1 EMD-CFL {gap['emdcfl']:+.2f}, PACFL {gap['pacfl']:+.2f}, "
        )
        text += f"next {label(best)} {others[best]:+.2f}"
    return Finding(late.max(), holds, text)


@claim("emdcfl-t1-3", data=MNIST + CIFAR, tables=("T1",), show="{:+.2f}")
def as_accurate_as_the_oracle(t: Numbers) -> Finding:
    """EMD-CFL is within 0.1 of the oracle, on average and at the worst client."""
    gaps = [
        ahead(t.means("emdcfl", "oracle", measure=m)) for m in ("accuracy", "worst")
    ]
    text = f"average {gaps[0]:+.2f}, worst {gaps[1]:+.2f}"
    return Finding(np.min(gaps), [gap >= -0.1 for gap in gaps], text)


def _soft_are_below(t: Numbers, measures: Sequence[str]) -> Finding:
    """Judge EMD-CFL against soft clusters, at the best of their learning rates."""
    leads = []
    for measure in measures:
        others = []
        for name in SOFT:
            tried = [score(t, name, measure), t.mean(name, measure, lr=pd.notna)]
            others.append(np.nanmax(tried) if tried[0] == tried[0] else np.nan)
        leads.append(score(t, "emdcfl", measure) - np.max(others))
    text = ", ".join(
        f"{name} {lead:+.2f}" for name, lead in zip(measures, leads, strict=True)
    )
    return Finding(np.min(leads), [lead > 0 for lead in leads], text)


@claim("emdcfl-t1-4", data=MNIST, tables=("T1",), show="{:+.2f}")
def soft_clusters_are_below(t: Numbers) -> Finding:
    """Soft clusters are below EMD-CFL on average and at the worst client."""
    return _soft_are_below(t, ("accuracy", "worst"))


@claim("emdcfl-t1-5", data=CIFAR, tables=("T1",), **ARI)
def alone_on_rotated_cifar(t: Numbers) -> Finding:
    """EMD-CFL alone finds the clusters of Rotated CIFAR-10."""
    return alone_finds_clusters(t)


@claim("emdcfl-t1-6", data=CIFAR, tables=("T1",))
def pacfl_fails_its_worst_client(t: Numbers) -> Finding:
    """PACFL misses the clusters, its worst client is 5 below, its average within 1."""
    ari = score(t, "pacfl", "ari")
    worst = score(t, "pacfl", "worst") - score(t, "emdcfl", "worst")
    average = score(t, "pacfl") - score(t, "emdcfl")
    text = f"worst {worst:+.1f}, average {average:+.1f}, ARI {ari:.2f}"
    return Finding(worst, [worst <= -5, ari < 1, abs(average) <= 1], text)


@claim("emdcfl-t1-7", data=CIFAR, tables=("T1",), **ARI)
def parameters_find_nothing(t: Numbers) -> Finding:
    """Methods that compare parameters or gradients find nothing (ARI below 0.1)."""
    found = scores(t, ("cfl", "fedclust", "flexcfl", "cflgp", "fesem"), "ari")
    most = np.max(found.to_numpy())
    return Finding(most, most < 0.1, listed(found.to_dict()))


@claim("emdcfl-t6-1", data=MNIST, tables=("T6",), show="{:+.2f}")
def few_participants(t: Numbers) -> Finding:
    """With 10, 20, 30 of 40 clients EMD-CFL equals the oracle (0.5, clients drawn)."""
    gaps = {}
    for level in (0.25, 0.5, 0.75):
        if t.printed:
            pair = t.means("emdcfl", "oracle", participation=level)
            gaps[level] = ahead(pair)
        else:
            drawn = [_of_drawn(t, name, level) for name in ("emdcfl", "oracle")]
            gaps[level] = drawn[0] - drawn[1]
    there = [gap for gap in gaps.values() if gap == gap]
    if not there:
        return not_tested("everybody took part in all runs")
    text = ", ".join(f"{gap:+.2f}" for gap in there)
    most = max(there, key=abs)
    return Finding(most, [abs(gap) <= 0.5 for gap in there], text)


def _of_drawn(t: Numbers, method: str, participation: float) -> float:
    """Return the mean accuracy of clients that some round drew."""
    runs = t.trainings(method, participation=participation)
    clients = t.clients(method, participation=participation)
    means = []
    for run in runs.itertuples():
        own = clients[clients["key"] == run.key].sort_values("client")
        rounds = range(1, t.record(run.key)["settings"]["rounds"] + 1)
        drawn = [participants(len(own), participation, run.seed, r) for r in rounds]
        seen = np.isin(np.arange(len(own)), np.concatenate(drawn))
        means.append(own["test"].to_numpy()[seen].mean())
    return float(np.mean(means)) if means else np.nan


ON_MNIST = tuple(f"rotated_mnist_{version}" for version in ("min", "two", "base"))
ON_CIFAR = tuple(f"rotated_cifar10_{version}" for version in ("min", "two", "base"))


@claim("emdcfl-t10-1", data=ON_MNIST, tables=("T10",), **ARI)
def versions_of_mnist(t: Numbers) -> Finding:
    """EMD-CFL finds the clusters of Min, Two and Base on MNIST, in every seed."""
    return find_clusters(t, ("emdcfl",))


@claim("emdcfl-t11-1", data=ON_CIFAR, tables=("T11",), **ARI)
def versions_of_cifar(t: Numbers) -> Finding:
    """EMD-CFL finds the clusters of Min, Two and Base on CIFAR-10, in every seed."""
    return find_clusters(t, ("emdcfl",))


@claim("emdcfl-t11-2", data=("rotated_cifar10_two",), tables=("T11",), **ARI)
def alone_on_two(t: Numbers) -> Finding:
    """Nobody but EMD-CFL finds the two clusters of Two on CIFAR-10 in every run."""
    return alone_finds_clusters(t)


def _split(t: Numbers, expected: bool) -> Finding:
    """Judge whether IFCA and FeSEM, which may leave a model unused, split a cluster."""
    found = {name: aris(t, name) for name in ("ifca", "fesem")}
    each = [ari for own in found.values() for ari in own]
    if not all(found.values()):
        return not_tested("IFCA and FeSEM were not both run")
    holds = [_right(ari) != expected for ari in each]
    return Finding(np.mean(each), holds, _told(found))


@claim("emdcfl-t10-2", data=(ON_MNIST[0], ON_MNIST[2]), tables=("T10",), **ARI)
def told_two_they_split(t: Numbers) -> Finding:
    """On MNIST IFCA and FeSEM, told K = 2, split the single cluster."""
    return _split(t, expected=True)


@claim("emdcfl-t11-3", data=(ON_CIFAR[0], ON_CIFAR[2]), tables=("T11",), **ARI)
def told_two_they_do_not_split(t: Numbers) -> Finding:
    """On CIFAR-10 IFCA and FeSEM, told K = 2, do not split the single cluster."""
    return _split(t, expected=False)


@claim("emdcfl-t10-3", data=(ON_MNIST[0], ON_MNIST[2]), tables=("T10",), show="{:+.2f}")
def splitting_costs_little(t: Numbers) -> Finding:
    """On MNIST splitting the single cluster costs less than 2 points."""
    others = ("flexcfl", "fesem", "cflgp", "ifca", "cfl")
    found = pd.DataFrame({m: scores(t, others, m) for m in ("accuracy", "ari")})
    found = found[found["ari"] < 1]
    cost = found["accuracy"] - score(t, "emdcfl")
    if cost.dropna().empty:
        return not_tested("no method split the cluster, or EMD-CFL was not run")
    return Finding(cost.min(), cost.min() > -2)


# ---------------------------------------------------------------- PACS

PACS = {"data": ("pacs",), "tables": ("T7", "T2")}


@claim("emdcfl-t2-1", **PACS, **ARI)
def four_find_the_domains(t: Numbers) -> Finding:
    """EMD-CFL, FedClust, FlexCFL and CFLGP find the domains of PACS."""
    return find_clusters(t, ("emdcfl", "fedclust", "flexcfl", "cflgp"))


@claim("emdcfl-t2-2", **PACS, show="{:+.2f}")
def equals_the_oracle_on_pacs(t: Numbers) -> Finding:
    """EMD-CFL is within 0.5 points of the oracle, mean and worst (print: 1)."""
    gaps = [
        ahead(t.means("emdcfl", "oracle", measure=m)) for m in ("accuracy", "worst")
    ]
    text = f"average {gaps[0]:+.2f}, worst {gaps[1]:+.2f}"
    near = 1 if t.printed else 0.5
    return Finding(max(gaps, key=abs), [abs(gap) <= near for gap in gaps], text)


@claim("emdcfl-t2-3", **PACS, variants=("as_written",), unit="of the oracle's")
def pacfl_mixes_domains(t: Numbers) -> Finding:
    """PACFL mixes domains, its worst client has below 60 % of the oracle's accuracy."""
    ari = score(t, "pacfl", "ari")
    share = score(t, "pacfl", "worst") / score(t, "oracle", "worst")
    text = f"{share:.0%} of the oracle's worst, ARI {ari:.2f}"
    return Finding(share, bool(ari < 1 and share < 0.6), text)


@claim("emdcfl-t2-4", **PACS, **ARI)
def one_cluster_for_all(t: Numbers) -> Finding:
    """FeSEM and CFL leave everybody in one cluster (ARI 0)."""
    found = scores(t, ("fesem", "cfl"), "ari")
    most = np.max(found.abs().to_numpy())
    return Finding(most, most < 0.005, listed(found.to_dict()))


@claim("emdcfl-t7-1", **PACS, show="{:+.2f}")
def soft_clusters_are_below_on_pacs(t: Numbers) -> Finding:
    """Soft clusters are below EMD-CFL on PACS."""
    return _soft_are_below(t, ("accuracy",))


def _domains(t: Numbers) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the distances between PACS' clients and their domains."""
    found = t.distances()
    if found.empty:
        return None
    kept = t.arrays(found["key"].iloc[0])
    distance = kept["distance"].astype(float)
    np.fill_diagonal(distance, np.nan)
    return distance, kept["clusters"].astype(int)


@claim("emdcfl-fig2-1", data=("pacs",), tables=("T7",), unit="distance", show="{:+.3f}")
def blocks_by_domain(t: Numbers) -> Finding:
    """Two clients of one domain are always nearer than two of different ones."""
    found = _domains(t)
    if found is None:
        return not_tested("no distances between clients")
    distance, clusters = found
    far = np.fmax(distance, distance.T)
    same = np.equal.outer(clusters, clusters)
    inside, across = np.nanmax(far[same]), far[~same].min()
    text = f"at most {inside:.3f} inside, at least {across:.3f} across"
    return Finding(across - inside, bool(inside < across), text)


@claim("emdcfl-fig2-2", data=("pacs",), tables=("T7",), unit="distance", show="{:+.3f}")
def art_sees_others_near(t: Numbers) -> Finding:
    """Networks of art see other domains nearer than these see art, most of all."""
    found = _domains(t)
    if found is None:
        return not_tested("no distances between clients")
    distance, clusters = found
    gaps = []
    for domain in np.unique(clusters):
        own = clusters == domain
        looks = distance[np.ix_(own, ~own)].mean()
        gaps.append(looks - distance[np.ix_(~own, own)].mean())
    holds = [gaps[0] < 0, gaps[0] == min(gaps)] if gaps[0] < 0 else False
    return Finding(gaps[0], holds, ", ".join(f"{gap:+.3f}" for gap in gaps))


# ---------------------------------------------------------------- backdoors

ON_DIGITS = {"data": ("backdoor_mnist",), "tables": ("T8", "T3")}
ON_PICTURES = {"data": ("backdoor_cifar10",), "tables": ("T8", "T3")}
CLEAN, TRIGGER = "clean_accuracy", "backdoor_accuracy"


def lost(t: Numbers, methods: Sequence[str]) -> pd.Series:
    """Return how many points the targets lose under the trigger."""
    return scores(t, methods, CLEAN) - scores(t, methods, TRIGGER)


@claim("emdcfl-t3-1", **ON_DIGITS, **ARI)
def three_isolate_attackers(t: Numbers) -> Finding:
    """EMD-CFL, FlexCFL, CFLGP isolate the attackers, no other hard method does."""
    found = {name: aris(t, name) for name in HARD}
    found = {name: each for name, each in found.items() if each}
    able = ("emdcfl", "flexcfl", "cflgp")
    holds = []
    for name, each in found.items():
        holds += [_right(ari) == (name in able) for ari in each]
    if not found or (len(found) < len(HARD) and all(holds)):
        return not_tested(f"{len(found)} of {len(HARD)} methods were run")
    own = found.get("emdcfl", [np.nan])
    return Finding(np.mean(own), holds, _told(found))


@claim("emdcfl-t3-2", **ON_DIGITS, variants=("as_run",))
def flexcfl_ends_low(t: Numbers) -> Finding:
    """FlexCFL's targets end 10 points or more below the oracle's."""
    gap = score(t, "flexcfl", CLEAN) - score(t, "oracle", CLEAN)
    return Finding(gap, gap <= -10)


@claim("emdcfl-t3-3", **ON_PICTURES, **ARI)
def alone_isolates_attackers(t: Numbers) -> Finding:
    """EMD-CFL alone isolates the attackers of Backdoor CIFAR-10."""
    return alone_finds_clusters(t)


def _keeps_targets_safe(t: Numbers) -> Finding:
    loss = lost(t, ("emdcfl",))["emdcfl"]
    behind = score(t, "oracle", TRIGGER) - score(t, "emdcfl", TRIGGER)
    text = f"lose {loss:.2f}, {behind:+.2f} to the oracle's under the trigger"
    return Finding(loss, [loss <= 0.5, behind <= 0.5], text)


@claim("emdcfl-t3-4", **ON_DIGITS, show="{:+.2f}")
def targets_of_mnist_are_safe(t: Numbers) -> Finding:
    """EMD-CFL's targets lose 0.5 at most under the trigger, as the oracle's do."""
    return _keeps_targets_safe(t)


@claim("emdcfl-t3-5", **ON_PICTURES, show="{:+.2f}")
def targets_of_cifar_are_safe(t: Numbers) -> Finding:
    """EMD-CFL's targets lose 0.5 at most under the trigger, as the oracle's do."""
    return _keeps_targets_safe(t)


@claim("emdcfl-t8-1", **ON_PICTURES, variants=("as_written",))
def others_lose_under_the_trigger(t: Numbers) -> Finding:
    """Soft, unclustered methods lose 15 or more, FedProx half of FedAvg's or less."""
    loss = lost(t, (*SOFT, *UNCLUSTERED, "fedprox"))
    least = np.min(loss.drop("fedprox").to_numpy())
    text = f"at least {least:.1f}, FedProx {loss['fedprox']:.1f}, "
    text += f"FedAvg {loss['fedavg']:.1f}"
    holds = [least >= 14.5, loss["fedprox"] < loss["fedavg"] / 2]
    return Finding(least, holds, text)


@claim("emdcfl-t8-2", **ON_DIGITS, show="{:+.2f}")
def others_do_not_protect(t: Numbers) -> Finding:
    """EMD-CFL's targets beat all soft and unclustered ones under the trigger."""
    others = scores(t, (*SOFT, *UNCLUSTERED, "fedprox"), TRIGGER)
    lead = score(t, "emdcfl", TRIGGER) - np.max(others.to_numpy())
    return Finding(lead, lead > 0)
