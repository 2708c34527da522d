"""From experiments to results: grids, look-up, computing, the committed ledgers."""

from .asking import collecting, results, stored
from .computing import compute
from .experiment import Clustering, Distances, Experiment, Study, Training
from .finished import Finished
from .grid import Grid, Row, grid
from .ledger import Ledger, merge_folder
from .reading import Results
from .task import Task, prepare

__all__ = ["Clustering", "Distances", "Experiment", "Finished", "Grid", "Ledger"]
__all__ += ["Results", "Row", "Study", "Task", "Training", "collecting", "compute"]
__all__ += ["grid", "merge_folder", "prepare", "results", "stored"]
