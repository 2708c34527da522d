"""Eigen-relevance: MT-HFL's one-shot clustering of users by the main directions of their data (Section II).

No public code exists. The paper's Algorithm 2 multiplies the data of two users in line 9, which nobody could compute;
what is built here is Eq. (2), where every user multiplies its own Gram matrix with the other's eigenvectors.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform
from sklearn.base import BaseEstimator, ClusterMixin

from ..errors import FltnbError
from ..randomness import stream
from .base import best_cut, canonical, check_clients, check_counts, check_seed, check_settings, cut

REASONABLE = 0.5
"""Mean silhouette above which structure counts as reasonable (Kaufman and Rousseeuw, Finding Groups in Data, 1990)."""

_OF_VECTORS, _OF_GRAM = 1, 2  # streams of noise
_COLUMNS = 4096  # eigenvectors per matrix product: bounds the memory, whatever the number of clients


class Privacy(NamedTuple):
    """Noise for one client's Gram matrix: standard deviation times its number of samples, and the clipping norm."""

    sigma: float
    clip: float


class EigenRelevance(ClusterMixin, BaseEstimator):
    r"""Cluster clients by the relevance of each other's eigenvectors (MT-HFL, Eqs. 1 to 5 and Algorithm 2).

    Client i takes the eigenvalues :math:`\lambda_k^{(i)}` and eigenvectors :math:`v_k^{(i)}` of its Gram matrix
    :math:`G_i = \Phi_i^\top \Phi_i / n_i` and sends the first p eigenvectors. With those of j it computes

    .. math:: \hat\lambda_k = \|G_i v_k^{(j)}\|, \qquad
        r(i, j) = \Bigl(\prod_{k \le p} \frac{\min(\lambda_k^{(i)}, \hat\lambda_k)}
        {\max(\lambda_k^{(i)}, \hat\lambda_k)}\Bigr)^{1/p}, \qquad R(i, j) = \frac{r(i, j) + r(j, i)}{2}

    and the server clusters 1 - R hierarchically. What follows from the formulas:

    - equal data give R = 1, whatever p; orthogonal subspaces give R near 0; permuting clients permutes R;
    - both values in the ratio are of *i's* data, so multiplying one client's features by a constant changes nothing,
      and neither does holding every sample several times: n_i matters through chance only;
    - G is not centred. The first direction is mostly the mean sample, which all natural images share, so p = 1 says
      little. A constant c added to everybody's features becomes that first direction, and the projected norms of all
      others then hold c times the difference of the two users' means: the larger c, the smaller R, unless the means
      are equal. A feature that is 0 for everybody changes nothing;
    - one direction that is nearly empty for i and not for j pulls the product down, however alike the others are.

    Values below ``d * eps`` times a client's largest eigenvalue are rounding; two of them have the ratio 1.

    Parameters
    ----------
    n_clusters : int or None
        Number of tasks T, which the paper takes as known. None: the cut with the highest mean silhouette of 1 - R, or
        one cluster if that is below 0.5. Not the paper's, and for well separated tasks only (notebook 09).
    n_eigenvectors : int or None
        p, at most the features and the samples of every client. The paper: 5. None: as many as all clients have.
    linkage : {"average", "complete", "single", "ward"}
        Of the hierarchical clustering; the paper names none.
    max_clusters : int or None
        Upper limit of a chosen number of clusters.
    noise : float
        Gaussian noise on the eigenvectors that are sent, as its expected length (an eigenvector has length 1): every
        entry gets standard deviation ``noise / sqrt(d)``. The paper leaves this question open.
    epsilon, delta, clip : float or None
        With ``epsilon``, all that a client sends is (epsilon, delta) differentially private against replacing one of
        its samples: samples are clipped to norm ``clip`` and G_i gets Gaussian noise (:func:`noisy_gram`), once;
        eigenvectors and relevances are computed from that matrix alone. The number of samples is not hidden, the
        budget is for one fit, ``clip`` and Phi must not depend on the clients' data, and the seed must stay secret.
        This needs the d x d matrix, so reduce wide features first.
    random_state : int
        Seed of the noise; without noise nothing is drawn.
    n_jobs : int or None
        Threads (joblib); no influence on the result.

    Attributes
    ----------
    labels_ : ndarray (M,) int64, numbered in order of first appearance
    relevance_ : ndarray (M, M), R; the diagonal is 1
    directed_ : ndarray (M, M), r(i, j)
    eigenvalues_ : ndarray (M, p), of each client, descending
    distance_ : ndarray (M, M), 1 - R
    adjacency_ : ndarray (M, M) uint8, 1 inside clusters: the paper has no threshold, hence no other graph
    linkage_ : ndarray (M - 1, 4), leaf_order_ : ndarray (M,)
    criterion_ : ndarray (M + 1,), silhouette by number of clusters (NaN: no such cut), where n_clusters is None
    n_clusters_ : int
    sent_ : ndarray (M,), scalars each client sends: p d of eigenvectors (one copy, relayed) and M - 1 relevances
    received_ : ndarray (M,), scalars each client gets: the eigenvectors of the M - 1 others

    Raises
    ------
    FltnbError
        On ``fit``, before any work: settings or features that cannot work.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> users = [rng.normal(size=(40, 6)) * scale for scale in ([9, 3, 1, 0, 0, 0], [0, 0, 0, 9, 3, 1]) * 2]
    >>> EigenRelevance(n_clusters=2, n_eigenvectors=3).fit_predict(users).tolist()
    [0, 1, 0, 1]
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        n_eigenvectors: int | None = 5,
        linkage: str = "average",
        max_clusters: int | None = None,
        noise: float = 0.0,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
    ):
        self.n_clusters = n_clusters
        self.n_eigenvectors = n_eigenvectors
        self.linkage = linkage
        self.max_clusters = max_clusters
        self.noise = noise
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.random_state = random_state
        self.n_jobs = n_jobs

    def check(self, sizes: Sequence[int]) -> None:
        """Refuse settings that cannot work for clients of these sizes."""
        check_settings(len(sizes), self.n_clusters, self.max_clusters, 0.0, self.linkage)
        check_seed(self.random_state)
        if self.n_eigenvectors is not None:
            check_counts(self, n_eigenvectors=1)
            smallest = int(np.argmin(sizes))
            if self.n_eigenvectors > sizes[smallest]:
                raise FltnbError(
                    f"{self.n_eigenvectors} eigenvectors cannot be had from the {sizes[smallest]} samples of client"
                    f" {smallest}: lower n_eigenvectors, or leave small clients out."
                )
        if not (isinstance(self.noise, numbers.Real) and 0 <= self.noise < np.inf):
            raise FltnbError(f"noise is the length of a noise vector and must be 0 or more, got {self.noise!r}.")
        privacy(self.epsilon, self.delta, self.clip)

    def fit(self, X: Sequence[np.ndarray], y: None = None) -> EigenRelevance:
        """Cluster the clients.

        Parameters
        ----------
        X : sequence of M arrays (n_i, d)
            Features of each client, all from the same map Phi.
        y : None
            Ignored.
        """
        X = check_clients(X, "features")
        sizes, width = [len(x) for x in X], X[0].shape[1]
        self.check(sizes)
        p = self.n_eigenvectors or min(*sizes, width)
        if p > width:
            raise FltnbError(f"{p} eigenvectors cannot be had from {width} features: lower n_eigenvectors.")
        for i, x in enumerate(X):
            if (x == x[0]).all():
                raise FltnbError(
                    f"All samples of client {i} have the same features, so there is no direction in which they vary:"
                    " check its data, or leave it out."
                )
        self.eigenvalues_, logs = self._log_relevance(X, p)
        self.directed_ = np.exp(logs)
        np.fill_diagonal(self.directed_, 1.0)  # by definition; a client does not send noisy vectors to itself
        self.relevance_ = (self.directed_ + self.directed_.T) / 2
        self.sent_ = np.full(len(X), p * width + len(X) - 1)
        self.received_ = np.full(len(X), (len(X) - 1) * p * width)
        self._cluster(1 - self.relevance_)
        return self

    def _log_relevance(self, X: list[np.ndarray], p: int) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues (M, p) and log r (M, M)."""
        seed, private = int(self.random_state), privacy(self.epsilon, self.delta, self.clip)

        def describe(i: int) -> tuple[np.ndarray, np.ndarray]:
            values, vectors = (
                _eigenpairs(X[i], p) if private is None else _of_gram(noisy_gram(X[i], i, seed, private), p)
            )
            if self.noise:
                rough = stream(seed, "method", i, _OF_VECTORS).normal(size=vectors.shape)
                vectors = vectors + self.noise / np.sqrt(len(vectors)) * rough
            return values, vectors

        def row(i: int, values: np.ndarray, sent: np.ndarray) -> np.ndarray:
            factor = norm_factor(X[i]) if private is None else noisy_gram(X[i], i, seed, private)
            return log_ratios(values, projected_norms(factor, sent), len(factor.T)).mean(axis=1)

        described = _threads(self.n_jobs, describe, [(i,) for i in range(len(X))])
        values = np.stack([one[0] for one in described])
        sent = np.concatenate([one[1] for one in described], axis=1)
        return values, np.stack(_threads(self.n_jobs, row, [(i, values[i], sent) for i in range(len(X))]))

    def _cluster(self, distance: np.ndarray) -> None:
        self.distance_ = distance
        self.linkage_ = scipy_linkage(squareform(distance, checks=False), self.linkage)
        self.linkage_[:, 2] = np.round(self.linkage_[:, 2], 12)  # merges equally high on paper are so here
        self.leaf_order_ = leaves_list(self.linkage_).astype(np.int64)
        wanted = self.n_clusters
        if wanted is None:
            self.criterion_ = silhouettes(distance, self.linkage_, self.max_clusters)
            wanted = best_cut(self.criterion_, REASONABLE, self.max_clusters)
        self.labels_ = canonical(cut(self.linkage_, wanted))
        self.n_clusters_ = int(self.labels_.max()) + 1
        self.adjacency_ = (self.labels_[:, None] == self.labels_).astype(np.uint8)
        if self.n_clusters_ < wanted:
            warnings.warn(
                f"{wanted} clusters were asked for but {self.n_clusters_} are given: some clients' data cannot be told"
                " apart and merges of equal height are not split.",
                stacklevel=3,
            )


def eigenpairs(features: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """First p eigenvalues (p,), descending, and eigenvectors (p, d) of a client's Gram matrix (Eq. 1).

    With fewer samples than features from the thin singular value decomposition of the data, so that no d x d matrix is
    ever formed; else from the Gram matrix itself. Signs of eigenvectors are arbitrary, and do not matter here.

    Parameters
    ----------
    features : ndarray (n, d)
    p : int
        At most min(n, d).
    """
    values, vectors = _eigenpairs(features, p)
    return values, vectors.T


def _eigenpairs(features: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.asarray(features, dtype=np.float64)
    if len(x) >= x.shape[1]:
        return _of_gram(x.T @ x / len(x), p)
    _, singular, right = np.linalg.svd(x, full_matrices=False)
    return singular[:p] ** 2 / len(x), right[:p].T.copy()  # not a view, which would keep all n


def _of_gram(gram: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy.linalg import eigh

    d = len(gram)
    values, vectors = eigh(gram, subset_by_index=(d - p, d - 1))
    return np.abs(values[::-1]), vectors[:, ::-1]  # of noisy matrices the last may be negative, and ||G v|| is |lambda|


def norm_factor(features: np.ndarray) -> np.ndarray:
    """Return F (min(n, d), d) with ``||F v|| = ||G v||`` for every v, G being the Gram matrix (Eq. 2).

    G itself where there are enough samples. Else, with the QR decomposition X^T = Q U, G = Q U U^T Q^T / n and
    X = U^T Q^T, and lengths do not change under Q: F = U X / n. Forming X X^T instead would square the rounding errors.
    """
    x = np.asarray(features, dtype=np.float64)
    if len(x) >= x.shape[1]:
        return x.T @ x / len(x)
    return np.linalg.qr(x.T, mode="r") @ x / len(x)


def projected_norms(factor: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Lengths (m,) of F v for the eigenvectors of all clients, (d, m), by products of whole matrices (Eq. 2)."""
    out = np.empty(vectors.shape[1])
    for at in range(0, len(out), _COLUMNS):
        moved = factor @ vectors[:, at : at + _COLUMNS]
        out[at : at + _COLUMNS] = np.sqrt(np.einsum("ij,ij->j", moved, moved))
    return out


def log_ratios(values: np.ndarray, norms: np.ndarray, width: int) -> np.ndarray:
    """Logarithms (M, p) of the ratios of Eq. (3), of one client's eigenvalues (p,) to its projected norms (M * p,).

    A product of many ratios would underflow, hence logarithms. What is below rounding counts as equally small.
    """
    floor = values[0] * width * np.finfo(float).eps
    norms = np.maximum(norms, floor).reshape(-1, len(values))
    return -np.abs(np.log(norms) - np.log(np.maximum(values, floor)))


def relevance_curve(clients: Sequence[np.ndarray], p: int, n_jobs: int | None = None) -> np.ndarray:
    """R for every number of eigenvectors from 1 to p (Figure 4), all from one decomposition.

    Returns
    -------
    ndarray (p, M, M)
        Entry k - 1 is ``relevance_`` of ``EigenRelevance(n_eigenvectors=k)``.
    """
    X = check_clients(clients, "features")
    EigenRelevance(n_eigenvectors=p).check([len(x) for x in X])
    if p > X[0].shape[1]:
        raise FltnbError(f"{p} eigenvectors cannot be had from {X[0].shape[1]} features: lower p.")
    pairs = _threads(n_jobs, _eigenpairs, [(x, p) for x in X])
    sent = np.concatenate([vectors for _, vectors in pairs], axis=1)

    def row(x: np.ndarray, values: np.ndarray) -> np.ndarray:
        logs = log_ratios(values, projected_norms(norm_factor(x), sent), x.shape[1])
        return np.exp(np.cumsum(logs, axis=1) / np.arange(1, p + 1)).T

    directed = np.stack(_threads(n_jobs, row, [(x, pair[0]) for x, pair in zip(X, pairs, strict=True)]), axis=1)
    me = np.arange(len(X))
    directed[:, me, me] = 1.0
    return (directed + directed.transpose(0, 2, 1)) / 2


def silhouettes(distance: np.ndarray, tree: np.ndarray, max_clusters: int | None = None) -> np.ndarray:
    """Mean silhouette (M + 1,) of every cut of a dendrogram, NaN where there is no such cut; 0 for one cluster."""
    from sklearn.metrics import silhouette_score

    count = len(distance)
    scores = np.full(count + 1, np.nan)
    scores[1] = 0.0
    for wanted in range(2, min(max_clusters or count, count - 1) + 1):
        labels = cut(tree, wanted)
        if labels.max() == wanted:
            scores[wanted] = silhouette_score(distance, labels, metric="precomputed")
    return scores


def privacy(epsilon: float | None, delta: float, clip: float | None) -> Privacy | None:
    """Noise of the private release for one sample per client (divide by n); None without epsilon.

    Raises
    ------
    FltnbError
        No budget, or no clipping norm.
    """
    if epsilon is None:
        return None
    fine = all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in (epsilon, delta))
    if not (fine and 0 < epsilon < np.inf and 0 < delta < 1):
        raise FltnbError(
            f"A privacy budget needs epsilon above 0 and delta between 0 and 1, got {epsilon!r}, {delta!r}."
        )
    if not (isinstance(clip, numbers.Real) and 0 < clip < np.inf):
        raise FltnbError(
            "A private release needs clip, a largest norm of a sample's features that is chosen without looking at the"
            f" clients' data (from public images, say), got {clip!r}."
        )
    return Privacy(gaussian_mechanism(epsilon, delta) * np.sqrt(2) * clip**2, float(clip))


def noisy_gram(features: np.ndarray, client: int, seed: int, private: Privacy) -> np.ndarray:
    r"""Release a client's Gram matrix (d, d) with differential privacy: clipped samples, symmetric Gaussian noise.

    **Sensitivity.** Replacing sample x by y, both of norm at most c, changes G by :math:`(yy^\top - xx^\top) / n`, of
    squared Frobenius norm :math:`(\|x\|^4 + \|y\|^4 - 2 (x^\top y)^2) / n^2 \le 2 c^4 / n^2`, reached by orthogonal
    x and y: :math:`\Delta = \sqrt 2\, c^2 / n`. **Noise.** The symmetric matrices with the Frobenius norm are a
    Euclidean space whose coordinates are the diagonal and :math:`\sqrt 2` times the upper triangle. Independent
    N(0, sigma^2) on these coordinates, sigma from :func:`gaussian_mechanism`, is variance sigma^2 on the diagonal and
    sigma^2 / 2 off it, which is what (Z + Z^T) / 2 has.
    """
    x = np.asarray(features, dtype=np.float64)
    x = x * np.minimum(1, private.clip / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300))
    z = stream(seed, "method", client, _OF_GRAM).normal(size=(x.shape[1], x.shape[1]))
    return (x.T @ x + private.sigma * (z + z.T) / 2) / len(x)


def gaussian_mechanism(epsilon: float, delta: float) -> float:
    """Smallest standard deviation, per unit of L2 sensitivity, that makes Gaussian noise (epsilon, delta) private.

    Solves Theorem 8 of Balle and Wang ("Improving the Gaussian mechanism for differential privacy", ICML 2018), which
    is exact and holds for every epsilon; the textbook's sqrt(2 log(1.25 / delta)) / epsilon does for epsilon below 1.

    Examples
    --------
    >>> round(gaussian_mechanism(1.0, 1e-5), 4)
    3.7306
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr, ndtr

    def excess(log_sigma: float) -> float:
        near, far = 0.5 / np.exp(log_sigma), epsilon * np.exp(log_sigma)
        return ndtr(near - far) - np.exp(epsilon + log_ndtr(-near - far)) - delta

    return float(np.exp(brentq(excess, -25, 25, xtol=1e-13)))


def _threads(n_jobs: int | None, work, arguments: list[tuple]) -> list:
    """Results of a function for all arguments, in threads: the work is done by BLAS, outside the interpreter."""
    from joblib import Parallel, delayed
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # so that the last bit does not depend on the machine's cores
        return Parallel(n_jobs=n_jobs, prefer="threads")(delayed(work)(*one) for one in arguments)
