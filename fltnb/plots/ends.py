"""Names at the ends of curves: a legend that stands where the reader looks.

Three things make this more than writing each name at the height of its last point.
Curves that lie on each other have one end, so they are grouped and named together
(:func:`equal_curves`). Names of curves that end close to each other would overlap, so
they are moved apart by as little as possible (:func:`apart`), and a thin line leads
from a name to its curve. A panel may be too small for all names (:func:`fits`); the
caller then draws a legend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from .style import Style

NEAR = 0.01
"""Curves are equal if they are nowhere further apart than this share of an axis."""
SIZE = 9
"""Size of the names, points."""
LEAST = 3.0
"""Width of a panel from which on names beside it leave room for the curves, inches."""


def equal_curves(drawn: Mapping[Any, Line2D], ax: Axes) -> list[list[Any]]:
    """Group curves that lie on each other, as far as a reader can see.

    Parameters
    ----------
    drawn : mapping
        Name -> its curve.
    ax : Axes
        Their panel, whose axes have their final limits.

    Returns
    -------
    list of lists of names
        Each name is in one list. In a list every curve is equal to every other.
    """
    places = {}
    for name, line in drawn.items():
        in_panel = ax.transScale + ax.transLimits
        places[name] = in_panel.transform(np.asarray(line.get_xydata()))

    def equal(one: Any, other: Any) -> bool:
        a, b = places[one], places[other]
        return len(a) == len(b) and np.abs(a - b).max() <= NEAR

    groups: list[list[Any]] = []
    for name in drawn:
        for group in groups:
            if all(equal(name, other) for other in group):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def fits(drawn: Mapping[Any, Line2D]) -> bool:
    """Whether a panel has room for the names of its curves at their ends."""
    return len(drawn) * _step(drawn) <= 1.1 and _inches(drawn)[0] >= LEAST


def _inches(drawn: Mapping[Any, Line2D]) -> tuple[float, float]:
    """Return the width and the height of the curves' panel, about."""
    ax: Any = next(iter(drawn.values())).axes
    place = ax.get_position()
    width, height = ax.figure.get_size_inches()
    # titles and legends make the panel lower than it is now
    return place.width * width, 0.72 * place.height * height


def _step(drawn: Mapping[Any, Line2D]) -> float:
    """Return the height of a name as a share of the panel's."""
    return 1.2 * SIZE / 72 / _inches(drawn)[1]


def name_ends(drawn: Mapping[Any, Line2D], looks: Mapping[Any, Style]) -> None:
    """Write the name of each curve at its end.

    Of curves that lie on each other the lower ones become wider, so that each can be
    seen. The first has a line to its name; the others' names follow, such as "= FLT".

    Parameters
    ----------
    drawn : mapping
        Name -> its curve; all are in one panel, whose axes have their final limits.
    looks : mapping
        Name -> its label, colour and marker.
    """
    ax: Any = next(iter(drawn.values())).axes
    groups = equal_curves(drawn, ax)
    ends: dict[Any, tuple[float, float]] = {}
    for group in groups:
        _widen([drawn[name] for name in group])
        x, y = np.asarray(drawn[group[0]].get_xydata())[-1]
        ends[group[0]] = (float(x), float(y))
    groups.sort(key=lambda group: ends[group[0]][1])

    # from below; the first of a group is the highest of it
    names = [name for group in groups for name in reversed(group)]
    wanted = []
    for group in groups:
        _, height = (ax.transScale + ax.transLimits).transform(ends[group[0]])
        wanted += [height] * len(group)
    heights = apart(np.array(wanted), _step(drawn))
    for name, height in zip(names, heights, strict=True):
        _write(ax, looks[name], height, ends.get(name))


def _write(
    ax: Any, look: Style, height: float, end: tuple[float, float] | None
) -> None:
    """Write a name and its marker to the right of a panel, and a line to its curve.

    Parameters
    ----------
    ax : Axes
    look : Style
    height : float
        Of the name, as a share of the panel's height.
    end : (float, float) or None
        Last point of the curve. None: it lies on the curve whose name is above, which
        has the line.
    """
    text = look.label
    if end is None:
        text = f"= {text}"
    beside = {"transform": ax.transAxes, "clip_on": False}
    ax.plot([1.06], [height], look.marker, color=look.color, ms=5, mew=0, **beside)
    ax.text(1.09, height, text, va="center", fontsize=SIZE, **beside)
    if end is None:
        return
    ax.annotate(
        "",
        xy=end,
        xytext=(1.05, height),
        textcoords="axes fraction",
        arrowprops={"arrowstyle": "-", "color": "0.6", "lw": 0.7, "shrinkA": 0},
        annotation_clip=False,
    )


def _widen(lines: list[Line2D]) -> None:
    """Make each curve wider than those drawn later; the last keeps its width."""
    if len(lines) == 1:
        return
    more = min(2.0, 6.0 / (len(lines) - 1))
    for above, line in enumerate(reversed(lines)):
        line.set_linewidth(line.get_linewidth() + above * more)


def apart(heights: np.ndarray, step: float) -> np.ndarray:
    """Move ascending heights apart until neighbours have the given distance.

    The squares of the moves are as small as possible, apart from the limits 0 and 1.

    Parameters
    ----------
    heights : array (n,)
        Wanted ones, shares of a panel.
    step : float
        Least distance of neighbours.

    Examples
    --------
    >>> apart(np.array([0.2, 0.5, 0.5]), 0.1).round(2).tolist()
    [0.2, 0.45, 0.55]
    """
    from scipy.optimize import isotonic_regression

    steps = step * np.arange(len(heights))
    moved = isotonic_regression(heights - steps).x
    return np.clip(moved, 0, max(0, 1 - steps[-1])) + steps
