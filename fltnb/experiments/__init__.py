"""From experiments to results: grids, stored results, computing, committed ledgers."""

from .asking import results, stored
from .computing import check_all, compute
from .experiment import Clustering, Distances, Study, Training
from .finished import Finished
from .grid import Grid, Row, grid
from .ledger import Ledger
from .reading import Results
from .task import prepare

__all__ = ["Clustering", "Distances", "Finished", "Grid", "Ledger"]
__all__ += ["Results", "Row", "Study", "Training", "compute"]
__all__ += ["check_all", "grid", "prepare", "results", "stored"]
