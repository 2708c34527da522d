"""Tests of EMD-CFL's inequalities on pairs of clients (:mod:`fltnb.theory.embeddings`).

They need a study with the tables ``inequalities`` and ``projection``.
"""

from .claim import Finding, claim, not_tested
from .numbers import Numbers

PAIRS = {"whole": True, "unit": "share of pairs", "show": "{:.0%}"}


def on_all_pairs(t: Numbers, statement: str, error: bool = False) -> Finding:
    """Judge an inequality by all pairs; ``error``: its right side should be below 1."""
    found = t.study("inequalities")
    if found.empty:
        return not_tested("the inequalities were not computed")
    own = found[found["statement"] == statement]
    holds = own["left"] <= own["right"] * (1 + 1e-9)
    times = (own["right"] / own["left"]).median()
    text = f"{holds.sum()} of {len(own)} pairs, right side {times:.0f} times the left"
    if error:
        text += f", below 1 for {(own['right'] < 1).sum()}"
    return Finding(holds.mean(), holds.all(), text)


@claim("emdcfl-thm2-1", **PAIRS)
def disagreement_is_bounded(t: Numbers) -> Finding:
    """Lemma 2.1: disagreement carries over up to 2 L times the EMD."""
    return on_all_pairs(t, "Lemma 2.1", error=True)


@claim("emdcfl-thm2-2", **PAIRS)
def error_on_a_mixture_is_bounded(t: Numbers) -> Finding:
    """Theorem 2.2: the error on a mixture of clients is bounded by the EMD."""
    return on_all_pairs(t, "Theorem 2.2", error=True)


@claim("emdcfl-thm2-3", **PAIRS)
def error_of_the_ensemble_is_bounded(t: Numbers) -> Finding:
    """Corollary 2.3: the error of two clients' ensemble is bounded by their EMD."""
    return on_all_pairs(t, "Corollary 2.3", error=True)


@claim("emdcfl-thm2-4", **PAIRS)
def gradients_are_near(t: Numbers) -> Finding:
    """Theorem 2.4: expected gradients differ by M times the EMD at most."""
    return on_all_pairs(t, "Theorem 2.4")


@claim("emdcfl-thm2-5", **PAIRS)
def parameters_are_near(t: Numbers) -> Finding:
    """Corollary 2.5: so do parameters, after one step and after a round of many."""
    one = on_all_pairs(t, "Corollary 2.5")
    if one.outcome == "not tested":
        return one
    many = on_all_pairs(t, "Corollary 2.5, several steps")
    text = f"one step {one.number:.0%}, a round of steps {many.number:.0%} of the pairs"
    return Finding(many.number, [one.holds, many.holds], text)


@claim("emdcfl-text-jl", whole=True, unit="relative change", show="{:.0%}")
def projections_keep_distances(t: Numbers) -> Finding:
    """Nine tenths of the dimensions keep every distance within a tenth."""
    found = t.study("projection")
    if found.empty:
        return not_tested("nothing was projected")
    off = found[found["share"] == 0.9]["off"].mean()
    # a tenth of a distance is a fifth of its square
    text = f"squared distances change by up to {off:.0%}"
    return Finding(off, off <= 0.2, text)
