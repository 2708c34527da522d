"""CFLGP: clusters from profiles of updates, found again and again.

Kim, Kim and de Veciana, ICML 2024 (PMLR 235).
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from ...randomness import integer
from ...settings import Count, Natural
from ..base import Context, HardMethod
from ..modelspace import cluster_means, gram, kmeans, leading_features, with_rows
from ..newcomers import counted, first_training, nearest_direction, placed
from ..state import State, Unclustered, unclustered

if TYPE_CHECKING:
    from ...training import Trained


@dataclass(eq=False, kw_only=True)
class CFLGPState(Unclustered):
    """And every client's profile.

    ``profile`` (M, K, P): mean updates from each of the models; ``times`` (M, K): of
    how many; ``twice``: share of the participants that trained two models this time.
    """

    of_clients = ("heard", "profile", "times")

    profile: np.ndarray
    times: np.ndarray
    twice: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class CFLGP(HardMethod):
    """Cluster clients by the leading singular directions of their averaged updates.

    Every ``period`` rounds participants also train from one of the K models, the same
    for all, in turn: what comes out enters that model's block of a client's profile, a
    mean over its own updates. The profiles of all clients heard so far are projected on
    their K leading singular vectors and clustered by k-means++, and the new clusters
    are renamed so that as many clients as possible keep their label. Clients are
    averaged inside the new clusters, all alike.

    The paper's update is the gradient of a single mini-batch; here it is that of the
    whole local training. A client never drawn when it is time stays in cluster 0, all
    while fewer than K have been.

    Parameters
    ----------
    period : int, Q, rounds from one clustering to the next
    stop : int, labels are frozen after this round; 0 never

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

    def start(self, fed, model, context: Context) -> State:
        """Everybody in cluster 0, all models equal, profiles zero."""
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
        """Whether clients are clustered in this round."""
        frozen = self.stop and round > self.stop
        return (round - 1) % self.period == 0 and not frozen

    def criterion(self, state: State, clients: np.ndarray, round: int) -> np.ndarray:
        """Models (n,) whose updates enter the profiles: one for all, in turn."""
        return np.full(len(clients), (round - 1) // self.period % self.n_clusters)

    def momentum(self, round: int, times: int) -> float:
        """Weight of an update in its block, which was updated so many times."""
        return 1 / times

    def train(
        self, state: State, clients: np.ndarray, round: int, engine
    ) -> tuple[State, "Trained"]:
        """Train the cluster's model; if it is time, update the profiles as well.

        Who does not train the criterion anyway trains that too.
        """
        state, trained = super().train(state, clients, round, engine)
        if not self.due(round):
            return replace(state, twice=np.array(0.0)), trained

        models = state.models
        block = self.criterion(state, clients, round)
        other = block != state.row[clients]
        theta = trained.theta
        if other.any():
            again = engine.train(models, block[other], clients[other], round)
            theta = theta.copy()
            theta[other] = again.theta
            trained.loss[other] += 0 * again.loss  # NaN ends the run

        profile = state.profile.copy()
        times = state.times.copy()
        times[clients, block] += 1
        for client, m, new in zip(clients, block, theta, strict=True):
            beta = self.momentum(round, times[client, m])
            update = (new - models[m])[: profile.shape[2]]
            profile[client, m] = (1 - beta) * profile[client, m] + beta * update

        twice = np.array(other.mean())
        return replace(state, profile=profile, times=times, twice=twice), trained

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Cluster the profiles if it is time, then average inside the clusters."""
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

    def welcome(self, state: State, new: np.ndarray, round: int, engine) -> State:
        """Let newcomers train all K models; the largest cosine of profiles decides.

        With the mean profiles of the clusters; a choice of ours.
        """
        known = np.flatnonzero(state.heard)
        if not len(known):
            return placed(state, new, 0)
        profile = state.profile.copy()
        d = profile.shape[2]
        for k, model in enumerate(state.models):
            theta = first_training(model[None], new, round, engine)
            profile[new, k] = (theta - model)[:, :d]
        clusters = np.unique(state.row[known])
        members = state.row[known] == clusters[:, None]
        share = members / members.sum(axis=1, keepdims=True)
        flat = profile.reshape(len(profile), -1)
        nearest = nearest_direction(flat[new], share @ flat[known])
        state = replace(
            counted(state, len(new) * len(state.models)),
            profile=profile,
            times=with_rows(state.times, new, 1),
            heard=with_rows(state.heard, new, True),
        )
        return placed(state, new, clusters[nearest])

    def _clusters(self, state: State, heard: np.ndarray, round: int) -> np.ndarray:
        profile = state.profile
        if not heard.all():
            profile = profile[heard]
        products = gram(profile.reshape(len(profile), -1))
        features = leading_features(products, self.n_clusters)
        seed = integer(int(state.seed), "method", round)
        return kmeans(features, self.n_clusters, seed)

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """Count a model down and one up, twice for who trains the criterion too."""
        scalars = round((1 + float(state.twice)) * n_parameters)
        return scalars, scalars


@dataclass(eq=False, repr=False)
class CFLGPAsRun(CFLGP):
    """What printed EMD-CFL's tables: clusters anew in every round, for ever.

    Averages are weighted by samples. An update enters the block of the client's present
    cluster, from whose model it came. Clients of different clusters thus have different
    blocks filled, which makes early labels stick. Its weight depends on the round
    alone.

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
    period: ClassVar = 1
    stop: ClassVar = 0

    def criterion(self, state: State, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the models that the clients train anyway."""
        return state.row[clients]

    def momentum(self, round: int, times: int) -> float:
        """Weight by the round."""
        return 1 / (round // (self.n_clusters * self.period) + 1)


def renamed(labels: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Rename clusters so that as many clients as possible keep their label."""
    size = int(max(labels.max(), before.max())) + 1
    both = np.zeros((size, size))
    np.add.at(both, (labels, before), 1)
    _, name = linear_sum_assignment(both, maximize=True)
    return name[labels].astype(np.int64)
