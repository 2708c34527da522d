"""The picture of the report: ours against print, and what became of the claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ..plots import panels
from ..plots.style import handle
from .counts import nearness
from .names import PAPERS, SHORT, label
from .verdicts import OUTCOMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"as_written": "#0072B2", "as_run": "#D55E00"}
OTHER = "0.75"
"""Colour of numbers that were not made in the printed setting."""
FILLS = {"agrees": "#59A14F", "partly": "#EDC948", "disagrees": "#E15759"}
FILLS |= {"not tested": "#E4E4E4"}


def agreement(found: pd.DataFrame, claims: pd.DataFrame) -> tuple[Figure, str]:
    """Draw every printed score against ours, a panel a paper, and the claims.

    Parameters
    ----------
    found : DataFrame, of :func:`fltnb.papers.all_measured`
    claims : DataFrame, a row per claim with ``paper`` and ``outcome``

    Returns
    -------
    (Figure, str)
        The second is its title: the finding.
    """
    points = scores(found)
    papers = [name for name in PAPERS if name in set(points["paper"])]
    fig, axes = panels(len(papers) + 1, (2.55, 2.75), len(papers) + 1)
    for ax, paper in zip(axes, papers, strict=False):
        _points(ax, points[points["paper"] == paper])
        ax.set_title(PAPERS[paper], fontsize="medium")
    if papers:
        axes[0].set_ylabel("here (%)")
    _bars(axes[-1], claims)

    looks = [handle(label(name), color, "o") for name, color in COLORS.items()]
    looks.append(handle("reduced setting or stand-in data", OTHER, "X"))
    for outcome, color in FILLS.items():
        looks.append(handle(f"claim: {outcome}", color, "s"))
    fig.legend(handles=looks, loc="outside lower center", ncols=4, frameon=False)
    told = title(found, claims)
    fig.suptitle(told, fontsize=11.5, fontweight="bold", x=0.01, ha="left")
    return fig, told


def scores(found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of test accuracies and F1 scores that were run, each once."""
    kept = found["metric"].str.contains("accuracy$|f1$") & (found["split"] == "test")
    kept &= found["status"] != "not run"
    kept &= found["table"] == found["first"]
    return found[kept]


def title(found: pd.DataFrame, claims: pd.DataFrame) -> str:
    """Say how many accuracies of the printed setting are near, and claims agree."""
    near = nearness(found).groupby("variant")[["points_3", "accuracies"]].sum()
    parts = []
    for name, short in SHORT.items():
        run = near["accuracies"].get(name, 0)
        if run:
            parts.append(f"{near['points_3'][name]} of {run} ({short})")
    number = claims["outcome"].value_counts().reindex(list(OUTCOMES), fill_value=0)
    tested = number.sum() - number["not tested"]
    first = "In the printed setting, accuracies within 3 points: "
    second = f"Of {tested} claims tested in it, {number['agrees']} agree"
    return (
        f"{first}{', '.join(parts) or 'none run'}\n{second}, {number['partly']} partly"
    )


def _points(ax: Axes, own: pd.DataFrame) -> None:
    """Draw the scores of a paper: on the line, ours equals the printed one."""
    printed = own["status"] == "printed setting"
    other = own[~printed]
    ax.scatter(other["number"], other["mean"], marker="X", s=16, c=OTHER, lw=0)
    for variant, part in own[printed].groupby("variant", sort=False):
        ax.scatter(part["number"], part["mean"], s=18, c=COLORS[variant], lw=0)
    ax.axline((0, 0), slope=1, color="0.4", lw=0.8)
    ax.set(xlabel="printed (%)", xlim=(0, 102), ylim=(0, 102))


def _bars(ax: Axes, claims: pd.DataFrame) -> None:
    """Draw the shares of each paper's claims by outcome, with their numbers."""
    table = pd.crosstab(claims["paper"], claims["outcome"])
    papers = [name for name in PAPERS if name in table.index]
    table = table.reindex(papers).reindex(columns=list(OUTCOMES), fill_value=0)
    shares = table.div(table.sum(axis=1), axis=0)
    ends = shares.cumsum(axis=1)
    for outcome, color in FILLS.items():
        starts = ends[outcome] - shares[outcome]
        bars = ax.barh(papers, shares[outcome], left=starts, color=color)
        numbers = [number or "" for number in table[outcome]]
        ax.bar_label(bars, numbers, label_type="center", fontsize=8)
    ax.set_yticks(range(len(papers)), [PAPERS[name] for name in papers])
    ax.invert_yaxis()
    ax.grid(False)
    ax.set_xticks([])
    ax.set(xlabel="share of its claims", xlim=(0, 1))
    ax.set_title("claims", fontsize="medium")
