"""Time per round and peak memory of the 17 methods of EMD-CFL's tables: ``python -m benchmarks.methods [NAME ...]``.

Rotated MNIST at small scale: 40 clients of four rotations with 200 images each (180 to train on), one hidden layer of
200, ten local epochs in batches of 64, everybody in every round. Every method runs in a process of its own, on the
serial back end and with one thread, so that neither workers nor neighbours in memory count. Seconds are processor
time, tests after each round included: wall time depends on what else the machine does. Memory is the largest that the
process ever had; what it had before the run (libraries, data) stands beside it. ``--save`` writes
results/small/methods_cost.csv.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from .common import measured, peak, processor, save

FEDERATION = {
    "kind": "rotated_copies",
    "dataset": "mnist",
    "n_clients": 40,
    "samples_per_client": 200,
    "test_per_client": 100,
}
MODEL, ROUNDS = "mlp_plain", 3
SAVED = "methods_cost.csv"


def measure(
    name: str, rounds: int = ROUNDS, federation: dict[str, Any] = FEDERATION
) -> dict[str, Any]:
    """Run one method in this process.

    Returns
    -------
    dict
        ``method``; processor time of the ``first_round`` (with what is done once) and of ``later_rounds`` (mean of
        each), seconds; ``seconds``, wall time a round; ``before`` and ``peak``, GiB; ``kilobytes`` that a client sends
        and receives a round, what is done once included; ``rounds``.
    """
    import torch

    import fltnb as fl
    from fltnb.studies import emdcfl

    torch.set_num_threads(1)
    fed = fl.federations.build(federation)
    settings = emdcfl.method(name, fed.n_clusters)
    training = {key: value for key, value in emdcfl.TRAINING.items() if key != "rounds"}
    options = {
        "model": MODEL,
        **training,
        "device": "cpu",
        "backend": "serial",
        "progress": False,
        "n_jobs": 1,
    }
    # once before the clock starts: what is imported and set up on first use takes longer than a round
    fl.run(fl.methods.build(settings), fed, rounds=1, **options | {"local_epochs": 1})
    before, used, runs = peak(), [processor()], []
    for length in (1, rounds):  # of which the first round is the same
        runs.append(fl.run(fl.methods.build(settings), fed, rounds=length, **options))
        used.append(processor())
    first, whole = used[1] - used[0], used[2] - used[1]
    moved = runs[-1].history.iloc[-1][["bytes_up", "bytes_down"]].sum()
    return {
        "method": name,
        "first_round": first,
        "later_rounds": (whole - first) / (rounds - 1),
        "seconds": runs[-1].seconds / rounds,
        "before": before,
        "peak": peak(),
        "kilobytes": moved / fed.n_clients / rounds / 1000,
        "rounds": rounds,
    }


def one(name: str, rounds: int) -> dict[str, Any]:
    """Run one method in a process of its own."""
    return measured("methods", "--one", name, "--rounds", str(rounds))


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    from fltnb.studies.emdcfl import METHODS

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.methods", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument(
        "methods",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(METHODS)}; default all",
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"2 or more, {ROUNDS} by default"
    )
    parser.add_argument(
        "--save", action="store_true", help=f"write results/small/{SAVED}"
    )
    parser.add_argument(
        "--one", action="store_true", help="in this process, printed as JSON"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.methods) - set(METHODS):
        parser.error(
            f"unknown method {', '.join(sorted(unknown))}: choose of {', '.join(METHODS)}"
        )
    if options.rounds < 2:
        parser.error(
            "--rounds must be 2 or more: the first round is measured apart from the others"
        )
    if options.one:
        for name in options.methods:
            print(json.dumps(measure(name, options.rounds)))
        return
    print(
        "Processor seconds per round, GiB, kB per client and round; serial back end, one thread, one process a method."
    )
    rows = []
    for name in options.methods or METHODS:
        rows.append(one(name, options.rounds))
        shown = [
            f"{key} {value:.2f}"
            for key, value in rows[-1].items()
            if isinstance(value, float)
        ]
        print(f"{name:<10}", *shown, sep="  ", flush=True)
    if options.save:
        save(
            rows,
            SAVED,
            {"federation": FEDERATION, "model": MODEL, "backend": "serial, one thread"},
        )


if __name__ == "__main__":
    main()
