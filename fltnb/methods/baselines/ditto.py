"""Ditto: every client has its own model, which is kept near the global model."""

from dataclasses import dataclass, replace

import numpy as np

from ...aggregate import mix
from ...settings import Count, NonNegative
from ..base import Context, Method
from ..modelspace import with_rows
from ..newcomers import finite
from ..state import State, one_cluster


@dataclass(eq=False, kw_only=True)
class DittoState(State):
    """State of Ditto: clients' own models (M, P), and if trained, ``met`` (M,)."""

    own: np.ndarray
    met: np.ndarray


@dataclass(eq=False, repr=False)
class Ditto(Method):
    """FedAvg, and in addition a model for each client, which serves this client.

    Li et al., ICML 2021 (arXiv 2012.04221). We read the authors' code (litian96/ditto),
    but not all of the paper.

    A participant trains the global model w as in FedAvg. Then it continues to train its
    own model v, by the gradient ``grad f_i(v) + lam (v - w)``, with w as it was
    received. With ``lam=0`` its own model is that of training alone; w is FedAvg's for
    any ``lam``. A client that never took part is served w.

    The authors' code takes the plain mean of updates, and alternates the steps of v and
    w in each batch. Here w is the mean by samples, and v is trained on the same batches
    afterwards. Their code can also choose ``lam`` from 0.1, 1 and 2 by validation; this
    is left out here.

    Parameters
    ----------
    lam : float
        Weight of the pull of v towards w; 1 in the authors' runs. Training is stable
        only for ``lr * lam`` below 2.
    epochs : int, optional
        Local epochs for v; by default the run's ``local_epochs``.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.Ditto()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    state_type = DittoState
    name = "ditto"

    lam: NonNegative = 1.0
    epochs: Count | None = None

    def start(self, fed, model, context: Context) -> DittoState:
        """Start with one initial model, and a copy for each client."""
        theta = model.init(context.seed)
        own = np.repeat(theta[None], fed.n_clients, axis=0)
        met = np.zeros(fed.n_clients, dtype=bool)
        state = one_cluster(DittoState, fed, theta, own=own, met=met)
        return replace(state, labels=None)

    def changed(
        self, state: DittoState, fed, model, changed: np.ndarray, context: Context
    ) -> DittoState:
        """Give newcomers the initial model as their own."""
        begun = self.start(fed, model, context)
        own = begun.own.astype(state.own.dtype)
        own[: len(state.own)] = state.own
        met = begun.met
        met[: len(state.met)] = state.met
        return replace(begun, models=state.models, own=own, met=met)

    def train(self, state: DittoState, clients: np.ndarray, round: int, engine):
        """Train the global model, then the clients' own."""
        from ...training import Variation

        _, trained = super().train(state, clients, round, engine)
        received = np.repeat(state.models, len(clients), axis=0)
        how = Variation(epochs=self.epochs, anchors=received, pull=self.lam)
        own = engine.train(state.own, clients, clients, round, how=how)
        # a run stops where any loss is not finite
        trained = replace(trained, loss=np.where(finite(own), trained.loss, np.nan))
        state = replace(
            state,
            own=with_rows(state.own, clients, own.theta),
            met=with_rows(state.met, clients, True),
        )
        return state, trained

    def collect(
        self, state: DittoState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> DittoState:
        """Average what was trained of the global model."""
        weights = state.weights[clients]
        return replace(state, models=mix(weights[None] / weights.sum(), theta))

    def serve(self, state: DittoState) -> tuple[np.ndarray, np.ndarray]:
        """Return clients' own models; the global model if one never took part."""
        theta = np.where(state.met[:, None], state.own, state.models)
        return theta, np.arange(len(theta))
