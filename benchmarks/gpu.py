"""Measure the stacked back end on a GPU, in four minutes at most.

``python -m benchmarks.gpu [--parts ...] [--tiny] [--save]``. In this order, as long as
there is time: agreement with ``serial`` (uneven clients, all networks); operations a
step; rounds of W1 to W5 in float32 and bfloat16, step by step and as CUDA graphs,
beside a ``DataLoader`` loop on the same device; one round of EMD-CFL's network as on
Rotated MNIST (40 clients x 5,400 images of random bytes, one epoch); rounds of several
seeds in one stack and one by one; time a client of more and more clients; last, since
compiling takes its time, the same rounds compiled. What there was no time for is said,
and what failed is, when the rest is done. ``--tiny`` takes small numbers, for a CPU.
``--save`` writes results/benchmarks/gpu.csv after each piece, ``--picture`` draws
docs/pictures/steps.svg from it. Measuring needs torch, NumPy and tqdm alone.
"""

from __future__ import annotations

import argparse
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import fltnb as fl
from fltnb import models, paths, training
from fltnb.training import has_bfloat16
from fltnb.training.contract import USUAL

from .common import peak, save
from .workloads import (
    LR,
    MODELS,
    WORKLOADS,
    EngineRound,
    ModuleLoop,
    Workload,
    random_workload,
)

FILE = "gpu.csv"
PARTS = ("agreement", "operations", "rounds", "large", "seeds", "growth", "compiled")
LOOP = "DataLoader loop"
SLOW = 45  # seconds that must be left to begin compiling
SIZES = (23, 10, 31, 7, 40)  # samples of the clients that agreement is tested on
GROWTH = (10, 50, 200, 1000, 2000)  # clients
SEEDS = (1, 3, 5)  # runs that train together
NETWORKS = ("mlp_plain", "lenet", "cnn_small", "leaf_cnn", "emdcfl_cnn")
# What was counted before a step was one function.
BEFORE = {
    "mlp_plain": 149,
    "lenet": 380,
    "cnn_small": 350,
    "leaf_cnn": 350,
    "emdcfl_cnn": 346,
}
Values = dict[str, Any]


class Clock:
    """Time that is left."""

    def __init__(self, seconds: float) -> None:
        self.end = time.perf_counter() + seconds
        self.left_out: list[str] = []

    def allows(self, what: str, seconds: float = 0.0) -> bool:
        """Whether so many seconds are left; what is left out is remembered."""
        if time.perf_counter() + seconds <= self.end:
            return True
        self.left_out.append(what)
        return False


def workloads(tiny: bool) -> Iterator[Workload]:
    """Give W1 to W5, or small ones with the same networks."""
    if not tiny:
        for make in WORKLOADS.values():
            yield make()
        return
    few = {"per_round": 3, "repetitions": 1}
    shapes = {
        "W1": ("mlp_plain", (8, 8), 10),
        "W2": ("leaf_cnn", (4, 4), 62),
        "W3": ("leaf_cnn", (4, 4, 3), 10),
        "W4": ("lenet", (8, 8, 3), 10),
        "W5": ("emdcfl_cnn", (4, 4), 10),
    }
    for name, (model, shape, n_classes) in shapes.items():
        yield random_workload(name, model, shape, n_classes, 20, MODELS, **few)


def precisions(work: Workload, device: str) -> list[str]:
    """Return the types that a workload is measured in."""
    if work.model.convolutional and has_bfloat16(device):
        return ["float32", "bfloat16"]
    return ["float32"]


def plain_ways(device: str) -> list[str]:
    """Return the ways to run a step that take no compiler."""
    return ["eager", "graph"] if device == "cuda" else ["eager"]


def compiled_ways(device: str) -> list[str]:
    """Return the ways that take one."""
    return ["compiled", "compiled graph"] if device == "cuda" else ["compiled"]


def uneven(name: str) -> tuple[fl.Federation, models.Model]:
    """Return small clients of different sizes, and a network for them."""
    shape = (8, 8, 3) if name == "lenet" else (8, 8)
    rng = np.random.default_rng(0)
    n = sum(SIZES)
    images = rng.integers(0, 256, (n, *shape), dtype=np.uint8)
    parts = np.split(np.arange(n), np.cumsum(SIZES)[:-1])
    labels = rng.integers(0, 4, n)
    fed = fl.Federation(
        images=images, labels=labels, train=parts, test=parts, n_classes=4
    )
    return fed, models.make(name, fed.input_shape, 4)


def agreement(device: str, ways: list[str], clock: Clock) -> list[Values]:
    """Compare all networks with ``serial`` on the same device.

    ``gap``: the largest difference of weights after two epochs.
    """
    how = {"local_epochs": 2, "momentum": 0.9, "weight_decay": 0.01, "proximal": 0.1}
    rows = []
    for name, dtype in product(NETWORKS, ("float64", "float32")):
        if not clock.allows(f"agreement of {name} in {dtype}"):
            continue
        fed, model = uneven(name)
        spec = training.TrainSpec(dtype=dtype, **how)
        given = model.init(0)[None], [0] * len(SIZES), range(len(SIZES)), 1
        with training.make_engine(fed, model, spec, "serial", device) as engine:
            oracle = engine.train(*given).theta
        for way in ways:
            with training.make_engine(
                fed, model, spec, "stacked", device, step=way
            ) as engine:
                gap = np.abs(engine.train(*given).theta - oracle).max()
            about = {"what": "agreement", "model": name, "contender": way}
            rows.append(about | {"precision": dtype, "gap": float(gap)})
    return rows


def timed(call: Callable[[int], object], device: str, repetitions: int) -> Values:
    """Return the fastest of some calls in seconds, after one, and peak memory in GiB.

    Of the GPU if there is one, else of the process.
    """
    cuda = device == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    call(0)
    seconds = []
    for repetition in range(1, repetitions + 1):
        start = time.perf_counter()
        call(repetition)  # its result lies on the CPU, so the GPU is done
        seconds.append(time.perf_counter() - start)
    memory = torch.cuda.max_memory_allocated() / 2**30 if cuda else peak()
    return {"seconds": min(seconds), "memory": memory}


def steps(work: Workload) -> int:
    """Return the steps of a round for each client."""
    return -(-len(work.fed.train[0]) // work.batch)


def described(work: Workload, contender: str, precision: str) -> Values:
    """Return what a line of the table is about."""
    return {
        "workload": work.name,
        "model": work.model.name,
        "clients": work.per_round,
        "batch": work.batch,
        "contender": contender,
        "precision": precision,
    }


def per_step(work: Workload, found: Values) -> Values:
    """Return milliseconds a step of all clients, and microseconds a sample."""
    return found | {
        "ms_a_step": 1e3 * found["seconds"] / steps(work),
        "microseconds_per_sample": 1e6 * found["seconds"] / work.samples,
    }


def rounds(
    work: Workload, device: str, ways: list[str], clock: Clock, need: float = 0.0
) -> list[Values]:
    """Time rounds in all types and ways; ``need``: seconds that one takes at least."""
    theta = work.model.init(seed=0)
    rows = []
    for precision in precisions(work, device):
        for way in ways:
            if not clock.allows(f"{work.name} {way} {precision}", need):
                continue
            one = EngineRound(work, "stacked", precision, device, way)
            call = partial(one.round, theta)
            found = per_step(work, timed(call, device, work.repetitions))
            about = described(work, way, precision)
            rows.append({"what": "round"} | about | found)
            one.close()
    return rows


def compared(work: Workload, device: str, clock: Clock) -> list[Values]:
    """Time the plain loop's round, and both evaluations."""
    rows = []
    theta = work.model.init(seed=0)
    thetas = work.models()
    loop = ModuleLoop(work, loader=True, device=device)
    made = EngineRound(work, "stacked", "float32", device)
    about = described(work, LOOP, "float32")
    if clock.allows(f"{work.name} {LOOP}"):
        found = timed(partial(loop.round, theta), device, 1)
        rows.append({"what": "round"} | about | per_step(work, found))
    for name, one in ((LOOP, loop), ("eager", made)):
        if clock.allows(f"{work.name} evaluation, {name}"):

            def test(repetition: int, one=one) -> np.ndarray:
                return one.evaluate(thetas)

            found = timed(test, device, 1)
            about = described(work, name, "float32")
            each = 1e6 * found["seconds"] / (MODELS * len(work.fed.test[0]))
            found["microseconds_per_sample"] = each
            rows.append({"what": "evaluation"} | about | found)
    made.close()
    return rows


def large(tiny: bool) -> Workload:
    """Return a round of EMD-CFL's network on Rotated MNIST's sizes."""
    shape, size, clients = ((4, 4), 20, 3) if tiny else ((28, 28), 5400, 40)
    options = {"per_round": clients, "batch": 64, "repetitions": 1}
    name = "EMD-CFL"
    return random_workload(name, "emdcfl_cnn", shape, 10, size, clients, **options)


def growth(device: str, tiny: bool, clock: Clock) -> list[Values]:
    """Time rounds of ever more clients with 100 samples each."""
    rows = []
    for clients in GROWTH[:2] if tiny else GROWTH:
        options = {"per_round": clients, "repetitions": 1}
        shape = (8, 8) if tiny else (28, 28)
        work = random_workload(
            "growth", "mlp_plain", shape, 10, 100, clients, **options
        )
        for row in rounds(work, device, plain_ways(device), clock):
            row["ms_a_client"] = 1e3 * row["seconds"] / clients
            rows.append(row | {"what": "growth"})
    return rows


def seeds(work: Workload, device: str, clock: Clock) -> list[Values]:
    """Time rounds of several seeds, in one stack and one by one."""
    rows = []
    theta = work.model.init(seed=0)[None]
    start = np.zeros(work.per_round, int)
    for n in SEEDS:
        if not clock.allows(f"{work.name}, {n} seeds"):
            continue
        specs = [
            training.TrainSpec(batch_size=work.batch, lr=LR, seed=k) for k in range(n)
        ]
        runs = [(work.fed, work.model, spec) for spec in specs]
        engines = training.make_engines(runs, "stacked", device)

        def together(round: int, engines=engines) -> object:
            given = theta, start, work.clients(round), round
            return training.train_together([(one, given) for one in engines])

        def one_by_one(round: int, engines=engines) -> object:
            given = theta, start, work.clients(round), round
            return [one.train(*given) for one in engines]

        for call in (together, one_by_one):
            found = timed(call, device, work.repetitions)
            found["ms_a_run"] = 1e3 * found["seconds"] / n
            about = described(work, call.__name__, "float32") | {"runs": n}
            rows.append({"what": "seeds"} | about | found)
    return rows


def operations() -> list[Values]:
    """Count the operations of a step, as torch's profiler lists them on a CPU."""
    rows = []
    for name in NETWORKS:
        shape = (32, 32, 3) if name == "lenet" else (28, 28)
        n_classes = 62 if name == "leaf_cnn" else 10
        work = random_workload("operations", name, shape, n_classes, 4, 2, batch=2)
        work = replace(work, per_round=2)
        one = EngineRound(work, "stacked")
        one.round(work.model.init(seed=0), 0)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a profiler without a GPU
            with profile(activities=[ProfilerActivity.CPU]) as seen:
                one.engine.stacks.training(USUAL).runner.stack.plain(0, 2)
        count = sum(event.name.startswith("aten::") for event in seen.events())
        about = described(work, "eager", "float32") | {"operations": count}
        rows.append({"what": "operations"} | about)
    return rows


def pieces(
    device: str, tiny: bool, parts: Sequence[str], clock: Clock
) -> list[Callable[[], list[Values]]]:
    """Return all that is to be measured, piece by piece, in order."""
    works = list(workloads(tiny))
    plain = plain_ways(device)
    every: dict[str, list[Callable[[], list[Values]]]] = {name: [] for name in PARTS}
    every["agreement"].append(partial(agreement, device, plain, clock))
    every["operations"].append(operations)
    for work in works:
        every["rounds"].append(partial(rounds, work, device, plain, clock))
        every["rounds"].append(partial(compared, work, device, clock))
    every["large"].append(lambda: rounds(large(tiny), device, plain, clock))
    for work in (works[0], works[3]):
        every["seeds"].append(partial(seeds, work, device, clock))
    every["growth"].append(partial(growth, device, tiny, clock))
    first = works[:1] if tiny else [works[0], works[3], works[4], *works[1:3]]
    need = 0 if tiny else SLOW
    for work in first:
        call = partial(rounds, work, device, compiled_ways(device), clock, need)
        every["compiled"].append(call)
    return [call for name in PARTS if name in parts for call in every[name]]


def measure(
    device: str,
    minutes: float,
    tiny: bool,
    parts: Sequence[str] = PARTS,
    keep: Callable[[list[Values]], object] | None = None,
) -> list[Values]:
    """Measure all that there is time for; print and keep it as it is there.

    SystemExit: something failed; it is raised when the rest is done.
    """
    clock = Clock(60 * minutes)
    rows: list[Values] = []
    failed = 0
    for call in pieces(device, tiny, parts, clock):
        try:
            found = call()
        except Exception:  # time on a GPU is short: the rest shall be measured
            traceback.print_exc()
            failed += 1
            continue
        rows += [row | {"device": device} for row in _told(found)]
        if keep is not None:
            keep(rows)
    if clock.left_out:
        print("There was no time for:", "; ".join(clock.left_out))
    if failed:
        raise SystemExit(f"{failed} pieces failed: their errors stand above.")
    return rows


def _told(rows: list[Values]) -> list[Values]:
    for row in rows:
        text = []
        for name, value in row.items():
            shown = f"{value:.4g}" if isinstance(value, float) else value
            text.append(f"{name} {shown}")
        print(", ".join(text), flush=True)
    return rows


def picture() -> None:
    """Draw operations a step before and after, and time a client, of the saved table.

    Its file is docs/pictures/steps.svg.
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    import pandas as pd

    table = pd.read_csv(paths.ROOT / "results" / "benchmarks" / FILE)
    counted = table[table["what"] == "operations"].set_index("model")
    grown = table[table["what"] == "growth"]
    fixed = {"svg.hashsalt": "steps", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(fixed):
        fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
        places = np.arange(len(NETWORKS))
        before = [BEFORE[name] for name in NETWORKS]
        after = counted.loc[list(NETWORKS), "operations"]
        left.barh(places + 0.2, before, 0.38, color="#b8b8b8", label="before")
        left.barh(places - 0.2, after, 0.38, color="#2f6f9f", label="one function")
        left.set_yticks(places, NETWORKS)
        left.set_xlabel("operations a step")
        left.legend(frameon=False)
        for way, rows in grown.groupby("contender"):
            right.plot(rows["clients"], rows["ms_a_client"], "o-", label=way, ms=4)
        right.set_xscale("log")
        right.set_ylim(0, 1.15 * grown["ms_a_client"].max())
        right.set_xlabel("clients in a round, 100 samples each")
        right.set_ylabel("milliseconds a client")
        right.legend(frameon=False, loc="lower right")
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        file = paths.ROOT / "docs" / "pictures" / "steps.svg"
        fig.savefig(file, metadata={"Date": None, "Creator": None})
        plt.close(fig)


def main(arguments: list[str] | None = None) -> list[Values]:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.split("\n", 1)[0]
    )
    best = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=best)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="by default all"
    )
    parser.add_argument("--tiny", action="store_true", help="small numbers")
    parser.add_argument(
        "--save",
        action="store_true",
        help=f"into results/benchmarks/{FILE}, in place of all that is there",
    )
    parser.add_argument("--picture", action="store_true", help="of the saved table")
    options = parser.parse_args(arguments)
    if options.picture:
        picture()
        return []
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here: give --device cpu, and --tiny")
    if options.save and options.tiny:
        parser.error("--tiny measures nothing to keep: leave out --save")
    given = options.device, options.minutes, options.tiny, options.parts
    keep = None
    if options.save:
        settings = {"minutes": options.minutes, "tiny": options.tiny}
        keep = partial(save, name=FILE, settings=settings)
    return measure(*given, keep)


if __name__ == "__main__":
    main()
