"""FLT's Table 6 and two theorems as numbers: what each bounds, measured where everything in it is known.

:mod:`~fltnb.theory.traffic` is Table 6, :mod:`~fltnb.theory.clustering` Theorem 1 (the error of the clients'
centroids), :mod:`~fltnb.theory.problems` and :mod:`~fltnb.theory.convergence` are Theorem 2 (the optimality gap of
FLT's rounds). Each printed line that does not follow is computed beside the line that does;
``notebooks/06_costs_and_theory.ipynb`` walks through them.
"""

from . import clustering, convergence, problems, traffic

__all__ = ["clustering", "convergence", "problems", "traffic"]
