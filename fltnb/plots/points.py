"""Points after the last round: methods in a plane, clients, runs beside printed numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError
from .runs import _log_axis, _values
from .style import CLUSTERS, MEASURES, cluster_color, headline, label, legend, looks, need, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = {"as_written": "o", "as_run": "s", "participants": "s", "last_local": "^", "last_aggregate": "D"}
PAPER = {"marker": "o", "ls": "", "ms": 10, "mfc": "none", "mew": 1.6}  # printed numbers are hollow
LOWEST = 1e-3  # a variance of 0 (all clients alike) has no place on a logarithmic axis


def plane(
    frame: pd.DataFrame,
    x: str = "variance",
    y: str = "accuracy",
    hue: str = "method",
    style: str = "source",
    *,
    ax: Axes | None = None,
    names: Mapping[Any, str] | None = None,
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw two numbers of each method against each other; a line joins each reproduced point to the printed one.

    Accuracy and variance together tell rules for non-participants apart that agree in either of them alone.

    Parameters
    ----------
    frame : DataFrame, one row per point: ``x``, ``y``, ``hue`` and ``style``, which is "paper" for printed numbers
        (hollow), else what the point is, such as a variant or a rule
    x, y : str, columns of the axes; a variance has a logarithmic one
    ax, names, title : as for :func:`fltnb.plots.lines`
    """
    need(frame, (hue, style, x, y), "points")
    fig, (axis,) = panels(1, (7.2, 4.2), ax=ax)
    frame = frame.assign(**{c: frame[c].clip(lower=LOWEST) for c in (x, y) if c == "variance"})
    drawn, marks = looks(frame[hue], hue, names), _marks(frame[style])
    for value, look in drawn.items():
        own = frame[frame[hue] == value]
        printed = own[own[style] == "paper"][[x, y]].to_numpy(dtype=float)
        for source, across, up in own[own[style] != "paper"][[style, x, y]].itertuples(index=False):
            for there in printed:
                axis.plot([across, there[0]], [up, there[1]], color=look.color, lw=0.8)
            axis.plot(across, up, marks[source], ms=6.5, mew=0, color=look.color, zorder=3)
        axis.plot(*printed.T, mec=look.color, zorder=4, **PAPER)
    if "variance" in (x, y):
        _log_axis(axis, which="x" if x == "variance" else "y")
    axis.set(xlabel=MEASURES.get(x) or label(x), ylabel=MEASURES.get(y) or label(y))
    legend(fig, ax, [_handle("-", look.color, look.label, lw=3) for look in drawn.values()] + _sources(marks, names))
    headline(fig, [axis], title)
    return fig, axis


def client_strip(
    frame: pd.DataFrame,
    y: str = "test",
    x: str = "method",
    hue: str | None = "true_cluster",
    col: str | None = None,
    *,
    ax: Axes | None = None,
    names: Mapping[Any, str] | None = None,
    title: str = "",
) -> tuple[Figure, Any]:
    """Draw a number of each client by method: points, with median, quartiles and range as a box.

    Parameters
    ----------
    frame : DataFrame, rows of ``Results.clients``: one per client and run; several runs may be stacked
    y, x : str, column of the number (percent) and of what stands side by side
    hue : str, optional
        Column of clusters for the points' colours. Without, or where all are missing, methods have their own.
    col : str, optional, column whose values get panels of their own
    ax, names, title : as for :func:`fltnb.plots.lines`
    """
    need(frame, [column for column in (x, y, hue, col) if column], "clients")
    frame = frame[frame[y].notna()]
    if frame.empty:
        raise FltnbError(f"No client has a number {y!r} to draw: choose another column.")
    drawn = looks(frame[x], x, names)
    cells = _values(frame, col) if col else [None]
    coloured = hue is not None and frame[hue].notna().all() and (frame[hue] >= 0).all()
    box = {f"{part}props": {"color": "0.35"} for part in ("box", "whisker", "cap")} | {"showfliers": False}
    box["medianprops"] = {"color": "black", "lw": 1.8}
    size = (1.2 + 0.85 * max(4, len(drawn)), 4.0)
    fig, axes = panels(len(cells), size, 2, ax, sharey=True)
    for axis, cell in zip(axes, cells, strict=True):
        part = frame if cell is None else frame[frame[col] == cell]
        for at, (value, look) in enumerate(drawn.items()):
            own = part[part[x] == value]
            colors = [cluster_color(cluster) for cluster in own[hue]] if coloured else look.color
            # golden-ratio sequence: spread like random jitter, but the same every time
            jitter = (np.arange(len(own)) * 0.6180339887 % 1 - 0.5) * 0.55
            axis.scatter(at + jitter, own[y], s=9, c=colors, alpha=0.7, lw=0, zorder=2)
            axis.boxplot([own[y].to_numpy(dtype=float)], positions=[at], widths=0.68, whis=(0, 100), **box)
        turn = {"rotation": 30, "ha": "right"} if len(drawn) > 5 else {}
        axis.set_xticks(range(len(drawn)), [look.label for look in drawn.values()], **turn)
        axis.grid(False, axis="x")
        axis.set(xlabel="", ylabel=MEASURES.get(y) or label(y))
        axis.set_title("" if cell is None else label(cell, names), fontsize="medium")
    clusters = np.unique(frame[hue]) if coloured else []
    if 0 < len(clusters) <= len(CLUSTERS):
        points = [_handle("o", cluster_color(one), f"{one:g}") for one in clusters]
        legend(fig, ax, points, label(hue))
    headline(fig, axes, title)
    return fig, axes[0] if len(axes) == 1 else axes


def dots(
    frame: pd.DataFrame,
    x: str | Sequence[str] = "accuracy",
    y: str = "method",
    style: str | None = "variant",
    col: str | None = None,
    *,
    names: Mapping[Any, str] | None = None,
    title: str = "",
) -> tuple[Figure, list[Axes]]:
    """Draw one line per method with a dot for every run, a bar at their mean, and a hollow ring for what is printed.

    Parameters
    ----------
    frame : DataFrame, rows of ``Results.runs``, one per run; where ``style`` is "paper", printed numbers
    x : str or several, columns of numbers, a panel each; missing numbers are left out
    y : str, column of the lines, in the order they come in
    style : str, optional, column that tells printed numbers and variants apart
    col : str, optional, with one ``x``: column whose values get panels of their own, such as a task
    names : mapping, optional, value -> what to call it; a column of ``x`` too
    title : str, the finding
    """
    measures = [x] if isinstance(x, str) else list(x)
    need(frame, [column for column in (y, style, col, *measures) if column], "runs")
    if frame.empty:
        raise FltnbError("There are no runs to draw: give at least one row.")
    if col and len(measures) > 1:
        raise FltnbError("Give either several columns of numbers or col, not both.")
    cells = [(one, cell) for one in measures for cell in (_values(frame, col) if col else [None])]
    drawn, marks = looks(frame[y], y, names), _marks(frame[style]) if style else {None: "o"}
    filled = [source for source in marks if source != "paper"]
    fig, axes = panels(len(cells), (3.4 + 1.4 / len(cells), 0.3 * len(drawn) + 1.4), len(cells), sharey=True)
    for axis, (measure, cell) in zip(axes, cells, strict=True):
        part = frame if cell is None else frame[frame[col] == cell]
        for at, (value, look) in enumerate(drawn.items()):
            for source, marker in marks.items():
                own = part[(part[y] == value) & (part[style] == source)] if style else part[part[y] == value]
                numbers = own[measure].dropna().to_numpy(dtype=float)
                if source == "paper":
                    axis.plot(numbers, np.full(len(numbers), at), mec=look.color, zorder=3, **PAPER)
                elif len(numbers):
                    height = at + 0.24 * (filled.index(source) - (len(filled) - 1) / 2)
                    same = np.full(len(numbers), height)
                    axis.plot(numbers, same, marker, color=look.color, ms=5, alpha=0.6, mew=0)
                    axis.plot(numbers.mean(), height, "|", color=look.color, ms=13, mew=2)
        axis.grid(False, axis="y")
        words = (names or {}).get(measure) or MEASURES.get(measure) or label(measure)
        axis.set_xlabel(words)
        axis.set_title("" if cell is None else label(cell, names), fontsize="medium")
    axes[0].set_yticks(range(len(drawn)), [look.label for look in drawn.values()])
    axes[0].set_ylim(len(drawn) - 0.5, -0.5)
    handles = _sources(marks, names) if style else [_handle("o", "0.3", "a run")]
    legend(fig, None, [*handles, _handle("|", "0.3", "mean of the runs", ms=11, mew=2)])
    headline(fig, axes, title)
    return fig, axes


def _marks(sources: pd.Series) -> dict[Any, str]:
    """Source -> marker: known ones as everywhere and in their own order, whichever ran first; printed last."""
    found = list(dict.fromkeys(sources))
    found = [s for s in SOURCES if s in found] + sorted(str(s) for s in found if s not in SOURCES and s != "paper")
    spare, marks = iter("Pv<>Xdp*h" * len(sources)), {}
    for source in found:
        fixed = SOURCES.get(source)
        marks[source] = fixed if fixed and fixed not in marks.values() else next(spare)
    return marks | ({"paper": "o"} if (sources == "paper").any() else {})


def _handle(mark: str, color: str, text: str, **look):
    from matplotlib.lines import Line2D

    line = {"ls": mark} if mark == "-" else {"ls": "", "marker": mark}
    return Line2D([], [], color=color, label=text, **(line | look))


def _sources(marks: Mapping[Any, str], names: Mapping[Any, str] | None) -> list:
    from matplotlib.lines import Line2D

    found = [_handle(mark, "0.3", label(source, names)) for source, mark in marks.items() if source != "paper"]
    return found + [Line2D([], [], mec="0.3", label=label("paper", names), **PAPER)] * ("paper" in marks)
