"""Theorem 1 of FLT (Section 3.2, Appendix B.1): a bound on the error of centroids.

On each of e coordinates, a sample's embedding is drawn from N(mu, sigma^2) around the
mean of its label. It is *wrong* on the far side of a threshold gamma, which has the
probability ``p = Q((gamma - mu) / sigma)`` (P_err^cae of Equation 4, read for one
coordinate). A client sends one mean per label. The total error is the probability that
*any* coordinate of *any* mean is wrong (Equation 9).

The mean of n samples has the variance sigma^2 / n, so it is wrong with the probability
``Q(sqrt(n) Q^-1(p))``. Equation 7 prints ``Q(n Q^-1(p))``, and Equations 8, 11 and 2
inherit the n^2 in the exponent: :func:`bound` has both.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
from scipy.linalg import hadamard
from scipy.special import log_ndtr, ndtri
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestCentroid
from threadpoolctl import threadpool_limits

from ..clustering.centroids import min_distances
from ..errors import FltnbError
from ..randomness import integer, stream
from ..settings import Count, Within, check, checked

Form = Literal["printed", "printed, labels held", "corrected"]
FORMS = get_args(Form)


def q_inverse(p: float) -> float:
    """Return the x that a standard normal variable exceeds with probability ``p``.

    Raises
    ------
    FltnbError
        p is not strictly between 0 and 1.

    Examples
    --------
    >>> from fltnb.theory import clustering
    >>> round(clustering.q_inverse(0.025), 2)
    1.96
    """
    if not 0 < p < 1:
        raise FltnbError(
            "The error of a single sample must lie strictly between 0 and 1, "
            f"not {p!r}."
        )
    return float(-ndtri(p))


def bound(
    counts: np.ndarray, dimension: int, error: float, form: Form = "corrected"
) -> float:
    """Return the right-hand side of Theorem 1; above 1 it gives no information.

    Parameters
    ----------
    counts : int array (M, L)
        n_m^l, the number of samples of label l held by client m.
    dimension : int
        e, the number of coordinates of an embedding.
    error : float
        p, the error of one coordinate of one sample. Above 1/2, where Chernoff's
        inequality does not hold, the bound is infinite.
    form : {"printed", "printed, labels held", "corrected"}
        Equation 2 as printed; the same without the labels that a client does not hold,
        each of which adds e times exp(0) = 1; and, in addition, with n instead of n^2.

    Raises
    ------
    FltnbError
        There is no such form, or the error is not strictly between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import clustering
    >>> counts = np.array([[5, 5, 0], [0, 5, 5]])
    >>> round(clustering.bound(counts, dimension=2, error=0.1), 3)
    0.132
    """
    check("form of Theorem 1", form, Form)
    x = q_inverse(error)
    if x < 0:
        return float("inf")
    n = np.asarray(counts, dtype=np.float64).reshape(-1)
    if form != "printed":
        n = n[n > 0]
    if form != "corrected":
        n = n**2

    terms = np.exp(-n * x**2 / 2)
    return float(dimension * terms.sum())


def exact_error(counts: np.ndarray, dimension: int, error: float) -> float:
    """Return the total error in the proof's setting: Equation 9, correct variance.

    It uses no inequality, and only the labels that a client holds.

    Parameters
    ----------
    counts, dimension, error
        As for :func:`bound`.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import clustering
    >>> counts = np.array([[5, 5, 0], [0, 5, 5]])
    >>> round(clustering.exact_error(counts, dimension=2, error=0.1), 3)
    0.017
    """
    n = np.asarray(counts, dtype=np.float64).reshape(-1)
    n = n[n > 0]
    # log(1 - Q(x)) is the log of the lower tail at x: exact even for tiny errors
    log_right = log_ndtr(np.sqrt(n) * q_inverse(error)).sum()
    return float(-np.expm1(dimension * log_right))


@dataclass(frozen=True)
class Mixture:
    """Gaussian embeddings for which every quantity of Theorem 1 is known.

    Labels are at corners of a cube: the mean of a label is plus or minus
    ``Q^-1(error)`` on every coordinate, the noise is standard normal and the threshold
    is 0, so a single sample is wrong on each coordinate with probability ``error``.
    The corners are rows of a Hadamard matrix: any two labels differ on half of the
    coordinates. Clients are numbered group by group.

    Parameters
    ----------
    n_clients, n_groups : int
        M clients in groups of equal size, the true clusters.
    error : float
        p, below 1/2.

    Raises
    ------
    FltnbError
        The clients do not form so many equal groups.

    Examples
    --------
    >>> from fltnb.theory import clustering
    >>> clustering.Mixture(n_clients=4, n_groups=2).error
    0.2
    """

    n_clients: Count = 10
    n_groups: Count = 5
    error: Annotated[float, Within(high=0.5, above=True, below=True)] = 0.2

    # each group has its own labels, and each of its clients holds all of them
    labels_per_client: ClassVar = 2
    # e, a power of two
    dimension: ClassVar = 16

    def __post_init__(self) -> None:
        checked(Mixture, vars(self), "a mixture")
        n_labels = self.n_groups * self.labels_per_client
        if self.n_clients % self.n_groups or n_labels > self.dimension:
            raise FltnbError(
                f"{self.n_clients} clients do not form {self.n_groups} equal groups: "
                "n_groups must divide n_clients and be at most 8."
            )

    @property
    def groups(self) -> np.ndarray:
        """True cluster of each client, int64 (M,)."""
        return np.repeat(np.arange(self.n_groups), self.n_clients // self.n_groups)

    @property
    def means(self) -> np.ndarray:
        """Means of the labels, float64 (L, e)."""
        n_labels = self.n_groups * self.labels_per_client
        corners = hadamard(self.dimension)[:n_labels]
        return q_inverse(self.error) * corners.astype(float)

    def held(self, client: int) -> np.ndarray:
        """Labels of one client."""
        first = self.groups[client] * self.labels_per_client
        return np.arange(first, first + self.labels_per_client)

    def counts(self, n: int) -> np.ndarray:
        """n_m^l (M, L) if every client has ``n`` samples of each label it holds."""
        of_group = np.eye(self.n_groups, dtype=np.int64)[self.groups]
        return n * np.repeat(of_group, self.labels_per_client, axis=1)


def measured_error(mixture: Mixture, n: int, repeats: int, seed: int = 0) -> float:
    """Return the share of draws in which a coordinate of some label's mean is wrong.

    The labels of the samples are known here, so there is no k-means.

    Parameters
    ----------
    mixture : Mixture
    n : int
        Number of samples of each label that a client holds.
    repeats : int
        Number of draws.
    seed : int

    Examples
    --------
    >>> from fltnb.theory import clustering
    >>> mixture = clustering.Mixture(n_clients=4, n_groups=2)
    >>> 0 <= clustering.measured_error(mixture, n=20, repeats=5) <= 1
    True
    """
    labels = [mixture.held(client) for client in range(mixture.n_clients)]
    means = mixture.means[np.concatenate(labels)]

    wrong = 0
    for repeat in range(repeats):
        noise = stream(seed, "split", n, repeat).standard_normal((n, *means.shape))
        drawn = (means + noise).mean(axis=0)
        wrong += bool((drawn * means < 0).any())
    return wrong / repeats


def pipeline_errors(
    mixture: Mixture, n: int, k: int, repeats: int, seed: int = 0
) -> dict[str, float]:
    """Return the errors of k-means in each client and of a threshold between clients.

    This is FCR without UMAP: n samples per client and label, k centroids per client.
    Clients are linked below half the distance between the means of two labels. The
    proof assumes that k-means finds the labels.

    Parameters
    ----------
    mixture : Mixture
    n : int
        Number of samples of each label that a client holds.
    k : int
        Number of centroids of a client.
    repeats : int
        Number of draws.
    seed : int

    Returns
    -------
    dict
        Shares of draws, 0 to 1. ``centroids``: the centroid of a label (that of most of
        its samples) is wrong on a coordinate, the error of the proof. ``graph``: a
        pair of clients is linked across groups or not linked inside one. ``pairs``: the
        share of such pairs.

    Examples
    --------
    >>> from fltnb.theory import clustering
    >>> mixture = clustering.Mixture(n_clients=4, n_groups=2)
    >>> sorted(clustering.pipeline_errors(mixture, n=20, k=2, repeats=2))
    ['centroids', 'graph', 'pairs']
    """
    gamma = np.linalg.norm(mixture.means[0] - mixture.means[1]) / 2
    same = np.equal.outer(mixture.groups, mixture.groups)
    above_diagonal = np.triu_indices(mixture.n_clients, 1)

    wrong_centroids = []
    wrong_pairs = []
    with threadpool_limits(1):  # more threads are slower on few samples
        for repeat in range(repeats):
            centroids, wrong = _draw_centroids(mixture, n, k, repeat, seed)
            linked = min_distances(centroids) < gamma
            wrong_centroids.append(wrong)
            wrong_pairs.append((linked != same)[above_diagonal])

    return {
        "centroids": float(np.mean(wrong_centroids)),
        "graph": float(np.mean(np.any(wrong_pairs, axis=1))),
        "pairs": float(np.mean(wrong_pairs)),
    }


def _draw_centroids(
    mixture: Mixture, n: int, k: int, repeat: int, seed: int
) -> tuple[list[np.ndarray], bool]:
    """Draw samples; return every client's centroids, and whether a label's is wrong."""
    rng = stream(seed, "split", n, repeat)
    centroids = []
    wrong = False
    for client in range(mixture.n_clients):
        labels = np.repeat(mixture.held(client), n)
        noise = rng.standard_normal((len(labels), mixture.dimension))
        random_state = integer(seed, "kmeans", n, repeat, client)
        kmeans = KMeans(k, n_init=2, random_state=random_state)
        kmeans.fit(mixture.means[labels] + noise)
        centroids.append(kmeans.cluster_centers_)
        for label in mixture.held(client):
            wrong = wrong or _is_wrong(kmeans, labels == label, mixture.means[label])
    return centroids, wrong


def _is_wrong(kmeans: KMeans, samples: np.ndarray, mean: np.ndarray) -> bool:
    """Whether the centroid of most of a label's samples is not on the label's side.

    ``samples`` (n,): those of the label, as bools; ``mean`` (d,) of the label: some
    coordinate of the centroid has the other sign.
    """
    cells = kmeans.labels_[samples]
    of_most = np.bincount(cells).argmax()
    signs = kmeans.cluster_centers_[of_most] * mean
    return bool((signs < 0).any())


def sample_error(embeddings: list[np.ndarray], labels: list[np.ndarray]) -> float:
    """Return P_err^cae of embeddings: the share nearer to another class's mean.

    The clients' samples are pooled. The paper does not say how to measure this error,
    and its single threshold does not fit ten classes; nearest means are the classifier
    that suits the Gaussians of the proof.

    Parameters
    ----------
    embeddings, labels : lists of arrays (n_i, e), (n_i,)
        Embeddings and labels of every client.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import clustering
    >>> x = [np.array([[0.0], [0.2], [1.0], [1.2]])]
    >>> clustering.sample_error(x, [np.array([0, 0, 1, 1])])
    0.0
    """
    z = np.concatenate(embeddings)
    y = np.concatenate(labels)
    predicted = NearestCentroid().fit(z, y).predict(z)
    return float((predicted != y).mean())
