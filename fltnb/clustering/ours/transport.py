"""Transport signatures: one-shot clustering with a test instead of a threshold.

It is this project's own method.

The idea in numbers: a client has 200 samples. Their two halves of 100 are at a distance
of 1.0 from each other, on average, only because each half is a draw. A half of another
client with 200 samples of the same distribution must then also be at about 1.0. If it
is at 1.6, and the clients' own distances vary by 0.1 from division to division, then
Z = (1.6 / 1.0 - 1) / 0.1 = 6: no chance. Nobody has to choose how far is "far", because
each client has measured it on itself.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import numpy as np
from scipy.cluster.hierarchy import fcluster, maxRstat
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist
from scipy.stats import norm

from ...errors import FltnbError
from ...randomness import stream
from ...settings import Count, Natural, NonNegative, Positive, Rate, Whole
from ..base import (
    LEAVE_OUT,
    NONE_FITS,
    SEVERAL_FIT,
    ClientClusterer,
    Shapes,
    Sketch,
    check_clients,
    check_finite,
    of_all,
)
from ..cuts import cut, merge_gaps, relabel
from ..privacy import Noise, clipped
from ..solvers import exact_cost, received_shares

# Number of samples that the test needs: with halves of at most three samples, the
# distance of a client to itself is not comparable with others (bias of 1 to 2 Z).
FEWEST = 8
LLOYD_STEPS = 10  # of k-means, which converges in fewer steps on the samples of a half
MOST_STEPS = 100_000  # limit of the transport solver, far above what small sets need
PRIVATE_STEPS = 3  # noisy steps share the budget, so they are few


class TransportSignatures(ClientClusterer):
    r"""Cluster clients by optimal transport between their centroids, against chance.

    **Client.** It divides its samples at random into halves. It sends k centroids of
    each half with their shares of samples, the number of samples, and mean :math:`s_i`
    and variance of the transport distance between halves over ``n_splits`` divisions.

    **Server.** :math:`D_{ij}` is the exact Wasserstein-1 distance (Euclidean ground
    cost) between a half of client i and a half of client j: the mean of first against
    second and second against first. If i and j have the same distribution, this is the
    same experiment as that of each client with itself, at the same sizes, so

    .. math:: Z_{ij} = \frac{D_{ij} / m_{ij} - 1}{c_{ij}}, \qquad
        m_{ij}^2 = (s_i^2 + s_j^2) / 2

    has mean 0 and a standard deviation of at most 1, for any sizes. :math:`c_{ij}` is
    the relative spread of the clients' distances to themselves, half from the clients,
    half pooled. :math:`D_{ij}^2 - m_{ij}^2` estimates the squared distance of the
    distributions. Clients of one kind have equal distances to *all others*. So Ward
    linkage is applied to the rows of this matrix, each minus its mean: a row averages
    over M comparisons.

    **Test.** Going up the dendrogram, a merge of groups of a and b clients is refused
    if the mean Z between them exceeds ``tolerance + norm.isf(alpha / (M - 1)) *
    sqrt((1 / a + 1 / b) / 4 + 1 / (2 a b))``. Clusters are the largest groups without a
    refused merge; then each client moves to the cluster that is nearest by mean Z.

    Parameters
    ----------
    k : int
        Centroids per half; a half with no more than k samples is sent as it is.
    alpha : float
        Bounds the *family-wise* probability that clients with one distribution are
        separated anywhere in the dendrogram (Bonferroni over its M - 1 merges, normal
        approximation; the tolerance compensates for the search for differences). In
        ``adjacency_`` it holds for each pair, in :meth:`place` and ``undecided_`` for
        each client and cluster.
    n_clusters : int or None
        For a cut of the dendrogram without tests. Clients then still move to their
        nearest cluster, which may leave fewer clusters.
    n_splits : int
        Random divisions into halves per client.
    random_state : int
        Together with a client's number it determines the client's draws.
    tolerance : float
        Mean Z that is no reason to separate groups, however large they are: data of one
        purpose are never exactly equal.
    epsilon, delta, clip : float or None
        With ``epsilon`` an (epsilon, delta) differentially private release (see
        :class:`~fltnb.clustering.base.ClientClusterer`) by noisy sums and counts
        (``fltnb.clustering.ours.transport.gaussian_noise``). With 128 dimensions and
        epsilon near 1, a few hundred samples give no signal. There is one division, and
        the spread is estimated over clients.
    n_jobs : int or None
        See :class:`~fltnb.clustering.base.ClientClusterer`.

    Attributes
    ----------
    undecided_ : ndarray of bool, shape (M,)
        A second cluster is not rejected at alpha, or the client has fewer than
        the 8 samples that the test needs.
    distance_ : ndarray of float32, shape (M, M)
        Z: standardised, hence around 0 (and below) for equal clients; diagonal 0.
    adjacency_ : ndarray of uint8, shape (M, M)
        1 where Z does not exceed ``norm.isf(alpha)``.
    centroids_, weights_ : ndarrays, shapes (M, 2 k, e) and (M, 2 k)
        One half after the other (NaN and 0 where missing).
    self_distance_, spread_ : ndarrays, shape (M,)
        s_i, and c of one client.
    null_ : ndarray, shape (M, n_splits)
        All distances of a client to itself.
    gap_, limit_ : ndarrays, shape (M - 1,)
        Mean Z between the groups of each merge of ``linkage_``, and its limit.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> fl.TransportSignatures(k=3).fit(x).labels_.tolist()
    [0, 0, 1, 1, 2, 2]
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

    sketch_shapes: ClassVar[Shapes] = {
        "first": (None, None),
        "first_shares": (None,),
        "second": (None, None),
        "second_shares": (None,),
        "own": (3,),
    }

    def _check_size(self, size: int, client: int) -> None:
        if size < 2:
            raise FltnbError(
                f"Client {client} has a single sample, which cannot be halved: "
                f"{LEAVE_OUT}."
            )

    def sketch(
        self, x: np.ndarray, client: int = 0, rough: Callable | None = None
    ) -> Sketch:
        """Return a client's signature.

        Of the random divisions into halves (``n_splits``, or one in a private release)
        the first is sent, with at most k centroids of each half.

        Parameters
        ----------
        x : ndarray, shape (n, e)
            Embeddings.
        client : int
            Its number, a key of the draws.
        rough : callable, optional
            ``rough(points, split, half)`` changes centroids before anything else uses
            them.

        Returns
        -------
        dict
            ``first``, ``second`` (k, e) and ``first_shares``, ``second_shares`` (k,);
            ``own`` (3,): number of samples, mean and variance of the distances between
            halves. Not sent: these distances, ``_own`` (n_splits,).
        """
        z = self._checked(x, client).astype(np.float64)
        n_splits = int(self.n_splits)
        if self.epsilon is not None:
            n_splits = 1  # every division would cost as much privacy
        sent = {}
        own = []
        for split in range(n_splits):
            first, second = self._split(z, client, split, rough)
            a, share_a = first
            b, share_b = second
            own.append(transport(share_a, share_b, cdist(a, b)))
            if split == 0:
                sent["first"] = a
                sent["first_shares"] = share_a
                sent["second"] = b
                sent["second_shares"] = share_b

        spread = np.nan
        if n_splits > 1:
            spread = np.var(own, ddof=1)
        sent["own"] = np.array([len(z), np.mean(own), spread])
        sent["_own"] = np.array(own)
        return sent

    def _split(
        self, z: np.ndarray, client: int, split: int, rough: Callable | None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Divide a client's samples at random, and cluster either half.

        Parameters
        ----------
        z : ndarray, shape (n, e)
        client, split : int
            Keys of the draws.
        rough : callable or None
            As for :meth:`sketch`.

        Returns
        -------
        list of two pairs
            Centroids (k, e) and shares (k,) of each half.
        """
        rng = stream(int(self.random_state), "kmeans", client, split)
        order = rng.permutation(len(z))
        middle = (len(z) + 1) // 2  # the first half has the odd sample
        first = z[order[:middle]]
        second = z[order[middle:]]
        k = min(int(self.k), len(second))
        noise = gaussian_noise(self.epsilon, self.delta, self.clip)

        parts = []
        for number, half in enumerate((first, second)):
            if noise is None:
                points, shares = _kmeans(half, k, rng)
            else:
                points, shares = _private_kmeans(half, k, rng, noise)
            if rough is not None:
                points = rough(points, split, number)
            parts.append((points, shares))
        return parts

    def _relate(self, sketches, answers) -> None:
        sizes, mean, variance = np.array(of_all(sketches, "own")).T  # (M,) each
        # small clients throughout: no padding beyond the largest of them
        halves = of_all(sketches, "first") + of_all(sketches, "second")
        largest = max(len(half) for half in halves)
        points, shares = stacked(sketches, largest)
        if all("_own" in sketch for sketch in sketches):
            self.null_ = np.stack(of_all(sketches, "_own"))

        least = max(1e-6 * mean.max(), 1e-12)  # a client may hold copies of one sample
        self.self_distance_ = np.maximum(mean, least)
        self.spread_ = _spread(mean, variance, sizes)
        self.centroids_, self.weights_ = _joined_halves(points, shares)

        z = self._scores(points, shares)
        check_finite(z)
        self._cluster(z)
        self.undecided_ |= sizes < FEWEST

    def scores(self, X: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean Z of newcomers to the clients of each cluster.

        Parameters
        ----------
        X : sequence of n arrays, shapes (n_i, e)
            Their embeddings.

        Returns
        -------
        ndarray, shape (n, C)
            Near 0 if a cluster fits.
        """
        return self._scores_of(self._sent(X))

    def place(self, X: Sequence[np.ndarray], y: None = None) -> np.ndarray:
        """Place newcomers without clustering again.

        Parameters
        ----------
        X : sequence of n arrays, shapes (n_i, e)
            Their embeddings.
        y : None
            Not used.

        Returns
        -------
        ndarray of int64, shape (n,)
            The cluster that fits. -1: the test rejects all clusters. -2: several fit
            (:meth:`scores` shows the nearest), or there are fewer than 8 samples.
        """
        return self.place_sketches(self._sent(X))

    def place_sketches(self, sketches: Sequence[Sketch]) -> np.ndarray:
        """Place newcomers by their sketches; see :meth:`place`."""
        self._check_fitted()
        self._check_newcomers(sketches)
        if not sketches:
            return np.zeros(0, dtype=np.int64)
        z = self._scores_of(sketches)  # (n, C)
        sizes = _one_hot(self.labels_).sum(axis=0)
        limit = self._level(1) * _deviation(1, sizes)

        nearest = z.argmin(axis=1)
        near = z.min(axis=1) <= self.tolerance + limit[nearest]
        place = np.where(near, nearest, NONE_FITS)

        several = (z <= limit).sum(axis=1) > 1
        samples, _, _ = np.array(of_all(sketches, "own")).T
        few = samples < FEWEST
        return np.where(several | few, SEVERAL_FIT, place)

    def _sent(self, X: Sequence[np.ndarray]) -> list[Sketch]:
        """Return the sketches of newcomers, by their embeddings.

        Their numbers, keys of their draws, follow those of the clients.
        """
        self._check_fitted("centroids_")
        count, _, width = self.centroids_.shape
        X = check_clients(X, width=width, first=count)
        return self.sketches(X, first=count)

    def _scores_of(self, sent: Sequence[Sketch]) -> np.ndarray:
        """Return the mean Z (n, C) of newcomers to the clients of each cluster."""
        self._check_fitted("centroids_")
        if not sent:
            return np.zeros((0, self.n_clusters_))
        new_points, new_shares = stacked(sent, int(self.k))
        points, shares = _halves(self.centroids_, self.weights_)
        rows = []
        for own_points, own_shares in zip(new_points, new_shares, strict=True):
            rows.append(_row(own_points, own_shares, points, shares))
        distance = np.stack(rows)  # (n, M)

        _, own, _ = np.array(of_all(sent, "own")).T
        spread = np.sqrt(np.mean(self.spread_**2))  # of a client like the others
        z = _standard(distance, own[:, None], self.self_distance_, spread, self.spread_)
        members = _one_hot(self.labels_)
        return z @ members / members.sum(axis=0)

    def _scores(self, points: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return Z of all pairs, (M, M) float32.

        Rows are computed one by one, each up from the diagonal. ``points``
        (M, 2, k, e), ``shares`` (M, 2, k): of both halves of each client.
        """
        count = len(points)
        own = self.self_distance_
        spread = self.spread_
        z = np.zeros((count, count), dtype=np.float32)
        rows = self._each("_beyond", [()] * count, points=points, shares=shares)
        for i, distance in enumerate(rows):
            rest = slice(i + 1, None)
            row = _standard(distance, own[i], own[rest], spread[i], spread[rest])
            z[i, rest] = row
            z[rest, i] = row

        return z

    def _beyond(
        self, points: np.ndarray, shares: np.ndarray, client: int
    ) -> np.ndarray:
        """Return distances (M - 1 - client,) of one to those with larger numbers.

        A function of one client, so that clients can be divided over processes.
        """
        after = client + 1
        return _row(points[client], shares[client], points[after:], shares[after:])

    def _level(self, tests: int) -> float:
        """Return the Z that is exceeded by chance with probability alpha.

        This is the probability for at least one of ``tests`` (Bonferroni's bound). With
        alpha = 0.01 it is 2.33 for one test and 3.72 for a hundred.
        """
        return float(norm.isf(self.alpha / tests))

    def _cluster(self, z: np.ndarray) -> None:
        """Set all attributes that follow from Z of all pairs, (M, M).

        The tree, the test of each of its merges, the groups without a refused merge,
        and the last correction: a client that the tree has put into a wrong branch
        moves to the group that it is nearest to.
        """
        tree = self._tree(z)
        self.gap_, sizes = merge_gaps(z, tree)
        n_tests = max(1, len(z) - 1)
        self.limit_ = self.tolerance + self._level(n_tests) * _deviation(*sizes)
        if self.n_clusters is None:
            labels = accepted_groups(tree, self.gap_ <= self.limit_)
        else:
            labels = relabel(cut(tree, self.n_clusters))

        labels, self.undecided_ = self._settle(z, labels)
        self._keep(z, tree, labels, z <= self._level(1))

    def _tree(self, z: np.ndarray) -> np.ndarray:
        """Return Ward linkage of the rows of D^2 - m^2, which follow from Z (M, M).

        Z = (D / m - 1) / c, so D / m = 1 + Z c, and D^2 - m^2 = ((D / m)^2 - 1) m^2.
        """
        own = self.self_distance_**2  # s^2, (M,)
        variance = self.spread_**2
        spread = np.sqrt((variance[:, None] + variance) / 2)  # c of pairs, (M, M)
        ratio = 1 + z * spread  # D / m
        rows = (ratio**2 - 1) * (own[:, None] + own) / 2
        np.fill_diagonal(rows, 0)
        # chance in a client's sample changes all its distances equally
        rows -= rows.mean(axis=1, keepdims=True)
        largest = max(np.abs(rows).max(), 1e-12)
        return scipy_linkage(rows / largest, "ward")

    def _settle(
        self, z: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Move clients to the nearest cluster that fits them.

        Parameters
        ----------
        z : ndarray, shape (M, M)
        labels : ndarray of int, shape (M,)
            0 to C - 1.

        Returns
        -------
        labels : ndarray of int64, shape (M,)
        several : ndarray of bool, shape (M,)
            Whether more than one cluster fits a client.
        """
        everyone = np.arange(len(z))
        members = _one_hot(labels)
        others = members.sum(axis=0) - members  # (M, C), without the client itself
        count = np.maximum(others, 1)
        mean = np.where(others > 0, z @ members / count, np.inf)
        limit = self._level(1) * _deviation(1, count)

        nearest = mean.argmin(axis=1)
        of_nearest = (everyone, nearest)  # that entry of each row
        near = mean[of_nearest] <= self.tolerance + limit[of_nearest]
        labels = np.where(near, nearest, labels)

        fits = mean <= limit
        fits[everyone, labels] = True
        return relabel(labels), fits.sum(axis=1) > 1


def _one_hot(labels: np.ndarray) -> np.ndarray:
    """Return membership (M, C) as zeros and ones.

    float32 as the distances are: a product with them makes no float64 copy.

    Examples
    --------
    >>> _one_hot(np.array([1, 0])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    n_clusters = labels.max() + 1
    return np.eye(n_clusters, dtype=np.float32)[labels]


def _deviation(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """Return the standard deviation of the mean Z of groups of one kind.

    ``a`` and ``b``: their numbers of clients, which broadcast against each other. The
    formula is the one of :class:`TransportSignatures`. Chance in a client's samples is
    in all of its distances, so the deviation decreases with a and b, not with a b: a
    single client's mean Z to a group never varies by less than a half.

    Examples
    --------
    >>> _deviation(1, np.array([1, 2, 10])).round(2).tolist()
    [1.0, 0.79, 0.57]
    """
    one_each = 1 / np.asarray(a) + 1 / np.asarray(b)
    return np.sqrt(one_each / 4 + 0.5 / (a * b))


def accepted_groups(tree: np.ndarray, accepted: np.ndarray) -> np.ndarray:
    """Return the largest groups of a dendrogram in which no merge is refused.

    Parameters
    ----------
    tree : ndarray, shape (M - 1, 4)
        SciPy's linkage.
    accepted : ndarray of bool, shape (M - 1,)
        Of each merge.

    Returns
    -------
    ndarray of int64, shape (M,)
        Labels.

    Examples
    --------
    Clients 0 and 1 merge, then 2 and 3, then both pairs; the last merge is refused.

    >>> tree = np.array([[0, 1, 0.1, 2], [2, 3, 0.2, 2], [4, 5, 0.9, 4]])
    >>> accepted_groups(tree, np.array([True, True, False])).tolist()
    [0, 0, 1, 1]
    """
    # What `maxRstat` takes are SciPy's inconsistency statistics (M - 1, 4), of which it
    # passes one column's maximum up the tree: here whether a merge below is refused.
    refused = np.repeat(~accepted[:, None], 4, axis=1).astype(np.float64)
    highest = maxRstat(tree, refused, 0)
    return relabel(fcluster(tree, 0.5, "monocrit", monocrit=highest))


def _standard(distance, own, other, spread, other_spread) -> np.ndarray:
    """Return Z of distances between clients, (D / m - 1) / c.

    All arguments broadcast against each other. ``own``, ``other``: the clients'
    distances to themselves, s; ``spread``, ``other_spread``: the relative spread of
    these, c of one client.

    Examples
    --------
    >>> z = _standard(1.6, own=1.0, other=1.0, spread=0.1, other_spread=0.1)
    >>> round(float(z), 6)
    6.0
    """
    middle = np.sqrt((own**2 + other**2) / 2)  # m
    width = np.sqrt((spread**2 + other_spread**2) / 2)  # c
    ratio = distance / np.maximum(middle, 1e-12)
    return (ratio - 1) / width


def _spread(mean: np.ndarray, variance: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the relative standard deviation of each client's own distances.

    Half its own variance, half pooled.

    Parameters
    ----------
    mean, variance : ndarrays, shape (M,)
        Of the distances between a client's halves; a private release does not know the
        variance (NaN).
    sizes : ndarray, shape (M,)
        Samples of each client.

    Returns
    -------
    ndarray, shape (M,)
    """
    if np.isfinite(variance).all():
        relative = variance / np.maximum(mean, 1e-12) ** 2
        half_pooled = (relative + relative.mean()) / 2
        return np.sqrt(np.maximum(half_pooled, 1e-12))

    # One noisy division each: the scatter over clients after removing the dependence on
    # their sizes
    log_mean = np.log(mean)
    log_size = np.log(sizes)
    sizes_differ = np.ptp(sizes) > 0
    degree = 0  # one level for all
    if sizes_differ and len(sizes) >= 10:
        degree = 1
    law = np.polynomial.Polynomial.fit(log_size, log_mean, degree)
    scatter = np.std(log_mean - law(log_size), ddof=1)
    return np.full(len(mean), max(scatter, 1e-6))


def _joined_halves(
    points: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrays that ``fit`` keeps, one half after the other.

    Parameters
    ----------
    points : ndarray, shape (M, 2, k, e)
    shares : ndarray, shape (M, 2, k)
        Their sum is 1 over a half.

    Returns
    -------
    centroids : ndarray, shape (M, 2 k, e)
        NaN where there is none.
    weights : ndarray, shape (M, 2 k)
        Their sum is 1 over both halves.
    """
    count, _, k, width = points.shape
    weights = shares.reshape(count, 2 * k) / 2
    centroids = points.reshape(count, 2 * k, width)
    missing = weights == 0
    return np.where(missing[:, :, None], np.nan, centroids), weights


def _halves(
    centroids: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Undo :func:`_joined_halves`: return points and shares by client and half."""
    count, both = weights.shape
    k = both // 2
    points = np.nan_to_num(centroids).reshape(count, 2, k, -1)
    shares = 2 * weights.reshape(count, 2, k)
    return points, shares


def _row(points, shares, other_points, other_shares) -> np.ndarray:
    """Return the mean distance of one client's halves to others' opposite halves.

    Parameters
    ----------
    points, shares : ndarrays, shapes (2, k, e) and (2, k)
        One client's.
    other_points, other_shares : ndarrays, shapes (m, 2, k, e) and (m, 2, k)

    Returns
    -------
    ndarray, shape (m,)
    """
    count, _, k, width = other_points.shape
    total = np.zeros(count)
    for half in (0, 1):
        opposite = 1 - half
        there = other_points[:, opposite].reshape(count * k, width)
        costs = cdist(points[half], there)  # to the centroids of all, in one call
        for j in range(count):
            begin = j * k  # the columns of client j's centroids
            cost = costs[:, begin : begin + k]
            total[j] += transport(shares[half], other_shares[j, opposite], cost)
    return total / 2


def transport(shares: np.ndarray, other: np.ndarray, cost: np.ndarray) -> float:
    """Return the exact cost of the cheapest transport.

    Parameters
    ----------
    shares, other : ndarrays, shapes (k,) and (l,)
        Shares before and after the transport; both sum to 1.
    cost : ndarray, shape (k, l)
        Cost of moving a unit.

    Raises
    ------
    FltnbError
        POT does not find the solution.

    Examples
    --------
    A quarter of all samples moves, over a distance of 2:

    >>> cost = np.array([[0.0, 2.0], [2.0, 0.0]])
    >>> transport(np.array([0.5, 0.5]), np.array([0.75, 0.25]), cost)
    0.5
    """
    return exact_cost(shares, other, cost, MOST_STEPS)


def stacked(sketches: Sequence[Sketch], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Unpack signatures; zeros where a half has fewer centroids than ``size``.

    Returns
    -------
    points : ndarray, shape (M, 2, size, e)
    shares : ndarray, shape (M, 2, size)
        A centroid that is not there has share 0: nothing is moved from or to it, so
        that its place has no effect on a distance.
    """
    width = sketches[0]["first"].shape[1]
    points = np.zeros((len(sketches), 2, size, width))
    shares = np.zeros((len(sketches), 2, size))
    for i, sketch in enumerate(sketches):
        for half, name in enumerate(("first", "second")):
            centroids = sketch[name]
            k = len(centroids)
            if k > size or len(sketch[f"{name}_shares"]) != k:
                raise FltnbError(
                    f"Client {i} sent {k} centroids of a half, of at most {size}, and "
                    f"{len(sketch[f'{name}_shares'])} shares: give all clients and the "
                    "server the same k."
                )
            points[i, half, :k] = centroids
            shares[i, half, :k] = received_shares(sketch[f"{name}_shares"], i)
    return points, shares


def _kmeans(
    z: np.ndarray, k: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return centroids (k, e) of samples (n, e), and the share (k,) of the samples.

    It is SciPy's, because scikit-learn's checks take longer than the computation on a
    few hundred rows, done ten times per client.
    """
    # fewer centroids if samples repeat; a random projection finds equal samples
    projected = z @ rng.normal(size=z.shape[1])
    k = min(k, len(np.unique(projected)))
    with warnings.catch_warnings():
        # its share is 0
        warnings.filterwarnings("ignore", message="One of the clusters is empty")
        centres, label = kmeans2(z, k, iter=LLOYD_STEPS, minit="++", rng=rng)

    share = np.bincount(label, minlength=k) / len(z)
    used = share > 0
    return centres[used], share[used]


def _private_kmeans(
    z: np.ndarray, k: int, rng: np.random.Generator, noise: Noise
) -> tuple[np.ndarray, np.ndarray]:
    """Do the same, but use samples (n, e) only through noisy sums and counts.

    The start does not depend on the data: random directions, half of ``clip`` long.
    These are Lloyd's steps, in which a centre is its cell's noisy sum divided by its
    noisy count, and no longer than ``clip``, as all samples are.
    """
    clip = noise.clip
    z = clipped(z, clip)
    centres = rng.normal(size=(k, z.shape[1]))
    centres *= clip / 2 / np.linalg.norm(centres, axis=1, keepdims=True)
    for _ in range(PRIVATE_STEPS):
        count, sums = _noisy_cells(z, centres, rng, noise)
        # a cell that seems empty keeps its centre
        seen = count >= 1
        means = sums[seen] / count[seen, None]
        centres[seen] = clipped(means, clip)

    share = np.ones(k)
    if seen.any():
        share = np.where(seen, count, 0.0)
    used = share > 0
    return centres[used], share[used] / share.sum()


def _noisy_cells(
    z: np.ndarray, centres: np.ndarray, rng: np.random.Generator, noise: Noise
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many samples (n, e) are nearest to each centre (k, e), and their sum.

    Both with noise: counts (k,) and sums (k, e).
    """
    k = len(centres)
    nearest = cdist(z, centres).argmin(axis=1)
    member = np.eye(k)[nearest]  # (n, k)
    on_counts = noise.sigma / noise.clip * rng.normal(size=k)
    on_sums = noise.sigma * rng.normal(size=centres.shape)
    return member.sum(axis=0) + on_counts, member.T @ z + on_sums


def gaussian_noise(
    epsilon: float | None, delta: float, clip: float | None
) -> Noise | None:
    """Return the noise that makes one signature (epsilon, delta) private.

    None without epsilon. One step releases the sums of k cells and ``clip`` times their
    counts. Replacing one sample changes these by at most 2 clip in Euclidean norm (one
    cell's sum by 2 clip, or two cells' sums by clip and counts by 1). T = 3 steps with
    Gaussian noise sigma are rho-zCDP with rho = T (2 clip)^2 / (2 sigma^2), which
    implies (rho + 2 sqrt(rho log(1 / delta)), delta) (Bun and Steinke, TCC 2016,
    Propositions 1.3 and 1.6). Halves share no sample, so both cost what one does.
    """
    if epsilon is None:
        return None
    assert clip is not None  # the options go together
    # rho + 2 sqrt(rho log(1 / delta)) = epsilon, solved for rho
    log = np.log(1 / delta)
    rho = (np.sqrt(log + epsilon) - np.sqrt(log)) ** 2
    sigma = 2 * clip * np.sqrt(PRIVATE_STEPS / (2 * rho))
    return Noise(float(sigma), float(clip))
