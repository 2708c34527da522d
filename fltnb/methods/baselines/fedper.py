"""FedPer: clients share all layers except the last one, which is their own."""

from dataclasses import dataclass, replace

import numpy as np

from ...aggregate import mix
from ..base import Context, Method
from ..modelspace import with_rows
from ..state import OwnState, State, one_cluster


@dataclass(eq=False, kw_only=True)
class FedPerState(State):
    """State of FedPer: every client's head.

    ``heads`` (M, h) are the columns ``head`` (2,) of each client's model; in ``models``
    (1, P) these columns always keep the initial head.
    """

    heads: np.ndarray
    head: np.ndarray


@dataclass(eq=False, repr=False)
class FedPer(Method):
    """Body and head are trained together; bodies are averaged, heads stay local.

    Arivazhagan et al., arXiv 1912.00818; we have not read all of the paper. The head is
    the last layer, the body everything below, including the statistics of batch
    normalisations. The mean is weighted by samples, as in FedAvg. A client that never
    took part, such as a newcomer, is served the body with the initial head.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedPer()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    state_type = FedPerState
    name = "fedper"
    headed = True

    def start(self, fed, model, context: Context) -> OwnState:
        """Start with one initial model, and its head for each client."""
        theta = model.init(context.seed)
        head = theta[model.head]
        state = one_cluster(
            self.state_type,
            fed,
            theta,
            heads=np.repeat(head[None], fed.n_clients, axis=0),
            head=np.array([model.head.start, model.head.stop]),
        )
        return replace(state, labels=None)

    def changed(
        self, state: OwnState, fed, model, changed: np.ndarray, context: Context
    ) -> OwnState:
        """Give newcomers the initial head."""
        M = fed.n_clients
        begin, end = state.head
        initial = state.models[:, begin:end]
        heads = np.repeat(initial, M, axis=0)
        heads[: len(state.heads)] = state.heads
        weights = np.asarray(fed.sizes, dtype=np.float64)
        row = np.zeros(M, dtype=np.int64)
        return replace(state, heads=heads, row=row, weights=weights)

    def dispatch(
        self, state: FedPerState, clients: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the body with each client's own head."""
        theta = np.repeat(state.models, len(clients), axis=0)
        theta[:, slice(*state.head)] = state.heads[clients]
        return theta, np.arange(len(clients))

    def collect(
        self, state: OwnState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> OwnState:
        """Average the bodies by samples, and keep the heads."""
        head = slice(*state.head)
        weights = state.weights[clients]
        models = mix(weights[None] / weights.sum(), theta)
        models[:, head] = state.models[:, head]
        heads = with_rows(state.heads, clients, theta[:, head])
        return replace(state, models=models, heads=heads)

    def serve(self, state: FedPerState) -> tuple[np.ndarray, np.ndarray]:
        """Return the body with each client's own head."""
        return self.dispatch(state, np.arange(len(state.heads)))

    def traffic(self, state: FedPerState, n_parameters: int) -> tuple[int, int]:
        """Count a body in each direction."""
        body = n_parameters - state.heads.shape[1]
        return body, body
