"""Runs of notebook 05: FLT Table 5, the ablation on CIFAR-10 in scenario 2.

Sixteen lines (M, rho, E, T) and three methods. T = 50 is read off the runs with T = 100: stopping earlier changes
nothing before. So there are eight settings to run.
"""

from itertools import product

from ..results import Job
from .common import FEWER_SEEDS, PER_CLASS, rows

METHODS = ("fedsem", "flt_enc1", "flt_enc2")
GRID = {"clients": (100, 500), "participation": (0.2, 0.5), "local_epochs": (1, 5)}
TOY = GRID | {"clients": (25, 50), "participation": (0.2,)}  # the digits: other sizes, and shorter
SAMPLERS = {"as_written": GRID | {"participation": (0.2,), "local_epochs": (1,)}, "as_run": GRID}
"""Levels that are run with the other sampler as well, by variant."""


def jobs(profile: str) -> list[Job]:
    """Table 5: eight settings (M, rho, E), each up to the larger T; as run; and clients that hold equally much."""
    dataset, grid = ("digits", TOY) if profile == "demo" else ("cifar10", GRID)
    wanted: list[tuple[str, dict, dict]] = [("as_written", grid, {})]
    if profile != "demo":
        wanted += [("as_run", GRID, {})]
        wanted += [(variant, grid, {"sampler": f"{PER_CLASS} per class"}) for variant, grid in SAMPLERS.items()]
    runs = []
    for variant, grid, more in wanted:
        for *levels, name in product(*grid.values(), METHODS):
            line = dict(zip(grid, levels, strict=True)) | more
            runs += rows(name, dataset, variant, profile, FEWER_SEEDS[profile], 1, **line)
    return runs
