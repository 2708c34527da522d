"""Lines over rounds, bytes or a varied setting, with bands over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

from ..errors import FltnbError, choose
from .ends import fits, name_ends
from .style import (
    DASHES,
    MEASURES,
    PAGE,
    Names,
    Style,
    handle,
    has_words,
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
    from matplotlib.lines import Line2D

HOLLOW: dict[str, Any] = {"marker": "o", "mfc": "none", "ms": 8}
"""Style of printed numbers."""


@dataclass(frozen=True)
class Look:
    """Options of :func:`lines` besides a frame and its columns.

    Parameters
    ----------
    ax : Axes, optional
        The axes to draw into; by default a new figure is made.
    xlabel, ylabel : str
        Labels of the axes.
    log : bool
        Logarithmic x axis.
    names : mapping, optional
        Value -> name shown in the figure.
    title : str
        Title that states the result.
    size : (float, float), optional
        Size of a panel in inches.
    """

    ax: Axes | None = None
    xlabel: str = ""
    ylabel: str = ""
    log: bool = False
    names: Names = None
    title: str = ""
    size: tuple[float, float] | None = None


def lines(
    frame: pd.DataFrame,
    x: str,
    y: str = "accuracy",
    hue: str = "method",
    style: str | None = None,
    col: str | None = None,
    row: str | None = None,
    **look: Any,
) -> tuple[Figure, Any]:
    """Draw means over seeds as lines, with a band from the lowest to the highest seed.

    Parameters
    ----------
    frame : DataFrame
        One row per point, and per seed where it has a column ``seed``.
    x, y : str
        Columns of the axes. Words on the x axis are placed at equal distances, in the
        order of their rows, and lines are shifted a little so that equal ones can be
        seen.
    hue, style : str
        Columns that set colours and dashes; rows with style "paper" are printed
        numbers, drawn as hollow markers.
    col, row : str, optional
        Columns with one panel per value, side by side and (with both) one
        below the other.
    **look
        As in :class:`Look`: ``ax, xlabel, ylabel, log, names, title, size``.

    Returns
    -------
    (Figure, Axes or list of Axes)
        A list if there are several panels.

    Raises
    ------
    FltnbError
        A column or a value of it is missing, there is no row, or several rows of a seed
        have the same point.

    Examples
    --------
    >>> import pandas as pd
    >>> import fltnb as fl
    >>> rows = pd.DataFrame({"k": [2, 3, 4], "ari": [0.5, 1.0, 0.9], "method": "flt"})
    >>> title = "Three clusters are found"
    >>> figure, axis = fl.plots.lines(rows, "k", "ari", title=title)
    >>> axis.get_ylabel()
    'adjusted Rand index'
    """
    how = Look(**look)
    keys = [column for column in (row, col, hue, style) if column]
    frame = _drawable(frame, keys, x, y)
    downs = _values(frame, row)
    rights = _values(frame, col)
    cells = list(product(downs, rights))
    columns = len(rights) if row else min(3, len(cells))
    fig, axes = _empty(len(cells), columns, how, "row" if row else True)
    drawn = _Drawn(
        x=x,
        y=y,
        hue=hue,
        style=style,
        colors=looks(frame[hue], hue, how.names),
        dashes=_dashes(frame[style]) if style else {},
        log=how.log,
    )
    in_panels = []
    for ax, (down, right) in zip(axes, cells, strict=True):
        in_panels.append(_panel(ax, where(frame, {row: down, col: right}), drawn))
        if len(cells) > 1:
            heads = [label(one, how.names) for one in (down, right) if one is not None]
            ax.set_title(", ".join(heads), fontsize="medium")
        ax.set_xlabel(how.xlabel or label(x, how.names))
    for ax in axes[::columns]:
        # not between panels that share the axis
        if ax.yaxis.get_tick_params().get("labelleft", True):
            ax.set_ylabel(how.ylabel or MEASURES.get(y) or label(y), fontsize=9)

    # names at the ends once all panels have their limits; a list of numbers needs a
    # title, so it stays a legend
    named = hue == "method" or has_words(list(drawn.colors))
    filled = [own for own in in_panels if own]
    colors = _handles(drawn)
    if named and all(fits(own) for own in filled):
        colors = []
        for own in filled:
            name_ends(own, drawn.colors)
    handles = colors + _dash_handles(drawn, how.names) + _seed_handle(frame, keys)
    title = label(hue, how.names) if colors and hue != "method" else ""
    legend(fig, how.ax, handles, title)
    headline(fig, how.title, how.ax)
    if len(axes) == 1:
        return fig, axes[0]
    return fig, axes


@dataclass(frozen=True)
class _Drawn:
    """The settings that all panels of :func:`lines` share.

    Attributes
    ----------
    x, y, hue, style : str
        Columns; ``style`` may be None.
    colors : dict
        Value of ``hue`` -> how it is drawn.
    dashes : dict
        Value of ``style`` -> its dash.
    log : bool
        Logarithmic x axis.
    """

    x: str
    y: str
    hue: str
    style: str | None
    colors: dict[Any, Style]
    dashes: dict[Any, str]
    log: bool


def _values(frame: pd.DataFrame, column: str | None) -> list:
    """Return the values that have panels of their own.

    Without a column there is one panel, with the value None.
    """
    if column is None:
        return [None]
    return in_order(frame[column])


def _empty(
    count: int, columns: int, how: Look, sharey: str | bool
) -> tuple[Figure, list[Axes]]:
    """Make the panels, as wide together as a page, with room for names at the right.

    Parameters
    ----------
    count, columns : int
        Panels, and panels in a row.
    how : Look
    sharey : "row" or True
        Which panels share a y axis.
    """
    width, height = (
        (6.2, 3.6) if count == 1 else (4.5, 3.3 if count <= columns else 2.8)
    )
    if how.size:
        width, height = how.size
    size = (min(width, PAGE / columns), height)
    return panels(count, size, columns, how.ax, sharey=sharey)


def curves(
    frame: pd.DataFrame,
    y: str = "accuracy",
    *,
    split: str | Sequence[str] = ("train", "test"),
    style: str = "split",
    **options: Any,
) -> tuple[Figure, Any]:
    """Draw a number against the round.

    As in FLT's Figures 4, 5 and 8 to 12, FeSEM's Figure 3, MT-HFL's Figures 2 and 3.

    Parameters
    ----------
    frame : DataFrame
        Rows of ``Results.curves``: ``round``, ``split``, the number and the columns
        that ``options`` name.
    y : str
        Column of the number.
    split : {"train", "test", "probe"} or several
        The splits to draw.
    style, **options
        As for :func:`lines`.

    Examples
    --------
    >>> import pandas as pd
    >>> import fltnb as fl
    >>> rows = {"round": [1, 2], "split": "test", "accuracy": [60.0, 70.0]}
    >>> frame = pd.DataFrame(rows).assign(method="fedavg")
    >>> figure, axis = fl.plots.curves(frame, split="test", ylabel="accuracy (%)")

    With stored results:

    >>> found = fl.results("01").where(dataset="mnist", variant="as_run")
    >>> local = found.curves.query("method == 'local'")
    >>> figure, axis = fl.plots.curves(local, split="test")
    """
    need(frame, ("round", "split"), "curves")
    wanted = [split] if isinstance(split, str) else split
    for name in wanted:
        choose(name, ("train", "test", "probe"), "split")
    own = frame[frame["split"].isin(wanted)]
    return lines(own, "round", y, style=style, **options)


def against_bytes(frame: pd.DataFrame, **options: Any) -> tuple[Figure, Any]:
    """Draw test accuracy against the bytes sent so far by all clients (FLT, Table 6).

    This compares methods whose rounds have different costs. The axis is logarithmic. A
    method that sends nothing is a horizontal line at its last number.

    Parameters
    ----------
    frame : DataFrame
        Rows of ``Results.curves`` as for :func:`curves`, with ``bytes_up`` and
        ``bytes_down`` (sent so far, including all that a method sends before its first
        round).
    **options
        As for :func:`lines`.

    Raises
    ------
    FltnbError
        A column is missing, or as for :func:`lines`.

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> columns = {
    ...     "method": "fedavg",
    ...     "round": [1, 2],
    ...     "split": "test",
    ...     "accuracy": [50.0, 60.0],
    ... }
    >>> sent = {"bytes_up": [1e6, 2e6], "bytes_down": [1e6, 2e6]}
    >>> frame = pd.DataFrame(columns | sent)
    >>> figure, axis = fl.plots.against_bytes(frame)
    """
    import pandas as pd

    keys = ["method"]
    for name in ("style", "col", "row"):
        if options.get(name):
            keys.append(options[name])
    needed = (*keys, "round", "split", "bytes_up", "bytes_down", "accuracy")
    need(frame, needed, "curves")
    frame = frame[(frame["split"] == "test") & (frame["round"] > 0)]

    # seeds may differ by a few bytes: a point is the mean over seeds at one round
    frame = frame.assign(sent=(frame["bytes_up"] + frame["bytes_down"]) / 1e6)
    by_point = frame.groupby([*keys, "round"])
    frame = frame.assign(sent=by_point["sent"].transform("mean"))

    # a method that sends nothing: a horizontal line over the range of the others
    groups = frame.groupby(keys)
    silent = groups["sent"].transform("max") == 0
    at_the_end = frame["round"] == groups["round"].transform("max")
    last = frame[silent & at_the_end]
    speaking = frame[~silent]
    left = last.assign(sent=speaking["sent"].min())
    right = last.assign(sent=speaking["sent"].max())

    names = dict(options.get("names") or {})
    for name in last["method"].unique():
        names[name] = f"{label(name, names)} (sends nothing)"
    usual = {"xlabel": "sent up and down, all clients (MB)", "log": True}
    look: dict[str, Any] = usual | options | {"names": names}
    return lines(pd.concat([speaking, left, right]), "sent", **look)


def _drawable(frame: pd.DataFrame, keys: list[str], x: str, y: str) -> pd.DataFrame:
    """Return the rows that have a point; refuse rows that cannot be told apart.

    Parameters
    ----------
    frame : DataFrame
    keys : list of str
        Columns that distinguish lines and panels.
    x, y : str
        Columns of the axes.

    Raises
    ------
    FltnbError
        A column or a value of one is missing, there is no row, or several rows of a
        seed have the same point.
    """
    need(frame, [*keys, x, y], "rows")
    frame = frame.dropna(subset=[x, y]).astype({y: float})
    if frame.empty:
        raise FltnbError(f"There is no {y} against {x} to draw: give at least one row.")
    for column in keys:
        if frame[column].isna().any():
            raise FltnbError(
                f"Some rows have no {column}: select the rows that have one, "
                "or draw without it."
            )

    point = [*keys, x]
    if "seed" in frame and "seed" not in point:
        point.append("seed")
    again = frame.duplicated(point, keep=False)
    if again.any():
        raise FltnbError(_mixture(frame[again], point, y))
    return frame


def _mixture(frame: pd.DataFrame, point: list[str], y: str) -> str:
    """Return the message about rows of different settings that share a point.

    Parameters
    ----------
    frame : DataFrame
        Rows that share their point with another.
    point : list of str
        Columns that define a point.
    y : str
        Column of the number.
    """
    first = frame.iloc[0][point]
    rows = frame[(frame[point] == first).all(axis=1)]
    settings = rows.drop(columns=[*point, y, "key"], errors="ignore")
    settings = settings.select_dtypes(exclude="floating")
    differ = [name for name in settings if settings[name].nunique() > 1]
    what = "no column distinguishes them"
    if differ:
        what = f"they differ in {', '.join(differ)}"
    place = ", ".join(f"{name} = {value}" for name, value in first.items())
    return (
        f"{len(rows)} rows have the same point ({place}): {what}. Select one of them, "
        "or give that column as hue, style, col or row."
    )


def _dashes(values: pd.Series) -> dict[Any, str]:
    """Return the dash of every value: fixed for known words, else by order.

    ``values``: of the column ``style``.
    """
    once = list(dict.fromkeys(values))
    dashes = {value: DASHES[value] for value in once if value in DASHES}
    spare = [dash for dash in ("-", "--", ":", "-.") if dash not in dashes.values()]
    others = cycle(spare)
    for value in once:
        if value not in DASHES:
            dashes[value] = next(others)
    return dashes


def _panel(ax: Axes, part: pd.DataFrame, drawn: _Drawn) -> dict[Any, Line2D]:
    """Draw the lines of one panel; return one a colour, the solid one if there is one.

    Lines over words are shifted a little, so that equal ones can be seen.

    Parameters
    ----------
    ax : Axes
    part : DataFrame
        Its rows; without rows the panel shows "not run".
    drawn : _Drawn
    """
    if part.empty:
        ax.text(0.5, 0.5, "not run", ha="center", color="0.4", transform=ax.transAxes)
        ax.set_xticks([])
        return {}

    x = part[drawn.x]
    levels = in_order(x)
    words = x.dtype.kind not in "iufb"
    count = len(drawn.colors)
    dashes = drawn.dashes or {None: "-"}
    found: dict[Any, Line2D] = {}
    for line, (value, look) in enumerate(drawn.colors.items()):
        for name, dash in dashes.items():
            own = where(part, {drawn.hue: value, drawn.style: name})
            if own.empty:
                continue
            points = own[drawn.x]
            if words:
                beside = 0.05 * (line - (count - 1) / 2)
                points = points.map(levels.index) + beside
            groups = own.groupby(points)[drawn.y]
            over = groups.agg(["mean", "min", "max", "size"])
            curve = _line(ax, over, look, dash, line / count)
            if dash == "-" or value not in found:
                found[value] = curve

    if words:
        ax.set_xticks(range(len(levels)), [label(level) for level in levels])
    elif drawn.log:
        _logarithmic(ax, levels)
    elif all(float(level).is_integer() for level in levels):
        whole: Any = ax.xaxis.get_major_locator()  # a MaxNLocator
        whole.set_params(integer=True)
    return found


def _line(ax: Axes, over: pd.DataFrame, look: Style, dash: str, shift: float) -> Line2D:
    """Draw one line with its band, and return the line.

    Parameters
    ----------
    ax : Axes
    over : DataFrame
        x -> ``mean, min, max, size`` over the seeds.
    look : Style
    dash : str
        "" draws hollow markers without a line.
    shift : float
        Shift of the markers of a solid line, as a share of their step, so that curves
        that coincide stay visible.
    """
    options: dict[str, Any] = {"color": look.color, "ls": dash, "lw": 1.1}
    if dash == "-":
        # few points: a marker at each of them
        every = len(over) // 8 if len(over) > 12 else 1
        options["lw"] = 1.6
        options["marker"] = look.marker
        options["markevery"] = (int(every * shift), every)
        options["ms"] = 4.5
        options["mew"] = 0
    elif dash == "":
        options.update(HOLLOW)
        options["marker"] = look.marker
        options["mec"] = look.color
        options["mew"] = 1.5

    # the same pixels as seaborn's lineplot, thirty times faster
    (line,) = ax.plot(over.index, over["mean"], **options)
    if over["size"].max() > 1:
        ax.fill_between(
            over.index, over["min"], over["max"], color=look.color, alpha=0.15, lw=0
        )
    return line


def _logarithmic(ax: Axes, levels: Sequence[float]) -> None:
    """Make the x axis logarithmic, with plain numbers as far as there is room.

    ``levels``: all values on it. If there are only a few, all are labelled.
    """
    from matplotlib.ticker import FixedLocator, Locator, LogLocator, NullLocator

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    digits = (1, 2, 5) if high < 100 * low else (1,)
    ticks: Locator = LogLocator(subs=digits)
    if len(levels) <= 12:
        ticks = FixedLocator(levels)
    ax.xaxis.set_major_locator(ticks)
    ax.xaxis.set_major_formatter("{x:g}")  # "3 x 10^2" would overlap its neighbours
    ax.xaxis.set_minor_locator(NullLocator())


def _handles(drawn: _Drawn) -> list:
    """Return the legend of the colours."""
    return [
        handle(look.label, look.color, look.marker, ls="-", ms=4.5)
        for look in drawn.colors.values()
    ]


def _dash_handles(drawn: _Drawn, names: Names) -> list:
    """Return the legend of the dashes, if there are several.

    Printed numbers are hollow markers.
    """
    found = []
    for value, dash in drawn.dashes.items():
        hollow: dict[str, Any] = {} if dash else HOLLOW
        found.append(handle(label(value, names), "0.4", ls=dash, **hollow))
    return found if len(found) > 1 else []


def _seed_handle(frame: pd.DataFrame, keys: list[str]) -> list:
    """Return the legend entry of the bands, if there are several seeds.

    ``keys``: columns that distinguish lines and panels.
    """
    from matplotlib.patches import Patch

    if "seed" not in frame:
        return []
    seeds = frame.groupby(keys)["seed"].nunique()
    if seeds.max() == 1:
        return []
    count = f"{seeds.max()}"
    if seeds.min() < seeds.max():
        count = f"up to {count}"
    text = f"lowest to highest of {count} seeds"
    return [Patch(color="0.4", alpha=0.2, lw=0, label=text)]
