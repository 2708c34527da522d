"""FLT and PCA+kM+HC: cluster once before round 1, then average over the client graph.

FLT (Algorithm 3) takes the graph from FCR (Algorithm 2) on encoder embeddings. Case I averages over the thresholded
graph as it is, case II inside the disjoint clusters of the hierarchical clustering. PCA+kM+HC is the paper's baseline:
the same two cases with a clusterer that looks at raw pixels.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError, choose
from .base import Context, State
from .graph import GraphMethod

if TYPE_CHECKING:
    from ..encoders import EncoderSpec
    from ..federations import Federation

GRAPHS = ("clusters", "full")
MEMBERSHIPS = ("clients", "leaf_order")


def fit_clusterer(clusterer, fed: Federation, encoder: EncoderSpec, context: Context):
    """Fit a one-shot clusterer on the clients' embeddings, or take its fit from the cache.

    Parameters
    ----------
    clusterer : estimator over clients
        Used as it is if it is fitted already (then it must have been fitted on as many clients), else a copy of it
        is fitted: the same estimator may serve several federations.
    encoder : EncoderSpec
        What the clients embed their training samples with.

    Returns
    -------
    clusterer
        Fitted: the object given, or the copy.
    """
    from sklearn.base import clone

    check_clusterer(clusterer, fed)
    if not hasattr(clusterer, "labels_"):
        clusterer = clone(clusterer)
        key = {
            "clusterer": clusterer_settings(clusterer),
            "encoder": asdict(encoder),
            "federation": fed.fingerprint(),
        }
        fitted = _fit if context.cache is None else lambda *args: context.cache(key, lambda: _fit(*args))
        for name, value in fitted(clusterer, fed, encoder, context).items():
            setattr(clusterer, name, value.item() if value.ndim == 0 else value)
    return clusterer


def check_clusterer(clusterer, fed: Federation) -> None:
    """Refuse a clusterer that does not suit the federation, as far as that can be told before embedding."""
    if hasattr(clusterer, "labels_"):
        if len(clusterer.labels_) != fed.n_clients:
            raise FltnbError(
                f"The clusterer was fitted on {len(clusterer.labels_)} clients but the federation has {fed.n_clients}:"
                " fit it on this federation, or pass an unfitted one."
            )
    elif hasattr(clusterer, "check"):
        clusterer.check(fed.sizes.tolist())


def _fit(clusterer, fed: Federation, encoder: EncoderSpec, context: Context) -> State:
    from .. import encoders

    embeddings = encoders.embed_clients(fed, encoder, progress=context.progress, n_jobs=context.n_jobs)
    if getattr(clusterer, "n_jobs", 0) is None:
        # Starting processes takes seconds, which small federations do not need for all of their k-means.
        small = sum(map(len, embeddings)) < 10_000
        clusterer.n_jobs = 1 if small else (context.n_jobs or -1)
    clusterer.fit(embeddings)
    learned = {name: value for name, value in vars(clusterer).items() if name.endswith("_")}
    return {
        name: np.asarray(value)
        for name, value in learned.items()
        if isinstance(value, (int, float, np.ndarray, np.generic))
    }


def clusterer_settings(clusterer) -> dict[str, Any]:
    """JSON-able name and parameters of a clusterer."""
    parameters = {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in clusterer.get_params(deep=False).items()
        if key != "n_jobs"  # results do not depend on it
    }
    return {"name": type(clusterer).__name__, **parameters}


class FLT(GraphMethod):
    """Federated learning with taskonomy (FLT, Algorithm 3).

    Parameters
    ----------
    clusterer : estimator over clients, optional
        ``FCR()`` by default; one that is fitted already is used as it is.
    graph : {"clusters", "full"}, optional
        Case II (disjoint clusters) or case I (the adjacency as it is). By default ``clusters``; the published runs of
        scenarios 1, 2 and 4 used ``full``.
    encoder : EncoderSpec, optional
        What clients embed their data with; raw pixels by default.
    rule, variant
        See :class:`fltnb.methods.graph.GraphMethod`.
    name : str, optional
        Another id for tables and colours, such as ``flt_enc1``.
    membership : {"clients", "leaf_order"}
        "leaf_order" repeats a slip of the public code, for measuring what it does: labels in client order were used to
        pick from the dendrogram's leaf order, which scrambles the clusters (:func:`leaf_order_labels`). Case II only.
        ``variant="as_run"`` does not imply it. (That code also looked up sample weights by a client's place in its
        cluster; this is not repeated.)
    """

    name = "flt"

    def __init__(
        self,
        clusterer=None,
        graph=None,
        encoder=None,
        rule=None,
        variant="as_written",
        name=None,
        membership="clients",
    ):
        from .. import encoders

        super().__init__(rule, variant)
        self.clusterer = clusterer if clusterer is not None else self.default_clusterer()
        if isinstance(self.clusterer, type) or not hasattr(self.clusterer, "get_params"):
            raise FltnbError(f"clusterer must be a clusterer such as fl.FCR(), not {clusterer!r}.")
        if encoder is not None and not isinstance(encoder, encoders.EncoderSpec):
            raise FltnbError(f"encoder must be an fl.encoders.EncoderSpec, not {encoder!r}.")
        self.graph_kind = choose(
            graph or ("full" if variant == "as_run" else "clusters"),
            GRAPHS,
            "graph (case I full, case II clusters)",
        )
        self.membership = choose(membership, MEMBERSHIPS, "cluster membership")
        if self.membership == "leaf_order" and self.graph_kind == "full":
            raise FltnbError('Membership by leaf order concerns disjoint clusters only: give graph="clusters" as well.')
        self.encoder = encoder or encoders.EncoderSpec(kind="pixels")
        self.name = name or type(self).name

    @staticmethod
    def default_clusterer():
        """Return the clusterer used when none is given."""
        from ..relatedness import FCR

        return FCR()

    def settings(self) -> dict[str, Any]:
        """Name, rule, case, membership, clusterer and encoder."""
        return {
            **super().settings(),
            "kind": type(self).__name__,
            "graph": self.graph_kind,
            "membership": self.membership,
            "clusterer": clusterer_settings(self.clusterer),
            "encoder": asdict(self.encoder),
        }

    def check(self, fed: Federation) -> None:
        """Refuse what the clusterer would refuse after the clients' embedding, which can take long."""
        check_clusterer(self.clusterer, fed)

    def prepare(self, fed: Federation, context: Context) -> None:
        """Fit the clusterer (on the first phase of a federation that changes), so that its result is in the cache."""
        from ..federations.phases import phases

        fit_clusterer(self.clusterer, phases(fed)[0].fed, self.encoder, context)

    def graph(self, fed: Federation, context: Context) -> tuple[np.ndarray, np.ndarray, State]:
        """Cluster the clients, once."""
        fitted = fit_clusterer(self.clusterer, fed, self.encoder, context)
        labels = np.asarray(fitted.labels_, dtype=np.int64)
        if self.membership == "leaf_order":
            if not hasattr(fitted, "leaf_order_"):
                raise FltnbError(
                    f'{type(fitted).__name__} has no dendrogram to misread: membership="leaf_order" is for FCR and'
                    " PCAKMeans."
                )
            labels = leaf_order_labels(labels, fitted.leaf_order_)
        adjacency = fitted.adjacency_ if self.graph_kind == "full" else labels[:, None] == labels[None]
        return adjacency, labels, {"sent": self._setup_scalars(fitted, fed)}

    def _setup_scalars(self, fitted, fed: Federation) -> np.ndarray:
        """Scalars sent before round 1 (up: the clients' sketches; down: encoder, relayed sketches), FLT Table 6."""
        from .. import encoders

        up = np.sum(getattr(fitted, "sent_", 0))
        down = fed.n_clients * encoders.sent_parameters(self.encoder, fed.input_shape)
        down += np.sum(getattr(fitted, "received_", 0))
        return np.array([up, down], dtype=np.int64)

    def setup_bytes(self, state: State) -> tuple[int, int]:
        """Centroids up and encoder down, four bytes a scalar (FLT, Table 6)."""
        up, down = state["sent"]
        return 4 * int(up), 4 * int(down)


def leaf_order_labels(labels: np.ndarray, leaf_order: np.ndarray) -> np.ndarray:
    """Clusters (M,) as the public code reads them off: cluster c gets ``leaf_order[labels == c]``.

    Right would be ``where(labels == c)``; the two agree only where the leaf order keeps clients of a cluster at places
    of that cluster, as it does when clusters are blocks of consecutive ids that stay in place.

    Examples
    --------
    >>> leaf_order_labels(np.array([0, 0, 1, 1]), np.array([3, 1, 0, 2])).tolist()
    [1, 0, 1, 0]
    """
    scrambled = np.empty_like(labels)
    scrambled[leaf_order] = labels
    return scrambled


class PCAKMHC(FLT):
    """PCA+kM+HC, FLT's baseline: every client runs PCA and k-means on its own raw pixels."""

    name = "pca_km_hc"

    @staticmethod
    def default_clusterer():
        """Return the clusterer used when none is given."""
        from ..relatedness import PCAKMeans

        return PCAKMeans()
