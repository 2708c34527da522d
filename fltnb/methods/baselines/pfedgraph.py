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

ALIKE = -0.9  # the official code treats updates with a cosine above 0.9 as equal


@dataclass(eq=False, kw_only=True)
class PFedGraphState(State):
    """State of pFedGraph: the clients' weights for each other.

    ``initial`` (P,) and ``trainable`` as in :class:`fltnb.methods.state.Unclustered`;
    ``mixing`` (M, M): the weights used last; FedSaC also has ``directions`` (M, 3, e)
    of the clients' features.
    """

    of_clients = ("directions",)

    initial: np.ndarray
    trainable: np.ndarray
    mixing: np.ndarray
    directions: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class PFedGraph(Method):
    """A model for each client: a mean over the participants with weights of its own.

    Ye et al., ICML 2023 (PMLR 202). Client i's weights w minimise
    ``alpha ||w - p||^2 + sum_j d_ij w_j`` over the simplex. p are the participants'
    shares of samples, and d is the negative cosine of their updates since the initial
    model, where a cosine above 0.9 counts as 1. The client continues from the mean of
    the participants' models with these weights.

    The regulariser, mu = 0.01 times the cosine between the local model and a reference,
    is left out: its gradient is at most mu divided by the model's norm. (The official
    code has the sign that pushes models apart.)

    Parameters
    ----------
    alpha : float
        A large alpha gives FedAvg; for alpha near 0 each client is alone.

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

    def start(self, fed, model, context: Context) -> PFedGraphState:
        """Start with the common initial model for all clients."""
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
        self, state: PFedGraphState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> PFedGraphState:
        """Mix the participants' models, with different weights for each participant."""
        weights = state.weights[clients]
        p = weights / weights.sum()
        d = self.distances(state, clients, theta)
        W = nearest_weights(p - self.cost(state, clients, d))

        mixing = with_rows(state.mixing, clients, 0)
        mixing[np.ix_(clients, clients)] = W
        models = with_rows(state.models, clients, mix(W, theta))
        return replace(state, models=models, mixing=mixing)

    def changed(
        self, state: PFedGraphState, fed, model, changed: np.ndarray, context: Context
    ) -> PFedGraphState:
        """Give newcomers the mean of all models, by samples (our choice)."""
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
        self, state: PFedGraphState, clients: np.ndarray, theta: np.ndarray
    ) -> np.ndarray:
        """Return d (n, n), of updates from the *initial* model.

        Cosines above 0.9 count as 1.
        """
        d = negative_cosines(theta - state.initial, state)
        return np.where(d < ALIKE, -1.0, d)

    def cost(
        self, state: PFedGraphState, clients: np.ndarray, d: np.ndarray
    ) -> np.ndarray:
        """Return what is subtracted from p before the projection, (n, n)."""
        return d / (2 * self.alpha)


@dataclass(eq=False, repr=False)
class PFedGraphAsRun(PFedGraph):
    """pFedGraph as in EMD-CFL's tables: cosines of this round's updates, as they are.

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
        self, state: PFedGraphState, clients: np.ndarray, theta: np.ndarray
    ) -> np.ndarray:
        """Return d (n, n), of updates in this round."""
        return negative_cosines(theta - state.models[clients], state)


def negative_cosines(updates: np.ndarray, state: PFedGraphState) -> np.ndarray:
    """Return negative cosines (n, n) of the trained columns of updates (n, P)."""
    trained = updates[:, : int(state.trainable)]
    return -cosines(trained, np.arange(len(updates)))


def nearest_weights(v: np.ndarray) -> np.ndarray:
    """Project rows v (..., n) on the simplex: ``max(v - t, 0)``, with sum 1.

    Held et al. 1974. For ``v = p - d / (2 a)`` this is the minimum of
    ``a ||x - p||^2 + d x`` over the simplex.
    """
    v = np.asarray(v, dtype=np.float64)
    # does not change the result, but avoids rounding if numbers are large
    v = v - v.max(axis=-1, keepdims=True)
    falling = -np.sort(-v, axis=-1)
    excess = np.cumsum(falling, axis=-1) - 1.0
    count = np.arange(1, v.shape[-1] + 1)

    # the largest entries stay positive
    kept = (falling * count > excess).sum(axis=-1, keepdims=True)
    t = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    x = np.maximum(v - t, 0.0)
    return x / x.sum(axis=-1, keepdims=True)
