"""Transport signatures: one-shot clustering of clients with a test instead of a threshold. This project's own."""

import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
from scipy.cluster.hierarchy import fcluster, maxRstat
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist
from scipy.stats import norm

from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, NonNegative, Positive, Rate, Whole
from .base import ClientClusterer, Noise, Sketch, check_clients
from .cuts import canonical, cut, merge_gaps

FEWEST = 8  # samples: with halves of three or less, the distance to oneself is not that to others (biased by 1 to 2 Z)
LLOYD_STEPS = 10  # of k-means, which settles in fewer on the few samples of a half
MOST_STEPS = 100_000  # of the transport solver: far more than sets this small can need
PRIVATE_STEPS = 3  # noisy steps share the budget, so they are few
NONE, UNCLEAR = (
    -1,
    -2,
)  # answers of TransportSignatures.predict: no cluster fits; several do


class TransportSignatures(ClientClusterer):
    r"""Cluster clients by optimal transport between their centroids, against what chance alone would give.

    **Client.** It sends k centroids with sample shares of either half of its samples, divided at random, their number,
    and mean :math:`s_i` and variance of the transport distance between halves over ``n_splits`` divisions.

    **Server.** :math:`D_{ij}` is the exact Wasserstein-1 distance (Euclidean ground cost) between a half of client i
    and one of client j, the mean of first against second and second against first. If i and j have the same
    distribution, this is the same experiment as each of them makes with itself, at the same sizes, so

    .. math:: Z_{ij} = \frac{D_{ij} / m_{ij} - 1}{c_{ij}}, \qquad m_{ij}^2 = (s_i^2 + s_j^2) / 2

    has mean 0 and a standard deviation of at most 1, whatever the sizes. :math:`c_{ij}` is the relative spread of the
    own distances, half the client's, half pooled. :math:`D_{ij}^2 - m_{ij}^2` estimates how far apart the distributions
    are, squared. Clients of one kind are equally far from *everybody*, so Ward linkage on the rows of that matrix, each
    less its mean, orders the clients: a row averages over M comparisons.

    **Test.** Going up the dendrogram, a merge of groups of a and b clients is refused if the mean Z between them
    exceeds ``tolerance + norm.isf(alpha / (M - 1)) * sqrt((1 / a + 1 / b) / 4 + 1 / (2 a b))``. Clusters are the
    largest groups without a refused merge, each client then moved to the cluster that it is nearest to by mean Z.

    Parameters
    ----------
    k : int, centroids per half; a half with no more than k samples is sent as it is
    alpha : float
        Bounds the *family-wise* probability that clients with one distribution are separated anywhere in the dendrogram
        (Bonferroni over its M - 1 merges, normal approximation; the tolerance makes up for its finding what lies
        apart). In ``adjacency_`` it holds per pair, in :meth:`predict` and ``undecided_`` per client and cluster.
    n_clusters : int or None, for a cut of the dendrogram without tests; clients still settle, which may leave fewer
    n_splits : int, random divisions per client
    tolerance : float, mean Z that is no reason to separate groups however large: one purpose is never quite equal data
    epsilon, delta, clip : float or None
        A private release by noisy sums and counts (:func:`~fltnb.clustering.transport.gaussian_noise`). At 128
        dimensions a few hundred samples carry nothing at epsilon near 1. One division; the spread is over clients.
    random_state, n_jobs : see there; a client's draws depend on the seed and on its number

    Attributes
    ----------
    undecided_ : ndarray (M,) bool
        Another cluster is not rejected at alpha either, or the client has fewer than the 8 samples that the test needs.
    distance_ : ndarray (M, M) float32, Z: standardised, hence around 0 (and below) for equal clients; diagonal 0
    adjacency_ : ndarray (M, M) uint8, 1 where Z does not exceed ``norm.isf(alpha)``
    centroids_, weights_ : ndarray (M, 2 k, e), (M, 2 k), one half after the other (NaN and 0 where missing)
    self_distance_, spread_, null_ : ndarray (M,), (M,), (M, n_splits), s_i, c of one client, and every own distance
    gap_, limit_ : ndarray (M - 1,), mean Z between the groups of each merge of ``linkage_``, and what is allowed
    """

    k: Count = 10
    alpha: Rate = 0.01
    n_clusters: Count | None = None
    n_splits: Annotated[int, Whole(2)] = 5
    random_state: Natural = 0
    tolerance: NonNegative = 0.5
    epsilon: Positive | None = None
    delta: Rate = 1e-5
    clip: Positive | None = None
    n_jobs: int | None = None

    def _check_size(self, size: int, client: int) -> None:
        if size < 2:
            raise FltnbError(
                f"Client {client} has a single sample, which cannot be halved: leave it out."
            )

    def sketch(
        self, x: np.ndarray, client: int = 0, rough: Callable | None = None
    ) -> Sketch:
        """Return a client's signature, of its embeddings (n, e); draws belong to its number.

        Of random divisions into halves (``n_splits``, or one in a private release) the first is sent, at most k
        centroids of each half. ``rough(points, split, half)``, if given, changes centroids first. Returned are
        ``first``, ``second`` (k, e), ``first_shares``, ``second_shares`` (k,), and ``own`` (3,): number of samples,
        mean and variance of the distances between halves; not sent: these distances, ``_own``.
        """
        z, own, sent = np.asarray(x, dtype=np.float64), [], {}
        noise = gaussian_noise(self.epsilon, self.delta, self.clip)
        k = min(int(self.k), len(z) // 2)
        for split in range(int(self.n_splits) if noise is None else 1):
            rng = stream(int(self.random_state), "kmeans", client, split)
            halves = np.split(z[rng.permutation(len(z))], [(len(z) + 1) // 2])
            parts = [
                _kmeans(half, k, rng)
                if noise is None
                else _private(half, k, rng, noise)
                for half in halves
            ]
            if rough is not None:
                parts = [
                    (rough(points, split, half), shares)
                    for half, (points, shares) in enumerate(parts)
                ]
            (a, share_a), (b, share_b) = parts
            sent = sent or {
                "first": a,
                "first_shares": share_a,
                "second": b,
                "second_shares": share_b,
            }
            own.append(transport(share_a, share_b, cdist(a, b)))
        spread = np.var(own, ddof=1) if len(own) > 1 else np.nan
        return sent | {
            "own": np.array([len(z), np.mean(own), spread]),
            "_own": np.array(own),
        }

    def _relate(self, sketches, answers) -> None:
        sizes, mean, variance = np.array([sketch["own"] for sketch in sketches]).T
        # small clients throughout: no padding beyond the largest of them
        points, shares = stacked(
            sketches,
            max(len(s[half]) for s in sketches for half in ("first", "second")),
        )
        if all("_own" in sketch for sketch in sketches):
            self.null_ = np.stack([sketch["_own"] for sketch in sketches])
        self.self_distance_ = np.maximum(
            mean, max(1e-6 * mean.max(), 1e-12)
        )  # a client may hold copies of one sample
        self.spread_ = _spread(mean, variance, sizes)
        count, _, k, width = points.shape
        self.weights_ = shares.reshape(count, 2 * k) / 2
        self.centroids_ = np.where(
            self.weights_[:, :, None] > 0, points.reshape(count, 2 * k, width), np.nan
        )
        self._cluster(self._scores(points, shares))
        self.undecided_ |= sizes < FEWEST

    def predict(self, X: Sequence[np.ndarray]) -> np.ndarray:
        """Place newcomers, by their embeddings (n_i, e), without clustering again, in the cluster that fits, int64.

        -1: the test rejects all; -2: several fit (:meth:`scores` says which is nearest), or it has less than 8 samples.
        """
        X = list(X)
        z = self.scores(X)
        limit = self._level(1) * _deviation(1, _one_hot(self.labels_).sum(0))
        free, nearest = z <= limit, z.argmin(1)
        near = z.min(1) <= self.tolerance + limit[nearest]
        unclear = (free.sum(1) > 1) | np.array([len(x) < FEWEST for x in X])
        return np.where(unclear, UNCLEAR, np.where(near, nearest, NONE))

    def scores(self, X: Sequence[np.ndarray]) -> np.ndarray:
        """Mean Z of newcomers to the clients of each cluster, (number of newcomers, C); near 0 if it fits."""
        if not hasattr(self, "labels_"):
            raise FltnbError(
                "This TransportSignatures has not seen any clients yet: call fit first."
            )
        count, _, width = self.centroids_.shape
        X = check_clients(X, width=width)
        self._check_sizes([len(x) for x in X])
        sent = self.sketches(X, first=count)
        points, shares = _halves(self.centroids_, self.weights_)
        own = np.array([sketch["own"][1] for sketch in sent])
        spread = np.full(len(sent), np.sqrt(np.mean(self.spread_**2)))
        distance = np.stack(
            [
                _row(*new, points, shares)
                for new in zip(*stacked(sent, int(self.k)), strict=True)
            ]
        )
        z = _standard(
            distance, own[:, None], self.self_distance_, spread[:, None], self.spread_
        )
        members = _one_hot(self.labels_)
        return z @ members / members.sum(0)

    def _scores(self, points: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Z of all pairs, (M, M) float32, row by row."""
        count = len(points)
        z = np.zeros((count, count), dtype=np.float32)
        own, spread = self.self_distance_, self.spread_
        for i, distance in enumerate(
            self._each("_beyond", [()] * count, points=points, shares=shares)
        ):
            rest = slice(i + 1, None)
            z[i, rest] = z[rest, i] = _standard(
                distance, own[i], own[rest], spread[i], spread[rest]
            )
        return z

    def _beyond(
        self, points: np.ndarray, shares: np.ndarray, client: int
    ) -> np.ndarray:
        return _row(
            points[client], shares[client], points[client + 1 :], shares[client + 1 :]
        )

    def _level(self, tests: int) -> float:
        return float(norm.isf(self.alpha / tests))

    def _cluster(self, z: np.ndarray) -> None:
        tree = self._tree(z)
        self.gap_, sizes = merge_gaps(z, tree)
        self.limit_ = self.tolerance + self._level(max(1, len(z) - 1)) * _deviation(
            *sizes
        )
        fine = self.gap_ <= self.limit_
        labels = (
            accepted_groups(tree, fine)
            if self.n_clusters is None
            else canonical(cut(tree, self.n_clusters))
        )
        labels, self.undecided_ = self._settle(z, labels)
        self._keep(z, tree, labels, z <= self._level(1))

    def _tree(self, z: np.ndarray) -> np.ndarray:
        """Ward linkage of the rows of D^2 - m^2, which follow from z."""
        own, variance = self.self_distance_**2, self.spread_**2
        ratio = 1 + z * np.sqrt((variance[:, None] + variance) / 2)
        rows = (ratio**2 - 1) * (own[:, None] + own) / 2
        np.fill_diagonal(rows, 0)
        rows -= rows.mean(
            axis=1, keepdims=True
        )  # the client's own chance, which moves all of its distances alike
        return scipy_linkage(rows / max(np.abs(rows).max(), 1e-12), "ward")

    def _settle(
        self, z: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Move clients to the nearest cluster that fits them, and mark those that more than one fits."""
        me = np.arange(len(z))
        members = _one_hot(labels)
        count = members.sum(0) - members  # without the client itself
        mean = np.where(count > 0, z @ members / np.maximum(count, 1), np.inf)
        level = self._level(1) * _deviation(1, np.maximum(count, 1))
        nearest = mean.argmin(1)
        labels = np.where(
            mean[me, nearest] <= self.tolerance + level[me, nearest], nearest, labels
        )
        free = mean <= level
        free[me, labels] = True
        return canonical(labels), free.sum(1) > 1


def _one_hot(labels: np.ndarray) -> np.ndarray:
    """Membership (M, C), float32 like the distances it is multiplied with: no float64 copy of those."""
    return np.eye(labels.max() + 1, dtype=np.float32)[labels]


def _deviation(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """Return the standard deviation of the mean Z between groups of a and b clients of one distribution."""
    return np.sqrt((1 / np.asarray(a) + 1 / np.asarray(b)) / 4 + 0.5 / (a * b))


def accepted_groups(tree: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """Largest groups of a dendrogram in which every merge is accepted, as labels (M,)."""
    refused = np.repeat(~accepted[:, None], 4, axis=1).astype(np.float64)
    return canonical(
        fcluster(tree, 0.5, "monocrit", monocrit=maxRstat(tree, refused, 0))
    )


def _standard(distance, own, other, spread, other_spread) -> np.ndarray:
    middle = np.sqrt((own**2 + other**2) / 2)
    width = np.sqrt((spread**2 + other_spread**2) / 2)
    return (distance / np.maximum(middle, 1e-12) - 1) / width


def _spread(mean: np.ndarray, variance: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Relative standard deviation of the own distances of each client, (M,): half its own variance, half pooled."""
    if np.isfinite(variance).all():
        relative = variance / np.maximum(mean, 1e-12) ** 2
        return np.sqrt(np.maximum((relative + relative.mean()) / 2, 1e-12))
    # One noisy division each: the scatter over clients once the law of their sizes is taken out
    law = np.polynomial.Polynomial.fit(
        np.log(sizes), np.log(mean), int(np.ptp(sizes) > 0 and len(sizes) >= 10)
    )
    return np.full(
        len(mean), max(np.std(np.log(mean) - law(np.log(sizes)), ddof=1), 1e-6)
    )


def _halves(
    centroids: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    shape = (len(weights), 2, weights.shape[1] // 2)
    return np.nan_to_num(centroids).reshape(*shape, -1), 2 * weights.reshape(shape)


def _row(points, shares, other_points, other_shares) -> np.ndarray:
    """Mean distance of one client's halves to the opposite halves of the others, (m,)."""
    count, _, k, width = other_points.shape
    total = np.zeros(count)
    for half in (0, 1):
        here, there = points[half], other_points[:, 1 - half].reshape(count * k, width)
        cost = cdist(here, there).reshape(len(here), count, k).transpose(1, 0, 2)
        total += [
            transport(shares[half], other_shares[j, 1 - half], cost[j])
            for j in range(count)
        ]
    return total / 2


def transport(shares: np.ndarray, other: np.ndarray, cost: np.ndarray) -> float:
    """Exact cost of the cheapest transport (POT's inner function: ``emd2`` takes ten times as long, for checks)."""
    from ot.lp.emd_wrap import emd_c

    return emd_c(shares, other, np.ascontiguousarray(cost), MOST_STEPS, 1)[1]


def stacked(sketches: list[Sketch], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (M, 2, size, e) and shares (M, 2, size) of signatures, zeros where a half has fewer centroids."""
    points = np.zeros((len(sketches), 2, size, sketches[0]["first"].shape[1]))
    shares = np.zeros((len(sketches), 2, size))
    for i, sketch in enumerate(sketches):
        for half, name in enumerate(("first", "second")):
            points[i, half, : len(sketch[name])] = sketch[name]
            shares[i, half, : len(sketch[name])] = sketch[f"{name}_shares"]
    return points, shares


def _kmeans(
    z: np.ndarray, k: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    # SciPy's, because scikit-learn's checks take longer than the work on a few hundred rows, done ten times a client;
    # fewer centroids than k where samples repeat; a random projection tells different samples apart
    k = min(k, len(np.unique(z @ rng.normal(size=z.shape[1]))))
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="One of the clusters is empty"
        )  # its share is 0
        centres, label = kmeans2(z, k, iter=LLOYD_STEPS, minit="++", rng=rng)
    share = np.bincount(label, minlength=k) / len(z)
    return centres[share > 0], share[share > 0]


def _private(
    z: np.ndarray, k: int, rng: np.random.Generator, noise: Noise
) -> tuple[np.ndarray, np.ndarray]:
    """Lloyd's steps that see the samples through noisy sums and counts only; the start does not depend on the data."""
    z = z * np.minimum(
        1, noise.clip / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    )
    centres = rng.normal(size=(k, z.shape[1]))
    centres *= noise.clip / 2 / np.linalg.norm(centres, axis=1, keepdims=True)
    for _ in range(PRIVATE_STEPS):
        member = np.eye(k)[cdist(z, centres).argmin(1)]
        count = member.sum(0) + noise.sigma / noise.clip * rng.normal(size=k)
        sums = member.T @ z + noise.sigma * rng.normal(size=centres.shape)
        seen = count >= 1
        moved = sums[seen] / count[seen, None]
        centres[seen] = moved * np.minimum(
            1, noise.clip / np.linalg.norm(moved, axis=1, keepdims=True)
        )
    share = np.where(seen, count, 0.0) if seen.any() else np.ones(k)
    return centres[share > 0], share[share > 0] / share.sum()


def gaussian_noise(
    epsilon: float | None, delta: float, clip: float | None
) -> Noise | None:
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
