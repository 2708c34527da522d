"""Clustered federated learning between real machines, with Flower's message API (flwr 1.41): ``docs/flower.md``.

A node answers a query with its sketch (:func:`sketch_query`); the server (:class:`ClusteredFedAvg`) clusters these and
averages inside the clusters. With equal seeds and all nodes there, it gives what ``fl.run`` gives for FLT.
"""

import importlib
import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from .clustering import EMDClustering
from .clustering.base import fault_of, sketch_bytes, widths
from .clustering.cuts import placed
from .data import array_digest
from .errors import FltnbError
from .methods.base import mix_groups
from .paths import write_atomically

log = logging.getLogger("flwr")  # Flower shows this one, and sends it to `flwr log`
PAUSE = 0.5  # seconds between two looks for answers


class Letter(NamedTuple):
    """What goes one way: arrays, and numbers or texts by name."""

    arrays: dict[str, np.ndarray]
    notes: dict[str, Any]


def sketch_query(clusterer, embed: Callable[[Any], Any]) -> Callable:
    """Return the answer of a ``ClientApp`` to the server's query: ``app.query("sketch")(sketch_query(...))``.

    It holds the sketch's arrays and the client's number (the node's ``partition-id``, else Flower's node id), nothing
    else. ``embed`` turns Flower's ``Context`` into this node's embeddings (n, d), for PACFL and MergeGain (with its
    ``n_classes``) into images and classes.
    Draws of a private release (``epsilon``) come from a secret of the node: who knows their seed takes the noise away.
    """

    def answer(message, context):
        app, asked, sketch, own = flwr_app(), _read(message), {}, clusterer
        number = int(context.node_config.get("partition-id", context.node_id))
        if str(number) not in asked.notes.get("known", ()):
            if getattr(clusterer, "epsilon", None) is not None:
                if "secret" not in context.state:
                    context.state["secret"] = app.ConfigRecord(
                        {"seed": str(secrets.randbits(128))}
                    )
                draws = "secret" if hasattr(clusterer, "secret") else "random_state"
                own = clone(clusterer).set_params(
                    **{draws: int(context.state["secret"]["seed"])}
                )
            given = given if isinstance(given := embed(context), tuple) else (given,)
            sketch = own.sketch(*given, client=number)
            if (
                asked.arrays
            ):  # everybody's sketches: what is wanted is the answer to these
                sketch = own.compare(
                    *given,
                    sketch,
                    asked.arrays,
                    client=number,
                    place=asked.notes["place"],
                )
        sent = {
            name: np.asarray(array)
            for name, array in sketch.items()
            if not name.startswith("_")
        }
        return app.Message(
            _content(app, Letter(sent, {"client": str(number)})), reply_to=message
        )

    return answer


@dataclass(order=True)
class Client:
    """What the server knows of a client; its node changes when it comes back, its number does not."""

    number: int
    node: int
    sketch: dict
    label: int = -1  # before it has a cluster
    samples: int = 1
    bytes_sketch: int = 0
    bytes_up: int = 0  # of models
    bytes_down: int = 0


@dataclass
class ClusteredFedAvg:
    """FedAvg inside clusters that are found once, from the nodes' sketches (FLT, arXiv 2103.15947, Section 3.2).

    Who joins later is placed by its sketch: all are clustered anew, nobody moves, and it goes where most of its new
    neighbours are, or founds a cluster from the initial model. Who is silent or fails, or sends what cannot be used, is
    left out of that round. Nodes answer "train" and "evaluate" as for Flower's own strategies: ``arrays`` (``theta``),
    ``config`` (``server-round``), ``metrics`` (``num-examples``, ``loss``). Afterwards ``models`` (C, P) has a row per
    cluster, ``history`` says which clients each round was made of, and ``left_out`` why a node is not among them.

    Parameters
    ----------
    clusterer : clusterer of :mod:`fltnb.clustering`, or None: FedAvg, one cluster and no sketches
    query : str, name under which the nodes' apps registered :func:`sketch_query`
    min_available_nodes, min_train_nodes : int, usable sketches that clusters are formed of, models that a round needs
    timeout, patience : float, seconds that nodes have for an answer; without progress, until the server gives up
    checkpoint : path, optional, file that is written after every round, and continued from
    """

    clusterer: Any = None
    query: str = "sketch"
    min_available_nodes: int = 2
    min_train_nodes: int = 1
    timeout: float = 600.0
    patience: float = 3600.0
    checkpoint: str | Path | None = None

    def __post_init__(self) -> None:
        if isinstance(self.clusterer, EMDClustering):
            raise FltnbError(
                "EMDClustering's clients exchange networks first: choose another, such as fl.FCR()."
            )
        least = (
            max(2, getattr(self.clusterer, "n_clusters", None) or 2)
            if self.clusterer is not None
            else 1
        )
        if (
            self.min_available_nodes < least
            or not 1 <= self.min_train_nodes <= self.min_available_nodes
        ):
            raise FltnbError(
                f"Fewer nodes than clusters, or none, cannot do: ask for {least}, one each, or more."
            )

    def start(self, grid, initial: np.ndarray, rounds: int) -> list[dict[str, Any]]:
        """Form clusters, train for so many rounds from the ``initial`` model (P,), evaluate; ``grid``: Flower's.

        Returns what is known of every client, by number: :class:`Client`'s fields, and what it answered to "evaluate".
        FltnbError: no progress, or the checkpoint is damaged or of other settings.
        """
        self.post = grid if hasattr(grid, "ask") else Post(grid)
        self.initial = np.atleast_2d(initial)
        self.settings = [repr(self.clusterer), array_digest(self.initial)]
        self.clients, self.history, self.left_out, self.models = (
            [],
            [],
            {},
            self.initial[:0],
        )  # no clusters yet
        if self.checkpoint and Path(self.checkpoint).exists():
            self._load(Path(self.checkpoint))
        moved = time.monotonic()
        while not len(self.models) or len(self.history) < rounds:
            self._meet()
            if len(self.models) and (len(self.history) == rounds or self._round()):
                moved = time.monotonic()
            elif time.monotonic() - moved > self.patience:
                out = "".join(
                    f"; node {node} {why}" for node, why in self.left_out.items()
                )
                raise FltnbError(
                    f"Too few nodes gave a usable answer{out}: look at their logs, then start again."
                )
            time.sleep(PAUSE)
        self._meet()  # who came back under another id since the last round, or the checkpoint
        told = self._serve("evaluate", rounds)[1] if rounds else {}
        notes = {node: answer.notes for node, answer in told.items()}
        return [
            vars(one) | {"sketch": sorted(one.sketch)} | notes.get(one.node, {})
            for one in sorted(self.clients)
        ]

    def _meet(self) -> None:
        """Ask nodes that are new for their sketches; form clusters when enough have answered, place late-comers."""
        here, known = self.post.nodes(), {one.node for one in self.clients}
        known |= {
            node
            for node, why in self.left_out.items()
            if not why.startswith("is client")
        }  # the twin may go
        new = [node for node in here if node not in known]
        if (
            not len(self.models)
            and len(new) + len(self._here()) < self.min_available_nodes
        ):
            return
        if self.clusterer is None:
            self.clients += [Client(node, node, {}, label=0) for node in new]
            self.models = self.models if len(self.models) else self.initial
            return
        asked = Letter({}, {"known": [str(one.number) for one in self.clients]})
        told = self._ask(f"query.{self.query}", dict.fromkeys(new, asked))
        sketches = [answer.arrays for answer in told.values()] + [
            one.sketch for one in self.clients
        ]
        shapes = [widths(sketch) for sketch in sketches if sketch]
        usual = max(shapes, key=shapes.count, default=())  # what most have is right
        for node, (sketch, notes) in told.items():
            one = Client(
                int(notes.get("client", node)),
                node,
                sketch,
                bytes_sketch=_size(told, node),
            )
            same = [old for old in self.clients if old.number == one.number]
            if same and same[0].node not in here:
                same[0].node, _ = (
                    node,
                    self.left_out.pop(node, ""),
                )  # it was away, and comes back as another node
            elif (
                fault := f"is client {one.number}, and so is node {same[0].node}"
                if same
                else fault_of(sketch, usual)
            ):
                self.left_out[node] = fault
                log.warning("Node %d is left out: it %s.", node, fault)
            else:
                self.clients.append(one)
        enough = len(self.models) or len(self._here()) >= self.min_available_nodes
        if enough and any(one.label < 0 for one in self.clients):
            self._cluster()

    def _cluster(self) -> None:
        """Cluster all sketches; who is in a cluster stays there, the others follow their neighbours."""
        fitted, clients, answers = clone(self.clusterer), sorted(self.clients), []
        if hasattr(fitted, "relay"):
            clients = [one for one in clients if one.node in self.post.nodes()]
            if len(clients) < self.min_available_nodes:
                return  # too few to compare a late-comer with: once more in the next round
            relayed = fitted.relay([one.sketch for one in clients])
            asked = {
                one.node: Letter(relayed, {"place": i}) for i, one in enumerate(clients)
            }
            told = self._ask(f"query.{self.query}", asked)
            if len(told) < len(asked):
                return  # somebody left: once more in the next round
            answers = [told[one.node].arrays for one in clients]
        labels = fitted.fit_sketches([one.sketch for one in clients], answers).labels_
        for one, label in zip(
            clients,
            placed(np.array([one.label for one in clients]), labels),
            strict=True,
        ):
            one.label = int(label)
        new = 1 + max(one.label for one in self.clients) - len(self.models)
        self.models = np.vstack([self.models, np.repeat(self.initial, new, axis=0)])
        log.info("Clusters by client: %s", {one.number: one.label for one in clients})
        self._save()

    def _round(self) -> bool:
        """Train once; False, and nothing has changed, if too few models came that can be used."""
        round, used, theta = len(self.history) + 1, [], []
        here, told = self._serve("train", round)
        for one in [one for one in here if one.node in told]:
            model, notes = told[one.node].arrays.get("theta"), told[one.node].notes
            if np.shape(model) != self.initial[0].shape or not np.isfinite(model).all():
                log.warning(
                    "Client %d sent no theta of %d finite numbers: left out.",
                    one.number,
                    self.initial.size,
                )
                continue
            one.samples = max(
                int(np.nan_to_num(notes.get("num-examples", 0), posinf=0)), 0
            )  # without them no weight
            used, theta = [*used, one], [*theta, model]
        if len(used) < self.min_train_nodes or not any(one.samples for one in used):
            return False
        share = np.array(
            [
                [one.samples * (one.label == row) for one in used]
                for row in range(len(self.models))
            ]
        )
        self.models = mix_groups(
            share, np.stack(theta).astype(self.initial.dtype), self.models
        )
        loss = float(
            np.mean([told[one.node].notes.get("loss", np.nan) for one in used])
        )
        self.history.append(
            {
                "round": round,
                "nodes": len(here),
                "clients": [one.number for one in used],
                "loss": loss,
            }
        )
        log.info("Round %d: models of %d nodes out of %d", round, len(used), len(here))
        self._save()
        return True

    def _here(self) -> list[Client]:
        there = self.post.nodes()
        return sorted(
            one
            for one in self.clients
            if one.node in there and (one.label >= 0 or not len(self.models))
        )

    def _serve(self, kind: str, round: int) -> tuple[list[Client], dict[int, Letter]]:
        here = self._here()
        asked = {
            one.node: Letter({"theta": self.models[one.label]}, {"server-round": round})
            for one in here
        }
        return here, self._ask(kind, asked, str(round))

    def _ask(
        self, kind: str, letters: dict[int, Letter], group: str = ""
    ) -> dict[int, Letter]:
        told = self.post.ask(kind, letters, self.timeout, group) if letters else {}
        for node in [node for node, answer in told.items() if isinstance(answer, str)]:
            log.warning("Node %d failed at %s: %s", node, kind, told.pop(node))
        for one in self.clients:
            one.bytes_down += _size(letters, one.node)
            setattr(
                one,
                up := "bytes_sketch" if "." in kind else "bytes_up",
                getattr(one, up) + _size(told, one.node),
            )
        return told

    def _save(self) -> None:
        if self.checkpoint:
            clients = [
                vars(one) | {"sketch": sorted(one.sketch)} for one in self.clients
            ]
            about = json.dumps(
                {"settings": self.settings, "history": self.history, "clients": clients}
            )
            arrays = {
                f"{one.number}/{name}": array
                for one in self.clients
                for name, array in one.sketch.items()
            }
            write_atomically(
                self.checkpoint,
                lambda file: np.savez(file, about=about, models=self.models, **arrays),
            )

    def _load(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as file:
                about, models = json.loads(str(file["about"])), file["models"]
                for one in about["clients"]:
                    one["sketch"] = {
                        name: file[f"{one['number']}/{name}"] for name in one["sketch"]
                    }
        except Exception as error:  # a damaged zip raises many types; whatever it is, the remedy is the same
            raise FltnbError(
                f"Checkpoint {path} is damaged ({error}): delete it to begin anew."
            ) from error
        if about["settings"] != self.settings:
            raise FltnbError(
                f"Checkpoint {path} is of other settings: delete it, or name another file."
            )
        self.clients, self.history, self.models = (
            [Client(**one) for one in about["clients"]],
            about["history"],
            models,
        )
        log.info("Going on after round %d, from %s", len(self.history), path)


class Post:
    """Letters to nodes and their answers, through Flower's ``Grid``."""

    def __init__(self, grid):
        self.grid, self.app = grid, flwr_app()

    def nodes(self) -> list[int]:
        """Return who is connected; Flower takes about a minute to notice that a node is gone."""
        return sorted(self.grid.get_node_ids())

    def ask(
        self, kind: str, letters: dict[int, Letter], timeout: float, group: str
    ) -> dict[int, Letter | str]:
        """Send, and return answers, or texts of errors, by node; wait for nobody who is gone, nor longer than so."""
        due, told, make = time.monotonic() + timeout, {}, self.app.Message
        made = [
            make(_content(self.app, to), node, kind, ttl=timeout, group_id=group)
            for node, to in letters.items()
        ]
        waiting = dict(
            zip(self.grid.push_messages(made), letters, strict=False)
        )  # Flower may refuse to send
        while waiting and time.monotonic() < due:
            with suppress(
                Exception
            ):  # of Flower's transport, such as a database that is busy: it may go by
                for reply in self.grid.pull_messages(
                    [message for message in waiting if message]
                ):
                    told[waiting.pop(reply.metadata.reply_to_message_id)] = _read(reply)
                there = set(self.nodes())
                waiting = {
                    message: node
                    for message, node in waiting.items()
                    if message and node in there
                }
            time.sleep(PAUSE if waiting else 0)
        return told


def flwr_app():
    """Return the module ``flwr.app``; FltnbError says how to install it."""
    try:
        return importlib.import_module("flwr.app")
    except ImportError as error:
        raise FltnbError(
            "Flower is not installed: type make flower, or pip install 'fltnb[flower]'."
        ) from error


def _content(app, letter: Letter):
    arrays = app.ArrayRecord(
        {name: app.Array(np.asarray(array)) for name, array in letter.arrays.items()}
    )
    return app.RecordDict({"arrays": arrays, "config": app.ConfigRecord(letter.notes)})


def _read(message) -> Letter | str:
    if message.has_error():
        return message.error.reason
    try:
        arrays = {
            name: a.numpy()
            for record in message.content.array_records.values()
            for name, a in record.items()
        }
    except (TypeError, ValueError) as error:
        return f"its arrays cannot be read ({error})"
    records = [
        *message.content.config_records.values(),
        *message.content.metric_records.values(),
    ]
    return Letter(
        arrays, {name: value for record in records for name, value in record.items()}
    )


def _size(letters: dict[int, Letter], node: int) -> int:
    return sketch_bytes(letters[node].arrays) if node in letters else 0
