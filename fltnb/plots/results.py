"""Pictures of the last round: single clients, accuracy against variance, printed against reproduced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .style import CLUSTERS, axes_for, cluster_color, need, set_title, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = {"participants": "s", "last_local": "^", "last_aggregate": "D"}  # markers of non-participant rules


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


def agreement(table: pd.DataFrame, near: float = 3.0, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw each reproduced accuracy against the printed one, a panel per variant; on the diagonal they are equal.

    Parameters
    ----------
    table : DataFrame
        ``method, variant, number`` (printed), ``mean`` (reproduced; both percent), ``status``: hollow points are
        not "reproduced" in the printed setting on the printed data. ``report.numbers`` makes it.
    near : float
        Half width of the grey band, in points.
    """
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    need(table, ("method", "variant", "number", "mean", "status"), "numbers")
    variants = list(dict.fromkeys(table["variant"])) or [""]
    fig, axes = plt.subplots(
        1, len(variants), figsize=(4.3 * len(variants) + 1.8, 4.4), sharey=True, squeeze=False, layout="constrained"
    )
    ends = np.array([0.0, 100.0])
    low = table[["number", "mean"]].min().min() if len(table) else 0.0
    for ax, variant in zip(axes[0], variants, strict=True):
        ax.fill_between(ends, ends - near, ends + near, color="0.9", lw=0)
        ax.plot(ends, ends, color="0.6", lw=0.8)
        for method, own in table[table["variant"] == variant].groupby("method", sort=False):
            look = style(method)
            for true, part in own.groupby(own["status"] == "reproduced"):
                fill = look.color if true else "none"
                ax.scatter(part["number"], part["mean"], marker=look.marker, s=34, fc=fill, ec=look.color, zorder=3)
        ax.set(xlim=(low - 4, 102), ylim=(low - 4, 102), xlabel="printed (%)", aspect="equal", title=variant)
    axes[0, 0].set_ylabel("reproduced (%)")
    looks = [style(method) for method in dict.fromkeys(table["method"])]
    handles = [Line2D([], [], ls="", marker=look.marker, color=look.color, label=look.label) for look in looks]
    handles.append(Patch(color="0.9", label=f"within {near:g} points"))
    if (table["status"] != "reproduced").any():
        handles.append(Line2D([], [], ls="", marker="o", mfc="none", mec="0.3", label="other data or setting"))
    fig.legend(handles=handles, loc="outside right upper", frameon=False, fontsize="small")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]
