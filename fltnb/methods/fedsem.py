"""FedSEM as FLT ran it: k-means on the clients' models every round, then averaging inside the groups.

The FLT authors' re-implementation of multi-center FL (FeSEM): k-means over the flattened parameters of *all* clients,
20 random starts in the first round, later started from the last centres; no proximal term.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..randomness import integer
from .base import Context, Method, State, check_clusters, mix, resolve_rule


class FedSEM(Method):
    """Clustered averaging with groups found in parameter space.

    Parameters
    ----------
    n_clusters : int
        Number of groups K, given.
    rule : {"participants", "last_local", "last_aggregate"}, optional
        What absent clients contribute to the *average*. Their *group* always follows from the last model known of
        them: the one they trained last, or under ``last_aggregate`` the one they were served last.
    variant : {"described", "published"}
        Which rule is meant when ``rule`` is not given.
    """

    name = "fedsem"

    def __init__(self, n_clusters: int, rule: str | None = None, variant: str = "described"):
        self.n_clusters = n_clusters
        self.rule = resolve_rule(rule, variant)

    def settings(self) -> dict[str, Any]:
        """Name, K and non-participant rule."""
        return {"name": self.name, "n_clusters": self.n_clusters, "rule": self.rule}

    def check(self, fed) -> None:
        """Refuse more groups than clients."""
        check_clusters(self.n_clusters, fed.n_clients)

    def start(self, fed, model, context: Context) -> State:
        """Everybody holds the common initial model; the first grouping follows round 1."""
        self.check(fed)
        theta = model.init(context.seed)
        return {
            "models": np.repeat(theta[None], self.n_clusters, axis=0),
            "centers": np.repeat(theta[None], self.n_clusters, axis=0),
            "row": np.zeros(fed.n_clients, dtype=np.int64),
            "memory": np.repeat(theta[None], fed.n_clients, axis=0),
            "weights": np.asarray(fed.sizes, dtype=np.float64),
            "seed": np.array(context.seed),
        }

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Group all clients by their last known models, then average inside the groups."""
        state = dict(state)
        memory = state["memory"]
        if self.rule == "last_aggregate":
            memory = state["models"][state["row"]]
        memory[clients] = theta
        labels = self._group(memory, state, round)
        member = np.eye(self.n_clusters)[labels].T  # (K, M)
        counts = np.zeros(len(labels))
        counts[clients if self.rule == "participants" else slice(None)] = 1
        share = member * state["weights"] * counts
        filled, trained = member.any(axis=1), share.any(axis=1)
        # Centres are plain means of all members, models weighted means of those that count; one pass over memory.
        W = np.vstack([member[filled], share[trained]])
        mixed = mix(W / W.sum(axis=1, keepdims=True), memory)
        centers, models = state["centers"].copy(), state["models"].copy()
        centers[filled], models[trained] = mixed[: filled.sum()], mixed[filled.sum() :]  # the others keep theirs
        return state | {"memory": memory, "row": labels, "labels": labels, "models": models, "centers": centers}

    def _group(self, memory: np.ndarray, state: State, round: int) -> np.ndarray:
        """k-means labels (M,) of the rows of ``memory`` (M, P)."""
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning

        # k-means sees nothing but distances, and M + K points span at most M + K directions: turning them into that
        # basis keeps all distances and makes each Lloyd step independent of P.
        points = np.vstack([memory, state["centers"]])
        points -= points[0]
        gram = np.zeros((len(points), len(points)))
        for begin in range(0, points.shape[1], 65536):
            part = points[:, begin : begin + 65536]
            gram += part @ part.T
        values, vectors = np.linalg.eigh(gram)
        coordinates = vectors * np.sqrt(np.maximum(values, 0))
        clients, centers = coordinates[: len(memory)], coordinates[len(memory) :]
        first = "labels" not in state
        kmeans = KMeans(
            self.n_clusters,
            init="k-means++" if first else centers,
            n_init=20 if first else 1,
            random_state=integer(int(state["seed"]), "method", round),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct models than groups, early on
            return kmeans.fit(clients).labels_.astype(np.int64)
