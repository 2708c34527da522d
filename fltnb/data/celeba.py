"""CelebA by persons, smiling or not, from the files that LEAF's own scripts make: FedCelebA of FeSEM's tables.

LEAF (Caldas et al., 2019) takes the persons with five pictures or more, 200,288 pictures of 9,343 persons. Its JSON
files hold the pictures' names only; the pictures themselves (Liu et al., ICCV 2015) must lie where LEAF wants them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from ..errors import FltnbError
from ..progress import bar as progress_bar
from .images import ImageSet, read_picture
from .leaf import Form, Part, UnsoundError, base_folder, read_people

CLASS_NAMES = ("not smiling", "smiling")
COMMAND = "./preprocess.sh -s niid --sf 1.0 -k 5 -t sample --tf 0.8"
"""Run in LEAF's folder data/celeba: all samples, 80 % of each person's for training (FeSEM, Section 6.1)."""
PICTURES = Path("raw") / "img_align_celeba"
SIZE = 84


def read_celeba(folder: Path | str, progress: bool = True) -> ImageSet:
    """Read LEAF's CelebA from ``train``, ``test`` and ``raw/img_align_celeba`` in a folder, or in ``data`` in it.

    LEAF's own model reads pictures at 84 x 84 pixels, 178 x 218 squeezed to a square, and leaves the interpolation to
    Pillow, whose default has changed since; here it is bilinear. Persons are numbered in the order of the files and,
    within each, by their number in CelebA. All pictures are in memory at once: 4.2 GB. Raises FltnbError as
    :func:`fltnb.data.leaf.read_leaf`, or where a picture is listed twice, missing or unreadable.
    """
    base = base_folder(folder)
    listed, arrays, _ = read_people(base, CELEBA)
    names, pictures = [name for own in listed for name in own], base / PICTURES
    _check_pictures(names, pictures)
    images = np.empty((len(names), SIZE, SIZE, 3), dtype=np.uint8)
    for place, name in enumerate(progress_bar(names, progress, desc="celeba: pictures", unit="picture")):
        images[place] = read_picture(pictures / name, SIZE, "BILINEAR")
    persons = arrays["writers"][-1] + 1
    origin = f"LEAF CelebA (smiling), {persons} persons, pictures reduced to {SIZE} x {SIZE} pixels (bilinear)"
    return ImageSet(CELEBA.name, images, class_names=CLASS_NAMES, origin=origin, **arrays)


def _smiles(x: list, y: list) -> Part:
    """Return names of pictures and labels of one person."""
    if wrong := [name for name in x if not isinstance(name, str)]:
        raise UnsoundError(f"has {wrong[0]!r} in place of a picture's name")
    # LEAF's script divides, so that Python 3 writes 1.0 and Python 2 wrote 1
    if outside := [c for c in y if type(c) not in (int, float) or c not in (0, 1)]:
        raise UnsoundError(f"has the label {outside[0]!r}, which is not 0 (not smiling) or 1 (smiling)")
    return x, np.array(y, dtype=np.int64)


def _check_pictures(names: list[str], folder: Path) -> None:
    """Refuse names that come twice or have no file, before the minutes that reading takes."""
    once = Counter(names)
    if twice := [name for name, n in once.items() if n > 1]:
        mend = "delete rem_user_data, sampled_data, train and test, and make them anew in one run of LEAF's script"
        raise FltnbError(f"LEAF's files list the picture {twice[0]!r} twice: {mend}.")
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if missing := sorted(once.keys() - there):
        found = f"The picture {missing[0]!r} is not in {folder} ({len(missing)} of {len(once)} are missing)"
        raise FltnbError(f"{found}: put CelebA's aligned and cropped pictures (img_align_celeba.zip) there.")


CELEBA = Form("celeba", COMMAND, "person", "train, test and raw/img_align_celeba", _smiles)
