"""PACS (Li et al., ICCV 2017): 9,991 images of 7 classes in 4 domains, read from the official folders.

The official release has no download that a program may use; it consists of one folder per domain with one folder per
class inside.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import data, paths
from .data import ImageSet
from .errors import FltnbError
from .randomness import stream

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
"""Domains 0 to 3."""
CLASS_NAMES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
IMAGES = (".jpg", ".jpeg", ".png")
PARTS = 5  # one of five equal parts of every domain and class is the test part


def load_pacs(root: Path | str | None = None) -> ImageSet:
    """Load PACS from its prepared file ``pacs.npz``, or from the folder ``PACS`` beside it, which is converted once.

    Parameters
    ----------
    root : path, optional
        Folder of prepared files. Default: ``$FLTNB_DATA``, then ``data/``.

    Raises
    ------
    FltnbError
        Neither file nor folder, a damaged file, or a folder that lacks a domain or class.
    """
    folders = [Path(root)] if root is not None else paths.data()
    path = data._find("pacs", folders)
    if path is None:
        place = next((folder for folder in folders if (folder / "PACS").is_dir()), None)
        if place is None:
            raise FltnbError(
                "PACS is in none of the data folders and has no download of its own: place the prepared file pacs.npz"
                f" in {folders[0]}, or the official release as {folders[0] / 'PACS'}, with one folder per domain"
                f" ({', '.join(DOMAINS)})."
            )
        print(f"pacs: converting the images in {place / 'PACS'} once, into {place / 'pacs.npz'}")
        images = read_pacs(place / "PACS")
        arrays = {key: getattr(images, key) for key in ("images", "labels", "split", "domains")}
        arrays |= {"class_names": np.array(images.class_names), "origin": np.array(images.origin)}
        path = data._write(place / "pacs.npz", arrays)
    images = data._read(path)
    if images.domains is None or sorted(set(images.domains.tolist())) != list(range(len(DOMAINS))):
        raise FltnbError(f"{path} does not hold the domains 0 to {len(DOMAINS) - 1} of PACS: prepare it anew.")
    return images


def read_pacs(folder: Path | str, size: int = 96) -> ImageSet:
    """Read the official folders ``<domain>/<class>/*.jpg`` (also inside ``kfold``), reduced to ``size`` pixels.

    Parameters
    ----------
    folder : path
    size : int
        Side of the square images; the official ones have 227.

    Raises
    ------
    FltnbError
        A domain or class is missing or empty, or an image cannot be read; the message names it.
    """
    from PIL import Image

    folder = Path(folder)
    top = folder / "kfold" if (folder / "kfold").is_dir() else folder
    pixels, labels, domains, split = [], [], [], []
    found = {(d, c): _images(top / d / c) for d in DOMAINS for c in CLASS_NAMES}
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


def _images(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*") if file.suffix.lower() in IMAGES) if folder.is_dir() else []
