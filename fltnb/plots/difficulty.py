"""Comparisons over many federations: curves of difficulty side by side, and one table of numbers as colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .style import need, set_title, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DODGE = 0.05  # of the distance of two levels: equal lines stay apart


def difficulty_curves(
    table: pd.DataFrame, axes: Mapping[str, str], falling: Sequence[str] = (), title: str = ""
) -> tuple[Figure, np.ndarray]:
    """Draw the adjusted Rand index of every clusterer along every axis of difficulty, harder to the right.

    One column of panels per axis, one row per value of column ``K`` (whether the number of clusters is given). Levels
    stand at equal distances, clusterers a little apart so that equal ones can be told; the line is the mean over seeds,
    the band goes from the lowest to the highest.

    Parameters
    ----------
    table : DataFrame
        Columns ``axis, level, K, method, seed, ari``.
    axes : mapping of str to str
        Axes to draw, and what stands at each.
    falling : sequence of str
        Axes on which smaller levels are harder.
    title : str
    """
    import matplotlib.pyplot as plt

    need(table, ("axis", "level", "K", "method", "seed", "ari"), "clusterings")
    shown = [axis for axis in axes if (table["axis"] == axis).any()]
    if not shown:
        raise FltnbError(f"There are no clusterings along any of the axes {', '.join(axes)}.")
    rows = list(dict.fromkeys(table["K"]))
    fig, panels = plt.subplots(
        len(rows),
        len(shown),
        figsize=(2.6 * len(shown) + 0.6, 2.5 * len(rows) + 0.8),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    methods = list(dict.fromkeys(table["method"]))
    handles = {}
    for row, known in zip(panels, rows, strict=True):
        for ax, axis in zip(row, shown, strict=True):
            part = table[(table["axis"] == axis) & (table["K"] == known)]
            levels = sorted(set(part["level"]), reverse=axis in falling)
            for place, method in enumerate(methods):
                over = part[part["method"] == method].groupby("level")["ari"].agg(["mean", "min", "max"])
                over = over.reindex(levels).dropna()
                if len(over):
                    shift = DODGE * (place - (len(methods) - 1) / 2)
                    x = [levels.index(level) + shift for level in over.index]
                    handles.setdefault(method, _line(ax, x, over, method))
            ax.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
            ax.set_ylim(min(-0.1, table["ari"].min() - 0.03), 1.05)
            ax.grid(alpha=0.25)
        row[0].set_ylabel(f"ARI, K {known}")
    for ax, axis in zip(panels[-1], shown, strict=True):
        ax.set_xlabel(_folded(axes[axis]), fontsize="small")
    fig.legend(
        list(handles.values()),
        [style(method).label for method in handles],
        loc="outside lower center",
        ncols=min(4, len(handles)),
        frameon=False,
    )
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, panels


def _line(ax: Axes, x: Sequence[int], over: pd.DataFrame, method: str):
    look = style(method)
    ax.fill_between(x, over["min"], over["max"], color=look.color, alpha=0.12, lw=0)
    return ax.plot(x, over["mean"], color=look.color, marker=look.marker, ms=4, lw=1.4)[0]


def _folded(text: str) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, 28))


def method_grid(
    values: pd.DataFrame,
    ax: Axes | None = None,
    title: str = "",
    *,
    label: str = "",
    digits: int = 1,
    limits: tuple[float, float] | None = None,
) -> tuple[Figure, Axes]:
    """Draw numbers of methods (rows) on federations (columns) as colours, with the numbers in them; grey: none.

    Parameters
    ----------
    values : DataFrame
        Index: method ids. Columns: names of federations. Larger is better.
    label : str
        What the colour is.
    digits : int
        Decimals of the numbers.
    limits : (float, float), optional
        Ends of the colour scale; numbers beyond have the colour of the end. Default: the smallest and the largest.
    """
    import matplotlib.pyplot as plt

    if not values.size:
        raise FltnbError("The grid has no numbers: give methods as rows and federations as columns.")
    if ax is None:
        size = (1.05 * values.shape[1] + 3.2, 0.27 * values.shape[0] + 1.6)
        fig, ax = plt.subplots(figsize=size, layout="constrained")
    else:
        fig = ax.figure
    numbers = values.to_numpy(dtype=float)
    low, high = limits or (np.nanmin(numbers), np.nanmax(numbers))
    colours = plt.get_cmap("viridis").with_extremes(bad="0.85")
    image = ax.imshow(np.ma.masked_invalid(numbers), cmap=colours, vmin=low, vmax=high, aspect="auto")
    middle = (low + high) / 2
    for (i, j), value in np.ndenumerate(numbers):
        if np.isfinite(value):
            text = f"{value:.{digits}f}".replace(f"-{0:.{digits}f}", f"{0:.{digits}f}")
            ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color="white" if value < middle else "black")
    ax.set_xticks(range(values.shape[1]), values.columns, rotation=30, ha="right", fontsize="small")
    ax.set_yticks(range(values.shape[0]), [style(method).label for method in values.index], fontsize="small")
    ax.tick_params(length=0)
    fig.colorbar(image, ax=ax, label=label, extend="min" if np.nanmin(numbers) < low else "neither", pad=0.02)
    return fig, set_title(ax, title)
