"""Which (model, samples) pairs have to be computed, and one slice of that work.

A clustered method serves K models to M clients that share a few test sets: the pairs that agree in model and samples
are computed once. Work is cut into slices of fixed size, so a sum never depends on who computed what.
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
    correct, total : ndarray of int64, shape (L,), samples classified correctly, and samples
    loss : ndarray of float64, shape (L,), mean cross-entropy; NaN where there are no samples
    """

    correct: np.ndarray
    total: np.ndarray
    loss: np.ndarray


def same_sets(indices: Sequence[np.ndarray]) -> list[int]:
    """Return for every client the first client that holds the same samples in the same order."""
    by_object: dict[int, int] = {}
    by_content: dict[bytes, int] = {}
    first = []
    for client, index in enumerate(indices):
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
    """The slices to compute for L (row, client) pairs of M clients that hold ``parts``, and the way back to pairs."""

    def __init__(
        self, rows: list[int], clients: list[int], parts: Sequence[np.ndarray]
    ) -> None:
        first = same_sets(parts)
        pairs = [
            (row, first[client]) for row, client in zip(rows, clients, strict=True)
        ]
        unique = {pair: position for position, pair in enumerate(sorted(set(pairs)))}
        self._owner = np.array([unique[pair] for pair in pairs], dtype=np.int64)
        self._total = np.array(
            [len(parts[client]) for _, client in unique], dtype=np.int64
        )
        self.tasks = [
            Task(row, client, start, min(start + SLICE, len(parts[client])))
            for row, client in unique
            for start in range(0, len(parts[client]), SLICE)
        ]
        self._of_task = [unique[task.row, task.client] for task in self.tasks]

    def gather(self, scores: Sequence[tuple[int, float]]) -> Evaluation:
        """Add up the slices' (correct, summed loss), given in the order of ``tasks``."""
        total = self._total
        correct, loss = np.zeros(len(total), dtype=np.int64), np.zeros(len(total))
        for position, (hits, summed) in zip(self._of_task, scores, strict=True):
            correct[position] += hits
            loss[position] += summed
        loss = np.where(total > 0, loss / np.maximum(total, 1), np.nan)
        return Evaluation(correct[self._owner], total[self._owner], loss[self._owner])


def score(
    logits: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor
) -> tuple[int, float]:
    """Return the number of correct predictions and the summed cross-entropy of one slice."""
    out = logits(x)
    return int((out.argmax(1) == y).sum()), float(
        functional.cross_entropy(out, y, reduction="none").double().sum()
    )
