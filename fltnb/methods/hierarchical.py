"""MT-HFL: one server per task, and a global server that averages their first layers.

MT-HFL (arXiv 2410.02733, Section II-D, Algorithm 1). Users are grouped once, before
training. Every group's local parameter server (LPS) runs FedAvg on its users for some
rounds; then the global server (GPS) averages the layers that all tasks share and sends
them back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..aggregate import mix
from ..clustering import EigenRelevance
from ..encoders.pretraining import EncoderSpec
from ..errors import FltnbError
from ..federations import Federation
from ..randomness import stream
from ..settings import Count, Natural
from .base import Context
from .flt import OneShot
from .graph import ClientGraph, GraphState

if TYPE_CHECKING:
    from ..models import Model


@dataclass(eq=False, kw_only=True)
class MTHFLState(GraphState):
    """State of MT-HFL: columns (P,) that all tasks share; users' ``tasks`` (M,).

    ``drawn``: the tasks whose servers have users that were drawn at random.
    """

    shared: np.ndarray | None = None
    tasks: np.ndarray | None = None
    drawn: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class MTHFL(OneShot):
    """Multi-task hierarchical federated learning (arXiv 2410.02733, Algorithm 1).

    Every task has a local parameter server (LPS), and one global parameter server (GPS)
    averages the layers that all tasks share (Section II-D). A round of a run is one
    FedAvg round of every LPS (Algorithm 1, line 5). After every ``local_rounds`` rounds
    the GPS averages (lines 6 and 7), so G global iterations are ``G * local_rounds``
    rounds. All servers start from one model. Traffic is counted between a user and its
    LPS.

    Parameters
    ----------
    clusterer : estimator over clients, "oracle" or "random", optional
        How users are assigned to an LPS: by ``EigenRelevance()`` (the default); by the
        true tasks; or, as in the paper's baseline, by a random permutation of the true
        tasks over the users, drawn from the run's seed. (The paper does not say how it
        drew.)
    shared : int, optional
        Number of first layers with weights that are shared; 0: none. By default the
        convolutions, or the first layer if there are no convolutions.
    local_rounds : int
        Rounds of every LPS per round of the GPS; the paper gives no value.
    weighting : {"samples", "equal"}
        Weight of an LPS at the GPS: its users' training samples, or 1. The paper has a
        weighted average and does not state the weights.
    view : {"own", "task"}
        Which server's model is tested on a user's data: that of its own server, or that
        of its task, as in the paper's figures. The server of task t is server t for
        random groups, otherwise (or if the task came later) the server of most users of
        the task.
    encoder, rule, joining, name
        See :class:`fltnb.methods.FLT`; the encoder is the feature map Phi of the
        clusterer.

    Raises
    ------
    FltnbError
        A federation has no true clusters where they are needed, or the model fewer
        layers than are to be shared; or newcomers are to be placed without a clusterer.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.MTHFL(fl.EigenRelevance(n_clusters=3))
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = MTHFLState
    name: str = field(default="mthfl", kw_only=True)
    default = EigenRelevance
    groupings = ("oracle", "random")
    graph_decides = False
    shared: Natural | None = None
    local_rounds: Count = 1
    weighting: Literal["samples", "equal"] = "samples"
    view: Literal["own", "task"] = "own"

    def check(self, fed: Federation) -> None:
        """Refuse a federation without the needed tasks, or unfit for clustering."""
        if isinstance(self.clusterer, str) and self.joining == "placed":
            raise FltnbError(
                f'MTHFL with "{self.clusterer}" has no clusterer, which could place '
                'newcomers: leave out joining="placed".'
            )
        if fed.clusters is None:
            needs = [self.clusterer] if isinstance(self.clusterer, str) else []
            needs += ["task"] if self.view == "task" else []
            if needs:
                raise FltnbError(
                    f'MTHFL with "{needs[0]}" needs the true clusters: '
                    "give `clusters` when you build the federation."
                )
        super().check(fed)

    def client_graph(self, fed: Federation, context: Context) -> ClientGraph:
        """Neighbours are the users of the same LPS."""
        if not isinstance(self.clusterer, str):
            return super().client_graph(fed, context)
        self.check(fed)
        labels = fed.clusters
        if self.clusterer == "random":
            labels = stream(context.seed, "method").permutation(labels)
        return ClientGraph(labels[:, None] == labels, labels)

    def clustering(
        self, fed: Federation, model: str, training: Mapping[str, Any]
    ) -> tuple[Any, EncoderSpec] | None:
        """Return clusterer and encoder, unless groups are given or drawn."""
        if isinstance(self.clusterer, str):
            return None
        return super().clustering(fed, model, training)

    def start(self, fed: Federation, model: "Model", context: Context) -> MTHFLState:
        """Group the users, and find the layers that they share."""
        state = super().start(fed, model, context)
        drawn = np.unique(fed.clusters) if self.clusterer == "random" else None
        shared = shared_columns(model, self.shared)
        return self._with_tasks(replace(state, shared=shared, drawn=drawn), fed)

    def changed(
        self,
        state: MTHFLState,
        fed: Federation,
        model: "Model",
        changed: np.ndarray,
        context: Context,
    ) -> MTHFLState:
        """Keep the groups: a newcomer gets an LPS of its own, or is placed."""
        state = super().changed(state, fed, model, changed, context)
        return self._with_tasks(state, fed)

    def _with_tasks(self, state: MTHFLState, fed: Federation) -> MTHFLState:
        """Record the true tasks, if users are served by them."""
        return replace(state, tasks=fed.clusters) if self.view == "task" else state

    def collect(
        self, state: MTHFLState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> MTHFLState:
        """Average at every task's server and, in due rounds, at the global server."""
        state = super().collect(state, clients, theta, round)
        if round % self.local_rounds:
            return state
        models = state.models.copy()
        columns = state.shared
        weights = np.ones(len(models))
        if self.weighting == "samples":
            weights = np.bincount(state.row, state.weights)
        share = weights[None] / weights.sum()  # (1, tasks)
        models[:, columns] = mix(share, models[:, columns])
        return replace(state, models=models)

    def serve(self, state: MTHFLState) -> tuple[np.ndarray, np.ndarray]:
        """Return the model of every user's own LPS, or of its task's (``view``)."""
        if state.tasks is None:
            return super().serve(state)
        row = state.row
        served = np.empty_like(row)
        for task in np.unique(state.tasks):
            users = state.tasks == task
            server = np.bincount(row[users]).argmax()
            if state.drawn is not None and task in state.drawn:
                server = row[state.labels == task][0]
            served[users] = server
        return state.models, served


def shared_columns(model: "Model", shared: int | None) -> np.ndarray:
    """Return which parameters all tasks share, bool (P,).

    ``shared`` is the option of :class:`MTHFL`.
    """
    layer_of = []
    convolutions = []
    for layer, (_, shape) in zip(model.layer_names, model.shapes, strict=True):
        layer_of.append(layer)
        if len(shape) == 4:
            convolutions.append(layer)

    layers = list(dict.fromkeys(layer_of))
    if shared is None:
        names = convolutions or layers[:1]
    elif shared <= len(layers):
        names = layers[:shared]
    else:
        raise FltnbError(
            f"shared is {shared} layers but model {model.name!r} has {len(layers)}: "
            "share fewer."
        )
    return np.repeat(np.isin(layer_of, names), model.sizes)
