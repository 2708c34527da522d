"""The methods since 2019 beside FedAvg and IFCA, on three cells of the arena.

    python -m benchmarks.new_methods             # some minutes of one core
    python -m benchmarks.new_methods --seeds 5

What can be compared with the figures of their own papers, which are of other data and
longer runs, is the order alone: docs/arena.md has the table. The kept runs of the arena
are used.
"""

import argparse

import numpy as np

from fltnb.arena import play, tracks
from fltnb.arena.page import markdown

METHODS = ("Local", "FedAvg", "IFCA", "CLoVE", "FLUX", "FedCollab", "FLHC", "OCFL")
METHODS += ("StoCFL", "FedDrift", "Ditto", "FedPer", "FedRep")
CELLS = (("told-K", "labels"), ("told-K", "rotated"), ("told-K", "opinions"))
LEVEL = 0  # easy


def tasks(method: str, track: str, family: str, seeds: int) -> list[play.Task]:
    """Return the runs of a method on a cell."""
    found = []
    for seed in range(seeds):
        cell = tracks.cell(track, family, LEVEL, seed)
        found.append(play.Task(method, cell, seed, {}))
    return found


def shown(numbers: list[dict]) -> str:
    """Return mean accuracy, its range over seeds, and the mean Rand index."""
    failed = [one["failed"] for one in numbers if one["failed"]]
    if failed:
        return failed[0]
    accuracy = [one["accuracy"] for one in numbers]
    text = f"{np.mean(accuracy):.1f} ({min(accuracy):.1f} to {max(accuracy):.1f})"
    found = [one["ari"] for one in numbers if one["ari"] is not None]
    return f"{text}, {np.mean(found):.2f}" if found else text


def main() -> None:
    """Play the runs that are missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2, metavar="N")
    asked = parser.parse_args()
    rows = []
    for method in METHODS:
        row = {"method": method}
        for track, family in CELLS:
            numbers = play.play(tasks(method, track, family, asked.seeds))
            row[family] = shown(numbers)
        rows.append(row)
        print(row, flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
