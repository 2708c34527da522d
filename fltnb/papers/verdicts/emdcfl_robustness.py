"""Tests of EMD-CFL's claims about distances (Tables 4, 5, 9; Figures 8 to 17).

A matrix of distances between clients has, in its row of ``runs``, the ends of the range
of tolerances that find the clusters (``low, high``), the farthest pair inside a cluster
and the nearest across (``inside_max, across_min``) and the ARI of average linkage told
the number of clusters (``ari_told``).
"""

import numpy as np
import pandas as pd

from ..names import label
from ..numbers import numbers
from .claim import Finding, claim, not_tested
from .numbers import Numbers

ROTATED = ("rotated_mnist", "rotated_cifar10")
BACKDOOR = ("backdoor_mnist", "backdoor_cifar10")
HARD = ("rotated_cifar10", *BACKDOOR)
"""The data sets of Figures 14 to 17."""
SHARE = {"unit": "of the matrices", "show": "{:.0%}", "tables": ("T9",)}
NETWORKS = ("stand-in: other networks than the paper's",)


def matrices(t: Numbers, **axes) -> pd.DataFrame:
    """Return EMD-CFL's matrices, of parts that vary nothing but what is named."""
    parts = ["projection", "sinkhorn", "published"]
    return t.distances(**({"measure": "emd", "part": parts} | axes))


def has_tolerance(found: pd.DataFrame, factor: float = 1.0) -> Finding:
    """Judge that in every matrix a range of tolerances finds the clusters."""
    if found.empty:
        return not_tested("no such matrix of distances")
    good = (found["low"] < found["high"]) & (found["high"] >= factor * found["low"])
    return Finding(good.mean(), good.tolist(), f"{good.sum()} of {len(good)} matrices")


def most_of(share):
    """Keep nine tenths of the dimensions or more."""
    return share >= 0.9


@claim("emdcfl-fig8-1", data=ROTATED, **SHARE)
def wide_plateau(t: Numbers) -> Finding:
    """Over a wide plateau of epsilon (factor 2) the clusters are found."""
    return has_tolerance(matrices(t, transport="exact", kept=most_of), 2)


@claim("emdcfl-fig8-2", data=ROTATED, **SHARE)
def a_tenth_of_the_dimensions(t: Numbers) -> Finding:
    """Some epsilon finds the clusters with 90 % of the dimensions removed."""
    return has_tolerance(matrices(t, transport="exact", kept=0.1))


@claim("emdcfl-fig9", data=ROTATED, **SHARE)
def plateau_with_sinkhorn(t: Numbers) -> Finding:
    """The plateau (factor 2) remains with Sinkhorn distances."""
    return has_tolerance(matrices(t, transport="sinkhorn", kept=0.9), 2)


@claim("emdcfl-fig12", data=("pacs",), **SHARE)
def half_of_the_dimensions_on_pacs(t: Numbers) -> Finding:
    """On PACS an epsilon finds the domains down to half of the dimensions."""
    return has_tolerance(
        matrices(t, transport="exact", kept=lambda share: share >= 0.5)
    )


@claim("emdcfl-fig13", data=BACKDOOR, **SHARE)
def tolerance_on_backdoors(t: Numbers) -> Finding:
    """On both backdoor sets an epsilon finds the groups, exact and with Sinkhorn."""
    return has_tolerance(matrices(t, transport=["exact", "sinkhorn"], kept=0.9))


# ---------------------------------------------------------------- networks


def networks(t: Numbers, **axes) -> pd.DataFrame:
    """Return the matrices under several networks."""
    return t.distances(part="network", **axes)


@claim("emdcfl-fig10-1", whole=True, **SHARE)
def every_network_has_a_tolerance(t: Numbers) -> Finding:
    """Every architecture has an epsilon at which the clusters are right."""
    finding = has_tolerance(networks(t))
    return Finding(finding.number, finding.holds, finding.text, finding.why, NETWORKS)


@claim("emdcfl-fig10-2", whole=True, unit="tolerance", show="{:+.4f}")
def tolerances_lie_apart(t: Numbers) -> Finding:
    """The epsilons that work lie at different places for different architectures."""
    found = networks(t, transport="exact")
    if len(found):
        found = found[found["low"] < found["high"]]
    if len(found) < 2:
        return not_tested("fewer than two networks have a tolerance")
    apart = found["low"].max() - found["high"].min()
    told = [
        f"{label(row.model)} {row.low:.3f} to {row.high:.3f}"
        for row in found.itertuples()
    ]
    return Finding(apart, apart >= 0, ", ".join(told), departs=NETWORKS)


@claim("emdcfl-fig11-1", whole=True, unit="ARI", show="{:.2f}")
def every_network_shows_blocks(t: Numbers) -> Finding:
    """The distances under every architecture show the four blocks."""
    found = networks(t, transport="exact")
    if found.empty:
        return not_tested("the network was not varied")
    right = np.isclose(found["ari_told"], 1)
    return Finding(found["ari_told"].min(), right.tolist(), departs=NETWORKS)


@claim("emdcfl-fig11-2", whole=True, unit="times", show="{:.2f}")
def upright_clients_find_others_far(t: Numbers) -> Finding:
    """Upright clients find others farther than these find them, under every network."""
    ratios = []
    for key in networks(t, transport="exact")["key"]:
        kept = t.arrays(key)
        across = np.not_equal.outer(kept["clusters"], kept["clusters"])
        far = np.where(across, kept["distance"], np.nan)
        mean = np.nanmean(far, axis=1)
        upright = kept["clusters"] == 0
        ratios.append(mean[upright].mean() / mean[~upright].mean())
    if not ratios:
        return not_tested("the network was not varied")
    text = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return Finding(min(ratios), [ratio > 1 for ratio in ratios], text, departs=NETWORKS)


# ---------------------------------------------------------------- other distances


def measure(t: Numbers, name: str) -> pd.DataFrame:
    """Return the matrices of one kind of distance."""
    found = t.distances(measure=name, part=["measures", "published"])
    if found.empty:
        return found
    usual = found["kept"].isna() | (found["kept"] == 0.9)
    return found[usual & (found["transport"] != "sinkhorn")]


def shows_clusters(t: Numbers, name: str, expected: bool) -> Finding:
    """Judge whether one threshold, or K, separates the clusters by a distance."""
    found = measure(t, name)
    if found.empty:
        return not_tested("no such matrix of distances")
    one = found["inside_max"] < found["across_min"]
    holds = (one == expected).tolist()
    if "cifar10" not in t.dataset:
        holds += ((found["ari_told"] >= 0.9) == expected).tolist()
    share = (found["across_min"] / found["inside_max"]).mean()
    text = f"nearest across {share:.2f} times the farthest inside, "
    text += f"ARI told K {found['ari_told'].mean():.2f}"
    return Finding(share, holds, text)


TIMES = {"data": HARD, "unit": "times", "show": "{:.2f}", "tables": ("T9",)}


@claim("emdcfl-fig14", **TIMES)
def parameters_do_not_show(t: Numbers) -> Finding:
    """Distances of parameters do not show the clusters, by a threshold or told K."""
    return shows_clusters(t, "parameters", expected=False)


@claim("emdcfl-fig15", **TIMES)
def gradients_do_not_show(t: Numbers) -> Finding:
    """Distances of gradients do not show the clusters, by a threshold or told K."""
    return shows_clusters(t, "updates", expected=False)


@claim("emdcfl-fig16", **TIMES)
def angles_do_not_show(t: Numbers) -> Finding:
    """Principal angles of inputs do not show the clusters, by a threshold or told K."""
    return shows_clusters(t, "angles", expected=False)


@claim("emdcfl-fig17", **TIMES)
def movers_show(t: Numbers) -> Finding:
    """EMDs show the clusters, by one threshold and told K."""
    return shows_clusters(t, "emd", expected=True)


# ---------------------------------------------------------------- tables


@claim("emdcfl-t4", whole=True, unit="times the oracle's time", show="{:.2f}")
def clustering_adds_a_tenth(t: Numbers) -> Finding:
    """Clustering once adds less than 15 % to the oracle's wall time."""
    both = t.by_seed("emdcfl", "oracle", measure="seconds")
    ratio = (both["emdcfl"] / both["oracle"]).mean()
    if np.isnan(ratio):
        return not_tested("whole runs were not timed")
    holds, text = [ratio < 1.15], f"whole runs of an MLP {ratio:.2f}"
    found = networks(t, transport="exact")
    deep = found[~found["model"].str.startswith("mlp")]
    if len(deep):
        added = deep["seconds"] / (10 * deep["training_seconds"])
        holds.append((added < 0.15).all())
        text += f", small CNNs {1 + added.min():.2f} to {1 + added.max():.2f}"
    return Finding(ratio, holds, text, departs=NETWORKS)


@claim("emdcfl-t5", whole=True, unit="networks", show="{:.0f}")
def embedding_dimensions(t: Numbers) -> Finding:
    """The networks embed into as many dimensions as Table 5 lists."""
    found = t.study("printed", table="T5")
    if found.empty:
        return not_tested("the networks were not built")
    ours = found.drop_duplicates("model").set_index("model")["value"]
    printed = numbers("emdcfl", "T5", metric="embedding_dim")
    printed = printed.drop_duplicates("model").set_index("model")["number"]
    same = (ours == printed.reindex(ours.index)).tolist()
    if len(ours) < len(printed) and all(same):
        return not_tested(f"{len(ours)} of {len(printed)} networks were built")
    return Finding(sum(same), same, f"{sum(same)} of {len(printed)} networks")


def _nearer(t: Numbers) -> pd.DataFrame:
    """Return distances of parameters inside the clusters found and overall."""
    found = t.study("printed", table="T9")
    if found.empty or "scope" not in found:
        return pd.DataFrame()
    wide = found.pivot_table("value", ["key", "parameters"], "scope")
    return wide.assign(ratio=wide["clusters"] / wide["overall"]).reset_index()


@claim("emdcfl-t9-1", tables=("T9",), unit="of the distance overall", show="{:.2f}")
def parameters_are_nearer_inside(t: Numbers) -> Finding:
    """Parameters lie nearer inside the clusters found than overall."""
    found = _nearer(t)
    if found.empty:
        return not_tested("the parameters were not compared")
    text = f"{found['ratio'].min():.2f} to {found['ratio'].max():.2f}"
    return Finding(found["ratio"].max(), (found["ratio"] < 1).tolist(), text)


@claim("emdcfl-t9-2", data=("rotated_cifar10",), tables=("T9",), show="{:.2f}")
def whole_resnet_is_hardly_nearer(t: Numbers) -> Finding:
    """The whole network on Rotated CIFAR-10 is hardly nearer (ratio above 0.95)."""
    found = _nearer(t)
    if found.empty:
        return not_tested("the parameters were not compared")
    ratio = found[found["parameters"] == "full_model"]["ratio"].mean()
    return Finding(ratio, ratio > 0.95)
