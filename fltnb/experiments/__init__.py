"""For every notebook, the runs that each profile asks for: all settings in one readable place.

``demo`` is the embedded digits at toy scale, ``small`` what two CPU cores can do in the published settings, ``paper``
the whole table with three seeds on a GPU. Which switch belongs to the published tables and which to the paper's text
is told in ``docs/differences.md``. One module per notebook; :mod:`~fltnb.experiments.common` holds what they share.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import choose
from .common import (
    JOBS,
    PROFILES,
    SCENARIO1_METHODS,
    SEEDS,
    clusterer,
    datasets,
    encoder,
    federation,
    method,
    training,
)

if TYPE_CHECKING:
    from ..store import Spec

# notebook -> module of this package whose ``specs(profile)`` gives its runs
NOTEBOOKS = {
    "00_start_here": "start_here",
    "01_scenario1": "scenario1",
    "02_scenario2": "scenario2",
    "03_scenario3_femnist": "scenario3",
    "04_scenario4_structured": "scenario4",
    "05_ablation": "ablation",
    "06_costs_and_theory": "costs",
    "07_dynamic_clustering": "dynamic",
    "08_fesem": "fesem",
    "09_mthfl_similarity": "mthfl_similarity",
    "10_mthfl_training": "mthfl_training",
    "11_emdcfl_rotated": "emdcfl_rotated",
    "12_emdcfl_pacs": "emdcfl_pacs",
    "13_emdcfl_backdoor": "emdcfl_backdoor",
    "14_emdcfl_robustness": "emdcfl_robustness",
    "15_head_to_head": "head_to_head",
    "16_transport_signatures": "transport",
}

__all__ = [
    "JOBS",
    "NOTEBOOKS",
    "PROFILES",
    "SCENARIO1_METHODS",
    "SEEDS",
    "clusterer",
    "datasets",
    "encoder",
    "federation",
    "method",
    "specs",
    "training",
]


def specs(name: str, profile: str = "demo") -> list[Spec]:
    """Return the runs of a notebook.

    Parameters
    ----------
    name : str
        Notebook, such as ``01_scenario1``.
    profile : {"demo", "small", "paper"}

    Returns
    -------
    list of Spec
    """
    module = import_module(f".{NOTEBOOKS[choose(name, NOTEBOOKS, 'notebook')]}", __name__)
    return module.specs(choose(profile, PROFILES, "profile"))
