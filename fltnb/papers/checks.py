"""Claims of the papers: checked in one line beside their evidence, written once per notebook, read by the report."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from .. import paths
from ..errors import FltnbError, choose
from .names import label
from .numbers import claims
from .settings import PRETRAINED, STAND_INS, TOY, stand_in

VERDICTS = ("holds", "mixed", "does not hold", "stand-in only", "not tested")
PROFILES = (("stored",), ("paper", "small"))
"""Profiles whose claims count; the first group that has a claim decides it."""
COLUMNS = ("claim", "sentence", "verdict", "evidence")

_noted: dict[
    tuple[str, str], tuple[str, ...]
] = {}  # what this notebook has checked so far, by claim and sentence


def check(
    claim: str,
    sentence: str,
    verdict: bool | str | Sequence[bool],
    evidence: str = "",
    *,
    results: Any = None,
    standin: bool | None = None,
    seeds: int | None = None,
    must: bool = False,
) -> None:
    """Check one sentence: print a line with its verdict and its evidence, and note it for :func:`write`.

    FltnbError: an unknown claim, or a verdict that is no truth value, such as a number or a NaN (which Python would
    take for true). AssertionError: it must hold and does not.

    Parameters
    ----------
    claim : str, id of the paper's claim (:func:`fltnb.papers.claims`) that this bears on; "" for a check of our own
    sentence : str, what should be seen, in words
    verdict : bool, sequence of bool, or str
        A truth value, with the tolerance in the comparison, or several, mixed where they differ; "mixed", "not tested".
    evidence : str, the numbers behind it, rounded so that they are the same on every machine; or why it was not tested
    results : Results, optional, what the numbers come from: tells ``standin`` and ``seeds``
    standin : bool, optional, the data, or a network without the paper's pretraining or in whose weights clusters were
        sought, only stand in for the paper's: so is the verdict, and the evidence has the other
    seeds : int, optional, a single one is said in the evidence
    must : bool, the notebook is wrong if this does not hold

    Examples
    --------
    >>> check("", "Two and two are four", 2 + 2 == 4, "2 + 2 = 4")
    holds: Two and two are four (2 + 2 = 4)
    """
    if claim:
        choose(claim, claims()["id"], "claim")
    right = list(verdict) if np.ndim(verdict) else [verdict]
    if isinstance(verdict, str):
        word = choose(verdict, VERDICTS, "verdict")
    elif right and all(isinstance(one, (bool, np.bool_)) for one in right):
        word = "holds" if all(right) else "mixed" if any(right) else "does not hold"
    else:
        raise FltnbError(
            f"The claim {sentence!r} got {verdict!r} instead of True or False: compare it with something."
        )
    held, where, parts = word == "holds", "", [evidence] * bool(evidence)
    if results is not None:
        standin = _only_stand_ins(results) if standin is None else standin
        seeds = int(results.runs["seed"].nunique()) if seeds is None else seeds
        where = " on " + ", ".join(map(label, results.runs["dataset"].unique()))
    if word != "not tested":
        parts += ["one seed"] * (seeds == 1)
        if standin and claim:
            parts, word = [word + where, *parts], "stand-in only"
    text = "; ".join(parts)
    _noted[claim, sentence] = (claim, sentence, word, text)
    print(f"{word}: {sentence}" + f" ({text})" * bool(text))
    if must and not held:
        raise AssertionError(f"Must hold and does not: {sentence}")


def _only_stand_ins(results: Any) -> bool:
    """Whether no run had the data of a paper, in a network that can speak for its own."""
    runs = results.runs.drop_duplicates(["dataset", "model"])
    return all(
        name in STAND_INS
        or TOY.search(name)
        or (PRETRAINED.match(name) and model not in ("", "resnet18"))
        or stand_in("", results.record(key)["provenance"].get("data_origin", ""))
        for name, model, key in zip(
            runs["dataset"], runs["model"], runs["key"], strict=True
        )
    )


def write(notebook: str, profile: str) -> None:
    """Write what was checked since the last call to ``results/<profile>/<notebook>_claims.csv``, and forget it.

    A sentence that was checked twice, as when a cell is run again, is written once, as it came out last.
    """
    text = (
        pd.DataFrame(list(_noted.values()), columns=COLUMNS)
        .to_csv(index=False)
        .encode()
    )
    _noted.clear()
    paths.write_atomically(
        paths.results(profile) / f"{notebook}_claims.csv", lambda file: file.write(text)
    )


def checks() -> pd.DataFrame:
    """Read all checks that notebooks wrote: ``profile, notebook, claim, sentence, verdict, evidence`` (text).

    FltnbError: a file of claims is damaged.
    """
    frames = []
    for profile in (name for group in PROFILES for name in group):
        for file in sorted(paths.results(profile).glob("*_claims.csv")):
            try:
                table = pd.read_csv(file, dtype=str, keep_default_na=False)[
                    list(COLUMNS)
                ]
            except (OSError, ValueError, KeyError) as error:
                where = f"results/{profile}/{file.name}"
                raise FltnbError(
                    f"{where} cannot be read ({error}): restore it, or run its notebook again."
                ) from error
            frames.append(
                table.assign(
                    profile=profile, notebook=file.stem.removesuffix("_claims")
                )
            )
    columns = ["profile", "notebook", *COLUMNS]
    return (
        pd.concat(frames, ignore_index=True)[columns]
        if frames
        else pd.DataFrame(columns=columns)
    )


def checked_claims(found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Join every registered claim with what became of it; ``found``: from :func:`checks`, which is read if left out.

    A claim holds if all its checks hold, does not hold if none does, and is mixed otherwise. Checks on data that only
    stand in count where there are no others, and make it "stand-in only". Returns a DataFrame: the columns of
    :func:`fltnb.papers.claims`, ``verdict`` (one of :data:`VERDICTS`), ``part`` (bool: some checks do not count) and
    ``evidence``: a list of (verdict, sentence, evidence), all checks that bear on it.
    """
    found = checks() if found is None else found
    rows = []
    for claim in claims().to_dict("records"):
        own = found[found["claim"] == claim["id"]]
        for group in PROFILES:
            if own["profile"].isin(group).any():
                own = own[own["profile"].isin(group)]
        words = set(own["verdict"]) - {"stand-in only", "not tested"} or set(
            own["verdict"]
        ) - {"not tested"}
        together = "mixed" if len(words) > 1 else next(iter(words), "not tested")
        shown = [
            tuple(row) for row in own[["verdict", "sentence", "evidence"]].to_numpy()
        ]
        part = bool(words - {"stand-in only"}) and words < set(own["verdict"])
        rows.append(claim | {"verdict": together, "part": part, "evidence": shown})
    return pd.DataFrame(rows)
