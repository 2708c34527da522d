"""Measure local training and evaluation against plain PyTorch loops.

``python -m benchmarks.run [W1 ... W5] [--save]``. The contenders take turns within
every repetition, so that a busy neighbour on the machine slows all of them; what counts
are the ratios. A turn lasts half a second at least and its last round counts, as in a
run a round follows a round. A round draws the clients, trains them and averages; an
evaluation tests 20 models on 2,000 samples each. ``growth``: time per client in a round
of 20, 120 and 480 clients.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable

import joblib
import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from fltnb import paths
from fltnb.errors import FltnbError
from fltnb.provenance import processor

from . import history
from .common import load, refuse_unknown, write
from .workloads import (
    MODELS,
    TESTED,
    WORKLOADS,
    EngineRound,
    ModuleLoop,
    Workload,
    growing,
)

BASE = "DataLoader loop"
GROWTH = (20, 120, 480)
TURN = 0.5  # seconds at least; its last call counts
SHOWN = {
    "what": None,
    "contender": None,
    "seconds": "{:.3f}".format,
    "fastest": "{:.3f}".format,
    "slowest": "{:.3f}".format,
    "microseconds_per_sample": "{:.1f}".format,
    "times_faster": "{:.2f}x".format,
}


def machine() -> dict[str, str | int]:
    """Return what the numbers depend on."""
    about = {
        "processor": processor(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "cores": joblib.cpu_count(),
    }
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name(0)
    about["system"] = platform.system()
    about["python"] = platform.python_version()
    about["torch"] = torch.__version__
    about["date"] = datetime.date.today().isoformat()
    return about


def contenders(work: Workload) -> dict[str, ModuleLoop | EngineRound]:
    """Return the loops and the engine's back ends for a workload."""
    made = {
        BASE: ModuleLoop(work, loader=True),
        "lean module loop": ModuleLoop(work, loader=False),
        "engine serial": EngineRound(work, "serial"),
        "engine pool": EngineRound(work, "pool"),
    }
    # For a CNN, stacking on a CPU loses by a factor and takes gigabytes.
    if work.name == "W1":
        made["engine stacked"] = EngineRound(work, "stacked")
    if work.model.convolutional:
        try:
            made["engine pool bfloat16"] = EngineRound(work, "pool", "bfloat16")
        except FltnbError as error:
            print(f"    bfloat16 is left out: {error}")
    if torch.cuda.is_available():
        made["engine GPU"] = EngineRound(work, "stacked", "float32", "cuda")
        if work.model.convolutional:
            reduced = EngineRound(work, "stacked", "bfloat16", "cuda")
            made["engine GPU bfloat16"] = reduced
    return made


def measure(work: Workload) -> list[pd.DataFrame]:
    """Time every contender on one workload.

    Prints and returns the tables of training and evaluation.
    """
    print(f"\n{work.name}: {work.what}\n    data: {work.origin}")
    made = contenders(work)
    theta = work.model.init(seed=0)
    thetas = work.models()
    try:
        _check(made, theta, thetas)
        train = {name: one.round for name, one in made.items()}
        trained = _turns(work, "training", work.samples, train, theta)
        test = {name: _test_of(one) for name, one in made.items()}
        tested = _turns(work, "evaluation", MODELS * TESTED, test, thetas)
    finally:
        _close(made)
    return [trained, tested]


def _test_of(one: ModuleLoop | EngineRound) -> Callable:
    def test(thetas: np.ndarray, repetition: int) -> np.ndarray:
        return one.evaluate(thetas)

    return test


def _close(made: dict) -> None:
    for one in made.values():
        one.close()


def _check(made: dict, theta: np.ndarray, thetas: np.ndarray) -> None:
    """Run everybody once, which also warms up; stop if they do not do the same."""
    trained = {name: one.round(theta, 0) for name, one in made.items()}
    allowed = {"engine pool": 1e-6, "engine stacked": 1e-6, "engine GPU": 1e-4}
    for name, most in allowed.items():
        if name in made:
            gap = np.abs(trained[name] - trained["engine serial"])
            if np.mean(gap > most) > 0.01:
                raise SystemExit(
                    f"{name} and engine serial disagree: the timings mean nothing."
                )

    gap = np.abs(made["engine pool"].evaluate(thetas) - made[BASE].evaluate(thetas))
    if gap.max() > TESTED / 1000:  # ties may fall either way
        raise SystemExit(
            "The engine and the plain loop do not count the same: the timings mean "
            "nothing."
        )


def _turns(
    work: Workload,
    what: str,
    samples: int,
    calls: dict[str, Callable],
    given: np.ndarray,
) -> pd.DataFrame:
    """Let the contenders take turns; print and return the table."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    loads = []
    for repetition in range(1, work.repetitions + 1):
        loads.append(load())
        for name, call in calls.items():
            seconds[name].append(_last_call(call, given, repetition))

    median = {name: statistics.median(values) for name, values in seconds.items()}
    table = pd.DataFrame({"contender": list(calls)})
    table.insert(0, "workload", work.name)
    table.insert(1, "what", what)
    table["seconds"] = list(median.values())
    table["fastest"] = [min(values) for values in seconds.values()]
    table["slowest"] = [max(values) for values in seconds.values()]
    table["microseconds_per_sample"] = 1e6 * table["seconds"] / samples
    table["times_faster"] = median.get(BASE, np.nan) / table["seconds"]
    table["repetitions"] = work.repetitions
    table["load_average"] = statistics.mean(loads)
    table["data"] = work.origin

    formats = {name: how for name, how in SHOWN.items() if how}
    print(table[list(SHOWN)].to_string(index=False, formatters=formats))
    return table


def _last_call(call: Callable, given: np.ndarray, repetition: int) -> float:
    """Return the seconds of the last call of a turn."""
    begun = time.perf_counter()
    while True:
        start = time.perf_counter()
        call(given, repetition)
        end = time.perf_counter()
        if end - begun >= TURN:
            return end - start


def growth() -> pd.DataFrame:
    """Time rounds of ever more clients; print and return the table.

    The time per client should stay flat.
    """
    made = {per_round: EngineRound(growing(per_round), "pool") for per_round in GROWTH}
    print(f"\ngrowth: {made[GROWTH[-1]].work.what}")
    tables = []
    try:
        for per_round, one in made.items():
            theta = one.work.model.init(seed=0)
            one.round(theta, 0)  # warms up
            calls = {"engine pool": one.round}
            samples = one.work.samples
            tables.append(_turns(one.work, str(per_round), samples, calls, theta))
    finally:
        _close(made)
    return pd.concat(tables).rename(columns={"what": "clients"}).assign(what="growth")


def save(table: pd.DataFrame) -> None:
    """Write results/benchmarks.csv, with earlier lines of other workloads."""
    path = paths.ROOT / "results" / "benchmarks.csv"
    if path.exists():
        before = pd.read_csv(path)
        others = before[~before["workload"].isin(table["workload"])]
        table = pd.concat([others, table])
    write(table.sort_values("workload", kind="stable"), path)


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    names = (*WORKLOADS, "growth")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="W", help=f"of {', '.join(names)}; default all"
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help="into results/benchmarks.csv, in place of earlier lines, and a line for "
        "today in results/benchmarks/history.csv",
    )
    options = parser.parse_args(arguments)
    refuse_unknown(parser, "workload", options.workloads, names)

    about = machine()
    load_before = load()
    shown = [f"{key} {value}" for key, value in about.items()]
    print(*shown, f"load average {load_before:.2f}", sep=", ")
    print(
        "Median seconds; times_faster is against the plain DataLoader loop on one "
        "thread, same run."
    )
    tables = []
    # As in fl.run: waiting threads of the BLAS would slow the workers down.
    with threadpool_limits(1, user_api="blas"):
        for name in options.workloads or names:
            if name == "growth":
                tables.append(growth())
            else:
                tables += measure(WORKLOADS[name]())
    if options.save:
        table = pd.concat(tables)
        save(table.assign(**about))
        if history.is_busy(load_before, about["cores"]):
            print("This machine was busy before: it gets no line in the history.")
        else:
            history.add(table, about | {"load_before": load_before})


if __name__ == "__main__":
    main()
