"""Named image sets: prepared files, downloads, LEAF's and PACS's own files."""

from .downloads import SOURCES
from .images import ImageSet, array_digest
from .prepared import NAMES, PRETRAINING, load, pretraining_set

__all__ = [
    "NAMES",
    "PRETRAINING",
    "SOURCES",
    "ImageSet",
    "array_digest",
    "load",
    "pretraining_set",
]
