"""FLT's two encoders as its text and as its code have them (arXiv 2103.15947, 4.1).

Both are pretrained before the federation. Enc1 has seen data that cover the clients'
classes. Enc2 has seen other data, and every client tunes it on its own.
"""

from .pretraining import EncoderSpec


def enc1(dataset: str, variant: str = "as_written", epochs: int = 3) -> EncoderSpec:
    """Return Enc1 for the clients of a data set: MNIST, CIFAR-10 or the digits.

    ``variant``: "as_run" for what the authors' code does: on MNIST it tunes Enc1, and
    one encoder goes from client to client. ``epochs``: of the pretraining for CIFAR-10.
    The digits have their own principal components.
    """
    if dataset == "digits":
        return EncoderSpec("pca", "digits", latent=16)
    if dataset == "cifar10":
        # the code's relay of 30 epochs left Enc1 as it was after a few clients
        return EncoderSpec("residual", "cifar20", epochs, latent=64)
    if variant == "as_run":
        return EncoderSpec("convae", "emnist_balanced", 8, 2, tuning="relay")
    return EncoderSpec("convae", "emnist_balanced", 8)


def enc2(dataset: str, variant: str = "as_written") -> EncoderSpec:
    """Return Enc2 for the clients of a data set: CIFAR-10, the digits, or grey images.

    ``variant``: "as_run" for what the authors' code does: one encoder goes from client
    to client, and on CIFAR-10 it stays in training mode. The digits have none: pixels.
    """
    as_run = variant == "as_run"
    tuning = "relay" if as_run else "alone"
    if dataset == "digits":
        return EncoderSpec("pixels")
    if dataset == "cifar10":
        return EncoderSpec(
            "residual",
            "cifar100_disjoint",
            epochs=10,
            finetune_epochs=30 if as_run else 5,
            latent=64,
            tuning=tuning,
            batch_norm="image" if as_run else "running",
        )
    return EncoderSpec("convae", "fashion_mnist", 5, 2 if as_run else 5, tuning=tuning)
