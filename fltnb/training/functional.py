"""Many clients' own networks as one batch, by ``torch.func``: on a GPU, where they can.

``vmap`` runs one step of a client for a stack of clients. Each client has its row of
the matrix of models, its batch and its own statistics. Batches are never padded,
because an own network may combine the samples of a batch (as batch normalisation does).
Therefore clients are grouped by the size of their batch, which only differs in the last
batch of an epoch.

Some networks cannot be stacked: those with recurrent layers, random layers (dropout)
or control flow by values. Their clients train one after the other.

Of three clients with 25, 20 and 15 samples, one epoch in batches of 10, the first step
has one group of three. The second step has a group of the first two clients with
batches of 10, and the third client with its last batch of 5. The third step has only
the first client, with a batch of 5.

In shapes, ``a`` is the number of clients in a stack, m of those in a group, and B of
samples in a batch. A row of models has P numbers: first the ``n_trainable`` ones of
all parameters, which SGD moves, then the statistics of batch normalisations, which
the forward pass moves.
"""

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from ..errors import first_line
from ..models import Model
from .contract import Trained, TrainSpec, UnavailableError, Work, order
from .devices import check_room
from .gradients import Parameter, add
from .losses import losses, weighted
from .serial import SerialEngine
from .stacks import clients_at_a_time

PROBED = 2  # clients, and samples of each, of the step that is tried


class NotStackableError(UnavailableError):
    """``torch.func`` cannot run this network for several clients at a time."""


class _Batch(NamedTuple):
    """A batch of one client.

    Attributes
    ----------
    index : ndarray of int64, shape (B,)
        Positions in the pool of samples.
    weights : ndarray, shape (B,), or None
        Factors on their losses.
    last : bool
        Whether it is of the last local epoch, whose losses are reported.
    """

    index: np.ndarray  # type: ignore[assignment]  # hides the tuple's index()
    weights: Any
    last: bool


class FunctionalEngine(SerialEngine):
    """Stacked training of own networks, which are known as modules only.

    Attributes
    ----------
    trained, statistics : lists of (name, shape)
        The module's tensors in a row of models, in the row's order: those that are
        trained, then the statistics of batch normalisations.
    moving : dict of tensors by name
        Initial values that a step changes outside a row, such as counters.
        Modules count batches in them, for example. Each client has its own.
    activations : int
        Numbers of all layers' outputs for a sample, to estimate the memory.
    pool, targets : tensors (n, ...)
        All samples of the federation, and what is to be predicted, on the device.

    Raises
    ------
    NotStackableError
        A step of two clients fails; the message has the reason.
    """

    backend = "stacked"

    def __init__(
        self, fed, model: Model, spec: TrainSpec, device: str | torch.device = "cpu"
    ) -> None:
        super().__init__(fed, model, spec, device)
        self.module = self.trainer.module.train()
        names = _names(self.module)
        shapes = [(names[id(one)], one.shape) for one in self.trainer.tensors]
        n_parameters = len(self.trainer.parameters)
        self.trained = shapes[:n_parameters]
        self.statistics = shapes[n_parameters:]

        # A stack gathers batches by position, so the samples must lie on the device.
        needed = fed.images.size * self.dtype.itemsize
        what = "The federation's samples take"
        check_room(needed, self.device, what, "device 'cpu', or backend 'serial'")
        every = np.arange(len(fed.images))
        self.pool, self.targets = self.trainer.batch(every)

        self.moving = self._moving()
        self._probe()

    def _moving(self) -> dict[str, torch.Tensor]:
        """Return buffers outside a row that a step changes, such as counters.

        They are found by a forward pass, which counts activations on the way.
        """
        x = self.pool[:PROBED]
        devices = []
        if self.device.type == "cuda":
            devices.append(self.device)
        with torch.no_grad(), torch.random.fork_rng(devices):
            self.activations = _activations(self.module, self.trainer.forward, x)

        # The trainer has noted the initial value of every buffer outside a row.
        names = _names(self.module)
        moving = {}
        for one, before in self.trainer.constants:
            if not torch.equal(one, before):
                moving[names[id(one)]] = before
        return moving

    def _probe(self) -> None:
        """Try a step of two clients, and compare the statistics with a single one's.

        Both start from the same model with the same batch. It is not enough that the
        step does not fail: ``vmap`` may run a module without an error and yet leave
        other statistics than the module alone.
        """
        row = self.trainer.stored()
        index = np.arange(PROBED) % len(self.pool)
        batch = _Batch(index, None, True)
        try:
            with self._kernels():
                stack = _Stack(self, np.repeat(row[None], PROBED, axis=0))
                stack.take([batch] * PROBED)
        except Exception as error:  # an own network may fail in any way
            sentence, _, _ = first_line(error).partition(". ")
            raise self._refusal(sentence) from error

        self.trainer.load(row)
        with torch.no_grad():
            self.trainer.forward(self.pool[index])
        n = self.model.n_trainable
        together = stack.models()[:, n:]
        alone = self.trainer.stored()[n:]
        if not np.allclose(together, alone, rtol=1e-3, atol=1e-5):
            raise self._refusal("its statistics differ")

    def _refusal(self, why: str) -> NotStackableError:
        """Return the error for clients that cannot be stacked."""
        return NotStackableError(
            f"torch.func cannot stack clients of {self.model.name} ({why})."
        )

    def _train(self, work: Work, done: Trained) -> None:
        if work.how.frozen:  # a stack's parameters are one matrix: all or none change
            super()._train(work, done)
            return

        spec = work.how.applied(self.spec)
        longest = self.longest_first(work.clients)
        at_a_time = self._clients_at_a_time(spec)
        with self._kernels():
            for begin in range(0, len(longest), at_a_time):
                chosen = longest[begin : begin + at_a_time]
                self._train_stack(work, spec, chosen, done)

    def _train_stack(
        self, work: Work, spec: TrainSpec, chosen: list[int], done: Trained
    ) -> None:
        """Train the clients at some positions of ``work``, longest first."""
        rows = [work.rows[j] for j in chosen]
        stack = _Stack(self, work.theta[rows])
        stack.vary(spec.proximal, work.how.of(chosen).anchors)

        batches = []
        sizes = []
        for j in chosen:
            client = work.clients[j]
            sizes.append(len(self.fed.train[client]))
            own = self._batches(client, work.round, work.weights[j], spec.local_epochs)
            batches.append(own)
        stack.train(batches)

        done.theta[chosen] = stack.models()
        done.loss[chosen] = stack.loss.cpu().numpy() / sizes

    def _clients_at_a_time(self, spec: TrainSpec) -> int:
        """Return how many clients train together, by the memory that they take.

        It is a rough count of numbers: of models in several copies, and three for
        each activation of a batch.
        """
        copies = 4  # weights and gradients, both also gathered by size of batch
        if spec.momentum:
            copies += 1
        if spec.proximal:
            copies += 1
        numbers = copies * self.model.n_parameters
        numbers += 3 * self.spec.batch_size * self.activations
        return clients_at_a_time(numbers, self.spec, self.device)

    def _batches(
        self, client: int, round: int, weights: np.ndarray | None, epochs: int
    ) -> list[_Batch]:
        """Return the batches of a client's local epochs, in order.

        ``weights``: factors (n,) on the losses of its training samples, or None. With
        samples 7, 4 and 9, the order 2, 0, 1 and batches of 2, an epoch has the
        batches [9, 7] and [4].
        """
        mine = self.fed.train[client]  # (n,): positions in the pool
        size = self.spec.batch_size
        batches = []
        for epoch in range(epochs):
            sequence = order(self.spec, round, client, epoch, len(mine))
            last = epoch == epochs - 1
            for begin in range(0, len(mine), size):
                part = sequence[begin : begin + size]
                factors = None
                if weights is not None:
                    factors = weights[part]
                batches.append(_Batch(mine[part], factors, last))
        return batches


class _Stack:
    """Models of some clients in training, a row each, the longest training first.

    Attributes
    ----------
    trained : Parameter, (a, n_trainable)
    statistics : tensor (a, P - n_trainable)
    moving : dict of tensors (a, ...) by name
        What a step changes beside them.
    loss : float64 tensor (a,)
        Summed losses of the samples of the last local epoch.
    """

    def __init__(self, engine: FunctionalEngine, theta: np.ndarray) -> None:
        """Begin from models ``theta`` (a, P)."""
        self.engine = engine
        self.spec = engine.spec
        a = len(theta)
        n = engine.model.n_trainable
        rows = torch.tensor(theta, device=engine.device)
        self.trained = Parameter(rows[:, :n].clone(), engine.spec)
        self.statistics = rows[:, n:].clone()
        self.moving = {}
        for name, value in engine.moving.items():
            self.moving[name] = value.expand(a, *value.shape).clone()
        self.loss = torch.zeros(a, dtype=torch.float64, device=engine.device)

    def vary(self, proximal: float, anchors: np.ndarray | None) -> None:
        """Pull to other models (a, P) than the start, or with another weight.

        Statistics are not pulled: they have no gradient.
        """
        self.trained.vary(proximal)
        if anchors is not None:
            n = self.trained.value.shape[1]
            target = torch.tensor(anchors[:, :n])
            self.trained.start = target.to(self.trained.value)

    def models(self) -> np.ndarray:
        """Return the rows (a, P) as they are now."""
        rows = torch.cat([self.trained.value, self.statistics], dim=1)
        return rows.cpu().numpy()

    def train(self, batches: list[list[_Batch]]) -> None:
        """Take all steps; ``batches``: those of each client, the longest list first.

        With 3, 2 and 2 batches the first two steps are of all three clients and the
        last one of client 0. So those that still train are always the first ones.
        """
        for step in range(len(batches[0])):
            now = [own[step] for own in batches if len(own) > step]
            self.take(now)

    def take(self, batches: list[_Batch]) -> None:
        """Take a step of the first clients, a batch each.

        Those whose batches have one size are computed together. All gradients are
        there before the one call that moves the weights.
        """
        a = len(batches)  # those that still train
        sizes = np.array([len(batch.index) for batch in batches])
        gradients = torch.empty_like(self.trained.value[:a])
        for size in np.unique(sizes):
            members = np.flatnonzero(sizes == size)
            who = torch.from_numpy(members).to(self.engine.device)
            gradients[who] = self._together([batches[j] for j in members], who)
        self.trained.descend(add(gradients), a)

    def _together(self, batches: list[_Batch], who: torch.Tensor) -> torch.Tensor:
        """Return gradients (m, n_trainable) of clients whose batches have one size.

        Their statistics go on, and losses of last epochs are added up. ``who`` (m,):
        the rows of these clients. They may be 0 and 2 of three, where client 1 has a
        batch of another size: so tensors are gathered by ``who`` and scattered back.
        """
        gradients, summed, statistics, moving = self._gradients(batches, who)
        self.statistics[who] = statistics
        for name, value in moving.items():
            self.moving[name][who] = value
        last = torch.tensor([batch.last for batch in batches], device=who.device)
        self.loss[who] += torch.where(last, summed.double(), 0.0)
        return gradients

    def _gradients(
        self, batches: list[_Batch], who: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """Compute gradients of m clients, whose batches have one size.

        Parameters
        ----------
        who : int64 tensor (m,)
            The rows of these clients.

        Returns
        -------
        gradients : tensor (m, n_trainable)
        summed : tensor (m,)
            Losses, summed over a batch.
        statistics : tensor (m, P - n_trainable)
            After the step, as all that follows.
        moving : dict of tensors (m, ...) by name
        """
        engine = self.engine
        index = self._stacked([batch.index for batch in batches])  # (m, B)
        weights = None
        along_weights = None  # vmap's word for an argument that all clients share
        if batches[0].weights is not None:  # then all clients have some
            weights = self._stacked([batch.weights for batch in batches])
            along_weights = 0
        moving = {name: value[who] for name, value in self.moving.items()}

        # Of one client: the gradient by the first argument, then what _objective gave.
        # (`has_aux`: the objective gives something beside the number to derive.)
        of_one = grad_and_value(self._objective, has_aux=True)
        # Of all: each argument has the clients along its first dimension.
        of_all = vmap(of_one, in_dims=(0, 0, 0, 0, 0, along_weights))
        gradients, (_, after) = of_all(
            self.trained.value[who],
            self.statistics[who],
            moving,
            engine.pool[index],
            engine.targets[index],
            weights,
        )
        summed, statistics, moving = after
        return gradients, summed, statistics, moving

    def _stacked(self, arrays: list[np.ndarray]) -> torch.Tensor:
        """Return arrays (B,) of m clients as a tensor (m, B) on the device."""
        return torch.from_numpy(np.stack(arrays)).to(self.engine.device)

    def _objective(self, trained, statistics, moving, x, y, weights):
        """Apply the network of one client, as a function that torch.func derives.

        It must not change what it is given, nor the module: a client's statistics and
        counters go in as arguments and come out as results.

        Parameters
        ----------
        trained : tensor (n_trainable,)
        statistics : tensor (P - n_trainable,)
        moving : dict of tensors by name
        x, y : inputs and targets of a batch, (B, ...)
        weights : factors (B,) on the losses, or None

        Returns
        -------
        mean : tensor, no dimension
            The mean loss, whose gradient by ``trained`` is wanted.
        beside : tuple
            Summed losses, statistics and what moves, after the step.
        """
        engine = self.engine
        # Modules change these in place, which works where each has memory of its own.
        buffers = _copies(_parts(statistics, engine.statistics))
        counters = _copies(moving)
        everything = {**_parts(trained, engine.trained), **buffers, **counters}

        def module(x: torch.Tensor) -> torch.Tensor:
            return functional_call(engine.module, everything, (x,))

        # In bfloat16 autocast decides what is reduced, dense layers included.
        reduced = self.spec.precision == "bfloat16"
        with torch.autocast(engine.device.type, torch.bfloat16, enabled=reduced):
            outputs = engine.model.applied(module, x).to(engine.dtype)
        found = weighted(losses(self.spec.loss, outputs, y), weights)
        # An own loss may return the batch's mean, a number without a dimension.
        summed = found.sum() if found.ndim else found * len(y)
        if buffers:
            flat = [value.flatten() for value in buffers.values()]
            statistics = torch.cat(flat)
        return found.mean(), (summed, statistics, counters)


def _names(module: nn.Module) -> dict[int, str]:
    """Return the names of a module's parameters and buffers, by their ``id``."""
    tensors = chain(module.named_parameters(), module.named_buffers())
    return {id(one): name for name, one in tensors}


def _copies(named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return copies of tensors by name."""
    return {name: value.clone() for name, value in named.items()}


def _parts(
    numbers: torch.Tensor, shapes: list[tuple[str, torch.Size]]
) -> dict[str, torch.Tensor]:
    """Return a part of a row (n,) as tensors by name, views of it.

    ``shapes``: their names and shapes in the row's order; sizes add up to n. With
    ("weight", (2, 3)) and ("bias", (2,)) the numbers 0 to 7 become the weight
    [[0, 1, 2], [3, 4, 5]] and the bias [6, 7].
    """
    sizes = [shape.numel() for _, shape in shapes]
    named = {}
    for (name, shape), part in zip(shapes, numbers.split(sizes), strict=True):
        named[name] = part.view(shape)
    return named


def _activations(module: nn.Module, forward, x: torch.Tensor) -> int:
    """Return how many numbers the layers give for each sample of ``x``, in all.

    A module that has others inside is counted too, so its last layer counts twice: the
    estimate is rather too large.
    """
    seen = []

    def count(_, given, out) -> None:
        if isinstance(out, torch.Tensor):
            samples = max(1, len(out))
            seen.append(out.numel() // samples)

    handles = [one.register_forward_hook(count) for one in module.modules()]
    forward(x)
    for handle in handles:
        handle.remove()
    return sum(seen)
