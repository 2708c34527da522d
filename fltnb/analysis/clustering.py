"""What the notebooks read off one-shot clusterings."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from .. import metrics
from ..oneshot import link_shares
from ..store import Spec, cached_arrays

if TYPE_CHECKING:
    import pandas as pd

ENCODERS = {"flt_enc1": "Enc1", "flt_enc2": "Enc2"}


def clusterings(specs: Iterable[Spec]) -> dict[tuple, tuple]:
    """Fit (or read from the store) the clusterer of every FLT run.

    Returns
    -------
    dict
        (dataset, method id, variant, seed) -> (fitted clusterer, true clusters (M,)).
    """
    from .. import methods

    fitted = {}
    for spec in specs:
        if spec.method_id in ENCODERS and not spec.note:
            method, fed = methods.build(spec.method), spec.federation_built()
            context = methods.Context(spec.seed, cached_arrays, progress=True)
            clusterer = methods.fit_clusterer(method.clusterer, fed, method.encoder, context)
            fitted[spec.dataset, spec.method_id, spec.variant, spec.seed] = (clusterer, fed.clusters)
    return fitted


def renumbered(clusterer, clusters: np.ndarray, seed: int = 0) -> tuple[SimpleNamespace, np.ndarray]:
    """Give the clients random numbers, for pictures: a federation built cluster by cluster shows its answer.

    Returns
    -------
    tuple
        An object with the ``adjacency_``, ``labels_`` and ``leaf_order_`` of the fitted clusterer, and the true
        clusters, both for the new numbering.
    """
    order = np.random.default_rng(seed).permutation(len(clusters))
    view = SimpleNamespace(
        adjacency_=clusterer.adjacency_[np.ix_(order, order)],
        labels_=clusterer.labels_[order],
        leaf_order_=np.argsort(order)[clusterer.leaf_order_],
    )
    return view, clusters[order]


def clustering_table(fitted: dict[tuple, tuple]) -> pd.DataFrame:
    """One row per clustering: clusters found, ARI with the truth, links inside and across the true clusters."""
    import pandas as pd

    rows = []
    for (dataset, method, variant, seed), (clusterer, clusters) in fitted.items():
        inside, across = link_shares(clusterer.adjacency_, clusters)
        rows.append(
            {
                "dataset": dataset,
                "encoder": ENCODERS[method],
                "variant": variant,
                "seed": seed,
                "clusters found": int(clusterer.n_clusters_),
                "ARI": metrics.adjusted_rand_index(clusters, clusterer.labels_),
                "links inside": inside,
                "links across": across,
            }
        )
    return pd.DataFrame(rows)
