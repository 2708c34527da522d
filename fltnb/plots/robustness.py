"""What EMD-CFL's clusters depend on: ARI against the tolerance, scales of distances, matrices side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .style import CLUSTERS, need

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = (("-", "o"), ("--", "s"), ("-.", "^"), (":", "D"), ("-", "v"), ("--", "P"))
COLUMNS = 3
INSIDE, ACROSS = CLUSTERS[0], CLUSTERS[4]


def tolerance_curves(
    table: pd.DataFrame,
    panel: str = "dataset",
    line: str = "note",
    names: Mapping[str, str] | None = None,
    chosen: Mapping[tuple[str, str], tuple[float, float]] | None = None,
    published: float = 0.025,
    legend: str = "",
    title: str = "",
) -> tuple[Figure, list]:
    """Draw the ARI over the tolerance, one panel for each value of a column, one line for each of another.

    Parameters
    ----------
    table : DataFrame
        ``tolerance``, ``ari`` and the two columns.
    panel, line : str
        Columns.
    names : mapping, optional
        What stands above a panel instead of the column's value.
    chosen : mapping, optional
        (panel, line) -> a tolerance that was taken from the data and the ARI there; a star.
    published : float
        Tolerance marked by a vertical line.
    legend, title : str
        Title of the legend and of the figure.
    """
    import matplotlib.pyplot as plt

    need(table, ["tolerance", "ari", panel, line], "curves")
    panels, lines = (list(dict.fromkeys(table[column])) for column in (panel, line))
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (4.1 * columns + 0.6, 2.9 * rows + 0.7)
    fig, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", sharey=True, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.axis("off")
    for ax, value in zip(axes.flat, panels, strict=False):
        part = table[table[panel] == value]
        for number, name in enumerate(lines):
            one = part[part[line] == name].sort_values("tolerance")
            if not len(one):
                continue
            style, marker = LINES[number % len(LINES)]
            look = {"color": CLUSTERS[number % len(CLUSTERS)], "ls": style, "label": name}
            ax.plot(one["tolerance"], one["ari"], lw=1.8, marker=marker, ms=3, markevery=(number, 4), **look)
            at = (chosen or {}).get((value, name))
            if at is not None:
                ax.plot(*at, marker="*", ms=13, color=look["color"], mec="black", mew=0.7, ls="", zorder=3)
        ax.axvline(published, color="0.4", ls=":", lw=1.2)
        ax.set(xscale="log", ylim=(-0.12, 1.06), xlabel="tolerance ε")
        ax.set_title((names or {}).get(value, value), fontsize="medium")
        ax.grid(alpha=0.25)
    for ax in axes[:, 0]:
        ax.set_ylabel("ARI")
    marks = [plt.Line2D([], [], color="0.4", ls=":", label=f"{published:g}, as published")]
    if chosen:
        marks.append(plt.Line2D([], [], color="0.7", marker="*", ms=11, mec="black", ls="", label='"auto"'))
    found = {}
    for ax in axes.flat:
        found |= {text: handle for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    handles = [found[name] for name in lines] + marks
    fig.legend(handles=handles, title=legend, loc="outside lower center", ncols=min(len(handles), 7), frameon=False)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, list(axes.flat[: len(panels)])


def seeds_right(
    table: pd.DataFrame,
    names: Mapping[str, str] | None = None,
    common: tuple[float, float] | None = None,
    published: float = 0.025,
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw in how many seeds each tolerance finds the clusters, one line per data set.

    Parameters
    ----------
    table : DataFrame
        ``dataset``, ``tolerance``, ``right``, ``seeds``.
    names : mapping, optional
        What the legend says instead of the data set.
    common : (low, high), optional
        Range that is good for all; a band.
    published : float
        Tolerance marked by a vertical line.
    title : str
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    need(table, ["dataset", "tolerance", "right", "seeds"], "seeds")
    fig, ax = plt.subplots(figsize=(7.6, 3.6), layout="constrained")
    for number, (dataset, part) in enumerate(table.groupby("dataset", sort=False)):
        style, _ = LINES[number % len(LINES)]
        part, lowered = part.sort_values("tolerance"), 0.05 * number  # equal lines would hide each other
        look = {
            "color": CLUSTERS[number % len(CLUSTERS)],
            "ls": style,
            "lw": 1.8,
            "label": (names or {}).get(dataset, dataset),
        }
        ax.step(part["tolerance"], part["right"] - lowered, where="pre", **look)
    if common:
        ax.axvspan(*common, color="0.85", zorder=0, label=f"good for all: {common[0]:.4f} to {common[1]:.4f}")
    ax.axvline(published, color="0.4", ls=":", lw=1.2, label=f"{published:g}, as published")
    ax.set(xscale="log", xlabel="tolerance ε", ylabel=f"seeds of {table['seeds'].max()} with ARI 1", title=title)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.25)
    fig.legend(loc="outside right upper", frameon=False)
    return fig, ax


def distance_scales(
    table: pd.DataFrame, parts: Mapping[str, str], published: float = 0.025, title: str = ""
) -> tuple[Figure, np.ndarray]:
    """Draw distances inside and across the true clusters against what is varied; bands reach to the worst pair.

    Parameters
    ----------
    table : DataFrame
        ``part, note, inside, inside_max, across, across_min``; ``note`` is a number as text.
    parts : mapping
        Part -> label of its x axis.
    """
    import matplotlib.pyplot as plt

    need(table, ["part", "note", "inside", "inside_max", "across", "across_min"], "scales")
    fig, axes = plt.subplots(
        1, len(parts), figsize=(4.6 * len(parts) + 0.5, 3.7), layout="constrained", sharey=True, squeeze=False
    )
    for ax, (part, label) in zip(axes[0], parts.items(), strict=True):
        rows = table[table["part"] == part]
        levels = rows["note"].astype(float).to_numpy()
        for mean, worst, color, text in (
            ("inside", "inside_max", INSIDE, "inside a cluster (band: up to the farthest pair)"),
            ("across", "across_min", ACROSS, "across clusters (band: down to the nearest pair)"),
        ):
            ax.plot(levels, rows[mean], color=color, marker="o" if mean == "inside" else "^", label=text)
            ax.fill_between(levels, rows[mean], rows[worst], color=color, alpha=0.2, lw=0)
        ax.axhline(published, color="0.4", ls=":", lw=1.2, label=f"{published:g}, as published")
        ax.set(xscale="log", yscale="log", xlabel=label)
        ax.set_xticks(levels, [f"{level:g}" for level in levels])
        ax.minorticks_off()
        ax.grid(alpha=0.25)
    axes[0, 0].set_ylabel("distance of a pair")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]


def distance_heatmaps(
    found: Mapping[str, tuple[np.ndarray, Mapping[str, np.ndarray]]],
    measures: Mapping[str, str],
    names: Mapping[str, str] | None = None,
    title: str = "",
) -> tuple[Figure, np.ndarray]:
    """Draw matrices of distances side by side, one row per data set, clients by true cluster; each has its own scale.

    Parameters
    ----------
    found : mapping
        Data set -> true clusters (M,) and matrices (M, M) by measure.
    measures : mapping
        Measure -> what stands above its column, in their order.
    names : mapping, optional
        What stands beside a row instead of the data set.
    """
    import matplotlib.pyplot as plt

    if not found:
        raise FltnbError("There are no distances to draw: give those of at least one data set.")
    shape = (len(found), len(measures))
    size = (2.75 * shape[1] + 0.6, 2.45 * shape[0] + 0.4)
    fig, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    for row, (dataset, (clusters, held)) in zip(axes, found.items(), strict=True):
        order = np.argsort(clusters, kind="stable")
        edges = np.flatnonzero(np.diff(np.asarray(clusters)[order])) + 0.5
        for ax, measure in zip(row, measures, strict=True):
            shown = ax.imshow(
                np.asarray(held[measure])[np.ix_(order, order)], **_scale(held[measure]), cmap="viridis_r"
            )
            for edge in edges:
                ax.axhline(edge, color="white", lw=1)
                ax.axvline(edge, color="white", lw=1)
            ax.set(xticks=[], yticks=[])
            bar = fig.colorbar(shown, ax=ax, shrink=0.8, pad=0.02)
            bar.ax.tick_params(labelsize="x-small")
            bar.locator = plt.MaxNLocator(4)
            bar.update_ticks()
        row[0].set_ylabel((names or {}).get(dataset, dataset))
    for ax, text in zip(axes[0], measures.values(), strict=True):
        ax.set_title(text, fontsize="medium")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def _scale(matrix: np.ndarray) -> dict[str, float]:
    """Colours between the 1st and 99th percentile of the pairs: the diagonal says nothing."""
    pairs = np.asarray(matrix)[~np.eye(len(matrix), dtype=bool)]
    low, high = np.percentile(pairs, [1, 99])
    return {"vmin": float(low), "vmax": float(max(high, low + 1e-12))}


def ranked_cost(table: pd.DataFrame, labels: Sequence[str], title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw processor time per round and peak memory of methods as bars, in the order of the table.

    Parameters
    ----------
    table : DataFrame
        ``method, later_rounds, first_round, before, peak``.
    labels : sequence of str
        Of the methods.
    """
    import matplotlib.pyplot as plt

    from .style import style

    need(table, ["method", "first_round", "later_rounds", "before", "peak"], "costs")
    fig, axes = plt.subplots(
        1, 2, figsize=(10, 0.27 * len(table) + 1.2), layout="constrained", sharey=True, squeeze=False
    )
    place = np.arange(len(table))[::-1]
    colors = [style(name).color for name in table["method"]]
    axes[0, 0].barh(place, table["first_round"], color="none", edgecolor="0.3", label="first round")
    axes[0, 0].barh(place, table["later_rounds"], color=colors, height=0.5, label="later rounds (filled)")
    axes[0, 0].set_xlabel("processor seconds per round (outline: the first one)")
    axes[0, 1].barh(place, 1024 * (table["peak"] - table["before"]), color=colors)
    axes[0, 1].set_xlabel("peak memory above libraries and data, MiB")
    axes[0, 0].set_yticks(place, labels)
    for ax in axes[0]:
        ax.grid(alpha=0.25, axis="x")
        ax.set_axisbelow(True)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]
