"""For every notebook, the jobs that each profile asks for: all settings in one readable place.

``demo`` is the embedded digits at toy scale, ``small`` what two CPU cores can do, ``paper`` the published settings.
Which switch belongs to the printed tables and which to a paper's text is told in ``docs/differences.md``. One module
per notebook with ``jobs(profile)``; :mod:`~fltnb.studies.common` holds what they share.
"""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from .. import paths
from ..errors import FltnbError, choose
from ..results import Job, Ledger, Results, compute, stored

PROFILES = ("demo", "small", "paper")
JOBS_AT_A_TIME = {
    "demo": 1,
    "small": 2,
    "paper": 1,
}  # two cores in `small`, one GPU in `paper`
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
    "17_merge_by_gain": "merge_gain",
}
"""Notebook -> module of this package whose ``jobs(profile)`` gives its jobs."""


def full_name(name: str, known: Iterable[str] = NOTEBOOKS) -> str:
    """Return a notebook's name, of those known; its number will do. FltnbError: there is no such notebook."""
    name = str(name).removesuffix(".ipynb")
    return next((full for full in known if full.split("_")[0] == name), None) or choose(
        name, known, "notebook"
    )


def jobs(name: str, profile: str = "demo") -> list[Job]:
    """Return the jobs of a notebook, such as ``01_scenario1`` or ``01``, in one of :data:`PROFILES`."""
    return import_module(f".{NOTEBOOKS[full_name(name)]}", __name__).jobs(
        choose(profile, PROFILES, "profile")
    )


def results(
    name: str, profile: str = "stored", n_jobs: int | None = None, **options: Any
) -> Results:
    """Return the results of a notebook, such as ``"01_scenario1"``; ``"01"`` will do.

    FltnbError: an unknown notebook or profile, nothing stored, or a job that cannot run.

    Parameters
    ----------
    profile : {"stored", "demo", "small", "paper"}
        ``stored`` reads what is committed and never computes: of every cell the ``paper`` results, else those of
        ``small``. The others look up, resume or compute the jobs of that profile and add them to its ledger.
    n_jobs : int, optional, jobs at a time; by default what suits the profile
    **options, ``fresh``, ``progress``, ``device`` and ``backend`` of :func:`fltnb.compute`
    """
    name = full_name(name)
    choose(profile, paths.PROFILES, "profile")
    if profile == "stored":
        found = stored(name, jobs)
        if not len(found):
            how = f"python -m fltnb compute {name} --profile small"
            raise FltnbError(
                f"Nothing is stored for {name}: run `{how}`, first with --plan to see what it costs."
            )
        return found
    held = [Ledger(one, name) for one in (profile, "small")]
    at_a_time = JOBS_AT_A_TIME[profile] if n_jobs is None else n_jobs
    done = compute(
        jobs(name, profile),
        at_a_time,
        ledgers=() if profile == "demo" else held,
        **options,
    )
    held[0].merge(done)
    return Results(((name, profile, one) for one in done), jobs)


def __getattr__(name: str) -> ModuleType:
    """Import a study's module, or :mod:`~fltnb.studies.common`, at its first use: reading results needs none."""
    if name in ("common", *NOTEBOOKS.values()):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
