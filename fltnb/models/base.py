"""A model as a short list of layers.

Everything else follows from this list: an ``nn.Module`` for plain autograd, predictions
of many models, and the *stages* for the fast training steps. The parameters are one
flat vector of P numbers: K models are the rows of a (K, P) matrix.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..federations import Federation
from ..randomness import stream

POOL = 2  # every pooling of the papers is 2x2
CACHED = 12e6  # bytes of the widest activation computed together, to fit the cache
SLICED = 250  # largest number of samples computed together
MANY = 100  # with more samples, converting weights to oneDNN's form is faster
Tensors = Sequence[torch.Tensor]


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Let torch use ``n`` threads; None does not change the number."""
    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Flatten:
    """Layer that makes C*H*W features of (C, H, W), in that order.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.Flatten()
    Flatten()
    """


@dataclass(frozen=True)
class Dense:
    """Fully connected layer with bias, from ``inputs`` to ``outputs`` numbers.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.Dense(64, 10)
    Dense(inputs=64, outputs=10)
    """

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Conv:
    """Square convolution with bias and stride 1.

    Parameters
    ----------
    inputs, outputs : int
        Channels.
    padding : int
        Pixels of zeros at each side.
    kernel : int
        Pixels on a side of the kernel.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.Conv(1, 6, padding=2)
    Conv(inputs=1, outputs=6, padding=2, kernel=5)
    """

    inputs: int
    outputs: int
    padding: int
    kernel: int = 5


@dataclass(frozen=True)
class MaxPool:
    """2x2 max pooling with stride 2; an odd last row or column is dropped.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.MaxPool()
    MaxPool()
    """


@dataclass(frozen=True)
class ReLU:
    """max(0, x).

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.ReLU()
    ReLU()
    """


@dataclass(frozen=True)
class Dropout:
    """Drops units in training; the remaining ones are scaled by 1 / (1 - p).

    Parameters
    ----------
    p : float
        Probability to drop.
    channels : bool
        Whether whole channels are dropped, and not single units.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.Dropout(0.5)
    Dropout(p=0.5, channels=False)
    """

    p: float = 0.5
    channels: bool = False


Layer = Flatten | Dense | Conv | MaxPool | ReLU | Dropout


class Stage(NamedTuple):
    """A linear map and the operations after it, up to the next linear map.

    Max pooling, ReLU and multiplication by a non-negative mask commute, for values and
    gradients. The training steps pool first, because later operations then process
    a quarter of the numbers.

    Attributes
    ----------
    linear : Dense or Conv
    pool, relu : bool
        Whether max pooling and ReLU follow.
    dropout : int or None
        Position in :attr:`Model.dropout` of the dropout that follows, if any.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.make("mlp32", (1, 8, 8), 10).stages[0]
    Stage(linear=Dense(inputs=64, outputs=32), pool=False, relu=True, dropout=None)
    """

    linear: Any
    pool: bool
    relu: bool
    dropout: int | None


class KeyedDropout(nn.Module):
    """Dropout with a given mask, so that all back ends drop the same units.

    Parameters
    ----------
    p : float
        Probability to drop.

    Attributes
    ----------
    keep : bool tensor (b, ...) or None
        The mask of the next batch, True for what is kept, of the shapes of
        :attr:`Model.dropout`; ignored in evaluation mode. None: units are drawn as
        ``nn.Dropout`` does.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.KeyedDropout(0.5)
    KeyedDropout()
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.keep: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the mask in training mode."""
        if not self.training:
            return x
        if self.keep is None:
            return functional.dropout(x, self.p)
        return x * (self.keep.to(x.dtype) / (1 - self.p))


@dataclass(frozen=True)
class Model:
    """A network: its layers and the shapes that follow from them.

    Attributes
    ----------
    name : str
    input_shape : tuple
        (C, H, W) of a sample.
    n_classes : int
        Number of outputs K.
    layers : tuple of layers
        In the order of the forward pass; empty for networks that are known as modules
        only, such as torchvision's and your own.
    backends : tuple of str
        Back ends that can train it.

    Examples
    --------
    >>> import fltnb as fl
    >>> net = fl.models.make("mlp32", input_shape=(1, 8, 8), n_classes=10)
    >>> theta = net.init(seed=0)
    >>> net.n_parameters, theta.shape
    (2410, (2410,))
    """

    name: str
    input_shape: tuple[int, ...]
    n_classes: int
    layers: tuple[Layer, ...]
    backends: ClassVar[tuple[str, ...]] = ("serial", "pool", "stacked")

    @property
    def n_statistics(self) -> int:
        """Number of tensors of batch-norm statistics.

        They are running mean and variance of each batch-norm layer.
        """
        return 0

    @cached_property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of each parameter, ordered as ``build().parameters()``."""
        with torch.device("meta"):  # no numbers are made
            module = self.build()
        return [(name, tuple(one.shape)) for name, one in module.named_parameters()]

    @cached_property
    def sizes(self) -> list[int]:
        """Numbers per parameter tensor."""
        return [math.prod(shape) for _, shape in self.shapes]

    @property
    def n_parameters(self) -> int:
        """Number of parameters P: the length of a row of ``theta``.

        Batch-norm statistics are included.
        """
        return sum(self.sizes)

    @property
    def n_trainable(self) -> int:
        """Number of trained parameters, which come first in a row.

        These are all P numbers except the statistics of batch normalisations.
        """
        trained = len(self.sizes) - self.n_statistics
        return sum(self.sizes[:trained])

    @property
    def large(self) -> bool:
        """Whether this is one of torchvision's networks, which train in ``serial``."""
        return False

    @cached_property
    def convolutional(self) -> bool:
        """Whether there are convolutions among the layers."""
        return any(isinstance(layer, Conv) for layer in self.layers)

    @property
    def head(self) -> slice:
        """Columns of ``theta`` that hold the last layer, weight and bias.

        "mlp32" on digits has 64 * 32 + 32 numbers in its first layer and 32 * 10 + 10
        in its last, so that its head is columns 2080 to 2409.
        """
        trained = len(self.sizes) - self.n_statistics
        return slice(sum(self.sizes[: trained - 2]), self.n_trainable)

    @property
    def head_weight(self) -> slice:
        """Columns of ``theta`` that hold the last layer's weight, without its bias."""
        return slice(self.head.start, self.head.stop - self.n_classes)

    @property
    def layer_names(self) -> list[str]:
        """Name of the layer that each parameter tensor belongs to."""
        return [name.split(".")[0] for name, _ in self.shapes]

    @property
    def n_features(self) -> int:
        """Inputs of the last layer: the width of embeddings.

        A head of e inputs and K outputs has e K + K numbers.
        """
        return (self.head.stop - self.head.start) // self.n_classes - 1

    @cached_property
    def activations(self) -> list[tuple[int, ...]]:
        """Per-sample shape after every layer."""
        shape = self.input_shape
        shapes = []
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
            shapes.append(shape)
        return shapes

    @cached_property
    def dropout(self) -> list[tuple[tuple[int, ...], float]]:
        """Per-sample mask shape and drop probability of every dropout layer."""
        masks = []
        for layer, shape in zip(self.layers, self.activations, strict=True):
            if isinstance(layer, Dropout):
                mask = (shape[0], 1, 1) if layer.channels else shape
                masks.append((mask, layer.p))
        return masks

    @cached_property
    def stages(self) -> list[Stage]:
        """Return the layers as linear maps with their operations (:class:`Stage`)."""
        stages = []
        n_dropouts = 0
        for layer in self.layers:
            if isinstance(layer, Dense | Conv):
                stages.append(Stage(layer, pool=False, relu=False, dropout=None))
            elif isinstance(layer, Dropout):
                stages[-1] = stages[-1]._replace(dropout=n_dropouts)
                n_dropouts += 1
            elif isinstance(layer, MaxPool):
                stages[-1] = stages[-1]._replace(pool=True)
            elif isinstance(layer, ReLU):
                stages[-1] = stages[-1]._replace(relu=True)
        return stages

    def settings(self, seed: int) -> Any:
        """Return what says which network a run with this seed has, JSON-able.

        This is the name of a network of the package.
        """
        return self.name

    def init(self, seed: int, index: int = 0) -> np.ndarray:
        """Return initial parameters (P,) float32.

        They are drawn from ``seed``, unless the network is :meth:`started` from
        weights. ``index``: which of several independent initialisations.
        """
        given = vars(self).get("start")
        if given is None:
            return self._drawn(seed, index)
        return given[index % len(given)].copy()

    def started(self, weights: np.ndarray) -> "Model":
        """Return the same network, whose initialisation k is row k of ``weights``.

        They are (K, P); after the last row comes the first.
        """
        network = copy(self)
        vars(network)["start"] = np.asarray(weights, dtype=np.float32)
        return network

    def _drawn(self, seed: int, index: int) -> np.ndarray:
        """Draw initial parameters (P,) as torch's layers do.

        They are uniform within 1 / sqrt(fan-in).
        """
        draws = stream(seed, "init", index).random(self.n_parameters, dtype=np.float32)
        bounds = []
        for name, shape in self.shapes:
            if name.endswith("weight"):
                fan_in = math.prod(shape[1:])
                bound = 1 / np.sqrt(fan_in)
                bounds.append(bound)
                bounds.append(bound)  # of its bias, which comes next
        of_each = np.repeat(bounds, self.sizes).astype(np.float32)
        return (2 * draws - 1) * of_each

    def check(self, fed: Federation, batch_size: int) -> None:
        """Refuse a federation that the network cannot be trained on (FltnbError).

        The papers' networks take any.
        """

    def build(self) -> nn.Module:
        """Return a fresh ``nn.Sequential``, with arbitrary weights.

        The global random state of torch is not changed.
        """
        with torch.random.fork_rng(devices=[]):
            return nn.Sequential(*map(_module, self.layers))

    def tensors(self, module: nn.Module) -> list[torch.Tensor]:
        """Return a module's tensors in the order of a row: parameters, statistics."""
        buffers = [one for one in module.buffers() if one.is_floating_point()]
        return [*module.parameters(), *buffers]

    def applied(
        self, module: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
    ) -> torch.Tensor:
        """Return a module's outputs (b, K) for a batch."""
        return module(x)

    def filled(self, params: np.ndarray) -> nn.Module:
        """Return a plain module with these weights (P,), in evaluation mode.

        Its dropout is torch's own, so it needs nothing of this package.
        """
        module = self.build()
        for name, child in list(module.named_modules()):
            if isinstance(child, KeyedDropout):
                module.set_submodule(name, nn.Dropout(child.p))
        values = self.unflatten(params)
        module = module.to(values[0].dtype)
        with torch.no_grad():
            for tensor, value in zip(self.tensors(module), values, strict=True):
                tensor.copy_(value)
        return module.eval()

    def unflatten(self, theta: torch.Tensor | np.ndarray) -> list[torch.Tensor]:
        """Return the parameter tensors of one flat vector (P,) as views of it."""
        parts = torch.as_tensor(theta).split(self.sizes)
        tensors = []
        for part, (_, shape) in zip(parts, self.shapes, strict=True):
            tensors.append(part.view(shape))
        return tensors

    def predict(
        self, params: Tensors, x: torch.Tensor, kernels: torch.dtype | None = None
    ) -> torch.Tensor:
        """Compute logits (b, K) of a batch x (b, C, H, W) in evaluation.

        On a CPU it is three times as fast as the module if there are convolutions:
        slices fit into the cache (a GPU takes all at once), channels come last, 2x2
        pooling is two strided maxima before ReLU, because torch's ``max_pool2d`` takes
        as long as a convolution, and oneDNN multiplies if there are many samples. Use
        it in ``torch.inference_mode``, because tied maxima would share a gradient.

        ``params``: as :meth:`unflatten` gives them. ``kernels``: type that convolutions
        compute in, by default that of the parameters.
        """
        on_cpu = x.device.type == "cpu" and x.dtype == torch.float32
        if on_cpu and len(x) >= MANY and torch.backends.mkldnn.is_available():
            first = 2 * sum(isinstance(stage.linear, Conv) for stage in self.stages)
            dense = [one.to_mkldnn() for one in params[first:]]
            params = [*params[:first], *dense]

        if not self.convolutional or x.device.type != "cpu":
            return self._predict(params, x, kernels)
        widest = max(map(math.prod, self.activations))
        sample = widest * (kernels or x.dtype).itemsize
        size = max(1, min(SLICED, int(CACHED / sample)))
        outputs = [self._predict(params, part, kernels) for part in x.split(size)]
        return torch.cat(outputs)

    def _predict(
        self, params: Tensors, x: torch.Tensor, kernels: torch.dtype | None
    ) -> torch.Tensor:
        """Return the outputs (n, K) of inputs (n, C, H, W), stage by stage.

        ``kernels``: type in which convolutions compute, by default that of the weights.
        """
        pairs = zip(params[::2], params[1::2], strict=True)
        for stage, (weight, bias) in zip(self.stages, pairs, strict=True):
            if isinstance(stage.linear, Dense):
                x = _dense(x.flatten(1).to(weight.dtype), weight, bias)
            else:
                x = x.to(kernels or weight.dtype, memory_format=torch.channels_last)
                weight = weight.to(x.dtype)
                bias = bias.to(x.dtype)
                padding = stage.linear.padding
                x = functional.conv2d(x, weight, bias, padding=padding)
            if stage.pool:
                x = _pooled(x)
            if stage.relu:
                x = x.relu_()
        return x

    def features(self, params: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Embed a batch: the inputs of the last layer in evaluation, (b, e).

        Arguments are as for :meth:`predict`.
        """
        body = replace(self, layers=self.layers[:-1])
        return body.predict(params[:-2], x)


def _module(layer: Layer) -> nn.Module:
    """Return the torch module of a layer."""
    match layer:
        case Flatten():
            return nn.Flatten()
        case Dense():
            return nn.Linear(layer.inputs, layer.outputs)
        case Conv():
            sizes = (layer.inputs, layer.outputs, layer.kernel)
            return nn.Conv2d(*sizes, padding=layer.padding)
        case MaxPool():
            return nn.MaxPool2d(POOL)
        case ReLU():
            return nn.ReLU()
        case Dropout():
            return KeyedDropout(layer.p)


def _dense(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Apply a dense layer to (n, inputs); ``weight`` may be in oneDNN's form."""
    if weight.is_mkldnn:
        return functional.linear(x.to_mkldnn(), weight, bias).to_dense()
    return functional.linear(x, weight, bias)


def _pooled(x: torch.Tensor) -> torch.Tensor:
    """Take the maximum of each 2 x 2 pixels of (n, C, H, W): of columns, then of lines.

    An odd last line or column is dropped.
    """
    _, _, height, width = x.shape
    height = height // POOL * POOL
    width = width // POOL * POOL
    left = x[:, :, :, 0:width:POOL]
    right = x[:, :, :, 1:width:POOL]
    x = torch.maximum(left, right)
    upper = x[:, :, 0:height:POOL]
    lower = x[:, :, 1:height:POOL]
    return torch.maximum(upper, lower)
