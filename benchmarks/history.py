"""How fast the pool was, a line for each date and machine.

``python -m benchmarks.run --save`` adds to results/benchmarks/history.csv how many
times faster than the plain DataLoader loop the pool was, and draws
docs/pictures/speed.svg; ``python -m benchmarks.history`` draws it again. A machine that
was busy when the measurement began gets no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fltnb import paths

from .common import write

FILE = paths.ROOT / "results" / "benchmarks" / "history.csv"
PICTURE = paths.ROOT / "docs" / "pictures" / "speed.svg"
CONTENDER = "engine pool"
WHAT = ("training", "evaluation")
MACHINE = ("processor", "vectors", "cores", "gpu", "system")
ABOUT = ("date", *MACHINE, "python", "torch", "load_before")
IDLE = 0.25  # load average of a core, at most, when a measurement begins


def is_busy(load_before: float, cores: int) -> bool:
    """Whether somebody else was at work when the measurement began.

    Examples
    --------
    >>> is_busy(0.2, cores=2), is_busy(1.5, cores=2)
    (False, True)
    """
    return load_before > IDLE * cores


def line_of(table: pd.DataFrame, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a measurement.

    Parameters
    ----------
    table : DataFrame
        What ``benchmarks.run`` measured: ``workload, what, contender, times_faster``.
    about : mapping
        Values of the columns :data:`ABOUT`; those that are missing stay empty.
    """
    line = {name: about.get(name, "") for name in ABOUT}
    ours = table[table["contender"] == CONTENDER]
    for row in ours[ours["what"].isin(WHAT)].itertuples():
        line[f"{row.workload} {row.what}"] = row.times_faster
    return line


def added(history: pd.DataFrame, line: Mapping[str, Any]) -> pd.DataFrame:
    """Return a history with one more line.

    Of the same date and machine, what was measured again takes the place of what stood
    there, and the rest stays.
    """
    new = pd.DataFrame([line])
    own = ["date", *MACHINE]
    every = pd.concat([history, new]) if len(history) else new
    every[own] = every[own].fillna("").astype(str)
    merged = every.groupby(own, sort=False, as_index=False).last()
    numbers = sorted(set(merged.columns) - set(ABOUT))
    return merged[[*ABOUT, *numbers]].sort_values(own).reset_index(drop=True)


def read() -> pd.DataFrame:
    """Return what was measured so far."""
    return pd.read_csv(FILE) if FILE.exists() else pd.DataFrame()


def add(table: pd.DataFrame, about: Mapping[str, Any]) -> None:
    """Add a measurement to the file, and draw the picture."""
    history = added(read(), line_of(table, about))
    write(history, FILE)
    draw(history, PICTURE)


def draw(history: pd.DataFrame, picture: Path) -> None:
    """Draw how many times faster the pool was, by date: a line for each workload."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    fixed = {"svg.hashsalt": "speed", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(fixed):
        fig, panels = plt.subplots(
            1, 2, figsize=(8, 2.8), sharey=True, layout="constrained"
        )
        for axes, what in zip(panels, WHAT, strict=True):
            _panel(axes, history, what)
        panels[0].set_ylabel("times faster than DataLoader")
        panels[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        fig.savefig(picture, metadata={"Date": None, "Creator": None})
        plt.close(fig)


def _panel(axes: Any, history: pd.DataFrame, what: str) -> None:
    """Draw one of the two: machines apart, as they have other numbers."""
    colors = {}
    axes.xaxis.update_units(history["date"].astype(str))  # else machine by machine
    for _, one in history.groupby(list(MACHINE), dropna=False):
        for name in one:
            workload, _, measured = name.partition(" ")
            if measured != what:
                continue
            told = workload not in colors
            colors.setdefault(workload, f"C{len(colors)}")
            axes.plot(
                one["date"].astype(str),
                one[name],
                "o-",
                ms=4,
                color=colors[workload],
                label=workload if told else None,
            )
    axes.set_title(what, fontsize="medium")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    draw(read(), PICTURE)
