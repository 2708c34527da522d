"""Clusterers of this project's own research, of no paper; the core imports none."""

from .. import CLUSTERERS
from . import noise as noise  # says what noise on them is
from .gain import Gain, clustering_gain
from .merge_gain import MergeGain
from .transport import TransportSignatures

CLUSTERERS["MergeGain"] = MergeGain
CLUSTERERS["TransportSignatures"] = TransportSignatures

__all__ = ["Gain", "MergeGain", "TransportSignatures", "clustering_gain"]
