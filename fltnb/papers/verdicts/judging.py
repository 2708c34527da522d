"""Testing claims: those of a notebook, on its results and on the printed numbers."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...errors import FltnbError
from ..names import SHORT, label
from ..numbers import claims, numbers
from ..settings import (
    NETWORKS,
    NOTEBOOKS,
    SAME,
    STAND_INS,
    TESTED_ON,
    TOY,
    departures,
    stand_in,
    tested_on,
)
from .claim import CLAIMS, OUTCOMES, Claim, Finding
from .numbers import Nothing, Numbers, Print

COLUMNS = (
    *("id", "claim", "notebook", "table", "dataset", "model", "variant"),
    *("number", "text", "holds", "outcome", "why", "seeds", "tested_on", "departs"),
)


def claims_of(notebook: str) -> list[str]:
    """Return the ids of the claims that a notebook (``"01"``) tests."""
    found = claims()
    tested = [
        any(name.startswith(notebook) for name in names.split("; "))
        for names in found["notebook"]
    ]
    return list(found["id"][tested])


def judge(
    notebook: str,
    results: Any,
    beside: Mapping[str, Any] | None = None,
    ids: Iterable[str] | None = None,
) -> pd.DataFrame:
    """Test the claims of a notebook, each on every data set, network and variant.

    Returns a DataFrame, a row per claim and set of numbers, the printed ones, too:
    ``id, claim, notebook, table, dataset, model``; ``variant`` ("printed",
    "as_written", "as_run" or ""); ``number`` and ``text`` (as shown); ``outcome``
    (agrees, partly, disagrees, not tested); ``holds`` (True, False, or None if it was
    not tested); ``why`` it was not; ``seeds``; ``tested_on`` ("printed setting",
    "reduced setting", "stand-in data"; "" in print); ``departs``: phrases that say how
    the runs are not the paper's.

    Parameters
    ----------
    notebook : str, such as "01"
    results : Results, all that the notebook has; None if there is nothing
    beside : notebook -> Results, of other notebooks that a claim speaks of as well
    ids : the claims, by default all that ``claims.csv`` has for the notebook
    """
    rows = []
    for name in claims_of(notebook) if ids is None else ids:
        if name in CLAIMS:
            rows += _judge(CLAIMS[name], notebook, results, beside or {})
        else:
            rows.append(_untested(name, notebook, "no test is written for it"))
    return pd.DataFrame(rows, columns=COLUMNS)


def judge_all(held: Mapping[str, Any]) -> pd.DataFrame:
    """Test all claims; ``held``: whole name of a notebook -> results."""
    beside = {name[:2]: results for name, results in held.items()}
    books = {name for names in claims()["notebook"] for name in names.split("; ")}
    found = [judge(book[:2], held.get(book), beside) for book in sorted(books)]
    return pd.concat(found, ignore_index=True)


def _untested(name: str, notebook: str, why: str) -> dict[str, Any]:
    """Return the row of a claim for which there are no numbers."""
    sentence = claims().set_index("id")["claim"][name].rstrip(".")
    row = {column: "" for column in COLUMNS}
    row |= {"id": name, "claim": sentence, "notebook": notebook, "number": np.nan}
    row |= {"holds": None, "outcome": "not tested", "why": why, "seeds": 0}
    row["departs"] = ()
    return row


def _judge(
    claim: Claim, notebook: str, results: Any, beside: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a row for each set of numbers on which a claim could be tested."""
    if results is None or not len(results.runs):
        results = Nothing()
    rows, without, seen = [], [], set()
    for dataset, model, given in _cases(claim, notebook, results, beside):
        row = _row(claim, notebook, given) | {"dataset": dataset, "model": model}
        if row["outcome"] == "not tested" and not given.used:
            without.append(row)
            continue
        # a clustering has no network: that of the second one is the first one's
        jobs = (given.variant, frozenset(given.used))
        if not given.used or jobs not in seen:
            rows.append(row)
        seen.add(jobs)
    return rows or without[-1:] or [_untested(claim.id, notebook, "it was not run")]


def _cases(
    claim: Claim, notebook: str, results: Any, beside: Mapping[str, Any]
) -> Iterator[tuple[str, str, Numbers]]:
    """Yield data set, network and numbers, the printed ones first."""
    table = _table(claim, notebook)
    if claim.whole:
        yield "", "", Numbers(results, table=table, beside=beside)
        return

    paper = claim.id.partition("-")[0]
    tables = {name[:2]: _table(claim, name) for name in beside}
    prints = {name: Print(paper, other) for name, other in tables.items() if other}
    runs = results.runs[results.runs["dataset"] != ""]
    trained = runs[runs["kind"] == "training"]
    pairs = (trained if len(trained) else runs).drop_duplicates(["dataset", "model"])
    for dataset, model in zip(pairs["dataset"], pairs["model"], strict=True):
        name, network = _in_print(paper, table, dataset, model)
        of = "" if TOY.search(dataset) else name  # toy data stand for all
        if not claim.speaks_of(table, of, network):
            continue

        if table and name in set(numbers(paper, table)["dataset"]):
            printed = Print(paper, table)
            given = Numbers(printed, name, network, table=table, beside=prints)
            yield dataset, model, given
        own = runs[(runs["dataset"] == dataset) & runs["model"].isin([model, ""])]
        for variant in dict.fromkeys(own["variant"][own["variant"] != ""]):
            given = Numbers(results, dataset, model, variant, table, beside)
            yield dataset, model, given


def _table(claim: Claim, notebook: str) -> str:
    """Return the table among a claim's beside which a notebook's results stand."""
    books = NOTEBOOKS[claim.id.partition("-")[0]]
    own = [tables for name, tables in books.items() if name.startswith(notebook[:2])]
    there = [table for table in claim.tables if own and table in own[0]]
    return there[0] if there else ""


@functools.cache
def _in_print(paper: str, table: str, dataset: str, model: str) -> tuple[str, str]:
    """Return the paper's names of a data set and, if it has several, of a network."""
    name = (STAND_INS | SAME).get(dataset, dataset)
    printed = numbers(paper, table) if table else numbers(paper)
    models = printed.loc[printed["dataset"] == name, "model"].unique()
    if not table or len(models) < 2:
        return name, ""
    names = {ours: theirs for theirs, ours in NETWORKS.items()}
    return name, names.get(model, "mlp" if model.startswith("mlp") else "cnn")


def _row(claim: Claim, notebook: str, numbers: Numbers) -> dict[str, Any]:
    """Test a claim on one set of numbers."""
    try:
        finding = claim(numbers)
    except FltnbError as error:
        raise FltnbError(f"{claim.id} cannot be tested: {error}") from error
    if not isinstance(finding, Finding):
        raise FltnbError(f"{claim.id} gave {finding!r}: return a Finding.")
    used = numbers.used
    departs = _departs(claim, numbers.table, used)
    tested = finding.outcome != "not tested"
    return {
        "id": claim.id,
        "claim": claim.short,
        "notebook": notebook,
        "table": numbers.table,
        "variant": "printed" if numbers.printed else numbers.variant,
        "number": finding.number,
        "text": shown(finding, claim.show) if tested else "",
        "holds": finding.outcome == "agrees" if tested else None,
        "outcome": finding.outcome,
        "why": "" if tested else finding.why or "a number is missing",
        "seeds": _seeds(used),
        "tested_on": "" if numbers.printed or not tested else tested_on(departs),
        "departs": departs,
    }


def shown(finding: Finding, show: str) -> str:
    """Write a finding's number with a minus sign, zero without one."""
    text = finding.text.replace("; ", ", ") or show.format(finding.number)
    if not finding.text and not any(digit in text for digit in "123456789"):
        text = text.replace("-", "").replace("+", "")
    return re.sub(r"-(?=[\d.])", "−", text)


def _seeds(used: Mapping[str, Any]) -> int:
    """Count the seeds of jobs."""
    seeds = set()
    for results in _each(used):
        runs = results.runs
        seeds |= set(runs["seed"][runs["key"].isin(used)].dropna())
    return len(seeds)


def _departs(claim: Claim, table: str, used: Mapping[str, Any]) -> tuple[str, ...]:
    """Say how the jobs behind a verdict depart from the printed setting and data."""
    said: dict[str, None] = {}
    for results in _each(used):
        runs = results.runs[results.runs["key"].isin(used)].drop_duplicates("key")
        about = runs[["key", "dataset", "model", "method", "variant", "stopped"]]
        for run in about.itertuples():
            said |= dict.fromkeys(
                _departs_of(claim, table, results.record(run.key), run)
            )
    return tuple(said)


def _each(used: Mapping[str, Any]) -> list[Any]:
    """Return the results that have the jobs, each once."""
    return list({id(results): results for results in used.values()}.values())


def _departs_of(claim: Claim, table: str, record: Mapping, run: Any) -> list[str]:
    """Say how one job departs from the nearest of the settings that a table prints."""
    if TOY.search(run.dataset):
        return [f"stand-in: {label(run.dataset)}"]
    paper = claim.id.partition("-")[0]
    lines = _lines(paper, table, run.dataset, run.model, run.method)
    if not lines:
        return stand_in(run.dataset, record["provenance"].get("data_origin", ""))
    options = {"variant": run.variant, "dataset": run.dataset, "instead": claim.setting}
    each = [departures(record, line, **options) for line in lines]
    found = min(each, key=len)
    return [*found, "a run stopped early"] if run.stopped else found


@functools.cache
def _lines(
    paper: str, table: str, dataset: str, model: str, method: str
) -> list[dict[str, Any]]:
    """Return the printed lines of a run's data, network and method, or any method's."""
    if not table:
        return []
    name, network = _in_print(paper, table, dataset, model)
    printed = numbers(paper, table)
    printed = printed[printed["dataset"] == name]
    if network:
        printed = printed[printed["model"] == network]
    own = printed[printed["method"] == method]
    chosen = own if len(own) else printed
    return chosen.drop_duplicates(["model", "params"]).to_dict("records")


def outcomes(tested: pd.DataFrame) -> pd.DataFrame:
    """Say what became of each claim; ``tested``: rows of :func:`judge`.

    Only what was tested in the printed setting on the paper's data counts: a claim
    agrees if it holds wherever it was tested so, disagrees if it holds nowhere, and
    agrees partly otherwise. Returns a DataFrame, one row per claim: ``id, claim,
    outcome``; ``sign`` (in brackets: that of runs which do not count); ``tested_on``
    (the best there is, "" for none); ``printed`` and ``here`` (numbers as text),
    ``seeds``, ``why``.
    """
    rows = []
    for name, own in tested.groupby("id", sort=False):
        ours = own[(own["variant"] != "printed") & (own["outcome"] != "not tested")]
        best = next((how for how in TESTED_ON if how in set(ours["tested_on"])), "")
        counted = ours[ours["tested_on"] == best]
        together = _together(counted["outcome"])
        counts = best == TESTED_ON[0]
        sign = OUTCOMES[together]
        row = {"id": name, "claim": own["claim"].iloc[0]}
        row["outcome"] = together if counts else "not tested"
        row["sign"] = sign if counts or not best else f"({sign})"
        row["tested_on"] = best
        row["printed"] = _texts(own[own["variant"] == "printed"])
        row["here"] = _texts(counted)
        row["seeds"] = int(counted["seeds"].max()) if len(counted) else 0
        row["why"] = (
            "" if best else "; ".join(dict.fromkeys(own["why"][own["why"] != ""]))
        )
        rows.append(row)
    return pd.DataFrame(rows)


def _together(words: pd.Series) -> str:
    """Join the outcomes of several sets of numbers."""
    if words.empty:
        return "not tested"
    return words.iloc[0] if words.nunique() == 1 else "partly"


def _texts(rows: pd.DataFrame) -> str:
    """Write the numbers of a claim's rows, each behind what it is of."""
    rows = rows[rows["text"] != ""]
    networks = rows.groupby("dataset")["model"].nunique()
    several = rows["table"].nunique() > 1
    said: dict[str, None] = {}
    for row in rows.to_dict("records"):
        dataset, where = row["dataset"], []
        if several and row["table"]:
            where.append(f"Table {row['table'][1:]}")
        if row["variant"] == "printed":
            dataset = (STAND_INS | SAME).get(dataset, dataset)
        if dataset:
            where.append(label(dataset))
        if networks[row["dataset"]] > 1:
            where.append(label(row["model"]))
        if row["variant"] in SHORT:
            where.append(SHORT[row["variant"]])
        said[f"{', '.join(where)}: {row['text']}" if where else row["text"]] = None
    return "; ".join(said)
