"""One result, one shape: from settings to tables in one way.

``fl.results("01_scenario1")`` gives the committed evidence of a notebook, ``fl.results(..., profile="demo")`` looks up,
resumes or computes; both are :class:`~fltnb.results.reading.Results`.
"""

from __future__ import annotations

import sys
from types import ModuleType

from ..errors import FltnbError, choose
from .computing import compute
from .finished import Finished
from .job import Job, prepare
from .ledger import Ledger
from .reading import PROFILES, Results, missing, stored

__all__ = ["PROFILES", "Finished", "Job", "Ledger", "Results", "compute", "missing", "prepare", "results", "stored"]

JOBS_AT_A_TIME = {"demo": 1, "small": 2, "paper": 1}  # two cores in `small`, one GPU in `paper`


def results(
    name: str,
    profile: str = "stored",
    n_jobs: int | None = None,
    fresh: bool | None = None,
    progress: bool = True,
    **options: str,
) -> Results:
    """Return the results of a notebook.

    Parameters
    ----------
    name : str
        Such as ``"01_scenario1"``; ``"01"`` will do.
    profile : {"stored", "demo", "small", "paper"}
        ``stored`` reads what is committed and never computes: of every cell the ``paper`` results, else those of
        ``small``. The others look up, resume or compute the jobs of that profile and add them to its ledger.
    n_jobs : int, optional
        Jobs at a time; by default what suits the profile.
    fresh : bool, optional
        Ignore what was stored before; by default ``FLTNB_FRESH`` decides.
    progress : bool
    **options
        ``device`` and ``backend`` of :func:`fltnb.training.make_engine`.

    Raises
    ------
    FltnbError
        An unknown notebook or profile, nothing stored, or a job that cannot run.
    """
    from .. import studies

    name = studies.full_name(name)
    choose(profile, PROFILES, "profile")
    if profile == "stored":
        found = stored(name)
        if not len(found):
            raise FltnbError(
                f"Nothing is stored for {name}: run `python -m fltnb compute {name} --profile small`, which says its"
                " cost first with --plan."
            )
        return found
    jobs = studies.jobs(name, profile)
    ledger = Ledger(profile, name)
    done = compute(
        jobs,
        n_jobs or JOBS_AT_A_TIME[profile],
        fresh,
        progress,
        ledgers=() if profile == "demo" else (ledger,),
        **options,
    )
    ledger.merge(done)
    return Results.of(done, name, profile)


class _Room(ModuleType):
    """The module itself can be called: ``fl.results(name)``."""

    def __call__(self, *arguments, **options) -> Results:
        return results(*arguments, **options)


sys.modules[__name__].__class__ = _Room
