"""The arena's table with controls: how a number changes with difficulty or told K.

A family of a track is a federation at three levels: clusters that are harder to find,
or, on the track ``few-samples``, fewer samples. There is a menu for the family, one for
the measure, and one for the method with which the others are compared. Of methods that
are told a wrong number of clusters, the levels are these numbers.
"""

from typing import Any

import numpy as np
import pandas as pd

from ...errors import FltnbError
from ..lines import lines
from ..style import MEASURES, SMALL, label
from .explorer import Control, Explorer, many

SHOWN = ("accuracy", "worst", "ari", "n_clusters", "bytes", "seconds")
"""Measures that the menu offers."""
PERCENT = ("accuracy", "worst")
FIRST = ("FedAvg", "Local", "Oracle")
"""Shown at the start, with the three methods of the best mean ranks."""


class ArenaExplorer(Explorer):
    """One family of the arena: a measure by level, and the lead over a method.

    Parameters
    ----------
    table : Table
        Result of :func:`fltnb.arena.everybody`, or of another function for a table.

    Raises
    ------
    FltnbError
        No method was played at two levels of a family.

    Examples
    --------
    >>> import fltnb as fl
    >>> from fltnb import arena
    >>> table = arena.everybody(["FedAvg", "Local"], ["told-K"], seeds=[0])
    >>> seen = fl.explore(table, against="Local", live=False)
    >>> seen.text
    'told-K, labels: 2 methods, one seed.'
    >>> seen.move(y="worst").at["y"]
    'worst'
    """

    def __init__(self, table: Any):
        runs = table.runs
        family = runs["track"] + ", " + runs["family"]
        self._axis = "level"
        if "off" in runs:
            self._axis = "told K minus true K"
            runs = runs.assign(level=runs["off"].map("{:+d}".format))
        self._runs = runs.assign(federation=family)
        self._ids = table.ids
        levels = self._runs.groupby("federation")["level"].nunique()
        federations = [name for name in family.unique() if levels[name] > 1]
        if not federations:
            raise FltnbError(
                "The table has no family at two levels: give one with the runs of "
                "whole tracks."
            )

        methods = runs["method"].unique().tolist()
        best = [name for name in table.ranks().index if name not in FIRST]
        start = [name for name in (*best[:3], *FIRST) if name in methods]
        against = start[-1]
        if "FedAvg" in methods:
            against = "FedAvg"
        measures = [name for name in SHOWN if runs[name].notna().any()]
        controls = {
            "federation": Control(federations[0], federations),
            "y": Control(measures[0], measures),
            "against": Control(against, methods),
            "methods": Control(tuple(start), methods),
        }
        super().__init__(controls, (10.5, 4.2))
        room = {"left": 0.07, "right": 0.97, "bottom": 0.13, "top": 0.9, "wspace": 0.5}
        self._axes = self.canvas.figure.subplots(1, 2, gridspec_kw=room)

    def _draw(self, moved: set[str]) -> None:
        """Draw both panels, and write the sentence and the table below them.

        Everything is drawn again, whatever has ``moved``.
        """
        y = self.at["y"]
        runs = self._runs[self._runs["federation"] == self.at["federation"]]
        means = runs.pivot_table(y, "method", "level", sort=False)
        means = means.reindex(columns=runs["level"].unique())
        shown = [name for name in self.at["methods"] if name in means.index]
        table = means.loc[shown].rename(index=self._label)
        self.table = table.round(2).to_html(border=0, na_rep="")

        n_seeds = runs["seed"].nunique()
        seeds = "one seed" if n_seeds == 1 else f"{n_seeds} seeds"
        methods = many(len(shown), "method")
        self.text = f"{self.at['federation']}: {methods}, {seeds}."
        for ax in self._axes:
            ax.clear()
        left, right = self._axes
        self._draw_levels(left, runs[runs["method"].isin(shown)])
        self._draw_leads(right, means, shown)

    def _draw_levels(self, ax: Any, runs: pd.DataFrame) -> None:
        """Draw the measure against the level or told K, a line for each method.

        Methods without clusters have no ARI, and failed runs no bytes: if nothing is
        known, the title says so.
        """
        y = self.at["y"]
        known = runs[runs[y].notna()]
        if known.empty:
            ax.set_title(f"{label(y)} is not known for these methods", fontsize=SMALL)
            return
        points = known.assign(method=known["method"].map(self._ids))
        lines(points, "level", y, ax=ax)
        ax.set_title(MEASURES.get(y) or label(y), fontsize=SMALL)
        ax.set(xlabel=self._axis, ylabel="")

    def _draw_leads(self, ax: Any, means: pd.DataFrame, shown: list[str]) -> None:
        """Draw how far each method is ahead of the one in the menu, at each level.

        The colours are symmetric around 0, so that a method that is behind at one level
        and ahead at another can be seen; a cell without a number stays empty.

        Parameters
        ----------
        ax : Axes
        means : DataFrame
            Method x level.
        shown : list of str
            Methods, from the top.
        """
        import seaborn as sns

        other = self.at["against"]
        y = self.at["y"]
        rows = [name for name in shown if name != other]
        if other not in means.index or not rows:
            ax.set_title(f"{other} did not play here, or alone", fontsize=SMALL)
            return
        leads = means.loc[rows] - means.loc[other]
        most = np.nanmax(np.abs(leads.to_numpy()), initial=1.0)
        sns.heatmap(
            leads,
            ax=ax,
            cmap="PuOr",
            vmin=-most,
            vmax=most,
            cbar=False,
            annot=True,
            fmt="+.1f" if y in PERCENT else "+.2g",
            annot_kws={"fontsize": SMALL},
            yticklabels=[self._label(name) for name in rows],
        )
        ax.set(xlabel="", ylabel="")
        ax.tick_params(axis="y", rotation=0)
        ax.set_title(f"{label(y)}: above {self._label(other)}", fontsize=SMALL)

    def _label(self, method: str) -> str:
        """Return the displayed name of a class of the arena."""
        return label(self._ids[method])
