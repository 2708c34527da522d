"""FLT, its soft form, PCA+kM+HC and PACFL: cluster once, then average over the graph.

FLT (Jamali-Rad et al., arXiv 2103.15947, Algorithm 3) takes the graph from FCR
(Algorithm 2) on encoder embeddings. Weights instead of links (:class:`SoftFLT`) are our
addition: the paper leaves "removing the hard threshold" for future work (Section 5).
PACFL: Vahidian et al., AAAI 2023 (arXiv 2209.10526).
"""

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
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
from .base import PUBLISHED_RULE, Context, Rule
from .graph import ClientGraph, GraphMethod, GraphState

# samples of all clients below which starting processes takes longer than the work
SMALL = 10_000


@dataclass(eq=False, repr=False)
class OneShot(GraphMethod):
    """Methods whose graph comes from one clustering before round 1.

    The clustering is of embeddings, or of what :meth:`samples` returns. A clusterer
    that is already fitted is used as it is, and must be fitted on as many clients as
    the federation has; of one that is not fitted, a copy is.

    ``joining`` says what happens to clients that join later. "alone": they have no
    neighbours and start from the mean of all models. "placed": the clusterer's
    ``place`` finds their cluster from what they send, if any fits.
    """

    default: ClassVar[type] = clustering.FCR  # the clusterer where none is given
    kind: ClassVar[type] = object  # what it must be
    groupings: ClassVar[tuple[str, ...]] = ()  # names that may stand in its place
    graph_decides = True

    clusterer: Any = None
    encoder: EncoderSpec | None = field(default=None, kw_only=True)
    joining: Literal["alone", "placed"] = field(default="alone", kw_only=True)
    name: str = field(default="one_shot", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusterer is None:
            self.clusterer = self.default()
        if isinstance(self.clusterer, str) and self.groupings:
            choose(self.clusterer, self.groupings, "grouping of users")
        elif not self._clusters():
            what = "a clusterer"
            if self.kind is object:
                what = (
                    "an estimator over clients, a sklearn BaseEstimator whose fit "
                    "takes a list of arrays,"
                )
            raise FltnbError(
                f"clusterer must be {what} such as fl.{self.default.__name__}(), "
                f"not {self.clusterer!r}."
            )
        elif self.joining == "placed" and not hasattr(self.clusterer, "place"):
            raise FltnbError(
                f'joining="placed" needs a method place(self, X, y=None), which '
                f"{type(self.clusterer).__name__} does not have: write one, or leave "
                "joining out."
            )
        if self.encoder is None:
            self.encoder = EncoderSpec(kind="pixels")
        elif not isinstance(self.encoder, EncoderSpec):
            raise FltnbError(
                f"encoder must be an fl.encoders.EncoderSpec, not {self.encoder!r}: "
                "give one, or fit the clusterer on embeddings of your own."
            )

    def _clusters(self) -> bool:
        """Return whether the clusterer is an estimator over clients, not samples."""
        made = self.clusterer
        usable = hasattr(made, "fit") or hasattr(made, "labels_")
        estimator = usable and hasattr(made, "get_params")
        estimator = estimator and isinstance(made, self.kind)
        over_samples = type(made).__module__.startswith("sklearn.")
        return estimator and not isinstance(made, type) and not over_samples

    def check(self, fed: Federation) -> None:
        """Refuse before the embedding what the clusterer would refuse after it.

        The embedding can take long.
        """
        super().check(fed)
        labels = getattr(self.clusterer, "labels_", None)
        if labels is not None:
            if len(labels) != fed.n_clients:
                raise FltnbError(
                    f"The clusterer was fitted on {len(labels)} clients but the "
                    f"federation has {fed.n_clients}: fit it on this federation, "
                    "or pass an unfitted one."
                )
            return
        if isinstance(self.clusterer, str):
            return
        name = type(self.clusterer).__name__
        if fed.layout == "tokens":
            raise FltnbError(
                f"{name} compares samples by distances, which tokens do not have: fit "
                "it on embeddings of your own, or take a method that clusters by "
                "models."
            )
        if getattr(self.clusterer, "labelled", False) and fed.targets == "values":
            raise FltnbError(
                f"{name} needs classes, and {fed.name} has numbers to predict: "
                "choose another clusterer."
            )
        if hasattr(self.clusterer, "check"):
            self.clusterer.check(fed.sizes.tolist())

    def prepare(self, fed: Federation, context: Context) -> None:
        """Fit the clusterer, so that its result is in the cache.

        If the federation changes, it is fitted on the first phase.
        """
        if not isinstance(self.clusterer, str):
            self.fitted(phases(fed)[0].fed, context)

    def about(self) -> dict[str, Any]:
        """Return the settings that determine the fit."""
        return {
            "clusterer": clustering.canonical(self.clusterer),
            "encoder": brief(EncoderSpec, asdict(self.encoder)),
        }

    def samples(
        self, fed: Federation, context: Context
    ) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
        """Return what is clustered: embeddings (n_i, e) of every client's data.

        With the classes (n_i,), if the clusterer looks at them.
        """
        embeddings = embed_clients(
            fed, self.encoder, context.progress, context.n_jobs, context.cache
        )
        if getattr(self.clusterer, "labelled", False):
            return embeddings, [fed.labels[index] for index in fed.train]
        return embeddings, None

    def fit(self, clusterer: Any, fed: Federation, context: Context) -> None:
        """Fit a clusterer on all clients."""
        samples, classes = self.samples(fed, context)
        if getattr(clusterer, "n_jobs", 0) is None:
            few = sum(len(own) for own in samples) < SMALL
            clusterer.n_jobs = 1 if few else (context.n_jobs or -1)
        fit_clients(clusterer, samples, classes)

    def joins(
        self, state: GraphState, fed: Federation, context: Context
    ) -> dict[int, int]:
        """Let the clusterer place newcomers, if they do not stay alone.

        What it knows of the other clients are their present samples.
        """
        if self.joining != "placed":
            return {}
        before = len(state.row)
        samples, classes = self.samples(fed, context)
        old, new = slice(before), slice(before, None)
        known = clone(self.clusterer)
        if getattr(known, "n_classes", 0) is None:
            known.n_classes = fed.n_classes  # newcomers may have one that nobody had
        fit_clients(known, samples[old], classes and classes[old])
        found = known.place(samples[new], classes and classes[new])
        joined = {}
        for client, cluster in enumerate(found, before):
            if cluster >= 0:
                own = state.labels[known.labels_ == cluster]
                joined[client] = int(np.bincount(own).argmax())
        return joined

    def fitted(self, fed: Federation, context: Context) -> Any:
        """Return the clusterer, fitted on the present clients."""
        self.check(fed)
        if hasattr(self.clusterer, "labels_"):
            return self.clusterer
        made = clone(self.clusterer)

        def compute() -> dict[str, np.ndarray]:
            self.fit(made, fed, context)
            return learned(made)

        if context.cache is None:
            arrays = compute()
        else:
            key = self.about() | {"federation": fed.fingerprint()}
            arrays = context.cache(key, compute)
        for name, value in arrays.items():
            setattr(made, name, value.item() if value.ndim == 0 else value)
        return made

    def client_graph(self, fed: Federation, context: Context) -> ClientGraph:
        """Cluster the clients, once."""
        return self._graph(self.fitted(fed, context), fed)

    def clustering(
        self, fed: Federation, model: str, training: Mapping[str, Any]
    ) -> tuple[Any, EncoderSpec] | None:
        """Return what finds the graph before round 1: a clusterer and an encoder.

        None if the graph comes from something else.
        """
        return (self.clusterer, self.encoder) if self.encoder is not None else None

    def graph_from(
        self, arrays: Mapping[str, np.ndarray], fed: Federation, model: str
    ) -> ClientGraph:
        """Return the client graph of a finished clustering.

        ``arrays`` has the fitted attributes of the clusterer, without underscores:
        ``labels``, ``sent``, ``received`` and, if the options need it, ``adjacency``,
        ``distance`` or ``leaf_order``.
        """
        fitted = SimpleNamespace()
        for name, value in arrays.items():
            setattr(fitted, f"{name}_", value)
        return self._graph(fitted, fed)

    def _graph(self, fitted: Any, fed: Federation) -> ClientGraph:
        """Return the client graph of a fitted clusterer, and its cost."""
        adjacency, labels = self.graph_of(fitted)
        # scalars before round 1 (FLT, Table 6): the clients' sketches up; the encoder
        # and relayed sketches down
        up = np.sum(getattr(fitted, "sent_", 0))
        down = fed.n_clients * sent_parameters(self.encoder, fed.input_shape)
        down = down + np.sum(getattr(fitted, "received_", 0))
        return ClientGraph(adjacency, labels, (int(up), int(down)))

    def graph_of(self, fitted: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return adjacency (M, M) and labels (M,); neighbours share a cluster."""
        what = f"labels_ of {type(fitted).__name__}"
        labels = integers(what, fitted.labels_, len(fitted.labels_), "client")
        # noise points, label -1 in DBSCAN, stay alone
        noise = labels < 0
        labels = np.where(noise, labels.max() + np.cumsum(noise), labels)
        return labels[:, None] == labels, labels


def fit_clients(
    clusterer: Any, samples: list[np.ndarray], classes: list[np.ndarray] | None
) -> None:
    """Fit a clusterer, and refuse one without a whole number for each client.

    Labels in a list become an array, as a cache keeps nothing else.
    """
    name = type(clusterer).__name__
    try:
        inspect.signature(clusterer.fit).bind(samples, classes)
    except TypeError as error:
        raise FltnbError(
            f"fit of {name} gets the clients' samples and their classes, which may be "
            "None: write fit(self, X, y=None)."
        ) from error
    clusterer.fit(samples, classes)
    if not hasattr(clusterer, "labels_"):
        raise FltnbError(
            f"fit of {name} sets no labels_: let it set self.labels_, the cluster of "
            "each client, and return self."
        )
    n_clients = len(samples)
    labels = integers(f"labels_ of {name}", clusterer.labels_, n_clients, "client")
    if not isinstance(clusterer.labels_, np.ndarray):
        clusterer.labels_ = labels


def learned(fitted: Any) -> dict[str, np.ndarray]:
    """Return the fitted attributes of an estimator, as arrays by name."""
    kept = (int, float, np.ndarray, np.generic)
    return {
        name: np.asarray(value)
        for name, value in vars(fitted).items()
        if name.endswith("_") and isinstance(value, kept)
    }


@dataclass(eq=False, repr=False)
class FLT(OneShot):
    """FLT: cluster the clients once, then average over the resulting client graph.

    Federated learning with taskonomy, arXiv 2103.15947, Algorithm 3.

    Parameters
    ----------
    clusterer : estimator over clients, optional
        ``FCR()`` by default. A fitted one is used as it is; of an unfitted one a copy
        is fitted on the embeddings.
    graph : {"clusters", "full"}
        Case II (disjoint clusters) or case I (the adjacency without a cut). A clusterer
        that sets no ``adjacency_`` has only its clusters: both are the same then.
    membership : {"clients", "leaf_order"}
        "leaf_order" repeats an index error of the public code, to measure its effect:
        cluster c gets the clients ``leaf_order[labels == c]``. Only in case II.
    encoder : EncoderSpec, optional
        The encoder of the clients' data; raw pixels by default.
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute: nothing, the model that each trained last, or
        the model that served each last.
    joining : {"alone", "placed"}
        What happens to clients that join later. "alone": they have no neighbours and
        start from the mean of all models. "placed": the clusterer's ``place`` finds
        their cluster from what they send, if any fits. Lines 21 to 28 of Algorithm 3,
        which cluster again, are :class:`fltnb.methods.DynamicFLT`.
    name : str, optional
        Another id for tables and colours, such as ``flt_enc1``.

    Raises
    ------
    FltnbError
        An option is out of range, ``membership="leaf_order"`` is asked for in case I,
        or the clusterer is fitted on another number of clients or cannot work on the
        federation's samples.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FLT(fl.FCR(k=3, n_neighbors=4))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    name: str = field(default="flt", kw_only=True)

    graph: Literal["clusters", "full"] = "clusters"
    membership: Literal["clients", "leaf_order"] = "clients"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.membership == "leaf_order" and self.graph == "full":
            raise FltnbError(
                'membership="leaf_order" needs disjoint clusters: '
                'give graph="clusters" as well.'
            )

    def graph_of(self, fitted: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return adjacency (case I), or that of the clusters (case II), and labels."""
        adjacency, labels = super().graph_of(fitted)
        if self.membership == "leaf_order":
            if not hasattr(fitted, "leaf_order_"):
                raise FltnbError(
                    f"{type(fitted).__name__} has no dendrogram, so its clients have "
                    'no leaf order: give membership="clients".'
                )
            labels = leaf_order_labels(labels, fitted.leaf_order_)
            adjacency = labels[:, None] == labels
        if self.graph == "full":
            adjacency = getattr(fitted, "adjacency_", adjacency)
        return adjacency, labels


@dataclass(eq=False, repr=False)
class FLTAsRun(FLT):
    """FLT in its tables: case I; absent clients contribute their last trained model.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FLTAsRun(fl.FCR(k=3, n_neighbors=4))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Rule = field(default=PUBLISHED_RULE, kw_only=True)
    graph: Literal["clusters", "full"] = "full"


def leaf_order_labels(labels: np.ndarray, leaf_order: np.ndarray) -> np.ndarray:
    """Return clusters (M,) with the index error of the public code.

    Cluster c gets the clients ``leaf_order[labels == c]``.
    """
    scrambled = np.empty_like(labels)
    scrambled[leaf_order] = labels
    return scrambled


@dataclass(eq=False, repr=False)
class SoftFLT(FLT):
    r"""FLT, case I, with the client distance kept as a weight.

    A client's new model is the mean over all clients with weights
    :math:`n_j\,g(A_{ij} / s)`, normalised to sum 1. Here n_j are samples, A is the
    client distance of FCR (Algorithm 2, line 15), and g is the ``weight``. If all
    distances are 0 or infinite, this is case I on the thresholded graph, for any g and
    s. If absent clients contribute nothing, a client whose nearest participant has
    g = w also counts the model that served it, with the weight :math:`n_i\,(1 - w)`.

    Parameters
    ----------
    clusterer, encoder, rule, joining, name
        See :class:`fltnb.methods.FLT`; the clusters are only reported.
    weight : {"gaussian", "linear"}
        g: exp(-x^2), or max(0, 1 - x / 2), which is 0 beyond twice the scale.
    scale : float, optional
        s, in units of the client distance; by default the clusterer's threshold gamma.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.SoftFLT(fl.FCR(k=3, n_neighbors=4))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    name: str = field(default="flt_soft", kw_only=True)
    graph: ClassVar = "full"  # type: ignore[misc]  # no option here
    membership: ClassVar = "clients"  # type: ignore[misc]  # no option here

    weight: Literal["gaussian", "linear"] = "gaussian"
    scale: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is None:
            self.scale = getattr(self.clusterer, "threshold", None)
        if not self.scale:
            raise FltnbError(
                f"{type(self.clusterer).__name__} has no threshold above 0 that could "
                "be the scale: give scale."
            )

    def graph_of(self, fitted: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return weights from the clients' distances, and labels."""
        _, labels = super().graph_of(fitted)
        if not hasattr(fitted, "distance_"):
            raise FltnbError(
                f"{type(fitted).__name__} sets no distance_, the distances (M, M) of "
                "clients that SoftFLT weighs them by: let its fit set it, or take FLT."
            )
        return soft_graph(fitted.distance_, self.scale, self.weight), labels


@dataclass(eq=False, repr=False)
class SoftFLTAsRun(SoftFLT):
    """Soft FLT; absent clients contribute their last trained model, as in FLT's tables.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.SoftFLTAsRun(fl.FCR(k=3, n_neighbors=4))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Rule = field(default=PUBLISHED_RULE, kw_only=True)


def soft_graph(
    distance: np.ndarray, scale: float, weight: str = "gaussian"
) -> np.ndarray:
    """Return weights (M, M) in [0, 1] of a client graph, 1 on the diagonal.

    At a distance equal to the scale they are exp(-1) ("gaussian") or 1/2 ("linear").
    """
    ratio = np.asarray(distance, dtype=np.float64) / scale
    weights = np.exp(-(ratio**2))
    if weight == "linear":
        weights = np.maximum(0.0, 1.0 - ratio / 2)
    np.fill_diagonal(weights, 1.0)
    return weights


@dataclass(eq=False, repr=False)
class PCAKMHC(FLT):
    """PCA+kM+HC, FLT's baseline: every client runs PCA and k-means on its pixels.

    FLT, arXiv 2103.15947, Section 4.3.

    Parameters
    ----------
    clusterer : PCAKMeans, optional
        ``PCAKMeans()`` by default.
    encoder, graph, membership, rule, joining, name
        See :class:`fltnb.methods.FLT`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.PCAKMHC(fl.PCAKMeans(n_clusters=3, k=3, n_components=16))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    name: str = field(default="pca_km_hc", kw_only=True)
    default = clustering.PCAKMeans


@dataclass(eq=False, repr=False)
class PCAKMHCAsRun(PCAKMHC):
    """PCA+kM+HC in FLT's tables: case I and the rule of :class:`FLTAsRun`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.PCAKMHCAsRun(
    ...     fl.PCAKMeans(n_clusters=3, k=3, n_components=16)
    ... )
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Rule = field(default=PUBLISHED_RULE, kw_only=True)
    graph: Literal["clusters", "full"] = "full"


@dataclass(eq=False, repr=False)
class PACFL(OneShot):
    """One-shot clustering by subspaces of the images, then FedAvg in the clusters.

    Vahidian et al., AAAI 2023 (arXiv 2209.10526). The subspaces are those of training
    images with pixels in [0, 1]; all colours of an image form one column.

    Parameters
    ----------
    clusterer : fltnb.clustering.PACFL, optional
        ``fltnb.clustering.PACFL()`` by default, whose threshold suits few data sets.
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute: nothing, the model that each trained last, or
        the model that served each last.
    joining : {"placed", "alone"}
        What happens to clients that join later. "placed": they join the cluster with
        the nearest subspaces, if any is near. "alone": they have no neighbours.
    name : str, optional
        Another id for tables and colours.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.PACFL(fl.PACFL(n_clusters=3))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    joining: Literal["alone", "placed"] = field(default="placed", kw_only=True)
    name: str = field(default="pacfl", kw_only=True)
    default = clustering.PACFL
    kind = clustering.PACFL
    split = "train"
    scaled = False

    encoder: ClassVar = None  # type: ignore[misc]  # it needs none

    def about(self) -> dict[str, Any]:
        """Return the settings that decide the fit."""
        return {key: value for key, value in self.settings().items() if key != "rule"}

    def samples(
        self, fed: Federation, context: Context
    ) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
        """Return what is clustered: the images (n_i, d) and classes (n_i,)."""
        return client_images(fed, self.split, self.scaled)


@dataclass(eq=False, repr=False)
class PACFLAsRun(PACFL):
    """PACFL as in EMD-CFL's tables: subspaces of *validation* images.

    The images are scaled as for the network, and each channel is a column. Absent
    clients contribute their last trained model. Each client needs validation samples.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> method = fl.methods.PACFLAsRun(fl.PACFL(n_clusters=3))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    split = "val"
    scaled = True

    rule: Rule = field(default=PUBLISHED_RULE, kw_only=True)

    @classmethod
    def as_written(cls) -> type[PACFL]:
        """Return PACFL: stored settings of these runs name the rule."""
        return PACFL


def client_images(
    fed: Federation, split: str = "train", scaled: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return flattened images (n_i, d) and classes (n_i,) of every client.

    As in :class:`PACFL`; with ``scaled``: as for the network, a row per channel.
    """
    images = []
    classes = []
    for index in getattr(fed, split):
        if scaled:
            x = fed.inputs(index)
            per_image = x.shape[1]
        else:
            x = to_inputs(fed.images[index])
            per_image = 1
        images.append(x.reshape(len(x) * per_image, -1))
        classes.append(np.repeat(fed.labels[index], per_image))
    return images, classes
