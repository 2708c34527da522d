"""Accuracy of every task by itself: MT-HFL's Figures 2 and 3, and all methods side by side after the last round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .curves import _line, _method_handles, _seed_handle
from .style import need, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def task_curves(table: pd.DataFrame, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw accuracy against rounds, one panel per task.

    Parameters
    ----------
    table : DataFrame
        Columns ``task`` (names, in the order of the panels), ``method, seed, round, accuracy`` (percent). The line is
        the mean over seeds, the band goes from the lowest to the highest.
    """
    import matplotlib.pyplot as plt

    names, methods = _check(table, ("task", "method", "seed", "round", "accuracy"))
    fig, axes = plt.subplots(1, len(names), figsize=(3.3 * len(names) + 0.4, 3.6), squeeze=False, layout="constrained")
    for ax, name in zip(axes[0], names, strict=True):
        for method in methods:
            rows = table[(table["task"] == name) & (table["method"] == method)]
            _line(ax, rows.groupby("round")["accuracy"].agg(["mean", "min", "max"]), method, "-", None)
        ax.set_title(name, fontsize="medium")
        ax.set(xlabel="round")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.grid(alpha=0.25)
    axes[0, 0].set_ylabel("accuracy of the task's server (%)")
    handles = _method_handles(methods) + _seed_handle(table)
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize="small")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]


def task_dots(table: pd.DataFrame, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw the accuracy of every run as a dot and the mean as a bar, one panel per task, one line per method.

    Parameters
    ----------
    table : DataFrame
        Columns ``task, method, seed, accuracy`` (percent); one row per run and task.
    """
    import matplotlib.pyplot as plt

    names, methods = _check(table, ("task", "method", "seed", "accuracy"))
    size = (3.0 * len(names) + 1.6, 0.36 * len(methods) + 1.3)
    fig, axes = plt.subplots(1, len(names), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for ax, name in zip(axes[0], names, strict=True):
        for height, method in enumerate(methods):
            values = table[(table["task"] == name) & (table["method"] == method)]["accuracy"].to_numpy()
            look = style(method)
            ax.plot(values, np.full(len(values), height), "o", color=look.color, ms=5, alpha=0.55, mew=0)
            ax.plot([values.mean()] * 2, [height - 0.32, height + 0.32], color=look.color, lw=2)
        ax.set_title(name, fontsize="medium")
        ax.set_xlabel("test accuracy (%)")
        ax.grid(axis="x", alpha=0.25)
    axes[0, 0].set_yticks(range(len(methods)), [style(method).label for method in methods])
    axes[0, 0].invert_yaxis()
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]


def _check(table: pd.DataFrame, columns: tuple[str, ...]) -> tuple[list[str], list[str]]:
    need(table, columns, "accuracies of tasks")
    if table.empty:
        raise FltnbError("There are no accuracies of tasks to draw: give at least one row.")
    return list(dict.fromkeys(table["task"])), list(dict.fromkeys(table["method"]))
