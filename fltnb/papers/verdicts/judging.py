"""Tests of the claims of a notebook, on its results and on the printed numbers.

:func:`judge` makes a row for each claim and *case*. A case is one set of numbers
(:class:`Numbers`) that the claim can be tested on: a data set with a network and a
variant, or the printed numbers of a data set and network. For FLT's Table 1, with MNIST
and CIFAR-10 run by the text and by the code, a claim has six cases, two of them print.

:func:`outcomes` then makes one row of all cases of a claim. Cases on print never enter
it: they tell whether the paper's own table has what the paper says of it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ...errors import FltnbError
from ..names import SHORT, label
from ..numbers import claims
from ..settings import TESTED_ON, TOY, tested_on
from .beside import (
    count_seeds,
    departs_of,
    in_paper,
    in_print,
    printed_lines,
    table_of,
    tables_of,
)
from .claim import CLAIMS, OUTCOMES, Claim, Finding
from .numbers import NOTHING, Numbers, print_of

COLUMNS = (
    "id",
    "claim",
    "notebook",
    "table",
    "dataset",
    "model",
    "variant",
    "number",
    "text",
    "holds",
    "outcome",
    "why",
    "seeds",
    "tested_on",
    "departs",
)
PRINTED = "printed"
"""The variant of rows that test the printed numbers."""


def claims_of(notebook: str) -> list[str]:
    """Return the ids of the claims that a notebook (``"01"``) tests."""
    found = []
    for claim in claims().itertuples():
        books = claim.notebook.split("; ")
        if any(name.startswith(notebook) for name in books):
            found.append(claim.id)
    return found


def judge(
    notebook: str,
    results: Any,
    beside: Mapping[str, Any] | None = None,
    ids: Iterable[str] | None = None,
) -> pd.DataFrame:
    """Test the claims of a notebook, each on every data set, network and variant.

    Parameters
    ----------
    notebook : str
        Such as "01".
    results : Results, or None
        All results of the notebook; None if there are none.
    beside : dict, optional
        Notebook -> Results, for claims that also concern other notebooks.
    ids : iterable of str, optional
        The claims; by default all claims of the notebook in ``claims.csv``.

    Returns
    -------
    DataFrame
        A row per claim and set of numbers, including the printed ones: ``id, claim,
        notebook, table, dataset, model``; ``variant`` ("printed", "as_written",
        "as_run" or ""); ``number`` and ``text`` (as shown); ``outcome`` (agrees,
        partly, disagrees, not tested); ``holds`` (True, False, or None if it was not
        tested); ``why`` it was not tested; ``seeds``; ``tested_on`` ("printed setting",
        "reduced setting", "stand-in data"; "" for printed numbers); ``departs``:
        phrases that say how the runs depart from the paper.

    Examples
    --------
    >>> import fltnb as fl
    >>> tested = fl.papers.judge("01_scenario1", fl.results("01"))
    >>> sorted(tested["outcome"].unique())
    ['agrees', 'disagrees', 'not tested']
    """
    if ids is None:
        ids = claims_of(notebook)
    if results is None or not len(results.runs):
        results = NOTHING
    held = _Held(notebook, results, beside or {})
    rows = []
    for name in ids:
        if name in CLAIMS:
            rows.extend(_judge(CLAIMS[name], held))
        else:
            rows.append(_untested(name, notebook, "no test is written for it"))
    return pd.DataFrame(rows, columns=COLUMNS)


@dataclass(frozen=True)
class _Held:
    """The results on which the claims of a notebook are tested.

    Attributes
    ----------
    notebook : str
        Such as "01".
    results : Results, or :data:`NOTHING`
        Of this notebook.
    beside : dict
        Notebook -> results, of all others.
    selected : dict
        What claims have selected from the results, as for :class:`Numbers`.
    """

    notebook: str
    results: Any
    beside: Mapping[str, Any]
    selected: dict[tuple, Any] = field(default_factory=dict)

    def numbers(
        self, table: str, dataset: str = "", model: str = "", variant: str = ""
    ) -> Numbers:
        """Return our numbers, to be compared with a printed table."""
        return Numbers(
            self.results, dataset, model, variant, table, self.beside, self.selected
        )

    def printed(
        self, claim: Claim, table: str, dataset: str, network: str = ""
    ) -> Numbers:
        """Return the printed numbers of a table.

        The claim's printed tables of other notebooks stand for their results
        (:meth:`Numbers.beside`).

        Parameters
        ----------
        claim : Claim
        table : str
        dataset, network : str
            In the paper's words; "" for all networks.
        """
        prints = {}
        for notebook in self.beside:
            other = table_of(claim, notebook)
            if other:
                prints[notebook[:2]] = print_of(claim.paper, other)
        source = print_of(claim.paper, table)
        return Numbers(
            source, dataset, network, "", table, beside=prints, selected=self.selected
        )


def judge_all(held: Mapping[str, Any]) -> pd.DataFrame:
    """Test all claims.

    Parameters
    ----------
    held : dict
        Full name of a notebook -> results.
    """
    beside = {name[:2]: results for name, results in held.items()}
    books = set()
    for names in claims()["notebook"]:
        books.update(names.split("; "))
    tables = []
    for book in sorted(books):
        number = book[:2]
        tables.append(judge(number, held.get(book), beside))
    return pd.concat(tables, ignore_index=True)


# ---------------------------------------------------------------- one claim


def _untested(name: str, notebook: str, why: str) -> dict[str, Any]:
    """Return the row of a claim that is not tested, which other values may replace."""
    every = claims()
    (sentence,) = every["claim"][every["id"] == name]
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
    row.update(
        id=name,
        claim=sentence.rstrip("."),
        notebook=notebook,
        number=np.nan,
        holds=None,
        outcome="not tested",
        why=why,
        seeds=0,
        departs=(),
    )
    return row


def _judge(claim: Claim, held: _Held) -> list[dict[str, Any]]:
    """Return a row for each set of numbers on which a claim could be tested.

    If it could be tested on none of ours, a row says why.
    """
    rows = []
    without = []  # cases for which there is no run
    seen = set()
    for dataset, model, given in _cases(claim, held):
        row = _row(claim, held.notebook, given) | {"dataset": dataset, "model": model}
        if row["outcome"] == "not tested" and not given.used:
            without.append(row)
            continue
        # a clustering has no network, and code that equals the text has no variant: the
        # second case would repeat the first
        same = (row["text"], frozenset(given.used))
        if not given.used or same not in seen:
            rows.append(row)
        seen.add(same)

    for dataset, model, given in _print_alone(claim, held, rows):
        row = _row(claim, held.notebook, given)
        if row["outcome"] != "not tested":
            rows.append(row | {"dataset": dataset, "model": model})
    rows = _without_toys(rows)
    if _of_runs(rows):
        return rows
    if without:
        rows.append(without[-1])
    else:
        rows.append(_untested(claim.id, held.notebook, "it was not run"))
    return rows


def _of_runs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that do not test the printed numbers."""
    return [row for row in rows if row["variant"] != PRINTED]


def _without_toys(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out toy data if there are others: toy data count only alone."""
    real = [row for row in rows if not TOY.search(row["dataset"])]
    if _of_runs(real):
        return real
    return rows


def _row(claim: Claim, notebook: str, given: Numbers) -> dict[str, Any]:
    """Test a claim on one set of numbers.

    A fault of the test itself is told with the id of the claim.
    """
    try:
        finding = claim(given)
    except FltnbError as error:
        raise FltnbError(f"{claim.id} cannot be tested: {error}") from error
    if not isinstance(finding, Finding):
        raise FltnbError(f"{claim.id} gave {finding!r}: return a Finding.")

    departs = finding.departs
    if not claim.any_data:
        departs += departs_of(claim, given.table, given.used)
    row = _untested(claim.id, notebook, finding.why or "a number is missing")
    row.update(
        claim=claim.short,
        table=given.table,
        variant=PRINTED if given.printed else given.variant,
        seeds=count_seeds(given.used),
        departs=departs,
    )
    if finding.outcome == "not tested":
        return row
    row.update(
        number=finding.number,
        text=shown(finding, claim.show),
        holds=finding.outcome == "agrees",
        outcome=finding.outcome,
        why="",
    )
    if not given.printed:
        row["tested_on"] = tested_on(departs)
    return row


def shown(finding: Finding, show: str) -> str:
    """Format a finding's number with a minus sign; zero has none.

    Parameters
    ----------
    finding : Finding
        Its text, if it has one, is shown instead of the number.
    show : str
        Format of the number, such as "{:+.1f}".
    """
    text = finding.text.replace("; ", ", ")
    if not text:
        text = show.format(finding.number)
        if not re.search("[1-9]", text):
            text = text.replace("-", "").replace("+", "")
    # the hyphen of CIFAR-10 is none
    return re.sub(r"(?<!\w)-(?=[\d.])", "−", text)


# ---------------------------------------------------------------- sets of numbers


def _cases(claim: Claim, held: _Held) -> Iterator[tuple[str, str, Numbers]]:
    """Yield data set, network and numbers, the printed ones first.

    A claim is tested on each data set and network that was trained, once for each
    variant. The printed numbers of a data set and network pass the same test, once:
    some claims are not true of the paper's own tables.
    """
    if claim.whole:
        yield "", "", held.numbers(table_of(claim, held.notebook))
        return

    runs = held.results.runs
    runs = runs[runs["dataset"] != ""]
    told = set()  # printed numbers that have been used
    for dataset, model in _pairs(runs):
        table = table_of(claim, held.notebook, dataset)
        name, network = in_print(claim.paper, table, dataset, model)
        stands_for = name
        if TOY.search(dataset):
            stands_for = ""  # any data set
        if not claim.speaks_of(table, stands_for, network):
            continue

        is_printed = table and len(printed_lines(claim.paper, table, name))
        if is_printed and (name, network) not in told:
            told.add((name, network))
            own = model if network else ""  # one network in print is not named there
            yield dataset, own, held.printed(claim, table, name, network)

        for variant in claim.variants or _variants(runs, dataset, model):
            yield dataset, model, held.numbers(table, dataset, model, variant)


def _print_alone(
    claim: Claim, held: _Held, rows: Iterable[Mapping[str, Any]]
) -> list[tuple[str, str, Numbers]]:
    """Return printed data sets that were not run, with network and numbers.

    Data sets with which ``rows`` are compared are left out, because their printed
    numbers have been used. None if only toy data were run.
    """
    only_toys = held.results.runs["dataset"].str.contains(TOY).all()
    if claim.whole or only_toys:
        return []
    told = {in_paper(row["dataset"]) for row in rows}
    found = []
    for table in tables_of(claim, held.notebook):
        lines = printed_lines(claim.paper, table)
        lines = lines[~lines["dataset"].isin(told)]
        for name, own in lines.groupby("dataset", sort=False):
            networks = list(own["model"].unique())
            if len(networks) == 1:
                networks = [""]  # a table with one network does not name it
            for network in networks:
                if claim.speaks_of(table, name, network):
                    given = held.printed(claim, table, name, network)
                    found.append((name, network, given))
        told.update(lines["dataset"])
    return found


def _variants(runs: pd.DataFrame, dataset: str, model: str) -> list[str]:
    """Return the variants of the runs on a data set and network, the text's first.

    A clustering has no network; a run without a variant belongs to both.
    """
    of_data = runs["dataset"] == dataset
    of_network = runs["model"].isin([model, ""])
    there = set(runs["variant"][of_data & of_network])
    if "as_run" in there and "" in there:
        there.add("as_written")
    named = [name for name in ("as_written", "as_run") if name in there]
    return named or [""]


def _pairs(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Return data sets with the networks that were trained on them, "" for none."""
    trained = runs[runs["model"] != ""]
    others = runs[~runs["dataset"].isin(trained["dataset"])]
    pairs = pd.concat([trained, others.assign(model="")])
    each_once = pairs[["dataset", "model"]].drop_duplicates()
    return list(each_once.itertuples(index=False, name=None))


# ---------------------------------------------------------------- what became of them


def outcomes(tested: pd.DataFrame) -> pd.DataFrame:
    """Return the outcome of each claim.

    Only tests in the printed setting on the paper's data count. A claim agrees if it
    holds in all of these tests, disagrees if it holds in none, and agrees partly
    otherwise.

    Parameters
    ----------
    tested : DataFrame
        Rows of :func:`judge`.

    Returns
    -------
    DataFrame
        One row per claim: ``id, claim, outcome``; ``sign`` (in brackets if it is from
        runs that do not count); ``tested_on`` (the best setting, "" for none);
        ``alone``: the data sets that count, if other data sets were not tested in such
        a setting; ``printed`` and ``here`` (numbers as text), ``seeds``, ``why``.

    Examples
    --------
    >>> import fltnb as fl
    >>> tested = fl.papers.judge("01_scenario1", fl.results("01"))
    >>> len(fl.papers.outcomes(tested)) > 0
    True
    """
    rows = [_outcome(own) for _, own in tested.groupby("id", sort=False)]
    columns = ["id", "claim", "outcome", "sign", "tested_on", "alone"]
    return pd.DataFrame(rows, columns=[*columns, "printed", "here", "seeds", "why"])


def _outcome(own: pd.DataFrame) -> dict[str, Any]:
    """Return the outcome of one claim.

    The tests in the best setting count, the others are left out: a claim that holds in
    the printed setting is not refuted by runs of fewer rounds. If none is in the
    printed setting, the claim is not tested, and the sign of what was found is in
    brackets.

    ``own``: the rows of :func:`judge` for this claim.
    """
    in_print = own["variant"] == PRINTED
    was_tested = own["outcome"] != "not tested"
    ours = own[~in_print & was_tested]
    on = set(ours["tested_on"])
    best = next((how for how in TESTED_ON if how in on), "")
    counted = ours[ours["tested_on"] == best]
    outcome = _together(counted["outcome"])
    row = {
        "id": own["id"].iloc[0],
        "claim": own["claim"].iloc[0],
        "outcome": outcome,
        "sign": OUTCOMES[outcome],
        "tested_on": best,
        "alone": "",
        "printed": _texts(own[in_print]),
        "here": _texts(counted),
        "seeds": 0,
        "why": "",
    }
    if not best:
        row["why"] = "; ".join(own["why"][own["why"] != ""].unique())
        return row
    row["seeds"] = int(counted["seeds"].max())
    row["alone"] = _alone(counted, ours)
    if best != "printed setting":
        row["outcome"] = "not tested"
        row["sign"] = f"({OUTCOMES[outcome]})"
    return row


def _alone(counted: pd.DataFrame, tested: pd.DataFrame) -> str:
    """Return the names of the data sets that count, if others were tested as well.

    A stand-in has its paper's name here: MNIST alone is said of a claim on MNIST and
    CIFAR-10 if runs on CIFAR-10 are reduced.
    """
    own = counted["dataset"].map(in_paper).unique()
    every = tested["dataset"].map(in_paper).unique()
    if len(own) == len(every):
        return ""
    return " and ".join(label(name) for name in own)


def _together(outcomes: pd.Series) -> str:
    """Combine the outcomes of several sets of numbers."""
    if outcomes.empty:
        return "not tested"
    if outcomes.nunique() > 1:
        return "partly"
    return outcomes.iloc[0]


def _texts(rows: pd.DataFrame) -> str:
    """Format the numbers of a claim's rows, each after its description.

    The description has only what tells the rows apart: the table and the network where
    there are several, the data set and the variant where there is one.
    """
    rows = rows[rows["text"] != ""]
    networks = rows.groupby("dataset")["model"].nunique()
    several_tables = rows["table"].nunique() > 1
    said: dict[str, None] = {}
    for row in rows.to_dict("records"):
        dataset = row["dataset"]
        variant = row["variant"]
        where = []
        if several_tables and row["table"]:
            where.append(f"Table {row['table'][1:]}")
        if dataset:
            name = in_paper(dataset) if variant == PRINTED else dataset
            where.append(label(name))
        if networks[dataset] > 1:
            where.append(label(row["model"]))
        if variant in SHORT:
            where.append(SHORT[variant])

        text = row["text"]
        if where:
            text = f"{', '.join(where)}: {text}"
        said[text] = None
    return "; ".join(said)
