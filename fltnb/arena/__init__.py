"""The arena: any clustered method, judged on five tracks (docs/arena.md).

Who takes part is a class in a file of a stranger's, or a method of this package
(:mod:`~fltnb.arena.entry`); it plays on cells (:mod:`~fltnb.arena.tracks`) and sees
what it says that it looks at (:mod:`~fltnb.arena.guard`). Every run is kept
(:mod:`~fltnb.arena.play`); all go on a card (:mod:`~fltnb.arena.card`), which can be
computed again (:mod:`~fltnb.arena.verify`). The methods of this package stand in one
table (:mod:`~fltnb.arena.table`).
"""

from .card import Rules, compete, read, write
from .entry import entry
from .table import everybody
from .tracks import TRACKS, cells
from .verify import verify

__all__ = [
    "TRACKS",
    "Rules",
    "cells",
    "compete",
    "entry",
    "everybody",
    "read",
    "verify",
    "write",
]
