"""What is missing, what it costs, and in which order it is worth computing: told from settings, without any data."""

import functools
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pandas as pd

from ..errors import FltnbError
from .computing import compute
from .finished import Finished
from .job import COMMON, TRAINING, Job, cell_of, key_of
from .ledger import Ledger

Asked = Callable[[str, str], list[Job]]
"""``(notebook, profile) -> jobs``: what a notebook asks for."""
MICROSECONDS = {
    **{
        "mlp": (13.0, 4.0),
        "mlp_plain": (11.0, 4.0),
        "mlp32": (8.0, 3.0),
        "cnn_small": (48.0, 35.0),
    },
    **{
        "lenet": (75.0, 48.0),
        "leaf_cnn": (640.0, 200.0),
        "emdcfl_cnn": (1530.0, 1790.0),
        "resnet18": (6000.0, 2500.0),
    },
    "efficientnet_lite0_stage": (1400.0, 400.0),
}
"""Training and evaluation of one sample on two cores, by model: a first guess, until a like job has been measured."""
IMAGES = {
    "digits": 1_437,
    "pacs_maps": 9_991,
}  # where a federation's settings do not say; of others as many as MNIST


@dataclass(frozen=True)
class Planned:
    """A missing job with its guessed cost in seconds (of the whole machine) and its value per minute."""

    job: Job
    seconds: float
    measured: bool
    worth: float
    alike: Sequence[Job] = ()  # the same settings under other names


def plan(jobs: Sequence[Job], ledger: Ledger, fresh: bool = False) -> list[Planned]:
    """Return the jobs that a ledger lacks (or, ``fresh``, all of them), best value per minute first.

    The first seed of a row is worth 1, the second a quarter, the third a ninth. A job takes as long as like jobs of its
    notebook did (:func:`_timed`), else what its settings let guess. A job is there if the ledger has it from data that
    nobody has looked at again; one that only the store or ``small`` has counts as missing, and is found at once.
    """
    profiles = {"demo": ["demo"]}.get(
        ledger.profile, ["small", "paper"]
    )  # on digits nothing takes as long
    held = {
        name: list(Ledger(name, ledger.notebook, ledger.folder).finished())
        for name in profiles
    }
    seconds = _timed(done for found in held.values() for done in found)
    own = [] if fresh else held[ledger.profile]
    keys, data = (
        {done.key for done in own},
        {done.record["id"]: done.record["provenance"]["data"] for done in own},
    )
    there = {
        job.id: job.id in data and key_of(job, data[job.id]) in keys for job in jobs
    }
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        alike.setdefault(job.id, []).append(job)
    jobs = [same.pop() for same in alike.values()]
    rank, planned = Counter(cell_of(job.axes) for job in jobs if there[job.id]), []
    for job in [job for job in jobs if not there[job.id]]:
        rank[cell_of(job.axes)] += 1
        took = seconds(job)
        measured = not math.isnan(took)
        took = took if measured else _guess(job)
        planned.append(
            Planned(
                job,
                took,
                measured,
                60 / max(took, 1.0) / rank[cell_of(job.axes)] ** 2,
                alike[job.id],
            )
        )
    return sorted(planned, key=lambda one: -one.worth)


def _guess(job: Job) -> float:
    settings, fed = job.settings, job.settings.get("federation")
    if fed is None:
        return 30.0
    fed = fed.get("base", {}) | fed
    each, (train, test) = (
        fed.get("samples_per_client"),
        MICROSECONDS.get(settings.get("model", ""), (100.0, 100.0)),
    )
    samples = IMAGES.get(fed.get("dataset"), 60_000)
    if isinstance(each, int) and "n_clients" in fed:
        samples = fed["n_clients"] * each
    if job.kind == "training":
        looks = (
            2 * settings["rounds"] / settings["eval_every"]
        )  # at training and test samples
        return 1e-6 * samples * (_work(settings) * train + looks * test)
    if job.kind == "distances":
        return 1e-6 * samples * settings["training"].get("local_epochs", 1) * train
    return 30.0 + 2e-4 * samples


def _timed(finished: Iterable[Finished]) -> Callable[[Job], float]:
    """Tell of any job what it took in seconds, else what like ones took; NaN where nobody knows."""
    same: dict[str, float] = {}
    like: dict[tuple, list[float]] = {}
    for done in finished:
        record, took = (
            done.record,
            done.numbers.get("seconds", math.nan)
            + done.numbers.get("training_seconds", 0.0),
        )
        same[record["id"]] = took
        like.setdefault(_kind(done, record["settings"]), []).append(
            took / _work(record["settings"])
        )

    def seconds(job: Job) -> float:
        others = like.get(_kind(job, job.settings), [math.nan])
        return (
            same[job.id]
            if job.id in same
            else statistics.median(others) * _work(job.settings)
        )

    return seconds


def _kind(job: Job | Finished, settings: Mapping[str, Any]) -> tuple:
    """Return what jobs have in common that cost alike, but for how often they look at each sample."""
    what = settings.get("function") or settings.get(
        "clusterer", settings.get("measure", {})
    ).get("name")
    return job.axes.get("dataset"), job.axes.get("model", ""), job.kind, what


def _work(settings: Mapping[str, Any]) -> float:
    """How often each sample is trained on, to compare the cost of trainings; 1 for anything else."""
    full = TRAINING | settings
    return (
        full["rounds"] * full["participation"] * full["local_epochs"]
        if "rounds" in full
        else 1.0
    )


_asked = functools.cache(lambda asked, notebook, profile: asked(notebook, profile))


def gaps(
    finished: Sequence[tuple[str, str, Finished]], asked: Asked | None
) -> pd.DataFrame:
    """List what the notebooks of results ask for and lack; see :meth:`fltnb.results.reading.Results.missing`."""
    known, seconds = (
        {done.record["id"] for _, _, done in finished},
        _timed(done for _, _, done in finished),
    )
    cells = {cell_of(done.axes) for _, _, done in finished}
    rows: dict[str, dict] = {}
    for notebook in dict.fromkeys(name for name, _, _ in finished) if asked else ():
        for profile in ("paper", "small"):
            for job in _asked(asked, notebook, profile):
                cell = cell_of(job.axes)
                if job.id in known or (profile == "paper" and cell in cells):
                    continue
                row = rows.get(cell)
                if (
                    row is None or row["profile"] != profile
                ):  # `small` comes last, and is the nearer one
                    shown = {
                        name: value
                        for name, value in job.axes.items()
                        if name != "seed"
                    }
                    row = {
                        "kind": job.kind,
                        **dict.fromkeys(COMMON[2:6], ""),
                        **shown,
                        "profile": profile,
                    }
                    rows[cell] = row | {"seeds": 0, "minutes": 0.0}
                rows[cell]["seeds"] += 1
                rows[cell]["minutes"] += seconds(job) / 60
    return pd.DataFrame(
        list(rows.values()),
        columns=None if rows else [*COMMON[1:6], "profile", "seeds", "minutes"],
    )


def within(
    planned: Sequence[Planned],
    seconds: float,
    found: Callable[[list[Finished]], None],
    **options,
) -> int:
    """Compute the jobs one after the other as long as the next one fits; return how many were computed.

    ``seconds`` is all the time there is; ``found`` is called with every finished job at once, so that the ledger has it
    whatever happens; ``options`` are those of :func:`fltnb.results.compute`. FltnbError: none of the jobs fits.
    """
    cheapest = min((one.seconds for one in planned), default=0.0)
    if cheapest > seconds:
        least = math.ceil(cheapest / 60)
        raise FltnbError(
            f"{seconds / 60:.0f} min is too small for any missing job: give {least} min or more."
        )
    end, count = monotonic() + seconds, 0
    for one in planned:
        if monotonic() + one.seconds <= end:
            found(compute([one.job, *one.alike], **options))
            count += 1
    return count


def minutes(text: str) -> float:
    """Return a budget such as ``150m``, ``2.5h`` or ``90s`` in minutes; FltnbError: it is none."""
    found = re.fullmatch(r"(\d+\.?\d*)([smh])", text)
    if found is None or float(found[1]) == 0:
        raise FltnbError(
            f"The budget {text!r} is no time: give minutes or hours, such as 150m or 2.5h."
        )
    return float(found[1]) * {"s": 1 / 60, "m": 1.0, "h": 60.0}[found[2]]
