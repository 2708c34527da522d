"""Which (model, samples) pairs have to be computed, and one slice of that work.

A clustered method serves K models to M clients that share a few test sets. Pairs with
the same model and samples are computed once. The work is cut into slices of fixed size,
so a sum does not depend on which process computed it.

Four clients of which 0 and 2 share one test set of 2,500 samples, and 1 and 3 another
of 10, all with model 5, are two distinct pairs: model 5 with the set of client 0, and
with that of client 1. The first has three slices, the second one. What these four
slices give is added up for two pairs and handed out to four clients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from .losses import Loss, answered, losses, summed

SLICE = 1000  # samples per forward pass


@dataclass(frozen=True)
class Evaluation:
    """Test results of L (model, client) pairs.

    Attributes
    ----------
    correct, total : ndarray of int64, shape (L,)
        Samples that are classified correctly (0 if numbers are predicted), and all
        samples.
    loss : ndarray of float64, shape (L,)
        Mean loss, without class weights; NaN if there are no samples.
    squared : ndarray of float64, shape (L,), optional
        Summed squared error, if numbers are predicted.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> tested = fl.training.Evaluation(np.array([8]), np.array([10]), np.array([0.3]))
    >>> fl.metrics.micro_accuracy(tested.correct, tested.total)
    80.0
    """

    correct: np.ndarray
    total: np.ndarray
    loss: np.ndarray
    squared: np.ndarray | None = None


def same_sets(indices: Sequence[np.ndarray]) -> list[int]:
    """Return for every client the first client that holds the same samples.

    The order of the samples matters, too.
    """
    by_object: dict[int, int] = {}
    by_content: dict[bytes, int] = {}
    first = []
    for client, index in enumerate(indices):
        # Clients with a common set share the object, so few sets are read.
        if id(index) not in by_object:
            by_object[id(index)] = by_content.setdefault(index.tobytes(), client)
        first.append(by_object[id(index)])
    return first


class Task(NamedTuple):
    """Samples ``start`` to ``stop`` of a client's split under one model."""

    row: int
    client: int
    start: int
    stop: int


class Plan:
    """The slices to compute for L (row, client) pairs, and the way back to the pairs.

    ``parts``: the samples of all M clients; ``values``: whether numbers are predicted.
    """

    def __init__(
        self,
        rows: list[int],
        clients: list[int],
        parts: Sequence[np.ndarray],
        values: bool = False,
    ) -> None:
        self.values = values
        first = same_sets(parts)
        holders = [first[client] for client in clients]
        pairs = np.column_stack([rows, holders]).astype(np.int64)
        distinct, positions = np.unique(pairs, axis=0, return_inverse=True)

        # Positions of pairs and slices among the distinct pairs: in the example above
        # 0, 1, 0, 1 and 0, 0, 0, 1. (NumPy 2.0 returned positions with a second
        # dimension.)
        self._position_of_pair = positions.reshape(-1)
        self._position_of_task: list[int] = []
        self._total: list[int] = []
        self.tasks: list[Task] = []
        for position, (row, client) in enumerate(distinct.tolist()):
            n = len(parts[client])
            self._total.append(n)
            for start in range(0, n, SLICE):
                stop = min(start + SLICE, n)
                self.tasks.append(Task(row, client, start, stop))
                self._position_of_task.append(position)

    def gather(self, scores: Sequence[tuple[float, float]]) -> Evaluation:
        """Add up what the slices give, and hand it out to the pairs.

        ``scores``: (answered, summed loss) of each slice, in the order of ``tasks``.
        """
        sums = np.zeros((len(self._total), 2))
        for position, values in zip(self._position_of_task, scores, strict=True):
            sums[position] += values

        pairs = self._position_of_pair
        total = np.array(self._total, dtype=np.int64)[pairs]
        found, loss = sums[pairs].T
        of_sample = loss / np.maximum(total, 1)
        mean = np.where(total > 0, of_sample, np.nan)
        if self.values:
            return Evaluation(np.zeros_like(total), total, mean, found)
        return Evaluation(found.astype(np.int64), total, mean)


def score(
    loss: Loss,
    outputs: Callable[[torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    y: torch.Tensor,
) -> tuple[float, float]:
    """Test a model on one slice.

    Parameters
    ----------
    loss : str or function
        See :mod:`fltnb.training.losses`.
    outputs : callable
        The model, from inputs to outputs (n, K).
    x, y : tensors
        Inputs and targets of n samples.

    Returns
    -------
    answered : int or float
        As :func:`fltnb.training.losses.answered` counts.
    loss : float
        The sum.
    """
    out = outputs(x)
    found = losses(loss, out, y)
    return answered(out, y), summed(found, len(y))
