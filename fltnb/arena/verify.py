"""A card that somebody else wrote, computed again in part."""

import math
import random
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..progress import bar
from ..settings import plain
from . import statistics, tracks, tuning
from .card import Card, seeds_of
from .entry import Entry, entry, of_source
from .play import Task, played

TOLERANCE = {"accuracy": 0.5, "worst": 5.0, "ari": 0.1, "bytes": 0}
"""How far a number that is computed again may be off, on another processor."""


def verify(
    card: Card,
    seed: int | None = None,
    tell: Callable[[str], None] = print,
) -> list[str]:
    """Compute a random third of a card's runs again; return what does not hold.

    The source in the card is run. Nothing is read from the store.

    Parameters
    ----------
    card : dict
    seed : int, optional
        Which runs are drawn; one that nobody knows before, by default. It is told.
    tell : callable

    Returns
    -------
    list of str
        A sentence for each number that is off by more than :data:`TOLERANCE`; empty
        where the card holds.
    """
    seed = secrets.randbelow(10**6) if seed is None else seed
    runs = card["runs"]
    n_drawn = math.ceil(len(runs) / 3)
    drawn = random.Random(seed).sample(runs, n_drawn)
    tell(f"{n_drawn} of {len(runs)} runs are computed again, drawn by {seed}.")

    name = card["method"]["name"]
    source = card["method"]["source"]
    with tempfile.TemporaryDirectory() as folder:
        who = of_source(source, name, Path(folder)) if source else entry(name)
        wrong = at_sight(card, who)
        for run in bar(drawn, desc="verify", unit="run"):
            wrong += _differing(run, _again(card, run, who))
    return wrong


def at_sight(card: Card, who: Entry) -> list[str]:
    """Return what does not hold and can be seen without a run."""
    wrong = []
    runs = card["runs"]
    if card["method"]["digest"] != who.digest:
        wrong.append("The source is not the one whose hash the card has.")
    if card["seeds"] != seeds_of(who):
        wrong.append("The seeds are not those of the source.")
    if any(run["seed"] not in card["seeds"] for run in runs):
        wrong.append("Some run has none of the card's seeds.")
    if card["statistics"] != statistics.summary(runs, who.name):
        wrong.append("The statistics are not those of the card's runs.")
    trials = plain(tuning.trials(who.space))
    own = [run for run in runs if run["method"] == who.name]
    if any(run["options"] and run["options"] not in trials for run in own):
        wrong.append("Some options are none of the trials.")
    return wrong


def _again(card: Card, run: dict[str, Any], who: Entry) -> dict[str, Any]:
    """Play a run of a card once more."""
    if run["method"] != who.name:
        who = entry(run["method"])
    level = tracks.LEVELS.index(run["level"])
    demo = card["rules"]["demo"]
    cell = tracks.cell(run["track"], run["family"], level, run["seed"], demo)
    return played(Task(who.where, cell, run["seed"], run["options"]), who)


def _differing(run: dict[str, Any], again: dict[str, Any]) -> list[str]:
    """Return a sentence for each number of a run that does not hold."""
    place = f"{run['method']}, {statistics.cell_of(run)}, seed {run['seed']}"
    if bool(run["failed"]) != bool(again["failed"]):
        why = again["failed"] or "it did not"
        return [f"{place}: whether it failed is not as the card says ({why})."]
    wrong = []
    for measure, most in TOLERANCE.items():
        said = run[measure]
        found = again[measure]
        same = said == found
        if said is not None and found is not None:
            same = abs(said - found) <= most
        if not same:
            wrong.append(f"{place}: {measure} is {found}, and the card says {said}.")
    return wrong
