"""Runs of notebook 05: FLT Table 5, the ablation on CIFAR-10 in scenario 2.

Sixteen lines (M, rho, E, T) and three methods. T = 50 is read off the runs with T = 100: stopping earlier changes
nothing before. So there are eight settings to run.
"""

from __future__ import annotations

from itertools import product

from ..results import Job
from .common import FEWER_SEEDS, row

METHODS = ("fedsem", "flt_enc1", "flt_enc2")
GRID = {"clients": (100, 500), "participation": (0.2, 0.5), "local_epochs": (1, 5)}
TOY = GRID | {"clients": (25, 50), "participation": (0.2,)}  # the digits: other sizes, and shorter
ROUNDS = {"demo": 6, "small": 100, "paper": 100}
# What two cores do in reasonable time: both numbers of clients at participation 0.2 with one local epoch, 4 minutes of
# both cores a run. The others cost 2.5 times (rho = 0.5), 5 times (E = 5) or 12 times (both) as much; Enc2 on CIFAR-10
# takes most of an hour for pretraining and tuning alone.
SMALL = GRID | {"participation": (0.2,), "local_epochs": (1,)}
SMALL_METHODS = ("fedsem", "flt_enc1")


def jobs(profile: str) -> list[Job]:
    """Table 5: eight settings (M, rho, E), each up to the larger T."""
    dataset, grid = {"demo": ("digits", TOY), "small": ("cifar10", SMALL)}.get(profile, ("cifar10", GRID))
    return [
        row(
            name,
            dataset,
            "as_written",
            seed,
            profile,
            1,
            rounds=ROUNDS[profile],
            **dict(zip(grid, levels, strict=True)),
        )
        for levels in product(*grid.values())
        for name in (SMALL_METHODS if profile == "small" else METHODS)
        for seed in FEWER_SEEDS[profile]
    ]
