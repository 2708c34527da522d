"""PACS (Li et al., ICCV 2017): 9,991 images of 7 classes in 4 domains; it has no download that a program may use."""

from pathlib import Path

import numpy as np

from ..errors import FltnbError
from .images import ImageSet, fixed_split, read_picture

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
"""Domains 0 to 3."""
CLASS_NAMES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
IMAGES = (".jpg", ".jpeg", ".png")
PARTS = 5  # one of five equal parts of every domain and class is the test part


def read_pacs(folder: Path | str, size: int = 96) -> ImageSet:
    """Read the official folders ``<domain>/<class>/*.jpg`` (also inside ``kfold``), reduced to ``size`` pixels a side.

    Raises FltnbError, naming what is wrong, where a domain or class is missing or empty, or an image cannot be read.
    """
    folder = Path(folder)
    top = folder / "kfold" if (folder / "kfold").is_dir() else folder
    pixels, found = [], {"labels": [], "split": [], "domains": []}
    for d, domain in enumerate(DOMAINS):
        within = [(top / domain / name).glob("*") for name in CLASS_NAMES]
        files = [
            sorted(file for file in own if file.suffix.lower() in IMAGES)
            for own in within
        ]
        if [] in files:
            what = (
                f"class {CLASS_NAMES[files.index([])]!r} of "
                if (top / domain).is_dir()
                else ""
            )
            raise FltnbError(
                f"{top} lacks the {what}domain {domain!r}: copy the complete PACS release there."
            )
        pixels += [read_picture(file, size, "LANCZOS") for own in files for file in own]
        labels = np.repeat(np.arange(len(CLASS_NAMES)), [len(own) for own in files])
        found["labels"].append(labels)
        found["split"].append(fixed_split(labels, PARTS, d))
        found["domains"].append(np.full(len(labels), d, dtype=np.uint8))
    arrays = {key: np.concatenate(parts) for key, parts in found.items()}
    origin = f"PACS, official images reduced to {size} x {size}, 80/20 division per domain and class of our own"
    return ImageSet(
        "pacs", np.stack(pixels), class_names=CLASS_NAMES, origin=origin, **arrays
    )
