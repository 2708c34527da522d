"""MT-HFL: one server per task, and a global server that averages their first layers (MT-HFL, Algorithm 1).

Users are grouped once, before training. Every group has a local parameter server (LPS), which runs FedAvg on its users
for a number of rounds; then the global parameter server (GPS) averages the layers that all tasks share, one block of
columns of the models' matrix, and sends them back. The other layers stay with their task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError, choose
from ..randomness import stream
from .base import Context, State, check_count, mix
from .flt import check_clusterer, clusterer_settings, fit_clusterer
from .graph import GraphMethod

if TYPE_CHECKING:
    from ..encoders import EncoderSpec
    from ..federations import Federation
    from ..models import Model

GIVEN = ("oracle", "random")
WEIGHTINGS = ("samples", "equal")
VIEWS = ("own", "task")


class MTHFL(GraphMethod):
    """Multi-task hierarchical federated learning (MT-HFL, Section II-D and Algorithm 1).

    A round of a run is one FedAvg round of every LPS (Algorithm 1, line 5). After every ``local_rounds`` of them the
    GPS acts (lines 6 and 7), so G global iterations are ``G * local_rounds`` rounds. What is evaluated after such a
    round is what the GPS has sent back. All servers start from one common initialisation.

    Parameters
    ----------
    clusterer : estimator over clients, "oracle" or "random", optional
        How users come to their LPS: ``EigenRelevance()`` by default; the true tasks; or, as the paper's baseline, a
        random permutation of the true tasks over the users, drawn from the run's seed: server t gets as many users
        as task t has, whoever they are. (The paper does not say how it drew.)
    shared : int or sequence of str, optional
        Shared layers: the first so many layers with weights, or their names (positions in the network, as in
        ``Model.shapes``). By default the convolutions, or the first layer where there are none. 0 or () shares nothing,
        which is FedAvg inside each group.
    local_rounds : int
        Rounds of every LPS per round of the GPS; not stated in the paper.
    weighting : {"samples", "equal"}
        What an LPS counts at the GPS: the training samples of its users, or one each. The paper speaks of a weighted
        average and names no weights.
    view : {"own", "task"}
        Whose model is tested on a user's data. "own": the server that the user is with. "task": the server of the
        user's task, as in the paper's figures, which show how well server t does on task t: with random groups
        server t, else the one that most users of the task are with. Training is the same.
    encoder : EncoderSpec, optional
        The feature map Phi of the clusterer; raw pixels by default.
    rule : {"participants", "last_local", "last_aggregate"}, optional
        See :class:`fltnb.methods.graph.GraphMethod`.
    name : str, optional
        Another id for tables and colours, such as ``mthfl_random``.

    Notes
    -----
    :meth:`traffic` is that of a user with its LPS: one whole model each way per round. What the LPSs exchange with the
    GPS goes over no user's link and is counted by :meth:`bytes_between_servers`.

    Raises
    ------
    FltnbError
        An option out of range; a federation without true clusters where they are needed; a shared layer that the model
        lacks.
    """

    name = "mthfl"

    def __init__(
        self,
        clusterer=None,
        shared: int | Sequence[str] | None = None,
        local_rounds: int = 1,
        weighting: str = "samples",
        view: str = "own",
        encoder: EncoderSpec | None = None,
        rule: str | None = None,
        name: str | None = None,
    ):
        from .. import encoders
        from ..relatedness import EigenRelevance

        super().__init__(rule)
        self.clusterer = EigenRelevance() if clusterer is None else clusterer
        if isinstance(self.clusterer, str):
            choose(self.clusterer, GIVEN, "grouping of users")
        elif isinstance(self.clusterer, type) or not hasattr(self.clusterer, "get_params"):
            raise FltnbError(
                f'clusterer must be a clusterer such as fl.EigenRelevance(), "oracle" or "random", not {clusterer!r}.'
            )
        if encoder is not None and not isinstance(encoder, encoders.EncoderSpec):
            raise FltnbError(f"encoder must be an fl.encoders.EncoderSpec, not {encoder!r}.")
        self.encoder = encoder or encoders.EncoderSpec(kind="pixels")
        self.shared = _as_layers(shared)
        self.local_rounds = check_count("local_rounds", local_rounds, 1)
        self.weighting = choose(weighting, WEIGHTINGS, "weighting at the global server")
        self.view = choose(view, VIEWS, "view of the evaluation")
        self.name = name or type(self).name

    def settings(self) -> dict[str, Any]:
        """Name, kind and all options."""
        given = isinstance(self.clusterer, str)
        return {
            **super().settings(),
            "kind": type(self).__name__,
            "clusterer": self.clusterer if given else clusterer_settings(self.clusterer),
            "shared": self.shared,
            "local_rounds": self.local_rounds,
            "weighting": self.weighting,
            "view": self.view,
            "encoder": asdict(self.encoder),
        }

    def check(self, fed: Federation) -> None:
        """Refuse a federation without true tasks where they are needed, or one that does not suit the clusterer."""
        given = isinstance(self.clusterer, str)
        if fed.clusters is None and (given or self.view == "task"):
            what = f'the grouping "{self.clusterer}"' if given else 'The view "task"'
            raise FltnbError(f"{what[0].upper()}{what[1:]} needs the true clusters: give `clusters` to the federation.")
        if not given:
            check_clusterer(self.clusterer, fed)

    def prepare(self, fed: Federation, context: Context) -> None:
        """Fit the clusterer, so that its result is in the cache."""
        from ..federations.phases import phases

        if not isinstance(self.clusterer, str):
            fit_clusterer(self.clusterer, phases(fed)[0].fed, self.encoder, context)

    def graph(self, fed: Federation, context: Context) -> tuple[np.ndarray, np.ndarray, State]:
        """Neighbours are the users of the same LPS."""
        self.check(fed)
        sent = np.zeros(2, dtype=np.int64)
        if self.clusterer == "oracle":
            labels = fed.clusters
        elif self.clusterer == "random":
            labels = stream(context.seed, "method").permutation(fed.clusters)
        else:
            fitted = fit_clusterer(self.clusterer, fed, self.encoder, context)
            labels, sent = np.asarray(fitted.labels_, dtype=np.int64), self._setup_scalars(fitted, fed)
        return labels[:, None] == labels[None], labels, {"sent": sent}

    def start(self, fed: Federation, model: Model, context: Context) -> State:
        """Group the users; a layer that the model lacks is refused before."""
        columns = shared_columns(model, self.shared)
        state = super().start(fed, model, context) | {"shared": columns}
        return state | ({"tasks": fed.clusters} if self.view == "task" else {})

    def changed(self, state: State, fed: Federation, model: Model, changed: np.ndarray, context: Context) -> State:
        """Keep the groups: a newcomer gets an LPS of its own (:meth:`GraphMethod.changed`)."""
        state = super().changed(state, fed, model, changed, context)
        return state | ({"tasks": fed.clusters} if self.view == "task" else {})

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """One FedAvg round of every LPS, then, after ``local_rounds`` of them, the GPS's."""
        state = super().collect(state, clients, theta, round)
        if round % self.local_rounds:
            return state
        models, columns = state["models"].copy(), state["shared"]
        weights = np.bincount(state["row"], state["weights"]) if self.weighting == "samples" else np.ones(len(models))
        models[:, columns] = mix(weights[None] / weights.sum(), models[:, columns])
        return state | {"models": models}

    def serve(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Model of every user's own LPS, or of its task's (``view``)."""
        if "tasks" not in state:
            return super().serve(state)
        tasks, row = state["tasks"], state["row"]
        server = {}
        for task in np.unique(tasks):
            if self.clusterer == "random":
                server[task] = row[state["labels"] == task][0]
            else:
                server[task] = np.bincount(row[tasks == task]).argmax()
        return state["models"], np.array([server[task] for task in tasks])

    def setup_bytes(self, state: State) -> tuple[int, int]:
        """Count what the clustering sends, four bytes a scalar."""
        up, down = state["sent"]
        return 4 * int(up), 4 * int(down)

    def bytes_between_servers(self, state: State, rounds: int) -> tuple[int, int]:
        """Bytes that all LPSs together send to the GPS, and get from it, in ``rounds`` rounds of a run."""
        one_way = 4 * int(state["shared"].sum()) * len(state["models"]) * (rounds // self.local_rounds)
        return one_way, one_way

    def _setup_scalars(self, fitted, fed: Federation) -> np.ndarray:
        """Scalars (up, down) of the clustering: sketches and what is relayed of them; and the encoder."""
        from .. import encoders

        down = fed.n_clients * encoders.sent_parameters(self.encoder, fed.input_shape)
        up, relayed = (np.sum(getattr(fitted, name, 0)) for name in ("sent_", "received_"))
        return np.array([up, down + relayed], dtype=np.int64)


def shared_columns(model: Model, shared: int | Sequence[str] | None) -> np.ndarray:
    """Which parameters of a model all tasks share.

    Parameters
    ----------
    model : Model
    shared : int, sequence of str or None
        As for :class:`MTHFL`.

    Returns
    -------
    ndarray of bool, shape (P,)

    Raises
    ------
    FltnbError
        The model lacks a layer.
    """
    layer_of = [name.split(".")[0] for name, _ in model.shapes]
    layers = list(dict.fromkeys(layer_of))
    if shared is None:
        names = [layer for layer, (_, shape) in zip(layer_of, model.shapes, strict=True) if len(shape) == 4]
        names = names or layers[:1]
    elif isinstance(shared, int):
        if shared > len(layers):
            raise FltnbError(f"shared is {shared} layers but model {model.name!r} has {len(layers)}: share fewer.")
        names = layers[:shared]
    else:
        names = shared
        for name in names:
            if name not in layers:
                raise FltnbError(
                    f"Model {model.name!r} has no layer {name!r} to share: its layers with weights are"
                    f" {', '.join(layers)}; name some of these, or give the number of first layers."
                )
    return np.repeat(np.isin(layer_of, names), model.sizes)


def _as_layers(shared: int | Sequence[str] | None) -> int | list[str] | None:
    """Return ``shared`` as plain JSON values, or refuse it."""
    if shared is None:
        return None
    if isinstance(shared, (list, tuple)) and all(isinstance(name, str) for name in shared):
        return list(shared)
    if isinstance(shared, (str, list, tuple)):
        raise FltnbError(f"shared must be a number of first layers or a list of layer names, not {shared!r}.")
    return check_count("shared", shared)
