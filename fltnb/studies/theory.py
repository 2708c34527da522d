"""Studies of notebook 06, by name; they live in :mod:`fltnb.analyses.theory`."""

from ..analyses.theory import (  # noqa: F401 - by name
    centroids,
    client_graphs,
    epochs,
    gap_curves,
    pipeline,
    proof_lines,
    sample_bound,
    steps,
)
