"""Points after the last round: every client, or every run.

Bars and boxes show the middle; the points show how few runs or clients there are, and
how much they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError, choose
from .style import (
    CLUSTERS,
    MEASURES,
    Names,
    Style,
    cluster_color,
    handle,
    headline,
    in_order,
    label,
    legend,
    looks,
    need,
    panels,
    where,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = {"as_written": "o", "as_run": "s", "paper": "o"}
"""Markers of variants, and of printed numbers."""
PAPER: dict[str, Any] = {"marker": "o", "ls": "", "ms": 10, "mfc": "none", "mew": 1.6}
"""Style of printed numbers: hollow markers."""


def client_strip(
    frame: pd.DataFrame,
    x: str = "method",
    hue: str | None = "true_cluster",
    *,
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw each client's test accuracy by method.

    The clients are points; a box shows median, quartiles and range.

    Parameters
    ----------
    frame : DataFrame
        Rows of ``Results.clients``, one per client and run; several runs may be
        stacked.
    x : str
        Column whose values are placed side by side.
    hue : str, optional
        Column of clusters, for the points' colours. Without it, or if all are missing,
        methods have their own.
    title : str
        Title that states the result.

    Raises
    ------
    FltnbError
        A column is missing, or no client was tested.

    Examples
    --------
    >>> import pandas as pd
    >>> import fltnb as fl
    >>> frame = pd.DataFrame({"method": "fedavg", "test": [70.0, 85.0, 90.0]})
    >>> title = "One client is far behind"
    >>> figure, axis = fl.plots.client_strip(frame, hue=None, title=title)
    """
    columns = [x, "test"]
    if hue:
        columns.append(hue)
    need(frame, columns, "clients")
    frame = frame[frame["test"].notna()]
    if frame.empty:
        raise FltnbError(
            "No client has a number 'test' to draw: give clients that were tested."
        )
    groups = looks(frame[x], x)

    by_cluster = False
    if hue is not None:
        by_cluster = frame[hue].notna().all() and (frame[hue] >= 0).all()

    width = 1.2 + 0.85 * max(4, len(groups))
    fig, (ax,) = panels(1, (width, 4.0))
    for place, (value, look) in enumerate(groups.items()):
        own = frame[frame[x] == value]
        colors = look.color
        if by_cluster:
            colors = [cluster_color(cluster) for cluster in own[hue]]
        beside = spread(np.full(len(own), place), 0.55)
        ax.scatter(beside, own["test"], s=9, c=colors, lw=0, zorder=2)
        _box(ax, own["test"].to_numpy(dtype=float), place)

    names = [look.label for look in groups.values()]
    turn: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(names) > 4 else {}
    ax.set_xticks(range(len(names)), names, **turn)
    ax.grid(False, axis="x")
    ax.set(xlabel="", ylabel=MEASURES["test"])
    if by_cluster:
        clusters = np.unique(frame[hue])
        if len(clusters) <= len(CLUSTERS):
            handles = [handle(f"{one:g}", cluster_color(one), "o") for one in clusters]
            legend(fig, None, handles, label(hue))
    headline(fig, title)
    return fig, ax


def _box(ax: Axes, values: np.ndarray, place: float) -> None:
    """Draw a box of quartiles, with whiskers to the ends and a black median.

    ``values``: (n,); ``place``: its position.
    """
    grey = {"color": "0.35"}
    ax.boxplot(
        [values],
        positions=[place],
        widths=0.68,
        whis=(0, 100),
        showfliers=False,
        boxprops=grey,
        whiskerprops=grey,
        capprops=grey,
        medianprops={"color": "black", "lw": 1.8},
    )


def dots(
    frame: pd.DataFrame,
    x: str | Sequence[str] = "accuracy",
    style: str | None = "variant",
    col: str | None = None,
    *,
    names: Names = None,
    title: str = "",
) -> tuple[Figure, list[Axes]]:
    """Draw one line per method with a dot for every run.

    A bar shows their mean, a hollow ring the printed number.

    Parameters
    ----------
    frame : DataFrame
        Rows of ``Results.runs``, one per run; where ``style`` is "paper", printed
        numbers.
    x : str or several
        Columns of numbers, one panel each; missing numbers are left out.
    style : str, optional
        Column that distinguishes variants and printed numbers.
    col : str, optional
        With one ``x``: column with one panel per value, such as a task.
    names : mapping, optional
        Value, or column of ``x`` -> name shown.
    title : str
        Title that states the result.

    Raises
    ------
    FltnbError
        A column is missing, there is no row, a variant is none of :data:`SOURCES`, or
        both several columns and ``col`` are given.

    Examples
    --------
    >>> import pandas as pd
    >>> import fltnb as fl
    >>> frame = pd.DataFrame({"method": ["fedavg", "flt_enc1"], "accuracy": [70, 90]})
    >>> figure, axes = fl.plots.dots(frame, style=None, title="FLT is ahead")
    """
    measures = [x] if isinstance(x, str) else list(x)
    needed = ["method", *measures, style, col]
    need(frame, [column for column in needed if column], "runs")
    if frame.empty:
        raise FltnbError("There are no runs to draw: give at least one row.")
    if col and len(measures) > 1:
        raise FltnbError("Give either several columns of numbers or col, not both.")

    if style:
        for source in frame[style].unique():
            choose(source, SOURCES, "variant to draw")

    groups = looks(frame["method"], "method", names)
    cells = in_order(frame[col]) if col else [None]
    drawn = list(product(measures, cells))
    count = len(drawn)
    size = (3.4 + 1.4 / count, 0.3 * len(groups) + 1.4)
    fig, axes = panels(count, size, count, sharey=True)

    known = MEASURES | dict(names or {})
    for ax, (measure, cell) in zip(axes, drawn, strict=True):
        _dots_panel(ax, where(frame, {col: cell}), measure, style, groups)
        ax.set_xlabel(known.get(measure) or label(measure))
        if col:
            ax.set_title(label(cell, names), fontsize="medium")

    axes[0].set_yticks(range(len(groups)), [look.label for look in groups.values()])
    axes[0].set_ylim(len(groups) - 0.5, -0.5)
    legend(fig, None, _source_handles(frame, style, names))
    headline(fig, title)
    return fig, axes


def _sources(frame: pd.DataFrame, style: str | None) -> list[str | None]:
    """Return the variants in the usual order, without the printed numbers.

    Without a column of variants there is one variant, None.
    """
    if style is None:
        return [None]
    there = set(frame[style])
    return [name for name in SOURCES if name in there and name != "paper"]


def _dots_panel(
    ax: Axes,
    part: pd.DataFrame,
    measure: str,
    style: str | None,
    groups: dict[Any, Style],
) -> None:
    """Draw one measure of all methods, one row per method.

    Parameters
    ----------
    ax : Axes
    part : DataFrame
        The rows of this panel.
    measure, style : str
        Column of the measure, and of the variants if any.
    groups : dict
        Method -> its style, from top to bottom.
    """
    sources = _sources(part, style)
    part = part.dropna(subset=measure).astype({measure: float})
    for place, (method, look) in enumerate(groups.items()):
        own = part[part["method"] == method]
        for at, source in enumerate(sources):
            runs = where(own, {style: source})[measure]
            if runs.empty:
                continue
            height = place + 0.24 * (at - (len(sources) - 1) / 2)
            heights = np.full(len(runs), height)
            marker = SOURCES.get(source or "", "o")
            ax.plot(runs, heights, marker, color=look.color, ms=5, alpha=0.6, mew=0)
            ax.plot(runs.mean(), height, "|", color=look.color, ms=13, mew=2)
        if style:
            printed = own.loc[own[style] == "paper", measure]
            heights = np.full(len(printed), place)
            ax.plot(printed, heights, mec=look.color, zorder=3, **PAPER)
    ax.grid(False, axis="y")


def _source_handles(frame: pd.DataFrame, style: str | None, names: Names) -> list:
    """Return the legend: a run of each variant, the printed number, the mean.

    Parameters
    ----------
    frame : DataFrame
    style : str or None
        Column of variants and printed numbers.
    names : mapping or None
        Names shown for them.
    """
    handles = []
    for source in _sources(frame, style):
        text = label(source, names) if style else "a run"
        handles.append(handle(text, "0.3", SOURCES.get(source or "", "o")))
    if style and (frame[style] == "paper").any():
        handles.append(handle(label("paper", names), **PAPER, mec="0.3"))
    handles.append(handle("mean of the runs", "0.3", "|", ms=11, mew=2))
    return handles


def spread(places: np.ndarray, width: float = 0.6) -> np.ndarray:
    """Return shifts of points, by the golden ratio.

    They look random, but are always the same.

    Parameters
    ----------
    places : array (n,)
    width : float
        Width of the band of points.

    Examples
    --------
    >>> spread(np.zeros(3)).round(2).tolist()
    [-0.3, 0.07, -0.16]
    """
    shares = np.arange(len(places)) * 0.6180339887 % 1
    return places + (shares - 0.5) * width
