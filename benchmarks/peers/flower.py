"""W1 in Flower's simulation and in ours, in the same run: ``python -m benchmarks.peers.flower [--rounds 5] [--save]``.

Flower's clients train as its PyTorch quickstart has it: a module, a DataLoader, torch.optim.SGD, on one thread; its
strategy is its own FedAvg, with 20 of 100 nodes in a round. One Ray actor per core. What counts is the time of a round
once everything runs: two rounds of warm-up, and evaluation, are left out. The contenders take turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time

from ..common import load, save
from ..workloads import EngineRound, ModuleLoop, Workload, workloads

WARM_UP = 2  # rounds that are not timed
OURS, THEIRS = "fltnb pool", "Flower simulation"


def take_turns(
    work: Workload, ours: dict, rounds: int, cores: int
) -> dict[str, list[float]]:
    """Seconds of every round: Flower's server calls back after each of its rounds, and then the others do theirs."""
    from flwr.app import ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from .flower_client import app

    server, theta = ServerApp(), work.model.init(seed=0)
    seconds: dict[str, list[float]] = {name: [] for name in (*ours, THEIRS)}
    begun = 0.0

    def after(round, arrays):
        nonlocal begun
        if round:  # before the first one there is a call as well
            seconds[THEIRS].append(time.perf_counter() - begun)
            for name, one in ours.items():
                begin = time.perf_counter()
                one.round(theta, round)
                seconds[name].append(time.perf_counter() - begin)
        begun = time.perf_counter()

    @server.main()
    def main(grid, context):
        share, initial = (
            work.per_round / work.fed.n_clients,
            ArrayRecord(work.model.build().state_dict()),
        )
        strategy = FedAvg(
            fraction_train=share, fraction_evaluate=0.0, min_train_nodes=work.per_round
        )
        strategy.start(grid, initial, num_rounds=rounds + WARM_UP, evaluate_fn=after)

    one_each = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": cores},
    }
    run_simulation(server, app, work.fed.n_clients, backend_config=one_each)
    return {name: values[WARM_UP:] for name, values in seconds.items()}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.flower", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--rounds", type=int, default=5, help="that are timed")
    parser.add_argument(
        "--save", action="store_true", help="write results/small/benchmarks_peers.csv"
    )
    options = parser.parse_args()
    try:
        import flwr
        import ray
    except ImportError as error:
        sys.exit(
            f"{error.name} is not installed, so there is nothing to compare with: see benchmarks/peers/README.md."
        )
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    work, cores = workloads()["W1"](), os.cpu_count() or 1
    print(
        f"{work.what}\n    data: {work.origin}; {cores} cores, load average {load():.2f}, {platform.platform()}"
    )
    ours = {
        "DataLoader loop": ModuleLoop(work, loader=True),
        OURS: EngineRound(work, "pool"),
    }
    try:
        seconds = take_turns(work, ours, options.rounds, cores)
    finally:
        for one in ours.values():
            one.close()
    base, rows = statistics.median(seconds[OURS]), []
    for name, values in seconds.items():
        median = statistics.median(values)
        print(
            f"{name:24} {median:7.3f} s a round ({min(values):.3f} to {max(values):.3f}), {median / base:6.2f} x ours"
        )
        rows.append(
            {
                "contender": name,
                "seconds": median,
                "fastest": min(values),
                "slowest": max(values),
            }
        )
        rows[-1] |= {
            "times_ours": median / base,
            "rounds": len(values),
            "cores": cores,
            "load_average": load(),
        }
    if options.save:
        save(
            rows,
            "benchmarks_peers.csv",
            {"workload": "W1", "flwr": flwr.__version__, "ray": ray.__version__},
        )


if __name__ == "__main__":
    main()
