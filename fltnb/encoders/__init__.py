"""What clients embed their data with: pretrained autoencoders, PCA, raw pixels."""

from .embedding import embed_clients
from .pretraining import KINDS, EncoderSpec, pretrain, sent_parameters

__all__ = ["KINDS", "EncoderSpec", "embed_clients", "pretrain", "sent_parameters"]
