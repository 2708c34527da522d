"""What FedClust and FlexCFL share: everybody trains once from one model, and that decides the clusters for good."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import FltnbError
from .base import Context, Method, State
from .modelspace import cluster_means


class ColdStart(Method):
    """Clusters from the first local training; subclasses say how (:meth:`form`, :meth:`place`).

    Row 0 of the models is the common initial model, row k + 1 the model of cluster k. The participants of round 1 are
    clustered by what they trained. A client that takes part later for the first time does nothing in that round but
    train from the initial model, and joins a cluster by what came out; until then it is served the initial model and
    counts as a cluster of its own.
    """

    least = 2
    """Participants that round 1 needs."""

    def start(self, fed, model, context: Context) -> State:
        """One common model, no clusters yet."""
        return {
            "models": model.init(context.seed)[None],
            "row": np.zeros(fed.n_clients, dtype=np.int64),
            "labels": np.zeros(fed.n_clients, dtype=np.int64),
            "weights": np.asarray(fed.sizes, dtype=np.float64),
            "head": np.array([model.head.start, model.head.stop]),  # columns of the last layer
            "trainable": np.array(model.n_trainable),
            "seed": np.array(context.seed),
            "forming": np.array(False),
        }

    def foresee(self, phases, drawn: Sequence[np.ndarray]) -> None:
        """Refuse a first round with too few participants to form clusters from."""
        if len(drawn[0]) < self.least:
            raise FltnbError(
                f"{type(self).__name__} forms its clusters from the participants of round 1 and needs at least"
                f" {self.least}, but there will be {len(drawn[0])}: choose a higher participation."
            )

    def form(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> tuple[np.ndarray, np.ndarray, State]:
        """Return ``(labels (n,), models of the clusters (C, P), further state)`` after the first training."""
        raise NotImplementedError

    def place(self, state: State, theta: np.ndarray) -> np.ndarray:
        """Clusters (n,) of newcomers, by the models (n, P) that they trained from the initial one."""
        raise NotImplementedError

    def aggregate(self, state: State, labels: np.ndarray, weights: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Models (C, P) after a round in which clients with these labels came back with ``theta``."""
        return cluster_means(labels, weights, theta, state["models"][1:])

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
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
            models = self.aggregate(state, row[old] - 1, state["weights"][old], theta[~new])
        unplaced = row == 0
        labels = np.where(unplaced, len(models) + np.cumsum(unplaced) - 1, row - 1)
        models = np.vstack([state["models"][:1], models])
        return state | more | {"models": models, "row": row, "labels": labels, "forming": np.array(first)}
