"""Official releases that torchvision downloads, as image sets."""

import errno
import socket
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import FltnbError
from .images import ImageSet

TIME_LIMIT = 30.0  # seconds that a server may be silent
CANNOT_WRITE = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT)


class Source(NamedTuple):
    """A class of torchvision with its arguments, and the rough download in MB.

    All variants of EMNIST come in one archive, hence 562 MB each.
    """

    kind: str
    options: dict[str, Any]
    megabytes: int


SOURCES = {
    "mnist": Source("MNIST", {}, 11),
    "fashion_mnist": Source("FashionMNIST", {}, 31),
    "emnist_balanced": Source("EMNIST", {"split": "balanced"}, 562),
    "emnist_bymerge": Source("EMNIST", {"split": "bymerge"}, 562),
    "emnist_byclass": Source("EMNIST", {"split": "byclass"}, 562),
    "cifar10": Source("CIFAR10", {}, 170),
    "cifar100": Source("CIFAR100", {}, 169),
}


def download(name: str, folder: Path) -> ImageSet:
    """Download a data set's official release with torchvision, which checks it.

    ``name``: one of :data:`SOURCES`; ``folder``: where files are kept during the
    download. Raises FltnbError if the set has no download, or it fails.
    """
    file = f"{name}.npz"
    place = (
        f"place the prepared file {file} in {folder}, or set FLTNB_DATA to a folder "
        "that holds it"
    )
    if name not in SOURCES:
        raise FltnbError(f"The data set {name!r} has no download: {place}.")
    source = SOURCES[name]
    print(
        f"{name}: downloading the official release with torchvision, about "
        f"{source.megabytes} MB, into {folder / file}"
    )
    try:
        train, test = _fetched(source, folder)
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
            raise FltnbError(
                f"Cannot write in {folder} ({error.strerror}): free some space or "
                f"{place}."
            ) from error
        # torchvision lists every mirror; the last line says what is wrong.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise FltnbError(
            f"{file} is in none of the data folders and its download failed "
            f"({lines[-1]}): try again, or {place}."
        ) from error

    return _image_set(name, train, test)


def _image_set(name: str, train: Any, test: Any) -> ImageSet:
    """Return torchvision's training and test part as one image set."""
    images = np.concatenate([np.asarray(train.data), np.asarray(test.data)])
    if name.startswith("emnist"):  # EMNIST's files hold every image transposed
        images = np.ascontiguousarray(images.transpose(0, 2, 1))
    labels = np.concatenate([np.asarray(train.targets), np.asarray(test.targets)])
    split = np.zeros(len(labels), dtype=np.uint8)
    split[len(train.data) :] = 1
    # MNIST's classes are called "0 - zero" to "9 - nine"
    class_names = [label.partition(" - ")[0] for label in train.classes]
    return ImageSet(
        name,
        images.astype(np.uint8),
        labels.astype(np.int64),
        split,
        tuple(class_names),
        "official release, downloaded with torchvision",
    )


def _fetched(source: Source, folder: Path) -> tuple[Any, Any]:
    """Return training and test part as torchvision's data sets, all in memory.

    torchvision's files are removed again: the set is kept as one prepared file.
    """
    import torchvision

    make = getattr(torchvision.datasets, source.kind)
    folder.mkdir(parents=True, exist_ok=True)
    # torchvision opens connections without a time limit: on a silent network it would
    # wait for ever.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIME_LIMIT)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as root:
            train = make(root, train=True, download=True, **source.options)
            test = make(root, train=False, download=True, **source.options)
            return train, test
    finally:
        socket.setdefaulttimeout(before)
