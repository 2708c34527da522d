"""Analyses for EMD-CFL's tables besides runs (arXiv 2506.07769, Tables 1-3, 10)."""

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
from .studies import Settings, Study


def angles(federation: Settings, threshold: float, seeds: int) -> Study:
    """PACFL's clusters of validation images as networks see them.

    The tables' code used these images. No network takes part, so the ARIs at the
    threshold are those of the printed setting.

    Parameters
    ----------
    federation : settings without a seed
    threshold : float
        Degrees.
    seeds : int
        Number of federations, seeds 0, 1, ...

    Returns
    -------
    dict
        Table ``cuts``: ``seed, told, clusters, ari`` of the dendrogram cut at the
        threshold, into the true number of clusters, and where the ARI is highest. Table
        ``printed``: those at the threshold, in the form of the tables.
    """
    rows = []
    for seed in range(seeds):
        fed = federations.build(federation | {"seed": seed})
        made = PACFL(threshold).fit(*client_images(fed, "val", scaled=True))
        told = {
            "threshold": made.labels_,
            "K": cut(made.linkage_, fed.n_clusters),
            "best cut": _best_cut(made.linkage_, fed.clusters),
        }
        for name, labels in told.items():
            row = {
                "seed": seed,
                "told": name,
                "clusters": len(np.unique(labels)),
                "ari": adjusted_rand_index(fed.clusters, labels),
            }
            rows.append(row)

    cuts = pd.DataFrame(rows)
    at_threshold = cuts[cuts["told"] == "threshold"].assign(method="pacfl")
    return {"tables": {"cuts": cuts, "printed": _in_print(at_threshold)}}


def _best_cut(tree: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the cut of a tree with the highest ARI, the one with fewest clusters.

    No threshold could do better: if this is wrong, the distances are.
    """
    cuts = [cut(tree, k) for k in range(1, len(clusters) + 1)]
    return max(cuts, key=lambda labels: adjusted_rand_index(clusters, labels))


def one_shot(federation: Settings, model: str, seed: int, **training: Any) -> Study:
    """ARIs that the first local round determines, because clusters then stay fixed.

    The paper cuts FedClust's distances at a threshold; here it gets the number of
    clusters.

    Parameters
    ----------
    federation : settings
    model : str
    seed : int
    **training
        Options of the local training.

    Returns
    -------
    dict
        Table ``printed``: EMD-CFL's. Table ``told``: FedClust's, of last layers
        (``as_written``) and of all parameters (``as_run``).
    """
    fed = federations.build(federation)
    trained = ownmodels.local_models(fed, model, training, seed)
    emd, reference = ownmodels.measure(fed, *trained, {"name": "EMDClustering"}, seed)
    labels, _ = ownmodels.labels_at(emd, reference, 0.025)
    own = {
        "method": "emdcfl",
        "variant": "as_written",
        "ari": adjusted_rand_index(fed.clusters, labels),
    }

    rows = []
    compared = {"as_written": "last layer", "as_run": "parameters"}
    for variant, name in compared.items():
        distance, _ = ownmodels.measure(fed, *trained, {"name": name}, seed)
        pairs = squareform(distance.astype(np.float32), checks=False)
        told = cut(linkage(pairs, "complete"), fed.n_clusters)
        row = {
            "method": "fedclust",
            "variant": variant,
            "ari": adjusted_rand_index(fed.clusters, told),
        }
        rows.append(row)

    found = pd.DataFrame([own, *rows]).assign(seed=seed)
    frame = _in_print(found)
    return {"tables": {"printed": frame[:1], "told": frame[1:]}}


def _in_print(found: pd.DataFrame) -> pd.DataFrame:
    """Return ARIs in the columns that papers' tables have."""
    kept = found.filter(["variant", "seed", "method"])
    return kept.assign(metric="ari", value=found["ari"])
