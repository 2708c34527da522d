"""The papers' printed numbers and claims, compared with runs of this package.

Nothing here computes a run: everything starts from results (:func:`fltnb.results`) and
from two tables with the papers' own numbers and claims.
"""

from . import report
from .compare import compare
from .counts import all_measured, committed, counts, nearness, rank_agreement
from .measured import measured
from .names import PAPERS, label
from .numbers import claims, inconsistencies, numbers
from .picture import agreement, claim_bars, scores
from .settings import NOTEBOOKS, departures, in_order
from .verdicts import judge, outcomes

__all__ = ["NOTEBOOKS", "PAPERS", "all_measured", "claims"]
__all__ += ["committed", "compare", "counts", "departures", "in_order", "judge"]
__all__ += ["inconsistencies", "label", "measured", "nearness", "numbers", "outcomes"]
__all__ += ["agreement", "claim_bars", "rank_agreement", "report", "scores"]
