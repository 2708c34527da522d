"""Seconds and memory of eigen-relevance at growing numbers of clients.

``python -m benchmarks.eigen [M ...]``. The size of ResNet-18's features, d = 512, with
20 eigenvectors, and 100 samples a client: what 500 clients have if they share
CIFAR-10's 50,000 images. ``--samples n`` takes another number; from n = 512 on every
client multiplies with a whole 512 x 512 matrix, five times as much work. Every M runs
in a process of its own, with two threads. Peak memory includes about 0.1 GiB of
imported libraries and the data.
"""

from __future__ import annotations

import argparse

import numpy as np

from .common import Stopwatch, alone, peak

DIMENSION = 512
EIGENVECTORS = 20
SAMPLES = 100
TASKS = 10


def features(
    n_clients: int, samples: int, seed: int = 0
) -> tuple[list[np.ndarray], np.ndarray]:
    """Clients' features and true tasks.

    They are Gaussian clouds, stretched along directions of the task's own.
    """
    rng = np.random.default_rng(seed)
    stretch = (1 / np.arange(1, DIMENSION + 1)).astype(np.float32)
    bases = []
    for _ in range(TASKS):
        basis, _ = np.linalg.qr(rng.normal(size=(DIMENSION, DIMENSION)))
        bases.append(basis.astype(np.float32))

    tasks = np.arange(n_clients) % TASKS
    clients = []
    for task in tasks:
        cloud = rng.normal(size=(samples, DIMENSION)).astype(np.float32)
        clients.append((cloud * stretch) @ bases[task])
    return clients, tasks


def measure(n_clients: int, samples: int) -> None:
    from sklearn.metrics import adjusted_rand_score

    from fltnb.clustering import EigenRelevance

    clients, tasks = features(n_clients, samples)
    data = sum(x.nbytes for x in clients) / 2**30
    before = peak()
    watch = Stopwatch()
    fitted = EigenRelevance(TASKS, EIGENVECTORS, n_jobs=2).fit(clients)
    agreement = adjusted_rand_score(tasks, fitted.labels_)
    print(
        f"  data {data:.2f} GiB, peak before the fit {before:.2f} GiB; "
        f"ARI {agreement:.2f}; {fitted.sent_[0]:,} numbers sent by a client"
    )
    watch.report()


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of eigen-relevance.")
    parser.add_argument("clients", nargs="*", type=int, default=[10, 100, 500])
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--one", action="store_true", help="in this process")
    options = parser.parse_args()
    samples = options.samples
    if options.one:
        measure(options.clients[0], samples)
        return
    for n_clients in options.clients:
        print(f"EigenRelevance, {n_clients:,} clients of {samples} samples", flush=True)
        alone("eigen", "--one", str(n_clients), "--samples", str(samples))


if __name__ == "__main__":
    main()
