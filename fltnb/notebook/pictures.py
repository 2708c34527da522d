"""Pictures of a page, as PNGs of few colours that are the same in every process."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from IPython import display

from ..errors import FltnbError
from ..papers import label
from ..papers.names import NAMES
from ..plots import headline, panels
from ..plots.still import DPI, still
from ..plots.style import PAGE, handle
from .scores import groups, words


class Look(NamedTuple):
    """How numbers of one source are drawn, and their text in the legend."""

    color: str
    marker: str
    words: str


LOOKS = {
    "printed": Look("#222222", "|", "printed"),
    "as_written": Look("#0072B2", "o", "following the text"),
    "as_run": Look("#D55E00", "D", "following the authors' code"),
}
"""Source of a number -> its style."""
OTHERS = (
    ("#009E73", "*"),
    ("#CC79A7", "s"),
    ("#56B4E9", "^"),
)
"""Colours and markers of further sources, in order."""
NEAR = 3.0
"""A number agrees if it is within this number of points, as in the report."""


def png(fig: Any, alt: str, dpi: int = DPI) -> display.Image:
    """Return a figure as a picture of 64 colours, without date or version.

    Parameters
    ----------
    fig : Figure
        It is closed, as Jupyter shows every open figure at the end of a cell.
    alt : str
        The picture in words.
    dpi : int
        Pixels per inch; the display has 96 per inch.

    Examples
    --------
    >>> import fltnb as fl
    >>> figure, axes = fl.plots.panels(1)
    >>> fl.notebook.png(figure, alt="nothing yet").format
    'png'
    """
    import matplotlib.pyplot as plt

    small = still(fig, dpi)
    plt.close(fig)
    return display.Image(small, width=round(96 * fig.get_figwidth()), alt=alt)


def dots(
    lines: pd.DataFrame,
    title: str,
    methods: Sequence[str] = (),
    xlabel: str = "test accuracy, mean over clients (%)",
) -> display.Image:
    """Draw numbers as dots, a panel for each data set, network or measure.

    Parameters
    ----------
    lines : DataFrame
        Result of :func:`fltnb.notebook.scores`. Rows of up to three further sources may
        be added; the legend shows their ``source``.
    title : str
        The finding.
    methods : sequence of str
        The rows from the top, by default all.
    xlabel : str
        Label below the panels.

    Raises
    ------
    FltnbError
        There are more than three further sources.

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> who = {
    ...     "dataset": "mnist",
    ...     "model": "mlp",
    ...     "method": "fedavg",
    ...     "measure": "accuracy",
    ... }
    >>> numbers = {"source": ["printed", "as_written"], "value": [82.7, 83.5]}
    >>> lines = pd.DataFrame(
    ...     numbers | who | {"spread": 0.0, "seeds": 1, "printed": 82.7}
    ... )
    >>> fl.notebook.dots(lines, "FedAvg is 0.8 points better here").format
    'png'
    """
    names = list(methods) or lines["method"].unique().tolist()
    lines = lines.assign(group=groups(lines))
    heads = lines["group"].unique().tolist()
    looks = _looks(lines["source"])

    # A panel for each head, a row for each method.
    width = PAGE / len(heads)
    height = 0.24 * len(names) + 1.2
    fig, axes = panels(len(heads), (width, height), columns=len(heads), sharey=True)
    between = ",\n" if len(heads) > 3 else ", "  # narrow panels
    xlabel = xlabel.replace(", ", between)
    for ax, head in zip(axes, heads, strict=True):
        own = lines[lines["group"] == head]
        for place, name in enumerate(names):
            _row(ax, own[own["method"] == name], place, looks)
        ax.set_title(head.replace(", ", between), fontsize=10, loc="left", color="0.3")
        ax.set_xlabel(xlabel, fontsize=9)
        ax.tick_params(labelsize=9, length=0)
        ax.grid(False, axis="y")
    axes[0].set_yticks(range(len(names)), [label(name) for name in names])
    axes[0].set_ylim(len(names) - 0.4, -0.6)

    headline(fig, title)
    fig.legend(
        handles=_handles(looks),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
    )
    return png(fig, title)


def _looks(sources: pd.Series) -> dict[str, Look]:
    """Return the looks of the sources that there are: :data:`LOOKS`, then others."""
    there = sources.unique().tolist()
    looks = {name: look for name, look in LOOKS.items() if name in there}
    others = [name for name in there if name not in LOOKS]
    if len(others) > len(OTHERS):
        raise FltnbError(
            f"Dots have looks for {len(OTHERS)} sources besides {', '.join(LOOKS)}, "
            f"and these are more: {', '.join(others)}. Leave some out."
        )
    for name, (color, marker) in zip(others, OTHERS, strict=False):
        looks[name] = Look(color, marker, words(name))
    return looks


def _handles(looks: dict[str, Look]) -> list[Any]:
    """Return the entries of the legend; a stroke needs an edge to be seen."""
    handles = []
    for look in looks.values():
        edge = 2.2 if look.marker == "|" else 0
        handles.append(handle(look.words, look.color, look.marker, ms=7, mew=edge))
    return handles


def _row(ax: Any, own: pd.DataFrame, place: int, looks: dict[str, Look]) -> None:
    """Draw the numbers of one method, and a line from the least to the greatest.

    Parameters
    ----------
    ax : Axes
    own : DataFrame
        The method's rows.
    place : int
        Height at which they stand.
    looks : dict
        Source -> its look.
    """
    if own.empty:
        return
    ends = [own["value"].min(), own["value"].max()]
    ax.plot(ends, [place, place], color="0.85", lw=2.5, zorder=1)
    for source, look in looks.items():
        values = own.loc[own["source"] == source, "value"]
        size, edge = (150, 2.4) if look.marker == "|" else (44, 0)
        ax.scatter(
            values,
            np.full(len(values), place),
            s=size,
            lw=edge,
            color=look.color,
            marker=look.marker,
            zorder=3,
        )


def agreement(lines: pd.DataFrame, method: str) -> str:
    """Say where a method's number agrees with print: a title for :func:`dots`.

    An example is "FedAvg's accuracy agrees with print on MNIST either way". If the
    paper has no numbers, the title has ours.

    Parameters
    ----------
    lines : DataFrame
        Of :func:`fltnb.notebook.scores`.
    method : str

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> who = {
    ...     "dataset": "mnist",
    ...     "model": "mlp",
    ...     "method": "fedavg",
    ...     "measure": "accuracy",
    ... }
    >>> numbers = {"source": ["printed", "as_written"], "value": [82.7, 83.5]}
    >>> lines = pd.DataFrame(
    ...     numbers | who | {"spread": 0.0, "seeds": 1, "printed": 82.7}
    ... )
    >>> fl.notebook.agreement(lines, "fedavg")
    "FedAvg's accuracy agrees with print on MNIST following the text"
    """
    lines = lines.assign(group=groups(lines))
    own = lines[lines["method"] == method]
    ours = own[own["source"].isin(["as_written", "as_run"])]
    in_print = ours.dropna(subset="printed")
    name = label(method)
    if in_print.empty:
        several = ours["source"].nunique() > 1
        parts = []
        for one in ours.itertuples():
            how = f" {LOOKS[one.source].words}" if several else ""
            parts.append(f"{one.value:.0f} % on {one.group}{how}")
        return f"{name} has {', '.join(parts)}: data of no paper"

    where: dict[str, list[str]] = {}
    for head, part in in_print.groupby("group", sort=False):
        where.setdefault(_how(part), []).append(head)
    parts = [f"on {' and '.join(heads)} {how}" for how, heads in where.items()]
    return f"{name}'s accuracy agrees with print {', '.join(parts)}"


def _how(part: pd.DataFrame) -> str:
    """Say which of one or two variants agree with print.

    ``part``: a row for each variant of one method on one data set.
    """
    off = (part["value"] - part["printed"]).abs()
    agreeing = part.loc[off <= NEAR, "source"].tolist()
    if not agreeing:
        return "neither way" if len(part) > 1 else "not at all"
    if len(agreeing) == len(part) > 1:
        return "either way"
    way = LOOKS[agreeing[0]].words
    return way if len(part) == 1 else f"only {way}"


def compared(runs: pd.DataFrame, method: str, rival: str) -> str:
    """Say how far a method ends from another: a title for :func:`curves`.

    Such as "FLT ends within 1 point of Oracle in 3 of 4 panels, 12 points behind it in
    1". A panel is a data set, network and variant. Without runs of both methods the
    title names what is drawn.

    Parameters
    ----------
    runs : DataFrame
        ``Results.runs``, with the accuracy after the last round.
    method, rival : str

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> runs = {"method": ["flt", "oracle"], "accuracy": [81.0, 93.0]}
    >>> runs = pd.DataFrame(runs).assign(dataset="mnist", model="mlp", variant="as_run")
    >>> fl.notebook.compared(runs, "flt", "oracle")
    'FLT ends 12 points behind Oracle'
    """
    panel = ["dataset", "model", "variant"]
    if not {method, rival} <= set(runs["method"]):
        return "Accuracy against round"
    means = runs.pivot_table("accuracy", panel, "method")
    lead = (means[method] - means[rival]).dropna()
    near = lead.abs() <= 1
    groups_ = {
        "within 1 point of": lead[near],
        "ahead of": lead[~near & (lead > 0)],
        "behind": lead[~near & (lead < 0)],
    }
    parts: list[str] = []
    for words_, own in groups_.items():
        if own.empty:
            continue
        said = words_
        if words_ != "within 1 point of":
            ends = [f"{end:.0f}" for end in (own.abs().min(), own.abs().max())]
            unit = "point" if ends == ["1", "1"] else "points"
            said = f"{' to '.join(dict.fromkeys(ends))} {unit} {words_}"
        said += f" {'it' if parts else label(rival)}"
        if len(own) < len(lead):
            said += (
                f" in {len(own)}" if parts else f" in {len(own)} of {len(lead)} panels"
            )
        parts.append(said)
    return f"{label(method)} ends {', '.join(parts)}"


def curves(found: Any, title: str, **options: Any) -> display.Image:
    """Draw accuracy against the round, with data sets as rows and variants as columns.

    Solid: test, dashed: train; the band is the range over seeds.

    Parameters
    ----------
    found : Results
    title : str
        The finding.
    **options
        Of :func:`fltnb.plots.curves`.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.results("01").where(kind="training", dataset="mnist", method="local")
    >>> fl.notebook.curves(found, "Local training gains little after round 5").format
    'png'
    """
    from ..plots import curves as draw

    frame = found.curves[found.curves["round"] > 0]
    ways = {source: look.words for source, look in LOOKS.items()}
    usual = {
        "row": "dataset",
        "col": "variant",
        "names": NAMES | ways,
    }
    fig, _ = draw(frame, title=title, **(usual | options))
    return png(fig, title)
