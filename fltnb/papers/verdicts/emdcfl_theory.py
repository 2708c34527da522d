"""Tests of EMD-CFL's inequalities on pairs of clients (:mod:`fltnb.theory.embeddings`).

The tests need a study with the tables ``inequalities`` and ``projection``.
"""

from .claim import Finding, claim, needed
from .numbers import Numbers
from .words import so_many

PAIRS = {"whole": True, "unit": "share of pairs", "show": "{:.0%}"}


def on_all_pairs(t: Numbers, statement: str, error: bool = False) -> Finding:
    """Judge that an inequality holds for all pairs; the number is their share.

    Parameters
    ----------
    t : Numbers
    statement : str, such as "Lemma 2.1"
    error : bool, whether its sides are errors: above 1, the right side means nothing
    """
    found = needed(t.study("inequalities"), "the inequalities were not computed")
    pairs = found[found["statement"] == statement]
    left = pairs["left"]
    right = pairs["right"]
    holds = left <= right * (1 + 1e-9)
    times = (right / left).median()
    text = f"{so_many(holds, 'pairs')}, right side {times:.0f} times the left"
    if error:
        says_something = right < 1
        text += f", below 1 for {says_something.sum()}"
    return Finding(
        number=holds.mean(),
        holds=holds.all(),
        text=text,
    )


@claim("emdcfl-thm2-1", **PAIRS)
def disagreement_is_bounded(t: Numbers) -> Finding:
    """Lemma 2.1: disagreement carries over up to 2 L times the EMD.

    How far two hypotheses disagree on one client's data is at most how far they do on
    another's, plus 2 L times the EMD between the clients' embeddings; L is the
    Lipschitz constant of a hypothesis.
    """
    return on_all_pairs(t, "Lemma 2.1", error=True)


@claim("emdcfl-thm2-2", **PAIRS)
def error_on_a_mixture_is_bounded(t: Numbers) -> Finding:
    """Theorem 2.2: the error on a mixture of clients is bounded by the EMD.

    The bound is the sum of the error on the own client, 2 L times the EMD to the
    mixture, and the least error that any hypothesis has on both.
    """
    return on_all_pairs(t, "Theorem 2.2", error=True)


@claim("emdcfl-thm2-3", **PAIRS)
def error_of_the_ensemble_is_bounded(t: Numbers) -> Finding:
    """Corollary 2.3: the error of two clients' ensemble is bounded by their EMD.

    The bound is the sum of the mean error of the two hypotheses, L times the EMD, and
    the mean of the least joint errors.
    """
    return on_all_pairs(t, "Corollary 2.3", error=True)


@claim("emdcfl-thm2-4", **PAIRS)
def gradients_are_near(t: Numbers) -> Finding:
    """Theorem 2.4: expected gradients differ by M times the EMD at most.

    M bounds how fast the gradient of a loss changes with the embedding.
    """
    return on_all_pairs(t, "Theorem 2.4")


@claim("emdcfl-thm2-5", **PAIRS)
def parameters_are_near(t: Numbers) -> Finding:
    """Corollary 2.5: parameters differ by at most the step size times M times the EMD.

    It is tested after one step, and after a round of many. The statement is about a
    round, in which each client takes many steps from models that are no longer equal.
    """
    one = on_all_pairs(t, "Corollary 2.5")
    many = on_all_pairs(t, "Corollary 2.5, several steps")
    text = f"one step {one.number:.0%}, "
    text += f"a round of steps {many.number:.0%} of the pairs"
    return Finding(
        number=many.number,
        holds=[bool(one.holds), bool(many.holds)],
        text=text,
    )


@claim("emdcfl-text-jl", whole=True, unit="relative change", show="{:.0%}")
def projections_keep_distances(t: Numbers) -> Finding:
    """A projection to 90 % of the dimensions changes no distance by over 10 %.

    The number is the largest change of a squared distance (mean over projections): a
    tenth of a distance is a fifth of its square.
    """
    found = needed(t.study("projection"), "nothing was projected")
    kept = found["share"] == 0.9
    off = found["off"][kept].mean()
    return Finding(
        number=off,
        holds=off <= 0.2,
        text=f"squared distances change by up to {off:.0%}",
    )
