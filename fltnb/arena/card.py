"""The card: the method, the federations on which it ran, and the results."""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import paths, provenance
from ..errors import FltnbError, choose, reading
from ..methods import Method
from ..settings import plain
from . import statistics, tracks, tuning
from .entry import Entry, beside, entry
from .play import Task, check_limits, play, tuned

FORMAT = 1
PARTS = {"method", "rules", "seeds", "cells", "runs", "statistics", "environment"}
"""Entries that every card must have."""
SEEDS = 5
POOL = 20
"""Seeds from which a card's are drawn, so that stored runs of others are reused."""

Card = dict[str, Any]
"""The result of :func:`compete`, and the contents of a file: JSON values."""


@dataclass(frozen=True)
class Rules:
    """Which cells are run, and how.

    Attributes
    ----------
    track : str, optional
        Run only this track.
    demo : bool
        Small federations of the digits.
    tuned : bool
        Whether options are chosen by trials on validation samples
        (:mod:`fltnb.arena.tuning`).

    Examples
    --------
    >>> from fltnb import arena
    >>> arena.Rules("few-samples", demo=True)
    Rules(track='few-samples', demo=True, tuned=False)
    """

    track: str | None = None
    demo: bool = False
    tuned: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown track (FltnbError)."""
        if self.track is not None:
            choose(self.track, tracks.TRACKS, "track")


def seeds_of(who: Entry) -> list[int]:
    """Return the seeds of a method's table, drawn from the hash of its source.

    So nobody can choose seeds on which a method does well: changing the source changes
    the seeds.
    """
    source = random.Random(who.digest)
    drawn = source.sample(range(POOL), SEEDS)
    return sorted(drawn)


def compete(
    where: str,
    rules: Rules,
    budget: float | None = None,
    jobs: int = 1,
    tell: Callable[[str], None] = print,
) -> Card:
    """Run a method and the methods it is always compared with; return the card.

    Parameters
    ----------
    where : str
        ``my_method.py:MyMethod``, or the name of a method of this package.
    rules : Rules
    budget : float, optional
        Seconds; the card has the runs that fit.
    jobs : int
        Runs in parallel.
    tell : callable
        Called with messages, such as the families whose data are missing.

    Raises
    ------
    FltnbError
        As for :func:`fltnb.arena.entry.entry` and :func:`fltnb.arena.play.play`; or the
        budget ends before the first run of the method.

    Examples
    --------
    >>> from fltnb import arena
    >>> rules = arena.Rules("few-samples", demo=True)
    >>> card = arena.compete("FedAvg", rules)
    >>> sorted(card["statistics"]["means"])  # who stands in the table
    ['Ditto', 'FedAvg', 'FedRep', 'Local', 'Oracle']
    """
    begun = time.monotonic()
    check_limits(budget, jobs)
    who = entry(where)
    if rules.tuned and not who.space:
        raise FltnbError(
            f"{who.name} declares no space of options to tune over: give the class a "
            "space, or leave out --tuned."
        )
    everybody = [who]
    for name in beside(where):
        everybody.append(entry(name))
    lacking = tracks.lacking(tracks.cells(0, rules.track, rules.demo))
    for family, why in lacking.items():
        tell(f"{family} is left out: {why}")

    best = {}
    if rules.tuned:
        trial_cells = _cells(rules, tuning.SEED, lacking)
        best = tuned(everybody, trial_cells, budget=budget, jobs=jobs, tell=tell)
    tasks = []
    for one in everybody:
        for seed in seeds_of(who):
            cells = _cells(rules, seed, lacking)
            tasks += _tasks(one, cells, seed, best)
    if budget is not None:
        spent = time.monotonic() - begun
        budget = max(budget - spent, 0.0)
    runs = play(tasks, budget, jobs, tell)
    if not any(run["method"] == who.name for run in runs):
        raise FltnbError(
            "The budget ended before the first run of the method: give a larger one."
        )
    return {
        "format": FORMAT,
        "method": about(who),
        "rules": asdict(rules),
        "seeds": seeds_of(who),
        "cells": [_shown(cell) for cell in cells],
        "lacking": lacking,
        "tuned": best,
        "complete": len(runs) == len(tasks),
        "runs": runs,
        "statistics": statistics.summary(runs, who.name),
        "environment": provenance.environment(),
        "seconds": _seconds(runs),
    }


def _cells(rules: Rules, seed: int, lacking: dict[str, str]) -> list[tracks.Cell]:
    """Return the cells to run, drawn by ``seed``, whose data are available."""
    every = tracks.cells(seed, rules.track, rules.demo)
    here = [cell for cell in every if cell.family not in lacking]
    if not here:
        raise FltnbError(
            "No cell of this track can run here, because its data are missing: get "
            "them as said above, or choose another track."
        )
    return here


def _tasks(
    who: Entry, cells: Sequence[tracks.Cell], seed: int, best: dict[str, dict]
) -> list[Task]:
    """Return the runs of a method on cells.

    ``best``: "method cell" -> options, of those that were tuned.
    """
    tasks = []
    for cell in cells:
        if not who.plays(cell.known):
            continue
        name = f"{who.name} {cell.name}"
        options = best.get(name, {})
        tasks.append(Task(who.where, cell, seed, options))
    return tasks


def _seconds(runs: Sequence[dict[str, Any]]) -> float:
    """Return the total time of runs."""
    total = sum(run["seconds"] for run in runs)
    return round(total, 1)


def _shown(cell: tracks.Cell) -> dict[str, Any]:
    """Return a card's entry for a cell: what a reader of the card has to know of it.

    Its federation is not written down: name and seed determine it.
    """
    return {
        "name": cell.name,
        "shift": cell.shift,
        "model": cell.model,
        "told": cell.told,
        "training": cell.training,
    }


def about(who: Entry) -> dict[str, Any]:
    """Return a card's entry for its method.

    ``own_evaluation``: it makes its own predictions, so check its source closely.
    """
    return {
        "name": who.name,
        "source": who.source,
        "digest": who.digest,
        "needs": sorted(who.needs),
        "space": plain(who.space),
        "own_evaluation": who.kind.evaluate is not Method.evaluate,
    }


def write(card: Card, file: Path | str) -> Path:
    """Write a card, one run a line, so that git shows which runs differ.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from fltnb import arena
    >>> card = {"method": "FedAvg", "runs": [{"seed": 0}, {"seed": 1}]}
    >>> file = arena.write(card, Path(mkdtemp()) / "card.json")
    >>> print(file.read_text().strip())
    {
     "method": "FedAvg",
     "runs": [
      {"seed": 0},
      {"seed": 1}
     ]
    }
    """
    lines = [json.dumps(run) for run in card["runs"]]
    runs = ",\n  ".join(lines)
    without = card | {"runs": []}
    text = json.dumps(without, indent=1) + "\n"
    whole = text.replace('"runs": []', f'"runs": [\n  {runs}\n ]', 1)
    return paths.write_text(file, whole)


def read(file: Path | str) -> Card:
    """Read a card that :func:`write` or ``python -m fltnb arena --out`` wrote.

    Raises FltnbError if the file is not a card, or has another format.

    Examples
    --------
    >>> from fltnb import arena
    >>> rules = arena.Rules("few-samples", demo=True)
    >>> card = arena.compete("FedAvg", rules)
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> file = arena.write(card, Path(mkdtemp()) / "card.json")
    >>> arena.read(file)["method"]["name"]
    'FedAvg'
    """
    mend = "give the file that --out wrote"
    no_card = FltnbError(f"{file} is not a card of the arena: {mend}.")
    with reading(file, mend, lambda error: no_card):
        card = json.loads(Path(file).read_text(encoding="utf-8"))
        found = card["format"]
        lacking = PARTS - card.keys()
    if found == FORMAT and lacking:
        raise FltnbError(f"{file} is a card without {min(lacking)}: run it again.")
    if found != FORMAT:
        raise FltnbError(
            f"{file} is a card of format {found}, and this version reads format "
            f"{FORMAT}: run the method again, or verify the card with the version of "
            "fltnb that its environment names."
        )
    return card


def table(found: Sequence[Card]) -> list[dict[str, Any]]:
    """Return a row for each card: the table of all methods."""
    return [_row(card) for card in found]


def _row(card: Card) -> dict[str, Any]:
    """Return a card's row of the table of all methods.

    The ranks of different cards are among different methods: each has only its own
    beside those that every card has.
    """
    name = card["method"]["name"]
    said = card["statistics"]
    return {
        "method": name,
        **said["means"][name],
        "rank": said["ranks"][name],
        "better than": statistics.better_than(said["comparisons"]),
        "tuned": card["rules"]["tuned"],
        "complete": card["complete"],
    }
