"""What the notebooks read off their runs: clusterings, the effect of single switches, the papers' claims.

One module per notebook, found as ``fl.analysis.<module>`` when first used.
"""

from importlib import import_module
from pkgutil import iter_modules


def __getattr__(name: str):
    if name in {module.name for module in iter_modules(__path__)}:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
