"""FEMNIST by writers (FLT's scenario 3) and CelebA by persons (FeSEM's FedCelebA), from the files of LEAF's scripts.

LEAF (Caldas et al., 2019) has no download of finished files. For FEMNIST its scripts fetch NIST Special Database 19 and
make ``all_data_<n>_niid_0_keep_0_train_9.json`` and ``..._test_9.json`` of 100 writers each. For CelebA they take the
persons with five pictures or more, 200,288 pictures of 9,343 persons. Those JSON files hold the pictures' names only;
the pictures themselves (Liu et al., ICCV 2015) must lie where LEAF wants them.
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
PICTURES, SIZE = Path("raw") / "img_align_celeba", 84
"""Where CelebA's pictures lie, and the side in pixels at which LEAF's own model reads them."""
Part = tuple[Any, np.ndarray]
"""What one person has in one part: the samples, and their labels int64 (n,)."""


class Form(NamedTuple):
    """What LEAF's data sets differ in."""

    name: str  # folder in LEAF's data; also the name of the image set
    command: str  # makes the files, in that folder
    needed: str  # what of LEAF's folder is read, in words
    parse: Callable[
        [list, list], Part
    ]  # of lists x and y, of equal lengths and not empty; may raise ValueError


def read_leaf(folder: Path | str) -> ImageSet:
    """Read FEMNIST from LEAF's JSON files.

    Pixels keep LEAF's polarity, dark strokes (0) on a white page (255), which is what FLT's public code trains on;
    MNIST, EMNIST and Fashion-MNIST have it the other way round, so an encoder pretrained on them sees negatives.
    LEAF stores bytes divided by 255; rounding gives these very bytes back. Writers are numbered in the order of the
    files (``all_data_2`` before ``all_data_10``) and by name within each: FLT's 200 are those of the first two files.

    ``folder`` holds ``train`` and ``test``, or ``data`` with these two (LEAF's own layout). Raises FltnbError where
    there are no such files, or something in one of them does not fit.
    """
    images, arrays, n_files = read_people(base_folder(folder), FEMNIST)
    found = f"{arrays['writers'][-1] + 1} writers from {n_files} pairs of JSON files"
    origin = f"LEAF FEMNIST, {found}, pixels as LEAF has them (dark on white)"
    return ImageSet(
        FEMNIST.name,
        np.concatenate(images),
        class_names=CLASS_NAMES,
        origin=origin,
        **arrays,
    )


def read_celeba(folder: Path | str) -> ImageSet:
    """Read LEAF's CelebA, smiling or not, from ``train``, ``test`` and ``raw/img_align_celeba``, see :func:`read_leaf`.

    LEAF's own model reads pictures at 84 x 84 pixels, 178 x 218 squeezed to a square, and leaves the interpolation to
    Pillow, whose default has changed since; here it is bilinear. Persons are numbered in the order of the files and,
    within each, by their number in CelebA. All pictures are in memory at once: 4.2 GB. Raises FltnbError as
    :func:`read_leaf`, or where a picture is listed twice, missing or unreadable.
    """
    base = base_folder(folder)
    listed, arrays, _ = read_people(base, CELEBA)
    pictures, names = base / PICTURES, Counter(name for own in listed for name in own)
    if twice := [name for name, n in names.items() if n > 1]:
        raise FltnbError(
            f"LEAF's files list the picture {twice[0]!r} twice: make all of them anew in one run."
        )
    there = {path.name for path in pictures.iterdir()} if pictures.is_dir() else set()
    if missing := sorted(names.keys() - there):  # before the minutes that reading takes
        found = f"{pictures} lacks {len(missing)} of {len(names)} pictures, such as {missing[0]!r}"
        raise FltnbError(f"{found}: put those of CelebA's img_align_celeba.zip there.")
    images = np.empty((len(names), SIZE, SIZE, 3), dtype=np.uint8)
    for place, name in enumerate(bar(names, desc="celeba: pictures", unit="picture")):
        images[place] = read_picture(pictures / name, SIZE, "BILINEAR")
    persons = arrays["writers"][-1] + 1
    origin = f"LEAF CelebA (smiling), {persons} persons, pictures reduced to {SIZE} x {SIZE} pixels (bilinear)"
    return ImageSet(
        CELEBA.name,
        images,
        class_names=("not smiling", "smiling"),
        origin=origin,
        **arrays,
    )


def base_folder(folder: Path | str) -> Path:
    """Return the folder that holds ``train`` and ``test``: this one, or ``data`` in it, which is LEAF's own layout."""
    folder = Path(folder)
    return folder / "data" if (folder / "data" / "train").is_dir() else folder


def read_people(base: Path, form: Form) -> tuple[list, dict[str, np.ndarray], int]:
    """Read LEAF's files in ``base``, file by file and by name within each, a person's training before the test part.

    Returns what ``form.parse`` made of every part of every person, the arrays ``labels``, ``split`` and ``writers`` of
    an :class:`~fltnb.data.ImageSet`, and the number of pairs of files, or raises FltnbError as :func:`read_leaf`.
    """
    files = sorted(
        (base / "train").glob("*.json"), key=lambda path: _natural(path.name)
    )
    if not files:
        raise FltnbError(
            f"There are no files {base / 'train'}/*.json: run {form.command} in LEAF's data/{form.name}."
        )
    samples, found = [], {"labels": [], "split": [], "writers": []}
    seen: dict[str, Path] = {}
    for path in files:
        head, word, tail = path.name.rpartition("train")
        other = base / "test" / (f"{head}test{tail}" if word else path.name)
        if not other.is_file():
            raise FltnbError(
                f"{path} has no test part {other}: run {form.command} in LEAF's data/{form.name}."
            )
        parts = [_read_part(path, form), _read_part(other, form)]
        for mine, theirs, here, there in (
            (*parts, path, other),
            (*parts[::-1], other, path),
        ):
            if alone := sorted(mine.keys() - theirs.keys()):
                raise FltnbError(
                    f"Person {alone[0]!r} of {here} is not in {there}: make both in one run."
                )
        for name in sorted(parts[0], key=_natural):
            if name in seen:
                raise FltnbError(
                    f"Person {name!r} is in both {seen[name]} and {path}: leave one of the two files out."
                )
            for part, held in enumerate(parts):
                own, labels = held[name]
                samples.append(own)
                found["labels"].append(labels)
                found["split"].append(np.full(len(labels), part, dtype=np.uint8))
                found["writers"].append(np.full(len(labels), len(seen), dtype=np.int32))
            seen[name] = path
    return (
        samples,
        {key: np.concatenate(arrays) for key, arrays in found.items()},
        len(files),
    )


def _natural(name: str) -> list:
    """Sort key that puts file 2 before file 10."""
    return [
        int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name)
    ]


def _read_part(path: Path, form: Form) -> dict[str, Part]:
    """Return the samples of every person of one file."""
    place, mend, parts = (
        str(path),
        "make it anew with LEAF's script or leave it out",
        {},
    )
    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(file)
    except (ValueError, RecursionError) as error:
        raise FltnbError(
            f"{path} is not a sound JSON file ({error}): {mend}."
        ) from error
    try:
        for name, count in zip(content["users"], content["num_samples"], strict=True):
            place = f"Person {name!r} of {path}"
            held = content["user_data"].pop(
                name
            )  # so that its floats can go as soon as they are bytes
            if not len(held["x"]) == len(held["y"]) == count > 0:
                has = f"has {len(held['x'])} images and {len(held['y'])} labels"
                raise ValueError(f"{has} where num_samples says {count}")
            parts[name] = form.parse(held["x"], held["y"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = (
            f"{error}"
            if type(error) is ValueError
            else f"{type(error).__name__}: {error}"
        )
        raise FltnbError(
            f"{place} does not have LEAF's form ({what}): {mend}."
        ) from error
    return parts


def _handwriting(x: list, y: list) -> Part:
    """Return images uint8 (n, 28, 28) and labels of one writer."""
    if wrong := [len(row) for row in x if len(row) != PIXELS]:
        raise ValueError(f"has an image of {wrong[0]} pixels instead of {PIXELS}")
    if outside := [c for c in y if type(c) is not int or not 0 <= c < len(CLASS_NAMES)]:
        raise ValueError(
            f"has the label {outside[0]!r}, which is not one of 0 to {len(CLASS_NAMES) - 1}"
        )
    pixels = np.asarray(x, dtype=np.float64)
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("has pixels outside 0 to 1")
    return np.rint(pixels * 255).astype(np.uint8).reshape(-1, 28, 28), np.array(
        y, dtype=np.int64
    )


def _smiles(x: list, y: list) -> Part:
    """Return names of pictures and labels of one person."""
    if wrong := [name for name in x if not isinstance(name, str)]:
        raise ValueError(f"has {wrong[0]!r} in place of a picture's name")
    # LEAF's script divides, so that Python 3 writes 1.0 and Python 2 wrote 1
    if outside := [c for c in y if type(c) not in (int, float) or c not in (0, 1)]:
        raise ValueError(
            f"has the label {outside[0]!r}, which is not 0 (not smiling) or 1 (smiling)"
        )
    return x, np.array(y, dtype=np.int64)


FEMNIST = Form(
    "femnist",
    "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.9",  # FLT: all samples and writers, 90 % for training
    "train and test; the files all_data_0 and all_data_1 are enough for FLT",
    _handwriting,
)
CELEBA = Form(
    "celeba",
    "./preprocess.sh -s niid --sf 1.0 -k 5 -t sample --tf 0.8",  # FeSEM, Section 6.1: 80 % for training
    "train, test and raw/img_align_celeba",
    _smiles,
)
