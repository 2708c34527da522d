"""Eigen-relevance (MT-HFL): similarity matrices, and relevance against the number of eigenvectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .style import CLUSTERS, cluster_color

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def similarity_matrices(
    found: Mapping[str, np.ndarray], clusters: np.ndarray, title: str = ""
) -> tuple[Figure, np.ndarray]:
    """Draw matrices R side by side, with numbers where there are few users; lines divide the tasks.

    Parameters
    ----------
    found : mapping
        What stands above a panel -> R (M, M), users in the order of their tasks.
    clusters : ndarray (M,)
        True tasks, ascending.
    """
    import matplotlib.pyplot as plt

    count = len(clusters)
    fig, axes = plt.subplots(
        1, len(found), figsize=(3.2 * len(found) + 0.8, 3.5), layout="constrained", squeeze=False, sharey=True
    )
    edges = np.flatnonzero(np.diff(clusters)) + 0.5
    for ax, (name, matrix) in zip(axes[0], found.items(), strict=True):
        shown = ax.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
        for edge in edges:
            ax.axhline(edge, color="white", lw=2)
            ax.axvline(edge, color="white", lw=2)
        for i, j in np.ndindex(matrix.shape) if count <= 6 else ():
            color = "black" if matrix[i, j] > 0.6 else "white"
            ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", color=color, fontsize="small")
        ax.set_xticks(range(count), range(1, count + 1))
        ax.set_yticks(range(count), range(1, count + 1))
        ax.set_title(name, fontsize="medium")
        ax.set_xlabel("user")
    axes[0, 0].set_ylabel("user")
    fig.colorbar(shown, ax=axes[0], label="similarity R", shrink=0.85)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]


def relevance_curves(
    curve: np.ndarray,
    users: Sequence[int],
    clusters: Sequence[int],
    eigenvalues: np.ndarray,
    most: int = 50,
    chosen: int = 5,
) -> tuple[Figure, np.ndarray]:
    """Draw the relevance of the first user and each other one against the number of eigenvectors (MT-HFL, Figure 4).

    Parameters
    ----------
    curve : ndarray (P, m, m)
        R of m users for 1 to P eigenvectors (:func:`fltnb.relatedness.eigen.relevance_curve`).
    users, clusters : sequences of m ints
        Their numbers in the federation, and their tasks.
    eigenvalues : ndarray (P,)
        Of the first user; the right panel shows them beside the whole curve.
    most : int
        Right end of the left panel, the paper's range.
    chosen : int
        Number of eigenvectors that is marked.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    counts = np.arange(1, len(curve) + 1)
    for j in range(1, len(users)):
        same = clusters[j] == clusters[0]
        label = f"users {users[0]} and {users[j]} ({'same task' if same else f'task {clusters[j] + 1}'})"
        look = {"color": cluster_color(clusters[j]), "marker": "o" if same else "^", "label": label}
        near = counts[: min(most, len(curve))]
        axes[0].plot(near, curve[: len(near), 0, j], ms=3, **look)
        axes[1].plot(counts, curve[:, 0, j], ms=0, lw=1.8, **(look | {"marker": ""}))
    axes[1].plot(
        counts, eigenvalues / eigenvalues[0], color="0.4", ls="--", lw=1.2, label=f"eigenvalues of user {users[0]}"
    )
    for ax in axes:
        ax.axvline(chosen, color="0.6", ls=":", lw=1)
        ax.grid(alpha=0.25)
    axes[0].set(xlabel="eigenvectors", ylabel=f"relevance R with user {users[0]}", ylim=(0, 1.03))
    axes[0].set_title("the paper's range", fontsize="medium")
    axes[0].legend(frameon=False, fontsize="small")
    axes[1].set(xscale="log", yscale="log", xlabel="eigenvectors (all that there are)", ylabel="R, and λ / λ₁")
    axes[1].set_ylim(max(1e-10, float(eigenvalues[-1] / eigenvalues[0]) / 3), 2)
    axes[1].set_title("with the small eigenvalues", fontsize="medium")
    axes[1].legend(frameon=False, fontsize="small", loc="lower left")
    return fig, axes


def separation(table, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw within-task and across-task similarity against the number of eigenvectors, one panel per feature map.

    Parameters
    ----------
    table : DataFrame
        Columns ``features, eigenvectors, within, within_min, across, across_max``, means over seeds.
    """
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(table["features"]))
    fig, axes = plt.subplots(
        1, len(names), figsize=(3.1 * len(names) + 1.2, 3.6), layout="constrained", sharey=True, squeeze=False
    )
    for ax, name in zip(axes[0], names, strict=True):
        part = table[table["features"] == name]
        for column, low, color, text in (
            ("within", "within_min", CLUSTERS[0], "same task (band: down to the lowest pair)"),
            ("across", "across_max", CLUSTERS[4], "different tasks (band: up to the highest pair)"),
        ):
            ax.plot(part["eigenvectors"], part[column], color=color, label=text)
            ax.fill_between(part["eigenvectors"], part[column], part[low], color=color, alpha=0.2, lw=0)
        ax.axvline(5, color="0.6", ls=":", lw=1)
        ax.set(xlabel="eigenvectors", xscale="log", ylim=(0, 1.03))
        ax.set_xticks([1, 2, 5, 10, 20, 50], [1, 2, 5, 10, 20, 50])
        ax.minorticks_off()
        ax.set_xlim(1, part["eigenvectors"].max())
        ax.set_title(name, fontsize="medium")
        ax.grid(alpha=0.25)
    axes[0, 0].set_ylabel("similarity R")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]
