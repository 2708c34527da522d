"""Named image sets: what they are, prepared files, downloads, and readers of LEAF's and PACS's own files."""

from .images import ImageSet, array_digest
from .prepared import NAMES, PRETRAINING, SOURCES, checksum, load, pretraining_set

__all__ = [
    "NAMES",
    "PRETRAINING",
    "SOURCES",
    "ImageSet",
    "array_digest",
    "checksum",
    "load",
    "pretraining_set",
]
