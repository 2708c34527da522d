"""Prepared files of image sets: reading, writing, and recognising their contents.

A *prepared* set is one file ``<name>.npz`` without pickles that holds the arrays of an
:class:`~fltnb.data.ImageSet`, its ``class_names`` unicode (K,) and, optionally,
``origin`` (one unicode string) and ``packed_from_copies`` (positions of images whose
pixels are from compressed copies, where all others are official). Files written here
also have a ``<name>.npz.json`` beside them with their SHA-256, which every later load
verifies.
"""

import hashlib
import json
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import paths
from ..errors import FltnbError, reading
from .images import ARRAYS, ImageSet

# Prepared files may lack an origin: these are recognised by
# ImageSet.digest. Results on a set whose origin says "copies" are counted apart.
_OFFICIAL = "official release in the official order (recognised by content)"
KNOWN_CONTENT = {
    "1b4e30a1ff17e97e": _OFFICIAL,  # MNIST
    "efec6dcd877845ed": _OFFICIAL,  # Fashion-MNIST
    "4252c60b2db3ccfa": (
        "CIFAR-10 in the official parts, its training images in the official order: "
        "59,879 of 60,000 with the official pixels, the other 121 (96 training and 25 "
        "test images) from JPEG (quality 75)"
    ),
    "937185eb88d9a994": (
        "all 60,000 CIFAR-10 images in the official parts, reshuffled, from JPEG "
        "copies (quality 75): not the official pixels"
    ),
    "eaaa8becbe049df8": (
        "all 60,000 CIFAR-100 images in the official parts, its training images in the "
        "official order, from WebP copies (quality 98): not the official pixels"
    ),
    "8a35ab43ce9b1cb2": (
        "300 of the 600 images of each CIFAR-100 class from WebP copies (quality 75), "
        "division of our own: not the official release"
    ),
    "20ae1f5fbf28f739": (
        "all 9,991 PACS images reduced to 96 x 96 (Lanczos) and kept as WebP (quality "
        "78), 80/20 division per domain and class of our own"
    ),
}

EARLIER = {"937185eb88d9a994": "cifar10", "8a35ab43ce9b1cb2": "cifar100"}
"""Digest -> name of a set that has a newer prepared file."""
KNOWN_NAMES = ("mnist", "fashion_mnist", "cifar10", "cifar100", "pacs")
"""Sets of which every prepared file without an origin is in KNOWN_CONTENT."""
_COPIED = "packed_from_copies"
"""Array of a prepared file: positions of the images that are copies."""
UNSTATED = "prepared file without stated origin (sha256 {digest})"


def known_origin(text: str) -> str:
    """Return an origin as it was stored, with what is known of files by now.

    Results are older than some entries of :data:`KNOWN_CONTENT`. The digest of the
    images is that of the file that they were computed on.
    """
    for digest, known in KNOWN_CONTENT.items():
        text = text.replace(UNSTATED.format(digest=digest), known)
    return text


def read(path: Path) -> ImageSet:
    """Return the image set of a prepared file.

    Raises FltnbError if it is damaged. Warns of a file that has a newer one, and of one
    without origin whose images, or their order, are not known.
    """
    mend = "fix that; the file itself may be intact"
    with reading(path, mend, partial(_unsound, path)):
        images = _content(path)
    if images.origin:
        return images
    digest = images.digest
    origin = KNOWN_CONTENT.get(digest, UNSTATED.format(digest=digest))
    anew = "delete it and load again for the official release"
    if digest in EARLIER:
        warnings.warn(
            f"{path} is an earlier file of {EARLIER[digest]} ({origin}). Results on it "
            f"are counted apart, as on copies: {anew}, or put the newer prepared file "
            "in its place.",
            stacklevel=3,
        )
    elif digest not in KNOWN_CONTENT and images.name in KNOWN_NAMES:
        warnings.warn(
            f"{path} has other images than the files of {images.name} that fltnb "
            f"knows, or has them in another order (sha256 {digest}). Stored results "
            f"are not about it: {anew}, or name its origin in an array `origin`.",
            stacklevel=3,
        )
    return replace(images, origin=origin)


def origin(path: Path) -> str:
    """Return the origin of a prepared file's images, if possible without reading them.

    Raises FltnbError if the file is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            stated = str(file["origin"]) if "origin" in file else ""
    except Exception:  # of a damaged file, of many types: `read` says what is wrong
        stated = ""
    return stated or read(path).origin


def _content(path: Path) -> ImageSet:
    """Return what a prepared file holds; an error says what is wrong with it."""
    note = _note(path)
    if note.is_file() and json.loads(note.read_text())["sha256"] != _sha256(path):
        raise ValueError("its SHA-256 is not the one noted when it was written")
    with np.load(path, allow_pickle=False) as file:
        content = dict(file)
    missing = {"images", "labels", "split", "class_names"} - content.keys()
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    arrays: dict[str, Any] = {key: content.get(key) for key in ARRAYS}
    class_names = tuple(str(name) for name in content["class_names"])
    origin = str(content.get("origin", ""))
    if _COPIED in content:
        arrays["copied"] = _flags(content[_COPIED], len(content["labels"]))
    try:
        return ImageSet(path.stem, class_names=class_names, origin=origin, **arrays)
    except FltnbError as error:  # whose sentence does not name the file
        raise ValueError(error) from error


def _flags(positions: np.ndarray, size: int) -> np.ndarray:
    """Return which of ``size`` images are at ``positions``, in any order: bool."""
    if positions.size and not 0 <= positions.min() <= positions.max() < size:
        raise ValueError(f"{_COPIED} has positions outside 0 to {size - 1}")
    flags = np.zeros(size, dtype=bool)
    flags[positions] = True
    return flags


def write(path: Path, images: ImageSet) -> Path:
    """Write a prepared file, and beside it a note with its checksum."""
    content: dict[str, Any] = images.arrays()
    content["class_names"] = np.array(images.class_names)
    content["origin"] = np.array(images.origin)
    paths.write_atomically(path, lambda file: np.savez(file, **content))

    note = json.dumps({"sha256": _sha256(path), "origin": images.origin}).encode()
    paths.write_atomically(_note(path), lambda file: file.write(note))
    return path


def _unsound(path: Path, error: Exception) -> FltnbError:
    """Return the error for a damaged prepared file."""
    reason = str(error).rstrip(".") or type(error).__name__
    files = "it"
    note = _note(path)
    if note.is_file():
        files = f"both it and {note.name}"
    return FltnbError(
        f"{path} is not a sound prepared data set ({reason}): delete {files} and load "
        "again, or prepare it again."
    )


def _note(path: Path) -> Path:
    """Return the file that describes a prepared one."""
    return path.with_name(f"{path.name}.json")


def _sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
