"""Curves of a federation that changes in the middle of a run, and hard and soft client graphs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .clients import adjacency
from .curves import convergence

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..federations.phases import ChangingFederation


def around_event(
    curves: pd.DataFrame, event: int, groups: Sequence[str] = ("stayed", "drifted", "joined"), title: str = ""
) -> tuple[Figure, Sequence[Axes]]:
    """Draw test accuracy against round for each group of clients, side by side; a vertical line where they change.

    Parameters
    ----------
    curves : DataFrame
        Columns ``method, seed, round, split`` and ``accuracy_<group>`` for each group (percent, NaN while there are
        no such clients).
    event : int
        Round before which the change takes place.
    groups : sequence of str
        One panel each, in this order.
    """
    import matplotlib.pyplot as plt

    wanted = [f"accuracy_{group}" for group in groups]
    if missing := [name for name in wanted if name not in curves]:
        raise FltnbError(f"The curves lack {missing[0]!r}: draw runs of a federation that changes.")
    fig, axes = plt.subplots(
        1, len(groups), figsize=(2.2 + 3.4 * len(groups), 3.9), sharey=True, squeeze=False, layout="constrained"
    )
    axes = list(axes[0])
    for ax, group, column in zip(axes, groups, wanted, strict=True):
        one = curves.assign(accuracy=curves[column]).dropna(subset="accuracy")
        convergence(one, "test", ax=ax, title=f"clients that {group}")
        ax.axvline(event - 0.5, color="0.3", lw=1.0, ls=":")
        ax.set_xlim(0, curves["round"].max())
        if ax is not axes[0]:
            ax.set_ylabel("")
        if ax is not axes[-1]:
            ax.get_legend().remove()
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def before_and_after(fed: ChangingFederation, title: str = "") -> tuple[Figure, list[Axes]]:
    """Draw the classes of every client in each phase of a changing federation, clients in the order of their numbers.

    Clients that are not there yet are hatched; an arrow head marks those whose data have just changed.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    n_clients, n_classes = fed.n_clients, fed.n_classes
    fig, axes = plt.subplots(
        1, len(fed.phases), figsize=(1.0 + 3.6 * len(fed.phases), 4.6), sharey=True, squeeze=False, layout="constrained"
    )
    axes = list(axes[0])
    most = max(phase.fed.label_counts().max() for phase in fed.phases)
    for ax, phase in zip(axes, fed.phases, strict=True):
        here = phase.fed.n_clients
        counts = np.zeros((n_clients, n_classes))
        counts[:here] = phase.fed.label_counts()
        image = ax.imshow(counts, cmap="Blues", aspect="auto", interpolation="nearest", vmin=0, vmax=most)
        if here < n_clients:
            corner = (-0.5, here - 0.5)
            ax.add_patch(Rectangle(corner, n_classes, n_clients - here, fc="0.93", ec="0.6", hatch="///", lw=0))
        moved = np.flatnonzero(phase.changed)
        ax.plot(np.full(len(moved), -0.95), moved, ">", color="#D55E00", ms=4, clip_on=False)
        ax.set(xlabel="class", title=f"from round {phase.round}", xlim=(-0.5, n_classes - 0.5))
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.tick_params(axis="y", pad=9)
    axes[0].set_ylabel("client")
    fig.colorbar(image, ax=axes, shrink=0.8, label="training samples")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def graphs_beside(graphs: Mapping[str, np.ndarray], labels: np.ndarray, title: str = "") -> tuple[Figure, list[Axes]]:
    """Draw relation matrices of the same clients side by side, in the order of their clusters; one colour scale.

    Parameters
    ----------
    graphs : mapping
        Name -> matrix (M, M), values in [0, 1].
    labels : array, shape (M,)
        Cluster of each client.
    """
    import matplotlib.pyplot as plt

    order = np.argsort(labels, kind="stable")
    fig, axes = plt.subplots(
        1, len(graphs), figsize=(1.0 + 3.2 * len(graphs), 3.7), squeeze=False, layout="constrained"
    )
    axes = list(axes[0])
    for ax, (name, matrix) in zip(axes, graphs.items(), strict=True):
        adjacency(matrix, order, labels, ax)
        ax.set_title(name, fontsize="small")
        ax.set(xlabel="clients, by true cluster", ylabel="")
        ax.images[0].set_clim(0, 1)
    fig.colorbar(axes[0].images[0], ax=axes, shrink=0.8, label="weight")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes
