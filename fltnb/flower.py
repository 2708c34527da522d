"""Clustered federated learning between real machines, with Flower's message API (flwr 1.41, the extra ``flower``).

A node answers a query with its sketch (:func:`sketch_query`); nothing else of its data leaves it. The server
(:class:`ClusteredFedAvg`) clusters the sketches and averages inside the clusters. With equal seeds and all nodes in
every round its clusters and models are those of ``fl.run(fl.methods.FLT(clusterer), ...)``. See ``docs/flower.md``.
"""

from __future__ import annotations

import io
import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from .data import array_digest
from .errors import FltnbError
from .methods.base import mix, mix_groups
from .paths import write_atomically
from .relatedness import EMDClustering

Arrays = dict[str, np.ndarray]
log = logging.getLogger("flwr")  # Flower shows this one, and sends it to `flwr log`
PAUSE = 0.5  # seconds between two looks for answers


class Letter(NamedTuple):
    """What goes one way: arrays, and numbers or texts by name."""

    arrays: Arrays
    notes: dict[str, Any]


def sketch_query(clusterer, embed: Callable[[Any], Any]) -> Callable:
    """Return the answer of a ``ClientApp`` to the server's query: ``app.query("sketch")(sketch_query(...))``.

    It holds the sketch's arrays and the client's number (the node's ``partition-id``, else Flower's node id), nothing
    else. ``clusterer`` has the server's options. ``embed`` turns Flower's ``Context`` into this node's embeddings
    (n, d); for PACFL into images and classes. Draws of a private release (``epsilon``) come from a secret of the node:
    the app's settings, with their seed, are no secret, and who knows the draws takes the noise away.
    """
    _check(clusterer)

    def answer(message, context):
        app, asked, sketch = _flwr(), _read(message.content), {}
        number = int(context.node_config.get("partition-id", context.node_id))
        if str(number) not in asked.notes.get("known", ()):
            if "secret" not in context.state:
                context.state["secret"] = app.ConfigRecord({"seed": str(secrets.randbits(128))})
            given, own = embed(context), clusterer
            given = given if isinstance(given, tuple) else (given,)
            if getattr(clusterer, "epsilon", None) is not None:
                own = clone(clusterer).set_params(random_state=int(context.state["secret"]["seed"]))
            sketch = own.sketch(*given, client=number)
            if asked.arrays:  # everybody's sketches, relayed: what is wanted is the answer to these
                sketch = own.compare(*given, sketch, asked.arrays, client=number, place=asked.notes["place"])
        sent = {name: np.asarray(array) for name, array in sketch.items() if not name.startswith("_")}
        return app.Message(_content(app, Letter(sent, {"client": str(number)})), reply_to=message)

    return answer


@dataclass(order=True)
class Client:
    """What the server knows of a client; its node changes when it comes back, its number does not."""

    number: int
    node: int
    sketch: Arrays
    label: int = -1  # of its cluster, -1 before it has one
    samples: int = 1
    bytes_sketch: int = 0
    bytes_up: int = 0  # of all arrays that it sent, and received
    bytes_down: int = 0


@dataclass
class ClusteredFedAvg:
    """FedAvg inside clusters that are found once, from the nodes' sketches (FLT, arXiv 2103.15947, Section 3.2).

    A node that joins later is placed by its sketch: all are clustered anew, nobody moves, and it goes where most of its
    new neighbours are. Apart from all, it founds a cluster, which starts from the mean of all models. A node that is
    silent or fails, or sends what cannot be used, is left out of that round. Nodes answer "train" and "evaluate" like
    those of Flower's own strategies: records ``arrays``, ``config`` (``server-round``), ``metrics`` (``num-examples``).

    Parameters
    ----------
    clusterer : clusterer of :mod:`fltnb.relatedness`, or None: FedAvg, one cluster and no sketches
    query : str, name under which the nodes' apps registered :func:`sketch_query`
    min_available_nodes : int, nodes with a usable sketch to wait for before clusters are formed
    min_train_nodes : int, usable models that a round needs, else it is tried again
    timeout, patience : float, seconds that nodes have for an answer; without progress, until the server gives up
    checkpoint : path, optional, file that is written after every round, and continued from

    Attributes
    ----------
    clients : list of :class:`Client`; models : ndarray (C, P), a row per cluster; left_out : dict, node -> why
    history : list of dicts: round, nodes (asked), replies (used), loss (mean of what nodes report), seconds
    """

    clusterer: Any = None
    query: str = "sketch"
    min_available_nodes: int = 2
    min_train_nodes: int = 1
    timeout: float = 600.0
    patience: float = 3600.0
    checkpoint: str | Path | None = None

    def __post_init__(self) -> None:
        least = 1 if self.clusterer is None else max(2, getattr(_check(self.clusterer), "n_clusters", None) or 2)
        if self.min_available_nodes < least or not 1 <= self.min_train_nodes <= self.min_available_nodes:
            what = f"{self.min_available_nodes} available and {self.min_train_nodes} training nodes at least"
            raise FltnbError(f"{what} do not fit: ask for {least} or more (one per cluster), and for fewer to train.")

    def start(self, grid, initial: Mapping[str, np.ndarray], rounds: int) -> list[dict[str, Any]]:
        """Form clusters, train for so many rounds from the ``initial`` model, and evaluate.

        ``grid`` is Flower's ``Grid``. Returns facts of every client, by number: :class:`Client`'s, and what it told
        when asked to "evaluate". FltnbError: no progress, or the checkpoint is damaged or of other settings.
        """
        self.post = grid if hasattr(grid, "ask") else Post(grid)
        self.layout = {name: np.asarray(array) for name, array in initial.items()}
        self.settings = {"clusterer": repr(self.clusterer), "initial": array_digest(*self.layout.values())}
        self.clients, self.history, self.left_out, self.models = [], [], {}, None
        self._load()
        moved = time.monotonic()
        while self.models is None or len(self.history) < rounds:
            self._meet()
            if self.models is not None and (len(self.history) == rounds or self._round()):
                moved = time.monotonic()
            elif time.monotonic() - moved > self.patience:
                out = "".join(f"; node {node} {why}" for node, why in self.left_out.items())
                what = f"For {self.patience:g} s too few nodes gave a usable answer{out}"
                raise FltnbError(f"{what}: look at their logs and start again; a checkpoint is continued from.")
            time.sleep(PAUSE)
        told = self._ask("evaluate", self._letters(self._here(), len(self.history)))
        facts = [{k: v for k, v in vars(one).items() if k != "sketch"} for one in sorted(self.clients)]
        return [own | (told[own["node"]].notes if own["node"] in told else {}) for own in facts]

    def _meet(self) -> None:
        """Ask nodes that are new for their sketches; form clusters when enough have answered, place late-comers."""
        here, known = self.post.nodes(), {one.node for one in self.clients} | set(self.left_out)
        new = [node for node in here if node not in known]
        if self.models is None and len(new) + len(self._here()) < self.min_available_nodes:
            return
        if self.clusterer is None:
            self.clients += [Client(node, node, {}, label=0) for node in new]
            self.models = self._row(self.layout)[None] if self.models is None else self.models
            return
        asked = Letter({}, {"known": [str(one.number) for one in self.clients]})
        told = self._ask(f"query.{self.query}", dict.fromkeys(new, asked))
        sketches = [answer.arrays for answer in told.values()] + [one.sketch for one in self.clients]
        usual = Counter(map(_widths, filter(None, sketches))).most_common(1)  # what most have is right
        for node, (sketch, notes) in told.items():
            one = Client(int(notes["client"]), node, sketch, bytes_sketch=_size(sketch))
            same = [old for old in self.clients if old.number == one.number]
            if same and same[0].node not in here:
                same[0].node = node  # it was away, and comes back as another node of Flower's
            elif fault := f"is client {one.number}, and so is node {same[0].node}" if same else _fault(sketch, usual):
                self.left_out[node] = fault
                log.warning("Node %d is left out: it %s.", node, fault)
            else:
                self.clients.append(one)
        enough = self.models is not None or len(self._here()) >= self.min_available_nodes
        if enough and any(one.label < 0 for one in self.clients):
            self._cluster()

    def _cluster(self) -> None:
        """Cluster all sketches; who is in a cluster stays there, the others follow their neighbours."""
        fitted, clients, answers = clone(self.clusterer), sorted(self.clients), []
        if hasattr(fitted, "relay"):
            there = self.post.nodes()
            clients = [one for one in clients if one.node in there]
            relayed = fitted.relay([one.sketch for one in clients])
            asked = {one.node: Letter(relayed, {"place": i}) for i, one in enumerate(clients)}
            told = self._ask(f"query.{self.query}", asked)
            if len(told) < len(asked):
                return  # somebody left: once more in the next round
            answers = [told[one.node].arrays for one in clients]
        labels = fitted.fit_sketches([one.sketch for one in clients], answers).labels_
        size = np.bincount([one.label for one in self.clients if one.label >= 0 for _ in range(one.samples)])
        for one, label in zip(clients, placed(np.array([one.label for one in clients]), labels), strict=True):
            one.label = int(label)
        new = 1 + max(one.label for one in clients) - (0 if self.models is None else len(self.models))
        if self.models is None:
            self.models = np.repeat(self._row(self.layout)[None], new, axis=0)
        elif new > 0:
            self.models = np.vstack([self.models, np.repeat(mix(size[None] / size.sum(), self.models), new, axis=0)])
        log.info("Clusters by client: %s", {one.number: one.label for one in clients})
        self._save()

    def _round(self) -> bool:
        """Train once; False if too few models came that can be used, and nothing has changed then."""
        round, begun, here = len(self.history) + 1, time.monotonic(), self._here()
        told = self._ask("train", self._letters(here, round), str(round))
        used, theta = [], []
        for one in [one for one in here if one.node in told]:
            try:
                theta.append(self._row(told[one.node].arrays))
                used.append(one)
                one.samples = int(told[one.node].notes["num-examples"])
            except FltnbError as error:
                log.warning("Client %d is left out of round %d: %s", one.number, round, error)
        if len(used) < self.min_train_nodes:
            return False
        share = np.zeros((len(self.models), len(used)))
        share[[one.label for one in used], range(len(used))] = [one.samples for one in used]
        self.models = mix_groups(share, np.stack(theta), self.models)
        loss = float(np.mean([told[one.node].notes.get("loss", np.nan) for one in used]))
        facts = {"round": round, "nodes": len(here), "replies": len(used), "loss": loss}
        self.history.append(facts | {"seconds": time.monotonic() - begun})
        log.info("Round %d: models of %d nodes out of %d", round, len(used), len(here))
        self._save()
        return True

    def _here(self) -> list[Client]:
        """Clients that are there, by number; once clusters are formed, those in one."""
        there = set(self.post.nodes())
        here = [one for one in self.clients if one.node in there and (self.models is None or one.label >= 0)]
        return sorted(here)

    def _letters(self, clients: list[Client], round: int) -> dict[int, Letter]:
        models = [self.arrays(row) for row in self.models]
        return {one.node: Letter(models[one.label], {"server-round": round}) for one in clients}

    def _ask(self, kind: str, letters: dict[int, Letter], group: str = "") -> dict[int, Letter]:
        """Return the answers by node, and count bytes; a node that fails has none."""
        told = self.post.ask(kind, letters, self.timeout, group) if letters else {}
        for node in [node for node, answer in told.items() if isinstance(answer, str)]:
            log.warning("Node %d failed at %s: %s", node, kind, told.pop(node))
        for one in self.clients:
            one.bytes_down += _size(letters[one.node].arrays) if one.node in letters else 0
            one.bytes_up += _size(told[one.node].arrays) if one.node in told else 0
        return told

    def _row(self, arrays: Arrays) -> np.ndarray:
        """Return a model as a row (P,); FltnbError if it is of another shape or not finite."""
        if {name: array.shape for name, array in arrays.items()} != {n: a.shape for n, a in self.layout.items()}:
            raise FltnbError("its model has other arrays than the server's: give both the same network.")
        kind = np.result_type(np.float32, *(array.dtype for array in self.layout.values() if array.dtype.kind == "f"))
        row = np.concatenate([np.ravel(arrays[name]).astype(kind) for name in self.layout])
        if not np.isfinite(row).all():
            raise FltnbError("its model holds NaN or infinite values: choose a smaller learning rate.")
        return row

    def arrays(self, row: np.ndarray) -> Arrays:
        """Return a row of :attr:`models` (P,) as arrays of the names, shapes and types of the initial model."""
        parts = np.split(row, np.cumsum([array.size for array in self.layout.values()])[:-1])
        named = zip(self.layout.items(), parts, strict=True)
        return {name: part.reshape(like.shape).astype(like.dtype) for (name, like), part in named}

    def _save(self) -> None:
        if self.checkpoint:
            clients = [vars(one) | {"sketch": sorted(one.sketch)} for one in self.clients]
            about = {"settings": self.settings, "history": self.history, "clients": clients}
            arrays = {f"{one.number}/{name}": array for one in self.clients for name, array in one.sketch.items()}
            arrays |= {"models": self.models, "about": np.array(json.dumps(about))}
            write_atomically(self.checkpoint, lambda file: np.savez(file, **arrays))

    def _load(self) -> None:
        if not (self.checkpoint and Path(self.checkpoint).exists()):
            return
        try:
            with np.load(io.BytesIO(Path(self.checkpoint).read_bytes()), allow_pickle=False) as file:
                about, models = json.loads(str(file["about"])), file["models"]
                for one in about["clients"]:
                    one["sketch"] = {name: file[f"{one['number']}/{name}"] for name in one["sketch"]}
        except Exception as error:  # a damaged zip raises many types; whatever it is, the remedy is the same
            raise FltnbError(f"Checkpoint {self.checkpoint} is damaged ({error}): delete it to begin anew.") from error
        if about["settings"] != self.settings:
            raise FltnbError(f"Checkpoint {self.checkpoint} is of other settings: delete it, or name another file.")
        self.clients, self.history, self.models = [Client(**one) for one in about["clients"]], about["history"], models
        log.info("Going on after round %d, from %s", len(self.history), self.checkpoint)


class Post:
    """Letters to nodes and their answers, through Flower's ``Grid``."""

    def __init__(self, grid):
        self.grid, self.app = grid, _flwr()

    def nodes(self) -> list[int]:
        """Return the nodes that are connected; Flower drops one that is gone after about a minute."""
        return sorted(self.grid.get_node_ids())

    def ask(self, kind: str, letters: dict[int, Letter], timeout: float, group: str) -> dict[int, Letter | str]:
        """Send, and return answers, or texts of errors, by node; wait for nobody who is gone, nor longer than so."""
        due, told, make = time.monotonic() + timeout, {}, self.app.Message
        made = [make(_content(self.app, to), node, kind, ttl=timeout, group_id=group) for node, to in letters.items()]
        waiting = dict(zip(self.grid.push_messages(made), letters, strict=True))
        while waiting and time.monotonic() < due:
            for reply in self.grid.pull_messages([message for message in waiting if message]):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                told[node] = reply.error.reason if reply.has_error() else _read(reply.content)
            there = set(self.nodes())
            waiting = {message: node for message, node in waiting.items() if message and node in there}
            time.sleep(PAUSE if waiting else 0)
        return told


def placed(before: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels (M,) after a new clustering: those of ``before`` stay; -1 there takes that of most new neighbours."""
    out, seen = before.copy(), before >= 0
    for cluster in np.unique(labels[~seen]):
        around = before[(labels == cluster) & seen]
        out[(labels == cluster) & ~seen] = np.bincount(around).argmax() if len(around) else out.max() + 1
    return out


def _flwr():
    try:
        import flwr.app
    except ImportError as error:
        how = "type make flower, or install the extra with pip install 'fltnb[flower]'"
        raise FltnbError(f"Flower (flwr) is not installed: {how}.") from error
    return flwr.app


def _content(app, letter: Letter):
    arrays = app.ArrayRecord({name: app.Array(np.asarray(array)) for name, array in letter.arrays.items()})
    return app.RecordDict({"arrays": arrays, "config": app.ConfigRecord(letter.notes)})


def _read(content) -> Letter:
    arrays = {name: array.numpy() for record in content.array_records.values() for name, array in record.items()}
    records = [*content.config_records.values(), *content.metric_records.values()]
    return Letter(arrays, {name: value for record in records for name, value in record.items()})


def _check(clusterer):
    if isinstance(clusterer, EMDClustering) or not hasattr(clusterer, "fit_sketches"):
        why = "is no clusterer, or one like EMDClustering, whose clients must exchange networks first"
        raise FltnbError(f"{clusterer!r} {why}: choose another, such as fl.FCR().")
    return clusterer


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def _widths(sketch: Arrays) -> tuple:
    # in common are names, and lengths but the number of centroids (rows) or of vectors (columns)
    return tuple((name, a.shape[:1] if name == "vectors" else a.shape[1:]) for name, a in sorted(sketch.items()))


def _fault(sketch: Arrays, usual: list) -> str:
    if not sketch or _widths(sketch) != usual[0][0]:
        return (
            f"sent a sketch of the widths {dict(_widths(sketch))}, most others {dict(usual[0][0])}"
            if sketch
            else "sent no sketch"
        )
    # the last number of what signatures call "own" is a variance, which a private release does not know
    finite = all(np.isfinite(array[:2] if name == "own" else array).all() for name, array in sketch.items())
    return "" if finite else "sent a sketch with NaN or infinite values"
