"""Measure local training and evaluation against plain PyTorch loops: ``python -m benchmarks.run [W1 ... W5] [--save]``.

The contenders take turns within every repetition, so that a busy neighbour on the machine slows all of them; what
counts are the ratios. A turn lasts half a second at least and its last round counts, as in a run a round follows a
round. A round draws the clients, trains them and averages; an evaluation tests 20 models on 2,000 samples each.
``growth``: time per client in a round of 20, 120 and 480 clients.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from fltnb import paths
from fltnb.errors import FltnbError

from .common import load
from .workloads import (
    MODELS,
    TESTED,
    EngineRound,
    ModuleLoop,
    Workload,
    growing,
    workloads,
)

BASE = "DataLoader loop"
GROWTH = (20, 120, 480)
TURN = 0.5  # seconds at least; its last call counts


def machine() -> dict[str, str | int]:
    """Return what the numbers depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [
        line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
    ]
    return {
        "processor": (names or [platform.processor() or platform.machine()])[0],
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "cores": joblib.cpu_count(),
        **({"gpu": torch.cuda.get_device_name(0)} if torch.cuda.is_available() else {}),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def contenders(work: Workload) -> dict[str, ModuleLoop | EngineRound]:
    """Return the loops and the engine's back ends for a workload."""
    made = {
        BASE: ModuleLoop(work, loader=True),
        "lean module loop": ModuleLoop(work, loader=False),
        "engine serial": EngineRound(work, "serial"),
        "engine pool": EngineRound(work, "pool"),
    }
    if (
        work.name == "W1"
    ):  # for the CNN, stacking on a CPU loses by a factor and takes gigabytes
        made["engine stacked"] = EngineRound(work, "stacked")
    if work.model.name.endswith(("cnn", "lenet")):
        try:
            made["engine pool bfloat16"] = EngineRound(work, "pool", "bfloat16")
        except FltnbError as error:
            print(f"    bfloat16 is left out: {error}")
    if torch.cuda.is_available():
        made["engine GPU"] = EngineRound(work, "stacked", device="cuda")
        if work.model.convolutional:
            made["engine GPU bfloat16"] = EngineRound(
                work, "stacked", "bfloat16", "cuda"
            )
    return made


def measure(work: Workload) -> list[pd.DataFrame]:
    """Time every contender on one workload; print and return the tables of training and evaluation."""
    print(f"\n{work.name}: {work.what}\n    data: {work.origin}")
    made, theta, thetas = contenders(work), work.model.init(seed=0), work.models()
    try:
        trained = {name: one.round(theta, 0) for name, one in made.items()}  # warm-up
        for name in {"engine pool", "engine stacked", "engine GPU"} & set(made):
            gap = np.abs(trained[name] - trained["engine serial"])
            if np.mean(gap > (1e-4 if name == "engine GPU" else 1e-6)) > 0.01:
                raise SystemExit(
                    f"{name} and engine serial disagree: the timings mean nothing."
                )
        rounds = _turns(
            work,
            "training",
            work.samples,
            {name: one.round for name, one in made.items()},
            theta,
        )
        told = made[BASE].evaluate(thetas)
        if (
            np.abs(made["engine pool"].evaluate(thetas) - told) > TESTED / 1000
        ).any():  # ties may fall either way
            raise SystemExit(
                "The engine and the plain loop do not count the same: the timings mean nothing."
            )
        tests = {
            name: lambda thetas, _, one=one: one.evaluate(thetas)
            for name, one in made.items()
        }
        tested = _turns(work, "evaluation", MODELS * TESTED, tests, thetas)
    finally:
        for one in made.values():
            one.close()
    return [rounds, tested]


def _turns(
    work: Workload,
    what: str,
    samples: int,
    calls: dict[str, Callable],
    given: np.ndarray,
) -> pd.DataFrame:
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    loads = []
    for repetition in range(1, work.repetitions + 1):
        loads.append(load())
        for name, call in calls.items():
            end = start = time.perf_counter()
            while end < start + TURN:
                begin = end
                call(given, repetition)
                end = time.perf_counter()
            seconds[name].append(end - begin)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    table = pd.DataFrame(
        {
            "workload": work.name,
            "what": what,
            "contender": list(median),
            "seconds": list(median.values()),
            "fastest": [min(values) for values in seconds.values()],
            "slowest": [max(values) for values in seconds.values()],
            "microseconds_per_sample": [
                1e6 * value / samples for value in median.values()
            ],
            "times_faster": [
                median[BASE] / value if BASE in median else np.nan
                for value in median.values()
            ],
            "repetitions": work.repetitions,
            "load_average": statistics.mean(loads),
            "data": work.origin,
        }
    )
    shown = table.iloc[:, 1:8]
    formats = dict.fromkeys(shown.columns[2:5], "{:.3f}".format) | {
        "times_faster": "{:.2f}x".format
    }
    print(
        shown.to_string(
            index=False,
            formatters=formats | {"microseconds_per_sample": "{:.1f}".format},
        )
    )
    return table


def growth() -> pd.DataFrame:
    """Time rounds of ever more clients; print and return the table. The time per client should stay flat."""
    made = {per_round: EngineRound(growing(per_round), "pool") for per_round in GROWTH}
    print(f"\ngrowth: {made[GROWTH[-1]].work.what}")
    try:
        theta = made[GROWTH[0]].work.model.init(seed=0)
        for one in made.values():
            one.round(theta, 0)
        tables = [
            _turns(
                one.work, str(n), one.work.samples, {"engine pool": one.round}, theta
            )
            for n, one in made.items()
        ]
    finally:
        for one in made.values():
            one.close()
    return pd.concat(tables).rename(columns={"what": "clients"}).assign(what="growth")


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__.split("\n", 1)[0]
    )
    known = workloads()
    names = (*known, "growth")
    parser.add_argument(
        "workloads", nargs="*", metavar="W", help=f"of {', '.join(names)}; default all"
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help="into results/benchmarks.csv, in place of earlier lines",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.workloads) - set(names):
        parser.error(
            f"unknown workload {', '.join(sorted(unknown))}: choose of {', '.join(names)}"
        )
    about = machine()
    print(
        *(f"{key} {value}" for key, value in about.items()),
        f"load average {load():.2f}",
        sep=", ",
    )
    print(
        "Median seconds; times_faster is against the plain DataLoader loop on one thread, same run."
    )
    tables = []
    with threadpool_limits(
        1, user_api="blas"
    ):  # as in fl.run: its waiting threads would slow the workers down
        for name in options.workloads or names:
            tables += [growth()] if name == "growth" else measure(known[name]())
    if options.save:
        table, path = (
            pd.concat(tables).assign(**about),
            paths.ROOT / "results" / "benchmarks.csv",
        )
        before = pd.read_csv(path) if path.exists() else table[:0]
        table = pd.concat([before[~before["workload"].isin(table["workload"])], table])
        table = table.sort_values("workload", kind="stable")
        text = table.to_csv(index=False, float_format="%.5g")
        paths.write_atomically(path, lambda file: file.write(text.encode()))
        print(f"\nSaved {path.relative_to(paths.ROOT)}")


if __name__ == "__main__":
    main()
