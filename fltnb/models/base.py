"""A model is a short list of layers.

Everything else follows: an ``nn.Module`` for plain autograd, predictions of many models, and the *stages* that the
fast training steps work on. The parameters are one flat vector of P numbers: K models are the rows of a (K, P) matrix.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..federations import Federation
from ..randomness import stream

POOL = 2  # every pooling of the papers is 2x2
CACHED = 12e6  # bytes of the widest activation that are computed together: they fit the cache
SLICED = 250  # and samples at most
MANY = 100  # samples from which on it pays to bring weights into oneDNN's form
Tensors = Sequence[torch.Tensor]


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Let torch use ``n`` threads; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Flatten:
    """(C, H, W) to C*H*W features, in that order."""


@dataclass(frozen=True)
class Dense:
    """Fully connected layer with bias."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Conv:
    """Square convolution with bias and stride 1."""

    inputs: int
    outputs: int
    padding: int
    kernel: int = 5


@dataclass(frozen=True)
class MaxPool:
    """2x2 max pooling with stride 2; an odd last row or column is dropped."""


@dataclass(frozen=True)
class ReLU:
    """max(0, x)."""


@dataclass(frozen=True)
class Dropout:
    """Drops units, or whole ``channels``, with probability p in training and scales the kept ones by 1 / (1 - p)."""

    p: float = 0.5
    channels: bool = False


Layer = Flatten | Dense | Conv | MaxPool | ReLU | Dropout


class Stage(NamedTuple):
    """A linear map and what follows it up to the next linear map.

    Max pooling, ReLU and multiplication by a non-negative mask commute, values and gradients alike: the training steps
    pool first because later operations then touch a quarter of the numbers.
    """

    linear: Dense | Conv
    pool: bool
    relu: bool
    dropout: int | None  # position in Model.dropout


class KeyedDropout(nn.Module):
    """Dropout with probability p whose mask is given from outside, so that every back end drops the same units.

    ``keep``: bool (b, ...) for the next batch, as in :attr:`Model.dropout`; ignored in evaluation mode.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.keep = p, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the mask in training mode."""
        return x * (self.keep.to(x.dtype) / (1 - self.p)) if self.training else x


@dataclass(frozen=True)
class Model:
    """A network: its layers and the shapes that follow from them."""

    name: str
    input_shape: tuple[int, int, int]  # (C, H, W)
    n_classes: int  # outputs K
    layers: tuple[Layer, ...]
    n_statistics: ClassVar = 0  # tensors of batch-norm statistics: running mean and variance for each such layer

    @cached_property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of every parameter tensor, in the order of ``build().parameters()``."""
        with torch.device("meta"):  # no numbers are made
            return [
                (name, tuple(value.shape))
                for name, value in self.build().named_parameters()
            ]

    @cached_property
    def sizes(self) -> list[int]:
        """Numbers per parameter tensor."""
        return [math.prod(shape) for _, shape in self.shapes]

    @property
    def n_parameters(self) -> int:
        """Number of parameters P: the length of a row of ``theta``, batch-norm statistics included."""
        return sum(self.sizes)

    @property
    def n_trainable(self) -> int:
        """Number of trained parameters, which come first in a row; all P of them but for batch-norm statistics."""
        return self.n_parameters - sum(
            self.sizes[len(self.sizes) - self.n_statistics :]
        )

    @property
    def large(self) -> bool:
        """Whether this is one of torchvision's networks, which have no list of layers and train in ``serial`` only."""
        return not self.layers

    @cached_property
    def convolutional(self) -> bool:
        """Whether there are convolutions among the layers."""
        return any(isinstance(layer, Conv) for layer in self.layers)

    @property
    def head(self) -> slice:
        """Columns of ``theta`` that hold the last layer, weight and bias."""
        return slice(
            sum(self.sizes[: len(self.sizes) - self.n_statistics - 2]), self.n_trainable
        )

    @property
    def n_features(self) -> int:
        """Inputs of the last layer: the width of embeddings."""
        return (self.head.stop - self.head.start) // self.n_classes - 1

    @cached_property
    def activations(self) -> list[tuple[int, ...]]:
        """Per-sample shape after every layer."""
        shape, out = self.input_shape, []
        for layer in self.layers:
            if isinstance(layer, Flatten):
                shape = (math.prod(shape),)
            elif isinstance(layer, Dense):
                shape = (layer.outputs,)
            elif isinstance(layer, Conv):
                shrink = layer.kernel - 1 - 2 * layer.padding
                shape = (layer.outputs, shape[1] - shrink, shape[2] - shrink)
            elif isinstance(layer, MaxPool):
                shape = (shape[0], shape[1] // POOL, shape[2] // POOL)
            out.append(shape)
        return out

    @cached_property
    def dropout(self) -> list[tuple[tuple[int, ...], float]]:
        """Per-sample mask shape and drop probability of every dropout layer."""
        return [
            ((shape[0], 1, 1) if layer.channels else shape, layer.p)
            for layer, shape in zip(self.layers, self.activations, strict=True)
            if isinstance(layer, Dropout)
        ]

    @cached_property
    def stages(self) -> list[Stage]:
        """The layers as linear maps with what follows each (see :class:`Stage`)."""
        stages, drops = [], 0
        for layer in self.layers:
            if isinstance(layer, Dense | Conv):
                stages.append(Stage(layer, pool=False, relu=False, dropout=None))
            elif isinstance(layer, Dropout):
                stages[-1] = stages[-1]._replace(dropout=drops)
                drops += 1
            elif isinstance(layer, MaxPool):
                stages[-1] = stages[-1]._replace(pool=True)
            elif isinstance(layer, ReLU):
                stages[-1] = stages[-1]._replace(relu=True)
        return stages

    def init(self, seed: int, index: int = 0) -> np.ndarray:
        """Draw initial parameters (P,) float32 as torch's layers do: uniform within 1 / sqrt(fan-in).

        ``index``: which of several independent initialisations.
        """
        draw = stream(seed, "init", index).random(self.n_parameters, dtype=np.float32)
        fan_in = [
            math.prod(shape[1:])
            for name, shape in self.shapes
            if name.endswith("weight")
        ]
        return (2 * draw - 1) * np.repeat(
            1 / np.sqrt(np.repeat(fan_in, 2)), self.sizes
        ).astype(np.float32)

    def check(self, fed: Federation, batch_size: int) -> None:
        """Refuse a federation on which the network cannot be trained so; the papers' networks take any."""

    def build(self) -> nn.Module:
        """Return a fresh ``nn.Sequential`` (weights arbitrary; the global random state of torch is left alone)."""
        make = {
            Flatten: lambda layer: nn.Flatten(),
            Dense: lambda layer: nn.Linear(layer.inputs, layer.outputs),
            Conv: lambda layer: nn.Conv2d(
                layer.inputs, layer.outputs, layer.kernel, padding=layer.padding
            ),
            MaxPool: lambda layer: nn.MaxPool2d(POOL),
            ReLU: lambda layer: nn.ReLU(),
            Dropout: lambda layer: KeyedDropout(layer.p),
        }
        with torch.random.fork_rng(devices=[]):
            return nn.Sequential(*(make[type(layer)](layer) for layer in self.layers))

    def unflatten(self, theta: torch.Tensor | np.ndarray) -> list[torch.Tensor]:
        """Return the parameter tensors of one flat vector (P,) as views of it."""
        theta = torch.as_tensor(theta)
        return [
            part.view(shape)
            for part, (_, shape) in zip(
                theta.split(self.sizes), self.shapes, strict=True
            )
        ]

    def predict(
        self, params: Tensors, x: torch.Tensor, kernels: torch.dtype | None = None
    ) -> torch.Tensor:
        """Compute logits (b, K) of a batch x (b, C, H, W) in evaluation; ``params`` as :meth:`unflatten` gives them.

        Three times as fast as the module where there are convolutions on a CPU: slices fit the cache, channels come
        last, 2x2 pooling is two strided maxima before ReLU, since torch's ``max_pool2d`` takes as long as a
        convolution, and for many samples oneDNN multiplies. For ``torch.inference_mode``: ties would share a gradient.
        ``kernels``: type that convolutions compute in; default that of the parameters.
        """
        widest = (
            max(map(math.prod, self.activations)) * (kernels or x.dtype).itemsize
        )  # bytes per sample
        size = max(1, min(SLICED, int(CACHED / widest)))
        able = (
            x.device.type == "cpu"
            and x.dtype == torch.float32
            and torch.backends.mkldnn.is_available()
        )
        if able and len(x) >= MANY:
            first = 2 * sum(isinstance(stage.linear, Conv) for stage in self.stages)
            params = [*params[:first], *(one.to_mkldnn() for one in params[first:])]
        parts = x.split(size) if self.convolutional else [x]
        return torch.cat([self._predict(params, part, kernels) for part in parts])

    def _predict(
        self, params: Tensors, x: torch.Tensor, kernels: torch.dtype | None
    ) -> torch.Tensor:
        for stage, weight, bias in zip(
            self.stages, params[::2], params[1::2], strict=True
        ):
            if isinstance(stage.linear, Dense):
                x = x.flatten(1).to(weight.dtype)
                x = functional.linear(
                    x.to_mkldnn() if weight.is_mkldnn else x, weight, bias
                )
                x = x.to_dense() if weight.is_mkldnn else x
            else:
                x = x.to(kernels or weight.dtype, memory_format=torch.channels_last)
                x = functional.conv2d(
                    x,
                    weight.to(x.dtype),
                    bias.to(x.dtype),
                    padding=stage.linear.padding,
                )
            if stage.pool:
                h, w = (size // POOL * POOL for size in x.shape[2:])
                x = torch.maximum(x[..., 0:w:POOL], x[..., 1:w:POOL])
                x = torch.maximum(x[:, :, 0:h:POOL], x[:, :, 1:h:POOL])
            if stage.relu:
                x = x.relu_()
        return x

    def features(self, params: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Embed a batch: what the last layer sees of it in evaluation, (b, e); arguments as for :meth:`predict`."""
        return replace(self, layers=self.layers[:-1]).predict(params[:-2], x)
