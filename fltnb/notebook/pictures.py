"""Pictures of a page, as PNGs of few colours that are the same in every process."""

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from IPython import display

from ..papers import label
from ..papers.names import NAMES
from ..plots import panels
from ..plots.style import handle
from .scores import groups, words

LOOKS = {
    "printed": ("#222222", "|", "printed"),
    "as_written": ("#0072B2", "o", "following the text"),
    "as_run": ("#D55E00", "D", "following the authors' code"),
}
"""Source of a number -> colour, marker and words."""
OTHERS = (("#009E73", "*"), ("#CC79A7", "s"), ("#56B4E9", "^"))
"""Colours and markers of further sources, in order."""
TITLE = 88
"""Characters of a title on one line."""
NEAR = 3.0
"""Points within which a number agrees with print, as in the report."""


def png(fig: Any, alt: str, dpi: int = 110) -> display.Image:
    """Return a figure as a picture of 256 colours, without date or version.

    ``alt``: the picture in words. The figure is closed.
    """
    import matplotlib.pyplot as plt
    from PIL import Image

    drawn = io.BytesIO()
    fig.savefig(drawn, dpi=dpi, metadata={"Software": None})
    width = round(96 * fig.get_figwidth())
    plt.close(fig)  # else Jupyter shows every open figure at the end of a cell

    small = io.BytesIO()
    picture = Image.open(drawn).convert("RGB").quantize()
    picture.save(small, format="png", optimize=True)
    return display.Image(small.getvalue(), width=width, alt=alt)


def dots(
    lines: pd.DataFrame,
    title: str,
    methods: Sequence[str] = (),
    xlabel: str = "test accuracy, mean over clients (%)",
) -> display.Image:
    """Draw numbers as dots, a panel for each data set, network or measure.

    Parameters
    ----------
    lines : DataFrame, of :func:`fltnb.notebook.scores`; rows of further sources may be
        added, whose ``source`` is what the legend says
    title : str, the finding
    methods : the rows from the top, by default all
    xlabel : str, what stands below the panels
    """
    names = list(methods) or lines["method"].unique().tolist()
    lines = lines.assign(group=groups(lines))
    heads = lines["group"].unique().tolist()
    looks = _looks(lines["source"])

    size = (9.4 / len(heads), 0.24 * len(names) + 1.2)
    fig, axes = panels(len(heads), size, columns=len(heads), sharey=True)
    for ax, head in zip(axes, heads, strict=True):
        own = lines[lines["group"] == head]
        for place, name in enumerate(names):
            _row(ax, own[own["method"] == name], place, looks)
        ax.set_title(head, fontsize=10, loc="left", color="0.3")
        ax.set_xlabel(xlabel, fontsize=9)
        ax.tick_params(labelsize=9, length=0)
        ax.grid(False, axis="y")
    axes[0].set_yticks(range(len(names)), [label(name) for name in names])
    axes[0].set_ylim(len(names) - 0.4, -0.6)
    wrapped = textwrap.fill(title, TITLE)
    fig.suptitle(wrapped, fontsize=11.5, fontweight="bold", x=0.01, ha="left")

    handles = []
    for color, marker, text in looks.values():
        edge = 2.2 if marker == "|" else 0
        handles.append(handle(text, color, marker, ms=7, mew=edge))
    where = "outside lower center"
    fig.legend(handles=handles, loc=where, ncols=4, frameon=False, fontsize=9)
    return png(fig, title)


def _looks(sources: pd.Series) -> dict[str, tuple[str, str, str]]:
    """Return colour, marker and words of the sources that there are."""
    there = sources.unique().tolist()
    looks = {name: look for name, look in LOOKS.items() if name in there}
    others = [name for name in there if name not in LOOKS]
    for name, (color, marker) in zip(others, OTHERS, strict=False):
        looks[name] = (color, marker, words(name))
    return looks


def _row(ax: Any, own: pd.DataFrame, place: int, looks: dict) -> None:
    """Draw the numbers of one method, and a line from the least to the greatest."""
    if own.empty:
        return
    ends = [own["value"].min(), own["value"].max()]
    ax.plot(ends, [place, place], color="0.85", lw=2.5, zorder=1)
    for source, (color, marker, _) in looks.items():
        values = own.loc[own["source"] == source, "value"]
        heights = np.full(len(values), place)
        size = {"s": 150, "lw": 2.4} if marker == "|" else {"s": 44, "lw": 0}
        ax.scatter(values, heights, color=color, marker=marker, zorder=3, **size)


def agreement(lines: pd.DataFrame, method: str) -> str:
    """Say where a method's number agrees with print: a title for :func:`dots`."""
    own = lines[lines["method"] == method].assign(group=groups(lines))
    ours = own[own["source"].isin(["as_written", "as_run"])]
    where: dict[str, list[str]] = {}
    for head, part in ours.dropna(subset="printed").groupby("group", sort=False):
        where.setdefault(_how(part), []).append(head)
    if where:
        parts = [f"on {' and '.join(heads)} {how}" for how, heads in where.items()]
        return f"{label(method)}'s accuracy agrees with print {', '.join(parts)}"

    parts = [f"{one.value:.0f} % on {one.group}" for one in ours.itertuples()]
    return f"{label(method)} has {', '.join(parts)}: data of no paper"


def _how(part: pd.DataFrame) -> str:
    """Say which of one or two variants agree with print."""
    off = (part["value"] - part["printed"]).abs()
    agreeing = part.loc[off <= NEAR, "source"].tolist()
    if not agreeing:
        return "neither way" if len(part) > 1 else "not at all"
    if len(agreeing) == len(part) > 1:
        return "either way"
    _, _, way = LOOKS[agreeing[0]]
    return way if len(part) == 1 else f"only {way}"


def curves(found: Any, title: str, **options: Any) -> display.Image:
    """Draw accuracy against the round, data sets below and variants beside each other.

    Solid: test, dashed: train; the band is the range over seeds. ``options``: of
    :func:`fltnb.plots.curves`.
    """
    from ..plots import curves as draw

    frame = found.curves[found.curves["round"] > 0]
    names = dict(NAMES)
    for source, (_, _, text) in LOOKS.items():
        names[source] = text
    options = {"row": "dataset", "col": "variant", "names": names} | options
    fig, _ = draw(frame, title=title, **options)
    return png(fig, title)
