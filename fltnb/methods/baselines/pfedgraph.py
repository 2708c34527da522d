"""pFedGraph: every client has its own mean of all models (Ye et al., ICML 2023).

PMLR 202. The weights come from a small quadratic problem.
"""

from dataclasses import dataclass, replace

import numpy as np

from ...aggregate import mix
from ...settings import Positive
from ..base import Context, Method
from ..modelspace import cosines, with_rows
from ..newcomers import common_model
from ..state import State, alone

ALIKE = -0.9  # the official code takes updates whose cosine exceeds 0.9 for the same


@dataclass(eq=False, kw_only=True)
class PFedGraphState(State):
    """And the clients' weights for each other.

    ``initial`` (P,) and ``trainable`` as in :class:`fltnb.methods.state.Unclustered`;
    ``mixing`` (M, M): the weights used last; FedSaC has besides ``directions`` (M, 3,
    e) of the clients' features.
    """

    of_clients = ("directions",)

    initial: np.ndarray
    trainable: np.ndarray
    mixing: np.ndarray
    directions: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class PFedGraph(Method):
    """A model per client, mixed each round over the participants by learnt weights.

    Client i's weights minimise ``alpha ||w - p||^2 + sum_j d_ij w_j`` over the simplex,
    with p the shares of samples and d the negative cosine of updates; it continues from
    the mean of the participants' models with these weights. A large alpha is FedAvg;
    towards 0 everybody is alone.

    The regulariser, mu = 0.01 times the cosine between the local model and a reference,
    is left out: its gradient is at most mu over the model's length. (The official code
    has the sign that pushes models apart.)

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.PFedGraph(alpha=0.8)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    state_type = PFedGraphState
    name = "pfedgraph"

    alpha: Positive = 0.8

    def start(self, fed, model, context: Context) -> State:
        """Everybody holds the common initial model."""
        theta = model.init(context.seed)
        return alone(
            PFedGraphState,
            fed,
            theta,
            initial=theta,
            trainable=np.array(model.n_trainable),
            mixing=np.eye(fed.n_clients),
        )

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Mix the participants' models, for each participant in its own way."""
        weights = state.weights[clients]
        p = weights / weights.sum()
        d = self.distances(state, clients, theta)
        W = nearest_weights(p - self.cost(state, clients, d))

        mixing = with_rows(state.mixing, clients, 0)
        mixing[np.ix_(clients, clients)] = W
        models = with_rows(state.models, clients, mix(W, theta))
        return replace(state, models=models, mixing=mixing)

    def changed(
        self, state: State, fed, model, changed: np.ndarray, context: Context
    ) -> State:
        """Give newcomers the mean of all models, by samples; a choice of ours."""
        before = len(state.row)
        new = np.arange(before, fed.n_clients)
        mean = common_model(state, new[:0])
        state = state.joined(fed)
        known = state.mixing
        mixing = np.eye(fed.n_clients)
        mixing[:before, :before] = known
        models = np.vstack([state.models, np.repeat(mean, len(new), axis=0)])
        row = with_rows(state.row, new, new)
        return replace(state, models=models, row=row, mixing=mixing)

    def distances(
        self, state: State, clients: np.ndarray, theta: np.ndarray
    ) -> np.ndarray:
        """Return d (n, n), of updates from the *initial* model.

        Cosines above 0.9 count as 1.
        """
        d = negative_cosines(theta - state.initial, state)
        return np.where(d < ALIKE, -1.0, d)

    def cost(self, state: State, clients: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Return what is taken off p before the projection, (n, n)."""
        return d / (2 * self.alpha)


@dataclass(eq=False, repr=False)
class PFedGraphAsRun(PFedGraph):
    """What printed EMD-CFL's tables: this round's updates, and cosines as they are.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.PFedGraphAsRun(alpha=0.8)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"

    def distances(
        self, state: State, clients: np.ndarray, theta: np.ndarray
    ) -> np.ndarray:
        """Return d (n, n), of updates in this round."""
        return negative_cosines(theta - state.models[clients], state)


def negative_cosines(updates: np.ndarray, state: State) -> np.ndarray:
    """Negative cosines (n, n) between the trained columns of updates (n, P)."""
    trained = updates[:, : int(state.trainable)]
    return -cosines(trained, np.arange(len(updates)))


def nearest_weights(v: np.ndarray) -> np.ndarray:
    """Project rows v (..., n) on the simplex: ``max(v - t, 0)``, of sum 1.

    Held et al. 1974. That is the least ``a ||x - p||^2 + d x`` there for
    ``v = p - d / (2 a)``.
    """
    v = np.asarray(v, dtype=np.float64)
    # moves nothing, and keeps large numbers from swallowing the 1
    v = v - v.max(axis=-1, keepdims=True)
    falling = -np.sort(-v, axis=-1)
    excess = np.cumsum(falling, axis=-1) - 1.0
    count = np.arange(1, v.shape[-1] + 1)

    # the largest entries stay above 0
    kept = (falling * count > excess).sum(axis=-1, keepdims=True)
    t = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    x = np.maximum(v - t, 0.0)
    return x / x.sum(axis=-1, keepdims=True)
