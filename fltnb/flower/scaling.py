"""A common scale for all nodes, from sums that they send: no row leaves a node.

No node can standardise alone, since its mean and deviation differ from the others'. So
the server asks for sums of every column, merges them, and sends back the mean and
deviation of all rows. A node keeps these in Flower's state and uses them for its
sketch, in training and in evaluation.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ..arrays import as_array, as_float64
from ..clustering.base import sketch_bytes
from ..errors import FltnbError
from .letters import Answers, Letter, client_of, flwr_app, letter_in, number_in, packed

log = logging.getLogger("flwr")
STATE = "scaling"  # name of the record in Flower's state
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
        ``scale`` is 1 for a column whose values are all equal.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> scaling = fl.flower.Scaling(mean=np.array([10.0]), scale=np.array([2.0]))
    >>> scaling.transform([[10], [14]]).tolist()
    [[0.0], [2.0]]

    Two nodes, one with the rows 1 and 3, one with the row 8, get the scale of all three
    rows, with the mean 4:

    >>> sums = [fl.flower.scaling.sums_of([[1], [3]]), fl.flower.scaling.sums_of([[8]])]
    >>> agreed = Scaling.merged(sums)
    >>> agreed.mean.tolist(), agreed.scale.round(6).tolist()
    ([4.0], [2.94392])
    """

    mean: np.ndarray
    scale: np.ndarray

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """Return standardised rows (n, D), float32; missing values (NaN) stay missing.

        Raises FltnbError if the number of columns differs.
        """
        rows = columns_of(rows)
        if rows.shape[1] != len(self.mean):
            raise FltnbError(
                f"The rows have {rows.shape[1]} columns, but the scale has "
                f"{len(self.mean)}: give every node the same columns."
            )
        return ((rows - self.mean) / self.scale).astype(np.float32)

    @classmethod
    def merged(cls, sums: Sequence[Sums]) -> Self:
        """Return the result of scikit-learn's ``StandardScaler`` on all rows.

        ``sums``: what each node sent, as :func:`sums_of` returns it. With n_j rows of
        mean m_j and sum of squared distances s_j at node j, and m the mean of all n
        rows, the variance is the sum of s_j + n_j (m_j - m)^2, divided by n.
        """
        columns = []
        for part in PARTS:
            columns.append(np.array([one[part] for one in sums]))
        count, mean, rest, squares = columns  # (nodes, D) each
        n = count.sum(axis=0)
        if not n.all():
            empty = np.flatnonzero(n == 0).tolist()
            raise FltnbError(
                f"No node has a number in the columns {empty} (counted from 0): leave "
                "them out on all nodes."
            )
        # Distances from a central point, so that 1.7e9 + 3 keeps its 3.
        middle = (count * mean).sum(axis=0) / n
        gap = mean - middle + rest
        shift = (count * gap).sum(axis=0) / n
        variance = (squares + count * (gap - shift) ** 2).sum(axis=0) / n
        centre = middle + shift
        # scikit-learn's rule: a deviation that may be a rounding error counts as none.
        rounding = n * EPSILON * variance + (n * centre * EPSILON) ** 2
        scale = np.where(variance <= rounding, 1.0, np.sqrt(variance))
        return cls(centre, scale)


def columns_of(rows: Any) -> np.ndarray:
    """Return a node's rows as float64 (n, D), or refuse them (FltnbError).

    Missing values may be there, as NaN; infinite ones would make every sum infinite.
    """
    rows = as_array(rows, "Rows to scale")
    if rows.ndim and not len(rows):
        raise FltnbError("There are no rows to scale: leave this node out.")
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise FltnbError(
            f"Rows to scale must be numbers (n, D), got {rows.dtype} {rows.shape}: "
            "give a table's columns, or flattened samples, x.reshape(len(x), -1)."
        )
    rows = as_float64(rows, "Rows to scale")
    if np.isinf(rows).any():
        raise FltnbError("Rows to scale hold infinite values: replace them first.")
    return rows


def sums_of(rows: Any) -> Sums:
    """Return the sums that a node sends of its rows (n, D); NaN values do not count.

    Returns
    -------
    dict
        For each column, (D,) float64: ``count`` of its numbers; ``mean``; ``rest``, the
        rounding error of that mean; ``squares``, the sum of squared distances from the
        mean. With plain sums, 1.7e9 + small numbers would cancel.

    Examples
    --------
    >>> sums = sums_of([[1.0, np.nan], [3.0, np.nan]])
    >>> [sums[part].tolist() for part in ("count", "mean", "squares")]
    [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]
    """
    rows = columns_of(rows)
    known = ~np.isnan(rows)
    count = known.sum(axis=0).astype(np.float64)
    per = np.maximum(count, 1)  # a column of gaps has the mean 0
    mean = np.where(known, rows, 0).sum(axis=0) / per
    apart = np.where(known, rows - mean, 0)
    rest = apart.sum(axis=0) / per
    from_mean = np.where(known, apart - rest, 0)
    squares = (from_mean**2).sum(axis=0)
    return {"count": count, "mean": mean, "rest": rest, "squares": squares}


def scaling_query(rows: Callable[[Any], Any]) -> Callable:
    """Return the function with which a ``ClientApp`` answers queries for a scale.

    At the first query the node sends the sums of its columns (:func:`sums_of`). Then
    the server sends mean and deviation, which :func:`scaling_of` returns from then on.

    Parameters
    ----------
    rows : callable
        Maps Flower's ``Context`` to this node's training rows (n, D), unscaled.

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
    """Return the scale of all nodes that the server sent.

    Raises FltnbError if there is none.

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
    """Whether a clusterer adds noise to its sketches, to protect the samples."""
    return getattr(clusterer, "epsilon", None) is not None


def reveals(what: str, sent: Mapping[str, np.ndarray], held: float) -> str:
    """Return a warning if a node sends as many numbers as it holds, else "".

    Parameters
    ----------
    what : str
        Name of the message in the warning.
    sent : dict of arrays
        Names that begin with ``_`` are not sent.
    held : int
        Rows times columns of the node.

    Examples
    --------
    A node with a single row of three numbers sends their means, which are the row:

    >>> sums = sums_of([[1, 2, 3]])
    >>> print(reveals("set of sums", sums, held=3)[:32])
    set of sums has 12 numbers, no f
    """
    numbers = 0
    for name, one in sent.items():
        if not name.startswith("_"):
            numbers += np.size(one)
    if numbers < held:
        return ""
    return (
        f"{what} has {numbers} numbers, no fewer than its samples, {held}: anybody who "
        "reads them may know these samples."
    )


@dataclass
class Agreement:
    """The server's side: the sums received, the scale, and the nodes that know it.

    It has two steps. Nodes send sums until ``needed`` clients have sent usable ones;
    then the scale is fixed and sent to all, also to nodes that come later. It does not
    change any more, since models that were trained on one scale are wrong on another.

    Parameters
    ----------
    query : str
        Name under which the nodes' apps registered :func:`scaling_query`.
    needed : int
        Number of nodes whose sums give the scale; later nodes get the same scale.
    ask : callable
        ``ask(kind, letters)`` sends letters to nodes and returns their answers.

    Attributes
    ----------
    scaling : Scaling, or None before the agreement
    told : set of int
        Nodes that have confirmed the scale.
    sent : dict
        Node -> its letter with sums, for all usable ones.
    """

    query: str
    needed: int
    ask: Ask
    scaling: Scaling | None = None
    told: set[int] = field(default_factory=set)
    sent: dict[int, Letter] = field(default_factory=dict)

    def meet(self, nodes: Iterable[int]) -> dict[int, str]:
        """Send a common scale to all nodes that answer.

        Returns node -> why it cannot take part, for those with such a reason.
        """
        faults = {}
        if self.scaling is None:
            new = [node for node in nodes if node not in self.sent]
            faults.update(self._collect(new))
        if self.scaling is not None:
            waiting = []
            for node in nodes:
                if node not in self.told and node not in faults:
                    waiting.append(node)
            faults.update(self._tell(waiting))
        return faults

    def _collect(self, nodes: Sequence[int]) -> dict[int, str]:
        """Ask for sums, and merge them when there are enough.

        Returns node -> why its sums cannot be used, for those with such a reason.
        """
        asked = dict.fromkeys(nodes, Letter({}, {}))
        answers = self.ask(f"query.{self.query}", asked)
        self.sent.update(answers)
        widths = []
        for letter in self.sent.values():
            mean = letter.arrays.get("mean", 0)
            widths.append(np.size(mean))
        # the most common number is right
        usual = max(widths, key=widths.count, default=0)
        faults = {}
        by_client: dict[Any, Any] = {}  # a client with two nodes counts once
        for node, letter in self.sent.items():
            fault = _fault(letter.arrays, usual)
            if fault:
                faults[node] = fault
                continue
            client = str(letter.notes.get("client", node))
            by_client.setdefault(client, letter.arrays)
        for node in faults:
            del self.sent[node]
        if len(by_client) >= self.needed:
            self.scaling = Scaling.merged(list(by_client.values()))
        return faults

    def _tell(self, nodes: Sequence[int]) -> dict[int, str]:
        """Send mean and deviation to the nodes that do not have them.

        Returns node -> why it cannot use them, for those with such a reason.
        """
        scaling = self.scaling
        assert scaling is not None  # agreed on
        mean = scaling.mean
        letter = Letter({"mean": mean, "scale": scaling.scale}, {})
        asked = dict.fromkeys(nodes, letter)
        answers = self.ask(f"query.{self.query}", asked)
        faults = {}
        for node, answer in answers.items():
            columns = answer.notes.get("columns")
            if columns == len(mean):
                self.told.add(node)
            else:
                faults[node] = f"has {columns} columns, others {len(mean)}"
        return faults

    def bytes_of(self, node: int) -> int:
        """Return how many bytes of sums a node has sent."""
        if node not in self.sent:
            return 0
        return sketch_bytes(self.sent[node].arrays)

    def warning_of(self, node: int) -> str:
        """Return a warning if a node's sums may reveal its rows, else ""."""
        if node not in self.sent:
            return ""
        sums, notes = self.sent[node]
        return reveals("set of sums", sums, number_in(notes, "held", np.inf))


def _fault(sums: Sums, usual: int) -> str:
    """Return the reason why sums cannot be used, or "".

    ``usual``: the number of columns that most nodes have.
    """
    if not set(PARTS) <= set(sums):
        return "sent no sums of its columns"
    shapes = {np.shape(sums[part]) for part in PARTS}
    if shapes != {(usual,)}:
        return f"sent sums of {np.size(sums['mean'])} columns, most others {usual}"
    numbers = all(sums[part].dtype.kind in "fiu" for part in PARTS)
    finite = numbers and all(np.isfinite(sums[part]).all() for part in PARTS)
    if finite:  # so large a mean would leave no scale for anybody
        with np.errstate(over="ignore"):
            finite = np.isfinite(sums["count"] * sums["mean"].astype(float) ** 2).all()
    if not finite or (sums["count"] < 0).any() or (sums["squares"] < 0).any():
        return "sent sums that are not finite numbers"
    return ""
