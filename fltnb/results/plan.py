"""What is missing, what it costs, and in which order it is worth computing."""

import functools
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..errors import FltnbError
from .computing import compute, look_up
from .finished import Finished
from .job import COMMON, TRAINING, Job, Prepared, cell_of, prepare
from .ledger import Ledger

Asked = Callable[[str, str], list[Job]]
"""``(notebook, profile) -> jobs``: what a notebook asks for."""
MICROSECONDS = {
    **{"mlp": (13.0, 4.0), "mlp_plain": (11.0, 4.0), "mlp32": (8.0, 3.0), "cnn_small": (48.0, 35.0)},
    **{"lenet": (75.0, 48.0), "leaf_cnn": (300.0, 300.0), "emdcfl_cnn": (1530.0, 1790.0), "resnet18": (6000.0, 2500.0)},
}
"""Training and evaluation of one sample on two cores, by model: a first guess, until a like job has been measured."""


@dataclass(frozen=True)
class Planned:
    """A missing job with its guessed cost in seconds (of the whole machine) and its value per minute."""

    made: Prepared
    seconds: float
    measured: bool
    worth: float


def plan(jobs: Sequence[Job], ledgers: Iterable[Ledger]) -> list[Planned]:
    """Return the missing jobs, best value per minute first.

    The first seed of a row is worth 1, the second a quarter, the third a ninth. The cost of a job is that of like jobs
    which were computed before (the same model and size of work), else it is guessed from the samples that it trains on.
    """
    prepared = list({made.key: made for made in map(prepare, jobs)}.values())
    known = look_up(prepared, 0.0, list(ledgers))
    measured: dict[tuple, list[float]] = {}
    rank: Counter[str] = Counter()
    for made in prepared:
        if made.key in known:
            measured.setdefault(_like(made.job), []).append(known[made.key].numbers.get("seconds", 0.0))
            rank[cell_of(made.job.axes)] += 1
    planned = []
    for made in prepared:
        if made.key not in known:
            rank[cell_of(made.job.axes)] += 1
            like = measured.get(_like(made.job))
            seconds = statistics.median(like) if like else _guess(made)
            worth = 60 / max(seconds, 1.0) / rank[cell_of(made.job.axes)] ** 2
            planned.append(Planned(made, seconds, bool(like), worth))
    return sorted(planned, key=lambda one: -one.worth)


def _like(job: Job) -> tuple:
    """Jobs that cost about the same: equal in all but method, clusterer and seeds."""
    settings = job.settings
    size = {name: value for name, value in settings.get("federation", {}).items() if name not in ("seed", "variant")}
    rest = [settings.get(name) for name in ("model", "rounds", "local_epochs", "participation", "batch_size")]
    same = job.kind if job.kind == "training" else settings.get("clusterer", settings.get("measure", settings))
    return job.kind, str(sorted(size.items(), key=str)), str(rest), str(same)


def _guess(made: Prepared) -> float:
    settings, fed = made.job.settings, made.fed
    if fed is None:
        return 30.0
    train, test = MICROSECONDS.get(settings.get("model", ""), (100.0, 100.0))
    samples = float(np.sum(fed.sizes))
    if made.job.kind == "training":
        steps = samples * settings["rounds"] * settings["participation"] * settings["local_epochs"]
        looks = settings["rounds"] / settings["eval_every"] * (samples + sum(map(len, fed.test)))
        return 1e-6 * (steps * train + looks * test)
    if made.job.kind == "distances":
        epochs = settings["training"].get("local_epochs", 1)
        return 1e-6 * samples * epochs * train + 5e-3 * fed.n_clients**2
    return 30.0 + 2e-4 * samples


def _timed(finished: Iterable[Finished]) -> tuple[dict[str, float], Callable[[Job], float]]:
    """Return what finished jobs took in seconds, by id, and what another job would take, NaN where nobody knows.

    A job takes what it took before, else what those with its data and model did.
    """
    same: dict[str, float] = {}
    like: dict[tuple, list[float]] = {}
    for done in finished:
        record, took = done.record, done.numbers.get("seconds", math.nan)
        same[record["id"]] = took
        kind = done.axes.get("dataset"), done.axes.get("model", "")
        like.setdefault(kind, []).append(took / _work(record["settings"]))

    def seconds(job: Job) -> float:
        others = like.get((job.axes.get("dataset"), job.axes.get("model", "")), [math.nan])
        return same[job.id] if job.id in same else statistics.median(others) * _work(job.settings)

    return same, seconds


def _work(settings: Mapping[str, Any]) -> float:
    """How often each sample is trained on, to compare the cost of trainings; 1 for anything else."""
    full = TRAINING | settings
    return full["rounds"] * full["participation"] * full["local_epochs"] if "rounds" in full else 1.0


_asked = functools.cache(lambda asked, notebook, profile: asked(notebook, profile))


def gaps(finished: Sequence[tuple[str, str, Finished]], asked: Asked | None) -> pd.DataFrame:
    """What the notebooks of results ask for and has no result; see :meth:`fltnb.results.reading.Results.missing`."""
    known, seconds = _timed(done for _, _, done in finished)
    cells = {cell_of(done.axes) for _, _, done in finished}
    rows: dict[str, dict] = {}
    for notebook in dict.fromkeys(name for name, _, _ in finished) if asked else ():
        for profile in ("paper", "small"):
            for job in _asked(asked, notebook, profile):
                cell = cell_of(job.axes)
                if job.id in known or (profile == "paper" and cell in cells):
                    continue
                row = rows.get(cell)
                if row is None or row["profile"] != profile:  # `small` comes last, and is the nearer one
                    shown = {name: value for name, value in job.axes.items() if name != "seed"}
                    row = {"kind": job.kind, **dict.fromkeys(COMMON[2:6], ""), **shown, "profile": profile}
                    rows[cell] = row | {"seeds": 0, "minutes": 0.0}
                rows[cell]["seeds"] += 1
                rows[cell]["minutes"] += seconds(job) / 60
    return pd.DataFrame(list(rows.values()), columns=None if rows else [*COMMON[1:6], "profile", "seeds", "minutes"])


def cost(notebooks: Iterable[str], profile: str, asked: Asked, fresh: bool = False) -> Counter[str]:
    """Add up ``jobs``, those that are ``there`` or ``missing``, their ``seconds``, and those of ``unknown`` length.

    It needs no data sets.
    """
    total: Counter[str] = Counter()
    for notebook in notebooks:
        stored = {name: list(Ledger(name, notebook).finished()) for name in ("small", "paper")}
        _, seconds = _timed(done for found in stored.values() for done in found)
        own = {done.record["id"] for done in stored.get(profile, ())}
        jobs = {job.id: job for job in asked(notebook, profile)}
        todo = [seconds(job) for name, job in jobs.items() if fresh or name not in own]
        timed = [one for one in todo if one == one]
        total.update(jobs=len(jobs), there=len(own & set(jobs)), missing=len(todo))
        total.update(seconds=sum(timed), unknown=len(todo) - len(timed))
    return total


def within(
    planned: Sequence[Planned],
    seconds: float,
    found: Callable[[list[Finished]], None],
    clock: Callable[[], float] = time.monotonic,
    **options,
) -> int:
    """Compute the jobs one after the other as long as the next one fits; return how many were computed.

    ``seconds`` is all the time there is; ``found`` is called with every finished job at once, so that the ledger has it
    whatever happens next; ``options`` are those of :func:`fltnb.results.compute`. FltnbError: not even the cheapest
    job fits.
    """
    cheapest = min((one.seconds for one in planned), default=0.0)
    if cheapest > seconds:
        what = f"The budget of {seconds / 60:.0f} min is too small for any missing job"
        raise FltnbError(f"{what}: the cheapest takes about {math.ceil(cheapest / 60)} min; give at least that much.")
    end, count = clock() + seconds, 0
    for one in planned:
        if clock() + one.seconds <= end:
            found(compute([one.made.job], **options))
            count += 1
    return count


def minutes(text: str) -> float:
    """Return a budget such as ``150m``, ``2.5h`` or ``90s`` in minutes; FltnbError: it is none."""
    found = re.fullmatch(r"(\d+\.?\d*)([smh])", text)
    if found is None or float(found[1]) == 0:
        raise FltnbError(f"The budget {text!r} is no time: give minutes or hours, such as 150m or 2.5h.")
    return float(found[1]) * {"s": 1 / 60, "m": 1.0, "h": 60.0}[found[2]]
