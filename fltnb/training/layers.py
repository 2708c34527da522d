"""Layers of the lean trainer: forward, backward and the SGD step, in buffers of theirs.

Weights and bias of a dense layer are one matrix; the inputs have a constant 1 for the
bias. Dense layers and the papers' convolutions have their own kernels, other
convolutions use torch's.

Shapes are written as torch sees them: (b, C, H, W) is a batch of b images. In memory
their channels are last, (b, H, W, C), which is what the kernels read. Here (C, H, W) is
the input of a convolution, (outputs, H', W') what it gives, and (outputs, h, w) that
after the pooling. Gradients are sums over a batch until :class:`Parameter` takes the
step, which divides by b.
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
    convolution_gradients,
    pool_backward,
)
from .kernels import dense, narrow, vectors, wide

NARROW = 16  # up to this number of output channels the narrow kernels are faster
# Pixels that these kernels may read beyond the last image, as they read whole vectors.
SPARE = 16
# Rows of a dense layer that are transposed at a time. More rows, a power of two apart,
# would displace each other in the cache.
TURNED = 32

_relu_backward_to = torch.ops.aten.threshold_backward.grad_input


def padded(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix of zeros with rows that the kernels may use to their block's end.

    The kernels use whole blocks of columns; the visible part is (rows, columns). With
    blocks of 32, a matrix (10, 200) is a view of memory (10, 224).
    """
    whole_blocks = vectors.padded(columns)
    memory = torch.zeros(rows, whole_blocks, dtype=dtype)
    return memory[:, :columns]


class Rooms:
    """Working memory by batch size, made when it is first asked for.

    At most two sizes are kept at a time, the usual one and that of a short last batch,
    but not those of all clients. With batches of 10, a client of 25 samples leaves room
    for 10 and 5; one of 23 puts 3 in the place of 5.

    Parameters
    ----------
    make : callable
        From a number of samples to their memory.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make
        self.kept: dict[int, Any] = {}

    def __getitem__(self, b: int):
        """Return the memory for a batch of b samples."""
        if b in self.kept:
            return self.kept[b]
        if len(self.kept) == 2:
            shorter = min(self.kept)
            del self.kept[shorter]
        self.kept[b] = self.make(b)
        return self.kept[b]


class DenseRoom(NamedTuple):
    """Memory for a dense layer's outputs and their gradient; arrays share it.

    Attributes
    ----------
    whole : ndarray, shape (b, outputs + 1)
        The outputs, and a last column of ones, which are the constant inputs of the
        next layer.
    out : tensor, shape (b, outputs)
        The outputs alone.
    d : tensor, shape (b, outputs)
        Their gradient.
    d_array : ndarray, shape (b, outputs)
        The same memory.
    """

    whole: np.ndarray
    out: torch.Tensor
    d: torch.Tensor
    d_array: np.ndarray


class Dense:
    """A dense layer with ReLU, if its stage has one.

    Its weights lie as the kernels read them: a line for each input and one for the
    bias, filled up with zeros to whole blocks of columns. Of 2 inputs and 3 outputs,
    where w31 leads from input 1 to output 3::

        w11 w21 w31 | 0 0 0 ...
        w12 w22 w32 | 0 0 0 ...
        b1  b2  b3  | 0 0 0 ...

    Attributes
    ----------
    parameter : Parameter
        Weights and bias, with padded rows for the kernels.
    weight : tensor, shape (inputs + 1, outputs)
        The same without padding; the last row is the bias.
    array : ndarray
        The same memory.
    turned : tensor, shape (outputs, inputs)
        Its weights in torch's layout.
    """

    def __init__(self, stage: Stage, spec: TrainSpec, dtype: torch.dtype) -> None:
        self.stage = stage
        self.dtype = dtype
        self.inputs = stage.linear.inputs
        self.outputs = stage.linear.outputs
        rows = self.inputs + 1
        filled_up = vectors.padded(self.outputs)
        memory = torch.zeros(rows, filled_up, dtype=dtype)
        self.parameter = Parameter(memory, spec)
        self.weight = memory[:, : self.outputs]
        self.array = self.weight.numpy()
        without_bias = self.weight[:-1]
        self.turned = without_bias.t()

    def load(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Begin local training with these weights, (outputs, inputs) as torch has them.

        ``bias`` has shape (outputs,).
        """
        targets = self.turned.split(TURNED)
        given = weight.split(TURNED)
        for target, part in zip(targets, given, strict=True):
            target.copy_(part)
        self.weight[-1].copy_(bias)
        self.parameter.restart()

    def vary(self, proximal: float, frozen: bool) -> None:
        """Train otherwise than the settings say."""
        self.parameter.vary(proximal, frozen)

    def pull_to(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Let the proximal term pull to these weights, if there is one.

        Shapes are those of :meth:`load`.
        """
        if self.parameter.start is None:
            return
        start = self.parameter.start[:, : self.outputs]  # (inputs + 1, outputs)
        start[:-1].copy_(weight.t())
        start[-1].copy_(bias)

    def store(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Write the trained weights where they belong, shaped as :meth:`load` says."""
        weight.copy_(self.turned)
        bias.copy_(self.weight[-1])

    def room(self, b: int) -> DenseRoom:
        """Return memory for a batch of b samples."""
        whole = padded(b, self.outputs + 1, self.dtype)
        out = whole[:, :-1]
        d = padded(b, self.outputs, self.dtype)
        return DenseRoom(whole.numpy(), out, d, d.numpy())

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
            The inputs of :meth:`forward`.
        below : ndarray, shape (b, inputs) or (0, inputs)
            Filled with the inputs' gradient, if it has rows.
        """

        # One call computes the gradient and adds it as SGD's rule requires. Where it
        # changes weights, it has read them for `below` before.
        def accumulate(target: torch.Tensor, beta: float, alpha: float) -> None:
            target = target.numpy()[:, : self.outputs]
            mean = alpha / len(x)
            dense.backward(self.array, target, x, d, beta, mean, below)

        self.parameter.descend(accumulate)

    def before(self, room: DenseRoom, mask: torch.Tensor | None) -> None:
        """Take the gradient in ``room`` back through ReLU and dropout, in place.

        ``room.out`` is 0 where ReLU cut off, and where dropout did.
        """
        if self.stage.relu:
            _relu_backward_to(room.d, room.out, 0, grad_input=room.d)
        if mask is not None:
            room.d.mul_(mask)


class Conv:
    """A convolution by torch's kernels, with pooling, dropout and ReLU as the stage.

    The two kinds below replace parts of it by kernels of the package. All have the same
    methods: ``load``, then ``forward`` and ``backward`` by turns, then ``store``.

    Attributes
    ----------
    shape : tuple
        (C, H, W) of the inputs.
    memory : tensor
        The weights, in the layout of the layer's kernels.
    weight : tensor, shape (outputs, inputs, k, k)
        The same memory in torch's layout.
    bias : tensor, shape (outputs,)
    parameters : list of Parameter
        Those of ``memory`` and of ``bias``.
    rooms : Rooms
        Memory for batches, if the layer needs it.

    A forward pass stores what the backward pass needs:

    x, kernel : tensors
        Inputs and weights in the type that the convolution computed in.
    raw : tensor, shape (b, outputs, H', W')
        Outputs before the pooling.
    winners : tensor
        Positions of the pooling's maxima, as in torch.
    mask : tensor or None
        Dropout's.
    out : tensor, shape (b, outputs, h, w)
        Activations.
    """

    def __init__(
        self, stage: Stage, spec: TrainSpec, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> None:
        self.stage = stage
        self.conv = stage.linear
        self.spec = spec
        self.dtype = dtype
        self.shape = shape
        self.rooms = Rooms(self.room)
        self.bias = torch.empty(self.conv.outputs, dtype=dtype)
        self.memory, self.weight = self.allocate()
        self.parameters = [Parameter(self.memory, spec), Parameter(self.bias, spec)]

    def allocate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``memory`` and ``weight``, which share their numbers."""
        conv = self.conv
        weight = torch.empty(
            (conv.outputs, conv.inputs, conv.kernel, conv.kernel),
            dtype=self.dtype,
            memory_format=torch.channels_last,
        )
        return weight, weight

    def room(self, b: int) -> Any:
        """Return memory for a batch of b images, where a layer needs it."""

    def load(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Begin local training with these weights, of the layer's shapes."""
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
        if of_weight.start is not None and of_bias.start is not None:
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
        """Return outputs before pooling, (b, outputs, H', W').

        Inputs and weights are kept as they were used.
        """
        kernels = self.spec.kernels  # the type: float32, say, or bfloat16
        self.x = x.to(kernels, memory_format=torch.channels_last)
        self.kernel = self.weight.to(kernels)
        bias = self.bias.to(kernels)
        return functional.conv2d(self.x, self.kernel, bias, padding=self.conv.padding)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (b, C, H, W) to activations, pooled first: that leaves less to do.

        The maximum of a window is the same before and after ReLU, which keeps the order
        of numbers.
        """
        self.mask = mask
        self.raw = self.convolved(x)
        out = self.raw
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
        # Back in reverse order: ReLU and dropout, the pooling, the convolution.
        d = d.to(self.out.dtype, memory_format=torch.channels_last)
        d = before_activation(self.stage, d, self.out, self.mask)
        if self.stage.pool:
            d = pool_backward(d, self.raw, self.winners)
        return self.step(d, b, first)

    def step(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor | None:
        """Do the same from the gradient ``d`` before pooling, (b, outputs, H', W')."""
        below, d_weight, d_bias = convolution_gradients(
            self.conv, d, self.x, self.kernel, inputs=not first
        )
        self.descend((d_weight, d_bias), b)
        return below

    def descend(self, gradients: Any, b: int) -> None:
        """Take the step; gradients of weights and bias are sums over b images."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            mean = gradient.to(self.dtype).div_(b)
            parameter.descend(add(mean))


class NarrowRoom(NamedTuple):
    """Memory for a batch, as tensors and as arrays that share it.

    Attributes
    ----------
    out : tensor, shape (b, outputs, h, w)
        Activations.
    out_array : ndarray, shape (b, h, w, outputs)
        The same memory.
    winners : ndarray of int32, shape (b, h, w, outputs)
        Which window gave each activation, as the kernels number them.
    below : tensor, shape (b, C, H, W)
        Gradient of the inputs.
    below_flat : ndarray, flat
        The same memory, channels last, with room behind the last image.
    """

    out: torch.Tensor
    out_array: np.ndarray
    winners: np.ndarray
    below: torch.Tensor
    below_flat: np.ndarray


class NarrowConv(Conv):
    """The same by the kernels for few channels.

    They work on flat memory, of which they read a little beyond the end.

    Attributes
    ----------
    kernels : narrow.Kernels
    planes, sums : ndarrays
        Working memory for one image, as the kernels describe it.
    gradients : pair of tensors
        Of ``memory`` (outputs, k, row) and of ``bias``, filled by each step.
    used : NarrowRoom
        What the last forward pass has filled.
    """

    def allocate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights as rows of a kernel, and as (outputs, inputs, k, k).

        A row of a kernel of 5 x 5 weights on 3 channels has 15 numbers: r g b of its
        first pixel, of the second, and so on. It is filled up to whole vectors.
        """
        conv = self.conv
        _, height, width = self.shape
        made = narrow.make(conv.inputs, conv.outputs, height, width, conv.kernel)
        self.kernels = made

        # The last rows of a window begin up to TAPS - 1 lines below the last place.
        plane = made.sweep + narrow.TAPS * width
        self.planes = torch.zeros(conv.inputs, plane, dtype=self.dtype).numpy()
        self.sums = torch.empty(2, made.sweep, dtype=self.dtype).numpy()

        rows = torch.zeros(conv.outputs, conv.kernel, made.row, dtype=self.dtype)
        d_rows = torch.empty_like(rows)
        d_bias = torch.empty_like(self.bias)
        self.gradients = (d_rows, d_bias)
        return rows, self.shown(rows)

    def shown(self, memory: torch.Tensor) -> torch.Tensor:
        """Return rows of a kernel (outputs, k, row) as (outputs, inputs, k, k).

        A row has k pixels with channels last, and then what fills it up.
        """
        conv = self.conv
        used = memory[..., : conv.kernel * conv.inputs]
        pixels = used.unflatten(2, (conv.kernel, conv.inputs))
        return pixels.permute(0, 3, 1, 2)  # from (outputs, line, column, input)

    def room(self, b: int) -> NarrowRoom:
        """Return memory for a batch of b images."""
        c, height, width = self.shape
        h = self.kernels.height
        w = self.kernels.width
        out, _ = self._images(b, h, w, self.conv.outputs)
        out_array = _array(out)
        winners = np.empty(out_array.shape, dtype=np.int32)
        below, below_flat = self._images(b, height, width, c)
        return NarrowRoom(out, out_array, winners, below, below_flat)

    def _images(
        self, b: int, h: int, w: int, c: int
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Return b images (b, c, h, w), channels last in memory, and that memory flat.

        It has room behind the last image.
        """
        n = b * h * w * c
        flat = torch.zeros(n + SPARE * c, dtype=self.dtype)
        images = flat[:n].view(b, h, w, c)
        return images.permute(0, 3, 1, 2), flat.numpy()

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (b, C, H, W) to pooled activations (b, outputs, h, w)."""
        room = self.rooms[x.shape[0]]
        self.used = room
        self.pixels = _flat(x)
        self.kernels.forward(
            self.pixels,
            self.planes,
            self.sums,
            self.memory.numpy(),
            self.bias.numpy(),
            room.out_array,
            room.winners,
        )
        return room.out

    def backward(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor | None:
        """Take the step; return the gradient of the inputs, unless first."""
        room = self.used
        d_rows, d_bias = self.gradients
        below_flat = room.below_flat
        if first:
            below_flat = below_flat[:0]  # the kernel leaves out what is empty
        self.kernels.backward(
            _array(d),
            self.pixels,
            room.out_array,
            room.winners,
            self.memory.flatten().numpy(),
            d_rows.flatten().numpy(),
            d_bias.numpy(),
            below_flat,
        )
        self.descend(self.gradients, b)
        return room.below


class WideRoom(NamedTuple):
    """Memory for a batch.

    Attributes
    ----------
    out : tensor, shape (b, outputs, h, w)
    winners : ndarray of uint8, shape (b, h, w, outputs)
    back : tensor
        Gradient of the inputs, (b, H, W, C). In bfloat16 that of the outputs before
        the pooling, (b, outputs, H', W') with channels last in memory.
    """

    out: torch.Tensor
    winners: np.ndarray
    back: torch.Tensor


class WideConv(Conv):
    """The same where many channels enter.

    The convolution is torch's; pooling and the backward pass are our own. In bfloat16
    torch's backward pass is faster.

    Attributes
    ----------
    kernels : wide.Kernels
    d_weight : tensor, shape (outputs, k, k, inputs)
        Gradient of the weights, filled by each step.
    d_bias : tensor, shape (outputs,)
    """

    def allocate(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights' memory, and its view of shape (outputs, inputs, k, k)."""
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
        """Return memory for a batch of b images, after they were convolved."""
        h = self.kernels.height
        w = self.kernels.width
        outputs = self.conv.outputs
        out = torch.empty(b, outputs, h, w, dtype=self.dtype)
        winners = np.empty((b, h, w, outputs), dtype=np.uint8)
        if self.raw.dtype == self.dtype:
            channels, height, width = self.shape
            back = torch.empty(b, height, width, channels, dtype=self.dtype)
        else:
            back = torch.zeros_like(self.raw)  # `spread` may leave out a last line
        return WideRoom(out, winners, back)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Map (b, C, H, W) to pooled activations (b, outputs, h, w)."""
        self.raw = self.convolved(x)  # first: a new room needs its type
        room = self.rooms[x.shape[0]]
        self.kernels.pool(_flat(self.raw), room.out.numpy(), room.winners)
        return room.out

    def backward(self, d: torch.Tensor, b: int, first: bool) -> torch.Tensor | None:
        """Take the step; return the gradient of the inputs, unless first."""
        room = self.rooms[b]
        winners = room.winners
        back = room.back
        if self.raw.dtype != self.dtype:  # bfloat16
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
            taps = self.weight.permute(2, 3, 0, 1)  # (k, k, outputs, inputs)
            taps = taps.flatten().numpy()
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
    """Return images (b, C, H, W) as flat memory (b * H * W * C,)."""
    return _array(x).reshape(-1)


def convolution(
    stage: Stage, spec: TrainSpec, dtype: torch.dtype, shape: tuple[int, ...]
) -> Conv:
    """Return the fastest kind of layer for a convolution.

    ``dtype``: that of the weights; ``shape``: (C, H, W) of the inputs. The first
    convolution of LeNet (6 outputs) is narrow, a later one with 32 inputs and 64
    outputs is wide, and one without pooling is torch's.
    """
    conv = stage.linear
    pooled = stage.pool and stage.relu and stage.dropout is None
    if not pooled:  # our own kernels do it in the same pass
        return Conv(stage, spec, dtype, shape)

    few = conv.outputs <= NARROW and conv.outputs % 2 == 0
    fits = conv.kernel <= narrow.TAPS and not conv.padding
    if few and fits and spec.kernels == dtype:
        return NarrowConv(stage, spec, dtype, shape)
    if conv.inputs % vectors.LANES == 0:
        return WideConv(stage, spec, dtype, shape)
    return Conv(stage, spec, dtype, shape)
