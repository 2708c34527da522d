"""The contents of messages between server and nodes, in Flower's message API."""

import math
import time
from contextlib import suppress
from operator import index
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..errors import FltnbError

PAUSE = 0.5  # seconds between two checks for answers


class Letter(NamedTuple):
    """The contents of one message.

    Attributes
    ----------
    arrays : dict
        Name -> array: a sketch, or a model as ``theta``.
    notes : dict
        Name -> number, text or a list of these.
    """

    arrays: dict[str, np.ndarray]
    notes: dict[str, Any]


Answers = dict[int, Letter]
"""Id of the receiving or sending node -> letter."""


def flwr_app() -> ModuleType:
    """Return the module ``flwr.app``; FltnbError says how to install it."""
    try:
        import flwr.app
    except ImportError as error:
        raise FltnbError(
            "Flower is not installed: run `make flower` in a clone, or "
            "pip install 'fltnb[flower]'."
        ) from error
    return flwr.app


def client_of(context: Any) -> str:
    """Return a node's number among the clients: ``partition-id``, else Flower's id.

    FltnbError is raised if it is no whole number of at least 0.
    """
    given = context.node_config.get("partition-id", context.node_id)
    number = whole_number(given)
    if number is None or number < 0:
        raise FltnbError(
            f"partition-id must be a whole number of at least 0, not {given!r}: "
            "correct this node's --node-config."
        )
    return str(number)


def whole_number(value: Any) -> int | None:
    """Return a whole number, which may be given as text; None for anything else.

    Examples
    --------
    >>> whole_number("3"), whole_number(3), whole_number(3.7), whole_number("north")
    (3, 3, None, None)
    """
    try:
        return int(value) if isinstance(value, str) else index(value)
    except (TypeError, ValueError):
        return None


def number_in(notes: dict[str, Any], name: str, missing: float) -> float:
    """Return a finite number that a node sent under this name, else ``missing``.

    Examples
    --------
    >>> number_in({"loss": 0.5}, "loss", 0.0), number_in({"loss": [1]}, "loss", 0.0)
    (0.5, 0.0)
    """
    value = notes.get(name)
    if isinstance(value, (int, float)) and math.isfinite(value):
        return value
    return missing


def packed(letter: Letter) -> Any:
    """Return a letter as Flower's ``RecordDict`` with records "arrays" and "config"."""
    app = flwr_app()
    arrays = app.ArrayRecord()
    for name, array in letter.arrays.items():
        arrays[name] = app.Array(np.asarray(array))
    notes = app.ConfigRecord(letter.notes)
    return app.RecordDict({"arrays": arrays, "config": notes})


def unpacked(message: Any) -> Letter | str:
    """Return the letter in a Flower message, or the reason why there is none.

    The notes are the entries of its records of configuration and of metrics.
    """
    if message.has_error():
        return message.error.reason

    letter = Letter({}, {})
    content = message.content
    try:
        for record in content.array_records.values():
            for name, array in record.items():
                letter.arrays[name] = array.numpy()
    except (TypeError, ValueError) as error:
        return f"its arrays cannot be read ({error})"

    for record in content.config_records.values():
        letter.notes.update(record)
    for record in content.metric_records.values():
        letter.notes.update(record)
    return letter


def letter_in(message: Any) -> Letter:
    """Return the letter in a message to a node, or refuse an unreadable message."""
    found = unpacked(message)
    if isinstance(found, str):
        raise FltnbError(
            f"The server sent a message that this node cannot use ({found}): run the "
            "same version of fltnb on server and nodes."
        )
    return found


class Post:
    """Letters to nodes and their answers, through Flower's ``Grid``.

    Parameters
    ----------
    grid : Grid
        The argument that Flower passes to a ``ServerApp``.
    """

    def __init__(self, grid: Any):
        self.grid = grid
        self.app = flwr_app()

    def nodes(self) -> list[int]:
        """Return the connected nodes.

        Flower notices after about a minute that a node is gone.
        """
        return sorted(self.grid.get_node_ids())

    def ask(
        self, kind: str, letters: Answers, timeout: float, group: str
    ) -> dict[int, Letter | str]:
        """Send letters and return the answers, by node.

        There is no waiting for nodes that are gone.

        Parameters
        ----------
        kind : str
            Flower's message type, such as "train" or "query.sketch".
        letters : dict
            Node -> its letter.
        timeout : float
            Seconds within which nodes must answer.
        group : str
            A label that Flower shows with the messages, such as the round.

        Returns
        -------
        dict
            Node -> its answer, or the text of its error. Nodes without an answer are
            left out.
        """
        due = time.monotonic() + timeout
        messages = []
        for node, letter in letters.items():
            message = self.app.Message(
                packed(letter), node, kind, ttl=timeout, group_id=group
            )
            messages.append(message)
        # an id is None where Flower refuses to send
        ids = self.grid.push_messages(messages)
        waiting = dict(zip(ids, letters, strict=False))

        answers = {}
        while waiting and time.monotonic() < due:
            # Flower's transport may fail briefly, for example when a database is busy
            with suppress(Exception):
                sent = [one for one in waiting if one]
                for reply in self.grid.pull_messages(sent):
                    node = waiting.pop(reply.metadata.reply_to_message_id)
                    answers[node] = unpacked(reply)

                connected = set(self.nodes())
                for one, node in list(waiting.items()):
                    if not one or node not in connected:
                        del waiting[one]
            if waiting:
                time.sleep(PAUSE)
        return answers
