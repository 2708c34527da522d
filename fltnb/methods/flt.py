"""FLT, its soft form, PCA+kM+HC and PACFL: cluster once before round 1, then average over the client graph.

FLT (Jamali-Rad et al., arXiv 2103.15947, Algorithm 3) takes the graph from FCR (Algorithm 2) on encoder embeddings.
Weights in place of links (:class:`SoftFLT`) are ours: the paper keeps "removing the hard threshold" for future work
(Section 5). PACFL: Vahidian et al., AAAI 2023 (arXiv 2209.10526).
"""

from dataclasses import asdict, field
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import clone

from .. import clustering
from ..encoders.embedding import embed_clients
from ..encoders.pretraining import EncoderSpec, sent_parameters
from ..errors import FltnbError, choose
from ..federations import Federation, to_inputs
from ..federations.own import integers
from ..federations.phases import phases
from ..settings import Positive, brief
from .base import PUBLISHED_RULE, Context, State
from .graph import GraphMethod


class OneShot(GraphMethod):
    """Methods whose graph comes from one clustering before round 1, of embeddings or of what :meth:`fit` says.

    A clusterer that is fitted already, on as many clients, is used as it is, else a fitted copy.
    """

    default: ClassVar[type] = clustering.FCR  # the clusterer where none is given
    kind: ClassVar[type] = object  # what it must be
    groupings: ClassVar[tuple[str, ...]] = ()  # names that may stand in its place

    clusterer: Any = None
    encoder: EncoderSpec | None = field(default=None, kw_only=True)
    name: str = field(default="one_shot", kw_only=True)

    def __post_init__(self) -> None:
        given, encoder = self.clusterer, self.encoder
        self.clusterer = made = self.default() if given is None else given
        fits = hasattr(made, "get_params") and isinstance(made, self.kind)
        if isinstance(made, str) and self.groupings:
            choose(made, self.groupings, "grouping of users")
        elif (
            isinstance(made, type)
            or not fits
            or type(made).__module__.startswith("sklearn.")
        ):
            over = "an estimator over clients, a sklearn BaseEstimator whose fit takes a list of arrays,"
            what = over if self.kind is object else "a clusterer"
            raise FltnbError(
                f"clusterer must be {what} such as fl.{self.default.__name__}(), not {given!r}."
            )
        if encoder is not None and not isinstance(encoder, EncoderSpec):
            raise FltnbError(
                f"encoder must be an fl.encoders.EncoderSpec, not {encoder!r}; or fit the clusterer."
            )
        self.encoder = encoder or EncoderSpec(kind="pixels")

    def check(self, fed: Federation) -> None:
        """Refuse what the clusterer would refuse after the clients' embedding, which can take long."""
        super().check(fed)
        if hasattr(self.clusterer, "labels_"):
            if len(self.clusterer.labels_) != fed.n_clients:
                other = f"fitted on {len(self.clusterer.labels_)} clients but the federation has {fed.n_clients}"
                raise FltnbError(
                    f"The clusterer was {other}: fit it on this federation, or pass an unfitted one."
                )
        elif hasattr(self.clusterer, "check"):
            self.clusterer.check(fed.sizes.tolist())

    def prepare(self, fed: Federation, context: Context) -> None:
        """Fit the clusterer (on the first phase of a federation that changes), so that its result is in the cache."""
        if not isinstance(self.clusterer, str):
            self.fitted(phases(fed)[0].fed, context)

    def about(self) -> dict[str, Any]:
        """Return the settings that decide the fit."""
        return {
            "clusterer": clustering.canonical(self.clusterer),
            "encoder": brief(EncoderSpec, asdict(self.encoder)),
        }

    def fit(self, clusterer, fed: Federation, context: Context) -> None:
        """Embed the clients' data and fit a clusterer on it."""
        embeddings = embed_clients(
            fed, self.encoder, progress=context.progress, n_jobs=context.n_jobs
        )
        if getattr(clusterer, "n_jobs", 0) is None:
            # Starting processes takes seconds, which small federations do not need for all of their k-means.
            clusterer.n_jobs = (
                1 if sum(map(len, embeddings)) < 10_000 else (context.n_jobs or -1)
            )
        classes = (
            [fed.labels[index] for index in fed.train]
            if getattr(clusterer, "labelled", False)
            else None
        )
        clusterer.fit(embeddings, classes)

    def fitted(self, fed: Federation, context: Context):
        """Return the clusterer, fitted on the clients as they are."""
        self.check(fed)
        if hasattr(self.clusterer, "labels_"):
            return self.clusterer
        made, kept = clone(self.clusterer), (int, float, np.ndarray, np.generic)

        def compute() -> State:
            self.fit(made, fed, context)
            learned = {
                name: value for name, value in vars(made).items() if name.endswith("_")
            }
            return {
                name: np.asarray(value)
                for name, value in learned.items()
                if isinstance(value, kept)
            }

        key = self.about() | {"federation": fed.fingerprint()}
        for name, value in (
            compute() if context.cache is None else context.cache(key, compute)
        ).items():
            setattr(made, name, value.item() if value.ndim == 0 else value)
        return made

    def client_graph(
        self, fed: Federation, context: Context
    ) -> tuple[np.ndarray, np.ndarray, State]:
        """Cluster the clients, once."""
        fitted = self.fitted(fed, context)
        graph = self.graph_of(fitted)
        # scalars before round 1 (FLT, Table 6): the clients' sketches up; the encoder and relayed sketches down
        up = np.sum(getattr(fitted, "sent_", 0))
        down = fed.n_clients * sent_parameters(self.encoder, fed.input_shape) + np.sum(
            getattr(fitted, "received_", 0)
        )
        return *graph, {"sent": np.array([up, down], dtype=np.int64)}

    def graph_of(self, fitted) -> tuple[np.ndarray, np.ndarray]:
        """Adjacency (M, M) and labels (M,); neighbours are the clients of one cluster."""
        labels = integers(
            f"labels_ of {type(fitted).__name__}",
            fitted.labels_,
            len(fitted.labels_),
            "client",
        )
        labels = np.where(
            labels < 0, labels.max() + np.cumsum(labels < 0), labels
        )  # noise, as DBSCAN says it: alone
        return labels[:, None] == labels, labels

    def setup_bytes(self, state: State) -> tuple[int, int]:
        """Count what the clustering sends, four bytes a scalar."""
        up, down = state["sent"]
        return 4 * int(up), 4 * int(down)


class FLT(OneShot):
    """Federated learning with taskonomy (FLT, Algorithm 3).

    Parameters
    ----------
    clusterer : estimator over clients, optional, ``FCR()`` by default
    graph : {"clusters", "full"}, case II (disjoint clusters) or case I (the adjacency as it is); "as_run": "full"
    encoder : EncoderSpec, optional, what clients embed their data with; raw pixels by default
    rule, variant : see :class:`fltnb.methods.graph.GraphMethod`
    name : str, optional, another id for tables and colours, such as ``flt_enc1``
    membership : {"clients", "leaf_order"}
        "leaf_order" repeats a slip of the public code, to measure it (:func:`leaf_order_labels`). Case II only, and not
        implied by ``variant="as_run"``.
    """

    name = "flt"
    AS_RUN: ClassVar = {"rule": PUBLISHED_RULE, "graph": "full"}

    graph: Literal["clusters", "full"] = "clusters"
    membership: Literal["clients", "leaf_order"] = "clients"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.membership == "leaf_order" and self.graph == "full":
            raise FltnbError(
                'Membership by leaf order concerns disjoint clusters only: give graph="clusters" as well.'
            )

    def graph_of(self, fitted) -> tuple[np.ndarray, np.ndarray]:
        """Return the adjacency as it is (case I), or by the clusters (case II), and labels."""
        adjacency, labels = super().graph_of(fitted)
        if self.membership == "leaf_order":
            if not hasattr(fitted, "leaf_order_"):
                raise FltnbError(
                    f'{type(fitted).__name__} has no dendrogram to misread: give membership="clients".'
                )
            labels = leaf_order_labels(labels, fitted.leaf_order_)
            adjacency = labels[:, None] == labels
        return getattr(
            fitted, "adjacency_", adjacency
        ) if self.graph == "full" else adjacency, labels


def leaf_order_labels(labels: np.ndarray, leaf_order: np.ndarray) -> np.ndarray:
    """Clusters (M,) as the public code reads them off: cluster c gets clients ``leaf_order[labels == c]``."""
    scrambled = np.empty_like(labels)
    scrambled[leaf_order] = labels
    return scrambled


WEIGHTS = {
    "gaussian": lambda ratio: np.exp(-(ratio**2)),
    "linear": lambda ratio: np.maximum(0.0, 1.0 - ratio / 2),
}
"""Weight of two clients by their distance over the scale: 1 at distance 0; exp(-1) or 1/2 at the scale itself."""


class SoftFLT(FLT):
    r"""FLT, case I, with the client distance kept as a weight.

    A client's new model is the mean over all clients of :math:`n_j\,g(A_{ij} / s)`, made to sum to 1: n_j samples,
    A the client distance of FCR (Algorithm 2, line 15), g one of :data:`WEIGHTS`. With distances of 0 and infinity only
    this is case I on the thresholded graph, whatever g and s. When absent clients contribute nothing, a client whose
    nearest participant has weight w keeps its own model with weight 1 - w among them.

    Parameters
    ----------
    clusterer, encoder, rule, variant, name : see :class:`fltnb.methods.FLT`; the clusters are only reported
    weight : {"gaussian", "linear"}, g: exp(-x^2), or max(0, 1 - x / 2), which is 0 from twice the scale on
    scale : float, optional, s, in units of the client distance; by default the clusterer's threshold gamma
    """

    name = "flt_soft"
    graph: ClassVar = "full"
    membership: ClassVar = "clients"

    weight: Literal["gaussian", "linear"] = "gaussian"
    scale: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scale = (
            getattr(self.clusterer, "threshold", None)
            if self.scale is None
            else self.scale
        )
        if not self.scale:
            raise FltnbError(
                f"{type(self.clusterer).__name__} has no threshold above 0 to take as scale: give one."
            )

    def graph_of(self, fitted) -> tuple[np.ndarray, np.ndarray]:
        """Weights by the clients' distances."""
        return soft_graph(fitted.distance_, self.scale, self.weight), np.asarray(
            fitted.labels_, dtype=np.int64
        )


def soft_graph(
    distance: np.ndarray, scale: float, weight: str = "gaussian"
) -> np.ndarray:
    """Weights (M, M) in [0, 1] of a client graph, 1 on the diagonal."""
    weights = WEIGHTS[weight](np.asarray(distance, dtype=np.float64) / scale)
    np.fill_diagonal(weights, 1.0)
    return weights


class PCAKMHC(FLT):
    """PCA+kM+HC, FLT's baseline: every client runs PCA and k-means on its own raw pixels."""

    name = "pca_km_hc"
    default = clustering.PCAKMeans


class PACFL(OneShot):
    """One-shot clustering by subspaces of the images, before round 1, then FedAvg inside the clusters.

    The subspaces are of training images with pixels in [0, 1], all colours of an image one column.

    Parameters
    ----------
    clusterer : fltnb.clustering.PACFL, optional; its default threshold suits few data sets
    rule, variant : see :class:`fltnb.methods.graph.GraphMethod`; "as_run" is :class:`PACFLAsRun` besides
    """

    name = "pacfl"
    default = clustering.PACFL
    kind = clustering.PACFL
    split, scaled = "train", False
    encoder: ClassVar = None  # it needs none

    def about(self) -> dict[str, Any]:
        """Return the settings that decide the fit."""
        return {key: value for key, value in self.settings().items() if key != "rule"}

    def fit(self, clusterer, fed: Federation, context: Context) -> None:
        """Fit a clusterer on the images."""
        clusterer.fit(*client_images(fed, self.split, self.scaled))


class PACFLAsRun(PACFL, as_run=True):
    """What printed EMD-CFL's tables: subspaces of *validation* images as the network sees them, channel by channel."""

    split, scaled = "val", True


def client_images(
    fed, split: str = "train", scaled: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Flattened images (n_i, d) and classes (n_i,) of every client, as :class:`PACFL` says."""
    images, classes = [], []
    for index in getattr(fed, split):
        x = fed.inputs(index) if scaled else to_inputs(fed.images[index])
        columns = x.shape[1] if scaled else 1
        images.append(x.reshape(len(x) * columns, -1))
        classes.append(np.repeat(fed.labels[index], columns))
    return images, classes
