"""Everything side by side: each printed number beside its reproductions, each claim beside what became of it.

Reads the tables that the notebooks left under ``results/`` and the records behind them; computes no run. The profiles
``paper`` and ``small`` count; ``demo`` is read only where they have nothing, and is then called toy scale.
"""

from .gaps import missing
from .page import write
from .reproduced import NOTEBOOKS, STATUS, beside, counts, numbers, preferred
from .verdicts import VERDICTS, checks, claim_counts, claims, evidence, figures, provenance

__all__ = [
    "NOTEBOOKS",
    "STATUS",
    "VERDICTS",
    "beside",
    "checks",
    "claim_counts",
    "claims",
    "counts",
    "evidence",
    "figures",
    "missing",
    "numbers",
    "preferred",
    "provenance",
    "write",
]
