"""Verification: a part of an external card is computed again."""

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
"""Largest difference of a number that is computed again on another processor.

The worst client's accuracy, of few test samples, and the clusters depend on rounding
more than a mean does. What is sent does not."""
PLACE = "{method}, {track}/{family}/{level}, seed {seed}"
FAILED = "{place}: whether it failed is not as the card says ({why})."
OFF = "{place}: {measure} is {found}, and the card says {said}."
NOT_SOURCE = "The source is not the one whose hash the card has."
NOT_SEEDS = "The seeds are not those of the source."
OTHER_SEEDS = "Some run has another seed."
NOT_STATISTICS = "The statistics are not those of the card's runs."
NO_TRIALS = "Some options are neither the defaults nor a trial."
TWICE = "Some run is listed twice."


def verify(
    card: Card,
    seed: int | None = None,
    tell: Callable[[str], None] = print,
) -> list[str]:
    """Compute a random third of a card's runs again; return the differences.

    The source on the card is used. Nothing is read from the store.

    Parameters
    ----------
    card : dict
        The result of :func:`fltnb.arena.compete`, or one read from a file.
    seed : int, optional
        Seed of the draw; by default an unpredictable one, which is printed.
    tell : callable
        Called with one message, before the runs.

    Returns
    -------
    list of str
        A sentence for each number that differs by more than :data:`TOLERANCE`; empty if
        the card is confirmed.

    Examples
    --------
    >>> from fltnb import arena
    >>> rules = arena.Rules("few-samples", demo=True)
    >>> card = arena.compete("FedAvg", rules)
    >>> arena.verify(card, seed=3)  # nothing is wrong
    50 of 150 runs are computed again, drawn by 3.
    []
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
    """Return differences that can be found without a run.

    The statistics are computed again from the card's runs, so that only the runs
    themselves can be wrong. With a run that is listed twice there are no statistics.
    """
    runs = card["runs"]
    places = {PLACE.format(**run) for run in runs}
    if len(places) < len(runs):
        return [TWICE]

    drawn = seeds_of(who)
    used = {run["seed"] for run in runs}
    holds = {
        NOT_SOURCE: card["method"]["digest"] == who.digest,
        NOT_SEEDS: card["seeds"] == drawn,
        OTHER_SEEDS: used <= set(drawn),
        NOT_STATISTICS: card["statistics"] == statistics.summary(runs, who.name),
        NO_TRIALS: all(_allowed(card, run, who) for run in runs),
    }
    return [text for text, true in holds.items() if not true]


def _allowed(card: Card, run: dict[str, Any], who: Entry) -> bool:
    """Return whether a run has the defaults or, on a tuned card, a trial.

    Any other options may have been chosen on the test samples.
    """
    if not run["options"]:
        return True
    if not card["rules"]["tuned"]:
        return False
    space = _who(run, who).space
    return run["options"] in plain(tuning.trials(space))


def _who(run: dict[str, Any], who: Entry) -> Entry:
    """Return the entry of a run: the card's method, or another one."""
    return who if run["method"] == who.name else entry(run["method"])


def _again(card: Card, run: dict[str, Any], who: Entry) -> dict[str, Any]:
    """Compute a run of a card again; ``who`` is the card's entry.

    The card names the cell only. Its federation is made by this version of the package,
    so that the card cannot say what the data are.
    """
    one = _who(run, who)
    level = tracks.LEVELS.index(run["level"])
    cell = tracks.cell(
        run["track"],
        run["family"],
        level,
        run["seed"],
        card["rules"]["demo"],
    )
    task = Task(one.where, cell, run["seed"], run["options"])
    return played(task, one)


def _differing(run: dict[str, Any], again: dict[str, Any]) -> list[str]:
    """Return a sentence for each number of a run that differs.

    Parameters
    ----------
    run, again : dict
        The same run: on the card, and as computed now.
    """
    place = PLACE.format(**run)
    if bool(run["failed"]) != bool(again["failed"]):
        why = again["failed"] or "it did not"
        return [FAILED.format(place=place, why=why)]
    wrong = []
    for measure, most in TOLERANCE.items():
        said = run[measure]
        found = again[measure]
        if _same(said, found, most):
            continue
        text = OFF.format(
            place=place,
            measure=measure,
            found=found,
            said=said,
        )
        wrong.append(text)
    return wrong


def _same(said: float | None, found: float | None, most: float) -> bool:
    """Return whether two numbers, or None, differ by at most ``most``."""
    if said is None or found is None:
        return said is found
    return abs(said - found) <= most
