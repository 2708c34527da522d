"""What every training back end takes, gives back and refuses.

The random draws of a client's local training are also here, so that all back ends
share them.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch

from ..errors import FltnbError, choose, unwritten
from ..federations import SPLITS, Federation
from ..models import Model
from ..randomness import stream
from ..settings import Count, Natural, NonNegative, Within, checked
from . import losses
from .evaluation import Evaluation, Plan, Task, score
from .losses import checked_loss, checked_weights

Ints = Sequence[int] | np.ndarray
Arrays = Sequence[np.ndarray]


class UnavailableError(RuntimeError):
    """A back end is not available here or for this network; ``serial`` always is."""


@dataclass(frozen=True)
class TrainSpec:
    """Settings of the local training of one client in one round.

    Parameters
    ----------
    local_epochs : int
        Number E of passes over the client's training samples.
    batch_size : int
        Samples per step, B. The last batch of an epoch may be shorter; its loss is
        the mean over its true size.
    lr : float
        Step size of SGD.
    momentum, weight_decay : float
        As in ``torch.optim.SGD``. The momentum buffer starts at zero for every client
        and round.
    proximal : float
        mu of FedProx: adds ``mu * (theta - theta_start)`` to the gradient.
    loss : {"cross_entropy", "binary", "squared_error"} or function
        "binary": two classes with one output. "squared_error": numbers to predict. A
        function takes outputs and targets of a batch and returns the loss of each
        sample, or their mean; see ``fltnb.training.losses``.
    class_weights : sequence of K numbers, optional
        Factors for the training losses of each class's samples. The mean is taken over
        the batch size, not over the sum of the weights.
    seed : int
        Seed of the sample orders and dropout masks.
    dtype : {"float32", "float64"}
        Type of models and inputs.
    precision : {"float32", "bfloat16"}
        Number type of convolutions, forward and backward. "bfloat16" is faster on
        processors and GPUs that support it. Weights, optimiser, dense layers and losses
        stay in ``dtype``, which must then be float32. In torchvision's networks torch's
        autocast decides what runs in bfloat16.

    Raises
    ------
    FltnbError
        A value is outside its range.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.training.TrainSpec(local_epochs=2, lr=0.1).batch_size
    10
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
    loss: Any = "cross_entropy"
    class_weights: Any = None

    def __post_init__(self) -> None:
        for name, value in checked(TrainSpec, vars(self), "training").items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "loss", checked_loss(self.loss))
        weights = checked_weights(self.class_weights)
        object.__setattr__(self, "class_weights", weights)

        if self.precision == "bfloat16" and self.dtype != "float32":
            raise FltnbError(
                "precision 'bfloat16' needs dtype 'float32', "
                f"not {self.dtype!r}: leave one of them out."
            )

    @property
    def kernels(self) -> torch.dtype:
        """The torch type in which convolutions compute."""
        if self.precision == "bfloat16":
            return torch.bfloat16
        return getattr(torch, self.dtype)


@dataclass(frozen=True)
class Trained:
    """Result of the local training of n clients, in the order of the request.

    Attributes
    ----------
    theta : ndarray, shape (n, P)
        Trained models.
    loss : ndarray of float64, shape (n,)
        Mean training loss over the last local epoch, of each sample under the model at
        its step. It is NaN or inf if training diverged.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> fl.training.Trained(
    ...     theta=np.zeros((2, 5)), loss=np.array([0.3, 0.2])
    ... ).loss.tolist()
    [0.3, 0.2]
    """

    theta: np.ndarray
    loss: np.ndarray


@dataclass(frozen=True, eq=False)
class Variation:
    """What one call of :meth:`Engine.train` does differently from the run's settings.

    Parameters
    ----------
    epochs : int, optional
        Passes over the samples, instead of ``local_epochs``.
    anchors : ndarray, optional
        Models to which training is pulled, instead of its start: a row for each
        requested client, (n, P).
    pull : float
        Weight mu of the pull to ``anchors``, instead of ``proximal``.
    frozen : {"head", "body"}, optional
        Trained parameters that do not change: the last layer, or all others.

    Examples
    --------
    >>> import fltnb as fl
    >>> longer = fl.training.Variation(epochs=3)
    >>> longer.applied(fl.training.TrainSpec(local_epochs=1)).local_epochs
    3
    """

    epochs: Count | None = None
    anchors: np.ndarray | None = None
    pull: NonNegative = 0.0
    frozen: Literal["head", "body"] | None = None

    def __post_init__(self) -> None:
        for name, value in checked(Variation, vars(self), "a call of train").items():
            object.__setattr__(self, name, value)
        if self.pull and self.anchors is None:
            raise FltnbError(
                "pull needs anchors, the models towards which it pulls: give both."
            )

    def of(self, positions: Ints | int) -> "Variation":
        """Return the same variation for the clients at some positions."""
        if self.anchors is None:
            return self
        return replace(self, anchors=self.anchors[positions])

    def applied(self, spec: TrainSpec) -> TrainSpec:
        """Return the settings ``spec`` with this variation."""
        epochs = spec.local_epochs if self.epochs is None else self.epochs
        proximal = spec.proximal if self.anchors is None else self.pull
        if (epochs, proximal) == (spec.local_epochs, spec.proximal):
            return spec
        return replace(spec, local_epochs=epochs, proximal=proximal)


USUAL = Variation()


class Work(NamedTuple):
    """What :meth:`Engine.train` was asked for, checked and in the engine's types.

    Attributes
    ----------
    theta : ndarray, shape (K, P)
        Models; only read.
    rows, clients : lists of n int
        Client ``clients[j]`` starts from ``theta[rows[j]]``. One client may come
        several times, from several models.
    round : int
        Key of the random draws.
    weights : list of n ndarrays or None
        Factors (n_i,) on the losses of each client's training samples, in the order
        in which the federation lists them; None: all are 1.
    how : Variation
        Its anchors, if there are any, have a row for each of the n clients.
    """

    theta: np.ndarray
    rows: list[int]
    clients: list[int]
    round: int
    weights: list[np.ndarray | None]
    how: Variation


def order(spec: TrainSpec, round: int, client: int, epoch: int, n: int) -> np.ndarray:
    """Draw a client's sample order in a local epoch: positions 0 to n - 1, int64.

    The draw depends on these keys alone, not on what was drawn before. So a client
    meets its samples in the same order in any back end, alone or among others, and
    after a run was interrupted and taken up again.
    """
    return stream(spec.seed, "order", round, client, epoch).permutation(n)


def keep_masks(
    spec: TrainSpec, model: Model, round: int, client: int, epoch: int, n: int
) -> list[np.ndarray]:
    """Draw the dropout masks of one client and local epoch.

    Returns
    -------
    list of bool arrays, shapes (n, ...)
        One for each dropout layer, True if an activation is kept. Row t belongs to
        the t-th sample of the epoch's order.
    """
    masks = []
    for layer, (shape, p) in enumerate(model.dropout):
        draws = stream(spec.seed, "dropout", round, client, epoch, layer)
        uniform = draws.random((n, *shape), dtype=np.float32)
        masks.append(uniform >= p)
    return masks


def longest_first(sizes: Sequence[int]) -> list[int]:
    """Return positions by size, the largest first; equal ones keep their order.

    >>> longest_first([20, 35, 20])
    [1, 0, 2]
    """
    return sorted(range(len(sizes)), key=lambda position: -sizes[position])


def by_kernels(model: Model, spec: TrainSpec) -> bool:
    """Whether the hand-written steps can train a model; else it is autograd."""
    return bool(model.layers) and spec.loss == "cross_entropy"


def validate(fed: Federation, model: Model, spec: TrainSpec) -> None:
    """Refuse a model or a loss that does not fit a federation (FltnbError)."""
    losses.check(fed, spec)
    needed = tuple(model.input_shape)
    given = tuple(fed.input_shape)
    # an own network may need samples in another form
    fits = math.prod(needed) == math.prod(given)
    if not fits or (model.layers and needed != given):
        raise FltnbError(
            f"Model {model.name!r} is for inputs of shape {needed}, but the "
            f"federation's are {given}: make it with "
            "models.make(name, fed.input_shape, fed.n_classes)."
        )

    wanted = losses.n_outputs(fed, spec.loss)
    if wanted == 1 and model.n_classes != 1:
        raise FltnbError(
            f"Model {model.name!r} has {model.n_classes} outputs, and one is needed: "
            "make it with n_classes of 1."
        )
    if wanted == 1:
        return

    samples = []
    for split in SPLITS:
        samples.extend(getattr(fed, split))
    labels = fed.labels[np.concatenate(samples)]
    lowest = labels.min()
    highest = labels.max()
    if lowest < 0 or highest >= model.n_classes:
        raise FltnbError(
            f"The labels run from {lowest} to {highest}, but model {model.name!r} has "
            f"{model.n_classes} outputs: make it with n_classes of at least "
            f"{highest + 1}."
        )


class Engine(AbstractContextManager):
    """Trains and tests models of a federation's clients, in a ``with`` statement.

    :func:`fltnb.training.make_engine` makes one.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> net = fl.models.make("mlp32", fed.input_shape, fed.n_classes)
    >>> theta = net.init(seed=0)[None]
    >>> spec = fl.training.TrainSpec(lr=0.1)
    >>> with fl.training.make_engine(fed, net, spec, backend="serial") as engine:
    ...     tested = engine.evaluate(theta, rows=[0, 0, 0], clients=[0, 1, 2])
    >>> tested.correct.shape
    (3,)
    """

    backend: str

    def __init__(
        self,
        fed: Federation,
        model: Model,
        spec: TrainSpec,
        device: str | torch.device = "cpu",
    ) -> None:
        self.fed = fed
        self.model = model
        self.spec = spec
        self.device = torch.device(device)
        self.dtype = getattr(torch, spec.dtype)

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
        how: Variation = USUAL,
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
            Factors for the losses of each client's training samples. The mean is still
            taken over the batch size.
        how : Variation
            What this call does differently from the run's settings.

        Returns
        -------
        Trained
            Models (n, P) and losses (n,), in the order of ``clients``.

        Raises
        ------
        FltnbError
            An argument does not fit, or a client has no training samples.
        """
        work = self.checked(theta, rows, clients, round, sample_weights, how)
        n = len(work.rows)
        models = np.empty((n, self.model.n_parameters), dtype=self.spec.dtype)
        done = Trained(models, np.empty(n))
        self._train(work, done)
        return done

    def checked(
        self,
        theta: np.ndarray,
        rows: Ints,
        clients: Ints,
        round: int,
        sample_weights: Arrays | None = None,
        how: Variation = USUAL,
    ) -> Work:
        """Return the arguments of :meth:`train` in the form that back ends take.

        Raises FltnbError if an argument does not fit, or a client has no training
        samples.
        """
        theta, rows, clients = self.check(theta, rows, clients)
        sizes = [len(self.fed.train[client]) for client in clients]
        if 0 in sizes:
            empty = clients[sizes.index(0)]
            raise FltnbError(f"Client {empty} has no training samples: leave it out.")

        weights = self._weights(clients, sample_weights)
        how = self._checked_anchors(how, len(rows))
        return Work(theta, rows, clients, int(round), weights, how)

    def _checked_anchors(self, how: Variation, n: int) -> Variation:
        """Return the variation with anchors (n, P) in the engine's type."""
        if how.anchors is None:
            return how
        anchors = np.ascontiguousarray(how.anchors, dtype=self.spec.dtype)
        wanted = (n, self.model.n_parameters)
        if anchors.shape != wanted:
            raise FltnbError(
                f"anchors must have shape {wanted}, a model for each requested client, "
                f"not {anchors.shape}."
            )
        return replace(how, anchors=anchors)

    def _weights(
        self, clients: list[int], given: Arrays | None
    ) -> list[np.ndarray | None]:
        """Return factors on the losses of each client's training samples, if any.

        They are the weight of a sample's class times the sample's own. With class
        weights (1, 3), labels 0, 1, 1 and sample weights 2, 1, 0 they are 2, 3, 0.
        """
        held = [self.fed.train[client] for client in clients]
        factors: list[np.ndarray | None] = [None] * len(clients)
        if given is not None:
            own = [np.asarray(one, dtype=self.spec.dtype) for one in given]
            shapes = [one.shape for one in own]
            one_each = [(len(index),) for index in held]
            if shapes != one_each:
                raise FltnbError(
                    "sample_weights needs, for each client, one number per training "
                    "sample: give a list of arrays (n_i,), one for each client."
                )
            factors = list(own)
        if self.spec.class_weights is None:
            return factors

        of_class = np.array(self.spec.class_weights, dtype=self.spec.dtype)
        for j, index in enumerate(held):
            of_samples = of_class[self.fed.labels[index]]
            own_factors = factors[j]
            if own_factors is not None:
                of_samples = of_samples * own_factors
            factors[j] = of_samples
        return factors

    def longest_first(self, clients: list[int]) -> list[int]:
        """Return the positions in ``clients``, those with most samples first."""
        return longest_first([len(self.fed.train[client]) for client in clients])

    def evaluate(
        self, theta: np.ndarray, rows: Ints, clients: Ints, split: str = "test"
    ) -> Evaluation:
        """Test models on clients' samples.

        Pairs with the same model and the same samples are computed once.

        Parameters
        ----------
        theta : ndarray, shape (K, P)
            Models; not modified.
        rows, clients : sequences of L integers
            ``theta[rows[j]]`` is tested on the samples of ``clients[j]``.
        split : {"train", "val", "test", "probe"}

        Returns
        -------
        Evaluation
            Results (L,), in the order of ``clients``.

        Raises
        ------
        FltnbError
            The split is unknown, or shapes or indices do not fit.
        """
        choose(split, SPLITS, "split")
        theta, rows, clients = self.check(theta, rows, clients)
        values = self.fed.targets == "values"
        plan = Plan(rows, clients, getattr(self.fed, split), values)
        return plan.gather(self._scores(theta, plan.tasks, split))

    def check(self, theta, rows, clients) -> tuple[np.ndarray, list[int], list[int]]:
        """Return models, rows and clients in the engine's types.

        Raises
        ------
        FltnbError
            They do not fit the model, the federation or each other.
        """
        theta = np.ascontiguousarray(theta, dtype=self.spec.dtype)
        if theta.ndim != 2 or theta.shape[1] != self.model.n_parameters:
            raise FltnbError(
                f"theta must have shape (K, {self.model.n_parameters}) for model "
                f"{self.model.name!r}, not {theta.shape}."
            )

        if len(rows) != len(clients):
            raise FltnbError(
                f"There are {len(rows)} rows for {len(clients)} clients: give one row "
                "per client."
            )
        rows = _integers(rows, len(theta), "row")
        clients = _integers(clients, self.fed.n_clients, "client")
        return theta, rows, clients

    def _train(self, work: Work, done: Trained) -> None:
        """Train as :meth:`train` says, and fill the rows of ``done``."""
        raise unwritten(self, "_train(self, work, done)")

    def _scores(
        self, theta: np.ndarray, tasks: list[Task], split: str
    ) -> list[tuple[float, float]]:
        """Return what :func:`fltnb.training.evaluation.score` does of each task.

        ``theta`` (K, P). The tasks of one model follow each other, so each model is
        made ready once.
        """
        parts = getattr(self.fed, split)
        scores = []
        with self._kernels(), torch.inference_mode():
            for row, same_row in groupby(tasks, lambda task: task.row):
                outputs = self._served(theta[row])
                for task in same_row:
                    index = parts[task.client][task.start : task.stop]
                    x, y = self._batch(index)
                    scores.append(score(self.spec.loss, outputs, x, y))
        return scores

    def _kernels(self) -> AbstractContextManager:
        """Return the context, threads and kernels, in which this back end computes."""
        raise unwritten(self, "_kernels(self)")

    def _served(self, theta: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return one model (P,) as a function from inputs to logits."""
        raise unwritten(self, "_served(self, theta)")

    def _batch(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and labels of some samples, on the device."""
        raise unwritten(self, "_batch(self, index)")


def _integers(values: Ints, limit: int, what: str) -> list[int]:
    """Return indices as Python's integers, or refuse one outside 0 to limit - 1.

    A negative index would count from the end without an error.
    """
    integers = [int(value) for value in np.asarray(values)]
    for value in integers:
        if not 0 <= value < limit:
            raise FltnbError(
                f"There is no {what} {value}: they run from 0 to {limit - 1}."
            )
    return integers
