"""Eigen-relevance: MT-HFL's one-shot clustering of users by their data (Section II).

No public code exists. The paper's Algorithm 2 multiplies the data of two users in line
9, which no user could compute. This is Eq. (2), where every user multiplies its own
Gram matrix with the other's eigenvectors.
"""

import warnings
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.metrics import silhouette_score

from ..errors import FltnbError
from ..progress import bar
from ..randomness import stream
from ..settings import Count, Natural, NonNegative, Positive, Rate
from .base import (
    LEAVE_OUT,
    ClientClusterer,
    Shapes,
    Sketch,
    check_clients,
    check_finite,
    check_rows,
    of_all,
    square,
)
from .cuts import Linkage, best_cut, cut, distance_linkage
from .privacy import Noise, clipped, gaussian_mechanism

# Mean silhouette of reasonable structure (Kaufman and Rousseeuw, Finding Groups in
# Data, 1990).
REASONABLE = 0.5
WEAK = 0.35  # above it one cluster is uncertain; data without groups reach 0.32
MANY = 1000  # above this number of clients, not all numbers of clusters are tried
MOST_CUTS = 100
NOISE_ON_VECTORS = 1  # streams of noise
NOISE_ON_GRAM = 2


class EigenRelevance(ClientClusterer):
    r"""Cluster clients by the relevance of each other's eigenvectors.

    MT-HFL, arXiv 2410.02733, Eqs. 1 to 5, Algorithm 2. Client i computes eigenvalues
    :math:`\lambda_k^{(i)}` and eigenvectors :math:`v_k^{(i)}` of its Gram matrix
    :math:`G_i = \Phi_i^\top \Phi_i / n_i` and sends the first p eigenvectors. With
    those of j it computes

    .. math:: \hat\lambda_k = \|G_i v_k^{(j)}\|, \qquad
        r(i, j) = \Bigl(\prod_{k \le p} \frac{\min(\lambda_k^{(i)}, \hat\lambda_k)}
        {\max(\lambda_k^{(i)}, \hat\lambda_k)}\Bigr)^{1/p}, \qquad
        R(i, j) = \frac{r(i, j) + r(j, i)}{2}

    and the server clusters 1 - R hierarchically. Consequences of the formulas:

    - Equal data give R = 1 for any p; orthogonal subspaces give R near 0.
    - Both values in the ratio come from *i's* data. So multiplying a client's features
      by a constant, or repeating every sample, changes nothing.
    - G is not centred. The first direction is mostly the mean sample, which is similar
      for all natural images, so p = 1 says little. A constant added to all clients'
      features becomes this direction; the larger it is, the smaller R.
    - One direction that is nearly empty for i but not for j makes the product small,
      even if the other directions agree.
    - Values below ``d * eps`` times a client's largest eigenvalue are rounding errors;
      two of them have the ratio 1.

    Parameters
    ----------
    n_clusters : int or None
        Number of tasks T, which the paper assumes to be known. None (our addition, for
        well separated tasks only): the cut with the highest mean silhouette of 1 - R,
        or one cluster if that is below 0.5.
    n_eigenvectors : int or None
        p; 5 are enough in the paper's Fig. 4, and it does not state the number in its
        other experiments. None: the largest number that all clients have.
    linkage : {"average", "complete", "single", "ward"}, the paper names none
    noise : float
        Expected length of Gaussian noise on each sent eigenvector, which itself has
        length 1.
    epsilon, delta, clip : float or None
        With ``epsilon`` an (epsilon, delta) differentially private release (see
        :class:`~fltnb.clustering.base.ClientClusterer`): everything is computed from
        one noisy d x d matrix G_i (``fltnb.clustering.eigen.noisy_gram``), so reduce
        wide features first.
    max_clusters, random_state, n_jobs
        See :class:`~fltnb.clustering.base.ClientClusterer`.

    Attributes
    ----------
    directed_, relevance_ : ndarrays, shape (M, M)
        r(i, j), and R; the diagonals are 1.
    eigenvalues_ : ndarray, shape (M, p)
        Of each client, descending.
    criterion_ : ndarray, shape (M + 1,)
        Entry C: mean silhouette of the cut into C clusters (NaN: no such cut), if
        ``n_clusters`` is None.
    sent_ : ndarray, shape (M,)
        p d numbers of eigenvectors (one copy, relayed) and M - 1 relevances.
    received_ : ndarray, shape (M,)
        Eigenvectors of the M - 1 others.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scales = [[9, 3, 1, 0, 0, 0], [0, 0, 0, 9, 3, 1]] * 2
    >>> users = [rng.normal(size=(40, 6)) * scale for scale in scales]
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
    sketch_shapes: ClassVar[Shapes] = {"vectors": (None, None)}
    answer_shapes: ClassVar[Shapes] = {"relevance": (None,)}
    per_task = 1
    prefer = "threads"  # BLAS computes outside the interpreter

    def _check_size(self, size: int, client: int) -> None:
        if self.n_eigenvectors is not None and self.n_eigenvectors > size:
            raise FltnbError(
                f"Client {client} has {size} samples, fewer than n_eigenvectors="
                f"{self.n_eigenvectors}: lower n_eigenvectors, or {LEAVE_OUT}."
            )

    def _answers(self, X: list[np.ndarray], sketches: list[Sketch]) -> list[Sketch]:
        relayed = self.relay(sketches)
        return self._each("compare", zip(X, sketches, strict=True), relayed=relayed)

    def sketches(
        self, X: Sequence[np.ndarray], y: None = None, first: int = 0
    ) -> list[Sketch]:
        """Compute the sketches of all clients.

        Without ``n_eigenvectors`` each has as many eigenvectors as every client has.
        """
        width = X[0].shape[1]
        p = self.n_eigenvectors
        if not p:
            fewest = min(len(x) for x in X)
            p = min(width, fewest)
        _check_width(width, p)
        for i, x in enumerate(X, first):
            _check_spread(x, i)
        return self._each("sketch", zip(X), first, p=p)

    def sketch(self, x: np.ndarray, client: int = 0, p: int | None = None) -> Sketch:
        """Return a client's first p eigenvectors as ``vectors`` (d, p).

        The eigenvalues ``_values`` (p,) stay with the client. ``n_eigenvectors`` comes
        before the argument ``p``; without both, p is the smaller of n and d.
        """
        x = self._checked(x, client)
        _check_spread(x, client)
        p = self.n_eigenvectors or p or min(x.shape)
        _check_width(x.shape[1], p)
        if p > len(x):
            raise FltnbError(
                f"Client {client} has {len(x)} samples, fewer than the {p} "
                f"eigenvectors that every client sends: {LEAVE_OUT}, or lower "
                "n_eigenvectors."
            )
        if self.epsilon is None:
            values, vectors = eigenpairs(x, p)
        else:
            gram = self._private_gram(x, client)
            values, vectors = _first_eigenpairs(gram, p)

        if self.noise:
            rng = stream(int(self.random_state), "method", client, NOISE_ON_VECTORS)
            per_entry = self.noise / np.sqrt(len(vectors))
            vectors = vectors + per_entry * rng.normal(size=vectors.shape)
        return {"vectors": vectors, "_values": values}

    @staticmethod
    def relay(sketches: Sequence[Sketch]) -> Sketch:
        """Return what the server sends to all: all clients' ``vectors``, (d, M p)."""
        vectors = _stacked_vectors(sketches)
        return {"vectors": np.concatenate(vectors, axis=1)}

    def compare(
        self,
        x: np.ndarray,
        own: Sketch,
        relayed: Sketch,
        client: int = 0,
        place: int | None = None,
    ) -> Sketch:
        """Answer the relayed vectors.

        Parameters
        ----------
        x : ndarray, shape (n, d)
            A client's features.
        own, relayed : sketches
            The client's own sketch, and the result of :meth:`relay`.
        client : int
            Its number.
        place : int, optional
            Position of its own among the relayed vectors; by default its number.

        Returns
        -------
        dict
            ``relevance`` (M - 1,): r(i, j) for the others.
        """
        if place is None:
            place = client
        x = self._checked(x, client)
        relevance = self._directed(x, own, relayed, client)
        return {"relevance": np.delete(relevance, place)}

    def _directed(
        self, x: np.ndarray, own: Sketch, relayed: Sketch, client: int
    ) -> np.ndarray:
        """Eq. (4): r(i, j) of client i (M,), the geometric mean of p ratios."""
        logs = self._log_ratios(x, own, relayed, client)
        return np.exp(logs.mean(axis=1))

    def _log_ratios(
        self, x: np.ndarray, own: Sketch, relayed: Sketch, client: int
    ) -> np.ndarray:
        """Return log ratios (M, p) of Eq. (3); the product itself could underflow.

        Its ratio of client i's eigenvalue l and the length |G_i v| for an eigenvector v
        of client j is the smaller of the two over the larger one. So its logarithm is
        minus the difference of their logarithms, without sign.
        """
        if self.epsilon is None:
            factor = norm_factor(x)
        else:
            factor = self._private_gram(x, client)
        norms = np.linalg.norm(factor @ relayed["vectors"], axis=0)  # Eq. (2), (M p,)

        values = own["_values"]
        width = factor.shape[1]
        rounding = values[0] * width * np.finfo(float).eps
        norms = np.maximum(norms, rounding).reshape(-1, len(values))
        values = np.maximum(values, rounding)
        return -np.abs(np.log(norms) - np.log(values))

    def _private_gram(self, x: np.ndarray, client: int) -> np.ndarray:
        """Return a client's noisy Gram matrix (d, d); it is the same at each call."""
        assert self.clip is not None and self.epsilon is not None
        sensitivity = np.sqrt(2) * self.clip**2  # of one sample's x x^T
        sigma = gaussian_mechanism(self.epsilon, self.delta) * sensitivity
        noise = Noise(sigma, float(self.clip))
        return noisy_gram(x, client, int(self.random_state), noise)

    def _relate(self, sketches, answers) -> None:
        if all("_values" in sketch for sketch in sketches):
            self.eigenvalues_ = np.stack(of_all(sketches, "_values"))

        # the diagonal is 1 by definition: no client sends noisy vectors to itself
        self.directed_ = square(of_all(answers, "relevance"), diagonal=1)
        self.relevance_ = (self.directed_ + self.directed_.T) / 2

        self.vectors_ = _stacked_vectors(sketches)
        self.received_[:] = self.vectors_[1:].size  # those of the M - 1 others
        keep_by_silhouette(self, 1 - self.relevance_)

    def place(self, X: Sequence[np.ndarray], y: None = None) -> np.ndarray:
        """Place newcomers by their features, as in the base class.

        Each receives the clients' eigenvectors and computes the relevance of its own
        data to them. The other direction would need the clients' data again.
        """
        self._check_fitted("vectors_")
        n_clients, width, p = self.vectors_.shape
        X = check_clients(X, self.content, width, first=n_clients)
        relayed = {"vectors": np.concatenate(self.vectors_, axis=1)}
        answers = []
        for number, x in enumerate(X, n_clients):
            own = self.sketch(x, number, p)
            relevance = self._directed(x, own, relayed, number)
            answers.append({"relevance": relevance})
        return self.place_sketches(answers)

    def _members(self) -> np.ndarray:
        """Return 1 less the relevance of clients to each other, (M, M): a distance."""
        return 1 - self.directed_

    def _newcomers(self, sketches: Sequence[Sketch]) -> np.ndarray:
        if not all("relevance" in sketch for sketch in sketches):
            raise FltnbError(
                "EigenRelevance places newcomers by their relevance to all clients, "
                "which they compute from the clients' eigenvectors: use place(X)."
            )
        rows = of_all(sketches, "relevance")
        check_rows(rows, len(self.labels_))
        return 1 - np.stack(rows)


def _stacked_vectors(sketches: Sequence[Sketch]) -> np.ndarray:
    """Return the eigenvectors (M, d, p) of all clients, as many of each client."""
    vectors = of_all(sketches, "vectors")
    for client, own in enumerate(vectors):
        if own.shape != vectors[0].shape:
            raise FltnbError(
                f"Client {client} sent eigenvectors of the shape {own.shape}, client 0 "
                f"{vectors[0].shape}: give all clients the same n_eigenvectors."
            )
    return np.stack(vectors)


def _check_spread(x: np.ndarray, client: int) -> None:
    """Refuse a client's features (n, d) if they are equal for all samples."""
    if (x == x[0]).all():
        raise FltnbError(
            f"All samples of client {client} have the same features: check them, or "
            "leave it out."
        )


def _check_width(width: int, p: int) -> None:
    """Refuse to take more eigenvectors (p) than there are features (``width``)."""
    if p > width:
        raise FltnbError(
            f"{width} features do not have {p} eigenvectors: lower n_eigenvectors."
        )


class MeanImage(ClientClusterer):
    """Cluster clients by average linkage of their mean samples.

    This is our own baseline, which a clusterer must beat. A client sends d numbers;
    there is no randomness.

    Parameters
    ----------
    n_clusters : int or None
        Number of clusters. None: the cut with the highest mean silhouette of the
        Euclidean distances, or one cluster if that is below 0.5.
    max_clusters, n_jobs
        See :class:`~fltnb.clustering.base.ClientClusterer`.

    Attributes
    ----------
    means_ : ndarray, shape (M, d)
        The clients' mean samples.
    criterion_ : ndarray, shape (M + 1,)
        As in :class:`fltnb.clustering.EigenRelevance`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> fl.MeanImage(n_clusters=3).fit(x).labels_.tolist()
    [0, 0, 1, 1, 2, 2]
    """

    n_clusters: Count | None = None
    max_clusters: Count | None = None
    n_jobs: int | None = None

    content = "features"
    sketch_shapes: ClassVar[Shapes] = {"mean": (None,)}
    linkage = "average"

    def sketch(self, x: np.ndarray, client: int = 0) -> Sketch:
        """Return the ``mean`` (d,) of a client's samples (n, d)."""
        x = self._checked(x, client)
        return {"mean": x.mean(axis=0, dtype=np.float64)}

    def _relate(self, sketches, answers) -> None:
        self.means_ = np.array(of_all(sketches, "mean"))
        keep_by_silhouette(self, squareform(pdist(self.means_)))

    def _newcomers(self, sketches: Sequence[Sketch]) -> np.ndarray:
        self._check_fitted("means_")
        return cdist(of_all(sketches, "mean"), self.means_)


def eigenpairs(features: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first eigenvalues and eigenvectors of a Gram matrix (Eq. 1).

    Parameters
    ----------
    features : ndarray, shape (n, d)
        One client's; G is ``features.T @ features / n``.
    p : int
        Their number, at most d and n.

    Returns
    -------
    values : ndarray, shape (p,)
        Descending.
    vectors : ndarray, shape (d, p)
        Their signs are arbitrary and have no effect here.
    """
    x = np.asarray(features, dtype=np.float64)
    if len(x) >= x.shape[1]:
        return _first_eigenpairs(x.T @ x / len(x), p)

    # a d x d matrix is never formed
    _, singular, right = np.linalg.svd(x, full_matrices=False)
    values = singular[:p] ** 2 / len(x)
    vectors = right[:p].T.copy()  # not a view, which would keep all n
    return values, vectors


def _first_eigenpairs(gram: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Largest p eigenvalues (p,), descending, and their vectors (d, p)."""
    d = len(gram)
    values, vectors = eigh(gram, subset_by_index=(d - p, d - 1))
    # noisy matrices may have negative eigenvalues, and ||G v|| is |lambda|
    return np.abs(values[::-1]), vectors[:, ::-1]


def norm_factor(features: np.ndarray) -> np.ndarray:
    """Return F (min(n, d), d) with ``||F v|| = ||G v||`` for every v (Eq. 2).

    G is the Gram matrix of the features (n, d).
    """
    x = np.asarray(features, dtype=np.float64)
    if len(x) >= x.shape[1]:
        return x.T @ x / len(x)
    # X^T = Q U, and Q does not change lengths; forming X X^T instead would square the
    # rounding errors
    return np.linalg.qr(x.T, mode="r") @ x / len(x)


def relevance_curve(clients: Sequence[np.ndarray], p: int) -> np.ndarray:
    """Return R by the number of eigenvectors (MT-HFL, Fig. 4), from one decomposition.

    Parameters
    ----------
    clients : sequence of M arrays, shapes (n_i, d)
        Features.
    p : int
        Largest number of eigenvectors.

    Returns
    -------
    ndarray, shape (p, M, M)
        R for 1 to p eigenvectors.
    """
    X = check_clients(clients, "features")
    clusterer = EigenRelevance(n_eigenvectors=p)
    clusterer.check([len(x) for x in X])
    sketches = clusterer.sketches(X)
    relayed = clusterer.relay(sketches)
    pairs = zip(X, sketches, strict=True)
    logs = clusterer._each("_log_ratios", pairs, relayed=relayed)  # M times (M, p)

    # the mean of the first k logarithms, for every k
    means = np.cumsum(logs, axis=2) / np.arange(1, p + 1)
    directed = np.exp(means).transpose(2, 0, 1)
    itself = np.eye(len(X), dtype=bool)
    directed[:, itself] = 1.0
    return (directed + directed.transpose(0, 2, 1)) / 2


def keep_by_silhouette(clusterer: ClientClusterer, distance: np.ndarray) -> None:
    """Set a clusterer's results: its ``n_clusters``, or the best mean silhouette."""
    check_finite(distance)
    tree = distance_linkage(distance, clusterer.linkage)
    tree[:, 2] = np.round(tree[:, 2], 12)  # exactly equal heights stay equal

    n_clusters = clusterer.n_clusters
    if n_clusters is None:
        most = clusterer.max_clusters
        clusterer.criterion_ = silhouettes(distance, tree, most)
        n_clusters = best_cut(clusterer.criterion_, REASONABLE, most)
        if n_clusters == 1:
            _warn_if_weak(clusterer.criterion_)

    clusterer._keep(distance, tree, cut(tree, n_clusters))


def _warn_if_weak(criterion: np.ndarray) -> None:
    """Warn that one cluster was found although there may be several."""
    divided = np.nan_to_num(criterion[2:])
    if not divided.size or divided.max() < WEAK:
        return
    best = divided.argmax() + 2
    warnings.warn(
        f"All clients are one cluster. A cut into {best} has a mean silhouette of "
        f"{divided.max():.2f}, and {REASONABLE} would count as structure: if you know "
        "that there are groups, give n_clusters.",
        stacklevel=6,
    )


def silhouettes(
    distance: np.ndarray, tree: np.ndarray, max_clusters: int | None = None
) -> np.ndarray:
    """Return the mean silhouette of every cut of a dendrogram.

    Each cut costs M^2. So for more than 1,000 clients only cuts into at most 100
    clusters are evaluated, with a progress bar.

    Parameters
    ----------
    distance : ndarray, shape (M, M)
    tree : ndarray, shape (M - 1, 4)
        SciPy's linkage.
    max_clusters : int, optional
        Largest number of clusters that is evaluated.

    Returns
    -------
    ndarray, shape (M + 1,)
        Entry C: that of C clusters, 0 for one; NaN where there is no such cut.
    """
    n_clients = len(distance)
    most = min(max_clusters or n_clients, n_clients - 1)
    if n_clients > MANY and max_clusters is None:
        most = MOST_CUTS
    scores = np.full(n_clients + 1, np.nan)
    scores[1] = 0.0
    cuts = bar(
        range(2, most + 1),
        shown=n_clients > MANY,
        desc="Numbers of clusters",
        unit="cut",
    )
    for n_clusters in cuts:
        labels = cut(tree, n_clusters)
        if labels.max() < n_clusters:
            continue  # such a cut would separate merges of equal height
        score = silhouette_score(distance, labels, metric="precomputed")
        scores[n_clusters] = score
    return scores


def noisy_gram(
    features: np.ndarray, client: int, seed: int, private: Noise
) -> np.ndarray:
    r"""Release a client's Gram matrix (d, d) with differential privacy.

    Replacing sample x by y, both of norm at most c, changes G by
    :math:`(yy^\top - xx^\top) / n`, of squared Frobenius norm
    :math:`(\|x\|^4 + \|y\|^4 - 2 (x^\top y)^2) / n^2 \le 2 c^4 / n^2`:
    :math:`\Delta = \sqrt 2\, c^2 / n`. The noise is on the diagonal and
    :math:`\sqrt 2` times the upper triangle: (Z + Z^T) / 2.

    Parameters
    ----------
    features : ndarray, shape (n, d)
    client, seed : int
        Keys of the draws.
    private : Noise
        The norm c to which samples are clipped, and the noise's deviation on n G.
    """
    x = clipped(np.asarray(features, dtype=np.float64), private.clip)
    d = x.shape[1]
    rng = stream(seed, "method", client, NOISE_ON_GRAM)
    z = rng.normal(size=(d, d))
    noise = private.sigma * (z + z.T) / 2
    return (x.T @ x + noise) / len(x)
