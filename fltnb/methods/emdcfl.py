"""EMD-CFL: one-shot clustering by earth mover's distances between embeddings.

Zhang, Williams and Toni (arXiv 2506.07769), Algorithm 1. Every client first trains
alone once. Each pair then exchanges models and measures how far apart the embeddings of
its samples are (:class:`fltnb.clustering.EMDClustering`). Clients with the same
neighbours share these neighbours' mean from then on, starting with the models that they
have just trained.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from ..aggregate import mix_groups
from ..clustering import EMDClustering, canonical
from ..errors import FltnbError
from ..federations import Federation
from ..federations.phases import phases
from ..progress import bar
from .base import Context, Method
from .graph import ClientGraph, GraphState, rewire
from .modelspace import with_rows
from .ownmodels import OwnModels, penultimate
from .state import alone

# options of local training that clients' own models cannot have, with their defaults
USUAL = [("proximal", 0), ("dtype", "float32"), ("loss", "cross_entropy")]
USUAL += [("class_weights", None)]
# cells of all cost matrices below which starting processes takes longer than the work
SMALL = 20_000_000


@dataclass(eq=False, kw_only=True)
class EMDCFLState(GraphState):
    """State of :class:`EMDCFL`: what the pairs of clients know of each other.

    ``relation`` (R, M): distinct rows of the adjacency; ``distance`` (M, M) and
    ``reference`` (M,), NaN if not measured; ``tolerance`` used last; ``local`` (M, P):
    last trained models, while they are needed; ``present, trained, measured`` (M,):
    which clients took part in this round, in any round, and in the clustering;
    ``again``: whether pairs are measured again; ``sent`` (2,): scalars sent up and
    down.
    """

    distance: np.ndarray
    reference: np.ndarray
    tolerance: np.ndarray
    local: np.ndarray
    present: np.ndarray
    trained: np.ndarray
    measured: np.ndarray
    again: np.ndarray
    sent: np.ndarray


@dataclass(eq=False, repr=False)
class EMDCFL(Method):
    """Cluster after the first local training, then FedAvg inside the clusters.

    Zhang, Williams and Toni, arXiv 2506.07769, Algorithm 1; each client needs
    validation samples.

    A client that was never drawn is a cluster of its own and holds the initial model.
    Absent clients take part in the measurements with their last model. Besides the
    rounds' models every ordered pair sends one model without its last layer, and both
    clients send embeddings.

    Parameters
    ----------
    clusterer : EMDClustering, optional
        ``EMDClustering()`` by default; one with ``n_clusters`` is refused. A copy is
        fitted during the run, whether or not it is fitted already.
    rule : {"participants", "last_local"}
        Which models a cluster averages: those of this round's participants, or the last
        trained models of all members, as in the public code.
    repeat : bool
        Matters only if some clients are absent in the first round. False: every pair is
        measured once, after the first round by which both clients have trained. True:
        all pairs that have trained are measured again after every round, as in the
        public code. The paper calls the clustering one-shot for each pair.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> method = fl.methods.EMDCFL(fl.EMDClustering(tolerance="auto"))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = EMDCFLState
    name = "emdcfl"
    split = "val"
    headed = True

    clusterer: EMDClustering | None = None
    rule: Literal["participants", "last_local"] = "participants"
    repeat: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusterer is None:
            self.clusterer = EMDClustering()
        fits = isinstance(self.clusterer, EMDClustering)
        if not fits or self.clusterer.n_clusters is not None:
            raise FltnbError(
                "clusterer must be an fl.EMDClustering(...) without n_clusters, "
                f"not {self.clusterer!r}."
            )

    def check(self, fed) -> None:
        """Refuse a single client, or clients without validation samples."""
        self.clusterer.check(fed.sizes.tolist())
        super().check(fed)

    def start(self, fed, model, context: Context) -> EMDCFLState:
        """Start with every client alone, on a common initial model."""
        M = fed.n_clients
        theta = model.init(context.seed)
        nobody = np.zeros(M, dtype=bool)
        itself = np.eye(M, dtype=bool)
        return alone(
            EMDCFLState,
            fed,
            theta,
            labels=np.arange(M),
            relation=np.eye(M, dtype=np.uint8),
            distance=np.where(itself, 0.0, np.nan),
            reference=np.full(M, np.nan),
            tolerance=np.array(np.nan),
            local=np.repeat(theta[None], M, axis=0),
            present=nobody,
            trained=nobody,
            measured=nobody,
            again=np.array(self.repeat),
            sent=np.zeros(2, dtype=np.int64),
        )

    def collect(
        self, state: EMDCFLState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> EMDCFLState:
        """Average inside the clusters known so far.

        :meth:`revise` averages again if clusters change.
        """
        everybody = np.arange(len(state.row))
        present = np.isin(everybody, clients)
        state = replace(state, present=present, trained=state.trained | present)
        if round == 1 and present.all():
            # one-shot in any case
            state = replace(state, again=np.array(False))
        if self._keeps_local(state):
            state = replace(state, local=with_rows(state.local, clients, theta))

        if self.rule == "last_local":
            clients = everybody
            theta = state.local
        share = state.relation[:, clients] * state.weights[clients]  # (R, n)
        return replace(state, models=mix_groups(share, theta, state.models))

    def revise(
        self, state: EMDCFLState, fed, round: int, context: Context
    ) -> EMDCFLState:
        """Measure pairs for the first time, connect, and average in the new clusters.

        With ``repeat`` all pairs are measured again.
        """
        new = state.trained
        if not state.again:
            new = new & ~state.measured
        if not new.any():
            return state
        state = replace(state, measured=state.measured | new)
        several_trained = state.trained.sum() > 1
        if several_trained:
            state = self._measure(state, fed, new, context)
            state = self._connected(state, fed)
        if not self._keeps_local(state):
            state = replace(state, local=state.local[:0].copy())
        return state

    def _connected(self, state: EMDCFLState, fed) -> EMDCFLState:
        """Form the clusters again from all distances, and average inside them."""
        adjacency, labels, tolerance = self.clusterer.connect(
            state.distance, state.reference
        )
        everybody = np.ones(fed.n_clients, dtype=bool)
        state = rewire(state, adjacency, labels, fed.sizes, everybody)
        # a cluster without participants gets the mean of its members' served models
        share = state.relation * state.weights  # (R, M)
        if self.rule == "participants":
            share = share * state.present
        models = mix_groups(share, state.local, state.models)
        return replace(state, models=models, tolerance=np.array(tolerance))

    def _keeps_local(self, state: EMDCFLState) -> bool:
        """Return whether clients' own models are still needed."""
        complete = state.measured.all() and not state.again
        return self.rule == "last_local" or not complete

    def _measure(
        self, state: EMDCFLState, fed, new: np.ndarray, context: Context
    ) -> EMDCFLState:
        """Measure pairs with a new client, under the models that were trained last.

        ``new``: bool (M,), clients that are measured for the first time or again.
        """
        net = context.model
        others = _pairs(state.trained, new)
        clusterer = clone(self.clusterer)
        if clusterer.n_jobs is None:
            cells = _cells(fed, others, int(clusterer.max_samples))
            clusterer.n_jobs = 1
            if cells >= SMALL:
                clusterer.n_jobs = context.n_jobs or -1

        tasks = _embedded(net, fed, state.local, others, context.device)
        shown = bar(
            tasks, context.progress, total=len(others), desc="emdcfl", unit="client"
        )
        distance = state.distance.copy()
        reference = state.reference.copy()
        clusterer.measure(shown, distance, reference)
        sent = state.sent + exchanged(clusterer, fed, net, others)
        return replace(state, distance=distance, reference=reference, sent=sent)

    def clustering(
        self, fed, model: str, training: Mapping[str, Any]
    ) -> tuple[EMDClustering, OwnModels] | None:
        """Return what finds the graph, if all clients take part in round 1.

        These are the clusterer, and every client's own network after one local round.
        The rest is a training on that graph, to the bit. ``training`` has the options
        of :func:`fltnb.rounds.run`. None if the graph grows during the run, or the
        local training has options that :class:`fltnb.methods.OwnModels` does not have.
        """
        # the number of `participants` of a round
        n_drawn = int(training["participation"] * fed.n_clients + 1e-9)
        partial = n_drawn < fed.n_clients
        others = any(training.get(name, usual) != usual for name, usual in USUAL)
        if partial or others or len(phases(fed)) > 1:
            return None
        local = {}  # options of local training
        for option in fields(OwnModels):
            if option.name != "model" and option.name in training:
                local[option.name] = training[option.name]
        return self.clusterer, OwnModels(model, **local)

    def graph_from(
        self, arrays: Mapping[str, np.ndarray], fed, model: str
    ) -> ClientGraph:
        """Return the client graph of a finished clustering, and its traffic.

        ``arrays``: the clusterer's ``adjacency`` and ``labels``.
        """
        from .. import models

        net = models.make(model, fed.input_shape, fed.n_classes)
        everybody = np.ones(fed.n_clients, dtype=bool)
        pairs = _pairs(everybody, everybody)
        up, down = exchanged(self.clusterer, fed, net, pairs).tolist()
        return ClientGraph(arrays["adjacency"], arrays["labels"], (up, down))

    def graph_before(
        self,
        fed: Federation,
        model: str,
        training: Mapping[str, Any],
        context: Context,
    ) -> ClientGraph | None:
        """Return the clusters, if all clients take part in round 1."""
        found = self.clustering(fed, model, training)
        if found is None:
            return None
        clusterer, encoder = found

        def fitted() -> dict[str, np.ndarray]:
            embedded = encoder.embed(fed, context.device, context.n_jobs)
            made = clone(clusterer).fit(*embedded)
            return {"adjacency": made.adjacency_, "labels": made.labels_}

        if context.cache is None:
            arrays = fitted()
        else:
            key = {
                "clusterer": canonical(clusterer),
                "encoder": encoder.settings(),
                "federation": fed.fingerprint(),
            }
            arrays = context.cache(key, fitted)
        return self.graph_from(arrays, fed, model)


@dataclass(eq=False, repr=False)
class EMDCFLAsRun(EMDCFL):
    """EMD-CFL in its public code: ``rule="last_local"`` and ``repeat=True``.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> method = fl.methods.EMDCFLAsRun(fl.EMDClustering(tolerance="auto"))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Literal["participants", "last_local"] = "last_local"
    repeat: bool = True


def _pairs(trained: np.ndarray, new: np.ndarray) -> dict[int, list[int]]:
    """Return the clients to compare with each one: pairs with a new client.

    ``trained``, ``new``: bool (M,). With clients 0, 1, 2 trained and only 2 new it is
    {0: [2], 1: [2], 2: [0, 1]}.
    """
    known = np.flatnonzero(trained).tolist()
    others: dict[int, list[int]] = {}
    for i in known:
        others[i] = []
        for j in known:
            if j != i and (new[i] or new[j]):
                others[i].append(j)
    return others


def _sizes(fed, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many training and validation samples clients embed, (M,) each.

    ``most``: the limit.
    """
    train = [min(len(own), most) for own in fed.train]
    held = [min(len(own), most) for own in fed.val]
    return np.array(train), np.array(held)


def _cells(fed, others: dict[int, list[int]], most: int) -> int:
    """Return the number of cells of all cost matrices.

    ``others``: the clients to compare with each one; ``most``: limit on the samples of
    a client.
    """
    train, held = _sizes(fed, most)
    cells = 0
    for i, js in others.items():
        cells += int(train[i] * held[js].sum())
    return cells


def _embedded(
    net, fed, theta: np.ndarray, others: dict[int, list[int]], device: str
) -> Iterator[tuple[int, np.ndarray, dict[int, np.ndarray]]]:
    """Embed samples by each client's own network.

    Parameters
    ----------
    net : Model
    theta : ndarray, shape (M, P)
        The clients' networks.
    others : dict
        Client -> the clients to compare with it.
    device : str

    Yields
    ------
    client : int
    own : ndarray, shape (n, e)
        Its training samples.
    held : dict of arrays (n_j, e)
        Its own and the others' validation samples, by client.
    """
    for i, js in others.items():
        if not js:
            continue
        held = {}
        for j in (i, *js):
            x = fed.inputs(fed.val[j])
            held[j] = penultimate(net, theta[i], x, device)
        x = fed.inputs(fed.train[i])
        own = penultimate(net, theta[i], x, device)
        yield i, own, held


def exchanged(
    clusterer: EMDClustering, fed, net, others: dict[int, list[int]]
) -> np.ndarray:
    """Return scalars ``(up, down)`` that a clustering sends besides rounds' models.

    Every ordered pair sends a network without its last layer, and both embeddings.
    ``others``: the clients to compare with each one.
    """
    train, held = _sizes(fed, int(clusterer.max_samples))
    head = net.head.stop - net.head.start
    body = net.n_parameters - head
    width = clusterer.sent_width(net.n_features)
    moved = 0  # networks
    embedded = 0  # samples
    references = 0  # numbers
    for i, js in others.items():
        n_others = len(js)
        moved += n_others
        embedded += int(n_others * train[i] + held[js].sum())
        references += clusterer.references(n_others)
    down = moved * body
    up = down + embedded * width + references
    return np.array([up, down])
