"""Tests of FLT's claims about label clusters: scenarios 1 and 2, and the toy."""

import numpy as np
import pandas as pd

from .claim import Finding, claim, not_tested
from .numbers import Numbers, ahead

SCENARIOS = ("T1", "T2")
OTHERS = ("fedavg", "local", "pca_km_hc", "fedsem")
"""Methods with which scenarios 1 and 2 compare FLT; FLT is its row with Enc1."""


@claim("flt-fig2", unit="ARI", show="{:.2f}")
def toy_blocks(t: Numbers) -> Finding:
    """FLT finds five clusters among 25 clients and orders their graph into blocks."""
    ari = t.mean("flt", "ari")
    return Finding(ari, ari == 1 and t.mean("flt", "n_clusters") == 5)


@claim("flt-t1-1", tables=SCENARIOS, show="{:.2f}")
def encoders_agree(t: Numbers) -> Finding:
    """Enc1 and Enc2 agree within 1 point."""
    both = t.by_seed("flt_enc1", "flt_enc2")
    apart = (both["flt_enc1"] - both["flt_enc2"]).abs().mean()
    return Finding(apart, apart <= 1)


@claim("flt-t1-2", data=("cifar10",), tables=("T1",))
def fedavg_collapses(t: Numbers) -> Finding:
    """FedAvg is 40 points or more behind FLT."""
    lead = ahead(t.means("flt_enc1", "fedavg"))
    return Finding(lead, lead > 40)


@claim("flt-t1-3", tables=SCENARIOS)
def local_is_weaker_in_scenario_2(t: Numbers) -> Finding:
    """Local falls further behind the oracle (in print: FLT) in scenario 2 than in 1."""
    first = t if t.table == "T1" else t.beside("01")
    second = t if t.table == "T2" else t.beside("02")
    best = "flt_enc1" if t.printed else "oracle"

    def behind(scenario: Numbers, measure: str) -> float:
        return ahead(scenario.means(best, "local", measure=measure))

    one = behind(first, "accuracy")
    two = behind(second, "accuracy")
    if np.isnan(two - one):
        return not_tested("it needs the runs of both scenarios")
    holds = [two > one]

    # the code's scenario 1 on MNIST has clients that hold copies of others' images
    if t.dataset == "mnist" and t.variant == "as_run":
        original = "first_clients_accuracy"
        holds.append(behind(second, original) > behind(first, original))
    return Finding(two - one, holds, f"{one:.1f} → {two:.1f}")


@claim("flt-t1-4", tables=SCENARIOS, show="{:+.2f}")
def flt_is_best(t: Numbers) -> Finding:
    """FLT has the best accuracy (scenario 1: or within 0.1 points)."""
    lead = ahead(t.means("flt_enc1", *OTHERS))
    # in print FedSEM is ahead by 0.03 on MNIST in scenario 1: the paper's tie
    least = 0 if t.table == "T2" else -0.1
    return Finding(lead, lead >= least)


@claim("flt-t1-5", tables=SCENARIOS)
def lead_over_fedsem(t: Numbers) -> Finding:
    """FLT leads FedSEM: little on MNIST, by 7 to 9 points on CIFAR-10."""
    lead = ahead(t.means("flt_enc1", "fedsem"))
    if t.dataset == "cifar10" and t.table == "T2":
        return Finding(lead, 6.5 <= lead < 9.5)
    if t.dataset == "cifar10":
        return Finding(lead, 7 <= lead <= 9)
    if t.table == "T2":
        return Finding(lead, 0 < lead <= 4)
    return Finding(lead, -1 <= lead <= 1)


@claim(
    "flt-text-headline",
    data={"T1": ("cifar10",), "T2": ("mnist",)},
    tables=SCENARIOS,
)
def headline(t: Numbers) -> Finding:
    """FLT improves on FedSEM by 7 or more on CIFAR-10 (1), about 3 on MNIST (2)."""
    lead = ahead(t.means("flt_enc1", "fedsem"))
    if t.table == "T2":
        return Finding(lead, abs(lead - 3) <= 1)
    return Finding(lead, lead >= 7)


@claim("flt-text-local", tables=SCENARIOS)
def local_is_behind(t: Numbers) -> Finding:
    """Local is half a point or more behind FLT."""
    lead = ahead(t.means("flt_enc1", "local"))
    return Finding(lead, lead >= 0.5)


@claim("flt-fig8-1", data=("cifar10",), tables=SCENARIOS)
def leads_throughout(t: Numbers) -> Finding:
    """FLT with either encoder leads in every round (least lead)."""
    least = []
    for encoder in ("flt_enc1", "flt_enc2"):
        curves = t.curves(encoder, *OTHERS)
        if len(curves):
            least.append(curves.apply(ahead, axis=1).min())
    if not least:
        return not_tested("it needs the curves of all methods")
    return Finding(min(least), min(least) > 0)


@claim("flt-fig8-2", tables=SCENARIOS, show="{:.2f}")
def curves_coincide(t: Numbers) -> Finding:
    """The curves of Enc1 and Enc2, means over seeds, stay within 1 point."""
    both = t.curves_by_seed("flt_enc1", "flt_enc2")
    if both.empty:
        return not_tested("it needs the curves of both encoders")
    gap = _apart(both["flt_enc1"], both["flt_enc2"])
    most = gap.groupby(level="round").mean().max()
    text = f"{most:.2f} (single seeds: up to {gap.max():.2f})"
    holds = [most <= 1]

    # the code embeds Enc1 in training mode, as it does Enc2
    same_mode = t.curves_by_seed("flt_enc1", batch_norm="image")
    if len(same_mode):
        gap = _apart(same_mode["flt_enc1"], both["flt_enc2"])
        other = gap.groupby(level="round").mean().max()
        text += f"; with the code's BatchNorm {other:.2f}"
        holds.append(other <= 1)
    return Finding(most, holds, text)


def _apart(one: pd.Series, other: pd.Series) -> pd.Series:
    return (one - other).abs().dropna()


@claim(
    "flt-text-variance",
    data={"T1": ("cifar10",), "T2": ("mnist",)},
    models={"T3": ("mlp",)},
    tables=("T1", "T2", "T3", "T4"),
    unit="percent squared",
)
def least_variance(t: Numbers) -> Finding:
    """FLT varies least over clients (scenario 4: less than most)."""
    if t.table == "T4":
        variance = t.means("flt", "fedavg", "pca_km_hc", "fedsem", measure="variance")
        if variance.isna().any():
            return not_tested("not all methods were run")
        higher = int((variance > variance["flt"]).sum())
        return Finding(higher, higher >= 2, f"{higher} of 3 vary more")

    if t.table == "T3":
        others = ("fedavg", "pca_km_hc", "ifca", "cfl", "fedsem")
        variance = t.at_last_round_of("flt", *others, measure="variance")
    else:
        variance = t.means("flt_enc1", *OTHERS, measure="variance")
    margin = ahead(-variance)
    return Finding(margin, margin >= 0)
