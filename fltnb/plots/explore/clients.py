"""A clustering with controls: map, links, dendrogram, client graph, samples.

Changes of a control are computed from the distances between clients. Only a new k (a
number that sets what clients send) needs a new fit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import is_valid_linkage, leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.base import clone

from ...arrays import as_array
from ...clustering import FCR, EMDClustering
from ...clustering.centroids import CentroidClusterer
from ...clustering.cuts import rows_linkage
from ...errors import FltnbError
from ...metrics import adjusted_rand_index
from . import panels
from .explorer import Control, Explorer, many
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
    middle,
    taken,
)

REFITTED = ("k", "n_eigenvectors", "n_vectors")
"""Options of clusterers that change what a client sends."""
ACCURACY = "test accuracy, by cluster"
SAMPLES = "samples"


class ClientsExplorer(Explorer):
    """A clustering and its changes with other options.

    Parameters
    ----------
    source, X, samples, truth, accuracy
        As for :func:`fltnb.explore`.
    threshold : float
        The slider goes at least up to this value.

    Attributes
    ----------
    links : bool array (M, M)
        Which clients are nearer than the threshold.
    labels : int array (M,)
        Clusters with the present controls.
    tree : array (M - 1, 4)
        The dendrogram in SciPy's format.
    """

    def __init__(self, source, X, samples, truth, accuracy, threshold):
        options = {}
        if not isinstance(source, Mapping):
            options = source.get_params(deep=False)
        elif truth is None:
            truth = source.get("clusters")
        # arrays, as a Series would find clients by its index
        if truth is not None:
            truth = as_array(truth, "truth")
        if accuracy is not None:
            accuracy = as_array(accuracy, "accuracy")
        fit = taken(source)
        _check(fit, X=X, samples=samples, truth=truth, accuracy=accuracy)

        # what was given, and is needed when a control moves
        self._source = source
        self._X = X
        self._samples = samples
        self._truth = truth
        self._accuracy = accuracy
        # whether the dendrogram is built from the rows of the links, as FCR's is
        self._of_links = isinstance(source, CentroidClusterer)
        # whose rule "modularity" is used: the clusterer's own if it has one, else FCR's
        self._by_modularity = source if self._of_links else FCR()

        # the option whose slider needs a new fit, and the fits by its value
        self._refitted: Any = None
        if X is not None:
            self._refitted = _refitted(options)
        self._fits = {options.get(self._refitted): fit}

        # samples and accuracies have a panel if they were given
        controls = self._controls_of(fit, options, threshold)
        names = ["map", "links", "dendrogram", "client graph"]
        if accuracy is not None:
            names.append(ACCURACY)
        if samples is not None:
            names.append(SAMPLES)
        columns = 3
        if len(names) == 4:
            columns = 2
        super().__init__(controls, (3.5 * columns, 6.4))
        self._axes, self._scale = panels.layout(self.canvas.figure, names, columns)

    def _controls_of(
        self, fit: Fit, options: Mapping[str, Any], asked: float
    ) -> dict[str, Control]:
        """Return the controls of a fit.

        The threshold is at first the clusterer's own. If it has none, it is at the cut
        of the dendrogram that gives the found clusters. Its slider ends at the
        percentile 99 of the distances, as a few clients may be very far from all
        others, or at twice the first threshold.

        Parameters
        ----------
        fit : Fit
        options : dict
            Options of the clusterer; empty if there is none.
        asked : float
            The slider goes at least up to this value.
        """
        count = len(fit.far)
        found = int(fit.labels.max()) + 1
        threshold = options.get("threshold", middle(fit.tree, found, above=1.1))
        threshold = float(getattr(self._source, "tolerance_", threshold))
        far = float(np.percentile(fit.far, 99))
        highest = max(far, 2 * threshold, float(asked))
        controls = {"threshold": Control(threshold, (0.0, highest))}
        if self._refitted:
            value = options[self._refitted]
            controls[self._refitted] = Control(value, (1, max(10, value)))

        controls["rule"] = self._rules()
        controls["n_clusters"] = Control(found, (1, count))
        controls["client"] = Control(0, (0, count - 1))
        return controls

    def _rules(self) -> Control:
        """Return the rules that make sense here; the clusterer's own is set first.

        A dendrogram of links changes with the threshold, and its heights are no
        distances: the rules "as fitted" and "below the threshold" make no sense there.
        EMD-CFL groups clients with equal neighbours, unless it was told the number of
        clusters.
        """
        told = getattr(self._source, "n_clusters", None) is not None
        rules = [MODULARITY, SILHOUETTE, GAP, EQUAL, GIVEN]
        if self._of_links:
            return Control(GIVEN if told else MODULARITY, rules)
        rules = [FITTED, *rules, BELOW]
        by_neighbours = isinstance(self._source, EMDClustering) and not told
        return Control(EQUAL if by_neighbours else FITTED, rules)

    def _draw(self, moved: set[str]) -> None:
        """Draw everything that depends on the controls ``moved``.

        A click on a client changes only its samples and the sentences. Setting a number
        of clusters also selects the rule that uses it.
        """
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
        """Return the fit with the present value of the option that needs a new one.

        Each value is fitted once, and the fit is kept.
        """
        value = self.at.get(self._refitted)
        if value not in self._fits:
            again = clone(self._source)
            again.set_params(**{self._refitted: value})
            again.fit(self._X)
            self._fits[value] = taken(again)
        return self._fits[value]

    def _group(self, fit: Fit) -> None:
        """Compute links, dendrogram and labels with the present controls.

        Links are those of FLT: clients nearer than the threshold, and each with itself.
        """
        threshold = self.at["threshold"]
        near = fit.far < threshold
        self.links = near | np.eye(len(near), dtype=bool)
        self.tree = fit.tree
        if self._of_links:
            self.tree = rows_linkage(self.links, self._source.linkage)
        self.labels = grouped(
            rule=self.at["rule"],
            fit=fit._replace(tree=self.tree),
            links=self.links,
            threshold=threshold,
            count=self.at["n_clusters"],
            clusterer=self._by_modularity,
        )
        self.at["n_clusters"] = int(self.labels.max()) + 1

    def _draw_groups(self, fit: Fit) -> None:
        """Draw all panels except the samples, and record the clients' positions.

        True clusters get the colours of the most similar found ones. The order of the
        dendrogram's leaves is that of the rows of the links and of the client graph, so
        that a client stands at the same place in all three.
        """
        axes = {name: panels.cleaned(ax) for name, ax in self._axes.items()}
        labels = self.labels
        order = leaves_list(self.tree)
        rank = np.argsort(order) + 0.5
        truth = self._truth
        if truth is not None:
            truth = like_found(np.asarray(truth), labels)
        threshold = self.at["threshold"]
        line = threshold
        if self._of_links:
            line = None

        spots = [
            panels.dots(axes["map"], fit.points, labels),
            panels.links(axes["links"], self.links, order, labels, truth),
            panels.dendrogram(axes["dendrogram"], self.tree, rank, labels, line),
            panels.client_graph(axes["client graph"], self.links, rank, labels),
        ]
        if self._accuracy is not None:
            spots.append(panels.accuracies(axes[ACCURACY], self._accuracy, labels))
        self.spots = np.concatenate(spots).astype(np.float32)

        # groups of linked clients merge exactly as in single linkage
        pairs = squareform(fit.far, checks=False)
        merges = linkage(pairs, "single")[:, 2]
        _, highest = self.allowed["threshold"]
        panels.scale(self._scale, merges, threshold, highest)

    def _sentences(self) -> str:
        """Return the sentences about all clients and about the clicked one.

        Such as "25 clients, 5 clusters. Client 3: cluster 1, linked to 4 clients."
        """
        client = self.at["client"]
        clusters = many(self.at["n_clusters"], "cluster")
        neighbours = int(self.links[client].sum()) - 1  # it is linked to itself
        everybody = [f"{len(self.labels)} clients", clusters]
        this_one = [
            f"Client {client}: cluster {self.labels[client]}",
            f"linked to {many(neighbours, 'client')}",
        ]
        if self._truth is not None:
            ari = adjusted_rand_index(self._truth, self.labels)
            everybody.append(f"ARI {ari:.2f} with the true ones")
            this_one.append(f"true cluster {self._truth[client]}")
        if self._accuracy is not None:
            this_one.append(f"test accuracy {self._accuracy[client]:.1f}%")
        return f"{', '.join(everybody)}. {', '.join(this_one)}."


def _refitted(options: Mapping[str, Any]) -> str | None:
    """Return the first of :data:`REFITTED` that is a number among the options.

    None if there is none: an option that is None is chosen from the data.
    """
    for name in REFITTED:
        if isinstance(options.get(name), int):
            return name
    return None


def _check(fit: Fit, **given: Any) -> None:
    """Refuse arguments for other clients than the clustered ones, or of another form.

    Drawing would otherwise fail later, with an error from matplotlib.

    Parameters
    ----------
    fit : Fit
    **given
        Name -> one entry per client, or None if it was not given.

    Raises
    ------
    FltnbError
        Something has another number of clients or another form, or a true cluster is
        missing.
    """
    count = len(fit.far)
    sizes = {name: len(one) for name, one in given.items() if one is not None}
    sizes["labels"] = len(fit.labels)
    sizes["linkage"] = len(fit.tree) + 1  # of M clients it has M - 1 rows
    for name, size in sizes.items():
        if size != count:
            raise FltnbError(
                f"{name} is of {size} clients, but {count} were clustered: give one "
                "entry for each of them."
            )
    if not is_valid_linkage(np.asarray(fit.tree)):
        raise FltnbError(
            "linkage is no dendrogram in SciPy's form: leave it out, or give what "
            "scipy.cluster.hierarchy.linkage returns."
        )
    if given["samples"] is not None:
        _check_images(given["samples"])
    truth = given["truth"]
    if truth is not None and (truth.ndim != 1 or pd.isna(truth).any()):
        raise FltnbError(
            "truth must be one true cluster for each client, and none missing."
        )
    accuracy = given["accuracy"]
    if accuracy is not None and (
        accuracy.ndim != 1 or accuracy.dtype.kind not in "fiu"
    ):
        raise FltnbError(
            "accuracy must be one number for each client, not "
            f"{accuracy.dtype} of shape {accuracy.shape}."
        )


def _check_images(samples: Sequence[np.ndarray]) -> None:
    """Refuse samples of clients that are no images (n, H, W) or (n, H, W, 3)."""
    for client, images in enumerate(samples):
        shape = np.shape(images)
        if len(shape) not in (3, 4) or not shape[0] or shape[3:] not in ((), (3,)):
            raise FltnbError(
                "samples must be images, (n, H, W) or (n, H, W, 3) for each client, "
                f"not of the shape {shape} as of client {client}."
            )
