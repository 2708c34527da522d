"""PACS (Li et al., ICCV 2017): 9,991 images of 7 classes in 4 domains, read from the official folders.

The official release, one folder per domain with one folder per class inside, has no download that a program may use.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import FltnbError
from ..randomness import stream
from .images import ImageSet

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
"""Domains 0 to 3."""
CLASS_NAMES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
IMAGES = (".jpg", ".jpeg", ".png")
PARTS = 5  # one of five equal parts of every domain and class is the test part


def read_pacs(folder: Path | str, size: int = 96) -> ImageSet:
    """Read the official folders ``<domain>/<class>/*.jpg`` (also inside ``kfold``), reduced to ``size`` x ``size``.

    The official pictures have 227 x 227 pixels. Raises FltnbError, naming what is wrong, where a domain or class is
    missing or empty, or an image cannot be read.
    """
    from PIL import Image

    folder = Path(folder)
    top = folder / "kfold" if (folder / "kfold").is_dir() else folder
    pixels, labels, domains, split = [], [], [], []
    found = {
        (domain, name): sorted(file for file in (top / domain / name).glob("*") if file.suffix.lower() in IMAGES)
        for domain in DOMAINS
        for name in CLASS_NAMES
    }
    for (domain, name), files in found.items():
        if not files:
            what = f"class {name!r} of domain {domain!r}" if (top / domain).is_dir() else f"domain {domain!r}"
            raise FltnbError(f"{top} lacks the {what}: copy the complete PACS release there.")
    for (domain, name), files in found.items():
        d, c = DOMAINS.index(domain), CLASS_NAMES.index(name)
        for file in files:
            try:
                with Image.open(file) as image:
                    pixels.append(np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.LANCZOS)))
            except OSError as error:
                raise FltnbError(f"{file} cannot be read as an image ({error}): copy it again.") from error
        part = np.zeros(len(files), dtype=np.uint8)
        part[stream(0, "split", d, c).permutation(len(files))[: round(len(files) / PARTS)]] = 1
        split.append(part)
        labels.append(np.full(len(files), c, dtype=np.int64))
        domains.append(np.full(len(files), d, dtype=np.uint8))
    return ImageSet(
        name="pacs",
        images=np.stack(pixels),
        labels=np.concatenate(labels),
        split=np.concatenate(split),
        class_names=CLASS_NAMES,
        origin=f"PACS, official images reduced to {size} x {size}, 80/20 division per domain and class of our own",
        domains=np.concatenate(domains),
    )
