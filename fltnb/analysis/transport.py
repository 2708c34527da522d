"""Transport signatures: the null distribution as a picture, the study's table, and our own claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ..notebook import Claims

AIM = 0.98  # adjusted Rand index that counts as found
CURVES = {
    "overlap": "classes of a cluster shared with the next (share)",
    "samples": "training samples per client",
    "noise": "privacy budget epsilon (delta 1e-5)",
}


def study_table(table: pd.DataFrame) -> pd.DataFrame:
    """One row per federation and clusterer: how often C is right, ARI, undecided clients, cost.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`fltnb.oneshot.compute` for ``experiments.transport.clusterings``.
    """
    import pandas as pd

    rows = []
    for (name, method), part in _study(table).groupby(["federation", "method"], sort=False):
        right = int((part["n_clusters"] == part["true_clusters"]).sum())
        low, high = part["n_clusters"].min(), part["n_clusters"].max()
        rows.append(
            {
                "federation": name,
                "method": method,
                "true C": part["true_clusters"].iloc[0],
                "C found": f"{low}" if low == high else f"{low} to {high}",
                "C right": f"{right} of {len(part)}",
                "ARI, mean": part["ari"].mean(),
                "ARI, lowest": part["ari"].min(),
                "undecided, %": 100 * (part["undecided"] / part["n_clients"]).mean(),
                "numbers sent": part["floats_up"].mean(),
                "seconds": part["seconds"].mean(),
            }
        )
    return pd.DataFrame(rows)


def curves_table(table: pd.DataFrame, part: str) -> pd.DataFrame:
    """Mean ARI over seeds, one row per clusterer, one column per level of ``part`` (overlap, samples or noise)."""
    rows = table[table["part"] == part]
    rows = rows.assign(level=rows["level"].map("{:.3g}".format))
    return rows.pivot_table(index="method", columns="level", values="ari", aggfunc="mean", sort=False)


def null_figure(clusterer, clusters: np.ndarray, sizes: Sequence[int]) -> tuple[Figure, np.ndarray]:
    """Draw why one cut serves all sizes: own distances shrink with the samples, standardised ones do not.

    Parameters
    ----------
    clusterer : fitted TransportSignatures
    clusters : ndarray (M,)
        True clusters.
    sizes : sequence of M ints
        Training samples of the clients.
    """
    import matplotlib.pyplot as plt
    from scipy.stats import norm

    from ..plots import CLUSTERS

    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    sizes = np.asarray(sizes)
    own = clusterer.null_
    axes[0].plot(np.repeat(sizes, own.shape[1]), own.ravel(), ".", color="0.6", ms=4, label="one division")
    axes[0].plot(sizes, own.mean(1), "o", color=CLUSTERS[0], ms=4, label="mean of a client")
    axes[0].set_xscale("log")
    _plain_ticks(axes[0], [n for n in (5, 10, 20, 50, 100, 200, 500, 1000) if sizes.min() / 2 <= n <= 2 * sizes.max()])
    axes[0].set(xlabel="training samples of the client", ylabel="distance to itself", ylim=(0, None))
    axes[0].legend(frameon=False, fontsize="small")
    axes[0].set_title("what chance alone does, by size", fontsize="medium")
    upper = np.triu_indices(len(sizes), 1)
    same = (clusters[:, None] == clusters[None])[upper]
    z = clusterer.distance_[upper]
    bins = np.linspace(min(-3.5, z.min()), z.max(), 60)
    for which, name, color in ((same, "same cluster", CLUSTERS[2]), (~same, "different clusters", CLUSTERS[4])):
        axes[1].hist(z[which], bins, density=True, alpha=0.6, color=color, label=name)
    x = np.linspace(bins[0], 4.5, 200)
    axes[1].plot(x, norm.pdf(x), color="black", lw=1.2, label="what the test assumes")
    axes[1].axvline(
        norm.isf(clusterer.alpha), color="black", ls=":", label=f"level of one pair, alpha = {clusterer.alpha}"
    )
    axes[1].set(xlabel="standardised distance Z of two clients", ylabel="density of pairs")
    axes[1].legend(frameon=False, fontsize="small")
    axes[1].set_title("the same for pairs, size taken out", fontsize="medium")
    return fig, axes


def _plain_ticks(ax, values: Sequence[float]) -> None:
    """Write numbers instead of powers of ten on a logarithmic axis."""
    from matplotlib.ticker import NullLocator

    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())


def merges_figure(clusterer, clusters: np.ndarray) -> tuple[Figure, object]:
    """Draw the test of every merge of the dendrogram: the mean Z between the groups against what it allows."""
    import matplotlib.pyplot as plt

    from ..plots import CLUSTERS

    pure = pure_merges(clusterer.linkage_, clusters)
    fig, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for which, name, color, marker in (
        (pure, "inside a true cluster", CLUSTERS[2], "o"),
        (~pure, "across true clusters", CLUSTERS[4], "^"),
    ):
        ax.plot(clusterer.limit_[which], clusterer.gap_[which], marker, color=color, ms=5, alpha=0.7, label=name)
    line = np.array([0, clusterer.limit_.max() * 1.05])
    ax.plot(line, line, color="black", lw=1)
    ax.annotate("refused above", (line[1] * 0.8, line[1] * 0.8), (0, 8), textcoords="offset points", ha="right")
    ax.set(xlabel="what the test allows (small groups: more)", ylabel="mean Z between the two groups")
    ax.legend(frameon=False, fontsize="small")
    return fig, ax


def pure_merges(tree: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Whether each merge of a dendrogram joins clients of one true cluster only, bool (M - 1,)."""
    held = [{c} for c in np.asarray(clusters).tolist()]
    pure = []
    for left, right in tree[:, :2].astype(int):
        held.append(held[left] | held[right])
        pure.append(len(held[-1]) == 1)
    return np.array(pure)


def curves_figure(table: pd.DataFrame) -> tuple[Figure, np.ndarray]:
    """Draw the ARI against overlap, samples and noise, one panel each."""
    import matplotlib.pyplot as plt

    from .. import plots

    fig, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", sharey=True)
    for number, (ax, (part, label)) in enumerate(zip(axes, CURVES.items(), strict=True)):
        rows = table[table["part"] == part]
        plots.ari_curves(rows, "level", ax, label=label, log=part != "overlap")
        if part != "overlap":
            _plain_ticks(ax, sorted(rows["level"].unique()))
        ax.set_title(f"{part}", fontsize="medium")
        if number:
            ax.set_ylabel("")
        ax.get_legend().remove()
    names = list(dict.fromkeys(table.loc[table["part"].isin(CURVES), "method"]))
    handles = [
        plt.Line2D([], [], color=plots.style(m).color, marker=plots.style(m).marker, label=plots.style(m).label)
        for m in names
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(names), frameon=False)
    return fig, axes


def transport_claims(table: pd.DataFrame, accuracy: pd.DataFrame | None = None) -> Claims:
    """Check what we hope for ourselves; none of it is a paper's.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`fltnb.oneshot.compute` for ``experiments.transport.clusterings``.
    accuracy : DataFrame, optional
        :func:`fltnb.store.tidy` of the training runs.
    """
    from ..notebook import Claims

    claims = Claims()
    ours = _study(table)
    ours = ours[ours["method"] == "transport"]
    for name, part in ours.groupby("federation", sort=False):
        right = int((part["n_clusters"] == part["true_clusters"]).sum())
        holds = right == len(part) and bool((part["ari"] >= AIM).all())
        evidence = f"C right in {right} of {len(part)}, lowest ARI {part['ari'].min():.3f}"
        claims.check(f"{name}: the right number of clusters, and ARI {AIM} or more, C not given", holds, evidence)
    shared = table[(table["part"] == "overlap") & (table["method"] == "transport")]
    worst = shared.groupby("level")["ari"].min()
    claims.check(
        "Clusters that share classes with their neighbours are still found",
        bool((worst >= AIM).all()),
        ", ".join(f"{level:.2f} shared: {ari:.2f}" for level, ari in worst.items()),
    )
    noisy = table[table["part"] == "noise"].groupby("level")["ari"].min()
    enough = noisy.index[noisy >= AIM]
    claims.check(
        "A privacy budget of epsilon 10 or less leaves the clusters visible",
        bool(len(enough)) and bool(enough.min() <= 10),
        f"epsilon {enough.min():g} is needed" if len(enough) else "no budget tried is enough",
    )
    if accuracy is not None:
        rows = accuracy[(accuracy["split"] == "test") & (accuracy["metric"] == "accuracy")]
        mean = rows.groupby("method")["value"].mean()
        claims.check(
            "Trained on these clusters, FLT is within 0.5 points of the true ones",
            bool(mean["transport"] >= mean["oracle"] - 0.5),
            f"{mean['transport'] - mean['oracle']:+.1f}",
        )
    return claims


def _study(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["part"] == "study"]
