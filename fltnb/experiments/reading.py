"""Reading results: one form for all of them, computed anywhere."""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd

from ..data.files import known_origin
from ..errors import FltnbError, choose
from ..metrics import seed_spread
from .book import FOUND, own_axes
from .finished import Arrays, Finished, Values, table_of
from .grid import COMMON
from .ledger import stacked

_WORDS = {"as written": "as_written", "as run": "as_run"}
_END = ("stopped", "key")
KINDS = ("training", "clustering", "distances", "study")
NOTHING_STORED = (
    "None of these runs is stored: give compute=True (papermill: -p compute True) to "
    "compute them."
)


class Results:
    """Finished experiments: ``runs``, ``curves``, ``clients``, and their stored arrays.

    :func:`fltnb.results` makes them. They are never changed: :meth:`where`,
    :meth:`plain` and ``+`` return others.

    Parameters
    ----------
    finished : iterable of (str, Finished)
        Each experiment, with the notebook whose ledger has it ("" for none).

    Examples
    --------
    >>> import fltnb as fl
    >>> results = fl.results("01").where(kind="training", dataset="mnist")
    >>> results.runs["method"].nunique() > 5
    True
    """

    def __init__(self, finished: Iterable[tuple[str, Finished]]):
        self._finished = list(finished)

    def __len__(self) -> int:
        return len(self._finished)

    def __repr__(self) -> str:
        notebooks = {notebook for notebook, _ in self._finished}
        names = ", ".join(sorted(notebooks - {""}))
        return f"Results({len(self)} experiments of {names or 'no notebook'})"

    def __add__(self, other: Self) -> Self:
        every = {}
        for notebook, done in self._finished + other._finished:
            axes = str(sorted(done.axes.items()))
            every[done.key, axes] = (notebook, done)
        return type(self)(every.values())

    @property
    def _done(self) -> list[Finished]:
        """The finished experiments, one for each row."""
        return [done for _, done in self._finished]

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """Return the names of the notebooks' own axes, in order."""
        return tuple(own_axes(self._done))

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """Return one row per finished experiment.

        Columns are ``notebook, kind, dataset, model, method, variant, seed``, the
        notebook's own axes, the final numbers, ``stopped`` (why a run diverged, or "")
        and ``key``. Numbers of trainings: ``accuracy, variance, worst, micro`` of the
        test split at the last round (percent, percent squared), the same with
        ``train_`` or ``probe_`` before the name, ``micro_f1, macro_f1, pooled_f1``
        (:func:`fltnb.metrics.f1_summary`), ``first_clients_accuracy,
        first_clients_variance`` (over the first client of each true cluster), ``ari``
        (adjusted Rand index), ``n_clusters, bytes`` (sent in both directions),
        ``seconds``, and ``n_test, n_train`` (different samples). Numbers of
        clusterings: ``n_clients, true_clusters, n_clusters, ari``; ``undecided``
        (clients whose data do not decide) and ``ari_decided`` (of the others);
        ``links_inside, links_across`` (share of linked pairs of clients inside and
        across true clusters); ``floats_up`` (numbers that a client sends on average)
        and ``seconds``. A number with the name of an axis has " found" after its
        name.
        """
        # Verdicts select a few rows very often: with Arrow that takes a third longer.
        with pd.option_context("mode.string_storage", "python"):
            return self._table()

    def _table(self) -> pd.DataFrame:
        """Make the table of :attr:`runs`."""
        rows = []
        for notebook, done in self._finished:
            row = {
                "notebook": notebook,
                "kind": done.kind,
                "stopped": "",
                "key": done.key,
            }
            row |= done.axes
            for number, value in done.numbers.items():
                # an axis of this name keeps its own value
                row[number + FOUND if number in done.axes else number] = value
            rows.append(row)
        table = pd.DataFrame(rows)
        for name in (*COMMON, *_END):
            if name not in table:
                table[name] = ""
                if name == "seed":
                    table[name] = pd.Series(dtype="Int64")

        # Axes are typed; numbers are not changed, but whole numbers may be missing.
        front = [*COMMON, *self.axes]
        numbers = [name for name in table if name not in (*front, *_END)]
        table = table[[*front, *numbers, *_END]].copy()
        for name in (*front, *numbers):
            if name in front or _counts(table[name]):
                table[name] = _column(table[name])
        return table

    def _joined(self, which: str) -> pd.DataFrame:
        """Return the curves or the clients of all experiments with the axes in front.

        ``which``: "curves" or "clients".
        """
        about = [name for name in COMMON if name != "kind"]
        front = ["key", *about, *self.axes]
        whole = stacked(self._done, which)
        if whole.empty:
            return pd.DataFrame(columns=front)
        # An axis may have the name of a client's own number.
        front = [name for name in front if name not in whole]
        by_job = whole.set_index("job")
        joined = self.runs[front].join(by_job, how="right")
        return joined.reset_index(drop=True)

    @functools.cached_property
    def curves(self) -> pd.DataFrame:
        """Return one row per experiment, round and split, with the axes in front.

        Columns are those of ``history`` in :class:`fltnb.Run`.
        """
        return self._joined("curves")

    @functools.cached_property
    def clients(self) -> pd.DataFrame:
        """Return one row per experiment and client, with the axes in front.

        Columns are those of ``clients`` in :class:`fltnb.Run`.
        """
        return self._joined("clients")

    @functools.cached_property
    def _by_key(self) -> dict[str, Finished]:
        """The finished experiments by key."""
        return {done.key: done for done in self._done}

    def _get(self, key: str) -> Finished:
        """Return an experiment by key, or say that there is none."""
        if key not in self._by_key:
            raise FltnbError(
                f"None of these {len(self)} results has the key {key!r}: take one from "
                "the column key of `runs`."
            )
        return self._by_key[key]

    def arrays(self, key: str) -> Arrays:
        """Return the stored arrays of an experiment by name, such as "labels".

        Parameters
        ----------
        key : str
            A value of the column ``key`` of ``runs``.

        Raises
        ------
        FltnbError
            No experiment here has this key.
        """
        return self._get(key).arrays

    def table(self, key: str, name: str) -> pd.DataFrame:
        """Return the table ``name`` of a study, empty if it has none of that name.

        ``key`` is a value of the column ``key`` of ``runs``. Raises FltnbError if no
        experiment here has this key.
        """
        return table_of(self._get(key).arrays, f"table/{name}")

    def record(self, key: str) -> Values:
        """Return an experiment's ``id``, ``settings`` and ``provenance``.

        ``key`` is a value of the column ``key`` of ``runs``. Raises FltnbError if no
        experiment here has this key.
        """
        record = self._get(key).record
        about = record["provenance"]
        if "data_origin" not in about:
            return record
        told = known_origin(about["data_origin"])
        return record | {"provenance": about | {"data_origin": told}}

    def where(self, **values: Any) -> Self:
        """Return the experiments whose columns of ``runs`` have these values.

        Parameters
        ----------
        **values
            Column -> a value, a list of values, or a function of the column (a Series)
            that returns truth values.

        Raises
        ------
        FltnbError
            A column is unknown, or none of the wanted values occurs in it.
        """
        keep = np.ones(len(self), dtype=bool)
        for name, wanted in values.items():
            choose(name, self.runs.columns, "column of the results")
            keep &= _fitting(self.runs[name], wanted)
        return type(self)(itertools.compress(self._finished, keep))

    def plain(self, *but: str) -> Self:
        """Return the experiments that have none of the notebooks' own axes.

        These are the experiments in which no switch is set.

        Parameters
        ----------
        *but : str
            Axes that they may have.
        """
        names = [name for name in self.axes if name not in but]
        own = self.runs[names]
        empty = own.isna() | own.eq("")
        without = empty.all(axis=1)
        return self.where(key=lambda keys: without)

    def mean(
        self,
        by: Sequence[str] | str = ("method",),
        of: Sequence[str] | str = ("accuracy", "variance"),
    ) -> pd.DataFrame:
        """Return means over seeds of the numbers ``of``, grouped by the columns ``by``.

        Parameters
        ----------
        by : str or sequence of str
            Columns of ``runs`` that define the groups.
        of : str or sequence of str
            Columns of numbers.

        Returns
        -------
        DataFrame
            ``by``, then for each number its mean and ``<number>_spread`` (sample
            standard deviation over seeds, NaN for one), then ``seeds``.

        Raises
        ------
        FltnbError
            A column is unknown, or a seed occurs twice in a group, so that different
            things would be averaged.
        """
        by = [by] if isinstance(by, str) else list(by)
        of = [of] if isinstance(of, str) else list(of)
        for name in (*by, *of):
            choose(name, self.runs.columns, "column of the results")
        columns = list(by)
        for name in of:
            columns += [name, f"{name}_spread"]
        columns.append("seeds")

        rows = []
        for values, group in self.runs.groupby(by, sort=False, dropna=False):
            row = dict(zip(by, values, strict=True))
            self._refuse_twins(group, row)
            for name in of:
                held = group[name].astype(float).dropna()
                row[name] = held.mean()
                row[f"{name}_spread"] = seed_spread(held)
            row["seeds"] = len(group)
            rows.append(row)
        return pd.DataFrame(rows, columns=columns)

    def _refuse_twins(self, group: pd.DataFrame, row: Values) -> None:
        """Raise FltnbError if a seed occurs twice in a group of :meth:`mean`.

        ``row`` has the common values of the group's experiments. The message names the
        axes in which they differ.
        """
        twice = group["seed"][group["seed"].duplicated()]
        if twice.empty:
            return
        several = []
        for name in (*COMMON, *self.axes):
            if name != "seed" and group[name].nunique(dropna=False) > 1:
                several.append(name)
        apart = ", ".join(several) or "another column"
        where = ", ".join(f"{name} is {value}" for name, value in row.items())
        raise FltnbError(
            f"Seed {twice.iloc[0]} occurs twice where {where}: add {apart} to by=, or "
            "select one with where()."
        )

    def provenance(self) -> pd.DataFrame:
        """Return one line per data set: where and when its numbers were computed.

        Returns
        -------
        DataFrame
            ``dataset``, ``experiments, seeds`` (their number, and that of different
            seeds), ``minutes`` of computing, ``commits``, ``hardware`` and ``data``
            (each different value once), ``last day``.
        """
        rows = []
        for dataset, group in self.runs.groupby("dataset", sort=False):
            where = [self.record(key)["provenance"] for key in group["key"]]
            last = max(about["finished"] for about in where)
            row = {
                "dataset": dataset,
                "experiments": len(group),
                "seeds": group["seed"].nunique(),
                "minutes": _minutes(group, where),
                "commits": _words(where, "commit"),
                "hardware": _words(where, "hardware"),
                "data": _words(where, "data_origin"),
                "last day": last[:10],
            }
            rows.append(row)
        return pd.DataFrame(rows)


def _minutes(group: pd.DataFrame, where: list[Values]) -> float:
    """Return the minutes of computing.

    Parameters
    ----------
    group : DataFrame
        Rows of ``runs``. Several distances share one training, with one time.
    where : list of dict
        Their provenance. An experiment that was stored together with another one took
        no time.
    """
    seconds = [one.get("seconds", 0.0) for one in where if "trained_as" not in one]
    if "training_seconds" in group:
        seconds += set(group["training_seconds"].dropna())
    return math.fsum(seconds) / 60  # the same in any order


def _words(where: list[Values], name: str) -> str:
    """Join the values of a name in the provenance of experiments."""
    words = {about.get(name, "") for about in where}
    return ", ".join(sorted(words - {""}))


def _fitting(column: pd.Series, wanted: Any) -> np.ndarray:
    """Return for each experiment whether its value is wanted.

    Parameters
    ----------
    column : Series (n,)
        A column of ``runs``.
    wanted : value, list of values, or callable
        As in :meth:`Results.where`.

    Returns
    -------
    array (n,) of bool

    Raises
    ------
    FltnbError
        No experiment has such a value.
    """
    if callable(wanted):
        return np.asarray(wanted(column), dtype=bool)
    if not isinstance(wanted, (list, tuple, set)):
        wanted = [wanted]
    wanted = list(wanted)
    there = column.dropna().unique().tolist()
    # Known words may be requested even if no experiment here has them.
    if column.name == "kind":
        there += KINDS
    if column.name == "variant":
        wanted = [_WORDS.get(word, word) for word in wanted]
        there += _WORDS.values()
    if not any(value in there for value in wanted):
        if column.empty:
            raise FltnbError(NOTHING_STORED)
        shown = ", ".join(map(str, there[:12])) or "nothing"
        raise FltnbError(
            f"No result has {column.name} {wanted[0]!r}: there is {shown}."
        )
    return column.isin(wanted).to_numpy()


def _counts(values: pd.Series) -> bool:
    """Return whether a column has only whole numbers or missing values."""
    return all(isinstance(value, int) for value in values.dropna())


def _column(values: pd.Series) -> pd.Series:
    """Return an axis with a type that may be missing.

    Returns
    -------
    Series
        Whole numbers (Int64), truth values (boolean) or floats; or text, "" where
        missing.
    """
    kinds = {type(value) for value in values.dropna()}
    if not kinds and values.dtype == "Int64":
        return values
    if not kinds or str in kinds:
        texts = values.astype(object).where(values.notna(), "")
        return texts.map(str)
    if kinds == {bool}:
        return values.astype("boolean")
    if bool in kinds:
        return values.astype(float)
    whole = all(issubclass(kind, (int, np.integer)) for kind in kinds)
    return values.astype("Int64" if whole else float)
