"""Clusters from what training changes: once, in round 1 (FedClust and FlexCFL), or again and again (CFLGP).

FedClust: Islam et al., ICPP 2024 (arXiv 2407.07124). FlexCFL: Duan et al., IEEE TPDS 2022 (arXiv 2108.09749), after
their FedGroup (arXiv 2010.06870). CFLGP: Kim, Kim and de Veciana, ICML 2024 (PMLR 235).
"""

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, pdist

from ..clustering.cuts import relabel
from ..clustering.pacfl import flat_clusters
from ..errors import FltnbError
from ..randomness import integer
from ..settings import Count, Natural, NonNegative
from .base import Context, HardMethod, Method, State, unclustered
from .modelspace import BLOCK, cluster_means, gram, kmeans, leading_features, with_rows

if TYPE_CHECKING:
    from ..training import Trained


class ColdStart(HardMethod):
    """Clusters from the first local training; subclasses say how (:meth:`form`, :meth:`place`).

    Row 0 of the models is the common initial model, row k + 1 the model of cluster k. The participants of round 1 are
    clustered by what they trained. A client that comes later only trains from the initial model the first time, and
    joins a cluster by what came out; until then it is served the initial model and counts as a cluster of its own.
    """

    least = 1  # participants that round 1 needs, if not n_clusters

    def start(self, fed, model, context: Context) -> State:
        """One common model, no clusters yet."""
        head = np.array(
            [model.head.start, model.head.stop]
        )  # columns of the last layer
        return unclustered(fed, model, context) | {
            "head": head,
            "forming": np.array(False),
        }

    def foresee(self, phases, drawn: Sequence[np.ndarray]) -> None:
        """Refuse a first round with too few participants to form clusters from."""
        least = max(self.least, self.n_clusters or 0)
        if len(drawn[0]) < least:
            raise FltnbError(
                f"Round 1 needs {least} participants, not {len(drawn[0])}: choose a higher participation."
            )

    def form(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int):
        """Return ``(labels (n,), models of the clusters (C, P), further state)`` after the first training."""
        raise NotImplementedError

    def place(self, state: State, theta: np.ndarray) -> np.ndarray:
        """Clusters (n,) of newcomers, by the models (n, P) that they trained from the initial one."""
        raise NotImplementedError

    def aggregate(
        self, state: State, labels: np.ndarray, weights: np.ndarray, theta: np.ndarray
    ) -> np.ndarray:
        """Models (C, P) after a round in which clients with these labels came back with ``theta``."""
        return cluster_means(labels, weights, theta, state["models"][1:])

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Form the clusters, or average inside them and place who is new."""
        row, first, more = state["row"].copy(), len(state["models"]) == 1, {}
        if first:
            labels, models, more = self.form(state, clients, theta, round)
            row[clients] = labels + 1
        else:
            new = row[clients] == 0
            old = clients[~new]
            if new.any():
                row[clients[new]] = self.place(state, theta[new]) + 1
            models = self.aggregate(
                state, row[old] - 1, state["weights"][old], theta[~new]
            )
        unplaced = row == 0
        labels = np.where(unplaced, len(models) + np.cumsum(unplaced) - 1, row - 1)
        models = np.vstack([state["models"][:1], models])
        return (
            state
            | more
            | {
                "models": models,
                "row": row,
                "labels": labels,
                "forming": np.array(first),
            }
        )


class FedClust(ColdStart):
    """One-shot clustering by the weights of the final layer, then FedAvg inside the clusters.

    In round 1, the warm-up, participants send their final layer only. Euclidean distances between these, complete
    linkage (that of EMD-CFL's runs) and a threshold give the clusters, whose models still are the initial one. A
    newcomer joins the cluster whose members' mean final layer is nearest to its own, and sends whole models.

    Parameters
    ----------
    threshold : float, optional, lambda: no two members of a cluster are farther apart; it depends on the training
    n_clusters : int, optional, cut the dendrogram into so many clusters instead; give one of the two
    """

    name = "fedclust"
    least = 2

    threshold: NonNegative | None = None
    n_clusters: Count | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if (self.threshold is None) == (self.n_clusters is None):
            raise FltnbError(
                "FedClust needs a threshold or a number of clusters: give threshold or n_clusters."
            )

    def form(self, state, clients, theta, round):
        """Complete linkage of the final layers."""
        sent = theta[:, slice(*state["head"])]
        squared = sum(
            pdist(sent[:, at : at + BLOCK], "sqeuclidean")
            for at in range(0, sent.shape[1], BLOCK)
        )
        tree = linkage(np.sqrt(squared), "complete")
        labels = flat_clusters(
            tree, np.inf if self.threshold is None else self.threshold, self.n_clusters
        )
        means = np.stack(
            [
                sent[labels == k].mean(axis=0, dtype=np.float64)
                for k in range(labels.max() + 1)
            ]
        )
        return labels, np.repeat(state["models"], len(means), axis=0), {"heads": means}

    def place(self, state: State, theta: np.ndarray) -> np.ndarray:
        """Nearest mean final layer."""
        return cdist(
            theta[:, slice(*state["head"])].astype(np.float64), state["heads"]
        ).argmin(axis=1)

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """Count a model down and one up; in the warm-up the final layer up."""
        return n_parameters, int(np.diff(state["head"])[0]) if state[
            "forming"
        ] else n_parameters


class FedClustAsRun(FedClust, as_run=True):
    """What printed EMD-CFL's tables: distances between *all* weights, and the warm-up's averages stay **for ever**."""

    def start(self, fed, model, context: Context) -> State:
        """One common model, of which all trained weights are compared."""
        return super().start(fed, model, context) | {
            "head": np.array([0, model.n_trainable])
        }

    def form(self, state, clients, theta, round):
        """Complete linkage of all weights, and the only averages."""
        labels, models, more = super().form(state, clients, theta, round)
        return (
            labels,
            cluster_means(labels, state["weights"][clients], theta, models),
            more,
        )

    def aggregate(self, state: State, labels, weights, theta) -> np.ndarray:
        """Leave the models as they are."""
        return state["models"][1:]

    traffic = Method.traffic


class FlexCFL(ColdStart):
    """Static groups by decomposed cosine similarity, with an optional pull between the groups' models.

    The participants' updates of round 1 are clustered by k-means on their cosines with the updates' leading left
    singular vectors (:func:`decomposed_cosines`). A group starts from the plain mean of its members' models; later
    rounds average by samples. A newcomer joins the group whose mean first update points most nearly where its own does.
    The official code draws ``min(20 K, M)`` clients for the cold start, 50 steps each; migration is not here.

    Parameters
    ----------
    eta : float
        Inter-group rate: after each average a group's model becomes the mean of itself, with weight 1, and of the other
        groups' models, with weights ``eta / norm``. 0 is the official configuration.
    """

    name = "flexcfl"
    normalised = True  # weights of the pull

    eta: NonNegative = 0.0

    def form(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int):
        """k-means on the decomposed cosines of the first updates."""
        K, initial, n = self.n_clusters, state["models"][0], int(state["trainable"])
        features = decomposed_cosines(gram(theta[:, :n], initial[:n]), K)
        labels = relabel(
            kmeans(features, K, integer(int(state["seed"]), "method", round))
        )
        models = cluster_means(
            labels, np.ones(len(clients)), theta, np.repeat(initial[None], K, axis=0)
        )
        return labels, models, {"directions": (models - initial)[:, :n]}

    def place(self, state: State, theta: np.ndarray) -> np.ndarray:
        """Least ``(1 - cosine) / 2`` between first updates, hence the largest cosine."""
        updates = (theta - state["models"][0]).astype(np.float64)[
            :, : int(state["trainable"])
        ]
        directions = state["directions"].astype(np.float64)
        norm = np.linalg.norm(directions, axis=1)
        return (updates @ directions.T / np.where(norm > 0, norm, np.inf)).argmax(
            axis=1
        )

    def aggregate(self, state: State, labels, weights, theta) -> np.ndarray:
        """Average inside the groups, then pull them towards each other."""
        return pull(
            super().aggregate(state, labels, weights, theta),
            self.eta,
            self.normalised,
            state["trainable"],
        )


class FlexCFLAsRun(FlexCFL, as_run=True):
    """What printed EMD-CFL's tables: a pull whose weights do not sum to 1 adds ``eta * (K - 1)`` to lengths at most."""

    normalised, eta = False, 5.0


def decomposed_cosines(products: np.ndarray, n_components: int) -> np.ndarray:
    """Cosines (n, K) of n updates with their K leading left singular vectors, from their Gram matrix; 0 beyond rank."""
    features = leading_features(products, n_components)
    norm = np.sqrt(np.diag(products))[:, None]
    cosines = np.divide(features, norm, out=np.zeros_like(features), where=norm > 0)
    return np.pad(cosines, ((0, 0), (0, n_components - cosines.shape[1])))


def pull(
    models: np.ndarray,
    eta: float,
    normalised: bool = True,
    n_trainable: int | None = None,
) -> np.ndarray:
    """Mix every group's model (K, P) with the directions of the others; lengths are those of trained parameters."""
    if eta == 0:
        return models
    norm = np.linalg.norm(models[:, :n_trainable].astype(np.float64), axis=1)
    W = np.tile(
        np.divide(eta, norm, out=np.zeros_like(norm), where=norm > 0), (len(models), 1)
    )
    np.fill_diagonal(W, 1.0)
    if normalised:
        W /= W.sum(axis=1, keepdims=True)
    return (W @ models.astype(np.float64)).astype(models.dtype)


class CFLGP(HardMethod):
    """Cluster the clients by the leading singular directions of their averaged updates, again and again.

    Every ``period`` rounds participants also train from one of the K models, the same for all, in turn: what comes out
    enters that model's block of a client's profile, a mean over its own updates. The profiles of all clients heard so
    far are projected on their K leading singular vectors and clustered by k-means++, and the new clusters are renamed
    so that as many clients as possible keep their label. Clients are averaged inside the new clusters, all alike.

    The paper's update is the gradient of a single mini-batch; here it is that of the whole local training. A client
    never drawn when it is time stays in cluster 0, all while fewer than K have been.

    Parameters
    ----------
    period : int, Q, rounds from one clustering to the next
    stop : int, labels are frozen after this round; 0 never
    """

    name = "cflgp"
    by_samples = False

    period: Count = 2
    stop: Natural = 10

    def start(self, fed, model, context: Context) -> State:
        """Everybody in cluster 0, all models equal, profiles zero."""
        state = unclustered(fed, model, context, self.n_clusters)
        times = np.zeros((fed.n_clients, self.n_clusters), dtype=np.int64)
        profile = np.zeros(
            (*times.shape, model.n_trainable), dtype=state["initial"].dtype
        )
        return state | {"profile": profile, "times": times}

    def due(self, round: int) -> bool:
        """Whether clients are clustered in this round."""
        return (round - 1) % self.period == 0 and (round <= self.stop or not self.stop)

    def criterion(self, state: State, clients: np.ndarray, round: int) -> np.ndarray:
        """Models (n,) whose updates enter the profiles: the same for all, one after the other."""
        return np.full(len(clients), (round - 1) // self.period % self.n_clusters)

    def train(
        self, state: State, clients: np.ndarray, round: int, engine
    ) -> tuple[State, "Trained"]:
        """Train the cluster's model, and the criterion if it is time and another one; update the profiles."""
        state, trained = super().train(state, clients, round, engine)
        if not self.due(round):
            return state | {"twice": np.array(0.0)}, trained
        models, block, theta = (
            state["models"],
            self.criterion(state, clients, round),
            trained.theta,
        )
        other = block != state["row"][clients]
        if other.any():
            again, theta = (
                engine.train(models, block[other], clients[other], round),
                theta.copy(),
            )
            theta[other], trained.loss[other] = (
                again.theta,
                trained.loss[other] + 0 * again.loss,
            )  # NaN ends the run
        profile, times = state["profile"].copy(), state["times"].copy()
        times[clients, block] += 1
        for client, m, update in zip(clients, block, theta, strict=True):
            beta = 1 / (
                round // (self.n_clusters * self.period) + 1
                if self.by_samples
                else times[client, m]
            )
            profile[client, m] = (1 - beta) * profile[client, m] + beta * (
                update - models[m]
            )[: profile.shape[2]]
        return state | {
            "profile": profile,
            "times": times,
            "twice": other.mean(),
        }, trained

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Cluster the profiles if it is time, then average inside the clusters."""
        row, heard, profile = state["row"], state["heard"], state["profile"]
        if self.due(round):
            heard = with_rows(heard, clients, True)
            if heard.sum() >= self.n_clusters:
                points = (profile if heard.all() else profile[heard]).reshape(
                    heard.sum(), -1
                )
                features = leading_features(gram(points), self.n_clusters)
                labels = kmeans(
                    features,
                    self.n_clusters,
                    integer(int(state["seed"]), "method", round),
                )
                row = with_rows(row, heard, renamed(labels, row[heard]))
        weights = (
            state["weights"][clients] if self.by_samples else np.ones(len(clients))
        )
        models = cluster_means(row[clients], weights, theta, state["models"])
        return state | {"models": models, "row": row, "labels": row, "heard": heard}

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """Count a model down and one up, twice for those who train the criterion besides."""
        return 2 * (round((1 + float(state["twice"])) * n_parameters),)


class CFLGPAsRun(CFLGP, as_run=True):
    """What printed EMD-CFL's tables: clusters anew in every round, for ever, and averages weighted by samples.

    An update enters the block of the client's present cluster, from whose model it came. Clients of different clusters
    thus have different blocks filled, which makes early labels stick. Its weight depends on the round alone.
    """

    by_samples = True
    period: ClassVar = 1
    stop: ClassVar = 0

    def criterion(self, state: State, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the models that the clients train anyway."""
        return state["row"][clients]


def renamed(labels: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Rename clusters so that as many clients as possible keep their label."""
    size = int(max(labels.max(), before.max())) + 1
    both = np.zeros((size, size))
    np.add.at(both, (labels, before), 1)
    return linear_sum_assignment(both, maximize=True)[1][labels].astype(np.int64)
