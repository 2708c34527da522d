"""How clients come together: their centroids on a map, and whom they average with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import cluster_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def client_map(
    u: np.ndarray,
    links: np.ndarray,
    clusters: np.ndarray,
    images: np.ndarray | None = None,
) -> tuple[Figure, list[Axes]]:
    """Draw the centroids of all clients on a plane, and the links between clients.

    Parameters
    ----------
    u : (M, k, 2) places of the k centroids of M clients
    links : (M, M) bool, which clients are linked
    clusters : (M,) true clusters, which give the colours
    images : (M, k, H, W), optional, the centroids; a client of each cluster shows its
    """
    import matplotlib.pyplot as plt

    size = (9.4, 3.9)
    fig, (plane, matrix) = plt.subplots(
        1, 2, figsize=size, width_ratios=(1.55, 1), layout="constrained"
    )
    for points, cluster in zip(u, clusters, strict=True):
        color = cluster_color(cluster)
        plane.plot(*points.T, color=color, lw=0.6, alpha=0.35, zorder=1)
        plane.scatter(*points.T, color=color, s=42, lw=0.5, edgecolor="w", zorder=2)
    if images is not None:
        for cluster in np.unique(clusters):
            first = np.flatnonzero(clusters == cluster)[0]
            _thumbnails(plane, u[first], images[first], cluster_color(cluster))
    plane.margins(0.2, 0.24)
    plane.set(xticks=[], yticks=[])
    title = f"The map: {len(u)} clients, {u.shape[1]} centroids each"
    plane.set_title(title, fontsize=10, loc="left")

    matrix.imshow(links, cmap="Greys", interpolation="nearest", vmax=1.6)
    for cluster in np.unique(clusters):
        _frame(matrix, np.flatnonzero(clusters == cluster), cluster_color(cluster))
    same = np.equal.outer(clusters, clusters)
    across = int(np.triu(links & ~same).sum())
    title = f"The links: {links[same].mean():.0%} inside, {across} across clusters"
    matrix.set_title(title, fontsize=10, loc="left")
    matrix.set(xticks=[], yticks=[], xlabel="client j", ylabel="client i")
    return fig, [plane, matrix]


def _thumbnails(ax: Axes, places: np.ndarray, images: np.ndarray, color: Any) -> None:
    """Show the centroids of one client beside their places, away from each other."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    middle = places.mean(axis=0)
    for place, image in zip(places, images, strict=True):
        away = place - middle
        away = 25 * away / max(float(np.linalg.norm(away)), 1e-9)
        look = {"ec": color, "lw": 1.5}
        small = OffsetImage(image, zoom=23 / len(image), cmap="gray_r")
        box = AnnotationBbox(
            small,
            place,
            xybox=tuple(away),
            boxcoords="offset points",
            pad=0.08,
            bboxprops=look,
        )
        ax.add_artist(box)


def _frame(ax: Axes, own: np.ndarray, color: Any) -> None:
    """Frame the square of a cluster whose clients stand together."""
    from matplotlib.patches import Rectangle

    corner = (own[0] - 0.5, own[0] - 0.5)
    square = Rectangle(corner, len(own), len(own), fill=False, ec=color, lw=2.2)
    ax.add_patch(square)


def weight_maps(W: Mapping[str, np.ndarray]) -> tuple[Figure, list[Axes]]:
    """Draw who counts how much in whose new model; name -> (M, M), rows sum to 1."""
    import matplotlib.pyplot as plt

    size = (2.3 * len(W), 2.55)
    fig, axes = plt.subplots(1, len(W), figsize=size, layout="constrained")
    axes = np.atleast_1d(axes)
    for ax, (name, weights) in zip(axes, W.items(), strict=True):
        # the root shows small weights, too
        root = np.sqrt(weights)
        drawn = ax.imshow(root, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, fontsize=10)
    axes[0].set_ylabel("new model of client i", fontsize=9)
    axes[0].set_xlabel("model of client j", fontsize=9)
    shown = [0, 0.04, 0.2, 0.5, 1]
    bar = fig.colorbar(drawn, ax=list(axes), shrink=0.8, ticks=np.sqrt(shown))
    bar.ax.set_yticklabels([f"{weight:g}" for weight in shown], fontsize=8)
    return fig, list(axes)
