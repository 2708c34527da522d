"""Beside which printed numbers runs stand, and how they depart from these."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ..measured import name_in_print
from ..names import label
from ..numbers import numbers
from ..settings import (
    BESIDE,
    NETWORKS,
    NOTEBOOKS,
    SAME,
    STAND_INS,
    TOY,
    departures,
    stand_in,
)
from .claim import Claim

# ---------------------------------------------------------------- in the paper's names


def table_of(claim: Claim, notebook: str, dataset: str = "") -> str:
    """Return the table of a claim beside which a notebook's results stand, or "".

    Of several that which prints the data set, if one does.
    """
    own = tables_of(claim, notebook)
    if not own:
        return ""
    name = in_paper(dataset)
    for table in own:
        if len(printed_lines(claim.paper, table, name)):
            return table
    return own[0]


def tables_of(claim: Claim, notebook: str) -> list[str]:
    """Return a claim's tables beside which a notebook's results stand."""
    for book, tables in NOTEBOOKS[claim.paper].items():
        if book.startswith(notebook[:2]):
            return [table for table in claim.tables if table in tables]
    return []


def in_paper(dataset: str) -> str:
    """Return the paper's name of the data set that a run's is, or stands for."""
    for known in (BESIDE, SAME, STAND_INS):
        if dataset in known:
            return known[dataset]
    return dataset


@functools.cache
def printed_lines(paper: str, table: str, dataset: str = "") -> pd.DataFrame:
    """Return the printed lines of a table and a data set, "" for all.

    A version of a data set, such as "rotated_mnist_two", is a data set of its own.
    """
    found = numbers(paper, table)
    found["dataset"] = [name_in_print(line) for line in found.to_dict("records")]
    if not dataset:
        return found
    return found[found["dataset"] == dataset]


@functools.cache
def in_print(paper: str, table: str, dataset: str, model: str) -> tuple[str, str]:
    """Return the paper's names of a data set and, if a table has two, of a network."""
    name = in_paper(dataset)
    if not table or printed_lines(paper, table, name)["model"].nunique() < 2:
        return name, ""
    for theirs, ours in NETWORKS.items():
        if ours == model:
            return name, theirs
    if model.startswith("mlp"):
        return name, "mlp"
    return name, "cnn"


# ---------------------------------------------------------------- of jobs


def departs_of(claim: Claim, table: str, used: Mapping[str, Any]) -> tuple[str, ...]:
    """Say how jobs depart from print, each phrase once.

    Parameters
    ----------
    claim : Claim
        What the jobs were looked at for.
    table : str
        The printed table beside which they stand; "" for none.
    used : dict
        Key of a job -> the results that have it.
    """
    said = []
    for results, runs in _each(used):
        for run in runs.drop_duplicates("key").itertuples():
            record = results.record(run.key)
            for phrase in _departs(claim, table, record, run):
                if phrase not in said:
                    said.append(phrase)
    return tuple(said)


def count_seeds(used: Mapping[str, Any]) -> int:
    """Count the seeds of jobs; ``used``: key -> results."""
    seeds = set()
    for _, runs in _each(used):
        seeds.update(runs["seed"].dropna())
    return len(seeds)


def _each(used: Mapping[str, Any]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield results, each once, with the rows of their jobs that are used."""
    every = {id(results): results for results in used.values()}
    for results in every.values():
        runs = results.runs
        yield results, runs[runs["key"].isin(used)]


def _departs(claim: Claim, table: str, record: Mapping, run: Any) -> list[str]:
    """Say how one job departs from the nearest of the settings that a table prints."""
    if TOY.search(run.dataset) or run.dataset in BESIDE:
        return [f"stand-in: {label(run.dataset)}"]
    lines = _lines(claim, table, run)
    if not lines:
        origin = record["provenance"].get("data_origin", "")
        return stand_in(run.dataset, origin)
    each = []
    for line in lines:
        how = departures(
            record,
            line,
            dataset=run.dataset,
            variant=run.variant,
            instead=claim.setting,
        )
        each.append(how)
    nearest = min(each, key=len)
    if run.stopped:
        return [*nearest, "a run stopped early"]
    return nearest


def _lines(claim: Claim, table: str, run: Any) -> list[dict[str, Any]]:
    """Return the printed lines of a run's data, network and method, or any method's.

    Clusters do not depend on how many images are tested: a claim about them looks at
    lines with ARIs, another one at the others, where there are such.
    """
    if not table:
        return []
    lines = _settings(claim.paper, table, run.dataset, run.model, run.method)
    wanted = []
    for line in lines:
        is_ari = line["metric"] == "ari"
        if is_ari == claim.about_clusters:
            wanted.append(line)
    return wanted or lines


@functools.cache
def _settings(
    paper: str, table: str, dataset: str, model: str, method: str
) -> list[dict[str, Any]]:
    """Return a line for each setting that :func:`_lines` chooses from.

    With the paper's own names of data sets, which their settings go by; ``method``
    counts where the table has it.
    """
    name, network = in_print(paper, table, dataset, model)
    chosen = printed_lines(paper, table, name)
    if network:
        chosen = chosen[chosen["model"] == network]
    if method in set(chosen["method"]):
        chosen = chosen[chosen["method"] == method]
    lines = numbers(paper, table).loc[chosen.index]
    lines["ari"] = lines["metric"] == "ari"
    return lines.drop_duplicates(["model", "params", "ari"]).to_dict("records")
