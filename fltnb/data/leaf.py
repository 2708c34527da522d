"""FEMNIST by writers and CelebA by persons, from the files of LEAF's scripts.

FLT's scenario 3 is on FEMNIST, FeSEM's FedCelebA on CelebA. LEAF (Caldas et al., 2019)
has no download of finished files. For FEMNIST its scripts fetch NIST Special Database
19 and make ``all_data_<n>_niid_0_keep_0_train_9.json`` and ``..._test_9.json`` of 100
writers each. For CelebA they select the persons with at least five pictures: 200,288
pictures of 9,343 persons. Those JSON files hold only the names of pictures. The
pictures themselves (Liu et al., ICCV 2015) must be where LEAF expects them.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import FltnbError
from ..progress import bar
from .images import ImageSet, read_picture

CLASS_NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""FEMNIST's 62 classes in LEAF's numbering, which is also that of EMNIST ByClass."""
PIXELS = 28 * 28
PICTURES = Path("raw") / "img_align_celeba"
"""Folder of CelebA's pictures."""
SIZE = 84
"""Side in pixels of the pictures that LEAF's own model reads."""
MEND = "create it again with LEAF's script or leave it out"

Part = tuple[Any, np.ndarray]
"""One part of a person's data: the samples, and their labels int64 (n,)."""


class Form(NamedTuple):
    """The differences between LEAF's data sets.

    Attributes
    ----------
    name : str
        Folder in LEAF's data; also the name of the image set.
    command : str
        Creates the files, run in that folder.
    needed : str
        The parts of LEAF's folder that are read, in words.
    parse : callable
        Turns lists x and y of equal, positive length into a part; it may raise
        ValueError.
    """

    name: str
    command: str
    needed: str
    parse: Callable[[list, list], Part]

    @property
    def advice(self) -> str:
        """How to create missing files."""
        return f"run {self.command} in LEAF's data/{self.name}"


def read_leaf(folder: Path | str) -> ImageSet:
    """Read FEMNIST from LEAF's JSON files.

    Pixels keep LEAF's polarity, dark strokes (0) on a white page (255), which is what
    FLT's public code trains on; MNIST, EMNIST and Fashion-MNIST have the opposite
    polarity, so for an encoder pretrained on them these are negatives. LEAF stores
    bytes divided by 255; rounding restores exactly these bytes. Writers are
    numbered in the order of the files (``all_data_2`` before ``all_data_10``) and by
    name within each file: FLT's 200 are those of the first two files.

    ``folder`` holds ``train`` and ``test``, or ``data`` with these two (LEAF's own
    layout). Raises FltnbError if there are no such files, or if something in one of
    them is wrong.
    """
    images, arrays, n_files = read_people(base_folder(folder), FEMNIST)
    n_writers = arrays["writers"][-1] + 1
    origin = (
        f"LEAF FEMNIST, {n_writers} writers from {n_files} pairs of JSON files, "
        "pixels as LEAF has them (dark on white)"
    )
    pixels = np.concatenate(images)
    return ImageSet(
        FEMNIST.name, pixels, class_names=CLASS_NAMES, origin=origin, **arrays
    )


def read_celeba(folder: Path | str) -> ImageSet:
    """Read LEAF's CelebA, smiling or not, from its files and CelebA's pictures.

    For ``folder`` see :func:`read_leaf`; it holds ``raw/img_align_celeba`` as well.
    LEAF's own model reads pictures at 84 x 84 pixels, squeezed from 178 x 218 to a
    square, and leaves the interpolation to Pillow, whose default has changed since;
    here it is bilinear. Persons are numbered in the order of the files and, within
    each, by their number in CelebA. All pictures are in memory at once: 4.2 GB. Raises
    FltnbError as :func:`read_leaf`, or if a picture is listed twice, missing or
    unreadable.
    """
    base = base_folder(folder)
    listed, arrays, _ = read_people(base, CELEBA)
    names = []
    for person in listed:
        names.extend(person)
    _check_pictures(base / PICTURES, names)

    images = np.empty((len(names), SIZE, SIZE, 3), dtype=np.uint8)
    shown = bar(names, desc="celeba: pictures", unit="picture")
    for place, name in enumerate(shown):
        images[place] = read_picture(base / PICTURES / name, SIZE, "BILINEAR")
    n_persons = arrays["writers"][-1] + 1
    origin = (
        f"LEAF CelebA (smiling), {n_persons} persons, pictures reduced to {SIZE} x "
        f"{SIZE} pixels (bilinear)"
    )
    classes = ("not smiling", "smiling")
    return ImageSet(CELEBA.name, images, class_names=classes, origin=origin, **arrays)


def _check_pictures(folder: Path, names: list[str]) -> None:
    """Refuse names that occur twice or have no file, before the long reading starts."""
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise FltnbError(
            f"LEAF's files list the picture {twice[0]!r} twice: create all files again "
            "in one run."
        )
    there = set()
    if folder.is_dir():
        there = {path.name for path in folder.iterdir()}
    missing = sorted(set(names) - there)
    if missing:
        raise FltnbError(
            f"{folder} lacks {len(missing)} of {len(names)} pictures, such as "
            f"{missing[0]!r}: put those of CelebA's img_align_celeba.zip there."
        )


def base_folder(folder: Path | str) -> Path:
    """Return the folder that holds ``train`` and ``test``.

    It is ``folder`` itself, or ``data`` in it (LEAF's own layout).
    """
    folder = Path(folder).expanduser()
    if (folder / "data" / "train").is_dir():
        return folder / "data"
    return folder


def read_people(base: Path, form: Form) -> tuple[list, dict[str, np.ndarray], int]:
    """Read LEAF's files in ``base``.

    The order is by file, then by name, with a person's training part before the test
    part. Returns the results of ``form.parse`` for every part of every person, the
    arrays ``labels``, ``split`` and ``writers`` of an :class:`~fltnb.data.ImageSet`,
    and the number of pairs of files. Raises FltnbError as :func:`read_leaf`.
    """
    files = sorted((base / "train").glob("*.json"), key=lambda file: _key(file.name))
    if not files:
        raise FltnbError(f"There are no files {base / 'train'}/*.json: {form.advice}.")
    samples = []
    labels = []
    seen: dict[str, Path] = {}
    for file in files:
        train, test = _read_both(file, form)
        for name in sorted(train, key=_key):
            if name in seen:
                raise FltnbError(
                    f"Person {name!r} is in both {seen[name]} and {file}: leave one of "
                    "the two files out."
                )
            seen[name] = file
            for x, y in (train[name], test[name]):
                samples.append(x)
                labels.append(y)

    sizes = [len(y) for y in labels]
    place = np.arange(len(sizes))  # a training and a test part each
    arrays = {
        "labels": np.concatenate(labels),
        "split": np.repeat(place % 2, sizes).astype(np.uint8),
        "writers": np.repeat(place // 2, sizes).astype(np.int32),
    }
    return samples, arrays, len(files)


def _key(name: str) -> list:
    """Return a sort key that puts file 2 before file 10.

    Digits are compared as numbers, all else as text.

    Examples
    --------
    >>> _key("all_data_10")
    ['all_data_', 10, '']
    >>> sorted(["all_data_10", "all_data_2"], key=_key)
    ['all_data_2', 'all_data_10']
    """
    key = []
    for piece in re.split(r"(\d+)", name):
        key.append(int(piece) if piece.isdigit() else piece)
    return key


def _read_both(file: Path, form: Form) -> tuple[dict[str, Part], dict[str, Part]]:
    """Return the parts of every person in a training file and its test file.

    Person -> samples and labels, for either file. Both files have the same persons, as
    LEAF divides each person's samples (``-t sample``) and not the persons.
    """
    # LEAF has names such as all_data_0_niid_0_keep_0_train_9.json
    head, word, tail = file.name.rpartition("train")
    name = file.name
    if word:
        name = f"{head}test{tail}"
    other = file.parent.parent / "test" / name
    if not other.is_file():
        raise FltnbError(f"{file} has no test part {other}: {form.advice}.")
    train = _read_part(file, form)
    test = _read_part(other, form)
    alone = sorted(train.keys() ^ test.keys())  # in one of them only
    if alone:
        person = alone[0]
        here = file
        there = other
        if person in test:
            here = other
            there = file
        raise FltnbError(
            f"Person {person!r} of {here} is not in {there}: create both in one run."
        )
    return train, test


def _read_part(file: Path, form: Form) -> dict[str, Part]:
    """Return the samples of every person of one file.

    The file has ``users``, ``num_samples`` and, by user, ``user_data`` with lists x and
    y. All floats of a file are in memory once; a person's are freed as soon as they are
    parsed.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FltnbError(
            f"{file} is not a sound JSON file ({error}): {MEND}."
        ) from error
    place = str(file)
    parts = {}
    try:
        for name, count in zip(content["users"], content["num_samples"], strict=True):
            place = f"Person {name!r} of {file}"
            # Removed, so that its floats are freed as soon as they are bytes.
            person = content["user_data"].pop(name)
            n_x = len(person["x"])
            n_y = len(person["y"])
            if not n_x == n_y == count > 0:
                raise ValueError(
                    f"has {n_x} images and {n_y} labels where num_samples says {count}"
                )
            parts[name] = form.parse(person["x"], person["y"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = str(error)
        if type(error) is not ValueError:
            what = f"{type(error).__name__}: {error}"
        raise FltnbError(
            f"{place} does not have LEAF's form ({what}): {MEND}."
        ) from error
    return parts


def _handwriting(x: list, y: list) -> Part:
    """Return images uint8 (n, 28, 28) and labels of one writer."""
    for row in x:
        if len(row) != PIXELS:
            raise ValueError(f"has an image of {len(row)} pixels instead of {PIXELS}")
    last = len(CLASS_NAMES) - 1
    for label in y:
        # A bool would pass for 0 or 1.
        if type(label) is not int or not 0 <= label <= last:
            raise ValueError(
                f"has the label {label!r}, which is not one of 0 to {last}"
            )
    pixels = np.asarray(x, dtype=np.float64)
    inside = (pixels >= 0) & (pixels <= 1)
    if not inside.all():
        raise ValueError("has pixels outside 0 to 1")
    values = np.rint(pixels * 255).astype(np.uint8)
    return values.reshape(-1, 28, 28), np.array(y, dtype=np.int64)


def _smiles(x: list, y: list) -> Part:
    """Return the names of pictures and the labels of one person."""
    for name in x:
        if not isinstance(name, str):
            raise ValueError(f"has {name!r} in place of a picture's name")
    for label in y:
        # LEAF's script divides, so Python 3 writes 1.0 where Python 2 wrote 1.
        if type(label) not in (int, float) or label not in (0, 1):
            raise ValueError(
                f"has the label {label!r}, which is not 0 (not smiling) or 1 (smiling)"
            )
    return x, np.array(y, dtype=np.int64)


FEMNIST = Form(
    "femnist",
    # FLT: all samples and writers, 90 % for training
    "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.9",
    "train and test; the files all_data_0 and all_data_1 are enough for FLT",
    _handwriting,
)
CELEBA = Form(
    "celeba",
    # FeSEM, Section 6.1: 80 % for training
    "./preprocess.sh -s niid --sf 1.0 -k 5 -t sample --tf 0.8",
    "train, test and raw/img_align_celeba",
    _smiles,
)
