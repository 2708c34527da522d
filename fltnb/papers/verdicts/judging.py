"""Testing claims: those of a notebook, on its results and on the printed numbers."""

import re
from collections.abc import Iterable, Iterator, Mapping
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
        # a clustering has no network, and what the code does as the text says no
        # variant: the second one would be the first one again
        same = (row["text"], frozenset(given.used))
        if not given.used or same not in seen:
            rows.append(row)
        seen.add(same)
    # toy data speak only where there are no others
    real = [row for row in rows if not TOY.search(row["dataset"])]
    if any(row["variant"] != "printed" for row in real):
        rows = real
    if all(row["variant"] == "printed" for row in rows):
        none = _untested(claim.id, notebook, "it was not run")
        rows += without[-1:] or [none]
    return rows


def _cases(
    claim: Claim, notebook: str, results: Any, beside: Mapping[str, Any]
) -> Iterator[tuple[str, str, Numbers]]:
    """Yield data set, network and numbers, the printed ones first."""
    if claim.whole:
        table = table_of(claim, notebook)
        yield "", "", Numbers(results, table=table, beside=beside)
        return

    prints = {}
    for name in beside:
        if table_of(claim, name):
            prints[name[:2]] = Print(claim.paper, table_of(claim, name))
    runs = results.runs[results.runs["dataset"] != ""]
    told = set()  # what of print has been looked at
    for dataset, model in _pairs(runs):
        table = table_of(claim, notebook, dataset)
        name, network = in_print(claim.paper, table, dataset, model)
        of = "" if TOY.search(dataset) else name  # toy data stand for all
        if not claim.speaks_of(table, of, network):
            continue

        there = table and len(printed_lines(claim.paper, table, name))
        if there and (name, network) not in told:
            told.add((name, network))
            printed = Print(claim.paper, table)
            given = Numbers(printed, name, network, table=table, beside=prints)
            yield dataset, model if network else "", given
        own = runs[(runs["dataset"] == dataset) & runs["model"].isin([model, ""])]
        for variant in claim.variants or _variants(own["variant"]):
            given = Numbers(results, dataset, model, variant, table, beside)
            yield dataset, model, given


def _variants(names: pd.Series) -> list[str]:
    """Return the variants of runs, the text's first; a run without one is of both."""
    named = [name for name in ("as_written", "as_run") if (names == name).any()]
    if named == ["as_run"] and (names == "").any():
        named.insert(0, "as_written")
    return named or [""]


def _pairs(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """Return data sets with the networks that were trained on them, "" for none."""
    trained = runs[runs["model"] != ""]
    pairs = list(dict.fromkeys(zip(trained["dataset"], trained["model"], strict=True)))
    for dataset in runs["dataset"].unique():
        if dataset not in set(trained["dataset"]):
            pairs.append((dataset, ""))
    return pairs


def _row(claim: Claim, notebook: str, given: Numbers) -> dict[str, Any]:
    """Test a claim on one set of numbers."""
    try:
        finding = claim(given)
    except FltnbError as error:
        raise FltnbError(f"{claim.id} cannot be tested: {error}") from error
    if not isinstance(finding, Finding):
        raise FltnbError(f"{claim.id} gave {finding!r}: return a Finding.")

    row = {"id": claim.id, "claim": claim.short, "notebook": notebook}
    row["table"] = given.table
    row["variant"] = "printed" if given.printed else given.variant
    row["number"], row["outcome"] = finding.number, finding.outcome
    row["seeds"] = count_seeds(given.used)
    row["departs"] = finding.departs
    if not claim.any_data:
        row["departs"] += departs_of(claim, given.table, given.used)
    row |= {"text": "", "holds": None, "why": "", "tested_on": ""}
    if finding.outcome == "not tested":
        row["why"] = finding.why or "a number is missing"
        return row
    row["text"] = shown(finding, claim.show)
    row["holds"] = finding.outcome == "agrees"
    if not given.printed:
        row["tested_on"] = tested_on(row["departs"])
    return row


def shown(finding: Finding, show: str) -> str:
    """Write a finding's number with a minus sign, zero without one."""
    text = finding.text.replace("; ", ", ") or show.format(finding.number)
    if not finding.text and not any(digit in text for digit in "123456789"):
        text = text.replace("-", "").replace("+", "")
    return re.sub(r"-(?=[\d.])", "−", text)


def outcomes(tested: pd.DataFrame) -> pd.DataFrame:
    """Say what became of each claim; ``tested``: rows of :func:`judge`.

    Only what was tested in the printed setting on the paper's data counts: a claim
    agrees if it holds wherever it was tested so, disagrees if it holds nowhere, and
    agrees partly otherwise. Returns a DataFrame, one row per claim: ``id, claim,
    outcome``; ``sign`` (in brackets: that of runs which do not count); ``tested_on``
    (the best there is, "" for none); ``alone``: the data sets that decided it, where
    others were tested in no such setting; ``printed`` and ``here`` (numbers as text),
    ``seeds``, ``why``.
    """
    rows = []
    for name, own in tested.groupby("id", sort=False):
        ours = own[(own["variant"] != "printed") & (own["outcome"] != "not tested")]
        best = next((how for how in TESTED_ON if how in set(ours["tested_on"])), "")
        counted = ours[ours["tested_on"] == best]
        outcome = _together(counted["outcome"])
        row = {"id": name, "claim": own["claim"].iloc[0], "tested_on": best}
        row["outcome"], row["sign"] = outcome, OUTCOMES[outcome]
        if best and best != "printed setting":
            row["outcome"], row["sign"] = "not tested", f"({OUTCOMES[outcome]})"
        row["printed"] = _texts(own[own["variant"] == "printed"])
        row["here"] = _texts(counted)
        row["seeds"] = int(counted["seeds"].max()) if best else 0
        why = dict.fromkeys(own["why"][own["why"] != ""])
        row["why"] = "" if best else "; ".join(why)
        row["alone"] = _alone(counted, ours) if best == TESTED_ON[0] else ""
        rows.append(row)
    columns = ["id", "claim", "outcome", "sign", "tested_on", "alone"]
    return pd.DataFrame(rows, columns=[*columns, "printed", "here", "seeds", "why"])


def _alone(counted: pd.DataFrame, tested: pd.DataFrame) -> str:
    """Name the data sets of what counts, if others were tested as well."""
    every = {in_paper(name) for name in tested["dataset"]}
    own = dict.fromkeys(in_paper(name) for name in counted["dataset"])
    if every == set(own):
        return ""
    return " and ".join(label(name) for name in own)


def _together(outcomes: pd.Series) -> str:
    """Join the outcomes of several sets of numbers."""
    if outcomes.empty:
        return "not tested"
    return outcomes.iloc[0] if outcomes.nunique() == 1 else "partly"


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
            dataset = in_paper(dataset)
        if dataset:
            where.append(label(dataset))
        if networks[row["dataset"]] > 1:
            where.append(label(row["model"]))
        if row["variant"] in SHORT:
            where.append(SHORT[row["variant"]])
        said[f"{', '.join(where)}: {row['text']}" if where else row["text"]] = None
    return "; ".join(said)
