"""Beside which printed numbers runs stand, and how they depart from these."""

import functools
from collections.abc import Mapping
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


def table_of(claim: Claim, notebook: str, dataset: str = "") -> str:
    """Return the table of a claim beside which a notebook's results stand, or "".

    Of several that which prints the data set, if one does.
    """
    own: list[str] = []
    for book, tables in NOTEBOOKS[claim.paper].items():
        if book.startswith(notebook[:2]):
            own = [table for table in claim.tables if table in tables]
    name = in_paper(dataset)
    printing = [one for one in own if len(printed_lines(claim.paper, one, name))]
    return next(iter(printing or own), "")


def in_paper(dataset: str) -> str:
    """Return the paper's name of the data set that a run's is, or stands for."""
    return (STAND_INS | SAME | BESIDE).get(dataset, dataset)


@functools.cache
def printed_lines(paper: str, table: str, dataset: str = "") -> pd.DataFrame:
    """Return the printed lines of a table and a data set, "" for all.

    A version of a data set, such as "rotated_mnist_two", is a data set of its own.
    """
    found = numbers(paper, table)
    names = [name_in_print(line) for line in found.to_dict("records")]
    found = found.assign(dataset=names)
    return found[found["dataset"] == dataset] if dataset else found


@functools.cache
def in_print(paper: str, table: str, dataset: str, model: str) -> tuple[str, str]:
    """Return the paper's names of a data set and, if a table has two, of a network."""
    name = in_paper(dataset)
    if not table or printed_lines(paper, table, name)["model"].nunique() < 2:
        return name, ""
    for theirs, ours in NETWORKS.items():
        if ours == model:
            return name, theirs
    return name, "mlp" if model.startswith("mlp") else "cnn"


def departs_of(claim: Claim, table: str, used: Mapping[str, Any]) -> tuple[str, ...]:
    """Say how jobs depart from print; ``used``: key -> results."""
    said: dict[str, None] = {}
    for results in _each(used):
        runs = results.runs[results.runs["key"].isin(used)].drop_duplicates("key")
        about = runs[["key", "dataset", "model", "method", "variant", "stopped"]]
        for run in about.itertuples():
            record = results.record(run.key)
            said |= dict.fromkeys(_departs(claim, table, record, run))
    return tuple(said)


def count_seeds(used: Mapping[str, Any]) -> int:
    """Count the seeds of jobs; ``used``: key -> results."""
    seeds = set()
    for results in _each(used):
        runs = results.runs
        seeds |= set(runs["seed"][runs["key"].isin(used)].dropna())
    return len(seeds)


def _each(used: Mapping[str, Any]) -> list[Any]:
    """Return the results that have the jobs, each once."""
    return list({id(results): results for results in used.values()}.values())


def _departs(claim: Claim, table: str, record: Mapping, run: Any) -> list[str]:
    """Say how one job departs from the nearest of the settings that a table prints."""
    if TOY.search(run.dataset) or run.dataset in BESIDE:
        return [f"stand-in: {label(run.dataset)}"]
    lines = _lines(claim.paper, table, run.dataset, run.model, run.method)
    # the clusters do not depend on how many images are tested
    wanted = [
        line for line in lines if (line["metric"] == "ari") == claim.about_clusters
    ]
    lines = wanted or lines
    if not lines:
        return stand_in(run.dataset, record["provenance"].get("data_origin", ""))

    options = {"variant": run.variant, "dataset": run.dataset, "instead": claim.setting}
    each = [departures(record, line, **options) for line in lines]
    nearest = min(each, key=len)
    return [*nearest, "a run stopped early"] if run.stopped else nearest


@functools.cache
def _lines(
    paper: str, table: str, dataset: str, model: str, method: str
) -> list[dict[str, Any]]:
    """Return the printed lines of a run's data, network and method, or any method's.

    With the paper's own names of data sets, which their settings go by.
    """
    if not table:
        return []
    name, network = in_print(paper, table, dataset, model)
    there = printed_lines(paper, table, name)
    if network:
        there = there[there["model"] == network]
    own = there[there["method"] == method]
    chosen = own if len(own) else there
    chosen = numbers(paper, table).loc[chosen.index]
    about = chosen.assign(ari=chosen["metric"] == "ari")
    return about.drop_duplicates(["model", "params", "ari"]).to_dict("records")
