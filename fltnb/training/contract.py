"""What every training back end takes, gives back and refuses, and the random draws they share."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal

import numpy as np
import torch

from ..errors import FltnbError, choose
from ..federations import SPLITS, Federation
from ..models import Model
from ..randomness import stream
from ..settings import Count, Natural, NonNegative, Within, checked
from .evaluation import Evaluation, Plan, Task, score

Ints, Arrays = Sequence[int], Sequence[np.ndarray]


@dataclass(frozen=True)
class TrainSpec:
    """Local training of one client in one round; a value outside its range is refused with FltnbError.

    Parameters
    ----------
    local_epochs : passes over the client's training samples (E)
    batch_size : samples per step (B); the last batch of an epoch may be shorter and keeps its true mean
    lr : step size of SGD
    momentum, weight_decay : as in ``torch.optim.SGD``; the momentum buffer starts at zero for every client and round
    proximal : mu of FedProx: adds ``mu * (theta - theta_start)`` to the gradient
    seed : seed of the sample orders and dropout masks
    dtype : of models and inputs
    precision : of convolutions, forward and backward
        "bfloat16": faster on processors and GPUs that have it; weights, optimiser, dense layers and losses stay as
        ``dtype`` says, which must be float32. Of torchvision's networks, what torch's autocast runs so.
    """

    local_epochs: Count = 1
    batch_size: Count = 10
    lr: NonNegative = 0.01
    momentum: Annotated[float, Within(high=1.0, below=True)] = 0.0
    weight_decay: NonNegative = 0.0
    proximal: NonNegative = 0.0
    seed: Natural = 0
    dtype: Literal["float32", "float64"] = "float32"
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        for name, value in checked(TrainSpec, vars(self), "training").items():
            object.__setattr__(self, name, value)
        if self.precision == "bfloat16" and self.dtype != "float32":
            raise FltnbError(
                f"precision 'bfloat16' needs dtype 'float32', not {self.dtype!r}: leave one of them out."
            )

    @property
    def kernels(self) -> torch.dtype:
        """Type that convolutions compute in."""
        return (
            torch.bfloat16
            if self.precision == "bfloat16"
            else getattr(torch, self.dtype)
        )


@dataclass(frozen=True)
class Trained:
    """Local training of n clients.

    Attributes
    ----------
    theta : ndarray, shape (n, P), trained models, in the order of the clients asked for
    loss : ndarray of float64, shape (n,)
        Mean training loss over the last local epoch, each sample under the model it met; NaN or inf: diverged.
    """

    theta: np.ndarray
    loss: np.ndarray


def order(spec: TrainSpec, round: int, client: int, epoch: int, n: int) -> np.ndarray:
    """Draw the sample order of one client and local epoch: positions 0 to n - 1, int64."""
    return stream(spec.seed, "order", round, client, epoch).permutation(n)


def keep_masks(
    spec: TrainSpec, model: Model, round: int, client: int, epoch: int, n: int
) -> list[np.ndarray]:
    """Draw the dropout keep-masks of one client and local epoch.

    One bool (n, ...) per dropout layer; row t belongs to the t-th sample of the epoch's order.
    """
    return [
        stream(spec.seed, "dropout", round, client, epoch, layer).random(
            (n, *shape), dtype=np.float32
        )
        >= p
        for layer, (shape, p) in enumerate(model.dropout)
    ]


def validate(fed: Federation, model: Model) -> None:
    """Refuse (FltnbError) a model of another input shape than the federation's, or with too few classes."""
    if tuple(model.input_shape) != tuple(fed.input_shape):
        shapes = f"{tuple(model.input_shape)}, but the federation's are {tuple(fed.input_shape)}"
        mend = "make it with models.make(name, fed.input_shape, fed.n_classes)"
        raise FltnbError(
            f"Model {model.name!r} is for inputs of shape {shapes}: {mend}."
        )
    labels = fed.labels[
        np.unique(
            np.concatenate([index for split in SPLITS for index in getattr(fed, split)])
        )
    ]
    if labels.min() < 0 or labels.max() >= model.n_classes:
        found = f"from {labels.min()} to {labels.max()}, but model {model.name!r} has {model.n_classes} outputs"
        raise FltnbError(
            f"The labels run {found}: make it with n_classes of at least {labels.max() + 1}."
        )


class Engine(AbstractContextManager):
    """Trains and tests models of a federation's clients; a context manager."""

    backend: str

    def __init__(
        self, fed: Federation, model: Model, spec: TrainSpec, device: str = "cpu"
    ) -> None:
        self.fed, self.model, self.spec = fed, model, spec
        self.device, self.dtype = torch.device(device), getattr(torch, spec.dtype)

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release workers, where there are any; calling it twice does no harm."""

    def train(
        self,
        theta: np.ndarray,
        rows: Ints,
        clients: Ints,
        round: int,
        sample_weights: Arrays | None = None,
    ) -> Trained:
        """Train clients, each from its row of ``theta``; what does not fit is refused with FltnbError.

        Parameters
        ----------
        theta : ndarray, shape (K, P), models; not modified
        rows, clients : sequences of n integers, client ``clients[j]`` starts from ``theta[rows[j]]``
        round : int, key of the random draws
        sample_weights : sequence of n arrays, shapes (n_i,), optional
            Factors on the losses of the client's training samples; the mean is still taken over the batch size.
        """
        theta, rows, clients = self.check(theta, rows, clients)
        sizes = [len(self.fed.train[i]) for i in clients]
        if 0 in sizes:
            raise FltnbError(
                f"Client {clients[sizes.index(0)]} has no training samples: leave it out."
            )
        weights = [None] * len(rows)
        if sample_weights is not None:
            weights = [np.asarray(one, dtype=self.spec.dtype) for one in sample_weights]
            if [one.shape for one in weights] != [(n,) for n in sizes]:
                raise FltnbError(
                    "sample_weights needs, for each client, one number per training sample."
                )
        done = Trained(
            np.empty((len(rows), self.model.n_parameters), dtype=theta.dtype),
            np.empty(len(rows)),
        )
        self._train(theta, rows, clients, int(round), weights, done)
        return done

    def evaluate(
        self, theta: np.ndarray, rows: Ints, clients: Ints, split: str = "test"
    ) -> Evaluation:
        """Test models ``theta[rows[j]]`` on the samples of ``clients[j]``, for L pairs j.

        Pairs that share the model and hold the same samples are computed once. ``theta`` (K, P) is not modified, an
        unknown split, shapes or indices that do not fit are refused with FltnbError.
        """
        choose(split, SPLITS, "split")
        theta, rows, clients = self.check(theta, rows, clients)
        plan = Plan(rows, clients, getattr(self.fed, split))
        return plan.gather(self._scores(theta, plan.tasks, split))

    def check(self, theta, rows, clients) -> tuple[np.ndarray, list[int], list[int]]:
        """Return models, rows and clients in the engine's types, or refuse (FltnbError) what does not fit."""
        theta = np.ascontiguousarray(theta, dtype=self.spec.dtype)
        rows, clients = (
            [int(value) for value in np.asarray(values)] for values in (rows, clients)
        )
        if theta.ndim != 2 or theta.shape[1] != self.model.n_parameters:
            wanted = f"(K, {self.model.n_parameters}) for model {self.model.name!r}"
            raise FltnbError(f"theta must have shape {wanted}, not {theta.shape}.")
        if len(rows) != len(clients):
            raise FltnbError(
                f"There are {len(rows)} rows for {len(clients)} clients: give one row per client."
            )
        for values, limit, what in (
            (rows, len(theta), "row"),
            (clients, self.fed.n_clients, "client"),
        ):
            if wrong := [value for value in values if not 0 <= value < limit]:
                raise FltnbError(
                    f"There is no {what} {wrong[0]}: they run from 0 to {limit - 1}."
                )
        return theta, rows, clients

    @abstractmethod
    def _train(self, theta, rows, clients, round, weights, done: Trained) -> None:
        """Fill ``done``; ``weights`` holds an array or None for each client."""

    def _scores(
        self, theta: np.ndarray, tasks: list[Task], split: str
    ) -> list[tuple[int, float]]:
        """Return correct predictions and summed loss of each task, taken one after the other."""
        parts, scores = getattr(self.fed, split), []
        with self._kernels(), torch.inference_mode():
            for row, own in groupby(tasks, lambda task: task.row):
                logits = self._served(theta[row])
                for _, client, start, stop in own:
                    scores.append(
                        score(logits, *self._batch(parts[client][start:stop]))
                    )
        return scores

    def _kernels(self) -> AbstractContextManager:
        """Return the context, threads and kernels, in which this back end computes."""

    def _served(self, theta: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return one model (P,) as a function from inputs to logits."""

    def _batch(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and labels of some samples, on the device."""
