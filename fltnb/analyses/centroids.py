"""How many centroids k FCR needs, and how to find a good k without labels.

FLT (arXiv 2103.15947) writes k = 5; the code of its tables took each client's true
number of classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from .. import clustering, encoders, federations
from ..clustering.centroids import DISTANCES
from ..clustering.cuts import chance_modularity
from ..clustering.fcr import umap_class
from ..metrics import adjusted_rand_index
from ..randomness import integer, seeded
from .scenario4 import scored_cuts
from .studies import Settings, Study


def sweep(
    federation: Settings,
    encoder: Settings,
    clusterer: Settings,
    ks: Sequence[int],
    starts: Sequence[int],
) -> Study:
    """Cluster one federation with every k and both distances; score k without labels.

    Parameters
    ----------
    federation, encoder : settings
    clusterer : settings of FCR, whose k, distance and start are replaced
    ks : sequence of int
        Numbers of centroids.
    starts : sequence of int
        Random states of k-means and of UMAP.

    Returns
    -------
    dict
        Table ``found``: ``k, distance, cut, n_clusters, ari``, by all
        :func:`~fltnb.analyses.scenario4.ways_to_cut`, from the first of the ``starts``.
        Table ``scores``, without labels, by modularity's cut where one is needed: ``k,
        distance``; ``stability``: ARI between starts; ``silhouette``: mean over clients
        of that of their own k-means clusters, 0 for one; ``modularity``: what the cut
        has above chance; ``clique``: share of the linked triples whose third side is
        there; ``links``: share of all pairs; ``neighbours``: mean ARI with the next
        smaller and larger k.
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
            about: dict[str, Any] = {"k": k, "distance": distance}
            first, *others = [by_distance[distance] for by_distance in fitted]
            found += [about | row for row in scored_cuts(first, fed)]
            again = [other.labels_ for other in others]
            score = about | {
                "stability": _mean_ari(first.labels_, again),
                "silhouette": float(np.mean(silhouettes)),
            }
            scores.append(score | _graph(first))
            labels[distance, k] = first.labels_

    for score in scores:
        distance, k = score["distance"], score["k"]
        near = [labels[distance, other] for other in _neighbours(ks, k)]
        score["neighbours"] = _mean_ari(labels[distance, k], near)
    return {"tables": {"found": pd.DataFrame(found), "scores": pd.DataFrame(scores)}}


def _neighbours(ks: Sequence[int], k: int) -> list[int]:
    """Return the next smaller and the next larger of the tried values, if any."""
    at = ks.index(k)
    before = ks[max(at - 1, 0) : at]
    after = ks[at + 1 : at + 2]
    return [*before, *after]


def _both_distances(
    clusterer: Settings, z: Sequence[np.ndarray], k: int, start: int
) -> dict[str, Any]:
    """Fit FCR by either distance; both take one UMAP map, which is most of the work."""
    how = {**clusterer, "k": k, "random_state": start}
    by_min = clustering.build(how | {"distance": "min"})
    by_min.fit_sketches(by_min.sketches(z))
    by_matching = clustering.build(how | {"distance": "matching"})
    distances = DISTANCES["matching"](list(by_min.embedding_))
    by_matching._threshold_and_cut(distances)
    return {"min": by_min, "matching": by_matching}


def _mean_ari(labels: np.ndarray, others: list[np.ndarray]) -> float:
    """Return the mean ARI of clusters (M,) with several others."""
    return float(np.mean([adjusted_rand_index(labels, other) for other in others]))


def transformed(federation: Settings, encoder: Settings, clusterer: Settings) -> Study:
    """Cluster with the map as FLT's code had it.

    UMAP is fitted on all centroids, then applied to each client's separately.

    Parameters
    ----------
    federation, encoder : settings
    clusterer : settings of FCR

    Returns
    -------
    dict
        Numbers: ``ari_fitted``, ``ari_transformed``, by modularity's cut;
        ``links_moved``, the share of pairs of clients that only one of the two links.
    """
    fed = federations.build(federation)
    z = encoders.embed_clients(fed, encoders.build(encoder))
    fitted = clustering.build(clusterer)
    sketches = fitted.sketches(z)
    centres = [sketch["centroids"].astype(np.float32) for sketch in sketches]
    fitted.fit_sketches([{"centroids": own} for own in centres])

    seed = integer(fitted.random_state, "umap")
    umap = umap_class()(
        n_neighbors=fitted.n_neighbors,
        n_components=fitted.n_components,
        random_state=seed,
        n_jobs=1,
    )
    with seeded(seed):
        umap.fit(np.concatenate(centres))
    places = [umap.transform(own) for own in centres]
    again = clustering.build(clusterer)
    distances = DISTANCES[again.distance](places)
    again._threshold_and_cut(distances)

    moved = fitted.adjacency_ != again.adjacency_
    numbers = {
        "links_moved": float(moved.sum() / _ordered_pairs(moved)),
        "ari_fitted": adjusted_rand_index(fed.clusters, fitted.labels_),
        "ari_transformed": adjusted_rand_index(fed.clusters, again.labels_),
    }
    return {"numbers": numbers}


def _ordered_pairs(matrix: np.ndarray) -> int:
    """Return how many entries (M, M) are off the diagonal."""
    M = len(matrix)
    return M * (M - 1)


def _silhouette(x: np.ndarray, k: int, start: int) -> float:
    """Silhouette of a client's own k-means clusters, on at most 500 of its samples.

    A silhouette takes the distances of all pairs, and 500 samples are enough to compare
    values of k.
    """
    x = x[:500]
    if not 1 < k < len(x):
        return 0.0
    kmeans = KMeans(k, n_init=1, random_state=integer(start, "kmeans"))
    labels = kmeans.fit_predict(x)
    if len(np.unique(labels)) < 2:
        return 0.0
    return float(silhouette_score(x, labels))


def _graph(fcr: Any) -> dict[str, float]:
    """Return what the client graph says about itself.

    ``modularity`` of its best cut above chance; ``clique``, the share of linked triples
    whose third side is there, 1 without triples; ``links``, the share of all pairs.
    """
    best = np.nanmax(fcr.criterion_)
    chance = chance_modularity(fcr.adjacency_)
    A = fcr.adjacency_.astype(np.int64)
    np.fill_diagonal(A, 0)
    degree = A.sum(axis=1)
    triples = int((degree * (degree - 1)).sum())
    closed = np.trace(A @ A @ A) / triples if triples else 1.0
    return {
        "modularity": float(best - chance),
        "clique": float(closed),
        "links": float(A.sum() / _ordered_pairs(A)),
    }
