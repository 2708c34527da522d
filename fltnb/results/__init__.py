"""One result, one shape: from settings to tables in one way.

``fl.results("01_scenario1")`` gives the committed evidence of a notebook, ``fl.results(..., profile="demo")`` looks up,
resumes or computes; both are :class:`~fltnb.results.reading.Results`.
"""

import sys
from importlib import import_module
from types import ModuleType

from .computing import compute
from .finished import Finished
from .job import Job, prepare
from .ledger import Ledger
from .reading import Results, stored

__all__ = ["Finished", "Job", "Ledger", "Results", "compute", "prepare", "stored"]


class _Room(ModuleType):
    """The module itself can be called, ``fl.results(name)``: what a notebook asks for is known one floor above."""

    def __call__(self, *arguments, **options) -> Results:
        if arguments and not isinstance(arguments[0], str):
            return import_module("fltnb.experiments").results(*arguments, **options)
        return import_module("fltnb.studies").results(*arguments, **options)


sys.modules[__name__].__class__ = _Room
