"""The numbers for a test of a claim: of one data set, network and variant.

A test of a claim gets one :class:`Numbers` and asks it for what the claim is about,
such as ``t.lead("flt_enc1", "fedavg")``. It does not see from which data set, network
or variant the numbers are. It is called once with the numbers of each, and once with
those that the paper prints: a printed table has the same form as results
(:class:`Print`), so that a test treats both alike.

Three rules hold everywhere:

- Methods are compared at the seeds that all of them have. A method with a lucky third
  seed gains nothing from it if the others have two.
- A run with a *switch* counts only for a claim that names the switch. A switch is a
  value on an axis on which other runs have none, such as another momentum
  or number of neighbours: the notebook varied it, the printed table did not.
- Missing numbers are NaN, missing tables are empty, and the claim is then not tested.
  Compare numbers with numpy's ``min`` and ``max``: Python's may skip a NaN, since
  ``max(1.0, nan)`` is 1.0.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...errors import FltnbError
from ..measured import (
    COLUMNS,
    NO_SWITCH,
    TARGETS,
    name_in_print,
    switches,
    without,
)
from ..numbers import numbers, params_of
from ..settings import printed_setting


class Nothing:
    """Results without a run, for a notebook that was not computed.

    It has the attributes of results that :class:`Numbers` reads, and no rows, so that
    every claim finds an empty table and no test asks whether there are results.
    """

    axes = ()
    curves = pd.DataFrame()
    clients = pd.DataFrame()
    runs = pd.DataFrame(
        columns=["kind", "dataset", "model", "method", "variant", "seed", "key"]
    )


NOTHING = Nothing()


class Print(Nothing):
    """A printed table in the form of results: a row per method and printed setting.

    A paper prints accuracy, variance and so on in lines of their own. Here they are
    columns of one row, with the names that they have in ``runs`` of our results. All
    rows have seed 0: a printed mean over seeds counts as a single run. There are no
    curves, no clients and no axes.

    Parameters
    ----------
    paper, table : str
        As for :func:`fltnb.papers.numbers`.

    Examples
    --------
    >>> runs = Print("flt", "T1").runs
    >>> fedavg = runs[(runs["method"] == "fedavg") & (runs["dataset"] == "mnist")]
    >>> fedavg[["seed", "accuracy", "variance"]].to_dict("records")
    [{'seed': 0, 'accuracy': 82.73, 'variance': 44.65}]
    """

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


print_of = functools.cache(Print)
"""A printed table, read once: do not change it."""


def _compared(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the users (MT-HFL) or parameters (EMD-CFL) that a number compares.

    They tell apart lines that agree in everything else: Table I of MT-HFL has the
    similarity of each pair of five users, all of one method, data set and setting.
    """
    compared = {}
    for name, value in params_of(line["params"]).items():
        if name.startswith(("user", "task", "labels", "parameters", "scope")):
            compared[name] = value
    return compared


def _of_rounds(curves: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the curves of a split from round 1.

    Round 0 is the initial model, which no method has trained.
    """
    of_split = curves["split"] == split
    later = curves["round"] > 0
    return curves[of_split & later]


def ahead(numbers: pd.Series) -> float:
    """Return how far the first of some numbers is above the highest of the others.

    NaN if one is missing.

    Examples
    --------
    >>> ahead(pd.Series([97.0, 82.0, 96.5]))
    0.5
    """
    first, *others = numbers
    return float(first - np.max(others))


def _wanted(values: pd.Series, want: Any) -> pd.Series:
    """Return where a column has a value, one value of a list, or passes a function.

    Parameters
    ----------
    values : Series
        An axis of runs; rows without a value on it have NaN.
    want : value, list of values, or function of the column
        Decimal numbers are equal up to 1e-9, as they come from CSV files.

    Returns
    -------
    Series of bool

    Examples
    --------
    >>> tasks = pd.Series([1.0, 3.0, None])
    >>> _wanted(tasks, 3.0).tolist(), _wanted(tasks, pd.notna).tolist()
    ([False, True, False], [True, True, False])
    """
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
        An object with ``runs``, ``curves``, ``clients``, ``axes``; results also have
        ``table(key, name)`` and ``arrays(key)``.
    dataset, model, variant : str
        Selection from the results; "" for all.
    table : str
        The printed table with which they are compared, such as "T1"; "" for none.
    beside : dict, optional
        Notebook, such as "01" -> results, for claims about several notebooks.
    selected : dict, optional
        Rows that were selected before, for numbers of results that do not change. The
        claims of a notebook share one, because most of them ask for the same few rows
        and a selection takes longer than the test.

    Attributes
    ----------
    used : dict
        Keys of all runs that were used -> the results that contain them. From these the
        report knows on how many seeds a claim was tested, and how the runs depart from
        the printed setting; so every method here notes what it gives out.
    printed : bool
        Whether these are the printed numbers.

    Examples
    --------
    FLT's Table 1 on MNIST, as the authors' code computes it, and as it is printed:

    >>> import fltnb as fl
    >>> t = Numbers(fl.results("01"), "mnist", variant="as_run", table="T1")
    >>> t.by_seed("flt_enc1", "fedavg").shape  # three seeds, two methods
    (3, 2)
    >>> len(t.used)
    6
    >>> printed = Numbers(print_of("flt", "T1"), "mnist", table="T1")
    >>> printed.means("flt_enc1", "fedavg").tolist()
    [97.98, 82.73]
    """

    def __init__(
        self,
        results: Any,
        dataset: str = "",
        model: str = "",
        variant: str = "",
        table: str = "",
        beside: Mapping[str, Any] | None = None,
        selected: dict[tuple, Any] | None = None,
    ):
        self.results = results
        self.table = table
        self.dataset = dataset
        self.model = model
        self.variant = variant
        self.printed = isinstance(results, Print)
        self.used: dict[str, Any] = {}
        self._beside = beside or {}
        self._selected = {} if selected is None else selected

    def _once(self, make: Callable, *given: Any) -> Any:
        """Return ``make(*given)``, made once for one selection from the results.

        The arguments are compared as text, since axes may have lists and functions as
        values, which cannot be keys. Callers must not change the result.
        """
        what = (self.results, self.dataset, self.model, self.variant)
        what += (make.__name__, str(given))
        if what not in self._selected:
            # The text of a function is its address. It is kept with the result: were it
            # freed, another function could get the address and the wrong rows.
            self._selected[what] = (make(*given), given)
        found, _ = self._selected[what]
        return found

    def _of(self, results: Any, variant: str, table: str = "") -> "Numbers":
        """Return numbers of the same data and network; they count as used here."""
        other = Numbers(
            results, self.dataset, self.model, variant, table, selected=self._selected
        )
        other.used = self.used
        return other

    def beside(self, notebook: str) -> "Numbers":
        """Return the numbers of the same data, network and variant of a notebook.

        For a claim that compares two experiments: FLT says that a baseline loses more
        in scenario 2 than in scenario 1. ``notebook``: its number, such as "01"; if it
        was not computed, the numbers are empty.
        """
        results = self._beside.get(notebook[:2], NOTHING)
        return self._of(results, self.variant)

    def text(self) -> "Numbers":
        """Return the same numbers of runs that follow the text.

        For parts of a claim on which text and code agree, so that only the text was
        run.
        """
        return self._of(self.results, "as_written", self.table)

    # ---------------------------------------------------------------- trainings

    def by_seed(self, *methods: str, measure="accuracy", **axes: Any) -> pd.DataFrame:
        """Return the numbers of methods at their common seeds: seed x method.

        Parameters
        ----------
        *methods : str
        measure : str
            A column of ``runs``, or "clean_accuracy" or "backdoor_accuracy": means over
            the clients of true cluster 0. NaN if runs have no such number.
        **axes
            Axis -> value, list of values or function of the column. An axis that is not
            named must be unset: runs with a switch are compared with no printed number.

        Raises
        ------
        FltnbError
            A method has several runs of one seed.
        """
        found, keys = self._once(self._by_seed, methods, measure, axes)
        self._use(keys)
        return found.copy()

    def _by_seed(
        self, methods: Sequence[str], measure: str, axes: Mapping[str, Any]
    ) -> tuple[pd.DataFrame, list[str]]:
        """Return the table of :meth:`by_seed`, and the keys of the trainings."""
        found = self._trainings(methods, axes, measure)
        if measure not in found:
            found = found.assign(**{measure: self._of_targets(found, measure)})
        wide = found.pivot(index="seed", columns="method", values=measure)
        wide = wide.reindex(columns=methods).astype(float)
        # a method without any run is a column of NaN, which leaves no seed
        return wide.dropna(), found["key"].tolist()

    def means(self, *methods: str, measure="accuracy", **axes: Any) -> pd.Series:
        """Return method -> mean over the common seeds; NaN if one is missing.

        Without a single common seed all are NaN: :func:`~.claim.complete` then leaves
        the claim untested. Parameters as for :meth:`by_seed`.
        """
        return self.by_seed(*methods, measure=measure, **axes).mean()

    def mean(self, method: str, measure="accuracy", **axes: Any) -> float:
        """Return the mean over a method's seeds; NaN if it was not run."""
        return float(self.means(method, measure=measure, **axes)[method])

    def lead(self, first: str, *others: str, measure="accuracy", **axes: Any) -> float:
        """Return how far the first method's mean is above the highest of the others.

        Means are over the common seeds; NaN if one method is missing. In points for
        accuracies, which are in percent.
        """
        return ahead(self.means(first, *others, measure=measure, **axes))

    def seeds(self, method: str, measure="accuracy", **axes: Any) -> pd.Series:
        """Return seed -> number of a method, for claims about every single run."""
        return self.by_seed(method, measure=measure, **axes)[method]

    def curves_by_seed(
        self, *methods: str, split="test", measure="accuracy", **axes: Any
    ) -> pd.DataFrame:
        """Return the curves of methods at their common seeds: (round, seed) x method.

        The first round is 1; values before the first round are left out.

        Parameters
        ----------
        *methods : str
        split : str
            "test" or "train".
        measure : str
            A column of ``curves``.
        **axes
            As for :meth:`by_seed`.

        Returns
        -------
        DataFrame
            Seeds for which a method has no curve at all are left out. If a method had
            fewer rounds than others, or was evaluated in fewer of them, its numbers of
            the other rounds are NaN. Empty for printed numbers.
        """
        found = self._trainings(methods, axes)
        curves = self.results.curves
        if curves.empty:
            return pd.DataFrame(columns=methods, dtype=float)
        curves = _of_rounds(curves, split)
        curves = curves[curves["key"].isin(found["key"])]
        # a run occurs once for every set of axes for which it was requested
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
        """Return the means of :meth:`curves_by_seed` by round: round x method.

        A figure of a paper shows such means, mostly without numbers.
        """
        found = self.curves_by_seed(*methods, split=split, measure=measure, **axes)
        if found.empty:
            return found
        return found.groupby(level="round").mean()

    def curve(self, method: str) -> pd.Series:
        """Return round -> test accuracy of a method, mean over its seeds."""
        return self.curves(method)[method]

    def at_last_round_of(
        self, method: str, *others: str, split="test", measure="accuracy", **axes: Any
    ) -> pd.Series:
        """Return the numbers of methods after as many rounds as the first one has.

        Baselines may have been given more rounds than the paper's method, so the last
        point of every curve would not be a fair comparison. For printed numbers these
        are the table's own, whatever the rounds: the paper prints no others.

        Parameters
        ----------
        method : str
            The method that determines the round.
        *others : str
        split, measure, **axes
            As for :meth:`curves_by_seed`.

        Returns
        -------
        Series
            Method -> mean over the common seeds; NaN if it was not evaluated then.
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
        """Return a row of ``runs`` for each training; seeds may occur several times.

        For claims that vary an axis. :meth:`by_seed` would refuse them, as it does not
        know which of several runs of one seed is meant. ``axes`` as there.
        """
        found = self._rows("training", axes)
        found = found[found["method"].isin(methods)]
        self._use(found["key"])
        return found

    def points(self, trainings: pd.DataFrame) -> pd.DataFrame:
        """Return trainings by round, from round 1.

        Parameters
        ----------
        trainings : DataFrame
            The result of :meth:`trainings`.

        Returns
        -------
        DataFrame
            A row per training and round in which it was evaluated, with ``round`` and
            the test ``accuracy`` after it; all other columns are the training's.
        """
        curves = self.results.curves
        if curves.empty:
            return curves
        curves = _of_rounds(curves, "test")[["key", "round", "accuracy"]]
        curves = curves.drop_duplicates(["key", "round"])
        return trainings.drop(columns="accuracy").merge(curves, on="key")

    def clients(self, method: str, **axes: Any) -> pd.DataFrame:
        """Return one row per seed and client of a method's runs.

        Columns are those of ``clients`` in results, such as ``client``, ``cluster``,
        ``true_cluster`` and the accuracy on each split after the last round. Empty for
        printed numbers, as no paper prints its clients.
        """
        found = self._trainings([method], axes)
        clients = self.results.clients
        if clients.empty:
            return clients
        clients = clients[clients["key"].isin(found["key"])]
        # a run occurs once for every set of axes for which it was requested
        return clients.drop_duplicates(["key", "client"])

    # ---------------------------------------------------------------- other experiments

    def clusterings(self, **axes: Any) -> pd.DataFrame:
        """Return a row of ``runs`` for each clustering (``ari, n_clusters, key``).

        As for trainings, an axis that is not named must be unset.
        """
        found = self._rows("clustering", axes)
        self._use(found["key"])
        return found

    def study(self, name: str, **axes: Any) -> pd.DataFrame:
        """Return the table ``name`` of all studies that have it, with their axes.

        Axes that are not named may have any value. An empty DataFrame: no study has it.

        Parameters
        ----------
        name : str
            A study may have several tables, with names chosen by its notebook.
        **axes
            As for :meth:`by_seed`.

        Returns
        -------
        DataFrame
            The rows of all these tables, one after the other. Of the study's own row
            ``key, dataset, model, method, variant, seed, ari`` and the axes are added,
            except those that the table has itself.
        """
        found, keys = self._once(self._study, name, axes)
        self._use(keys)
        return found.copy()

    def _study(
        self, name: str, axes: Mapping[str, Any]
    ) -> tuple[pd.DataFrame, list[str]]:
        """Return the tables of :meth:`study`, and the keys of the studies."""
        about = ["key", "dataset", "model", "method", "variant", "seed", "ari"]
        about.extend(self.results.axes)
        studies = self._rows("study", axes)
        distances = self._rows("distances", axes)
        both = pd.concat([studies, distances])
        about = [column for column in about if column in both]
        tables = []
        keys = []
        for run in both[about].to_dict("records"):
            table = self.results.table(run["key"], name)
            if table.empty:
                continue
            keys.append(run["key"])
            of_run = {column: run[column] for column in run if column not in table}
            tables.append(table.assign(**of_run))
        if not tables:
            return pd.DataFrame(), []
        return pd.concat(tables, ignore_index=True), keys

    def distances(self, **axes: Any) -> pd.DataFrame:
        """Return a row of ``runs`` for each matrix of distances between clients.

        Axes that are not named may have any value.
        """
        found = self._rows("distances", axes)
        self._use(found["key"])
        return found

    def record(self, key: str) -> dict[str, Any]:
        """Return ``settings`` and ``provenance`` of a run."""
        return self.results.record(key)

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the stored arrays of a run, by name; it counts as used.

        Empty for printed numbers.
        """
        if self.printed:
            return {}
        self.used[key] = self.results
        return self.results.arrays(key)

    def labels_by_round(self, key: str) -> dict[int, np.ndarray]:
        """Return round -> clusters (M,) that a run stored after it, in order.

        They are stored as arrays ``labels_at/10``, ``labels_at/20`` and so on, whose
        names are sorted as numbers here: as texts 100 would come before 20.
        """
        found = {}
        for name, labels in self.arrays(key).items():
            if name.startswith("labels_at/"):
                _, round = name.split("/")
                found[int(round)] = labels
        return dict(sorted(found.items()))

    # ---------------------------------------------------------------- selection

    def _rows(self, kind: str, axes: Mapping[str, Any]) -> pd.DataFrame:
        """Return the runs of a kind with these axes.

        Trainings and clusterings with an axis set that is not named are left out.
        """
        return self._once(self._select, kind, axes)

    def _select(self, kind: str, axes: Mapping[str, Any]) -> pd.DataFrame:
        """Select the rows of :meth:`_rows`.

        Whether an axis is a switch is decided among all runs of the kind, before the
        selection of data set and network. Otherwise an axis that was varied on another
        data set only would not be noticed here.
        """
        runs = self.results.runs
        of_kind = runs[runs["kind"] == kind]
        found = of_kind
        if self.dataset:
            found = found[found["dataset"] == self.dataset]
        if self.model:  # clusterings and most studies have no network
            found = found[found["model"].isin([self.model, ""])]
        if self.variant:  # runs on which code and text agree have no variant
            found = found[found["variant"].isin([self.variant, ""])]
        for name, want in axes.items():
            if name not in found:
                return found.iloc[:0]
            found = found[_wanted(found[name], want)]
        if kind in ("study", "distances"):
            return found
        free = {*axes, *NO_SWITCH}
        others = [name for name in self.results.axes if name not in free]
        return without(found, switches(of_kind, others))

    def _use(self, keys: Iterable[str]) -> None:
        """Record that runs were used; printed numbers have no keys."""
        if not self.printed:
            self.used.update(dict.fromkeys(keys, self.results))

    def _trainings(
        self, methods, axes: Mapping[str, Any], measure: str = "key"
    ) -> pd.DataFrame:
        """Return method, seed, key and, if runs have it, a measure of trainings.

        Parameters
        ----------
        methods : sequence of str
        axes : dict
            As for :meth:`by_seed`.
        measure : str
            A column of ``runs``; by default none, as the key is returned anyway.

        Raises
        ------
        FltnbError
            A method has two runs of one seed: an axis varies that was not named. Their
            mean would mix two settings.
        """
        found = self._rows("training", axes)
        wanted = {"method", "seed", "key", measure}
        found = found[[name for name in found if name in wanted]]
        found = found[found["method"].isin(methods)]
        twice = found[found.duplicated(["method", "seed"])]
        if len(twice):
            one = twice.iloc[0]
            raise FltnbError(
                f"{one['method']} has several runs of seed {one['seed']} on "
                f"{self.dataset or 'the data'}: select one value of an axis."
            )
        self._use(found["key"])
        return found

    def _of_targets(self, found: pd.DataFrame, measure: str) -> pd.Series:
        """Return the mean of :data:`TARGETS` by run; NaN for any other measure.

        The mean is over the clients of true cluster 0.
        """
        clients = self.results.clients
        if measure not in TARGETS or clients.empty:
            return pd.Series(np.nan, index=found.index)
        targets = clients[clients["true_cluster"] == 0]
        means = targets.groupby("key")[TARGETS[measure]].mean()
        return found["key"].map(means)
