"""Seconds and memory of transport signatures at growing numbers of clients.

``python -m benchmarks.transport [M ...]``. The embeddings of ``benchmarks.fcr``: the
size of FLT's scenario 4, 29 samples a client, e = 128. Every M runs in a process of its
own; k = 10 centroids per half, two worker processes. Peak memory is that of the main
process, which holds all matrices, and of the largest worker. ``--dendrogram M`` takes
only what the server does once all distances are there (of random clusters): the part
whose memory grows with the square of M.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from .common import Stopwatch, alone
from .fcr import CLUSTERS, embeddings


def whole(n_clients: int) -> None:
    from joblib.externals.loky import get_reusable_executor
    from sklearn.metrics import adjusted_rand_score

    from fltnb.clustering.ours import TransportSignatures

    clients, clusters = embeddings(n_clients)
    watch = Stopwatch()
    fitted = TransportSignatures(n_jobs=2).fit(clients)
    seconds = time.perf_counter() - watch.begun
    get_reusable_executor().shutdown()  # children count once they have ended
    agreement = adjusted_rand_score(clusters, fitted.labels_)
    print(
        f"  fit {seconds:.1f} s; {fitted.n_clusters_} clusters of {CLUSTERS}, "
        f"ARI {agreement:.2f}"
    )
    watch.report()


def dendrogram(n_clients: int) -> None:
    from fltnb.clustering.ours import TransportSignatures

    rng = np.random.default_rng(0)
    clusters = np.arange(n_clients) % CLUSTERS
    z = 0.7 * rng.standard_normal((n_clients, n_clients), dtype=np.float32)
    for i in range(n_clients):
        z[i] += 3 * (clusters != clusters[i])
        z[i:, i] = z[i, i:]
        z[i, i] = 0
    fitted = TransportSignatures()
    fitted.self_distance_ = np.full(n_clients, 40.0)
    fitted.spread_ = np.full(n_clients, 0.06)
    watch = Stopwatch()
    fitted._cluster(z)
    print(f"  {fitted.n_clusters_} clusters of {CLUSTERS}")
    watch.report()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time and memory of transport signatures."
    )
    parser.add_argument("clients", nargs="*", type=int, default=[240, 2400])
    parser.add_argument("--one", action="store_true", help="in this process")
    parser.add_argument(
        "--dendrogram", type=int, metavar="M", help="only the server's part"
    )
    options = parser.parse_args()
    if options.dendrogram:
        dendrogram(options.dendrogram)
        return
    if options.one:
        whole(options.clients[0])
        return
    for n_clients in options.clients:
        print(f"TransportSignatures, {n_clients:,} clients", flush=True)
        alone("transport", "--one", str(n_clients))


if __name__ == "__main__":
    main()
