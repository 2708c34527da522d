"""Encoders of the clients' data: pretrained autoencoders, PCA, raw pixels."""

from ..settings import brief, checked
from .embedding import embed_clients
from .pretraining import KINDS, EncoderSpec, pretrain, sent_parameters
from .published import enc1, enc2, unseen

__all__ = ["KINDS", "EncoderSpec", "embed_clients", "enc1", "enc2", "pretrain"]
__all__ += ["unseen"]
__all__ += ["sent_parameters"]


def canonical(settings: dict) -> dict:
    """Return an encoder's settings without defaults."""
    return settings if settings.get("kind") == "own" else brief(EncoderSpec, settings)


def build(settings: dict) -> EncoderSpec:
    """Make an encoder from its settings; FltnbError if one is unknown or wrong."""
    return EncoderSpec(**checked(EncoderSpec, settings, "encoder"))
