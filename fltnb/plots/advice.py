"""What clusterers say about the clients, with their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .style import cluster_color, headline, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..analyses.advise import Advice

MOST_NAMES = 60
"""Clients whose names are written beside a matrix."""


def advice(found: Advice, title: str = "") -> tuple[Figure, list[Axes]]:
    """Show how often clients are put together, and what the groups would gain.

    Parameters
    ----------
    found : Advice
        What :func:`fltnb.advise` returned.
    title : str
        The finding; by default the recommendation in a few words.

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
    fig, axes = panels(2, size=(5.6, 4.6))
    _together(axes[0], found)
    _gains(axes[1], found)
    headline(fig, axes, title or found.headline)
    return fig, axes


def _together(ax: Any, found: Advice) -> None:
    """Share of clusterings that put two clients together, by recommended group.

    Of the clusterer that is recommended, else of all.
    """
    groups = found.groups
    order = np.concatenate(
        [[found.names.index(name) for name in members] for members in groups.values()]
    ).astype(int)
    colors = [
        cluster_color(cluster) for cluster, members in groups.items() for _ in members
    ]
    chosen = found.recommended
    who = chosen if chosen in found.together else "all clusterers"
    shares: Any = found.together.get(
        chosen, np.mean([*found.together.values()], axis=0)
    )
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
    ax.set_xlim(min(low, -1), max(high, 1))  # gains of nothing look like nothing
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("points over one model for all, estimated")
    ax.set_title("what a model per group would gain", fontsize="medium")
