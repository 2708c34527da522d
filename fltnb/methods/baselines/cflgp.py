"""CFLGP: clusters from profiles of updates, formed repeatedly.

Kim, Kim and de Veciana, ICML 2024 (PMLR 235).
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from ...randomness import integer
from ...settings import Count, Natural
from ..base import Context, HardMethod
from ..modelspace import (
    cluster_means,
    gram,
    kmeans,
    leading_features,
    present_means,
    with_rows,
)
from ..newcomers import (
    counted,
    finite,
    first_training,
    nearest_direction,
    placed,
)
from ..state import Unclustered, unclustered

if TYPE_CHECKING:
    from ...training import Trained


@dataclass(eq=False, kw_only=True)
class CFLGPState(Unclustered):
    """State of CFLGP: every client's profile.

    ``profile`` (M, K, P): mean updates from each of the models; ``times`` (M, K): the
    number of updates in each mean; ``twice``: share of the participants that trained
    two models in this round.
    """

    of_clients = ("heard", "profile", "times")

    profile: np.ndarray
    times: np.ndarray
    twice: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class CFLGP(HardMethod):
    """Cluster clients by the leading singular directions of their averaged updates.

    Kim, Kim and de Veciana, ICML 2024 (PMLR 235). Every ``period`` rounds all
    participants also train one of the K models, the same model for all, each model in
    turn. The update enters that model's block of the client's profile, which is a mean
    over the client's updates. The profiles of all clients that have trained are
    projected on their K leading singular vectors and clustered by k-means++. The new
    clusters are renamed so that as many clients as possible keep their label. Models
    are averaged inside the new clusters, with equal weights.

    In the official code's default an update is the gradient of a single mini-batch;
    here it is that of the whole local training. A client that was never drawn in such a
    round stays in cluster 0, as do all clients while fewer than K have been drawn.

    Parameters
    ----------
    n_clusters : int
        K, the number of models and clusters.
    period : int
        Q, rounds from one clustering to the next.
    stop : int
        Labels are frozen after this round; 0: never.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.CFLGP(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = CFLGPState
    name = "cflgp"
    by_samples = False

    period: Count = 2
    stop: Natural = 10

    def start(self, fed, model, context: Context) -> CFLGPState:
        """Start with all clients in cluster 0, equal models, and profiles of zero."""
        blocks = (fed.n_clients, self.n_clusters)
        return unclustered(
            CFLGPState,
            fed,
            model,
            context,
            self.n_clusters,
            profile=np.zeros((*blocks, model.n_trainable), dtype=np.float32),
            times=np.zeros(blocks, dtype=np.int64),
        )

    def due(self, round: int) -> bool:
        """Return whether clients are clustered in this round."""
        frozen = self.stop and round > self.stop
        return (round - 1) % self.period == 0 and not frozen

    def criterion(
        self, state: CFLGPState, clients: np.ndarray, round: int
    ) -> np.ndarray:
        """Return models (n,) whose updates enter the profiles: one for all, in turn."""
        return np.full(len(clients), (round - 1) // self.period % self.n_clusters)

    def momentum(self, round: int, times: int) -> float:
        """Return an update's weight in its block, which was updated ``times`` times."""
        return 1 / times

    def train(
        self, state: CFLGPState, clients: np.ndarray, round: int, engine
    ) -> tuple[CFLGPState, "Trained"]:
        """Train the cluster's model and, in due rounds, update the profiles.

        Clients whose own model is not the criterion also train the criterion.
        """
        state, trained = super().train(state, clients, round, engine)
        if not self.due(round):
            return replace(state, twice=np.array(0.0)), trained

        block = self.criterion(state, clients, round)
        other = block != state.row[clients]
        theta = trained.theta
        if other.any():
            again = engine.train(state.models, block[other], clients[other], round)
            theta = with_rows(theta, other, again.theta)
            # NaN stops the run
            trained.loss[other] = np.where(finite(again), trained.loss[other], np.nan)

        state = self._profiled(state, clients, block, theta, round)
        return replace(state, twice=np.array(other.mean())), trained

    def _profiled(
        self,
        state: CFLGPState,
        clients: np.ndarray,
        block: np.ndarray,
        theta: np.ndarray,
        round: int,
    ) -> CFLGPState:
        """Add an update to a block of each client's profile.

        Parameters
        ----------
        clients, block : ndarrays of int, shape (n,)
            Clients, and the model from which each of them trained.
        theta : ndarray, shape (n, P)
            The trained models.
        round : int
        """
        profile = state.profile.copy()
        times = state.times.copy()
        times[clients, block] += 1
        d = profile.shape[2]
        for client, m, new in zip(clients, block, theta, strict=True):
            beta = self.momentum(round, times[client, m])
            update = (new - state.models[m])[:d]
            profile[client, m] = (1 - beta) * profile[client, m] + beta * update
        return replace(state, profile=profile, times=times)

    def collect(
        self, state: CFLGPState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> CFLGPState:
        """Cluster the profiles in due rounds, then average inside the clusters."""
        row = state.row
        heard = state.heard
        if self.due(round):
            heard = with_rows(heard, clients, True)
            if heard.sum() >= self.n_clusters:
                labels = self._clusters(state, heard, round)
                row = with_rows(row, heard, renamed(labels, row[heard]))

        weights = state.weights[clients]
        if not self.by_samples:
            weights = np.ones(len(clients))
        models = cluster_means(row[clients], weights, theta, state.models)
        return replace(state, models=models, row=row, labels=row, heard=heard)

    def welcome(
        self, state: CFLGPState, new: np.ndarray, round: int, engine
    ) -> CFLGPState:
        """Let newcomers train all K models; they join the most similar profile.

        It is the mean profile of a cluster with the largest cosine; our choice.
        """
        known = np.flatnonzero(state.heard)
        if not len(known):
            return placed(state, new, 0)
        profile = state.profile.copy()
        d = profile.shape[2]
        for k, model in enumerate(state.models):
            theta = first_training(model[None], new, round, engine)
            profile[new, k] = (theta - model)[:, :d]
        flat = profile.reshape(len(profile), -1)
        clusters, means = present_means(state.row[known], flat[known])
        nearest = nearest_direction(flat[new], means)
        state = replace(
            counted(state, len(new) * len(state.models)),
            profile=profile,
            times=with_rows(state.times, new, 1),
            heard=with_rows(state.heard, new, True),
        )
        return placed(state, new, clusters[nearest])

    def _clusters(self, state: CFLGPState, heard: np.ndarray, round: int) -> np.ndarray:
        """Return the clusters of the clients with a profile."""
        profile = state.profile
        if not heard.all():
            profile = profile[heard]
        products = gram(profile.reshape(len(profile), -1))
        features = leading_features(products, self.n_clusters)
        seed = integer(int(state.seed), "method", round)
        return kmeans(features, self.n_clusters, seed)

    def traffic(self, state: CFLGPState, n_parameters: int) -> tuple[int, int]:
        """Count a model in each direction, two for clients that train two models."""
        scalars = round((1 + float(state.twice)) * n_parameters)
        return scalars, scalars


@dataclass(eq=False, repr=False)
class CFLGPAsRun(CFLGP):
    """CFLGP as in EMD-CFL's tables: clusters are formed in every round, never frozen.

    Averages are weighted by samples. An update enters the block of the client's present
    cluster, from whose model it started. So clients of different clusters fill
    different blocks, and early labels tend to stay. The weight of an update depends
    only on the round.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.CFLGPAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    by_samples = True
    period: ClassVar = 1  # type: ignore[misc]  # no option here
    stop: ClassVar = 0  # type: ignore[misc]  # no option here

    def criterion(
        self, state: CFLGPState, clients: np.ndarray, round: int
    ) -> np.ndarray:
        """Return the models that the clients train in any case."""
        return state.row[clients]

    def momentum(self, round: int, times: int) -> float:
        """Return a weight that depends on the round."""
        return 1 / (round // (self.n_clusters * self.period) + 1)


def renamed(labels: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Rename clusters so that as many clients as possible keep their label."""
    size = int(max(labels.max(), before.max())) + 1
    both = np.zeros((size, size))
    np.add.at(both, (labels, before), 1)
    _, name = linear_sum_assignment(both, maximize=True)
    return name[labels].astype(np.int64)
