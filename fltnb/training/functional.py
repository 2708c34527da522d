"""Many clients' own networks as one batch, by ``torch.func``: on a GPU, where they can.

``vmap`` runs one step of a client for a stack of clients: each has its row of the
matrix of models, its batch and its own statistics. A batch is never filled up, because
an own network may look across it (batch normalisation does): clients are grouped by the
size of their batch, which differs in the last one of an epoch only.

Not every network can be stacked: recurrent layers, layers that draw (dropout) and
control flow by values cannot, and train one after the other.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

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


class _Step(NamedTuple):
    """The batches of the first ``len(index)`` clients of a stack."""

    index: list[np.ndarray]  # positions in the pool of samples
    weights: list[np.ndarray] | None
    last: np.ndarray  # whether this is a client's last local epoch


class FunctionalEngine(SerialEngine):
    """Stacked training of networks that are known as modules only.

    Raises
    ------
    NotStackableError
        A step of two clients fails; the message says at what.
    """

    backend = "stacked"

    def __init__(self, fed, model: Model, spec: TrainSpec, device: str = "cpu") -> None:
        super().__init__(fed, model, spec, device)
        module = self.trainer.module.train()
        names = {id(one): name for name, one in module.named_parameters()}
        names |= {id(one): name for name, one in module.named_buffers()}
        shapes = [(names[id(one)], one.shape) for one in self.trainer.tensors]
        n = len(self.trainer.parameters)
        self.trained = shapes[:n]
        self.statistics = shapes[n:]
        self.module = module
        every = np.arange(len(fed.images))
        needed = fed.images.size * self.dtype.itemsize
        what = "The federation's samples take"
        check_room(needed, self.device, what, "device 'cpu', or backend 'serial'")
        self.pool, self.targets = self.trainer.batch(every)
        self.moving = self._moving()
        self._probe()

    def _moving(self) -> dict[str, torch.Tensor]:
        """Return buffers outside a row that a step changes, such as counters."""
        constants = {id(one): value for one, value in self.trainer.constants}
        x = self.pool[: max(PROBED, 2)]
        with torch.no_grad(), torch.random.fork_rng(self._devices()):
            self.activations = _activations(self.module, lambda: self._forward(x))
        moving = {}
        for name, one in self.module.named_buffers():
            before = constants.get(id(one))
            if before is not None and not torch.equal(one, before):
                moving[name] = before
        return moving

    def _devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.trainer.forward(x)

    def _probe(self) -> None:
        """Try a step of two clients, and compare the statistics with a single one's."""
        row = self.trainer.stored()
        index = np.arange(PROBED) % len(self.pool)
        step = _Step([index] * PROBED, None, np.ones(PROBED, dtype=bool))
        try:
            with self._kernels():
                stack = _Stack(self, np.repeat(row[None], PROBED, axis=0))
                stack.take(step)
        except Exception as error:  # an own network may fail in any way
            line = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
            raise self._refusal(line) from error

        self.trainer.load(row)
        with torch.no_grad():
            self.trainer.forward(self.pool[index])
        n = self.model.n_trainable
        alone = self.trainer.stored()[n:]
        if not np.allclose(stack.models()[:, n:], alone, rtol=1e-3, atol=1e-5):
            raise self._refusal("its statistics come out otherwise")

    def _refusal(self, why: str) -> NotStackableError:
        return NotStackableError(
            f"torch.func cannot stack clients of {self.model.name} ({why})."
        )

    def _train(
        self, theta, rows, clients, round, weights, how: Variation, done: Trained
    ) -> None:
        if how.frozen:  # a stack's parameters are one matrix, which moves as a whole
            super()._train(theta, rows, clients, round, weights, how, done)
            return
        spec = how.applied(self.spec)
        longest = self.longest_first(clients)
        copies = 4 + bool(spec.momentum) + bool(spec.proximal)
        numbers = copies * self.model.n_parameters
        numbers += 3 * self.spec.batch_size * self.activations
        size = clients_at_a_time(numbers, self.spec, self.device)
        with self._kernels():
            for begin in range(0, len(rows), size):
                chosen = longest[begin : begin + size]
                stack = _Stack(self, theta[[rows[j] for j in chosen]])
                stack.vary(spec.proximal, how.of(chosen).anchors)
                mine = [clients[j] for j in chosen]
                factors = [weights[j] for j in chosen]
                for step in self._steps(mine, round, factors, spec.local_epochs):
                    stack.take(step)
                sizes = [len(self.fed.train[client]) for client in mine]
                done.theta[chosen] = stack.models()
                done.loss[chosen] = stack.loss.cpu().numpy() / sizes

    def _steps(
        self,
        clients: list[int],
        round: int,
        weights: Sequence[np.ndarray | None],
        epochs: int,
    ) -> Iterator[_Step]:
        """Give the steps of clients, those with most samples first."""
        batches = []
        for client, own in zip(clients, weights, strict=True):
            batches.append(list(self._batches(client, round, own, epochs)))
        for step in range(len(batches[0])):
            now = [mine[step] for mine in batches if len(mine) > step]
            index, factors, last = zip(*now, strict=True)
            given = None if factors[0] is None else list(factors)
            yield _Step(list(index), given, np.array(last))

    def _batches(
        self, client: int, round: int, weights: np.ndarray | None, epochs: int
    ):
        """Give a client's batches: samples, weights, whether of the last epoch."""
        mine = self.fed.train[client]
        size = self.spec.batch_size
        for epoch in range(epochs):
            sequence = order(self.spec, round, client, epoch, len(mine))
            last = epoch == epochs - 1
            for begin in range(0, len(mine), size):
                part = sequence[begin : begin + size]
                yield mine[part], None if weights is None else weights[part], last


class _Stack:
    """Models of some clients in training, a row each."""

    def __init__(self, engine: FunctionalEngine, theta: np.ndarray) -> None:
        self.engine = engine
        self.spec = engine.spec
        n = engine.model.n_trainable
        rows = torch.tensor(theta, device=engine.device)
        self.trained = Parameter(rows[:, :n].clone(), engine.spec)
        self.statistics = rows[:, n:].clone()
        self.moving = {
            name: value.expand(len(rows), *value.shape).clone()
            for name, value in engine.moving.items()
        }
        self.loss = torch.zeros(len(rows), dtype=torch.float64, device=engine.device)

    def vary(self, proximal: float, anchors: np.ndarray | None) -> None:
        """Pull to other models (a, P) than the start, or with another weight."""
        self.trained.vary(proximal)
        if anchors is not None:
            n = self.trained.value.shape[1]
            self.trained.start = torch.tensor(anchors[:, :n]).to(self.trained.value)

    def models(self) -> np.ndarray:
        """Return the rows (a, P) as they are now."""
        return torch.cat([self.trained.value, self.statistics], dim=1).cpu().numpy()

    def take(self, step: _Step) -> None:
        """Take a step of the first clients, and add up the losses of last epochs."""
        a = len(step.index)
        sizes = np.array([len(index) for index in step.index])
        gradients = torch.empty_like(self.trained.value[:a])
        for size in np.unique(sizes):
            members = np.flatnonzero(sizes == size)
            who = torch.from_numpy(members).to(self.engine.device)
            found = self._gradients(step, members, who)
            gradients[who], summed, self.statistics[who], moving = found
            for name, value in moving.items():
                self.moving[name][who] = value
            last = torch.from_numpy(step.last[members]).to(self.engine.device)
            self.loss[who] += torch.where(last, summed.double(), 0.0)
        self.trained.descend(add(gradients), a)

    def _gradients(self, step: _Step, members: np.ndarray, who: torch.Tensor):
        """Return gradients, summed losses, statistics and counters after the step."""
        engine = self.engine
        index = torch.from_numpy(np.stack([step.index[j] for j in members]))
        index = index.to(engine.device)
        weights = None
        if step.weights is not None:
            own = np.stack([step.weights[j] for j in members])
            weights = torch.from_numpy(own).to(engine.device)
        moving = {name: value[who] for name, value in self.moving.items()}
        one = grad_and_value(self._objective, has_aux=True)
        dims = (0, 0, 0, 0, 0, None if weights is None else 0)
        gradients, (_, after) = vmap(one, in_dims=dims)(
            self.trained.value[who],
            self.statistics[who],
            moving,
            engine.pool[index],
            engine.targets[index],
            weights,
        )
        return gradients, *after

    def _objective(self, trained, statistics, moving, x, y, weights):
        """Return the mean loss of a client's batch, and what comes with it."""
        engine = self.engine
        named = _parts(trained, engine.trained)
        # These are changed in place, which works where each has memory of its own.
        held = _parts(statistics, engine.statistics)
        buffers = {name: value.clone() for name, value in held.items()}
        counters = {name: value.clone() for name, value in moving.items()}
        everything = named | buffers | counters

        def module(x: torch.Tensor) -> torch.Tensor:
            return functional_call(engine.module, everything, (x,))

        reduced = self.spec.precision == "bfloat16"
        with torch.autocast(engine.device.type, torch.bfloat16, enabled=reduced):
            outputs = engine.model.applied(module, x).to(engine.dtype)
        found = losses(self.spec.loss, outputs, y)
        if weights is not None:
            found = found * weights
        summed = found.sum() if found.ndim else found * len(y)
        after = [value.flatten() for value in buffers.values()]
        after = torch.cat(after) if after else statistics
        return found.mean(), (summed, after, counters)


def _parts(
    numbers: torch.Tensor, shapes: list[tuple[str, torch.Size]]
) -> dict[str, torch.Tensor]:
    """Return a part of a row as tensors by name."""
    parts = numbers.split([shape.numel() for _, shape in shapes])
    named = zip(shapes, parts, strict=True)
    return {name: part.view(shape) for (name, shape), part in named}


def _activations(module: nn.Module, forward) -> int:
    """Return how many numbers the layers give for each sample, in all."""
    seen = []

    def count(_, given, out) -> None:
        if isinstance(out, torch.Tensor):
            seen.append(out.numel() // max(1, len(out)))

    handles = [one.register_forward_hook(count) for one in module.modules()]
    forward()
    for handle in handles:
        handle.remove()
    return sum(seen)
