"""Ways to cut the tree of FCR into clusters (FLT, arXiv 2103.15947, Section 4.6)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from .. import clustering, encoders, federations
from ..clustering.cuts import cut, largest_gap
from ..metrics import adjusted_rand_index
from .studies import Settings, Study


def cuts(
    federation: Settings, clusterers: Mapping[str, Settings], encoder: Settings
) -> Study:
    """Cut what FCR found into clusters in all :func:`ways_to_cut`.

    Parameters
    ----------
    federation, encoder : settings
    clusterers : dict
        Variant -> settings of FCR, without a number of clusters.

    Returns
    -------
    dict
        Table ``cuts``: ``variant, cut, n_clusters, ari``. Arrays: the true ``clusters``
        (M,), and for each variant ``<variant>/adjacency`` (M, M) and
        ``<variant>/leaf_order`` (M,).
    """
    fed = federations.build(federation)
    embeddings = encoders.embed_clients(fed, encoders.build(encoder))
    arrays = {"clusters": np.asarray(fed.clusters, dtype=np.int32)}
    rows = []
    for variant, settings in clusterers.items():
        fcr = clustering.build(settings).fit(embeddings)
        arrays[f"{variant}/adjacency"] = fcr.adjacency_
        arrays[f"{variant}/leaf_order"] = fcr.leaf_order_
        for row in scored_cuts(fcr, fed):
            rows.append({"variant": variant} | row)
    return {"tables": {"cuts": pd.DataFrame(rows)}, "arrays": arrays}


def scored_cuts(fcr: Any, fed: federations.Federation) -> list[dict[str, Any]]:
    """Return ``cut, n_clusters, ari`` of each of :func:`ways_to_cut`.

    Parameters
    ----------
    fcr : FCR, fitted
    fed : Federation
        That of the clients, with its true clusters.
    """
    rows = []
    for way, labels in ways_to_cut(fcr, fed.n_clusters).items():
        row = {
            "cut": way,
            "n_clusters": len(np.unique(labels)),
            "ari": adjusted_rand_index(fed.clusters, labels),
        }
        rows.append(row)
    return rows


def ways_to_cut(fcr: Any, n_clusters: int) -> dict[str, np.ndarray]:
    """Return the clusters of each way to cut, by its name.

    The dendrogram is cut by modularity (our rule), at the largest gap of merge heights,
    and with C given. The last way cuts Ward's tree of the *distances*, in place of that
    of the graph, with C given.

    Parameters
    ----------
    fcr : FCR, fitted
    n_clusters : int
        C.
    """
    tree = fcr.linkage_
    distances = squareform(fcr.distance_, checks=False)
    of_distances = linkage(distances, "ward")
    return {
        "modularity (ours)": fcr.labels_,
        "largest gap": cut(tree, largest_gap(tree)),
        "C given": cut(tree, n_clusters),
        "Ward on the distances, C given": cut(of_distances, n_clusters),
    }
