"""The papers' networks by name, shaped by the data (:func:`make`), and own networks.

Images of less than 28 pixels on a side are padded before each convolution of ``lenet``,
``mnist_cnn`` and ``cnn_small`` ("same" size), because otherwise nothing would be left
of an 8x8 digit. Larger ones are not padded, as published.
"""

from collections.abc import Callable, Sequence

from torch import nn

from ..errors import FltnbError, choose
from ..federations import Federation
from . import vision
from .base import (
    POOL,
    Conv,
    Dense,
    Dropout,
    Flatten,
    KeyedDropout,
    Layer,
    MaxPool,
    Model,
    ReLU,
    Stage,
)
from .own import Own, OwnModel, own
from .vision import STAGE, VISION_NAMES, StageModel, VisionModel

__all__ = [
    "NAMES",
    "POOL",
    "VISION_NAMES",
    "Conv",
    "Dense",
    "Dropout",
    "Flatten",
    "KeyedDropout",
    "Layer",
    "MaxPool",
    "Model",
    "Own",
    "OwnModel",
    "ReLU",
    "Stage",
    "StageModel",
    "VisionModel",
    "make",
    "own",
    "shaped",
    "vision",
]

HIDDEN = {  # widths of the hidden dense layers
    "mlp": (200,),
    "mlp_plain": (200,),
    "mlp32": (32,),
    "leaf_cnn": (2048,),
    "lenet": (120, 84),
    "mnist_cnn": (50,),
    "emdcfl_cnn": (128,),
    "cnn_small": (128,),
}
NAMES = tuple(HIDDEN)
UNPADDED = 28  # images of this side or larger are not padded


def make(name: str, input_shape: Sequence[int], n_classes: int) -> Model:
    """Return a network of the papers, shaped by the data.

    Parameters
    ----------
    name : str
        ``mlp``: FLT's MLP, one hidden layer of 200 with dropout 0.5 before the ReLU
        (FLT, Table 11). ``mlp_plain``: the same without dropout. ``mlp32``: MT-HFL's
        MLP, one hidden layer of 32 (Section III).

        ``leaf_cnn``: the LEAF CNN (FLT, Table 12, with 64 channels in the second
        convolution as in the code; the table's 63 is an error). ``lenet``: the
        small CNN that FLT's code trains on CIFAR-10, and MT-HFL's CNN. ``mnist_cnn``:
        the CNN of FLT's later code for MNIST, with two dropouts.

        ``emdcfl_cnn``: EMD-CFL's "simple two-layer CNN", 64 and 128 channels and 128
        hidden units (Appendix D.2), with the 3x3 kernels, the padding and the single
        pooling after both layers of its public code. ``cnn_small``: our light stand-in:
        8 and 16 channels, 3x3, each with pooling, and the same 128 hidden units, so
        embeddings of the same size.

        A torchvision network (:class:`fltnb.models.vision.VisionModel`): ``resnet18``
        and so on with ImageNet weights, or ``resnet18:random`` with random ones.
        ``efficientnet_lite0_stage``: the last stage of an ImageNet network
        (:class:`fltnb.models.vision.StageModel`).
    input_shape : (C, H, W)
        Vectors of d features are (1, 1, d); only the MLPs take them.
    n_classes : int
        Number of outputs.

    Raises
    ------
    FltnbError
        The name is unknown, or images are too small for the poolings.

    Examples
    --------
    >>> make("mlp", (1, 28, 28), 10).n_parameters
    159010
    """
    choose(name, (*NAMES, *VISION_NAMES), "model")
    shape = tuple(int(size) for size in input_shape)
    if len(shape) != 3:
        tokens = ""
        if len(shape) == 1:
            tokens = ". Whole numbers are tokens: give measurements as x.astype(float)"
        raise FltnbError(
            f"Model {name!r} takes images and vectors, not samples of shape {shape}: "
            f"give a network of your own, model=module{tokens}."
        )
    n_classes = int(n_classes)
    if n_classes < 1 or min(shape) < 1:
        raise FltnbError(
            "A model needs at least one class and one input, not "
            f"{n_classes} and shape {shape}."
        )
    if name == STAGE:
        return StageModel(name, shape, n_classes)
    if name in VISION_NAMES:
        return VisionModel(name, shape, n_classes)

    layers = [*_convolutions(name, shape), Flatten()]
    (width,) = Model(name, shape, n_classes, tuple(layers)).activations[-1]
    for hidden in HIDDEN[name]:
        layers += [Dense(width, hidden), ReLU()]
        width = hidden
    if name == "mlp":
        layers.insert(-1, Dropout())  # before the ReLU
    if name == "mnist_cnn":
        layers.append(Dropout())
    layers.append(Dense(width, n_classes))
    return Model(name, shape, n_classes, tuple(layers))


def shaped(
    model: str | Model | Own | nn.Module | Callable[..., nn.Module],
    fed: Federation,
    n_outputs: int | None = None,
) -> Model:
    """Return a network for a federation's samples.

    Parameters
    ----------
    model : str, nn.Module, function, Own or Model
        A name for :func:`make`, or your own network (:func:`own`). A Model for these
        samples and this number of outputs is returned as it is.
    fed : Federation
    n_outputs : int, optional
        Number of outputs; by default one for each class.

    Raises
    ------
    FltnbError
        The network cannot be made or applied, its outputs have a wrong shape, some of
        its weights have no effect, or a Model has other inputs or outputs.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> fl.models.shaped("mlp32", fed).n_classes
    10
    """
    n_outputs = n_outputs or fed.n_classes
    if isinstance(model, OwnModel):
        return model
    if isinstance(model, Model):
        # results know such a network by its name alone
        made = model.input_shape, model.n_classes
        if made != (fed.input_shape, n_outputs):
            raise FltnbError(
                f"The model {model.name!r} was made for samples of shape {made[0]} "
                f"and {made[1]} outputs, and not for {fed.input_shape} and "
                f"{n_outputs}: give its name instead."
            )
        return model
    if isinstance(model, str):
        return make(model, fed.input_shape, n_outputs)
    return OwnModel.of(model, fed, n_outputs)


def _convolutions(name: str, shape: tuple[int, ...]) -> list[Layer]:
    """Return the layers before the dense ones, none for the MLPs."""
    c, h, w = shape
    _check_size(name, h, w)

    pad = 2 if min(h, w) < UNPADDED else 0
    if name == "leaf_cnn":
        return [*_pooled(c, 32, padding=2), *_pooled(32, 64, padding=2)]
    if name == "lenet":
        return [*_pooled(c, 6, pad), *_pooled(6, 16, pad)]
    if name == "mnist_cnn":
        # its poolings come before ReLU, and after dropout
        first: list[Layer] = [Conv(c, 10, pad), MaxPool(), ReLU()]
        second: list[Layer] = [Conv(10, 20, pad), Dropout(channels=True)]
        return [*first, *second, MaxPool(), ReLU()]
    if name == "emdcfl_cnn":
        # one pooling, after both convolutions
        return [Conv(c, 64, 1, 3), ReLU(), *_pooled(64, 128, 1, 3)]
    if name == "cnn_small":
        return [*_pooled(c, 8, pad // 2, 3), *_pooled(8, 16, pad // 2, 3)]
    return []


def _pooled(inputs: int, outputs: int, padding: int, kernel: int = 5) -> list[Layer]:
    """Return a convolution with ReLU and pooling."""
    return [Conv(inputs, outputs, padding, kernel), ReLU(), MaxPool()]


def _check_size(name: str, h: int, w: int) -> None:
    least = POOL * POOL  # two poolings
    if name.startswith("mlp"):
        least = 1
    elif name == "emdcfl_cnn":
        least = POOL
    if min(h, w) < least:
        raise FltnbError(
            f"Model {name!r} needs at least {least} x {least} pixels, not {h} x {w}: "
            "choose 'mlp'."
        )
