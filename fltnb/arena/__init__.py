"""The arena: a comparison of any clustered method on five tracks (docs/arena.md).

An entry is a class in an external file, or a method of this package
(:mod:`~fltnb.arena.entry`). It runs on cells, federations of one family and level of
difficulty (:mod:`~fltnb.arena.tracks`), and only sees what it declares to use
(:mod:`~fltnb.arena.guard`). Every run is stored (:mod:`~fltnb.arena.play`); all are
written on a card (:mod:`~fltnb.arena.card`), which can be computed again
(:mod:`~fltnb.arena.verify`). The methods of this package are compared in one table
(:mod:`~fltnb.arena.table`), also with tuned options (:mod:`~fltnb.arena.tuned`), or
with a wrong number of clusters K (:mod:`~fltnb.arena.wrong_k`).
"""

from .card import Rules, compete, read, write
from .entry import entry
from .table import everybody
from .tracks import TRACKS, cells
from .tuned import everybody_tuned
from .verify import verify
from .wrong_k import everybody_wrong_k

__all__ = [
    "TRACKS",
    "Rules",
    "cells",
    "compete",
    "entry",
    "everybody",
    "everybody_tuned",
    "everybody_wrong_k",
    "read",
    "verify",
    "write",
]
