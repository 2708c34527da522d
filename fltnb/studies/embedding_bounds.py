"""EMD-CFL's inequalities, where jobs look for the functions of studies."""

from ..analyses.embedding_bounds import inequalities  # noqa: F401 - by name
