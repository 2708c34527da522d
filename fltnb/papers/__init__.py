"""What the papers print and claim, beside what runs of this package give.

Nothing here computes a run: everything starts from results (:func:`fltnb.results`) and from two tables that hold the
papers' own numbers and claims.
"""

from . import report
from .checks import check, claim_counts, verdicts, write
from .compare import compare, measured, plane, wide
from .counts import counts, nearness
from .names import PAPERS, label
from .numbers import claims, inconsistencies, numbers
from .settings import NOTEBOOKS, departures

__all__ = [
    "NOTEBOOKS",
    "PAPERS",
    "check",
    "claim_counts",
    "claims",
    "compare",
    "counts",
    "departures",
    "inconsistencies",
    "label",
    "measured",
    "nearness",
    "numbers",
    "plane",
    "report",
    "verdicts",
    "wide",
    "write",
]
