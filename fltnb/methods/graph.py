"""Averaging over a fixed client graph: FedAvg, Oracle and FLT are the same aggregation on different graphs.

A client's new model is the sample-weighted mean over its neighbours in the graph (FLT, Algorithm 3, lines 16-20, with
each row's weights made to sum to 1). Clients with equal neighbourhoods share one model, so the state holds one model
per *distinct* row of the adjacency matrix: 1 for FedAvg, C for disjoint clusters, up to M for a general graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError
from .base import Context, Method, State, mix, resolve_rule

if TYPE_CHECKING:
    from ..federations import Federation
    from ..models import Model


class GraphMethod(Method):
    """Shared part of the methods that average over a fixed graph; subclasses give :meth:`graph`.

    Parameters
    ----------
    rule : {"participants", "last_local", "last_aggregate"}, optional
        What clients that did not take part contribute (:func:`fltnb.methods.base.resolve_rule`).
    variant : {"described", "published"}
        Which rule is meant when ``rule`` is not given.
    """

    def __init__(self, rule: str | None = None, variant: str = "described"):
        self.rule = resolve_rule(rule, variant)

    def settings(self) -> dict[str, Any]:
        """Name and non-participant rule."""
        return {"name": self.name, "rule": self.rule}

    def graph(self, fed: Federation, context: Context) -> tuple[np.ndarray, np.ndarray | None, State]:
        """Return ``(adjacency (M, M) with ones on the diagonal, labels (M,) or None, extra state)``."""
        raise NotImplementedError

    def start(self, fed: Federation, model: Model, context: Context) -> State:
        """Build the graph; all models start from one common initialisation."""
        adjacency, labels, extra = self.graph(fed, context)
        relation, row = np.unique(np.asarray(adjacency, dtype=np.uint8), axis=0, return_inverse=True)
        theta = model.init(context.seed)
        state = {
            "models": np.repeat(theta[None], len(relation), axis=0),
            "row": row.reshape(-1).astype(np.int64),
            "relation": relation,
            "weights": np.asarray(fed.sizes, dtype=np.float64),
            **extra,
        }
        if labels is not None:
            state["labels"] = np.asarray(labels, dtype=np.int64)
        if self.rule == "last_local":
            state["memory"] = np.repeat(theta[None], fed.n_clients, axis=0)
        return state

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Average over each neighbourhood under the non-participant rule."""
        state = dict(state)
        share = state["relation"] * state["weights"]  # (R, M): who counts in which row, and how much
        if self.rule == "last_local":
            state["memory"][clients] = theta
            state["models"] = mix(share / share.sum(axis=1, keepdims=True), state["memory"])
            return state
        present = share[:, clients]
        if self.rule == "last_aggregate":
            # Absent clients contribute their row's model: their weights add up per row, no (M, P) array is needed.
            absent = share.copy()
            absent[:, clients] = 0
            kept = absent @ np.eye(len(state["models"]))[state["row"]]
        else:
            # A neighbourhood without any participant keeps its model.
            kept = np.diag((present.sum(axis=1) == 0).astype(np.float64))
        W = np.hstack([present, kept])
        state["models"] = mix(W / W.sum(axis=1, keepdims=True), np.vstack([theta, state["models"]]))
        return state


class FedAvg(GraphMethod):
    """Federated averaging (FLT, Algorithm 1): one model for all clients, the graph of all ones."""

    name = "fedavg"

    def graph(self, fed: Federation, context: Context) -> tuple[np.ndarray, None, State]:
        """Everybody is everybody's neighbour."""
        return np.ones((fed.n_clients, fed.n_clients), dtype=np.uint8), None, {}


class Oracle(GraphMethod):
    """FedAvg inside each true cluster: what a perfect clustering would give."""

    name = "oracle"

    def check(self, fed: Federation) -> None:
        """Refuse a federation without true clusters."""
        if fed.clusters is None:
            raise FltnbError("Oracle needs the true clusters: give `clusters` when you build the federation.")

    def graph(self, fed: Federation, context: Context) -> tuple[np.ndarray, np.ndarray, State]:
        """Neighbours are the clients of the same true cluster."""
        self.check(fed)
        return fed.clusters[:, None] == fed.clusters[None], fed.clusters, {}
