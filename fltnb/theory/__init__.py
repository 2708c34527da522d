"""Theorems and cost formulas of the papers, as numbers that can be computed.

FLT (arXiv 2103.15947): Theorem 1 in ``clustering``, Theorem 2 in ``problems`` and
``convergence``, Table 6 in ``traffic``. EMD-CFL (arXiv 2506.07769): Section 2 in
``embeddings``. If a printed line of a proof does not follow, the corrected one is given
as well (``notebooks/06_costs_and_theory.ipynb``).
"""

from . import clustering, convergence, embeddings, problems, traffic

__all__ = ["clustering", "convergence", "embeddings", "problems", "traffic"]
