"""Missing experiments: their cost on this machine, and the most useful order."""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pandas as pd

from .. import paths
from ..errors import FltnbError
from ..provenance import environment
from .experiment import TRAINING
from .finished import Finished, Values
from .grid import Row


@dataclass(frozen=True)
class Planned:
    """A missing experiment.

    Attributes
    ----------
    rows : list of Row
        One, or several if equal settings occur with several axes.
    seconds : float or None
        Time on this machine; None if no similar run was timed here.
    worth : float
        Value for its table: 1 for the first seed of a row, a quarter for the second,
        a ninth for the third.
    """

    rows: list[Row]
    seconds: float | None
    worth: float

    @property
    def value(self) -> float:
        """Return the worth per minute; 0 if the cost is unknown, so these come last."""
        if self.seconds is None:
            return 0.0
        return 60 * self.worth / max(self.seconds, 1.0)


def plan(
    rows: Iterable[Row], stored: set[str], finished: Iterable[Finished]
) -> list[Planned]:
    """Return the missing experiments, the largest worth per minute first.

    Parameters
    ----------
    rows : iterable of Row
    stored : set of str, the ids of existing experiments
    finished : iterable of Finished
        Earlier results. Those of this machine's hardware predict the cost of others.
    """
    cost = Costs(finished)
    alike: dict[str, list[Row]] = {}
    rank: Counter[str] = Counter()
    for row in rows:
        if row.experiment.id in stored:
            rank[row.cell] += 1
        else:
            alike.setdefault(row.experiment.id, []).append(row)

    planned = []
    for same in alike.values():
        row = same[0]
        rank[row.cell] += 1
        worth = 1 / rank[row.cell] ** 2
        seconds = cost.seconds(row.experiment.kind, row.experiment.settings)
        planned.append(Planned(same, seconds, worth))
    return sorted(planned, key=lambda one: -one.value)


class Costs:
    """The time of experiments on this machine, from finished ones of equal workload.

    The workload of a training is its federation (kind, data set, clients and samples),
    its model and its batches; its time grows with rounds, participation and epochs. It
    is known from runs of the same method, or else from those of any.
    If nothing similar was timed here, the benchmark of this machine's GPU gives the
    time per sample of the model, and a finished training of the same clients, on any
    machine, the number of samples. The time of tests is not included.

    Parameters
    ----------
    finished : iterable of Finished
        Those of other hardware, those that were stored together with another run, and
        those that diverged before their last round are left out.
    """

    def __init__(self, finished: Iterable[Finished]):
        here = environment()["hardware"]
        self.like: dict[str, list[float]] = defaultdict(list)
        self.a_sample = seconds_a_sample(here)
        self.samples: dict[str, int] = {}
        for done in finished:
            about = done.record["provenance"]
            settings = done.record["settings"]
            if self.a_sample and done.kind == "training":
                clients = str(clients_in(settings))
                self.samples[clients] = int(done.clients["samples"].sum())
            spent = _spent(done)
            whole = not done.numbers.get("stopped") and math.isfinite(spent)
            if whole and about.get("hardware") == here and "trained_as" not in about:
                for name in workloads(done.kind, settings):
                    self.like[name].append(spent / passes(settings))

    def seconds(self, kind: str, settings: Values) -> float | None:
        """Return the time of an experiment; None if nothing similar was timed here."""
        for name in workloads(kind, settings):
            if name in self.like:
                return statistics.median(self.like[name]) * passes(settings)
        samples = self.samples.get(str(clients_in(settings)))
        how = settings.get("model"), settings.get("precision", "float32")
        if kind != "training" or samples is None or how not in self.a_sample:
            return None
        return self.a_sample[how] * samples * passes(settings)


def _spent(done: Finished) -> float:
    """Return the seconds of a finished experiment; NaN if they were not stored.

    Of trainings that ran together in one stack each has an equal part.
    """
    seconds = done.numbers.get("seconds", math.nan)
    seconds += done.numbers.get("training_seconds", 0.0)
    return seconds / done.record["provenance"].get("together", 1)


def seconds_a_sample(hardware: str) -> dict[tuple[str, str], float]:
    """Return the time per training sample on this GPU, by model and precision.

    From results/benchmarks/gpu.csv (``python -m benchmarks.gpu --save``); nothing if it
    is from other hardware, or was measured without a GPU.
    """
    file = paths.ROOT / "results" / "benchmarks" / "gpu.csv"
    if not file.exists():
        return {}
    table = pd.read_csv(file)
    here = (table["hardware"] == hardware) & (table["device"] == "cuda")
    timed = table[here & (table["what"] == "round") & (table["contender"] == "graph")]
    found: dict[tuple[str, str], float] = {}
    for row in timed.itertuples():
        how = row.model, row.precision
        seconds = row.microseconds_per_sample / 1e6
        found[how] = min(seconds, found.get(how, math.inf))
    if ("mlp_plain", "float32") in found:  # the same network without dropout
        found["mlp", "float32"] = found["mlp_plain", "float32"]
    return found


def clients_in(settings: Values) -> list[Any]:
    """Return what determines the numbers of clients and samples of a federation."""
    federation: Values = {}
    part = settings.get("federation")
    while part:
        federation = part | federation
        part = part.get("base")
    names = ("kind", "dataset", "n_clients", "samples_per_client")
    return [federation.get(name) for name in names]


def workloads(kind: str, settings: Values) -> list[str]:
    """Return what experiments of similar cost have in common, the most similar first.

    These are the kind, the clients of the federation, the computation, the model and
    its batches. For a training the second one is without the method: most methods train
    equally long, but some train several models for every client.
    """
    clients = clients_in(settings)
    what = settings.get("function")
    for part in ("method", "clusterer", "measure"):
        if part in settings:
            what = settings[part].get("name")
    how = [settings.get(name) for name in ("model", "batch_size", "precision")]
    found = [str([kind, clients, what, how])]
    if kind == "training":
        found.append(str([kind, clients, None, how]))
    return found


def passes(settings: Values) -> float:
    """Return how often a training uses a client's samples; 1 for other kinds."""
    if "rounds" not in settings:
        return 1.0
    full: Values = TRAINING | settings
    return full["rounds"] * full["participation"] * full["local_epochs"]


class TooShortError(FltnbError):
    """A budget is smaller than the time of every missing experiment."""


def within(
    planned: Sequence[Planned], seconds: float, work: Callable[[list[Row]], None]
) -> int:
    """Do the planned work while the next experiment fits; return the number done.

    If the cost is unknown, an experiment starts as long as there is time left.

    Parameters
    ----------
    planned : sequence of Planned
    seconds : float, the available time
    work : callable, computes the rows of one experiment and stores its result, so that
        nothing is lost if it is stopped

    Raises
    ------
    TooShortError
        The budget is too small for any of them.
    """
    known = [one.seconds for one in planned if one.seconds is not None]
    if len(known) == len(planned) and known and min(known) > seconds:
        least = math.ceil(min(known) / 60)
        raise TooShortError(
            f"{seconds / 60:.0f} min is too small for any missing experiment: give "
            f"{least} min or more."
        )
    end = monotonic() + seconds
    count = 0
    for one in planned:
        if monotonic() + (one.seconds or 0.0) <= end:
            work(one.rows)
            count += 1
    return count


def minutes(text: str) -> float:
    """Return a budget such as ``150m``, ``2.5h`` or ``90s`` in minutes.

    Raises
    ------
    FltnbError
        The text is not such a time.
    """
    found = re.fullmatch(r"(\d+\.?\d*)([smh])", text)
    number = float(found[1]) if found else 0.0
    if number == 0:
        raise FltnbError(
            f"The budget {text!r} is no time: give minutes or hours, such as 150m or "
            "2.5h."
        )
    unit = {"s": 1 / 60, "m": 1.0, "h": 60.0}
    return number * unit[found[2]]
