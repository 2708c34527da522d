"""How many centroids k FCR needs, and what tells a good k without labels.

FLT (arXiv 2103.15947) writes k = 5; the code of its tables took each client's true
number of classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from .. import clustering, encoders, federations
from ..clustering.cuts import chance_modularity
from ..clustering.fcr import DISTANCES, umap_class
from ..metrics import adjusted_rand_index
from ..randomness import integer
from .scenario4 import ways_to_cut

Settings = Mapping[str, Any]


def sweep(
    federation: Settings,
    encoder: Settings,
    clusterer: Settings,
    ks: Sequence[int],
    starts: Sequence[int],
) -> dict[str, Any]:
    """Cluster one federation with every k and both distances; score k without labels.

    Returns a dict of ``tables``. ``found``: ``k, distance, cut, n_clusters, ari``, by
    all :func:`~fltnb.analyses.scenario4.ways_to_cut`, from the first of the ``starts``.
    ``scores``, without labels, by modularity's cut where one is needed: ``k,
    distance``; ``stability``: ARI between starts; ``neighbours``: mean ARI with the
    next smaller and larger k; ``silhouette``: mean over clients of that of their own
    k-means clusters, 0 for one; ``modularity``: what the cut has above chance;
    ``clique``: share of the linked triples whose third side is there; ``links``: share
    of all pairs.

    Parameters
    ----------
    federation, encoder : settings
    clusterer : settings of FCR, whose k, distance and start are replaced
    ks : numbers of centroids
    starts : random states of k-means and of UMAP
    """
    fed = federations.build(federation)
    z = encoders.embed_clients(fed, encoders.build(encoder))
    found = []
    scores = []
    labels = {}
    for k in ks:
        silhouettes = [_silhouette(x, k, starts[0]) for x in z]
        fitted = [_both_distances(clusterer, z, k, start) for start in starts]
        for distance in DISTANCES:
            about = {"k": k, "distance": distance}
            first = fitted[0][distance]
            labels[distance, k] = first.labels_
            for way, cut in ways_to_cut(first, fed.n_clusters).items():
                row = about | {"cut": way}
                row["n_clusters"] = len(np.unique(cut))
                row["ari"] = adjusted_rand_index(fed.clusters, cut)
                found.append(row)

            again = [one[distance].labels_ for one in fitted[1:]]
            row = about | {"stability": _mean_ari(first.labels_, again)}
            row["silhouette"] = float(np.mean(silhouettes))
            scores.append(row | _graph(first))

    for row in scores:
        at = ks.index(row["k"])
        near = (*ks[max(at - 1, 0) : at], *ks[at + 1 : at + 2])
        others = [labels[row["distance"], k] for k in near]
        row["neighbours"] = _mean_ari(labels[row["distance"], row["k"]], others)
    return {"tables": {"found": pd.DataFrame(found), "scores": pd.DataFrame(scores)}}


def _both_distances(
    clusterer: Settings, z: Sequence[np.ndarray], k: int, start: int
) -> dict[str, Any]:
    """Fit FCR by either distance; both take one UMAP map, which is most of the work."""
    how = dict(clusterer) | {"k": k, "random_state": start}
    made = {name: clustering.build(how | {"distance": name}) for name in DISTANCES}
    first = made["min"].fit_sketches(made["min"].sketches(z))
    places = list(first.embedding_)
    made["matching"]._threshold_and_cut(DISTANCES["matching"](places))
    return made


def _mean_ari(labels: np.ndarray, others: list[np.ndarray]) -> float:
    return float(np.mean([adjusted_rand_index(labels, other) for other in others]))


def transformed(
    federation: Settings, encoder: Settings, clusterer: Settings
) -> dict[str, Any]:
    """Cluster with the map as FLT's code had it.

    UMAP is fitted on all centroids, then applied anew to each client's.

    Returns a dict: ``numbers``: ``ari_fitted``, ``ari_transformed``, by modularity's
    cut; ``links_moved``, the share of pairs of clients that only one of the two links.
    """
    fed = federations.build(federation)
    z = encoders.embed_clients(fed, encoders.build(encoder))
    fitted = clustering.build(clusterer)
    again = clustering.build(clusterer)
    sketches = fitted.sketches(z)
    centres = [sketch["centroids"].astype(np.float32) for sketch in sketches]
    fitted.fit_sketches([{"centroids": own} for own in centres])

    umap = umap_class()(
        n_neighbors=fitted.n_neighbors,
        n_components=fitted.n_components,
        random_state=integer(fitted.random_state, "umap"),
        n_jobs=1,
    )
    umap.fit(np.concatenate(centres))
    places = [umap.transform(own) for own in centres]
    again._threshold_and_cut(DISTANCES[again.distance](places))

    moved = fitted.adjacency_ != again.adjacency_
    pairs = len(moved) * (len(moved) - 1)
    numbers = {
        "links_moved": float(moved.sum() / pairs),
        "ari_fitted": adjusted_rand_index(fed.clusters, fitted.labels_),
        "ari_transformed": adjusted_rand_index(fed.clusters, again.labels_),
    }
    return {"numbers": numbers}


def _silhouette(x: np.ndarray, k: int, start: int) -> float:
    """Silhouette of a client's own k-means clusters, on at most 500 of its samples."""
    x = x[:500]
    if not 1 < k < len(x):
        return 0.0
    kmeans = KMeans(k, n_init=1, random_state=integer(start, "kmeans"))
    labels = kmeans.fit_predict(x)
    if len(np.unique(labels)) < 2:
        return 0.0
    return float(silhouette_score(x, labels))


def _graph(fcr: Any) -> dict[str, float]:
    """Return what the client graph says about itself."""
    above_chance = np.nanmax(fcr.criterion_) - chance_modularity(fcr.adjacency_)
    A = fcr.adjacency_.astype(np.int64)
    np.fill_diagonal(A, 0)
    degree = A.sum(axis=1)
    triples = int((degree * (degree - 1)).sum())
    closed = np.trace(A @ A @ A) / triples if triples else 1.0
    pairs = len(A) * (len(A) - 1)
    return {
        "modularity": float(above_chance),
        "clique": float(closed),
        "links": float(A.sum() / pairs),
    }
