"""Averaging over a fixed client graph: FedAvg, Oracle and FLT are the same aggregation on different graphs.

A client's new model is the sample-weighted mean over its neighbours in the graph (FLT, arXiv 2103.15947, Algorithm 3,
lines 16-20, with rows made to sum to 1; a graph's own weights multiply the samples). The state holds one model per
*distinct* row of the adjacency: 1 for FedAvg (McMahan et al., arXiv 1602.05629), C for disjoint clusters, up to M.
"""

from dataclasses import field
from hashlib import sha256
from typing import ClassVar

import numpy as np
from scipy.linalg import block_diag

from ..errors import FltnbError
from ..federations import Federation
from ..federations.phases import phases
from .base import PUBLISHED_RULE, Context, FixedGraph, Method, Rule, State, mix


class GraphMethod(Method):
    """Shared part of the methods that average over a fixed graph; subclasses give :meth:`client_graph`.

    Parameters
    ----------
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute. "participants": nothing (FLT's Algorithms 1 and 3). "last_local": the last model
        that each trained, or the initial one. "last_aggregate": last served.
    variant : "as_run" is the rule "last_local" where none is given
    """

    AS_RUN: ClassVar = {"rule": PUBLISHED_RULE}
    redrawn = False  # whether a change of the federation redraws the graph, which then takes no clustering

    rule: Rule = field(default="participants", kw_only=True)

    def client_graph(
        self, fed: Federation, context: Context
    ) -> tuple[np.ndarray, np.ndarray | None, State]:
        """Return ``(adjacency (M, M) in [0, 1] with ones on the diagonal, labels (M,) or None, extra state)``."""
        raise NotImplementedError

    def start(self, fed: Federation, model, context: Context) -> State:
        """Build the graph; all models start from one common initialisation."""
        adjacency, labels, extra = self.client_graph(fed, context)
        graph, M = np.asarray(adjacency), fed.n_clients
        if (
            graph.shape != (M, M)
            or not ((graph >= 0) & (graph <= 1)).all()
            or not (graph.diagonal() == 1).all()
        ):
            what = f"client_graph of {type(self).__name__} must return ({M}, {M}) numbers in [0, 1]"
            raise FltnbError(f"{what} with ones on the diagonal.")
        relation, row = distinct_rows(adjacency)
        theta, weights = (
            model.init(context.seed),
            np.asarray(fed.sizes, dtype=np.float64),
        )
        models = np.repeat(theta[None], len(relation), axis=0)
        state = {
            "models": models,
            "row": row,
            "relation": relation,
            "weights": weights,
            **extra,
        }
        if labels is not None:
            state["labels"] = np.asarray(labels, dtype=np.int64)
        if self.rule == "last_local":
            state["memory"] = np.repeat(theta[None], fed.n_clients, axis=0)
        return state

    def fixed_graph(self, fed: Federation, context: Context) -> FixedGraph | None:
        """Return the graph, unless the federation changes or the method has more to say than the graph."""
        own = (
            "start",
            "dispatch",
            "train",
            "collect",
            "serve",
            "evaluate",
            "revise",
            "observe",
            "traffic",
        )
        own += ("local_training", "labels")
        if len(phases(fed)) > 1 or any(
            getattr(type(self), name) is not getattr(GraphMethod, name) for name in own
        ):
            return None
        adjacency, labels, extra = self.client_graph(fed, context)
        relation, row = distinct_rows(adjacency)
        return FixedGraph(
            graph_key(self.rule, relation, row), labels, self.setup_bytes(extra)
        )

    def changed(
        self,
        state: State,
        fed: Federation,
        model,
        changed: np.ndarray,
        context: Context,
    ) -> State:
        """Keep the graph, where a newcomer stands alone and starts from the mean of all models; or draw it anew."""
        if self.redrawn:
            adjacency, labels, _ = self.client_graph(fed, context)
            return rewire(state, adjacency, labels, fed.sizes, ~changed)
        new, labels = fed.n_clients - len(state["row"]), state.get("labels")
        adjacency = block_diag(
            state["relation"][state["row"]], np.eye(new, dtype=state["relation"].dtype)
        )
        if labels is not None:
            labels = np.concatenate([labels, labels.max() + 1 + np.arange(new)])
        return rewire(
            state, adjacency, labels, fed.sizes, np.ones(fed.n_clients, dtype=bool)
        )

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Average over each neighbourhood under the non-participant rule."""
        share = (
            state["relation"] * state["weights"]
        )  # (R, M): who counts in which row, and how much
        if self.rule == "last_local":
            state["memory"][clients] = theta
            return state | {
                "models": mix(share / share.sum(axis=1, keepdims=True), state["memory"])
            }
        present = share[:, clients]
        if self.rule == "last_aggregate":
            # Absent clients contribute their row's model: their weights add up per row, no (M, P) array is needed.
            absent = share.copy()
            absent[:, clients] = 0
            kept = absent @ np.eye(len(state["models"]))[state["row"]]
        else:
            # A neighbourhood without any participant keeps its model. On a soft graph so does, in part, one whose
            # participants are all far: else a weight next to nothing would, made to sum to 1, replace the model.
            near = state["relation"][:, clients].max(axis=1)
            kept = np.diag(
                (1.0 - near)
                * (
                    np.bincount(state["row"], state["weights"])
                    / np.bincount(state["row"])
                )
            )
        W = np.hstack([present, kept])
        return state | {
            "models": mix(W / W.sum(axis=1, keepdims=True), theta, state["models"])
        }


def distinct_rows(adjacency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows (R, M) of a client graph, uint8 if of zeros and ones, and which each client has, int64 (M,)."""
    adjacency = np.asarray(adjacency)
    if adjacency.dtype.kind != "f" or np.isin(adjacency, (0, 1)).all():
        adjacency = adjacency.astype(np.uint8)
    relation, row = np.unique(adjacency, axis=0, return_inverse=True)
    return relation, row.reshape(-1).astype(np.int64)


def graph_key(rule: Rule, relation: np.ndarray, row: np.ndarray) -> str:
    """Name a client graph (:func:`distinct_rows`) and the rule under which it is averaged."""
    what = repr((rule, relation.shape, relation.dtype.str)).encode()
    return sha256(what + relation.tobytes() + row.tobytes()).hexdigest()


def rewire(
    state: State,
    adjacency: np.ndarray,
    labels: np.ndarray | None,
    sizes: np.ndarray,
    trusted: np.ndarray,
) -> State:
    """Give the clients a new graph (M, M) in the middle of a run.

    Clients with the same new neighbourhood start from the sample-weighted mean of the models that the trusted among
    them were served so far (all of them where none is). Newcomers bring the mean of all.
    """
    row, before, served = state["row"], len(state["row"]), state["models"]
    weights = np.asarray(sizes, dtype=np.float64)
    if len(weights) > before:
        old = np.bincount(row, state["weights"], minlength=len(served))
        served = np.vstack([served, mix(old[None] / old.sum(), served)])
        row = np.concatenate([row, np.full(len(weights) - before, len(served) - 1)])
    relation, place = distinct_rows(adjacency)
    share, every = np.zeros((2, len(relation), len(served)))
    np.add.at(share, (place, row), weights * trusted)
    np.add.at(every, (place, row), weights)
    lost = share.sum(axis=1) == 0
    share[lost] = every[lost]
    models = mix(share / share.sum(axis=1, keepdims=True), served)
    state = state | {
        "models": models,
        "row": place,
        "relation": relation,
        "weights": weights,
    }
    if labels is not None:
        state["labels"] = np.asarray(labels, dtype=np.int64)
    if "memory" in state:
        state["memory"] = np.vstack([state["memory"], served[row[before:]]])
    return state


class FedAvg(GraphMethod):
    """Federated averaging (FLT, Algorithm 1): one model for all clients, the graph of all ones."""

    name = "fedavg"
    redrawn = True

    rule: Rule = field(default="participants", kw_only=False)

    def client_graph(
        self, fed: Federation, context: Context
    ) -> tuple[np.ndarray, None, State]:
        """Everybody is everybody's neighbour."""
        return np.ones((fed.n_clients, fed.n_clients), dtype=np.uint8), None, {}


class Oracle(FedAvg):
    """FedAvg inside each true cluster: what a perfect clustering would give."""

    name = "oracle"

    def check(self, fed: Federation) -> None:
        """Refuse a federation without true clusters."""
        if fed.clusters is None:
            raise FltnbError(
                "Oracle needs the true clusters: give `clusters` when you build the federation."
            )

    def client_graph(
        self, fed: Federation, context: Context
    ) -> tuple[np.ndarray, np.ndarray, State]:
        """Neighbours are the clients of the same true cluster."""
        self.check(fed)
        return fed.clusters[:, None] == fed.clusters[None], fed.clusters, {}
