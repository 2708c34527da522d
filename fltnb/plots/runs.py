"""Points after the last round: every client.

Bars and boxes show the middle; the points show how few clients there are, and how much
they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError
from .style import (
    CLUSTERS,
    MEASURES,
    cluster_color,
    handle,
    headline,
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


def client_strip(
    frame: pd.DataFrame,
    x: str = "method",
    hue: str | None = "true_cluster",
    *,
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw each client's test accuracy by method.

    The clients are points; a box shows median, quartiles and range.

    Parameters
    ----------
    frame : DataFrame
        Rows of ``Results.clients``, one per client and run; several runs may be
        stacked.
    x : str
        Column whose values are placed side by side.
    hue : str, optional
        Column of clusters, for the points' colours. Without it, or if all are missing,
        methods have their own.
    title : str
        Title that states the result.

    Raises
    ------
    FltnbError
        A column is missing, or no client was tested.

    Examples
    --------
    >>> import pandas as pd
    >>> import fltnb as fl
    >>> frame = pd.DataFrame({"method": "fedavg", "test": [70.0, 85.0, 90.0]})
    >>> title = "One client is far behind"
    >>> figure, axis = fl.plots.client_strip(frame, hue=None, title=title)
    """
    columns = [x, "test"]
    if hue:
        columns.append(hue)
    need(frame, columns, "clients")
    frame = frame[frame["test"].notna()]
    if frame.empty:
        raise FltnbError(
            "No client has a number 'test' to draw: give clients that were tested."
        )
    groups = looks(frame[x], x)

    by_cluster = False
    if hue is not None:
        by_cluster = frame[hue].notna().all() and (frame[hue] >= 0).all()

    width = 1.2 + 0.85 * max(4, len(groups))
    fig, (ax,) = panels(1, (width, 4.0))
    for place, (value, look) in enumerate(groups.items()):
        own = frame[frame[x] == value]
        colors = look.color
        if by_cluster:
            colors = [cluster_color(cluster) for cluster in own[hue]]
        beside = spread(np.full(len(own), place), 0.55)
        ax.scatter(beside, own["test"], s=9, c=colors, lw=0, zorder=2)
        _box(ax, own["test"].to_numpy(dtype=float), place)

    names = [look.label for look in groups.values()]
    turn: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(names) > 4 else {}
    ax.set_xticks(range(len(names)), names, **turn)
    ax.grid(False, axis="x")
    ax.set(xlabel="", ylabel=MEASURES["test"])
    if by_cluster:
        clusters = np.unique(frame[hue])
        if len(clusters) <= len(CLUSTERS):
            handles = [handle(f"{one:g}", cluster_color(one), "o") for one in clusters]
            legend(fig, None, handles, label(hue))
    headline(fig, title)
    return fig, ax


def _box(ax: Axes, values: np.ndarray, place: float) -> None:
    """Draw a box of quartiles, with whiskers to the ends and a black median.

    ``values``: (n,); ``place``: its position.
    """
    grey = {"color": "0.35"}
    ax.boxplot(
        [values],
        positions=[place],
        widths=0.68,
        whis=(0, 100),
        showfliers=False,
        boxprops=grey,
        whiskerprops=grey,
        capprops=grey,
        medianprops={"color": "black", "lw": 1.8},
    )


def spread(places: np.ndarray, width: float = 0.6) -> np.ndarray:
    """Return shifts of points, by the golden ratio.

    They look random, but are always the same.

    Parameters
    ----------
    places : array (n,)
    width : float
        Width of the band of points.

    Examples
    --------
    >>> spread(np.zeros(3)).round(2).tolist()
    [-0.3, 0.07, -0.16]
    """
    shares = np.arange(len(places)) * 0.6180339887 % 1
    return places + (shares - 0.5) * width
