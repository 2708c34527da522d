"""Clusterers of this project's own research; the core imports none of them."""

from .. import CLUSTERERS
from . import noise as noise  # registers how they add noise
from .gain import Gain, clustering_gain
from .merge_gain import MergeGain
from .transport import TransportSignatures

CLUSTERERS["MergeGain"] = MergeGain
CLUSTERERS["TransportSignatures"] = TransportSignatures

__all__ = ["Gain", "MergeGain", "TransportSignatures", "clustering_gain"]
