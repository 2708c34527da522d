"""ImageSet: images with labels and a division into training and test part.

An image set is what a benchmark publishes, before it is divided among clients. It is
checked when it is made, whatever file it comes from, so that a federation can rely on
it.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import FltnbError, reading
from ..randomness import stream

ARRAYS = {
    "images": np.uint8,
    "labels": np.int64,
    "split": np.uint8,
    "writers": np.int32,
    "domains": np.uint8,
    "copied": np.bool_,
}
"""The arrays of an image set and their types."""
OPTIONAL = ("writers", "domains", "copied")


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Images with labels and a division into training and test part.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, H, W) or (N, H, W, 3)
    labels : ndarray of int64, shape (N,), class of each image, from 0
    split : ndarray of uint8, shape (N,), 0 training, 1 test
    class_names : tuple of str, one per class
    name, origin : str
        Name, and the origin of the pixels in words; stored with every result.
    writers : ndarray of int32, shape (N,), optional
        Person who wrote each image, or who is shown on it.
    domains : ndarray of uint8, shape (N,), optional, domain (style) of each image
    copied : ndarray of bool, shape (N,), optional
        Images whose pixels are from compressed copies, where others are official.

    Raises
    ------
    FltnbError
        An array has a wrong type or shape, or wrong values.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> images = np.zeros((4, 8, 8), np.uint8)
    >>> labels, split = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1], np.uint8)
    >>> fl.ImageSet("mine", images, labels, split, ("cat", "dog"), "drawn by hand")
    ImageSet mine: 2 training and 2 test images 8x8, 2 classes; drawn by hand
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    split: np.ndarray
    class_names: tuple[str, ...]
    origin: str
    writers: np.ndarray | None = None
    domains: np.ndarray | None = None
    copied: np.ndarray | None = None

    def __post_init__(self) -> None:
        for key in ARRAYS:
            value = getattr(self, key)
            if value is not None or key not in OPTIONAL:
                self._check_array(key, value)

        shape = self.images.shape
        grey = len(shape) == 3
        colour = len(shape) == 4 and shape[3] == 3
        if not (grey or colour) or 0 in shape:
            self._refuse(
                "images must have shape (N, H, W) or (N, H, W, 3) and hold at least "
                f"one image, not {shape}"
            )

        lowest = self.labels.min()
        highest = self.labels.max()
        if lowest < 0 or highest >= self.n_classes:
            self._refuse(
                f"labels run from {lowest} to {highest} but there are "
                f"{self.n_classes} class names"
            )
        if self.split.max() > 1:
            self._refuse("split must hold only 0 (training) and 1 (test)")

    def _check_array(self, key: str, value: Any) -> None:
        """Refuse an array of another type, or not one entry for each image."""
        wanted = np.dtype(ARRAYS[key])
        if not isinstance(value, np.ndarray) or value.dtype != wanted:
            kind = getattr(value, "dtype", type(value).__name__)
            self._refuse(f"{key} must be {wanted}, not {kind}")
        if key != "images" and value.shape != (len(self.images),):
            self._refuse(f"{key} has shape {value.shape} for {len(self.images)} images")

    def _refuse(self, fault: str) -> None:
        """Raise FltnbError with the problem and the name of the image set."""
        raise FltnbError(f"The image set {self.name!r} cannot be used: {fault}.")

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.images.shape[1:]))
        return (
            f"ImageSet {self.name}: {len(self.train_index):,} training and "
            f"{len(self.test_index):,} test images {shape}, {self.n_classes} classes; "
            f"{self.origin}"
        )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_classes(self) -> int:
        """Return the number of classes, with or without images."""
        return len(self.class_names)

    @cached_property
    def train_index(self) -> np.ndarray:
        """Return the positions of the training images, int64, ascending."""
        return np.flatnonzero(self.split == 0)

    @cached_property
    def test_index(self) -> np.ndarray:
        """Return the positions of the test images, int64, ascending."""
        return np.flatnonzero(self.split == 1)

    @cached_property
    def digest(self) -> str:
        """Return 16 hexadecimal digits of the SHA-256 over images, labels and split."""
        return array_digest(self.images, self.labels, self.split)

    def copied_at(self, index: np.ndarray) -> np.ndarray:
        """Return which of the images at ``index`` (n,) are copies: bool (n,)."""
        if self.copied is None:
            return np.zeros(len(index), dtype=bool)
        return self.copied[index]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that the set has, by name."""
        every = {key: getattr(self, key) for key in ARRAYS}
        return {key: array for key, array in every.items() if array is not None}

    def subset(self, index: np.ndarray, name: str | None = None) -> Self:
        """Return the images at ``index`` (positions or a mask), with the same classes.

        Raises FltnbError for positions outside the set.
        """
        asked = np.asarray(index)
        outside = asked.dtype.kind == "i" and (asked < 0).any()
        try:
            where = np.arange(len(self))[index]
        except IndexError:
            outside = True
        if outside:
            raise FltnbError(
                f"The subset of {self.name!r} asks for images outside 0 to "
                f"{len(self) - 1}: give positions in that range."
            )
        part = {key: array[where] for key, array in self.arrays().items()}
        name = name or f"{self.name}[{len(part['labels'])}]"
        return replace(self, name=name, **part)

    def summary(self):
        """Return a DataFrame: a row per class; class, train, test (image counts)."""
        import pandas as pd

        columns: dict[str, Any] = {"class": self.class_names}
        for part, index in (("train", self.train_index), ("test", self.test_index)):
            columns[part] = np.bincount(self.labels[index], minlength=self.n_classes)
        return pd.DataFrame(columns)


def array_digest(*arrays: np.ndarray, rows: np.ndarray | None = None) -> str:
    """Return 16 hexadecimal digits of the SHA-256 over types, shapes and contents.

    The order of ``arrays`` counts. With ``rows`` (positions) only these rows of the
    first array count; it is read in pieces, not copied. Type and shape count as well:
    four zeros of one byte have the same bytes as one zero of four.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> x = np.arange(4)
    >>> fl.data.array_digest(x, rows=np.arange(3)) == fl.data.array_digest(x[:3])
    True
    """
    total = hashlib.sha256()
    for number, array in enumerate(arrays):
        array = np.atleast_1d(array)
        shape = array.shape
        pieces = [array]
        if rows is not None and number == 0:
            shape = (len(rows), *shape[1:])
            portions = np.array_split(rows, len(rows) // 1024 + 1)
            pieces = (array[portion] for portion in portions)

        total.update(f"{array.dtype.str}{shape}".encode())
        for piece in pieces:
            flat = np.ascontiguousarray(piece).reshape(-1)
            total.update(flat.view(np.uint8).data)
    return total.hexdigest()[:16]


def fixed_split(groups: np.ndarray, parts: int, *keys: int) -> np.ndarray:
    """Return the ``split`` (N,) of an image set, the same at every call.

    It is for sets that are published without a test part. Of each group, such as a
    class, a share of 1 / ``parts`` is the test part. ``groups`` (N,): from 0; ``keys``:
    keys of the random stream.

    Examples
    --------
    >>> split = fixed_split(np.array([0] * 10 + [1] * 5), parts=5)
    >>> int(split[:10].sum()), int(split[10:].sum())
    (2, 1)
    """
    split = np.zeros(len(groups), dtype=np.uint8)
    for group in range(groups.max() + 1):
        members = np.flatnonzero(groups == group)
        drawn = stream(0, "split", *keys, group).permutation(members)
        split[drawn[: round(len(members) / parts)]] = 1
    return split


def read_picture(
    path: Path, size: int, how: str, mode: str = "RGB", background: str = "white"
) -> np.ndarray:
    """Return a picture resized to a square, uint8, as an image viewer shows it.

    It is rotated by its EXIF data, and transparent parts show the background. The array
    is (size, size, 3), or (size, size) in mode "L"; ``how`` names Pillow's resampling.
    """
    from PIL import Image, ImageOps

    mend = "fix that, or leave it out"
    with reading(path, mend, partial(_broken, path)), Image.open(path) as image:
        # Pillow would cut off pixels of more than 8 bits at 255.
        if image.mode[0] in "IF":
            raise FltnbError(
                f"{path} has pixels of more than 8 bits: scale them to 8 first."
            )
        frames = getattr(image, "n_frames", 1)
        # viewers show the first picture of a camera's MPO
        if frames > 1 and image.format != "MPO":
            raise FltnbError(
                f"{path} holds {frames} pictures: save only the one to use."
            )
        shown = ImageOps.exif_transpose(image)
        if shown.has_transparency_data:
            shown = _on_background(shown, background)
        resampling = Image.Resampling[how]
        return np.asarray(shown.convert(mode).resize((size, size), resampling))


def _on_background(image: Any, colour: str) -> Any:
    """Return a picture with a background behind its transparent parts."""
    from PIL import Image

    over = image.convert("RGBA")
    try:
        below = Image.new("RGBA", over.size, colour)
    except ValueError as error:
        raise FltnbError(
            f"Unknown background {colour!r}: name a colour, such as white or #808080."
        ) from error
    return Image.alpha_composite(below, over)


def _broken(path: Path, error: Exception) -> FltnbError:
    """Return the error for an unreadable picture."""
    from PIL import Image

    if isinstance(error, Image.DecompressionBombError):
        return FltnbError(f"{path} is too large a picture ({error}): make it smaller.")
    return FltnbError(f"{path} cannot be read as a picture ({error}): copy it again.")
