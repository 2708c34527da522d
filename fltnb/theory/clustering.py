"""Theorem 1 of FLT (Section 3.2, Appendix B.1): a bound on the error of the clients' centroids.

On each of e coordinates a sample's embedding is drawn from N(mu, sigma^2) around the mean of its label and is *wrong*
on the far side of a threshold gamma, with probability ``p = Q((gamma - mu) / sigma)`` (P_err^cae, Equation 5). A client
sends one mean per label. The total error is the probability that *any* coordinate of *any* mean is wrong (Equation 9).

The mean of n samples has the variance sigma^2 / n, so it is wrong with probability ``Q(sqrt(n) Q^-1(p))``. Equation 7
prints ``Q(n Q^-1(p))``, and Equations 8, 11 and 2 inherit the n^2 in the exponent: :func:`bound` has both.
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
from ..settings import Within, check, checked

Form = Literal["printed", "printed, labels held", "corrected"]
FORMS = get_args(Form)


def q_inverse(p: float) -> float:
    """Where the upper tail is ``p``, or FltnbError: p is no probability strictly between 0 and 1."""
    if not 0 < p < 1:
        raise FltnbError(
            f"The error of a single sample must lie strictly between 0 and 1, not {p!r}."
        )
    return float(-ndtri(p))


def bound(
    counts: np.ndarray, dimension: int, error: float, form: Form = "corrected"
) -> float:
    """Right-hand side of Theorem 1; above 1 it says nothing.

    Parameters
    ----------
    counts : int array (M, L), n_m^l: samples of label l that client m holds
    dimension : int, e, coordinates of an embedding
    error : float, p, error of one coordinate of one sample; at most 1/2, which Chernoff's inequality needs
    form : {"printed", "printed, labels held", "corrected"}, Equation 2 as it stands; without the labels that a client
        does not hold, each of which counts e times exp(0) = 1; and with n where n^2 stands besides
    """
    check("form of Theorem 1", form, Form)
    n = np.asarray(counts, dtype=np.float64).reshape(-1)
    if form != "printed":
        n = n[n > 0]
    power = 1 if form == "corrected" else 2
    return float(dimension * np.exp(-(n**power) * q_inverse(error) ** 2 / 2).sum())


def exact_error(counts: np.ndarray, dimension: int, error: float) -> float:
    """Total error in the proof's setting, Equation 9 with the right variance: no inequality, labels held only."""
    n = np.asarray(counts, dtype=np.float64).reshape(-1)
    # log(1 - Q(x)) = log of the lower tail at x: keeps its digits where the error is tiny
    return float(
        -np.expm1(dimension * log_ndtr(np.sqrt(n[n > 0]) * q_inverse(error)).sum())
    )


@dataclass(frozen=True)
class Mixture:
    """Gaussian embeddings in which every quantity of Theorem 1 is known.

    Labels sit on corners of a cube: the mean of a label is plus or minus ``Q^-1(error)`` on every coordinate, the noise
    is standard normal and the threshold 0, so a single sample is wrong on each coordinate with probability ``error``.
    The corners are rows of a Hadamard matrix: any two labels differ on half the coordinates. FltnbError: none exists.

    Parameters
    ----------
    n_clients, n_groups : int, M clients in equal groups (the true clusters), numbered group by group
    error : float, p, below 1/2
    """

    n_clients: int = 10
    n_groups: int = 5
    error: Annotated[float, Within(high=0.5, above=True, below=True)] = 0.2
    labels_per_client: ClassVar = (
        2  # each group has these labels of its own, and its clients hold them all
    )
    dimension: ClassVar = 16  # e, a power of two

    def __post_init__(self) -> None:
        checked(Mixture, vars(self), "a mixture")
        if (
            self.n_clients % self.n_groups
            or self.n_groups * self.labels_per_client > self.dimension
        ):
            raise FltnbError(
                f"{self.n_clients} clients do not form {self.n_groups} equal groups, 8 at most."
            )

    @property
    def groups(self) -> np.ndarray:
        """True cluster of each client, int64 (M,)."""
        return np.repeat(np.arange(self.n_groups), self.n_clients // self.n_groups)

    @property
    def means(self) -> np.ndarray:
        """Means of the labels, float64 (L, e)."""
        return q_inverse(self.error) * hadamard(self.dimension)[
            : self.n_groups * self.labels_per_client
        ].astype(float)

    def held(self, client: int) -> np.ndarray:
        """Labels of one client."""
        return self.groups[client] * self.labels_per_client + np.arange(
            self.labels_per_client
        )

    def counts(self, n: int) -> np.ndarray:
        """n_m^l (M, L) where every client has ``n`` samples of each label it holds."""
        return n * np.repeat(
            np.eye(self.n_groups, dtype=np.int64)[self.groups],
            self.labels_per_client,
            axis=1,
        )


def measured_error(mixture: Mixture, n: int, repeats: int, seed: int = 0) -> float:
    """Share of ``repeats`` draws in which some coordinate of some label's mean is wrong (labels are known here)."""
    means = mixture.means[
        np.concatenate([mixture.held(client) for client in range(mixture.n_clients)])
    ]
    drawn = (
        stream(seed, "split", n, repeat).standard_normal((n, *means.shape))
        for repeat in range(repeats)
    )
    return (
        sum(bool(((means + noise).mean(axis=0) * means < 0).any()) for noise in drawn)
        / repeats
    )


def pipeline_errors(
    mixture: Mixture, n: int, k: int, repeats: int, seed: int = 0
) -> dict[str, float]:
    """Do with the same embeddings what FCR does, UMAP left out: k-means in each client, then the smallest distance.

    With n samples per client and label and k centroids per client. Clients are linked below half the distance of two
    labels' means. The proof takes for granted that all samples of a label lie in one cluster.

    Returned is what goes wrong, as shares of draws, 0 to 1. ``centroids``: some label's centroid (that of most of its
    samples) is wrong on a coordinate, the error of the proof. ``graph``: some pair of clients is linked across groups
    or not linked inside one; ``pairs``: share of such pairs.
    """
    means, groups = mixture.means, mixture.groups
    gamma = np.linalg.norm(means[0] - means[1]) / 2
    same = groups[:, None] == groups[None]
    pair = np.triu(np.ones_like(same), 1)
    wrong_centroids, wrong_pairs = [], []
    with threadpool_limits(1):  # threads cost more than they bring on a few samples
        for repeat in range(repeats):
            rng = stream(seed, "split", n, repeat)
            sent, bad = [], False
            for client in range(mixture.n_clients):
                labels = np.repeat(mixture.held(client), n)
                z = means[labels] + rng.standard_normal(
                    (len(labels), mixture.dimension)
                )
                kmeans = KMeans(
                    k, n_init=2, random_state=integer(seed, "kmeans", n, repeat, client)
                ).fit(z)
                sent.append(kmeans.cluster_centers_)
                for label in mixture.held(client):
                    most = np.bincount(
                        kmeans.labels_[labels == label], minlength=k
                    ).argmax()
                    bad |= bool(
                        (kmeans.cluster_centers_[most] * means[label] < 0).any()
                    )
            wrong_centroids.append(bad)
            wrong_pairs.append(((min_distances(sent) < gamma) != same)[pair])
    pairs = np.array(wrong_pairs)
    errors = {"centroids": wrong_centroids, "graph": pairs.any(axis=1), "pairs": pairs}
    return {name: float(np.mean(wrong)) for name, wrong in errors.items()}


def sample_error(embeddings: list[np.ndarray], labels: list[np.ndarray]) -> float:
    """P_err^cae of clients' embeddings (n_i, e) and classes (n_i,), pooled: share nearer to another class's mean.

    The paper does not say how to measure it, and its single threshold does not fit ten classes. This is the classifier
    that the proof's Gaussians call for.
    """
    z, y = np.concatenate(embeddings), np.concatenate(labels)
    return float((NearestCentroid().fit(z, y).predict(z) != y).mean())
