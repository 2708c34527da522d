"""Images that clients hold, and matrices: who is related to whom, how far pairs are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..errors import FltnbError
from ..federations import Federation
from ..metrics import adjusted_rand_index
from .style import CLUSTERS, cluster_color, headline, label, legend, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def sample_images(
    fed: Federation,
    per_row: int = 8,
    title: str = "",
    clients: Sequence[int] | None = None,
) -> tuple[Figure, np.ndarray]:
    """Show training images, one row per true cluster (a single row without clusters), or per client.

    The images are spread evenly over the row's clients and their samples, so the same federation gives the same
    picture. At most ten clusters are shown. FltnbError: the federation holds feature vectors, which are no images.

    Parameters
    ----------
    per_row : int, images in a row
    title : str, the finding
    clients : sequence of int, optional, one row for each of these clients instead
    """
    if np.ndim(fed.images) < 3:
        raise FltnbError(
            "This federation holds feature vectors, not images: there is nothing to show."
        )
    if clients is not None:
        groups = {f"client {client}": [client] for client in clients}
    elif fed.clusters is None:
        groups = {"": range(fed.n_clients)}
    else:
        shown = np.unique(fed.clusters)[: len(CLUSTERS)]
        groups = {
            f"cluster {cluster}": np.flatnonzero(np.asarray(fed.clusters) == cluster)
            for cluster in shown
        }
    rows = {}
    for name, members in groups.items():
        pool = np.concatenate([fed.train[client] for client in members])
        # the middle of equal stretches: client borders, where one client's first label sits, are avoided
        rows[name] = np.asarray(fed.images)[
            pool[((np.arange(per_row) + 0.5) * len(pool) / per_row).astype(int)]
        ]
    return gallery(rows, title=title)


def gallery(
    rows: Mapping[str, np.ndarray], columns: Sequence[str] = (), title: str = ""
) -> tuple[Figure, np.ndarray]:
    """Show rows of images.

    Returns (Figure, array of Axes (rows, n)).

    Parameters
    ----------
    rows : mapping, what stands beside a row -> n images, (n, H, W, 3) or (n, H, W) uint8; the same n in each
    columns : sequence of str, optional, what stands above the n columns
    title : str, the finding
    """
    widths = {len(row) for row in rows.values()} | (
        {len(columns)} if len(columns) else set()
    )
    if len(widths) != 1 or widths == {0}:
        raise FltnbError(
            "A gallery needs rows of images, each with as many images as there are columns."
        )
    width = widths.pop()
    fig, axes = panels(width * len(rows), (0.95, 0.92), width)
    axes = np.array(axes).reshape(len(rows), width)
    for line, (name, row) in zip(axes, rows.items(), strict=True):
        top = 255 if np.asarray(row[0]).dtype == np.uint8 else np.max(row)
        for ax, image in zip(line, row, strict=True):
            ax.imshow(image, cmap="gray", vmin=0, vmax=top, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for ax, text in zip(axes[0], columns, strict=False):
        ax.set_title(text, fontsize="medium")
    headline(fig, [*axes.flat], title)
    return fig, axes


def matrix_pair(
    values: np.ndarray,
    order: np.ndarray,
    clusters: np.ndarray | None = None,
    title: str = "",
) -> tuple[Figure, list[Axes]]:
    """Draw an adjacency matrix with the clients at random and in the dendrogram's order: FLT's Figures 2a and 3.

    A federation is built cluster by cluster: in its own order, which the server does not know, blocks would show
    before anything is found.

    Parameters
    ----------
    values : array, shape (M, M)
    order : array, shape (M,), ``leaf_order_`` of the clusterer
    clusters : array, shape (M,), optional, true clusters, a strip of colours
    """
    fig, axes = panels(2, (4.5, 4.9), 2)
    chance = np.random.default_rng(0).permutation(len(values))
    for ax, shown, name in zip(
        axes, (chance, order), ("at random", "in the dendrogram's order"), strict=True
    ):
        _matrix(ax, values, clusters, shown)
        ax.set_title(f"clients {name}", fontsize="medium")
    _cluster_legend(fig, clusters)
    headline(fig, axes, title)
    return fig, axes


def matrices(
    found: Mapping,
    clusters: ArrayLike | Mapping | None = None,
    *,
    columns: int = 4,
    title: str = "",
    **options,
) -> tuple[Figure, list[Axes]]:
    """Draw several matrices side by side: graphs, distances, or who shares a cluster (FLT's Figures 6 and 7).

    FltnbError: nothing to draw, or the clusters do not fit.

    Parameters
    ----------
    found : mapping
        Name (method id, round, measure, ...) -> matrix (M, M), or found cluster of each client (M,). The latter is
        drawn as the pairs that share a cluster, with the number of clusters and the adjusted Rand index above.
    clusters : array, shape (M,), or mapping, optional
        True clusters, or name -> true clusters where the federations differ. They sort the clients and give the strip
        of colours: clusters found perfectly are as many dark blocks on the diagonal as there are colours.
    columns : int, panels in a row
    title : str, the finding
    **options
        ``cmap``: the colours; ``limits``: ends of their scale, (0, 1) if left out, None for the 1st and 99th percentile
        of the pairs of each matrix; ``bar``: what stands at the bar of colours, which ``limits=None`` has in any case.
    """
    if not found:
        raise FltnbError(
            "There are no matrices to draw: give the matrix or the clusters of at least one method."
        )
    fig, axes = panels(
        len(found), (2.5, 2.75) if len(found) > 3 else (3.2, 3.5), columns
    )
    for ax, (name, values) in zip(axes, found.items(), strict=True):
        values, text = (
            np.asarray(values),
            f"round {name}" if isinstance(name, int) else label(name),
        )
        true = clusters.get(name) if isinstance(clusters, Mapping) else clusters
        if values.ndim == 1:
            count = len(np.unique(values))
            ari = (
                "" if true is None else f", ARI {adjusted_rand_index(true, values):.2f}"
            )
            text += f"\n{count} cluster{'s' * (count != 1)}{ari}"
            values = (values[:, None] == values).astype(int)
        # within a true cluster the clients keep their order: sorted, chance would look like structure
        order = None if true is None else np.argsort(true, kind="stable")
        _matrix(ax, values, true, order, **options)
        ax.set_title(text, fontsize="small")
    if not isinstance(clusters, Mapping):
        _cluster_legend(fig, clusters)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def pair_distances(
    distances: Mapping[str, tuple[np.ndarray, np.ndarray]],
    tolerances: Mapping[str, ArrayLike],
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw every pair's distance, a line of dots per federation, inside and across its true clusters.

    Parameters
    ----------
    distances : mapping, name -> (distances (M, M), true clusters (M,)); of the two directions of a pair the larger one
        is drawn, at least 0
    tolerances : mapping, label -> epsilon drawn over all lines, or one for each line
    """
    fig, (axis,) = panels(1, (7.2, 0.75 * len(distances) + 1.8))
    for at, (matrix, clusters) in enumerate(distances.values()):
        far = np.maximum(np.maximum(matrix, np.transpose(matrix)), 0)
        same = np.equal.outer(clusters, clusters)
        kinds = (
            (same, -0.14, CLUSTERS[0], "same cluster"),
            (~same, 0.14, CLUSTERS[4], "different clusters"),
        )
        for which, shift, color, text in kinds:
            values = far[np.triu(which, 1)]
            # even heights in the order of the values: no draw, and equal values do not hide each other
            height = at + shift + 0.18 * (np.argsort(np.argsort(values)) % 9 / 8 - 0.5)
            axis.plot(
                values,
                height,
                ".",
                ms=4,
                color=color,
                alpha=0.6,
                label=text if at == 0 else None,
            )
    for (text, value), dash in zip(tolerances.items(), ("-", "--", ":"), strict=False):
        for at, one in enumerate(np.broadcast_to(value, len(distances))):
            axis.plot(
                [one, one],
                [at - 0.4, at + 0.4],
                dash,
                color="black",
                lw=1.4,
                label=text if at == 0 else None,
            )
    axis.set_yticks(range(len(distances)), list(distances))
    axis.set(
        ylim=(len(distances) - 0.5, -0.5),
        xlabel="distance, the larger of the two directions",
    )
    legend(fig, None, axis.get_legend_handles_labels()[0])
    headline(fig, [axis], title)
    return fig, axis


def _matrix(
    ax: Axes,
    values,
    clusters,
    order,
    *,
    cmap: str = "Greys",
    limits=(0, 1),
    bar: str = "",
) -> None:
    """Draw a matrix (M, M), in an order (M,) if given, with a strip of the clusters (M,) if known, numbers if few."""
    import seaborn as sns
    from matplotlib.patches import Rectangle

    values = np.asarray(values)
    count = len(values)
    if values.shape != (count, count):
        raise FltnbError(
            f"A matrix of clients is square, (clients, clients), but this one has shape {values.shape}."
        )
    if clusters is not None and len(clusters) != count:
        raise FltnbError(
            f"{len(clusters)} true clusters do not fit {count} clients: give one per client."
        )
    shown = np.arange(count) if order is None else np.asarray(order)
    if not np.array_equal(np.sort(shown), np.arange(count)):
        raise FltnbError(f"The order must name each of the {count} clients once.")
    low, high = limits or np.percentile(
        values[~np.eye(count, dtype=bool)], [1, 99]
    )  # the diagonal says nothing
    look = {
        "cmap": cmap,
        "vmin": low,
        "vmax": max(high, low + 1e-12),
        "square": True,
        "rasterized": True,
    }
    look |= {
        "cbar": bool(bar) or limits is None,
        "cbar_kws": {"label": bar, "shrink": 0.75, "pad": 0.02},
    }
    look |= {
        "annot": count <= 6 and values.dtype.kind == "f",
        "fmt": ".2f",
        "annot_kws": {"size": "x-small"},
    }
    sns.heatmap(
        values[np.ix_(shown, shown)],
        ax=ax,
        xticklabels=False,
        yticklabels=False,
        **look,
    )
    ax.grid(False)
    if clusters is not None:
        width, own = max(0.5, 0.025 * count), np.asarray(clusters)[shown]
        for start, end in pairwise([0, *(np.flatnonzero(np.diff(own)) + 1), count]):
            place = {"xy": (-1.4 * width, start), "width": width, "height": end - start}
            ax.add_patch(Rectangle(**place, color=cluster_color(own[start]), lw=0))
        ax.set_xlim(-1.6 * width, count)


def _cluster_legend(fig: Figure, clusters: np.ndarray | None) -> None:
    from matplotlib.patches import Patch

    there = [] if clusters is None else np.unique(clusters)
    if 0 < len(there) <= len(CLUSTERS):
        handles = [Patch(color=cluster_color(one), label=str(one)) for one in there]
        fig.legend(
            handles=handles,
            title="true cluster",
            loc="outside lower center",
            ncols=len(there),
            frameon=False,
        )
