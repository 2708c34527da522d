"""Pictures of notebook 06: accuracy against bytes, and FLT's two bounds beside what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .style import axes_for, need, set_title, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURED, PRINTED, CORRECTED, OTHER = "#000000", "#D55E00", "#009E73", "#0072B2"
LEGEND = {"frameon": False, "fontsize": "small"}


def accuracy_against_bytes(curves: pd.DataFrame, ax: Axes | None = None, title: str = "") -> tuple[Figure, Axes]:
    """Draw test accuracy against what has been sent until then, all clients together.

    Parameters
    ----------
    curves : DataFrame
        ``method, note, split, round, accuracy, bytes_up, bytes_down`` of one seed; the mean is drawn where there are
        several. A run with a note is drawn dash-dotted; a method that sends nothing as a dotted level. Each point is
        the mean of the last five evaluations, because some methods jump from round to round.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    need(curves, ("method", "note", "split", "round", "accuracy", "bytes_up", "bytes_down"), "curves")
    fig, ax = axes_for(ax, (7.6, 4.4))
    test = curves[curves["split"] == "test"].assign(sent=lambda c: (c["bytes_up"] + c["bytes_down"]) / 1e6)
    means = test.groupby(["method", "note", "round"], sort=False)[["sent", "accuracy"]].mean()
    runs = list(means.groupby(["method", "note"], sort=False))
    for position, ((method, note), run) in enumerate(runs):
        look = style(method)
        label = look.label + (f", {note}" if note else "")
        if run["sent"].max() == 0:
            ax.axhline(run["accuracy"].iloc[-1], color=look.color, ls=":", label=f"{label} (sends nothing), at the end")
            continue
        sent = run.assign(accuracy=run["accuracy"].rolling(5, min_periods=1).mean())[1:]  # without round 0
        every = max(1, len(sent) // 8)
        ax.plot(
            sent["sent"],
            sent["accuracy"],
            "-." if note else "-",
            color=look.color,
            lw=1.5,
            marker=look.marker,
            markersize=4.5,
            markevery=(position * every // len(runs), every),  # curves that coincide stay visible
            label=label,
        )
    ax.set(xscale="log", xlabel="sent, up and down, all clients (MB)", ylabel="test accuracy, mean over clients (%)")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # the default writes "3 x 10^2" over its neighbours
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_title("each point: mean of the last five evaluations", fontsize="small", loc="right")
    ax.grid(alpha=0.25, which="both")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), **LEGEND)
    return fig, set_title(ax, title)


def centroid_bounds(table: pd.DataFrame, title: str = "") -> tuple[Figure, Sequence[Axes]]:
    """Draw Theorem 1 against samples per client and label, one panel for each error of a single sample.

    Parameters
    ----------
    table : DataFrame
        Of :func:`fltnb.analysis.theorem1.theorem1_table`.
    """
    import matplotlib.pyplot as plt

    errors = list(dict.fromkeys(table["p"]))
    fig, axes = plt.subplots(1, len(errors), figsize=(2.2 + 3.1 * len(errors), 3.9), sharey=True, layout="constrained")
    axes = np.atleast_1d(axes)
    lines = {
        "printed": (PRINTED, "--", None, "bound as printed, all labels"),
        "printed, labels held": (PRINTED, "-", None, "bound as printed, labels held"),
        "corrected": (CORRECTED, "-", None, "bound with n for n²"),
        "exact": (MEASURED, "-", None, "error, exact"),
        "measured": (MEASURED, "", "o", "error, measured"),
    }
    for ax, p in zip(axes, errors, strict=True):
        own = table[table["p"] == p]
        for column, (color, dashes, marker, label) in lines.items():
            values = own[column].where(own[column] > 0)
            ax.plot(own["n"], values, dashes, color=color, marker=marker, ms=5, label=label)
        ax.axhspan(1, 1e5, color="0.92", lw=0, zorder=0)
        ax.set(xscale="log", yscale="log", ylim=(1e-6, 1e4), xlabel="samples per client and label n")
        ax.set_xticks(own["n"], [f"{n:g}" for n in own["n"]])
        ax.minorticks_off()
        ax.set_title(f"error of a single sample p = {p:g}", fontsize="medium")
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("probability of any wrong coordinate")
    axes[0].annotate("above 1: vacuous", (0.03, 0.97), xycoords="axes fraction", va="top", fontsize="small")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1), **LEGEND)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def centroids_and_graph(table: pd.DataFrame, ax: Axes | None = None, title: str = "") -> tuple[Figure, Axes]:
    """Draw how often some centroid, and how often some pair of clients, is wrong, for several k.

    Parameters
    ----------
    table : DataFrame
        Of :func:`fltnb.analysis.theorem1.pipeline_table`.
    """
    fig, ax = axes_for(ax, (7.4, 3.9))
    looks = ((PRINTED, "s", 3.2), (OTHER, "o", 2.0), (CORRECTED, "v", 1.1))  # lines that coincide stay visible
    for (k, own), (color, marker, width) in zip(table.groupby("k", sort=False), looks, strict=False):
        look = {"color": color, "marker": marker, "ms": 3.5 + width, "lw": width}
        ax.plot(own["n"], own["centroids"], "-", label=f"k = {k}: some centroid wrong", **look)
        ax.plot(own["n"], own["graph"], "--", mfc="white", label=f"k = {k}: some pair of clients wrong", **look)
    ax.set(xscale="log", ylim=(-0.04, 1.06), xlabel="samples per client and label n", ylabel="share of draws")
    ticks = sorted(set(table["n"]))
    ax.set_xticks(ticks, [f"{n:g}" for n in ticks])
    ax.minorticks_off()
    ax.grid(alpha=0.25)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), **LEGEND)
    return fig, set_title(ax, title)


def samples_needed(table: pd.DataFrame, ax: Axes | None = None, title: str = "") -> tuple[Figure, Axes]:
    """Draw FCR's clustering of real data and Theorem 1 for the same embeddings, against samples per client.

    Parameters
    ----------
    table : DataFrame
        Of :func:`fltnb.analysis.theorem1.real_table`.
    """
    fig, ax = axes_for(ax, (7.4, 3.9))
    x = table["samples"]
    ax.plot(x, 1 - table["ari"], "-o", color=MEASURED, ms=5, label="1 - ARI, mean over seeds")
    ax.plot(x, table["wrong pairs"], "-s", color=OTHER, ms=5, label="share of client pairs wrong")
    ax.plot(x, 1 - table["all pairs right"], "--s", color=OTHER, ms=5, mfc="white", label="some pair wrong (seeds)")
    for form, color, label in (
        ("printed, labels held", PRINTED, "bound as printed, labels held"),
        ("corrected", CORRECTED, "bound with n for n²"),
    ):
        shown = table[form].where(table[form] <= 1)
        ax.plot(x, shown, "-v", color=color, ms=4.5, label=f"{label}, where below 1")
    ax.set(xscale="log", ylim=(-0.04, 1.06), xlabel="training images per client", ylabel="error (0 to 1)")
    ax.set_xticks(x, [f"{n:g}" for n in x])
    ax.minorticks_off()
    ax.grid(alpha=0.25)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), **LEGEND)
    return fig, set_title(ax, title)


def optimality_gap(
    curves: pd.DataFrame, graphs: Sequence[str] = ("true clusters", "everybody", "linked clusters"), title: str = ""
) -> tuple[Figure, Sequence[Axes]]:
    """Draw the mean gap and its bounds against T, a panel for each client graph; means over seeds.

    Parameters
    ----------
    curves : DataFrame
        Of :func:`fltnb.analysis.theorem2.gap_curves`, one kind of problem.
    graphs : sequence of str
        Which of its graphs.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(graphs), figsize=(2.6 + 2.7 * len(graphs), 3.9), sharey=True, layout="constrained")
    lines = {
        "gap": (MEASURED, "-", "measured"),
        "fifth": ("#8C8C8C", "-", "measured, a fifth of the\nclients per round"),
        "printed": (PRINTED, "-", "Theorem 2 as printed"),
        "projection": (CORRECTED, "--", "corrected, disjoint clusters"),
        "contraction": (OTHER, ":", "corrected, any graph,\nstrongly convex"),
    }
    for ax, name in zip(axes, graphs, strict=True):
        own = curves[curves["graph"] == name].groupby("T")[list(lines)].mean()
        for column, (color, dashes, label) in lines.items():
            if column == "projection" and name == "linked clusters":
                continue  # it is no bound there
            values = own[column].where(own[column] > 0)  # 0 at T = 1 as printed: not on a logarithmic axis
            ax.plot(own.index, values, dashes, color=color, lw=1.6, label=label)
        ax.set(xscale="log", yscale="log", xlabel="rounds T")
        ax.set_title(name, fontsize="medium")
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("gap, mean over clients and rounds")
    handles, labels = axes[0].get_legend_handles_labels()
    axes[-1].legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1), **LEGEND)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def step_sizes(table: pd.DataFrame, title: str = "") -> tuple[Figure, Sequence[Axes]]:
    """Draw the mean gap and its bounds against the step size, with the limits; crosses mark steps that diverge.

    Parameters
    ----------
    table : DataFrame
        Of :func:`fltnb.analysis.theorem2.step_table`.
    """
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(table["graph"]))
    fig, axes = plt.subplots(1, len(names), figsize=(9.2, 3.8), sharex=True, sharey=True, layout="constrained")
    top = 10 * np.nanmax(table[["printed bound", "corrected bound"]].to_numpy())
    for ax, name in zip(axes, names, strict=True):
        own = table[table["graph"] == name]
        fine = own["settles"] == 1
        ax.plot(own["eta L"], own["printed bound"], "-v", color=PRINTED, ms=4.5, label="Theorem 2 as printed")
        ax.plot(own["eta L"], own["corrected bound"], "--^", color=CORRECTED, ms=4.5, label="corrected")
        ax.plot(own["eta L"][fine], own["mean gap"][fine], "-o", color=MEASURED, ms=5, label="measured, settles")
        lost = own["mean gap"][~fine].fillna(np.inf).clip(upper=top)  # NaN: it has overflowed
        ax.plot(own["eta L"][~fine], lost, "x", color=MEASURED, ms=7, label="does not settle in every draw")
        limit = 1.0 if name == "alone" else 2 / (1 + np.sqrt(5))
        ax.axvline(limit, color=PRINTED, lw=1, ls=":", label="limit as printed, Eq. 29")
        ax.axvline(2, color=CORRECTED, lw=1, ls=":", label="2 / L")
        ax.set(yscale="log", xlabel="step size × L", ylim=(None, 3 * top))
        ax.set_title(name, fontsize="medium")
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("gap, mean over clients and rounds")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1), **LEGEND)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def local_epochs(table: pd.DataFrame, title: str = "") -> tuple[Figure, Sequence[Axes]]:
    """Draw, against E: the mean gap with the bounds of Equations 34 and 38, and the excess of the training loss.

    Parameters
    ----------
    table : DataFrame
        Of :func:`fltnb.analysis.theorem2.epochs_table`.
    """
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.8), layout="constrained")
    left.plot(table["E"], table["mean gap"], "-o", color=MEASURED, ms=5, label="measured")
    left.plot(table["E"], table["Eq. 34"], "-v", color=PRINTED, ms=5, label="Equation 34")
    left.plot(table["E"], table["Eq. 38"], "--v", color=PRINTED, ms=5, mfc="white", label="Equation 38")
    left.set_ylabel("gap, mean over clients and rounds")
    right.plot(table["E"], table["excess after 5"], "-s", color=OTHER, ms=5, label="after 5 rounds")
    right.plot(table["E"], table["excess at the end"], "-o", color=MEASURED, ms=5, label="at the end")
    right.set_ylabel("training loss above the clusters' best")
    lowest = table["excess at the end"][1:].min()  # with E = 1 it goes to 0, out of the picture
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="local steps per round E")
        ax.set_xticks(table["E"], [f"{E:g}" for E in table["E"]])
        ax.minorticks_off()
        ax.grid(alpha=0.25)
        ax.legend(**LEGEND)
    right.set_ylim(bottom=lowest / 10)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, (left, right)
