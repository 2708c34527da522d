"""An experiment that was checked, with the key of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..federations import Federation
from ..rounds import check
from .experiment import Training, built
from .grid import Row, noted

if TYPE_CHECKING:
    from ..models import Model
    from ..training import TrainSpec


@dataclass(frozen=True)
class Task:
    """A row of a grid; ``key`` identifies its result.

    ``data`` and ``origin``: fingerprint of its federation, and where the images come
    from; "" without one. ``spec`` and ``net``: local training and network, for a
    training.
    """

    row: Row
    key: str
    data: str = ""
    origin: str = ""
    spec: TrainSpec | None = None
    net: Model | None = None

    @property
    def experiment(self) -> Any:
        """Return the experiment to compute."""
        return self.row.experiment

    @property
    def fed(self) -> Federation | None:
        """Return the federation, or None for an experiment without one.

        It is built again if it is not among the last few, because those of all
        experiments of a grid may need more memory than there is.
        """
        federation = self.experiment.federation
        return None if federation is None else built(federation)


def prepare(row: Row) -> Task:
    """Build the federation of an experiment, and its key.

    Raises
    ------
    FltnbError
        The experiment cannot run, for example because of too many clusters.

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> def plan(seed):
    ...     return fl.Clustering(clients, fl.FCR(), seed=seed)
    >>> rows = fl.grid(plan, seed=[0])
    >>> len(fl.experiments.prepare(rows[0]).key) > 8
    True
    """
    with noted(row):
        return _prepared(row)


def _prepared(row: Row) -> Task:
    """Do what :func:`prepare` says."""
    experiment = row.experiment
    if experiment.federation is None:
        return Task(row, experiment.key(""))
    fed = built(experiment.federation)
    data = fed.fingerprint()
    about = (experiment.key(data), data, fed.origin)
    if not isinstance(experiment, Training):
        return Task(row, *about)
    spec, net = check(experiment.method, fed, **experiment.arguments)
    return Task(row, *about, spec, net)
