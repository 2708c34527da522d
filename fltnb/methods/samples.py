"""Losses and outputs for each sample, which soft methods need.

An engine only gives means over a client's samples.
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

    ``who`` needs them; ``other``: another way to fix it, for the message.
    """
    for client, own in enumerate(fed.val):
        if len(own) == 0:
            raise FltnbError(
                f"{who} needs validation samples, and client {client} has none: "
                f"{_with_validation(fed)}{other}."
            )


def _with_validation(fed: Federation) -> str:
    """Say how to build a federation with validation samples, by how it was built."""
    from ..federations.kinds import KINDS

    kind = fed.settings.get("kind")
    if kind in KINDS and "val_fraction" not in fed.settings:
        return (
            "build the federation with some, by fl.federations.held_out(images, "
            f'{{"kind": "{kind}", ...}}) with its options in the dict'
        )
    return "build the federation with some (val_fraction=0.1, or val=)"


def sample_losses(
    engine: Engine, theta: np.ndarray, clients: Ints, split: str = "train"
) -> list[np.ndarray]:
    """Return the loss of every sample of n clients under each of K models.

    Parameters
    ----------
    engine : Engine
        Knows samples, network and loss.
    theta : ndarray, shape (K, P)
    clients : sequence of n int
    split : {"train", "val", "test", "probe"}

    Returns
    -------
    list of n arrays (K, n_i), float64
    """
    if engine.spec.loss != "cross_entropy":
        return [_losses(engine, theta, client, split) for client in clients]
    found = []
    for client in clients:
        index = getattr(engine.fed, split)[client]
        logits = outputs(engine, engine.model.predict, theta, index)
        log = log_softmax(logits, axis=2)  # (K, n_i, classes)
        truth = engine.fed.labels[index]
        of_truth = log[:, np.arange(len(index)), truth]
        found.append(-of_truth)
    return found


def _losses(engine: Engine, theta: np.ndarray, client: int, split: str) -> np.ndarray:
    """Return losses (K, n) other than cross entropy of a client's samples.

    Raises
    ------
    FltnbError
        The loss is a mean over samples.
    """
    import torch

    from ..training.losses import losses

    index = getattr(engine.fed, split)[client]
    targets = torch.from_numpy(engine.fed.labels[index])
    answers = outputs(engine, engine.model.predict, theta, index)
    found = []
    for of_model in torch.tensor(answers):
        found.append(losses(engine.spec.loss, of_model, targets))
    if not found[0].ndim:
        raise FltnbError(
            "This method compares losses sample by sample, and your loss returns a "
            "mean: let it return the loss of each sample."
        )
    return torch.stack(found).numpy()


def batch_means(losses: np.ndarray, size: int) -> np.ndarray:
    """Return means (K, batches) of losses (K, n) over consecutive batches.

    ``size``: samples of a batch; the last one may be shorter. Of losses 1, 2, 3, 4, 5
    in batches of 2 come 1.5, 3.5, 5.
    """
    n = losses.shape[1]
    starts = np.arange(0, n, size)
    lengths = np.diff(np.append(starts, n))
    return np.add.reduceat(losses, starts, axis=1) / lengths


def evaluate_mixture(
    engine: Engine, theta: np.ndarray, shares: np.ndarray, split: str
) -> Evaluation:
    """Test all clients with mixtures ``sum_k shares[i, k] softmax(theta_k(x))``.

    Parameters
    ----------
    engine : Engine
    theta : ndarray, shape (K, P)
    shares : ndarray, shape (M, K)
        What each model counts for each client; they add up to 1.
    split : {"train", "val", "test", "probe"}
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
        answers = softmax(logits, axis=2)  # (K, n, classes)
        truth = engine.fed.labels[index]
        for client in np.flatnonzero(first == holder):
            mixed = np.tensordot(shares[client], answers, axes=1)  # (n, classes)
            told = mixed.argmax(axis=1)
            correct[client] = (told == truth).sum()
            of_truth = mixed[np.arange(len(truth)), truth]
            # a probability of 0 has no logarithm
            above_zero = np.maximum(of_truth, np.finfo(float).tiny)
            loss[client] = -np.log(above_zero).mean()
    return Evaluation(correct, total, loss)


def outputs(
    engine: Engine, answer: Callable, theta: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """Return a function's values for samples under each of K models.

    It uses as many threads as the engine, so that sums never vary.

    Parameters
    ----------
    engine : Engine
    answer : callable
        ``answer(params, x)`` for a batch x, such as ``Model.predict``.
    theta : ndarray, shape (K, P)
    index : ndarray of int, shape (n,)
        Positions of the samples.

    Returns
    -------
    ndarray of float64, shape (K, n, ...)
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
