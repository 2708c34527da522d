"""Maps of centroids, and matrices of the weights with which models are averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .ends import apart
from .style import PAGE, cluster_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def client_map(
    u: np.ndarray,
    links: np.ndarray,
    clusters: np.ndarray,
    images: np.ndarray | None = None,
) -> tuple[Figure, list[Axes]]:
    """Draw the centroids of all clients in a plane, and the links between clients.

    Parameters
    ----------
    u : array (M, k, 2)
        Positions of the k centroids of M clients.
    links : array (M, M) of bool
        Which clients are linked. The title has the share of linked pairs inside
        clusters, and the number across.
    clusters : array (M,)
        True clusters, which set the colours. Clients of one cluster are adjacent.
    images : array (M, k, H, W), optional
        The centroids as images; they are shown for one client of each cluster.

    Examples
    --------
    >>> import numpy as np
    >>> import fltnb as fl
    >>> clusters = np.array([0, 0, 1])
    >>> places = np.array([[[0.0, 0.0]], [[0.1, 0.0]], [[2.0, 1.0]]])
    >>> linked = clusters[:, None] == clusters
    >>> figure, axes = fl.plots.client_map(places, linked, clusters)
    >>> axes[1].get_title(loc="left")
    'The links: 100% inside, 0 across clusters'
    """
    import matplotlib.pyplot as plt

    fig, (plane, matrix) = plt.subplots(
        1,
        2,
        figsize=(PAGE, 3.6),
        width_ratios=(1.55, 1),
        layout="constrained",
    )
    for points, cluster in zip(u, clusters, strict=True):
        color = cluster_color(cluster)
        x, y = points.T
        plane.plot(x, y, color=color, lw=0.6, alpha=0.35, zorder=1)
        plane.scatter(x, y, color=color, s=42, lw=0.5, edgecolor="w", zorder=2)
    matrix.imshow(links, cmap="Greys", interpolation="nearest", vmax=1.6)
    numbers, first = np.unique(clusters, return_index=True)
    for cluster in numbers:
        own = np.flatnonzero(clusters == cluster)
        _frame(matrix, own, cluster_color(cluster))

    clients, k, _ = u.shape
    title = f"The map: {clients} clients, {k} centroids each"
    plane.set_title(title, fontsize=10, loc="left")
    plane.margins(0.1, 0.1 if images is None else 0.4)
    plane.set(xticks=[], yticks=[])
    if images is not None:
        colors = [cluster_color(cluster) for cluster in np.repeat(numbers, k)]
        shown = np.concatenate(images[first])
        _thumbnails(plane, np.concatenate(u[first]), shown, colors)

    same = np.equal.outer(clusters, clusters)
    pairs = same & ~np.eye(clients, dtype=bool)  # a client's link to itself is none
    inside = links[pairs].mean() if pairs.any() else 1.0
    across = np.triu(links & ~same).sum()
    title = f"The links: {inside:.0%} inside, {across} across clusters"
    matrix.set_title(title, fontsize=10, loc="left")
    matrix.set(xticks=[], yticks=[], xlabel="client j", ylabel="client i")
    return fig, [plane, matrix]


def _thumbnails(
    ax: Axes, places: np.ndarray, images: np.ndarray, colors: Sequence[str]
) -> None:
    """Show centroids above and below the map, each with a line to its place.

    The upper half of the places belongs to the row above. In a row images have the
    order of their places, so that no two overlap and few lines cross.

    Parameters
    ----------
    ax : Axes
        Its limits must be final.
    places : array (n, 2)
    images : array (n, H, W)
    colors : sequence of n colours
        Of frames and lines.
    """
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    shares = ax.transAxes.inverted().transform(ax.transData.transform(places))
    falling = np.argsort(-places[:, 1], kind="stable")
    half = -(-len(places) // 2)
    for height, row in ((0.9, falling[:half]), (0.1, falling[half:])):
        row = row[np.argsort(shares[row, 0], kind="stable")]
        step = min(0.11, 1 / max(1, len(row) - 1))
        across = 0.05 + 0.9 * apart(shares[row, 0], step)
        for one, x in zip(row, across, strict=True):
            small = OffsetImage(images[one], zoom=23 / len(images[one]), cmap="gray_r")
            box = AnnotationBbox(
                small,
                places[one],
                xybox=(x, height),
                boxcoords="axes fraction",
                pad=0.08,
                bboxprops={"ec": colors[one], "lw": 1.5},
                arrowprops={"arrowstyle": "-", "color": colors[one], "lw": 0.8},
            )
            ax.add_artist(box)


def _frame(ax: Axes, own: np.ndarray, color: Any) -> None:
    """Frame the square of a cluster whose clients are adjacent.

    ``own``: numbers of its clients (n,).
    """
    from matplotlib.patches import Rectangle

    corner = own[0] - 0.5
    width = len(own)
    ax.add_patch(
        Rectangle((corner, corner), width, width, fill=False, ec=color, lw=2.2)
    )


def weight_maps(W: Mapping[str, np.ndarray]) -> tuple[Figure, list[Axes]]:
    """Draw the weight of each client in each client's new model.

    Colours show the square root of a weight, so that small weights are visible.

    Parameters
    ----------
    W : mapping
        Name -> weights (M, M), whose rows sum to 1.

    Examples
    --------
    >>> import numpy as np
    >>> import fltnb as fl
    >>> weights = {"FedAvg": np.full((4, 4), 0.25), "Local": np.eye(4)}
    >>> figure, axes = fl.plots.weight_maps(weights)
    """
    import matplotlib.pyplot as plt

    size = (min(2.3 * len(W), PAGE), 2.55)
    fig, axes = plt.subplots(
        1, len(W), figsize=size, squeeze=False, layout="constrained"
    )
    axes = list(axes[0])
    for ax, (name, weights) in zip(axes, W.items(), strict=True):
        drawn = ax.imshow(
            np.sqrt(weights), cmap="viridis", vmin=0, vmax=1, interpolation="nearest"
        )
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, fontsize=10)
    axes[0].set_ylabel("new model of client i", fontsize=9)
    axes[0].set_xlabel("model of client j", fontsize=9)

    shown = [0, 0.04, 0.2, 0.5, 1]
    bar = fig.colorbar(drawn, ax=axes, shrink=0.8, ticks=np.sqrt(shown))
    bar.ax.set_yticklabels([f"{weight:g}" for weight in shown], fontsize=8)
    return fig, axes
