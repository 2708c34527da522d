"""Methods that the four papers compare theirs with, one algorithm per module."""

from .cfl import CFL
from .cflgp import CFLGP
from .fedce import FedCE
from .fedclust import FedClust
from .fedcluster import FedCluster
from .fedem import FedEM
from .fedrc import FedRC
from .fedsac import FedSaC
from .fedsoft import FedSoft
from .flexcfl import FlexCFL
from .hypocluster import HypoCluster
from .ifca import IFCA
from .pfedgraph import PFedGraph
from .robust_tkm import RobustTKM

__all__ = [
    "CFL",
    "CFLGP",
    "IFCA",
    "FedCE",
    "FedClust",
    "FedCluster",
    "FedEM",
    "FedRC",
    "FedSaC",
    "FedSoft",
    "FlexCFL",
    "HypoCluster",
    "PFedGraph",
    "RobustTKM",
]
