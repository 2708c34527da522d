"""Each claim of the papers beside what became of it, where results come from, and their pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import paths, published, store
from ..errors import FltnbError
from .reproduced import PROFILES

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = ("holds", "mixed", "does not hold", "holds (toy scale)", "mixed (toy scale)", "does not hold (toy scale)")
VERDICTS += ("not tested",)


def checks() -> pd.DataFrame:
    """Return all checks that notebooks wrote: ``profile, notebook, claim, sentence, verdict, evidence``.

    Raises
    ------
    FltnbError
        A file of claims is damaged.
    """
    import pandas as pd

    frames = []
    for profile in (*PROFILES, "demo"):
        for file in sorted(paths.results(profile).glob("*_claims.csv")):
            try:
                table = pd.read_csv(file, dtype=str, keep_default_na=False)[
                    ["claim", "sentence", "verdict", "evidence"]
                ]
            except (OSError, ValueError, KeyError) as error:
                raise FltnbError(
                    f"The claims in results/{profile}/{file.name} cannot be read ({error}): restore the file, or run"
                    " its notebook again."
                ) from error
            frames.append(table.assign(profile=profile, notebook=file.stem.removesuffix("_claims")))
    columns = ["profile", "notebook", "claim", "sentence", "verdict", "evidence"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def claims(paper: str | None = None, found: pd.DataFrame | None = None) -> pd.DataFrame:
    """Join every registered claim with what became of it.

    In one profile a claim holds if all its checks hold, does not hold if none does, and is mixed otherwise. Profiles
    that disagree make it mixed. ``demo`` counts only where no other profile tested the claim, as toy scale.

    Parameters
    ----------
    paper : str, optional
        All with registered claims if left out.
    found : DataFrame, optional
        From :func:`checks`, which is read if left out.

    Returns
    -------
    DataFrame
        The columns of :func:`fltnb.published.claims`, ``verdict`` (one of :data:`VERDICTS`), ``profiles`` (such as
        "small: 3 of 4 checks hold") and ``evidence``: a list of (profile, verdict, sentence, evidence); for a claim
        that was not tested, why.
    """
    found = checks() if found is None else found
    rows = []
    for claim in published.claims(paper).to_dict("records"):
        own = found[found["claim"] == claim["id"]]
        tested = own[own["verdict"] != "not tested"]
        counted = tested[tested["profile"] != "demo"]
        toy = len(counted) == 0 and len(tested) > 0
        used = tested if toy else counted
        verdicts, shares = set(), []
        for profile, group in used.groupby("profile", sort=False):
            holds = int((group["verdict"] == "holds").sum())
            verdicts.add("holds" if holds == len(group) else "mixed" if holds else "does not hold")
            shares.append(f"{profile}: {holds} of {len(group)} checks hold")
        verdict = verdicts.pop() if len(verdicts) == 1 else "mixed" if verdicts else "not tested"
        shown = used if len(used) else own
        evidence = [tuple(row) for row in shown[["profile", "verdict", "sentence", "evidence"]].to_numpy()]
        claim |= {"verdict": verdict + " (toy scale)" * toy, "profiles": "; ".join(shares), "evidence": evidence}
        rows.append(claim)
    import pandas as pd

    return pd.DataFrame(rows)


def evidence(table: pd.DataFrame) -> pd.DataFrame:
    """Spread out the evidence of :func:`claims`, one row per check: ``id, verdict, profile, result, check, found``."""
    import pandas as pd

    rows = [
        {"id": claim["id"], "verdict": claim["verdict"]}
        | dict(zip(("profile", "result", "check", "found"), one, strict=True))
        for claim in table.to_dict("records")
        for one in claim["evidence"]
    ]
    return pd.DataFrame(rows, columns=["id", "verdict", "profile", "result", "check", "found"])


def claim_counts(table: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts of :func:`claims`: ``paper``, one column per verdict of :data:`VERDICTS`, ``all``."""
    import pandas as pd

    rows = [
        {"paper": paper} | {word: int((group["verdict"] == word).sum()) for word in VERDICTS} | {"all": len(group)}
        for paper, group in table.groupby("paper", sort=False)
    ]
    return pd.DataFrame(rows, columns=["paper", *VERDICTS, "all"])


# ---------------------------------------------------------------- where it comes from


def provenance() -> pd.DataFrame:
    """Return one line per notebook, profile and data set: runs, seeds, minutes, commit, hardware, data, last day."""
    import pandas as pd

    profiles = [profile for profile in PROFILES if _notebooks(profile)] or ["demo"]
    frames = [
        stored.provenance().assign(notebook=notebook, profile=profile)
        for profile in profiles
        for notebook in _notebooks(profile)
        for stored in store.stored(notebook, (profile,))
    ]
    front = ["notebook", "profile"]
    table = (
        pd.concat(frames, ignore_index=True).sort_values(front, kind="stable")
        if frames
        else pd.DataFrame(columns=front)
    )
    return table[front + [name for name in table.columns if name not in front]].reset_index(drop=True)


def _notebooks(profile: str) -> list[str]:
    """Name the notebooks whose runs are recorded; clusterings without training have a record of another form."""
    files = sorted(paths.results(profile).glob("*_provenance.json"))
    names = [file.stem.removesuffix("_provenance") for file in files]
    runs = [name for name in names if not name.endswith("_clusterings")]
    # a record of tables alone, such as notebook 06's of its theory, has no curves
    return [name for name in runs if (paths.results(profile) / f"{name}_curves.csv").exists()]


def figures() -> dict[str, list[Path]]:
    """Return the pictures of each notebook from the most trusted profile that has any, as "01, profile" -> files."""
    found: dict[str, list[Path]] = {}
    for profile in (*PROFILES, "demo"):
        for file in sorted(paths.figures(profile).glob("[0-9][0-9]_*.png")):
            number = file.name[:2]
            if not any(name.startswith(number) and name != f"{number}, {profile}" for name in found):
                found.setdefault(f"{number}, {profile}", []).append(file)
    return dict(sorted(found.items()))
