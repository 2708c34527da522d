"""Methods for comparison with clustering, one algorithm per module.

They are the baselines of the four papers' tables, and further published methods.
"""

from .cfl import CFL
from .cflgp import CFLGP, CFLGPAsRun
from .clove import CLoVE, CLoVEAsRun
from .ditto import Ditto
from .fedce import FedCE, FedCEAsRun
from .fedclust import FedClust, FedClustAsRun
from .fedcluster import FedCluster
from .fedcollab import FedCollab
from .feddrift import FedDrift, FedDriftAsRun
from .fedem import FedEM, FedEMAsRun
from .fedper import FedPer
from .fedrc import FedRC, FedRCAsRun
from .fedrep import FedRep, FedRepAsRun
from .fedsac import FedSaC, FedSaCAsRun
from .fedsoft import FedSoft, FedSoftAsRun
from .flexcfl import FlexCFL, FlexCFLAsRun
from .flhc import FLHC
from .flux import FLUX, FLUXAsRun
from .hypocluster import HypoCluster
from .ifca import IFCA
from .ocfl import OCFL, OCFLAsRun
from .pfedgraph import PFedGraph, PFedGraphAsRun
from .robust_tkm import RobustTKM, RobustTKMAsRun
from .stocfl import StoCFL

__all__ = [
    "CFL",
    "CFLGP",
    "FLHC",
    "FLUX",
    "IFCA",
    "OCFL",
    "CFLGPAsRun",
    "CLoVE",
    "CLoVEAsRun",
    "Ditto",
    "FLUXAsRun",
    "FedCE",
    "FedCEAsRun",
    "FedClust",
    "FedClustAsRun",
    "FedCluster",
    "FedCollab",
    "FedDrift",
    "FedDriftAsRun",
    "FedEM",
    "FedEMAsRun",
    "FedPer",
    "FedRC",
    "FedRCAsRun",
    "FedRep",
    "FedRepAsRun",
    "FedSaC",
    "FedSaCAsRun",
    "FedSoft",
    "FedSoftAsRun",
    "FlexCFL",
    "FlexCFLAsRun",
    "HypoCluster",
    "OCFLAsRun",
    "PFedGraph",
    "PFedGraphAsRun",
    "RobustTKM",
    "RobustTKMAsRun",
    "StoCFL",
]
