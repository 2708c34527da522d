"""All methods of the package in the arena: cards in ``results/arena``, one by one.

    python -m benchmarks.arena                   # every method on every track
    python -m benchmarks.arena --track told-K    # one track
    python -m benchmarks.arena --estimate        # what that takes, from a run of each
    python -m benchmarks.arena --table           # the table of the cards that are there

All methods are played on one track before the next begins. Runs are kept as they end,
and a card that is complete is not made again: a stopped command goes on from there.
"""

import argparse
import time
from pathlib import Path

from fltnb import paths
from fltnb.arena import Rules, compete, page, play, tracks
from fltnb.arena.card import SEEDS, Card, cards, read, table
from fltnb.arena.entry import entry
from fltnb.errors import FltnbError
from fltnb.methods import METHODS

TOGETHER = ["FedAvg", *(name for name in METHODS if name != "FedAvg")]
"""FedAvg first: the methods of every table are then played once, for it."""


def card_file(method: str, track: str, folder: Path) -> Path:
    """Where the card of a method on a track is written."""
    return folder / f"{track}_{method}.json"


def finished(file: Path) -> bool:
    """Whether a complete card is there."""
    return file.is_file() and read(file)["complete"]


def play_all(chosen: list[str], methods: list[str], demo: bool, jobs: int) -> None:
    """Write the cards that are missing, track by track."""
    folder = paths.ROOT / "results" / ("demo" if demo else "") / "arena"
    for track in chosen:
        for method in methods:
            file = card_file(method, track, folder)
            if finished(file):
                continue
            try:
                card = compete(method, Rules(track, demo), jobs=jobs)
            except FltnbError as error:
                print(f"{method} on {track}: {error}")
                continue
            page.save(card, file)
            print(f"{method} on {track}: {card['seconds']:g} s in {file.name}")


def seconds_of(method: str, track: str, demo: bool) -> float:
    """Return the processor time of one run on the first cell of a track."""
    who = entry(method)
    (cell, *_) = tracks.cells(0, track, demo)
    begun = time.process_time()
    play.played(play.Task(method, cell, 0, {}), who)
    return time.process_time() - begun


def estimate(chosen: list[str], methods: list[str], demo: bool) -> None:
    """Print what all runs take a core, from one run of each method on each track."""
    total = 0.0
    for track in chosen:
        n_runs = SEEDS * len(tracks.cells(0, track, demo))
        of_track = 0.0
        for method in methods:
            one = seconds_of(method, track, demo)
            of_track += one * n_runs
            print(f"{track:12} {method:12} {one:6.1f} s a run")
        print(f"{track}: {of_track / 3600:.1f} hours of one core")
        total += of_track
    print(f"all: {total / 3600:.1f} hours of one core")


def shown(found: list[Card]) -> None:
    """Print the table of the cards, track by track."""
    for track in tracks.TRACKS:
        there = [card for card in found if card["rules"]["track"] == track]
        if there:
            rows = sorted(table(there), key=lambda row: row["rank"])
            print(f"{track}\n\n{page.markdown(rows)}")


def main() -> None:
    """Read what is asked for, and do it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--track", choices=tracks.TRACKS, help="one track only")
    parser.add_argument("--methods", nargs="+", metavar="NAME", default=TOGETHER)
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--demo", action="store_true", help="small federations")
    parser.add_argument("--estimate", action="store_true")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    chosen = [asked.track] if asked.track else list(tracks.TRACKS)
    if asked.estimate:
        estimate(chosen, asked.methods, asked.demo)
        return
    if not asked.table:
        play_all(chosen, asked.methods, asked.demo, asked.jobs)
    folder = paths.ROOT / "results" / ("demo" if asked.demo else "") / "arena"
    shown(cards(folder))


if __name__ == "__main__":
    main()
