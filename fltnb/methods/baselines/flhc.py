"""FL+HC: hierarchical clusters of the clients' updates, found once."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import cdist, pdist, squareform

from ...clustering.pacfl import flat_clusters
from ...errors import FltnbError, UnstableError
from ...settings import Count, Natural, NonNegative
from ..base import Context, HardMethod
from ..modelspace import blocks, cosines, group_means
from ..newcomers import counted, finite, first_training, placed
from ..state import State, one_cluster

Metric = Literal["L1", "L2", "cosine"]
Linkage = Literal["complete", "average", "single"]
SCIPY = {"L1": "cityblock", "L2": "euclidean", "cosine": "cosine"}
"""Names of the metrics in SciPy."""


@dataclass(eq=False, kw_only=True)
class FLHCState(State):
    """State of FL+HC; ``trainable``: how many columns are compared.

    ``sent`` counts clients that were absent in the clustering round, and newcomers.
    After that round ``joint`` (P,) is the model that all clients trained, and
    ``centers`` (K, d) are the clusters' mean updates.
    """

    trainable: np.ndarray
    joint: np.ndarray | None = None
    centers: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class FLHC(HardMethod):
    """FedAvg, one clustering of all clients' updates, then FedAvg inside the clusters.

    Briggs, Fan and Andras, IJCNN 2020 (arXiv 2004.11791); written from descriptions by
    third parties, not compared with the paper. No official code is known.

    In round ``after + 1`` *all* clients train the joint model, also those that are
    absent in this round, and send their updates. Clusters are merged up to a distance.
    They start with the joint model, and the models that this round's participants have
    just trained give their first average (the original needs one more round for it).

    The published numbers that we know only test the linkage and the distance. The
    package FedCL gives the *similarity* to a clusterer that expects distances, so it
    merges members of opposite groups.

    Parameters
    ----------
    threshold : float, optional
        T, the distance up to which clusters are merged; a good value depends on the
        training. 3 for L2 on MNIST in the original.
    n_clusters : int, optional
        Cut the dendrogram into this number of clusters; give one of the two.
    after : int
        n, rounds of FedAvg before the clustering. The original tries 1, 3, 5, 10, and
        recommends 10 with L1.
    metric : {"L2", "L1", "cosine"}
        Distance of two updates.
    linkage : {"complete", "average", "single"}
        Linkage of the dendrogram; we do not know that of the original.

    Raises
    ------
    FltnbError
        Neither or both of ``threshold`` and ``n_clusters`` are given, or there is a
        single client.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FLHC(n_clusters=3, after=1)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FLHCState
    name = "flhc"

    threshold: NonNegative | None = None
    n_clusters: Count | None = field(default=None, kw_only=True)
    after: Natural = field(default=10, kw_only=True)
    metric: Metric = field(default="L2", kw_only=True)
    linkage: Linkage = field(default="complete", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.threshold is None) == (self.n_clusters is None):
            raise FltnbError(
                "FLHC needs either a threshold or a number of clusters: give threshold "
                "or n_clusters, and not both."
            )

    def check(self, fed) -> None:
        """Also refuse a single client."""
        super().check(fed)
        if fed.n_clients < 2:
            raise FltnbError("FLHC needs at least 2 clients: take FedAvg for one.")

    def start(self, fed, model, context: Context) -> FLHCState:
        """Start with one model and one cluster."""
        return one_cluster(
            FLHCState,
            fed,
            model.init(context.seed),
            trainable=np.array(model.n_trainable),
            sent=np.zeros(2, dtype=np.int64),
        )

    def train(self, state: FLHCState, clients: np.ndarray, round: int, engine):
        """Let all clients train in the clustering round, and form the clusters."""
        if round != self.after + 1:
            return super().train(state, clients, round, engine)

        everybody = np.arange(len(state.row))
        _, trained = super().train(state, everybody, round, engine)
        fine = finite(trained)
        if fine.all():
            state = self._clustered(state, trained.theta, len(clients))
        elif fine[clients].all():
            raise UnstableError(
                f"The training of client {int(fine.argmin())} in the clustering "
                f"round, {round}, diverged: choose a smaller lr."
            )
        theta, loss = trained.theta[clients], trained.loss[clients]
        return state, replace(trained, theta=theta, loss=loss)

    def _clustered(
        self, state: FLHCState, theta: np.ndarray, n_present: int
    ) -> FLHCState:
        """Cluster all clients' trained models (M, P); clusters get the joint model."""
        n = int(state.trainable)
        updates = theta[:, :n] - state.models[0, :n]
        tree = scipy_linkage(distances(updates, self.metric), self.linkage)
        labels = flat_clusters(tree, self.threshold, self.n_clusters)
        centers = group_means(updates, labels)
        moved = (len(theta) - n_present) * theta.shape[1]
        return replace(
            state,
            models=np.repeat(state.models, len(centers), axis=0),
            row=labels,
            labels=labels,
            sent=state.sent + moved,
            joint=state.models[0],
            centers=centers,
        )

    def welcome(
        self, state: FLHCState, new: np.ndarray, round: int, engine
    ) -> FLHCState:
        """Let newcomers train the joint model, and join the nearest mean update.

        The original does not treat newcomers.
        """
        if state.centers is None:
            return placed(state, new, 0)
        theta = first_training(state.joint[None], new, round, engine)
        n = int(state.trainable)
        updates = theta[:, :n] - state.joint[:n]
        distance = cdist(updates, state.centers, SCIPY[self.metric])
        # a cosine with a zero update is NaN
        nearest = np.nan_to_num(distance, nan=np.inf).argmin(axis=1)
        return placed(counted(state, len(new)), new, nearest)


def distances(updates: np.ndarray, metric: Metric) -> np.ndarray:
    """Return distances between updates (n, P), in SciPy's condensed form.

    Examples
    --------
    >>> distances(np.array([[1, 0], [1, 0.1], [0, 1]]), "L1").round(4).tolist()
    [0.1, 2.0, 1.9]
    """
    if metric == "cosine":
        similarity = cosines(updates, np.arange(len(updates)))
        return squareform(1.0 - similarity, checks=False)

    kind = {"L1": "cityblock", "L2": "sqeuclidean"}[metric]
    total = np.zeros(())
    for block in blocks(updates.shape[1]):
        total = total + pdist(updates[:, block], kind)
    return np.sqrt(total) if metric == "L2" else total
