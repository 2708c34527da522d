"""What a client of :class:`~fltnb.relatedness.transport.TransportSignatures` computes on its own and sends."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

from ..randomness import stream
from .base import Noise, Sketch

FEWEST = 8  # samples: with halves of three or less, the distance to oneself is not that to others (biased by 1 to 2 Z)
LLOYD_STEPS = 10  # of k-means, which settles in fewer on the few samples of a half
MOST_STEPS = 100_000  # of the transport solver: far more than sets this small can need
PRIVATE_STEPS = 3  # noisy steps share the budget, so they are few


def transport(shares: np.ndarray, other: np.ndarray, cost: np.ndarray) -> float:
    """Exact cost of the cheapest transport (POT's inner function: ``emd2`` takes ten times as long, for checks)."""
    from ot.lp.emd_wrap import emd_c

    return emd_c(shares, other, np.ascontiguousarray(cost), MOST_STEPS, 1)[1]


def describe(
    z: np.ndarray,
    client: int,
    k: int,
    n_splits: int,
    seed: int,
    noise: Noise | None = None,
    rough: Callable | None = None,
) -> Sketch:
    """Signature of a client with embeddings z (n, e): halves of at most k centroids each; draws belong to its number.

    The first of ``n_splits`` random divisions is sent; in a private release, with ``noise``, there is one.
    ``rough(points, split, half)``, if given, changes centroids first. Returned are ``first``, ``second`` (k, e),
    ``first_shares``, ``second_shares`` (k,), and ``own`` (3,): number of samples, mean and variance of the distances
    between halves; not sent: these distances, ``_own``.
    """
    z, own, halves = np.asarray(z, dtype=np.float64), [], []
    for split in range(n_splits if noise is None else 1):
        parts = _halves(z, k, stream(seed, "kmeans", client, split), noise)
        if rough is not None:
            parts = [(rough(points, split, half), shares) for half, (points, shares) in enumerate(parts)]
        halves.append(parts)
        (a, share_a), (b, share_b) = halves[-1]
        own.append(transport(share_a, share_b, cdist(a, b)))
    (first, first_shares), (second, second_shares) = halves[0]
    own = np.array(own)
    return {
        **{"first": first, "first_shares": first_shares, "second": second, "second_shares": second_shares},
        "own": np.array([len(z), own.mean(), own.var(ddof=1) if len(own) > 1 else np.nan]),
        "_own": own,
    }


def stacked(sketches: list[Sketch], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (M, 2, size, e) and shares (M, 2, size) of signatures, zeros where a half has fewer centroids."""
    points = np.zeros((len(sketches), 2, size, sketches[0]["first"].shape[1]))
    shares = np.zeros((len(sketches), 2, size))
    for i, sketch in enumerate(sketches):
        for half, name in enumerate(("first", "second")):
            points[i, half, : len(sketch[name])] = sketch[name]
            shares[i, half, : len(sketch[name])] = sketch[f"{name}_shares"]
    return points, shares


def _halves(z, k, rng, noise):
    order = rng.permutation(len(z))
    parts = np.split(z[order], [(len(z) + 1) // 2])
    k = min(k, len(parts[1]))
    return [_kmeans(part, k, rng) if noise is None else _private(part, k, rng, noise) for part in parts]


def _kmeans(z: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    # SciPy's, because scikit-learn's checks take longer than the work on a few hundred rows, done ten times a client;
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

    One step releases the sums of k cells and ``clip`` times their counts. Replacing one sample changes these by at most
    2 clip in Euclidean norm (one cell's sum by 2 clip, or two cells' sums by clip and counts by 1). T = 3 steps with
    Gaussian noise sigma are rho-zCDP with rho = T (2 clip)^2 / (2 sigma^2), which implies
    (rho + 2 sqrt(rho log(1 / delta)), delta) (Bun and Steinke, TCC 2016, Propositions 1.3 and 1.6). Halves share no
    sample, so both cost what one does.
    """
    if epsilon is None:
        return None
    log = np.log(1 / delta)
    rho = (np.sqrt(log + epsilon) - np.sqrt(log)) ** 2
    return Noise(float(2 * clip * np.sqrt(PRIVATE_STEPS / (2 * rho))), float(clip))
