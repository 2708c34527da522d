"""PACFL: FedAvg inside clusters that principal angles between the clients' data give (Vahidian et al., AAAI 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError, choose
from .base import Context, State
from .flt import check_clusterer, clusterer_settings
from .graph import GraphMethod

if TYPE_CHECKING:
    from ..federations import Federation

SPLITS = ("train", "val")
PIXELS = ("plain", "scaled")


class PACFL(GraphMethod):
    """One-shot clustering by subspaces of the images, before round 1, then FedAvg inside the clusters.

    Parameters
    ----------
    clusterer : fltnb.relatedness.PACFL, optional
        By default with its default threshold, which suits few data sets: give ``threshold`` or ``n_clusters``.
    split : {"train", "val"}, optional
        Images that the subspaces are made of. The method takes training images, EMD-CFL's runs
        (``variant="as_run"``) took validation images.
    pixels : {"plain", "scaled"}, optional
        "plain": pixels in [0, 1], all colours of an image one column. "scaled" (``variant="as_run"``): pixels less
        their mean, over their standard deviation, as the network sees them, every colour channel a column of its own.
    rule, variant
        See :class:`fltnb.methods.graph.GraphMethod`.

    Raises
    ------
    FltnbError
        Options out of range, or no validation images where they are asked for.
    """

    name = "pacfl"

    def __init__(
        self,
        clusterer=None,
        split: str | None = None,
        pixels: str | None = None,
        rule: str | None = None,
        variant: str = "as_written",
    ):
        from .. import relatedness

        super().__init__(rule, variant)
        published = variant == "as_run"
        self.clusterer = relatedness.PACFL() if clusterer is None else clusterer
        if not isinstance(self.clusterer, relatedness.PACFL):
            raise FltnbError(f"clusterer must be a PACFL clusterer such as fl.PACFL(threshold=12), not {clusterer!r}.")
        self.split = choose(split or ("val" if published else "train"), SPLITS, "split to cluster on")
        self.pixels = choose(pixels or ("scaled" if published else "plain"), PIXELS, "form of the pixels")

    def settings(self) -> dict[str, Any]:
        """Name, rule, images and clusterer."""
        clusterer = clusterer_settings(self.clusterer)
        return {**super().settings(), "split": self.split, "pixels": self.pixels, "clusterer": clusterer}

    def check(self, fed: Federation) -> None:
        """Refuse settings that do not suit the federation, and clients without the images that are asked for."""
        check_clusterer(self.clusterer, fed)
        empty = [i for i, own in enumerate(getattr(fed, self.split)) if not len(own)]
        if empty:
            raise FltnbError(
                f"PACFL cannot describe client {empty[0]}, which has no validation samples: build the federation with"
                ' some, or take split="train".'
            )

    def prepare(self, fed: Federation, context: Context) -> None:
        """Fit the clusterer (on the first phase of a federation that changes), so that its result is in the cache."""
        from ..federations.phases import phases

        self._fitted(phases(fed)[0].fed, context)

    def client_graph(self, fed: Federation, context: Context) -> tuple[np.ndarray, np.ndarray, State]:
        """Cluster the clients, once."""
        self.check(fed)
        fitted = self._fitted(fed, context)
        return fitted["adjacency_"], fitted["labels_"], {"sent": fitted["sent_"].sum()}

    def setup_bytes(self, state: State) -> tuple[int, int]:
        """Singular vectors up, four bytes a number."""
        return 4 * int(state["sent"]), 0

    def _fitted(self, fed: Federation, context: Context) -> State:
        key = {key: value for key, value in self.settings().items() if key != "rule"}
        key["federation"] = fed.fingerprint()
        return self._fit(fed) if context.cache is None else context.cache(key, lambda: self._fit(fed))

    def _fit(self, fed: Federation) -> State:
        from sklearn.base import clone

        names = ("adjacency_", "labels_", "sent_", "distance_")
        fitted = self.clusterer
        if not hasattr(fitted, "labels_"):
            fitted = clone(fitted).fit(*client_images(fed, self.split, self.pixels))
        return {name: np.asarray(getattr(fitted, name)) for name in names}


def client_images(fed: Federation, split: str, pixels: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Flattened images (n_i, d) and classes (n_i,) of every client, as :class:`PACFL` says."""
    from ..federations import to_inputs

    images, classes = [], []
    for index in getattr(fed, split):
        if pixels == "plain":
            x = to_inputs(fed.images[index])
            images.append(x.reshape(len(x), -1))
            classes.append(fed.labels[index])
        else:
            x = fed.inputs(index)
            images.append(x.reshape(len(x) * x.shape[1], -1))
            classes.append(np.repeat(fed.labels[index], x.shape[1]))
    return images, classes
