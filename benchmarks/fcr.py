"""Seconds and memory of FCR at growing numbers of clients: ``python -m benchmarks.fcr [M ...]``.

Synthetic embeddings of the size of FLT's scenario 4: 10 clusters with 5 kinds of data each, 29 samples a client,
e = 128, k = 5. Every M runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from .common import alone, peak

DIMENSION, SAMPLES, CLUSTERS, KINDS = 128, 29, 10, 5


def embeddings(n_clients: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Clients' embeddings and true clusters: Gaussian clouds, five per cluster."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLUSTERS, KINDS, DIMENSION))
    clusters = np.arange(n_clients) % CLUSTERS
    clients = []
    for c in clusters:
        kinds = rng.integers(0, KINDS, SAMPLES)
        clients.append(
            (centres[c, kinds] + 0.4 * rng.normal(size=(SAMPLES, DIMENSION))).astype(
                np.float32
            )
        )
    return clients, clusters


def measure(n_clients: int) -> None:
    from sklearn.metrics import adjusted_rand_score

    from fltnb.clustering import FCR, centroids, cuts, fcr

    clock = time.perf_counter()

    def lap(stage: str) -> float:
        nonlocal clock
        now = time.perf_counter()
        seconds, clock = now - clock, now
        print(f"  {stage:<42}{seconds:8.1f} s")
        return seconds

    clients, clusters = embeddings(n_clients)
    rng = np.random.default_rng(0)
    fcr.umap_layout(rng.normal(size=(60, 8)), 15, 2, 0)
    start = lap("UMAP's import and compilation, once")
    sketches = FCR().sketches(clients)
    total = lap("k-means inside every client, one process")
    plane = fcr.umap_layout(
        np.concatenate([sketch["centroids"] for sketch in sketches]), 15, 2, 0
    )
    total += lap(f"UMAP of {5 * n_clients:,} centroids")
    points = plane.reshape(n_clients, 5, 2)
    distance = centroids.min_distances(points)
    total += lap('client distance "min"')
    centroids.matching_distances(points)
    lap('client distance "matching" (not in the sum)')
    adjacency = ((distance < 1) | np.eye(n_clients, dtype=bool)).astype(np.uint8)
    linkage = cuts.rows_linkage(adjacency)
    total += lap("Ward linkage of the adjacency's rows")
    criterion = cuts.modularity_by_cut(adjacency, linkage)
    found = cuts.best_cut(criterion, cuts.chance_modularity(adjacency))
    total += lap("number of clusters by modularity")
    print(
        f"  {'sum of the stages':<42}{total:8.1f} s, {total + start:.1f} s with UMAP's start"
    )
    clock = time.perf_counter()
    fitted = FCR().fit(clients)
    lap("FCR().fit, the same in one call")
    ari = adjusted_rand_score(clusters, fitted.labels_)
    print(
        f"  peak memory {peak():.2f} GiB; {found} clusters found of {CLUSTERS}, ARI {ari:.2f}"
    )


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--one"]:
        measure(int(arguments[1]))
        return
    for n_clients in arguments or ["240", "2400"]:
        print(f"FCR, {int(n_clients):,} clients", flush=True)
        alone("fcr", "--one", n_clients)


if __name__ == "__main__":
    main(sys.argv[1:])
