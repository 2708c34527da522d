"""The figure of the report: our numbers against the printed ones, and the claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from ..plots import headline, panels
from ..plots.style import PAGE, handle
from .counts import nearness
from .names import PAPERS, SHORT, label
from .verdicts import OUTCOMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

COLORS = {"as_written": "#0072B2", "as_run": "#D55E00"}
OTHER = "0.75"
"""Colour of numbers that were not made in the printed setting."""
FILLS = {
    "agrees": "#4F9DC4",
    "partly": "#F0C75E",
    "disagrees": "#9E2A2B",
    "not tested": "#E4E4E4",
}
"""Outcome of a claim -> its colour, which colour-blind readers can distinguish."""
PLURAL = {
    "agrees": "agree",
    "partly": "agree partly",
    "disagrees": "disagree",
    "not tested": "are not tested",
}
"""Outcome of a claim -> its plural form."""
INK = {"disagrees": "#fff"}
"""Colour of the numbers on a bar, if it is not black."""
WIDE, TALL = 640, 34
"""Width of README's picture and height of its rows, in pixels."""
NAMES, BAR = 96, 530
"""Start and length of its bars."""


def agreement(found: pd.DataFrame, claims: pd.DataFrame) -> tuple[Figure, str]:
    """Draw every printed score against ours, one panel per paper, and the claims.

    Parameters
    ----------
    found : DataFrame
        The result of :func:`fltnb.papers.all_measured`.
    claims : DataFrame
        A row per claim with ``paper`` and ``outcome``.

    Returns
    -------
    (Figure, str)
        The figure, and its title, which states the result.

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> found = fl.papers.all_measured({"01_scenario1": fl.results("01")})
    >>> claims = pd.DataFrame(
    ...     {"paper": ["flt", "flt"], "outcome": ["agrees", "partly"]}
    ... )
    >>> figure, title = fl.papers.agreement(found, claims)
    >>> title.splitlines()[1]
    'Of 2 claims tested in it, 1 agree, 1 partly'
    """
    points = scores(found)
    papers = _in_order(points["paper"])
    n_panels = len(papers) + 1
    fig, axes = panels(n_panels, (PAGE / 2, 2.6), 2)
    for ax, paper in zip(axes, papers, strict=False):
        _points(ax, points[points["paper"] == paper])
        ax.set_title(PAPERS[paper], fontsize="medium")
    if papers:
        axes[0].set_ylabel("here (%)")
    _bars(axes[-1], claims)

    fig.legend(
        handles=_handles(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    finding = title(found, claims)
    headline(fig, finding)
    return fig, finding


def _in_order(papers: Iterable[str]) -> list[str]:
    """Return the papers in the table, in the order of the notebooks."""
    there = set(papers)
    return [name for name in PAPERS if name in there]


def _handles() -> list[Line2D]:
    """Return the marks of the legend."""
    handles = [handle(label(name), color, "o") for name, color in COLORS.items()]
    handles.append(handle("reduced setting or stand-in data", OTHER, "X"))
    for outcome, color in FILLS.items():
        handles.append(handle(f"claim: {outcome}", color, "s"))
    return handles


def claim_bars(claims: pd.DataFrame) -> tuple[str, str]:
    """Draw README's bars: the share of each paper's claims by outcome.

    Parameters
    ----------
    claims : DataFrame
        A row per claim with ``paper`` and ``outcome``.

    Returns
    -------
    (str, str)
        The picture as SVG, and a description of it in words.

    Examples
    --------
    >>> import pandas as pd
    >>> import fltnb as fl
    >>> outcome = ["agrees", "agrees", "partly"]
    >>> claims = pd.DataFrame({"paper": "flt", "outcome": outcome})
    >>> svg, said = fl.papers.claim_bars(claims)
    >>> said
    'Claims that agree, agree partly, disagree, are not tested: FLT 2, 1, 0, 0'
    """
    table = _by_outcome(claims)
    drawn = []
    said = []
    top = 0
    for paper, numbers in table.iterrows():
        name = PAPERS[paper]
        drawn.extend(_bar(name, numbers, top))
        counts = ", ".join(str(number) for number in numbers)
        said.append(f"{name} {counts}")
        top += TALL

    drawn.extend(_key(top))
    height = top + TALL
    told = f"Claims that {', '.join(PLURAL.values())}: {'; '.join(said)}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {height}" '
        f'width="{WIDE}" font-family="Helvetica, Arial, sans-serif" font-size="15" '
        f'role="img" aria-label="{told}">'
    )
    ground = f'<rect width="{WIDE}" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, *drawn, "</svg>", ""]), told


def _by_outcome(claims: pd.DataFrame) -> pd.DataFrame:
    """Count each paper's claims by outcome."""
    table = pd.crosstab(claims["paper"], claims["outcome"])
    papers = _in_order(claims["paper"])
    return table.reindex(index=papers, columns=list(OUTCOMES), fill_value=0)


def _bar(name: str, numbers: pd.Series, top: int) -> list[str]:
    """Return the bar of a paper as parts of an SVG.

    Parameters
    ----------
    name : str
        Displayed name of the paper.
    numbers : Series
        Outcome -> number of claims; outcomes without a claim have no piece.
    top : int
        Upper end of its row in pixels.
    """
    at = float(NAMES)  # where the next piece begins
    baseline = top + 22  # of the texts
    drawn = [f'<text x="{NAMES - 10}" y="{baseline}" text-anchor="end">{name}</text>']
    for word, number in numbers.items():
        if not number:
            continue
        width = BAR * number / numbers.sum()
        centre = at + width / 2
        ink = INK.get(word, "#111")
        drawn.append(
            f'<rect x="{at:.1f}" y="{top + 4}" width="{width:.1f}" height="26" '
            f'fill="{FILLS[word]}" stroke="#fff"/>'
        )
        drawn.append(
            f'<text x="{centre:.1f}" y="{baseline}" text-anchor="middle" '
            f'fill="{ink}">{number}</text>'
        )
        at += width
    return drawn


def _key(top: int) -> list[str]:
    """Return the legend of the colours as parts of an SVG."""
    drawn = []
    for place, (word, said) in enumerate(PLURAL.items()):
        at = NAMES + 132 * place
        drawn.append(
            f'<rect x="{at}" y="{top + 9}" width="15" height="15" '
            f'fill="{FILLS[word]}"/>'
        )
        drawn.append(f'<text x="{at + 21}" y="{top + 22}">{said}</text>')
    return drawn


def scores(found: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of test accuracies and F1 scores that were run.

    A number that is printed in two tables is taken from the first one.

    Parameters
    ----------
    found : DataFrame
        The result of :func:`fltnb.papers.all_measured`.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.papers.measured(fl.results("01"), "flt", "T1")
    >>> len(fl.papers.scores(found)) > 10
    True
    """
    is_score = found["metric"].str.contains("accuracy$|f1$")
    of_test = found["split"] == "test"
    was_run = found["status"] != "not run"
    printed_first = found["table"] == found["first"]
    return found[is_score & of_test & was_run & printed_first]


def title(found: pd.DataFrame, claims: pd.DataFrame) -> str:
    """Return the title: how many accuracies are near, and how many claims agree.

    Parameters
    ----------
    found, claims : DataFrame
        As for :func:`agreement`.
    """
    near = nearness(found)
    said = []
    for variant, short in SHORT.items():
        own = near[near["variant"] == variant]
        run = own["accuracies"].sum()
        if run:
            said.append(f"{own['points_3'].sum()} of {run} ({short})")
    accuracies = ", ".join(said) or "none run"

    outcome = claims["outcome"]
    tested = (outcome != "not tested").sum()
    agree = (outcome == "agrees").sum()
    partly = (outcome == "partly").sum()
    return (
        f"In the printed setting, accuracies within 3 points: {accuracies}\n"
        f"Of {tested} claims tested in it, {agree} agree, {partly} partly"
    )


def _points(ax: Axes, points: pd.DataFrame) -> None:
    """Draw the scores of a paper: on the line, ours equal the printed ones.

    Scores in a reduced setting or on stand-in data, which say nothing about the paper,
    are grey. They are drawn first, so that they hide no others.
    """
    in_print = points["status"] == "printed setting"
    other = points[~in_print]
    ax.scatter(other["number"], other["mean"], marker="X", s=16, c=OTHER, lw=0)
    for variant, part in points[in_print].groupby("variant", sort=False):
        color = COLORS[variant]
        ax.scatter(part["number"], part["mean"], s=18, c=color, lw=0)
    ax.axline((0, 0), slope=1, color="0.4", lw=0.8)
    ax.set(xlabel="printed (%)", xlim=(0, 102), ylim=(0, 102))


def _bars(ax: Axes, claims: pd.DataFrame) -> None:
    """Draw the shares of each paper's claims by outcome, with their numbers.

    Bars of shares, as the papers make different numbers of claims.
    """
    table = _by_outcome(claims)
    papers = list(table.index)
    shares = table.div(table.sum(axis=1), axis=0)

    begins = pd.Series(0.0, index=papers)
    for outcome, color in FILLS.items():
        share = shares[outcome]
        bars = ax.barh(papers, share, left=begins, color=color)
        begins = begins + share
        numbers = [number or "" for number in table[outcome]]
        ink = INK.get(outcome, "#111")
        ax.bar_label(bars, numbers, label_type="center", fontsize=8, color=ink)

    names = [PAPERS[paper] for paper in papers]
    ax.set_yticks(range(len(papers)), names)
    ax.invert_yaxis()
    ax.grid(False)
    ax.set_xticks([])
    ax.set(xlabel="share of the claims", xlim=(0, 1))
    ax.set_title("claims", fontsize="medium")
