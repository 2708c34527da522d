"""Layers of the lean trainer: forward, backward and the SGD step, in buffers of theirs.

Weights and bias of a dense layer sit in one matrix, met by a constant 1 in the inputs.
Dense layers and the papers' convolutions have kernels of their own, other convolutions
torch's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from ..models import POOL, Stage
from .contract import TrainSpec
from .gradients import (
    Parameter,
    add,
    before_activation,
    before_pooling,
    convolution_gradients,
)
from .kernels import dense, narrow, vectors, wide

NARROW = 16  # output channels up to which the kernels for few are the faster ones
SPARE = 16  # pixels that these kernels may read beyond the last image
# Rows of a dense layer that are turned at a time: more of them, a power of two apart,
# push each other out of the cache.
TURNED = 32

_relu_backward_to = torch.ops.aten.threshold_backward.grad_input


def padded(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix of zeros with rows that the kernels may use to their block's end.

    The kernels work in whole blocks of columns; what is shown is (rows, columns).
    """
    return torch.zeros(rows, vectors.padded(columns), dtype=dtype)[:, :columns]


class Rooms:
    """Working memory by batch size, made when it is first asked for.

    There are two sizes at most at a time, the usual one and that of a short last batch,
    and not those of all clients.

    Parameters
    ----------
    make : callable
        From a number of samples to their memory.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make
        self.kept: dict[int, Any] = {}

    def __getitem__(self, b: int):
        if b in self.kept:
            return self.kept[b]
        if len(self.kept) == 2:
            shorter = min(self.kept)
            del self.kept[shorter]
        self.kept[b] = self.make(b)
        return self.kept[b]


class DenseRoom(NamedTuple):
    """Memory for a dense layer's outputs and their gradient; arrays share it."""

    # (b, outputs + 1), with the constant 1 that the next layer meets
    whole: np.ndarray
    out: torch.Tensor  # (b, outputs)
    d: torch.Tensor  # (b, outputs)
    d_array: np.ndarray


class Dense:
    """A dense layer with ReLU, if its stage has one.

    Attributes
    ----------
    parameter : Parameter
        Weights and bias, their rows filled up for the kernels.
    weight : tensor, shape (inputs + 1, outputs)
        The same without what fills up; the last row is the bias.
    array : ndarray
        The same memory.
    turned : tensor, shape (outputs, inputs)
        Its weights as torch has them.
    """

    def __init__(self, stage: Stage, spec: TrainSpec, dtype: torch.dtype) -> None:
        self.stage = stage
        self.dtype = dtype
        self.inputs = stage.linear.inputs
        self.outputs = stage.linear.outputs
        rows = self.inputs + 1
        memory = torch.zeros(rows, vectors.padded(self.outputs), dtype=dtype)
        self.parameter = Parameter(memory, spec)
        self.weight = memory[:, : self.outputs]
        self.array = self.weight.numpy()
        self.turned = self.weight[:-1].t()

    def load(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Begin local training with these weights, (outputs, inputs) as torch has them.

        ``bias`` has shape (outputs,).
        """
        own = self.turned.split(TURNED)
        given = weight.split(TURNED)
        for to, part in zip(own, given, strict=True):
            to.copy_(part)
        self.weight[-1].copy_(bias)
        self.parameter.restart()

    def vary(self, proximal: float, frozen: bool) -> None:
        """Train otherwise than the settings say."""
        self.parameter.vary(proximal, frozen)

    def pull_to(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Let the proximal term pull to these weights, if there is one."""
        if self.parameter.start is None:
            return
        start = self.parameter.start[:, : self.outputs]
        start[:-1].copy_(weight.t())
        start[-1].copy_(bias)

    def store(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Write the trained weights where they belong."""
        weight.copy_(self.turned)
        bias.copy_(self.weight[-1])

    def room(self, b: int) -> DenseRoom:
        """Return memory for a batch of b samples."""
        whole = padded(b, self.outputs + 1, self.dtype)
        d = padded(b, self.outputs, self.dtype)
        return DenseRoom(whole.numpy(), whole[:, :-1], d, d.numpy())

    def forward(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the activations of inputs (b, inputs + 1) into ``out``."""
        dense.forward(x, self.array, out, self.stage.relu)

    def backward(self, d: np.ndarray, x: np.ndarray, below: np.ndarray) -> None:
        """Take the step, and the gradient back to the inputs.

        Parameters
        ----------
        d : ndarray, shape (b, outputs)
            Gradient of the outputs, a sum over the batch.
        x : ndarray, shape (b, inputs + 1)
            What :meth:`forward` met.
        below : ndarray, shape (b, inputs) or (0, inputs)
            Filled with the inputs' gradient, if it has rows.
        """

        def accumulate(target: torch.Tensor, beta: float, alpha: float) -> None:
            target = target.numpy()[:, : self.outputs]
            mean = alpha / len(x)
            dense.backward(self.array, target, x, d, beta, mean, below)

        self.parameter.descend(accumulate)

    def before(self, room: DenseRoom, mask: torch.Tensor | None) -> None:
        """Take the gradient in ``room`` back through ReLU and dropout, in place."""
        if self.stage.relu:
            _relu_backward_to(room.d, room.out, 0, grad_input=room.d)
        if mask is not None:
            room.d.mul_(mask)


class Conv:
    """A convolution by torch's kernels, with pooling, dropout and ReLU as the stage.

    Attributes
    ----------
    memory : tensor
        The weights, as the layer's kernels have them.
    weight : tensor, shape (outputs, inputs, k, k)
        The same memory as torch has it.
    bias : tensor, shape (outputs,)
    rooms : Rooms
        Memory for batches, where the layer needs some.
    """

    def __init__(
        self, stage: Stage, spec: TrainSpec, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> None:
        self.stage = stage
        self.conv = stage.linear
        self.spec = spec
        self.dtype = dtype
        self.shape = shape  # (C, H, W) of the inputs
        self.rooms = Rooms(self.room)
        self.bias = torch.empty(self.conv.outputs, dtype=dtype)
        self.memory, self.weight = self.allocate()
        self.parameters = [Parameter(self.memory, spec), Parameter(self.bias, spec)]

    def allocate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``memory`` and ``weight``."""
        k = self.conv.kernel
        shape = (self.conv.outputs, self.conv.inputs, k, k)
        weight = torch.empty(shape, dtype=self.dtype, memory_format=torch.channels_last)
        return weight, weight

    def room(self, b: int) -> Any:
        """Return memory for a batch of b images, where a layer needs it."""

    def load(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Begin local training with these weights."""
        self.weight.copy_(weight)
        self.bias.copy_(bias)
        for parameter in self.parameters:
            parameter.restart()

    def vary(self, proximal: float, frozen: bool) -> None:
        """Train otherwise than the settings say."""
        for parameter in self.parameters:
            parameter.vary(proximal, frozen)

    def pull_to(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Let the proximal term pull to these weights, if there is one."""
        of_weight, of_bias = self.parameters
        if of_weight.start is not None:
            self.shown(of_weight.start).copy_(weight)
            of_bias.start.copy_(bias)

    def shown(self, memory: torch.Tensor) -> torch.Tensor:
        """Return memory of weights as (outputs, inputs, k, k)."""
        return memory

    def store(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Write the trained weights where they belong."""
        weight.copy_(self.weight)
        bias.copy_(self.bias)

    def convolved(self, x: torch.Tensor) -> torch.Tensor:
        """Return outputs before pooling; keep inputs and weights as they were used."""
        kernels = self.spec.kernels
        self.x = x.to(kernels, memory_format=torch.channels_last)
        self.kernel = self.weight.to(kernels)
        bias = self.bias.to(kernels)
        return functional.conv2d(self.x, self.kernel, bias, padding=self.conv.padding)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (b, C, H, W) to activations, pooled first: that leaves less to do."""
        self.mask = mask
        self.raw = out = self.convolved(x)
        if self.stage.pool:
            out, self.winners = functional.max_pool2d(out, POOL, return_indices=True)
        if mask is not None:  # never negative, so it may come before ReLU
            out = out * mask.to(out.dtype)
        if self.stage.relu:
            out = out.relu_()
        self.out = out
        return out

    def backward(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor | None:
        """Take the step; return the gradient of the inputs, None for the first layer.

        ``d`` is the gradient of the activations of b images, not yet divided by b.
        """
        d = d.to(self.out.dtype, memory_format=torch.channels_last)
        d = before_activation(self, d)
        d = before_pooling(self, d)
        return self.step(d, b, first)

    def step(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor | None:
        """Do the same from the gradient of the outputs before pooling."""
        below, *own = convolution_gradients(
            self.conv, d, self.x, self.kernel, inputs=not first
        )
        self.descend(own, b)
        return below

    def descend(self, gradients, b: int) -> None:
        """Take the step; the gradients are sums over b images."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            mean = gradient.to(self.dtype).div_(b)
            parameter.descend(add(mean))


class NarrowRoom(NamedTuple):
    """Memory for a batch, as tensors (b, C, H, W) and as arrays that share it."""

    out: torch.Tensor
    out_array: np.ndarray  # (b, h, w, C)
    winners: np.ndarray  # (b, h, w, C)
    below: torch.Tensor  # gradient of the inputs
    below_flat: np.ndarray  # with room behind the last image


class NarrowConv(Conv):
    """The same by the kernels for few channels.

    They work on flat memory, of which they read a little beyond the end.
    """

    def allocate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights as rows of a kernel, and as (outputs, inputs, k, k)."""
        conv = self.conv
        _, height, width = self.shape
        made = narrow.make(conv.inputs, conv.outputs, height, width, conv.kernel)
        self.kernels = made

        # working memory for one image, as the kernels describe it
        plane = made.sweep + narrow.TAPS * width
        self.planes = torch.zeros(conv.inputs, plane, dtype=self.dtype).numpy()
        self.sums = torch.empty(2, made.sweep, dtype=self.dtype).numpy()

        rows = torch.zeros(conv.outputs, conv.kernel, made.row, dtype=self.dtype)
        self.gradients = torch.empty_like(rows), torch.empty_like(self.bias)
        return rows, self.shown(rows)

    def shown(self, memory: torch.Tensor) -> torch.Tensor:
        """Return rows of a kernel as (outputs, inputs, k, k)."""
        conv = self.conv
        used = memory[..., : conv.kernel * conv.inputs]
        return used.unflatten(2, (conv.kernel, conv.inputs)).permute(0, 3, 1, 2)

    def room(self, b: int) -> NarrowRoom:
        """Return memory for a batch of b images."""
        c, h, w = self.shape
        out, _ = self._images(
            b, self.kernels.height, self.kernels.width, self.conv.outputs
        )
        out_array = _array(out)
        winners = np.empty(out_array.shape, dtype=np.int32)
        below, below_flat = self._images(b, h, w, c)
        return NarrowRoom(out, out_array, winners, below, below_flat)

    def _images(
        self, b: int, h: int, w: int, c: int
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Return b images, channels last, and their flat memory with room behind."""
        n = b * h * w * c
        flat = torch.zeros(n + SPARE * c, dtype=self.dtype)
        return flat[:n].view(b, h, w, c).permute(0, 3, 1, 2), flat.numpy()

    def forward(self, x: torch.Tensor, mask: None) -> torch.Tensor:
        """Map (b, C, H, W) to pooled activations."""
        self.used = room = self.rooms[x.shape[0]]
        self.x = _flat(x)
        self.kernels.forward(
            self.x,
            self.planes,
            self.sums,
            self.memory.numpy(),
            self.bias.numpy(),
            room.out_array,
            room.winners,
        )
        return room.out

    def backward(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor:
        """Take the step; return the gradient of the inputs, unless first."""
        room = self.used
        d_rows, d_bias = self.gradients
        self.kernels.backward(
            _array(d),
            self.x,
            room.out_array,
            room.winners,
            self.memory.flatten().numpy(),
            d_rows.flatten().numpy(),
            d_bias.numpy(),
            room.below_flat[: 0 if first else None],
        )
        self.descend(self.gradients, b)
        return room.below


class WideRoom(NamedTuple):
    """Memory for a batch."""

    out: torch.Tensor  # (b, C, h, w)
    winners: np.ndarray  # (b, h, w, C)
    # gradient of the inputs (b, H, W, C), or in bfloat16 that of the outputs before
    # pooling (b, C, H, W), channels last in memory
    back: torch.Tensor


class WideConv(Conv):
    """The same where many channels enter.

    The convolution is torch's, pooling and the way back are our own. In bfloat16 it is
    torch's way back that pays.
    """

    def allocate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the memory of the weights, and as (outputs, inputs, k, k)."""
        conv = self.conv
        _, height, width = self.shape
        self.kernels = wide.make(
            conv.inputs, conv.outputs, height, width, conv.kernel, conv.padding
        )
        weight, _ = super().allocate()
        shape = (conv.outputs, conv.kernel, conv.kernel, conv.inputs)
        self.d_weight = torch.empty(shape, dtype=self.dtype)
        self.d_bias = torch.empty_like(self.bias)
        return weight, weight

    def room(self, b: int) -> WideRoom:
        """Return memory for a batch of b images."""
        h, w = self.kernels.height, self.kernels.width
        out = torch.empty(b, self.conv.outputs, h, w, dtype=self.dtype)
        winners = np.empty((b, h, w, self.conv.outputs), dtype=np.uint8)
        if self.raw.dtype == self.dtype:
            channels, height, width = self.shape
            back = torch.empty(b, height, width, channels, dtype=self.dtype)
        else:
            back = torch.zeros_like(self.raw)
        return WideRoom(out, winners, back)

    def forward(self, x: torch.Tensor, mask: None) -> torch.Tensor:
        """Map (b, C, H, W) to pooled activations."""
        self.raw = self.convolved(x)
        out, winners, _ = self.rooms[x.shape[0]]
        self.kernels.pool(_flat(self.raw), out.numpy(), winners)
        return out

    def backward(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor:
        """Take the step; return the gradient of the inputs, unless first."""
        _, winners, back = self.rooms[b]
        if self.raw.dtype != self.dtype:
            d = d.to(self.raw.dtype)
            self.kernels.spread(_array(d), winners, _array(back))
            return self.step(back, b, first)

        d = d.contiguous().numpy()
        self.kernels.weight_gradients(
            d,
            winners,
            _flat(self.x),
            self.d_weight.flatten().numpy(),
            self.d_bias.numpy(),
        )
        if not first:
            taps = self.weight.permute(2, 3, 0, 1).flatten().numpy()
            self.kernels.input_gradients(d, winners, taps, back.flatten().numpy())
        d_weight = self.d_weight.permute(0, 3, 1, 2)  # (outputs, inputs, k, k)
        self.descend((d_weight, self.d_bias), b)
        return back.permute(0, 3, 1, 2)


def _array(x: torch.Tensor) -> np.ndarray:
    """Return images (b, C, H, W) as an array (b, H, W, C).

    It shares their memory if channels are last there. bfloat16, which numpy does not
    have, comes as the 16 bits it is.
    """
    x = x.permute(0, 2, 3, 1).contiguous()
    if x.dtype == torch.bfloat16:
        x = x.view(torch.uint16)
    return x.numpy()


def _flat(x: torch.Tensor) -> np.ndarray:
    """Return the same as flat memory."""
    return _array(x).reshape(-1)


def convolution(
    stage: Stage, spec: TrainSpec, dtype: torch.dtype, shape: tuple[int, ...]
) -> Conv:
    """Return the fastest kind of layer for a convolution."""
    conv = stage.linear
    pooled = stage.pool and stage.relu and stage.dropout is None
    few = conv.outputs <= NARROW and conv.outputs % 2 == 0
    fits = conv.kernel <= narrow.TAPS and not conv.padding

    kind = Conv
    if pooled and few and fits and spec.kernels == dtype:
        kind = NarrowConv
    elif pooled and conv.inputs % vectors.LANES == 0:
        kind = WideConv
    return kind(stage, spec, dtype, shape)
