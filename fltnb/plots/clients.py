"""Pictures of the clients: what they hold, how they are related, how they are grouped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .style import CLUSTERS, axes_for, cluster_color, set_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..federations import Federation

GRAPH_LIMIT = 300  # clients in a node-and-edge picture; beyond, it is a grey blob that takes minutes


def who_holds_what(fed: Federation, ax: Axes | None = None, title: str = "") -> tuple[Figure, Axes]:
    """Draw training samples per client (rows, ordered by true cluster) and class (columns).

    Parameters
    ----------
    fed : Federation
        Without true clusters the clients keep their order.
    ax : Axes, optional
        Drawn into; a new figure otherwise. The same holds for ``ax`` and ``title`` of every function here.
    title : str
        The finding.
    """
    counts = np.asarray(fed.label_counts("train"))
    labels = None if fed.clusters is None else np.asarray(fed.clusters)
    order = np.arange(len(counts)) if labels is None else np.argsort(labels, kind="stable")
    fig, ax = axes_for(ax, (6.4, 5.2))
    image = ax.imshow(counts[order], aspect="auto", interpolation="nearest", cmap="Blues", vmin=0)
    fig.colorbar(image, ax=ax, label="training samples")
    names = [str(name) for name in fed.class_names]
    if len(names) <= 20:
        long = max(map(len, names)) > 3
        ax.set_xticks(range(len(names)), names, rotation=45 if long else 0, ha="right" if long else "center")
    ax.set(xlabel="class", ylabel="client")
    if labels is None:
        ax.yaxis.get_major_locator().set_params(integer=True)
    else:
        _blocks(ax, labels[order])
        ax.set_ylabel("clients, by true cluster")
    return fig, set_title(ax, title)


def sample_images(
    fed: Federation, per_row: int = 8, title: str = "", clients: Sequence[int] | None = None
) -> tuple[Figure, np.ndarray]:
    """Show training images, one row per true cluster (a single row without clusters), or per client.

    The images are spread evenly over the row's clients and their samples, so the same federation gives the same
    picture. At most ten clusters are shown.

    Parameters
    ----------
    fed : Federation
    per_row : int
    title : str
    clients : sequence of int, optional
        One row for each of these clients instead.

    Raises
    ------
    FltnbError
        The federation holds feature vectors, which cannot be shown as images.
    """
    import matplotlib.pyplot as plt

    if np.ndim(fed.images) < 3:
        raise FltnbError("This federation holds feature vectors, not images: there is nothing to show.")
    clusters = np.zeros(fed.n_clients, dtype=int) if fed.clusters is None else np.asarray(fed.clusters)
    what = "cluster" if fed.clusters is not None else ""
    if clients is not None:
        clusters, what = np.arange(fed.n_clients), "client"
    shown = np.unique(clusters)[: len(CLUSTERS)] if clients is None else np.asarray(clients)
    fig, axes = plt.subplots(
        len(shown), per_row, figsize=(0.85 * per_row + 0.8, 0.9 * len(shown) + 0.4), squeeze=False, layout="constrained"
    )
    for row, cluster in zip(axes, shown, strict=True):
        pool = np.concatenate([fed.train[client] for client in np.flatnonzero(clusters == cluster)])
        # the middle of equal stretches: client borders, where one client's first label sits, are avoided
        places = ((np.arange(per_row) + 0.5) * len(pool) / per_row).astype(int)
        for ax, index in zip(row, pool[places], strict=True):
            picture = np.asarray(fed.images[index])
            ax.imshow(picture, cmap="gray" if picture.ndim == 2 else None, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
        if what:
            row[0].set_ylabel(f"{what} {cluster}", rotation=0, ha="right", va="center")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def adjacency(
    matrix: np.ndarray,
    order: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    ax: Axes | None = None,
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw one relation matrix of the clients.

    Parameters
    ----------
    matrix : array, shape (M, M)
        Binary adjacency (dark: related), or any non-negative matrix.
    order : array, shape (M,), optional
        Clients in the order to draw them, such as ``leaf_order_``; as they come otherwise.
    labels : array, shape (M,), optional
        Cluster of each client, drawn as a strip of colours on the left.
    """
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise FltnbError(f"An adjacency matrix is square, (clients, clients), but this one has shape {matrix.shape}.")
    if order is not None:
        if not np.array_equal(np.sort(order), np.arange(len(matrix))):
            raise FltnbError(f"The order must name each of the {len(matrix)} clients once.")
        matrix = matrix[np.ix_(order, order)]
        labels = None if labels is None else np.asarray(labels)[order]
    fig, ax = axes_for(ax, (4.6, 4.6))
    ax.imshow(matrix, cmap="Greys", interpolation="nearest", vmin=0)
    if order is None:
        ax.set(xlabel="client", ylabel="client")
        for axis in (ax.xaxis, ax.yaxis):
            axis.get_major_locator().set_params(integer=True)
    else:  # positions are not client ids any more
        ax.set(xlabel="clients, reordered", ylabel="clients, reordered", xticks=[], yticks=[])
    if labels is not None:
        _strip(ax, np.asarray(labels))
    return fig, set_title(ax, title)


def adjacency_pair(clusterer, clusters: np.ndarray | None = None, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw the adjacency as found (left) and reordered by the dendrogram's leaves (right): FLT's Figures 2a and 3.

    Parameters
    ----------
    clusterer : fitted estimator over clients
        ``adjacency_``, ``leaf_order_`` and ``labels_`` are used.
    clusters : array, shape (M,), optional
        True clusters for the coloured strip; found ones otherwise.
    """
    import matplotlib.pyplot as plt

    _fitted(clusterer, "adjacency_", "leaf_order_", "labels_")
    order = np.asarray(clusterer.leaf_order_)
    strip = np.asarray(clusterer.labels_ if clusters is None else clusters)
    fig, axes = plt.subplots(1, 2, figsize=(9.2, 4.9), layout="constrained")
    matrix = np.asarray(clusterer.adjacency_)
    adjacency(matrix, None, strip, axes[0], "as found")
    adjacency(matrix, order, strip, axes[1], "reordered by the dendrogram")
    _cluster_legend(fig, strip, "true cluster" if clusters is not None else "found cluster")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def dendrogram(clusterer, ax: Axes | None = None, title: str = "") -> tuple[Figure, Axes]:
    """Draw the tree of merges; branches below the cut, and a strip under the leaves, show the found clusters."""
    from matplotlib.patches import Rectangle
    from scipy.cluster import hierarchy

    _fitted(clusterer, "linkage_", "labels_")
    merges, labels = np.asarray(clusterer.linkage_, dtype=np.float64), np.asarray(clusterer.labels_)
    n_clients = len(labels)
    inside = [{int(label)} for label in labels]
    for left, right in merges[:, :2].astype(int):
        inside.append(inside[left] | inside[right])
    fig, ax = axes_for(ax, (8.0, 3.6))
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(max(limit, 4 * n_clients + 1000))  # SciPy walks the tree recursively; equal rows chain
        tree = hierarchy.dendrogram(
            merges,
            ax=ax,
            no_labels=n_clients > 40,
            link_color_func=lambda node: cluster_color(*inside[node]) if len(inside[node]) == 1 else "0.55",
        )
    finally:
        sys.setrecursionlimit(limit)
    # equal rows merge at height 0, where no line is seen: the strip shows their cluster all the same
    leaves = labels[tree["leaves"]]
    for start, end in _runs(leaves):
        place = {"xy": (10 * start, -0.045), "width": 10 * (end - start), "height": 0.035}  # SciPy: 10 units a leaf
        color = cluster_color(leaves[start])
        ax.add_patch(Rectangle(**place, color=color, lw=0, transform=ax.get_xaxis_transform(), clip_on=False))
    ax.tick_params(axis="x", pad=7)
    ax.set(xlabel=f"{n_clients} clients, in leaf order" if n_clients > 40 else "client", ylabel="merge height")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return fig, set_title(ax, title)


def client_graph(clusterer, clusters: np.ndarray | None = None, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw the clients as nodes and their relations as edges: in a circle by id, and grouped (FLT's Figure 2b).

    Parameters
    ----------
    clusterer : fitted estimator over clients
        ``adjacency_`` and ``labels_`` are used; at most 300 clients.
    clusters : array, shape (M,), optional
        True clusters for the colours; found ones otherwise. The groups are always the found ones.
    """
    import matplotlib.pyplot as plt
    import networkx as nx

    _fitted(clusterer, "adjacency_", "labels_")
    found = np.asarray(clusterer.labels_)
    if len(found) > GRAPH_LIMIT:
        raise FltnbError(
            f"{len(found)} clients are too many for a graph picture (limit {GRAPH_LIMIT}): use adjacency_pair."
        )
    graph = nx.from_numpy_array(np.asarray(clusterer.adjacency_))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    shown = found if clusters is None else np.asarray(clusters)
    colors = [cluster_color(label) for label in shown]
    fig, axes = plt.subplots(1, 2, figsize=(9.2, 4.9), layout="constrained")
    size = 260 if len(found) <= 40 else 40
    layouts = (("as found", nx.circular_layout(graph)), ("grouped by found cluster", _grouped(found)))
    for ax, (name, places) in zip(axes, layouts, strict=True):
        nx.draw_networkx_edges(graph, places, ax=ax, alpha=0.35 if len(found) <= 40 else 0.12, edge_color="0.3")
        nx.draw_networkx_nodes(
            graph, places, ax=ax, node_color=colors, node_size=size, edgecolors="white", linewidths=0.6
        )
        if len(found) <= 40:
            nx.draw_networkx_labels(graph, places, ax=ax, font_size=7, font_color="white")
        ax.set_title(name, fontsize="medium")
        ax.set_aspect("equal")
        ax.axis("off")
    _cluster_legend(fig, shown, "true cluster" if clusters is not None else "found cluster")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def embedding(
    clusterer, clusters: np.ndarray | None = None, ax: Axes | None = None, title: str = ""
) -> tuple[Figure, Axes]:
    """Scatter the clients' points (k centroids each) in the plane the clusterer worked in.

    Parameters
    ----------
    clusterer : fitted estimator over clients
        ``embedding_`` (M, k, u), NaN where a client has fewer than k points; the first two of the u columns are drawn.
    clusters : array, shape (M,), optional
        True clusters for the colours; found ones otherwise.
    """
    _fitted(clusterer, "embedding_", "labels_")
    labels = np.asarray(clusterer.labels_ if clusters is None else clusters)
    points = np.asarray(clusterer.embedding_)
    if points.ndim != 3 or len(points) != len(labels) or points.shape[2] < 2:
        raise FltnbError(
            f"Points of shape (clients, k, 2 or more) can be drawn, not {points.shape} for {len(labels)} clients."
        )
    fig, ax = axes_for(ax, (6.4, 4.8))
    for label in np.unique(labels):
        own = points[labels == label].reshape(-1, points.shape[2])
        ax.scatter(own[:, 0], own[:, 1], s=22, color=cluster_color(label), edgecolors="white", lw=0.4, label=str(label))
    ax.legend(
        title="true cluster" if clusters is not None else "found cluster",
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        frameon=False,
        fontsize="small",
    )
    ax.set(xlabel="embedding 1", ylabel="embedding 2")
    ax.set_aspect("equal", adjustable="datalim")
    return fig, set_title(ax, title)


def _fitted(clusterer, *attributes: str) -> None:
    for attribute in attributes:
        if not hasattr(clusterer, attribute):
            raise FltnbError(f"This {type(clusterer).__name__} has no {attribute}: call its fit method first.")


def _runs(labels: np.ndarray) -> list[tuple[int, int]]:
    """Start and end (exclusive) of each stretch of equal labels."""
    edges = np.flatnonzero(np.diff(labels)) + 1
    return list(zip([0, *edges.tolist()], [*edges.tolist(), len(labels)], strict=True))


def _blocks(ax: Axes, labels: np.ndarray) -> None:
    """Name each stretch of rows by its cluster and draw lines between them."""
    runs = _runs(labels)
    for start, _ in runs[1:]:
        ax.axhline(start - 0.5, color="#D55E00", lw=1)
    ax.set_yticks([(start + end - 1) / 2 for start, end in runs], [str(labels[start]) for start, _ in runs])


def _strip(ax: Axes, labels: np.ndarray) -> None:
    """Draw a column of cluster colours along the left edge of a matrix."""
    from matplotlib.patches import Rectangle

    width = max(0.5, 0.025 * len(labels))
    for start, end in _runs(labels):
        color = cluster_color(labels[start])
        ax.add_patch(Rectangle((-0.5 - 1.4 * width, start - 0.5), width, end - start, color=color, lw=0))
    ax.set_xlim(-0.5 - 1.6 * width, len(labels) - 0.5)
    ax.spines["left"].set_visible(False)


def _cluster_legend(fig: Figure, labels: np.ndarray, title: str) -> None:
    from matplotlib.patches import Patch

    names = np.unique(labels)
    if len(names) <= len(CLUSTERS):
        handles = [Patch(color=cluster_color(name), label=str(name)) for name in names]
        fig.legend(handles=handles, title=title, loc="outside lower center", ncols=len(names), frameon=False)


def _grouped(labels: np.ndarray) -> dict[int, np.ndarray]:
    """Node positions: each cluster on a small circle of its own, the circles on a large one."""
    groups = np.unique(labels)
    radius = 0.0 if len(groups) == 1 else 1.0
    small = 0.8 if len(groups) == 1 else min(0.45, 0.75 * np.sin(np.pi / len(groups)))
    places = {}
    for number, label in enumerate(groups):
        angle = 2 * np.pi * number / len(groups)
        centre = radius * np.array([np.cos(angle), np.sin(angle)])
        members = np.flatnonzero(labels == label)
        for position, client in enumerate(members):
            turn = 2 * np.pi * position / len(members)
            offset = small * np.array([np.cos(turn), np.sin(turn)]) if len(members) > 1 else 0.0
            places[int(client)] = centre + offset
    return places


def repeats(fed: Federation, ax: Axes | None = None, title: str = "") -> tuple[Figure, Axes]:
    """Draw how many training samples of each client are repeats of one it already holds.

    Parameters
    ----------
    fed : Federation
        A clean partition gives an empty picture; the published one of FLT's scenario 1 does not.
    """
    counts = fed.repeated_samples()
    fig, ax = axes_for(ax, (8.0, 2.6))
    ax.bar(np.arange(len(counts)), counts, width=1.0, color=[cluster_color(c) for c in fed.clusters])
    worst = np.argsort(counts)[::-1][:8]
    for client in worst[counts[worst] > 0]:
        ax.annotate(str(client), (client, counts[client]), ha="center", va="bottom", fontsize=8)
    ax.margins(y=0.15)
    ax.set_xlim(-1, len(counts))
    ax.set_xlabel("client (colour: cluster)")
    ax.set_ylabel("repeated samples")
    return fig, set_title(ax, title)
