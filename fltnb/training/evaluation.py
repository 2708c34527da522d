"""Which (model, samples) pairs have to be computed, and one slice of that work.

A clustered method serves K models to M clients that share a few test sets: pairs that
agree in model and samples are computed once. Work is cut into slices of fixed size, so
a sum never depends on who computed what.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

SLICE = 1000  # samples per forward pass


@dataclass(frozen=True)
class Evaluation:
    """Test of L (model, client) pairs.

    Attributes
    ----------
    correct, total : ndarray of int64, shape (L,)
        Samples that are classified correctly, and all samples.
    loss : ndarray of float64, shape (L,)
        Mean cross-entropy; NaN where there are no samples.
    """

    correct: np.ndarray
    total: np.ndarray
    loss: np.ndarray


def same_sets(indices: Sequence[np.ndarray]) -> list[int]:
    """Return for every client the first client that holds the same samples.

    The order of the samples counts, too.
    """
    by_object: dict[int, int] = {}
    by_content: dict[bytes, int] = {}
    first = []
    for client, index in enumerate(indices):
        # Clients that share a set share the object, so few sets are read.
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

    ``parts``: the samples of all M clients.
    """

    def __init__(
        self, rows: list[int], clients: list[int], parts: Sequence[np.ndarray]
    ) -> None:
        first = same_sets(parts)
        pairs = np.zeros((len(rows), 2), dtype=np.int64)
        pairs[:, 0] = rows
        pairs[:, 1] = [first[client] for client in clients]
        distinct, positions = np.unique(pairs, axis=0, return_inverse=True)

        self._position_of_pair = positions.reshape(-1)
        self._position_of_task: list[int] = []
        self._total = np.zeros(len(distinct), dtype=np.int64)
        self.tasks: list[Task] = []
        for position, (row, client) in enumerate(distinct.tolist()):
            n = len(parts[client])
            self._total[position] = n
            for start in range(0, n, SLICE):
                self.tasks.append(Task(row, client, start, min(start + SLICE, n)))
                self._position_of_task.append(position)

    def gather(self, scores: Sequence[tuple[int, float]]) -> Evaluation:
        """Add up (correct, summed loss) of the slices, in the order of ``tasks``."""
        total = self._total
        sums = np.zeros((len(total), 2))
        for position, values in zip(self._position_of_task, scores, strict=True):
            sums[position] += values
        correct = sums[:, 0].astype(np.int64)
        loss = np.where(total > 0, sums[:, 1] / np.maximum(total, 1), np.nan)

        pairs = self._position_of_pair
        return Evaluation(correct[pairs], total[pairs], loss[pairs])


def score(
    logits: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor
) -> tuple[int, float]:
    """Return the correct predictions and the summed cross-entropy of one slice."""
    out = logits(x)
    correct = (out.argmax(1) == y).sum()
    losses = functional.cross_entropy(out, y, reduction="none")
    return int(correct), float(losses.double().sum())
