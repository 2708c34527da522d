"""Eigen-relevance: MT-HFL's one-shot clustering of users by the main directions of their data (Section II).

No public code exists. The paper's Algorithm 2 multiplies the data of two users in line 9, which nobody could compute;
this is Eq. (2), where every user multiplies its own Gram matrix with the other's eigenvectors.
"""

from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.spatial.distance import pdist, squareform
from scipy.special import log_ndtr, ndtr
from sklearn.metrics import silhouette_score

from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, NonNegative, Positive, Rate
from .base import ClientClusterer, Noise, Sketch, check_clients
from .cuts import Linkage, best_cut, cut

REASONABLE = 0.5  # mean silhouette of reasonable structure (Kaufman and Rousseeuw, Finding Groups in Data, 1990)
_OF_VECTORS, _OF_GRAM = 1, 2  # streams of noise


class EigenRelevance(ClientClusterer):
    r"""Cluster clients by the relevance of each other's eigenvectors (arXiv 2410.02733, Eqs. 1 to 5, Algorithm 2).

    Client i takes eigenvalues :math:`\lambda_k^{(i)}` and eigenvectors :math:`v_k^{(i)}` of its Gram matrix
    :math:`G_i = \Phi_i^\top \Phi_i / n_i` and sends the first p eigenvectors. With those of j it computes

    .. math:: \hat\lambda_k = \|G_i v_k^{(j)}\|, \qquad
        r(i, j) = \Bigl(\prod_{k \le p} \frac{\min(\lambda_k^{(i)}, \hat\lambda_k)}
        {\max(\lambda_k^{(i)}, \hat\lambda_k)}\Bigr)^{1/p}, \qquad R(i, j) = \frac{r(i, j) + r(j, i)}{2}

    and the server clusters 1 - R hierarchically. What follows from the formulas:

    - equal data give R = 1, whatever p; orthogonal subspaces give R near 0;
    - both values in the ratio are of *i's* data, so neither multiplying a client's features by a constant nor holding
      every sample several times changes anything;
    - G is not centred. The first direction is mostly the mean sample, which all natural images share, so p = 1 says
      little. A constant added to everybody's features becomes that direction: the larger it is, the smaller R;
    - one direction that is nearly empty for i and not for j pulls the product down, however alike the others are;
    - values below ``d * eps`` times a client's largest eigenvalue are rounding; two of them have the ratio 1.

    Parameters
    ----------
    n_clusters : int or None
        Number of tasks T, which the paper takes as known. None (ours, for well separated tasks only): the cut with the
        highest mean silhouette of 1 - R, or one cluster if that is below 0.5.
    n_eigenvectors : int or None, p; the paper: 5; None: as many as all clients have, by their features and samples
    linkage : {"average", "complete", "single", "ward"}, of the hierarchical clustering; the paper names none
    noise : float, expected length of Gaussian noise on each eigenvector sent, whose own length is 1
    epsilon, delta, clip : float or None
        A private release: all from one noisy d x d matrix G_i (:func:`noisy_gram`), so reduce wide features first.
    max_clusters, random_state, n_jobs : see :class:`~fltnb.clustering.base.ClientClusterer`

    Attributes
    ----------
    relevance_, directed_ : ndarray (M, M), R, with diagonal 1, and r(i, j); distance_ is 1 - R
    eigenvalues_ : ndarray (M, p), of each client, descending
    criterion_ : ndarray (M + 1,), silhouette by number of clusters (NaN: no such cut), where n_clusters is None
    sent_, received_ : p d of eigenvectors (one copy, relayed) and M - 1 relevances; eigenvectors of the M - 1 others

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> users = [rng.normal(size=(40, 6)) * scale for scale in ([9, 3, 1, 0, 0, 0], [0, 0, 0, 9, 3, 1]) * 2]
    >>> EigenRelevance(n_clusters=2, n_eigenvectors=3).fit_predict(users).tolist()
    [0, 1, 0, 1]
    """

    n_clusters: Count | None = None
    n_eigenvectors: Count | None = 5
    linkage: Linkage = "average"
    max_clusters: Count | None = None
    noise: NonNegative = 0.0
    epsilon: Positive | None = None
    delta: Rate = 1e-5
    clip: Positive | None = None
    random_state: Natural = 0
    n_jobs: int | None = None

    content = "features"
    per_task, prefer = 1, "threads"  # the work is done by BLAS, outside the interpreter

    def _check_size(self, size: int, client: int) -> None:
        if (self.n_eigenvectors or 1) > size:
            raise FltnbError(
                f"Client {client} has {size} samples: lower n_eigenvectors, or leave it out."
            )

    def _answers(self, X: list[np.ndarray], sketches: list[Sketch]) -> list[Sketch]:
        return self._each(
            "compare", zip(X, sketches, strict=True), relayed=self.relay(sketches)
        )

    def sketches(
        self, X: Sequence[np.ndarray], y: None = None, first: int = 0
    ) -> list[Sketch]:
        """Sketches of all clients, with as many eigenvectors as all of them have where no number is given."""
        width = X[0].shape[1]
        p = self.n_eigenvectors or min(width, *map(len, X))
        if p > width:
            raise FltnbError(
                f"{p} eigenvectors cannot be had from {width} features: lower n_eigenvectors."
            )
        for i, x in enumerate(X):
            if (x == x[0]).all():
                raise FltnbError(
                    f"All samples of client {i} have the same features: check them, or leave it out."
                )
        return self._each("sketch", zip(X), first, p=p)

    def sketch(self, x: np.ndarray, client: int = 0, p: int | None = None) -> Sketch:
        """Return a client's first p eigenvectors as ``vectors`` (d, p); the eigenvalues ``_values`` (p,) stay there."""
        p = self.n_eigenvectors or p or min(x.shape)
        values, vectors = (
            _of_gram(self._gram(x, client), p) if self.epsilon else eigenpairs(x, p)
        )
        if self.noise:
            rough = stream(
                int(self.random_state), "method", client, _OF_VECTORS
            ).normal(size=vectors.shape)
            vectors = vectors + self.noise / np.sqrt(len(vectors)) * rough
        return {"vectors": vectors, "_values": values}

    @staticmethod
    def relay(sketches: Sequence[Sketch]) -> Sketch:
        """Return what the server sends to every client: everybody's ``vectors``, (d, M p)."""
        return {
            "vectors": np.concatenate(
                [sketch["vectors"] for sketch in sketches], axis=1
            )
        }

    def compare(
        self,
        x: np.ndarray,
        own: Sketch,
        relayed: Sketch,
        client: int = 0,
        place: int | None = None,
    ) -> Sketch:
        """Return a client's ``relevance`` r(i, j) for the M - 1 others, from its features and its own sketch.

        ``place``: where its own are among the relayed vectors; by default at its number.
        """
        logs = self._logs(x, own, relayed, client).mean(axis=1)
        return {
            "relevance": np.exp(np.delete(logs, client if place is None else place))
        }

    def _logs(
        self, x: np.ndarray, own: Sketch, relayed: Sketch, client: int
    ) -> np.ndarray:
        """Logarithms (M, p), which do not underflow, of Eq. (3)'s ratios of a client's eigenvalues and norms."""
        factor = self._gram(x, client) if self.epsilon else norm_factor(x)
        values, norms = (
            own["_values"],
            np.linalg.norm(factor @ relayed["vectors"], axis=0),
        )  # Eq. (2)
        floor = values[0] * len(factor.T) * np.finfo(float).eps
        norms = np.maximum(norms, floor).reshape(-1, len(values))
        return -np.abs(np.log(norms) - np.log(np.maximum(values, floor)))

    def _gram(self, x: np.ndarray, client: int) -> np.ndarray:
        # for one sample per client (divide by n)
        sigma = gaussian_mechanism(self.epsilon, self.delta) * np.sqrt(2) * self.clip**2
        return noisy_gram(
            x, client, int(self.random_state), Noise(sigma, float(self.clip))
        )

    def _relate(self, sketches, answers) -> None:
        others = ~np.eye(len(sketches), dtype=bool)
        if all("_values" in sketch for sketch in sketches):
            self.eigenvalues_ = np.stack([sketch["_values"] for sketch in sketches])
        self.directed_ = np.ones(
            others.shape
        )  # 1 by definition; a client does not send noisy vectors to itself
        self.directed_[others] = np.concatenate(
            [answer["relevance"] for answer in answers]
        )
        self.relevance_ = (self.directed_ + self.directed_.T) / 2
        sizes = np.array([sketch["vectors"].size for sketch in sketches])
        self.received_ = sizes.sum() - sizes
        self._keep(*by_silhouette(self, 1 - self.relevance_))


class MeanImage(ClientClusterer):
    """Cluster clients by average linkage of their mean samples: the baseline that a clusterer has to beat, our own.

    A client sends d numbers; nothing is drawn. Parameters and ``criterion_`` are those of :class:`EigenRelevance`.
    """

    n_clusters: Count | None = None
    max_clusters: Count | None = None
    n_jobs: int | None = None

    content, linkage = "features", "average"

    def sketch(self, x: np.ndarray, client: int = 0) -> Sketch:
        """Return the ``mean`` (d,) of a client's samples (n, d)."""
        return {"mean": x.mean(axis=0, dtype=np.float64)}

    def _relate(self, sketches, answers) -> None:
        self._keep(
            *by_silhouette(
                self, squareform(pdist([sketch["mean"] for sketch in sketches]))
            )
        )


def eigenpairs(features: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """First p eigenvalues (p,), descending, and eigenvectors (d, p) of the Gram matrix of features (n, d) (Eq. 1).

    Signs of eigenvectors are arbitrary, and do not matter here.
    """
    x = np.asarray(features, dtype=np.float64)
    if len(x) >= x.shape[1]:
        return _of_gram(x.T @ x / len(x), p)
    # no d x d matrix is ever formed
    _, singular, right = np.linalg.svd(x, full_matrices=False)
    return singular[:p] ** 2 / len(x), right[
        :p
    ].T.copy()  # not a view, which would keep all n


def _of_gram(gram: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    d = len(gram)
    values, vectors = eigh(gram, subset_by_index=(d - p, d - 1))
    return np.abs(values[::-1]), vectors[
        :, ::-1
    ]  # of noisy matrices the last may be negative, and ||G v|| is |lambda|


def norm_factor(features: np.ndarray) -> np.ndarray:
    """Return F (min(n, d), d) with ``||F v|| = ||G v||`` for every v, G being the Gram matrix (Eq. 2)."""
    x = np.asarray(features, dtype=np.float64)
    if len(x) >= x.shape[1]:
        return x.T @ x / len(x)
    # X^T = Q U, and lengths do not change under Q; forming X X^T instead would square the rounding errors
    return np.linalg.qr(x.T, mode="r") @ x / len(x)


def relevance_curve(clients: Sequence[np.ndarray], p: int) -> np.ndarray:
    """R for 1 to p eigenvectors (Figure 4), (p, M, M), from one decomposition: ``relevance_`` at each number."""
    X = check_clients(clients, "features")
    clusterer = EigenRelevance(n_eigenvectors=p)
    clusterer.check([len(x) for x in X])
    sketches = clusterer.sketches(X)
    logs = np.array(
        clusterer._each(
            "_logs", zip(X, sketches, strict=True), relayed=clusterer.relay(sketches)
        )
    )
    directed = np.exp(np.cumsum(logs, axis=2) / np.arange(1, p + 1)).transpose(2, 0, 1)
    directed[:, np.eye(len(X), dtype=bool)] = 1.0
    return (directed + directed.transpose(0, 2, 1)) / 2


def by_silhouette(
    found: ClientClusterer, distance: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distance, tree and labels for a clusterer: ``n_clusters``, or the cut with the best mean silhouette."""
    tree = scipy_linkage(squareform(distance, checks=False), found.linkage)
    tree[:, 2] = np.round(tree[:, 2], 12)  # merges equally high on paper are so here
    wanted = found.n_clusters
    if wanted is None:
        found.criterion_ = silhouettes(distance, tree, found.max_clusters)
        wanted = best_cut(found.criterion_, REASONABLE, found.max_clusters)
    return distance, tree, cut(tree, wanted)


def silhouettes(
    distance: np.ndarray, tree: np.ndarray, max_clusters: int | None = None
) -> np.ndarray:
    """Mean silhouette (M + 1,) of every cut of a dendrogram, NaN where there is no such cut; 0 for one cluster."""
    count = len(distance)
    scores = np.full(count + 1, np.nan)
    scores[1] = 0.0
    for wanted in range(2, min(max_clusters or count, count - 1) + 1):
        labels = cut(tree, wanted)
        if labels.max() == wanted:
            scores[wanted] = silhouette_score(distance, labels, metric="precomputed")
    return scores


def noisy_gram(
    features: np.ndarray, client: int, seed: int, private: Noise
) -> np.ndarray:
    r"""Release a client's Gram matrix (d, d) with differential privacy: clipped samples, symmetric Gaussian noise.

    Replacing sample x by y, both of norm at most c, changes G by :math:`(yy^\top - xx^\top) / n`, of squared Frobenius
    norm :math:`(\|x\|^4 + \|y\|^4 - 2 (x^\top y)^2) / n^2 \le 2 c^4 / n^2`: :math:`\Delta = \sqrt 2\, c^2 / n`. The
    noise (:func:`gaussian_mechanism`) is on the diagonal and :math:`\sqrt 2` times the upper triangle: (Z + Z^T) / 2.
    """
    x = np.asarray(features, dtype=np.float64)
    x = x * np.minimum(
        1, private.clip / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    )
    z = stream(seed, "method", client, _OF_GRAM).normal(size=(x.shape[1], x.shape[1]))
    return (x.T @ x + private.sigma * (z + z.T) / 2) / len(x)


def gaussian_mechanism(epsilon: float, delta: float) -> float:
    """Smallest standard deviation, per unit of L2 sensitivity, that makes Gaussian noise (epsilon, delta) private.

    Exact, by Theorem 8 of Balle and Wang ("Improving the Gaussian mechanism for differential privacy", ICML 2018).
    """

    def excess(log_sigma: float) -> float:
        near, far = 0.5 / np.exp(log_sigma), epsilon * np.exp(log_sigma)
        return ndtr(near - far) - np.exp(epsilon + log_ndtr(-near - far)) - delta

    return float(np.exp(brentq(excess, -25, 25, xtol=1e-13)))
