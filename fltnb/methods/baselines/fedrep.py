"""FedRep: heads are fitted to a shared body, then the body to the heads."""

from dataclasses import dataclass, replace

import numpy as np

from ...aggregate import mix
from ...settings import Count, Natural
from ..base import Context
from ..modelspace import with_rows
from .fedper import FedPer, FedPerState


@dataclass(eq=False, repr=False)
class FedRep(FedPer):
    """FedPer in two phases: heads with a fixed body, then the body with fixed heads.

    Collins et al., ICML 2021 (arXiv 2102.07078). We read the authors' code
    (lgcollins/FedRep), but not all of the paper.

    Body and head are those of :class:`fltnb.methods.FedPer`. The run's ``local_epochs``
    has no effect. Both phases use the samples in the same orders. Only bodies are sent
    and averaged, by samples.

    Parameters
    ----------
    head_epochs : int
        Local epochs of the head; 10 in the authors' runs.
    body_epochs : int
        Local epochs of the body; 1 or 5 in the authors' runs. 0 leaves the body at its
        initial value.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedRep()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "fedrep"

    head_epochs: Count = 10
    body_epochs: Natural = 1

    def train(self, state: FedPerState, clients: np.ndarray, round: int, engine):
        """Train the heads, then the body."""
        from ...training import Variation

        theta, rows = self.dispatch(state, clients)
        how = Variation(epochs=self.head_epochs, frozen="body")
        trained = engine.train(theta, rows, clients, round, how=how)
        if self.body_epochs:
            how = Variation(epochs=self.body_epochs, frozen="head")
            trained = engine.train(trained.theta, rows, clients, round, how=how)
        return state, trained


@dataclass(eq=False, kw_only=True)
class FedRepRunState(FedPerState):
    """State: which clients trained, ``heard`` (M,); ``models`` has the mean head."""

    heard: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class FedRepAsRun(FedRep):
    """FedRep in its code: a client that never took part is served the last mean head.

    Heads are averaged too, and in the code the own head of a client shares memory with
    this mean until the client takes part. The same holds for newcomers.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedRepAsRun()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    state_type = FedRepRunState

    def start(self, fed, model, context: Context) -> FedRepRunState:
        """Start as FedPer; no client has trained."""
        state = super().start(fed, model, context)
        return replace(state, heard=np.zeros(fed.n_clients, dtype=bool))

    def changed(
        self, state: FedRepRunState, fed, model, changed: np.ndarray, context: Context
    ) -> FedRepRunState:
        """Give newcomers the mean head."""
        heard = np.zeros(fed.n_clients, dtype=bool)
        heard[: len(state.heard)] = state.heard
        state = super().changed(state, fed, model, changed, context)
        return replace(state, heard=heard)

    def collect(
        self, state: FedRepRunState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FedRepRunState:
        """Average bodies and heads; clients that have trained keep their heads."""
        head = slice(*state.head)
        heard = with_rows(state.heard, clients, True)
        state = super().collect(state, clients, theta, round)
        weights = state.weights[clients]
        mean = mix(weights[None] / weights.sum(), theta)
        heads = np.where(heard[:, None], state.heads, mean[:, head])
        return replace(state, models=mean, heads=heads, heard=heard)
