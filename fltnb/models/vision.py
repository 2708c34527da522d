"""EMD-CFL's large networks, in the same flat form as the small ones.

They are torchvision's, by name, and a stage of another network. A row of ``theta`` has
all trained parameters in torchvision's order, then the running mean and variance of
each batch-norm layer, so that averages of rows include the statistics, as in the
paper's public code. The integer counters of batches are left out: with a fixed momentum
they have no effect.
"""

import io
import math
import socket
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from ..data import features
from ..errors import FltnbError
from ..federations import SCALINGS, Federation
from ..randomness import integer, stream
from .base import Layer, Model, Tensors

RANDOM = ":random"
NETWORKS = ("resnet18", "resnet50", "efficientnet_b3", "vit_b_16", "convnext_base")
STAGE = "efficientnet_lite0_stage"
_OF_NETWORKS = [name + how for name in NETWORKS for how in ("", RANDOM)]
VISION_NAMES = (*_OF_NETWORKS, STAGE)
MEAN, STD = SCALINGS["imagenet"]  # of ImageNet's pixels, which the weights expect
LEAST = {"convnext_base": 32}  # pixels on a side; it divides by 32 without padding
VIT_SIDE = 224  # the one size that its position embeddings have
AT_ONCE = 128  # images per forward pass in evaluation, as their activations are large
PATIENCE = 30  # seconds of a silent download


class Network(nn.Module):
    """A torchvision network ``net`` behind the preparation of its inputs (b, 3, H, W).

    ``imagenet``: bring pixels in [0, 1] to ImageNet's mean and deviation. ``side``:
    resize to so many pixels, if given.
    """

    def __init__(self, net: nn.Module, imagenet: bool, side: int | None) -> None:
        super().__init__()
        self.net = net
        self.imagenet = imagenet
        self.side = side

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (b, 1 or 3, H, W) to the network's outputs."""
        if not self.training and len(x) > AT_ONCE:
            return torch.cat([self(part) for part in x.split(AT_ONCE)])
        return self.net(self.prepared(x))

    def prepared(self, x: torch.Tensor) -> torch.Tensor:
        """Return the inputs of ``net`` for images."""
        x = x.expand(-1, 3, -1, -1)
        if self.imagenet:
            mean = x.new_tensor(MEAN)[:, None, None]
            std = x.new_tensor(STD)[:, None, None]
            x = (x - mean) / std
        if self.side and x.shape[2:] != (self.side, self.side):
            size = (self.side, self.side)
            x = functional.interpolate(x, size, mode="bilinear", antialias=True)
        return x


class StageNetwork(Network):
    """A network's last stage, on the result of :func:`fltnb.data.features.maps`."""

    prepared = staticmethod(features.decoded)


@dataclass(frozen=True)
class VisionModel(Model):
    """A torchvision network whose last layer has as many outputs as there are classes.

    Parameters
    ----------
    name : str
        ``resnet18``, ``resnet50``, ``efficientnet_b3``, ``vit_b_16`` or
        ``convnext_base``: with ImageNet weights (torchvision's ``IMAGENET1K_V1``) and a
        new last layer, drawn as torch draws a dense layer; such a network takes pixels
        in [0, 1] and normalises them itself. With ``:random`` appended: all weights
        drawn as torchvision draws them.
    input_shape : (C, H, W)
        Grey images become three equal channels. Images keep their own size
        (the paper names no other), except in ``vit_b_16``, which resizes them
        (bilinear) to its 224 x 224. ``convnext_base`` needs 32 x 32 at least.
    n_classes : int
        Number of outputs.

    Raises
    ------
    FltnbError
        Samples are feature vectors, or images of another number of channels or too
        small.

    Notes
    -----
    Random parts of training are torchvision's own: EfficientNet-B3 drops residual
    branches (up to 0.2) and 0.3 of the last features, ConvNeXt-Base drops residual
    branches (up to 0.5), ResNets and ViT-B/16 drop nothing. They draw from torch's
    generator, seeded for each client and round, so they do not depend on the order of
    training.

    Such a network trains in the back end ``serial`` only, on a CPU in ``n_workers``
    threads (default all of torch's), on whose number the last digits may depend.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.models.make("resnet18", input_shape=(3, 32, 32), n_classes=10).n_parameters
    11191242
    """

    layers: tuple[Layer, ...] = ()
    backends: ClassVar[tuple[str, ...]] = ("serial",)

    def __post_init__(self) -> None:
        channels, *sides = self.input_shape
        least = LEAST.get(self.architecture, 2)
        if channels not in (1, 3) or min(sides) < least:
            raise FltnbError(
                f"Model {self.name!r} needs grey or colour images of at least "
                f"{least} x {least} pixels, not samples of {self.input_shape}: choose "
                "another model, or larger images."
            )

    @property
    def large(self) -> bool:
        """Whether this trains in the back end ``serial`` only."""
        return True

    @property
    def architecture(self) -> str:
        """Torchvision's name of the network."""
        return self.name.removesuffix(RANDOM)

    @property
    def imagenet(self) -> bool:
        """Whether training starts from ImageNet weights."""
        return not self.name.endswith(RANDOM)

    def _hollow(self) -> Network:
        """Return the network without numbers."""
        side = VIT_SIDE if self.architecture == "vit_b_16" else None
        with torch.device("meta"):
            net = _torchvision(self.architecture, self.n_classes)
        return Network(net, self.imagenet, side)

    @cached_property
    def _whole(self) -> Network:
        """For the shapes and for :func:`torch.func.functional_call`."""
        return self._hollow().eval()

    @cached_property
    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of every trained tensor, then of batch-norm statistics.

        The order is that of ``build().parameters()``.
        """
        tensors = _tensors(self._whole.net)
        return [(name, tuple(value.shape)) for name, value in tensors.items()]

    @cached_property
    def n_statistics(self) -> int:
        """Number of tensors of batch-norm statistics, two for each such layer."""
        return len(self.shapes) - len(list(self._whole.parameters()))

    def _drawn(self, seed: int, index: int) -> np.ndarray:
        """Return initial parameters and batch-norm statistics (P,) float32.

        Independent initialisations (``index``) of ImageNet weights differ in the last
        layer only. Raises FltnbError if these weights are not here and cannot be
        downloaded.
        """
        if self.imagenet:
            values = self._weights() | self._new_head(seed, index)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(integer(seed, "init", index))
                values = _tensors(_torchvision(self.architecture, self.n_classes))
        flat = [values[name].detach().flatten().float() for name, _ in self.shapes]
        return torch.cat(flat).numpy()

    def _new_head(self, seed: int, index: int) -> dict[str, torch.Tensor]:
        """Draw the last layer as torch draws a dense one."""
        size = self.head.stop - self.head.start
        draws = stream(seed, "init", index).random(size, dtype=np.float32)
        bound = np.float32(1 / math.sqrt(self.n_features))
        values = torch.from_numpy((2 * draws - 1) * bound)
        last = _last(self._whole.net)
        return {
            f"{last}.weight": values[: -self.n_classes],
            f"{last}.bias": values[-self.n_classes :],
        }

    def _weights(self) -> dict[str, torch.Tensor]:
        """Return ImageNet's weights by name, from torchvision."""
        from torchvision import models

        published = models.get_model_weights(self.architecture).IMAGENET1K_V1
        otherwise = (
            f"take model '{self.name}{RANDOM}', which starts from random weights and "
            "is named so in every table"
        )
        return download(published, otherwise)

    def build(self) -> nn.Module:
        """Return a fresh module on the CPU (weights arbitrary)."""
        module = self._hollow().to_empty(device="cpu")
        for buffer in module.buffers():
            buffer.zero_()
        return module

    def predict(
        self, params: Tensors, x: torch.Tensor, kernels: torch.dtype | None = None
    ) -> torch.Tensor:
        """Compute logits (b, K) of a batch in evaluation mode.

        ``params``: as :meth:`fltnb.models.Model.unflatten` gives them.
        """
        names = [f"net.{name}" for name, _ in self.shapes]
        named = dict(zip(names, params, strict=True))
        return functional_call(self._whole, named, (x,))

    def features(self, params: Tensors, x: torch.Tensor) -> torch.Tensor:
        """Embed a batch: the inputs of the last layer in evaluation, (b, e).

        Arguments are as for :meth:`predict`.
        """
        seen: list[torch.Tensor] = []
        last = self._whole.net.get_submodule(_last(self._whole.net))
        with last.register_forward_pre_hook(lambda _, given: seen.extend(given)):
            self.predict(params, x)
        return torch.cat(seen)

    def check(self, fed: Federation, batch_size: int) -> None:
        """Refuse (FltnbError) a federation that the network cannot be trained on.

        Pixels not in [0, 1] for ImageNet weights, a batch of one image where batch
        normalisation needs two, or ImageNet weights that are not here and cannot be
        downloaded.
        """
        if self.imagenet and (fed.mean, fed.std) != SCALINGS["unit"]:
            raise FltnbError(
                f"Model {self.name!r} expects pixels in [0, 1], but the federation "
                f"scales them with mean {fed.mean} and std {fed.std}: take "
                "fed.scaled('unit'), or scaling='unit'."
            )
        sizes = np.asarray(fed.sizes)
        lonely = np.flatnonzero((sizes % batch_size == 1) | (batch_size == 1))
        if len(lonely) and self.needs_two:
            raise FltnbError(
                f"Client {lonely[0]} with {sizes[lonely[0]]} training images has a "
                "batch of one, too little for batch normalisation of "
                f"{self.name!r} at {self.input_shape[1:]} pixels: choose another "
                f"batch_size than {batch_size}, or larger images."
            )
        if self.imagenet:
            self._weights()

    @cached_property
    def needs_two(self) -> bool:
        """Return whether training on a batch of one image is impossible.

        This is so if a batch-norm layer would get one number per channel.
        """
        if not self.n_statistics:
            return False
        try:
            self._hollow()(torch.empty(1, *self.input_shape, device="meta"))
        except ValueError:
            return True
        return False


class StageModel(VisionModel):
    """The last stage of EfficientNet-Lite0, tuned from ImageNet weights.

    The body before it does not change. The stage is the last block, the convolution
    after it, batch norms, pooling, the network's dropout of 0.2 and a new last layer.
    It trains like :class:`VisionModel`, on the samples of the data set ``pacs_maps``,
    which ``fltnb.data.features.maps`` computes.

    Raises
    ------
    FltnbError
        Samples are not such maps, or the extra ``pretrained`` is not installed.

    Examples
    --------
    >>> import fltnb as fl
    >>> try:
    ...     fl.models.make("efficientnet_lite0_stage", (1, 8, 8), n_classes=10)
    ... except fl.FltnbError as error:
    ...     print(str(error).partition(": ")[2])
    take the data set 'pacs_maps', or another model.
    """

    def __post_init__(self) -> None:
        needed = (1, *features.MAP)
        if self.input_shape != needed:
            raise FltnbError(
                f"Model {self.name!r} needs maps of shape {needed}, not samples of "
                f"{self.input_shape}: take the data set 'pacs_maps', or another model."
            )

    def _stage(self) -> nn.Sequential:
        """Return the part after :func:`fltnb.data.features.body`, with a new head."""
        with torch.random.fork_rng(devices=[]):  # nothing that is drawn here is used
            made: Any = features.network().requires_grad_()
            stage = nn.Sequential(
                made._blocks[-1],
                made._conv_head,
                made._bn1,
                nn.ReLU6(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                made._dropout,
                nn.Linear(made._bn1.num_features, self.n_classes),
            )
        return stage.train()

    def _hollow(self) -> Network:
        return StageNetwork(self._stage(), False, None).to("meta")

    def _weights(self) -> dict[str, torch.Tensor]:
        return _tensors(self._stage())


def download(published, otherwise: str) -> dict[str, torch.Tensor]:
    """Return published weights, as torchvision's ``ResNet18_Weights.IMAGENET1K_V1``.

    They are kept in torch's cache. Raises FltnbError if they are not there and the
    download fails; its sentence ends with what can be done ``otherwise``.
    """
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        # torch tells where on this machine the file goes, which no notebook should keep
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            # tensors only, never arbitrary pickles, with the published checksum
            weights = published.get_state_dict(
                progress=False, check_hash=True, weights_only=True
            )
        return dict(weights)
    except (OSError, RuntimeError) as error:
        file = published.url.rpartition("/")[2]
        raise FltnbError(
            f"The ImageNet weights {published} are not here and the download failed "
            f"({error}): connect to the network once, put {file} into "
            "$TORCH_HOME/hub/checkpoints (~/.cache/torch/hub/checkpoints), or "
            f"{otherwise}."
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)


def _torchvision(architecture: str, n_classes: int) -> nn.Module:
    """Return an architecture of torchvision with random weights."""
    from torchvision import models

    return models.get_model(architecture, weights=None, num_classes=n_classes)


def _last(net: nn.Module) -> str:
    """Name of the last dense layer: the classifier, in all of these networks."""
    dense = [
        name for name, layer in net.named_modules() if isinstance(layer, nn.Linear)
    ]
    return dense[-1]


def _tensors(net: nn.Module) -> dict[str, torch.Tensor]:
    """Trained parameters, then floating-point buffers, by name."""
    tensors: dict[str, torch.Tensor] = dict(net.named_parameters())
    for name, value in net.named_buffers():
        if value.is_floating_point():
            tensors[name] = value
    return tensors
