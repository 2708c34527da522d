"""What every training back end takes, gives back and refuses, and the random draws they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError, choose
from ..models import Model
from ..randomness import stream

if TYPE_CHECKING:
    from ..federations import Federation

SPLITS = ("train", "val", "test", "probe")


@dataclass(frozen=True)
class TrainSpec:
    """Local training of one client in one round.

    Parameters
    ----------
    local_epochs : int
        Passes over the client's training samples (E).
    batch_size : int
        Samples per step (B); the last batch of an epoch may be shorter and keeps its true mean.
    lr : float
        Step size of SGD.
    momentum, weight_decay : float
        As in ``torch.optim.SGD``; the momentum buffer starts at zero for every client and round.
    proximal : float
        mu of FedProx: adds ``mu * (theta - theta_start)`` to the gradient.
    seed : int
        Seed of the sample orders and dropout masks.
    dtype : str
        "float32" or "float64".

    Raises
    ------
    FltnbError
        A value outside its range.
    """

    local_epochs: int = 1
    batch_size: int = 10
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    seed: int = 0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        choose(self.dtype, ("float32", "float64"), "dtype")
        for name in ("local_epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise FltnbError(f"{name} must be a whole number of at least 1, not {value!r}.")
        for name in ("lr", "weight_decay", "proximal"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and value >= 0 and np.isfinite(value)):
                raise FltnbError(f"{name} must be a number of at least 0, not {value!r}.")
        if not (isinstance(self.momentum, Real) and 0 <= self.momentum < 1):
            raise FltnbError(f"momentum must lie in [0, 1), not {self.momentum!r}.")
        if not isinstance(self.seed, Integral) or self.seed < 0:
            raise FltnbError(f"seed must be a whole number of at least 0, not {self.seed!r}.")


@dataclass(frozen=True)
class Trained:
    """Local training of n clients.

    Attributes
    ----------
    theta : ndarray, shape (n, P)
        Trained models, in the order of the clients asked for.
    loss : ndarray of float64, shape (n,)
        Mean training loss over the last local epoch, each sample under the model it met; NaN or inf: diverged.
    """

    theta: np.ndarray
    loss: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    """Test of L (model, client) pairs.

    Attributes
    ----------
    correct, total : ndarray of int64, shape (L,)
        Samples classified correctly, and samples.
    loss : ndarray of float64, shape (L,)
        Mean cross-entropy; NaN where there are no samples.
    """

    correct: np.ndarray
    total: np.ndarray
    loss: np.ndarray


def order(spec: TrainSpec, round: int, client: int, epoch: int, n: int) -> np.ndarray:
    """Draw the sample order of one client and local epoch: positions 0 to n - 1, int64."""
    return stream(spec.seed, "order", round, client, epoch).permutation(n)


def keep_masks(spec: TrainSpec, model: Model, round: int, client: int, epoch: int, n: int) -> list[np.ndarray]:
    """Draw the dropout keep-masks of one client and local epoch.

    Returns
    -------
    list of ndarray of bool, shape (n, ...)
        One per dropout layer; row t belongs to the t-th sample of the epoch's order.
    """
    return [
        stream(spec.seed, "dropout", round, client, epoch, layer).random((n, *shape), dtype=np.float32) >= p
        for layer, (shape, p) in enumerate(model.dropout)
    ]


def validate(fed: Federation, model: Model) -> None:
    """Refuse a model that does not fit the federation.

    Raises
    ------
    FltnbError
        Labels outside the model's classes, or another input shape.
    """
    if tuple(model.input_shape) != tuple(fed.input_shape):
        raise FltnbError(
            f"Model {model.name!r} was made for inputs of shape {tuple(model.input_shape)}, but the federation's are"
            f" {tuple(fed.input_shape)}: make it with models.make(name, fed.input_shape, fed.n_classes)."
        )
    used = np.unique(np.concatenate([index for split in SPLITS for index in getattr(fed, split)]))
    labels = fed.labels[used]
    if labels.min() < 0 or labels.max() >= model.n_classes:
        raise FltnbError(
            f"The labels run from {labels.min()} to {labels.max()}, but model {model.name!r} has {model.n_classes}"
            f" outputs: make it with n_classes of at least {labels.max() + 1}."
        )


class Engine(ABC):
    """Trains and tests models of a federation's clients; a context manager.

    Parameters
    ----------
    fed : Federation
    model : Model
    spec : TrainSpec
    """

    backend: str

    def __init__(self, fed: Federation, model: Model, spec: TrainSpec) -> None:
        self.fed, self.model, self.spec = fed, model, spec

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027
        """Release workers, where there are any; calling it twice does no harm."""

    def train(
        self,
        theta: np.ndarray,
        rows: Sequence[int],
        clients: Sequence[int],
        round: int,
        sample_weights: Sequence[np.ndarray] | None = None,
    ) -> Trained:
        """Train clients, each from its row of ``theta``.

        Parameters
        ----------
        theta : ndarray, shape (K, P)
            Models; not modified.
        rows, clients : sequences of n integers
            Client ``clients[j]`` starts from ``theta[rows[j]]``.
        round : int
            Key of the random draws.
        sample_weights : sequence of n arrays, shapes (n_i,), optional
            Factors on the samples' losses, in the order of the client's training samples; the mean is still taken
            over the batch size.

        Returns
        -------
        Trained

        Raises
        ------
        FltnbError
            Shapes or indices that do not fit.
        """
        theta, rows, clients = self._check(theta, rows, clients)
        sizes = [len(self.fed.train[i]) for i in clients]
        if 0 in sizes:
            raise FltnbError(f"Client {clients[sizes.index(0)]} has no training samples: leave it out.")
        if sample_weights is not None:
            sample_weights = [np.asarray(weights, dtype=self.spec.dtype) for weights in sample_weights]
            if [weights.shape for weights in sample_weights] != [(n,) for n in sizes]:
                raise FltnbError("sample_weights needs, for each client, one number per training sample.")
        return self._train(theta, rows, clients, int(round), sample_weights)

    def evaluate(
        self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int], split: str = "test"
    ) -> Evaluation:
        """Test models on clients' samples.

        Parameters
        ----------
        theta : ndarray, shape (K, P)
            Models; not modified.
        rows, clients : sequences of L integers
            Pair j tests ``theta[rows[j]]`` on the samples of ``clients[j]``. Pairs that share the model and hold
            the same samples are computed once.
        split : {"test", "val", "train", "probe"}

        Returns
        -------
        Evaluation

        Raises
        ------
        FltnbError
            Unknown split, or shapes or indices that do not fit.
        """
        choose(split, SPLITS, "split")
        theta, rows, clients = self._check(theta, rows, clients)
        return self._evaluate(theta, rows, clients, split)

    def _check(self, theta, rows, clients) -> tuple[np.ndarray, list[int], list[int]]:
        theta = np.ascontiguousarray(theta, dtype=self.spec.dtype)
        rows, clients = ([int(value) for value in np.asarray(values)] for values in (rows, clients))
        if theta.ndim != 2 or theta.shape[1] != self.model.n_parameters:
            raise FltnbError(
                f"theta must have shape (K, {self.model.n_parameters}) for model {self.model.name!r}, not"
                f" {theta.shape}."
            )
        if len(rows) != len(clients):
            raise FltnbError(f"There are {len(rows)} rows for {len(clients)} clients: give one row per client.")
        for values, limit, what in ((rows, len(theta), "row"), (clients, self.fed.n_clients, "client")):
            if values and not (min(values) >= 0 and max(values) < limit):
                raise FltnbError(
                    f"There is no {what} {max(values) if max(values) >= limit else min(values)}: they run from 0 to"
                    f" {limit - 1}."
                )
        return theta, rows, clients

    @abstractmethod
    def _train(self, theta, rows, clients, round, sample_weights) -> Trained: ...

    @abstractmethod
    def _evaluate(self, theta, rows, clients, split) -> Evaluation: ...
