"""W1 in Flower's simulation and in ours, in the same run: ``python -m benchmarks.peers.flower [--rounds 5] [--save]``.

Flower's clients train as its PyTorch quickstart has it: a module, a DataLoader, torch.optim.SGD, on one thread; its
strategy is its own FedAvg, with 20 of 100 nodes in a round. One Ray actor per core. What counts is the time of a round
once everything runs: two rounds of warm-up, and evaluation, are left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time

import numpy as np

from ..common import load, save
from ..workloads import LR, EngineRound, ModuleLoop, Workload, workloads

WARM_UP = 2  # rounds that are not timed


def flower_seconds(work: Workload, rounds: int, cores: int) -> list[float]:
    """Seconds of every round in Flower's simulation, but those of warm-up."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, ends = ClientApp(), ServerApp(), []
    module = work.model.build()
    initial = module.state_dict()

    @client.train()
    def train(message: Message, context) -> Message:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        torch.set_num_threads(1)
        number = int(context.node_config["partition-id"])
        module = work.model.build()
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = TensorDataset(*(torch.from_numpy(array) for array in work.fed.client(number)))
        sgd, loss = torch.optim.SGD(module.parameters(), lr=LR), torch.nn.CrossEntropyLoss()
        for x, y in DataLoader(data, batch_size=work.batch, shuffle=True):
            sgd.zero_grad()
            loss(module(x), y).backward()
            sgd.step()
        content = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": len(data)})}
        return Message(RecordDict(content), reply_to=message)

    def ended(round, arrays):
        ends.append(time.perf_counter())

    @server.main()
    def main(grid, context):
        share = work.per_round / work.fed.n_clients
        strategy = FedAvg(fraction_train=share, fraction_evaluate=0.0, min_train_nodes=work.per_round)
        strategy.start(grid, ArrayRecord(initial), num_rounds=rounds + WARM_UP, evaluate_fn=ended)

    one_each = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": cores}}
    run_simulation(server, client, work.fed.n_clients, backend_config=one_each)
    return np.diff(ends)[WARM_UP:].tolist()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.flower", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="that are timed")
    parser.add_argument("--save", action="store_true", help="write results/small/benchmarks_peers.csv")
    options = parser.parse_args()
    try:
        import flwr
        import ray
    except ImportError as error:
        sys.exit(f"{error.name} is not installed, so there is nothing to compare with: see benchmarks/peers/README.md.")
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    work, cores = workloads()["W1"](), os.cpu_count() or 1
    print(f"{work.what}\n    data: {work.origin}; {cores} cores, load average {load():.2f}, {platform.platform()}")
    theta, seconds = work.model.init(seed=0), {}
    ours = {"DataLoader loop": ModuleLoop(work, loader=True), "fltnb pool": EngineRound(work, "pool")}
    for name, one in ours.items():
        seconds[name] = []
        for round in range(options.rounds + WARM_UP):
            begin = time.perf_counter()
            one.round(theta, round)
            seconds[name].append(time.perf_counter() - begin)
        del seconds[name][:WARM_UP]
        one.close()
    seconds[f"Flower {flwr.__version__} simulation"] = flower_seconds(work, options.rounds, cores)
    base, rows = statistics.median(seconds["fltnb pool"]), []
    for name, values in seconds.items():
        median = statistics.median(values)
        print(
            f"{name:24} {median:7.3f} s a round ({min(values):.3f} to {max(values):.3f}), {median / base:6.2f} x ours"
        )
        rows.append({"contender": name, "seconds": median, "fastest": min(values), "slowest": max(values)})
        rows[-1] |= {"times_ours": median / base, "rounds": len(values), "cores": cores, "load_average": load()}
    if options.save:
        save(rows, "benchmarks_peers.csv", {"workload": "W1", "flwr": flwr.__version__, "ray": ray.__version__})


if __name__ == "__main__":
    main()
