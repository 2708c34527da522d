"""pFedGraph and FedSaC: every client has its own mean of all models, with weights from a small quadratic problem.

pFedGraph: Ye et al., ICML 2023 (PMLR 202). FedSaC: Yan et al., ICML 2024 (arXiv 2405.09892).
"""

from itertools import combinations
from typing import ClassVar

import numpy as np

from ..clustering.pacfl import singular_vectors
from ..settings import NonNegative, Positive
from .base import Context, Method, State, alone, mix
from .cfl import cosines
from .modelspace import with_rows
from .samples import outputs

ALIKE = -0.9  # the official code takes updates whose cosine exceeds 0.9 for the same
DIRECTIONS = 3


class PFedGraph(Method):
    """A model per client, mixed each round over the participants by learnt weights.

    Client i's weights minimise ``alpha ||w - p||^2 + sum_j d_ij w_j`` over the simplex, with p the shares of samples
    and d the negative cosine of updates; it continues from the mean of the participants' models with these weights. A
    large alpha is FedAvg; towards 0 everybody is alone.

    The regulariser, mu = 0.01 times the cosine between the local model and a reference, is left out: its gradient is at
    most mu over the model's length. (The official code has the sign that pushes models apart.)
    """

    name, official = "pfedgraph", True

    alpha: Positive = 0.8

    def start(self, fed, model, context: Context) -> State:
        """Everybody holds the common initial model."""
        theta, more = (
            model.init(context.seed),
            {"trainable": np.array(model.n_trainable)},
        )
        return (
            alone(fed, theta)
            | more
            | {"initial": theta, "mixing": np.eye(fed.n_clients)}
        )

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Mix the participants' models, for each participant in its own way; the others keep theirs."""
        p = state["weights"][clients] / state["weights"][clients].sum()
        W = nearest_weights(
            p - self.cost(state, clients, self.distances(state, clients, theta))
        )
        mixing = with_rows(state["mixing"], clients, 0)
        mixing[np.ix_(clients, clients)] = W
        return state | {
            "models": with_rows(state["models"], clients, mix(W, theta)),
            "mixing": mixing,
        }

    def distances(
        self, state: State, clients: np.ndarray, theta: np.ndarray
    ) -> np.ndarray:
        """Return d (n, n): updates are measured from the *initial* model, and cosines above 0.9 count as 1."""
        updates = theta - (
            state["initial"] if self.official else state["models"][clients]
        )
        d = -cosines(updates[:, : int(state["trainable"])], np.arange(len(updates)))
        return np.where(d < ALIKE, -1.0, d) if self.official else d

    def cost(self, state: State, clients: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Return what is taken off p before the projection, (n, n)."""
        return d / (2 * self.alpha)


class PFedGraphAsRun(PFedGraph, as_run=True):
    """What printed EMD-CFL's tables: the updates of this round count, and cosines as they are."""

    official = False


class FedSaC(PFedGraph):
    """pFedGraph with a reward for partners whose features span other directions than one's own.

    Weights minimise ``||w - p||^2 + sum_j (l1 c_ij + l2 d_ij) w_j``; c is the cosine of the mean angle between matched
    pairs of the clients' three leading principal directions of features (what the last layer of their trained models
    sees of training samples), which they send as well.
    """

    name = "fedsac"

    alpha: ClassVar = None
    l1: NonNegative = 0.9
    l2: NonNegative = 1.4

    def start(self, fed, model, context: Context) -> State:
        """As pFedGraph, with no directions yet."""
        state = super().start(fed, model, context)
        return state | {
            "directions": np.zeros((fed.n_clients, DIRECTIONS, model.n_features))
        }

    def train(self, state: State, clients: np.ndarray, round: int, engine):
        """Train, then find the principal directions of the features that came out."""
        state, trained = super().train(state, clients, round, engine)
        directions = state["directions"].copy()
        if np.isfinite(
            trained.theta
        ).all():  # else the run is about to stop, with a message about it
            for client, theta in zip(clients, trained.theta, strict=True):
                seen = outputs(
                    engine, engine.model.features, theta[None], engine.fed.train[client]
                )[0]
                directions[client] = principal_directions(seen)
        return state | {"directions": directions}, trained

    def cost(self, state: State, clients: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Half the weighted sum of both costs."""
        return (
            self.l1 * subspace_similarity(state["directions"][clients]) + self.l2 * d
        ) / 2

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """Count a model each way, and three directions up."""
        return n_parameters, n_parameters + state["directions"][0].size


class FedSaCAsRun(FedSaC, PFedGraphAsRun, as_run=True):
    """What printed EMD-CFL's tables, but for the regulariser, which those runs had with mu = 1."""


def nearest_weights(v: np.ndarray) -> np.ndarray:
    """Project rows v (..., n) on the simplex: ``max(v - t, 0)`` (Held et al. 1974), of sum 1.

    That is the least ``a ||x - p||^2 + d x`` there for ``v = p - d / (2 a)``.
    """
    v = np.asarray(v, dtype=np.float64)
    v = v - v.max(
        axis=-1, keepdims=True
    )  # moves nothing, and keeps large numbers from swallowing the 1
    falling = -np.sort(-v, axis=-1)
    excess = np.cumsum(falling, axis=-1) - 1.0
    count = np.arange(1, v.shape[-1] + 1)
    kept = (falling * count > excess).sum(
        axis=-1, keepdims=True
    )  # the largest entries stay above 0
    t = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    x = np.maximum(v - t, 0.0)
    return x / x.sum(axis=-1, keepdims=True)


def principal_directions(features: np.ndarray) -> np.ndarray:
    """Three leading principal directions (3, e), their largest entries positive; zeros beyond the rank."""
    found = singular_vectors(features - features.mean(axis=0), DIRECTIONS).T
    return np.pad(found, ((0, DIRECTIONS - len(found)), (0, 0)))


def subspace_similarity(directions: np.ndarray) -> np.ndarray:
    """Cosine (n, n) of the mean angle between directions (n, 3, e), matched greedily by the largest cosine."""
    out = np.eye(len(directions))
    for i, j in combinations(range(len(directions)), 2):
        cosine = np.clip(directions[i] @ directions[j].T, -1, 1)
        angles = []
        for _ in range(len(cosine)):
            a, b = np.unravel_index(cosine.argmax(), cosine.shape)
            angles.append(np.arccos(cosine[a, b]))
            cosine[a], cosine[:, b] = -np.inf, -np.inf
        out[i, j] = out[j, i] = np.cos(np.mean(angles))
    return out
