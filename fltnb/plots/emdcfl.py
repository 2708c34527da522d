"""Pictures of EMD-CFL's tables (notebooks 11 to 13): all methods printed beside reproduced, and distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .style import CLUSTERS, axes_for, need, set_title, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#777777"


def method_dots(
    rows: pd.DataFrame,
    expected: Mapping[tuple[str, str], tuple[str, float]] | None = None,
    measures: Mapping[str, str] | None = None,
    title: str = "",
) -> tuple[Figure, np.ndarray]:
    """Draw one line per method and one panel per measure: a dot for every run, a grey bar for what is printed.

    Parameters
    ----------
    rows : DataFrame
        One row per run: ``method, variant, note`` and the measures. Runs with a note are left out; a variant
        "as_run" is drawn hollow.
    expected : mapping, optional
        (Method, measure) -> (text, number), from :func:`fltnb.analysis.emdcfl.printed`.
    measures : mapping, optional
        Column -> what the axis says; by default accuracy and worst client.
    """
    import matplotlib.pyplot as plt

    measures = measures or {"accuracy": "mean accuracy (%)", "worst": "worst client (%)"}
    need(rows, ("method", "variant", "note", *measures), "runs")
    rows = rows[rows["note"] == ""]
    methods = list(dict.fromkeys(rows["method"]))
    if not methods:
        raise FltnbError("There are no runs to draw: compute some first.")
    size = (3.4 * len(measures) + 1.4, 0.24 * len(methods) + 1.5)
    fig, axes = plt.subplots(1, len(measures), figsize=size, squeeze=False, sharey=True, layout="constrained")
    hollow = bool((rows["variant"] == "as_run").any())
    for ax, (measure, text) in zip(axes[0], measures.items(), strict=True):
        for at, method in enumerate(methods):
            color = style(method).color
            own = rows[rows["method"] == method]
            for variant, fill in (("as_written", color), ("as_run", "white")):
                values = own[own["variant"] == variant][measure].to_numpy()
                ax.plot(values, np.full(len(values), at), "o", color=color, mfc=fill, ms=6, mew=1.3, zorder=3)
            number = (expected or {}).get((method, measure), ("", np.nan))[1]
            ax.plot([number], [at], "|", color=GREY, ms=14, mew=2.5, zorder=2)
        ax.set_xlabel(text)
        ax.grid(axis="x", color="#DDDDDD", lw=0.8)
        ax.set_axisbelow(True)
    axes[0, 0].set_yticks(range(len(methods)), [style(method).label for method in methods])
    axes[0, 0].invert_yaxis()
    key = [("o", "black", "black", "a run")]
    key += [("o", "black", "white", "as the table's code ran it")] * hollow
    key += [("|", GREY, GREY, "printed")] * (expected is not None)
    handles = [plt.Line2D([], [], ls="", marker=m, color=c, mfc=f, ms=7, mew=1.5, label=t) for m, c, f, t in key]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]


def distance_strip(
    distances: Mapping[str, tuple[np.ndarray, np.ndarray]],
    tolerances: Mapping[str, float | Sequence[float]],
    ax: Axes | None = None,
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw every pair's larger distance, a line of dots per federation, inside and across its true clusters.

    Parameters
    ----------
    distances : mapping
        Name -> (distances (M, M), true clusters (M,)); of the two directions of a pair the larger one is drawn, at
        least 0.
    tolerances : mapping
        Label -> epsilon drawn over all lines, or one for each line.
    """
    fig, ax = axes_for(ax, (7.2, 0.75 * len(distances) + 1.8))
    for at, (matrix, clusters) in enumerate(distances.values()):
        far = np.maximum(np.maximum(matrix, np.transpose(matrix)), 0)
        upper = np.triu(np.ones(far.shape, dtype=bool), 1)
        same = np.equal.outer(clusters, clusters)
        for which, shift, color, text in (
            (same, -0.14, CLUSTERS[0], "same cluster"),
            (~same, 0.14, CLUSTERS[4], "different clusters"),
        ):
            values = far[upper & which]
            # even heights in the order of the values: no draw, and equal values do not hide each other
            height = at + shift + 0.18 * (np.argsort(np.argsort(values)) % 9 / 8 - 0.5)
            ax.plot(values, height, ".", ms=4, color=color, alpha=0.6, label=text if at == 0 else None)
    for (label, value), dash in zip(tolerances.items(), ("-", "--", ":"), strict=False):
        lines = [value] * len(distances) if np.ndim(value) == 0 else list(value)
        for at, one in enumerate(lines):
            ax.plot([one, one], [at - 0.4, at + 0.4], dash, color="black", lw=1.4, label=label if at == 0 else None)
    ax.set_yticks(range(len(distances)), list(distances))
    ax.set_ylim(len(distances) - 0.5, -0.5)
    ax.set_xlabel("corrected distance, the larger of the two directions")
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, markerscale=2)
    return fig, set_title(ax, title)
