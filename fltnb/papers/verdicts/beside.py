"""Which printed numbers runs are compared with, and how they depart from these."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ..measured import name_in_print
from ..names import label
from ..numbers import numbers
from ..settings import (
    BESIDE,
    NOTEBOOKS,
    SAME,
    STAND_INS,
    TOY,
    departures,
    network_in_print,
    stand_in,
)
from .claim import Claim

# ---------------------------------------------------------------- in the paper's names


def table_of(claim: Claim, notebook: str, dataset: str = "") -> str:
    """Return the table of a claim with which a notebook's results are compared, or "".

    If there are several, the one that prints the data set is preferred.
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
    """Return a claim's tables with which a notebook's results are compared."""
    for book, tables in NOTEBOOKS[claim.paper].items():
        if book.startswith(notebook[:2]):
            return [table for table in claim.tables if table in tables]
    return []


def in_paper(dataset: str) -> str:
    """Return the paper's name of a run's data set, or of the one that it replaces."""
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
    return name, network_in_print(model)


# ---------------------------------------------------------------- of runs


def departs_of(claim: Claim, table: str, used: Mapping[str, Any]) -> tuple[str, ...]:
    """Return how runs depart from the printed setting, each phrase once.

    Parameters
    ----------
    claim : Claim
        The claim for which the runs were used.
    table : str
        The printed table with which they are compared; "" for none.
    used : dict
        Key of a run -> the results that contain it.
    """
    said = []
    about = ["key", "dataset", "model", "method", "variant", "stopped"]
    for results, runs in _each(used, about):
        for run in runs.drop_duplicates("key").itertuples():
            record = results.record(run.key)
            for phrase in _departs(claim, table, record, run):
                if phrase not in said:
                    said.append(phrase)
    return tuple(said)


def count_seeds(used: Mapping[str, Any]) -> int:
    """Count the seeds of runs; ``used``: key -> results."""
    seeds = set()
    for _, runs in _each(used, ["key", "seed"]):
        seeds.update(runs["seed"].dropna())
    return len(seeds)


def _each(
    used: Mapping[str, Any], columns: Sequence[str]
) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield results, each once, with columns of ``runs`` for the runs that are used."""
    every = {id(results): results for results in used.values()}
    for results in every.values():
        runs = results.runs[columns]
        yield results, runs[runs["key"].isin(used)]


def _departs(claim: Claim, table: str, record: Mapping, run: Any) -> list[str]:
    """Return how one run departs from the nearest setting printed in a table.

    Without a table, as for many figures, what the paper's text says of the data set
    counts. A claim that is tested as a whole, such as a theorem, has no setting.
    """
    if TOY.search(run.dataset) or run.dataset in BESIDE:
        return [f"stand-in: {label(run.dataset)}"]
    lines = _lines(claim, table, run)
    if not lines and claim.whole:
        origin = record["provenance"].get("data_origin", "")
        return stand_in(run.dataset, origin)
    if not lines:
        lines = [_in_the_text(claim.paper, run.dataset)]
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


def _in_the_text(paper: str, dataset: str) -> dict[str, Any]:
    """Return a line with the settings of all of a paper's numbers on a data set.

    It stands for a printed number, and has none.
    """
    line = dict.fromkeys(("model", "metric", "params"), "")
    line.update(paper=paper, dataset=in_paper(dataset))
    return line


def _lines(claim: Claim, table: str, run: Any) -> list[dict[str, Any]]:
    """Return the printed lines of a run's data, network and method, or any method's.

    Clusters do not depend on the number of test images: a claim about clusters uses the
    lines with ARIs, another claim the lines without, if there are any.
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

    A table repeats its setting for every method and measure, and each comparison takes
    time, so each setting occurs once. The paper's own names of data sets are kept, by
    which :data:`fltnb.papers.settings.PRINTED` has them; ``method`` counts where the
    table has it.
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
