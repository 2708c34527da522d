"""Experiments, grids of them, and where their results come from."""

from .asking import collecting, results
from .experiment import Clustering, Distances, Experiment, Study, Training
from .grid import Grid, grid

__all__ = ["Clustering", "Distances", "Experiment", "Grid", "Study", "Training"]
__all__ += ["collecting", "grid", "results"]
