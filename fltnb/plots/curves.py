"""Curves: accuracy against rounds and bytes, agreement with the true clusters against difficulty, the ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError, choose
from .style import axes_for, need, set_title, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPLITS = {"test": "-", "train": "--"}
FACTORS = {"E": "local epochs E", "rho": "participation ρ", "M": "clients M", "T": "rounds T"}


def convergence(
    curves: pd.DataFrame,
    split: Sequence[str] = ("train", "test"),
    ax: Axes | None = None,
    title: str = "",
    *,
    longer: Sequence[str] = (),
    events: Mapping[int, str] | None = None,
) -> tuple[Figure, Axes]:
    """Draw accuracy against round (FLT's Figures 4, 5 and 8 to 11): test solid, train dashed.

    Parameters
    ----------
    curves : DataFrame
        Columns ``method, seed, round, split, accuracy`` (percent). The line is the mean over seeds; with several seeds
        a band goes from the lowest to the highest seed and the legend says so.
    split : sequence of {"train", "test"}
        What to draw.
    longer : sequence of str
        Methods that ran for more rounds: they get an axis of their own at the top (Figures 4 and 10: IFCA's 1,500
        rounds over the others' 100), which ends where the lower one ends.
    events : mapping, optional
        Round -> what happened then (newcomers, a drift); a vertical line each, on the lower axis.
    """
    need(curves, ("method", "seed", "round", "split", "accuracy"), "curves")
    splits = [split] if isinstance(split, str) else list(split)
    for name in splits:
        choose(name, SPLITS, "split")
    longer = [longer] if isinstance(longer, str) else list(longer)
    methods = list(dict.fromkeys(curves["method"]))
    for name in longer:
        choose(name, methods, "method with a longer run")
    fig, ax = axes_for(ax, (7.2, 4.2))
    top = _second_axis(ax, curves, longer) if longer and set(methods) - set(longer) else ax
    for position, method in enumerate(methods):
        for name in splits:
            one = curves[(curves["method"] == method) & (curves["split"] == name)]
            if len(one):
                over = one.groupby("round")["accuracy"].agg(["mean", "min", "max"])
                # markers at different places: curves that coincide stay visible
                _line(top if method in longer else ax, over, method, SPLITS[name], position / len(methods))
    marks = ["  (rounds at the top)" if top is not ax and method in longer else "" for method in methods]
    handles = _method_handles(methods, marks) + _split_handles(splits) + _seed_handle(curves)
    ax.set(xlabel="round", ylabel="accuracy, mean over clients (%)")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.25)
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    for round, text in (events or {}).items():
        _event(ax, round, text)
    return fig, set_title(ax, title)


def accuracy_against_bytes(
    curves: pd.DataFrame, split: str = "test", ax: Axes | None = None, title: str = ""
) -> tuple[Figure, Axes]:
    """Draw accuracy against what had been sent until then, on a logarithmic axis; beside FLT's Table 6.

    Parameters
    ----------
    curves : DataFrame
        Columns ``method, seed, round, split, accuracy`` (percent), ``bytes_up, bytes_down`` (sent so far by and to all
        clients, what a method sends before its first round included). A point is the mean over seeds at one round.
    split : {"train", "test"}
    """
    need(curves, ("method", "seed", "round", "split", "accuracy", "bytes_up", "bytes_down"), "curves")
    from matplotlib.ticker import EngFormatter

    rows = curves[curves["split"] == choose(split, SPLITS, "split")]
    rows = rows.assign(sent=rows["bytes_up"] + rows["bytes_down"])
    fig, ax = axes_for(ax, (7.2, 4.2))
    silent, drawn = [], []
    for method in dict.fromkeys(rows["method"]):
        own = rows[rows["method"] == method]
        over = own.groupby("round").agg(sent=("sent", "mean"), mean=("accuracy", "mean"))
        low_high = own.groupby("round")["accuracy"].agg(["min", "max"])
        over = over.join(low_high).set_index("sent")
        if not over.index.max() > 0:  # training alone costs nothing and has no place on this axis
            silent.append((method, over["mean"].iloc[-1]))
            continue
        _line(ax, over[over.index > 0], method, SPLITS[split], len(drawn) / 8)
        drawn.append(method)
    for method, level in silent:
        ax.axhline(level, color=style(method).color, lw=1.2, ls=":")
        drawn.append(method)
    marks = ["  (sends nothing)" if method in dict(silent) else "" for method in drawn]
    ax.set(xscale="log", xlabel="sent up and down, all clients together", ylabel="accuracy, mean over clients (%)")
    ax.xaxis.set_major_formatter(EngFormatter(unit="B", places=0))
    ax.grid(alpha=0.25)
    handles = _method_handles(drawn, marks) + _seed_handle(rows)
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    return fig, set_title(ax, title)


def ablation(
    table: pd.DataFrame, value: str = "accuracy", title: str = "", factors: Mapping[str, str] = FACTORS
) -> tuple[Figure, np.ndarray]:
    """Draw what each factor does, all else being equal: one panel per factor, FLT's Table 5 as a picture.

    Pale lines join the settings that differ in this factor alone; the strong line is their mean.

    Parameters
    ----------
    table : DataFrame
        Columns ``method``, the factors and ``value``: one row per setting. Settings without a partner at every other
        level of a factor are left out of its panel.
    value : str
        Column to draw, percent.
    factors : mapping
        Column -> what stands at its axis.

    Raises
    ------
    FltnbError
        A column is missing, a setting occurs twice, or no two settings differ in one factor alone.
    """
    import matplotlib.pyplot as plt

    need(table, ("method", *factors, value), "settings")
    if table.duplicated(["method", *factors]).any():
        raise FltnbError("A setting occurs twice for one method: take the mean over seeds before drawing.")
    methods = list(dict.fromkeys(table["method"]))
    fig, axes = plt.subplots(
        1, len(factors), figsize=(2.5 * len(factors) + 0.4, 3.6), sharey=True, squeeze=False, layout="constrained"
    )
    drawn = 0
    for ax, (factor, name) in zip(axes[0], factors.items(), strict=True):
        levels = sorted(table[factor].unique())
        others = ["method", *[column for column in factors if column != factor]]
        wide = table.pivot(index=others, columns=factor, values=value).dropna()
        wide = wide if len(levels) > 1 else wide.iloc[:0]
        drawn += len(wide)
        for method in methods:
            own = wide[wide.index.get_level_values("method") == method]
            if own.empty:
                continue
            look = style(method)
            ax.plot(range(len(levels)), own.to_numpy().T, color=look.color, lw=0.9, alpha=0.35)
            ax.plot(range(len(levels)), own.mean(), color=look.color, lw=2.2, marker=look.marker, ms=6)
        ax.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        ax.set(xlabel=name, xlim=(-0.35, max(1, len(levels) - 1) + 0.35))
        ax.grid(axis="y", alpha=0.25)
        if wide.empty:
            ax.text(0.5, 0.5, "one level only" if len(levels) < 2 else "no pairs", ha="center", transform=ax.transAxes)
    if not drawn:
        raise FltnbError("No two of these settings differ in one factor alone: there is nothing to join.")
    axes[0, 0].set_ylabel("test accuracy (%)")
    fig.legend(handles=_method_handles(methods), loc="outside lower center", ncols=len(methods), frameon=False)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]


def _line(ax: Axes, over: pd.DataFrame, method: str, dash: str, shift: float | None) -> None:
    """Draw mean and band; ``shift`` (0 to 1) moves the markers along the line, None puts one on every point."""
    look, solid = style(method), dash == "-"
    every = max(1, len(over) // 8)
    ax.plot(
        over.index,
        over["mean"],
        dash,
        color=look.color,
        lw=1.6 if solid else 1.0,
        marker=look.marker if solid else None,
        markersize=4.5,
        markevery=None if shift is None else (int(shift * every), every),
    )
    ax.fill_between(over.index, over["min"], over["max"], color=look.color, alpha=0.15, lw=0)


def _second_axis(ax: Axes, curves: pd.DataFrame, longer: Sequence[str]) -> Axes:
    """Add rounds at the top for the longer runs, in step with the lower axis."""
    top = ax.twiny()
    is_long = curves["method"].isin(longer)
    ends = {ax: curves.loc[~is_long, "round"].max(), top: curves.loc[is_long, "round"].max()}
    for axes, end in ends.items():
        axes.set_xlim(-0.04 * end, 1.04 * end)
    color = style(longer[0]).color if len(longer) == 1 else "0.3"
    top.set_xlabel("round of " + ", ".join(style(name).label for name in longer), color=color)
    top.tick_params(axis="x", colors=color)
    top.xaxis.get_major_locator().set_params(integer=True)
    return top


def _event(ax: Axes, round: int, text: str) -> None:
    """Mark a round."""
    ax.axvline(round, color="0.35", ls="-.", lw=1, zorder=1.5)
    box = {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1}
    ax.annotate(
        text,
        (round, 0.03),
        xycoords=ax.get_xaxis_transform(),
        xytext=(3, 0),
        textcoords="offset points",
        rotation=90,
        va="bottom",
        fontsize="small",
        color="0.25",
        bbox=box,
        zorder=5,
    )


def _method_handles(methods: Sequence[str], marks: Sequence[str] | None = None) -> list:
    from matplotlib.lines import Line2D

    looks = [style(method) for method in methods]
    marks = [""] * len(looks) if marks is None else marks
    return [
        Line2D([], [], color=look.color, marker=look.marker, ms=4.5, label=look.label + mark)
        for look, mark in zip(looks, marks, strict=True)
    ]


def _split_handles(splits: Sequence[str]) -> list:
    from matplotlib.lines import Line2D

    return [Line2D([], [], color="0.4", ls=SPLITS[name], label=name) for name in splits]


def _seed_handle(table: pd.DataFrame) -> list:
    from matplotlib.patches import Patch

    seeds = table.groupby("method")["seed"].nunique()
    if seeds.empty or seeds.max() < 2:
        return []
    count = f"{seeds.max()}" if seeds.nunique() == 1 else f"up to {seeds.max()}"
    return [Patch(color="0.4", alpha=0.2, lw=0, label=f"min to max of {count} seeds")]
