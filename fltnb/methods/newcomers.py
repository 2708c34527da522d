"""Shared code of methods that place newcomers by a first training, or by losses."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..aggregate import mix
from ..errors import UnstableError
from .modelspace import with_rows
from .state import AState, State

if TYPE_CHECKING:
    from ..training import Engine, Trained, Variation


def placed(state: AState, new: np.ndarray, clusters: np.ndarray | int) -> AState:
    """Return the state with newcomers (n,) in clusters (n,), the rows of models."""
    row = with_rows(state.row, new, clusters)
    labels = state.labels
    if labels is not None:
        labels = with_rows(labels, new, clusters)
    return replace(state, row=row, labels=labels)


def common_model(state: State, new: np.ndarray) -> np.ndarray:
    """Return the mean model (1, P), by samples, of all but the newcomers (n,)."""
    known = np.ones(len(state.row), dtype=bool)
    known[new] = False
    rows = state.row[known]
    share = np.bincount(rows, state.weights[known], minlength=len(state.models))
    return mix(share[None] / share.sum(), state.models)


def first_training(
    theta: np.ndarray,
    clients: np.ndarray,
    round: int,
    engine: "Engine",
    how: "Variation | None" = None,
) -> np.ndarray:
    """Return the models (n, P) that clients (n,) train from the model ``theta`` (1, P).

    Raises UnstableError if a training diverged.
    """
    options: dict[str, Any] = {} if how is None else {"how": how}
    rows = np.zeros_like(clients)
    found = engine.train(theta, rows, clients, round, **options)
    lost = ~np.isfinite(found.theta).all(axis=1)
    if lost.any():
        raise UnstableError(
            f"The first training of client {clients[lost][0]} diverged: choose a "
            "smaller lr."
        )
    return found.theta


def finite(trained: "Trained") -> np.ndarray:
    """Return whether each of n trainings gave finite numbers, bool (n,)."""
    return np.isfinite(trained.loss) & np.isfinite(trained.theta).all(axis=1)


def counted(state: AState, n_models: int) -> AState:
    """Return the state with ``n_models`` more models sent in both directions."""
    before = np.zeros(2, dtype=np.int64) if state.sent is None else state.sent
    return replace(state, sent=before + n_models * state.models.shape[1])


def nearest_direction(updates: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return which direction (K, d) has the largest cosine with each update (n, d).

    Indices (n,). The cosine with a direction of zeros is 0.
    """
    directions = directions.astype(np.float64)
    norm = np.linalg.norm(directions, axis=1)
    norm = np.where(norm > 0, norm, np.inf)
    return (updates.astype(np.float64) @ directions.T / norm).argmax(axis=1)
