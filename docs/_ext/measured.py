"""What a method or clusterer measured in notebook 15: pictures and lines of numbers.

``{measured} flt flt_given`` takes ids of that notebook. A picture has a row for each
kind of federation (or difficulty), a grey dot for every other method, and a coloured
one. A method may have two: in the arena, and on ten other federations.
"""

import functools
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import ClassVar

import pandas as pd
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import fltnb as fl
from fltnb import arena, paths
from fltnb.arena.entry import TRUE_CLUSTERS
from fltnb.papers import label

NOTEBOOK = "15"
FARTHEST = 40  # points behind the best that are still drawn
OTHERS = "#b5b5b5"


@functools.cache
def played() -> pd.DataFrame:
    """Return runs of the arena by track and family: points behind the best."""
    runs = arena.everybody().whole().runs
    runs["row"] = runs["track"] + ": " + runs["family"]
    means = runs.groupby(["row", "method"], sort=False)
    means = means[["accuracy", "ari", "bytes"]].mean().reset_index()
    rivals = means[~means["method"].isin(TRUE_CLUSTERS)]
    best = rivals.groupby("row")["accuracy"].max()
    means["value"] = means["accuracy"] - means["row"].map(best)
    ids = {name: kind.name for name, kind in fl.methods.METHODS.items()}
    return means.assign(method=means["method"].map(ids)).dropna(subset="method")


@functools.cache
def trained() -> pd.DataFrame:
    """Return trainings of notebook 15 by federation: points behind the best, costs."""
    runs = fl.results(NOTEBOOK).runs
    runs = runs[(runs["kind"] == "training") & (runs["federation"] != "")]
    means = runs.groupby(["federation", "method"], sort=False)
    means = means[["accuracy", "ari", "bytes", "seconds"]].mean().reset_index()
    rivals = means[means["method"] != "oracle"]
    best = rivals.groupby("federation")["accuracy"].max()
    means["value"] = means["accuracy"] - means["federation"].map(best)
    return means.rename(columns={"federation": "row"})


@functools.cache
def clustered() -> pd.DataFrame:
    """Return clusterings of notebook 15 by difficulty: the mean ARI, K not told."""
    runs = fl.results(NOTEBOOK).runs
    runs = runs[(runs["kind"] == "clustering") & ~runs["k_given"].fillna(True)]
    means = runs.groupby(["difficulty", "method"], sort=False)["ari"].mean()
    return means.reset_index().rename(columns={"difficulty": "row", "ari": "value"})


@functools.cache
def elsewhere() -> dict[str, list[str]]:
    """Return in which notebooks a method was run: id -> notebooks."""
    found: dict[str, list[str]] = {}
    for file in sorted((paths.ROOT / "results" / "ledger").glob("*.csv")):
        methods = pd.read_csv(file, usecols=["method"], dtype=str)["method"].dropna()
        for method in methods.unique():
            found.setdefault(method, []).append(file.stem)
    return found


def signed(value: float) -> str:
    """Return a number with a true minus."""
    return f"{value:g}".replace("-", "−")


def dots(rows: pd.DataFrame, method: str, low: float, high: float, axis: str) -> str:
    """Return a picture (HTML) of a method's values among all others', row by row.

    Its dots are placed in percent of its width; on a phone a row's name is above them.
    """

    def x(value: float) -> str:
        return f"{100 * (min(max(value, low), high) - low) / (high - low):.1f}%"

    color = fl.plots.style(method).color
    said = f"{label(method)} among {rows['method'].nunique() - 1} others: {axis}"
    parts = [f'<div class="measured" role="img" aria-label="{escape(said)}">']
    for name, here in rows.groupby("row", sort=False):
        line = '<line x1="0" x2="100%" y1="50%" y2="50%"/>'
        parts.append(f"<span>{escape(name)}</span><svg>{line}")
        for one in here.sort_values("method", key=lambda m: m == method).itertuples():
            size, fill = (6, color) if one.method == method else (3, OTHERS)
            at = f'cx="{x(one.value)}" cy="50%"'
            parts.append(f'<circle {at} r="{size}" fill="{fill}"/>')
        parts.append("</svg>")
    ticks = [signed(value) for value in (low, (low + high) / 2, high)]
    if rows["value"].min() < low:
        ticks[0] = f"≤ {ticks[0]}"
    if rows["value"].max() > high:
        ticks[-1] = f"≥ {ticks[-1]}"
    marks = "".join(f"<span>{tick}</span>" for tick in ticks)
    parts.append(f'<div class="ticks">{marks}</div>')
    parts.append(f'<div class="axis">{escape(axis)}; grey: other methods</div></div>')
    return "".join(parts)


def means_of(own: pd.DataFrame) -> str:
    """Say a method's means: accuracy behind the best, clusters, and what it sent."""
    ahead = own["value"].mean().round(1)
    where = "ahead of the best other" if ahead > 0 else "behind the best"
    found = own["ari"].mean()
    clusters = "" if pd.isna(found) else f", mean ARI {found:.2f}"
    return (
        f"{abs(ahead):.1f} points {where}{clusters}, "
        f"{own['bytes'].mean() / 1e6:,.0f} MB sent"
    )


class Measured(SphinxDirective):
    """Show what was measured, or say where the runs are."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {}

    def run(self) -> list[nodes.Node]:
        """Take the first id that notebook 15 has, for the picture."""
        self.env.note_dependency(str(paths.ROOT / "results/ledger/15_head_to_head.csv"))
        ids = self.arguments[0].split()
        self.env.note_dependency(str(paths.ROOT / "results/arena/runs.csv"))
        if "clusterers" in self.env.docname:
            axis = "ARI, K not told (1: all clusters found)"
            shown = self._shown(clustered(), ids, self._of_clusterer, (0, 1, axis))
        else:
            axis = "points of accuracy behind the best method"
            look = (-FARTHEST, 0, axis)
            shown = self._shown(played(), ids, self._of_arena, look)
            shown += self._shown(trained(), ids, self._of_method, look)
        return shown or self.parse_text_to_nodes(self._without(ids))

    def _shown(
        self,
        rows: pd.DataFrame,
        ids: list[str],
        line: Callable[[pd.DataFrame, str], str],
        look: tuple[float, float, str],
    ) -> list[nodes.Node]:
        """Return a line for each id that the rows have, and a picture of the first.

        ``look``: lowest and highest value of the picture, and the name of its axis.
        """
        there = [one for one in ids if one in set(rows["method"])]
        if not there:
            return []
        text = "".join(line(rows[rows["method"] == one], one) for one in there)
        drawn = nodes.raw("", dots(rows, there[0], *look), format="html")
        return [*self.parse_text_to_nodes(text), drawn]

    def _of_clusterer(self, own: pd.DataFrame, method: str) -> str:
        where = f"in [notebook 15]({self._to('15_head_to_head')})"
        return (
            f"**Measured.** {label(method)}, not told K, {where}: mean ARI "
            f"{own['value'].mean():.2f} over {len(own)} kinds of difficulty.\n\n"
        )

    def _of_arena(self, own: pd.DataFrame, method: str) -> str:
        where = f"[arena]({self._to('15_head_to_head')})"
        return (
            f"**Measured.** {label(method)} in the {where}, mean of {len(own)} kinds "
            f"of federation: {means_of(own)} in 20 rounds of 20 clients.\n\n"
        )

    def _of_method(self, own: pd.DataFrame, method: str) -> str:
        where = f"[ten other federations]({self._to('15_head_to_head')})"
        return (
            f"{label(method)} on {where}, mean of {len(own)}: {means_of(own)} and "
            f"{own['seconds'].mean():.0f} s on two cores in ten rounds of 20 "
            "clients.\n\n"
        )

    def _without(self, ids: list[str]) -> str:
        notebooks = [name for one in ids for name in elsewhere().get(one, [])]
        if not notebooks:
            return "**Measured.** Not yet: no stored result has it.\n"
        links = [f"[{name}]({self._to(name)})" for name in sorted(set(notebooks))]
        return (
            f"**Measured.** Not in notebook 15; its runs are in {', '.join(links)}.\n"
        )

    def _to(self, notebook: str) -> str:
        depth = len(Path(self.env.docname).parts) - 1
        return f"{'../' * depth}notebooks/{notebook}.ipynb"


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
