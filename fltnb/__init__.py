"""A Jupyter-first reproducible companion to four papers on clustered federated learning.

``import fltnb as fl`` costs milliseconds: a public name is imported when it is first used.
"""

from importlib import import_module

from .errors import FltnbError as FltnbError

__version__ = "0.2.0"

_MODULES = [
    *(
        "data",
        "federations",
        "models",
        "encoders",
        "training",
        "clustering",
        "methods",
        "aggregate",
        "metrics",
    ),
    *(
        "rounds",
        "analyses",
        "experiments",
        "papers",
        "plots",
        "notebook",
        "theory",
        "flower",
    ),
]
_OBJECTS = {
    **dict.fromkeys(("load", "ImageSet"), "data"),
    **dict.fromkeys(
        ("EigenRelevance", "EMDClustering", "FCR", "MeanImage", "PACFL", "PCAKMeans"),
        "clustering",
    ),
    **dict.fromkeys(
        ("MergeGain", "TransportSignatures", "clustering_gain"), "clustering.ours"
    ),
    **{"Federation": "federations", "explore": "plots.explore", "run": "rounds"},
    "OwnModels": "methods.ownmodels",
    "recipe": "federations.recipe",
    **dict.fromkeys(
        ("Clustering", "Distances", "Study", "Training", "compute", "grid", "results"),
        "experiments",
    ),
}

_OLD = {
    **{
        "store": "experiments",
        "oneshot": "experiments",
        "studies": "experiments",
        "Job": "Training",
        "published": "papers",
        "report": "papers",
    },
    **{"analysis": "papers", "confusion": "rounds"},
}

__all__ = sorted(["FltnbError", "__version__", *_MODULES, *_OBJECTS])


def __getattr__(name: str):
    """Import a public name at its first use (PEP 562)."""
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _OBJECTS:
        value = getattr(import_module(f".{_OBJECTS[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _OLD:
        raise AttributeError(f"fltnb.{name} has a new home: use fltnb.{_OLD[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
