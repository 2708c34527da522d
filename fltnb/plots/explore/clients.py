"""A clustering with controls: map, links, dendrogram, client graph, samples."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.base import clone

from ...clustering import EMDClustering
from ...clustering.centroids import CentroidClusterer
from ...clustering.cuts import rows_linkage
from ...errors import FltnbError
from ...metrics import adjusted_rand_index
from . import panels
from .explorer import Control, Explorer
from .grouping import (
    BELOW,
    EQUAL,
    FITTED,
    GAP,
    GIVEN,
    MODULARITY,
    SILHOUETTE,
    Fit,
    grouped,
    like_found,
    taken,
)

# options of clusterers that decide what a client sends
REFITTED = ("k", "n_eigenvectors", "n_vectors")
ACCURACY = "test accuracy, by cluster"
SAMPLES = "samples"


class ClientsExplorer(Explorer):
    """A clustering as it would be with other options.

    Attributes
    ----------
    links : bool array (M, M)
        Which clients are nearer than the threshold.
    labels : int array (M,)
        Clusters, as the controls stand.
    tree : array (M - 1, 4)
        The dendrogram, as SciPy has it.
    """

    def __init__(self, source, X, samples, truth, accuracy, threshold):
        is_mapping = isinstance(source, Mapping)
        if truth is None and is_mapping:
            truth = source.get("clusters")
        options = {} if is_mapping else source.get_params(deep=False)
        fit = taken(source)
        _check(fit, X=X, samples=samples, truth=truth, accuracy=accuracy)

        self._source = source
        self._X = X
        self._samples = samples
        self._truth = truth
        self._accuracy = accuracy
        self._most = options.get("max_clusters")
        # then the dendrogram is one of the rows of the links
        self._of_links = isinstance(source, CentroidClusterer)
        self._refitted = None
        if X is not None:
            for name in REFITTED:
                if isinstance(options.get(name), int):
                    self._refitted = name
                    break
        self._fits = {options.get(self._refitted): fit}

        controls = self._controls_of(fit, options, threshold)
        names = ["map", "links", "dendrogram", "client graph"]
        if accuracy is not None:
            names.append(ACCURACY)
        if samples is not None:
            names.append(SAMPLES)
        columns = 2 if len(names) == 4 else 3
        super().__init__(controls, (3.5 * columns, 6.4))
        self._axes, self._scale = panels.layout(self.canvas.figure, names, columns)

    def _controls_of(
        self, fit: Fit, options: Mapping[str, Any], asked: float
    ) -> dict[str, Control]:
        """Return controls as the fit has them; the threshold may go up to ``asked``."""
        count = len(fit.far)
        found = int(fit.labels.max()) + 1
        # between the last merge that was made and the first that was not
        tops = fit.tree[:, 2]
        heights = np.concatenate([[0.0], tops, tops[-1:] * 1.1])
        between = heights[count - found : count - found + 2].mean()
        threshold = options.get("threshold", between)
        threshold = float(getattr(self._source, "tolerance_", threshold))
        highest = max(float(np.percentile(fit.far, 99)), 2 * threshold, asked)
        controls = {"threshold": Control(threshold, (0.0, highest))}
        if self._refitted:
            value = options[self._refitted]
            controls[self._refitted] = Control(value, (1, max(10, value)))

        told = getattr(self._source, "n_clusters", None) is not None
        rules = [MODULARITY, SILHOUETTE, GAP, EQUAL, GIVEN]
        if self._of_links:
            rule = GIVEN if told else MODULARITY
        else:
            rules = [FITTED, *rules, BELOW]
            by_neighbours = isinstance(self._source, EMDClustering) and not told
            rule = EQUAL if by_neighbours else FITTED
        controls["rule"] = Control(rule, rules)
        controls["n_clusters"] = Control(found, (1, count))
        controls["client"] = Control(0, (0, count - 1))
        return controls

    def _draw(self, moved: set[str]) -> None:
        if "n_clusters" in moved and "rule" not in moved:
            self.at["rule"] = GIVEN
        if moved != {"client"}:
            fit = self._fit()
            self._group(fit)
            self._draw_groups(fit)
        self.text = self._sentences()
        if self._samples is not None:
            images = np.asarray(self._samples[self.at["client"]])
            ax = panels.cleaned(self._axes[SAMPLES])
            ax.imshow(panels.sheet(images), cmap="gray")

    def _fit(self) -> Fit:
        """Return the fit with what clients send now; each value is fitted once."""
        value = self.at.get(self._refitted)
        if value not in self._fits:
            again = clone(self._source).set_params(**{self._refitted: value})
            self._fits[value] = taken(again.fit(self._X))
        return self._fits[value]

    def _group(self, fit: Fit) -> None:
        """Find links, dendrogram and labels, as the controls stand."""
        threshold = self.at["threshold"]
        self.links = (fit.far < threshold) | np.eye(len(fit.far), dtype=bool)
        self.tree = fit.tree
        if self._of_links:
            self.tree = rows_linkage(self.links, self._source.linkage)
        self.labels = grouped(
            self.at["rule"],
            fit._replace(tree=self.tree),
            self.links,
            threshold,
            self.at["n_clusters"],
            self._most,
        )
        self.at["n_clusters"] = int(self.labels.max()) + 1

    def _draw_groups(self, fit: Fit) -> None:
        """Draw all panels but the samples, and note where clients are in them."""
        axes = {name: panels.cleaned(ax) for name, ax in self._axes.items()}
        threshold = self.at["threshold"]
        order = leaves_list(self.tree)
        rank = np.argsort(order) + 0.5
        truth = self._truth
        if truth is not None:
            truth = like_found(np.asarray(truth), self.labels)

        spots = [panels.dots(axes["map"], fit.points, self.labels)]
        spots.append(panels.links(axes["links"], self.links, order, self.labels, truth))
        line = None if self._of_links else threshold
        ax = axes["dendrogram"]
        spots.append(panels.dendrogram(ax, self.tree, rank, self.labels, line))
        ax = axes["client graph"]
        spots.append(panels.client_graph(ax, self.links, rank, self.labels))
        if self._accuracy is not None:
            ax = axes[ACCURACY]
            spots.append(panels.accuracies(ax, self._accuracy, self.labels))
        self.spots = np.concatenate(spots).astype(np.float32)

        # groups of linked clients merge where single linkage does
        merges = linkage(squareform(fit.far, checks=False), "single")[:, 2]
        highest = self.allowed["threshold"][1]
        panels.scale(self._scale, merges, threshold, highest)

    def _sentences(self) -> str:
        """Say what is shown."""
        client = self.at["client"]
        n_clusters = self.at["n_clusters"]
        text = f"{len(self.labels)} clients, {_many(n_clusters, 'cluster')}"
        if self._truth is not None:
            ari = adjusted_rand_index(self._truth, self.labels)
            text += f", ARI {ari:.2f} with the true ones"

        neighbours = int(self.links[client].sum()) - 1
        text += f". Client {client}: cluster {self.labels[client]}"
        text += f", linked to {_many(neighbours, 'client')}"
        if self._truth is not None:
            text += f", true cluster {self._truth[client]}"
        if self._accuracy is not None:
            text += f", test accuracy {self._accuracy[client]:.1f}%"
        return f"{text}."


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _check(fit: Fit, **given: Any) -> None:
    """Refuse what is not of the clients that were clustered, and no images."""
    count = len(fit.far)
    sizes = {name: len(one) for name, one in given.items() if one is not None}
    sizes["labels"] = len(fit.labels)
    sizes["linkage"] = len(fit.tree) + 1  # of M clients it has M - 1 rows
    for name, size in sizes.items():
        if size != count:
            raise FltnbError(
                f"{name} is of {size} clients, not of the {count} clustered: give all."
            )
    samples = given["samples"]
    if samples is not None and np.ndim(samples[0]) not in (3, 4):
        raise FltnbError(
            "samples must be images, (n, H, W) or (n, H, W, 3) for each client, "
            "not vectors."
        )
