"""Ways to cut the tree of FCR into clusters (FLT, arXiv 2103.15947, Section 4.6)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from .. import clustering, encoders, federations
from ..clustering.cuts import cut
from ..metrics import adjusted_rand_index


def cuts(
    federation: Mapping[str, Any],
    clusterers: Mapping[str, Mapping[str, Any]],
    encoder: Mapping[str, Any],
) -> dict[str, Any]:
    """Cut what FCR found into clusters in all :func:`ways_to_cut`.

    Returns a dict: ``tables``: ``cuts`` with ``variant, cut, n_clusters, ari``;
    ``arrays``: the true ``clusters`` (M,), and for each variant
    ``<variant>/adjacency`` (M, M) and ``<variant>/leaf_order`` (M,).

    Parameters
    ----------
    federation, encoder : settings
    clusterers : variant -> settings of FCR, without a number of clusters
    """
    fed = federations.build(federation)
    embeddings = encoders.embed_clients(fed, encoders.build(encoder))
    arrays = {"clusters": np.asarray(fed.clusters, dtype=np.int32)}
    rows = []
    for variant, settings in clusterers.items():
        fcr = clustering.build(settings).fit(embeddings)
        arrays[f"{variant}/adjacency"] = fcr.adjacency_
        arrays[f"{variant}/leaf_order"] = fcr.leaf_order_
        for way, labels in ways_to_cut(fcr, fed.n_clusters).items():
            row = {"variant": variant, "cut": way, "n_clusters": len(np.unique(labels))}
            rows.append(row | {"ari": adjusted_rand_index(fed.clusters, labels)})
    return {"tables": {"cuts": pd.DataFrame(rows)}, "arrays": arrays}


def ways_to_cut(fcr: Any, n_clusters: int) -> dict[str, np.ndarray]:
    """Return the clusters of each way to cut, by its name.

    By modularity (ours), at the largest gap of merge heights, with C given, and by
    Ward's tree of the *distances* in place of the graph. ``fcr``: fitted.
    """
    heights = fcr.linkage_[:, 2]
    below_gap = len(heights) - int(np.argmax(np.diff(heights)))
    distances = squareform(fcr.distance_, checks=False)
    return {
        "modularity (ours)": fcr.labels_,
        "largest gap": cut(fcr.linkage_, below_gap),
        "C given": cut(fcr.linkage_, n_clusters),
        "Ward on the distances, C given": cut(linkage(distances, "ward"), n_clusters),
    }
