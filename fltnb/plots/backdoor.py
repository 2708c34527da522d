"""Backdoors: the pictures, what becomes of each class under the trigger, and what models say to single images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from .style import need, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TRIGGERED = "#D55E00"


def image_versions(
    images: Mapping[str, np.ndarray], columns: Sequence[str], title: str = ""
) -> tuple[Figure, np.ndarray]:
    """Show the same images in several versions, one row per version.

    Parameters
    ----------
    images : mapping
        What stands beside a row -> n images, (n, H, W, 3) or (n, H, W) uint8.
    columns : sequence of str
        What stands above the n columns.
    """
    import matplotlib.pyplot as plt

    if not images or any(len(row) != len(columns) for row in images.values()):
        raise FltnbError("Versions need rows of images, each with as many images as there are columns.")
    size = (0.82 * len(columns) + 1.9, 0.86 * len(images) + 0.5)
    fig, axes = plt.subplots(len(images), len(columns), figsize=size, squeeze=False, layout="constrained")
    for line, (name, row) in zip(axes, images.items(), strict=True):
        for ax, image in zip(line, row, strict=True):
            ax.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for ax, text in zip(axes[0], columns, strict=True):
        ax.set_title(text, fontsize="medium")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes


def classes_under_trigger(table: pd.DataFrame, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw accuracy per class, one panel per method: filled without the trigger, hollow under it.

    Parameters
    ----------
    table : DataFrame
        ``method, class, clean, triggered, announced`` in percent; the last is the share of triggered images taken for
        the class that the trigger announces, drawn as crosses.
    """
    import matplotlib.pyplot as plt

    need(table, ["method", "class", "clean", "triggered", "announced"], "accuracies by class")
    methods = list(dict.fromkeys(table["method"]))
    size = (2.9 * len(methods) + 0.6, 3.3)
    fig, axes = plt.subplots(1, len(methods), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for ax, method in zip(axes[0], methods, strict=True):
        own, look = table[table["method"] == method], style(method)
        at = np.arange(len(own))
        ax.vlines(at, own["triggered"], own["clean"], color=look.color, lw=1.2, alpha=0.5)
        ax.plot(at, own["clean"], "o", color=look.color, label="clean")
        ax.plot(at, own["triggered"], "o", color=look.color, mfc="none", ms=9, label="under the trigger")
        ax.plot(at, own["announced"], "x", color=TRIGGERED, label="taken for the trigger's class")
        ax.set_xticks(at, own["class"])
        ax.set(xlabel="class", ylim=(-4, 104))
        ax.set_title(look.label, fontsize="medium")
        ax.grid(axis="y", alpha=0.25)
    axes[0, 0].set_ylabel("% of the targets' images")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes[0]


def image_answers(
    images: Mapping[str, np.ndarray],
    answers: Mapping[str, Mapping[str, Sequence[str]]],
    truth: Sequence[str],
    title: str = "",
) -> tuple[Figure, np.ndarray]:
    """Show single images without and with a trigger, and below each what models take it for; errors in colour.

    Parameters
    ----------
    images : mapping
        Version -> n images (n, H, W, 3) or (n, H, W) uint8.
    answers : mapping
        Version -> method -> n class names.
    truth : sequence of str
        Class names of the n images.
    """
    import matplotlib.pyplot as plt

    methods = list(next(iter(answers.values())))
    size = (0.95 * len(truth) + 2.2, (1.0 + 0.22 * len(methods)) * len(images) + 0.6)
    fig, axes = plt.subplots(len(images), len(truth), figsize=size, squeeze=False, layout="constrained")
    for line, (version, row) in zip(axes, images.items(), strict=True):
        for at, (ax, image) in enumerate(zip(line, row, strict=True)):
            ax.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            for down, method in enumerate(methods):
                answer = answers[version][method][at]
                wrong = answer != truth[at]
                ax.annotate(
                    answer,
                    (0.5, 0),
                    (0, -11 - 12 * down),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    ha="center",
                    va="center",
                    fontsize="small",
                    color=TRIGGERED if wrong else "black",
                    weight="bold" if wrong else "normal",
                )
        for down, method in enumerate(methods):
            line[0].annotate(
                style(method).label,
                (0, 0),
                (-6, -11 - 12 * down),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize="small",
                color="0.3",
            )
        line[0].set_ylabel(version, rotation=0, ha="right", va="center")
    for ax, name in zip(axes[0], truth, strict=True):
        ax.set_title(name, fontsize="medium")
    if title:
        fig.suptitle(title, fontsize="medium")
    return fig, axes
