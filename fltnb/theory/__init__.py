"""What FLT (arXiv 2103.15947) proves and counts, as numbers that can be computed.

Theorem 1 stands in ``clustering``, Theorem 2 in ``problems`` and ``convergence``, and
Table 6 in ``traffic``. A printed line that does not follow has the one that does beside
it (``notebooks/06_costs_and_theory.ipynb``).
"""

from . import clustering, convergence, problems, traffic

__all__ = ["clustering", "convergence", "problems", "traffic"]
