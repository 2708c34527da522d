"""Many clients as one batch: their weights lie along a leading dimension.

This is the default on a GPU. Clients are sorted by number of steps, most first, so the
clients still at work are always the first ``a`` of the stack: finished ones are left
out by slicing. A short last batch is filled up with samples of weight zero and divided
by its true size. The stack is cut into chunks that fit in memory.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from ..models import POOL, Conv, Model, Stage
from .contract import Engine, Trained, TrainSpec, keep_masks, order
from .gradients import (
    Parameter,
    add,
    before_activation,
    before_pooling,
    convolution_gradients,
)
from .samples import Samples, tensor
from .serial import exact

CPU_BYTES = 2**30  # room for one chunk on a CPU
GPU_SHARE = 0.5  # of the free memory
# Products in a client's batch from which on its convolution fills a device alone: see
# docs/engine.md.
APART = 1e9


class _Layer:
    """``apart``: a convolution per client, on images with channels last.

    Else there is one convolution with a group per client.
    """

    def __init__(
        self, stage: Stage, weight: Parameter, bias: Parameter, apart: bool
    ) -> None:
        self.stage = stage
        self.weight = weight
        self.bias = bias
        self.apart = apart
        self.format = torch.channels_last if apart else torch.contiguous_format

    def activated(self, z: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        self.mask = mask
        if mask is not None:
            z = z * mask
        self.out = z.relu() if self.stage.relu else z
        return self.out


class _Dense(_Layer):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (a, b, ...) to (a, b, outputs)."""
        a = len(x)
        self.shape = x.shape
        self.x = x = x.flatten(2)
        weight = self.weight.value[:a].transpose(1, 2)
        bias = self.bias.value[:a, None]
        return self.activated(torch.baddbmm(bias, x, weight), mask)

    def backward(self, d: torch.Tensor, first: bool) -> torch.Tensor | None:
        a, x = len(d), self.x
        d = before_activation(self, d)
        below = None
        if not first:
            below = torch.bmm(d, self.weight.value[:a]).view(self.shape)

        turned = d.transpose(1, 2)

        def accumulate(target: torch.Tensor, beta: float, alpha: float) -> None:
            target.baddbmm_(turned, x, beta=beta, alpha=alpha)

        self.weight.descend(accumulate, a)
        self.bias.descend(add(d.sum(1)), a)
        return below


class _Conv(_Layer):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (a, b, C, H, W) to (a, b, C', H', W')."""
        a, b = x.shape[:2]
        conv = self.stage.linear
        kernels = self.weight.spec.kernels
        groups = 1 if self.apart else a

        packed = _packed(x, groups).to(kernels, memory_format=self.format)
        weight = self.weight.value[:a].flatten(0, 1)
        weight = weight.to(kernels, memory_format=self.format)
        bias = self.bias.value[:a].flatten().to(kernels)

        self.x = packed.split(b)
        self.flat = weight.split(groups * conv.outputs)
        biases = bias.split(groups * conv.outputs)
        raw = [
            functional.conv2d(*part, padding=conv.padding, groups=groups)
            for part in zip(self.x, self.flat, biases, strict=True)
        ]
        self.raw = z = _cat(raw)
        if self.stage.pool:
            z, self.winners = functional.max_pool2d(z, POOL, return_indices=True)
        return self.activated(_unpacked(z.to(x.dtype), b, groups), mask)

    def backward(self, d: torch.Tensor, first: bool) -> torch.Tensor | None:
        a, b = d.shape[:2]
        conv = self.stage.linear
        dtype = d.dtype
        groups = 1 if self.apart else a

        d = _packed(before_activation(self, d), groups)
        d = d.to(self.raw.dtype, memory_format=self.format)
        d = before_pooling(self, d)
        below, weights, biases = [], [], []
        for part in zip(d.split(b), self.x, self.flat, strict=True):
            d_x, d_weight, d_bias = convolution_gradients(
                conv, *part, groups, inputs=not first
            )
            below.append(d_x)
            weights.append(d_weight)
            biases.append(d_bias)

        weight = _cat(weights).to(dtype).view(a, *self.weight.value.shape[1:])
        bias = _cat(biases).to(dtype).view(a, conv.outputs)
        self.weight.descend(add(weight), a)
        self.bias.descend(add(bias), a)
        return None if first else _unpacked(_cat(below).to(dtype), b, groups)


def clients_at_a_time(numbers: int, spec: TrainSpec, device: torch.device) -> int:
    """Return how many clients of so many numbers each fit into memory."""
    room = CPU_BYTES
    if device.type == "cuda":
        room = GPU_SHARE * torch.cuda.mem_get_info(device)[0]
    return max(1, int(room // (numbers * np.dtype(spec.dtype).itemsize)))


def _packed(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Put clients next to each other, ``groups`` at a time.

    (a, b, C, H, W) becomes (a / groups * b, groups * C, H, W).
    """
    return x.unflatten(0, (-1, groups)).transpose(1, 2).flatten(0, 1).flatten(1, 2)


def _unpacked(x: torch.Tensor, b: int, groups: int) -> torch.Tensor:
    """Undo :func:`_packed` for batches of b."""
    x = x.unflatten(0, (-1, b)).unflatten(2, (groups, -1))
    return x.transpose(1, 2).flatten(0, 1)


def _cat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)  # else a copy


class _Batch(NamedTuple):
    """A step of the ``a`` clients that are still at work."""

    index: torch.Tensor  # (a, B), positions in the pool of samples
    weight: torch.Tensor  # (a, B), zero where a batch is filled up
    count: torch.Tensor  # (a,), true batch sizes
    last: torch.Tensor  # (a,), whether this is a client's last local epoch
    masks: list[torch.Tensor]  # (a, B, ...), scaled


class StackedEngine(Engine):
    """Batched training of clients, on GPU or CPU; arguments as for :class:`Engine`."""

    backend = "stacked"

    def __init__(self, fed, model: Model, spec: TrainSpec, device: str = "cpu") -> None:
        super().__init__(fed, model, spec, device)
        samples = Samples.of(fed)
        self.pixels = samples.flat.to(self.device)
        self.labels = samples.classes.to(self.device)

        products = [0]
        for layer, shape in zip(model.layers, model.activations, strict=True):
            if isinstance(layer, Conv):
                products.append(layer.inputs * layer.kernel**2 * math.prod(shape))
        self.apart = spec.batch_size * max(products) >= APART

        self.lookup = None
        if samples.flat.dtype == torch.uint8:
            self.lookup = _lookup(samples).to(self.device)
            c = samples.input_shape[0]
            self.channel = torch.arange(c, device=self.device).view(c, 1, 1)

    def _inputs(self, index: torch.Tensor) -> torch.Tensor:
        """Return the inputs of an array of positions: (*index.shape, C, H, W)."""
        c, h, w = self.model.input_shape
        x = self.pixels[index].view(*index.shape, h, w, c).movedim(-1, -3)
        if self.lookup is not None:
            x = self.lookup[x.int() * c + self.channel]
        return x.to(self.dtype)

    def chunk(self) -> int:
        """Clients trained at a time, by a model of the memory they take."""
        spec = self.spec
        copies = 2 + bool(spec.momentum) + bool(spec.proximal)
        activations = sum(math.prod(shape) for shape in self.model.activations)
        numbers = copies * self.model.n_parameters + 4 * spec.batch_size * activations
        return clients_at_a_time(numbers, spec, self.device)

    def _train(self, theta, rows, clients, round, weights, done: Trained) -> None:
        longest = self.longest_first(clients)
        size = self.chunk()
        with torch.inference_mode(), self._kernels():
            for begin in range(0, len(rows), size):
                chosen = longest[begin : begin + size]
                # a list of rows: always a copy
                start = theta[[rows[j] for j in chosen]]
                done.theta[chosen], done.loss[chosen] = self._chunk(
                    start,
                    [clients[j] for j in chosen],
                    round,
                    [weights[j] for j in chosen],
                )

    def _chunk(
        self, start: np.ndarray, clients: list[int], round: int, weights
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train clients, longest first; return their models and losses."""
        parameters = self._parameters(start)
        layers = self._layers(parameters)
        loss = torch.zeros(len(clients), dtype=torch.float64, device=self.device)
        for batch in self._batches(clients, round, weights):
            a = len(batch.index)
            loss[:a] += self._step(layers, batch)

        flat = [parameter.value.flatten(1) for parameter in parameters]
        sizes = np.array([len(self.fed.train[client]) for client in clients])
        return torch.cat(flat, dim=1).cpu().numpy(), loss.cpu().numpy() / sizes

    def _parameters(self, theta: np.ndarray) -> list[Parameter]:
        parts = torch.from_numpy(theta).to(self.device).split(self.model.sizes, dim=1)
        return [
            Parameter(part.reshape(-1, *shape).clone(), self.spec)
            for part, (_, shape) in zip(parts, self.model.shapes, strict=True)
        ]

    def _layers(self, parameters: list[Parameter]) -> list[_Layer]:
        layers = []
        pairs = zip(parameters[::2], parameters[1::2], strict=True)
        for stage, (weight, bias) in zip(self.model.stages, pairs, strict=True):
            kind = _Conv if isinstance(stage.linear, Conv) else _Dense
            layers.append(kind(stage, weight, bias, self.apart))
        return layers

    def _step(self, layers: list[_Layer], batch: _Batch) -> torch.Tensor:
        """Take a step; return each client's summed loss, 0 before its last epoch."""
        x = self._inputs(batch.index)
        y = self.labels[batch.index]
        for layer in layers:
            dropout = layer.stage.dropout
            x = layer.forward(x, None if dropout is None else batch.masks[dropout])

        target = torch.zeros_like(x).scatter_(2, y[..., None], 1.0)
        factor = batch.weight / batch.count[:, None]
        d = torch.softmax(x, 2).sub_(target).mul_(factor[..., None])
        for layer in reversed(layers):
            d = layer.backward(d, first=layer is layers[0])

        losses = functional.cross_entropy(
            x.flatten(0, 1), y.flatten(), reduction="none"
        ).view(y.shape)
        summed = (losses * batch.weight).double().sum(1)
        return torch.where(batch.last, summed, 0.0)

    def _batches(self, clients: list[int], round: int, weights) -> Iterator[_Batch]:
        """Give the steps of clients, those with most samples first."""
        epochs = self.spec.local_epochs
        sizes = np.array([len(self.fed.train[client]) for client in clients])
        size = min(self.spec.batch_size, int(sizes.max()))
        per_epoch = -(-sizes // size)
        steps = per_epoch * epochs

        shape = (int(steps.max()), len(clients), size)
        index = np.zeros(shape, dtype=np.int64)
        weight = np.zeros(shape, dtype=self.spec.dtype)
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

        ends = np.arange(1, len(index) + 1)[:, None]
        short = sizes - (per_epoch - 1) * size
        count = np.where(ends % per_epoch == 0, short, size).astype(self.spec.dtype)
        last = ends > steps - per_epoch
        index, weight, count, last, *keep = [
            torch.from_numpy(array).to(self.device)
            for array in (index, weight, count, last, *keep)
        ]
        for step in range(len(index)):
            a = int((steps > step).sum())
            arrays = [array[step, :a] for array in (index, weight, count, last)]
            yield _Batch(*arrays, self._masks([one[step, :a] for one in keep]))

    def _epoch(self, client: int, round: int, epoch: int, weights) -> list[np.ndarray]:
        """Return samples, weights and masks of a client's epoch, in its order."""
        mine = self.fed.train[client]
        n = len(mine)
        sequence = order(self.spec, round, client, epoch, n)
        own = np.ones(n) if weights is None else weights[sequence]
        masks = keep_masks(self.spec, self.model, round, client, epoch, n)
        return [mine[sequence], own, *masks]

    def _masks(self, keep: list[torch.Tensor]) -> list[torch.Tensor]:
        return [
            one.to(self.dtype) / (1 - p)
            for one, (_, p) in zip(keep, self.model.dropout, strict=True)
        ]

    def _kernels(self):
        return exact(self.device, 1)

    def _served(self, theta: np.ndarray):
        params = self.model.unflatten(tensor(theta).to(self.device, copy=True))
        return lambda x: self.model.predict(params, x, self.spec.kernels)

    def _batch(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        index = tensor(index).to(self.device)
        return self._inputs(index), self.labels[index]


def _lookup(samples: Samples) -> torch.Tensor:
    """Return the inputs of the 256 pixel values, for each the channels' one by one.

    They are computed here, as a GPU might round otherwise.
    """
    c = samples.input_shape[0]
    grey = np.repeat(np.arange(256, dtype=np.uint8)[:, None], c, axis=1)
    labels = np.zeros(256, np.int64)
    pixels = Samples(grey, labels, {}, (c, 1, 1), samples.mean, samples.std)
    values = torch.empty(256, c, 1, 1)
    pixels.fill(np.arange(256), values)
    return values.flatten()


def _filled(values: np.ndarray, size: int, filler) -> np.ndarray:
    """Return an epoch as batches (steps, size, ...), the last one filled up."""
    n = -(-len(values) // size)
    out = np.full((n * size, *values.shape[1:]), filler, dtype=values.dtype)
    out[: len(values)] = values
    return out.reshape(n, size, *values.shape[1:])
