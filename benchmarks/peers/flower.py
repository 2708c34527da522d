"""W1 in Flower's simulation and in ours, in the same run.

``python -m benchmarks.peers.flower [--rounds 5] [--save]``. Flower's clients train as
its PyTorch quickstart has it: a module, a DataLoader, torch.optim.SGD, on one thread;
its strategy is its own FedAvg, with 20 of 100 nodes in a round. One Ray actor per core.
What counts is the time of a round once everything runs: two rounds of warm-up, and
evaluation, are left out. The contenders take turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time

import joblib

from ..common import load, save
from ..workloads import WORKLOADS, EngineRound, ModuleLoop, Workload

WARM_UP = 2  # rounds that are not timed
OURS = "fltnb pool"
THEIRS = "Flower simulation"


class Turns:
    """Seconds of every round, by contender.

    Flower's server calls back after each of its rounds, and then the others do theirs.
    """

    def __init__(self, work: Workload, ours: dict) -> None:
        self.theta = work.model.init(seed=0)
        self.ours = ours
        self.seconds: dict[str, list[float]] = {name: [] for name in (*ours, THEIRS)}
        self.begun = 0.0

    def __call__(self, round: int, arrays) -> None:
        """Note Flower's round, and let the others do it."""
        if round:  # before the first one there is a call as well
            self.seconds[THEIRS].append(time.perf_counter() - self.begun)
            for name, one in self.ours.items():
                begin = time.perf_counter()
                one.round(self.theta, round)
                self.seconds[name].append(time.perf_counter() - begin)
        self.begun = time.perf_counter()


def take_turns(
    work: Workload, ours: dict, rounds: int, cores: int
) -> dict[str, list[float]]:
    """Return the seconds of every round, by contender."""
    from flwr.app import ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from .flower_client import app

    server = ServerApp()
    turns = Turns(work, ours)

    @server.main()
    def main(grid, context):
        strategy = FedAvg(
            fraction_train=work.per_round / work.fed.n_clients,
            fraction_evaluate=0.0,
            min_train_nodes=work.per_round,
        )
        initial = ArrayRecord(work.model.build().state_dict())
        strategy.start(grid, initial, num_rounds=rounds + WARM_UP, evaluate_fn=turns)

    one_each = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": cores},
    }
    run_simulation(server, app, work.fed.n_clients, backend_config=one_each)
    return {name: values[WARM_UP:] for name, values in turns.seconds.items()}


def table(seconds: dict[str, list[float]], cores: int) -> list[dict]:
    """Print and return a row for every contender."""
    base = statistics.median(seconds[OURS])
    rows = []
    for name, values in seconds.items():
        median = statistics.median(values)
        fastest = min(values)
        slowest = max(values)
        print(
            f"{name:24} {median:7.3f} s a round ({fastest:.3f} to {slowest:.3f}), "
            f"{median / base:6.2f} x ours"
        )
        rows.append(
            {
                "contender": name,
                "seconds": median,
                "fastest": fastest,
                "slowest": slowest,
                "times_ours": median / base,
                "rounds": len(values),
                "cores": cores,
                "load_average": load(),
            }
        )
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.flower", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--rounds", type=int, default=5, help="that are timed")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write results/benchmarks/benchmarks_peers.csv",
    )
    options = parser.parse_args()
    try:
        import flwr
        import ray
    except ImportError as error:
        sys.exit(
            f"{error.name} is not installed, so there is nothing to compare with: see "
            "benchmarks/peers/README.md."
        )
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

    work = WORKLOADS["W1"]()
    cores = joblib.cpu_count()  # the pool's: a container may have less than all
    print(
        f"{work.what}\n    data: {work.origin}; {cores} cores, load average "
        f"{load():.2f}, {platform.platform()}"
    )
    loop = ModuleLoop(work, loader=True)
    pool = EngineRound(work, "pool")
    try:
        ours = {"DataLoader loop": loop, OURS: pool}
        seconds = take_turns(work, ours, options.rounds, cores)
    finally:
        pool.close()
    rows = table(seconds, cores)
    if options.save:
        versions = {"flwr": flwr.__version__, "ray": ray.__version__}
        save(rows, "benchmarks_peers.csv", {"workload": "W1"} | versions)


if __name__ == "__main__":
    main()
