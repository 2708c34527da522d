"""The card: what a method was, what it was played on, and what came of it."""

import json
import math
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import paths, provenance
from ..errors import FltnbError
from ..methods import Method
from ..progress import bar
from ..settings import plain
from . import statistics, tracks, tuning
from .entry import Entry, beside, entry, of_source
from .play import Task, play, played, tuned

FORMAT = 1
SEEDS = 5
POOL = 20
"""Seeds that a card's are drawn from, so that others' runs are found again."""
TOLERANCE = {"accuracy": 0.5, "worst": 5.0, "ari": 0.1, "bytes": 0}
"""How far a number that is computed again may be off, on another processor."""


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
) -> dict[str, Any]:
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
            for cell in cells[seed]:
                options = best.get(f"{one.name} {cell.name}", {})
                tasks.append(Task(one.where, cell, seed, options))
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


def write(card: dict[str, Any], file: Path | str) -> Path:
    """Write a card, one run a line."""
    lines = [json.dumps(row) for row in card["runs"]]
    rest = json.dumps(card | {"runs": []}, indent=1)
    runs = ",\n  ".join(lines)
    text = rest.replace('"runs": []', f'"runs": [\n  {runs}\n ]', 1)
    return paths.write_text(file, text + "\n")


def read(file: Path | str) -> dict[str, Any]:
    """Read a card.

    FltnbError: there is none, or it is of another format.
    """
    path = Path(file)
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
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


def verify(
    card: dict[str, Any],
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
    with tempfile.TemporaryDirectory() as folder:
        name = card["method"]["name"]
        source = card["method"]["source"]
        who = of_source(source, name, Path(folder)) if source else entry(name)
        wrong = _said_wrongly(card, who)
        rows = card["runs"]
        drawn = random.Random(seed).sample(range(len(rows)), math.ceil(len(rows) / 3))
        tell(f"{len(drawn)} of {len(rows)} runs are computed again, drawn by {seed}.")
        every = [rows[place] for place in sorted(drawn)]
        for row in bar(every, desc="verify", unit="run"):
            wrong += _differing(row, _again(card, row, who))
    return wrong


def _said_wrongly(card: dict[str, Any], who: Entry) -> list[str]:
    """Return what can be seen without a run."""
    wrong = []
    if card["method"]["digest"] != who.digest:
        wrong.append("The source is not the one whose hash the card has.")
    if card["seeds"] != seeds_of(who):
        wrong.append("The seeds are not those of the source.")
    if any(row["seed"] not in card["seeds"] for row in card["runs"]):
        wrong.append("Some run has none of the card's seeds.")
    if card["statistics"] != statistics.summary(card["runs"], who.name):
        wrong.append("The statistics are not those of the card's runs.")
    trials = plain(tuning.trials(who.space))
    for row in card["runs"]:
        own = row["method"] == who.name
        if own and row["options"] and row["options"] not in trials:
            wrong.append("Some options are none of the trials.")
            break
    return wrong


def _again(card: dict[str, Any], row: dict[str, Any], who: Entry) -> dict[str, Any]:
    """Play a run of a card once more."""
    one = who if row["method"] == who.name else entry(row["method"])
    level = tracks.LEVELS.index(row["level"])
    demo = card["rules"]["demo"]
    cell = tracks.cell(row["track"], row["family"], level, row["seed"], demo)
    return played(Task(one.where, cell, row["seed"], row["options"]), one)


def _differing(row: dict[str, Any], again: dict[str, Any]) -> list[str]:
    """Return a sentence for each number of a run that does not hold."""
    place = [row["method"], row["track"], row["family"], row["level"]]
    run = f"{', '.join(place)}, seed {row['seed']}"
    if bool(row["failed"]) != bool(again["failed"]):
        failed = "failed" if row["failed"] else "did not fail"
        return [f"{run}: the card says that it {failed}, which is not so here."]
    wrong = []
    for measure, most in TOLERANCE.items():
        said = row[measure]
        found = again[measure]
        same = said == found
        if said is not None and found is not None:
            same = abs(said - found) <= most
        if not same:
            wrong.append(f"{run}: {measure} is {found}, and the card says {said}.")
    return wrong


def cards(folder: Path | None = None) -> list[dict[str, Any]]:
    """Return the cards of a folder, by default ``results/arena``, by name of file."""
    folder = paths.ROOT / "results" / "arena" if folder is None else folder
    return [read(file) for file in sorted(folder.glob("*.json"))]


def table(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each card: what the table of all methods says."""
    rows = []
    for card in found:
        name = card["method"]["name"]
        said = card["statistics"]
        verdicts = said["comparisons"]
        better = [one["other"] for one in verdicts if one["verdict"] == "better"]
        rows.append(
            {"method": name}
            | said["means"][name]
            | {
                "rank": said["ranks"][name],
                "better than": ", ".join(better) or "nobody",
                "tuned": card["rules"]["tuned"],
                "complete": card["complete"],
            }
        )
    return rows
