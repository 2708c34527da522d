"""Verdicts on the papers' claims: one tested function per claim.

``flt``, ``fesem``, ``mthfl`` and ``emdcfl`` hold the functions; :func:`judge` runs
those of a notebook, :func:`outcomes` says what became of each claim.
"""

from . import flt, flt_scenarios, flt_theory
from .claim import CLAIMS, OUTCOMES, Claim, Finding, claim, not_tested
from .judging import claims_of, judge, judge_all, outcomes
from .numbers import Numbers, Print, ahead

__all__ = ["CLAIMS", "OUTCOMES", "Claim", "Finding", "Numbers", "Print"]
__all__ += [
    "ahead",
    "claim",
    "claims_of",
    "flt",
    "flt_scenarios",
    "flt_theory",
    "judge",
]
__all__ += ["judge_all", "not_tested", "outcomes"]
