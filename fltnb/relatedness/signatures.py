"""What a client of :class:`~fltnb.relatedness.transport.TransportSignatures` computes on its own and sends.

Its samples are divided at random into halves; k-means of either half gives k centroids with their sample shares, and
the optimal-transport distance of the halves says how far apart two signatures are *when nothing but chance differs*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from ..errors import FltnbError
from ..randomness import stream

FEWEST = 8  # samples: with halves of three or less, the distance to oneself is not that to others (biased by 1 to 2 Z)
LLOYD_STEPS = 10  # of k-means, which settles in fewer on the few samples of a half
MOST_STEPS = 100_000  # of the transport solver: far more than sets this small can need
PRIVATE_STEPS = 3  # noisy steps share the budget, so they are few


class Noise(NamedTuple):
    """Gaussian noise on everything that leaves a client."""

    sigma: float
    clip: float


class Signature(NamedTuple):
    """Halves (2, k, e), their shares (2, k) with zeros where a half has fewer centroids, and distances to itself."""

    points: np.ndarray
    shares: np.ndarray
    own: np.ndarray


def transport(shares: np.ndarray, other: np.ndarray, cost: np.ndarray) -> float:
    """Cost of the cheapest transport between two weighted sets, exact (POT's network simplex).

    POT's own ``emd2`` spends nine tenths of its time on checks at these sizes, hence its inner function.
    """
    from ot.lp.emd_wrap import emd_c

    return emd_c(shares, other, np.ascontiguousarray(cost), MOST_STEPS, 1)[1]


def describe(clients: list[np.ndarray], first: int, k: int, n_splits: int, seed: int, noise: Noise | None):
    """Signatures of the clients numbered ``first``, ``first + 1``, ...; draws belong to the number of a client.

    Parameters
    ----------
    clients : list of arrays (n_i, e)
    first : int
    k : int
        Centroids per half.
    n_splits : int
        Random divisions; the first one is sent as signature, of the others only the distance. With noise there is one.
    seed : int
    noise : Noise or None
    """
    from threadpoolctl import threadpool_limits

    out = []
    with threadpool_limits(1):  # so that the last bit does not depend on the machine's cores
        for i, z in enumerate(clients, first):
            sent, own = None, []
            for split in range(n_splits if noise is None else 1):
                halves = _halves(np.asarray(z, dtype=np.float64), k, stream(seed, "kmeans", i, split), noise)
                (a, share_a), (b, share_b) = halves
                own.append(transport(share_a, share_b, cdist(a, b)))
                sent = sent or halves
            out.append(Signature(*_filled(sent, k), np.array(own)))
    return out


def _halves(z, k, rng, noise):
    order = rng.permutation(len(z))
    parts = np.split(z[order], [(len(z) + 1) // 2])
    k = min(k, len(parts[1]))
    return [_kmeans(part, k, rng) if noise is None else _private(part, k, rng, noise) for part in parts]


def _filled(halves, k):
    points = np.zeros((2, k, halves[0][0].shape[1]))
    shares = np.zeros((2, k))
    for half, (centres, share) in enumerate(halves):
        points[half, : len(centres)] = centres
        shares[half, : len(share)] = share
    return points, shares


def _kmeans(z: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    # SciPy's, because scikit-learn's checks take longer than the work on a few hundred rows, done ten times a client.
    import warnings

    from scipy.cluster.vq import kmeans2

    # fewer centroids than k where samples repeat; a random projection tells different samples apart
    k = min(k, len(np.unique(z @ rng.normal(size=z.shape[1]))))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="One of the clusters is empty")  # its share is 0
        centres, label = kmeans2(z, k, iter=LLOYD_STEPS, minit="++", rng=rng)
    share = np.bincount(label, minlength=k) / len(z)
    return centres[share > 0], share[share > 0]


def _private(z: np.ndarray, k: int, rng: np.random.Generator, noise: Noise) -> tuple[np.ndarray, np.ndarray]:
    """Lloyd's steps that see the samples through noisy sums and counts only; the start does not depend on the data."""
    z = z * np.minimum(1, noise.clip / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12))
    centres = rng.normal(size=(k, z.shape[1]))
    centres *= noise.clip / 2 / np.linalg.norm(centres, axis=1, keepdims=True)
    for _ in range(PRIVATE_STEPS):
        member = np.eye(k)[cdist(z, centres).argmin(1)]
        count = member.sum(0) + noise.sigma / noise.clip * rng.normal(size=k)
        sums = member.T @ z + noise.sigma * rng.normal(size=centres.shape)
        seen = count >= 1
        moved = sums[seen] / count[seen, None]
        centres[seen] = moved * np.minimum(1, noise.clip / np.linalg.norm(moved, axis=1, keepdims=True))
    share = np.where(seen, count, 0.0) if seen.any() else np.ones(k)
    return centres[share > 0], share[share > 0] / share.sum()


def gaussian_noise(epsilon: float | None, delta: float, clip: float | None) -> Noise | None:
    """Noise that makes one signature (epsilon, delta) differentially private; None without epsilon.

    One step releases the sums of k cells and ``clip`` times their counts. Another sample in the place of one changes
    these by at most 2 clip in Euclidean norm (one cell's sum by 2 clip, or two cells' sums by clip and counts by 1).
    T = 3 steps with Gaussian noise sigma are rho-zCDP with rho = T (2 clip)^2 / (2 sigma^2), which implies
    (rho + 2 sqrt(rho log(1 / delta)), delta) (Bun and Steinke, TCC 2016, Propositions 1.3 and 1.6). The halves hold
    different samples, so both together cost what one does, and all that follows sees nothing but the noisy numbers.
    """
    if epsilon is None:
        return None
    if not (isinstance(epsilon, (int, float)) and 0 < epsilon < np.inf and 0 < delta < 1):
        raise FltnbError(
            f"A privacy budget needs epsilon above 0 and delta between 0 and 1, got {epsilon!r}, {delta!r}."
        )
    if clip is None or not 0 < clip < np.inf:
        raise FltnbError(
            "Noise needs clip, a largest norm of an embedding that is chosen without looking at the clients' data"
            f" (from public images, say), got {clip!r}."
        )
    log = np.log(1 / delta)
    rho = (np.sqrt(log + epsilon) - np.sqrt(log)) ** 2
    return Noise(float(2 * clip * np.sqrt(PRIVATE_STEPS / (2 * rho))), float(clip))
