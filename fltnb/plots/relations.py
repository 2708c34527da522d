"""Images of clients, matrices of relations between clients, and distances of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import FltnbError
from ..federations import Federation
from ..metrics import adjusted_rand_index
from .style import CLUSTERS, PAGE, cluster_color, headline, label, legend, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

Clusters = ArrayLike | None
"""Cluster of each client (M,), if known."""
MOST_NUMBERS = 6
"""Largest number of clients for which a matrix shows its numbers."""


def sample_images(
    fed: Federation,
    per_row: int = 8,
    title: str = "",
    clients: Sequence[int] | None = None,
) -> tuple[Figure, np.ndarray]:
    """Show training images, one row per true cluster, or per client.

    Without clusters there is a single row; at most ten rows are shown. The images are
    spread evenly over the row's clients and their samples. The same federation always
    gives the same figure.

    Parameters
    ----------
    fed : Federation
    per_row : int
        Number of images in a row.
    title : str
        Title that states the result.
    clients : sequence of int, optional
        One row for each of these clients instead.

    Raises
    ------
    FltnbError
        The federation holds feature vectors, not images.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> figure, axes = fl.plots.sample_images(fed, per_row=4)
    >>> axes.shape
    (3, 4)
    """
    if np.ndim(fed.images) < 3:
        raise FltnbError(
            "This federation holds feature vectors, not images: "
            "there is nothing to show."
        )
    images = np.asarray(fed.images)
    rows = {}
    for name, members in _members(fed, clients).items():
        pool = np.concatenate([fed.train[client] for client in members])
        # the middle of equal segments: where a client's samples begin, one label is
        places = (np.arange(per_row) + 0.5) * len(pool) / per_row
        shown = pool[places.astype(int)]
        rows[name] = images[shown]
    return gallery(rows, title=title)


def _members(fed: Federation, clients: Sequence[int] | None) -> dict[str, Any]:
    """Return a mapping: label of a row -> the clients shown in it.

    ``clients``: one row for each of these; by default one row per true cluster.
    """
    if clients is not None:
        return {f"client {client}": [client] for client in clients}
    if fed.clusters is None:
        return {"": range(fed.n_clients)}
    clusters = np.asarray(fed.clusters)
    rows = {}
    for one in np.unique(clusters)[: len(CLUSTERS)]:
        rows[f"cluster {one}"] = np.flatnonzero(clusters == one)
    return rows


def gallery(
    rows: Mapping[str, np.ndarray], columns: Sequence[str] = (), title: str = ""
) -> tuple[Figure, np.ndarray]:
    """Show rows of images.

    Parameters
    ----------
    rows : mapping
        Label of a row -> n images, (n, H, W, 3) or (n, H, W) uint8; the same
        n in every row.
    columns : sequence of str, optional
        Labels of the n columns.
    title : str
        Title that states the result.

    Returns
    -------
    (Figure, array of Axes (rows, n))

    Raises
    ------
    FltnbError
        There is no image, or rows and columns do not have the same n.

    Examples
    --------
    >>> import numpy as np
    >>> import fltnb as fl
    >>> black = np.zeros((2, 8, 8), dtype=np.uint8)
    >>> rows = {"black": black, "white": 255 - black}
    >>> figure, axes = fl.plots.gallery(rows, ["left", "right"])
    >>> axes.shape
    (2, 2)
    """
    widths = {len(row) for row in rows.values()}
    if len(columns):
        widths.add(len(columns))
    if len(widths) != 1 or widths == {0}:
        raise FltnbError(
            "A gallery needs rows of images, each with as many images as there are "
            "columns."
        )
    width = widths.pop()

    fig, every = panels(width * len(rows), (min(0.95, PAGE / width), 0.92), width)
    axes = np.array(every).reshape(len(rows), width)
    for line, (name, row) in zip(axes, rows.items(), strict=True):
        row = np.asarray(row)
        brightest = 255 if row.dtype == np.uint8 else row.max()
        for ax, image in zip(line, row, strict=True):
            ax.imshow(image, "gray", vmin=0, vmax=brightest, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for ax, text in zip(axes[0], columns, strict=False):
        ax.set_title(text, fontsize="medium")
    headline(fig, title)
    return fig, axes


def matrix_pair(
    values: np.ndarray,
    order: np.ndarray,
    clusters: np.ndarray | None = None,
    title: str = "",
) -> tuple[Figure, list[Axes]]:
    """Draw an adjacency matrix in random order and in the dendrogram's order.

    These are FLT's Figures 2a and 3. A federation is built cluster by cluster: in its
    own order, which the server does not know, blocks would be visible before any
    clustering.

    Parameters
    ----------
    values : array (M, M)
    order : array (M,)
        ``leaf_order_`` of the clusterer.
    clusters : array (M,), optional
        True clusters, shown as a strip of colours.
    title : str
        Title that states the result.

    Examples
    --------
    >>> import numpy as np
    >>> import fltnb as fl
    >>> clusters = np.array([0, 1, 0, 1])
    >>> linked = np.equal.outer(clusters, clusters)
    >>> figure, axes = fl.plots.matrix_pair(linked, np.array([0, 2, 1, 3]), clusters)
    >>> len(axes)
    2
    """
    fig, axes = panels(2, (4.5, 4.9), 2)
    orders = {
        "clients at random": np.random.default_rng(0).permutation(len(values)),
        "clients in the dendrogram's order": order,
    }
    for ax, (text, shown) in zip(axes, orders.items(), strict=True):
        _matrix(ax, values, clusters, shown)
        ax.set_title(text, fontsize="medium")
    _cluster_legend(fig, clusters)
    headline(fig, title)
    return fig, axes


def matrices(
    found: Mapping,
    clusters: ArrayLike | Mapping | None = None,
    *,
    columns: int = 4,
    title: str = "",
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """Draw several matrices side by side (FLT's Figures 6 and 7).

    Graphs, distances, or which pairs share a cluster.

    Parameters
    ----------
    found : mapping
        Name (method id, round, measure, ...) -> matrix (M, M), or the found cluster of
        each client (M,). Clusters are drawn as the matrix of pairs that share one; the
        title gives their number and the adjusted Rand index.
    clusters : array (M,), or mapping, optional
        True clusters, or name -> true clusters if the federations differ. They sort the
        clients and set the strip of colours: a perfect clustering shows as many dark
        blocks on the diagonal as there are colours.
    columns : int
        Number of panels in a row.
    title : str
        Title that states the result.
    **options
        ``cmap``: the colours. ``limits``: ends of their scale, by default (0, 1); None
        takes the 1st and 99th percentile of the pairs of each matrix. ``bar``: label of
        the colour bar, which is always drawn with ``limits=None``.

    Raises
    ------
    FltnbError
        There is nothing to draw, or the clusters do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import fltnb as fl
    >>> true = np.array([0, 0, 1, 1])
    >>> found = {"flt_enc1": true, "pacfl": np.zeros(4)}
    >>> figure, axes = fl.plots.matrices(found, true)
    >>> len(axes)
    2
    """
    if not found:
        raise FltnbError(
            "There are no matrices to draw: "
            "give the matrix or the clusters of at least one method."
        )
    given: Any = clusters
    several = isinstance(given, Mapping)

    rows = -(-len(found) // columns)
    across = -(-len(found) // rows)
    width = min(2.5 if len(found) > 3 else 3.2, PAGE / across)
    fig, axes = panels(len(found), (width, 1.1 * width), columns)
    for ax, (name, values) in zip(axes, found.items(), strict=True):
        values = np.asarray(values)
        true = given.get(name) if several else given
        text = f"round {name}" if isinstance(name, int) else label(name)
        if values.ndim == 1:
            text += f"\n{_agreement(values, true)}"
            values = np.equal.outer(values, values).astype(int)
        order = None
        if true is not None:
            # inside a true cluster clients keep their order: sorted, chance would look
            # like structure
            order = np.argsort(true, kind="stable")
        _matrix(ax, values, true, order, **options)
        ax.set_title(text, fontsize="small")
    if not several:
        _cluster_legend(fig, given)
    headline(fig, title)
    fig.draw_without_rendering()  # colour bars choose their numbers by their final size
    return fig, axes


def _agreement(labels: np.ndarray, true: Clusters) -> str:
    """Count clusters, with their ARI with the true ones if these are known.

    An example is "4 clusters, ARI 0.93".
    """
    count = len(np.unique(labels))
    text = "1 cluster" if count == 1 else f"{count} clusters"
    if true is None:
        return text
    ari = adjusted_rand_index(true, labels)
    return f"{text}, ARI {ari:.2f}"


def pair_distances(
    distances: Mapping[str, tuple[np.ndarray, np.ndarray]],
    tolerances: Mapping[str, ArrayLike],
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw every pair's distance, inside and across the true clusters.

    Parameters
    ----------
    distances : mapping
        Name -> (distances (M, M), true clusters (M,)), a line of dots each. Of the two
        directions of a pair the larger distance is drawn, or 0 if it is negative.
    tolerances : mapping
        Label -> tolerance epsilon, drawn over all lines, or one for each line. At most
        three.
    title : str
        Title that states the result.

    Examples
    --------
    >>> import numpy as np
    >>> import fltnb as fl
    >>> far = np.array([[0.0, 0.1, 0.8], [0.2, 0.0, 0.9], [0.7, 0.8, 0.0]])
    >>> distances = {"own models": (far, np.array([0, 0, 1]))}
    >>> figure, axis = fl.plots.pair_distances(distances, {"tolerance": 0.3})
    """
    count = len(distances)
    fig, (ax,) = panels(1, (7.2, 0.75 * count + 1.8))
    for line, (matrix, clusters) in enumerate(distances.values()):
        _distance_line(ax, line, np.asarray(matrix), np.asarray(clusters))
    for (text, value), dash in zip(tolerances.items(), ("-", "--", ":"), strict=False):
        for line, one in enumerate(np.broadcast_to(value, count)):
            ends = [line - 0.4, line + 0.4]
            ax.plot([one, one], ends, dash, color="black", lw=1.4, label=text)

    ax.set_yticks(range(count), list(distances))
    ax.set_ylim(count - 0.5, -0.5)
    ax.set_xlabel("distance, the larger of the two directions")
    # every line has its own dots; the legend shows the first of each kind
    first: dict[str, Any] = {}
    dots, texts = ax.get_legend_handles_labels()
    for drawn, text in zip(dots, texts, strict=True):
        first.setdefault(text, drawn)
    legend(fig, None, list(first.values()))
    headline(fig, title)
    return fig, ax


def _distance_line(
    ax: Axes, line: int, matrix: np.ndarray, clusters: np.ndarray
) -> None:
    """Draw all pairs along a line: pairs inside clusters above it, others below.

    Parameters
    ----------
    ax : Axes
    line : int
    matrix : array (M, M)
        Of the two directions of a pair the larger distance is drawn, or 0 if negative.
    clusters : array (M,)
    """
    far = np.maximum(matrix, matrix.T)
    far = np.maximum(far, 0)
    same = clusters[:, None] == clusters
    inside = np.triu(same, 1)
    across = np.triu(~same, 1)
    _pairs(ax, far[inside], line - 0.14, CLUSTERS[0], "same cluster")
    _pairs(ax, far[across], line + 0.14, CLUSTERS[4], "different clusters")


def _pairs(ax: Axes, values: np.ndarray, line: float, color: str, text: str) -> None:
    """Draw distances (n,) as dots around a line; ``text``: for the legend.

    Heights follow the order of the values, without chance, so equal ones stay visible.
    """
    order = np.argsort(values)
    rank = np.argsort(order)
    height = line + 0.18 * (rank % 9 / 8 - 0.5)
    ax.plot(values, height, ".", ms=4, color=color, alpha=0.6, label=text)


def _matrix(
    ax: Axes,
    values: np.ndarray,
    clusters: Clusters,
    order: ArrayLike | None,
    *,
    cmap: str = "Greys",
    limits: tuple[float, float] | None = (0, 1),
    bar: str = "",
) -> None:
    """Draw a matrix of clients, with its numbers if there are few.

    Parameters
    ----------
    ax : Axes
    values : array (M, M)
    clusters : array (M,) or None
        Shown as a strip of colours.
    order : array (M,) or None
        Order of the clients.
    cmap, limits, bar
        As for :func:`matrices`.
    """
    import seaborn as sns

    values = np.asarray(values)
    count = len(values)
    shown = np.arange(count) if order is None else np.asarray(order)
    _check_matrix(values, clusters, shown)
    low, high = limits or _ends(values)
    # seaborn's heatmap would draw the whole figure for every matrix in it
    mesh = ax.pcolormesh(
        values[np.ix_(shown, shown)],
        cmap=cmap,
        vmin=low,
        vmax=max(high, low + 1e-12),
        rasterized=True,
    )
    ax.set(xlim=(0, count), ylim=(count, 0), aspect="equal", xticks=[], yticks=[])
    sns.despine(ax=ax, left=True, bottom=True)
    if count <= MOST_NUMBERS and values.dtype.kind == "f":
        _write_numbers(ax, mesh)
    if bar or limits is None:
        scale = ax.figure.colorbar(mesh, ax=ax, label=bar, shrink=0.75, pad=0.02)
        scale.outline.set_linewidth(0)
        for colors in scale.ax.collections:  # a PDF would have lines between them
            colors.set_rasterized(True)
    ax.grid(False)
    if ax.collections[0].colorbar:
        ax.collections[0].colorbar.ax.tick_params(labelsize=8)
    if clusters is not None:
        _strip(ax, np.asarray(clusters)[shown])


def _write_numbers(ax: Axes, mesh: QuadMesh) -> None:
    """Write the numbers of a matrix on its cells, in white on dark ones."""
    from seaborn.utils import relative_luminance

    values = np.asarray(mesh.get_array())
    for (row, column), value in np.ndenumerate(values):
        light = relative_luminance(mesh.to_rgba(value)) > 0.408
        number = ax.text(column + 0.5, row + 0.5, f"{value:.2f}", size=8)
        number.set(color=".15" if light else "w", ha="center", va="center")


def _ends(values: np.ndarray) -> np.ndarray:
    """Return the 1st and 99th percentile of a matrix (M, M) without its diagonal."""
    pairs = values[~np.eye(len(values), dtype=bool)]
    return np.percentile(pairs, [1, 99])


def _strip(ax: Axes, clusters: np.ndarray) -> None:
    """Draw a strip of the clusters (M,) left of a matrix, one piece a cluster."""
    from matplotlib.patches import Rectangle

    count = len(clusters)
    width = max(0.5, 0.025 * count)
    left = -1.4 * width
    borders = np.flatnonzero(np.diff(clusters)) + 1
    for start, end in pairwise([0, *borders, count]):
        color = cluster_color(clusters[start])
        piece = Rectangle((left, start), width, end - start, color=color, lw=0)
        ax.add_patch(piece)
    ax.set_xlim(-1.6 * width, count)


def _check_matrix(values: np.ndarray, clusters: Clusters, order: np.ndarray) -> None:
    """Refuse a matrix, clusters or an order that do not fit the same clients.

    Raises
    ------
    FltnbError
        The matrix is not square, there is not one cluster per client, or the order
        does not name each client once.
    """
    count = len(values)
    if values.shape != (count, count):
        raise FltnbError(
            "A matrix of clients has one row and one column per client, but this one "
            f"has shape {values.shape}: give a square one."
        )
    if clusters is not None and np.size(clusters) != count:
        raise FltnbError(
            f"{np.size(clusters)} true clusters do not fit {count} clients: "
            "give one per client."
        )
    if not np.array_equal(np.sort(order), np.arange(count)):
        raise FltnbError(
            f"The order must name each of the {count} clients once: give a permutation "
            f"of 0 to {count - 1}."
        )


def _cluster_legend(fig: Figure, clusters: Clusters) -> None:
    """Add a legend of the clusters, unless they are unknown or too many."""
    from matplotlib.patches import Patch

    if clusters is None:
        return
    there = np.unique(clusters)
    if not 0 < len(there) <= len(CLUSTERS):
        return
    fig.legend(
        handles=[Patch(color=cluster_color(one), label=str(one)) for one in there],
        title="true cluster",
        loc="outside lower center",
        ncols=len(there),
        frameon=False,
    )
