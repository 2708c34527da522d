"""PACFL: FedAvg inside clusters that principal angles between the clients' data give.

Vahidian et al., AAAI 2023 (arXiv 2209.10526); the clustering itself is :class:`fltnb.relatedness.PACFL`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from ..settings import Variant
from .base import Context, Rule, State
from .flt import check_clusterer
from .graph import GraphMethod
from .samples import check_validation

if TYPE_CHECKING:
    from ..federations import Federation


class PACFL(GraphMethod):
    """One-shot clustering by subspaces of the images, before round 1, then FedAvg inside the clusters.

    Parameters
    ----------
    clusterer : fltnb.relatedness.PACFL, optional
        By default with its default threshold, which suits few data sets: give ``threshold`` or ``n_clusters``.
    rule : {"participants", "last_local", "last_aggregate"}, optional
        See :class:`fltnb.methods.graph.GraphMethod`.
    variant : {"as_written", "as_run"}
        The rule where it is not given, and what the subspaces are made of: training images with pixels in [0, 1], all
        colours of an image one column; or :class:`PACFLAsRun`.
    """

    name = "pacfl"
    split, scaled = "train", False

    def __init__(
        self,
        clusterer=None,
        rule: Rule = "participants",
        *,
        variant: Variant = "as_written",
    ):
        from .. import relatedness

        super().__init__(rule)
        self.clusterer = relatedness.PACFL() if clusterer is None else clusterer
        if not isinstance(self.clusterer, relatedness.PACFL):
            raise FltnbError(f"clusterer must be a PACFL clusterer such as fl.PACFL(threshold=12), not {clusterer!r}.")

    def check(self, fed: Federation) -> None:
        """Refuse settings that do not suit the federation."""
        check_clusterer(self.clusterer, fed)

    def prepare(self, fed: Federation, context: Context) -> None:
        """Fit the clusterer (on the first phase of a federation that changes), so that its result is in the cache."""
        from ..federations.phases import phases

        self._fitted(phases(fed)[0].fed, context)

    def client_graph(self, fed: Federation, context: Context) -> tuple[np.ndarray, np.ndarray, State]:
        """Cluster the clients, once."""
        fitted = self._fitted(fed, context)
        return fitted["adjacency_"], fitted["labels_"], {"sent": fitted["sent_"].sum()}

    def setup_bytes(self, state: State) -> tuple[int, int]:
        """Singular vectors up, four bytes a number."""
        return 4 * int(state["sent"]), 0

    def _fitted(self, fed: Federation, context: Context) -> State:
        from sklearn.base import clone

        def fit() -> State:
            made = self.clusterer
            if not hasattr(made, "labels_"):
                made = clone(made).fit(*client_images(fed, self.split, self.scaled))
            return {name: np.asarray(getattr(made, name)) for name in ("adjacency_", "labels_", "sent_", "distance_")}

        key = {key: value for key, value in self.settings().items() if key != "rule"}
        return fit() if context.cache is None else context.cache(key | {"federation": fed.fingerprint()}, fit)


class PACFLAsRun(PACFL, as_run=True):
    """What printed EMD-CFL's tables: subspaces of *validation* images as the network sees them.

    Pixels are less their mean, over their standard deviation, and every colour channel is a column of its own.
    """

    split, scaled = "val", True

    def check(self, fed: Federation) -> None:
        """Refuse clients without validation images as well."""
        super().check(fed)
        check_validation(fed, "PACFL", ', or take variant="as_written"')


def client_images(
    fed: Federation, split: str = "train", scaled: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Flattened images (n_i, d) and classes (n_i,) of every client, as :class:`PACFL` says."""
    from ..federations import to_inputs

    images, classes = [], []
    for index in getattr(fed, split):
        x = fed.inputs(index) if scaled else to_inputs(fed.images[index])
        columns = x.shape[1] if scaled else 1
        images.append(x.reshape(len(x) * columns, -1))
        classes.append(np.repeat(fed.labels[index], columns))
    return images, classes
