"""Image sets by name: embedded digits, prepared files, torchvision downloads, pretraining sets of the encoders.

A *prepared* set is one file ``<name>.npz`` without pickles that holds the arrays of an :class:`ImageSet`, its
``class_names`` unicode (K,) and, optionally, ``origin`` (one unicode string). Files written here also have a
``<name>.npz.json`` beside them with their SHA-256, which every later load verifies.
"""

import errno
import hashlib
import json
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .. import paths
from ..errors import FltnbError, choose
from .images import ARRAYS, ImageSet, fixed_split
from .leaf import CELEBA, FEMNIST, read_celeba, read_leaf
from .pacs import DOMAINS, read_pacs

# name -> (torchvision class, keyword arguments, rough download in MB)
SOURCES = {
    "mnist": ("MNIST", {}, 11),
    "fashion_mnist": ("FashionMNIST", {}, 31),
    "emnist_balanced": ("EMNIST", {"split": "balanced"}, 562),
    "emnist_bymerge": ("EMNIST", {"split": "bymerge"}, 562),
    "emnist_byclass": ("EMNIST", {"split": "byclass"}, 562),
    "cifar10": ("CIFAR10", {}, 170),
    "cifar100": ("CIFAR100", {}, 169),
}
# what load() falls back on -> the official release that it stands in for, and its name in words
STAND_INS = {
    "emnist_balanced_small": ("emnist_balanced", "Balanced"),
    "emnist_bymerge_test": ("emnist_bymerge", "ByMerge"),
    "emnist_byclass_test": ("emnist_byclass", "ByClass"),
}


class Release(NamedTuple):
    """A data set without download: its folder beside the prepared files, its reader, and how to get it into there."""

    folder: str
    read: Callable[[Path], ImageSet]
    get: str


_LEAF = (
    "get LEAF (https://github.com/TalwalkarLab/leaf), run {form.command} in its folder data/{form.name}, and copy the"
    " data folder this makes (with {form.needed}) to {{0}}/{form.name}/data"
)
RELEASES = {
    "femnist": Release("femnist", read_leaf, _LEAF.format(form=FEMNIST)),
    "celeba": Release("celeba", read_celeba, _LEAF.format(form=CELEBA)),
    "pacs": Release(
        "PACS",
        read_pacs,
        "place the prepared file pacs.npz in {0}, or the official release as {0}/PACS, with one folder per domain"
        f" ({', '.join(DOMAINS)})",
    ),
}
_LITE0 = "EfficientNet-Lite0 with ImageNet weights on {0.name}, enlarged: {0.origin}"
FEATURES = {
    "pacs_features": ("pacs", "eight_bits", _LITE0),
    "pacs_maps": ("pacs", "maps", f"What enters the last stage of {_LITE0}"),
}
"""Sets of features -> pictures that they are made of, what of :mod:`fltnb.data.features` sees them, origin."""
NAMES = ("digits", *SOURCES, *STAND_INS, *RELEASES, *FEATURES)
"""Names that :func:`load` knows."""

# CIFAR-100 class ids of FLT's public code; the paper only says how many.
PRETRAINING = {
    "cifar20": (11, 20, 22, 31, 37, 51, 54, 65, 86, 90),
    "cifar100_disjoint": (
        3,
        8,
        13,
        15,
        20,
        22,
        25,
        29,
        31,
        37,
        43,
        46,
        51,
        54,
        65,
        84,
        85,
        86,
        90,
        92,
    ),
}
"""Names that only :func:`pretraining_set` knows, with the CIFAR-100 class ids they take."""

# Prepared files need not say where they come from: these are recognised by
# ImageSet.digest. Results on a set whose origin has the word "copies" are counted apart.
_OFFICIAL = "official release in the official order (recognised by content)"
_KNOWN_CONTENT = {
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


def checksum(path: Path | str) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load(name: str, root: Path | str | None = None) -> ImageSet:
    """Load an image set by name.

    ``digits`` comes with scikit-learn (1,797 real 8x8 images). Any other set is read from its prepared file
    ``<name>.npz``; where there is none, torchvision downloads the official release (it verifies checksums) and the
    prepared file is written once. Where ``emnist_balanced.npz`` is absent but ``emnist_balanced_small.npz`` is
    there, that stand-in is returned under its own name; likewise ``emnist_bymerge_test.npz`` (47 classes of very
    different size) and ``emnist_byclass_test.npz`` (62 classes), the official test parts alone, which get a division
    of our own: six training images to one test image in each class.

    Three sets have no download; their prepared files are written once from a folder beside the other sets:
    ``femnist`` (62 classes by writers) and ``celeba`` (smiling or not, by persons; FeSEM's FedCelebA; 4.2 GB) from the
    files that LEAF's own scripts make, ``pacs`` from the official folders in ``PACS``. ``pacs_features`` is PACS as an
    ImageNet network sees it (:func:`fltnb.data.features.eight_bits`), ``pacs_maps`` as its last stage does
    (:func:`fltnb.data.features.maps`), computed once.

    ``root`` is the folder of prepared files, by default ``$FLTNB_DATA``, then ``data/``; a download goes to the first.
    Raises FltnbError for a name not in :data:`NAMES`, bad files, or nothing prepared and no network.
    """
    choose(name, NAMES, "data set")
    if name == "digits":
        return _digits()
    folders = [Path(root)] if root is not None else paths.data()
    names = [
        name,
        *(
            stand_in
            for stand_in, (official, _) in STAND_INS.items()
            if official == name
        ),
    ]
    path = next(
        (
            path
            for each in names
            for folder in folders
            if (path := folder / f"{each}.npz").is_file()
        ),
        None,
    )
    if path is None and name in FEATURES:
        from . import features  # torch: not for sets that are only read

        source, see, origin = FEATURES[name]
        seen = load(source, root)
        seen = replace(
            seen,
            name=name,
            images=getattr(features, see)(seen.images, name),
            origin=origin.format(seen),
        )
        path = _write(folders[0] / f"{name}.npz", seen)
    if path is None:
        path = (
            _converted(name, folders)
            if name in RELEASES
            else _download(name, folders[0])
        )
    images = _read(path)
    if name.startswith("pacs") and (
        images.domains is None or {*images.domains.tolist()} != {*range(len(DOMAINS))}
    ):
        raise FltnbError(
            f"{path} does not hold the domains 0 to {len(DOMAINS) - 1} of PACS: prepare it anew."
        )
    return images


def pretraining_set(name: str, root: Path | str | None = None) -> ImageSet:
    """Return an image set that FLT's encoders are pretrained on (Section 4.1, "Encoders").

    ``emnist_balanced`` (Enc1 of MNIST) and ``fashion_mnist`` (Enc2 of MNIST), like every other name that
    :func:`load` knows, are passed on to it. Two sets are put together here, of the classes in its public code:

    - ``cifar20`` (Enc1 of CIFAR-10): CIFAR-10 as classes 0 to 9 and ten CIFAR-100 classes as 10 to 19.
    - ``cifar100_disjoint`` (Enc2 of CIFAR-10): twenty CIFAR-100 classes, nine of them those of ``cifar20``. None is a
      CIFAR-10 class, and the two collections share no image by construction; the nearest relatives are bus, train and
      tank (CIFAR-10 has automobile and truck) and the mammals bear, camel, elephant, lion and rabbit.
    """
    choose(name, [*NAMES, *PRETRAINING], "pretraining set")
    if name not in PRETRAINING:
        return load(name, root)
    extra, ids = load("cifar100", root), np.array(PRETRAINING[name])
    extra = extra.subset(np.isin(extra.labels, ids), name)
    class_names = tuple(extra.class_names[i] for i in ids)
    extra = replace(
        extra, labels=np.searchsorted(ids, extra.labels), class_names=class_names
    )
    if name == "cifar100_disjoint":
        return extra
    first = load("cifar10", root)
    both = (
        first,
        replace(
            extra,
            labels=extra.labels + first.n_classes,
            class_names=first.class_names + class_names,
        ),
    )
    arrays = {
        key: np.concatenate([getattr(one, key) for one in both])
        for key in ("images", "labels", "split")
    }
    return replace(
        both[1], origin=f"CIFAR-10: {first.origin}; CIFAR-100: {extra.origin}", **arrays
    )


def _digits() -> ImageSet:
    """scikit-learn's digits, grey values 0..16 scaled to 0..255; a fixed fifth of each class is the test part."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    images, labels = (
        np.rint(raw.images * (255 / 16)).astype(np.uint8),
        raw.target.astype(np.int64),
    )
    origin = (
        "scikit-learn's 1,797 handwritten digits, 80/20 division per class of our own"
    )
    return ImageSet(
        "digits", images, labels, fixed_split(labels, 5), tuple("0123456789"), origin
    )


def _read(path: Path) -> ImageSet:
    mend, note = "delete it and load again, or prepare it anew", Path(f"{path}.json")
    try:
        if note.is_file() and json.loads(note.read_text())["sha256"] != checksum(path):
            mend = f"delete both it and {note.name} and load again, or prepare it anew"
            raise ValueError("its SHA-256 is not the one noted when it was written")
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        if missing := {"images", "labels", "split", "class_names"} - arrays.keys():
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        about = {
            "class_names": tuple(map(str, arrays["class_names"])),
            "origin": str(arrays.get("origin", "")),
        }
        images = ImageSet(
            path.stem, **about, **{key: arrays.get(key) for key in ARRAYS}
        )
    except MemoryError:  # the file may be sound
        raise
    except Exception as error:  # a damaged zip raises many types; whatever it is, the remedy is the same
        reason = str(error).rstrip(".") or type(error).__name__
        raise FltnbError(
            f"{path} is not a sound prepared data set ({reason}): {mend}."
        ) from error
    if images.name in STAND_INS:
        _, official = STAND_INS[images.name]
        origin = f"stand-in: {len(images):,} EMNIST images ({images.name}), not the official {official} release"
        if not len(images.train_index):
            images = replace(images, split=fixed_split(images.labels, 7))
            origin += "; 6:1 division per class of our own"
        return replace(images, origin=origin)
    if images.origin:
        return images
    unknown = f"prepared file without stated origin (sha256 {images.digest})"
    return replace(images, origin=_KNOWN_CONTENT.get(images.digest, unknown))


def _download(name: str, folder: Path) -> Path:
    """Fetch the official release with torchvision, convert it and write the prepared file."""
    path = folder / f"{name}.npz"
    place = f"place the prepared file {path.name} in {folder}, or set FLTNB_DATA to a folder that holds it"
    if name not in SOURCES:
        raise FltnbError(f"The data set {name!r} has no download: {place}.")
    kind, options, megabytes = SOURCES[name]
    print(
        f"{name}: downloading the official release with torchvision, about {megabytes} MB, into {path}"
    )
    patience = socket.getdefaulttimeout()
    try:
        import torchvision

        folder.mkdir(parents=True, exist_ok=True)
        # torchvision opens connections without a time limit: a silent network would hang the notebook for ever
        socket.setdefaulttimeout(30)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            make = getattr(torchvision.datasets, kind)
            parts = [
                make(temporary, train=train, download=True, **options)
                for train in (True, False)
            ]
    except (OSError, RuntimeError) as error:
        if getattr(error, "errno", None) in (
            errno.ENOSPC,
            errno.EACCES,
            errno.EROFS,
            errno.EDQUOT,
        ):
            raise FltnbError(
                f"Cannot write in {folder} ({error.strerror}): free some space or {place}."
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[
            -1
        ]  # torchvision lists every mirror
        found = f"{path.name} is in none of the data folders and its download failed ({reason})"
        raise FltnbError(f"{found}: try again, or {place}.") from error
    finally:
        socket.setdefaulttimeout(patience)
    images, labels = (
        np.concatenate([np.asarray(getattr(p, key)) for p in parts])
        for key in ("data", "targets")
    )
    if name.startswith("emnist"):  # EMNIST's files hold every image transposed
        images = np.ascontiguousarray(images.transpose(0, 2, 1))
    split = np.repeat(
        np.array([0, 1], dtype=np.uint8), [len(part.data) for part in parts]
    )
    class_names = tuple(label.split(" - ")[0] for label in parts[0].classes)
    arrays = (images.astype(np.uint8), labels.astype(np.int64), split)
    return _write(
        path,
        ImageSet(
            name, *arrays, class_names, "official release, downloaded with torchvision"
        ),
    )


def _converted(name: str, folders: list[Path]) -> Path:
    """Convert the files of a data set without download and write the prepared file beside their folder."""
    inside, read, get = RELEASES[name]
    folder = next((folder for folder in folders if (folder / inside).is_dir()), None)
    if folder is None:
        how = get.format(folders[0])
        raise FltnbError(
            f"The data set {name!r} is in none of the data folders and has no download of its own: {how}."
        )
    path = folder / f"{name}.npz"
    print(f"{name}: converting the files in {folder / inside} once, into {path}")
    return _write(path, read(folder / inside))


def _write(path: Path, images: ImageSet) -> Path:
    """Write a prepared file and, beside it, the note with its checksum."""
    arrays = {
        key: array for key in ARRAYS if (array := getattr(images, key)) is not None
    }
    arrays |= {
        "class_names": np.array(images.class_names),
        "origin": np.array(images.origin),
    }
    paths.write_atomically(path, lambda file: np.savez(file, **arrays))
    note = json.dumps({"sha256": checksum(path), "origin": images.origin})
    paths.write_atomically(f"{path}.json", lambda file: file.write(note.encode()))
    return path
