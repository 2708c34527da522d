"""Lines over rounds, bytes or whatever is varied, with bands over seeds; points after the last round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError, choose
from .style import (
    CLUSTERS,
    MEASURES,
    cluster_color,
    handle,
    headline,
    in_order,
    label,
    legend,
    looks,
    need,
    panels,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = {
    "as_written": "o",
    "as_run": "s",
    "paper": "o",
}  # variants, and printed numbers
PAPER = {
    "marker": "o",
    "ls": "",
    "ms": 10,
    "mfc": "none",
    "mew": 1.6,
}  # printed numbers are hollow
DASHES = {
    "test": "-",
    "as_written": "-",
    "train": "--",
    "as_run": "--",
    "probe": ":",
    "paper": "",
}


def lines(
    frame: pd.DataFrame,
    x: str,
    y: str = "accuracy",
    hue: str = "method",
    style: str | None = None,
    col: str | None = None,
    row: str | None = None,
    *,
    ax: Axes | None = None,
    xlabel: str = "",
    ylabel: str = "",
    log: bool = False,
    names: Mapping[Any, str] | None = None,
    title: str = "",
    size: tuple[float, float] | None = None,
) -> tuple[Figure, Any]:
    """Draw means over seeds as lines, with a band from the lowest to the highest seed.

    Returns (Figure, Axes or list of Axes): a list where there are several panels. FltnbError: a column or a value of it
    is missing, there is no row, or several rows of a seed meet in one point.

    Parameters
    ----------
    frame : DataFrame, one row per point, and per seed where it has a column ``seed``
    x, y : str, columns of the axes. Words on the x axis stand at equal distances, in the order they come in, and the
        lines a little apart so that equal ones can be told.
    hue, style : str
        Columns of the colours and the dashes; rows with style "paper" are printed numbers, drawn as hollow markers.
    col, row : str, optional
        Columns whose values get panels of their own, side by side and (with both) one below the other.
    ax : Axes, optional, drawn into; a new figure otherwise
    xlabel, ylabel : str, what stands at the axes
    log : bool, logarithmic x axis
    names : mapping, optional, value -> what to call it, for any value shown
    title : str, the finding
    size : (float, float), optional, of a panel, inches
    """
    keys = [column for column in (row, col, hue, style) if column]
    need(frame, [*keys, x, y], "rows")
    frame = frame.dropna(subset=[x, y]).astype({y: float})
    if frame.empty:
        raise FltnbError(f"There is no {y} against {x} to draw: give at least one row.")
    if absent := [column for column in keys if frame[column].isna().any()]:
        raise FltnbError(
            f"Some rows have no {absent[0]}: select those that have one, or draw without it."
        )
    _refuse_mixtures(frame, [*keys, x], y)
    rows, cols = (
        [None] if name is None else in_order(frame[name]) for name in (row, col)
    )
    cells = [(down, right) for down in rows for right in cols]
    columns = len(cols) if row else min(3, len(cells))
    size = size or ((4.9, 3.9) if len(cells) == 1 else (3.4, 3.0))
    with_legend = (size[0] + 2.3 / columns, size[1])
    shared = "row" if row else True
    fig, axes = panels(len(cells), with_legend, columns, ax, sharey=shared)
    drawn = looks(frame[hue], hue, names)
    drawn_as = (
        list(dict.fromkeys(frame[style])) if style else []
    )  # known words as everywhere, others by order
    spare = [
        dash for dash in ("-", "--", ":", "-.") if dash not in map(DASHES.get, drawn_as)
    ] * len(drawn_as)
    dashes = {
        value: DASHES[value] if value in DASHES else spare.pop(0) for value in drawn_as
    } or {None: "-"}
    for panel, (down, right) in zip(axes, cells, strict=True):
        _panel(
            panel,
            _where(frame, {row: down, col: right}),
            x,
            y,
            hue,
            style,
            drawn,
            dashes,
            log,
        )
        if len(cells) > 1:
            panel.set_title(
                ", ".join(label(v, names) for v in (down, right) if v is not None),
                fontsize="medium",
            )
        panel.set_xlabel(xlabel or label(x, names))
    for panel in axes[::columns]:
        if panel.yaxis.get_tick_params().get(
            "labelleft", True
        ):  # not between panels that share the axis
            panel.set_ylabel(ylabel or MEASURES.get(y) or label(y))
    name = "" if hue == "method" else label(hue, names)
    legend(fig, ax, _handles(drawn, dashes if style else {}, frame, keys, names), name)
    headline(fig, axes, title)
    return fig, axes[0] if len(axes) == 1 else axes


def curves(
    frame: pd.DataFrame,
    y: str = "accuracy",
    *,
    split: str | Sequence[str] = ("train", "test"),
    **options,
) -> tuple[Figure, Any]:
    """Draw a number against the round (FLT's Figures 4, 5 and 8 to 12, FeSEM's Figure 3, MT-HFL's Figures 2 and 3).

    Parameters
    ----------
    frame : DataFrame, rows of ``Results.curves``: ``round``, ``split``, the number and what ``options`` name
    y : str, column of the number
    split : {"train", "test", "probe"} or several, what to draw
    **options, as for :func:`lines`; ``style`` is the split if left out
    """
    need(frame, ("round", "split"), "curves")
    wanted = [split] if isinstance(split, str) else list(split)
    for name in wanted:
        choose(name, ("train", "test", "probe"), "split")
    return lines(
        frame[frame["split"].isin(wanted)], "round", y, **({"style": "split"} | options)
    )


def against_bytes(frame: pd.DataFrame, **options) -> tuple[Figure, Any]:
    """Draw test accuracy against what has been sent until then, by all clients, on a logarithmic axis (FLT, Table 6).

    Parameters
    ----------
    frame : DataFrame
        Rows of ``Results.curves`` as for :func:`curves`, with ``bytes_up`` and ``bytes_down`` (sent so far, what a
        method sends before its first round included). A method that sends nothing is a level line at its last number.
    **options, as for :func:`lines`
    """
    import pandas as pd

    keys = [
        "method",
        *(options[key] for key in ("style", "col", "row") if options.get(key)),
    ]
    need(
        frame, (*keys, "round", "split", "bytes_up", "bytes_down", "accuracy"), "curves"
    )
    frame = frame[(frame["split"] == "test") & (frame["round"] > 0)]
    # seeds may differ by a few bytes: a point is the mean over seeds at one round
    by = [frame[key] for key in (*keys, "round")]
    frame = frame.assign(
        sent=(frame["bytes_up"] + frame["bytes_down"]).groupby(by).transform("mean")
        / 1e6
    )
    silent = frame.groupby(keys)["sent"].transform("max") == 0
    speaking, last = (
        frame[~silent],
        frame[
            silent & (frame["round"] == frame.groupby(keys)["round"].transform("max"))
        ],
    )
    names = options.pop("names", None) or {}
    names = names | {
        name: f"{label(name, names)} (sends nothing)"
        for name in last["method"].unique()
    }
    ends = [last.assign(sent=speaking["sent"].agg(end)) for end in ("min", "max")]
    options = {"xlabel": "sent up and down, all clients (MB)", "log": True} | options
    return lines(pd.concat([speaking, *ends]), "sent", names=names, **options)


def client_strip(
    frame: pd.DataFrame,
    x: str = "method",
    hue: str | None = "true_cluster",
    *,
    title: str = "",
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
        raise FltnbError(
            "No client has a number 'test' to draw: give clients that were tested."
        )
    drawn = looks(frame[x], x)
    coloured = hue is not None and frame[hue].notna().all() and (frame[hue] >= 0).all()
    box = {f"{part}props": {"color": "0.35"} for part in ("box", "whisker", "cap")} | {
        "showfliers": False
    }
    box["medianprops"] = {"color": "black", "lw": 1.8}
    fig, (ax,) = panels(1, (1.2 + 0.85 * max(4, len(drawn)), 4.0))
    for at, (value, look) in enumerate(drawn.items()):
        own = frame[frame[x] == value]
        colors = (
            [cluster_color(cluster) for cluster in own[hue]] if coloured else look.color
        )
        ax.scatter(
            spread(np.full(len(own), at), 0.55),
            own["test"],
            s=9,
            c=colors,
            alpha=0.7,
            lw=0,
            zorder=2,
        )
        ax.boxplot(
            [own["test"].to_numpy(dtype=float)],
            positions=[at],
            widths=0.68,
            whis=(0, 100),
            **box,
        )
    turn = {"rotation": 30, "ha": "right"} if len(drawn) > 4 else {}
    ax.set_xticks(range(len(drawn)), [look.label for look in drawn.values()], **turn)
    ax.grid(False, axis="x")
    ax.set(xlabel="", ylabel=MEASURES["test"])
    clusters = np.unique(frame[hue]) if coloured else []
    if 0 < len(clusters) <= len(CLUSTERS):
        legend(
            fig,
            None,
            [handle(f"{one:g}", cluster_color(one), "o") for one in clusters],
            label(hue),
        )
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
    style : str, optional, column that tells variants and printed numbers apart
    col : str, optional, with one ``x``: column whose values get panels of their own, such as a task
    names : mapping, optional, value -> what to call it; a column of ``x`` too
    title : str, the finding
    """
    measures = [x] if isinstance(x, str) else list(x)
    need(
        frame,
        [column for column in ("method", style, col, *measures) if column],
        "runs",
    )
    if frame.empty:
        raise FltnbError("There are no runs to draw: give at least one row.")
    if col and len(measures) > 1:
        raise FltnbError("Give either several columns of numbers or col, not both.")
    cells = [
        (one, cell)
        for one in measures
        for cell in (in_order(frame[col]) if col else [None])
    ]
    drawn, marks = looks(frame["method"], "method", names), {None: "o"}
    if style:
        found = {choose(source, SOURCES, "variant to draw") for source in frame[style]}
        marks = {
            source: marker for source, marker in SOURCES.items() if source in found
        }
    filled = [source for source in marks if source != "paper"]
    fig, axes = panels(
        len(cells),
        (3.4 + 1.4 / len(cells), 0.3 * len(drawn) + 1.4),
        len(cells),
        sharey=True,
    )
    for axis, (measure, cell) in zip(axes, cells, strict=True):
        part = _where(frame, {col: cell})
        for at, (value, look) in enumerate(drawn.items()):
            for source, marker in marks.items():
                numbers = (
                    _where(part, {"method": value, style: source})[measure]
                    .dropna()
                    .to_numpy(dtype=float)
                )
                if source == "paper":
                    axis.plot(
                        numbers,
                        np.full(len(numbers), at),
                        mec=look.color,
                        zorder=3,
                        **PAPER,
                    )
                elif len(numbers):
                    height = at + 0.24 * (filled.index(source) - (len(filled) - 1) / 2)
                    axis.plot(
                        numbers,
                        np.full(len(numbers), height),
                        marker,
                        color=look.color,
                        ms=5,
                        alpha=0.6,
                        mew=0,
                    )
                    axis.plot(
                        numbers.mean(), height, "|", color=look.color, ms=13, mew=2
                    )
        axis.grid(False, axis="y")
        axis.set_xlabel(
            (names or {}).get(measure) or MEASURES.get(measure) or label(measure)
        )
        axis.set_title("" if cell is None else label(cell, names), fontsize="medium")
    axes[0].set_yticks(range(len(drawn)), [look.label for look in drawn.values()])
    axes[0].set_ylim(len(drawn) - 0.5, -0.5)
    handles = [
        handle(label(source, names) if style else "a run", "0.3", marks[source])
        for source in filled
    ]
    handles += [handle(label("paper", names), **PAPER, mec="0.3")] * ("paper" in marks)
    legend(fig, None, [*handles, handle("mean of the runs", "0.3", "|", ms=11, mew=2)])
    headline(fig, axes, title)
    return fig, axes


def _panel(
    ax: Axes,
    part: pd.DataFrame,
    x: str,
    y: str,
    hue: str,
    style: str | None,
    drawn,
    dashes,
    log: bool,
) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    if part.empty:
        ax.text(0.5, 0.5, "not run", ha="center", color="0.4", transform=ax.transAxes)
        return ax.set_xticks([])
    levels = in_order(part[x])
    words = [] if part[x].dtype.kind in "iufb" else levels
    for place, (value, look) in enumerate(drawn.items()):
        for name, dash in dashes.items():
            own = _where(part, {hue: value, style: name})
            if own.empty:
                continue
            over = own.groupby(own[x].map(levels.index) if words else x)[y].agg(
                ["mean", "min", "max", "size"]
            )
            at = over.index.to_numpy() + (
                0.05 * (place - (len(drawn) - 1) / 2) if words else 0
            )
            # few points: a marker at each. Many: at different places, so that curves that coincide stay visible
            every = len(over) // 8 if len(over) > 12 else 1
            line = {"color": look.color, "ls": dash, "lw": 1.6 if dash == "-" else 1.1}
            marks = {
                "marker": look.marker,
                "ms": 4.5,
                "markevery": (int(every * place / len(drawn)), every),
                "mew": 0,
            }
            if dash == "":
                marks |= {"mfc": "none", "mec": look.color, "mew": 1.5, "ms": 8}
            elif dash != "-":
                marks = {}
            ax.plot(
                at, over["mean"], **line, **marks
            )  # the same pixels as seaborn's, thirty times as fast
            if over["size"].max() > 1:
                ax.fill_between(
                    at, over["min"], over["max"], color=look.color, alpha=0.15, lw=0
                )
    if words:
        ax.set_xticks(range(len(words)), [label(word) for word in words])
    elif log:
        ax.set_xscale("log")
        low, high = ax.get_xlim()
        marks = LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,))
        ax.xaxis.set_major_locator(
            FixedLocator(levels) if len(levels) <= 12 else marks
        )  # few levels: these themselves
        ax.xaxis.set_major_formatter("{x:g}")  # not "3 x 10^2" over its neighbours
        ax.xaxis.set_minor_locator(NullLocator())
    elif all(float(level).is_integer() for level in levels):
        ax.xaxis.get_major_locator().set_params(integer=True)


def spread(places: np.ndarray, width: float = 0.6) -> np.ndarray:
    """Points beside their places by the golden ratio: like chance, but the same every time."""
    return places + (np.arange(len(places)) * 0.6180339887 % 1 - 0.5) * width


def _where(frame: pd.DataFrame, chosen: Mapping[str | None, Any]) -> pd.DataFrame:
    """Rows with these values; a column None asks nothing."""
    for column, value in chosen.items():
        if column is not None:
            frame = frame[frame[column] == value]
    return frame


def _refuse_mixtures(frame: pd.DataFrame, keys: list[str], y: str) -> None:
    """Refuse rows that only a mean over different settings could draw as one point."""
    one = [*keys, *(["seed"] if "seed" in frame and "seed" not in keys else [])]
    again = frame.duplicated(one, keep=False)
    if not again.any():
        return
    first = frame[again].iloc[0][one]
    rows = frame[(frame[one] == first).all(axis=1)]
    differ = [
        c
        for c in rows
        if c not in (*one, y, "key")
        and rows[c].dtype.kind != "f"
        and rows[c].nunique() > 1
    ]
    what = (
        f"they differ in {', '.join(differ)}"
        if differ
        else "they are told apart by no column"
    )
    found = f"{len(rows)} rows meet in one point ({', '.join(f'{k} = {v}' for k, v in first.items())})"
    raise FltnbError(
        f"{found}: {what}. Select one of them, or give that column as hue, style, col or row."
    )


def _handles(
    drawn, dashes: Mapping[Any, str], frame: pd.DataFrame, keys: list[str], names
) -> list:
    from matplotlib.patches import Patch

    found = [
        handle(look.label, look.color, look.marker, ls="-", ms=4.5)
        for look in drawn.values()
    ]
    for value, dash in dashes.items():
        hollow = {} if dash else {"marker": "o", "mfc": "none", "ms": 8}
        found.append(handle(label(value, names), "0.4", ls=dash, **hollow))
    seeds = frame.groupby(keys)["seed"].nunique() if "seed" in frame else None
    if seeds is not None and seeds.max() > 1:
        count = (
            f"{seeds.max()}" if seeds.min() == seeds.max() else f"up to {seeds.max()}"
        )
        found.append(
            Patch(
                color="0.4",
                alpha=0.2,
                lw=0,
                label=f"lowest to highest of {count} seeds",
            )
        )
    return found
