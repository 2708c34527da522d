"""Verdicts on the papers' claims: one tested function per claim.

Modules named after a paper contain the functions. :func:`judge` runs those of a
notebook, and :func:`outcomes` gives the outcome of each claim.
"""

from . import (
    emdcfl,
    emdcfl_robustness,
    emdcfl_theory,
    fesem,
    flt,
    flt_scenarios,
    flt_theory,
    mthfl,
)
from .claim import CLAIMS, OUTCOMES, Claim, Finding, NotTestedError, claim, needed
from .judging import claims_of, judge, judge_all, outcomes
from .numbers import Numbers, Print, ahead

__all__ = ["CLAIMS", "OUTCOMES", "Claim", "Finding", "NotTestedError", "Numbers"]
__all__ += ["Print", "ahead", "claim", "claims_of", "judge", "judge_all", "needed"]
__all__ += ["emdcfl", "emdcfl_robustness", "emdcfl_theory", "fesem", "flt"]
__all__ += ["flt_scenarios", "flt_theory", "mthfl", "outcomes"]
