"""FedEM: every client is a mixture of components that all clients share.

Marfoq et al., NeurIPS 2021 (arXiv 2108.10252).
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from ...aggregate import mix
from ...settings import Count
from ..base import Context, Method, Welcoming
from ..modelspace import with_rows
from ..samples import evaluate_mixture, sample_losses
from ..state import State, one_cluster, several


@dataclass(eq=False, kw_only=True)
class FedEMState(State):
    """State of FedEM: every client's proportions (M, K) of the components.

    FedRC also has ``sums`` (M, K, C) of the samples' weights by class, and ``parts``
    (K, C), the shares of the classes in each component. :class:`FedEMAsRun` has
    ``copies`` (M, P) of the last component.
    """

    of_clients = ("shares", "sums", "copies")

    shares: np.ndarray
    sums: np.ndarray | None = None
    parts: np.ndarray | None = None
    copies: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class FedEM(Welcoming):
    """Every client is a mixture of K component models that all clients share.

    Marfoq et al., NeurIPS 2021 (arXiv 2108.10252). It is expectation-maximisation. In a
    round a participant computes posterior weights q of the components for each training
    sample (E-step). Their means over its samples are its new proportions. Then it
    trains *each component* locally, with each sample's loss multiplied by its weight.
    The server averages each component over all participants, by samples. A prediction
    is the mean of the components' probabilities, weighted by the proportions. Only
    :meth:`evaluate` computes it; ``serve`` and labels give the component with the
    largest proportion.

    The weights of a sample sum to 1 over the components, so each component trains with
    a part of the learning rate, 1 / K on average at the start. FedEM therefore needs a
    larger learning rate than FedAvg. A client that never took part has equal
    proportions.

    Parameters
    ----------
    n_clusters : int
        K, the number of components.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedEM(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FedEMState
    name = "fedem"
    softmax = True
    tests_served = False

    n_clusters: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        self.models_down = self.n_clusters
        self.models_up = self.n_clusters

    def start(self, fed, model, context: Context) -> FedEMState:
        """Start with K independent components and equal proportions."""
        models = several(model, context, self.n_clusters)
        shares = np.full((fed.n_clients, self.n_clusters), 1 / self.n_clusters)
        return one_cluster(FedEMState, fed, models, shares=shares)

    def scores(
        self, state: FedEMState, losses: np.ndarray, client: int, labels: np.ndarray
    ) -> np.ndarray:
        """Return log-weights (K, n) of the components for a client's samples.

        They follow from the losses (K, n) and its proportions.
        """
        # minus infinity if a proportion has become 0
        with np.errstate(divide="ignore"):
            return np.log(state.shares[client])[:, None] - losses

    def train(self, state: FedEMState, clients: np.ndarray, round: int, engine):
        """Run the E-step, then K weighted trainings for each participant."""
        K = self.n_clusters
        state, weights = self._expected(state, clients, engine)
        state = self.weighed(state, weights, engine.fed)

        # components 0 to K - 1 of the first participant, then those of the next
        rows = np.tile(np.arange(K), len(clients))
        who = np.repeat(clients, K)
        each: list[np.ndarray] = []
        for of_client in weights.values():
            each.extend(of_client)
        trained = engine.train(state.models, rows, who, round, each)
        theta = trained.theta.reshape(len(clients), -1)
        loss = trained.loss.reshape(len(clients), K).sum(axis=1)
        return state, replace(trained, theta=theta, loss=loss)

    def _expected(
        self, state: FedEMState, clients: np.ndarray, engine
    ) -> tuple[FedEMState, dict[int, np.ndarray]]:
        """Run the E-step: new proportions, and weights (K, n_i) of clients' samples."""
        fed = engine.fed
        losses = sample_losses(engine, state.models, clients)
        shares = state.shares.copy()
        weights = {}
        for client, mine in zip(clients, losses, strict=True):
            labels = fed.labels[fed.train[client]]
            q = softmax(self.scores(state, mine, client, labels), axis=0)
            shares[client] = q.mean(axis=1)
            weights[client] = q
        largest = shares.argmax(axis=1)
        return replace(state, shares=shares, row=largest, labels=largest), weights

    def welcome(
        self, state: FedEMState, new: np.ndarray, round: int, engine
    ) -> FedEMState:
        """Find newcomers' proportions by one E-step from equal ones."""
        equal = with_rows(state.shares, new, 1 / self.n_clusters)
        state, _ = self._expected(replace(state, shares=equal), new, engine)
        return state

    def weighed(
        self, state: FedEMState, weights: dict[int, np.ndarray], fed
    ) -> FedEMState:
        """Store the samples' weights; FedEM does not use them."""
        return state

    def collect(
        self, state: FedEMState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FedEMState:
        """Average every component over all participants; ``theta`` is (n, K P)."""
        weights = state.weights[clients]
        models = mix(weights[None] / weights.sum(), theta)
        return replace(state, models=models.reshape(self.n_clusters, -1))

    def evaluate(self, state: FedEMState, engine, split: str):
        """Test the mixtures."""
        return evaluate_mixture(engine, state.models, state.shares, split)


@dataclass(eq=False, repr=False)
class FedEMAsRun(FedEM):
    """FedEM as in EMD-CFL's tables: tested with one component, not with the mixture.

    By accident a client is tested with its *local copy of the last component*.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedEMAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    tests_served = True

    def start(self, fed, model, context: Context) -> FedEMState:
        """Start as FedEM, and make copies for all clients."""
        state = super().start(fed, model, context)
        copies = np.repeat(state.models[-1:], fed.n_clients, axis=0)
        return replace(state, copies=copies)

    def welcome(
        self, state: FedEMState, new: np.ndarray, round: int, engine
    ) -> FedEMState:
        """Place newcomers as FedEM; they copy the last component."""
        copies = with_rows(state.copies, new, state.models[-1])
        return super().welcome(replace(state, copies=copies), new, round, engine)

    def collect(
        self, state: FedEMState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FedEMState:
        """Also keep the copies."""
        last = theta[:, -state.models.shape[1] :]
        copies = with_rows(state.copies, clients, last)
        return replace(super().collect(state, clients, theta, round), copies=copies)

    def serve(self, state: FedEMState) -> tuple[np.ndarray, np.ndarray]:
        """Serve the local copies."""
        return state.copies, np.arange(len(state.copies))

    def evaluate(self, state: FedEMState, engine, split: str):
        """Test the local copies."""
        return Method.evaluate(self, state, engine, split)
