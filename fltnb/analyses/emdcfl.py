"""What EMD-CFL's tables need besides whole runs (arXiv 2506.07769, Tables 1-3, 10)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from .. import federations
from ..clustering import PACFL
from ..clustering.cuts import cut
from ..methods import ownmodels
from ..methods.flt import client_images
from ..metrics import adjusted_rand_index

Settings = Mapping[str, Any]


def angles(federation: Settings, threshold: float, seeds: int) -> dict[str, Any]:
    """PACFL's clusters of validation images as networks see them.

    The tables' code looked at these. No network has a part in it, so the ARIs at the
    threshold are those of the printed setting.

    Returns a dict of ``tables``: ``cuts`` with ``seed, told, clusters, ari`` of the
    dendrogram cut at the threshold, into the true number of clusters, and where the
    ARI is highest; ``printed``: those at the threshold, in the form of the tables.

    Parameters
    ----------
    federation : settings without a seed
    threshold : degrees
    seeds : number of federations, seeds 0, 1, ...
    """
    rows = []
    for seed in range(seeds):
        fed = federations.build(federation | {"seed": seed})
        made = PACFL(threshold).fit(*client_images(fed, "val", scaled=True))
        told = {
            "threshold": made.labels_,
            "K": cut(made.linkage_, len(np.unique(fed.clusters))),
            "best cut": _best_cut(made.linkage_, fed.clusters),
        }
        for name, labels in told.items():
            ari = adjusted_rand_index(fed.clusters, labels)
            rows.append((seed, name, len(np.unique(labels)), ari))

    cuts = pd.DataFrame(rows, columns=["seed", "told", "clusters", "ari"])
    at_threshold = cuts[cuts["told"] == "threshold"].assign(method="pacfl")
    return {"tables": {"cuts": cuts, "printed": _in_print(at_threshold)}}


def _best_cut(tree: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the cut of a tree with the highest ARI, the one with fewest clusters."""
    cuts = [cut(tree, k) for k in range(1, len(clusters) + 1)]
    return max(cuts, key=lambda labels: adjusted_rand_index(clusters, labels))


def one_shot(
    federation: Settings, model: str, seed: int, **training: Any
) -> dict[str, Any]:
    """ARIs that the first local round decides, since later ones change no cluster.

    Returns a dict of ``tables``: ``printed`` with EMD-CFL's; ``told`` with FedClust's,
    told the number of clusters: of last layers (``as_written``) and of all parameters
    (``as_run``). The paper cuts their distances at a threshold instead.

    Parameters
    ----------
    federation : settings
    model : network
    **training : options of the local training
    """
    fed = federations.build(federation)
    trained = ownmodels.local_models(fed, model, training, seed)
    emd, reference = ownmodels.measure(fed, *trained, {"name": "EMDClustering"}, seed)
    labels, _ = ownmodels.labels_at(emd, reference, 0.025)
    rows = [("emdcfl", "as_written", adjusted_rand_index(fed.clusters, labels))]

    compared = {"as_written": "last layer", "as_run": "parameters"}
    for variant, name in compared.items():
        distance, _ = ownmodels.measure(fed, *trained, {"name": name}, seed)
        pairs = squareform(distance.astype(np.float32), checks=False)
        told = cut(linkage(pairs, "complete"), len(np.unique(fed.clusters)))
        ari = adjusted_rand_index(fed.clusters, told)
        rows.append(("fedclust", variant, ari))

    found = pd.DataFrame(rows, columns=["method", "variant", "ari"]).assign(seed=seed)
    frame = _in_print(found)
    own = frame["method"] == "emdcfl"
    return {"tables": {"printed": frame[own], "told": frame[~own]}}


def _in_print(found: pd.DataFrame) -> pd.DataFrame:
    """Return ARIs in the columns that papers' tables have."""
    kept = found.filter(["variant", "seed", "method"])
    return kept.assign(metric="ari", value=found["ari"])
