"""A LeNet of one's own beside the built-in one: the same numbers, and how fast.

``python -m benchmarks.own [--repetitions 3] [--clients 20] [--samples 500]``. First
three rounds of FedAvg in float64 from the same weights. Then rounds of training, where
contenders take turns and the fastest one counts: plain loops over a module, the
engine's back ends with the same module, and the compiled kernels that only built-in
networks have.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from torch import nn

import fltnb as fl
from fltnb import models

from .common import load
from .workloads import EngineRound, ModuleLoop, Workload, random_workload

BASE = "DataLoader loop"


class LeNet(nn.Module):
    """The network that is built in as ``lenet``, as anybody would write it."""

    def __init__(self, shape: tuple[int, int, int], n_outputs: int) -> None:
        super().__init__()
        channels, height, width = shape
        pad = 2 if min(height, width) < models.UNPADDED else 0
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=pad)
        self.conv2 = nn.Conv2d(6, 16, 5, padding=pad)
        sides = []
        for side in (height, width):
            half = (side - 4 + 2 * pad) // 2
            sides.append((half - 4 + 2 * pad) // 2)
        self.fc1 = nn.Linear(16 * sides[0] * sides[1], 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (b, C, H, W) to outputs (b, n_outputs)."""
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)
        x = self.fc1(x.flatten(1)).relu()
        return self.fc3(self.fc2(x).relu())


def like_built_in(fed: fl.Federation, seed: int = 0) -> LeNet:
    """Return a LeNet with the weights that a run of the built-in one starts from."""
    built_in = models.make("lenet", fed.input_shape, fed.n_classes)
    module = LeNet(fed.input_shape, fed.n_classes)
    weights = torch.from_numpy(built_in.init(seed))
    nn.utils.vector_to_parameters(weights, module.parameters())
    return module


def gap(rounds: int = 3) -> dict[str, float]:
    """Return the largest differences of two float64 runs, own and built-in.

    Of test accuracies in points, and of weights.
    """
    fed = fl.federations.label_clusters(
        fl.load("digits"), 10, 2, 5, samples_per_client=60, shared_classes=0, seed=0
    )
    training = {"rounds": rounds, "participation": 1.0, "lr": 0.1, "dtype": "float64"}
    method = fl.methods.FedAvg()
    given = ["lenet", like_built_in(fed)]
    runs = [fl.run(method, fed, net, **training, progress=False) for net in given]
    accuracy = [run.history["accuracy"].to_numpy() for run in runs]
    return {
        "accuracy": float(np.abs(accuracy[0] - accuracy[1]).max()),
        "weights": float(np.abs(runs[0].theta - runs[1].theta).max()),
    }


def contenders(work: Workload) -> dict[str, ModuleLoop | EngineRound]:
    """Return the loops, and the engine with the own network and the built-in one."""
    module = like_built_in(work.fed)
    own = replace(work, model=models.shaped(module, work.fed))
    made = {
        BASE: ModuleLoop(own, loader=True),
        "lean module loop": ModuleLoop(own, loader=False),
        "own, serial": EngineRound(own, "serial"),
        "own, pool": EngineRound(own, "pool"),
        "built-in, pool (kernels)": EngineRound(work, "pool"),
    }
    if torch.cuda.is_available():
        made["own, torch.func on a GPU"] = EngineRound(own, "stacked", device="cuda")
        made["built-in, stacked on a GPU"] = EngineRound(work, "stacked", device="cuda")
    return made


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--samples", type=int, default=500)
    asked = parser.parse_args()

    found = gap()
    print(
        f"float64, three rounds: accuracies differ by {found['accuracy']:.1e} points, "
        f"weights by {found['weights']:.1e}"
    )
    work = random_workload(
        "own", "lenet", (32, 32, 3), 10, asked.samples, asked.clients
    )
    work = replace(work, per_round=asked.clients)
    print(f"{work.what}; load {load():.1f}")
    made = contenders(work)
    theta = work.model.init(seed=0)
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for one in made.values():
        one.round(theta, 0)  # warms up
    for repetition in range(asked.repetitions):
        for name, one in made.items():
            begun = time.perf_counter()
            one.round(theta, repetition)
            seconds[name].append(time.perf_counter() - begun)
    base = min(seconds[BASE])
    for name, values in seconds.items():
        least = min(values)
        print(f"{name:28} {least:7.3f} s a round, {base / least:5.2f}x")
    for one in made.values():
        one.close()


if __name__ == "__main__":
    main()
