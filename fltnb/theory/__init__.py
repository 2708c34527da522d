"""FLT's two theorems as numbers: what each bounds, measured where everything in it is known.

:mod:`~fltnb.theory.clustering` is Theorem 1 (the error of the clients' centroids), :mod:`~fltnb.theory.problems` and
:mod:`~fltnb.theory.convergence` are Theorem 2 (the optimality gap of FLT's rounds). Each printed line that does not
follow is computed beside the line that does; ``notebooks/06_costs_and_theory.ipynb`` walks through both.
"""

from . import clustering, convergence, problems

__all__ = ["clustering", "convergence", "problems"]
