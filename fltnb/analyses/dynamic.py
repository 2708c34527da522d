"""What happens to a changing federation (FLT, arXiv 2103.15947, Algorithm 3)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .. import federations
from .. import methods as room
from ..course import draws
from ..federations.phases import Phase, phases
from .studies import Settings, Study


def course(
    federation: Settings,
    methods: Mapping[str, Settings],
    rounds: int,
    participation: float,
    seed: int = 0,
) -> Study:
    """Return the clients' data over time, and the rounds of each re-clustering.

    Parameters
    ----------
    federation : settings, of :func:`fltnb.federations.changing`
    methods : dict
        Name -> settings, of :class:`fltnb.methods.DynamicFLT`.
    rounds, participation, seed
        As for :func:`fltnb.run`.

    Returns
    -------
    dict
        Table ``schedule``, one row per method: its lambda and tau, the largest number
        of flags (line 13) at a time, and after which rounds it clusters again.
        Arrays, for P phases, M clients and C classes: ``rounds`` (P,), the first round
        of each phase; ``counts`` (P, M, C), training samples, 0 for clients that have
        not joined yet; ``changed`` (P, M), clients that are new or have drifted;
        ``clusters`` (P, M), true clusters, -1 for clients that have not joined yet.
    """
    fed = federations.build(federation)
    parts = phases(fed)
    drawn = draws(fed, rounds, participation, seed)
    rows = []
    for name, settings in methods.items():
        method: Any = room.build(settings)  # a dynamic one
        fired, most = method.schedule(parts, drawn)
        clusterings = [f"{t} ({why})" for t, why in fired.items()]
        row = {
            "method": name,
            "lambda": method.lam,
            "tau": method.tau,
            "most flags at a time": most,
            "clusters again after rounds": ", ".join(clusterings),
        }
        rows.append(row)
    schedule = pd.DataFrame(rows).astype({"lambda": float, "tau": float})
    arrays = _by_phase(parts, fed.n_clients, fed.n_classes)
    return {"tables": {"schedule": schedule}, "arrays": arrays}


def _by_phase(
    parts: tuple[Phase, ...], n_clients: int, n_classes: int
) -> dict[str, np.ndarray]:
    """Return the arrays of :func:`course`.

    Clients that join later have the highest numbers, so that each phase has the first
    rows of the next one.
    """
    shape = (len(parts), n_clients)
    counts = np.zeros((*shape, n_classes), dtype=np.int32)
    changed = np.zeros(shape, dtype=bool)
    clusters = np.full(shape, -1, dtype=np.int32)
    for place, part in enumerate(parts):
        here = part.fed.n_clients
        counts[place, :here] = part.fed.label_counts()
        clusters[place, :here] = part.fed.clusters
        changed[place, :here] = part.changed
    return {
        "rounds": np.array([part.round for part in parts]),
        "counts": counts,
        "changed": changed,
        "clusters": clusters,
    }
