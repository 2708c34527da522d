"""Dynamic clustering: FLT that clusters its clients again during training.

FLT (arXiv 2103.15947), Algorithm 3, lines 13 and 21-28. The paper leaves this optional
part for future work, and no code for it is known. The third option of the paper, a
server that watches how the clients' models move, is not implemented.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ..clustering import FCR
from ..data import array_digest
from ..encoders.embedding import embed_clients, embed_from_latest
from ..encoders.pretraining import EncoderSpec, sent_parameters
from ..errors import FltnbError
from ..federations import Federation
from ..federations.phases import Phase, phases, some_clients
from ..settings import Count, Natural
from .base import PUBLISHED_RULE, Context, Rule
from .flt import FLT, fit_clients
from .graph import GraphState, rewire

Placing = Literal["recluster", "nearest"]


@dataclass(eq=False, kw_only=True)
class DynamicState(GraphState):
    """State of :class:`DynamicFLT`: the graph, and which clients have changed.

    Arrays of bool (M,): ``pending``: the client has new data but has not sent its flag;
    ``flags``: it has sent it; ``alone``: it is a newcomer that waits for its cluster.
    ``with_encoder``: how many clients have been clustered or assigned to the nearest
    cluster, and so have the encoder; ``anchors`` (C, e): mean embeddings of the
    clusters. ``latest`` (M, E): the encoders that clients have tuned;
    a row of NaN is the pretrained one.
    """

    pending: np.ndarray | None = None
    flags: np.ndarray | None = None
    alone: np.ndarray | None = None
    with_encoder: np.ndarray | None = None
    anchors: np.ndarray | None = None
    latest: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class DynamicFLT(FLT):
    """FLT whose server repeats the clustering when clients have changed.

    arXiv 2103.15947, Algorithm 3, lines 13 and 21-28. A client whose data have changed
    raises a flag when it takes part next (line 13), a newcomer when it joins. After a
    round in which more than ``lam`` flags are set, and every ``tau`` rounds, all
    clients send their centroids again, the server repeats FCR on them, and the flags
    are cleared (lines 23-26). A client whose encoder is tuned then continues from its
    latest state (Section 3).

    What the paper leaves open:

    - *Models of new clusters* start from the sample-weighted mean of the models that
      served their members (in case I: clients with equal neighbourhoods), without
      members that sent a flag or stood alone, unless there are no others.
    - *Newcomers* stand alone until the next clustering, or are placed (``joining``).
      Alone, they start from the mean of all models. They take part when they are drawn.
      (In the paper they are not in S until then.)
    - *Cost.* A re-clustering sends all clients' centroids again, and the encoder to
      clients that do not have it; flags are not counted.

    Parameters
    ----------
    clusterer, encoder, graph, rule, name
        See :class:`fltnb.methods.FLT`; the clusterer must not be fitted.
    joining : {"alone", "placed"}
        Where newcomers are until the next clustering, as in
        :class:`fltnb.methods.FLT`; without effect under ``newcomers="nearest"``.
    lam : int, optional
        lambda: cluster again if more than this number of flags are set. None: clients
        send no flags.
    tau : int, optional
        Cluster again every tau rounds, with or without flags. None: never for this
        reason.
    first : {"round 1", "round tau"}
        The round after which tau takes effect first. "round 1": after rounds 1, tau +
        1, 2 tau + 1, ..., as the text counts rounds from 0 (lines 3 and 23), and tau
        divides 0; after round 1 only newcomers can have changed. "round tau": after
        rounds tau, 2 tau, ....
    tuned_from : {"latest", "pretrained"}
        Where a client starts when it tunes its encoder again: from its own latest
        encoder, as the text says, or from the common pretrained one.
    newcomers, drifted : {"recluster", "nearest"}
        "nearest" assigns a newcomer (when it joins), or a client with new data (when
        its flag arrives), to the cluster of the last clustering whose mean embedding is
        nearest to its own (the paper's "another possibility"). Its flag is then not
        counted. Needs FCR, whose centroids and shares give these means: all clients
        also send k shares, and the client to be placed e numbers.

    Raises
    ------
    FltnbError
        Nothing is dynamic, the clusterer is already fitted, or "nearest" is asked for
        with another clusterer than FCR.

    Warns
    -----
    UserWarning
        ``lam`` never takes effect in a run, or ``tau`` never after round 1.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.DynamicFLT(fl.FCR(k=3, n_neighbors=4), tau=1)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = DynamicState
    name: str = field(default="flt_dynamic", kw_only=True)
    graph_decides = False
    membership: ClassVar = "clients"  # type: ignore[misc]  # no option here

    encoder: EncoderSpec | None = None
    lam: Natural | None = None
    tau: Count | None = None
    newcomers: Placing = "recluster"
    drifted: Placing = "recluster"
    first: Literal["round 1", "round tau"] = "round 1"
    tuned_from: Literal["latest", "pretrained"] = "latest"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._latest: np.ndarray | None = None  # see _from_latest
        tunes = self.encoder.finetune_epochs > 0
        tunes_alone = tunes and self.encoder.tuning == "alone"
        self._tunes_on = tunes_alone and self.tuned_from == "latest"
        self.nearest = "nearest" in (self.newcomers, self.drifted)
        if not self._reclusters() and not self.nearest:
            raise FltnbError(
                'Nothing is dynamic here: give lam, tau or newcomers="nearest", '
                "or take FLT."
            )
        if hasattr(self.clusterer, "labels_"):
            raise FltnbError(
                "Dynamic clustering fits its clusterer again and again: "
                "give an unfitted one."
            )
        if self.nearest and not isinstance(self.clusterer, FCR):
            raise FltnbError(
                f'"nearest" needs FCR, not {type(self.clusterer).__name__}, for the '
                "mean embeddings of clusters: give fl.FCR(...), or take "
                '"recluster" with lam or tau.'
            )

    def _reclusters(self) -> bool:
        """Whether the server repeats the clustering for any reason."""
        return self.lam is not None or self.tau is not None

    def prepare(self, fed: Federation, context: Context) -> None:
        """Fit the clusterer for every phase that may need it.

        If encoders continue from their latest state, they depend on the rounds of the
        clusterings: then only the first clustering is known beforehand.
        """
        needed = phases(fed)
        if self._tunes_on or not self._reclusters():
            needed = needed[:1]
        for phase in needed:
            self.fitted(phase.fed, context)

    def foresee(self, phases: Sequence[Phase], drawn: Sequence[np.ndarray]) -> None:
        """Warn of a lambda or tau that never takes effect."""
        fired, most = self.schedule(phases, drawn)
        rounds = f"in these {len(drawn)} rounds"
        if self.lam is not None and "lambda" not in fired.values():
            warnings.warn(
                f"lam = {self.lam} has no effect {rounds}: more than {self.lam} flags "
                f"must be set for a new clustering, and at most {most} are.",
                stacklevel=4,
            )
        later = [round for round, why in fired.items() if why == "tau" and round > 1]
        if self.tau is not None and not later:
            warnings.warn(
                f"tau = {self.tau} has no effect after round 1 {rounds}: give a "
                "smaller one.",
                stacklevel=4,
            )

    def schedule(
        self, phases: Sequence[Phase], drawn: Sequence[np.ndarray]
    ) -> tuple[dict[int, str], int]:
        """Foretell when the server will re-cluster.

        Parameters
        ----------
        phases : sequence of Phase
            The federation as it is at first, and its changes.
        drawn : sequence of int arrays
            ``drawn[t - 1]`` are the clients that take part in round t.

        Returns
        -------
        fired : dict
            Round -> "lambda" or "tau".
        most : int
            The largest number of flags that are ever set.
        """
        coming = {phase.round: phase for phase in phases[1:]}
        n_clients = phases[0].fed.n_clients
        pending: set[int] = set()
        flags: set[int] = set()
        fired = {}
        most = 0
        for round, clients in enumerate(drawn, start=1):
            if round in coming:
                phase = coming[round]
                new, drifted = _changes(phase, n_clients)
                if self.newcomers == "recluster":
                    flags.update(new)
                if self.drifted == "recluster":
                    pending.update(drifted)
                n_clients = phase.fed.n_clients

            # who has new data says so when it takes part
            raised = pending.intersection(clients.tolist())
            flags |= raised
            pending -= raised
            most = max(most, len(flags))
            why = self._fires(len(flags), round)
            if why:
                fired[round] = why
                flags.clear()
                pending.clear()
        return fired, most

    def _fires(self, flags: int, round: int) -> str:
        """Return why the server re-clusters after this round (line 23), or "".

        ``flags``: how many are set; ``round``: from 1. With tau = 3 it re-clusters
        after rounds 1, 4, 7, ..., or with ``first="round tau"`` after 3, 6, 9, ....
        """
        if self.lam is not None and flags > self.lam:
            return "lambda"
        if self.tau is None:
            return ""
        counted = round
        if self.first == "round 1":
            counted = round - 1
        if counted % self.tau == 0:
            return "tau"
        return ""

    def about(self) -> dict[str, Any]:
        """Return the settings that determine the fit, and the initial encoders."""
        about = super().about()
        if self._tunes_on:
            about["tuned from"] = "latest"
        if self._latest is not None:
            about["latest"] = array_digest(self._latest)
        return about

    def fit(self, clusterer: Any, fed: Federation, context: Context) -> None:
        """Fit a clusterer; it keeps the tuned encoders as ``latest_``."""
        if not self._tunes_on:
            super().fit(clusterer, fed, context)
            return
        embedded, latest = self._embed(fed, context)
        fit_clients(clusterer, embedded, None)
        clusterer.latest_ = latest

    def _embed(
        self, fed: Federation, context: Context
    ) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Embed the clients' samples.

        Returns
        -------
        embedded : list of M arrays (n_i, e)
        latest : ndarray (M, E), or None
            The encoders that they have tuned, if these are tuned on.
        """
        if self._tunes_on:
            return embed_from_latest(
                fed,
                self.encoder,
                self._latest,
                progress=context.progress,
                n_jobs=context.n_jobs,
            )
        embedded = embed_clients(
            fed, self.encoder, progress=context.progress, n_jobs=context.n_jobs
        )
        return embedded, None

    def _from_latest(self, latest: np.ndarray | None) -> Self:
        """Return this method with encoders (M, E) from which tuning continues."""
        other = copy(self)
        other._latest = latest
        return other

    def start(self, fed: Federation, model, context: Context) -> DynamicState:
        """Cluster the clients for the first time; no client has changed."""
        context = _remembering(context)
        state = super().start(fed, model, context)
        state = self._clustered(state, fed, context)
        return _unchanged(state)

    def _clustered(
        self, state: DynamicState, fed: Federation, context: Context
    ) -> DynamicState:
        """Update the state after a clustering of all clients."""
        state = replace(state, with_encoder=np.array(fed.n_clients))
        if not (self.nearest or self._tunes_on):
            return state
        fitted = self.fitted(fed, context)
        if self._tunes_on:
            state = replace(state, latest=fitted.latest_)
        if not self.nearest:
            return state
        n_shares = np.count_nonzero(fitted.weights_)
        sent = state.sent + np.array([n_shares, 0])  # up and down
        anchors = _anchors(fitted, fed.sizes)
        return replace(state, anchors=anchors, sent=sent)

    def changed(
        self,
        state: DynamicState,
        fed: Federation,
        model,
        changed: np.ndarray,
        context: Context,
    ) -> DynamicState:
        """Note which clients have new data, and take in newcomers.

        They stand alone at first, or are in a cluster already. ``changed``: bool (M,),
        of all clients that are there now.
        """
        new = np.arange(fed.n_clients) >= len(state.row)
        n_new = new.sum()
        before = state
        state = super().changed(state, fed, model, changed, context)
        nobody = np.zeros(n_new, dtype=bool)
        drifted = changed & ~new
        state = replace(
            state,
            pending=np.append(before.pending, nobody) | drifted,
            flags=np.append(before.flags, nobody),
            alone=np.append(before.alone, nobody),
        )
        if before.latest is not None:
            numbers = before.latest.shape[1]
            pretrained = np.full((n_new, numbers), np.nan, dtype=np.float32)
            latest = np.vstack([before.latest, pretrained])
            state = replace(state, latest=latest)
        if self.newcomers == "nearest" and new.any():
            return self._place(state, np.flatnonzero(new), fed, context)
        n_neighbours = np.count_nonzero(state.relation[state.row], axis=1)
        waits = new & (n_neighbours == 1)  # itself
        return replace(state, alone=state.alone | waits, flags=state.flags | new)

    def collect(
        self, state: DynamicState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> DynamicState:
        """Aggregate, and collect the participants' flags (lines 13-20)."""
        state = super().collect(state, clients, theta, round)
        present = np.isin(np.arange(len(state.row)), clients)
        return replace(
            state,
            flags=state.flags | (state.pending & present),
            pending=state.pending & ~present,
        )

    def revise(
        self, state: DynamicState, fed: Federation, round: int, context: Context
    ) -> DynamicState:
        """Place or re-cluster (lines 21-28)."""
        # flags of newcomers count until the next clustering
        clustered = np.arange(len(state.row)) < state.with_encoder
        raised = state.flags & clustered
        if self.drifted == "nearest" and raised.any():
            state = self._place(state, np.flatnonzero(raised), fed, context)
        if not self._fires(int(state.flags.sum()), round):
            return state

        context = _remembering(context)
        again_from = self._from_latest(state.latest)
        graph = again_from.client_graph(fed, context)
        unfit = state.alone
        if self.lam is not None:
            # without lambda no flags are sent, so the server knows of newcomers only
            unfit = unfit | state.flags
        again = rewire(state, graph.adjacency, graph.labels, fed.sizes, ~unfit)
        # A first clustering sends the encoder to all clients; they then keep it.
        encoder = sent_parameters(self.encoder, fed.input_shape)
        kept = np.array([0, encoder * int(state.with_encoder)])  # up and down
        sent = state.sent + np.array(graph.sent) - kept
        again = replace(again, sent=sent)
        again = again_from._clustered(again, fed, context)
        return _unchanged(again)

    def _place(
        self, state: DynamicState, who: np.ndarray, fed: Federation, context: Context
    ) -> DynamicState:
        """Give clients to the cluster whose mean embedding is nearest to theirs.

        ``who``: their numbers, int (n,).
        """
        z, state = self._means(state, who, fed, context)
        distance = np.linalg.norm(z[:, None] - state.anchors, axis=2)  # (n, C)
        nearest = distance.argmin(axis=1)
        adjacency = state.relation[state.row].copy()
        labels = state.labels.copy()
        for client, cluster in zip(who, nearest, strict=True):
            labels[client] = cluster
            # a neighbour of all in its cluster, and they are its own
            adjacency[client] = labels == cluster
            adjacency[:, client] = adjacency[client]

        trusted = ~np.isin(np.arange(fed.n_clients), who)
        placed = rewire(state, adjacency, labels, fed.sizes, trusted)
        receive = (who >= state.with_encoder).sum()  # clients without the encoder
        encoder = sent_parameters(self.encoder, fed.input_shape)
        return replace(
            placed,
            sent=state.sent + np.array([z.size, receive * encoder]),  # up and down
            with_encoder=np.maximum(state.with_encoder, who.max() + 1),
            pending=state.pending & trusted,
            flags=state.flags & trusted,
            alone=state.alone & trusted,
        )

    def _means(
        self, state: DynamicState, who: np.ndarray, fed: Federation, context: Context
    ) -> tuple[np.ndarray, DynamicState]:
        """Return mean embeddings of some clients, and the state with their encoders.

        Parameters
        ----------
        who : ndarray of int, shape (n,)
            Their numbers.

        Returns
        -------
        means : ndarray, shape (n, e)
        state : DynamicState
        """
        some = replace(some_clients(fed, who), clusters=None)  # no method knows them
        known = state.latest
        own = None
        if known is not None:
            own = known[who]
        embedded, tuned = self._from_latest(own)._embed(some, context)
        if tuned is not None:
            latest = known.copy()
            latest[who] = tuned
            state = replace(state, latest=latest)
        means = [z.mean(axis=0, dtype=np.float64) for z in embedded]
        return np.array(means), state


@dataclass(eq=False, repr=False)
class DynamicFLTAsRun(DynamicFLT):
    """Dynamic FLT with the full graph and the rule for absent clients of FLT's tables.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.DynamicFLTAsRun(fl.FCR(k=3, n_neighbors=4), tau=1)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Rule = field(default=PUBLISHED_RULE, kw_only=True)
    graph: Literal["clusters", "full"] = "full"


def _remembering(context: Context) -> Context:
    """Return a context in which each clustering is fitted only once.

    This is the caller's own context if it has a cache.
    """
    if context.cache is not None:
        return context
    known: dict[str, dict] = {}

    def cache(key: dict, compute: Callable[[], dict]) -> dict:
        name = json.dumps(key, sort_keys=True)
        if name not in known:
            known[name] = compute()
        return known[name]

    return replace(context, cache=cache)


def _changes(phase: Phase, n_before: int) -> tuple[list[int], list[int]]:
    """Return the new clients of a phase, and those of ``n_before`` with other data."""
    changed = np.flatnonzero(phase.changed)
    is_new = changed >= n_before
    return changed[is_new].tolist(), changed[~is_new].tolist()


def _unchanged(state: DynamicState) -> DynamicState:
    """Return the state without flags: no client has changed."""
    nobody = np.zeros(len(state.row), dtype=bool)
    return replace(state, pending=nobody, flags=nobody, alone=nobody)


def _anchors(fitted: FCR, sizes: np.ndarray) -> np.ndarray:
    """Return the mean embedding (C, e) of each cluster's samples.

    A client's centroids, by their shares, hold its own mean. ``sizes``: samples of each
    client, (M,).
    """
    shares = fitted.weights_[..., None]  # (M, k, 1)
    own = np.nansum(fitted.centroids_ * shares, axis=1)  # (M, e)
    clusters = np.arange(fitted.n_clusters_)[:, None]
    member = fitted.labels_ == clusters  # (C, M)
    samples = member * np.asarray(sizes, dtype=np.float64)
    return samples @ own / samples.sum(axis=1, keepdims=True)
