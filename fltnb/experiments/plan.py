"""What is missing, what it costs on this machine, and in which order it is worth it."""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

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
        One, or several where equal settings stand under several axes.
    seconds : float or None
        What it takes on this machine; None where no run like it was timed here.
    worth : float
        What it is worth in its table: the first seed of a row 1, the second a quarter,
        the third a ninth.
    """

    rows: list[Row]
    seconds: float | None
    worth: float

    @property
    def value(self) -> float:
        """Worth a minute; 0 where the cost is not known, so that these come last."""
        if self.seconds is None:
            return 0.0
        return 60 * self.worth / max(self.seconds, 1.0)


def plan(
    rows: Iterable[Row], stored: set[str], finished: Iterable[Finished]
) -> list[Planned]:
    """Return the experiments that are missing, best value a minute first.

    Parameters
    ----------
    rows : iterable of Row
    stored : set of str, the ids of experiments that are there
    finished : iterable of Finished
        Earlier results. Those of this machine's hardware say what others cost.
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
    """What experiments take on this machine, from finished ones of the same workload.

    The workload of a training is its federation (kind, data set, clients and samples),
    its model and its batches; its time grows with rounds, participation and epochs.

    Parameters
    ----------
    finished : iterable of Finished
        Those of other hardware, and those that another run was stored for, are left
        out.
    """

    def __init__(self, finished: Iterable[Finished]):
        here = environment()["hardware"]
        self.like: dict[str, list[float]] = defaultdict(list)
        for done in finished:
            about = done.record["provenance"]
            if about.get("hardware") != here or "trained_as" in about:
                continue
            settings = done.record["settings"]
            seconds = done.numbers.get("seconds", math.nan)
            seconds += done.numbers.get("training_seconds", 0.0)
            name = workload(done.kind, settings)
            self.like[name].append(seconds / passes(settings))

    def seconds(self, kind: str, settings: Values) -> float | None:
        """Return what an experiment takes; None if nothing like it was timed here."""
        found = self.like.get(workload(kind, settings))
        if not found:
            return None
        return statistics.median(found) * passes(settings)


def workload(kind: str, settings: Values) -> str:
    """Name what experiments that cost alike have in common.

    These are the kind, the clients of the federation, what is done with them (any
    method trains as long as another), the model and its batches.
    """
    federation: Values = {}
    part = settings.get("federation")
    while part:
        federation = part | federation
        part = part.get("base")
    names = ("kind", "dataset", "n_clients", "samples_per_client")
    clients = [federation.get(name) for name in names]
    what = settings.get("function")
    if kind != "training":
        for part in ("method", "clusterer", "measure"):
            if part in settings:
                what = settings[part].get("name")
    how = [settings.get(name) for name in ("model", "batch_size", "precision")]
    return str([kind, clients, what, how])


def passes(settings: Values) -> float:
    """How often a training sees a client's samples; 1 for anything else."""
    if "rounds" not in settings:
        return 1.0
    full = TRAINING | settings
    return full["rounds"] * full["participation"] * full["local_epochs"]


def within(
    planned: Sequence[Planned], seconds: float, work: Callable[[list[Row]], None]
) -> int:
    """Do the planned work as long as the next experiment fits; return how many did.

    One whose cost is not known is begun as long as there is time left.

    Parameters
    ----------
    planned : sequence of Planned
    seconds : float, all the time there is
    work : callable, computes the rows of one experiment and stores its result, so that
        nothing is lost whatever happens

    Raises
    ------
    FltnbError
        The budget is too small for any of them.
    """
    known = [one.seconds for one in planned if one.seconds is not None]
    if len(known) == len(planned) and known and min(known) > seconds:
        least = math.ceil(min(known) / 60)
        raise FltnbError(
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
        The text is no such time.
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
