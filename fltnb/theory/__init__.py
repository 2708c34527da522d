"""What papers prove and count, as numbers that can be computed.

FLT (arXiv 2103.15947): Theorem 1 in ``clustering``, Theorem 2 in ``problems`` and
``convergence``, Table 6 in ``traffic``. EMD-CFL (arXiv 2506.07769): Section 2 in
``embeddings``. A printed line that does not follow has the one that does beside it
(``notebooks/06_costs_and_theory.ipynb``).
"""

from . import clustering, convergence, embeddings, problems, traffic

__all__ = ["clustering", "convergence", "embeddings", "problems", "traffic"]
