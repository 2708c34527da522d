"""FLT's two encoders, as in its text and as in its code (arXiv 2103.15947, 4.1).

Both are pretrained before the federation. Enc1 is pretrained on data that cover the
clients' classes. Enc2 is pretrained on other data, and every client tunes it on its
own samples.
"""

from dataclasses import replace
from typing import Any

from ..settings import Variant, check
from .pretraining import EncoderSpec, Norm, Tuning


def enc1(
    dataset: str, variant: str = "as_written", epochs: int = 3, **other: Any
) -> EncoderSpec:
    """Return Enc1 for the clients of a data set: MNIST, CIFAR-10 or the digits.

    Parameters
    ----------
    dataset : str
        "digits": principal components of the digits themselves. "cifar10": the residual
        autoencoder of the code (e = 64; the text describes only the ConvAE, e = 128),
        pretrained on CIFAR-10 and ten classes of CIFAR-100. Any other name: MNIST's
        autoencoder, pretrained on EMNIST.
    variant : {"as_written", "as_run"}
        "as_run": as in the authors' code, which on MNIST tunes Enc1, and one encoder
        passes from client to client.
    epochs : int
        Epochs of the pretraining for CIFAR-10; others have their own number.
    **other
        Options of :class:`fltnb.encoders.EncoderSpec`, such as ``tuning`` or
        ``batch_norm``, instead of the variant's.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.encoders.enc1("digits").finetune_epochs
    0
    """
    check("variant", variant, Variant)
    if dataset == "digits":
        made = EncoderSpec("pca", "digits", latent=16)
    elif dataset == "cifar10":
        # the code's relay of 30 epochs did not change Enc1 after a few clients
        made = EncoderSpec("residual", "cifar20", epochs, latent=64)
    elif variant == "as_run":
        made = EncoderSpec("convae", "emnist_balanced", 8, 2, tuning="relay")
    else:
        made = EncoderSpec("convae", "emnist_balanced", 8)
    return replace(made, **other)


def enc2(dataset: str, variant: str = "as_written", **other: Any) -> EncoderSpec:
    """Return Enc2 for the clients of a data set: CIFAR-10, the digits, or grey images.

    Parameters
    ----------
    dataset : str
        "digits": raw pixels, without an encoder. "cifar10": the residual autoencoder of
        the code, as for Enc1, pretrained on twenty classes of CIFAR-100. Any other
        name: the autoencoder for grey images, pretrained on Fashion-MNIST.
    variant : {"as_written", "as_run"}
        "as_run": as in the authors' code: one encoder passes from client to client,
        and on CIFAR-10 embeds image by image in training mode.
    **other
        As for :func:`fltnb.encoders.enc1`.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.encoders.enc2("digits").finetune_epochs
    0
    """
    as_run = check("variant", variant, Variant) == "as_run"
    tuning: Tuning = "relay" if as_run else "alone"
    if dataset == "digits":
        made = EncoderSpec("pixels")
    elif dataset == "cifar10":
        epochs = 30 if as_run else 5
        norm: Norm = "image" if as_run else "running"
        source: dict[str, Any] = {
            "kind": "residual",
            "pretrain": "cifar100_disjoint",
            "latent": 64,
        }
        made = EncoderSpec(
            **source, epochs=10, finetune_epochs=epochs, tuning=tuning, batch_norm=norm
        )
    else:
        epochs = 2 if as_run else 5
        made = EncoderSpec("convae", "fashion_mnist", 5, epochs, tuning=tuning)
    return replace(made, **other)


def unseen(images: str) -> EncoderSpec:
    """Return an encoder trained on none of the clients' images (notebooks 15 to 17).

    There are two exceptions: colour images are embedded as raw pixels, and the digits
    by principal components of the digits themselves.

    Parameters
    ----------
    images : str
        "digits", "colours", "cifar10", "pacs", "pacs_features", "fashion_mnist", or any
        other name: grey images.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.encoders.unseen("digits").kind
    'pca'
    """
    if images == "digits":
        return EncoderSpec("pca", "digits", latent=16)
    if images in ("colours", "cifar10", "pacs", "pacs_features"):
        return EncoderSpec("pixels")
    if images == "fashion_mnist":
        return EncoderSpec("convae", "emnist_balanced", 8, 0)
    return EncoderSpec("convae", "fashion_mnist", 5, 0)
