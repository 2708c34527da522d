"""FEMNIST by writers, read from the JSON files that LEAF's own scripts make (FLT's scenario 3).

LEAF (Caldas et al., 2019) has no download of finished files; its scripts fetch NIST Special Database 19 and make
``all_data_<n>_niid_0_keep_0_train_9.json`` and ``..._test_9.json`` of 100 writers each.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from .data import ImageSet
from .errors import FltnbError

CLASS_NAMES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""The 62 classes in LEAF's numbering, which is also that of EMNIST ByClass."""
COMMAND = "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.9"
"""What makes FLT's files, run in LEAF's folder data/femnist: all samples, every writer, 90 % of each for training."""
PIXELS = 28 * 28


def read_leaf(folder: Path | str, max_writers: int | None = None) -> ImageSet:
    """Read FEMNIST from LEAF's JSON files.

    Pixels keep LEAF's polarity, dark strokes (0) on a white page (255), which is what FLT's public code trains on;
    MNIST, EMNIST and Fashion-MNIST have it the other way round, so an encoder pretrained on them sees negatives.
    LEAF stores bytes divided by 255, so the rounding to uint8 here gives these very bytes back.

    Writers are numbered in the order of the files (``all_data_2`` before ``all_data_10``) and by name within each.
    The first 200 are thus the writers of ``all_data_0`` and ``all_data_1``, the ones FLT took.

    Parameters
    ----------
    folder : path
        Holds ``train`` and ``test``, or ``data`` with these two (LEAF's own layout).
    max_writers : int, optional
        Stop after so many writers. Files are read one at a time; those that are not needed are not opened.

    Returns
    -------
    ImageSet
        Named ``femnist``; ``writers`` holds the number of each image's writer, ``split`` the part it was in.

    Raises
    ------
    FltnbError
        No such files, or something in one of them does not fit: not JSON, unequal lengths, counts that disagree, a
        wrong number of pixels, values out of range, a writer without images, in one part only, or in two files.
    """
    folder = Path(folder)
    base = folder / "data" if (folder / "data" / "train").is_dir() else folder
    files = sorted((base / "train").glob("*.json"), key=lambda path: _natural(path.name))
    if not files:
        raise FltnbError(
            f"There are no LEAF files {base / 'train'}/*.json: run {COMMAND} in LEAF's folder data/femnist first."
        )
    images, labels, split, writers = [], [], [], []
    seen: dict[str, Path] = {}
    for path in files:
        if max_writers is not None and len(seen) >= max_writers:
            break
        other = _partner(path, base / "test")
        parts = [_read_part(path), _read_part(other)]
        for mine, theirs, here, there in ((*parts, path, other), (*parts[::-1], other, path)):
            if alone := sorted(mine.keys() - theirs.keys()):
                raise FltnbError(
                    f"Writer {alone[0]!r} of {here} is missing in {there} ({len(alone)} such writers): make both files"
                    " anew in one run of LEAF's script."
                )
        for name in sorted(parts[0]):
            if name in seen:
                raise FltnbError(f"Writer {name!r} is in both {seen[name]} and {path}: leave one of the two files out.")
            if max_writers is not None and len(seen) >= max_writers:
                break
            for part, held in enumerate(parts):
                pixels, classes = held[name]
                images.append(pixels)
                labels.append(classes)
                split.append(np.full(len(classes), part, dtype=np.uint8))
                writers.append(np.full(len(classes), len(seen), dtype=np.int32))
            seen[name] = path
    return ImageSet(
        name="femnist",
        images=np.concatenate(images),
        labels=np.concatenate(labels),
        split=np.concatenate(split),
        class_names=CLASS_NAMES,
        origin=f"LEAF FEMNIST, {len(seen)} writers from {len({*seen.values()})} pairs of JSON files, pixels as LEAF has"
        " them (dark on white)",
        writers=np.concatenate(writers),
    )


def _natural(name: str) -> list:
    """Sort key that puts file 2 before file 10."""
    return [int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name)]


def _partner(path: Path, folder: Path) -> Path:
    """Return the test file that belongs to a training file."""
    head, found, tail = path.name.rpartition("train")
    other = folder / (f"{head}test{tail}" if found else path.name)
    if not other.is_file():
        raise FltnbError(
            f"{path} has no test part {other}: put it there, or run {COMMAND} in LEAF's data/femnist again."
        )
    return other


def _read_part(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return images uint8 (n, 28, 28) and labels int64 (n,) of every writer of one file."""
    mend = "make it anew with LEAF's script or leave it out"
    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(file)
    except (ValueError, RecursionError) as error:
        raise FltnbError(f"{path} is not a sound JSON file ({error}): {mend}.") from error
    try:
        users, counts, user_data = content["users"], content["num_samples"], content["user_data"]
        if len(users) != len(counts):
            raise FltnbError(f"{path} names {len(users)} writers but has {len(counts)} num_samples: {mend}.")
        if not users:
            raise FltnbError(f"{path} names no writers: {mend}.")
        if len(set(users)) < len(users):
            raise FltnbError(f"{path} names a writer twice: {mend}.")
        parts = {}
        for name, count in zip(users, counts, strict=True):
            held = user_data.pop(name)  # so that its floats can go as soon as they are bytes
            fault = _fault(held["x"], held["y"], count)
            if fault is None:
                pixels = np.asarray(held["x"], dtype=np.float64)
                fault = "has pixels outside 0 to 1" if not ((pixels >= 0) & (pixels <= 1)).all() else None
            if fault:
                raise FltnbError(f"Writer {name!r} of {path} {fault}: {mend}.")
            grey = np.rint(pixels * 255).astype(np.uint8)
            parts[name] = (grey.reshape(-1, 28, 28), np.array(held["y"], dtype=np.int64))
    except FltnbError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FltnbError(
            f"{path} does not have LEAF's form, users, num_samples and user_data with numbers x and y of each"
            f" ({type(error).__name__}: {error}): {mend}."
        ) from error
    return parts


def _fault(x: list, y: list, count: int) -> str | None:
    """Say what is wrong with the samples of one writer, or None."""
    if len(x) != len(y):
        return f"has {len(x)} images but {len(y)} labels"
    if not x:
        return "has no images"
    if len(x) != count:
        return f"has {len(x)} images but num_samples says {count}"
    if wrong := [len(row) for row in x if len(row) != PIXELS]:
        return f"has an image of {wrong[0]} pixels instead of {PIXELS}"
    if outside := [c for c in y if type(c) is not int or not 0 <= c < len(CLASS_NAMES)]:
        return f"has the label {outside[0]!r}, which is not one of 0 to {len(CLASS_NAMES) - 1}"
    return None
