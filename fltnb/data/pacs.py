"""PACS (Li et al., ICCV 2017): 9,991 images of 7 classes in 4 domains.

PACS has no download that a program may use.
"""

from pathlib import Path

import numpy as np

from ..errors import FltnbError
from .images import ImageSet, fixed_split, read_picture

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
"""Domains 0 to 3."""
CLASS_NAMES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
SUFFIXES = (".jpg", ".jpeg", ".png")
SIZE = 96  # pixels a side
PARTS = 5  # one fifth of every domain and class is the test part


def read_pacs(folder: Path | str) -> ImageSet:
    """Read the official folders ``<domain>/<class>/*.jpg`` (also inside ``kfold``).

    Pictures are reduced to 96 x 96 pixels. Raises FltnbError, which names the problem,
    if a domain or class is missing or empty, or an image cannot be read.
    """
    top = Path(folder).expanduser()
    if (top / "kfold").is_dir():
        top = top / "kfold"

    pictures = []
    labels = []
    split = []
    domains = []
    for number, domain in enumerate(DOMAINS):
        files = _files(top, domain)
        of_domain = np.array([CLASS_NAMES.index(file.parent.name) for file in files])
        pictures += [read_picture(file, SIZE, "LANCZOS") for file in files]
        labels.append(of_domain)
        split.append(fixed_split(of_domain, PARTS, number))
        domains.append(np.full(len(files), number, dtype=np.uint8))

    return ImageSet(
        "pacs",
        np.stack(pictures),
        np.concatenate(labels),
        np.concatenate(split),
        CLASS_NAMES,
        f"PACS, official images reduced to {SIZE} x {SIZE}, 80/20 division per domain "
        "and class of our own",
        domains=np.concatenate(domains),
    )


def _files(top: Path, domain: str) -> list[Path]:
    """Return the pictures of a domain, sorted by class and name."""
    if not (top / domain).is_dir():
        raise FltnbError(
            f"{top} lacks the domain {domain!r}: copy the complete PACS release there."
        )
    files = []
    for name in CLASS_NAMES:
        every = sorted((top / domain / name).glob("*"))
        pictures = [file for file in every if file.suffix.lower() in SUFFIXES]
        if not pictures:
            raise FltnbError(
                f"{top} lacks the class {name!r} of domain {domain!r}: copy the "
                "complete PACS release there."
            )
        files += pictures
    return files
