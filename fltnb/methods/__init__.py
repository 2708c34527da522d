"""Federated methods, one file per algorithm or close family.

:func:`build` turns a method's settings (a JSON-able dict) back into the method, so a run can be described in a file.
"""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import FltnbError, choose
from ..settings import checked
from .base import RULES, VARIANTS, Context, Method, mix
from .cfl import CFL
from .cflgp import CFLGP
from .dynamic import DynamicFLT
from .emdcfl import EMDCFL
from .fedce import FedCE
from .fedclust import FedClust
from .fedcluster import FedCluster
from .feddane import FedDANE
from .feddist import FedDist, FedDistWS
from .fedem import FedEM, FedRC
from .fedprox import FedProx
from .fedsem import FedSEM
from .fedsgd import FedSGD
from .fedsoft import FedSoft
from .fesem import FeSEM
from .fesem_ma import FeSEMMA
from .flexcfl import FlexCFL
from .flt import FLT, PCAKMHC, fit_clusterer
from .graph import FedAvg, GraphMethod, Oracle
from .hierarchical import MTHFL
from .hypocluster import HypoCluster
from .ifca import IFCA
from .local import Local
from .pacfl import PACFL
from .pfedgraph import FedSaC, PFedGraph
from .robust import RobustTKM
from .soft import SoftFLT

METHODS = {
    cls.__name__: cls
    for cls in (
        *(FedAvg, FedProx, Local, Oracle, FLT, PCAKMHC, FedSEM, FeSEM, IFCA, CFL, DynamicFLT, SoftFLT),
        *(PACFL, FedClust, FlexCFL, CFLGP, FedEM, FedSoft, FedRC, PFedGraph, FedSaC, FedCE, EMDCFL),
        *(MTHFL, FedSGD, FedDist, FedDistWS, FedDANE, FedCluster, HypoCluster, RobustTKM, FeSEMMA),
    )
}
_BY_NAME = {cls.name: cls for cls in METHODS.values()}

__all__ = [
    "CFL",
    "CFLGP",
    "EMDCFL",
    "FLT",
    "IFCA",
    "METHODS",
    "MTHFL",
    "PACFL",
    "PCAKMHC",
    "RULES",
    "VARIANTS",
    "Context",
    "DynamicFLT",
    "FeSEM",
    "FeSEMMA",
    "FedAvg",
    "FedCE",
    "FedClust",
    "FedCluster",
    "FedDANE",
    "FedDist",
    "FedDistWS",
    "FedEM",
    "FedProx",
    "FedRC",
    "FedSEM",
    "FedSGD",
    "FedSaC",
    "FedSoft",
    "FlexCFL",
    "GraphMethod",
    "HypoCluster",
    "Local",
    "Method",
    "Oracle",
    "PFedGraph",
    "RobustTKM",
    "SoftFLT",
    "build",
    "fit_clusterer",
    "mix",
]


def build(settings: dict[str, Any]) -> Method:
    """Make a method from its settings.

    Parameters
    ----------
    settings : dict
        ``name`` (or ``kind``, the class name) and the constructor's options; ``clusterer`` and ``encoder`` as dicts.

    Raises
    ------
    FltnbError
        Unknown method, option or option value; an option that the method needs is missing.
    """
    if not isinstance(settings, dict):
        raise FltnbError(f"The settings of a method must be a dict with a name, not {settings!r}.")
    options = dict(settings)
    name = options.pop("name", None)
    kind = options.pop("kind", None)
    if kind is not None:
        cls = METHODS[choose(kind, METHODS, "method kind")]
    else:
        cls = _BY_NAME[choose(name, _BY_NAME, "method")]
    for option, make in (("clusterer", _build_clusterer), ("encoder", _build_encoder)):
        if isinstance(options.get(option), dict):
            options[option] = make(options[option])
    if name is not None and "name" in inspect.signature(cls).parameters:
        options["name"] = name
    return cls(**checked(cls, options, f"method {cls.name}"))


def _build_clusterer(settings: dict[str, Any]):
    from .. import relatedness

    return relatedness.build(settings)


def _build_encoder(settings: dict[str, Any]):
    from ..encoders import EncoderSpec

    known = set(inspect.signature(EncoderSpec).parameters)
    for option in settings:
        choose(option, known, "encoder option")
    return EncoderSpec(**settings)
