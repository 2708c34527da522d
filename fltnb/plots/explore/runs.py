"""Stored trainings with controls: curves, every client, and a table.

There is a control for each column in which the trainings differ, one for the measure,
and one for the methods that are shown.
"""

from typing import Any

import numpy as np
import pandas as pd

from ...errors import FltnbError
from ..lines import lines
from ..runs import spread
from ..style import MEASURES, SMALL, label, style
from .explorer import Control, Explorer, many


class RunsExplorer(Explorer):
    """Curves, every client, and the table of selected trainings.

    Parameters
    ----------
    results : Results
        Results of :func:`fltnb.results`.

    Raises
    ------
    FltnbError
        There is no training among them.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.results("01").where(dataset="mnist", method=["local", "fedavg"])
    >>> seen = fl.explore(found, variant="as_run", live=False)
    >>> sorted(seen.at["methods"])
    ['fedavg', 'local']
    """

    def __init__(self, results: Any):
        runs = results.runs[results.runs["kind"] == "training"]
        if runs.empty:
            raise FltnbError(
                "There is no training among these results: "
                "explore the arrays of one of its clusterings."
            )
        self._runs = runs
        self._curves = results.curves
        self._clients = results.clients

        self._columns = []
        for name in ("dataset", "variant", *results.axes):
            if runs[name].nunique(dropna=False) > 1:
                self._columns.append(name)
        measured = runs.columns[runs.notna().any()]
        measures = [name for name in MEASURES if name in measured]

        # The options of columns and methods depend on the selection: :meth:`_chosen`.
        controls = {name: Control(None, []) for name in self._columns}
        controls["y"] = Control(measures[0], measures)
        controls["methods"] = Control((), [])
        super().__init__(controls, (10.5, 3.8))
        room = {
            "left": 0.07,
            "right": 0.99,
            "bottom": 0.14,
            "top": 0.93,
            "wspace": 0.45,
        }
        self._axes = self.canvas.figure.subplots(1, 2, gridspec_kw=room)

    def _draw(self, moved: set[str]) -> None:
        """Draw both panels, and write the sentence and the table below them.

        The table has the mean over seeds of every measure, a row for each method.
        Everything is drawn again, whatever has ``moved``.
        """
        runs = self._chosen()
        by_method = runs.groupby("method", sort=False)
        means = by_method[self.allowed["y"]].mean()
        means = means.dropna(axis=1, how="all")
        means["runs"] = by_method.size()
        table = means.rename(index=label).round(2)
        self.table = table.to_html(border=0, na_rep="")

        self.text = f"{many(len(runs), 'run')} of {many(len(means), 'method')}"
        chosen = []
        for name in self._columns:
            value = label(self.at[name]) or "default"
            chosen.append(f"{label(name)} {value}")
        if chosen:
            self.text += f": {', '.join(chosen)}"
        self.text += "."

        for ax in self._axes:
            ax.clear()
        left, right = self._axes
        self._draw_curves(left, runs["key"])
        self._draw_clients(right, runs["key"], list(means.index))

    def _chosen(self) -> pd.DataFrame:
        """Return the selected runs.

        Each column offers the values that remain after the choices before it. A value
        that is no longer offered is replaced by the first that is. If none of the
        chosen methods is left, all are chosen.
        """
        runs = self._runs
        for name in self._columns:
            column = runs[name]
            values = column.astype(object).where(column.notna(), "")
            offered = values.unique().tolist()
            # what was run without the option comes first
            offered.sort(key=lambda value: value != "")
            self.allowed[name] = offered
            if self.at[name] not in offered:
                self.at[name] = offered[0]
            runs = runs[values == self.at[name]]

        methods = runs["method"].unique().tolist()
        kept = [name for name in methods if name in self.at["methods"]]
        self.allowed["methods"] = methods
        self.at["methods"] = tuple(kept or methods)
        return runs[runs["method"].isin(self.at["methods"])]

    def _draw_curves(self, ax: Any, keys: pd.Series) -> None:
        """Draw the measure against the round, on the test split.

        A measure that is not known round by round is not drawn, and the title says so.

        Parameters
        ----------
        ax : Axes
        keys : Series
            Of the runs.
        """
        y = self.at["y"]
        curves = self._curves
        curves = curves[curves["key"].isin(keys)]
        curves = curves[curves["split"] == "test"]
        if y not in curves or curves[y].isna().all():
            title = f"{label(y)}: of the last round only, see the table"
            ax.set_title(title, fontsize=SMALL)
            return
        lines(curves, "round", y, ax=ax)
        # the names beside the clients have the same colours
        if ax.get_legend():
            ax.get_legend().remove()
        ax.set_title("test split; bands: lowest to highest seed", fontsize=SMALL)

    def _draw_clients(self, ax: Any, keys: pd.Series, methods: list[str]) -> None:
        """Draw the accuracy of every client, a row for each method.

        Parameters
        ----------
        ax : Axes
        keys : Series
            Of the runs.
        methods : list of str
            From the top.
        """
        count = len(methods)
        clients = self._clients
        clients = clients[clients["key"].isin(keys)]
        for place, name in enumerate(methods):
            own = clients.loc[clients["method"] == name, "test"].astype(float)
            beside = spread(np.full(len(own), place))
            ax.plot(own, beside, ".", ms=3, color=style(name).color, alpha=0.5)
            ax.plot(own.median(), place, "|", ms=200 / (count + 1), color="black")

        # names on the left, in the colours of the curves
        names = [label(name) for name in methods]
        size = 10 if count < 12 else 8.5
        ax.set_yticks(range(count), names, fontsize=size)
        for name, text in zip(methods, ax.get_yticklabels(), strict=True):
            text.set(color=style(name).color, weight="bold")
        ax.set_ylim(count - 0.5, -0.5)
        ax.set_xlabel("test accuracy of every client, median (%)")
