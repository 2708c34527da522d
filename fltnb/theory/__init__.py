"""FLT's Table 6 (``traffic``), Theorem 1 (``clustering``) and Theorem 2 (``problems``, ``convergence``) as numbers.

Each printed line that does not follow is computed beside the line that does (``notebooks/06_costs_and_theory.ipynb``).
"""

from . import clustering, convergence, problems, traffic

__all__ = ["clustering", "convergence", "problems", "traffic"]
