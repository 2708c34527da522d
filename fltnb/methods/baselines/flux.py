"""FLUX: clusters by statistics of features that the joint model computes from data."""

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from ...clustering.cuts import relabel
from ...clustering.pacfl import singular_vectors
from ...errors import FltnbError
from ...randomness import integer, stream
from ...settings import Count, Natural, Share
from ..base import Context, HardMethod
from ..modelspace import group_means, kmeans
from ..ownmodels import penultimate
from ..samples import Split
from ..state import State, one_cluster

RISE = 0.06  # of accuracy in a round; below it training counts as settled
SETTLED = 3  # accuracies that are needed before training can count as settled
POINTS = 200  # number of random points that determine the axes
SPREAD = 1.02  # their range, as a multiple of the largest feature
ABSENT = -1.0  # replaces the mean of a class that a client does not have


@dataclass(eq=False, kw_only=True)
class FLUXState(State):
    """State of FLUX: how descriptors are made and compared.

    Attributes
    ----------
    accuracy : array (rounds so far,)
        Mean accuracy of the joint model.
    largest : float
        The largest feature so far.
    watched : bool
        Whether participants reported both in this round.
    sent : int array (2,)
        Scalars sent up and down for the clustering.
    joint : array (P,)
        The model that computed the descriptors; from here on None before there are
        clusters.
    low, high : arrays (2,)
        The ranges of means and deviations over all samples.
    centers : array (C, 2 l)
        Mean of these two over the clients of a cluster, scaled.
    """

    accuracy: np.ndarray
    largest: np.ndarray
    watched: np.ndarray
    sent: np.ndarray
    joint: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    centers: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class FLUX(HardMethod):
    """FedAvg, one clustering by descriptors, then FedAvg inside the clusters.

    Fenoglio et al., NeurIPS 2025 (arXiv 2511.22305); written from the authors' code
    (dariofenoglio98/FLUX), not compared with the paper.

    Training has settled when the mean accuracy of the joint model has risen by less
    than ``rise`` in some round, and at least three rounds were measured. Then every
    client, also an absent one, sends means and standard deviations of the features that
    the received model computes from its samples: of all samples and of those of each
    class, along a few axes that all clients can draw themselves. The server scales each
    of these blocks to [0, 1] by one range. It links clients up to a distance, the elbow
    of the distances to nearest neighbours (DBSCAN with 2 samples; noise points stand
    alone).

    A newcomer needs no classes. It gets the cluster whose mean descriptor of all
    samples is nearest to its own, computed by the model that computed the others.

    Features are the inputs of the last layer; in the original they come from the last
    convolution of a LeNet. According to a third party the text sends covariances; the
    code sends deviations, as here. A class that a client does not have counts as -1
    before scaling, so the set of a client's classes matters most.

    Parameters
    ----------
    n_clusters : int, optional
        Use k-means with this number of clusters instead ("FLUX-prior").
    n_components : int, optional
        l, the number of axes; None: the number of classes.
    latest : int
        The round after which clusters are formed in any case. The original has 80 % of
        all rounds, mostly 8 of 10.
    rise : float
        A smaller rise of accuracy in a round, as a share, means that training has
        settled.
    split : {"val", "train"}
        The samples on which the joint model is tested.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> method = fl.methods.FLUX(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FLUXState
    name = "flux"
    headed = True

    n_clusters: Count | None = field(default=None, kw_only=True)
    n_components: Count | None = field(default=10, kw_only=True)
    latest: Natural = field(default=8, kw_only=True)
    rise: Share = field(default=RISE, kw_only=True)
    split: Split = field(default="val", kw_only=True)

    def check(self, fed) -> None:
        """Also refuse numbers to predict: descriptors are by class."""
        super().check(fed)
        if fed.targets == "values":
            raise FltnbError(
                f"FLUX needs classes, and {fed.name} has numbers to predict: choose "
                "another method."
            )

    def start(self, fed, model, context: Context) -> FLUXState:
        """Start with one model and one cluster."""
        return one_cluster(
            FLUXState,
            fed,
            model.init(context.seed),
            accuracy=np.empty(0),
            largest=np.array(0.0),
            watched=np.array(False),
            sent=np.zeros(2, dtype=np.int64),
        )

    def observe(
        self, state: FLUXState, clients: np.ndarray, round: int, engine
    ) -> FLUXState:
        """Let participants test the joint model until there are clusters."""
        if state.centers is not None:
            return replace(state, watched=np.array(False))
        found = engine.evaluate(
            state.models, np.zeros_like(clients), clients, self.split
        )
        accuracy = state.accuracy
        if round > 1:
            mean = (found.correct / found.total).mean()
            accuracy = np.append(accuracy, mean)
        largest = float(state.largest)
        for client in clients:
            held = getattr(engine.fed, self.split)[client]
            inputs = engine.fed.inputs(held)
            seen = penultimate(engine.model, state.models[0], inputs, engine.device)
            largest = max(largest, float(seen.max()))
        return replace(
            state,
            accuracy=accuracy,
            largest=np.array(largest),
            watched=np.array(True),
        )

    def train(self, state: FLUXState, clients: np.ndarray, round: int, engine):
        """Form the clusters, once training has settled, and train."""
        settled = False
        if len(state.accuracy) >= SETTLED:
            rises = np.diff(state.accuracy)
            settled = rises.min() < self.rise
        if state.centers is None and (settled or round > self.latest):
            state = self._clustered(state, round, engine, len(clients))
        return super().train(state, clients, round, engine)

    def _clustered(
        self, state: FLUXState, round: int, engine, n_present: int
    ) -> FLUXState:
        """Compute the descriptors of all clients, and cluster them.

        ``n_present``: number of participants of this round, who have the model.
        """
        joint = state.models[0]
        blocks = self._descriptors(state, engine)
        low = blocks.min(axis=(0, 2))
        high = blocks.max(axis=(0, 2))
        scaled = _scaled(blocks, low, high)
        points = scaled.reshape(len(scaled), -1)
        seed = integer(engine.spec.seed, "method", round)
        labels = linked(points)
        if self.n_clusters is not None:
            labels = relabel(kmeans(points, self.n_clusters, seed))

        # of all samples, without classes: what a newcomer can be compared by
        whole = scaled[:, :2].reshape(len(scaled), -1)
        centers = group_means(whole, labels)
        absent = len(labels) - n_present
        up = blocks.size
        down = absent * len(joint) + len(labels)  # and a number each
        return replace(
            state,
            models=np.repeat(state.models, len(centers), axis=0),
            row=labels,
            labels=labels,
            joint=joint,
            low=low[:2],
            high=high[:2],
            centers=centers,
            sent=np.array([up, down]),
        )

    def _descriptors(self, state: FLUXState, engine) -> np.ndarray:
        """Return the descriptors of all clients, (M, 2 (U + 1), l).

        Those of training samples under the joint model, which all of them have now.
        """
        fed = engine.fed
        joint = state.models[0]
        own = []
        for client in range(fed.n_clients):
            held = fed.train[client]
            inputs, classes = fed.inputs(held), fed.labels[held]
            seen = self._seen(engine.model, state, joint, inputs, engine.device)
            own.append(descriptor(seen, classes, fed.n_classes))
        return np.stack(own)

    def _seen(
        self, model, state: FLUXState, joint: np.ndarray, inputs: np.ndarray, device
    ) -> np.ndarray:
        """Return coordinates (n, l) of the features that a model (P,) computes.

        ``inputs``: n samples (n, ...).
        """
        features = penultimate(model, joint, inputs, device)
        n_axes = self.n_components or model.n_classes
        largest = float(state.largest)
        middle, directions = axes(features.shape[1], n_axes, largest)
        return (features - middle) @ directions

    def place(
        self, state: FLUXState, model, inputs: np.ndarray, device: str = "auto"
    ) -> int:
        """Return the cluster of an untrained client by its inputs (n, C, H, W).

        It is 0 before there are clusters.
        """
        if state.centers is None:
            return 0
        seen = self._seen(model, state, state.joint, inputs, device)
        blocks = np.stack([seen.mean(axis=0), seen.std(axis=0)])  # (2, l)
        scaled = _scaled(blocks[None], state.low, state.high)
        distance = cdist(scaled.reshape(1, -1), state.centers)
        return int(distance.argmin())

    def changed(
        self, state: FLUXState, fed, model, changed: np.ndarray, context: Context
    ) -> FLUXState:
        """Place newcomers by their inputs alone; other clients stay."""
        newcomers = range(len(state.row), fed.n_clients)
        placed = []
        for i in newcomers:
            inputs = fed.inputs(fed.train[i])
            placed.append(self.place(state, model, inputs, context.device))
        row = np.append(state.row, np.array(placed, dtype=np.int64))
        weights = np.asarray(fed.sizes, dtype=np.float64)
        return replace(state, row=row, labels=row, weights=weights)

    def traffic(self, state: FLUXState, n_parameters: int) -> tuple[int, int]:
        """Count a model in each direction, and two numbers up before clustering."""
        return n_parameters, n_parameters + 2 * int(state.watched)


def axes(width: int, n: int, largest: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (d,) and leading directions (d, n) of random features.

    They are uniform between 0 and the largest feature, so they are the same for all
    clients and only depend on the data through this value.
    """
    draws = stream(1, "method").random((POINTS, width))
    points = draws * SPREAD * (largest or 1.0)
    middle = points.mean(axis=0)
    return middle, singular_vectors(points - middle, n)


def descriptor(seen: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return means and deviations of all samples, then of each class.

    Parameters
    ----------
    seen : ndarray, shape (n, l)
        Coordinates of samples.
    classes : ndarray of int, shape (n,)
    n_classes : int
        U.

    Returns
    -------
    ndarray, shape (2 (U + 1), l)
        Mean and deviation alternate; ABSENT for classes without samples.
    """
    n_axes = seen.shape[1]
    parts = [seen]
    for c in range(n_classes):
        parts.append(seen[classes == c])
    out = np.full((len(parts), 2, n_axes), ABSENT)
    for k, part in enumerate(parts):
        if len(part):
            out[k, 0] = part.mean(axis=0)
            out[k, 1] = part.std(axis=0)
    return out.reshape(-1, n_axes)


def _scaled(blocks: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Scale blocks (M, b, l) by their ranges, from 0; 0 if a range is empty.

    ``low``, ``high``: ends of the ranges, (b,).
    """
    length = (high - low)[:, None]
    above = blocks - low[:, None]
    out = np.zeros_like(blocks)
    return np.divide(above, length, out=out, where=length > 0)


def elbow(values: np.ndarray) -> float:
    """Return the value farthest below the line from the smallest to the largest.

    The values are sorted and drawn against their rank; the line is straight.

    Examples
    --------
    >>> elbow(np.array([1, 1, 199, 1, 1, 1]))
    1.0
    """
    ordered = np.sort(values)
    chord = np.linspace(ordered[0], ordered[-1], len(ordered))
    return float(ordered[np.argmax(chord - ordered)])


def linked(points: np.ndarray) -> np.ndarray:
    """Return clusters (M,) of points (M, d) linked by steps up to the elbow.

    This is DBSCAN with two samples; noise points stand alone. Equal points are one
    cluster, and so are two points.
    """
    if len(points) == 1:
        return np.zeros(1, dtype=np.int64)
    distance = cdist(points, points)
    np.fill_diagonal(distance, np.inf)
    to_nearest = distance.min(axis=1)
    reach = elbow(to_nearest)
    _, labels = connected_components(distance <= reach)
    return relabel(labels)


@dataclass(eq=False, repr=False)
class FLUXAsRun(FLUX):
    """FLUX in its code: as many axes as there are classes.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> method = fl.methods.FLUXAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    n_components: Count | None = field(default=None, kw_only=True)
