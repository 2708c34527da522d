"""OCFL: one clustering of the updates, in the round in which they begin to diverge."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ...clustering.cuts import relabel
from ...errors import FltnbError
from ...randomness import integer
from ...settings import Count
from ..base import Context, HardMethod
from ..modelspace import cluster_means, cosines, group_means, kmeans, with_rows
from ..newcomers import counted, first_training, nearest_direction, placed
from ..state import Unclustered, unclustered

Kind = Literal["hdbscan", "meanshift", "affinity", "kmeans"]


@dataclass(eq=False, kw_only=True)
class OCFLState(Unclustered):
    """State of OCFL: the latest update (M, d) of every client.

    ``temperature`` of the last round, NaN in the first; ``formed``: whether there are
    clusters; then ``joint`` (P,), the model before clustering, and ``centers`` (K, d),
    the clusters' mean updates.
    """

    of_clients = ("heard", "updates")

    updates: np.ndarray
    temperature: np.ndarray
    formed: np.ndarray
    joint: np.ndarray | None = None
    centers: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class OCFL(HardMethod):
    """FedAvg with equal weights until clients' updates diverge; then one clustering.

    Zuziak et al., arXiv 2503.04231; written from the authors' code
    (MKZuziak/Clustered-Federated-Learning), not compared with the paper.

    A round's temperature is the norm of the cosine distances between all updates, as a
    share of its largest possible value. In the first round in which it rises, the
    distances are clustered, every cluster continues from the common model, and this
    round's models are already averaged inside the clusters. There is no second
    clustering. Noise can cause such a rise: ``run.labels_at`` shows the round.

    With partial participation (in the original all clients take part in every round)
    the latest update of each client is used, once all clients have trained.

    Parameters
    ----------
    clusterer : {"hdbscan", "meanshift", "affinity", "kmeans"}
        HDBSCAN on the distances, whose noise points stand alone; mean shift or k-means
        on the rows of distances; affinity propagation on the cosines. The width of mean
        shift comes from the nearest 30 % of the clients: with fewer than 7 it is 0, and
        clients whose rows differ stand alone.
    n_clusters : int, optional
        For k-means, which needs it.
    min_size : int
        Smallest size of a cluster of HDBSCAN, at least 2.

    Raises
    ------
    FltnbError
        ``n_clusters`` is given without k-means, or the reverse; ``min_size`` is 1; or
        there are fewer clients than HDBSCAN's smallest cluster, or fewer than 2.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.OCFL("kmeans", n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = OCFLState
    name = "ocfl"
    noise_alone = True
    of_distances = False  # whether affinity propagation gets distances

    clusterer: Kind = "hdbscan"
    n_clusters: Count | None = field(default=None, kw_only=True)
    min_size: Count = field(default=3, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.clusterer == "kmeans") != (self.n_clusters is not None):
            raise FltnbError(
                'OCFL needs n_clusters for clusterer="kmeans", and for no other: give '
                "both or neither."
            )
        if self.min_size < 2:
            raise FltnbError("OCFL needs clusters of at least 2: raise min_size.")

    def check(self, fed) -> None:
        """Also refuse fewer clients than HDBSCAN needs."""
        super().check(fed)
        least = self.min_size if self.clusterer == "hdbscan" else 2
        if fed.n_clients < least:
            raise FltnbError(
                f"OCFL needs at least {least} clients, not {fed.n_clients}: take more, "
                "or FedAvg."
            )

    def start(self, fed, model, context: Context) -> OCFLState:
        """Start with one cluster of all clients."""
        return unclustered(
            OCFLState,
            fed,
            model,
            context,
            updates=np.zeros((fed.n_clients, model.n_trainable), dtype=np.float32),
            temperature=np.array(np.nan),
            formed=np.array(False),
        )

    def collect(
        self, state: OCFLState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> OCFLState:
        """Check whether the updates diverge, then average inside the clusters."""
        if not state.formed:
            moved = state.moved(theta, state.models[0])
            updates = with_rows(state.updates, clients, moved)
            heard = with_rows(state.heard, clients, True)
            state = replace(state, updates=updates, heard=heard)
            if heard.all():
                state = self._looked_at(state, round)

        row = state.row[clients]
        models = cluster_means(row, np.ones(len(clients)), theta, state.models)
        return replace(state, models=models)

    def _looked_at(self, state: OCFLState, round: int) -> OCFLState:
        """Measure the temperature, and form the clusters if it rose."""
        everybody = np.arange(len(state.row))
        distance = 1.0 - cosines(state.updates, everybody)
        now = temperature(distance)
        if not now > state.temperature:  # NaN in the first round
            return replace(state, temperature=np.array(now))

        labels = self._groups(distance, integer(int(state.seed), "method", round))
        centers = group_means(state.updates, labels)
        return replace(
            state,
            models=np.repeat(state.models, len(centers), axis=0),
            row=labels,
            labels=labels,
            updates=state.updates[:0],  # not needed any more
            temperature=np.array(now),
            formed=np.array(True),
            joint=state.models[0],
            centers=centers,
        )

    def welcome(
        self, state: OCFLState, new: np.ndarray, round: int, engine
    ) -> OCFLState:
        """Let newcomers train the joint model, and join by the largest cosine.

        Compared are the mean updates that formed the clusters. The original does not
        treat newcomers.
        """
        if not state.formed:
            return placed(state, new, 0)
        theta = first_training(state.joint[None], new, round, engine)
        updates = state.moved(theta, state.joint)
        cluster = nearest_direction(updates, state.centers)
        return placed(counted(state, len(new)), new, cluster)

    def _groups(self, distance: np.ndarray, seed: int) -> np.ndarray:
        """Return clusters (M,) from distances (M, M)."""
        from sklearn.cluster import HDBSCAN, AffinityPropagation, MeanShift

        if self.clusterer == "kmeans":
            return relabel(kmeans(distance, self.n_clusters, seed))
        if self.clusterer == "meanshift":
            return relabel(MeanShift().fit_predict(distance))
        if self.clusterer == "affinity":
            made = AffinityPropagation(affinity="precomputed", random_state=seed)
            given = distance if self.of_distances else 1.0 - distance
            labels = made.fit_predict(given)
        else:
            made = HDBSCAN(self.min_size, metric="precomputed", copy=True)
            labels = made.fit_predict(distance)
        noise = labels < 0
        if self.noise_alone:
            labels = np.where(noise, labels.max() + np.cumsum(noise), labels)
        return relabel(labels)


@dataclass(eq=False, repr=False)
class OCFLAsRun(OCFL):
    """OCFL in its code: all noise points of HDBSCAN form one cluster.

    Affinity propagation gets distances, although it expects similarities.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.OCFLAsRun("kmeans", n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    noise_alone = False
    of_distances = True


def temperature(distance: np.ndarray) -> float:
    """Return the norm of cosine distances (n, n), as a share of its largest value.

    Examples
    --------
    >>> temperature(1 - np.eye(5))  # all orthogonal
    0.5
    """
    n = len(distance)
    largest = np.sqrt(4 * n * (n - 1))  # n (n - 1) distances of at most 2
    return float(np.linalg.norm(distance) / largest)
