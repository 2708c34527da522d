"""Your own clients: samples, classes and owners out of a table or a folder of pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..data.images import read_picture
from ..errors import FltnbError
from ..settings import Count, check

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm")
SHOWN = 8  # names in a sentence; a table may have thousands of columns


def read_csv(file: Path | str, owner: str, label: str, features: Sequence[str] | None, standardise: bool) -> dict:
    """Read a table with one row per sample; see :meth:`~fltnb.federations.Federation.from_csv`."""
    import pandas as pd

    file = Path(file)
    try:
        table = pd.read_csv(file)
    except FileNotFoundError as error:
        raise FltnbError(f"There is no file {file}: give the path of a CSV with one row per sample.") from error
    except (OSError, ValueError) as error:  # pandas' own errors and wrong encodings are ValueErrors
        raise FltnbError(
            f"{file} cannot be read as CSV ({str(error).strip()}): save it as UTF-8 with commas."
        ) from error
    for name, meaning in ((owner, "owner"), (label, "label")):
        if name not in table:
            option, what = f"{meaning}='...'", "whose sample each row is" if meaning == "owner" else "its class"
            raise FltnbError(
                f"{file.name} has no column {name!r}, which says {what}: name the right one with {option}; it has"
                f" {_some(table.columns)}."
            )
    columns = [name for name in table if name not in (owner, label)] if features is None else list(features)
    if unknown := [one for one in columns if one not in table]:
        raise FltnbError(f"{file.name} has no column {_some(unknown)}: choose features among {_some(table.columns)}.")
    if not len(table) or not columns:
        raise FltnbError(f"{file.name} has {len(table)} rows and {len(columns)} feature columns: it needs one of each.")
    if text := [one for one in columns if table[one].dtype.kind not in "fiub"]:
        raise FltnbError(
            f"Features must be numbers, but {_some(text)} of {file.name} hold text: turn them into numbers, or name the"
            " columns to use with features=[...]."
        )
    gaps = table[[owner, label, *columns]].isna()
    if gaps.any(axis=None):
        lines = np.flatnonzero(gaps.any(axis=1)) + 2  # as a text editor counts: line 1 is the header
        raise FltnbError(f"{file.name} has gaps in {_some(gaps.columns[gaps.any()])}, lines {_some(lines)}: fill them.")
    x = table[columns].to_numpy(dtype=np.float64)
    if standardise:
        with np.errstate(invalid="ignore"):  # infinite values are refused with all other checks of samples
            spread = x.std(axis=0)
            x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return _samples(x, table[label].to_numpy(), table[owner].to_numpy())


def read_folder(folder: Path | str, size: Count, grey: bool) -> dict:
    """Read ``<folder>/<owner>/<class>/<picture>``; see :meth:`~fltnb.federations.Federation.from_folder`."""
    folder, size = Path(folder), check("size", size, Count)
    check("grey", grey, bool)
    if not folder.is_dir():
        raise FltnbError(f"There is no folder {folder}: give the one that holds a folder for each owner.")
    layout = f"{folder.name}/OWNER/CLASS/PICTURE"
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in PICTURES and file.name[0] != ".")
    if not files:
        raise FltnbError(f"There is no picture ({', '.join(PICTURES)}) in {folder}: lay them out as {layout}.")
    inside = [file.relative_to(folder).parts for file in files]
    if odd := [parts for parts in inside if len(parts) != 3]:
        raise FltnbError(f"{'/'.join(odd[0])} ({len(odd)} such) does not tell its owner and class: use {layout}.")
    x = np.stack([read_picture(file, size, "BILINEAR", "L" if grey else "RGB") for file in files])
    return _samples(x, np.array([parts[1] for parts in inside]), np.array([parts[0] for parts in inside]))


def _samples(x: np.ndarray, labels: np.ndarray, owners: np.ndarray) -> dict:
    """Return what :meth:`~fltnb.federations.Federation.from_arrays` takes."""
    names, y = np.unique(labels, return_inverse=True)
    return {"x": x, "y": y, "client_ids": owners, "class_names": [str(name) for name in names]}


def _some(names: Sequence) -> str:
    shown = ", ".join(map(str, names[:SHOWN]))
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
