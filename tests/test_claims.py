"""The registry of the papers' claims, and that everything which refers to it finds its
claim there.
"""

import re

import pandas as pd

from fltnb import papers, paths

CLAIMS = papers.claims()
ID = re.compile(r'["\']((?:flt|fesem|mthfl|emdcfl)-(?:fig|t|thm|text-)[a-z0-9-]*)["\']')


def test_ids_are_stable_names_and_papers_have_their_own():
    assert CLAIMS["id"].is_unique
    assert (
        CLAIMS["id"]
        .str.fullmatch(r"[a-z]+-(fig|t|thm|text-)[a-z0-9]+(-[a-z0-9]+)?")
        .all()
    )
    assert (CLAIMS["id"].str.split("-").str[0] == CLAIMS["paper"]).all()
    assert set(CLAIMS["paper"]) <= set(papers.PAPERS)
    assert CLAIMS["claim"].str.endswith(".").all() and CLAIMS["claim"].is_unique
    first = papers.claims()
    assert (first["paper"] == "flt").sum() > 40
    first.loc[0, "claim"] = "changed"
    assert papers.claims().loc[0, "claim"] != "changed"


def test_every_figure_and_table_of_flt_with_something_to_claim_is_there():
    sources = "; ".join(CLAIMS.loc[CLAIMS["paper"] == "flt", "source"])
    # Figure 1 is a sketch; all others show results
    assert {int(n) for n in re.findall(r"Figure (\d+)", sources)} == set(range(2, 13))
    assert {int(n) for n in re.findall(r"Table (\d+)", sources)} == set(range(1, 14))
    assert {int(n) for n in re.findall(r"Theorem (\d+)", sources)} == {1, 2}


def test_sources_print_numbers_and_notebooks_test_every_claim():
    # Tables 6 and 11 to 13 of FLT hold formulas and architectures, no results
    for claim in CLAIMS.itertuples():
        assert all(
            re.fullmatch(r"\d\d_[a-z0-9_]+", name)
            for name in claim.notebook.split("; ")
        ), claim.id
        for table in re.findall(r"Table (\w+)", claim.source):
            if (claim.paper, table) not in {
                ("flt", name) for name in ("6", "11", "12", "13")
            }:
                assert len(papers.numbers(claim.paper, f"T{table}")), claim.id


def test_ids_used_anywhere_exist():
    """A misspelt id would be counted nowhere."""
    used = set()
    for file in [
        *(paths.ROOT / "fltnb").rglob("*.py"),
        *(paths.ROOT / "notebooks").rglob("*.ipynb"),
    ]:
        used |= {
            (name, file.name)
            for name in ID.findall(file.read_text(encoding="utf-8").replace('\\"', '"'))
        }
    for file in (paths.ROOT / "results").glob("*/*_claims.csv"):
        used |= {
            (name, file.name)
            for name in pd.read_csv(file, keep_default_na=False)["claim"]
            if name
        }
    assert "flt-t1-1" in {name for name, _ in used}
    assert not sorted(
        (name, file) for name, file in used if name not in set(CLAIMS["id"])
    )
