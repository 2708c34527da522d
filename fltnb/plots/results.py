"""Pictures of results: curves over rounds, single clients, accuracy against variance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import choose
from .style import CLUSTERS, axes_for, cluster_color, need, set_title, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPLITS = {"test": "-", "train": "--"}
SOURCES = {"participants": "s", "last_local": "^", "last_aggregate": "D"}  # markers of non-participant rules


def convergence(
    curves: pd.DataFrame,
    split: Sequence[str] = ("train", "test"),
    ax: Axes | None = None,
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw accuracy against round (the form of FLT's Figures 4, 5, 8, 9): test solid, train dashed.

    Parameters
    ----------
    curves : DataFrame
        Columns ``method, seed, round, split, accuracy`` (percent). The line is the mean over seeds; with several seeds
        a band goes from the lowest to the highest seed and the legend says so.
    split : sequence of {"train", "test"}
        What to draw.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    need(curves, ("method", "seed", "round", "split", "accuracy"), "curves")
    splits = [split] if isinstance(split, str) else list(split)
    for name in splits:
        choose(name, SPLITS, "split")
    fig, ax = axes_for(ax, (7.2, 4.2))
    methods = list(dict.fromkeys(curves["method"]))
    for position, method in enumerate(methods):
        look = style(method)
        for name in splits:
            one = curves[(curves["method"] == method) & (curves["split"] == name)]
            if one.empty:
                continue
            by_round = one.groupby("round")["accuracy"].agg(["mean", "min", "max"])
            every = max(1, len(by_round) // 8)
            ax.plot(
                by_round.index,
                by_round["mean"],
                SPLITS[name],
                color=look.color,
                lw=1.6 if name == "test" else 1.0,
                marker=look.marker if name == "test" else None,
                markersize=4.5,
                markevery=(position * every // max(1, len(methods)), every),  # curves that coincide stay visible
            )
            ax.fill_between(by_round.index, by_round["min"], by_round["max"], color=look.color, alpha=0.15, lw=0)
    handles = [
        Line2D([], [], color=style(m).color, marker=style(m).marker, ms=4.5, label=style(m).label) for m in methods
    ]
    handles += [Line2D([], [], color="0.4", ls=SPLITS[name], label=name) for name in splits]
    seeds = curves.groupby("method")["seed"].nunique()
    if len(seeds) and seeds.max() > 1:
        count = f"{seeds.max()}" if seeds.nunique() == 1 else f"up to {seeds.max()}"
        handles.append(Patch(color="0.4", alpha=0.2, lw=0, label=f"min to max of {count} seeds"))
    ax.set(xlabel="round", ylabel="accuracy, mean over clients (%)")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.25)
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    return fig, set_title(ax, title)


def per_client(results: pd.DataFrame, ax: Axes | None = None, title: str = "") -> tuple[Figure, Axes]:
    """Draw each client's accuracy by method: points, with median and quartiles as a box.

    Parameters
    ----------
    results : DataFrame
        Columns ``method``, ``accuracy`` (percent), one row per client; with a column ``cluster`` the points take the
        colours of the clusters. Several runs may be stacked.
    """
    from matplotlib.lines import Line2D

    need(results, ("method", "accuracy"), "per-client results")
    methods = list(dict.fromkeys(results["method"]))
    fig, ax = axes_for(ax, (1.6 + 1.1 * max(4, len(methods)), 4.2))
    for position, method in enumerate(methods):
        own = results[(results["method"] == method) & results["accuracy"].notna()]
        values = own["accuracy"].to_numpy()
        colors = [cluster_color(label) for label in own["cluster"]] if "cluster" in own else style(method).color
        # golden-ratio sequence: spread like random jitter, but the same every time
        jitter = (np.arange(len(values)) * 0.6180339887 % 1 - 0.5) * 0.55
        ax.scatter(position + jitter, values, s=9, c=colors, alpha=0.7, lw=0, zorder=2)
        ax.boxplot(
            [values],
            positions=[position],
            widths=0.68,
            showfliers=False,
            whis=(0, 100),
            medianprops={"color": "black", "lw": 1.8},
            boxprops={"color": "0.35"},
            whiskerprops={"color": "0.35"},
            capprops={"color": "0.35"},
        )
    names = [style(method).label for method in methods]
    ax.set_xticks(range(len(methods)), names, rotation=25 if len(methods) > 5 else 0)
    ax.set_ylabel("accuracy of a client (%)")
    clusters = np.unique(results["cluster"].dropna()) if "cluster" in results else []
    if 0 < len(clusters) <= len(CLUSTERS):
        handles = [Line2D([], [], ls="", marker="o", ms=4, color=cluster_color(c), label=f"{c:g}") for c in clusters]
        ax.legend(
            handles=handles,
            title="cluster",
            loc="upper left",
            bbox_to_anchor=(1.01, 1),
            frameon=False,
            fontsize="small",
        )
    ax.grid(axis="y", alpha=0.25)
    return fig, set_title(ax, title)


def accuracy_variance_plane(table: pd.DataFrame, ax: Axes | None = None, title: str = "") -> tuple[Figure, Axes]:
    """Draw each method's accuracy against its variance over clients, printed (hollow) and reproduced (filled).

    A line joins each reproduced point to the printed one. The two numbers together tell rules for non-participants
    apart that agree in either of them alone. The variance axis is logarithmic.

    Parameters
    ----------
    table : DataFrame
        ``method, source, accuracy`` (percent), ``variance`` (percent squared); ``source`` is "printed", or what the
        reproduced point is, such as a rule. ``published.accuracy_and_variance`` makes it.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    need(table, ("method", "source", "accuracy", "variance"), "table")
    fig, ax = axes_for(ax, (7.2, 4.4))
    # rules in their own order, whichever ran first
    sources = sorted(set(table["source"]) - {"printed"}, key=lambda source: ([*SOURCES, source].index(source), source))
    spare = iter("Pv<>Xdp*h" * (1 + len(sources)))
    markers = {source: SOURCES.get(source) or next(spare) for source in sources}
    floor = 1e-3  # a variance of 0 (all clients alike) has no place on a logarithmic axis
    points = table.assign(variance=table["variance"].clip(lower=floor))
    for method, own in points.groupby("method", sort=False):
        color = style(method).color
        printed = own[own["source"] == "printed"]
        for point in own[own["source"] != "printed"].itertuples():
            if len(printed):
                ends = printed.iloc[0]
                ax.plot([point.variance, ends["variance"]], [point.accuracy, ends["accuracy"]], color=color, lw=0.8)
            ax.scatter(point.variance, point.accuracy, marker=markers[point.source], s=42, color=color, lw=0, zorder=3)
        ax.scatter(printed["variance"], printed["accuracy"], s=110, fc="none", ec=color, lw=1.6, zorder=4)
    ax.set(xscale="log", xlabel="variance over clients (%²)", ylabel="accuracy, mean over clients (%)")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # the default writes "3 x 10^0" over its neighbours
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid(alpha=0.25, which="both")
    handles = [Line2D([], [], color=style(m).color, lw=3, label=style(m).label) for m in dict.fromkeys(table["method"])]
    if (table["source"] == "printed").any():
        handles.append(Line2D([], [], ls="", marker="o", ms=8, mfc="none", mec="0.3", mew=1.5, label="printed"))
    for source in sources:
        handles.append(Line2D([], [], ls="", marker=markers[source], color="0.3", label=source.replace("_", " ")))
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    return fig, set_title(ax, title)
