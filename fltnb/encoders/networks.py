"""The autoencoders of FLT, shaped by the data, and MT-HFL's ResNet-18: networks that clients embed with, and tune."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torchvision.models import ResNet18_Weights
from torchvision.models.resnet import BasicBlock, ResNet

from ..data import features
from ..errors import FltnbError, choose
from ..federations import to_inputs
from ..models.base import threads
from ..models.vision import MEAN, STD, download
from ..progress import bar
from ..randomness import integer, stream

HALVED_EVERY = 10  # epochs, by the relay's schedule
STILL = 1e-9  # a smaller learning rate moves no weight of usual size: Adam's steps are about as long, in float32
ROWS_AT_ONCE = 2048  # of an embedding pass; fixed, so that rounding does not depend on a client's neighbours


def make(kind: str, input_shape: tuple[int, int, int], latent: int) -> nn.Module:
    """Build a network: ``encode(x) -> (n, latent)``; of an autoencoder ``forward(x) -> reconstruction``, ``loss(x)``.

    Raises FltnbError unless H and W are divisible by 4: both autoencoders halve them twice. A ResNet-18 takes all
    grey and colour images.
    """
    choose(kind, NETWORKS, "network")
    channels, height, width = input_shape
    if kind in ("resnet18", "efficientnet"):
        if channels not in (1, 3) or min(height, width) < 2:
            raise FltnbError(
                f"A {kind} needs grey or colour images, not {input_shape}: use kind='pixels'."
            )
    elif height % 4 or width % 4:
        raise FltnbError(
            f"A {kind} needs sides that are multiples of 4, not {height} x {width}: use kind='pca'."
        )
    return NETWORKS[kind](channels, height, width, latent)


def encoder_state(network: nn.Module) -> dict[str, torch.Tensor]:
    """Weights of an autoencoder that embedding alone needs."""
    parts = ("conv", "embed", "encoder")
    return {
        name: value
        for name, value in network.state_dict().items()
        if name.startswith(parts)
    }


def load(
    kind: str,
    input_shape: tuple[int, int, int],
    latent: int,
    weights: dict[str, np.ndarray],
) -> nn.Module:
    """Build a network that holds a copy of the given weights; an EfficientNet has its own."""
    if kind == "efficientnet":
        return make(kind, input_shape, latent)
    with torch.device(
        "meta"
    ):  # spares an initialisation, and with it the use of torch's global generator
        network = make(kind, input_shape, latent)
    network.load_state_dict(
        {name: torch.tensor(value) for name, value in weights.items()}, assign=True
    )
    return network.requires_grad_()


def adam(network: nn.Module, lr: float) -> torch.optim.Adam:
    """Return what :func:`train` takes steps with."""
    return torch.optim.Adam(network.parameters(), lr=lr, fused=True)


def train(
    network: nn.Module,
    inputs: torch.Tensor,
    orders: Iterable[np.ndarray],
    batch_size: int,
    optimiser: torch.optim.Adam,
) -> None:
    """Fit an autoencoder to ``inputs`` in place: steps on the mean squared error, one epoch for every order given.

    One core does all the sums, so that weights do not depend on how many there are; more would not pay. A last batch of
    a single image is left out where the network has BatchNorm, which cannot normalise it.
    """
    network.train()
    least = 2 if any(isinstance(m, nn.BatchNorm2d) for m in network.modules()) else 1
    with threads(1):
        for order in orders:
            for batch in torch.from_numpy(order).split(batch_size):
                if len(batch) >= least:
                    optimiser.zero_grad()
                    network.loss(inputs[batch]).backward()
                    optimiser.step()
    network.eval()


def normalise_alone(network: nn.Module) -> None:
    """Let BatchNorm use every image's own mean and variance: what it does in training mode with a batch of one."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.forward = partial(
                F.instance_norm, weight=layer.weight, bias=layer.bias, eps=layer.eps
            )


class ConvAE(nn.Module):
    """Convolutional autoencoder of FLT (arXiv 2103.15947, Table 13): two convolutions and one linear layer either way.

    conv 3x3 to 16 channels, ReLU, pool 2; conv 3x3 to 4, ReLU, pool 2; linear to the latent vector (no activation);
    linear back; two transposed 2x2 convolutions of stride 2, to 16 channels (ReLU) and to the image (sigmoid).
    51,577 parameters for 28 x 28 grey images and e = 128, of which 25,956 are the encoder's: Table 13's total. The
    table lists one pooling where that count needs two (28 -> 14 -> 7, 4 * 7 * 7 = 196 inputs of the linear layer), and
    16 output channels for the last layer where it needs one. Pixels are scaled to [0, 1].
    """

    mean, std = 0.0, 1.0

    def __init__(self, channels: int, height: int, width: int, latent: int):
        super().__init__()
        self.grid = (height // 4, width // 4)
        cells = 4 * self.grid[0] * self.grid[1]
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 4, 3, padding=1)
        self.embed, self.expand = nn.Linear(cells, latent), nn.Linear(latent, cells)
        self.up1 = nn.ConvTranspose2d(4, 16, 2, stride=2)
        self.up2 = nn.ConvTranspose2d(16, channels, 2, stride=2)
        # Positions, in the flattened image with a frame of one pixel, of each pixel's 3 x 3 patch ...
        frame = np.arange(channels * (height + 2) * (width + 2)).reshape(
            channels, height + 2, width + 2
        )
        patch = np.lib.stride_tricks.sliding_window_view(
            frame, (3, 3), axis=(1, 2)
        ).transpose(1, 2, 0, 3, 4)
        # ... and, in the flattened image, of the pixels in the order in which the decoder makes them.
        pixel = np.arange(channels * height * width).reshape(
            channels, *(height // 4, 2, 2), *(width // 4, 2, 2)
        )
        order = pixel.transpose(1, 4, 2, 5, 3, 6, 0)
        for name, index in (("patch", patch), ("order", order)):
            self.register_buffer(
                name, torch.tensor(index.reshape(-1), device="cpu"), persistent=False
            )

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """(n, C, H, W) in [0, 1] -> (n, latent)."""
        # ReLU and pooling commute; pooling first leaves a quarter of the work. A product with the 3 x 3 patches comes
        # out with channels last, which makes pooling and its gradient several times faster.
        n, _, height, width = x.shape
        patches = (
            F.pad(x, (1, 1, 1, 1))
            .flatten(1)
            .index_select(1, self.patch)
            .view(n * height * width, -1)
        )
        x = torch.addmm(self.conv1.bias, patches, self.conv1.weight.flatten(1).t())
        x = x.view(n, height, width, -1).permute(0, 3, 1, 2)
        x = F.relu(F.max_pool2d(x, 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.embed(x.flatten(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, C, H, W) -> reconstruction of the same shape, in (0, 1)."""
        return (
            self._decode(self.encode(x))
            .index_select(1, torch.argsort(self.order))
            .view_as(x)
        )

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Mean squared error of the reconstruction."""
        return F.mse_loss(
            self._decode(self.encode(x)), x.flatten(1).index_select(1, self.order)
        )

    def _decode(self, z: torch.Tensor) -> torch.Tensor:
        """(n, latent) -> (n, H * W * C), the pixel ``order[j]`` of the image in column j."""
        # A transposed convolution whose stride equals its kernel is a matrix product per pixel; the 2 x 2 outputs of
        # every pixel stay together, which spares the library's slow path and every transposition of a gradient.
        h = self.expand(z).view(len(z), 4, *self.grid).permute(0, 2, 3, 1)
        h = F.relu(_double(h, self.up1))
        return torch.sigmoid(_double(h, self.up2)).flatten(
            1
        )  # (n, height, width, 2, 2, 2, 2, C)


def _double(h: torch.Tensor, layer: nn.ConvTranspose2d) -> torch.Tensor:
    """Map (..., c_in) to (..., 2, 2, c_out): rows and columns that the layer makes of each pixel."""
    weight = layer.weight.permute(0, 2, 3, 1)
    out = h.reshape(-1, weight.shape[0]) @ weight.flatten(1)
    return out.view(*h.shape[:-1], *weight.shape[1:]) + layer.bias


class ResidualConvAE(nn.Module):
    """Residual autoencoder that FLT's public code used for CIFAR-10; the paper describes only :class:`ConvAE`.

    812,123 parameters for 32 x 32 colour images with e = 64 (the first versions of the code), 877,723 with e = 128
    (its last version, and what the paper states). Pixels are scaled to [-1, 1].
    """

    mean, std = 0.5, 0.5

    def __init__(self, channels: int, height: int, width: int, latent: int):
        super().__init__()
        grid = (8, height // 4, width // 4)
        cells = grid[0] * grid[1] * grid[2]
        self.encoder = nn.Sequential(
            *_normed(nn.Conv2d(channels, 64, 4, stride=2, padding=1)),
            *_normed(nn.Conv2d(64, 128, 4, stride=2, padding=1)),
            *(
                nn.Conv2d(128, 128, 3, padding=1),
                nn.BatchNorm2d(128),
                _Residual(),
                _Residual(),
                nn.ReLU(),
            ),
            *_normed(nn.Conv2d(128, 64, 1)),
            *_normed(nn.Conv2d(64, 8, 1)),
            *(nn.Flatten(), nn.Linear(cells, latent)),
        )
        self.decoder = nn.Sequential(
            *(
                nn.Linear(latent, cells),
                nn.Unflatten(1, grid),
                nn.ConvTranspose2d(8, 64, 1),
                nn.ReLU(),
            ),
            *(nn.ConvTranspose2d(64, 128, 1), nn.ReLU(), _Residual(), _Residual()),
            *(nn.Conv2d(128, 128, 3, padding=1), nn.ReLU()),
            *(nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1), nn.ReLU()),
            nn.ConvTranspose2d(64, channels, 4, stride=2, padding=1),
        )

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """(n, C, H, W) in [-1, 1] -> (n, latent)."""
        return self.encoder(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, C, H, W) -> reconstruction of the same shape."""
        return self.decoder(self.encoder(x))

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Mean squared error of the reconstruction."""
        return F.mse_loss(self(x), x)


def _normed(layer: nn.Conv2d) -> tuple[nn.Module, ...]:
    return layer, nn.ReLU(), nn.BatchNorm2d(layer.out_channels)


class _Residual(nn.Module):
    def __init__(self, channels: int = 128, narrow: int = 32):
        super().__init__()
        first = nn.Conv2d(channels, narrow, 3, padding=1, bias=False)
        self.path = nn.Sequential(
            nn.ReLU(), first, nn.ReLU(), nn.Conv2d(narrow, channels, 1, bias=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.path(x)


class ResNet18(ResNet):
    """ImageNet's ResNet-18 without its last layer: MT-HFL's for CIFAR-10 (arXiv 2410.02733, Section III)."""

    mean, std = 0.0, 1.0

    def __init__(
        self, channels: int = 3, height: int = 224, width: int = 224, latent: int = 512
    ):
        super().__init__(BasicBlock, [2, 2, 2, 2])
        self.fc = nn.Identity()

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 1 or 3, H, W) in [0, 1], at its own size -> (n, 512); grey images are shown to it as colour ones."""
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
        x = (x.expand(-1, 3, -1, -1) - mean) / std
        return torch.cat([self(part) for part in x.split(256)])


class EfficientNet(nn.Module):
    """ImageNet's EfficientNet-Lite0 in front of its classifier, where the weights of MT-HFL's ResNet-18 are not."""

    mean, std = 0.0, 1.0

    def __init__(
        self, channels: int = 3, height: int = 224, width: int = 224, latent: int = 1280
    ):
        super().__init__()
        self.net = features.network()

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 1 or 3, H, W) in [0, 1], enlarged up to four times -> (n, 1280)."""
        return torch.cat(
            [
                features.see(self.net, part.expand(-1, 3, -1, -1))
                for part in x.split(256)
            ]
        )


NETWORKS = {
    "convae": ConvAE,
    "residual": ResidualConvAE,
    "resnet18": ResNet18,
    "efficientnet": EfficientNet,
}


def fitted(
    spec, images: np.ndarray, name: str, progress: bool
) -> dict[str, np.ndarray]:
    """Weights of an autoencoder, trained on images of that name."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(spec.seed, "encoder"))
        network = make(spec.kind, to_inputs(images[:1]).shape[1:], spec.latent)
    inputs = torch.from_numpy(to_inputs(images, network.mean, network.std))
    epochs = bar(
        range(spec.epochs),
        progress,
        desc=f"Pretraining {spec.kind} on {name}",
        unit="epoch",
    )
    orders = (
        stream(spec.seed, "encoder", epoch).permutation(len(images)) for epoch in epochs
    )
    train(network, inputs, orders, spec.batch_size, adam(network, spec.lr))
    weights = {name: value.numpy() for name, value in network.state_dict().items()}
    if not all(np.isfinite(value).all() for value in weights.values()):
        raise FltnbError(f"Pretraining of {spec} diverged: lower lr.")
    return weights


def published(spec) -> dict[str, np.ndarray]:
    """Return a ResNet-18's weights without classifier: torchvision's, which torch keeps, or what the seed draws."""
    if spec.pretrain == "random":  # shows what the architecture alone does
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer(spec.seed, "encoder"))
            state = ResNet18().state_dict()
    else:
        state = download(
            ResNet18_Weights.IMAGENET1K_V1, "choose kind='convae' or kind='pixels'"
        )
    return {
        name: value.numpy()
        for name, value in state.items()
        if not name.startswith("fc.")
    }


def tuned(fed, spec, weights, i: int) -> np.ndarray:
    """Embeddings of client i, which tunes a network by itself."""
    torch.set_num_threads(
        1
    )  # of this thread: the sums, to the last bit, must not depend on n_jobs
    network = load(spec.kind, fed.input_shape, spec.latent, weights)
    inputs = _inputs(fed, i, network)
    orders = (
        stream(spec.seed, "finetune", i, epoch).permutation(len(inputs))
        for epoch in range(spec.finetune_epochs)
    )
    train(network, inputs, orders, spec.batch_size, adam(network, spec.lr))
    return _embedded(network, inputs, spec, i)


def relayed(fed, spec, weights, order: np.ndarray) -> Iterator[np.ndarray]:
    """Yield embeddings of clients in an order in which one network goes from each to the next, who tunes it."""
    torch.set_num_threads(
        1
    )  # the sums must not depend on the cores; what called this sets it back
    network = load(spec.kind, fed.input_shape, spec.latent, weights)
    optimiser = adam(network, spec.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, HALVED_EVERY, 0.5)
    for i in order.tolist():
        inputs = _inputs(fed, i, network)
        for _ in range(spec.finetune_epochs):
            if schedule.get_last_lr()[0] >= STILL:
                train(
                    network,
                    inputs,
                    [np.arange(len(inputs))],
                    spec.batch_size,
                    optimiser,
                )
                schedule.step()
        yield _embedded(deepcopy(network), inputs, spec, i)


def _inputs(fed, i: int, network):
    return torch.from_numpy(
        to_inputs(fed.images[fed.train[i]], network.mean, network.std)
    )


def _embedded(network, inputs, spec, i: int) -> np.ndarray:
    """Embeddings of client i; with ``batch_norm="image"`` the network cannot be trained afterwards."""
    if spec.batch_norm == "image" and spec.kind == "residual":
        normalise_alone(network)
    with torch.no_grad():
        z = torch.cat(
            [network.encode(part) for part in inputs.split(ROWS_AT_ONCE)]
        ).numpy()
    if not np.isfinite(z).all():
        raise FltnbError(
            f"Fine-tuning of the encoder diverged on client {i}: lower lr or finetune_epochs of {spec}."
        )
    return z
