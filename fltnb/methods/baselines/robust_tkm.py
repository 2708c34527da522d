"""Robust clustered FL: trimmed k-means on models, trimmed means inside the clusters.

This is the row Robust (TKM) of FeSEM's tables (Ghosh et al., arXiv 1906.06629). It is
meant for federations in which some clients send arbitrary models.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.spatial.distance import cdist

from ...aggregate import mix_groups
from ...randomness import stream
from ...settings import Count, Within
from ..base import Context, HardMethod
from ..modelspace import coordinates, nearest_center, with_rows
from ..newcomers import common_model, counted, first_training, placed
from ..state import Unclustered, unclustered

STARTS = 20
STEPS = 100  # most Lloyd steps: with trimming, two clusterings may alternate
FIRST_STEPS = 8  # in the first clustering of FeSEM's code


@dataclass(eq=False, kw_only=True)
class RobustTKMState(Unclustered):
    """State of Robust (TKM): the points by which clients are compared.

    ``points`` (M, d): the columns ``seen`` (2,) of their last models; ``centers`` (K,
    d) of the clusters; ``formed``: whether there are clusters.
    """

    of_clients = ("heard", "points")

    points: np.ndarray
    centers: np.ndarray
    seen: np.ndarray
    formed: np.ndarray


@dataclass(eq=False, repr=False)
class RobustTKM(HardMethod):
    """k-means with centres that ignore outliers, and trimmed means as models.

    Ghosh et al., arXiv 1906.06629; the row Robust (TKM) of FeSEM's tables. Clients are
    clustered once, as soon as K have trained, by all parameters; later clients join the
    nearest centre. The original has three stages. The first (every client fits its own
    model) is the local training of the first round. The last takes trimmed means of
    *gradients*; here they are of models, which is the same for one local step.

    Parameters
    ----------
    n_clusters : int
        K, the number of clusters; 3 in FeSEM's code, not stated in its tables.
    trim : float
        Share in [0, 0.5). A centre is the mean of its cluster without the ``trim``
        farthest members. Each parameter of a cluster's model is the mean over its
        participants without the ``trim`` smallest and the ``trim`` largest values.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.RobustTKM(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = RobustTKMState
    name = "robust_tkm"

    n_clusters: Count = 3
    trim: Annotated[float, Within(high=0.5, below=True)] = 0.2

    def seen(self, model) -> slice:
        """Return the columns of the models that are compared."""
        return slice(0, model.n_trainable)

    def start(self, fed, model, context: Context) -> RobustTKMState:
        """Start with the common initial model and one cluster."""
        seen = self.seen(model)
        compared = model.init(context.seed)[seen]
        return unclustered(
            RobustTKMState,
            fed,
            model,
            context,
            points=np.repeat(compared[None], fed.n_clients, axis=0),
            centers=compared[None],
            initial=compared,
            seen=np.array([seen.start, seen.stop]),
            formed=np.array(False),
        )

    def collect(
        self, state: RobustTKMState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> RobustTKMState:
        """Cluster if it is due, then take trimmed means inside the clusters."""
        points = with_rows(state.points, clients, theta[:, slice(*state.seen)])
        heard = with_rows(state.heard, clients, True)
        new = np.flatnonzero(heard & ~state.heard)  # trained for the first time
        state = replace(state, points=points, heard=heard)
        state = self._grouped(state, new, round)

        models = state.models.copy()
        row = state.row[clients]
        for cluster in np.unique(row):
            present = theta[row == cluster]
            models[cluster] = trimmed_mean(present, self.trim)
        return replace(state, models=models)

    def _grouped(
        self, state: RobustTKMState, new: np.ndarray, round: int
    ) -> RobustTKMState:
        """Place clients at the nearest centres, once K of them have trained.

        ``new`` (n,): those that have just trained for the first time.
        """
        points = state.points
        models = state.models
        if state.formed:
            moving, centers = self.again(points, state.heard, new, state.centers)
        elif state.heard.sum() >= self.n_clusters:
            moving = np.arange(len(points))
            known = points[state.heard]
            seed = int(state.seed)
            centers = self.first_centers(known, state.initial, seed, round)
            models = np.repeat(models, self.n_clusters, axis=0)
        else:
            return state

        nearest = nearest_center(points[moving], centers, state.initial)
        row = with_rows(state.row, moving, nearest)
        return replace(
            state,
            models=models,
            row=row,
            labels=row,
            centers=centers.astype(points.dtype),
            formed=np.array(True),
        )

    def welcome(
        self, state: RobustTKMState, new: np.ndarray, round: int, engine
    ) -> RobustTKMState:
        """Let newcomers train the mean of all models, and join the nearest centre."""
        theta = first_training(common_model(state, new), new, round, engine)
        own = theta[:, slice(*state.seen)]
        cluster = nearest_center(own, state.centers, state.initial)
        points = with_rows(state.points, new, own)
        heard = with_rows(state.heard, new, True)
        state = replace(counted(state, len(new)), points=points, heard=heard)
        return placed(state, new, cluster)

    def again(
        self,
        points: np.ndarray,
        heard: np.ndarray,
        new: np.ndarray,
        centers: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return clients to place in a later round, and centres (K, d) for it."""
        return new, centers

    def first_centers(
        self, points: np.ndarray, initial: np.ndarray, seed: int, round: int
    ) -> np.ndarray:
        """Return centres (K, d) from the best of 20 draws of K clients."""
        K = self.n_clusters
        inside = coordinates(points, initial)

        def near_mean(members, center):
            return members[nearest(members, center, self.trim)].mean(axis=0)

        share = None
        least = np.inf
        for start in range(STARTS):
            drawn = self._drawn(len(points), seed, round, start)
            labels, centers = lloyd(inside, inside[drawn], near_mean, STEPS)
            kept = self._kept(inside, labels, centers)
            cost = (kept * cdist(centers, inside, "sqeuclidean")).sum()
            if share is None or cost < least - 1e-9 * abs(least):
                share = kept
                least = cost

        return mix_groups(share, points, np.repeat(initial[None], K, axis=0))

    def _kept(
        self, points: np.ndarray, labels: np.ndarray, centers: np.ndarray
    ) -> np.ndarray:
        """Return 1 for the points that a centre is the mean of, (K, n), else 0.

        ``points`` (n, d), ``labels`` (n,): those of its cluster but the farthest.
        """
        kept = np.zeros((len(centers), len(points)))
        for k, center in enumerate(centers):
            members = np.flatnonzero(labels == k)
            near = nearest(points[members], center, self.trim)
            kept[k, members[near]] = 1
        return kept

    def _drawn(self, n: int, seed: int, round: int, start: int) -> np.ndarray:
        """Draw K of n points to start from, ascending."""
        rng = stream(seed, "method", round, start)
        return np.sort(rng.choice(n, self.n_clusters, replace=False))


@dataclass(eq=False, repr=False)
class RobustTKMAsRun(RobustTKM):
    """Robust (TKM) in FeSEM's code: it clusters every round, by the last layer.

    Centres are medians, after 8 Lloyd steps in the first round and one in later rounds.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.RobustTKMAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    headed = True

    def seen(self, model) -> slice:
        """Return the columns of the last layer's weights, without biases."""
        return model.head_weight

    def again(self, points, heard, new, centers):
        """Return all clients, and centres after one more step."""
        members = points[heard].astype(np.float64)
        _, centers = lloyd(members, centers, median, 1)
        return np.arange(len(points)), centers

    def first_centers(self, points, initial, seed, round):
        """Return centres (K, d) from one draw of K clients, after eight steps."""
        points = points.astype(np.float64)
        drawn = self._drawn(len(points), seed, round, 0)
        _, centers = lloyd(points, points[drawn], median, FIRST_STEPS)
        return centers


def median(points: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return the median of each coordinate (midpoint for even numbers)."""
    return np.median(points, axis=0)


def nearest(points: np.ndarray, center: np.ndarray, trim: float) -> np.ndarray:
    """Return the positions of the points (n, d) without the farthest ones.

    The share ``trim`` of points that are farthest from the centre is ignored.
    """
    distance = ((points - center) ** 2).sum(axis=1)
    order = np.argsort(distance, kind="stable")
    return np.sort(order[: len(points) - _cut(len(points), trim)])


def lloyd(
    points: np.ndarray,
    centers: np.ndarray,
    update: Callable[[np.ndarray, np.ndarray], np.ndarray],
    steps: int,
) -> tuple[np.ndarray, np.ndarray]:
    """k-means with any rule for centres, and a limit on the steps.

    Returns labels (n,) and centres (K, d) of points (n, d) in float64.
    ``update(members (m, d), old centre (d,))`` gives a centre; one without members
    does not change.
    """
    centers = centers.astype(np.float64)
    for _ in range(steps):
        labels = cdist(points, centers).argmin(axis=1)
        before = centers
        centers = before.copy()
        for k in np.unique(labels):
            centers[k] = update(points[labels == k], before[k])
        if np.array_equal(centers, before):
            break

    return cdist(points, centers).argmin(axis=1), centers


def trimmed_mean(theta: np.ndarray, trim: float) -> np.ndarray:
    """Return the mean (P,) of models (n, P), each number trimmed at both ends."""
    cut = _cut(len(theta), trim)
    kept = theta
    if cut:
        kept = np.sort(theta, axis=0)[cut : len(theta) - cut]
    return kept.mean(axis=0, dtype=np.float64).astype(theta.dtype)


def _cut(n: int, trim: float) -> int:
    """Return the number of n points that are trimmed."""
    # 0.2 of 5 is one, even if the product is rounded
    return int(trim * n + 1e-9)
