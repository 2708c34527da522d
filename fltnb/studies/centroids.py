"""How many centroids k FCR needs: scenarios 1, 2 and 4 clustered with many k, and what tells a good k without labels.

FLT (arXiv 2103.15947) writes k = 5; the code of its tables took each client's true number of classes.
"""

from collections.abc import Sequence
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
from ..results import Job
from . import scenario4
from .common import PLANE, Settings, Study, clusterer, encoder, federation, plane

KS = (1, 2, 3, 4, 5)
STARTS = (42, 43)  # of k-means and of UMAP; the first is that of the tables
CHOOSE, TEST = (
    (0, 1, 2),
    (3, 4, 5),
)  # seeds that choose a rule for k, and those that judge it
PUBLISHED = -1  # in place of a seed: the one partition of the printed tables


def jobs(profile: str) -> list[Job]:
    """One study per federation, embedding and partition; the digits of ``demo`` have one of each."""
    if profile == "demo":
        digits = federation("digits", "as_written", 0)
        return [
            _job(
                digits,
                encoder("digits", "enc1", "as_written", profile),
                "Enc1",
                1,
                0,
                ks=(1, 2),
            )
        ]
    found = []
    for scenario, dataset in (
        (1, "mnist"),
        (1, "cifar10"),
        (2, "mnist"),
        (2, "cifar10"),
        (4, "emnist_bymerge"),
    ):
        for seed in (*CHOOSE, *TEST, PUBLISHED) if scenario < 4 else (*CHOOSE, *TEST):
            if scenario == 4:
                fed, enc = (
                    scenario4.federation(dataset, scenario4.FEW[profile], seed),
                    scenario4.encoder(dataset, 0),
                )
            else:
                fed = federation(
                    dataset,
                    "as_run" if seed == PUBLISHED else "as_written",
                    max(seed, 0),
                    scenario - 1,
                )
                enc = encoder(dataset, "enc1", "as_written", profile)
            found.append(_job(fed, plane(dataset), PLANE, scenario, seed))
            if seed in (*CHOOSE, PUBLISHED):  # an encoder's embeddings cost minutes
                found.append(
                    _job(
                        fed,
                        enc,
                        "Enc2, not tuned" if scenario == 4 else "Enc1",
                        scenario,
                        seed,
                    )
                )
            if dataset == "cifar10" and seed in (
                0,
                PUBLISHED,
            ):  # BatchNorm as in the code behind the tables
                found.append(
                    _job(
                        fed,
                        enc | {"batch_norm": "image"},
                        "Enc1, BatchNorm as run",
                        scenario,
                        seed,
                    )
                )
    for scenario in (1, 2):  # as run, but for the tuned encoder
        settings = {
            "federation": federation("mnist", "as_run", 0, scenario - 1),
            "encoder": plane("mnist"),
        }
        settings["clusterer"] = clusterer("mnist", "as_run", 1 + scenario)
        axes = {
            "dataset": "mnist",
            "scenario": scenario,
            "embedding": PLANE,
            "seed": 0,
            "study": "transform",
        }
        found.append(Job.study("centroids.transformed", settings, axes=axes))
    return found


def _job(
    fed: Settings,
    embedding: Settings,
    shown: str,
    scenario: int,
    seed: int,
    ks: tuple[int, ...] = KS,
) -> Job:
    fcr = clusterer(fed["dataset"], "as_written")
    settings = {
        "federation": fed,
        "encoder": embedding,
        "clusterer": fcr,
        "ks": ks,
        "starts": STARTS,
    }
    axes = {
        "dataset": fed["dataset"],
        "scenario": scenario,
        "embedding": shown,
        "seed": seed,
        "study": "k",
    }
    return Job.study("centroids.sweep", settings, axes=axes)


def sweep(
    federation: Settings,
    encoder: Settings,
    clusterer: Settings,
    ks: Sequence[int],
    starts: Sequence[int],
) -> Study:
    """Cluster one federation with every k and both distances, and score each k without the labels.

    Returns a dict of ``tables``. ``found``: ``k, distance, cut, n_clusters, ari``, the cuts of
    :func:`fltnb.studies.scenario4.ways_to_cut`, from the first of the ``starts``. ``scores``, all without labels, by
    modularity's cut where one is needed: ``k, distance``; ``stability``: ARI between starts; ``neighbours``: mean ARI
    with the next smaller and larger k; ``silhouette``: mean over clients of that of their own k-means clusters, 0 for
    one; ``modularity``: what the cut has above chance; ``clique``: share of the linked triples whose third side is
    there; ``links``: share of all pairs. ``clusterer``: settings of FCR, whose k, distance and start are replaced.
    """
    fed = federations.build(federation)
    z = encoders.embed_clients(fed, encoders.build(encoder))
    found, scores, labels = [], [], {}
    for k in ks:
        own = {"silhouette": float(np.mean([_silhouette(x, k, starts[0]) for x in z]))}
        made = []
        for start in (
            starts
        ):  # FCR by either distance; both take one UMAP map, which is most of the work
            how = clusterer | {"k": k, "random_state": start}
            made.append(
                {name: clustering.build(how | {"distance": name}) for name in DISTANCES}
            )
            first = made[-1]["min"].fit_sketches(made[-1]["min"].sketches(z))
            made[-1]["matching"]._threshold_and_cut(
                DISTANCES["matching"](list(first.embedding_))
            )
        for distance in DISTANCES:
            first, *others = (fitted[distance] for fitted in made)
            for way, cut in scenario4.ways_to_cut(first, fed.n_clusters).items():
                ari = adjusted_rand_index(fed.clusters, cut)
                found.append(
                    {
                        "k": k,
                        "distance": distance,
                        "cut": way,
                        "n_clusters": len(np.unique(cut)),
                        "ari": ari,
                    }
                )
            labels[distance, k] = first.labels_
            again = np.mean(
                [adjusted_rand_index(first.labels_, other.labels_) for other in others]
            )
            scores.append(
                {
                    "k": k,
                    "distance": distance,
                    "stability": float(again),
                    **own,
                    **_graph(first),
                }
            )
    for row in scores:
        at = list(ks).index(row["k"])
        near = [ks[i] for i in (at - 1, at + 1) if 0 <= i < len(ks)]
        same = [
            adjusted_rand_index(
                labels[row["distance"], row["k"]], labels[row["distance"], k]
            )
            for k in near
        ]
        row["neighbours"] = float(np.mean(same))
    return {"tables": {"found": pd.DataFrame(found), "scores": pd.DataFrame(scores)}}


def transformed(federation: Settings, encoder: Settings, clusterer: Settings) -> Study:
    """Cluster with the plane as FLT's code had it: UMAP fitted on all centroids, then applied anew to each client's.

    Returns a dict: ``numbers``: ``ari_fitted``, ``ari_transformed``, by modularity's cut; ``links_moved``, the share of
    pairs of clients that only one of the two links.
    """
    fed = federations.build(federation)
    z = encoders.embed_clients(fed, encoders.build(encoder))
    fitted, again = clustering.build(clusterer), clustering.build(clusterer)
    centres = [sketch["centroids"].astype(np.float32) for sketch in fitted.sketches(z)]
    fitted.fit_sketches([{"centroids": own} for own in centres])
    seed = integer(fitted.random_state, "umap")
    umap = umap_class()(
        n_neighbors=fitted.n_neighbors,
        n_components=fitted.n_components,
        random_state=seed,
        n_jobs=1,
    )
    umap.fit(np.concatenate(centres))
    again._threshold_and_cut(
        DISTANCES[again.distance]([umap.transform(own) for own in centres])
    )
    moved = fitted.adjacency_ != again.adjacency_
    numbers = {"links_moved": float(moved.sum() / (len(moved) * (len(moved) - 1)))}
    for name, one in (("fitted", fitted), ("transformed", again)):
        numbers[f"ari_{name}"] = adjusted_rand_index(fed.clusters, one.labels_)
    return {"numbers": numbers}


def _silhouette(x: np.ndarray, k: int, start: int) -> float:
    """Silhouette of a client's own k-means clusters, on at most 500 of its samples."""
    x = x[:500]
    if not 1 < k < len(x):
        return 0.0
    labels = KMeans(k, n_init=1, random_state=integer(start, "kmeans")).fit_predict(x)
    return float(silhouette_score(x, labels)) if len(np.unique(labels)) > 1 else 0.0


def _graph(fcr: Any) -> dict[str, float]:
    """Return what the client graph says about itself."""
    A = fcr.adjacency_.astype(np.int64)
    above = float(np.nanmax(fcr.criterion_) - chance_modularity(fcr.adjacency_))
    np.fill_diagonal(A, 0)
    degree = A.sum(axis=1)
    triples = int((degree * (degree - 1)).sum())
    closed = float(np.trace(A @ A @ A) / triples) if triples else 1.0
    return {
        "modularity": above,
        "clique": closed,
        "links": float(A.sum() / (len(A) * (len(A) - 1))),
    }
