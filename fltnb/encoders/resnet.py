"""Features of an ImageNet ResNet-18 without its last layer: MT-HFL's for CIFAR-10 (arXiv 2410.02733, Section III)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torchvision.models import ResNet18_Weights, resnet18

from ..errors import FltnbError
from ..models.vision import MEAN, STD, download
from ..randomness import integer
from .pretraining import Weights, read_weights, write_weights

AT_ONCE = 256  # images per forward pass


def weights(source: str, seed: int, path: Path) -> Weights:
    """Weights of the network without its classifier.

    ``source`` is "imagenet", torchvision's published weights, kept in the file ``path`` (FltnbError: no download), or
    "random", an initialisation from ``seed``, which shows what the architecture alone does.
    """
    if source == "random":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer(seed, "encoder"))
            return {name: value.numpy() for name, value in _network().state_dict().items()}
    kept = read_weights(path)
    if kept is None:
        published = ResNet18_Weights.IMAGENET1K_V1
        state = download(published, "choose kind='convae' or kind='pixels'")
        kept = {name: value.numpy() for name, value in state.items() if not name.startswith("fc.")}
        write_weights(path, kept, {"kind": "resnet18", "origin": published.url})
    return kept


def n_numbers() -> int:
    """Return how many numbers the weights are, running statistics included."""
    with torch.device("meta"):
        return sum(value.numel() for value in _network().state_dict().values() if value.is_floating_point())


def network(state: Weights):
    """Build the network with a copy of these weights, for evaluation; grey images are shown to it as colour ones."""
    with torch.device("meta"):
        made = _network()
    made.load_state_dict({name: torch.tensor(value) for name, value in state.items()}, assign=True)
    return made.eval().requires_grad_(False)


def features(inputs: np.ndarray, made) -> np.ndarray:
    """Features (n, 512) float32 of images (n, 1 or 3, H, W) in [0, 1], at their own size; FltnbError for others."""
    channels, height, width = inputs.shape[1:]
    if channels not in (1, 3) or min(height, width) < 2:
        raise FltnbError(f"ResNet-18 needs grey or colour images, not {inputs.shape[1:]}: use kind='pixels'.")
    mean, std = (np.array(values, dtype=np.float32)[:, None, None] for values in (MEAN, STD))
    x = torch.from_numpy((np.broadcast_to(inputs, (len(inputs), 3, height, width)) - mean) / std)
    with torch.no_grad():
        return torch.cat([made(part) for part in x.split(AT_ONCE)]).numpy()


def _network():
    made = resnet18(weights=None)
    made.fc = nn.Identity()
    return made
