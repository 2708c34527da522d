"""Points after the last round: clients, and runs beside printed numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError
from .runs import in_order
from .style import CLUSTERS, MEASURES, cluster_color, handle, headline, label, legend, looks, need, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = {"as_written": "o", "as_run": "s", "participants": "s", "last_local": "^", "last_aggregate": "D"}
PAPER = {"marker": "o", "ls": "", "ms": 10, "mfc": "none", "mew": 1.6}  # printed numbers are hollow


def client_strip(
    frame: pd.DataFrame, x: str = "method", hue: str | None = "true_cluster", *, title: str = ""
) -> tuple[Figure, Axes]:
    """Draw each client's test accuracy by method: points, with median, quartiles and range as a box.

    Parameters
    ----------
    frame : DataFrame, rows of ``Results.clients``: one per client and run; several runs may be stacked
    x : str, column of what stands side by side
    hue : str, optional
        Column of clusters for the points' colours. Without, or where all are missing, methods have their own.
    title : str, the finding
    """
    need(frame, [column for column in (x, "test", hue) if column], "clients")
    frame = frame[frame["test"].notna()]
    if frame.empty:
        raise FltnbError("No client has a number 'test' to draw: give clients that were tested.")
    drawn = looks(frame[x], x)
    coloured = hue is not None and frame[hue].notna().all() and (frame[hue] >= 0).all()
    box = {f"{part}props": {"color": "0.35"} for part in ("box", "whisker", "cap")} | {"showfliers": False}
    box["medianprops"] = {"color": "black", "lw": 1.8}
    fig, (ax,) = panels(1, (1.2 + 0.85 * max(4, len(drawn)), 4.0))
    for at, (value, look) in enumerate(drawn.items()):
        own = frame[frame[x] == value]
        colors = [cluster_color(cluster) for cluster in own[hue]] if coloured else look.color
        # golden-ratio sequence: spread like random jitter, but the same every time
        jitter = (np.arange(len(own)) * 0.6180339887 % 1 - 0.5) * 0.55
        ax.scatter(at + jitter, own["test"], s=9, c=colors, alpha=0.7, lw=0, zorder=2)
        ax.boxplot([own["test"].to_numpy(dtype=float)], positions=[at], widths=0.68, whis=(0, 100), **box)
    turn = {"rotation": 30, "ha": "right"} if len(drawn) > 5 else {}
    ax.set_xticks(range(len(drawn)), [look.label for look in drawn.values()], **turn)
    ax.grid(False, axis="x")
    ax.set(xlabel="", ylabel=MEASURES["test"])
    clusters = np.unique(frame[hue]) if coloured else []
    if 0 < len(clusters) <= len(CLUSTERS):
        legend(fig, None, [handle(f"{one:g}", cluster_color(one), "o") for one in clusters], label(hue))
    headline(fig, [ax], title)
    return fig, ax


def dots(
    frame: pd.DataFrame,
    x: str | Sequence[str] = "accuracy",
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
    style : str, optional, column that tells printed numbers and variants apart
    col : str, optional, with one ``x``: column whose values get panels of their own, such as a task
    names : mapping, optional, value -> what to call it; a column of ``x`` too
    title : str, the finding
    """
    measures = [x] if isinstance(x, str) else list(x)
    need(frame, [column for column in ("method", style, col, *measures) if column], "runs")
    if frame.empty:
        raise FltnbError("There are no runs to draw: give at least one row.")
    if col and len(measures) > 1:
        raise FltnbError("Give either several columns of numbers or col, not both.")
    cells = [(one, cell) for one in measures for cell in (in_order(frame, col) if col else [None])]
    drawn, marks = looks(frame["method"], "method", names), _marks(frame[style]) if style else {None: "o"}
    filled = [source for source in marks if source != "paper"]
    fig, axes = panels(len(cells), (3.4 + 1.4 / len(cells), 0.3 * len(drawn) + 1.4), len(cells), sharey=True)
    for axis, (measure, cell) in zip(axes, cells, strict=True):
        part = frame if cell is None else frame[frame[col] == cell]
        for at, (value, look) in enumerate(drawn.items()):
            for source, marker in marks.items():
                own = part[(part["method"] == value) & (part[style] == source if style else True)]
                numbers = own[measure].dropna().to_numpy(dtype=float)
                if source == "paper":
                    axis.plot(numbers, np.full(len(numbers), at), mec=look.color, zorder=3, **PAPER)
                elif len(numbers):
                    height = at + 0.24 * (filled.index(source) - (len(filled) - 1) / 2)
                    same = np.full(len(numbers), height)
                    axis.plot(numbers, same, marker, color=look.color, ms=5, alpha=0.6, mew=0)
                    axis.plot(numbers.mean(), height, "|", color=look.color, ms=13, mew=2)
        axis.grid(False, axis="y")
        axis.set_xlabel((names or {}).get(measure) or MEASURES.get(measure) or label(measure))
        axis.set_title("" if cell is None else label(cell, names), fontsize="medium")
    axes[0].set_yticks(range(len(drawn)), [look.label for look in drawn.values()])
    axes[0].set_ylim(len(drawn) - 0.5, -0.5)
    handles = [handle(label(source, names) if style else "a run", "0.3", marks[source]) for source in filled]
    handles += [handle(label("paper", names), **PAPER, mec="0.3")] * ("paper" in marks)
    legend(fig, None, [*handles, handle("mean of the runs", "0.3", "|", ms=11, mew=2)])
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
