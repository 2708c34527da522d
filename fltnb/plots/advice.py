"""Figures of the results of :func:`fltnb.advise`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError
from .style import cluster_color, headline, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..analyses.advise import Advice

MOST_NAMES = 60
"""Largest number of clients whose names are written beside a matrix."""


def advice(found: Advice, title: str = "") -> tuple[Figure, list[Axes]]:
    """Show how often clients are put into one cluster, and the gain of the groups.

    Parameters
    ----------
    found : Advice
        The result of :func:`fltnb.advise`.
    title : str
        The title; by default the recommendation in a few words.

    Returns
    -------
    (Figure, list of two Axes)

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> found = fl.advise(fed, n_seeds=1, progress=False)
    >>> figure, axes = fl.plots.advice(found)
    >>> len(axes)  # who is put together, and what that gains
    2
    """
    # here, because its module loads much that other figures do not need
    from ..analyses.advise import Advice

    if not isinstance(found, Advice):
        raise FltnbError(
            "plots.advice draws the result of fl.advise(fed), not "
            f"{type(found).__name__}: give that."
        )
    fig, axes = panels(2, size=(5.6, 4.6))
    _together(axes[0], found)
    _gains(axes[1], found)
    headline(fig, title or found.headline)
    return fig, axes


def _together(ax: Any, found: Advice) -> None:
    """Share of clusterings that put two clients together, by recommended group.

    From the recommended clusterer, or from all if there is none.
    """
    order = []  # clients, group by group
    colors = []
    for cluster, members in found.groups.items():
        for name in members:
            order.append(found.names.index(name))
            colors.append(cluster_color(cluster))
    chosen = found.recommended
    shares: Any
    if chosen in found.together:
        who = chosen
        shares = found.together[chosen]
    else:
        who = "all clusterers"
        shares = np.mean(list(found.together.values()), axis=0)
    ax.imshow(shares[np.ix_(order, order)], cmap="Greys", vmin=0, vmax=1)
    ax.grid(False)
    ax.set_title(f"put into one cluster by {who}, share of seeds", fontsize="medium")
    ax.set_xticks([])
    ax.set_yticks([])
    if len(order) > MOST_NAMES:
        return
    ax.set_yticks(range(len(order)), [found.names[i] for i in order], fontsize=8)
    for text, color in zip(ax.get_yticklabels(), colors, strict=True):
        text.set_color(color)


def _gains(ax: Any, found: Advice) -> None:
    """Estimated gain over one model, with its standard error, of each clusterer."""
    table = found.table
    if "gain" in table:
        table = table.dropna(subset=["gain"])
    names = []
    for place, (_, row) in enumerate(table.iterrows()):
        color = "black" if row["clusterer"] == found.recommended else "grey"
        ax.errorbar(row["gain"], place, xerr=row["error"], fmt="o", color=color)
        clusters = int(row["n_clusters"])
        plural = "" if clusters == 1 else "s"
        names.append(f"{row['clusterer']}: {clusters} cluster{plural}")
    ax.axvline(0, color="lightgrey", zorder=0)
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, -1), max(high, 1))  # small gains look small
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("points over one model for all, estimated")
    ax.set_title("what a model per group would gain", fontsize="medium")
