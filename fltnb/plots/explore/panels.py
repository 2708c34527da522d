"""The panels of a clustering; each returns where the clients are in the picture."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..runs import spread
from ..style import CLUSTERS
from .grouping import branches

# more links, or cells of the matrix, cannot be seen
MOST_LINKS = 4000
MOST_CELLS = 320
DARK = "0.33"

PALETTE = to_rgba_array([*CLUSTERS])


def colors_of(labels: np.ndarray) -> np.ndarray:
    """Colours (M, 4) of clusters (M,)."""
    return PALETTE[np.asarray(labels) % len(PALETTE)]


def layout(
    figure: Figure, names: list[str], columns: int
) -> tuple[dict[str, Axes], Axes]:
    """Make two rows of panels, and below them the scale of the threshold."""
    blank = ["."] * (2 * columns - len(names))
    grid = np.reshape(names + blank, (2, columns)).tolist()
    room = {
        "left": 0.03,
        "right": 0.99,
        "bottom": 0.11,
        "top": 0.95,
        "wspace": 0.08,
        "hspace": 0.12,
    }
    axes = figure.subplot_mosaic(grid, gridspec_kw=room)
    for name, ax in axes.items():
        ax.set(xticks=[], yticks=[], frame_on=False)
        # a place of its own: to look for one takes longer than all the rest
        ax.set_title(name, fontsize=9, y=1.01)

    below = figure.add_axes((0.03, 0.055, 0.96, 0.02))
    below.set(yticks=[], ylim=(0, 1))
    below.spines[["left", "right", "top"]].set_visible(False)
    below.tick_params(labelsize=7, length=2, pad=1)
    below.text(
        0.5,
        -2.3,
        "threshold (orange); black: groups of linked clients merge",
        fontsize=8,
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


def dots(ax: Axes, points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Draw points of all clients, (M, 2) or (M, k, 2)."""
    count = len(labels)
    flat = points.reshape(-1, 2)
    each = len(flat) // count
    colors = np.repeat(colors_of(labels), each, axis=0)
    size = np.clip(2500 / count, 2.0, 30.0)
    ax.scatter(flat[:, 0], flat[:, 1], s=size, c=colors, lw=0, zorder=3)
    return _spots(ax, flat, each)


def links(
    ax: Axes,
    linked: np.ndarray,
    order: np.ndarray,
    labels: np.ndarray,
    truth: np.ndarray | None,
) -> np.ndarray:
    """Draw who is linked, in the dendrogram's order, with strips of the clusters."""
    count = len(labels)
    per_cell = -(-count // MOST_CELLS)
    shown = linked[np.ix_(order, order)].astype(np.float32)
    shown = np.pad(shown, (0, -count % per_cell))
    cells = len(shown) // per_cell
    shown = shown.reshape(cells, per_cell, cells, per_cell).mean(axis=(1, 3))
    look = {"interpolation": "nearest", "aspect": "auto"}
    extent = (0, len(linked) + -count % per_cell, cells * per_cell, 0)
    ax.imshow(shown, cmap="Greys", vmin=0, vmax=1, extent=extent, **look)

    width = 0.04 * count
    for left, own in ((-1.5 * width, labels), (-2.7 * width, truth)):
        if own is not None:
            strip = colors_of(own[order])[:, None]
            ax.imshow(strip, extent=(left, left + width, count, 0), **look)
    ax.set(xlim=(-3 * width, count), ylim=(count, 0))
    strips = "found clusters" if truth is None else "true and found clusters"
    ax.title.set_text(f"links, and {strips}")
    return _spots(ax, _along("y", order))


def dendrogram(
    ax: Axes,
    tree: np.ndarray,
    rank: np.ndarray,
    labels: np.ndarray,
    threshold: float | None,
) -> np.ndarray:
    """Draw the dendrogram, and the threshold as a line.

    ``threshold`` is None where heights are not distances of clients: then the line is
    between the last merge inside these clusters and the next.
    """
    parts, cluster = branches(tree, rank, labels)
    colors = colors_of(cluster)
    colors[cluster < 0] = to_rgba_array(DARK)
    ax.add_collection(LineCollection(parts, colors=colors, lw=0.8))
    tops = tree[:, 2]
    ax.set(xlim=(0, len(labels)), ylim=(0, 1.05 * max(tops[-1], 1e-9)))

    what = "threshold"
    if threshold is None:
        what = "cut"
        made = len(labels) - labels.max() - 1
        threshold = np.concatenate([[0], tops, tops[-1:]])[made : made + 2].mean()
    ax.axhline(threshold, color="0.5", lw=0.8, ls="--")
    ax.title.set_text(f"dendrogram; dashed: the {what}")
    return _spots(ax, _along("x", np.argsort(rank)))


def client_graph(
    ax: Axes, linked: np.ndarray, rank: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Draw clients on a ring in the dendrogram's order; links across clusters black."""
    angle = 2 * np.pi * rank / len(labels)
    ring = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    pairs = np.argwhere(np.triu(linked, 1))
    drawn = pairs[:: max(1, -(-len(pairs) // MOST_LINKS))]

    colors = colors_of(labels[drawn[:, 0]])
    across = labels[drawn[:, 0]] != labels[drawn[:, 1]]
    for part, color in ((~across, colors[~across]), (across, "#222222")):
        lines = ring[drawn[part]]
        ax.add_collection(LineCollection(lines, colors=color, lw=0.6, alpha=0.6))

    title = f"client graph: {len(pairs):,} links"
    if len(drawn) < len(pairs):
        title += f", {len(drawn):,} drawn"
    ax.title.set_text(title)
    return dots(ax, ring, labels)


def accuracies(ax: Axes, accuracy: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Draw every client's accuracy (percent), side by side by cluster."""
    spots = dots(ax, np.stack([spread(labels), accuracy], axis=1), labels)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.tick_params("y", direction="in", pad=-22, labelsize=8)
    return spots


def scale(ax: Axes, merges: np.ndarray, threshold: float, highest: float) -> None:
    """Draw the thresholds from 0, with ticks where groups of linked clients merge."""
    cleaned(ax)
    ax.set_xlim(0, highest)
    ax.vlines(merges[merges <= highest], 0, 1, color="black", lw=0.8)
    ax.axvline(threshold, color=CLUSTERS[4], lw=2)


def sheet(images: np.ndarray) -> np.ndarray:
    """Join 24 images of (n, H, W) or (n, H, W, 3): 4 rows of 6, lines between.

    They are spread evenly over the images.
    """
    shown = images[np.linspace(0, len(images) - 1, 24).astype(int)]
    lines = [(0, 0), (0, 1), (0, 1), (0, 0)][: shown.ndim]
    shown = np.pad(shown, lines, constant_values=shown.max())
    rows = [np.concatenate(row, axis=1) for row in np.split(shown, 4)]
    return np.concatenate(rows)


def _along(axis: str, order: np.ndarray) -> np.ndarray:
    """Places (M, 2) of clients in an order along one axis; NaN: all along the other."""
    rank = np.argsort(order) + 0.5
    free = np.full(len(order), np.nan)
    both = (rank, free) if axis == "x" else (free, rank)
    return np.stack(both, axis=1)


def _spots(ax: Axes, places: np.ndarray, each: int = 1) -> np.ndarray:
    """Where clients are in the picture, ``each`` one's data coordinates (n, 2) given.

    Rows: client, left, top, right, bottom.
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
