"""Reading results: one shape for everything, wherever it was computed."""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd

from ..errors import FltnbError, choose
from ..metrics import seed_spread
from .finished import Finished, table_of
from .grid import COMMON
from .ledger import stacked

_WORDS = {"as written": "as_written", "as run": "as_run"}
_END = ("stopped", "key")
KINDS = ("training", "clustering", "distances", "study")


class Results:
    """Finished jobs: ``runs``, ``curves``, ``clients``, and what each job kept."""

    def __init__(self, finished: Iterable[tuple[str, Finished]]):
        self._finished = list(finished)  # notebook and result

    def __len__(self) -> int:
        return len(self._finished)

    def __repr__(self) -> str:
        names = sorted({notebook for notebook, _ in self._finished if notebook})
        return f"Results({len(self)} jobs of {', '.join(names) or 'no notebook'})"

    def __add__(self, other: Self) -> Self:
        every = {}
        for notebook, done in self._finished + other._finished:
            every[done.key, str(sorted(done.axes.items()))] = (notebook, done)
        return Results(every.values())

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """Names of the notebooks' own axes, in order."""
        every = (name for _, done in self._finished for name in done.axes)
        return tuple(name for name in dict.fromkeys(every) if name not in COMMON)

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """One row per finished job.

        ``notebook, kind, dataset, model, method, variant, seed``, the notebook's own
        axes, its final numbers, ``stopped``, ``key``. Trainings: ``accuracy, variance,
        worst, micro`` of the test split (percent, percent squared), the same with
        ``train_`` or ``probe_`` before it, ``micro_f1, macro_f1, pooled_f1,
        first_clients_accuracy, first_clients_variance, ari, n_clusters, bytes, seconds,
        n_test, n_train``. Clusterings: ``n_clients, true_clusters, n_clusters, ari,
        undecided, ari_decided, links_inside, links_across, floats_up, seconds``.
        """
        rows = []
        for notebook, done in self._finished:
            row = {"notebook": notebook, "kind": done.kind, **done.axes}
            rows.append(row | {"stopped": ""} | done.numbers | {"key": done.key})
        table = pd.DataFrame(rows)
        for name in (*COMMON, *_END):
            if name not in table:
                table[name] = "" if name != "seed" else pd.Series(dtype="Int64")

        front = [*COMMON, *self.axes]
        numbers = [name for name in table if name not in (*front, *_END)]
        table = table[[*front, *numbers, *_END]].copy()
        for name in (*front, *numbers):
            if name in front or _counts(table[name]):
                table[name] = _column(table[name])
        return table

    def _joined(self, which: str) -> pd.DataFrame:
        about = [name for name in COMMON if name != "kind"]
        front = ["key", *about, *self.axes]
        whole = stacked((done for _, done in self._finished), which)
        if whole.empty:
            return pd.DataFrame(columns=front)
        # An axis may have the name of a client's own number.
        front = [name for name in front if name not in whole]
        joined = self.runs[front].join(whole.set_index("job"), how="right")
        return joined.reset_index(drop=True)

    @functools.cached_property
    def curves(self) -> pd.DataFrame:
        """One row per job, round and split, with the axes of the job in front."""
        return self._joined("curves")

    @functools.cached_property
    def clients(self) -> pd.DataFrame:
        """One row per job and client, with the axes of the job in front."""
        return self._joined("clients")

    @functools.cached_property
    def _by_key(self) -> dict[str, Finished]:
        return {done.key: done for _, done in self._finished}

    def _get(self, key: str) -> Finished:
        if key not in self._by_key:
            raise FltnbError(
                f"There is no job {key!r} among these {len(self)} results: take a key "
                "from `runs`."
            )
        return self._by_key[key]

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays that a job kept: labels, adjacency, linkage and so on."""
        return self._get(key).arrays

    def table(self, key: str, name: str) -> pd.DataFrame:
        """Return a table of a study."""
        return table_of(self._get(key).arrays, f"table/{name}")

    def record(self, key: str) -> dict[str, Any]:
        """Return what a job was: ``id``, ``settings`` and ``provenance``."""
        return self._get(key).record

    def where(self, **values: Any) -> Self:
        """Return the jobs whose columns of ``runs`` have these values.

        Each may be a value, a list of values, or a function of the column that returns
        truth values. FltnbError: an unknown column, or a value that occurs nowhere in
        it.
        """
        keep = np.ones(len(self), dtype=bool)
        for name, wanted in values.items():
            choose(name, self.runs.columns, "column of the results")
            column = self.runs[name]
            if callable(wanted):
                keep &= np.asarray(wanted(column), dtype=bool)
            else:
                keep &= column.isin(_known(column, wanted)).to_numpy()
        return Results(itertools.compress(self._finished, keep))

    def plain(self, *but: str) -> Self:
        """Return the jobs that have none of the notebooks' own axes, or ``but`` these.

        These are the jobs without a switch.
        """
        own = self.runs[[name for name in self.axes if name not in but]]
        without = (own.isna() | own.eq("")).all(axis=1)
        return self.where(key=lambda keys: without)

    def shared_seeds(self, by: str = "method") -> Self:
        """Return the jobs of the seeds that all values of a column have.

        Their means can be compared.
        """
        seeds = self.runs.groupby(by)["seed"].agg(set)
        shared = set.intersection(*seeds)
        return self.where(seed=lambda seed: seed.isin(shared))

    def mean(
        self,
        by: Sequence[str] = ("method",),
        of: Sequence[str] | str = ("accuracy", "variance"),
    ) -> pd.DataFrame:
        """Mean over seeds of the numbers ``of``, apart for the columns ``by``.

        Returns a DataFrame: ``by``, then for each number its mean and
        ``<number>_spread`` (sample standard deviation over seeds, NaN for one), then
        ``seeds``. FltnbError: an unknown column, or a seed that occurs twice in a
        group, so that two different things would be averaged.
        """
        by = list(by)
        of = [of] if isinstance(of, str) else list(of)
        for name in (*by, *of):
            choose(name, self.runs.columns, "column of the results")
        columns = list(by)
        for name in of:
            columns += [name, f"{name}_spread"]

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
        return pd.DataFrame(rows, columns=[*columns, "seeds"])

    def _refuse_twins(self, group: pd.DataFrame, row: dict[str, Any]) -> None:
        """Raise FltnbError if a seed occurs twice in a group of :meth:`mean`."""
        twice = group["seed"][group["seed"].duplicated()]
        if twice.empty:
            return
        several = group[[*COMMON, *self.axes]].nunique(dropna=False) > 1
        apart = [name for name in several.index[several] if name != "seed"]
        where = ", ".join(f"{name} is {value}" for name, value in row.items())
        raise FltnbError(
            f"Seed {twice.iloc[0]} occurs twice where {where}: keep "
            f"{', '.join(apart) or 'the jobs'} apart with by=, or select one with "
            "where()."
        )

    def provenance(self) -> pd.DataFrame:
        """One line per data set: jobs, seeds, minutes, where and when computed."""
        rows = []
        for dataset, group in self.runs.groupby("dataset", sort=False):
            where = [self.record(key)["provenance"] for key in group["key"]]
            row = {
                "dataset": dataset,
                "jobs": len(group),
                "seeds": group["seed"].nunique(),
                "minutes": _minutes(group, where),
                "commits": _words(where, "commit"),
                "hardware": _words(where, "hardware"),
                "data": _words(where, "data_origin"),
                "last day": max(about["finished"] for about in where)[:10],
            }
            rows.append(row)
        return pd.DataFrame(rows)


def _minutes(group: pd.DataFrame, where: list[dict[str, Any]]) -> float:
    """Return the minutes of computing; several distances share one training."""
    seconds = [one.get("seconds", 0.0) for one in where if "trained_as" not in one]
    if "training_seconds" in group:
        seconds += set(group["training_seconds"].dropna())
    return math.fsum(seconds) / 60  # the same in any order


def _words(where: list[dict[str, Any]], name: str) -> str:
    """Join what the provenance of jobs says under a name."""
    return ", ".join(sorted({about.get(name, "") for about in where} - {""}))


def _known(column: pd.Series, wanted: Any) -> list:
    """Return the values wanted of a column as a list; refuse those that nothing has."""
    if not isinstance(wanted, (list, tuple, set)):
        wanted = [wanted]
    there = column.dropna().unique().tolist()
    # Known words may be asked for whether a job here has them or not.
    if column.name == "kind":
        there += KINDS
    if column.name == "variant":
        wanted = [_WORDS.get(word, word) for word in wanted]
        there += _WORDS.values()
    wanted = list(wanted)
    if not any(value in there for value in wanted):
        shown = ", ".join(map(str, there[:12])) or "nothing"
        raise FltnbError(
            f"No result has {column.name} {wanted[0]!r}: there is {shown}."
        )
    return wanted


def _counts(values: pd.Series) -> bool:
    """Whether a column has whole numbers or nothing."""
    return all(isinstance(value, int) or value != value for value in values)


def _column(values: pd.Series) -> pd.Series:
    """Type an axis: whole numbers, truth values or floats, which may be missing.

    Else it is text, "" where missing.
    """
    kinds = {type(value) for value in values.dropna()}
    if not kinds and values.dtype == "Int64":
        return values
    if not kinds or str in kinds:
        return values.astype(object).where(values.notna(), "").map(str)
    if kinds == {bool}:
        return values.astype("boolean")
    if bool not in kinds and all(issubclass(one, (int, np.integer)) for one in kinds):
        return values.astype("Int64")
    return values.astype(float)
