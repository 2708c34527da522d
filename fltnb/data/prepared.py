"""Image sets by name: digits, prepared files, downloads, and combined sets."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .. import paths
from ..errors import FltnbError, choose
from . import files
from .downloads import SOURCES, download
from .images import ImageSet, array_digest, fixed_split
from .leaf import CELEBA, FEMNIST, Form, read_celeba, read_leaf
from .pacs import DOMAINS, read_pacs

STAND_INS = {
    "emnist_balanced_small": ("emnist_balanced", "Balanced"),
    "emnist_bymerge_test": ("emnist_bymerge", "ByMerge"),
    "emnist_byclass_test": ("emnist_byclass", "ByClass"),
}
"""Fallback of :func:`load` -> the release that it replaces, and its name."""


class Release(NamedTuple):
    """A data set without download: how to get it, and the function that reads it."""

    folder: str  # next to the prepared files
    read: Callable[[Path], ImageSet]
    get: str  # instructions; {0} is the folder of prepared files


def _from_leaf(form: Form, read: Callable[[Path], ImageSet]) -> Release:
    """Return the release of a data set that LEAF's scripts make."""
    get = (
        f"get LEAF (https://github.com/TalwalkarLab/leaf), run {form.command} in its "
        f"folder data/{form.name}, and copy the data folder this makes (with "
        f"{form.needed}) to {{0}}/{form.name}/data"
    )
    return Release(form.name, read, get)


RELEASES = {
    "femnist": _from_leaf(FEMNIST, read_leaf),
    "celeba": _from_leaf(CELEBA, read_celeba),
    "pacs": Release(
        "PACS",
        read_pacs,
        "place the prepared file pacs.npz in {0}, or the official release as {0}/PACS, "
        f"with one folder per domain ({', '.join(DOMAINS)})",
    ),
}
_LITE0 = "EfficientNet-Lite0 with ImageNet weights on {0.name}, enlarged: {0.origin}"
FEATURES = {
    "pacs_features": ("eight_bits", _LITE0),
    "pacs_maps": ("maps", f"What enters the last stage of {_LITE0}"),
}
"""PACS through :mod:`fltnb.data.features`: the function used, and the origin."""
WRITERS = "mnist_writers"
_WROTE_MNIST = "62078529b706ba34"
"""Digest of the writers of MNIST's 70,000 images."""
NAMES = ("digits", *SOURCES, WRITERS, *STAND_INS, *RELEASES, *FEATURES)
"""Names that :func:`load` knows."""

# CIFAR-100 class ids of FLT's public code; the paper gives only their number.
_CIFAR20 = "11 20 22 31 37 51 54 65 86 90"
_DISJOINT = "3 8 13 15 20 22 25 29 31 37 43 46 51 54 65 84 85 86 90 92"
PRETRAINING = {
    "cifar20": tuple(map(int, _CIFAR20.split())),
    "cifar100_disjoint": tuple(map(int, _DISJOINT.split())),
}
"""Names that only :func:`pretraining_set` knows, with the CIFAR-100 classes in them."""


def load(name: str, root: Path | str | None = None) -> ImageSet:
    """Load an image set by name.

    ``digits`` comes with scikit-learn (1,797 real 8x8 images). Any other set is read
    from its prepared file ``<name>.npz``. If there is none, torchvision downloads
    the official release, and the prepared file is written once. If
    ``emnist_balanced.npz`` is missing but ``emnist_balanced_small.npz`` exists, that
    stand-in is returned under its own name; likewise ``emnist_bymerge_test.npz`` (47
    classes of very different size) and ``emnist_byclass_test.npz`` (62 classes), the
    official test parts only. They get our own division: six training images to
    one test image in each class.

    ``mnist_writers`` has MNIST's training images with the 539 people who wrote them
    (``writers``, NIST's numbers; its prepared file has no download). A tenth of each
    person's images, always the same ones, are the test part, since MNIST's own test
    images are by other people.

    Three sets have no download; their prepared files are written once from a folder
    next to the other sets: ``femnist`` (62 classes by writers) and ``celeba`` (smiling
    or not, by persons; FeSEM's FedCelebA; 4.2 GB) from the files that LEAF's own
    scripts make, ``pacs`` from the official folders in ``PACS``. ``pacs_features`` is
    PACS as features of an ImageNet network (:func:`fltnb.data.features.eight_bits`),
    ``pacs_maps`` as inputs of its last stage (:func:`fltnb.data.features.maps`),
    computed once.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    root : path, optional
        The folder of prepared files; by default ``$FLTNB_DATA`` if it is set, then
        ``data/``. Downloads are stored in the first of them.

    Returns
    -------
    ImageSet

    Raises
    ------
    FltnbError
        The name is unknown, a file is damaged, or there is no prepared file and it can
        be neither downloaded nor made.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> digits.images.shape, digits.labels.max().item()
    ((1797, 8, 8), 9)
    """
    choose(name, NAMES, "data set")
    if name == "digits":
        return _digits()
    folders = [Path(root).expanduser()] if root is not None else paths.data()
    path = _prepared(name, folders)
    if path is None:
        path = files.write(*_made(name, folders, root))
    images = files.read(path)

    if images.name in STAND_INS:
        return _stand_in(images)
    if name == WRITERS:
        return _by_writers(images, path)
    if name == "pacs" or name in FEATURES:
        n_domains = len(DOMAINS)
        if images.domains is None or set(images.domains) != set(range(n_domains)):
            raise FltnbError(
                f"{path} does not hold the domains 0 to {n_domains - 1} of PACS: "
                "prepare it anew."
            )
    return images


def origin(name: str) -> str:
    """Return the origin of a data set's images here; "" if it has no prepared file.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.data.prepared.origin("digits")  # comes with scikit-learn
    ''
    """
    path = _prepared(name, paths.data())
    return "" if path is None else files.origin(path)


def _prepared(name: str, folders: list[Path]) -> Path | None:
    """Return the first prepared file of a set, else of its stand-in."""
    others = [other for other, (official, _) in STAND_INS.items() if official == name]
    for each in (name, *others):
        for folder in folders:
            path = folder / f"{each}.npz"
            if path.is_file():
                return path
    return None


def _made(
    name: str, folders: list[Path], root: Path | str | None
) -> tuple[Path, ImageSet]:
    """Return a set that is not prepared yet, and the path of its prepared file."""
    path = folders[0] / f"{name}.npz"
    if name in FEATURES:
        from . import features  # needs torch: not for sets that are only read

        function, origin = FEATURES[name]
        pacs = load("pacs", root)
        seen = getattr(features, function)(pacs.images, name)
        return path, replace(pacs, name=name, images=seen, origin=origin.format(pacs))
    if name not in RELEASES:
        return path, download(name, folders[0])

    release = RELEASES[name]
    for folder in folders:
        source = folder / release.folder
        if source.is_dir():
            path = folder / f"{name}.npz"
            print(f"{name}: converting the files in {source} once, into {path}")
            return path, release.read(source)
    raise FltnbError(
        f"The data set {name!r} is in none of the data folders and has no download of "
        f"its own: {release.get.format(folders[0])}."
    )


def _digits() -> ImageSet:
    """Return scikit-learn's digits; a fixed fifth of each class is the test part."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    grey = np.rint(raw.images * (255 / 16)).astype(np.uint8)  # from 0 to 16
    labels = raw.target.astype(np.int64)
    return ImageSet(
        "digits",
        grey,
        labels,
        fixed_split(labels, 5),
        tuple("0123456789"),
        "scikit-learn's 1,797 handwritten digits, 80/20 division per class of our own",
    )


def _stand_in(images: ImageSet) -> ImageSet:
    """Add to a part of EMNIST what it replaces; divide it if it is a test part."""
    _, official = STAND_INS[images.name]
    origin = (
        f"stand-in: {len(images):,} EMNIST images ({images.name}), not the official "
        f"{official} release"
    )
    split = images.split
    if split.all():
        split = fixed_split(images.labels, 7)
        origin += "; 6:1 division per class of our own"
    return replace(images, split=split, origin=origin)


def _by_writers(images: ImageSet, path: Path) -> ImageSet:
    """Return MNIST's training images, divided within each writer's images.

    No writer has images in both of MNIST's own parts.
    """
    if images.writers is None:
        raise FltnbError(f"{path} does not say who wrote the images: prepare it anew.")
    whose = "as the file says"
    if array_digest(images.writers) == _WROTE_MNIST:
        whose = "NIST's numbers (recognised by content)"

    written = images.subset(images.train_index, images.name)
    assert written.writers is not None
    people, number = np.unique(written.writers, return_inverse=True)
    origin = (
        f"MNIST's training images by the {len(people)} people who wrote them, 9:1 "
        f"division per person of our own; people: {whose}; images: {images.origin}"
    )
    return replace(written, split=fixed_split(number, 10), origin=origin)


def pretraining_set(name: str, root: Path | str | None = None) -> ImageSet:
    """Return an image set on which FLT's encoders are pretrained.

    See Section 4.1, "Encoders". ``emnist_balanced`` (Enc1 of MNIST) and
    ``fashion_mnist`` (Enc2 of MNIST), like every other name that :func:`load` knows,
    are passed on to it. Two sets are combined here, from the classes in FLT's public
    code:

    - ``cifar20`` (Enc1 of CIFAR-10): CIFAR-10 as classes 0 to 9 and ten CIFAR-100
      classes as 10 to 19.
    - ``cifar100_disjoint`` (Enc2 of CIFAR-10): twenty CIFAR-100 classes, nine of which
      ``cifar20`` has as well. None is a CIFAR-10 class, and the two collections share
      no image by construction; the most similar classes are bus, train and tank
      (CIFAR-10 has automobile and truck) and the mammals bear, camel, elephant, lion
      and rabbit.

    ``root`` and errors are those of :func:`load`.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.data.pretraining_set("digits").name
    'digits'
    """
    choose(name, [*NAMES, *PRETRAINING], "pretraining set")
    if name not in PRETRAINING:
        return load(name, root)
    ids = np.array(PRETRAINING[name])
    cifar100 = load("cifar100", root)
    some = cifar100.subset(np.isin(cifar100.labels, ids), name)
    class_names = tuple(cifar100.class_names[c] for c in ids)
    labels = np.searchsorted(ids, some.labels)
    if name == "cifar100_disjoint":
        return replace(some, labels=labels, class_names=class_names)

    cifar10 = load("cifar10", root)
    labels = labels + cifar10.n_classes
    return ImageSet(
        name,
        np.concatenate([cifar10.images, some.images]),
        np.concatenate([cifar10.labels, labels]),
        np.concatenate([cifar10.split, some.split]),
        cifar10.class_names + class_names,
        f"CIFAR-10: {cifar10.origin}; CIFAR-100: {some.origin}",
    )
