"""Runs of notebook 05: FLT Table 5, the ablation on CIFAR-10 in scenario 2.

Sixteen lines (M, rho, E, T) and three methods. T = 50 is read off the runs with T = 100: stopping earlier changes
nothing before. So there are eight settings to run.
"""

from __future__ import annotations

from itertools import product

from ..results import Job
from .common import SEEDS, federation, method, training

METHODS = ("fedsem", "flt_enc1", "flt_enc2")
GRID = {"clients": (100, 500), "participation": (0.2, 0.5), "local_epochs": (1, 5)}
TOY = GRID | {"clients": (25, 50), "participation": (0.2,)}  # the digits: other sizes, and shorter
ROUNDS = {"demo": (3, 6), "small": (50, 100), "paper": (50, 100)}
# What two cores do in reasonable time: both numbers of clients at participation 0.2 with one local epoch, 4 minutes of
# both cores a run. The others cost 2.5 times (rho = 0.5), 5 times (E = 5) or 12 times (both) as much; Enc2 on CIFAR-10
# takes most of an hour for pretraining and tuning alone.
SMALL_METHODS = ("fedsem", "flt_enc1")
SMALL_LINES = {(100, 0.2, 1), (500, 0.2, 1)}


def jobs(profile: str) -> list[Job]:
    """Table 5: eight settings (M, rho, E), each up to the larger T."""
    dataset, grid = ("digits", TOY) if profile == "demo" else ("cifar10", GRID)
    lines = [dict(zip(grid, levels, strict=True)) for levels in product(*grid.values())]
    return [
        _row(dataset, name, line, seed, profile)
        for line in lines
        for name in METHODS
        for seed in SEEDS[profile][: 1 if profile == "small" else None]
        if profile != "small" or (name in SMALL_METHODS and tuple(line.values()) in SMALL_LINES)
    ]


def _row(dataset: str, name: str, line: dict[str, float], seed: int, profile: str) -> Job:
    own = {"participation": line["participation"], "local_epochs": line["local_epochs"]}
    return Job.training(
        federation(dataset, "as_written", seed, shared_classes=1, n_clients=line["clients"]),
        method(name, dataset, "as_written", profile, n_classes=3),
        **training(dataset, "as_written", profile) | own | {"rounds": ROUNDS[profile][-1]},
        seed=seed,
        axes={"dataset": dataset, "method": name, "variant": "as_written", **line},
    )
