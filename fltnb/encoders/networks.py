"""Networks with which clients embed their data, and which they tune.

They are the autoencoders of FLT, and MT-HFL's ResNet-18 with its stand-in.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from ..data import features
from ..errors import FltnbError, choose
from ..federations import to_inputs
from ..models.base import threads
from ..models.vision import MEAN, STD, download
from ..progress import bar
from ..randomness import integer, stream
from .weights import Weights, read_weights, write_weights

HALVED_EVERY = 10  # epochs, by the relay's schedule
# A smaller learning rate moves no weight of usual size: Adam's steps are about as long,
# in float32.
STILL = 1e-9
# Images of an embedding pass; fixed, so that rounding does not depend on a client's
# neighbours.
ROWS_AT_ONCE = 2048
IMAGES_AT_ONCE = 256  # of a large network
PAUSE = 60.0  # seconds, at least, between two states of a pretraining that are kept


def make(kind: str, input_shape: tuple[int, ...], latent: int) -> nn.Module:
    """Build a network with ``encode(x) -> (n, latent)``.

    An autoencoder also has ``forward(x) -> reconstruction`` and ``loss(x)``.

    Raises
    ------
    FltnbError
        H or W of an autoencoder is not divisible by 4: both autoencoders halve them
        twice. A ResNet-18 takes all grey and colour images, but nothing else.
    """
    choose(kind, NETWORKS, "network")
    channels, height, width = input_shape
    if kind in ("resnet18", "efficientnet"):
        if channels not in (1, 3) or min(height, width) < 2:
            raise FltnbError(
                f"The encoder {kind!r} needs grey or colour images, not samples of "
                f"shape {input_shape}: use kind='pixels'."
            )
        return NETWORKS[kind]()
    if height % 4 or width % 4:
        raise FltnbError(
            f"The encoder {kind!r} needs images whose sides are multiples of 4, not "
            f"{height} x {width}: use kind='pca'."
        )
    return NETWORKS[kind](channels, height, width, latent)


def encoder_state(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights of an autoencoder that embedding needs, by name."""
    parts = ("conv", "embed", "encoder")
    state = {}
    for name, value in network.state_dict().items():
        if name.startswith(parts):
            state[name] = value
    return state


def load(
    kind: str, input_shape: tuple[int, ...], latent: int, weights: Weights
) -> nn.Module:
    """Build a network with a copy of the given weights; an EfficientNet has its own."""
    if kind == "efficientnet":
        return make(kind, input_shape, latent)
    # "meta" avoids an initialisation, and so the use of torch's global generator.
    with torch.device("meta"):
        network = make(kind, input_shape, latent)
    state = {name: torch.tensor(value) for name, value in weights.items()}
    network.load_state_dict(state, assign=True)
    return network.requires_grad_()


def adam(network: nn.Module, lr: float) -> torch.optim.Adam:
    """Return the optimiser for :func:`train`."""
    return torch.optim.Adam(network.parameters(), lr=lr, fused=True)


def train(
    network: nn.Module,
    inputs: torch.Tensor,
    orders: Iterable[np.ndarray],
    batch_size: int,
    optimiser: torch.optim.Adam,
) -> None:
    """Fit an autoencoder to ``inputs`` in place, one epoch for every given order.

    All sums are computed on one core, so that weights do not depend on the number of
    cores; more cores would not be faster. A last batch of a single image is left out if
    the network has BatchNorm, which cannot normalise it.

    Parameters
    ----------
    inputs : tensor, shape (n, C, H, W)
    orders : iterable of int64 arrays (n,)
        The positions of all inputs in the order of an epoch.
    batch_size : int
    optimiser : torch.optim.Adam
        As :func:`adam` returns it; it may have taken steps before.
    """
    network.train()
    least = 1
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            least = 2
    with threads(1):
        for order in orders:
            loss: Any = network.loss  # a ResNet-18 has none, and is never tuned
            for batch in torch.from_numpy(order).split(batch_size):
                if len(batch) >= least:
                    optimiser.zero_grad()
                    loss(inputs[batch]).backward()
                    optimiser.step()
    network.eval()


class ConvAE(nn.Module):
    """Convolutional autoencoder of FLT (arXiv 2103.15947, Table 13).

    There are two convolutions and one linear layer each way: conv 3x3 to 16 channels,
    ReLU, pool 2; conv 3x3 to 4, ReLU, pool 2; linear to the latent vector (no
    activation); linear back; two transposed 2x2 convolutions of stride 2, to 16
    channels (ReLU) and to the image (sigmoid). Pixels are scaled to [0, 1].

    There are 51,577 parameters for 28 x 28 grey images and e = 128, of which 25,956 are
    the encoder's: Table 13's total. The table lists one pooling where that count needs
    two (28 -> 14 -> 7, 4 * 7 * 7 = 196 inputs of the linear layer), and 16 output
    channels for the last layer where it needs one.
    """

    mean = 0.0
    std = 1.0

    def __init__(self, channels: int, height: int, width: int, latent: int):
        super().__init__()
        rows = height // 4  # size after two poolings
        columns = width // 4
        self.grid = (rows, columns)
        cells = 4 * rows * columns
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 4, 3, padding=1)
        self.embed = nn.Linear(cells, latent)
        self.expand = nn.Linear(latent, cells)
        self.up1 = nn.ConvTranspose2d(4, 16, 2, stride=2)
        self.up2 = nn.ConvTranspose2d(16, channels, 2, stride=2)
        self.patch: torch.Tensor
        self.order: torch.Tensor
        self._keep("patch", _patches(channels, height, width))
        self._keep("order", _decoded_order(channels, height, width))

    def _keep(self, name: str, index: np.ndarray) -> None:
        """Keep an index as a flat buffer that is not part of the weights.

        On the CPU, also where the network is built on "meta" without memory.
        """
        index = torch.tensor(index.reshape(-1), device="cpu")
        self.register_buffer(name, index, persistent=False)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """(n, C, H, W) in [0, 1] -> (n, latent)."""
        # A product with the 3 x 3 patches comes out with channels last, which makes
        # pooling and its gradient several times faster. ReLU and pooling commute;
        # pooling first leaves a quarter of the work.
        n, _, height, width = x.shape
        framed = F.pad(x, (1, 1, 1, 1)).flatten(1)
        assert self.conv1.bias is not None
        patches = framed.index_select(1, self.patch)
        patches = patches.view(n * height * width, -1)  # (n * H * W, C * 9)
        kernels = self.conv1.weight.flatten(1)  # (16, C * 9)
        x = torch.addmm(self.conv1.bias, patches, kernels.t())
        x = x.view(n, height, width, -1).permute(0, 3, 1, 2)  # (n, 16, H, W)
        x = F.relu(F.max_pool2d(x, 2))
        x = self.conv2(x)
        x = F.relu(F.max_pool2d(x, 2))  # (n, 4, H / 4, W / 4)
        return self.embed(x.flatten(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, C, H, W) -> reconstruction of the same shape, in (0, 1)."""
        pixels = self._decode(self.encode(x))
        column = torch.argsort(self.order)  # of each pixel of the image
        return pixels.index_select(1, column).view_as(x)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Mean squared error of the reconstruction."""
        pixels = self._decode(self.encode(x))
        wanted = x.flatten(1).index_select(1, self.order)
        return F.mse_loss(pixels, wanted)

    def _decode(self, z: torch.Tensor) -> torch.Tensor:
        """(n, latent) -> (n, H * W * C), in column j the pixel ``order[j]``."""
        # A transposed convolution whose stride equals its kernel is a matrix product
        # per pixel; the 2 x 2 outputs of every pixel stay together, which spares the
        # library's slow path and every transposition of a gradient.
        h = self.expand(z).view(len(z), 4, *self.grid)
        h = h.permute(0, 2, 3, 1)  # (n, H / 4, W / 4, 4)
        h = F.relu(_double(h, self.up1))  # (n, H / 4, W / 4, 2, 2, 16)
        pixels = torch.sigmoid(_double(h, self.up2))  # and 2, 2, C at its end
        return pixels.flatten(1)


def _patches(channels: int, height: int, width: int) -> np.ndarray:
    """Return where each pixel's 3 x 3 patch is in the image with a frame of a pixel.

    Of one channel with 2 x 2 pixels, framed as 4 x 4 with the positions 0 to 15, the
    first pixel's patch is [[0, 1, 2], [4, 5, 6], [8, 9, 10]].

    Returns
    -------
    ndarray of int, shape (height, width, channels, 3, 3)
    """
    framed = (channels, height + 2, width + 2)
    position = np.arange(np.prod(framed)).reshape(framed)
    view = np.lib.stride_tricks.sliding_window_view(position, (3, 3), axis=(1, 2))
    return view.transpose(1, 2, 0, 3, 4)


def _decoded_order(channels: int, height: int, width: int) -> np.ndarray:
    """Return the image's pixels in the order in which the decoder makes them.

    It makes 4 x 4 pixels of each cell of the small grid: a cell gives 2 x 2, and each
    of these 2 x 2 again. So a pixel's row is (cell, half, quarter), its column as well,
    and the decoder goes by cells (row, column), by halves, by quarters, and then by
    channels. One cell of one channel comes as 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10,
    11, 14, 15.

    Returns
    -------
    ndarray of int, shape (height / 4, width / 4, 2, 2, 2, 2, channels)
        Positions in the flat image (C, H, W).
    """
    shape = (channels, height // 4, 2, 2, width // 4, 2, 2)
    position = np.arange(channels * height * width).reshape(shape)
    return position.transpose(1, 4, 2, 5, 3, 6, 0)


def _double(h: torch.Tensor, layer: nn.ConvTranspose2d) -> torch.Tensor:
    """Map (..., c_in) to (..., 2, 2, c_out): what the layer makes of each pixel."""
    weight = layer.weight.permute(0, 2, 3, 1)  # (c_in, 2, 2, c_out)
    c_in, *of_pixel = weight.shape
    out = h.reshape(-1, c_in) @ weight.flatten(1)
    assert layer.bias is not None
    return out.view(*h.shape[:-1], *of_pixel) + layer.bias


class ResidualConvAE(nn.Module):
    """Residual autoencoder that FLT's public code used for CIFAR-10.

    The paper describes only :class:`ConvAE`. There are 812,123 parameters for 32 x 32
    colour images with e = 64 (the first versions of the code), 877,723 with e = 128
    (its last version, and what the paper states). Pixels are scaled to [-1, 1].
    """

    mean = 0.5
    std = 0.5

    def __init__(self, channels: int, height: int, width: int, latent: int):
        super().__init__()
        rows = height // 4  # size after two strides of 2
        columns = width // 4
        cells = 8 * rows * columns
        self.encoder = nn.Sequential(
            *_normed(nn.Conv2d(channels, 64, 4, stride=2, padding=1)),
            *_normed(nn.Conv2d(64, 128, 4, stride=2, padding=1)),
            nn.Conv2d(128, 128, 3, padding=1),
            nn.BatchNorm2d(128),
            _Residual(),
            _Residual(),
            nn.ReLU(),
            *_normed(nn.Conv2d(128, 64, 1)),
            *_normed(nn.Conv2d(64, 8, 1)),
            nn.Flatten(),
            nn.Linear(cells, latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, cells),
            nn.Unflatten(1, (8, rows, columns)),
            nn.ConvTranspose2d(8, 64, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 128, 1),
            nn.ReLU(),
            _Residual(),
            _Residual(),
            nn.Conv2d(128, 128, 3, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1),
            nn.ReLU(),
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
    """Return a convolution, ReLU and BatchNorm, in the order of the public code."""
    return layer, nn.ReLU(), nn.BatchNorm2d(layer.out_channels)


class _Residual(nn.Module):
    """A residual block: 3 x 3 to few channels, 1 x 1 back, ReLU before each."""

    def __init__(self, channels: int = 128, narrow: int = 32):
        super().__init__()
        self.path = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(channels, narrow, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.Conv2d(narrow, channels, 1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, C, H, W) -> the same shape."""
        return x + self.path(x)


class ResNet18(nn.Sequential):
    """ImageNet's ResNet-18 without its last layer.

    It is MT-HFL's for CIFAR-10 (arXiv 2410.02733, Section III).
    """

    mean = 0.0
    std = 1.0

    def __init__(self):
        from torchvision.models import resnet18  # slow to import, and rarely needed

        layers = OrderedDict(resnet18().named_children())
        del layers["fc"]
        super().__init__(layers)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 1 or 3, H, W) in [0, 1], at its own size -> (n, 512).

        Grey images are converted to colour images.
        """
        mean = torch.tensor(MEAN)[:, None, None]  # of each channel, (3, 1, 1)
        std = torch.tensor(STD)[:, None, None]
        colour = x.expand(-1, 3, -1, -1)
        scaled = (colour - mean) / std
        parts = scaled.split(IMAGES_AT_ONCE)
        return torch.cat([self(part).flatten(1) for part in parts])


class EfficientNet(nn.Module):
    """ImageNet's EfficientNet-Lite0 in front of its classifier.

    It replaces MT-HFL's ResNet-18, whose weights may not be available.
    """

    mean = 0.0
    std = 1.0

    def __init__(self):
        super().__init__()
        self.net = features.network()

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 1 or 3, H, W) in [0, 1], enlarged up to four times -> (n, 1280)."""
        colour = x.expand(-1, 3, -1, -1)
        parts = colour.split(IMAGES_AT_ONCE)
        return torch.cat([features.see(self.net, part) for part in parts])


NETWORKS = {
    "convae": ConvAE,
    "residual": ResidualConvAE,
    "resnet18": ResNet18,
    "efficientnet": EfficientNet,
}


def fitted(
    spec, images: np.ndarray, name: str, progress: bool, unfinished: Path
) -> Weights:
    """Train an autoencoder and return its weights.

    Parameters
    ----------
    spec
        The encoder's settings.
    images : ndarray of uint8, shape (n, H, W) or (n, H, W, C)
    name : str
        Name of the images in the progress bar.
    progress : bool
        Whether a bar is shown.
    unfinished : Path
        File from which a pretraining that was cut short continues. It is written after
        an epoch, at most once a minute, and is the caller's to remove.

    Raises
    ------
    FltnbError
        It diverged.
    """
    one_input = to_inputs(images[:1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(spec.seed, "encoder"))
        network: Any = make(spec.kind, one_input.shape[1:], spec.latent)
    inputs = torch.from_numpy(to_inputs(images, network.mean, network.std))
    optimiser = adam(network, spec.lr)
    kept = read_weights(unfinished)
    done = 0 if kept is None else _continued(network, optimiser, kept)

    epochs = bar(
        range(done, spec.epochs),
        progress,
        initial=done,
        total=spec.epochs,
        desc=f"Pretraining {spec.kind} on {name}",
        unit="epoch",
    )
    written = time.monotonic()
    for epoch in epochs:
        order = stream(spec.seed, "encoder", epoch).permutation(len(images))
        train(network, inputs, [order], spec.batch_size, optimiser)
        if time.monotonic() - written >= PAUSE and epoch + 1 < spec.epochs:
            write_weights(unfinished, _midway(network, optimiser, epoch + 1), {})
            written = time.monotonic()

    weights = _arrays(network)
    for value in weights.values():
        if not np.isfinite(value).all():
            raise FltnbError(f"Pretraining of {spec} diverged: lower lr.")
    return weights


def _midway(network: nn.Module, optimiser: torch.optim.Adam, epochs: int) -> Weights:
    """Return all from which training continues to the last bit, by name."""
    state = {f"network/{name}": value for name, value in _arrays(network).items()}
    for number, moments in optimiser.state_dict()["state"].items():
        for name, value in moments.items():
            state[f"adam/{number}/{name}"] = value.numpy()
    return state | {"epochs": np.array(epochs)}


def _continued(network: nn.Module, optimiser: torch.optim.Adam, state: Weights) -> int:
    """Put a network and its optimiser into a state that :func:`_midway` returned.

    Returns the number of finished epochs.
    """
    weights = {}
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in state.items():
        part, _, rest = name.partition("/")
        if part == "network":
            weights[rest] = torch.tensor(value)
        elif part == "adam":
            number, _, moment = rest.partition("/")
            moments.setdefault(int(number), {})[moment] = torch.tensor(value)
    network.load_state_dict(weights)
    optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
    return int(state["epochs"])


def published(spec) -> Weights:
    """Return a ResNet-18's weights, without the classifier's.

    They are torchvision's, from torch's cache, or random ones by the seed.
    """
    if spec.pretrain == "random":  # shows the effect of the architecture alone
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer(spec.seed, "encoder"))
            return _arrays(ResNet18())
    from torchvision.models import ResNet18_Weights

    otherwise = "choose kind='convae' or kind='pixels'"
    state = download(ResNet18_Weights.IMAGENET1K_V1, otherwise)
    weights = {}
    for name, value in state.items():
        if not name.startswith("fc."):  # the classifier
            weights[name] = value.numpy()
    return weights


def _arrays(network: nn.Module) -> Weights:
    """Return a network's weights by name."""
    return {name: value.numpy() for name, value in network.state_dict().items()}


def tuned(fed, spec, weights: Weights, client: int) -> np.ndarray:
    """Return the embeddings (n_i, e) of a client, which tunes its own network."""
    embedded, _ = tuned_on(fed, spec, weights, client)
    return embedded


def tuned_on(
    fed, spec, weights: Weights, client: int, latest: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the embeddings of a client, and its network after tuning.

    Parameters
    ----------
    fed, spec
        The federation and the encoder's settings.
    weights : dict
        Weights of the pretrained network.
    client : int
    latest : array (E,), optional
        All numbers of the client's own network, from which tuning continues.

    Returns
    -------
    embedded : array (n_i, e)
    network : array (E,)
        All numbers of the network, in the order of its state.
    """
    # For this thread only: the last bit of a sum must not depend on n_jobs.
    torch.set_num_threads(1)
    network = load(spec.kind, fed.input_shape, spec.latent, weights)
    if latest is not None:
        _set_row(network, latest)
    inputs = _inputs(fed, client, network)
    orders = []
    for epoch in range(spec.finetune_epochs):
        draws = stream(spec.seed, "finetune", client, epoch)
        orders.append(draws.permutation(len(inputs)))
    train(network, inputs, orders, spec.batch_size, adam(network, spec.lr))
    row = _as_row(network)
    return _embedded(network, inputs, spec, client), row


def _as_row(network: nn.Module) -> np.ndarray:
    """Return all numbers of a network's state (E,), one entry after the other."""
    state = network.state_dict().values()
    flat = [value.detach().numpy().ravel() for value in state]
    return np.concatenate(flat).astype(np.float32)


def _set_row(network: nn.Module, row: np.ndarray) -> None:
    """Give a network the numbers of a row (E,) that :func:`_as_row` returned.

    In the order of the network's state: stored weights come in another one.
    """
    begin = 0
    for value in network.state_dict().values():
        end = begin + value.numel()
        value.copy_(torch.tensor(row[begin:end]).view_as(value))
        begin = end


def relayed(fed, spec, weights: Weights, order: np.ndarray) -> Iterator[np.ndarray]:
    """Yield embeddings (n_i, e) of clients while one network passes between them.

    Each client tunes the network and passes it to the next. ``order``: their numbers
    (M,).
    """
    # Sums must not depend on the number of cores; the caller restores the number.
    torch.set_num_threads(1)
    network = load(spec.kind, fed.input_shape, spec.latent, weights)
    optimiser = adam(network, spec.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, HALVED_EVERY, 0.5)
    for client in order.tolist():
        inputs = _inputs(fed, client, network)
        in_order = np.arange(len(inputs))
        for _ in range(spec.finetune_epochs):
            if schedule.get_last_lr()[0] >= STILL:
                train(network, inputs, [in_order], spec.batch_size, optimiser)
                schedule.step()
        yield _embedded(deepcopy(network), inputs, spec, client)


def _inputs(fed, client: int, network) -> torch.Tensor:
    """Return a client's training images (n_i, C, H, W), scaled for a network."""
    images = fed.images[fed.train[client]]
    return torch.from_numpy(to_inputs(images, network.mean, network.std))


def _embedded(network, inputs: torch.Tensor, spec, client: int) -> np.ndarray:
    """Embed a client's inputs (n, C, H, W) as (n, e).

    With ``batch_norm="image"`` the network cannot be trained afterwards.

    Raises
    ------
    FltnbError
        The network has diverged.
    """
    if spec.batch_norm == "image" and spec.kind == "residual":
        _normalise_alone(network)
    with torch.no_grad():
        parts = [network.encode(part) for part in inputs.split(ROWS_AT_ONCE)]
    embedded = torch.cat(parts).numpy()
    if not np.isfinite(embedded).all():
        raise FltnbError(
            f"Fine-tuning of the encoder diverged on client {client}: lower lr or "
            f"finetune_epochs of {spec}."
        )
    return embedded


def _normalise_alone(network: nn.Module) -> None:
    """Let BatchNorm use every image's own mean and variance.

    That is what it does in training mode with a batch of one.
    """
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            alone = partial(
                F.instance_norm,
                weight=layer.weight,
                bias=layer.bias,
                eps=layer.eps,
            )
            layer.forward = alone  # type: ignore[method-assign]  # of this one only
