"""Methods that the four papers compare theirs with, one algorithm per module."""

from .cfl import CFL
from .cflgp import CFLGP, CFLGPAsRun
from .fedce import FedCE, FedCEAsRun
from .fedclust import FedClust, FedClustAsRun
from .fedcluster import FedCluster
from .fedem import FedEM, FedEMAsRun
from .fedrc import FedRC, FedRCAsRun
from .fedsac import FedSaC, FedSaCAsRun
from .fedsoft import FedSoft, FedSoftAsRun
from .flexcfl import FlexCFL, FlexCFLAsRun
from .hypocluster import HypoCluster
from .ifca import IFCA
from .pfedgraph import PFedGraph, PFedGraphAsRun
from .robust_tkm import RobustTKM, RobustTKMAsRun

__all__ = [
    "CFL",
    "CFLGP",
    "IFCA",
    "CFLGPAsRun",
    "FedCE",
    "FedCEAsRun",
    "FedClust",
    "FedClustAsRun",
    "FedCluster",
    "FedEM",
    "FedEMAsRun",
    "FedRC",
    "FedRCAsRun",
    "FedSaC",
    "FedSaCAsRun",
    "FedSoft",
    "FedSoftAsRun",
    "FlexCFL",
    "FlexCFLAsRun",
    "HypoCluster",
    "PFedGraph",
    "PFedGraphAsRun",
    "RobustTKM",
    "RobustTKMAsRun",
]
