"""Many clients as one batch: their weights lie along a leading dimension.

This is the default on a GPU. Clients are sorted by number of steps, most first, so the
clients still at work are always the first ``a`` of the stack: finished ones are left
out by slicing. A short last batch is filled up with samples of weight zero and divided
by its true size. The stack is cut into chunks that fit in memory.
"""

import copy
import math
from functools import cached_property
from itertools import groupby

import numpy as np
import torch

from ..errors import FltnbError
from ..models import Conv, Model
from .contract import Engine, Trained, TrainSpec, Variation, keep_masks, order
from .losses import losses, predicted
from .runner import Runner, Stack, Way, chosen
from .samples import Samples, tensor
from .serial import exact
from .step import Pool, Step

CPU_BYTES = 2**30  # room for one chunk on a CPU
GPU_SHARE = 0.5  # of the free memory
# Products in a client's batch from which on its convolution fills a device alone: see
# docs/engine.md.
APART = 1e9


def clients_at_a_time(numbers: int, spec: TrainSpec, device: torch.device) -> int:
    """Return how many clients of so many numbers each fit into memory.

    Raises
    ------
    FltnbError
        A GPU has not enough for one.
    """
    one = numbers * np.dtype(spec.dtype).itemsize
    if device.type != "cuda":
        return max(1, int(CPU_BYTES // one))
    free = torch.cuda.mem_get_info(device)[0]
    if one > free:
        raise FltnbError(
            f"One client takes {one / 2**30:.1f} GiB, and the GPU has "
            f"{free / 2**30:.1f} free: choose a smaller batch_size, or device 'cpu'."
        )
    return max(1, int(GPU_SHARE * free // one))


class StackedEngine(Engine):
    """Batched training of clients, on GPU or CPU.

    Arguments are as for :class:`Engine`, and how steps run
    (:mod:`fltnb.training.runner`).
    """

    backend = "stacked"

    def __init__(
        self,
        fed,
        model: Model,
        spec: TrainSpec,
        device: str = "cpu",
        step: Way = "auto",
    ) -> None:
        super().__init__(fed, model, spec, device)
        self.way = chosen(step, self.device)
        first = spec.kernels if model.convolutional else self.dtype
        self.pool = Pool(Samples.of(fed), first, self.device)

        products = [0]
        for layer, shape in zip(model.layers, model.activations, strict=True):
            if isinstance(layer, Conv):
                products.append(layer.inputs * layer.kernel**2 * math.prod(shape))
        self.apart = spec.batch_size * max(products) >= APART
        self.step = Step(model, spec, self.pool, self.apart)
        self.batch_size = min(spec.batch_size, max(map(len, fed.train)))
        self.runner: Runner | None = None
        self.places: dict[tuple[str, int], torch.Tensor] = {}
        self.others: dict[tuple, StackedEngine] = {}

    def chunk(self) -> int:
        """Clients trained at a time, by a model of the memory they take."""
        spec = self.spec
        copies = 2 + bool(spec.momentum) + bool(spec.proximal)
        if self.way != "eager":
            copies += 4  # of the first step's comparison
        activations = sum(math.prod(shape) for shape in self.model.activations)
        masks = sum(math.prod(shape) for shape, _ in self.model.dropout)
        # of every sample that is met: position, factor, weight, loss and masks
        met = self._longest() * self.batch_size * (8 + masks // 4)
        numbers = copies * self.model.n_parameters + 4 * spec.batch_size * activations
        numbers += met
        return clients_at_a_time(numbers, spec, self.device)

    @cached_property
    def most(self) -> int:
        """Clients trained at a time, as it was before any memory was taken."""
        return self.chunk()

    def _varied(self, how: Variation) -> "StackedEngine":
        """Return the engine of such calls, on the same samples; it is kept."""
        spec = how.applied(self.spec)
        key = spec.local_epochs, spec.proximal, how.frozen
        if key == (self.spec.local_epochs, self.spec.proximal, None):
            return self
        if key not in self.others:
            other = copy.copy(self)
            other.spec = spec
            other.step = Step(self.model, spec, self.pool, self.apart, how.frozen)
            other.runner = None
            other.__dict__.pop("most", None)
            self.others[key] = other
        return self.others[key]

    def _train(
        self, theta, rows, clients, round, weights, how: Variation, done: Trained
    ) -> None:
        engine = self._varied(how)
        engine._train_stacks(theta, rows, clients, round, weights, how, done)

    def _train_stacks(
        self, theta, rows, clients, round, weights, how: Variation, done: Trained
    ) -> None:
        longest = self.longest_first(clients)
        with torch.inference_mode(), self._kernels():
            for begin in range(0, len(rows), self.most):
                chosen = longest[begin : begin + self.most]
                # a list of rows: always a copy
                start = theta[[rows[j] for j in chosen]]
                done.theta[chosen], done.loss[chosen] = self._chunk(
                    start,
                    [clients[j] for j in chosen],
                    round,
                    [weights[j] for j in chosen],
                    how.of(chosen).anchors,
                )

    def _chunk(
        self,
        start: np.ndarray,
        clients: list[int],
        round: int,
        weights,
        anchors: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train clients, longest first; return their models and losses."""
        n = len(clients)
        runner = self._runner(n)
        stack = runner.stack
        stack.load(start, self._schedule(clients, round, weights), anchors)

        trained = torch.empty(start.shape, dtype=self.dtype, device=self.device)
        sizes = np.array([len(self.fed.train[client]) for client in clients])
        steps = self._steps(sizes)
        begin = 0
        for end in np.unique(steps).tolist():
            a = int((steps >= end).sum())
            runner.run(begin, end, a)
            # Who has finished is taken out: the rows may be used to fill up.
            left = int((steps > end).sum())
            trained[left:a] = stack.rows(left, a)
            begin = end
        return trained.cpu().numpy(), stack.losses(n).cpu().numpy() / sizes

    def _runner(self, n: int) -> Runner:
        """Return what runs the steps of n clients; its memory is kept for the next."""
        if self.runner is None or self.runner.stack.n < n:
            self.runner = None  # frees the memory
            stack = Stack(
                self.step,
                [shape for _, shape in self.model.shapes],
                [shape for shape, _ in self.model.dropout],
                *(n, self._longest(), self.batch_size),
            )
            self.runner = Runner(stack, self.way)
        return self.runner

    def _longest(self) -> int:
        """Return the most steps that a client of the federation takes."""
        sizes = np.array([len(index) for index in self.fed.train])
        return int(self._steps(sizes).max())

    def _steps(self, sizes: np.ndarray) -> np.ndarray:
        """Return how many steps clients with so many samples take."""
        return -(-sizes // self.batch_size) * self.spec.local_epochs

    def _schedule(self, clients: list[int], round: int, weights) -> list[np.ndarray]:
        """Return all batches of clients, those with most samples first.

        These are the arrays of :meth:`Stack.load`.
        """
        epochs = self.spec.local_epochs
        size = self.batch_size
        sizes = np.array([len(self.fed.train[client]) for client in clients])
        steps = self._steps(sizes)
        per_epoch = steps // epochs

        shape = (int(steps[0]), len(clients), size)
        index = np.zeros(shape, dtype=np.int64)
        weight = np.zeros(shape, dtype=self.spec.dtype)
        counted = np.zeros(shape, dtype=self.spec.dtype)
        keep = [np.zeros((*shape, *mask), bool) for mask, _ in self.model.dropout]
        for j in range(len(clients)):
            for epoch in range(epochs):
                part = slice(epoch * per_epoch[j], (epoch + 1) * per_epoch[j])
                samples, own, *masks = self._epoch(clients[j], round, epoch, weights[j])
                # Filling up with a sample of the client's keeps every number finite.
                index[part, j] = _filled(samples, size, samples[0])
                weight[part, j] = _filled(own, size, 0)
                for array, mask in zip(keep, masks, strict=True):
                    array[part, j] = _filled(mask, size, False)
            last = slice(steps[j] - per_epoch[j], steps[j])
            counted[last, j] = weight[last, j]

        ends = np.arange(1, len(index) + 1)[:, None]
        short = sizes - (per_epoch - 1) * size
        true_size = np.where(ends % per_epoch == 0, short, size)
        factor = weight / true_size[..., None].astype(self.spec.dtype)
        return [index, factor, counted, *keep]

    def _epoch(self, client: int, round: int, epoch: int, weights) -> list[np.ndarray]:
        """Return samples, weights and masks of a client's epoch, in its order."""
        mine = self.fed.train[client]
        n = len(mine)
        sequence = order(self.spec, round, client, epoch, n)
        own = np.ones(n) if weights is None else weights[sequence]
        masks = keep_masks(self.spec, self.model, round, client, epoch, n)
        return [mine[sequence], own, *masks]

    def _kernels(self):
        return exact(self.device, 1)

    def _scores(self, theta, tasks, split) -> list[tuple[float, float]]:
        """Return the scores of tasks; they stay on the device until all are there."""
        found = []
        with self._kernels(), torch.inference_mode():
            models = tensor(theta).to(self.device)
            for row, same_row in groupby(tasks, lambda task: task.row):
                params = self.model.unflatten(models[row].clone())
                for task in same_row:
                    index = self._places(split, task.client)[task.start : task.stop]
                    x = self.pool.take(index).to(self.dtype)
                    y = self.pool.labels[index]
                    logits = self.model.predict(params, x, self.spec.kernels)
                    right = (predicted(logits) == y).sum().double()
                    loss = losses(self.spec.loss, logits, y).double().sum()
                    found.append(torch.stack([right, loss]))
            if not found:
                return []
            return torch.stack(found).cpu().tolist()

    def _places(self, split: str, client: int) -> torch.Tensor:
        """Return the positions of a client's samples, which stay on the device."""
        if (split, client) not in self.places:
            index = tensor(getattr(self.fed, split)[client])
            self.places[split, client] = index.to(self.device)
        return self.places[split, client]


def _filled(values: np.ndarray, size: int, filler) -> np.ndarray:
    """Return an epoch as batches (steps, size, ...), the last one filled up."""
    n = -(-len(values) // size)
    out = np.full((n * size, *values.shape[1:]), filler, dtype=values.dtype)
    out[: len(values)] = values
    return out.reshape(n, size, *values.shape[1:])
