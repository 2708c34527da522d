"""An experiment with its data, ready to be computed."""

import functools
import json
from dataclasses import dataclass

from .. import federations
from ..federations import Federation
from ..rounds import check
from ..settings import plain
from .experiment import Experiment, Training
from .grid import Row


@dataclass(frozen=True)
class Task:
    """A row of a grid with its data; ``key`` names its result everywhere."""

    row: Row
    key: str
    fed: Federation | None = None

    @property
    def experiment(self) -> Experiment:
        """What is to be computed."""
        return self.row.experiment


def prepare(row: Row) -> Task:
    """Build the federation of an experiment, and its key.

    Raises
    ------
    FltnbError
        The experiment cannot run, for example because of too many clusters.
    """
    experiment = row.experiment
    if experiment.federation is None:
        return Task(row, experiment.key(""))
    settings = plain(experiment.federation.settings)
    fed = _federation(json.dumps(settings, sort_keys=True))
    if isinstance(experiment, Training):
        check(experiment.method, fed, **experiment.arguments)
    return Task(row, experiment.key(fed.fingerprint()), fed)


@functools.lru_cache(maxsize=8)
def _federation(settings: str) -> Federation:
    """Build a federation; the last few are kept in memory."""
    return federations.build(json.loads(settings))
