"""What a test of a claim may look at: numbers of one data set, network and variant.

A printed table has the shape of results (:class:`Print`), so that a test asks both the
same questions. What they do not have is NaN or an empty table. Compare numbers with
numpy's ``min`` and ``max``: Python's skip a NaN.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...errors import FltnbError
from ..measured import (
    COLUMNS,
    NO_SWITCH,
    TARGETS,
    name_in_print,
    without_switches,
)
from ..numbers import numbers
from ..settings import printed_setting


class Nothing:
    """Results without a job."""

    axes = ()
    curves = pd.DataFrame()
    clients = pd.DataFrame()
    runs = pd.DataFrame(
        columns=["kind", "dataset", "model", "method", "variant", "seed", "key"]
    )


class Print:
    """A printed table in the shape of results: a row per method and printed setting."""

    axes = ()
    curves = pd.DataFrame()
    clients = pd.DataFrame()

    def __init__(self, paper: str, table: str):
        rows: dict[str, dict[str, Any]] = {}
        for line in numbers(paper, table).to_dict("records"):
            about = dict(printed_setting(line))
            about.update(_compared(line))
            about.update(
                dataset=name_in_print(line),
                model=line["model"],
                method=line["method"],
                kind="training",
                variant="",
                seed=0,
                key="",
            )
            # all measures of one method and setting in one row
            row = rows.setdefault(str(about), about)
            metric = line["metric"]
            measure = COLUMNS.get((metric, line["split"]), metric)
            row[measure] = line["number"]
        self.runs = pd.DataFrame(rows.values())


def _compared(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a number compares: users (MT-HFL), or parameters (EMD-CFL)."""
    params = json.loads(line["params"] or "{}")
    compared = {}
    for name, value in params.items():
        if name.startswith(("user", "task", "labels", "parameters", "scope")):
            compared[name] = value
    return compared


def _of_rounds(curves: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the curves of a split from round 1."""
    of_split = curves["split"] == split
    later = curves["round"] > 0
    return curves[of_split & later]


def ahead(numbers: pd.Series) -> float:
    """Return how far the first of some numbers is above the highest of the others.

    NaN if one is missing.
    """
    first, *others = numbers
    return float(first - np.max(others))


def _wanted(values: pd.Series, want: Any) -> pd.Series:
    """Say which values of a column are wanted: one, one of a list, or by a function."""
    if callable(want):
        return want(values).fillna(False).astype(bool)
    if isinstance(want, (list, tuple, set)):
        return values.isin(want)
    if isinstance(want, float):
        return (values.astype(float) - want).abs() < 1e-9
    return (values == want).fillna(False).astype(bool)


class Numbers:
    """The numbers of one data set, network and variant, or the printed ones.

    Parameters
    ----------
    results : Results, or :class:`Print`
        Something with ``runs``, ``curves``, ``clients``, ``axes``; results also with
        ``table(key, name)`` and ``arrays(key)``.
    dataset, model, variant : str
        Which of the results; "" for all.
    table : str
        The printed table beside which they stand, such as "T1"; "" for none.
    beside : dict, optional
        Notebook, such as "01" -> results, for claims about several notebooks.

    Attributes
    ----------
    used : dict
        The keys of all jobs that were looked at -> the results that have them.
    printed : bool
        The numbers are those of print.
    """

    def __init__(
        self,
        results: Any,
        dataset: str = "",
        model: str = "",
        variant: str = "",
        table: str = "",
        beside: Mapping[str, Any] | None = None,
    ):
        self.results = results
        self.table = table
        self.dataset = dataset
        self.model = model
        self.variant = variant
        self.printed = isinstance(results, Print)
        self.used: dict[str, Any] = {}
        self._beside = beside or {}

        runs = results.runs
        if dataset:
            runs = runs[runs["dataset"] == dataset]
        if model:  # clusterings and most studies have no network
            runs = runs[runs["model"].isin([model, ""])]
        if variant:  # what the authors' code does as the text says is run once
            runs = runs[runs["variant"].isin([variant, ""])]
        self._own = runs

    def _of(self, results: Any, variant: str, table: str = "") -> "Numbers":
        """Return numbers of the same data and network; they count as looked at here."""
        other = Numbers(results, self.dataset, self.model, variant, table)
        other.used = self.used
        return other

    def beside(self, notebook: str) -> "Numbers":
        """Return the numbers of the same data, network and variant of a notebook."""
        results = self._beside.get(notebook[:2], Nothing())
        return self._of(results, self.variant)

    def text(self) -> "Numbers":
        """Return the same numbers of runs that follow the text."""
        return self._of(self.results, "as_written", self.table)

    # ---------------------------------------------------------------- trainings

    def by_seed(self, *methods: str, measure="accuracy", **axes: Any) -> pd.DataFrame:
        """Return the numbers of methods at the seeds they all have: seed x method.

        Parameters
        ----------
        *methods : str
        measure : str
            A column of ``runs``, or "clean_accuracy" or "backdoor_accuracy": means over
            the clients of true cluster 0. NaN where runs have no such number.
        **axes
            Axis -> value, list of values or function of the column. An axis that is not
            named must be unset: runs with a switch stand beside no printed number.

        Raises
        ------
        FltnbError
            A method has several runs of one seed.
        """
        found = self._trainings(methods, axes)
        if measure not in found:
            found = found.assign(**{measure: self._of_targets(found, measure)})
        wide = found.pivot(index="seed", columns="method", values=measure)
        return wide.reindex(columns=methods).astype(float).dropna()

    def means(self, *methods: str, measure="accuracy", **axes: Any) -> pd.Series:
        """Return method -> mean over the seeds they all have; NaN if one is missing."""
        return self.by_seed(*methods, measure=measure, **axes).mean()

    def mean(self, method: str, measure="accuracy", **axes: Any) -> float:
        """Return the mean over a method's seeds."""
        return float(self.means(method, measure=measure, **axes)[method])

    def lead(self, first: str, *others: str, measure="accuracy", **axes: Any) -> float:
        """Return how far the first method's mean is above the highest of the others.

        Over the seeds that all have; NaN if one method is missing.
        """
        return ahead(self.means(first, *others, measure=measure, **axes))

    def seeds(self, method: str, measure="accuracy", **axes: Any) -> pd.Series:
        """Return seed -> number of a method."""
        return self.by_seed(method, measure=measure, **axes)[method]

    def curves_by_seed(
        self, *methods: str, split="test", measure="accuracy", **axes: Any
    ) -> pd.DataFrame:
        """Return the curves at the seeds they all have: (round, seed) x method.

        The first round is 1; what stands before the first round is left out.

        Parameters
        ----------
        *methods : str
        split : str
            "test" or "train".
        measure : str
            A column of ``curves``.
        **axes
            As for :meth:`by_seed`.
        """
        found = self._trainings(methods, axes)
        curves = self.results.curves
        if curves.empty:
            return pd.DataFrame(columns=methods, dtype=float)
        curves = _of_rounds(curves, split)
        curves = curves[curves["key"].isin(found["key"])]
        # a run stands there once for every set of axes under which it was asked for
        curves = curves.drop_duplicates(["key", "method", "round"])
        wide = curves.pivot(index=["round", "seed"], columns="method", values=measure)
        wide = wide.reindex(columns=methods).astype(float)

        has_rounds = wide.notna().groupby(level="seed").any()
        complete = has_rounds.index[has_rounds.all(axis=1)]
        seeds = wide.index.get_level_values("seed")
        return wide[seeds.isin(complete)]

    def curves(
        self, *methods: str, split="test", measure="accuracy", **axes: Any
    ) -> pd.DataFrame:
        """Return the means of :meth:`curves_by_seed` by round: round x method."""
        found = self.curves_by_seed(*methods, split=split, measure=measure, **axes)
        if found.empty:
            return found
        return found.groupby(level="round").mean()

    def curve(
        self, method: str, split="test", measure="accuracy", **axes: Any
    ) -> pd.Series:
        """Return round -> mean over the seeds of a method."""
        return self.curves(method, split=split, measure=measure, **axes)[method]

    def at_last_round_of(
        self, method: str, *others: str, split="test", measure="accuracy", **axes: Any
    ) -> pd.Series:
        """Return the numbers of methods after the rounds that the first of them has.

        In print these are the table's own: methods may have been given more rounds.
        """
        if self.printed:
            column = measure
            if split == "train":
                column = f"train_{measure}"
            return self.means(method, *others, measure=column, **axes)
        found = self.curves(method, *others, split=split, measure=measure, **axes)
        if found.empty:
            return pd.Series(np.nan, index=[method, *others])
        last = found[method].last_valid_index()
        return found.loc[last]

    def trainings(self, *methods: str, **axes: Any) -> pd.DataFrame:
        """Return a row of ``runs`` for each training; seeds may occur several times."""
        found = self._rows("training", axes)
        return self._use(found[found["method"].isin(methods)])

    def points(self, trainings: pd.DataFrame, split: str = "test") -> pd.DataFrame:
        """Return trainings by round, from round 1: rows with ``accuracy`` there."""
        curves = self.results.curves
        if curves.empty:
            return curves
        curves = _of_rounds(curves, split)[["key", "round", "accuracy"]]
        curves = curves.drop_duplicates(["key", "round"])
        return trainings.drop(columns="accuracy").merge(curves, on="key")

    def clients(self, method: str, **axes: Any) -> pd.DataFrame:
        """Return one row per seed and client of a method's runs."""
        found = self._trainings([method], axes)
        clients = self.results.clients
        if clients.empty:
            return clients
        return clients[clients["key"].isin(found["key"])]

    # ---------------------------------------------------------------- other jobs

    def clusterings(self, **axes: Any) -> pd.DataFrame:
        """Return a row of ``runs`` for each clustering (``ari, n_clusters, key``)."""
        return self._use(self._rows("clustering", axes))

    def study(self, name: str, **axes: Any) -> pd.DataFrame:
        """Return the table ``name`` of all studies that have it, with their axes.

        Axes that are not named may have any value. An empty DataFrame: no study has it.
        """
        about = ["key", "dataset", "model", "method", "variant", "seed", "ari"]
        about.extend(self.results.axes)
        studies = self._rows("study", axes)
        distances = self._rows("distances", axes)
        jobs = pd.concat([studies, distances])
        tables = []
        for run in jobs.to_dict("records"):
            key = run["key"]
            table = self.results.table(key, name)
            if table.empty:
                continue
            self.used[key] = self.results
            of_run = {}
            for column in about:
                if column in run and column not in table:
                    of_run[column] = run[column]
            tables.append(table.assign(**of_run))
        if not tables:
            return pd.DataFrame()
        return pd.concat(tables, ignore_index=True)

    def distances(self, **axes: Any) -> pd.DataFrame:
        """Return a row of ``runs`` for each matrix of distances between clients.

        Axes that are not named may have any value.
        """
        return self._use(self._rows("distances", axes))

    def record(self, key: str) -> dict[str, Any]:
        """Return what a job was: ``settings`` and ``provenance``."""
        return self.results.record(key)

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays that a job kept."""
        if self.printed:
            return {}
        self.used[key] = self.results
        return self.results.arrays(key)

    def labels_by_round(self, key: str) -> dict[int, np.ndarray]:
        """Return round -> clusters (M,) that a run kept after it, in order."""
        found = {}
        for name, labels in self.arrays(key).items():
            if name.startswith("labels_at/"):
                _, round = name.split("/")
                found[int(round)] = labels
        return dict(sorted(found.items()))

    # ---------------------------------------------------------------- selection

    def _rows(self, kind: str, axes: Mapping[str, Any]) -> pd.DataFrame:
        """Return the jobs of a kind with these axes.

        Trainings and clusterings with an axis set that is not named are left out.
        """
        found = self._own[self._own["kind"] == kind]
        for name, want in axes.items():
            if name not in found:
                return found.iloc[:0]
            found = found[_wanted(found[name], want)]
        if kind in ("study", "distances"):
            return found
        free = {*axes, *NO_SWITCH}
        others = [name for name in self.results.axes if name not in free]
        runs = self.results.runs
        return without_switches(found, runs[runs["kind"] == kind], others)

    def _use(self, found: pd.DataFrame) -> pd.DataFrame:
        """Note that jobs were looked at, and return them."""
        if not self.printed:
            for key in found["key"]:
                self.used[key] = self.results
        return found

    def _trainings(self, methods, axes: Mapping[str, Any]) -> pd.DataFrame:
        """Return a row of ``runs`` for each method and seed."""
        found = self._rows("training", axes)
        found = found[found["method"].isin(methods)]
        twice = found[found.duplicated(["method", "seed"])]
        if len(twice):
            one = twice.iloc[0]
            raise FltnbError(
                f"{one['method']} has several runs of seed {one['seed']} on "
                f"{self.dataset or 'the data'}: say which value of an axis is meant."
            )
        return self._use(found)

    def _of_targets(self, found: pd.DataFrame, measure: str) -> pd.Series:
        """Return the mean of :data:`TARGETS` by run; NaN for any other measure.

        Over the clients of true cluster 0.
        """
        clients = self.results.clients
        if measure not in TARGETS or clients.empty:
            return pd.Series(np.nan, index=found.index)
        targets = clients[clients["true_cluster"] == 0]
        means = targets.groupby("key")[TARGETS[measure]].mean()
        return found["key"].map(means)
