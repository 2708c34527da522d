"""Federated methods, one file per algorithm or close family.

``FLTAsRun`` and other classes with this ending do what the authors' code did. Their
options are those of the class without the ending, unless they say otherwise.
"""

from typing import Any

from .. import clustering, encoders
from ..aggregate import mix
from ..errors import FltnbError, choose
from ..settings import checked
from .base import RULES, Context, Method
from .baselines import (
    CFL,
    CFLGP,
    FLHC,
    FLUX,
    IFCA,
    OCFL,
    CFLGPAsRun,
    CLoVE,
    CLoVEAsRun,
    Ditto,
    FedCE,
    FedCEAsRun,
    FedClust,
    FedClustAsRun,
    FedCluster,
    FedCollab,
    FedDrift,
    FedDriftAsRun,
    FedEM,
    FedEMAsRun,
    FedPer,
    FedRC,
    FedRCAsRun,
    FedRep,
    FedRepAsRun,
    FedSaC,
    FedSaCAsRun,
    FedSoft,
    FedSoftAsRun,
    FlexCFL,
    FlexCFLAsRun,
    FLUXAsRun,
    HypoCluster,
    OCFLAsRun,
    PFedGraph,
    PFedGraphAsRun,
    RobustTKM,
    RobustTKMAsRun,
    StoCFL,
)
from .dynamic import DynamicFLT, DynamicFLTAsRun
from .emdcfl import EMDCFL, EMDCFLAsRun
from .fesem import FedSEM, FedSEMAsRun, FeSEM, FeSEMAsRun, FeSEMMA
from .flt import (
    FLT,
    PACFL,
    PCAKMHC,
    FLTAsRun,
    PACFLAsRun,
    PCAKMHCAsRun,
    SoftFLT,
    SoftFLTAsRun,
)
from .given import Clusters
from .graph import (
    ClientGraph,
    FedAvg,
    FedAvgAsRun,
    GraphMethod,
    OnGraph,
    Oracle,
    OracleAsRun,
)
from .hierarchical import MTHFL
from .ownmodels import OwnModels
from .plain import (
    FedDANE,
    FedDist,
    FedDistWS,
    FedProx,
    FedProxAsRun,
    FedSGD,
    FedSGDAsRun,
    Local,
)
from .state import State

_WRITTEN = (
    FedAvg,
    FedProx,
    Local,
    Oracle,
    FLT,
    PCAKMHC,
    FedSEM,
    FeSEM,
    IFCA,
    CFL,
    DynamicFLT,
    SoftFLT,
    PACFL,
    FedClust,
    FlexCFL,
    CFLGP,
    FedEM,
    FedSoft,
    FedRC,
    PFedGraph,
    FedSaC,
    FedCE,
    EMDCFL,
    MTHFL,
    FedSGD,
    FedDist,
    FedDistWS,
    FedDANE,
    FedCluster,
    HypoCluster,
    RobustTKM,
    FeSEMMA,
    CLoVE,
    FedPer,
    FLHC,
    FedCollab,
    FLUX,
    OCFL,
    FedDrift,
    Ditto,
    FedRep,
    StoCFL,
)
_RUN = (
    FedAvgAsRun,
    FedProxAsRun,
    OracleAsRun,
    FLTAsRun,
    PCAKMHCAsRun,
    FedSEMAsRun,
    FeSEMAsRun,
    DynamicFLTAsRun,
    SoftFLTAsRun,
    PACFLAsRun,
    FedClustAsRun,
    FlexCFLAsRun,
    CFLGPAsRun,
    FedEMAsRun,
    FedSoftAsRun,
    FedRCAsRun,
    PFedGraphAsRun,
    FedSaCAsRun,
    FedCEAsRun,
    EMDCFLAsRun,
    FedSGDAsRun,
    RobustTKMAsRun,
    CLoVEAsRun,
    FLUXAsRun,
    OCFLAsRun,
    FedDriftAsRun,
    FedRepAsRun,
)
METHODS = {cls.__name__: cls for cls in _WRITTEN}
"""Class name -> method, following the papers' texts."""
AS_RUN = {cls.__name__.removesuffix("AsRun"): cls for cls in _RUN}
"""Class name of a method -> the class that follows the authors' code."""
_BY_NAME = {cls.name: cls for cls in _WRITTEN}

__all__ = [
    "RULES",
    "ClientGraph",
    "Clusters",
    "Context",
    "GraphMethod",
    "Method",
    "OnGraph",
]
__all__ += ["OwnModels", "State", "build", "mix"]
__all__ += ["canonical", *METHODS, *(cls.__name__ for cls in _RUN)]


def build(settings: dict[str, Any]) -> Method:
    """Make a method from its settings, as :meth:`Method.settings` gives them.

    Parameters
    ----------
    settings : dict
        ``name``: the method's id, such as "fedavg"; or ``kind``: the name of its class,
        beside which ``name`` may be any id, if it is an option of the class.
        ``variant``: "as_run" for the class that follows the authors' code. All others
        are options of the method; a clusterer or an encoder is a dict of its own
        settings.

    Raises
    ------
    FltnbError
        The method, an option or a value is unknown, or a needed option is missing.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.methods.build({"name": "fesem", "n_clusters": 3}).lam
    0.1
    """
    if not isinstance(settings, dict):
        raise FltnbError(
            f"The settings of a method must be a dict with a name, not {settings!r}."
        )
    options = dict(settings)
    name = options.pop("name", None)
    kind = options.pop("kind", None)
    if kind is not None:
        cls = METHODS[choose(kind, METHODS, "method kind")]
    else:
        cls = _BY_NAME[choose(name, _BY_NAME, "method")]
    cls = in_variant(cls, options.pop("variant", "as_written"))

    if isinstance(options.get("clusterer"), dict):
        options["clusterer"] = clustering.build(options["clusterer"])
    if isinstance(options.get("encoder"), dict):
        options["encoder"] = encoders.build(options["encoder"])
    made = cls(**checked(cls, options, f"method {cls.name}"))
    if name is not None and "name" in made.options():
        made.name = name
    return made


def in_variant(cls: type[Method], variant: str) -> type[Method]:
    """Return the class that follows the text ("as_written") or the code ("as_run")."""
    choose(variant, ("as_written", "as_run"), "variant")
    if variant == "as_written":
        return cls
    if cls.__name__ not in AS_RUN:
        raise FltnbError(
            f"{cls.__name__} has no variant 'as_run': leave the variant out."
        )
    return AS_RUN[cls.__name__]


def canonical(settings: dict[str, Any] | Method) -> dict[str, Any]:
    """Return the same settings for all descriptions of one method.

    Defaults are left out, and so is the id under which tables show the method.

    Examples
    --------
    >>> canonical({"kind": "FedAvg", "rule": "participants"})
    {'name': 'fedavg'}
    >>> canonical({"name": "fedavg", "variant": "as_run"})
    {'name': 'fedavg', 'rule': 'last_local'}
    """
    method = settings if isinstance(settings, Method) else build(settings)
    one_form = {"name": type(method).name}
    for option, value in method.settings().items():
        if option not in ("kind", "name"):
            one_form[option] = value
    return one_form
