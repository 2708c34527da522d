"""Measure rounds of local training against plain PyTorch loops: ``python -m benchmarks.run [W1 W2 W3] [--save]``.

The contenders take turns within every repetition, so that a busy neighbour on the machine slows all of them; what
counts are the ratios. A round draws the clients, trains them and averages; evaluation is left out.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import torch

from fltnb import paths

from .common import load
from .workloads import EngineRound, ModuleLoop, Workload, workloads

BASE = "DataLoader loop"


def machine() -> dict[str, str | int]:
    """Return what the numbers depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": (names or [platform.processor() or platform.machine()])[0],
        "cores": joblib.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def measure(work: Workload) -> pd.DataFrame:
    """Time every contender on one workload; print and return the table, one row per contender."""
    print(f"\n{work.name}: {work.what}\n    data: {work.origin}")
    makers = {
        BASE: lambda: ModuleLoop(work, loader=True),
        "lean module loop": lambda: ModuleLoop(work, loader=False),
        "engine serial": lambda: EngineRound(work, "serial"),
        "engine pool": lambda: EngineRound(work, "pool"),
    }
    if work.name == "W1":  # for the CNN, stacking on a CPU loses by a factor and takes gigabytes
        makers["engine stacked"] = lambda: EngineRound(work, "stacked")
    contenders, start_up = {}, {}
    for name, make in makers.items():
        begin = time.perf_counter()
        contenders[name] = make()
        start_up[name] = time.perf_counter() - begin

    theta = work.model.init(seed=0)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    loads = []
    try:
        models = {name: contender.round(theta, 0) for name, contender in contenders.items()}  # warm-up
        for repetition in range(1, work.repetitions + 1):
            loads.append(load())
            for name, contender in contenders.items():
                begin = time.perf_counter()
                contender.round(theta, repetition)
                seconds[name].append(time.perf_counter() - begin)
    finally:
        for contender in contenders.values():
            contender.close()

    reference = models["engine serial"]
    for name in ("engine pool", "engine stacked"):
        if name in models:
            gap = np.abs(models[name] - reference)
            print(
                f"    {name} against engine serial, mean model after one round: largest difference"
                f" {gap.max():.1e}, share above 1e-6 {100 * np.mean(gap > 1e-6):.3f} %"
            )
            if np.mean(gap > 1e-6) > 0.01:
                raise SystemExit(f"{name} and engine serial disagree: the timings above mean nothing.")
    median = {name: statistics.median(values) for name, values in seconds.items()}
    table = pd.DataFrame(
        {
            "workload": work.name,
            "contender": list(median),
            "seconds_per_round": list(median.values()),
            "fastest": [min(values) for values in seconds.values()],
            "slowest": [max(values) for values in seconds.values()],
            "times_faster": [median[BASE] / value for value in median.values()],
            "start_up_seconds": list(start_up.values()),
            "repetitions": work.repetitions,
            "load_average": statistics.mean(loads),
            "data": work.origin,
        }
    )
    shown = table[["contender", "seconds_per_round", "fastest", "slowest", "times_faster", "start_up_seconds"]]
    formats = dict.fromkeys(shown.columns[1:], "{:.3f}".format) | {"times_faster": "{:.2f}x".format}
    print(shown.to_string(index=False, formatters=formats))
    return table


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__.split("\n", 1)[0])
    known = workloads()
    parser.add_argument("workloads", nargs="*", metavar="W", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--save", action="store_true", help="write results/benchmarks.csv")
    options = parser.parse_args(arguments)
    unknown = set(options.workloads) - set(known)
    if unknown:
        parser.error(f"unknown workload {', '.join(sorted(unknown))}: choose of {', '.join(known)}")
    about = machine()
    print(*(f"{key} {value}" for key, value in about.items()), f"load average {load():.2f}", sep=", ")
    print("Median seconds per round; times_faster is against the plain DataLoader loop on one thread, same run.")
    tables = [measure(known[name]()) for name in options.workloads or known]
    if options.save:
        table = pd.concat(tables, ignore_index=True).assign(**about)
        text = table.to_csv(index=False, float_format="%.5g")
        path = paths.write_atomically(paths.ROOT / "results" / "benchmarks.csv", lambda file: file.write(text.encode()))
        print(f"\nSaved {path.relative_to(paths.ROOT)}")


if __name__ == "__main__":
    main()
