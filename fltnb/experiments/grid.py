"""A grid of experiments, one row for each combination of the axes."""

import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

from ..errors import FltnbError
from .experiment import Experiment

COMMON = ("notebook", "kind", "dataset", "model", "method", "variant", "seed")
"""Columns that all results have, in the order of the tables."""
RESERVED = (
    *("notebook", "kind", "key", "record", "stopped", "seconds", "round", "split"),
    *("client", "cluster", "accuracy", "variance", "worst", "micro", "ari", "bytes"),
)
"""Names of columns that an axis must not have."""


@dataclass(frozen=True)
class Row:
    """One experiment and the values of the axes under which tables show it.

    Attributes
    ----------
    axes : dict
        Name of an axis -> value. In addition to the axes of the grid, values that
        tables of results always show, such as the model.
    experiment : Experiment

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> def plan(seed):
    ...     return fl.Clustering(clients, fl.FCR(), seed=seed)
    >>> rows = fl.grid(plan, seed=[0, 1])
    >>> rows[1].axes
    {'seed': 1}
    """

    axes: dict[str, Any]
    experiment: Experiment

    def __str__(self) -> str:
        shown = []
        for name, value in self.axes.items():
            if value != "":
                shown.append(f"{name} {value}")
        return ", ".join(shown)

    @property
    def cell(self) -> str:
        """Return the name of the table's row that combines its seeds.

        These are all axes except the seed.
        """
        shown = []
        for name, value in self.axes.items():
            if name != "seed" and value != "":
                shown.append((name, str(value)))
        return str(sorted(shown))


@contextmanager
def noted(*rows: Row) -> Iterator[None]:
    """Add to an error of a grid the row, or the rows, in which it happened."""
    try:
        yield
    except Exception as error:
        error.add_note(f"In the grid's row: {' | '.join(map(str, rows))}.")
        raise


class Grid(Sequence[Row]):
    """Rows of experiments; two grids can be added.

    A run that both have, under the same values of the axes, is then there once: twice,
    it would count twice in every mean.

    Parameters
    ----------
    rows : iterable of Row
    tables : sequence of str
        The printed tables to which they belong, such as ``("T1", "T7")``.

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> def plan(seed):
    ...     return fl.Clustering(clients, fl.FCR(), seed=seed)
    >>> rows = fl.grid(plan, seed=[0, 1])
    >>> len(rows + fl.grid(plan, seed=[1, 2]))
    3
    """

    def __init__(self, rows: Iterable[Row], tables: Sequence[str] = ()):
        self.rows = tuple(rows)
        self.tables = tuple(tables)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place):
        if isinstance(place, slice):
            return type(self)(self.rows[place], self.tables)
        return self.rows[place]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __add__(self, other: Self) -> Self:
        every: dict[tuple[str, str], Row] = {}
        for row in (*self.rows, *other.rows):
            axes = str(sorted(row.axes.items()))
            every.setdefault((row.experiment.id, axes), row)
        return type(self)(every.values(), (*self.tables, *other.tables))

    def __repr__(self) -> str:
        return f"Grid of {len(self)} experiments"


def grid(run: Callable[..., Experiment | None], **axes: Any) -> Grid:
    """Return the experiments of all combinations of the axes.

    Parameters
    ----------
    run : callable
        ``run(**values)`` returns one combination's experiment: :class:`fltnb.Training`,
        ``Clustering``, ``Distances`` or ``Study``, or None to leave it out.
    **axes : one value, or a list of values, for each axis
        Every axis is a column of the results. Names and values of axes are not part of
        an experiment's settings.

    Raises
    ------
    FltnbError
        An axis has a value twice, a value that tables cannot show, or the name of a
        column of results; ``run`` returns something else.

    Examples
    --------
    >>> import fltnb as fl
    >>> def run(method, seed):
    ...     held = {"n_clients": 5, "seed": seed}
    ...     clients = fl.recipe("pseudo_writers", "digits", **held)
    ...     how = {"fedavg": fl.methods.FedAvg(), "local": fl.methods.Local()}[method]
    ...     return fl.Training(clients, how, "mlp", rounds=2)
    >>> fl.grid(run, method=["fedavg", "local"], seed=[0, 1])
    Grid of 4 experiments
    """
    values = {name: _values(name, given) for name, given in axes.items()}
    rows = []
    for combination in product(*values.values()):
        at = dict(zip(values, combination, strict=True))
        experiment = _made(run, at)
        if experiment is not None:
            rows.append(Row(experiment.shown | at, experiment))
    return Grid(rows)


def _made(run: Callable, at: dict[str, Any]) -> Experiment | None:
    """Return the result of ``run`` for one combination of the axes.

    Raises FltnbError if it is not an experiment, or ``run`` looks up a missing entry.
    """
    try:
        experiment = run(**at)
    except KeyError as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in at.items())
        raise FltnbError(
            f"The experiment of {shown} looks up {error.args[0]!r}, which is missing: "
            "add it to the parameter that it looks up, or take a profile that has it."
        ) from error
    if experiment is not None and not isinstance(experiment, Experiment):
        raise FltnbError(
            "run must return an experiment such as fl.Training(...), or None, not "
            f"{type(experiment).__name__}."
        )
    return experiment


def _values(name: str, given: Any) -> list[Any]:
    """Return an axis as a list of different plain values.

    Raises FltnbError if it has a name of :data:`RESERVED`, no value, a value twice, or
    one that tables cannot show.
    """
    if name in RESERVED:
        raise FltnbError(
            f"An axis cannot be called {name!r}, because results have that name: "
            "choose another."
        )
    values = list(given) if isinstance(given, (list, tuple, range)) else [given]
    if not values:
        raise FltnbError(f"The axis {name} has no value: give one or more.")
    for value in values:
        if not isinstance(value, (str, bool, numbers.Real)):
            raise FltnbError(
                f"The axis {name} has the value {value!r}: give text, numbers or truth "
                "values, and look objects up inside run."
            )
        if values.count(value) > 1:
            raise FltnbError(f"The axis {name} has {value!r} twice: leave one out.")
    return values
