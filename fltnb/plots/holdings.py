"""What clients hold: samples per class, and the images themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .relations import _runs
from .style import CLUSTERS, headline, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..federations import Federation


def who_holds_what(fed: Federation, title: str = "") -> tuple[Figure, Axes]:
    """Draw training samples per client (rows, ordered by true cluster) and class (columns).

    Parameters
    ----------
    fed : Federation, without true clusters the clients keep their order
    title : str, the finding
    """
    import seaborn as sns

    counts = np.asarray(fed.label_counts("train"))
    labels = None if fed.clusters is None else np.asarray(fed.clusters)
    order = np.arange(len(counts)) if labels is None else np.argsort(labels, kind="stable")
    names = [str(name) for name in fed.class_names]
    fig, (ax,) = panels(1, (6.4, 4.6))
    every = max(1, len(counts) // 8) if labels is None else False
    shown = {"cmap": "Blues", "vmin": 0, "rasterized": True, "cbar_kws": {"label": "training samples"}}
    few = names if len(names) <= 20 else False
    sns.heatmap(counts[order], ax=ax, xticklabels=few, yticklabels=every, **shown)
    if few and max(map(len, names)) > 3:
        ax.tick_params(axis="x", rotation=45)
    ax.set(xlabel="class", ylabel="client" if labels is None else "clients, by true cluster")
    ax.grid(False)
    if labels is not None:
        runs = _runs(labels[order])
        ax.hlines([start for start, _, _ in runs[1:]], 0, counts.shape[1], color="#D55E00", lw=1)
        ax.set_yticks([(start + end) / 2 for start, end, _ in runs], [str(label) for _, _, label in runs], rotation=0)
    headline(fig, [ax], title)
    return fig, ax


def sample_images(
    fed: Federation, per_row: int = 8, title: str = "", clients: Sequence[int] | None = None
) -> tuple[Figure, np.ndarray]:
    """Show training images, one row per true cluster (a single row without clusters), or per client.

    The images are spread evenly over the row's clients and their samples, so the same federation gives the same
    picture. At most ten clusters are shown. FltnbError: the federation holds feature vectors, which cannot be shown as
    images.

    Parameters
    ----------
    per_row : int, images in a row
    title : str, the finding
    clients : sequence of int, optional, one row for each of these clients instead
    """
    if np.ndim(fed.images) < 3:
        raise FltnbError("This federation holds feature vectors, not images: there is nothing to show.")
    if clients is not None:
        groups = {f"client {client}": [client] for client in clients}
    elif fed.clusters is None:
        groups = {"": range(fed.n_clients)}
    else:
        shown = np.unique(fed.clusters)[: len(CLUSTERS)]
        groups = {f"cluster {cluster}": np.flatnonzero(np.asarray(fed.clusters) == cluster) for cluster in shown}
    rows = {}
    for name, members in groups.items():
        pool = np.concatenate([fed.train[client] for client in members])
        # the middle of equal stretches: client borders, where one client's first label sits, are avoided
        rows[name] = np.asarray(fed.images)[pool[((np.arange(per_row) + 0.5) * len(pool) / per_row).astype(int)]]
    return gallery(rows, title=title)


def gallery(rows: Mapping[str, np.ndarray], columns: Sequence[str] = (), title: str = "") -> tuple[Figure, np.ndarray]:
    """Show rows of images.

    Returns (Figure, array of Axes (rows, n)).

    Parameters
    ----------
    rows : mapping, what stands beside a row -> n images, (n, H, W, 3) or (n, H, W) uint8; the same n in each
    columns : sequence of str, optional, what stands above the n columns
    title : str, the finding
    """
    widths = {len(row) for row in rows.values()} | ({len(columns)} if len(columns) else set())
    if len(widths) != 1 or widths == {0}:
        raise FltnbError("A gallery needs rows of images, each with as many images as there are columns.")
    width = widths.pop()
    fig, axes = panels(width * len(rows), (0.95, 0.92), width)
    axes = np.array(axes).reshape(len(rows), width)
    for line, (name, row) in zip(axes, rows.items(), strict=True):
        for ax, image in zip(line, row, strict=True):
            ax.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for ax, text in zip(axes[0], columns, strict=False):
        ax.set_title(text, fontsize="medium")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes
