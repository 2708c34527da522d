"""The card: what a method was, what it was played on, and what came of it."""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import paths, provenance
from ..errors import FltnbError
from ..methods import Method
from ..settings import plain
from . import statistics, tracks, tuning
from .entry import Entry, beside, entry
from .play import Task, check_budget, play, tuned

FORMAT = 1
SEEDS = 5
POOL = 20
"""Seeds that a card's are drawn from, so that others' runs are found again."""

Card = dict[str, Any]
"""What :func:`compete` returns and a file has: JSON values."""


@dataclass(frozen=True)
class Rules:
    """What is played.

    Attributes
    ----------
    track : str, optional
        One only.
    demo : bool
        Small federations of the digits.
    tuned : bool
    """

    track: str | None = None
    demo: bool = False
    tuned: bool = False


def seeds_of(who: Entry) -> list[int]:
    """Return the seeds of a method's table, drawn from the hash of its source."""
    return sorted(random.Random(who.digest).sample(range(POOL), SEEDS))


def compete(
    where: str,
    rules: Rules,
    budget: float | None = None,
    jobs: int = 1,
    tell: Callable[[str], None] = print,
) -> Card:
    """Play a method and those that always stand beside it; return the card.

    Parameters
    ----------
    where : str
        ``my_method.py:MyMethod``, or the name of a method of this package.
    rules : Rules
    budget : float, optional
        Seconds; the card has what fits.
    jobs : int
        Runs at a time.
    tell : callable
        What is told sentences, such as which families' data is not here.

    Raises
    ------
    FltnbError
        As :func:`fltnb.arena.entry.entry` and :func:`fltnb.arena.play.play`; or the
        budget is over before a run of the method is there.
    """
    begun = time.monotonic()
    check_budget(budget)
    who = entry(where)
    if rules.tuned and not who.space:
        raise FltnbError(
            f"{who.name} declares no space: give it one, or leave out --tuned."
        )
    everybody = [who, *(entry(name) for name in beside(where))]
    lacking = tracks.lacking(rules.demo)
    for family, why in lacking.items():
        tell(f"{family} is left out: {why}")
    seeds = seeds_of(who)
    cells = {seed: _cells(rules, seed, lacking) for seed in (*seeds, tuning.SEED)}
    if not cells[seeds[0]]:
        raise FltnbError("No cell of this track can be played here.")

    best = {}
    if rules.tuned:
        trial_cells = cells[tuning.SEED]
        best = tuned(everybody, trial_cells, budget=budget, jobs=jobs, tell=tell)
    tasks = []
    for one in everybody:
        for seed in seeds:
            tasks += _tasks(one, cells[seed], seed, best)
    if budget is not None:
        budget = max(budget - (time.monotonic() - begun), 0.0)
    rows = play(tasks, budget, jobs, tell)
    if not any(row["method"] == who.name for row in rows):
        raise FltnbError("The budget ended before the first run: give more of it.")
    return {
        "format": FORMAT,
        "method": about(who),
        "rules": asdict(rules),
        "seeds": seeds,
        "cells": [_shown(cell) for cell in cells[seeds[0]]],
        "lacking": lacking,
        "tuned": best,
        "complete": len(rows) == len(tasks),
        "runs": rows,
        "statistics": statistics.summary(rows, who.name),
        "environment": provenance.environment(),
        "seconds": round(sum(row["seconds"] for row in rows), 1),
    }


def _tasks(
    who: Entry, cells: Sequence[tracks.Cell], seed: int, best: dict[str, dict]
) -> list[Task]:
    """Return the runs of a method on cells; ``best`` has options of those tuned."""
    tasks = []
    for cell in cells:
        options = best.get(f"{who.name} {cell.name}", {})
        tasks.append(Task(who.where, cell, seed, options))
    return tasks


def _cells(rules: Rules, seed: int, lacking: dict[str, str]) -> list[tracks.Cell]:
    every = tracks.cells(seed, rules.track, rules.demo)
    return [one for one in every if one.family not in lacking]


def _shown(cell: tracks.Cell) -> dict[str, Any]:
    """Return what a card says about a cell."""
    shown = {"name": cell.name, "shift": cell.shift, "model": cell.model}
    return shown | {"told": cell.told, "training": cell.training}


def about(who: Entry) -> dict[str, Any]:
    """Return what a card says about its method.

    ``own_evaluation``: it predicts by itself, so its source wants a closer look.
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
    """Write a card, one run a line."""
    lines = [json.dumps(run) for run in card["runs"]]
    runs = ",\n  ".join(lines)
    rest = json.dumps(card | {"runs": []}, indent=1)
    text = rest.replace('"runs": []', f'"runs": [\n  {runs}\n ]', 1)
    return paths.write_text(file, text + "\n")


def read(file: Path | str) -> Card:
    """Read a card.

    FltnbError: there is none, or it is of another format.
    """
    try:
        card = json.loads(Path(file).read_text(encoding="utf-8"))
        found = card["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FltnbError(
            f"{file} is no card of the arena: give what --out wrote."
        ) from error
    if found != FORMAT:
        raise FltnbError(
            f"{file} is a card of format {found}, and this is format {FORMAT}: play "
            "it again, or verify it with the version in its environment."
        )
    return card


def cards(folder: Path | None = None) -> list[Card]:
    """Return the cards of a folder, by default ``results/arena``, by name of file."""
    folder = paths.ROOT / "results" / "arena" if folder is None else folder
    return [read(file) for file in sorted(folder.glob("*.json"))]


def table(found: Sequence[Card]) -> list[dict[str, Any]]:
    """Return a row for each card: what the table of all methods says."""
    return [_row(card) for card in found]


def _row(card: Card) -> dict[str, Any]:
    name = card["method"]["name"]
    said = card["statistics"]
    better = []
    for one in said["comparisons"]:
        if one["verdict"] == "better":
            better.append(one["other"])
    return {
        "method": name,
        **said["means"][name],
        "rank": said["ranks"][name],
        "better than": ", ".join(better) or "nobody",
        "tuned": card["rules"]["tuned"],
        "complete": card["complete"],
    }
