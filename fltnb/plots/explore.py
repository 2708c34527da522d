"""An explorer for JupyterLab: what if the threshold, k or the number of clusters were another? ``docs/explorer.md``.

Pictures are drawn here and sent as PNGs; the browser (``explore.js``) shows them and says which client was clicked.
"""

import base64
import functools
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import anywidget
import ipywidgets as widgets
import numpy as np
import traitlets
from IPython import display, get_ipython
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.base import clone
from sklearn.decomposition import PCA

from ..clustering import FCR, ClientClusterer, EMDClustering
from ..clustering.centroids import CentroidClusterer
from ..clustering.cuts import (
    best_cut,
    chance_modularity,
    cut,
    modularity_by_cut,
    relabel,
    rows_linkage,
)
from ..clustering.eigen import REASONABLE, silhouettes
from ..clustering.emd import farther
from ..errors import FltnbError, choose
from ..metrics import adjusted_rand_index
from ..results import Results
from .runs import lines, spread
from .style import CLUSTERS, MEASURES, label, style

FITTED, MODULARITY, SILHOUETTE, GAP = (
    "as fitted",
    "modularity",
    "silhouette",
    "largest gap",
)
EQUAL, BELOW, GIVEN = "equal neighbours", "below the threshold", "C given"
REFITTED = (
    "k",
    "n_eigenvectors",
    "n_vectors",
)  # options of clusterers that decide what a client sends
MOST_LINKS, MOST_CELLS = 4000, 320  # more cannot be seen
HINT = "Move the controls, click a client. A still picture comes alive when its cell is run in JupyterLab."
NAMES = {
    "rule": "rule for C",
    "n_clusters": "C",
    "y": "measure",
}  # of controls, where not their own


class Picture(anywidget.AnyWidget):
    """A PNG in the browser that says which client was clicked."""

    _esm = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    png = traitlets.Bytes().tag(sync=True)
    spots = traitlets.Bytes().tag(
        sync=True
    )  # float32 (n, 5): client, left, top, right, bottom, as shares
    client = traitlets.Int(-1).tag(sync=True)


class Explorer:
    """A picture that follows controls; what :func:`explore` returns.

    Attributes
    ----------
    at, allowed : dict, where the controls stand, and what each allows: a list of values, or (lowest, highest)
    png, text : bytes, str, the picture now, and what it shows in a line
    widget : ipywidgets.VBox or None, what a live notebook shows
    """

    widget, table, spots = None, "", np.empty((0, 5), dtype=np.float32)

    def __init__(
        self, controls: dict[str, tuple[Any, list | tuple]], size: tuple[float, float]
    ):
        self.at, self.allowed = (
            {name: both[i] for name, both in controls.items()} for i in (0, 1)
        )
        self.canvas = FigureCanvasAgg(Figure(size, dpi=100))

    def move(self, **to: Any) -> Self:
        """Set controls, draw again what depends on them, and return the explorer itself."""
        for name, value in to.items():
            allowed = self.allowed[choose(name, self.at, "control")]
            if isinstance(allowed, list):
                for one in value if name == "methods" else [value]:
                    choose(one, allowed, name)
            elif not allowed[0] <= value <= allowed[1]:
                raise FltnbError(
                    f"{name} goes from {allowed[0]} to {allowed[1]:.4g}, but {value} was asked for."
                )
        before, self.at = self.at, self.at | to
        try:
            self._draw(set(to or self.at))
        except FltnbError:  # for instance, more centroids than a client has samples
            self.at = before
            raise
        self.canvas.draw()
        self._drawn = Image.fromarray(np.asarray(self.canvas.buffer_rgba())[..., :3])
        self.png = _written(self._drawn, compress_level=3)
        return self

    def _ipython_display_(self) -> None:
        data = {} if self.widget is None else self.widget._repr_mimebundle_()
        kept = _written(
            self._drawn.quantize(64), optimize=True
        )  # may take longer to write, and less room
        data |= {"image/png": base64.b64encode(kept).decode(), "text/plain": self.text}
        display.display(data, raw=True)
        display.display(
            display.Markdown(f"*{HINT}*" if self.widget else f"{self.text} *{HINT}*")
        )

    def animate(self) -> None:
        """Make the controls, with the picture in a widget."""
        self._view, self._said, self._under = Picture(), widgets.HTML(), widgets.HTML()
        self._controls = {}
        for name, allowed in self.allowed.items():
            look = {"description": NAMES.get(name, label(name))}
            slide = look | {"continuous_update": len(self.spots) < 5000}
            if isinstance(allowed, list):
                control = (
                    widgets.SelectMultiple(**look)
                    if name == "methods"
                    else widgets.Dropdown(**look)
                )
            elif isinstance(allowed[1], float):
                step = 10.0 ** np.floor(
                    np.log10(allowed[1] / 50)
                )  # a round number: the browser rounds to steps
                control = widgets.FloatSlider(
                    max=allowed[1], step=step, readout_format=".3g", **slide
                )
            else:
                control = widgets.IntSlider(min=allowed[0], max=allowed[1], **slide)
            control.observe(functools.partial(self._moved, name), "value")
            self._controls[name] = control
        self._view.observe(functools.partial(self._moved, "client"), "client")
        row = widgets.Box(
            list(self._controls.values()), layout=widgets.Layout(flex_flow="row wrap")
        )
        self.widget = widgets.VBox([row, self._said, self._view, self._under])
        self._push()

    def _moved(self, name: str, change) -> None:
        if not self._busy:  # else the explorer itself moved that control
            try:
                self.move(**{name: change.new})
            except FltnbError as error:
                self._said.value = str(error)
            else:
                self._push()

    def _push(self) -> None:
        """Send what changed to the browser."""
        self._busy = True
        for name, control in self._controls.items():
            if isinstance(allowed := self.allowed[name], list):
                options = [
                    (MEASURES.get(one) or label(one) or "default", one)
                    for one in allowed
                ]
                if list(control.options) != options:
                    control.options = options
            control.value = self.at[name]
        with self._view.hold_sync():
            self._view.spots, self._view.png = self.spots.tobytes(), self.png
            self._view.client = self.at.get("client", -1)
        self._said.value, self._under.value, self._busy = self.text, self.table, False


class ClientsExplorer(Explorer):
    """Map, links, dendrogram, client graph, accuracy and samples; ``links`` (M, M), ``labels`` (M,) as they are now."""

    def __init__(self, source, X, samples, truth, accuracy, asked):
        kept, of_links = (
            isinstance(source, Mapping),
            isinstance(source, CentroidClusterer),
        )
        self._rows = (
            source.linkage if of_links else None
        )  # then the dendrogram is one of the rows of the links
        self._truth = source.get("clusters") if truth is None and kept else truth
        far, tree, labels, _ = fit = _taken(source)
        given = {
            "X": X,
            "samples": samples,
            "truth": self._truth,
            "accuracy": accuracy,
            "labels": labels,
        }
        for name, one in (
            given | {"linkage": [*tree, None]}
        ).items():  # of M clients it has M - 1 rows
            if one is not None and len(one) != len(far):
                raise FltnbError(
                    f"{name} is of {len(one)} clients, not of the {len(far)} clustered: give all."
                )
        if samples is not None and np.ndim(samples[0]) not in (3, 4):
            raise FltnbError(
                "samples must be images, (n, H, W) or (n, H, W, 3) for each client, not vectors."
            )
        options = {} if kept else source.get_params(deep=False)
        again = next(
            (
                name
                for name in REFITTED
                if X is not None and isinstance(options.get(name), int)
            ),
            None,
        )
        self._source, self._X, self._again, self._fits = (
            source,
            X,
            again,
            {options.get(again): fit},
        )
        self._samples, self._accuracy, self._most = (
            samples,
            accuracy,
            options.get("max_clusters"),
        )

        count, found = len(far), int(labels.max()) + 1
        heights = np.concatenate([[0.0], tree[:, 2], tree[-1:, 2] * 1.1])
        between = heights[
            count - found : count - found + 2
        ].mean()  # the last merge done, and the first not done
        threshold = float(
            getattr(source, "tolerance_", options.get("threshold", between))
        )
        controls = {
            "threshold": (
                threshold,
                (0.0, max(float(np.percentile(far, 99)), 2 * threshold, asked)),
            )
        }
        if again:
            controls[again] = options[again], (1, max(10, options[again]))
        rules = [MODULARITY, SILHOUETTE, GAP, EQUAL, GIVEN]
        if of_links:
            rule = MODULARITY if source.n_clusters is None else GIVEN
        else:
            equal = isinstance(source, EMDClustering) and source.n_clusters is None
            rules, rule = [FITTED, *rules, BELOW], EQUAL if equal else FITTED
        controls |= {
            "rule": (rule, rules),
            "n_clusters": (found, (1, count)),
            "client": (0, (0, count - 1)),
        }
        panels = ["map", "links", "dendrogram", "client graph"]
        panels += ["test accuracy, by cluster"] * (accuracy is not None) + [
            "samples"
        ] * (samples is not None)
        columns = 2 if len(panels) == 4 else 3
        super().__init__(controls, (3.5 * columns, 6.4))
        room = {
            "left": 0.03,
            "right": 0.99,
            "bottom": 0.03,
            "top": 0.95,
            "wspace": 0.08,
            "hspace": 0.12,
        }
        grid = np.reshape(
            panels + ["."] * (2 * columns - len(panels)), (2, columns)
        ).tolist()
        self._axes = self.canvas.figure.subplot_mosaic(grid, gridspec_kw=room)
        for name, ax in self._axes.items():
            ax.set(xticks=[], yticks=[], frame_on=False)
            ax.set_title(
                name, fontsize=9, y=1.01
            )  # left to find its place, a title takes longer than all the rest

    def _draw(self, moved: set[str]) -> None:
        at = self.at
        if "n_clusters" in moved and "rule" not in moved:
            at["rule"] = GIVEN
        if moved - {"client"}:
            if (again := at.get(self._again)) not in self._fits:
                self._fits[again] = _taken(
                    clone(self._source).set_params(**{self._again: again}).fit(self._X)
                )
            self._group(*self._fits[again])
            at["n_clusters"] = int(self.labels.max()) + 1
        client, truth, labels = at["client"], self._truth, self.labels
        ari = (
            ""
            if truth is None
            else f", ARI {adjusted_rand_index(truth, labels):.2f} with the true ones"
        )
        self.text = f"{len(labels)} clients, {at['n_clusters']} cluster{'s' * (at['n_clusters'] > 1)}{ari}. Client "
        self.text += f"{client}: cluster {labels[client]}, linked to {self.links[client].sum() - 1}"
        self.text += "" if truth is None else f", true cluster {truth[client]}"
        self.text += (
            "."
            if self._accuracy is None
            else f", test accuracy {self._accuracy[client]:.1f}%."
        )
        if self._samples is not None:
            images = np.asarray(
                self._samples[client]
            )  # evenly spread over its samples, 4 rows of 6, lines between
            few = images[np.linspace(0, len(images) - 1, 24).astype(int)]
            few = np.pad(
                few,
                [(0, 0), (0, 1), (0, 1), (0, 0)][: few.ndim],
                constant_values=few.max(),
            )
            rows = [
                np.concatenate([*row], axis=1)
                for row in few.reshape(4, 6, *few.shape[1:])
            ]
            self._clean("samples").imshow(np.concatenate(rows), cmap="gray")

    def _group(
        self, far: np.ndarray, tree: np.ndarray, labels: np.ndarray, points: np.ndarray
    ) -> None:
        """Find links, dendrogram and labels at this threshold, by this rule, and draw them."""
        threshold, rule, count = (
            self.at[name] for name in ("threshold", "rule", "n_clusters")
        )
        links = self.links = (far < threshold) | np.eye(len(far), dtype=bool)
        tree = self.tree = rows_linkage(links, self._rows) if self._rows else tree
        if rule == EQUAL:
            labels = np.unique(np.packbits(links, 1), axis=0, return_inverse=True)[
                1
            ].reshape(-1)
        elif rule == BELOW:
            labels = fcluster(tree, threshold, "distance")
        elif rule != FITTED:
            if rule == MODULARITY:
                count = best_cut(
                    modularity_by_cut(links, tree), chance_modularity(links), self._most
                )
            elif rule == SILHOUETTE:
                count = best_cut(silhouettes(far, tree, 10), REASONABLE)
            elif rule == GAP:
                count = (
                    len(tree)
                    - int(np.diff(tree[:, 2], append=tree[-1, 2])[:-1].argmax())
                    if len(tree) > 1
                    else 1
                )
            labels = cut(tree, count)
        labels = self.labels = relabel(labels)

        count, spots = len(labels), []
        order, free = leaves_list(tree), np.full(len(labels), np.nan)
        rank = np.argsort(order) + 0.5
        palette = to_rgba_array([*CLUSTERS])
        colors = palette[labels % len(palette)]

        def dots(ax, points: np.ndarray) -> None:
            """Points of all clients, (M, 2) or (M, k, 2)."""
            each, flat = points.size // count // 2, points.reshape(-1, 2)
            ax.scatter(
                *flat.T,
                s=max(2.0, min(30.0, 2500 / count)),
                c=np.repeat(colors, each, axis=0),
                lw=0,
                zorder=3,
            )
            spots.append(_spots(ax, flat, each))

        dots(self._clean("map"), points)

        ax, step, wide = (
            self._clean("links"),
            -(-count // MOST_CELLS),
            0.04 * count,
        )  # step: clients to a cell
        cells = np.pad(
            links[np.ix_(order, order)].astype(np.float32), (0, -count % step)
        )
        cells = cells.reshape(len(cells) // step, step, -1, step).mean((1, 3))
        look = {"interpolation": "nearest", "aspect": "auto"}
        ax.imshow(
            cells,
            cmap="Greys",
            vmin=0,
            vmax=1,
            extent=(0, len(cells) * step, len(cells) * step, 0),
            **look,
        )
        for left, own in ((-1.5 * wide, labels), (-2.7 * wide, self._truth)):
            if own is not None:
                strip = palette[np.asarray(own)[order, None] % len(palette)]
                ax.imshow(strip, extent=(left, left + wide, count, 0), **look)
        ax.set(xlim=(-3 * wide, count), ylim=(count, 0))
        ax.title.set_text(
            f"links, and {'' if self._truth is None else 'true and '}found clusters"
        )
        spots.append(_spots(ax, np.stack([free, rank], 1)))

        ax, (parts, of) = self._clean("dendrogram"), _branches(tree, rank, labels)
        hues = np.where(
            of[:, None] < 0, to_rgba_array("0.33"), palette[of % len(palette)]
        )
        ax.add_collection(LineCollection(parts, colors=hues, lw=0.8))
        ax.set(xlim=(0, count), ylim=(0, 1.05 * max(tree[-1, 2], 1e-9)))
        if rule == BELOW:
            ax.axhline(threshold, color="0.5", lw=0.8, ls="--")
        spots.append(_spots(ax, np.stack([rank, free], 1)))

        ax, turn = self._clean("client graph"), 2 * np.pi * rank / count
        ring, pairs = (
            np.stack([np.sin(turn), np.cos(turn)], 1),
            np.argwhere(np.triu(links, 1)),
        )
        few = pairs[:: max(1, -(-len(pairs) // MOST_LINKS))]
        across = labels[few[:, 0]] != labels[few[:, 1]]
        for part, hue in (
            (few[~across], colors[few[~across, 0]]),
            (few[across], "#222222"),
        ):
            ax.add_collection(LineCollection(ring[part], colors=hue, lw=0.6, alpha=0.6))
        drawn = f", {len(few):,} drawn" if len(few) < len(pairs) else ""
        ax.title.set_text(f"client graph: {len(pairs):,} links{drawn}")
        dots(ax, ring)
        if self._accuracy is not None:
            ax = self._clean("test accuracy, by cluster")
            dots(ax, np.stack([spread(labels), self._accuracy], 1))
            ax.yaxis.set_major_locator(MaxNLocator(5))
            ax.tick_params("y", direction="in", pad=-22, labelsize=8)
        self.spots = np.concatenate(spots).astype(np.float32)

    def _clean(self, name: str):
        ax = self._axes[name]
        for old in [
            *ax.collections,
            *ax.images,
            *ax.lines,
        ]:  # ax.clear() takes as long as drawing everything
            old.remove()
        ax.relim()
        return ax


class RunsExplorer(Explorer):
    """Curves, every client, and the table of stored trainings, for what is chosen."""

    def __init__(self, results: Results):
        runs = results.runs[results.runs["kind"] == "training"]
        if runs.empty:
            raise FltnbError(
                "There is no training among these results: explore the arrays of one of its clusterings."
            )
        self._runs, self._curves, self._clients = runs, results.curves, results.clients
        self._columns = [
            name
            for name in ("dataset", "variant", *results.axes)
            if runs[name].nunique(dropna=False) > 1
        ]
        measures = [
            name for name in MEASURES if name in runs and runs[name].notna().any()
        ]
        chosen = {name: (None, []) for name in self._columns}
        super().__init__(
            chosen | {"y": (measures[0], measures), "methods": ((), [])}, (10.5, 3.8)
        )
        room = {
            "left": 0.07,
            "right": 0.99,
            "bottom": 0.14,
            "top": 0.93,
            "wspace": 0.45,
        }
        self._axes = self.canvas.figure.subplots(1, 2, gridspec_kw=room)

    def _draw(self, moved: set[str]) -> None:
        at, allowed, runs = self.at, self.allowed, self._runs
        for (
            name
        ) in self._columns:  # each column offers what the choices before it leave
            values = runs[name].astype(object).where(runs[name].notna(), "")
            allowed[name] = sorted(dict.fromkeys(values), key=lambda one: one != "")
            at[name] = at[name] if at[name] in allowed[name] else allowed[name][0]
            runs = runs[values == at[name]]
        allowed["methods"] = list(dict.fromkeys(runs["method"]))
        at["methods"] = tuple(
            [name for name in allowed["methods"] if name in at["methods"]]
            or allowed["methods"]
        )
        runs = runs[runs["method"].isin(at["methods"])]
        by = runs.groupby("method", sort=False)
        means = by[allowed["y"]].mean().dropna(axis=1, how="all").assign(runs=by.size())
        self.table = means.rename(index=label).round(2).to_html(border=0, na_rep="")
        where = ", ".join(
            f"{label(name)} {label(at[name]) or 'default'}" for name in self._columns
        )
        self.text = (
            f"{len(runs)} runs of {len(means)} methods{': ' * bool(where)}{where}."
        )

        left, right = self._axes
        left.clear()
        right.clear()
        curves = self._curves[
            self._curves["key"].isin(runs["key"]) & (self._curves["split"] == "test")
        ]
        if at["y"] in curves and curves[at["y"]].notna().any():
            lines(curves, "round", at["y"], ax=left)
            left.get_legend().remove()  # the names beside the clients have the same colours
            left.set_title("test split; bands: lowest to highest seed", fontsize=9)
        else:
            left.set_title(
                f"{label(at['y'])}: of the last round only, see the table", fontsize=9
            )
        clients = self._clients[self._clients["key"].isin(runs["key"])]
        for place, name in enumerate(means.index):
            own = clients.loc[clients["method"] == name, "test"].to_numpy(dtype=float)
            right.plot(
                own,
                spread(np.full(len(own), place)),
                ".",
                ms=3,
                color=style(name).color,
                alpha=0.5,
            )
            right.plot(
                np.nanmedian(own), place, "|", ms=200 / (len(means) + 1), color="black"
            )
        right.set_yticks(
            range(len(means)),
            map(label, means.index),
            fontsize=10 if len(means) < 12 else 7,
        )
        for name, text in zip(means.index, right.get_yticklabels(), strict=True):
            text.set(color=style(name).color, weight="bold")
        right.set(
            ylim=(len(means) - 0.5, -0.5),
            xlabel="test accuracy of every client, median (%)",
        )


def explore(
    source: ClientClusterer | Mapping[str, np.ndarray] | Results,
    X: Sequence[np.ndarray] | None = None,
    *,
    samples: Sequence[np.ndarray] | None = None,
    truth: np.ndarray | None = None,
    accuracy: np.ndarray | None = None,
    live: bool | None = None,
    **start: Any,
) -> Explorer:
    """Explore a clustering of clients, or stored results: controls in JupyterLab, elsewhere a still picture.

    Returns an Explorer, which Jupyter displays. FltnbError: what was given does not fit together, or shows nothing.

    Parameters
    ----------
    source : fitted clusterer, mapping or Results
        A mapping: ``distance`` (M, M) and, if known, ``linkage``, ``labels`` and true ``clusters``, as jobs keep them.
    X : sequence of M arrays, optional, what the clusterer was fitted on: gives a slider for what a client sends (k)
    samples : sequence of M arrays, optional, the clients' images, (n_i, H, W) or (n_i, H, W, 3)
    truth, accuracy : array (M,), optional, true clusters; test accuracy of every client in percent
    live : bool, optional, controls or a still picture; None: controls where a front end started this kernel
    **start
        Controls to set first: ``threshold``, ``k``, ``rule`` (for C), ``n_clusters``, ``client``; of results the
        columns to choose (``dataset="mnist"``, ...), ``methods`` and ``y``, the measure.

    Examples
    --------
    >>> near = np.array([[0.0, 0.1, 0.9], [0.1, 0.0, 0.8], [0.9, 0.8, 0.0]])
    >>> seen = explore({"distance": near}, threshold=0.5, rule="equal neighbours", live=False)
    >>> seen.labels.tolist(), seen.move(threshold=0.05).labels.tolist()
    ([0, 0, 1], [0, 1, 2])
    """
    if isinstance(source, Results):
        explorer: Explorer = RunsExplorer(source)
    elif hasattr(source, "linkage_") or (
        isinstance(source, Mapping) and "distance" in source
    ):
        explorer = ClientsExplorer(
            source, X, samples, truth, accuracy, float(start.get("threshold", 0.0))
        )
    else:
        raise FltnbError(
            "Give explore a clusterer after fit, arrays with the clients' distance, or Results."
        )
    explorer.move()
    for name, value in start.items():
        explorer.move(**{name: value})
    if (
        live is None
    ):  # JupyterLab's or Notebook's server sets the variable; VS Code has a name of its own
        live = "JPY_SESSION_NAME" in os.environ or "__vsc_ipynb_file__" in getattr(
            get_ipython(), "user_ns", {}
        )
    if live:
        explorer.animate()
    return explorer


def _taken(
    source: ClientClusterer | Mapping[str, np.ndarray],
) -> tuple[np.ndarray, ...]:
    """Distances (M, M), the larger of both directions, linkage, labels (M,) and points (M, k, 2) of a clustering."""
    names = ("distance", "linkage", "labels")
    held = (
        source
        if isinstance(source, Mapping)
        else {name: getattr(source, f"{name}_") for name in names}
    )
    far = np.asarray(held["distance"], dtype=float)
    if far.ndim != 2 or not 1 < len(far) == far.shape[1]:
        raise FltnbError(
            f"distance must be (M, M), of two clients or more, not {far.shape}."
        )
    far = farther(far)
    far = np.minimum(
        far, far[np.isfinite(far)].max()
    )  # pairs that were not measured are far apart
    tree = (
        held["linkage"]
        if "linkage" in held
        else linkage(squareform(far, checks=False), "complete")
    )
    labels = np.asarray(held.get("labels", np.zeros(len(far))), dtype=np.int64)
    # without a map of its own, clients that are equally far from everybody are drawn together
    own = (
        source.embedding_[..., :2]
        if isinstance(source, FCR)
        else PCA(2, random_state=0).fit_transform(far)[:, None]
    )
    return far, tree, labels, own


def _written(picture: Image.Image, **how: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, "png", **how)
    return file.getvalue()


def _spots(ax, places: np.ndarray, each: int = 1) -> np.ndarray:
    """Where clients are in the picture, from ``each`` one's data coordinates (n, 2); NaN: all along that axis."""
    ax.autoscale_view()
    free, frame = np.isnan(places), ax.get_position()
    at = (
        ax.transData.transform(np.where(free, 0, places))
        / ax.figure.canvas.get_width_height()
    )
    low, high = np.where(free, frame.p0, at), np.where(free, frame.p1, at)
    return np.column_stack(
        [
            np.arange(len(places)) // each,
            low[:, 0],
            1 - high[:, 1],
            high[:, 0],
            1 - low[:, 1],
        ]
    )


def _branches(
    tree: np.ndarray, rank: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lines (M - 1, 4, 2) of a dendrogram over leaves at ``rank``, and each one's cluster, -1 above the clusters."""
    count, top, (left, right) = len(rank), tree[:, 2], tree[:, :2].astype(int).T
    x, of, height = (
        np.append(rank, top),
        np.append(labels, labels[1:]),
        np.append(np.zeros(count), top),
    )
    for step, (a, b) in enumerate(zip(left, right, strict=True), count):
        x[step], of[step] = (x[a] + x[b]) / 2, of[a] if of[a] == of[b] else -1
    corners = [
        (x[left], height[left]),
        (x[left], top),
        (x[right], top),
        (x[right], height[right]),
    ]
    return np.array(corners).transpose(2, 0, 1), of[count:]
