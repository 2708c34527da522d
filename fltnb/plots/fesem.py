"""Pictures of FeSEM's clusters (notebook 08): local models in the plane, whose hands they are, how many centres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .style import cluster_color, need, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MARKERS = "osD^vP"  # of clusters, beside their colours


def local_models(points: pd.DataFrame, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw every client's model as a point in the plane, a row per federation, a panel per round: FeSEM's Figure 4.

    Parameters
    ----------
    points : DataFrame
        ``dataset, round, cluster, x, y``, one row per client and round. Axes differ from panel to panel, as each round
        has principal components of its own.
    title : str
    """
    import matplotlib.pyplot as plt

    need(points, ("dataset", "round", "cluster", "x", "y"), "local models")
    if points.empty:
        raise FltnbError("There are no local models to draw: compute some first.")
    names, shown = (list(dict.fromkeys(points[column])) for column in ("dataset", "round"))
    size = (2.6 * len(shown) + 0.6, 2.5 * len(names) + 0.9)
    fig, axes = plt.subplots(len(names), len(shown), figsize=size, squeeze=False, layout="constrained")
    handles = {}
    for row, name in zip(axes, names, strict=True):
        for ax, number in zip(row, shown, strict=True):
            own = points[(points["dataset"] == name) & (points["round"] == number)]
            for cluster, part in own.groupby("cluster"):
                look = {"marker": MARKERS[int(cluster) % len(MARKERS)], "color": cluster_color(cluster)}
                handles[cluster] = ax.scatter(part["x"], part["y"], s=22, edgecolors="white", lw=0.4, **look)
            ax.set_title(f"round {number}", fontsize="medium")
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(name)
    labels = sorted(handles)
    marks = [handles[cluster] for cluster in labels]
    fig.legend(marks, labels, title="cluster", loc="outside lower center", ncols=len(labels), frameon=False)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def attribute_strips(
    values: Mapping[str, np.ndarray], groups: np.ndarray, notes: Mapping[str, str] | None = None, title: str = ""
) -> tuple[Figure, np.ndarray]:
    """Draw attributes of clients by cluster, one panel each: dots, and a bar at every mean.

    Parameters
    ----------
    values : mapping
        Attribute -> one number per client (M,).
    groups : array (M,)
        Cluster of every client.
    notes : mapping, optional
        Attribute -> what stands above its panel, such as a p-value.
    title : str
    """
    import matplotlib.pyplot as plt

    if not values:
        raise FltnbError("There is no attribute to draw: give at least one.")
    groups = np.asarray(groups)
    names = np.unique(groups)
    fig, axes = plt.subplots(
        1, len(values), figsize=(1.9 * len(values) + 0.6, 3.2), squeeze=False, layout="constrained"
    )
    for ax, (attribute, numbers) in zip(axes[0], values.items(), strict=True):
        for at, name in enumerate(names):
            own = np.asarray(numbers)[groups == name]
            # golden-ratio sequence: spread like random jitter, but the same every time
            jitter = (np.arange(len(own)) * 0.6180339887 % 1 - 0.5) * 0.5
            color = cluster_color(name)
            ax.scatter(at + jitter, own, s=16, color=color, alpha=0.75, marker=MARKERS[int(name) % len(MARKERS)], lw=0)
            ax.plot([at - 0.35, at + 0.35], [own.mean()] * 2, color="black", lw=1.8)
        ax.set_xticks(range(len(names)), [str(name) for name in names])
        ax.set(xlabel="cluster", xlim=(-0.6, len(names) - 0.4))
        note = (notes or {}).get(attribute, "")
        ax.set_title(f"{attribute}\n{note}" if note else attribute, fontsize="small")
        ax.grid(axis="y", alpha=0.25)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]


def choosing_k(short: pd.DataFrame, long: pd.DataFrame, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw small runs beside the long ones by the number of centres K: accuracy left, distance inside clusters right.

    Parameters
    ----------
    short : DataFrame
        ``dataset, draw, K, accuracy`` (micro, percent), ``inside``. One row of panels per federation.
    long : DataFrame
        ``dataset, K, accuracy``.
    title : str
    """
    import matplotlib.pyplot as plt

    need(short, ("dataset", "draw", "K", "accuracy", "inside"), "small runs")
    need(long, ("dataset", "K", "accuracy"), "long runs")
    names = list(dict.fromkeys(short["dataset"]))
    if not names:
        raise FltnbError("There are no small runs to draw: compute some first.")
    size = (8.0, 2.6 * len(names) + 0.8)
    fig, axes = plt.subplots(len(names), 2, figsize=size, squeeze=False, layout="constrained")
    few, look = style("fesem_2"), style("fesem_4")
    for row, name in zip(axes, names, strict=True):
        for _, own in short[short["dataset"] == name].groupby("draw"):
            for ax, column in zip(row, ("accuracy", "inside"), strict=True):
                ax.plot(own["K"], own[column], "-", marker=few.marker, ms=5, color=few.color, lw=1.2)
        whole = long[long["dataset"] == name]
        row[0].plot(whole["K"], whole["accuracy"], "-", marker=look.marker, ms=6, color=look.color, lw=2)
        for ax, text in zip(row, ("micro accuracy (%)", "mean squared distance inside"), strict=True):
            ax.set(xlabel="centres K", ylabel=text)
            ax.set_title(name, fontsize="small")
            ax.xaxis.get_major_locator().set_params(integer=True)
            ax.grid(alpha=0.25)
        row[1].set_ylim(bottom=0)
    handles = [plt.Line2D([], [], marker=one.marker, color=one.color) for one in (few, look)]
    texts = ("small runs, a line per draw of clients", "all clients, all rounds")
    fig.legend(handles, texts, loc="outside lower center", ncols=2, frameon=False)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes
