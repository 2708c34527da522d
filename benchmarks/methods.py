"""Time per round and peak memory of the 17 methods of EMD-CFL's tables.

``python -m benchmarks.methods [NAME ...]``. Rotated MNIST at small scale: 40 clients of
four rotations with 200 images each (180 to train on), one hidden layer of 200, ten
local epochs in batches of 64, everybody in every round. Every method runs in a process
of its own, on the serial back end and with one thread, so that neither workers nor
neighbours in memory count. Seconds are processor time, tests after each round included:
wall time depends on what else the machine does. Memory is the largest that the process
ever had; what it had before the run (libraries, data) stands beside it. ``--save``
writes results/benchmarks/methods_cost.csv.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import fltnb as fl

from .common import measured, peak, processor, refuse_unknown, save

FEDERATION = {
    "kind": "rotated_copies",
    "dataset": "mnist",
    "n_clients": 40,
    "samples_per_client": 200,
    "test_per_client": 100,
}
MODEL = "mlp_plain"
TRAINING = {
    "local_epochs": 10,
    "participation": 1.0,
    "batch_size": 64,
    "lr": 0.01,
    "momentum": 0.9,
    "weight_decay": 1e-6,
}
HERE = {"device": "cpu", "backend": "serial", "progress": False, "n_jobs": 1}
ROUNDS = 3
SAVED = "methods_cost.csv"


def methods(n_clusters: int) -> dict[str, fl.methods.Method]:
    """Return the methods as their own papers describe them, with K where they need it.

    They stand in the order of EMD-CFL's tables: hard clusters, soft ones, one model for
    all, one model each.
    """
    m = fl.methods
    pacfl = fl.clustering.PACFL(n_clusters=n_clusters)
    emd = fl.EMDClustering(tolerance=0.025)
    return {
        "oracle": m.Oracle(rule="participants"),
        "emdcfl": m.EMDCFL(clusterer=emd),
        "pacfl": m.PACFL(clusterer=pacfl, rule="participants"),
        "fedclust": m.FedClust(n_clusters=n_clusters),
        "flexcfl": m.FlexCFL(n_clusters=n_clusters),
        "cflgp": m.CFLGP(n_clusters=n_clusters),
        "cfl": m.CFL(warmup=1, weighting="samples"),
        "ifca": m.IFCA(n_clusters=n_clusters, split="val"),
        "fesem": m.FeSEM(n_clusters=n_clusters, rule="participants", lam=0.05),
        "fedem": m.FedEM(n_clusters=n_clusters),
        "fedsoft": m.FedSoft(n_clusters=n_clusters),
        "fedrc": m.FedRC(n_clusters=n_clusters),
        "fedce": m.FedCE(n_clusters=n_clusters),
        "fedavg": m.FedAvg(rule="participants"),
        "fedprox": m.FedProx(rule="participants", mu=0.1),
        "pfedgraph": m.PFedGraph(),
        "fedsac": m.FedSaC(),
    }


def measure(
    name: str, rounds: int = ROUNDS, federation: dict[str, Any] = FEDERATION
) -> dict[str, Any]:
    """Run one method in this process.

    Returns
    -------
    dict
        ``method``; processor time of the ``first_round`` (with what is done once) and
        of ``later_rounds`` (mean of each), seconds; ``seconds``, wall time a round;
        ``before`` and ``peak``, GiB; ``kilobytes`` that a client sends and receives a
        round, what is done once included; ``rounds``.
    """
    import torch

    torch.set_num_threads(1)
    fed = fl.federations.build(federation)

    def run(fed: fl.Federation, rounds: int, **options: Any):
        method = methods(fed.n_clusters)[name]
        return fl.run(method, fed, MODEL, rounds=rounds, **TRAINING | HERE | options)

    # Once before the clock starts: what is imported and set up on first use takes
    # longer than a round. With few clients: what the method itself needs for all of
    # them is no part of the memory before.
    few = federation | {"n_clients": fed.n_clusters}
    run(fl.federations.build(few), 1, local_epochs=1)
    before = peak()
    start = processor()
    run(fed, 1)
    first = processor() - start
    # The first round of the longer run is the same.
    start = processor()
    done = run(fed, rounds)
    whole = processor() - start

    moved = done.history.iloc[-1][["bytes_up", "bytes_down"]].sum()
    return {
        "method": name,
        "first_round": first,
        "later_rounds": (whole - first) / (rounds - 1),
        "seconds": done.seconds / rounds,
        "before": before,
        "peak": peak(),
        "kilobytes": moved / fed.n_clients / rounds / 1000,
        "rounds": rounds,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    names = list(methods(2))
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.methods", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument(
        "methods", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default all"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"2 or more, {ROUNDS} by default"
    )
    parser.add_argument(
        "--save", action="store_true", help=f"write results/benchmarks/{SAVED}"
    )
    parser.add_argument(
        "--one", action="store_true", help="in this process, printed as JSON"
    )
    options = parser.parse_args(arguments)
    refuse_unknown(parser, "method", options.methods, names)
    if options.rounds < 2:
        parser.error(
            "--rounds must be 2 or more: the first round is measured apart from the "
            "others"
        )
    if options.one:
        for name in options.methods:
            print(json.dumps(measure(name, options.rounds)))
        return

    print(
        "Processor seconds per round, GiB, kB per client and round; serial back end, "
        "one thread, one process a method."
    )
    rows = []
    for name in options.methods or names:
        row = measured("methods", "--one", name, "--rounds", str(options.rounds))
        rows.append(row)
        shown = [f"{k} {value:.2f}" for k, value in row.items() if type(value) is float]
        print(f"{name:<10}", *shown, sep="  ", flush=True)
    if options.save:
        settings = {
            "federation": FEDERATION,
            "model": MODEL,
            "backend": "serial, one thread",
        }
        save(rows, SAVED, settings)


if __name__ == "__main__":
    main()
