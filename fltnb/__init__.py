"""A companion to four papers on clustered federated learning, mainly for Jupyter.

``import fltnb as fl`` takes milliseconds: a public name is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import FltnbError as FltnbError

if TYPE_CHECKING:  # for editors and type checkers, which do not run __getattr__
    from . import aggregate as aggregate
    from . import analyses as analyses
    from . import arena as arena
    from . import clustering as clustering
    from . import data as data
    from . import encoders as encoders
    from . import errors as errors
    from . import experiments as experiments
    from . import federations as federations
    from . import flower as flower
    from . import methods as methods
    from . import metrics as metrics
    from . import models as models
    from . import notebook as notebook
    from . import papers as papers
    from . import plots as plots
    from . import randomness as randomness
    from . import rounds as rounds
    from . import settings as settings
    from . import theory as theory
    from . import training as training
    from .analyses.advise import advise as advise
    from .clustering import FCR as FCR
    from .clustering import PACFL as PACFL
    from .clustering import EigenRelevance as EigenRelevance
    from .clustering import EMDClustering as EMDClustering
    from .clustering import FedCollab as FedCollab
    from .clustering import MeanImage as MeanImage
    from .clustering import PCAKMeans as PCAKMeans
    from .clustering.ours import MergeGain as MergeGain
    from .clustering.ours import TransportSignatures as TransportSignatures
    from .clustering.ours import clustering_gain as clustering_gain
    from .data import ImageSet as ImageSet
    from .data import load as load
    from .experiments import Clustering as Clustering
    from .experiments import Distances as Distances
    from .experiments import Study as Study
    from .experiments import Training as Training
    from .experiments import compute as compute
    from .experiments import grid as grid  # type: ignore[no-redef]  # no module here
    from .experiments import results as results
    from .federations import Federation as Federation
    from .federations.recipe import recipe as recipe
    from .methods.ownmodels import OwnModels as OwnModels
    from .plots.explore import explore as explore
    from .record import Run as Run
    from .rounds import run as run

__version__ = "0.2.0"

_MODULES = (
    "aggregate",
    "analyses",
    "arena",
    "clustering",
    "data",
    "encoders",
    "errors",
    "experiments",
    "federations",
    "flower",
    "methods",
    "metrics",
    "models",
    "notebook",
    "papers",
    "plots",
    "randomness",
    "rounds",
    "settings",
    "theory",
    "training",
)

_HOME = {
    "Clustering": "experiments",
    "Distances": "experiments",
    "EMDClustering": "clustering",
    "EigenRelevance": "clustering",
    "FCR": "clustering",
    "FedCollab": "clustering",
    "Federation": "federations",
    "ImageSet": "data",
    "MeanImage": "clustering",
    "MergeGain": "clustering.ours",
    "OwnModels": "methods.ownmodels",
    "PACFL": "clustering",
    "PCAKMeans": "clustering",
    "Run": "record",
    "Study": "experiments",
    "Training": "experiments",
    "TransportSignatures": "clustering.ours",
    "advise": "analyses.advise",
    "clustering_gain": "clustering.ours",
    "compute": "experiments",
    "explore": "plots.explore",
    "grid": "experiments",
    "load": "data",
    "recipe": "federations.recipe",
    "results": "experiments",
    "run": "rounds",
}
"""Public name -> the module in which it is defined."""

_EXTRA = {"explore": "anywidget", "notebook": "IPython", "plots": "matplotlib"}
"""Public name -> a package of the extra ``notebooks`` that it needs."""

_MOVED = {
    "Job": "Training",
    "analysis": "papers",
    "confusion": "rounds",
    "oneshot": "experiments",
    "published": "papers",
    "report": "papers",
    "store": "experiments",
    "studies": "experiments",
}
"""Name in the previous version -> its new name; kept for one version."""

__all__ = sorted(["FltnbError", "__version__", *_MODULES, *_HOME])


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name in _MOVED:
        raise AttributeError(f"fltnb.{name} has moved: use fltnb.{_MOVED[name]}.")
    if name not in _MODULES and name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _EXTRA:
        _check_extra(name)
    module = import_module(f".{_HOME.get(name, name)}", __name__)
    if name in _MODULES:
        return module
    globals()[name] = getattr(module, name)
    return globals()[name]


def _check_extra(name: str) -> None:
    """Refuse a part whose own packages are not installed (FltnbError)."""
    try:
        import_module(_EXTRA[name])
    except ModuleNotFoundError as error:
        raise FltnbError(
            f"fltnb.{name} needs the package {error.name}, which is not installed: "
            "pip install 'fltnb[notebooks]'."
        ) from error


def __dir__() -> list[str]:
    return __all__
