"""The server's side: FedAvg inside clusters found from the nodes' sketches.

A *node* is Flower's term; it gets a new id when it connects again. A *client* keeps
its own number and is served through the node with which it is connected at present.

The server goes around one loop until all rounds are done:

1. *Meet*: nodes that it has not asked yet send what the clustering needs. With
   ``scaling`` they first agree on a common scale. Once enough clients are there,
   clusters are formed; later clients are placed into them.
2. *Round*: each connected client gets the model of its cluster, trains it and sends it
   back, and the cluster's model becomes the mean of these.
3. *Save*: models and clients go to the checkpoint, from which a run that was stopped
   continues.

Nodes may fail, disappear, or send unusable messages. This does not stop a run: a node
that cannot be used is left out with a reason, and a round with too few models is
repeated. The server stops only if there was no progress for ``patience`` seconds.
"""

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from ..aggregate import mix_groups
from ..arrays import as_array
from ..checkpoint import path_of
from ..clustering import EMDClustering, FedCollab
from ..clustering.base import fault_of, sketch_bytes, widths
from ..clustering.cuts import placed
from ..data import array_digest
from ..errors import FltnbError, by_name, first_line, reading
from ..paths import write_atomically
from ..settings import Count, Natural, NonNegative, Positive, check, checked
from . import letters
from .letters import Answers, Letter, Post, number_in, whole_number
from .scaling import Agreement, Scaling, is_private, reveals

log = logging.getLogger("flwr")  # Flower shows this one, and sends it to `flwr log`


@dataclass(order=True)
class Client:
    """The server's record of a client.

    Attributes
    ----------
    number : int
        Its own number, which never changes.
    node : int
        Flower's id, which changes when the client connects again.
    sketch : dict
        Name -> array.
    label : int
        Its cluster, -1 if it has none yet.
    samples : int
        Number of samples in its last training.
    bytes_sketch, bytes_up, bytes_down : int
        Bytes sent for the clustering, and bytes of models sent and received.
    bytes_scaling : int
        Bytes of the sums sent for the common scale.
    warning : str
        A warning, if it sent as many numbers as its samples have, or more.

    Examples
    --------
    >>> import fltnb as fl
    >>> client = fl.flower.Client(number=3, node=7_021, sketch={}, label=1)
    >>> client.about()["label"]
    1
    """

    number: int
    node: int
    sketch: dict
    label: int = -1
    samples: int = 1
    bytes_sketch: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    bytes_scaling: int = 0
    warning: str = ""

    def about(self) -> dict[str, Any]:
        """Return all fields for JSON; of the sketch only the names of its arrays.

        A checkpoint has the arrays themselves in its own form (:meth:`_save`).
        """
        return vars(self) | {"sketch": sorted(self.sketch)}


@dataclass
class ClusteredFedAvg:
    """FedAvg inside clusters that are found once (FLT, arXiv 2103.15947, Section 3.2).

    A client that joins later is placed by its sketch. All clients are clustered again,
    but no earlier client changes its cluster. The new client goes to the cluster of
    most of its new neighbours; without neighbours it gets a new cluster, which starts
    from the initial model. A client that does not answer, fails, or sends an unusable
    model is left out of that round.

    Nodes answer "train" and "evaluate" as for Flower's own strategies: ``arrays``
    (``theta``), ``config`` (``server-round``), ``metrics`` (``num-examples``,
    ``loss``).

    Parameters
    ----------
    clusterer : clusterer of :mod:`fltnb.clustering`, or None
        None is FedAvg: one cluster and no sketches.
    query : str
        Name under which the nodes' apps registered :func:`sketch_query`.
    min_available_nodes, min_train_nodes : int
        Number of usable sketches needed for the clustering, and of models for a round.
    timeout, patience : float
        Seconds within which nodes must answer, and seconds without progress until the
        server gives up.
    checkpoint : path, optional
        A file that is written after every round and from which a run continues.
    scaling : str, optional
        Name under which the apps registered :func:`scaling_query`: before all else,
        nodes agree on one mean and deviation. Later nodes get the same values.
    training : optional
        How the nodes train, such as a :class:`fltnb.training.TrainSpec`. A checkpoint
        of a run with another ``repr`` of it is refused.

    Attributes
    ----------
    models : array (C, P)
        A row per cluster.
    clients : list of Client
        Those that sent a usable sketch.
    history : list of dict
        For each round its number, the number of nodes asked, the clients that took
        part, and their mean loss.
    left_out : dict
        Node -> the reason why it is not a client.

    Examples
    --------
    In a ``ServerApp``, with ``model`` of :func:`fltnb.models.make`::

        strategy = ClusteredFedAvg(fl.FCR(n_clusters=4), min_available_nodes=20)
        clients = strategy.start(grid, model.init(seed=0), rounds=50)
        labels = {client["number"]: client["label"] for client in clients}
    """

    clusterer: Any = None
    query: str = "sketch"
    min_available_nodes: Count = 2
    min_train_nodes: Count = 1
    timeout: Positive = 600.0
    patience: NonNegative = 3600.0
    checkpoint: str | Path | None = None
    scaling: str | None = None
    training: Any = None

    def __post_init__(self) -> None:
        """Refuse a clusterer that cannot work here, and numbers that do not fit.

        Clusters need two nodes or more, and as many as there are clusters.
        """
        checked(ClusteredFedAvg, vars(self), "ClusteredFedAvg")
        self._check_clusterer()
        least = 1
        if self.clusterer is not None:
            least = max(2, getattr(self.clusterer, "n_clusters", None) or 2)
        trains = 1 <= self.min_train_nodes <= self.min_available_nodes
        if self.min_available_nodes < least or not trains:
            raise FltnbError(
                f"Set min_available_nodes to {least} or more (one node per cluster), "
                "and min_train_nodes to a number from 1 to min_available_nodes."
            )
        if hasattr(self.clusterer, "check_options"):
            self.clusterer.check_options(self.min_available_nodes)

    def _check_clusterer(self) -> None:
        """Refuse what is no clusterer, or cannot work on separate machines."""
        given = self.clusterer
        if given is None:
            return
        if isinstance(given, (EMDClustering, FedCollab)):
            raise FltnbError(
                f"{type(given).__name__} is not possible here, because its clients "
                "exchange networks first: choose another clusterer, such as fl.FCR()."
            )
        whole = hasattr(given, "sketch") and hasattr(given, "fit_sketches")
        if isinstance(given, type) or not whole:
            raise FltnbError(
                "clusterer must be None, or have sketch and fit_sketches as fl.FCR() "
                f"has, not {given!r}."
            )
        if getattr(given, "n_classes", 1) is None:
            raise FltnbError("A sketch of classes needs their number: give n_classes.")

    def start(self, grid: Any, initial: np.ndarray, rounds: int) -> list[dict]:
        """Form clusters, train for ``rounds`` rounds, and evaluate.

        Parameters
        ----------
        grid : Flower's ``Grid``
        initial : array or tensor (P,)
            The model that all clusters start from, floating point.
        rounds : int
            Number of rounds; 0 only forms the clusters.

        Returns
        -------
        list of dict
            The record of every client, by number: the fields of :class:`Client`, and
            its answer to "evaluate".

        Raises
        ------
        FltnbError
            There is no progress, an argument cannot be used, or the checkpoint is
            damaged, has other settings or more rounds.
        """
        rounds = check("rounds", rounds, Natural)
        self.initial = _one_model(initial)
        # tests give a post of their own, which needs no Flower
        self.post = grid if hasattr(grid, "ask") else Post(grid)
        # a checkpoint with other settings belongs to another run and is refused
        self.settings = [repr(self.clusterer), array_digest(self.initial)]
        self.agreement = None
        if self.scaling:
            self.settings.append(self.scaling)
            least = self.min_available_nodes
            self.agreement = Agreement(self.scaling, least, self._ask)
        if self.training is not None:
            self.settings.append(repr(self.training))
        self.clients: list[Client] = []
        self.history: list[dict] = []
        self.left_out: dict[int, str] = {}
        self.failed: dict[int, str] = {}  # node -> its last error, until it answers
        self.stumbled: set[int] = set()  # nodes that failed to compare themselves
        self.waiting_with = -1  # nodes that were connected at the last look
        self.models = self.initial[:0]  # no clusters yet
        self.file = path_of(self.checkpoint)
        if self.file and self.file.exists():
            self._load(self.file)
            self._check_rounds(rounds)
        self._save()  # a folder that cannot be written is told before any work

        progressed = time.monotonic()
        while not self._clustered() or len(self.history) < rounds:
            self._meet()
            done = len(self.history) == rounds
            if self._clustered() and (done or self._round()):
                progressed = time.monotonic()
            elif time.monotonic() - progressed > self.patience:
                self._give_up()
            time.sleep(letters.PAUSE)

        # clients that came back under another id since the last round or checkpoint
        self._meet()
        return self._evaluated(rounds)

    def _evaluated(self, rounds: int) -> list[dict]:
        """Let connected clients test their models, and return every client's record.

        Clients that do not answer have a record as well, without a test. After 0
        rounds there is nothing to test: the clusters are the result.
        """
        answers: Answers = {}
        if rounds:
            answers = self._serve("evaluate", self._here(), rounds)
        result = []
        for client in sorted(self.clients):
            about = client.about()
            if client.node in answers:
                # a node's answer does not replace what the server knows
                about = answers[client.node].notes | about
            result.append(about)
        return result

    def _check_rounds(self, rounds: int) -> None:
        """Refuse a checkpoint that has more rounds than are asked for."""
        done = len(self.history)
        if 0 < rounds < done:
            raise FltnbError(
                f"Checkpoint {self.file} has {done} rounds, and rounds={rounds}: ask "
                f"for {done} or more, or name another file."
            )

    def _clustered(self) -> bool:
        """Whether clusters have been formed; then each cluster has a model."""
        return len(self.models) > 0

    def _give_up(self) -> None:
        """Stop, and say for each node why it is left out, or how it failed.

        Raises
        ------
        FltnbError
            Always.
        """
        reasons = ""
        for node, why in self.left_out.items():
            reasons += f"; node {node} {why}"
        for node, error in self.failed.items():
            reasons += f"; node {node} failed with {error}"
        raise FltnbError(
            f"Too few nodes gave a usable answer; {len(self.post.nodes())} are "
            f"connected, and min_available_nodes={self.min_available_nodes}{reasons}: "
            "look at their logs, then start again."
        )

    def _meet(self) -> None:
        """Ask new nodes for their sketches, then form clusters or place new clients.

        A node that was left out is not asked again, and no node is asked before enough
        are connected. Without a clusterer all clients are in cluster 0.
        """
        connected = self.post.nodes()
        self._tell_of_waiting(len(connected))
        ready = self._scaled(connected)

        met = {client.node for client in self.clients} | self._out()
        new = [node for node in ready if node not in met]
        may_be = len(new) + len(self._here())
        if not self._clustered() and may_be < self.min_available_nodes:
            return
        if self.clusterer is None:
            self._take_all(new)
            return

        numbers = [str(client.number) for client in self.clients]
        asked = Letter({}, {"known": numbers})
        answers = self._ask(f"query.{self.query}", dict.fromkeys(new, asked))
        self._take_in(answers, connected)
        enough = len(self._here()) >= self.min_available_nodes
        unplaced = any(client.label < 0 for client in self.clients)
        if unplaced and (enough or self._clustered()):
            self._cluster()

    def _tell_of_waiting(self, connected: int) -> None:
        """Log how many nodes are connected, as long as there are too few."""
        needed = self.min_available_nodes
        changed = connected != self.waiting_with
        if not self._clustered() and changed and connected < needed:
            log.info("Waiting for nodes: %d of %d are connected.", connected, needed)
        self.waiting_with = connected

    def _take_all(self, nodes: list[int]) -> None:
        """Make each node a client of cluster 0, for FedAvg."""
        for node in nodes:
            client = Client(node, node, {}, label=0)
            self.clients.append(self._noted(client))
        if not self._clustered():
            self.models = self.initial

    def _scaled(self, connected: list[int]) -> list[int]:
        """Return the nodes that may take part; with ``scaling``, those that have it.

        Before the scale is known, none is asked until enough nodes are connected: the
        scale of the first few would be kept for all.
        """
        if self.agreement is None:
            return connected
        asked = [node for node in connected if node not in self._out()]
        if self.agreement.scaling is None and len(asked) < self.min_available_nodes:
            return []
        for node, fault in self.agreement.meet(asked).items():
            self._leave_out(node, fault)
        return [node for node in connected if node in self.agreement.told]

    def _out(self) -> set[int]:
        """Return the nodes that stay left out.

        A second node of a client may take over when the first one is gone, so it is
        asked again. All other reasons remain: a node with a damaged sketch would send
        the same one every time.
        """
        left_out = self.left_out.items()
        return {node for node, why in left_out if not why.startswith("is client")}

    def _leave_out(self, node: int, fault: str) -> None:
        """Leave a node out, and log why."""
        self.left_out[node] = fault
        log.warning("Node %d is left out: it %s.", node, fault)

    def _noted(self, client: Client, held: float | None = None) -> Client:
        """Record what a new client has sent before, and whether it may reveal its rows.

        ``held``: the size of its samples in numbers, according to its answer.
        """
        said = []
        if self.agreement is not None:
            client.bytes_scaling = self.agreement.bytes_of(client.node)
            said.append(self.agreement.warning_of(client.node))
        if held is not None and not is_private(self.clusterer):
            said.append(reveals("sketch", client.sketch, held))
        client.warning = " ".join(f"Its {one}" for one in said if one)
        if client.warning:
            log.warning("Client %d: %s", client.number, client.warning)
        return client

    def _take_in(self, answers: Answers, connected: Iterable[int]) -> None:
        """Record usable sketches, clients that came back, and why others are left out.

        Parameters
        ----------
        answers : dict
            Node -> its sketch and its client's number; a known client does not send its
            sketch again.
        connected : iterable of int
            The connected nodes.
        """
        sketches = [answer.arrays for answer in answers.values()]
        sketches += [client.sketch for client in self.clients]
        shapes = [widths(sketch) for sketch in sketches if sketch]
        # The most common shape is right: the server does not know the embedding, and
        # one client with another encoder must not make all others wrong.
        usual = max(shapes, key=shapes.count, default=())

        by_number = {client.number: client for client in self.clients}
        for node, (sketch, notes) in answers.items():
            number = whole_number(notes.get("client", node))
            if number is None or number < 0:
                self._leave_out(node, "sent no number of a client")
                continue
            old = by_number.get(number)
            if old is not None and old.node not in connected:
                # it was disconnected and comes back as another node
                old.node = node
                self.left_out.pop(node, None)
                continue

            form = getattr(self.clusterer, "sketch_shapes", {})
            fault = fault_of(sketch, usual, form)
            if old is not None:
                fault = f"is client {number}, and so is node {old.node}"
            if fault:
                self._leave_out(node, fault)
                continue

            size = sketch_bytes(sketch)
            client = Client(number, node, sketch, bytes_sketch=size)
            by_number[number] = client
            self.clients.append(self._noted(client, number_in(notes, "held", np.inf)))

    def _cluster(self) -> None:
        """Cluster all sketches; placed clients stay, new ones follow their neighbours.

        Nothing happens if clients must compare themselves with others' sketches and one
        of them does not answer: the next round tries again. New clients whose sketches
        cannot be clustered with the others are left out.
        """
        clusterer = clone(self.clusterer)
        clients = sorted(self.clients)
        if hasattr(clusterer, "relay"):
            clients = self._connected()
            if len(clients) < self.min_available_nodes:
                return  # too few to compare a new client with: again in the next round
        n_clients = len(self.clients)
        try:
            with by_name([str(client.number) for client in clients]):
                fitted = self._fitted(clusterer, clients)
        except FltnbError as error:
            if not self._clustered():
                raise
            self._leave_out_new(error)
            return
        if not fitted:
            if len(self.clients) < n_clients:  # at once without those left out
                self._cluster()
            return  # a client left: again in the next round

        before = np.array([client.label for client in clients])
        labels = placed(before, clusterer.labels_, len(self.models))
        found = {}
        for client, label in zip(clients, labels, strict=True):
            client.label = int(label)
            found[client.number] = client.label

        # new clusters start from the initial model
        n_clusters = 1 + max(client.label for client in self.clients)
        new = np.repeat(self.initial, n_clusters - len(self.models), axis=0)
        self.models = np.vstack([self.models, new])

        log.info("Clusters by client: %s", found)
        self._save()

    def _fitted(self, clusterer: Any, clients: list[Client]) -> bool:
        """Fit the clusterer on the clients' sketches.

        Returns False if an answer of a second exchange is missing.
        """
        answers = []
        if hasattr(clusterer, "relay"):
            came = self._compare(clusterer, clients)
            if len(came) < len(clients):
                return False
            answers = [came[client.node].arrays for client in clients]
        clusterer.fit_sketches([client.sketch for client in clients], answers)
        return True

    def _leave_out_new(self, error: FltnbError) -> None:
        """Leave out the clients without a cluster, so that the others can go on."""
        for client in self.clients:
            if client.label < 0:
                fault = f"cannot be clustered with the others ({first_line(error)})"
                self._leave_out(client.node, fault)
        self.clients = [client for client in self.clients if client.label >= 0]

    def _compare(self, clusterer: Any, clients: list[Client]) -> Answers:
        """Let clients compare themselves with all sketches (the second exchange).

        For clusterers whose distance needs a client's own samples, such as
        eigen-relevance: everybody gets all sketches, and its place among them. Only
        usable answers are returned. A new client that fails here twice, or sends
        something else, is left out.
        """
        relayed = clusterer.relay([client.sketch for client in clients])
        asked = {}
        for place, client in enumerate(clients):
            asked[client.node] = Letter(relayed, {"place": place})
        came = self._ask(f"query.{self.query}", asked)

        shapes = [_shapes(answer) for answer in came.values()]
        usual = max(shapes, key=shapes.count, default={})
        gone = set()
        for client in clients:
            fault = self._fault_of(client, came, usual, clusterer.answer_shapes)
            if not fault:
                continue
            came.pop(client.node, None)
            if client.label < 0:
                self._leave_out(client.node, fault)
                gone.add(client.node)
            else:
                log.warning("Client %d %s.", client.number, fault)
        self.clients = [one for one in self.clients if one.node not in gone]
        return came

    def _fault_of(
        self, client: Client, came: Answers, usual: dict[str, tuple], form: Any
    ) -> str:
        """Return why a client's answer to others' sketches cannot be used, or "".

        ``usual``: the shapes of most others' arrays; ``form``: the clusterer's
        ``answer_shapes``. A client that is silent, or failed for the first time, may
        answer the next time.
        """
        if client.node not in came:
            error = self.failed.get(client.node)
            if error and client.node in self.stumbled:
                return f"failed with {error}"
            if error:
                self.stumbled.add(client.node)
            return ""
        answer = came[client.node]
        fault = fault_of(answer.arrays, widths(answer.arrays), form)
        if not fault and _shapes(answer) != usual:
            fault = f"sent arrays of the shapes {_shapes(answer)}, most others {usual}"
        return fault

    def _round(self) -> bool:
        """Train for a round: a cluster's model becomes the mean of its clients' models.

        The mean is weighted by samples; a cluster without any answer keeps its
        model. Returns False and changes no model if too few usable models came.
        """
        round = len(self.history) + 1
        here = self._here()
        answers = self._serve("train", here, round)

        used = []
        there = [client for client in here if client.node in answers]
        for client in there:
            arrays, notes = answers[client.node]
            if not self._is_usable(client, arrays):
                continue
            # a client that does not report its number of samples gets no weight
            samples = number_in(notes, "num-examples", 0)
            client.samples = max(int(samples), 0)
            used.append(client)
        any_samples = any(client.samples for client in used)
        if len(used) < self.min_train_nodes or not any_samples:
            return False

        sent = [answers[client.node] for client in used]
        losses = [number_in(letter.notes, "loss", np.nan) for letter in sent]
        self.models = self._averaged(used, [one.arrays["theta"] for one in sent])
        self.history.append(
            {
                "round": round,
                "nodes": len(here),
                "clients": [client.number for client in used],
                "loss": float(np.mean(losses)),
            }
        )
        log.info("Round %d: models of %d nodes out of %d", round, len(used), len(here))
        self._save()
        return True

    def _averaged(self, clients: list[Client], models: list[np.ndarray]) -> np.ndarray:
        """Return the clusters' models (C, P): means of n clients' models (P,) each.

        For example, clients with 30 and 10 samples in cluster 0 and one with 20 in
        cluster 1 have the shares [[30, 10, 0], [0, 0, 20]], which become weights 0.75,
        0.25 and 1. A row of zeros keeps its model.
        """
        theta = np.stack(models).astype(self.initial.dtype)
        samples = np.array([client.samples for client in clients])
        labels = np.array([client.label for client in clients])
        clusters = np.arange(len(self.models))
        share = samples * (labels == clusters[:, None])  # (C, n)
        return mix_groups(share, theta, self.models)

    def _is_usable(self, client: Client, arrays: dict[str, np.ndarray]) -> bool:
        """Whether a client sent a model; a warning says that it did not.

        The model is the array ``theta`` (P,), with finite numbers only.
        """
        model: Any = arrays.get("theta")
        if np.shape(model) == self.initial[0].shape and model.dtype.kind in "fiu":
            # as it is averaged: a large float64 may be infinite as float32
            with np.errstate(over="ignore"):
                kept = model.astype(self.initial.dtype)
            if np.isfinite(kept).all():
                return True
        log.warning(
            "Client %d sent no theta of %d finite numbers and is left out.",
            client.number,
            self.initial.size,
        )
        return False

    def _connected(self) -> list[Client]:
        """Return the clients whose node is connected and ready, by number."""
        nodes = self.post.nodes()
        if self.agreement is not None:
            nodes = self.agreement.told.intersection(nodes)
        return sorted(client for client in self.clients if client.node in nodes)

    def _here(self) -> list[Client]:
        """Return the connected clients; after the clustering, those in a cluster.

        Between its sketch and the next clustering a new client has no cluster, hence no
        model.
        """
        here = self._connected()
        if self._clustered():
            here = [client for client in here if client.label >= 0]
        return here

    def _serve(self, kind: str, clients: list[Client], round: int) -> Answers:
        """Send clients the models of their clusters, and return the answers by node.

        Parameters
        ----------
        kind : str
            "train" or "evaluate".
        clients : list of Client
            The clients that are asked.
        round : int
        """
        asked = {}
        for client in clients:
            model = {"theta": self.models[client.label]}
            asked[client.node] = Letter(model, {"server-round": round})
        return self._ask(kind, asked, str(round))

    def _ask(self, kind: str, asked: Answers, group: str = "") -> Answers:
        """Ask nodes, count the bytes, and return the answers that came.

        Parameters
        ----------
        kind, group : str
            As for :meth:`Post.ask`.
        asked : dict
            Node -> its letter.
        """
        if not asked:
            return {}
        answers = {}
        replies = self.post.ask(kind, asked, self.timeout, group)
        for node, reply in replies.items():
            if isinstance(reply, str):
                log.warning("Node %d failed at %s: %s", node, kind, reply)
                self.failed[node] = reply
                if self.agreement is not None:
                    # it may have lost its state: send it the scale again
                    self.agreement.told.discard(node)
            else:
                answers[node] = reply
                self.failed.pop(node, None)

        for client in self.clients:
            node = client.node
            if node in asked:
                client.bytes_down += sketch_bytes(asked[node].arrays)
            if node in answers:
                size = sketch_bytes(answers[node].arrays)
                if kind.startswith("query"):
                    client.bytes_sketch += size
                else:
                    client.bytes_up += size
        return answers

    def _save(self) -> None:
        """Write models, history, clients and their sketches to the checkpoint.

        It is one NumPy file without pickles: arrays ``models`` (C, P), ``mean`` and
        ``scale`` if nodes agreed on a scale, ``<number of the client>/<name>`` for each
        array of a sketch, and ``about``, a JSON text with everything else. With the
        sketches a continued run can cluster again when a new client comes.
        """
        if not self.file:
            return
        arrays: dict[str, Any] = {"models": self.models}
        if self.agreement is not None and self.agreement.scaling is not None:
            arrays["mean"] = self.agreement.scaling.mean
            arrays["scale"] = self.agreement.scaling.scale
        for client in self.clients:
            for name, array in client.sketch.items():
                arrays[f"{client.number}/{name}"] = array
        about = {
            "settings": self.settings,
            "history": self.history,
            "clients": [client.about() for client in self.clients],
        }
        text = json.dumps(about)
        write_atomically(self.file, lambda file: np.savez(file, about=text, **arrays))

    def _load(self, path: Path) -> None:
        """Continue from a checkpoint.

        Raises FltnbError if it is damaged, or has another clusterer or another initial
        model.
        """
        mend = "fix that, or name another file"
        with reading(f"Checkpoint {path}", mend, lambda error: _damaged(path, error)):
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                models = file["models"]
                scaling = None
                if "scale" in file:
                    scaling = Scaling(file["mean"], file["scale"])
                for client in about["clients"]:
                    number = client["number"]
                    names = client["sketch"]
                    sketch = {name: file[f"{number}/{name}"] for name in names}
                    client["sketch"] = sketch
            clients = [Client(**client) for client in about["clients"]]
            history = about["history"]
            settings = about["settings"]
        if settings != self.settings:
            raise FltnbError(
                f"Checkpoint {path} belongs to a run with another clusterer, initial "
                "model, scaling or training: delete it, or name another file."
            )
        self.clients = clients
        self.history = history
        self.models = models
        if self.agreement is not None:
            self.agreement.scaling = scaling
        log.info("Continuing after round %d, from %s", len(self.history), path)


def _shapes(letter: Letter) -> dict[str, tuple]:
    """Return the shapes of a letter's arrays by name."""
    return {name: array.shape for name, array in letter.arrays.items()}


def _damaged(path: Path, error: Exception) -> FltnbError:
    """Return the error for a checkpoint that cannot be used."""
    return FltnbError(
        f"Checkpoint {path} is damaged ({first_line(error)}), or another program's "
        "file: name another file, or delete it to start again."
    )


def _one_model(initial: Any) -> np.ndarray:
    """Return the initial model as a row (1, P), or refuse it."""
    model = np.atleast_2d(as_array(initial, "initial"))
    fits = model.ndim == 2 and len(model) == 1 and model.dtype.kind == "f"
    if not fits or not np.isfinite(model).all():
        raise FltnbError(
            "initial must be one model (P,) of finite floating-point numbers, not "
            f"{model.dtype} of shape {np.shape(initial)}: give what model.init(seed) "
            "returns."
        )
    return model
