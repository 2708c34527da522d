"""What soft methods measure sample by sample, where an engine only gives means over a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import log_softmax, softmax

from ..errors import FltnbError

if TYPE_CHECKING:
    from ..training import Engine, Evaluation

SLICE = 1000  # samples per forward pass
Split = Literal["train", "val"]


def check_validation(fed, who: str, other: str = "") -> None:
    """Refuse a federation in which some client has no validation samples; ``other``: another way to mend it."""
    if empty := [i for i, own in enumerate(fed.val) if not len(own)]:
        mend = "build the federation with some (val_fraction, or held_out)"
        raise FltnbError(
            f"{who} looks at validation samples, and client {empty[0]} has none: {mend}{other}."
        )


def sample_losses(
    engine: Engine, theta: np.ndarray, clients: np.ndarray, split: str = "train"
) -> list[np.ndarray]:
    """Cross-entropy of every sample of clients (n,) under each model (K, P): n arrays (K, n_i), float64."""
    out = []
    for client in clients:
        index = getattr(engine.fed, split)[client]
        answers = log_softmax(
            outputs(engine, engine.model.predict, theta, index), axis=2
        )
        out.append(-answers[:, np.arange(len(index)), engine.fed.labels[index]])
    return out


def batch_means(losses: np.ndarray, size: int) -> np.ndarray:
    """Means (K, batches) of the losses (K, n) over consecutive batches; the last one may be shorter."""
    starts = np.arange(0, losses.shape[1], size)
    return np.add.reduceat(losses, starts, axis=1) / np.diff([*starts, losses.shape[1]])


def evaluate_mixture(
    engine: Engine, theta: np.ndarray, shares: np.ndarray, split: str
) -> Evaluation:
    """Test all clients with mixtures ``sum_k shares[i, k] softmax(theta_k(x))`` of models (K, P), by shares (M, K)."""
    from ..training import Evaluation
    from ..training.evaluation import same_sets

    parts = getattr(engine.fed, split)
    correct, loss = np.zeros(len(parts), dtype=np.int64), np.full(len(parts), np.nan)
    total = np.array([len(index) for index in parts], dtype=np.int64)
    first = np.array(same_sets(parts))
    for holder in np.unique(
        first
    ):  # clients that share a test set share the forward passes
        index = parts[holder]
        if not len(index):
            continue
        answers = softmax(outputs(engine, engine.model.predict, theta, index), axis=2)
        truth = engine.fed.labels[index]
        for client in np.flatnonzero(first == holder):
            mixed = np.tensordot(shares[client], answers, axes=1)
            correct[client] = (mixed.argmax(axis=1) == truth).sum()
            loss[client] = -np.log(
                np.maximum(mixed[np.arange(len(truth)), truth], np.finfo(float).tiny)
            ).mean()
    return Evaluation(correct, total, loss)


def outputs(engine: Engine, answer, theta: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return ``answer(params, x)`` (K, n, ...) of K models, float64, in the engine's threads: sums never vary."""
    import torch

    from ..models.base import threads

    device, dtype, parts = (
        getattr(engine, "device", "cpu"),
        getattr(torch, engine.spec.dtype),
        [],
    )
    models = [
        [part.to(device, dtype) for part in engine.model.unflatten(np.array(one))]
        for one in theta
    ]
    with threads(getattr(engine, "n_threads", 1)), torch.inference_mode():
        for begin in range(0, len(index), SLICE):
            x = torch.from_numpy(engine.fed.inputs(index[begin : begin + SLICE])).to(
                device, dtype
            )
            parts.append(
                torch.stack([answer(params, x) for params in models]).cpu().numpy()
            )
    return np.concatenate(parts, axis=1).astype(np.float64)
