"""One scale for all nodes, from sums that they send: no row leaves a node.

Nobody can standardise alone, since each node's mean and deviation are its own. So the
server asks for the sums of every column, merges them, and sends the mean and deviation
of all rows back. A node keeps these in Flower's state and uses them for its sketch, in
training and in tests.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ..arrays import as_array, as_float64
from ..clustering.base import sketch_bytes
from ..errors import FltnbError
from .letters import Answers, Letter, client_of, flwr_app, letter_in, packed

log = logging.getLogger("flwr")
STATE = "scaling"  # what Flower's state calls the record
PARTS = ("count", "mean", "rest", "squares")
EPSILON = np.finfo(np.float64).eps
Sums = dict[str, np.ndarray]
Ask = Callable[[str, Answers], Answers]


@dataclass(frozen=True)
class Scaling:
    """Mean and deviation of every column, over the rows of all nodes.

    Attributes
    ----------
    mean, scale : ndarray (D,) float64
        ``scale`` is 1 for a column whose values are all the same.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> scaling = fl.flower.Scaling(mean=np.array([10.0]), scale=np.array([2.0]))
    >>> scaling.transform([[10], [14]]).tolist()
    [[0.0], [2.0]]
    """

    mean: np.ndarray
    scale: np.ndarray

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """Return standardised rows (n, D), float32; a gap (NaN) stays one.

        FltnbError: there is another number of columns.
        """
        rows = columns_of(rows)
        if rows.shape[1] != len(self.mean):
            raise FltnbError(
                f"The rows have {rows.shape[1]} columns, and the scale of all nodes "
                f"{len(self.mean)}: give every node the same columns."
            )
        return ((rows - self.mean) / self.scale).astype(np.float32)

    @classmethod
    def merged(cls, sums: Sequence[Sums]) -> Self:
        """Return what scikit-learn's ``StandardScaler`` finds in all rows together."""
        count, mean, rest, squares = (
            np.array([one[part] for one in sums]) for part in PARTS
        )
        n = count.sum(axis=0)
        if not n.all():
            columns = np.flatnonzero(n == 0).tolist()
            raise FltnbError(f"No node has a number in the columns {columns}.")
        # Distances from a point in the middle, so that 1.7e9 + 3 keeps its 3.
        middle = (count * mean).sum(axis=0) / n
        gap = mean - middle + rest
        shift = (count * gap).sum(axis=0) / n
        variance = (squares + count * (gap - shift) ** 2).sum(axis=0) / n
        centre = middle + shift
        # The rule of scikit-learn: what may be rounding is no deviation.
        rounding = n * EPSILON * variance + (n * centre * EPSILON) ** 2
        scale = np.where(variance <= rounding, 1.0, np.sqrt(variance))
        return cls(centre, scale)


def columns_of(rows: Any) -> np.ndarray:
    """Return a node's rows as float64 (n, D), or refuse them (FltnbError)."""
    rows = as_array(rows, "Rows to scale")
    if rows.ndim != 2 or rows.dtype.kind not in "fiub" or not len(rows):
        raise FltnbError(
            f"Rows to scale must be numbers (n, D), got {rows.dtype} {rows.shape}: "
            "give a table's columns, or flattened samples, x.reshape(len(x), -1)."
        )
    rows = as_float64(rows, "Rows to scale")
    if np.isinf(rows).any():
        raise FltnbError("Rows to scale hold infinite values: replace them first.")
    return rows


def sums_of(rows: Any) -> Sums:
    """Return what a node sends about its rows (n, D); gaps (NaN) do not count.

    Returns
    -------
    dict
        Of each column, (D,) float64: ``count`` of its numbers; ``mean``; ``rest``, what
        rounding took from that mean; ``squares``, the sum of squared distances from the
        mean. With the sum alone, 1.7e9 + small numbers would cancel.
    """
    rows = columns_of(rows)
    known = ~np.isnan(rows)
    count = known.sum(axis=0).astype(np.float64)
    per = np.maximum(count, 1)
    mean = np.where(known, rows, 0).sum(axis=0) / per
    apart = np.where(known, rows - mean, 0)
    rest = apart.sum(axis=0) / per
    squares = (np.where(known, apart - rest, 0) ** 2).sum(axis=0)
    return {"count": count, "mean": mean, "rest": rest, "squares": squares}


def scaling_query(rows: Callable[[Any], Any]) -> Callable:
    """Return the answer of a ``ClientApp`` to the server's query for a common scale.

    Asked the first time, the node sends the sums of its columns (:func:`sums_of`). Then
    the server sends mean and deviation, which :func:`scaling_of` gives from then on.

    Parameters
    ----------
    rows : callable
        Turns Flower's ``Context`` into this node's training rows (n, D), unscaled.

    Examples
    --------
    In a ``ClientApp``, and ``ClusteredFedAvg(..., scaling="scaling")`` on the server::

        app.query("scaling")(fl.flower.scaling_query(rows))


        def embed(context):
            return fl.flower.scaling_of(context).transform(rows(context))
    """

    def answer(message: Any, context: Any) -> Any:
        told = letter_in(message)
        mine = columns_of(rows(context))
        about = {"client": client_of(context), "columns": mine.shape[1]}
        reply = Letter({}, about)
        if told.arrays:
            context.state[STATE] = packed(told)["arrays"]
        else:
            sums = sums_of(mine)
            reply = Letter(sums, about)
            about["held"] = mine.size
            said = reveals("set of sums", sums, mine.size)
            if said:
                log.warning("This node's %s", said)
        return flwr_app().Message(packed(reply), reply_to=message)

    return answer


def scaling_of(context: Any) -> Scaling:
    """Return the scale of all nodes, which the server sent; FltnbError: it did not.

    Examples
    --------
    >>> import fltnb as fl
    >>> from types import SimpleNamespace
    >>> context = SimpleNamespace(state={})  # a node that has just started
    >>> try:
    ...     fl.flower.scaling_of(context)
    ... except fl.FltnbError as error:
    ...     print(str(error).partition(":")[0])
    The server has sent no scale yet
    """
    if STATE not in context.state:
        raise FltnbError(
            "The server has sent no scale yet: give ClusteredFedAvg the name under "
            'which the app registered scaling_query, scaling="scaling".'
        )
    kept = context.state[STATE]
    return Scaling(kept["mean"].numpy(), kept["scale"].numpy())


def is_private(clusterer: Any) -> bool:
    """Whether a clusterer's sketches carry noise against being read back."""
    return getattr(clusterer, "epsilon", None) is not None


def reveals(what: str, sent: Mapping[str, np.ndarray], held: int) -> str:
    """Say that a node sends more numbers than it holds, or return an empty string.

    Parameters
    ----------
    what : str
        What is sent.
    sent : dict of arrays
        Names that begin with ``_`` are not sent.
    held : int
        Rows times columns of the node.
    """
    numbers = sum(np.size(one) for name, one in sent.items() if name[0] != "_")
    if numbers < held:
        return ""
    return (
        f"{what} has {numbers} numbers, no fewer than its samples, {held}: whoever "
        "reads that may know these samples."
    )


@dataclass
class Agreement:
    """The server's side: who sent its sums, what came of them, who knows it.

    Parameters
    ----------
    query : str
        Name under which the nodes' apps registered :func:`scaling_query`.
    needed : int
        Nodes whose sums the scale is made of; who joins later gets the same scale.
    ask : callable
        Sends letters to nodes, ``ask(kind, letters)``, and returns their answers.
    """

    query: str
    needed: int
    ask: Ask
    scaling: Scaling | None = None
    told: set[int] = field(default_factory=set)
    sent: dict[int, Letter] = field(default_factory=dict)

    def meet(self, nodes: Iterable[int]) -> dict[int, str]:
        """Bring nodes to one scale, as far as they answer.

        Returns node -> why it cannot take part, for those with such a reason.
        """
        faults = {}
        if self.scaling is None:
            faults = self._collect([node for node in nodes if node not in self.sent])
        if self.scaling is not None:
            known = self.told | set(faults)
            faults |= self._tell([node for node in nodes if node not in known])
        return faults

    def _collect(self, nodes: Sequence[int]) -> dict[int, str]:
        """Ask for sums; merge them once there are enough."""
        asked = dict.fromkeys(nodes, Letter({}, {}))
        self.sent |= self.ask(f"query.{self.query}", asked)
        widths = [
            np.size(letter.arrays.get("mean", 0)) for letter in self.sent.values()
        ]
        usual = max(widths, key=widths.count, default=0)  # what most have is right
        faults = {}
        by_client: dict[Any, Any] = {}  # a client with two nodes counts once
        for node, letter in self.sent.items():
            fault = _fault(letter.arrays, usual)
            if fault:
                faults[node] = fault
            else:
                by_client.setdefault(letter.notes.get("client", node), letter.arrays)
        for node in faults:
            del self.sent[node]
        if len(by_client) >= self.needed:
            self.scaling = Scaling.merged(list(by_client.values()))
        return faults

    def _tell(self, nodes: Sequence[int]) -> dict[int, str]:
        """Send mean and deviation to nodes that do not know them."""
        scaling = self.scaling
        assert scaling is not None  # agreed on
        found = {"mean": scaling.mean, "scale": scaling.scale}
        asked = dict.fromkeys(nodes, Letter(found, {}))
        faults = {}
        for node, letter in self.ask(f"query.{self.query}", asked).items():
            columns = letter.notes.get("columns")
            if columns != len(scaling.mean):
                faults[node] = f"has {columns} columns, others {len(found['mean'])}"
            else:
                self.told.add(node)
        return faults

    def bytes_of(self, node: int) -> int:
        """Return how many bytes of sums a node has sent."""
        return sketch_bytes(self.sent[node].arrays) if node in self.sent else 0

    def warning_of(self, node: int) -> str:
        """Say that a node's sums may tell its rows, or return an empty string."""
        if node not in self.sent:
            return ""
        sums, notes = self.sent[node]
        return reveals("set of sums", sums, notes.get("held", np.inf))


def _fault(sums: Sums, usual: int) -> str:
    """Say why sums cannot be used, or return an empty string."""
    if not set(PARTS) <= set(sums):
        return "sent no sums of its columns"
    shapes = {np.shape(sums[part]) for part in PARTS}
    if shapes != {(usual,)}:
        return f"sent sums of {np.size(sums['mean'])} columns, most others {usual}"
    values = np.array([sums[part] for part in PARTS])
    if not np.isfinite(values).all() or (values[[0, 3]] < 0).any():
        return "sent sums that are no finite numbers"
    return ""
