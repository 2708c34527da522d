"""The panels of a clustering; each returns the clients' positions in the picture.

These *spots* are rows (n, 5): client, left, top, right, bottom, the latter as shares of
the picture's width and height. The browser uses them to find the clicked client.
"""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..runs import spread
from ..style import CLUSTERS, SMALL
from .grouping import Array, branches, middle

MOST_LINKS = 4000
"""Largest number of visible links in the client graph."""
MOST_CELLS = 320
"""Largest number of visible rows in the matrix of links."""
DARK = "0.33"
"""Colour of a dendrogram above the clusters."""

PALETTE = to_rgba_array([*CLUSTERS])


def colors_of(labels: Array) -> Array:
    """Return the colours (M, 4) of clusters (M,): red, green, blue, opacity."""
    return PALETTE[np.asarray(labels) % len(PALETTE)]


def layout(
    figure: Figure, names: list[str], columns: int
) -> tuple[dict[str, Axes], Axes]:
    """Make two rows of panels, and below them the scale of the threshold.

    Parameters
    ----------
    figure : Figure
    names : list of str
        Titles of the panels.
    columns : int
        Number of panels in a row; the last places may stay empty.

    Returns
    -------
    (dict, Axes)
        Name -> panel; the scale.
    """
    blank = ["."] * (2 * columns - len(names))
    grid = np.reshape(names + blank, (2, columns))
    room = {
        "left": 0.03,
        "right": 0.99,
        "bottom": 0.11,
        "top": 0.95,
        "wspace": 0.08,
        "hspace": 0.12,
    }
    axes = figure.subplot_mosaic(grid.tolist(), gridspec_kw=room)
    for name, ax in axes.items():
        ax.set(xticks=[], yticks=[], frame_on=False)
        # a fixed place: matplotlib's search takes longer than everything else
        ax.set_title(name, fontsize=SMALL, y=1.01)

    below = figure.add_axes((0.03, 0.055, 0.96, 0.02))
    below.set(yticks=[], ylim=(0, 1))
    below.spines[["left", "right", "top"]].set_visible(False)
    below.tick_params(labelsize=SMALL, length=2, pad=1)
    below.text(
        0.5,
        -2.2,
        "threshold (orange); black: groups of linked clients merge",
        fontsize=SMALL,
        ha="center",
        va="center",
        transform=below.transAxes,
    )
    return axes, below


def cleaned(ax: Axes) -> Axes:
    """Empty a panel; ``ax.clear()`` would take as long as drawing everything."""
    for old in [*ax.collections, *ax.images, *ax.lines]:
        old.remove()
    ax.relim()
    return ax


def dots(ax: Axes, points: Array, labels: Array) -> Array:
    """Draw points of all clients.

    Parameters
    ----------
    ax : Axes
    points : array (M, 2) or (M, k, 2)
        One point per client, or k.
    labels : array (M,)
        Clusters, which set the colours.

    Returns
    -------
    array (n, 5)
        Spots, one per point.
    """
    count = len(labels)
    flat = points.reshape(-1, 2)
    each = len(flat) // count
    colors = np.repeat(colors_of(labels), each, axis=0)
    size = np.clip(2500 / count, 2.0, 30.0)
    ax.scatter(flat[:, 0], flat[:, 1], s=size, c=colors, lw=0, zorder=3)
    return _spots(ax, flat, each)


def links(
    ax: Axes,
    linked: Array,
    order: Array,
    labels: Array,
    truth: Array | None,
) -> Array:
    """Draw the matrix of links, with strips of the clusters on the left.

    Parameters
    ----------
    ax : Axes
    linked : array (M, M) of bool
    order : array (M,)
        Clients in the order of the dendrogram.
    labels, truth : array (M,)
        Found clusters; true ones if known.

    Returns
    -------
    array (M, 5)
        Spots: the whole row of each client.
    """
    count = len(labels)
    shown, size = _coarse(linked[np.ix_(order, order)])
    look: dict[str, Any] = {"interpolation": "nearest", "aspect": "auto"}
    ax.imshow(shown, cmap="Greys", vmin=0, vmax=1, extent=(0, size, size, 0), **look)

    width = 0.04 * count
    strips = [(-1.5 * width, labels)]
    title = "links, and found clusters"
    if truth is not None:
        strips.append((-2.7 * width, truth))
        title = "links, and true and found clusters"
    for left, clusters in strips:
        colors = colors_of(clusters[order])
        place = (left, left + width, count, 0)
        ax.imshow(colors[:, None], extent=place, **look)
    ax.set(xlim=(-3 * width, count), ylim=(count, 0))
    ax.title.set_text(title)
    return _spots(ax, _along("y", order))


def _coarse(linked: Array) -> tuple[Array, int]:
    """Return the matrix of links in at most :data:`MOST_CELLS` rows and columns.

    Parameters
    ----------
    linked : array (M, M) of bool

    Returns
    -------
    array (cells, cells)
        The share of pairs that are linked.
    int
        Width of all cells together in clients: M, or a little more.
    """
    count = len(linked)
    per_cell = math.ceil(count / MOST_CELLS)
    cells = math.ceil(count / per_cell)
    size = cells * per_cell
    padded = np.pad(linked.astype(np.float32), (0, size - count))
    blocks = padded.reshape(cells, per_cell, cells, per_cell)
    return blocks.mean(axis=(1, 3)), size


def dendrogram(
    ax: Axes,
    tree: Array,
    rank: Array,
    labels: Array,
    threshold: float | None,
) -> Array:
    """Draw the dendrogram, and the threshold as a line.

    Parameters
    ----------
    ax : Axes
    tree : array (M - 1, 4)
        The dendrogram in SciPy's format.
    rank : array (M,)
        Position of each client below the dendrogram.
    labels : array (M,)
    threshold : float or None
        Height of the line. None if the tree was built from the links, so that its
        heights are no distances: then the line is at the cut that gives these clusters.

    Returns
    -------
    array (M, 5)
        Spots: the whole height above each client's position.
    """
    parts, cluster = branches(tree, rank, labels)
    colors = colors_of(cluster)
    colors[cluster < 0] = to_rgba_array(DARK)
    ax.add_collection(LineCollection(list(parts), colors=colors, lw=0.8))
    highest = max(tree[-1, 2], 1e-9)
    ax.set(xlim=(0, len(labels)), ylim=(0, 1.05 * highest))

    what = "threshold"
    if threshold is None:
        what = "cut"
        threshold = middle(tree, labels.max() + 1)
    ax.axhline(threshold, color="0.5", lw=0.8, ls="--")
    ax.title.set_text(f"dendrogram; dashed: the {what}")
    return _spots(ax, _along("x", np.argsort(rank)))


def client_graph(ax: Axes, linked: Array, rank: Array, labels: Array) -> Array:
    """Draw clients on a ring in the dendrogram's order; links across clusters black.

    Parameters
    ----------
    ax : Axes
    linked : array (M, M) of bool
    rank, labels : array (M,)
        Position of each client in the order, and its cluster.

    Returns
    -------
    array (M, 5)
        Spots.
    """
    angle = 2 * np.pi * rank / len(labels)
    ring = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    pairs = np.argwhere(np.triu(linked, 1))
    step = max(1, math.ceil(len(pairs) / MOST_LINKS))
    drawn = pairs[::step]

    cluster, other = labels[drawn].T
    inside = cluster == other
    look = {"lw": 0.6, "alpha": 0.6}
    colors = colors_of(cluster[inside])
    ax.add_collection(LineCollection(ring[drawn[inside]], colors=colors, **look))
    ax.add_collection(LineCollection(ring[drawn[~inside]], colors="#222222", **look))

    title = f"client graph: {len(pairs):,} links"
    if len(drawn) < len(pairs):
        title += f", {len(drawn):,} drawn"
    ax.title.set_text(title)
    return dots(ax, ring, labels)


def accuracies(ax: Axes, accuracy: Array, labels: Array) -> Array:
    """Draw every client's accuracy, clusters side by side.

    Parameters
    ----------
    ax : Axes
    accuracy : array (M,)
        Percent.
    labels : array (M,)

    Returns
    -------
    array (M, 5)
        Spots.
    """
    points = np.stack([spread(labels), accuracy], axis=1)
    spots = dots(ax, points, labels)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.tick_params("y", direction="in", pad=-25, labelsize=SMALL)
    return spots


def scale(ax: Axes, merges: Array, threshold: float, highest: float) -> None:
    """Draw the thresholds from 0, with ticks where groups of linked clients merge.

    Parameters
    ----------
    ax : Axes
        The scale of :func:`layout`.
    merges : array (M - 1,)
        Heights of the merges.
    threshold, highest : float
        The present threshold, and the end of the scale.
    """
    cleaned(ax)
    ax.set_xlim(0, highest)
    ax.vlines(merges[merges <= highest], 0, 1, color="black", lw=0.8)
    ax.axvline(threshold, color=CLUSTERS[4], lw=2)


def sheet(images: Array) -> Array:
    """Join 24 of the images, evenly spaced, in 4 rows of 6 with lines between them.

    Parameters
    ----------
    images : array (n, H, W) or (n, H, W, 3)

    Returns
    -------
    array (4 (H + 1), 6 (W + 1)) or one with three colours
    """
    places = np.linspace(0, len(images) - 1, 24)
    shown = images[places.astype(int)]
    width = [(0, 0)] * shown.ndim
    width[1] = width[2] = (0, 1)  # a line below and on the right
    shown = np.pad(shown, width, constant_values=shown.max())
    rows = [np.concatenate(row, axis=1) for row in np.split(shown, 4)]
    return np.concatenate(rows)


def _along(axis: str, order: Array) -> Array:
    """Return positions of clients in an order along one axis.

    Parameters
    ----------
    axis : str
        "x" or "y".
    order : array (M,)

    Returns
    -------
    array (M, 2)
        x and y. NaN along the other axis, as a client is everywhere along it.
    """
    places = np.full((len(order), 2), np.nan)
    places[order, "xy".index(axis)] = np.arange(len(order)) + 0.5
    return places


def _spots(ax: Axes, places: Array, each: int = 1) -> Array:
    """Return the positions of clients in the picture.

    Parameters
    ----------
    ax : Axes
    places : array (n, 2)
        x and y of the points in the panel, grouped by client; NaN: the whole axis.
    each : int
        Number of points per client.

    Returns
    -------
    array (n, 5)
        Client, left, top, right, bottom.
    """
    ax.autoscale_view()
    free = np.isnan(places)
    frame = ax.get_position()
    pixels = ax.transData.transform(np.where(free, 0, places))
    share = pixels / ax.figure.canvas.get_width_height()
    left, bottom = np.where(free, frame.p0, share).T
    right, top = np.where(free, frame.p1, share).T
    client = np.arange(len(places)) // each
    return np.column_stack([client, left, 1 - top, right, 1 - bottom])
