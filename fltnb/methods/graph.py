"""Averaging over a fixed client graph: FedAvg, Oracle and FLT on different graphs.

A client's new model is the sample-weighted mean over its neighbours in the graph (FLT,
arXiv 2103.15947, Algorithm 3, lines 16-20, with rows normalised to sum 1; a graph's
weights multiply the numbers of samples). The state holds one model per *distinct* row
of the adjacency: 1 for FedAvg (McMahan et al., arXiv 1602.05629), C for disjoint
clusters, up to M.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.linalg import block_diag

from ..aggregate import distinct_rows, mix
from ..errors import FltnbError, unwritten
from ..federations import Federation
from ..federations.own import integers
from ..federations.phases import phases
from .base import PUBLISHED_RULE, Context, Method, Rule
from .hooks import told
from .state import OwnState, State


@dataclass(eq=False, kw_only=True)
class GraphState(State):
    """State of graph methods.

    ``relation`` (R, M): distinct rows of the adjacency; ``memory`` (M, P): last trained
    models, under the rule "last_local"; ``sent`` (2,): scalars sent up and down to find
    the graph.
    """

    relation: np.ndarray
    memory: np.ndarray | None = None
    sent: np.ndarray | None = None


class ClientGraph(NamedTuple):
    """Which clients are averaged together.

    Attributes
    ----------
    adjacency : ndarray, shape (M, M)
        Weights in [0, 1] with ones on the diagonal: row i weighs the models of client
        i's neighbours, besides their numbers of samples.
    labels : ndarray of int, shape (M,), optional
        Cluster of each client; it is reported and does not change the averages.
    sent : tuple of two ints
        Scalars sent to find the graph, summed over all clients: (up, down).

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> graph = fl.methods.ClientGraph(np.eye(3, dtype=np.uint8), labels=np.arange(3))
    >>> graph.labels.tolist()
    [0, 1, 2]
    """

    adjacency: np.ndarray
    labels: np.ndarray | None = None
    sent: tuple[int, int] = (0, 0)


@dataclass(eq=False, repr=False)
class GraphMethod(Method):
    """Base of the methods that average over a fixed client graph.

    Subclasses define :meth:`client_graph`.

    Parameters
    ----------
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute. "participants": nothing (FLT's Algorithms 1 and
        3). "last_local": the model that each trained last, or the initial one.
        "last_aggregate": the model that served each last.

    Examples
    --------
    >>> import fltnb as fl
    >>> issubclass(fl.methods.FLT, fl.methods.GraphMethod)
    True
    """

    state_type = GraphState
    # whether the graph is made again when the federation changes (without clustering)
    redrawn = False
    # whether equal graphs mean equal runs: a subclass changes nothing else
    graph_decides = False

    rule: Rule = field(default="participants", kw_only=True)

    def client_graph(self, fed: Federation, context: Context) -> ClientGraph:
        """Return the graph; every subclass defines it."""
        raise unwritten(self, "client_graph(self, fed, context)")

    def start(self, fed: Federation, model, context: Context) -> OwnState:
        """Build the graph; all models start from one common initialisation."""
        graph = self.graph_found(fed, context)
        relation, row = distinct_rows(graph.adjacency)
        theta = model.init(context.seed)
        memory = None
        if self.rule == "last_local":
            memory = np.repeat(theta[None], fed.n_clients, axis=0)
        return self.state_type(
            models=np.repeat(theta[None], len(relation), axis=0),
            row=row,
            relation=relation,
            weights=np.asarray(fed.sizes, dtype=np.float64),
            labels=_integers(graph.labels),
            memory=memory,
            sent=np.array(graph.sent, dtype=np.int64),
        )

    def graph_found(self, fed: Federation, context: Context) -> ClientGraph:
        """Return what :meth:`client_graph` does, checked."""
        graph = self.client_graph(fed, context)
        name = type(self).__name__
        if not isinstance(graph, ClientGraph):
            raise FltnbError(
                f"client_graph of {name} must return an fl.methods.ClientGraph, such "
                f"as ClientGraph(adjacency), not {told(graph)}: check its `return`."
            )
        sent = np.asarray(graph.sent)
        if sent.shape != (2,) or sent.dtype.kind not in "iuf" or (sent % 1).any():
            raise FltnbError(
                f"sent of the client graph of {name} must be two whole numbers of "
                f"scalars, (up, down), not {graph.sent!r}."
            )
        self._check_adjacency(np.asarray(graph.adjacency), fed.n_clients)
        if graph.labels is not None:
            what = f"The labels of the client graph of {name}"
            integers(what, graph.labels, fed.n_clients, "client")
        return graph

    def _check_adjacency(self, graph: np.ndarray, M: int) -> None:
        """Refuse an adjacency that does not fit M clients."""
        fits = graph.shape == (M, M) and graph.dtype.kind in "buif"
        shares = fits and ((graph >= 0) & (graph <= 1)).all()
        if not shares or not (graph.diagonal() == 1).all():
            raise FltnbError(
                f"The client graph of {type(self).__name__} must be a ({M}, {M}) "
                "adjacency of numbers in [0, 1] with ones on the diagonal."
            )

    def graph_before(
        self,
        fed: Federation,
        model: str,
        training: Mapping[str, Any],
        context: Context,
    ) -> ClientGraph | None:
        """Return the graph, unless the federation changes or more decides the run."""
        if len(phases(fed)) > 1 or not self.graph_decides:
            return None
        return self.graph_found(fed, context)

    def changed(
        self,
        state: OwnState,
        fed: Federation,
        model,
        changed: np.ndarray,
        context: Context,
    ) -> OwnState:
        """Keep the graph, in which a newcomer stands alone, or make it again.

        A newcomer that stands alone starts from the mean of all models; one that joins
        a cluster (:meth:`joins`) starts from the cluster's model.
        """
        if self.redrawn:
            graph = self.graph_found(fed, context)
            return rewire(state, graph.adjacency, graph.labels, fed.sizes, ~changed)

        known = state.relation[state.row]
        before = len(known)
        new = fed.n_clients - before
        adjacency = block_diag(known, np.eye(new, dtype=known.dtype))
        labels = state.labels
        if labels is not None:
            labels = np.append(labels, labels.max() + 1 + np.arange(new))
        joins = self.joins(state, fed, context) if new else {}
        for client, cluster in joins.items():
            labels[client] = cluster
            adjacency[client] = labels == cluster
            adjacency[:, client] = adjacency[client]
        trusted = np.arange(fed.n_clients) < before
        return rewire(state, adjacency, labels, fed.sizes, trusted)

    def joins(
        self, state: GraphState, fed: Federation, context: Context
    ) -> dict[int, int]:
        """Return which newcomers join which cluster; by default none does."""
        return {}

    def collect(
        self, state: OwnState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> OwnState:
        """Average over each neighbourhood under the rule for absent clients."""
        # (R, M): the weight of each client in each row
        share = state.relation * state.weights
        if self.rule == "last_local":
            state.memory[clients] = theta
            return replace(state, models=mix(_normalised(share), state.memory))

        kept = self._kept(state, clients, share)
        W = _normalised(np.hstack([share[:, clients], kept]))
        return replace(state, models=mix(W, theta, state.models))

    def _kept(
        self, state: GraphState, clients: np.ndarray, share: np.ndarray
    ) -> np.ndarray:
        """Return weights (R, R) of the models from before the round."""
        row = state.row
        if self.rule == "last_aggregate":
            # Absent clients contribute their row's model: their weights add up per
            # row, so no (M, P) array is needed.
            absent = share.copy()
            absent[:, clients] = 0
            return absent @ np.eye(len(state.models))[row]

        # A neighbourhood without any participant keeps its model. On a soft graph a
        # neighbourhood whose participants are all far keeps it in part; otherwise a
        # tiny weight, normalised to sum 1, would replace the model.
        near = state.relation[:, clients].max(axis=1)
        mean_weight = np.bincount(row, state.weights) / np.bincount(row)
        return np.diag((1.0 - near) * mean_weight)


def _integers(labels: np.ndarray | None) -> np.ndarray | None:
    """Return labels as int64, if there are any."""
    return None if labels is None else np.asarray(labels, dtype=np.int64)


AGraphState = TypeVar("AGraphState", bound=GraphState)


def _normalised(share: np.ndarray) -> np.ndarray:
    """Return weights (R, n) whose rows add up to 1."""
    return share / share.sum(axis=1, keepdims=True)


def _summed(
    shape: tuple[int, int], after: np.ndarray, before: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return the weight of the clients that each model before gives to each after.

    Clients with models before 0, 0, 1 and after 0, 1, 1, of weights 5, 3 and 4, give
    [[5, 0], [3, 4]].

    Parameters
    ----------
    shape : models after, models before
    after, before, weights : ndarrays, shape (M,)
    """
    summed = np.zeros(shape)
    np.add.at(summed, (after, before), weights)
    return summed


def rewire(
    state: AGraphState,
    adjacency: np.ndarray,
    labels: np.ndarray | None,
    sizes: np.ndarray,
    trusted: np.ndarray,
) -> AGraphState:
    """Give the clients a new graph (M, M) in the middle of a run.

    Clients with the same new neighbourhood start from the sample-weighted mean of the
    models that have served the ``trusted`` (M,) clients among them (or all of them if
    none is trusted). Newcomers count with the mean of all models.
    """
    row = state.row
    before = len(row)
    served = state.models
    weights = np.asarray(sizes, dtype=np.float64)
    new = len(weights) - before
    if new > 0:
        old = np.bincount(row, state.weights, minlength=len(served))
        mean = mix(old[None] / old.sum(), served)
        served = np.vstack([served, mean])
        row = np.append(row, np.full(new, len(served) - 1))

    relation, place = distinct_rows(adjacency)
    shape = (len(relation), len(served))
    share = _summed(shape, place, row, weights * trusted)
    every = _summed(shape, place, row, weights)
    nobody_trusted = share.sum(axis=1, keepdims=True) == 0
    share = np.where(nobody_trusted, every, share)

    state = replace(
        state,
        models=mix(_normalised(share), served),
        row=place,
        relation=relation,
        weights=weights,
        labels=state.labels if labels is None else _integers(labels),
    )
    if state.memory is not None:
        memory = np.vstack([state.memory, served[row[before:]]])
        state = replace(state, memory=memory)
    return state


@dataclass(eq=False, repr=False)
class FedAvg(GraphMethod):
    """Federated averaging: one model for all clients.

    McMahan et al., arXiv 1602.05629; FLT, arXiv 2103.15947, Algorithm 1. All entries of
    its client graph are 1.

    Parameters
    ----------
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute: nothing, the model that each trained last, or
        the model that served each last.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedAvg()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    name = "fedavg"
    redrawn = True
    graph_decides = True

    rule: Rule = field(default="participants", kw_only=False)

    def client_graph(self, fed: Federation, context: Context) -> ClientGraph:
        """All clients are neighbours."""
        return ClientGraph(np.ones((fed.n_clients, fed.n_clients), dtype=np.uint8))


@dataclass(eq=False, repr=False)
class FedAvgAsRun(FedAvg):
    """FedAvg in FLT's tables: absent clients contribute their last trained model.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedAvgAsRun()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Rule = PUBLISHED_RULE


@dataclass(eq=False, repr=False)
class OnGraph(GraphMethod):
    """Averaging over a given client graph.

    This is how FLT, PACFL and EMD-CFL train after their clustering.

    Parameters
    ----------
    graph : ClientGraph
    rule : {"participants", "last_local", "last_aggregate"}
        See :class:`fltnb.methods.FedAvg`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> import numpy as np
    >>> same = fed.clusters[:, None] == fed.clusters
    >>> graph = fl.methods.ClientGraph(same, fed.clusters)
    >>> method = fl.methods.OnGraph(graph)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.tolist() == fed.clusters.tolist()
    True
    """

    name = "on_graph"
    graph_decides = True

    graph: ClientGraph

    def client_graph(self, fed: Federation, context: Context) -> ClientGraph:
        """Return the graph that was given."""
        return self.graph


@dataclass(eq=False, repr=False)
class Oracle(FedAvg):
    """FedAvg inside each true cluster: the result of a perfect clustering.

    Parameters
    ----------
    rule : {"participants", "last_local", "last_aggregate"}
        See :class:`fltnb.methods.FedAvg`.

    Raises
    ------
    FltnbError
        The federation has no true clusters.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.Oracle()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    name = "oracle"

    def check(self, fed: Federation) -> None:
        """Refuse a federation without true clusters."""
        if fed.clusters is None:
            raise FltnbError(
                "Oracle needs the true clusters: "
                "give `clusters` when you build the federation."
            )

    def client_graph(self, fed: Federation, context: Context) -> ClientGraph:
        """Neighbours are the clients of the same true cluster."""
        self.check(fed)
        same = fed.clusters[:, None] == fed.clusters[None]
        return ClientGraph(same, fed.clusters)


@dataclass(eq=False, repr=False)
class OracleAsRun(Oracle):
    """The oracle with FLT's rule: absent clients contribute their last trained model.

    It is the rule of FLT's tables, which have no oracle.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.OracleAsRun()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Rule = PUBLISHED_RULE
