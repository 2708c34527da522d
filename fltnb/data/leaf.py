"""FEMNIST by writers, read from the JSON files that LEAF's own scripts make (FLT's scenario 3).

LEAF (Caldas et al., 2019) has no download of finished files; its scripts fetch NIST Special Database 19 and make
``all_data_<n>_niid_0_keep_0_train_9.json`` and ``..._test_9.json`` of 100 writers each. :mod:`fltnb.data.celeba` reads
another of LEAF's data sets with what they have in common.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FltnbError
from .images import ImageSet

CLASS_NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""The 62 classes in LEAF's numbering, which is also that of EMNIST ByClass."""
COMMAND = "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.9"
"""What makes FLT's files, run in LEAF's folder data/femnist: all samples, every writer, 90 % of each for training."""
PIXELS = 28 * 28
Part = tuple[Any, np.ndarray]
"""What one person has in one part: the samples, and their labels int64 (n,)."""


class UnsoundError(Exception):
    """What cannot be used; the text goes on from the file's name, or from "Writer x of file y"."""


@dataclass(frozen=True)
class Form:
    """What LEAF's data sets differ in."""

    name: str  # folder in LEAF's data; also the name of the image set
    command: str  # makes the files, in that folder
    person: str  # word for whom a sample belongs to
    needed: str  # what of LEAF's folder is read, in words
    parse: Callable[[list, list], Part]  # of lists x and y, of equal lengths and not empty; may raise UnsoundError


def read_leaf(folder: Path | str, max_writers: int | None = None) -> ImageSet:
    """Read FEMNIST from LEAF's JSON files.

    Pixels keep LEAF's polarity, dark strokes (0) on a white page (255), which is what FLT's public code trains on;
    MNIST, EMNIST and Fashion-MNIST have it the other way round, so an encoder pretrained on them sees negatives.
    LEAF stores bytes divided by 255; rounding gives these very bytes back. Writers are numbered in the order of the
    files (``all_data_2`` before ``all_data_10``) and by name within each: FLT's 200 are those of the first two files.

    ``folder`` holds ``train`` and ``test``, or ``data`` with these two (LEAF's own layout). After ``max_writers`` no
    further file is opened. Raises FltnbError where there are no such files, or something in one of them does not fit.
    """
    images, arrays, n_files = read_people(base_folder(folder), FEMNIST, max_writers)
    found = f"{arrays['writers'][-1] + 1} writers from {n_files} pairs of JSON files"
    origin = f"LEAF FEMNIST, {found}, pixels as LEAF has them (dark on white)"
    return ImageSet(FEMNIST.name, np.concatenate(images), class_names=CLASS_NAMES, origin=origin, **arrays)


def base_folder(folder: Path | str) -> Path:
    """Return the folder that holds ``train`` and ``test``: this one, or ``data`` in it, which is LEAF's own layout."""
    folder = Path(folder)
    return folder / "data" if (folder / "data" / "train").is_dir() else folder


def read_people(base: Path, form: Form, most: int | None = None) -> tuple[list, dict[str, np.ndarray], int]:
    """Read LEAF's files in ``base``, file by file and by name within each, a person's training before the test part.

    Returns what ``form.parse`` made of every part of every person, the arrays ``labels``, ``split`` and ``writers`` of
    an :class:`~fltnb.data.ImageSet`, and the number of pairs of files, or raises FltnbError as :func:`read_leaf`.
    """
    files = sorted((base / "train").glob("*.json"), key=lambda path: _natural(path.name))
    if not files:
        what = f"There are no LEAF files {base / 'train'}/*.json"
        raise FltnbError(f"{what}: run {form.command} in LEAF's folder data/{form.name}.")
    who = form.person.capitalize()
    samples, found = [], {"labels": [], "split": [], "writers": []}
    seen: dict[str, Path] = {}
    for path in files:
        if most is not None and len(seen) >= most:
            break
        head, word, tail = path.name.rpartition("train")
        other = base / "test" / (f"{head}test{tail}" if word else path.name)
        if not other.is_file():
            mend = f"add it, or run {form.command} in LEAF's data/{form.name}"
            raise FltnbError(f"{path} has no test part {other}: {mend}.")
        parts = [_read_part(path, form), _read_part(other, form)]
        for mine, theirs, here, there in ((*parts, path, other), (*parts[::-1], other, path)):
            if alone := sorted(mine.keys() - theirs.keys()):
                what = f"{who} {alone[0]!r} of {here} is missing in {there} ({len(alone)} such {form.person}s)"
                raise FltnbError(f"{what}: make both files anew in one run of LEAF's script.")
        for name in sorted(parts[0], key=_natural):
            if name in seen:
                raise FltnbError(f"{who} {name!r} is in both {seen[name]} and {path}: leave one of the two files out.")
            if most is not None and len(seen) >= most:
                break
            for part, held in enumerate(parts):
                own, labels = held[name]
                samples.append(own)
                found["labels"].append(labels)
                found["split"].append(np.full(len(labels), part, dtype=np.uint8))
                found["writers"].append(np.full(len(labels), len(seen), dtype=np.int32))
            seen[name] = path
    return samples, {key: np.concatenate(arrays) for key, arrays in found.items()}, len({*seen.values()})


def _natural(name: str) -> list:
    """Sort key that puts file 2 before file 10."""
    return [int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name)]


def _read_part(path: Path, form: Form) -> dict[str, Part]:
    """Return the samples of every person of one file."""
    place, mend = str(path), "make it anew with LEAF's script or leave it out"
    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(file)
    except (ValueError, RecursionError) as error:
        raise FltnbError(f"{path} is not a sound JSON file ({error}): {mend}.") from error
    try:
        users, counts, user_data = content["users"], content["num_samples"], content["user_data"]
        if len(users) != len(counts):
            raise UnsoundError(f"names {len(users)} {form.person}s but has {len(counts)} num_samples")
        if not users:
            raise UnsoundError(f"names no {form.person}s")
        if len(set(users)) < len(users):
            raise UnsoundError(f"names a {form.person} twice")
        parts = {}
        for name, count in zip(users, counts, strict=True):
            place = f"{form.person.capitalize()} {name!r} of {path}"
            held = user_data.pop(name)  # so that its floats can go as soon as they are bytes
            x, y = held["x"], held["y"]
            if len(x) != len(y):
                raise UnsoundError(f"has {len(x)} images but {len(y)} labels")
            if not x:
                raise UnsoundError("has no images")
            if len(x) != count:
                raise UnsoundError(f"has {len(x)} images but num_samples says {count}")
            parts[name] = form.parse(x, y)
    except UnsoundError as fault:
        raise FltnbError(f"{place} {fault}: {mend}.") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        form = "LEAF's form, users, num_samples and user_data with lists x and y of each"
        raise FltnbError(f"{path} does not have {form} ({type(error).__name__}: {error}): {mend}.") from error
    return parts


def _handwriting(x: list, y: list) -> Part:
    """Return images uint8 (n, 28, 28) and labels of one writer."""
    if wrong := [len(row) for row in x if len(row) != PIXELS]:
        raise UnsoundError(f"has an image of {wrong[0]} pixels instead of {PIXELS}")
    if outside := [c for c in y if type(c) is not int or not 0 <= c < len(CLASS_NAMES)]:
        raise UnsoundError(f"has the label {outside[0]!r}, which is not one of 0 to {len(CLASS_NAMES) - 1}")
    pixels = np.asarray(x, dtype=np.float64)
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise UnsoundError("has pixels outside 0 to 1")
    return np.rint(pixels * 255).astype(np.uint8).reshape(-1, 28, 28), np.array(y, dtype=np.int64)


FEMNIST = Form(
    "femnist", COMMAND, "writer", "train and test; the files all_data_0 and all_data_1 are enough for FLT", _handwriting
)
