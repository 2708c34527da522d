"""ImageSet: images with labels and a division into training and test part."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import FltnbError
from ..randomness import stream

ARRAYS = {
    "images": np.uint8,
    "labels": np.int64,
    "split": np.uint8,
    "writers": np.int32,
    "domains": np.uint8,
}
"""The arrays of an image set and their types; the last two are optional."""


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Images with labels and a division into training and test part; FltnbError for wrong types, shapes or values.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, H, W) or (N, H, W, 3)
    labels : ndarray of int64, shape (N,), class of each image, 0 to K-1
    split : ndarray of uint8, shape (N,), 0 training, 1 test
    class_names : tuple of str, length K
    name, origin : str, what it is and where the pixels come from, in words; stored with every result
    writers : ndarray of int32, shape (N,), optional, person who wrote each image, or whom it shows
    domains : ndarray of uint8, shape (N,), optional, domain (style) of each image
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    split: np.ndarray
    class_names: tuple[str, ...]
    origin: str
    writers: np.ndarray | None = None
    domains: np.ndarray | None = None

    def __post_init__(self) -> None:
        if fault := self._fault():
            raise FltnbError(f"The image set {self.name!r} cannot be used: {fault}.")

    def _fault(self) -> str | None:
        """Say what is wrong with the arrays, or None."""
        for key, kind in ARRAYS.items():
            array = getattr(self, key)
            if array is None and key in ("writers", "domains"):
                continue
            if not isinstance(array, np.ndarray) or array.dtype != kind:
                return f"{key} must be {np.dtype(kind)}, not {getattr(array, 'dtype', type(array).__name__)}"
            if key != "images" and array.shape != (len(self.images),):
                return f"{key} has shape {array.shape} for {len(self.images)} images"
        shape = self.images.shape
        if (
            len(shape) not in (3, 4)
            or (len(shape) == 4 and shape[3] != 3)
            or 0 in shape
        ):
            return f"images must have shape (N, H, W) or (N, H, W, 3) and hold at least one image, not {shape}"
        if self.labels.min() < 0 or self.labels.max() >= self.n_classes:
            low, high = self.labels.min(), self.labels.max()
            return f"labels run from {low} to {high} but there are {self.n_classes} class names"
        return (
            "split must hold only 0 (training) and 1 (test)"
            if self.split.max() > 1
            else None
        )

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.images.shape[1:]))
        sizes = f"{len(self.train_index):,} training and {len(self.test_index):,} test images {shape}"
        return f"ImageSet {self.name}: {sizes}, {self.n_classes} classes; {self.origin}"

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_classes(self) -> int:
        """Number of classes K, with or without images."""
        return len(self.class_names)

    @cached_property
    def train_index(self) -> np.ndarray:
        """Positions of the training images, int64, ascending."""
        return np.flatnonzero(self.split == 0)

    @cached_property
    def test_index(self) -> np.ndarray:
        """Positions of the test images, int64, ascending."""
        return np.flatnonzero(self.split == 1)

    @cached_property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 over images, labels and split."""
        return array_digest(self.images, self.labels, self.split)

    def subset(self, index: np.ndarray, name: str | None = None) -> Self:
        """Return the images at ``index`` (positions or a mask), with the same classes; FltnbError: outside the set."""
        try:
            part = {
                name: value[index]
                for name in ARRAYS
                if (value := getattr(self, name)) is not None
            }
        except IndexError as error:
            raise FltnbError(
                f"The subset of {self.name!r} asks for images outside 0 to {len(self) - 1}."
            ) from error
        return replace(self, name=name or f"{self.name}[{len(part['labels'])}]", **part)

    def summary(self):
        """Return a DataFrame with one row per class: class, train, test (numbers of images)."""
        import pandas as pd

        parts = {"train": self.train_index, "test": self.test_index}
        counts = {
            name: np.bincount(self.labels[part], minlength=self.n_classes)
            for name, part in parts.items()
        }
        return pd.DataFrame({"class": self.class_names} | counts)


def array_digest(*arrays: np.ndarray, rows: np.ndarray | None = None) -> str:
    """First 16 hexadecimal digits of the SHA-256 over types, shapes and contents of arrays.

    With ``rows`` (positions) only these of the first array count; it is read piece by piece, not copied.
    """
    total = hashlib.sha256()
    for number, array in enumerate(arrays):
        array = np.atleast_1d(array)
        pieces, shape = [array], array.shape
        if rows is not None and number == 0:
            pieces = (
                array[some] for some in np.array_split(rows, len(rows) // 1024 + 1)
            )
            shape = (len(rows), *shape[1:])
        total.update(f"{array.dtype.str}{shape}".encode())
        for piece in pieces:
            total.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
    return total.hexdigest()[:16]


def fixed_split(labels: np.ndarray, parts: int, *keys: int) -> np.ndarray:
    """Return the ``split`` of an image set, the same at every call: one of ``parts`` equal parts of each class is 1."""
    split = np.zeros(len(labels), dtype=np.uint8)
    for c in range(labels.max() + 1):
        members = stream(0, "split", *keys, c).permutation(np.flatnonzero(labels == c))
        split[members[: round(len(members) / parts)]] = 1
    return split


def read_picture(path: Path, size: int, how: str, mode: str = "RGB") -> np.ndarray:
    """Return a picture squeezed to (size, size, 3) uint8, (size, size) in mode "L", by Pillow's resampling ``how``."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.mode[0] in "IF":  # Pillow would cut them off at 255
                raise FltnbError(
                    f"{path} has pixels of more than 8 bits: scale them to 8 first."
                )
            return np.asarray(
                image.convert(mode).resize((size, size), Image.Resampling[how])
            )
    except (OSError, SyntaxError) as error:  # Pillow calls a broken PNG a SyntaxError
        raise FltnbError(
            f"{path} cannot be read as a picture ({error}): copy it again."
        ) from error
