"""Methods without clusters: training alone, and FedAvg with another step."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ..aggregate import mix
from ..randomness import stream
from ..settings import Count, NonNegative, Share
from .base import PUBLISHED_RULE, Context, Method, Rule
from .graph import FedAvg, GraphState
from .modelspace import with_rows
from .state import State, alone


@dataclass(eq=False, repr=False)
class Local(Method):
    """Local training without aggregation: participants keep the model that they train.

    It is called Local in FLT, NoFed in FeSEM (arXiv 2108.08647).

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.Local()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "local"
    models_down = 0
    models_up = 0

    def start(self, fed, model, context: Context) -> State:
        """Start with one model per client."""
        return alone(State, fed, model.init(context.seed))

    def changed(
        self, state: State, fed, model, changed: np.ndarray, context: Context
    ) -> State:
        """Keep every client's model; newcomers start with the initial model."""
        known = state.models
        fresh = alone(State, fed, model.init(context.seed).astype(known.dtype))
        models = with_rows(fresh.models, slice(len(known)), known)
        return replace(fresh, models=models)

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Keep the model that each participant trained."""
        return replace(state, models=with_rows(state.models, clients, theta))


@dataclass(eq=False, repr=False)
class FedProx(FedAvg):
    """FedProx: clients minimise ``f_i(theta) + mu / 2 * ||theta - theta_sent||^2``.

    Li et al., arXiv 1812.06127. The aggregation is FedAvg's, and ``mu=0`` is FedAvg bit
    for bit. In the original, participants may also stop early; this is left out here.

    Parameters
    ----------
    mu : float
        Weight of the proximal term: 0.001 to 1 in the original, 0.1 in FeSEM. Training
        is stable only for ``lr * mu`` below 2.
    rule : {"participants", "last_local", "last_aggregate"}
        See :class:`fltnb.methods.FedAvg`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedProx(mu=0.1)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "fedprox"
    graph_decides = False

    mu: NonNegative = 0.1
    rule: Rule = field(default="participants", kw_only=True)

    def local_training(self) -> dict[str, float]:
        """Add the proximal term."""
        return {"proximal": self.mu}


@dataclass(eq=False, repr=False)
class FedProxAsRun(FedProx):
    """FedProx with FLT's rule: absent clients contribute their last trained model.

    It is the rule of FLT's tables, which have no FedProx.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedProxAsRun(mu=0.1)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Rule = field(default=PUBLISHED_RULE, kw_only=True)


@dataclass(eq=False, repr=False)
class FedSGD(FedAvg):
    """FedSGD: one step along the participants' mean gradient.

    McMahan et al., arXiv 1602.05629; FeSEM's tables. This is FedAvg with one local
    epoch in one batch; ``local_epochs`` and ``batch_size`` have no effect. All samples
    of a client pass through the network at once; samples that are not drawn get weight
    zero.

    Parameters
    ----------
    batch : int, optional
        Number of samples of a client's gradient, drawn in each round; by default all.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedSGD()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "fedsgd"
    graph_decides = False

    rule: ClassVar = "participants"  # type: ignore[misc]  # no option here
    batch: Count | None = None

    def local_training(self) -> dict[str, Any]:
        """Return one step on all samples."""
        return {"local_epochs": 1, "batch_size": 2**31 - 1}  # more than any client has

    def train(self, state: GraphState, clients: np.ndarray, round: int, engine):
        """Train one step each; samples that are not drawn have weight zero."""
        weights = None
        if self.batch is not None:
            sizes = [len(engine.fed.train[client]) for client in clients]
            weights = [
                self._drawn(n, engine.spec.seed, round, client)
                for n, client in zip(sizes, clients, strict=True)
            ]
        theta, rows = self.dispatch(state, clients)
        return state, engine.train(theta, rows, clients, round, weights)

    def collect(
        self, state: GraphState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> GraphState:
        """Average as FedAvg; a client's weight is the number of drawn samples."""
        if self.batch is not None:
            state = replace(state, weights=np.minimum(state.weights, self.batch))
        return super().collect(state, clients, theta, round)

    def _drawn(self, n: int, seed: int, round: int, client: int) -> np.ndarray:
        """Return factors (n,) that turn a mean over all samples into one over some."""
        rng = stream(seed, "method", round, client)
        drawn = rng.choice(n, size=min(self.batch, n), replace=False)
        factors = np.zeros(n)
        factors[drawn] = n / len(drawn)
        return factors


@dataclass(eq=False, repr=False)
class FedSGDAsRun(FedSGD):
    """FedSGD in FeSEM's published code: a gradient of two samples per client.

    The code asks for 32 samples, but cuts them to the number of entries in the record
    of a client's data, which are images and labels.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedSGDAsRun()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    batch: Count | None = 2


@dataclass(eq=False, repr=False)
class FedDist(FedAvg):
    """FedAvg with a partial step of the server from its model towards the plain mean.

    The new model is ``theta - epsilon * mean_i (theta - theta_i)`` (FeSEM, arXiv
    2108.08647, Section 6.1), which is the step of Reptile (arXiv 1803.02999).

    Parameters
    ----------
    epsilon : float
        Length of the step, from 0 (the model never moves) to 1 (the mean itself);
        FeSEM's runs have 0.6.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedDist(epsilon=0.6)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "feddist"
    graph_decides = False
    by_samples = False

    rule: ClassVar = "participants"  # type: ignore[misc]  # no option here
    epsilon: Share = 0.6

    def collect(
        self, state: GraphState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> GraphState:
        """Take the partial step."""
        weights = np.ones(len(clients))
        if self.by_samples:
            weights = state.weights[clients]
        W = np.append(self.epsilon * (weights / weights.sum()), 1 - self.epsilon)
        return replace(state, models=mix(W[None], theta, state.models))


@dataclass(eq=False, repr=False)
class FedDistWS(FedDist):
    """FedDist with a mean weighted by samples; ``epsilon=1`` is FedAvg.

    This is FedDist+WS, "FedDWS" in FeSEM's list of baselines (arXiv 2108.08647, Section
    6.1). The paper gives no value of ``epsilon``, and the public code for this row does
    not run; a comment in it suggests 1.

    Parameters
    ----------
    epsilon : float
        As in :class:`fltnb.methods.FedDist`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedDistWS(epsilon=1.0)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "feddist_ws"
    by_samples = True


@dataclass(eq=False, repr=False)
class FedDANE(FedAvg):
    """Participants first agree on a mean gradient, then train with corrected gradients.

    Li et al., arXiv 2001.01920; FeSEM's tables. Phase A: each participant sends the
    gradient of its mean loss at the server's model; the server returns their mean g,
    weighted by samples. Phase B: each minimises ``f_i(theta) + <g - grad f_i(sent),
    theta> + mu / 2 ||theta - sent||^2`` by SGD, so that every step has the constant
    ``g - grad f_i(sent)`` added to its gradient; FedAvg's mean follows.

    In the paper other clients are drawn for phase B. The official code uses the same
    seed for both draws, so they are the same clients, as here. The usual back ends
    cannot add a constant to a gradient, so this method trains one client after the
    other, on the run's device.

    Parameters
    ----------
    mu : float
        Weight of the proximal term; FeSEM's configurations try 0, 0.5 and 1.

    Raises
    ------
    FltnbError
        The network is not one of ``fltnb.models.NAMES``, or the loss is not cross
        entropy.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedDANE(mu=0.5)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "feddane"
    softmax = True
    graph_decides = False
    layered = True
    models_down = 3  # the model and the mean gradient; the model again, for phase B
    models_up = 2

    rule: ClassVar = "participants"  # type: ignore[misc]  # no option here
    mu: NonNegative = 0.5

    local_training = FedProx.local_training

    def train(self, state: GraphState, clients: np.ndarray, round: int, engine):
        """Run both phases."""
        from .baselines.autograd import CorrectedEngine

        theta = state.models[0].astype(engine.spec.dtype)
        weights = state.weights[clients]
        plain = CorrectedEngine(engine.fed, engine.model, engine.spec, engine.device)
        gradients = np.stack([plain.gradient(theta, client) for client in clients])
        shift = mix(weights[None] / weights.sum(), gradients) - gradients
        trainer: Any = plain.trainer  # a CorrectedTrainer
        trainer.shift = dict(zip(clients.tolist(), shift, strict=True))
        return state, plain.train(theta[None], np.zeros_like(clients), clients, round)
