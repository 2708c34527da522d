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
FILLS = {
    "agrees": "#59A14F",
    "partly": "#EDC948",
    "disagrees": "#E15759",
    "not tested": "#E4E4E4",
}


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
    there = set(points["paper"])
    papers = [name for name in PAPERS if name in there]
    n_panels = len(papers) + 1
    fig, axes = panels(n_panels, (2.55, 2.75), n_panels)
    for ax, paper in zip(axes, papers, strict=False):
        _points(ax, points[points["paper"] == paper])
        ax.set_title(PAPERS[paper], fontsize="medium")
    if papers:
        axes[0].set_ylabel("here (%)")
    _bars(axes[-1], claims)

    handles = [handle(label(name), color, "o") for name, color in COLORS.items()]
    handles.append(handle("reduced setting or stand-in data", OTHER, "X"))
    for outcome, color in FILLS.items():
        handles.append(handle(f"claim: {outcome}", color, "s"))
    fig.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    finding = title(found, claims)
    fig.suptitle(finding, fontsize=11.5, fontweight="bold", x=0.01, ha="left")
    return fig, finding


def scores(found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of test accuracies and F1 scores that were run, each once."""
    kept = found["metric"].str.contains("accuracy$|f1$")
    kept &= found["split"] == "test"
    kept &= found["status"] != "not run"
    kept &= found["table"] == found["first"]
    return found[kept]


def title(found: pd.DataFrame, claims: pd.DataFrame) -> str:
    """Say how many accuracies of the printed setting are near, and claims agree."""
    counts = nearness(found).groupby("variant")[["points_3", "accuracies"]].sum()
    counts = counts[counts["accuracies"] > 0]
    near = []
    for name, short in SHORT.items():
        if name in counts.index:
            points_3, run = counts.loc[name]
            near.append(f"{points_3} of {run} ({short})")
    accuracies = ", ".join(near) or "none run"

    number = claims["outcome"].value_counts().reindex(list(OUTCOMES), fill_value=0)
    tested = number.sum() - number["not tested"]
    return (
        f"In the printed setting, accuracies within 3 points: {accuracies}\n"
        f"Of {tested} claims tested in it, {number['agrees']} agree, "
        f"{number['partly']} partly"
    )


def _points(ax: Axes, points: pd.DataFrame) -> None:
    """Draw the scores of a paper: on the line, ours equals the printed one."""
    in_print = points["status"] == "printed setting"
    other = points[~in_print]
    ax.scatter(other["number"], other["mean"], marker="X", s=16, c=OTHER, lw=0)
    for variant, part in points[in_print].groupby("variant", sort=False):
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
