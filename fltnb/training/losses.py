"""What local training minimises: losses by name, or your own function.

Federations of classes are trained with ``cross_entropy`` (one output per class) or, for
two classes, with ``binary`` (one output, positive for class 1); federations of numbers
(``targets="values"``) with ``squared_error``. A function takes ``(outputs, targets)``:
outputs (b, K) and classes int64 (b,), or outputs (b,) and numbers (b,). It returns the
loss of each sample (b,), or their mean.

Class weights are no part of a loss: they are factors on the losses of samples, which
training alone applies. A test reports the plain loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from ..errors import FltnbError, choose, first_line
from ..federations import Federation
from ..owncode import code_of, printed

if TYPE_CHECKING:
    from .contract import TrainSpec

NAMES = ("cross_entropy", "binary", "squared_error")
Loss = str | Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def losses(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the losses of a batch.

    Parameters
    ----------
    loss : str or function
    outputs : tensor, shape (b, K)
    targets : tensor, shape (b,)
        Classes int64, or numbers.

    Returns
    -------
    tensor, shape (b,) or ()
        The loss of each sample; their mean if a function gives that.
    """
    if loss == "cross_entropy":
        return functional.cross_entropy(outputs, targets, reduction="none")
    if loss == "binary":
        targets = targets.to(outputs.dtype)
        positive = outputs[:, 0]  # the logit of class 1
        return functional.binary_cross_entropy_with_logits(
            positive, targets, reduction="none"
        )
    if targets.is_floating_point():
        outputs = outputs[:, 0]
        targets = targets.to(outputs.dtype)
    if loss == "squared_error":
        return (outputs - targets) ** 2
    assert callable(loss)
    return loss(outputs, targets)


def weighted(found: torch.Tensor, factors: torch.Tensor | None) -> torch.Tensor:
    """Return losses (b,) times the factors (b,) on them, if there are any.

    ``found``: what :func:`losses` gave. FltnbError: it is only a mean, which cannot be
    weighted.
    """
    if factors is None:
        return found
    if not found.ndim:
        raise FltnbError(
            "This training weights samples, and your loss returns a mean: let it "
            "return the loss of each sample."
        )
    return found * factors


def summed(found: torch.Tensor, n: int) -> float:
    """Return the summed loss of a batch of n samples, added up in float64.

    ``found``: what :func:`losses` gave: the losses (n,), or their mean ().
    """
    found = found.detach().cpu().double()
    if found.ndim == 0:
        return float(found * n)
    return float(found.sum())


def predicted(outputs: torch.Tensor) -> torch.Tensor:
    """Return the classes (b,) that outputs (b, K) say; of one output, its sign."""
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0).long()
    return outputs.argmax(1)


def answered(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the number of right classes; of numbers, the summed squared error.

    ``outputs`` (b, K), ``targets`` (b,). Squares are added up in float64.
    """
    if targets.is_floating_point():
        errors = (outputs[:, 0] - targets).cpu().double()
        return float((errors**2).sum())
    right = predicted(outputs) == targets
    return int(right.sum())


def n_outputs(fed: Federation, loss: Loss) -> int:
    """Return how many outputs a network needs: one for each class, or one in all."""
    return 1 if loss == "binary" else fed.n_classes


def checked_loss(loss: Any) -> Loss:
    """Return a loss, or refuse what is none."""
    if callable(loss):
        return loss
    return choose(loss, NAMES, "loss")


def checked_weights(weights: Sequence[float] | None) -> tuple[float, ...] | None:
    """Return class weights as a tuple, or refuse them."""
    if weights is None:
        return None
    try:
        numbers = tuple(np.asarray(weights, dtype=float).ravel().tolist())
    except (TypeError, ValueError):  # such as "balanced", or a dict
        numbers = ()
    if not numbers or min(numbers) < 0 or not math.isfinite(sum(numbers)):
        raise FltnbError(
            "class_weights must be a list with a number of at least 0 for each class, "
            f"not {weights!r}."
        )
    return numbers


def check(fed: Federation, spec: TrainSpec) -> None:
    """Refuse a loss or class weights that do not go with a federation's targets."""
    loss = spec.loss
    values = fed.targets == "values"
    if values and loss in ("cross_entropy", "binary"):
        raise FltnbError(
            f"{fed.name} has numbers to predict, and {loss!r} needs classes: give "
            "loss='squared_error'."
        )
    if not values and loss == "squared_error":
        raise FltnbError(
            f"{fed.name} has classes, and 'squared_error' needs numbers to predict: "
            "build the federation with targets='values', or give another loss."
        )
    if loss == "binary" and fed.n_classes != 2:
        raise FltnbError(
            f"The loss 'binary' is for two classes, and {fed.name} has "
            f"{fed.n_classes}: give loss='cross_entropy'."
        )
    weights = spec.class_weights
    if weights is not None and values:
        raise FltnbError(
            f"{fed.name} has numbers to predict, and no classes: leave class_weights "
            "out."
        )
    if weights is not None and len(weights) != fed.n_classes:
        raise FltnbError(
            f"There are {len(weights)} class_weights, and {fed.name} has "
            f"{fed.n_classes} classes: give one for each class."
        )
    if callable(loss):
        found = _tried(loss, fed)
        if weights is not None:
            weighted(found, torch.ones(2))


def _tried(loss: Callable, fed: Federation) -> torch.Tensor:
    """Return what your own loss says of two samples, or refuse it."""
    outputs = torch.zeros(2, fed.n_classes, requires_grad=True)
    two = fed.train[0][[0, -1]]  # the first client's first and last sample
    targets = torch.from_numpy(fed.labels[two])
    name = getattr(loss, "__name__", type(loss).__name__)
    try:
        found = losses(loss, outputs, targets)
    except Exception as error:  # a user's own function may fail in any way
        raise FltnbError(
            f"The loss {name} cannot take outputs of two samples and their targets "
            f"({type(error).__name__}: {first_line(error)})."
        ) from error
    fits = isinstance(found, torch.Tensor) and found.shape in ((), (2,))
    if not fits or not found.requires_grad:
        raise FltnbError(
            f"The loss {name} must return one number for each sample, or their mean, "
            "computed from the outputs with torch."
        )
    return found


def settings(spec: TrainSpec) -> dict[str, Any]:
    """Return what differs from plain cross entropy, JSON-able, for a run's key."""
    found: dict[str, Any] = {}
    loss = spec.loss
    if callable(loss):
        found["loss"] = {"function": repr_of(loss), "code": code_of(loss)}
    elif loss != "cross_entropy":
        found["loss"] = loss
    if spec.class_weights is not None:
        found["class_weights"] = list(spec.class_weights)
    return found


def repr_of(loss: Loss) -> str:
    """Return a loss's name, or a module as torch prints it."""
    if isinstance(loss, partial):
        return repr_of(loss.func)
    if isinstance(loss, (str, torch.nn.Module)):
        return printed(loss)
    return getattr(loss, "__qualname__", type(loss).__qualname__)
