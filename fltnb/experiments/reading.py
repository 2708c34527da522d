"""Reading results: one shape for everything, wherever it was computed."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
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
    """Finished jobs of a notebook, or of several: tables ``runs``, ``curves``, ``clients``, and what each job kept."""

    def __init__(self, finished: Iterable[tuple[str, Finished]]):
        self._finished = list(finished)  # notebook and result

    def __len__(self) -> int:
        return len(self._finished)

    def __repr__(self) -> str:
        names = sorted({notebook for notebook, _ in self._finished if notebook})
        return f"Results({len(self)} jobs of {', '.join(names) or 'no notebook'})"

    def __add__(self, other: Self) -> Self:
        every = {
            (one[1].key, str(sorted(one[1].axes.items()))): one
            for one in self._finished + other._finished
        }
        return Results(every.values())

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """Names of the notebooks' own axes, in order."""
        every = (name for _, done in self._finished for name in done.axes)
        return tuple(name for name in dict.fromkeys(every) if name not in COMMON)

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """One row per finished job.

        ``notebook, kind, dataset, model, method, variant, seed``, the notebook's own axes, its final numbers,
        ``stopped``, ``key``. Trainings: ``accuracy, variance, worst, micro`` of the test split (percent,
        percent squared), the same with ``train_`` or ``probe_`` before it, ``micro_f1, macro_f1, pooled_f1,
        first_clients_accuracy, first_clients_variance, ari, n_clusters, bytes, seconds, n_test, n_train``. Clusterings:
        ``n_clients, true_clusters, n_clusters, ari, undecided, ari_decided, links_inside, links_across, floats_up,
        seconds``.
        """
        rows = []
        for notebook, done in self._finished:
            row = {"notebook": notebook, "kind": done.kind, **done.axes, **done.numbers}
            rows.append(
                row
                | {
                    "stopped": done.numbers.get("stopped", ""),
                    "key": done.key,
                }
            )
        table = pd.DataFrame(rows)
        front = [*COMMON, *self.axes]
        for name in (*COMMON, *_END):
            if name not in table:
                table[name] = "" if name != "seed" else pd.Series(dtype="Int64")
        numbers = [name for name in table.columns if name not in (*front, *_END)]
        table = table[[*front, *numbers, *_END]]
        counts = [
            name
            for name in numbers
            if all(isinstance(value, int) or value != value for value in table[name])
        ]
        return table.assign(
            **{name: _column(table[name]) for name in (*front, *counts)}
        )

    def _joined(self, which: str) -> pd.DataFrame:
        front = [
            "key",
            "notebook",
            "dataset",
            "model",
            "method",
            "variant",
            "seed",
            *self.axes,
        ]
        whole = stacked((done for _, done in self._finished), which)
        if whole.empty:
            return pd.DataFrame(columns=front)
        front = [
            name for name in front if name not in whole
        ]  # an axis with the name of a client's own number
        return (
            self.runs[front]
            .join(whole.set_index("job"), how="right")
            .reset_index(drop=True)
        )

    @functools.cached_property
    def curves(self) -> pd.DataFrame:
        """One row per job, evaluated round and split, with the axes of the job in front."""
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
                f"There is no job {key!r} among these {len(self)} results: take a key from `runs`."
            )
        return self._by_key[key]

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays that a job kept: labels, adjacency, linkage, distance and so on."""
        return self._get(key).arrays

    def table(self, key: str, name: str) -> pd.DataFrame:
        """Return a table of a study."""
        return table_of(self._get(key).arrays, f"table/{name}")

    def record(self, key: str) -> dict[str, Any]:
        """Return what a job was: ``id``, ``settings`` and ``provenance``."""
        return self._get(key).record

    def where(self, **values: Any) -> Self:
        """Return the jobs whose columns of ``runs`` have these values.

        Each may be a value, a list of values, or a function of the column that returns truth values. FltnbError: an
        unknown column, or a value that occurs nowhere in it.
        """
        runs = self.runs
        keep = np.ones(len(runs), dtype=bool)
        for name, wanted in values.items():
            choose(name, runs.columns, "column of the results")
            if isinstance(wanted, Callable):
                keep &= np.asarray(wanted(runs[name]), dtype=bool)
                continue
            wanted = (
                list(wanted) if isinstance(wanted, (list, tuple, set)) else [wanted]
            )
            if name == "variant":
                wanted = [_WORDS.get(word, word) for word in wanted]
            there = runs[name].dropna().unique().tolist()
            there += {"kind": KINDS, "variant": _WORDS.values()}.get(
                name, ()
            )  # known words, here or not
            if not any(value in there for value in wanted):
                shown = ", ".join(map(str, there[:12])) or "nothing"
                raise FltnbError(
                    f"No result has {name} {wanted[0]!r}: there is {shown}."
                )
            keep &= runs[name].isin(wanted).to_numpy()
        return Results(
            one for one, kept in zip(self._finished, keep, strict=True) if kept
        )

    def plain(self, *but: str) -> Self:
        """Return the jobs without a switch: those that have none of the notebooks' own axes, or ``but`` these."""
        own = self.runs[[name for name in self.axes if name not in but]]
        return self.where(key=lambda keys: (own.isna() | own.eq("")).all(axis=1))

    def shared_seeds(self, by: str = "method") -> Self:
        """Return the jobs of the seeds that all values of a column have, so that their means can be compared."""
        seeds = self.runs.groupby(by)["seed"].agg(set)
        return self.where(seed=lambda seed: seed.isin(set.intersection(*seeds)))

    def mean(
        self,
        by: Sequence[str] = ("method",),
        of: Sequence[str] | str = ("accuracy", "variance"),
    ) -> pd.DataFrame:
        """Mean over seeds of the numbers ``of``, apart for the columns ``by``.

        Returns a DataFrame: ``by``, then for each number its mean and ``<number>_spread`` (sample standard deviation
        over seeds, NaN for one), then ``seeds``. FltnbError: an unknown column, or a seed that occurs twice in a group,
        so that two different things would be averaged.
        """
        by, of = list(by), [of] if isinstance(of, str) else list(of)
        runs = self.runs
        for name in (*by, *of):
            choose(name, runs.columns, "column of the results")
        rows = []
        for values, group in runs.groupby(by, sort=False, dropna=False):
            row = dict(zip(by, values, strict=True))
            if group["seed"].duplicated().any():
                apart = [
                    name
                    for name in (*COMMON, *self.axes)
                    if name != "seed" and group[name].nunique(False) > 1
                ]
                twice = f"Seed {group['seed'][group['seed'].duplicated()].iloc[0]} occurs twice where"
                where = ", ".join(f"{name} is {value}" for name, value in row.items())
                mend = f"keep {', '.join(apart) or 'the jobs'} apart with by=, or select one with where()"
                raise FltnbError(f"{twice} {where}: {mend}.")
            for name in of:
                held = group[name].astype(float).dropna()
                row |= {name: held.mean(), f"{name}_spread": seed_spread(held)}
            rows.append(row | {"seeds": len(group)})
        return pd.DataFrame(
            rows,
            columns=[
                *by,
                *(part for name in of for part in (name, f"{name}_spread")),
                "seeds",
            ],
        )

    def provenance(self) -> pd.DataFrame:
        """One line per data set: jobs, seeds, minutes of computing, commits, hardware, data, last day."""
        rows = []
        for dataset, group in self.runs.groupby("dataset", sort=False):
            where = [self.record(key)["provenance"] for key in group["key"]]
            row = {
                "dataset": dataset,
                "jobs": len(group),
                "seeds": group["seed"].nunique(),
            }
            own = [
                about.get("seconds", 0.0)
                for about in where
                if "trained_as" not in about
            ]
            once = set(
                group.get("training_seconds", pd.Series(dtype=float)).dropna()
            )  # several distances share one
            row["minutes"] = math.fsum([*own, *once]) / 60  # the same on every Python
            for name, of in {
                "commits": "commit",
                "hardware": "hardware",
                "data": "data_origin",
            }.items():
                row[name] = ", ".join(
                    sorted({about.get(of, "") for about in where} - {""})
                )
            rows.append(
                row | {"last day": max(about["finished"] for about in where)[:10]}
            )
        return pd.DataFrame(rows)


def _column(values: pd.Series) -> pd.Series:
    """Type an axis: text with "" where missing, whole numbers, truth values or floats with a missing mark."""
    kinds = {type(value) for value in values.dropna()}
    if not kinds and values.dtype == "Int64":
        return values
    if not kinds or str in kinds:
        return values.astype(object).where(values.notna(), "").map(str)
    if kinds <= {bool}:
        return values.astype("boolean")
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        return values.astype("Int64")
    return values.astype(float)
