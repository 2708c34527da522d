"""Runs of notebook 05: FLT Table 5, the ablation on CIFAR-10 in scenario 2.

Sixteen lines (M, rho, E, T) and three methods. T = 50 is read off the runs with T = 100, so there are eight settings.
"""

from itertools import product

from ..results import Job
from .common import FEWER_SEEDS, SAMPLERS, SEEDS, rows

METHODS = ("fedsem", "flt_enc1", "flt_enc2")
GRID = {"clients": (100, 500), "participation": (0.2, 0.5), "local_epochs": (1, 5)}
TOY = GRID | {
    "clients": (25, 50),
    "participation": (0.2,),
}  # the digits: other sizes, and shorter
FEW = GRID | {"participation": (0.2,), "local_epochs": (1,)}


def jobs(profile: str) -> list[Job]:
    """Table 5: eight settings (M, rho, E), each up to the larger T; as run with both samplers, as written in two."""
    once, each = SAMPLERS.values()
    dataset, grid = ("digits", TOY) if profile == "demo" else ("cifar10", GRID)
    more = (
        [("as_run", each, GRID), ("as_run", once, GRID), ("as_written", each, FEW)]
        if profile != "demo"
        else []
    )
    runs = []
    for variant, sampler, levels in [("as_written", once, grid), *more]:
        seeds = (
            SEEDS[profile]
            if (variant, sampler) == ("as_run", each)
            else FEWER_SEEDS[profile]
        )
        for *line, name in product(*levels.values(), METHODS):
            line = dict(zip(levels, line, strict=True))
            runs += rows(
                name, dataset, variant, profile, seeds, 1, **line, sampler=sampler
            )
    return runs
