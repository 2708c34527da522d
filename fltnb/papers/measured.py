"""Our measurement for every number of a printed table.

A notebook's results hold many runs, also ones that no printed number is about. For each
printed number :class:`_Found` decides which of them are our measurement of it:

1. *Candidates* are the trainings with its data set, method and variant and without a
   switch, and the rows of studies that are marked with its table. A run on a stand-in
   for its data set is a candidate as well.
2. Candidates are grouped by their *departures*, the phrases that say how they differ
   from the printed setting. All runs of one group differ only in their seed.
3. The *nearest* group is our measurement: its mean is over these seeds. So three runs
   of 9 clients and one of the printed 30 are never averaged; the one run counts.

The rules are the same for all tables, so that nobody chooses by hand which of our
numbers stands beside a printed one.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from ..analyses.mthfl_similarity import OTHER_FEATURES
from ..errors import FltnbError, choose
from ..metrics import seed_spread
from .names import label
from .numbers import KEY, numbers, params_of
from .settings import (
    NOTEBOOKS,
    SAME,
    STAND_INS,
    Row,
    departures,
    printed_setting,
    run_setting,
    tested_on,
)

COLUMNS = {
    ("accuracy", "test"): "accuracy",
    ("accuracy_variance", "test"): "variance",
    ("accuracy", "train"): "train_accuracy",
    ("accuracy_variance", "train"): "train_variance",
    ("micro_accuracy", "test"): "micro",
    ("micro_f1", "test"): "micro_f1",
    ("macro_accuracy", "test"): "accuracy",
    ("macro_f1", "test"): "macro_f1",
    ("avg_accuracy", "test"): "accuracy",
    ("worst_accuracy", "test"): "worst",
    ("ari", ""): "ari",
}
"""Printed metric and split -> column of ``runs``."""
TARGETS = {"clean_accuracy": "test", "backdoor_accuracy": "probe"}
"""Printed metric -> column of ``clients``: EMD-CFL's Tables 3 and 8 print means over
the clients of true cluster 0."""
VARIANTS = ("as_written", "as_run")
"""Runs that follow a paper's text, and runs that follow its authors' code."""
LEVELS = ("n_clients", "participation", "local_epochs", "rounds")
"""Settings of which a table may print several for one method (FLT's Table 5,
EMD-CFL's Table 6). Rounds are read off the curve of one run."""
NO_SWITCH = ("precision", "network", "table")
"""Axes of runs that do not change the meaning of a number."""
NAN = float("nan")
NOTHING = {
    "mean": NAN,
    "spread": NAN,
    "seeds": 0,
    "departs": (),
    "keys": (),
    "status": "not run",
    "on_copies": False,
}
"""The cell of a number for which nothing was run."""


def measured(
    results: Any,
    paper: str,
    table: str,
    datasets: Sequence[str] | None = None,
    beside: Sequence[str] = (),
) -> pd.DataFrame:
    """Return our measurement for every number of a printed table.

    A training counts for a number if it has the same data, method, variant and network,
    and no switch: no value on an axis that the notebook's other runs leave empty. If
    several such settings have results, the one nearest to the printed setting counts.

    A study counts for the tables that its axis ``table`` names. What it measured is in
    its stored table "printed": a row per number with ``value``, the columns that
    distinguish the numbers (``method``, ``user_i``) and, if the setting departs from
    the paper's, ``otherwise``, which says how.

    Parameters
    ----------
    results : Results, or None for nothing
    paper, table : str
        For example "flt", "T1".
    datasets : sequence of str, optional
        By default the table's own; a data set without printed numbers (digits) gets
        rows without them.
    beside : sequence of str
        Further methods that get rows, although the paper does not have them.

    Returns
    -------
    DataFrame
        One row per printed number and variant: the columns of
        :func:`fltnb.papers.numbers` (``number`` is NaN if the paper has none),
        ``variant``, ``mean``, ``spread`` (sample standard deviation over ``seeds``),
        ``departs`` (phrases of :func:`fltnb.papers.departures`), ``keys`` of the runs,
        ``status`` ("printed setting", "reduced setting", "stand-in data", "not run"),
        ``on_copies`` (whether the images are compressed copies).

    Raises
    ------
    FltnbError
        The results are of another table's notebook; or several runs of one seed fit a
        number, for example if two networks were run and the paper names none.

    Examples
    --------
    >>> import fltnb as fl
    >>> found = fl.papers.measured(fl.results("01"), "flt", "T1")
    >>> sorted(found["variant"].unique())
    ['as_run', 'as_written']
    """
    found = None
    if results is not None and not results.runs.empty:
        _refuse_other_tables(results.runs, paper, table)
        found = _Found(results, paper, table)

    printed = numbers(paper, table).to_dict("records")
    rows = []
    for line in _lines(printed, datasets, beside):
        for variant in VARIANTS:
            row = dict(line, variant=variant)
            row.update(NOTHING)
            if found is not None:
                row.update(found.cell(line, variant))
            rows.append(row)
    columns = [*numbers().columns, "variant", *NOTHING]
    return pd.DataFrame(rows, columns=columns)


def _refuse_other_tables(runs: pd.DataFrame, paper: str, table: str) -> None:
    """Refuse the results of a notebook that belongs to other tables."""
    if "notebook" not in runs:
        return
    books = NOTEBOOKS[choose(paper, NOTEBOOKS, "paper")]
    for book in runs["notebook"].unique():
        if table not in books.get(book, (table,)):
            raise FltnbError(
                f"{book} has no results for {table} of {paper}: "
                "take those of the table's own notebook."
            )


def _lines(
    printed: list[dict], datasets: Sequence[str] | None, beside: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield printed lines by data set, and lines without numbers for other methods.

    Parameters
    ----------
    printed : list of dict
        The lines of a table, in its order.
    datasets, beside
        As for :func:`measured`. If the paper has T1 on MNIST with FLT and FedAvg, then
        ``datasets=["digits"]`` and ``beside=["oracle"]`` give the lines of FLT and
        FedAvg with "digits" for MNIST, and one of the oracle for each measure.
    """
    by_dataset: dict[str, list[dict]] = {}
    for line in printed:
        own = by_dataset.setdefault(line["dataset"], [])
        own.append(line)
    first_set = by_dataset[printed[0]["dataset"]]

    for name in datasets or by_dataset:
        own = by_dataset.get(name)
        if own is None:
            # the paper does not use it: take the rows of the first set, without numbers
            own = _without_numbers(first_set, "model", dataset=name)
        yield from own
        for other in beside:
            yield from _without_numbers(own, "method", method=other)


def _without_numbers(lines: list[dict], same: str, **about: str) -> list[dict]:
    """Return copies of the lines that share a column with the first, without numbers.

    Parameters
    ----------
    lines : printed lines
    same : str
        The column, such as "method".
    **about
        New values of columns in the copies.
    """
    found = []
    for line in lines:
        if line[same] != lines[0][same]:
            continue
        other = dict(
            line,
            value="",
            error="",
            note="",
            number=NAN,
            number_error=NAN,
        )
        other.update(about)
        found.append(other)
    return found


# ---------------------------------------------------------------- which runs may count


def switches(rows: pd.DataFrame, axes: Iterable[str]) -> list[str]:
    """Return the axes that vary among rows of ``runs``.

    An axis that some rows lack varies as well: "no value" is a value of its own.
    """
    there = [name for name in axes if name in rows]
    return [name for name in there if rows[name].nunique(dropna=False) > 1]


def without(rows: pd.DataFrame, axes: Iterable[str]) -> pd.DataFrame:
    """Keep the rows of ``runs`` that have no value on any of the axes.

    Examples
    --------
    >>> runs = pd.DataFrame({"k": [None, 5.0, None], "loss": ["", "", "hinge"]})
    >>> without(runs, ["k", "loss"]).index.tolist()
    [0]
    """
    plain = np.ones(len(rows), dtype=bool)
    for name in axes:
        plain &= unset(rows[name])
    return rows[plain]


def unset(values: pd.Series) -> np.ndarray:
    """Return where an axis has no value: NaN, or "" on an axis of texts."""
    missing = values.isna()
    if not pd.api.types.is_numeric_dtype(values):
        missing |= values.astype(str) == ""
    return missing.to_numpy(dtype=bool)


def name_in_print(line: Row) -> str:
    """Return the data set of a printed line, with its suffix if any, such as "_two".

    EMD-CFL prints versions of rotated MNIST as settings, such as "rotated_two", of one
    data set, "rotated_mnist". For runs each version is a data set: "rotated_mnist_two".
    """
    if line["setting"].startswith("rotated_"):
        return line["dataset"] + line["setting"].removeprefix("rotated")
    return line["dataset"]


def sets_beside(line: Row) -> list[str]:
    """Return the data sets of runs that may count for a line, its own first."""
    own = name_in_print(line)
    found = [own]
    for stands_for in (STAND_INS, SAME):  # data set of runs -> its name in print
        for name, printed in stands_for.items():
            if printed == own:
                found.append(name)
    return found


def kinds_beside(variant: str) -> tuple[str, ...]:
    """Return the names of a variant in runs: the text's may have no name.

    A method for which text and code agree has runs without a variant. They are listed
    under the text, and not a second time under the code.
    """
    if variant == "as_written":
        return (variant, "")
    return (variant,)


# ---------------------------------------------------------------- the numbers of runs


class _Found:
    """The runs of one notebook that may count for one table.

    Attributes
    ----------
    levels : list of str
        Settings of which the table prints several for one method.
    trainings : dict
        (data set, method, variant) -> rows of ``runs``, without switches.
    studies : list of dict
        A row per number of a study, with the columns that describe it.
    """

    def __init__(self, results: Any, paper: str, table: str):
        self.results = results
        self.paper = paper
        self.levels = _levels(paper, table)

        runs = results.runs
        trainings = runs[runs["kind"] == "training"]
        free = {*NO_SWITCH, *self.levels}
        if "n_clients" in self.levels:
            free.add("clients")  # the axis on which runs vary that level
        axes = [name for name in results.axes if name not in free]
        plain = without(trainings, switches(trainings, axes))

        place = ["dataset", "method", "variant"]
        used = {*place, "model", "seed", "kind", "stopped", "key", *COLUMNS.values()}
        rows = plain[[name for name in plain if name in used]]
        self.trainings: dict[tuple, list[dict]] = {}
        for where, own in rows.groupby(place, sort=False):
            self.trainings[where] = own.to_dict("records")
        self.studies = list(self._studied(runs, table))

    def _studied(self, runs: pd.DataFrame, table: str) -> Iterator[dict[str, Any]]:
        """Yield the numbers of studies that count for the table."""
        if "table" not in runs:
            return
        studies = runs[runs["kind"] == "study"]
        tables = studies["table"].str.split()
        counts = [table in named for named in tables]
        shared = ["dataset", "variant", "seed", "model", "key"]
        for run in studies.loc[counts, shared].to_dict("records"):
            printed = self.results.table(run["key"], "printed")
            for row in printed.to_dict("records"):
                yield run | {"network": row.get("model", "")} | row

    def cell(self, line: Row, variant: str) -> dict[str, Any]:
        """Return our measurement for one number.

        Runs that depart in the same way form a group. The nearest group counts:
        on the paper's data, then with the fewest departures, then with the most runs.

        Parameters
        ----------
        line : printed line
        variant : "as_written" or "as_run"

        Returns
        -------
        dict
            With the keys of :data:`NOTHING`.
        """
        groups = self._by_departures(line, variant)
        if not groups:
            return NOTHING

        def how_far(group: tuple) -> tuple[bool, int, int]:
            departs, _ = group
            stands_in = tested_on(departs) == "stand-in data"
            n_runs = len(groups[group])
            return stands_in, len(departs), -n_runs

        # tuples are compared from the left: data, then departures, then runs
        nearest = min(groups, key=how_far)
        departs, _ = nearest
        rows, values = zip(*groups[nearest], strict=True)
        _refuse_twice(rows, line, variant)
        origin = self.results.record(rows[0]["key"])["provenance"]
        return {
            # exact, so that equal means are ties on every version of Python
            "mean": math.fsum(values) / len(values),
            "spread": seed_spread(values),
            "seeds": len(values),
            "departs": departs,
            "keys": tuple(row["key"] for row in rows),
            "status": tested_on(departs),
            "on_copies": "copies" in origin.get("data_origin", ""),
        }

    def _by_departures(
        self, line: Row, variant: str
    ) -> dict[tuple, list[tuple[dict, float]]]:
        """Return the runs that have a number, with it, by departures and kind.

        The kind keeps a study's number and a training's apart, since their mean would
        count one experiment twice.

        Returns
        -------
        dict
            (phrases, kind of run) -> pairs of a run and its number.
        """
        at_round = None
        if "rounds" in self.levels:
            at_round = printed_setting(line)["rounds"]
        groups: dict[tuple, list[tuple[dict, float]]] = {}
        for row, value in self._candidates(line, variant, at_round):
            if pd.isna(value):
                continue
            departs = self._departures(row, line, variant, at_round)
            kind = row.get("kind", "study")
            own = groups.setdefault((departs, kind), [])
            own.append((row, float(value)))
        return groups

    def _departures(
        self, row: Row, line: Row, variant: str, at_round: int | None
    ) -> tuple[str, ...]:
        """Return how a run departs from the setting of a printed line.

        ``at_round``: the round whose number is looked at, None for the last.
        """
        record = self.results.record(row["key"])
        departs = departures(record, line, row["dataset"], variant, at_round)
        if row.get("otherwise"):
            departs.extend(_otherwise(row["otherwise"]))
        if row.get("stopped"):
            departs.append("a run stopped early")
        return tuple(departs)

    def _candidates(
        self, line: Row, variant: str, at_round: int | None
    ) -> Iterator[tuple[dict, float]]:
        """Yield the runs that may count for a printed number, with their numbers.

        Parameters
        ----------
        line : printed line
        variant : "as_written" or "as_run"
        at_round : int or None
            The round whose number is looked at, None for the last.

        Yields
        ------
        (dict, float)
            A row of ``trainings`` or ``studies``, and its number, NaN if it has none.
        """
        for row in self.studies:
            if self._is_about(row, line, variant):
                yield row, row["value"]
        for dataset, kind in product(sets_beside(line), kinds_beside(variant)):
            place = (dataset, line["method"], kind)
            for row in self.trainings.get(place, ()):
                if self._has_network(row, line) and self._at_level(row, line):
                    yield row, self._value(row, line, at_round)

    def _is_about(self, row: Row, line: Row, variant: str) -> bool:
        """Whether a study's number is that of a line: all shared columns agree.

        A study has the columns that tell its own numbers apart, and no others. For the
        similarity of two users these are ``user_i`` and ``user_j``, which the line has
        among its parameters; the learning rate that the line has as well is not
        compared here, because the study says in ``otherwise`` how its setting departs.
        """
        wanted = {  # name -> the values that fit
            "variant": kinds_beside(variant),
            "network": ["", line["model"]],
        }
        for name in KEY:
            if line[name] and name != "model":
                wanted[name] = [line[name]]
        if line["dataset"]:
            wanted["dataset"] = sets_beside(line)
        for name, value in params_of(line["params"]).items():
            wanted[name] = [value]

        both_name = wanted.keys() & row.keys()
        return all(row[name] in wanted[name] for name in both_name)

    def _has_network(self, row: Row, line: Row) -> bool:
        """Whether a run has a line's network: only FLT has two on one data set."""
        if self.paper != "flt" or not line["model"]:
            return True
        has_mlp = row["model"].startswith("mlp")
        wants_mlp = line["model"] == "mlp"
        return has_mlp == wants_mlp

    def _at_level(self, row: Row, line: Row) -> bool:
        """Whether a run has the settings that distinguish the table's lines.

        FLT's Table 5 has a line for 100 clients and one for 200. A run of 200 is not a
        departure from the first, but belongs to the second. Numbers of rounds are left
        out: any run that is long enough has the number of an earlier round.
        """
        levels = [name for name in self.levels if name != "rounds"]
        if not levels:
            return True
        have = run_setting(self.results.record(row["key"]))
        want = printed_setting(line)
        return all(abs(have[name] - want[name]) < 1e-9 for name in levels)

    def _value(self, row: Row, line: Row, at_round: int | None) -> float:
        """Return a run's number, if required at a round or over the targets.

        Parameters
        ----------
        row : a row of ``runs``
        line : printed line
        at_round : int or None
            Read the number off the run's curve after this round; by default it is the
            one after the last round, which ``runs`` has.

        Returns
        -------
        float
            NaN if the run has none, for example if it ended before that round.
        """
        metric = line["metric"]
        if metric in TARGETS:
            of_targets = self._targets[TARGETS[metric]]
            return of_targets.get(row["key"], NAN)
        column = COLUMNS.get((metric, line["split"]), "")
        if at_round is None:
            return float(row.get(column, NAN))

        curves = self.results.curves
        of_run = curves["key"] == row["key"]
        of_split = curves["split"] == line["split"]
        then = curves["round"] == at_round
        return float(curves[column][of_run & of_split & then].mean())

    @functools.cached_property
    def _targets(self) -> pd.DataFrame:
        """Means over the clients of true cluster 0: key x split."""
        clients = self.results.clients
        targets = clients[clients["true_cluster"] == 0]
        return targets.groupby("key")[list(TARGETS.values())].mean()


@functools.cache
def _levels(paper: str, table: str) -> list[str]:
    """Return the settings of which a table prints several for one method.

    Examples
    --------
    >>> _levels("flt", "T1")
    []
    >>> _levels("flt", "T5")
    ['n_clients', 'participation', 'local_epochs', 'rounds']
    """
    found = set()
    for _, group in numbers(paper, table).groupby([*KEY, "setting"]):
        settings = [printed_setting(line) for line in group.to_dict("records")]
        for name in LEVELS:
            values = {setting.get(name) for setting in settings}
            if len(values) > 1:
                found.add(name)
    return [name for name in LEVELS if name in found]


def _refuse_twice(rows: Sequence[Mapping], line: Row, variant: str) -> None:
    """Refuse several runs of one seed for a printed line (FltnbError)."""
    seeds = {row["seed"] for row in rows}
    if len(seeds) == len(rows):
        return
    each_once = dict.fromkeys(label(row["model"]) for row in rows)
    networks = ", ".join(each_once)
    number = f"{label(line['method'])} on {label(line['dataset'])} {label(variant)}"
    raise FltnbError(
        f"Several runs of one seed fit {number} ({networks}): "
        "select one with results.where() first."
    )


def _otherwise(text: str) -> list[str]:
    """Return what a study says of its departures, other features as a stand-in.

    >>> _otherwise("p = 5 chosen by us, pixels")
    ['p = 5 chosen by us', 'stand-in: pixels']
    """
    phrases = []
    for phrase in text.split(", "):
        stands_in = "stand-in: " if phrase in OTHER_FEATURES else ""
        phrases.append(stands_in + phrase)
    return phrases
