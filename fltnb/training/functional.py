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
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from ..errors import first_line
from ..models import Model
from .contract import Trained, TrainSpec, UnavailableError, Variation, order
from .devices import check_room
from .gradients import Parameter, add
from .losses import losses
from .serial import SerialEngine
from .stacks import clients_at_a_time

PROBED = 2  # clients, and samples of each, of the step that is tried


class NotStackableError(UnavailableError):
    """``torch.func`` cannot run this network for several clients at a time."""


class _Batch(NamedTuple):
    """A batch of one client.

    ``index``: positions (B,) in the pool of samples; ``weights``: factors (B,) on their
    losses, or None; ``last``: whether it is of the last local epoch.
    """

    index: np.ndarray  # type: ignore[assignment]  # hides the tuple's index()
    weights: Any
    last: bool


class FunctionalEngine(SerialEngine):
    """Stacked training of networks that are known as modules only.

    Attributes
    ----------
    trained, statistics : lists of (name, shape)
        The module's tensors in a row of models, in the row's order: those that are
        trained, then the statistics of batch normalisations.
    moving : dict of tensors by name
        Initial values that a step changes outside a row, such as counters.
    activations : int
        Numbers of all layers' outputs for a sample, to estimate the memory.
    pool : tensor (n, ...), targets : tensor (n, ...)
        All samples of the federation, on the device.

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

        at_start = {id(one): value for one, value in self.trainer.constants}
        moving = {}
        for name, one in self.module.named_buffers():
            before = at_start.get(id(one))
            if before is not None and not torch.equal(one, before):
                moving[name] = before
        return moving

    def _probe(self) -> None:
        """Try a step of two clients, and compare the statistics with a single one's.

        Both start from the same model with the same batch.
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

    def _train(
        self, theta, rows, clients, round, weights, how: Variation, done: Trained
    ) -> None:
        if how.frozen:  # a stack's parameters are one matrix, which changes as a whole
            super()._train(theta, rows, clients, round, weights, how, done)
            return

        spec = how.applied(self.spec)
        epochs = spec.local_epochs
        longest = self.longest_first(clients)
        size = self._clients_at_a_time(spec)
        with self._kernels():
            for begin in range(0, len(rows), size):
                chosen = longest[begin : begin + size]
                stack = _Stack(self, theta[[rows[j] for j in chosen]])
                stack.vary(spec.proximal, how.of(chosen).anchors)
                batches = []
                for j in chosen:
                    own = self._batches(clients[j], round, weights[j], epochs)
                    batches.append(own)
                stack.train(batches)

                sizes = [len(self.fed.train[clients[j]]) for j in chosen]
                done.theta[chosen] = stack.models()
                done.loss[chosen] = stack.loss.cpu().numpy() / sizes

    def _clients_at_a_time(self, spec: TrainSpec) -> int:
        """Return how many clients train together, by the memory that they take."""
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

        ``weights``: factors (n,) on the losses of its training samples, or None.
        """
        mine = self.fed.train[client]
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
    """Models of some clients in training, a row each.

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
        """Pull to other models (a, P) than the start, or with another weight."""
        self.trained.vary(proximal)
        if anchors is not None:
            n = self.trained.value.shape[1]
            self.trained.start = torch.tensor(anchors[:, :n]).to(self.trained.value)

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

        Those whose batches have one size are computed together.
        """
        a = len(batches)
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
        the rows of these clients.
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
        index = torch.from_numpy(np.stack([batch.index for batch in batches]))
        index = index.to(engine.device)  # (m, B)
        weights = None
        along_weights = None  # vmap's word for an argument that all clients share
        if batches[0].weights is not None:
            own = np.stack([batch.weights for batch in batches])
            weights = torch.from_numpy(own).to(engine.device)
            along_weights = 0
        moving = {name: value[who] for name, value in self.moving.items()}

        of_one = grad_and_value(self._objective, has_aux=True)
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

    def _objective(self, trained, statistics, moving, x, y, weights):
        """Apply the network of one client, as a function that torch.func derives.

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
        everything = _parts(trained, engine.trained)
        # Modules change these in place, which works where each has memory of its own.
        buffers = {}
        for name, value in _parts(statistics, engine.statistics).items():
            buffers[name] = value.clone()
        counters = {name: value.clone() for name, value in moving.items()}
        everything.update(buffers)
        everything.update(counters)

        def module(x: torch.Tensor) -> torch.Tensor:
            return functional_call(engine.module, everything, (x,))

        reduced = self.spec.precision == "bfloat16"
        with torch.autocast(engine.device.type, torch.bfloat16, enabled=reduced):
            outputs = engine.model.applied(module, x).to(engine.dtype)
        found = losses(self.spec.loss, outputs, y)
        if weights is not None:
            found = found * weights
        # An own loss may return the batch's mean, a number without a dimension.
        summed = found.sum() if found.ndim else found * len(y)
        if buffers:
            flat = [value.flatten() for value in buffers.values()]
            statistics = torch.cat(flat)
        return found.mean(), (summed, statistics, counters)


def _names(module: nn.Module) -> dict[int, str]:
    """Return the names of a module's parameters and buffers, by their ``id``."""
    names = {}
    for name, one in module.named_parameters():
        names[id(one)] = name
    for name, one in module.named_buffers():
        names[id(one)] = name
    return names


def _parts(
    numbers: torch.Tensor, shapes: list[tuple[str, torch.Size]]
) -> dict[str, torch.Tensor]:
    """Return a part of a row (n,) as tensors by name, views of it.

    ``shapes``: their names and shapes in the row's order; sizes add up to n.
    """
    sizes = [shape.numel() for _, shape in shapes]
    named = {}
    for (name, shape), part in zip(shapes, numbers.split(sizes), strict=True):
        named[name] = part.view(shape)
    return named


def _activations(module: nn.Module, forward, x: torch.Tensor) -> int:
    """Return how many numbers the layers give for each sample of ``x``, in all."""
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
