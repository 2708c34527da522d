"""Measurements of soft methods for each sample.

An engine only gives means over a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import log_softmax, softmax

from ..errors import FltnbError

if TYPE_CHECKING:
    from ..federations import Federation
    from ..training import Engine, Evaluation
    from ..training.contract import Ints

SLICE = 1000  # samples per forward pass
Split = Literal["train", "val"]


def check_validation(fed: Federation, who: str, other: str = "") -> None:
    """Refuse a federation in which some client has no validation samples.

    ``other``: another way to fix it, for the message.
    """
    for client, own in enumerate(fed.val):
        if len(own) == 0:
            raise FltnbError(
                f"{who} looks at validation samples, and client {client} has none: "
                f"build the federation with some (val_fraction, or held_out){other}."
            )


def sample_losses(
    engine: Engine, theta: np.ndarray, clients: Ints, split: str = "train"
) -> list[np.ndarray]:
    """Return the loss of every sample of clients (n,) under each model (K, P).

    These are n arrays (K, n_i), float64.
    """
    if engine.spec.loss != "cross_entropy":
        return [_losses(engine, theta, client, split) for client in clients]
    out = []
    for client in clients:
        index = getattr(engine.fed, split)[client]
        logits = outputs(engine, engine.model.predict, theta, index)
        answers = log_softmax(logits, axis=2)
        out.append(-answers[:, np.arange(len(index)), engine.fed.labels[index]])
    return out


def _losses(engine: Engine, theta: np.ndarray, client: int, split: str) -> np.ndarray:
    """Return losses (K, n) other than cross entropy of a client's samples."""
    import torch

    from ..training.losses import losses

    index = getattr(engine.fed, split)[client]
    targets = torch.from_numpy(engine.fed.labels[index])
    answers = outputs(engine, engine.model.predict, theta, index)
    found = [losses(engine.spec.loss, one, targets) for one in torch.tensor(answers)]
    if not found[0].ndim:
        raise FltnbError(
            "A loss that returns a mean cannot be compared sample by sample: let it "
            "return the loss of each sample."
        )
    return torch.stack(found).numpy()


def batch_means(losses: np.ndarray, size: int) -> np.ndarray:
    """Means (K, batches) of the losses (K, n) over consecutive batches.

    The last batch may be shorter.
    """
    n = losses.shape[1]
    starts = np.arange(0, n, size)
    lengths = np.diff(np.append(starts, n))
    return np.add.reduceat(losses, starts, axis=1) / lengths


def evaluate_mixture(
    engine: Engine, theta: np.ndarray, shares: np.ndarray, split: str
) -> Evaluation:
    """Test all clients with mixtures ``sum_k shares[i, k] softmax(theta_k(x))``.

    ``theta`` (K, P), ``shares`` (M, K).
    """
    from ..training import Evaluation
    from ..training.evaluation import same_sets

    parts = getattr(engine.fed, split)
    total = np.array([len(index) for index in parts], dtype=np.int64)
    correct = np.zeros(len(parts), dtype=np.int64)
    loss = np.full(len(parts), np.nan)
    # clients that share a test set share the forward passes
    first = np.array(same_sets(parts))
    for holder in np.unique(first):
        index = parts[holder]
        if not len(index):
            continue
        logits = outputs(engine, engine.model.predict, theta, index)
        answers = softmax(logits, axis=2)
        truth = engine.fed.labels[index]
        for client in np.flatnonzero(first == holder):
            mixed = np.tensordot(shares[client], answers, axes=1)
            right = mixed[np.arange(len(truth)), truth]
            correct[client] = (mixed.argmax(axis=1) == truth).sum()
            loss[client] = -np.log(np.maximum(right, np.finfo(float).tiny)).mean()
    return Evaluation(correct, total, loss)


def outputs(
    engine: Engine, answer: Callable, theta: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """Return ``answer(params, x)`` of K models, (K, n, ...) float64.

    It uses as many threads as the engine, so that sums never vary.
    """
    import torch

    from ..models.base import threads

    device = getattr(engine, "device", "cpu")
    dtype = getattr(torch, engine.spec.dtype)
    models = []
    for one in theta:
        parts = engine.model.unflatten(np.array(one))
        models.append([part.to(device, dtype) for part in parts])

    out = []
    with threads(getattr(engine, "n_threads", 1)), torch.inference_mode():
        for begin in range(0, len(index), SLICE):
            inputs = engine.fed.inputs(index[begin : begin + SLICE])
            x = torch.from_numpy(inputs).to(device)
            if x.is_floating_point():  # and not tokens
                x = x.to(dtype)
            answers = torch.stack([answer(params, x) for params in models])
            out.append(answers.cpu().numpy())
    return np.concatenate(out, axis=1).astype(np.float64)
