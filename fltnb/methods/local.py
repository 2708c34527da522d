"""Every client trains alone (Local in FLT, arXiv 2103.15947; NoFed in FeSEM, arXiv 2108.08647)."""

from __future__ import annotations

import numpy as np

from .base import Context, Method, State, replaced


class Local(Method):
    """No aggregation: a client keeps the model it trained last.

    As in FLT's code only the round's participants train, so the budget equals that of the federated methods; all start
    from one common initialisation. Nothing is sent.
    """

    name = "local"
    models_down = 0
    models_up = 0

    def start(self, fed, model, context: Context) -> State:
        """One model per client."""
        return {
            "models": np.repeat(model.init(context.seed)[None], fed.n_clients, axis=0),
            "row": np.arange(fed.n_clients, dtype=np.int64),
        }

    def changed(self, state: State, fed, model, changed: np.ndarray, context: Context) -> State:
        """Keep every client's model; newcomers begin like everybody else."""
        n_new = fed.n_clients - len(state["row"])
        begin = np.repeat(model.init(context.seed)[None], n_new, axis=0).astype(state["models"].dtype)
        return {"models": np.vstack([state["models"], begin]), "row": np.arange(fed.n_clients, dtype=np.int64)}

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Keep what each participant trained."""
        return state | {"models": replaced(state["models"], clients, theta)}
