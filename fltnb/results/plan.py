"""What is missing, what it costs, and in which order it is worth computing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import FltnbError
from .computing import compute, look_up
from .finished import Finished
from .job import _TRAINING, COMMON, Job, Prepared, prepare
from .ledger import Ledger

if TYPE_CHECKING:
    import pandas as pd

    from .reading import Asked, Results

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


def plan(jobs: Sequence[Job], ledgers: Iterable[Ledger], prepared: Sequence[Prepared] | None = None) -> list[Planned]:
    """Return the missing jobs, best value per minute first.

    The first seed of a row is worth 1, the second a quarter, the third a ninth. The cost of a job is that of like jobs
    which were computed before (the same model and size of work), else it is guessed from the samples that it trains on.
    """
    ledgers = list(ledgers)
    prepared = list({made.key: made for made in prepared or map(prepare, jobs)}.values())
    known = look_up(prepared, 0.0, ledgers)
    measured: dict[tuple, list[float]] = {}
    done = [made for made in prepared if made.key in known]
    for made in done:
        measured.setdefault(_like(made.job), []).append(known[made.key].numbers.get("seconds", 0.0))
    rank: dict[str, int] = {}
    for made in done:
        rank[_row(made.job)] = rank.get(_row(made.job), 0) + 1
    planned = []
    for made in prepared:
        if made.key not in known:
            before = rank.get(_row(made.job), 0)
            rank[_row(made.job)] = before + 1
            like = measured.get(_like(made.job))
            seconds = statistics.median(like) if like else _guess(made)
            worth = 60 / max(seconds, 1.0) / (before + 1) ** 2
            planned.append(Planned(made, seconds, bool(like), worth))
    return sorted(planned, key=lambda one: -one.worth)


def _row(job: Job) -> str:
    return str(sorted((name, str(value)) for name, value in job.axes.items() if name != "seed"))


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


def gaps(results: Results, asked: Asked | None) -> pd.DataFrame:
    """What the notebooks of results ask for and has no result; see :meth:`fltnb.results.reading.Results.missing`."""
    import pandas as pd

    runs = results.runs
    there = {results.record(key)["id"] for key in runs["key"]}
    cells = {_cell(row) for row in runs[[*COMMON[2:6], *results.axes]].to_dict("records")}
    took: dict[tuple, list[float]] = {}
    for run in runs[["dataset", "model", "key", *["seconds"] * ("seconds" in runs)]].to_dict("records"):
        each = run.get("seconds", float("nan")) / _work(results.record(run["key"])["settings"])
        took.setdefault((run["dataset"], run["model"]), []).append(each)
    rows: dict[tuple, dict] = {}
    for notebook in runs["notebook"].unique() if asked else ():
        for profile in ("paper", "small"):
            for job in asked(notebook, profile):
                shown = {name: value for name, value in job.axes.items() if name != "seed"}
                cell = _cell(shown)
                if job.id in there or (profile == "paper" and cell in cells):
                    continue
                empty = dict.fromkeys(COMMON[2:6], "")
                row = {"kind": job.kind, **empty, **shown, "profile": profile, "seeds": 0, "minutes": 0.0}
                row = rows.setdefault((profile, cell), row)
                row["seeds"] += 1
                like = took.get((shown.get("dataset"), shown.get("model", "")), [float("nan")])
                row["minutes"] += statistics.median(like) * _work(job.settings) / 60
    kept = {cell: row for (_, cell), row in rows.items()}  # `small` comes last, and is the nearer one
    return pd.DataFrame(list(kept.values()), columns=None if kept else [*COMMON[1:6], "profile", "seeds", "minutes"])


def _work(settings: Mapping[str, Any]) -> float:
    """How often each sample is trained on, to compare the cost of trainings; 1 for anything else."""
    full = _TRAINING | settings
    return full["rounds"] * full["participation"] * full["local_epochs"] if "rounds" in full else 1.0


def _cell(axes: Mapping[str, Any]) -> tuple:
    held = {name: value for name, value in axes.items() if not (value is None or value == "" or value != value)}
    return tuple(sorted((name, str(value)) for name, value in held.items()))


class Cost(NamedTuple):
    """Jobs in all, those that are there, those to compute, their seconds, and how many of them were never timed."""

    jobs: int
    there: int
    missing: int
    seconds: float
    unknown: int


def cost(notebooks: Iterable[str], profile: str, asked: Asked, fresh: bool = False) -> Cost:
    """Add up what the jobs of notebooks took when they were computed before; needs no data sets.

    A job that is in no ledger counts as the median of those of its notebook, data set and model.
    """
    total = Cost(0, 0, 0, 0.0, 0)
    for notebook in notebooks:
        own, timed, like = set(), {}, {}
        for ledger in (Ledger("small", notebook), Ledger("paper", notebook)):
            for done in ledger.finished():
                name, seconds = done.record["id"], done.numbers.get("seconds", 0.0)
                timed[name] = seconds
                like.setdefault((done.axes.get("dataset"), done.axes.get("model")), []).append(seconds)
                if ledger.profile == profile:
                    own.add(name)
        jobs = {job.id: job for job in asked(notebook, profile)}
        todo = [job for name, job in jobs.items() if fresh or name not in own]
        seconds, unknown = 0.0, 0
        for job in todo:
            near = like.get((job.axes.get("dataset"), job.axes.get("model")))
            seconds += timed.get(job.id, statistics.median(near) if near else 0.0)
            unknown += job.id not in timed and not near
        here = (len(jobs), len(own & set(jobs)), len(todo), seconds, unknown)
        total = Cost(*(one + other for one, other in zip(total, here, strict=True)))
    return total


def within(
    planned: Sequence[Planned],
    seconds: float,
    found: Callable[[list[Finished]], None],
    clock: Callable[[], float] = time.monotonic,
    **options,
) -> int:
    """Compute the jobs one after the other as long as the next one fits; return how many were computed.

    Parameters
    ----------
    planned : sequence of Planned
    seconds : float
        All the time there is.
    found : callable
        Called with every finished job at once, so that the ledger has it whatever happens next.
    **options
        Of :func:`fltnb.results.compute`.

    Raises
    ------
    FltnbError
        Not even the cheapest job fits.
    """
    if planned and min(one.seconds for one in planned) > seconds:
        cheapest = min(one.seconds for one in planned) / 60
        raise FltnbError(
            f"The budget of {seconds / 60:.0f} min is too small for any missing job: the cheapest takes about"
            f" {max(cheapest, 1):.0f} min; give at least that much."
        )
    end, count = clock() + seconds, 0
    for one in planned:
        if clock() + one.seconds <= end:
            found(compute([one.made.job], **options))
            count += 1
    return count


def minutes(text: str) -> float:
    """Return a budget such as ``150m``, ``2.5h`` or ``90s`` in minutes.

    Raises
    ------
    FltnbError
        It is none.
    """
    scale = {"s": 1 / 60, "m": 1.0, "h": 60.0}.get(text[-1:])
    try:
        value = float(text[:-1]) * (scale or float("nan"))
    except ValueError:
        value = float("nan")
    if not value > 0:
        raise FltnbError(f"The budget {text!r} is no time: give minutes or hours, such as 150m or 2.5h.")
    return value
