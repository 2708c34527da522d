"""Pictures in folders, one per client and class: which are used, and which left out."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.images import read_picture
from ..errors import FltnbError
from .preprocessing import some
from .tables import text_of

PICTURES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".pgm",
    ".ppm",
)
SYSTEM = (
    "__macosx",
    "__pycache__",
    "#recycle",
    "#snapshot",
    "$recycle.bin",
    "@eadir",
    "@recently-snapshot",
    "@recycle",
    "@tmp",
    "desktop.ini",
    "ehthumbs.db",
    "found.000",
    "icon\r",
    "lost+found",
    "network trash folder",
    "recycler",
    "system volume information",
    "temporary items",
    "thumbs.db",
    "~snapshot",
)
"""Folders and files that systems create automatically, besides hidden ones."""


class Found(NamedTuple):
    """The pictures of a folder, sorted, with clients and classes (N,)."""

    files: list[Path]
    clients: list[str]
    classes: list[str]
    notes: tuple[str, ...]  # what was left out, in sentences


def find(folder: Path) -> Found:
    """List the pictures of ``folder/CLIENT/CLASS``, and what is left out.

    Raises FltnbError if there is no folder, no picture, or a picture whose client and
    class cannot be read from its path.
    """
    if not folder.is_dir():
        raise FltnbError(
            f"There is no folder {folder}: give the one that holds a folder for each "
            "client."
        )
    files, hidden, links = _contents(folder)
    pictures = [file for file in files if _is_picture(file)]
    others = [file for file in files if not _is_picture(file)]
    layout = f"{folder.name}/CLIENT/CLASS/PICTURE"
    if not pictures:
        raise FltnbError(
            f"There is no picture in {folder}: lay them out as {layout}, with an "
            f"ending of {', '.join(PICTURES)}."
        )
    inside = [file.relative_to(folder).parts for file in pictures]
    odd = [parts for parts in inside if len(parts) != 3]
    if odd:
        where = "/".join((folder.name, *odd[0]))
        raise FltnbError(
            f"{where} is not where its client and class can be read ({len(odd)} such): "
            f"use {layout}."
        )
    clients = [text_of(client) for client, _, _ in inside]
    classes = [text_of(name) for _, name, _ in inside]
    notes = []
    notes += _on_hidden(hidden)
    notes += _on_others(folder, others, set(clients))
    notes += _on_links(links)
    notes += _on_empty(folder, files)
    return Found(pictures, clients, classes, tuple(notes))


def read(
    files: Iterable[Path], size: int, mode: str, background: str = "white"
) -> np.ndarray:
    """Return picture files as uint8 (N, size, size[, 3]), resized to squares."""
    pictures = [
        read_picture(file, size, "BILINEAR", mode, background) for file in files
    ]
    return np.stack(pictures)


class _Contents(NamedTuple):
    """The contents of a folder, at any depth."""

    files: list[Path]  # sorted
    hidden: list[str]  # names, hidden or of the system
    links: list[str]  # names of links to folders, or to nothing

    def add(self, one: Path) -> None:
        """Add a file, or a folder if it is hidden or a link."""
        if _is_hidden(one.name):
            self.hidden.append(one.name)
        elif one.is_file():
            self.files.append(one)
        elif one.is_symlink():
            self.links.append(one.name)


def _contents(folder: Path) -> _Contents:
    """Return the contents of a folder.

    Raises FltnbError if a part cannot be read.
    """
    found = _Contents([], [], [])
    for place, folders, names in os.walk(folder, onerror=_refuse):
        for name in (*folders, *names):
            found.add(Path(place) / name)
        # os.walk goes into those that are left in its list
        folders[:] = [name for name in folders if not _is_hidden(name)]
    found.files.sort()
    return found


def _refuse(error: OSError) -> None:
    """Refuse a folder that cannot be read (FltnbError)."""
    raise FltnbError(
        f"{error.filename} cannot be read ({error.strerror}): fix that, or leave it "
        "out."
    )


def _is_hidden(name: str) -> bool:
    """Whether a file or folder is the system's, or hidden by its name."""
    return name.startswith((".", "~$")) or name.lower() in SYSTEM


def _is_picture(file: Path) -> bool:
    """Whether a file name has the ending of a picture."""
    return file.suffix.lower() in PICTURES


def _on_hidden(hidden: list[str]) -> list[str]:
    """Say what is hidden or belongs to the system."""
    if not hidden:
        return []
    names = some(_counted(hidden))
    return [f"Left out, hidden or of the system: {names}."]


def _on_links(links: list[str]) -> list[str]:
    """Say which links are not followed."""
    if not links:
        return []
    names = some(_counted(links))
    return [f"Left out, links to folders or to nothing: {names}."]


def _on_others(folder: Path, others: list[Path], clients: set[str]) -> list[str]:
    """Say which files are not pictures, and which clients have only these."""
    if not others:
        return []
    endings = [file.suffix.lower() or "no ending" for file in others]
    counts = some(_counted(endings))
    notes = [f"Left out, no pictures that can be read: {counts}."]

    holders = set()
    for file in others:
        client, *rest = file.relative_to(folder).parts
        if rest:
            holders.add(text_of(client))
    only = sorted(holders - clients)
    if only:
        notes.append(f"Left out, without any picture that can be read: {some(only)}.")
    return notes


def _on_empty(folder: Path, files: list[Path]) -> list[str]:
    """Say which clients have folders without files."""
    with_files = {file.relative_to(folder).parts[0] for file in files}
    empty = []
    for place in sorted(folder.iterdir()):
        named = place.is_dir() and not _is_hidden(place.name)
        if named and not place.is_symlink() and place.name not in with_files:
            empty.append(place.name)
    return [f"Left out, an empty folder: {some(empty)}."] if empty else []


def _counted(names: Iterable[str]) -> list[str]:
    """Format names with their counts, in alphabetical order."""
    return [f"{name} ({count})" for name, count in sorted(Counter(names).items())]
