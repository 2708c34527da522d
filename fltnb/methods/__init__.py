"""Federated methods, one file per algorithm or close family."""

import inspect
from typing import Any

from .. import clustering, encoders
from ..errors import FltnbError, choose
from .base import RULES, Context, Method, mix
from .baselines import (
    CFL,
    CFLGP,
    IFCA,
    FedCE,
    FedClust,
    FedCluster,
    FedEM,
    FedRC,
    FedSaC,
    FedSoft,
    FlexCFL,
    HypoCluster,
    PFedGraph,
    RobustTKM,
)
from .dynamic import DynamicFLT
from .emdcfl import EMDCFL
from .fesem import FedSEM, FeSEM, FeSEMMA
from .flt import FLT, PACFL, PCAKMHC, SoftFLT
from .graph import FedAvg, GraphMethod, Oracle
from .hierarchical import MTHFL
from .plain import FedDANE, FedDist, FedDistWS, FedProx, FedSGD, Local

_MADE = (
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
)
_MADE += (
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
)
_MADE += (
    MTHFL,
    FedSGD,
    FedDist,
    FedDistWS,
    FedDANE,
    FedCluster,
    HypoCluster,
    RobustTKM,
    FeSEMMA,
)
METHODS = {cls.__name__: cls for cls in _MADE}
_BY_NAME = {cls.name: cls for cls in METHODS.values()}

__all__ = ["RULES", "Context", "GraphMethod", "Method", "build", "canonical", "mix"]
__all__ += METHODS


def build(settings: dict[str, Any]) -> Method:
    """Make a method from ``name`` (or ``kind``, its class) and options, with ``clusterer`` and ``encoder`` as dicts.

    An unknown method, option or value, or a missing option that the method needs, raises :class:`fltnb.FltnbError`.
    """
    if not isinstance(settings, dict):
        raise FltnbError(
            f"The settings of a method must be a dict with a name, not {settings!r}."
        )
    options = dict(settings)
    name, kind = options.pop("name", None), options.pop("kind", None)
    if kind is not None:
        cls = METHODS[choose(kind, METHODS, "method kind")]
    else:
        cls = _BY_NAME[choose(name, _BY_NAME, "method")]
    for part, room in (("clusterer", clustering), ("encoder", encoders)):
        if isinstance(options.get(part), dict):
            options[part] = room.build(options[part])
    if name is not None and "name" in inspect.signature(cls).parameters:
        options["name"] = name
    return cls(**options)


def canonical(settings: dict[str, Any] | Method) -> dict[str, Any]:
    """Return the one form of all settings that mean the same method, whatever id tables show it under.

    Examples
    --------
    >>> canonical({"kind": "FedAvg", "rule": "participants"}), canonical({"name": "fedavg", "variant": "as_run"})
    ({'name': 'fedavg'}, {'name': 'fedavg', 'rule': 'last_local'})
    """
    method = settings if isinstance(settings, Method) else build(settings)
    return {
        name: value for name, value in method.settings().items() if name != "kind"
    } | {"name": type(method).name}
