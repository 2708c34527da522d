"""The papers' networks by name, shaped by the data: :func:`make`.

Images of less than 28 pixels on a side are padded before each convolution of ``lenet``, ``mnist_cnn`` and ``cnn_small``
("same" size), else nothing would be left of an 8x8 digit; larger ones are not padded, as published.
"""

from collections.abc import Sequence

from ..errors import FltnbError, choose
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
]
__all__ += ["Model", "ReLU", "Stage", "StageModel", "VisionModel", "make", "vision"]

HIDDEN = {  # widths of the hidden dense layers
    **{
        "mlp": (200,),
        "mlp_plain": (200,),
        "mlp32": (32,),
        "leaf_cnn": (2048,),
        "lenet": (120, 84),
    },
    **{"mnist_cnn": (50,), "emdcfl_cnn": (128,), "cnn_small": (128,)},
}
NAMES = tuple(HIDDEN)


def make(name: str, input_shape: Sequence[int], n_classes: int) -> Model:
    """Return a network of the papers, shaped by the data; FltnbError: unknown name, or images too small for poolings.

    Parameters
    ----------
    name : str
        A torchvision network, see :class:`fltnb.models.vision.VisionModel`: ``resnet18`` and so on with ImageNet
        weights, or ``resnet18:random`` with random ones. ``efficientnet_lite0_stage``: the last stage of an ImageNet
        network, see :class:`fltnb.models.vision.StageModel`. ``mlp``: FLT's MLP, one hidden layer of 200 with dropout
        0.5 before the ReLU (FLT, Table 11). ``mlp_plain``: the same without dropout. ``mlp32``: MT-HFL's MLP, one
        hidden layer of 32 (Section III). ``leaf_cnn``: the LEAF CNN (FLT, Table 12, with 64 channels in the second
        convolution as the code has them; the table's 63 is a slip). ``lenet``: the small CNN that FLT's code trains on
        CIFAR-10, and MT-HFL's CNN. ``mnist_cnn``: the CNN of FLT's later code for MNIST, with two dropouts.
        ``emdcfl_cnn``: EMD-CFL's "simple two-layer CNN", 64 and 128 channels and 128 hidden units (Appendix D.2); 3x3
        kernels, padded, one pooling after both, from its public code. ``cnn_small``: our light stand-in for it: 8 and
        16 channels, 3x3, each pooled, and the same 128 hidden units, hence the same embeddings.
    input_shape : (C, H, W), vectors of d features are (1, 1, d); only the MLPs take them
    n_classes : int, number of outputs

    Examples
    --------
    >>> make("mlp", (1, 28, 28), 10).n_parameters
    159010
    """
    choose(name, (*NAMES, *VISION_NAMES), "model")
    c, h, w = shape = tuple(int(size) for size in input_shape)
    if n_classes < 1 or min(shape) < 1:
        raise FltnbError(
            f"A model needs at least one class and one input, not {n_classes} and shape {shape}."
        )
    if name in VISION_NAMES:
        return (StageModel if name == STAGE else VisionModel)(
            name, shape, int(n_classes)
        )
    least = (
        1 if name.startswith("mlp") else POOL if name == "emdcfl_cnn" else POOL * POOL
    )
    if min(h, w) < least:
        raise FltnbError(
            f"Model {name!r} needs at least {least} x {least} pixels, not {h} x {w}: choose 'mlp'."
        )
    pad = 2 if name == "leaf_cnn" or min(h, w) < 28 else 0
    layers = {
        "leaf_cnn": [
            Conv(c, 32, pad),
            ReLU(),
            MaxPool(),
            Conv(32, 64, pad),
            ReLU(),
            MaxPool(),
        ],
        "lenet": [
            Conv(c, 6, pad),
            ReLU(),
            MaxPool(),
            Conv(6, 16, pad),
            ReLU(),
            MaxPool(),
        ],
        "mnist_cnn": [
            *(Conv(c, 10, pad), MaxPool(), ReLU()),
            *(Conv(10, 20, pad), Dropout(channels=True), MaxPool(), ReLU()),
        ],
        "emdcfl_cnn": [
            Conv(c, 64, 1, 3),
            ReLU(),
            Conv(64, 128, 1, 3),
            ReLU(),
            MaxPool(),
        ],
        "cnn_small": [
            Conv(c, 8, pad // 2, 3),
            ReLU(),
            MaxPool(),
            Conv(8, 16, pad // 2, 3),
            ReLU(),
            MaxPool(),
        ],
    }.get(name, [])
    layers.append(Flatten())
    (width,) = Model(name, shape, n_classes, tuple(layers)).activations[-1]
    for hidden in HIDDEN[name]:
        layers += [Dense(width, hidden), ReLU()]
        width = hidden
    if name == "mlp":
        layers.insert(-1, Dropout())  # before the ReLU
    elif name == "mnist_cnn":
        layers.append(Dropout())
    return Model(name, shape, n_classes, (*layers, Dense(width, n_classes)))
