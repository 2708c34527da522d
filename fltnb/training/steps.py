"""Local SGD without autograd, optimiser objects or DataLoader: the step the CPU workers run.

At the sizes of the papers' models a step spends most of its time in bookkeeping, so the backward pass is written out
and the SGD update is folded into the matrix product that makes the gradient (``W <- W - lr/B x^T d`` is one call, and
no gradient is ever stored). Weights and bias of a dense layer sit in one matrix, met by a constant 1 in the inputs.
Dense layers and narrow convolutions have kernels of their own; others keep torch's, pooled before ReLU and dropout.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn import functional

from ..models import POOL, Conv, Model, Stage
from .kernels import dense, narrow, vectors, wide
from .contract import TrainSpec, keep_masks, order
from .samples import Samples, tensor

SLAB = 1000  # samples gathered at a time; bounds the working copy where a client holds many
NARROW = 16  # output channels up to which our own kernels are the faster ones
TURNED = 32  # rows of a dense layer turned at a time: more, a power of two apart, push each other out of the cache
SPARE = 16  # pixels that they may read beyond the last image

_pool_backward = torch.ops.aten.max_pool2d_with_indices_backward.default
_convolution_backward = torch.ops.aten.convolution_backward.default
relu_backward = torch.ops.aten.threshold_backward.default
relu_backward_to = torch.ops.aten.threshold_backward.grad_input


def descend(
    spec: TrainSpec,
    parameter: torch.Tensor,
    velocity: torch.Tensor | None,
    start: torch.Tensor | None,
    accumulate: Callable[[torch.Tensor, float, float], object],
) -> None:
    """Take one SGD step in place, torch.optim.SGD's rule plus the proximal term.

    ``velocity`` is the momentum buffer, ``start`` the parameter before local training, both None if not needed;
    ``accumulate(target, beta, alpha)`` sets ``target = beta * target + alpha * gradient``.
    """
    pull = spec.weight_decay + spec.proximal
    if velocity is None:
        accumulate(parameter, 1.0 - spec.lr * pull, -spec.lr)
        if start is not None:
            parameter.add_(start, alpha=spec.lr * spec.proximal)
        return
    accumulate(velocity, spec.momentum, 1.0)
    if pull:
        velocity.add_(parameter, alpha=pull)
    if start is not None:
        velocity.add_(start, alpha=-spec.proximal)
    parameter.add_(velocity, alpha=-spec.lr)


def axpby(gradient: torch.Tensor) -> Callable[[torch.Tensor, float, float], object]:
    """Return the ``accumulate`` of a gradient that exists as a tensor."""

    def accumulate(target: torch.Tensor, beta: float, alpha: float) -> None:
        if beta != 1:
            target.mul_(beta)
        target.add_(gradient, alpha=alpha)

    return accumulate


def unactivated(layer, d: torch.Tensor) -> torch.Tensor:
    """Take a gradient back through a layer's ReLU and mask."""
    if layer.stage.relu:
        d = relu_backward(d, layer.out, 0)
    return d if layer.mask is None else d * layer.mask


def unpooled(layer, d: torch.Tensor) -> torch.Tensor:
    """Take a gradient of pooled outputs back to a convolution's own, ``layer.raw``; leave one of these as it is."""
    d, two = d.to(layer.raw.dtype), [POOL, POOL]
    same = d.shape == layer.raw.shape
    return (
        d
        if same
        else _pool_backward(
            d, layer.raw, two, two, [0, 0], [1, 1], False, layer.winners
        )
    )


def convolution_gradients(
    conv: Conv,
    d: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    groups: int,
    first: bool,
) -> tuple:
    """Return gradients of inputs (None if first), weight (groups * outputs, inputs, k, k) and bias."""
    return _convolution_backward(
        *(
            d,
            x,
            weight,
            [groups * conv.outputs],
            [1, 1],
            [conv.padding] * 2,
            [1, 1],
            False,
            [0, 0],
            groups,
        ),
        [not first, True, True],
    )


def padded(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a (rows, columns) matrix of zeros whose rows the kernels may use to the end of their last block."""
    return torch.zeros(rows, vectors.padded(columns), dtype=dtype)[:, :columns]


class _Dense:
    def __init__(self, stage: Stage, spec: TrainSpec, dtype: torch.dtype) -> None:
        self.stage, self.spec, self.dtype = stage, spec, dtype
        shape = stage.linear.inputs + 1, stage.linear.outputs
        self.weight = padded(*shape, dtype)  # the last row is the bias
        self.array, self.turned = self.weight.numpy(), self.weight[:-1].t()
        self.velocity = padded(*shape, dtype) if spec.momentum else None
        self.start = padded(*shape, dtype) if spec.proximal else None

    def load(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        for part, given in zip(
            self.turned.split(TURNED), weight.split(TURNED), strict=True
        ):
            part.copy_(given)
        self.weight[-1].copy_(bias)
        if self.velocity is not None:
            self.velocity.zero_()
        if self.start is not None:
            self.start.copy_(self.weight)

    def store(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        weight.copy_(self.turned)
        bias.copy_(self.weight[-1])

    def batch(self, b: int) -> tuple:
        """Room for b samples' outputs, with the constant 1 for the next layer and without, and their gradient."""
        whole = padded(b, self.stage.linear.outputs + 1, self.dtype)
        d = padded(b, self.stage.linear.outputs, self.dtype)
        return whole.numpy(), whole[:, :-1], d, d.numpy()

    def forward(self, x: np.ndarray, out: np.ndarray) -> None:
        dense.forward(x, self.array, out, self.stage.relu)

    def backward(self, d: np.ndarray, x: np.ndarray, below: np.ndarray) -> None:
        """Write the gradient of the inputs x into ``below``, if it has rows, and take the step."""

        def accumulate(target: torch.Tensor, beta: float, alpha: float) -> None:
            dense.backward(
                self.array, target.numpy(), x, d, beta, alpha / len(x), below
            )

        descend(self.spec, self.weight, self.velocity, self.start, accumulate)


class _Conv:
    def __init__(
        self, stage: Stage, spec: TrainSpec, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> None:
        self.stage, self.spec, self.dtype, self.shape = (
            stage,
            spec,
            dtype,
            shape,
        )  # shape (C, H, W) of the inputs
        self.bias = torch.empty(stage.linear.outputs, dtype=dtype)
        self.memory, self.weight = self._allocate(stage.linear)
        self.both = (self.memory, self.bias)
        self.velocity = (
            [torch.zeros_like(p) for p in self.both] if spec.momentum else (None, None)
        )
        self.start = (
            [torch.zeros_like(p) for p in self.both] if spec.proximal else (None, None)
        )

    def _allocate(self, conv: Conv) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the memory of the weights, and as (outputs, inputs, k, k)."""
        weight = torch.empty(
            conv.outputs, conv.inputs, conv.kernel, conv.kernel, dtype=self.dtype
        )
        weight = weight.to(memory_format=torch.channels_last)
        return weight, weight

    def load(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self.weight.copy_(weight)
        self.bias.copy_(bias)
        for velocity, start, parameter in zip(
            self.velocity, self.start, self.both, strict=True
        ):
            if velocity is not None:
                velocity.zero_()
            if start is not None:
                start.copy_(parameter)

    def store(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        weight.copy_(self.weight)
        bias.copy_(self.bias)

    def convolved(self, x: torch.Tensor) -> torch.Tensor:
        """Return outputs before pooling; keep inputs and weights in the type that convolutions compute in."""
        kernels, padding = self.spec.kernels, self.stage.linear.padding
        self.x, self.kernel = (
            x.to(kernels, memory_format=torch.channels_last),
            self.weight.to(kernels),
        )
        return functional.conv2d(
            self.x, self.kernel, self.bias.to(kernels), padding=padding
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        self.mask = mask
        self.raw = out = self.convolved(x)
        if self.stage.pool:
            out, self.winners = functional.max_pool2d(out, POOL, return_indices=True)
        if mask is not None:
            out = out * mask.to(out.dtype)
        self.out = out.relu_() if self.stage.relu else out
        return self.out

    def backward(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor | None:
        return self.through(
            unactivated(self, d.to(self.out.dtype, memory_format=torch.channels_last)),
            b,
            first,
        )

    def through(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor | None:
        d = unpooled(self, d)
        grad, *own = convolution_gradients(
            self.stage.linear, d, self.x, self.kernel, 1, first
        )
        self.descend(own, b)
        return grad

    def descend(self, gradients: Sequence[torch.Tensor], b: int) -> None:
        for parameter, gradient, velocity, start in zip(
            self.both, gradients, self.velocity, self.start, strict=True
        ):
            descend(
                self.spec,
                parameter,
                velocity,
                start,
                axpby(gradient.to(parameter.dtype).div_(b)),
            )


class _NarrowConv(_Conv):
    """The same by the kernels for few channels, on flat memory of which they read a little beyond the end."""

    def _allocate(self, conv: Conv) -> tuple[torch.Tensor, torch.Tensor]:
        made = narrow.make(conv.inputs, conv.outputs, *self.shape[1:], conv.kernel)
        self.run_forward, self.run_backward, (h, w), row, sweep = made
        self.row, self.out_shape, self.rooms = row, (h, w, conv.outputs), {}
        rows = torch.zeros(conv.outputs, conv.kernel, row, dtype=self.dtype)
        planes = torch.zeros(
            conv.inputs, sweep + narrow.TAPS * self.shape[2], dtype=self.dtype
        )
        self.scratch = planes.numpy(), torch.empty(2, sweep, dtype=self.dtype).numpy()
        self.gradients = torch.empty_like(rows), torch.empty_like(self.bias)
        return rows, rows[..., : conv.kernel * conv.inputs].unflatten(
            2, (conv.kernel, conv.inputs)
        ).permute(0, 3, 1, 2)

    def _images(
        self, b: int, shape: tuple[int, ...]
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Return memory for b images (H, W, C), channels last: as (b, C, H, W), and flat with room to read beyond."""
        n = b * math.prod(shape)
        flat = torch.zeros(n + SPARE * shape[2], dtype=self.dtype)
        return flat[:n].view(b, *shape).permute(0, 3, 1, 2), flat.numpy()

    def forward(self, x: torch.Tensor, mask: None) -> torch.Tensor:
        b, (c, h, w) = x.shape[0], self.shape
        if b not in self.rooms:
            self.rooms = dict(
                [*self.rooms.items()][-1:]
            )  # with a short last batch two sizes, not all clients'
            winners = np.empty(b * math.prod(self.out_shape), dtype=np.int32)
            self.rooms[b] = (
                *self._images(b, self.out_shape),
                winners,
                *self._images(b, (h, w, c)),
            )
        out, *self.last, self.below, self.d_x = self.rooms[b]
        self.x = x.permute(0, 2, 3, 1).flatten().numpy()
        self.run_forward(
            self.x, *self.scratch, self.memory.numpy(), self.bias.numpy(), *self.last
        )
        return out

    def backward(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor:
        d = (
            d.contiguous(memory_format=torch.channels_last)
            .permute(0, 2, 3, 1)
            .flatten()
        )
        own = [one.flatten().numpy() for one in (self.memory, *self.gradients)]
        self.run_backward(d.numpy(), self.x, *self.last, *own, not first, self.d_x)
        self.descend(self.gradients, b)
        return self.below


class _WideConv(_Conv):
    """The same where many channels enter: torch's convolution, our pooling and our way back."""

    def _allocate(self, conv: Conv) -> tuple[torch.Tensor, torch.Tensor]:
        made = wide.make(
            conv.inputs, conv.outputs, *self.shape[1:], conv.kernel, conv.padding
        )
        (
            self.run_pool,
            self.run_spread,
            self.run_backward,
            self.out_shape,
            self.rooms,
        ) = *made, {}
        self.gradients = torch.empty(
            conv.outputs, conv.kernel, conv.kernel, conv.inputs, dtype=self.dtype
        )
        return super()._allocate(conv)

    def forward(self, x: torch.Tensor, mask: None) -> torch.Tensor:
        b, (c, h, w), self.raw = x.shape[0], self.shape, self.convolved(x)
        if b not in self.rooms:
            self.rooms = dict(
                [*self.rooms.items()][-1:]
            )  # with a short last batch two sizes, not all clients'
            out = torch.empty(
                b, self.stage.linear.outputs, *self.out_shape, dtype=self.dtype
            )
            own = (
                self.raw.dtype == self.dtype
            )  # then the inputs' gradient, else that of the outputs before pooling
            back = (
                torch.empty(b, h, w, c, dtype=self.dtype)
                if own
                else torch.zeros_like(self.raw)
            )
            self.rooms[b] = out, np.empty(out.numel(), dtype=np.uint8), back
        out, winners, _ = self.rooms[b]
        self.run_pool(_pixels(self.raw), out.flatten().numpy(), winners)
        return out

    def backward(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor:
        _, winners, back = self.rooms[b]
        if self.raw.dtype != self.dtype:  # torch's way back pays in bfloat16
            self.run_spread(_pixels(d.to(self.raw.dtype)), winners, _pixels(back))
            return self.through(back, b, first)
        taps, d_bias = (
            self.weight.permute(2, 3, 0, 1).flatten(),
            torch.empty_like(self.bias),
        )
        arrays = [one.flatten().numpy() for one in (taps, self.gradients, d_bias)]
        self.run_backward(
            d.flatten().numpy(),
            winners,
            _pixels(self.x),
            *arrays,
            back.flatten().numpy(),
        )
        self.descend((self.gradients.permute(0, 3, 1, 2), d_bias), b)
        return back.permute(0, 3, 1, 2)


def _pixels(x: torch.Tensor) -> np.ndarray:
    """Return images as flat memory, channels last; bfloat16 as the 16 bits that it is."""
    flat = x.permute(0, 2, 3, 1).flatten()
    return (flat.view(torch.uint16) if flat.dtype == torch.bfloat16 else flat).numpy()


def _convolution(
    stage: Stage, spec: TrainSpec, dtype: torch.dtype, shape: tuple[int, ...]
) -> _Conv:
    conv, kind = stage.linear, _Conv
    few = (
        conv.outputs <= NARROW
        and conv.outputs % 2 == 0
        and conv.kernel <= narrow.TAPS
        and not conv.padding
    )
    if stage.pool and stage.relu and stage.dropout is None:
        if few and spec.kernels == dtype:
            kind = _NarrowConv
        elif conv.inputs % vectors.LANES == 0:
            kind = _WideConv
    return kind(stage, spec, dtype, shape)


class LeanTrainer:
    """Trains one client after the other in private buffers; one per worker process.

    The model has convolution stages (possibly none) followed by dense stages.
    """

    def __init__(self, model: Model, spec: TrainSpec, samples: Samples) -> None:
        self.model, self.spec, self.samples = model, spec, samples
        self.dtype = getattr(torch, spec.dtype)
        stages = model.stages
        before = zip(
            model.layers, (model.input_shape, *model.activations), strict=False
        )
        shapes = [shape for layer, shape in before if isinstance(layer, Conv)]
        self.body = [
            _convolution(stage, spec, self.dtype, shape)
            for stage, shape in zip(stages, shapes, strict=False)
        ]
        self.head = [
            _Dense(stage, spec, self.dtype) for stage in stages[len(self.body) :]
        ]
        self.layers = [*self.body, *self.head]
        self.slab = -(-SLAB // spec.batch_size) * spec.batch_size  # whole batches
        self.features = padded(0, self.head[0].stage.linear.inputs + 1, self.dtype)

    @torch.inference_mode()
    def train(
        self,
        theta: np.ndarray,
        client: int,
        round: int,
        sample_weights: np.ndarray | None,
        out: np.ndarray,
    ) -> float:
        """Train one client from ``theta`` (P,) into ``out`` (P,); return the mean loss of the last local epoch."""
        for layer, (weight, bias) in zip(self.layers, self._pairs(theta), strict=True):
            layer.load(weight, bias)
        mine = self.samples.splits["train"][client]
        n = len(mine)
        for epoch in range(self.spec.local_epochs):
            sequence = order(self.spec, round, client, epoch, n)
            masks = keep_masks(self.spec, self.model, round, client, epoch, n)
            pairs = zip(masks, self.model.dropout, strict=True)
            scales = [
                torch.from_numpy(keep).to(self.dtype).div_(1 - p)
                for keep, (_, p) in pairs
            ]
            weights = (
                None
                if sample_weights is None
                else torch.from_numpy(sample_weights[sequence])
            )
            last = epoch == self.spec.local_epochs - 1
            total = 0.0
            for start in range(0, n, self.slab):
                part = slice(start, start + self.slab)
                own = None if weights is None else weights[part]
                total += self._slab(
                    mine[sequence[part]], [scale[part] for scale in scales], own, last
                )
        for layer, (weight, bias) in zip(self.layers, self._pairs(out), strict=True):
            layer.store(weight, bias)
        return total / n

    def _pairs(self, theta: np.ndarray) -> list[tuple[torch.Tensor, torch.Tensor]]:
        parts = self.model.unflatten(tensor(theta))
        return list(zip(parts[::2], parts[1::2], strict=True))

    def _slab(
        self,
        index: np.ndarray,
        scales: list,
        weights: torch.Tensor | None,
        measure: bool,
    ) -> float:
        """Take the steps of some consecutive batches; return their summed loss if asked to measure it."""
        n, size = len(index), self.spec.batch_size
        y = self.samples.targets(index)
        logits = padded(n, self.model.n_classes, self.dtype)
        none = torch.empty(0, dtype=self.dtype)
        batches = zip(
            self._inputs(index).split(size),
            y.split(size),
            logits.split(size),
            zip(*(scale.split(size) for scale in scales), strict=True)
            if scales
            else [()] * -(-n // size),
            [none] * -(-n // size)
            if weights is None
            else weights.to(self.dtype).split(size),
            strict=True,
        )
        rooms: dict[int, tuple] = {}
        for x, target, out, masks, weight in batches:
            b = x.shape[0]  # len() of a tensor takes 4 microseconds
            if b not in rooms:  # at most two sizes: the batch and a short last one
                below = torch.empty(
                    b if self.body else 0, self.features.shape[1] - 1, dtype=self.dtype
                )
                rooms[b] = below, [layer.batch(b) for layer in self.head]
            if not self.body:
                self._dense(x, target, out, masks, weight, *rooms[b])
                continue
            for layer in self.body:
                x = layer.forward(x, _of(layer, masks))
            flat = self._room(b)
            flat[:, :-1].view(x.shape).copy_(x)
            self._dense(flat, target, out, masks, weight, *rooms[b])
            d = rooms[b][0].view(x.shape)
            for layer in reversed(self.body):
                d = layer.backward(d, b, layer is self.body[0])
        if not measure:
            return 0.0
        losses = functional.cross_entropy(logits, y, reduction="none")
        return float((losses if weights is None else losses * weights).double().sum())

    def _inputs(self, index: np.ndarray) -> torch.Tensor:
        """Return the inputs of a slab: dense layers get rows ending in a 1, convolutions images with channels last."""
        n, (c, h, w) = len(index), self.model.input_shape
        if self.body:
            flat = torch.empty((n * h * w + SPARE) * c, dtype=self.dtype)
            x = flat[: n * h * w * c].view(n, h, w, c).permute(0, 3, 1, 2)
            self.samples.fill(index, x)
            return x
        x = self._room(n)
        self.samples.fill(index, x[:, :-1].view(n, c, h, w))
        return x

    def _room(self, n: int) -> torch.Tensor:
        if len(self.features) < n:
            self.features = padded(n, self.features.shape[1], self.dtype)
            self.features[:, -1] = 1
        return self.features[:n]

    def _dense(self, x, y, out, masks, weight, below, room) -> None:
        """One step of the dense layers; ``below`` gets the gradient of their inputs, if it has rows."""
        head = self.head
        inputs = [x.numpy()]
        for layer, (whole, z, _, _) in zip(head[:-1], room, strict=False):
            layer.forward(inputs[-1], whole)
            mask = _of(layer, masks)
            if mask is not None:  # never negative, so it may come after ReLU
                z.mul_(mask)
            inputs.append(whole)
        out = out.numpy()
        head[-1].forward(inputs[-1], out)
        errors = room[-1][-1]
        dense.errors(out, y.numpy(), weight.numpy(), errors)
        for k in range(len(head) - 1, 0, -1):
            (_, z, d, array), mask = room[k - 1], _of(head[k - 1], masks)
            head[k].backward(errors, inputs[k], array)
            if head[k - 1].stage.relu:
                relu_backward_to(d, z, 0, grad_input=d)
            if mask is not None:
                d.mul_(mask)
            errors = array
        head[0].backward(errors, inputs[0], below.numpy())


def _of(layer: _Dense | _Conv, masks: tuple) -> torch.Tensor | None:
    return None if layer.stage.dropout is None else masks[layer.stage.dropout]
