"""Encoders that are trained once, before the federation, and kept on disk."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from .. import paths
from ..data import array_digest, pretraining_set
from ..errors import FltnbError, choose
from ..federations import to_inputs
from ..settings import Count, Natural, Positive, brief, checked
from .weights import Weights, read_weights, write_weights

Kind = Literal["convae", "residual", "resnet18", "efficientnet", "pca", "pixels"]
KINDS = get_args(Kind)
Tuning = Literal["alone", "relay"]
Norm = Literal["running", "image"]
NETWORK_KINDS = ("convae", "residual")
# Networks that are not trained here, and the sources of their weights.
SOURCES = {"resnet18": ("imagenet", "random"), "efficientnet": ("imagenet",)}
_FORMAT = 1  # part of every cache key: raise it when training changes


@dataclass(frozen=True)
class EncoderSpec:
    """The encoder of the clients' samples, by default FLT's Enc1.

    Parameters
    ----------
    kind : {"convae", "residual", "resnet18", "efficientnet", "pca", "pixels"}
        FLT's autoencoder (Table 13), the residual one of its public code for CIFAR-10,
        the convolutions of a ResNet-18 (MT-HFL) or, if its weights are not available,
        of an EfficientNet-Lite0 (the extra ``pretrained``), principal components of the
        pretraining set (one basis for all clients), or the pixels themselves.
    pretrain : str
        Name of the pretraining set, see :func:`fltnb.data.pretraining_set`; its
        training images are used. For a "resnet18": "imagenet", torchvision's published
        weights, or "random"; for an "efficientnet": "imagenet". Ignored by "pixels".
    epochs : int
        Number of passes of an autoencoder over the pretraining set.
    finetune_epochs : int
        J, passes of every client over its own samples (FLT, Algorithm 2, line 4; the
        paper's Enc2 has 5).
    latent : int
        Embedding dimension e; the paper: 128. A "resnet18" always has 512, an
        "efficientnet" 1,280.
    batch_size : int
        Images per step of Adam.
    lr : float
        Learning rate of Adam, in pretraining and fine-tuning. The loss is the mean
        squared error of the reconstruction.
    seed : int
        Seed of the initial weights and of the orders of images.
    tuning : {"alone", "relay"}
        Every client tunes the pretrained encoder alone, or one encoder passes from
        client to client, as in FLT's public code:
        :func:`fltnb.encoders.embed_clients`.
    batch_norm : {"running", "image"}
        The statistics with which a "residual" encoder normalises a client's images: the
        running statistics of its training, or each image's own. The latter is FLT's
        public code, which embedded image by image in training mode.

    Raises
    ------
    FltnbError
        A value is out of range, or there is nothing to fine-tune.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.encoders.EncoderSpec(kind="pca", pretrain="digits", latent=8).latent
    8
    """

    kind: Kind = "convae"
    pretrain: str = "emnist_balanced"
    epochs: Natural = 8
    finetune_epochs: Natural = 0
    latent: Count = 128
    batch_size: Count = 64
    lr: Positive = 1e-3
    seed: Natural = 0
    tuning: Tuning = "alone"
    batch_norm: Norm = "running"

    def __post_init__(self) -> None:
        for name, value in checked(type(self), asdict(self), "encoder").items():
            object.__setattr__(self, name, value)
        if self.kind in SOURCES:
            what = f"origin of a {self.kind}'s weights (pretrain)"
            choose(self.pretrain, SOURCES[self.kind], what)
        if self.finetune_epochs and self.kind not in NETWORK_KINDS:
            raise FltnbError(
                f"The encoder {self.kind!r} has nothing to fine-tune: set "
                "finetune_epochs=0."
            )

    def settings(self) -> dict[str, Any]:
        """Return the options that differ from defaults, by name."""
        return brief(type(self), asdict(self))


def pretrain(
    spec: EncoderSpec,
    progress: bool = False,
    input_shape: tuple[int, ...] | None = None,
) -> Weights:
    """Return the weights of a pretrained encoder.

    They come from the folder ``encoders`` of the store, or are trained now and kept.

    Parameters
    ----------
    spec : EncoderSpec
        ``spec.finetune_epochs`` has no effect.
    progress : bool
        Show a progress bar.
    input_shape : (C, H, W), optional
        Shape of the images that will be embedded.

    Returns
    -------
    dict of ndarrays
        An autoencoder's state, or "mean" (d,) and "components" (latent, d) of a PCA,
        and "input_shape" (C, H, W) of the images it was trained on. A ResNet-18 takes
        images of any shape and has no "input_shape"; pixels need nothing.

    Raises
    ------
    FltnbError
        The pretraining set is missing or does not suit the encoder, or its images have
        another shape.

    Examples
    --------
    >>> import fltnb as fl
    >>> spec = fl.encoders.EncoderSpec(kind="pca", pretrain="digits", latent=8)
    >>> fl.encoders.pretrain(spec)["components"].shape
    (8, 64)
    """
    if spec.kind in ("pixels", "efficientnet"):
        return {}
    if spec.kind == "resnet18":
        from .networks import published

        return published(spec)

    images = pretraining_set(spec.pretrain)
    train = images.images[images.train_index]
    shape = to_inputs(train[:1]).shape[1:]
    if input_shape is not None and shape != tuple(input_shape):
        raise FltnbError(
            f"{spec.pretrain} has images of shape {shape}, not {tuple(input_shape)}: "
            "take another set."
        )

    settings = _settings(spec, train)
    text = json.dumps(settings, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:20]
    path = paths.store() / "encoders" / f"{key}.safetensors"
    weights = read_weights(path)
    if weights is None:
        unfinished = path.with_suffix(".partial")
        weights = _fitted(spec, train, images.name, progress, unfinished)
        weights["input_shape"] = np.array(shape)
        settings["pretrain"] = spec.pretrain
        settings["origin"] = images.origin
        write_weights(path, weights, settings)
        unfinished.unlink(missing_ok=True)
    return weights


def _settings(spec: EncoderSpec, train: np.ndarray) -> dict[str, Any]:
    """Return everything on which the weights depend."""
    settings = {
        "format": _FORMAT,
        "kind": spec.kind,
        "data": array_digest(train),
        "latent": int(spec.latent),
    }
    if spec.kind in NETWORK_KINDS:
        for name in ("epochs", "batch_size", "lr", "seed"):
            settings[name] = getattr(spec, name)
    return settings


def _fitted(
    spec: EncoderSpec, train: np.ndarray, name: str, progress: bool, unfinished: Path
) -> Weights:
    """Return the weights of an encoder fitted to images, by name."""
    if spec.kind == "pca":  # without torch
        weights = _fit_pca(spec, train, name)
    else:
        from .networks import fitted

        weights = fitted(spec, train, name, progress, unfinished)
    # In the memory order of stored weights, so that products come out the same.
    return {key: np.ascontiguousarray(value) for key, value in weights.items()}


def _fit_pca(spec: EncoderSpec, train: np.ndarray, name: str) -> Weights:
    """Return mean and principal components of images.

    Raises FltnbError if there are fewer images or pixels than components.
    """
    from sklearn.decomposition import PCA

    # float64, as a float32 mean over all images would lose digits
    x = to_inputs(train).reshape(len(train), -1).astype(np.float64)
    if spec.latent > min(x.shape):
        raise FltnbError(
            f"{name} has {x.shape[0]} images of {x.shape[1]} pixels, too few for "
            f"{spec.latent} principal components: lower latent."
        )
    solver = "covariance_eigh" if x.shape[0] > x.shape[1] else "full"
    pca = PCA(spec.latent, svd_solver=solver).fit(x)
    return {
        "mean": pca.mean_.astype(np.float32),
        "components": pca.components_.astype(np.float32),
    }


def sent_parameters(spec: EncoderSpec, input_shape: tuple[int, ...]) -> int:
    """Return how many numbers the server sends to each client before round 1.

    FLT, arXiv 2103.15947, Table 6. An autoencoder: only the encoder part if it is not
    tuned (25,956 numbers of the ConvAE), else the whole (51,577). A PCA: mean and axes.
    A ResNet-18: all except its classifier. An EfficientNet-Lite0: all. Pixels: nothing.
    BatchNorm's running statistics count as well.

    Parameters
    ----------
    spec : EncoderSpec
    input_shape : (C, H, W)
        Shape of the clients' images.

    Examples
    --------
    >>> import fltnb as fl
    >>> spec = fl.encoders.EncoderSpec(kind="pixels")
    >>> fl.encoders.sent_parameters(spec, input_shape=(1, 8, 8))
    0
    """
    if spec.kind == "pixels":
        return 0
    if spec.kind == "pca":
        return (spec.latent + 1) * math.prod(input_shape)

    from . import networks

    network = networks.make(spec.kind, input_shape, spec.latent)
    whole = spec.finetune_epochs or spec.kind in SOURCES
    state = network.state_dict() if whole else networks.encoder_state(network)
    return sum(value.numel() for value in state.values() if value.is_floating_point())
