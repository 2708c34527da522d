"""The common parts of all figures: colours, names, empty panels, saving."""

from __future__ import annotations

import colorsys
import csv
import functools
import re
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import paths
from ..errors import FltnbError, choose
from .still import still

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Names = Mapping[Any, str] | None
"""Value -> name shown, if it differs from the usual one."""


class Style(NamedTuple):
    """The style of a method in figures.

    Attributes
    ----------
    label : str
        Its displayed name.
    color : str
        Hexadecimal, such as "#0072B2".
    marker : str
        Marker of matplotlib; it distinguishes methods without colour.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.plots.style("oracle").marker
    '*'
    """

    label: str
    color: str
    marker: str


def _read_names() -> dict[str, Style]:
    """Read ``names.csv``: id -> name, colour and marker."""
    names = {}
    table = resources.files(__package__).joinpath("names.csv")
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        name = row.pop("id")
        names[name] = Style(**row)
    return names


NAMED = _read_names()
"""Id -> displayed name, of methods, data sets, networks, measures and parameters.

Methods have a colour and a marker as well. Methods that are often drawn together have
colours by Okabe and Ito, the others have Tol's "muted" colours; variants of a method
with a number become darker as the number grows.
"""
METHODS = {name: look for name, look in NAMED.items() if look.color}
"""Method id -> label, colour, marker.

Add a line for a method of your own, or let :func:`style` invent one.
"""

CLUSTERS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#F0E442",
    "#882255",
    "#999999",
    "#000000",
)
"""Colours of clusters 0, 1, ...; they repeat after ten."""

PAGE = 8.7
"""Width of the widest figure, inches: a page of the site shows it in full."""
SMALL = 9.6
"""Points of the explorer's small letters: 8 where a page shows its picture."""
MARKERS = "osD^vP*Xphd"
"""Markers of values that are not methods, in order."""
MEASURES = {
    "accuracy": "accuracy, mean over clients (%)",
    "micro": "accuracy, all samples together (%)",
    "worst": "accuracy of the worst client (%)",
    "variance": "variance over clients (%²)",
    "ari": "adjusted Rand index",
    "test": "test accuracy of a client (%)",
}
"""Column -> label of its axis; other columns have their own name."""

DASHES = {
    "test": "-",
    "as_written": "-",
    "train": "--",
    "as_run": "--",
    "probe": ":",
    "paper": "",
}
"""Split or variant -> its dash; printed numbers have no line."""


def style(method: str) -> Style:
    """Return the style of a method.

    An unknown method gets a colour that depends only on its id.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.plots.style("fedavg")
    Style(label='FedAvg', color='#000000', marker='o')
    """
    if method in METHODS:
        return METHODS[method]
    code = zlib.crc32(method.encode())  # unlike hash(), the same in every process
    parts = colorsys.hls_to_rgb(code % 360 / 360, 0.42, 0.75)
    color = "#" + "".join(f"{round(255 * part):02X}" for part in parts)
    marker = "ovsD^<>pPX"[code % 10]
    return Style(method, color, marker)


def cluster_color(cluster: int) -> str:
    """Return the colour of a cluster, given its number.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.plots.cluster_color(0).startswith("#")
    True
    """
    return CLUSTERS[int(cluster) % len(CLUSTERS)]


def label(value: Any, names: Names = None) -> str:
    """Return the displayed name of a value.

    ``names`` come first, then names of methods, then words and plain numbers.

    Examples
    --------
    >>> label("flt_enc1"), label("as_written"), label(0.10)
    ('FLT Enc1', 'as written', '0.1')
    """
    if names and value in names:
        return names[value]
    if value in METHODS:
        return METHODS[value].label
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).replace("_", " ")


def in_order(values: pd.Series) -> list:
    """Return each value once: numbers ascending, words in their order.

    Examples
    --------
    >>> import pandas as pd
    >>> in_order(pd.Series([3, 1, 3])), in_order(pd.Series(["b", "a"]))
    ([1, 3], ['b', 'a'])
    """
    once = list(dict.fromkeys(values))
    return once if has_words(once) else sorted(once)


def has_words(values: Sequence) -> bool:
    """Whether one value or more is text."""
    return any(isinstance(value, str) for value in values)


def looks(values: pd.Series, column: str, names: Names = None) -> dict[Any, Style]:
    """Return the style of each value of a column.

    Methods and clusters have fixed styles; numbers go from light to dark.

    Parameters
    ----------
    values : Series
        Missing ones are left out.
    column : str
        "method", or a name that ends with "cluster"; other names have no meaning.
    names : mapping, optional
        Value -> name shown.
    """
    values = in_order(values.dropna())
    if column == "method":
        return {name: style(name)._replace(label=label(name, names)) for name in values}

    if column.endswith("cluster"):
        colors = map(cluster_color, values)
    elif has_words(values):
        colors = map(cluster_color, range(len(values)))
    else:
        import seaborn as sns

        colors = sns.color_palette("viridis_r", len(values)).as_hex()
    found = {}
    for value, color, marker in zip(values, colors, cycle(MARKERS), strict=False):
        found[value] = Style(label(value, names), color, marker)
    return found


def where(frame: pd.DataFrame, chosen: Mapping[str | None, Any]) -> pd.DataFrame:
    """Return the rows with these values; the column None selects all rows.

    ``chosen``: column -> required value.
    """
    for column, value in chosen.items():
        if column is not None:
            frame = frame[frame[column] == value]
    return frame


def panels(
    count: int = 1,
    size: tuple[float, float] = (7.2, 4.2),
    columns: int = 3,
    ax: Axes | None = None,
    **subplots: Any,
) -> tuple[Figure, list[Axes]]:
    """Make empty panels in the style of all figures, also for a notebook's own figures.

    Parameters
    ----------
    count : int
        Number of panels; they fill rows of at most ``columns``, and the last row may
        stay partly empty.
    size : (float, float)
        Width and height of one panel, inches.
    ax : Axes, optional
        The single panel, which is used as it is.
    **subplots
        As for :func:`matplotlib.pyplot.subplots`, such as ``sharey=True``.

    Raises
    ------
    FltnbError
        One ax was given for several panels.

    Examples
    --------
    >>> import fltnb as fl
    >>> figure, axes = fl.plots.panels(4, (3.0, 2.0), sharey=True)
    >>> len(axes), figure.get_size_inches().tolist()
    (4, [6.0, 4.0])
    """
    if ax is not None:
        if count > 1:
            raise FltnbError(
                f"{count} panels do not fit into one given ax: "
                "leave out ax, or col and row."
            )
        figure: Any = ax.figure  # whose part an ax may be of
        return figure, [ax]

    import matplotlib.pyplot as plt
    import seaborn as sns

    rows = -(-count // columns)
    columns = -(-count // rows)  # four in rows of three: two and two
    figsize = (size[0] * columns, size[1] * rows)
    fig, axes = plt.subplots(
        rows, columns, figsize=figsize, squeeze=False, layout="constrained", **subplots
    )
    sns.despine(fig)
    for panel in axes.flat:
        panel.set_axisbelow(True)
        panel.grid(color="0.9", lw=0.8)
    for panel in axes.flat[count:]:
        panel.axis("off")
    return fig, list(axes.flat[:count])


def save(fig: Figure, name: str, profile: str) -> Path:
    """Write ``figures/<profile>/<name>.png`` and, for the profile ``paper``, a PDF.

    No date or version is stored, so an unchanged figure gives an unchanged file. The
    PNG is that of :func:`fltnb.plots.still.still`.

    Parameters
    ----------
    fig : Figure
        As returned by the functions of this module.
    name : str
        Notebook number and a word, such as ``"01_convergence"``; letters, digits, ``_``
        and ``-``.
    profile : {"stored", "demo", "paper"}
        The profile whose results it shows.

    Returns
    -------
    Path
        The PNG.

    Raises
    ------
    FltnbError
        Unknown profile, a name with other characters, or a folder that cannot be
        written.

    Examples
    --------
    >>> import fltnb as fl
    >>> figure, axes = fl.plots.panels(1)
    >>> try:
    ...     fl.plots.save(figure, "my first.png", "demo")
    ... except fl.FltnbError as error:
    ...     print(str(error).partition(", ")[0])
    The figure name 'my first.png' must be of letters
    """
    import matplotlib as mpl

    choose(profile, paths.PROFILES, "profile")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise FltnbError(
            f"The figure name {name!r} must be of letters, digits, '_' and '-', "
            "without an extension."
        )
    png = paths.figures(profile) / f"{name}.png"
    # Jupyter's inline back end may crop to "tight"
    with mpl.rc_context({"savefig.bbox": "standard"}):
        small = still(fig)
        if profile == "paper":
            undated = {"CreationDate": None, "Producer": None, "Creator": None}
            pdf = functools.partial(fig.savefig, format="pdf", metadata=undated)
            paths.write_atomically(png.with_suffix(".pdf"), pdf)
    paths.write_atomically(png, lambda file: file.write(small))
    return png


def handle(
    text: str,
    color: str | None = None,
    marker: str = "",
    ls: str = "",
    **look: Any,
) -> Any:
    """Return the legend entry of a line or a point.

    Parameters
    ----------
    text : str
    color, marker, ls
        Colour, marker and dash of matplotlib.
    **look
        Further options of a line.
    """
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, marker=marker, ls=ls, label=text, **look)


def legend(fig: Figure, ax: Axes | None, handles: Sequence, title: str = "") -> None:
    """Put one legend below all panels, or below the given one.

    Parameters
    ----------
    fig : Figure
    ax : Axes or None
        The panel that the caller gave, if any.
    handles : sequence
        Results of :func:`handle`; without one there is no legend.
    title : str
        Title of the legend.
    """
    if not handles:
        return
    longest = max(len(one.get_label()) for one in handles)
    entry = 0.5 + 0.075 * longest  # inches
    fitting = max(1, int(fig.get_figwidth() / entry))
    look = {"handles": handles, "title": title, "fontsize": 9, "title_fontsize": 9}
    look |= {"frameon": False, "ncols": min(fitting, len(handles))}
    if ax is None:
        fig.legend(loc="outside lower center", **look)
    else:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), **look)


def headline(fig: Figure, title: str, ax: Axes | None = None) -> None:
    """Write what a figure shows above it, on as many lines as needed.

    Parameters
    ----------
    fig : Figure
    title : str
        The finding; "" writes nothing.
    ax : Axes, optional
        The panel that the title belongs to, by default all.

    Examples
    --------
    >>> import fltnb as fl
    >>> figure, axes = fl.plots.panels(2)
    >>> fl.plots.headline(figure, "The oracle is ahead")
    >>> figure.get_suptitle()
    'The oracle is ahead'
    """
    if not title:
        return
    if ax is not None:
        ax.set_title(title, fontsize="medium")
        return
    letters = int(fig.get_figwidth() / 0.098)  # of a line
    wrapped = "\n".join(_balanced(line, letters) for line in title.split("\n"))
    fig.suptitle(wrapped, fontsize=11.5, fontweight="bold", x=0.01, ha="left")


def _balanced(text: str, letters: int) -> str:
    """Break a text into as few lines as possible, of about equal length.

    ``letters``: the most that a line may have.

    Examples
    --------
    >>> print(_balanced("No word stands alone on the last line", 33))
    No word stands alone
    on the last line
    """
    fewest = len(textwrap.wrap(text, letters, break_on_hyphens=False))
    for width in range(1, letters + 1):
        lines = textwrap.wrap(text, width, break_on_hyphens=False)
        if len(lines) <= fewest:
            break
    return "\n".join(lines)


def need(table: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    """Refuse what is no table, or lacks one of ``columns`` (FltnbError).

    ``what``: name of its rows, for the message.
    """
    if not hasattr(table, "columns"):
        raise FltnbError(
            f"The {what} to draw must be a DataFrame, such as run.history or "
            f"Results.curves, not {type(table).__name__}."
        )
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise FltnbError(
            f"The {what} to draw lack the column {missing[0]!r}: "
            f"give {', '.join(columns)}."
        )
