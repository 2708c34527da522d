"""Many clients as one batch: their weights lie along a leading dimension. The default on a GPU.

Clients are sorted by number of steps, most first, so the clients still at work are always the first ``a`` of the
stack: finished ones are left out by slicing. A short last batch is filled up with samples of weight zero and divided
by its true size. The stack is cut into chunks that fit in memory.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional

from ..models import POOL, Conv, Model, Stage
from .contract import Engine, Trained, TrainSpec, keep_masks, order
from .samples import Samples, tensor
from .serial import exact
from .steps import axpby, convolution_gradients, descend, unactivated, unpooled

CPU_BYTES = 2**30  # room for one chunk on a CPU
GPU_SHARE = 0.5  # of the free memory
APART = 1e9  # products in a client's batch from which its convolution fills a device alone: docs/engine.md


class _Parameter:
    """One parameter tensor of n clients, shape (n, ...), with what its SGD needs."""

    def __init__(self, value: torch.Tensor, spec: TrainSpec) -> None:
        self.value, self.spec = value, spec
        self.velocity = torch.zeros_like(value) if spec.momentum else None
        self.start = value.clone() if spec.proximal else None

    def descend(self, a: int, accumulate) -> None:
        first = [
            None if t is None else t[:a]
            for t in (self.value, self.velocity, self.start)
        ]
        descend(self.spec, *first, accumulate)


class _Layer:
    def __init__(self, stage: Stage, weight: _Parameter, bias: _Parameter) -> None:
        self.stage, self.weight, self.bias = stage, weight, bias

    def activated(self, z: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        self.mask = mask
        if mask is not None:
            z = z * mask
        self.out = z.relu() if self.stage.relu else z
        return self.out


class _Dense(_Layer):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (a, b, inputs) to (a, b, outputs)."""
        a, self.x = len(x), x
        return self.activated(
            torch.baddbmm(
                self.bias.value[:a, None], x, self.weight.value[:a].transpose(1, 2)
            ),
            mask,
        )

    def backward(self, d: torch.Tensor, first: bool) -> torch.Tensor | None:
        a, x, d = len(d), self.x, unactivated(self, d)
        below = None if first else torch.bmm(d, self.weight.value[:a])
        dt = d.transpose(1, 2)
        self.weight.descend(
            a,
            lambda target, beta, alpha: target.baddbmm_(dt, x, beta=beta, alpha=alpha),
        )
        self.bias.descend(a, axpby(d.sum(1)))
        return below


class _Conv(_Layer):
    """A convolution with a group per client; ``apart``: one convolution per client, images channels last."""

    def __init__(
        self, stage: Stage, weight: _Parameter, bias: _Parameter, apart: bool
    ) -> None:
        super().__init__(stage, weight, bias)
        self.apart, self.format = (
            apart,
            torch.channels_last if apart else torch.contiguous_format,
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (a, b, C, H, W) to (a, b, C', H', W')."""
        a, b, conv, dtype, kernels = (
            len(x),
            x.shape[1],
            self.stage.linear,
            x.dtype,
            self.weight.spec.kernels,
        )
        groups = 1 if self.apart else a
        self.x = _packed(x, groups).to(kernels, memory_format=self.format).split(b)
        flat = (
            self.weight.value[:a].flatten(0, 1).to(kernels, memory_format=self.format)
        )
        bias = self.bias.value[:a].reshape(-1).to(kernels)
        self.flat, bias = (one.split(groups * conv.outputs) for one in (flat, bias))
        each = zip(self.x, self.flat, bias, strict=True)
        self.raw = z = _cat(
            [
                functional.conv2d(*one, padding=conv.padding, groups=groups)
                for one in each
            ]
        )
        if self.stage.pool:
            z, self.winners = functional.max_pool2d(z, POOL, return_indices=True)
        return self.activated(_unpacked(z.to(dtype), b, groups), mask)

    def backward(self, d: torch.Tensor, first: bool) -> torch.Tensor | None:
        a, b, conv, dtype = len(d), d.shape[1], self.stage.linear, d.dtype
        groups = 1 if self.apart else a
        d = _packed(unactivated(self, d), groups).to(
            self.raw.dtype, memory_format=self.format
        )
        each = zip(unpooled(self, d).split(b), self.x, self.flat, strict=True)
        found = zip(
            *(convolution_gradients(conv, *one, groups, first) for one in each),
            strict=True,
        )
        below, weight, bias = (
            None if one[0] is None else _cat(one).to(dtype) for one in found
        )
        self.weight.descend(a, axpby(weight.view(a, *self.weight.value.shape[1:])))
        self.bias.descend(a, axpby(bias.view(a, conv.outputs)))
        return None if first else _unpacked(below, b, groups)


def _packed(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Put ``groups`` clients of (a, b, C, H, W) next to each other: (a / groups * b, groups * C, H, W)."""
    return x.unflatten(0, (-1, groups)).transpose(1, 2).flatten(0, 1).flatten(1, 2)


def _unpacked(x: torch.Tensor, b: int, groups: int) -> torch.Tensor:
    return (
        x.unflatten(0, (-1, b)).unflatten(2, (groups, -1)).transpose(1, 2).flatten(0, 1)
    )


def _cat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)  # else a copy


class StackedEngine(Engine):
    """Batched training of clients, on GPU or CPU; arguments as for :class:`Engine`."""

    backend = "stacked"

    def __init__(self, fed, model: Model, spec: TrainSpec, device: str = "cpu") -> None:
        super().__init__(fed, model, spec, device)
        samples = Samples.of(fed)
        self.pixels, self.labels = (
            samples.flat.to(self.device),
            samples.classes.to(self.device),
        )
        each = zip(model.layers, model.activations, strict=True)
        products = [
            one.inputs * one.kernel**2 * math.prod(shape)
            for one, shape in each
            if isinstance(one, Conv)
        ]
        self.apart = spec.batch_size * max(products, default=0) >= APART
        self.lookup = None
        if (
            samples.flat.dtype == torch.uint8
        ):  # the input of each of the 256 values of a channel: exact on any device
            c = samples.input_shape[0]
            values = torch.empty(256, c, 1, 1)
            grey = np.repeat(np.arange(256, dtype=np.uint8)[:, None], c, axis=1)
            one = Samples(
                grey, np.zeros(256, np.int64), {}, (c, 1, 1), samples.mean, samples.std
            )
            one.fill(np.arange(256), values)
            self.lookup = values.flatten().to(
                self.device
            )  # value by value, channels next to each other
            self.channel = torch.arange(c, device=self.device).view(c, 1, 1)

    def _inputs(self, index: torch.Tensor) -> torch.Tensor:
        """Return the inputs of an array of positions: (*index.shape, C, H, W)."""
        c, h, w = self.model.input_shape
        raw = self.pixels[index].view(*index.shape, h, w, c).movedim(-1, -3)
        return (
            raw if self.lookup is None else self.lookup[raw.int() * c + self.channel]
        ).to(self.dtype)

    def chunk(self) -> int:
        """Clients trained at a time, by a model of the memory they take."""
        numbers = self.model.n_parameters * (
            2 + bool(self.spec.momentum) + bool(self.spec.proximal)
        )
        numbers += (
            4
            * self.spec.batch_size
            * sum(int(np.prod(shape)) for shape in self.model.activations)
        )
        room = (
            GPU_SHARE * torch.cuda.mem_get_info(self.device)[0]
            if self.device.type == "cuda"
            else CPU_BYTES
        )
        return max(1, int(room // (numbers * np.dtype(self.spec.dtype).itemsize)))

    def _train(self, theta, rows, clients, round, weights, done: Trained) -> None:
        longest = sorted(
            range(len(rows)), key=lambda j: -len(self.fed.train[clients[j]])
        )
        size = self.chunk()
        with torch.inference_mode(), self._kernels():
            for begin in range(0, len(rows), size):
                chosen = longest[begin : begin + size]
                start = theta[
                    [rows[j] for j in chosen]
                ]  # a list of rows: always a copy
                own = [clients[j] for j in chosen], round, [weights[j] for j in chosen]
                done.theta[chosen], done.loss[chosen] = self._chunk(start, *own)

    def _chunk(
        self, start: np.ndarray, clients: list[int], round: int, weights
    ) -> tuple:
        sizes = np.array([len(self.fed.train[client]) for client in clients])
        values = torch.from_numpy(start).to(self.device).split(self.model.sizes, dim=1)
        shaped = (
            value.reshape(-1, *shape)
            for value, (_, shape) in zip(values, self.model.shapes, strict=True)
        )
        parameters = [_Parameter(value.clone(), self.spec) for value in shaped]
        layers = [
            _Conv(stage, weight, bias, self.apart)
            if isinstance(stage.linear, Conv)
            else _Dense(stage, weight, bias)
            for stage, weight, bias in zip(
                self.model.stages, parameters[::2], parameters[1::2], strict=True
            )
        ]
        loss = torch.zeros(len(clients), dtype=torch.float64, device=self.device)
        for index, weight, count, masks, last in self._batches(
            clients, sizes, round, weights
        ):
            a = len(index)
            x, y = self._inputs(index), self.labels[index]
            for layer in layers:
                if isinstance(layer, _Dense):
                    x = x.flatten(2)
                x = layer.forward(
                    x,
                    None if layer.stage.dropout is None else masks[layer.stage.dropout],
                )
            target = torch.zeros_like(x).scatter_(2, y[..., None], 1.0)
            d = (
                torch.softmax(x, 2)
                .sub_(target)
                .mul_((weight / count[:, None])[..., None])
            )
            losses = functional.cross_entropy(
                x.flatten(0, 1), y.flatten(), reduction="none"
            ).view(a, -1)
            loss[:a] += torch.where(last, (losses * weight).double().sum(1), 0.0)
            for position in range(len(layers) - 1, -1, -1):
                d = layers[position].backward(d, first=position == 0)
                if position and isinstance(layers[position - 1], _Conv) and d.ndim == 3:
                    d = d.view(layers[position - 1].out.shape)
        theta = torch.cat(
            [parameter.value.flatten(1) for parameter in parameters], dim=1
        )
        return theta.cpu().numpy(), loss.cpu().numpy() / sizes

    def _batches(
        self, clients: list[int], sizes: np.ndarray, round: int, weights
    ) -> Iterator[tuple]:
        """Give the steps of clients, longest first, that have so many samples; each for the ``a`` still at work.

        That is positions in the pool (a, B), sample weights (a, B; zero where a batch is filled up), true batch sizes
        (a,), scaled masks (a, B, ...) and whether it is the last epoch (a,).
        """
        spec, model, epochs = self.spec, self.model, self.spec.local_epochs
        size = min(spec.batch_size, int(sizes.max()))
        per_epoch = -(-sizes // size)
        steps = per_epoch * epochs
        shape = (int(steps.max()), len(clients), size)
        index, weight = (
            np.zeros(shape, dtype=np.int64),
            np.zeros(shape, dtype=spec.dtype),
        )
        keep = [np.zeros((*shape, *mask), dtype=bool) for mask, _ in model.dropout]
        for j, client in enumerate(clients):
            mine, k = self.fed.train[client], int(per_epoch[j])
            for epoch in range(epochs):
                sequence = order(spec, round, client, epoch, len(mine))
                part = slice(epoch * k, epoch * k + k)
                own = (
                    np.ones(len(mine), spec.dtype)
                    if weights[j] is None
                    else weights[j][sequence]
                )
                # filling up with the first sample of the batch order keeps every number finite
                index[part, j] = _fill(mine[sequence], k, size, mine[sequence[0]])
                weight[part, j] = _fill(own, k, size, 0)
                masks = keep_masks(spec, model, round, client, epoch, len(mine))
                for all_keep, mask in zip(keep, masks, strict=True):
                    all_keep[part, j] = _fill(mask, k, size, False)
        ends = np.arange(1, shape[0] + 1)[:, None]
        count = np.where(
            ends % per_epoch == 0, sizes - (per_epoch - 1) * size, size
        ).astype(spec.dtype)
        arrays = index, weight, count, ends > steps - per_epoch, *keep
        index, weight, count, last, *keep = (
            torch.from_numpy(array).to(self.device) for array in arrays
        )
        for step in range(len(index)):
            a = int((steps > step).sum())
            masks = [
                k[step, :a].to(self.dtype) / (1 - p)
                for k, (_, p) in zip(keep, model.dropout, strict=True)
            ]
            yield (
                index[step, :a],
                weight[step, :a],
                count[step, :a],
                masks,
                last[step, :a],
            )

    def _kernels(self):
        return exact(self.device, 1)

    def _served(self, theta: np.ndarray):
        params = self.model.unflatten(tensor(theta).to(self.device, copy=True))
        return lambda x: self.model.predict(params, x, self.spec.kernels)

    def _batch(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        index = tensor(index).to(self.device)
        return self._inputs(index), self.labels[index]


def _fill(values: np.ndarray, k: int, size: int, filler) -> np.ndarray:
    out = np.full((k * size, *values.shape[1:]), filler, dtype=values.dtype)
    out[: len(values)] = values
    return out.reshape(k, size, *values.shape[1:])
