"""Cluster matrices: which clients share a cluster, method by method and round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .clients import _cluster_legend, adjacency
from .style import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 4


def cluster_matrices(found: Mapping[str, np.ndarray], clusters: np.ndarray, title: str = "") -> tuple[Figure, list]:
    """Draw the final clusters of several methods side by side, as FLT's Figure 6 does: dark pairs share a cluster.

    The clients are in the order of their true clusters: perfect clusters are as many dark blocks on the diagonal as
    there are colours in the strip.

    Parameters
    ----------
    found : mapping
        Method id (or any name) -> found cluster of each client, shape (M,).
    clusters : array, shape (M,)
        True clusters.
    """
    if not found:
        raise FltnbError("There are no clusters to draw: give the labels of at least one method.")
    return _panels([(style(name).label, labels) for name, labels in found.items()], clusters, title)


def formation(
    labels_at: Mapping[int, np.ndarray],
    clusters: np.ndarray,
    rounds: Sequence[int] | None = None,
    title: str = "",
) -> tuple[Figure, list]:
    """Draw how clusters form over the rounds, in small multiples (FLT's Figure 7); order as in `cluster_matrices`.

    Parameters
    ----------
    labels_at : mapping
        Round -> found cluster of each client (M,): ``run.labels_at``.
    clusters : array, shape (M,)
        True clusters.
    rounds : sequence of int, optional
        Rounds to show; those without labels are left out. By default at most eight, spread evenly.

    Raises
    ------
    FltnbError
        No labels at any of these rounds.
    """
    there = sorted(labels_at)
    if rounds is None:
        places = np.unique(np.linspace(0, len(there) - 1, min(8, len(there))).round().astype(int))
        shown = [there[place] for place in places]
    else:
        shown = [round for round in rounds if round in labels_at]
    if not shown:
        wanted = "" if rounds is None else f" at rounds {', '.join(map(str, rounds))}"
        raise FltnbError(
            f"There are no clusters{wanted}: choose a method with clusters, and rounds it was evaluated at."
        )
    return _panels([(f"round {round}", labels_at[round]) for round in shown], clusters, title)


def _panels(panels: list[tuple[str, np.ndarray]], clusters: np.ndarray, title: str) -> tuple[Figure, list]:
    import matplotlib.pyplot as plt

    from ..metrics import adjusted_rand_index

    clusters = np.asarray(clusters)
    for name, labels in panels:
        if np.shape(labels) != clusters.shape:
            raise FltnbError(f"{name}: {np.size(labels)} labels do not fit {clusters.size} true clusters.")
    columns = min(COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    size = 2.5 if len(panels) > 3 else 3.2
    fig, axes = plt.subplots(
        lines, columns, figsize=(size * columns, (size + 0.35) * lines + 0.4), squeeze=False, layout="constrained"
    )
    fig.get_layout_engine().set(h_pad=0.09)  # titles of two lines would touch the row above
    # within a true cluster the clients keep their order: sorted, chance would look like structure
    order = np.argsort(clusters, kind="stable")
    for ax in axes.flat[len(panels) :]:
        ax.axis("off")
    for ax, (name, labels) in zip(axes.flat, panels, strict=False):
        labels = np.asarray(labels)
        count, agreement = len(np.unique(labels)), adjusted_rand_index(clusters, labels)
        matrix = (labels[:, None] == labels).astype(np.uint8)
        adjacency(matrix, order, clusters, ax)
        ax.set_title(f"{name}\n{count} cluster{'s' * (count != 1)}, ARI {agreement:.2f}", fontsize="small")
        ax.set(xlabel="", ylabel="")
    _cluster_legend(fig, clusters, "true cluster")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, list(axes.flat[: len(panels)])
