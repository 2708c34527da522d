"""An experiment with its data, ready to be computed."""

from dataclasses import dataclass

from ..federations import Federation
from ..rounds import check
from .experiment import Experiment, Training, built
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
    fed = built(experiment.federation)
    if isinstance(experiment, Training):
        check(experiment.method, fed, **experiment.arguments)
    return Task(row, experiment.key(fed.fingerprint()), fed)
