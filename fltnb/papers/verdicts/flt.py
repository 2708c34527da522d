"""Tests of FLT's claims about label clusters: scenarios 1 and 2, and the toy."""

import numpy as np
import pandas as pd

from .claim import Finding, NotTestedError, claim, complete, needed
from .numbers import Numbers, ahead

SCENARIOS = {"tables": ("T1", "T2")}
OTHERS = ("fedavg", "local", "pca_km_hc", "fedsem")
"""Methods with which scenarios 1 and 2 compare FLT; FLT is its row with Enc1."""


@claim("flt-fig2", unit="ARI", show="{:.2f}")
def toy_blocks(t: Numbers) -> Finding:
    """FLT finds five clusters among 25 clients and orders their graph into blocks.

    The clusters are judged: sorted by correct clusters, the graph has blocks.

    The figure shows 25 clients in five diagonal blocks and has no numbers. The paper
    does not say which data it uses; ours are the embedded digits.
    """
    ari = t.mean("flt", "ari")
    n_clusters = t.mean("flt", "n_clusters")
    return Finding(ari, ari == 1 and n_clusters == 5)


# ---------------------------------------------------------------- Tables 1 and 2


@claim("flt-t1-1", **SCENARIOS, show="{:.2f}")
def encoders_agree(t: Numbers) -> Finding:
    """Enc1 and Enc2 agree within 1 point.

    The number is the mean over seeds of their distance.

    Tables 1 and 2 print them 0.00 to 0.06 apart. A whole point is allowed for the
    spread of our few seeds; it is exceeded where the encoders lead to other clusters.
    """
    both = t.by_seed("flt_enc1", "flt_enc2")
    apart = (both["flt_enc1"] - both["flt_enc2"]).abs().mean()
    return Finding(apart, apart <= 1)


@claim("flt-t1-2", data=("cifar10",), tables=("T1",))
def fedavg_collapses(t: Numbers) -> Finding:
    """FedAvg is 40 points or more behind FLT.

    Table 1 prints 33 % for FedAvg and 87 % for FLT, 54 points apart. A gap of 40 is
    still a collapse: no other method of the table is so far behind.
    """
    lead = t.lead("flt_enc1", "fedavg")
    return Finding(lead, lead > 40)


@claim("flt-t1-3", **SCENARIOS)
def local_is_weaker_in_scenario_2(t: Numbers) -> Finding:
    """Local is less accurate in scenario 2 than in scenario 1.

    The code's scenario 1 on MNIST has clients that hold copies of others' images: the
    claim must hold without them as well.

    Section 4.4 says that Local scores better in scenario 1; Tables 1 and 2 print 0.8
    points on MNIST and 9.4 on CIFAR-10. The text also tells how far Local is behind the
    oracle (in print: FLT) in both, which does not count.
    """
    first = t if t.table == "T1" else t.beside("01")
    second = t if t.table == "T2" else t.beside("02")
    best = "flt_enc1" if t.printed else "oracle"
    one = first.means(best, "local")
    two = second.means(best, "local")
    lower = one["local"] - two["local"]
    if np.isnan(lower):
        raise NotTestedError("it needs the runs of both scenarios")
    holds = [lower > 0]

    if t.dataset == "mnist" and t.variant == "as_run":
        of_originals = {"measure": "first_clients_accuracy"}
        original_one = first.mean("local", **of_originals)
        original_two = second.mean("local", **of_originals)
        holds.append(original_one > original_two)
    behind_one = one[best] - one["local"]
    behind_two = two[best] - two["local"]
    return Finding(
        number=lower,
        holds=holds,
        text=f"{one['local']:.1f} → {two['local']:.1f}, "
        f"behind by {behind_one:.1f} → {behind_two:.1f}",
    )


@claim("flt-t1-4", **SCENARIOS, show="{:+.2f}")
def flt_is_best(t: Numbers) -> Finding:
    """FLT has the best accuracy (scenario 1: or within 0.1 points).

    Where FLT was run with the code's BatchNorm as well, it must lead with that, too.

    In scenario 1 on MNIST the printed FedSEM is ahead by 0.03, a tie in the paper.
    """
    lead = t.lead("flt_enc1", *OTHERS)
    least = 0 if t.table == "T2" else -0.1
    holds = [lead >= least]
    text = f"{lead:+.2f}"

    in_training_mode = t.by_seed("flt_enc1", batch_norm="image")
    if len(in_training_mode):
        both = in_training_mode.join(t.by_seed(*OTHERS), how="inner")
        other = ahead(both.mean())
        holds.append(other >= least)
        text += f"; with the code's BatchNorm {other:+.2f}"
    return Finding(
        number=lead,
        holds=holds,
        text=text,
    )


@claim("flt-t1-5", **SCENARIOS)
def lead_over_fedsem(t: Numbers) -> Finding:
    """FLT leads FedSEM: little on MNIST, by 7 to 9 points on CIFAR-10.

    Scenario 2 is judged in whole points. "Little" means 4 there and 1 in scenario 1.

    In print the leads are 0.0 and 8.9 points in scenario 1, 3.2 and 6.7 in scenario 2.
    """
    lead = t.lead("flt_enc1", "fedsem")
    on_cifar = t.dataset == "cifar10"
    if t.table == "T2":
        holds = 6.5 <= lead < 9.5 if on_cifar else 0 < lead <= 4
    else:
        holds = 7 <= lead <= 9 if on_cifar else -1 <= lead <= 1
    return Finding(lead, holds)


@claim(
    "flt-text-headline",
    **SCENARIOS,
    data={"T1": ("cifar10",), "T2": ("mnist",)},
)
def headline(t: Numbers) -> Finding:
    """FLT leads FedSEM by 7 or more (scenario 1, CIFAR-10), by about 3 (2, MNIST).

    "About" means within 1 point.

    The sentence names no scenario. Each of its numbers is printed in one of them, 8.9
    points in Table 1 and 3.2 in Table 2, and is judged there. In the other scenario
    print has 6.7 points on CIFAR-10 and 0.0 on MNIST.
    """
    lead = t.lead("flt_enc1", "fedsem")
    if t.table == "T2":
        return Finding(lead, abs(lead - 3) <= 1)
    return Finding(lead, lead >= 7)


@claim("flt-text-local", **SCENARIOS)
def local_is_behind(t: Numbers) -> Finding:
    """Local is half a point or more behind FLT.

    In print Local is 0.6 to 9.5 points behind, so the smallest printed gap still
    passes.
    """
    lead = t.lead("flt_enc1", "local")
    return Finding(lead, lead >= 0.5)


# ---------------------------------------------------------------- Figure 8


@claim("flt-fig8-1", **SCENARIOS, data=("cifar10",))
def leads_throughout(t: Numbers) -> Finding:
    """FLT with either encoder leads in every round (least lead).

    Figure 8 is of scenario 1, Figure 9 of scenario 2; both show FLT's two curves above
    all others. Each encoder is compared with the other methods, not with the other
    encoder, at the seeds that they share. Where Enc1 was run with the code's BatchNorm
    as well, it must lead with that, too.
    """
    leads = []
    for encoder in ("flt_enc1", "flt_enc2"):
        curves = t.curves(encoder, *OTHERS)
        needed(curves, "it needs the curves of all methods, with both encoders")
        by_round = curves.apply(ahead, axis=1)
        leads.append(by_round.min())
    least = min(leads)
    holds = [least > 0]
    text = f"{least:+.1f}"

    in_training_mode = t.curves_by_seed("flt_enc1", batch_norm="image")
    if len(in_training_mode):
        both = in_training_mode.join(t.curves_by_seed(*OTHERS), how="inner")
        by_round = both.groupby(level="round").mean().apply(ahead, axis=1)
        other = min(by_round.min(), leads[1])
        holds.append(other > 0)
        text += f"; with the code's BatchNorm {other:+.1f}"
    return Finding(
        number=least,
        holds=holds,
        text=text,
    )


@claim("flt-fig8-2", **SCENARIOS, show="{:.2f}")
def curves_coincide(t: Numbers) -> Finding:
    """The curves of Enc1 and Enc2, means over seeds, stay within 1 point.

    The code embeds Enc1 in training mode, like Enc2: if there are such runs,
    they must stay within 1 point as well.

    The tolerance is that of the final accuracies (Tables 1 and 2). It applies to the
    round in which the means are farthest apart.
    """
    both = t.curves_by_seed("flt_enc1", "flt_enc2")
    if both.empty:
        raise NotTestedError("it needs the curves of both encoders")
    gap = (both["flt_enc1"] - both["flt_enc2"]).abs()
    most = _most_of_means(gap)
    holds = [most <= 1]
    text = f"{most:.2f} (single seeds: up to {gap.max():.2f})"

    in_training_mode = t.curves_by_seed("flt_enc1", batch_norm="image")
    if len(in_training_mode):
        gap = (in_training_mode["flt_enc1"] - both["flt_enc2"]).abs()
        other = _most_of_means(gap)
        holds.append(other <= 1)
        text += f"; with the code's BatchNorm {other:.2f}"
    return Finding(
        number=most,
        holds=holds,
        text=text,
    )


def _most_of_means(gap: pd.Series) -> float:
    """Return the highest mean over seeds of all rounds."""
    return gap.groupby(level="round").mean().max()


# ---------------------------------------------------------------- variances


@claim(
    "flt-text-variance",
    tables=("T1", "T2", "T3", "T4"),
    unit="percent squared",
    show="{:+.2f}",
)
def least_variance(t: Numbers) -> Finding:
    """FLT varies least over clients (scenario 4: less than most).

    The number is the difference from the next method; in scenario 4 it is the number of
    methods, of three, that vary more.

    Section 4.4 says "almost all settings" of both scenarios, Section 5 "most" of all:
    each data set and network is judged. In Tables 1 to 3 half of the six printed
    margins are negative.
    """
    if t.table == "T4":
        return _below_most(t)
    if t.table == "T3":
        others = ("fedavg", "pca_km_hc", "ifca", "cfl", "fedsem")
        variance = t.means("flt", *others, measure="variance")
    else:
        variance = t.means("flt_enc1", *OTHERS, measure="variance")
    margin = ahead(-variance)
    return Finding(margin, margin >= 0)


def _below_most(t: Numbers) -> Finding:
    """Judge that two of three methods vary more than FLT."""
    methods = ("flt", "fedavg", "pca_km_hc", "fedsem")
    variance = complete(t.means(*methods, measure="variance"))
    more = variance > variance["flt"]
    higher = int(more.sum())
    return Finding(
        number=higher,
        holds=higher >= 2,
        text=f"{higher} of 3 vary more",
    )
