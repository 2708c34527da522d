"""Seconds and memory of FCR at growing numbers of clients.

``python -m benchmarks.fcr [M ...]``. Synthetic embeddings of the size of FLT's scenario
4: 10 clusters with 5 kinds of data each, 29 samples a client, e = 128, k = 5. Every M
runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from .common import alone, peak

DIMENSION = 128
SAMPLES = 29
CLUSTERS = 10
KINDS = 5


def embeddings(n_clients: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Clients' embeddings and true clusters: Gaussian clouds, five per cluster."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLUSTERS, KINDS, DIMENSION))
    clusters = np.arange(n_clients) % CLUSTERS
    clients = []
    for cluster in clusters:
        kinds = rng.integers(0, KINDS, SAMPLES)
        noise = 0.4 * rng.normal(size=(SAMPLES, DIMENSION))
        clients.append((centres[cluster, kinds] + noise).astype(np.float32))
    return clients, clusters


class Clock:
    """Prints the seconds of one stage after the other."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap(self, stage: str) -> float:
        """Return the seconds since the last lap."""
        now = time.perf_counter()
        seconds = now - self.last
        self.last = now
        print(f"  {stage:<42}{seconds:8.1f} s")
        return seconds


def measure(n_clients: int) -> None:
    from sklearn.metrics import adjusted_rand_score

    from fltnb.clustering import FCR, centroids, cuts, fcr

    clock = Clock()
    clients, clusters = embeddings(n_clients)
    fcr.umap_layout(np.random.default_rng(0).normal(size=(60, 8)), 15, 2, 0)
    start = clock.lap("UMAP's import and compilation, once")

    sketches = FCR().sketches(clients)
    total = clock.lap("k-means inside every client, one process")
    sent = np.concatenate([sketch["centroids"] for sketch in sketches])
    points = fcr.umap_layout(sent, 15, 2, 0).reshape(n_clients, KINDS, 2)
    total += clock.lap(f"UMAP of {len(sent):,} centroids")
    distance = centroids.min_distances(points)
    total += clock.lap('client distance "min"')
    centroids.matching_distances(points)
    clock.lap('client distance "matching" (not in the sum)')
    near = (distance < 1) | np.eye(n_clients, dtype=bool)
    adjacency = near.astype(np.uint8)
    linkage = cuts.rows_linkage(adjacency)
    total += clock.lap("Ward linkage of the adjacency's rows")
    criterion = cuts.modularity_by_cut(adjacency, linkage)
    n_clusters = cuts.best_cut(criterion, cuts.chance_modularity(adjacency))
    total += clock.lap("number of clusters by modularity")
    whole = f"{total:8.1f} s, {total + start:.1f} s with UMAP's start"
    print(f"  {'sum of the stages':<42}{whole}")

    clock.last = time.perf_counter()
    fitted = FCR().fit(clients)
    clock.lap("FCR().fit, the same in one call")
    agreement = adjusted_rand_score(clusters, fitted.labels_)
    print(
        f"  peak memory {peak():.2f} GiB; {n_clusters} clusters found of {CLUSTERS}, "
        f"ARI {agreement:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of FCR.")
    parser.add_argument("clients", nargs="*", type=int, default=[240, 2400])
    parser.add_argument("--one", action="store_true", help="in this process")
    options = parser.parse_args()
    if options.one:
        measure(options.clients[0])
        return
    for n_clients in options.clients:
        print(f"FCR, {n_clients:,} clients", flush=True)
        alone("fcr", "--one", str(n_clients))


if __name__ == "__main__":
    main()
