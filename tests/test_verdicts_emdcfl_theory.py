"""EMD-CFL's inequalities as claims: they hold for one result and fail for another."""

import pytest
from toys import measured

from fltnb.papers.verdicts import CLAIMS, emdcfl_theory

STATEMENTS = {
    "emdcfl-thm2-1": "Lemma 2.1",
    "emdcfl-thm2-2": "Theorem 2.2",
    "emdcfl-thm2-3": "Corollary 2.3",
    "emdcfl-thm2-4": "Theorem 2.4",
    "emdcfl-thm2-5": "Corollary 2.5",
}


def pairs(right):
    rows = []
    for statement in (*STATEMENTS.values(), "Corollary 2.5, several steps"):
        rows.append({"statement": statement, "left": 0.5, "right": right})
    projected = [{"share": 0.9, "off": 0.1 / right}]
    tables = {"inequalities": rows, "projection": projected}
    return measured("mnist", studies=[{"tables": tables}])


@pytest.mark.parametrize("name", [*STATEMENTS, "emdcfl-text-jl"])
def test_a_claim_holds_for_one_result_and_fails_for_another(name):
    assert CLAIMS[name](pairs(2.0)).outcome == "agrees"
    assert CLAIMS[name](pairs(0.4)).outcome == "disagrees"
    assert CLAIMS[name](measured("mnist", accuracy={"x": 1})).outcome == "not tested"


def test_a_bound_on_an_error_that_says_nothing_is_told():
    text = emdcfl_theory.on_all_pairs(pairs(2.0), "Lemma 2.1", error=True).text
    assert text == "1 of 1 pairs, right side 4 times the left, below 1 for 0"
