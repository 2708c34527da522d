"""What the notebooks read off their runs: clusterings, the effect of single switches, the papers' claims."""

from .clustering import clustering_table, clusterings, link_shares, renumbered
from .scenario1 import COMMENTS_T1, evaluation_table, rules_table, scenario1_claims, variance_range

__all__ = [
    "COMMENTS_T1",
    "clustering_table",
    "clusterings",
    "evaluation_table",
    "link_shares",
    "renumbered",
    "rules_table",
    "scenario1_claims",
    "variance_range",
]
