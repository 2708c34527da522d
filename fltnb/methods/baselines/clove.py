"""CLoVE: clusters of the clients' loss vectors, assigned to the models."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from ...clustering.cuts import relabel
from ...randomness import integer, stream
from ...settings import Count
from ..base import Context, HardMethod
from ..modelspace import kmeans, with_rows
from ..newcomers import placed
from ..samples import Split
from ..state import State, one_cluster, several
from .ifca import client_losses

BETTER = 0.10  # relative increase of the silhouette that one more cluster needs
LARGEST = 1e6  # replaces a loss that is not finite


@dataclass(eq=False, kw_only=True)
class CLoVEState(State):
    """State of CLoVE: the models, and how stable the labels are.

    ``kept`` (M,): how often in a row a client got the same cluster as before, -1 if it
    never took part; ``frozen``: whether clusters stay as they are; ``centers`` (K, K):
    mean losses of the last clients that got each model, infinite before that.
    """

    of_clients = ("kept",)

    kept: np.ndarray
    frozen: np.ndarray
    centers: np.ndarray


@dataclass(eq=False, repr=False)
class CLoVE(HardMethod):
    """IFCA in which the server clusters the loss vectors of all participants.

    Bhatia et al., arXiv 2506.22427; written from the authors' code (Nokia-Bell-Labs,
    Loss-Vector-based-Clustered-Federated-Learning), not compared with the paper.

    Every participant sends its mean losses under all K models. The server clusters
    these vectors by k-means. It assigns to each cluster a different model, so that the
    total loss of the members is smallest (a minimum-cost assignment), and averages
    inside the clusters, by samples. A model without a cluster does not change. An
    absent client keeps its last cluster; a client that was never drawn is served model
    0. Labels freeze once every client has kept its label for some participations; the
    rest is FedAvg in the clusters.

    Parameters
    ----------
    n_clusters : int, optional
        K. If it is not given there are ``max_clusters`` models (at most one per
        client). The number of clusters in a round is then that with the best silhouette
        under Ward's linkage, from 2 on; a larger number must be better by a tenth. It
        is never 1.
    max_clusters : int
        Number of models if ``n_clusters`` is not given; 20 in the authors' runs on
        FEMNIST.
    first : {"losses", "random"}
        How clusters are made in round 1: from the losses, as in all other rounds, or at
        random, with none empty if there are at least K participants.
    patience : int, optional
        Participations without a change after which labels freeze; None: never.
    split : {"train", "val"}
        The samples on which losses are measured.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.CLoVE(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = CLoVEState
    name = "clove"

    n_clusters: Count | None = None
    max_clusters: Count = field(default=20, kw_only=True)
    first: Literal["losses", "random"] = field(default="losses", kw_only=True)
    patience: Count | None = field(default=3, kw_only=True)
    split: Split = field(default="train", kw_only=True)

    def start(self, fed, model, context: Context) -> CLoVEState:
        """Start with independent models; all clients have the first."""
        K = self.n_clusters or min(self.max_clusters, fed.n_clients)
        return one_cluster(
            CLoVEState,
            fed,
            several(model, context, K),
            kept=np.full(fed.n_clients, -1),
            frozen=np.array(False),
            centers=np.full((K, K), np.inf),
        )

    def observe(
        self, state: CLoVEState, clients: np.ndarray, round: int, engine
    ) -> CLoVEState:
        """Let participants test all models, and cluster them by their losses."""
        steady = self.patience is not None and (state.kept >= self.patience).all()
        if steady or state.frozen:
            state = replace(state, frozen=np.array(True))
            return super().observe(state, clients, round, engine)

        if round == 1 and self.first == "random":
            rng = stream(engine.spec.seed, "method", round)
            found = at_random(len(clients), len(state.models), rng)
        else:
            loss = client_losses(state.models, clients, engine, self.split)
            seed = integer(engine.spec.seed, "method", round)
            found = assigned(loss, self.n_clusters, seed)
            centers = state.centers.copy()
            for model in np.unique(found):
                centers[model] = _bounded(loss[found == model]).mean(axis=0)
            state = replace(state, centers=centers)
        state = _moved(state, clients, found)
        return super().observe(state, clients, round, engine)

    def welcome(
        self, state: CLoVEState, new: np.ndarray, round: int, engine
    ) -> CLoVEState:
        """Let newcomers join the cluster with the nearest mean losses."""
        loss = _bounded(client_losses(state.models, new, engine, self.split))
        known = np.flatnonzero(np.isfinite(state.centers[:, 0]))
        nearest = known[cdist(loss, state.centers[known]).argmin(axis=1)]
        kept = with_rows(state.kept, new, -1)
        return placed(replace(state, kept=kept), new, nearest)

    def traffic(self, state: CLoVEState, n_parameters: int) -> tuple[int, int]:
        """Count K models and a number down, a model and K losses up.

        Once labels are frozen it is one model in each direction.
        """
        if state.frozen:
            return n_parameters, n_parameters
        K = len(state.models)
        return K * n_parameters + 1, n_parameters + K


@dataclass(eq=False, repr=False)
class CLoVEAsRun(CLoVE):
    """CLoVE as in the authors' experiments: random in round 1, labels never freeze.

    Freezing is on by default in their code, but an empty cell in their list of
    experiments switches it off. If it is on, their test overwrites its own result and
    only compares the label of three participations ago with the last one.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.CLoVEAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    first: Literal["losses", "random"] = field(default="random", kw_only=True)
    patience: Count | None = field(default=None, kw_only=True)


def at_random(n: int, n_models: int, rng: np.random.Generator) -> np.ndarray:
    """Return models (n,) drawn for clients; each occurs if there are enough clients.

    They are numbered in the order of the first client that has each.
    """
    everyone = np.arange(n_models)
    others = rng.integers(0, n_models, max(n - n_models, 0))
    drawn = np.concatenate([everyone, others])[:n]
    return relabel(rng.permutation(drawn))


def assigned(loss: np.ndarray, n_clusters: int | None, seed: int = 0) -> np.ndarray:
    """Return the models (n,) of clients with these losses (n, K).

    Loss vectors are clustered, and each cluster gets a different model.

    Examples
    --------
    >>> assigned(np.array([[1, 5.1], [1, 5.1], [2.1, 3.5], [2.1, 3.5]]), 2)
    array([0, 0, 1, 1])
    """
    loss = _bounded(loss)
    n, n_models = loss.shape
    if n_clusters is None:
        n_clusters = best_number(loss, n_models)
    labels = kmeans(loss, min(n_clusters, n), seed)

    clusters, place = np.unique(labels, return_inverse=True)
    members = labels == clusters[:, None]  # (clusters, n)
    _, model_of = linear_sum_assignment(members @ loss)
    return model_of[place]


def _moved(state: CLoVEState, clients: np.ndarray, found: np.ndarray) -> CLoVEState:
    """Return the state with participants (n,) at the models ``found`` (n,)."""
    unchanged = (state.kept[clients] >= 0) & (state.row[clients] == found)
    times = np.where(unchanged, state.kept[clients] + 1, 0)
    row = with_rows(state.row, clients, found)
    kept = with_rows(state.kept, clients, times)
    return replace(state, row=row, labels=row, kept=kept)


def _bounded(loss: np.ndarray) -> np.ndarray:
    """Return losses (n, K) that are finite and not too large for comparison."""
    return np.nan_to_num(loss, nan=LARGEST, posinf=LARGEST).clip(max=LARGEST)


def best_number(points: np.ndarray, most: int) -> int:
    """Find the number of clusters, 2 to ``most``, of points (n, d) by silhouettes.

    It uses Ward's linkage; a larger number must be better by a tenth.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from sklearn.metrics import silhouette_score

    best = min(2, len(points))
    highest = -2.0  # below any silhouette
    tree = linkage(points, "ward") if len(points) > 2 else None
    for n_clusters in range(2, min(most, len(points) - 1) + 1):
        labels = fcluster(tree, n_clusters, "maxclust")
        if labels.max() == 1:
            continue
        score = silhouette_score(points, labels)
        if score > highest + BETTER * abs(highest):
            best = n_clusters
            highest = score
    return best
