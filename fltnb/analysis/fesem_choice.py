"""Notebook 08: the number of centres from a small run of some clients (FeSEM, Section 5.2), beside the long runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .. import store
from ..experiments import SEEDS
from ..experiments import fesem as experiment
from ..randomness import stream
from .fesem_clusters import inside, watch

if TYPE_CHECKING:
    import pandas as pd

    from ..federations import Federation
    from ..store import Spec

SECTION_52 = (8, 52)  # keys of the random stream that draws the clients: notebook 8, then the section


def short_runs(profile: str) -> pd.DataFrame:
    """Section 5.2's way to choose K: a few clients drawn at random, a few rounds, every K.

    Returns
    -------
    DataFrame
        ``dataset, draw, K, accuracy`` (micro, percent) and ``inside``: mean squared distance of the models sent in the
        last round to the mean of their cluster.
    """
    import pandas as pd

    size, seed = experiment.SIZES[profile], SEEDS[profile][0]
    wanted, rows = size["sample"], []
    for name in size["federations"]:
        for draw in range(wanted["draws"]):
            for k in size["tried"]:
                spec = experiment.row(profile, name, f"fesem_{k}", seed)
                chosen = drawn(spec.federation_built(), wanted["clients"], seed, draw)
                key = {"choosing K": spec.settings(), "run": spec.key(), "clients": chosen.tolist()}
                held = store.cached_arrays(
                    key | {"rounds": wanted["rounds"]},
                    lambda spec=spec, chosen=chosen: _short(spec, chosen, wanted["rounds"]),
                )
                rows.append((name, draw, k, float(held["accuracy"]), float(held["inside"])))
    return pd.DataFrame(rows, columns=["dataset", "draw", "K", "accuracy", "inside"])


def drawn(fed: Federation, n: int, seed: int, draw: int) -> np.ndarray:
    """Clients of a small run, drawn without replacement, ascending."""
    return np.sort(stream(seed, "method", *SECTION_52, draw).choice(fed.n_clients, size=n, replace=False))


def some_clients(fed: Federation, chosen: Sequence[int]) -> Federation:
    """Return the federation of some clients alone."""
    parts = {split: [getattr(fed, split)[i] for i in chosen] for split in ("train", "val", "test")}
    clusters = None if fed.clusters is None else fed.clusters[np.asarray(chosen)]
    settings = fed.settings | {"clients": [int(i) for i in chosen]}
    return replace(fed, **parts, probe=None, clusters=clusters, settings=settings)


def _short(spec: Spec, chosen: np.ndarray, n_rounds: int) -> dict[str, np.ndarray]:
    kept, done = watch(spec, (n_rounds,), some_clients(spec.federation_built(), chosen), n_rounds)
    test = done.history[done.history["split"] == "test"]
    return {"accuracy": np.array(test["micro"].iloc[-1]), "inside": np.array(inside(kept[n_rounds]))}


def long_runs(tidy: pd.DataFrame) -> pd.DataFrame:
    """Micro accuracy of all clients after all rounds, for every K and the first seed: ``dataset, K, accuracy``."""
    own = tidy[tidy["method"].str.fullmatch(r"fesem_\d+") & (tidy["variant"] == "as_written")]
    own = own[own["note"].isin(["", "choosing K"]) & (own["metric"] == "micro_accuracy") & (own["split"] == "test")]
    own = own[own["seed"] == own["seed"].min()]
    found = own.assign(K=own["method"].str.removeprefix("fesem_").astype(int), accuracy=own["value"])
    return found[["dataset", "K", "accuracy"]].sort_values(["dataset", "K"]).reset_index(drop=True)


def ranking(short: pd.DataFrame, long: pd.DataFrame) -> pd.DataFrame:
    """How well small runs rank the numbers of centres.

    Parameters
    ----------
    short, long : DataFrame
        From :func:`short_runs` and :func:`long_runs`.

    Returns
    -------
    DataFrame
        One row per draw: ``dataset, draw``, Kendall's tau with the long runs' accuracy of the small runs' accuracy
        (``tau, accuracy``) and of their distance inside clusters, smaller is better (``tau, distance``), and the K that
        each would take: ``K by accuracy, K by distance, K of the long runs``.
    """
    import pandas as pd
    from scipy.stats import kendalltau

    rows = []
    for (dataset, draw), own in short.groupby(["dataset", "draw"], sort=False):
        goal = long[long["dataset"] == dataset].set_index("K")["accuracy"]
        own = own[own["K"].isin(goal.index)].set_index("K")
        goal = goal[own.index]
        taus = [float(kendalltau(value, goal).statistic) for value in (own["accuracy"], -own["inside"])]
        rows.append((dataset, draw, *taus, own["accuracy"].idxmax(), own["inside"].idxmin(), goal.idxmax()))
    names = ["tau, accuracy", "tau, distance", "K by accuracy", "K by distance", "K of the long runs"]
    return pd.DataFrame(rows, columns=["dataset", "draw", *names])
