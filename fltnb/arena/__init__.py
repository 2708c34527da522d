"""The arena: any clustered method, judged on five tracks (docs/arena.md).

Who takes part is a class in a file of a stranger's, or a method of this package
(:mod:`~fltnb.arena.entry`); it plays on cells (:mod:`~fltnb.arena.tracks`) and sees
what it says that it looks at (:mod:`~fltnb.arena.guard`). Every run is kept
(:mod:`~fltnb.arena.play`); all go on a card (:mod:`~fltnb.arena.card`), which can be
computed again.
"""

from .card import Rules, compete, read, verify, write
from .entry import entry
from .tracks import TRACKS, cells

__all__ = [
    "TRACKS",
    "Rules",
    "cells",
    "compete",
    "entry",
    "read",
    "verify",
    "write",
]
