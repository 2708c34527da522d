"""The studies of notebook 08, by name."""

from ..analyses.fesem_models import (  # noqa: F401 - by name
    centers,
    choosing_k,
    local_models,
    statistics,
)
