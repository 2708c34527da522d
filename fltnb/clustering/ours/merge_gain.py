"""Merge by gain: one-shot clustering by the effect of merging on the error.

Other clusterers use the distance of data instead. This is this project's own method.
Its constants were fixed before the test (docs/merge_gain.md).

A worked example of a gain: two clients have losses of 0.30 and 0.20 under a regression
of their own. One regression for both has a loss of 0.40 in all. Then merging has the
gain (0.30 + 0.20 - 0.40) / 2 = 0.05 for each of them. The common model has twice the
samples, which here helps more than the clients' difference harms. With a joint loss of
0.60 the gain is -0.05, and the two stay apart.

:class:`MergeGain` is the clusterer: what a client sends, and what becomes of the result
of the search. :class:`Search` is the search of the server. The regressions behind a
loss are in :mod:`~fltnb.clustering.ours.ridge`.
"""

import warnings
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from ...errors import FltnbError
from ...progress import bar
from ...randomness import stream
from ...settings import Count, Natural, Positive, Rate, Whole
from ..base import (
    LEAVE_OUT,
    NONE_FITS,
    ClientClusterer,
    Shapes,
    Sketch,
    check_finite,
)
from ..cuts import cut
from ..privacy import clipped, gaussian_mechanism
from .ridge import Sums, features, losses, nearest, served

SCALE = 3.0  # of the random features, whose inputs are x / sqrt(p)
EXACT = 250  # clients up to which all pairs are evaluated
# With more clients, only this number of candidates of each cluster is evaluated, until
# few enough clusters are left to evaluate all pairs.
NEAREST = 6
LEFT = 60
AT_ONCE = 16  # pairs evaluated together, which fit into the cache
# keys of the draws
FEATURES = 22
FOLDS = 23
RELEASE = 24


class MergeGain(ClientClusterer):
    r"""Cluster clients by whether one common model has a lower error than two models.

    **Client.** Random features :math:`\phi(x) = [\mathrm{ReLU}(3 R x / \sqrt p), 1]`,
    R (p, d) Gaussian from the shared seed. Samples are divided into F folds, each class
    evenly. For each fold f the client sends :math:`A_f = \Phi'\Phi`,
    :math:`B_f = \Phi'Y` (Y one-hot classes) and :math:`|Y|^2`; it sends no sample and
    no model.

    **Server.** For any set S of clients it can compute exactly how well a ridge
    regression, fitted on S, predicts held-out samples:
    :math:`W_f = (\sum_S A_{-f} + c \tau I)^{-1} \sum_S B_{-f}`, with :math:`\tau` the
    mean diagonal of A per sample and c from a grid by the loss itself,

    .. math:: L(S) = \sum_{i \in S} \sum_f [\mathrm{tr} W_f' A_{if} W_f
        - 2 \mathrm{tr} W_f' B_{if} + |Y_{if}|^2] / n_i

    **Merging.** It is greedy by the gain
    :math:`[L(S) + L(T) - L(S \cup T)] / (|S| + |T|)` and ends when no merge has a gain,
    so it needs no threshold and no number of clusters. With more than 250 clients, all
    mutual best pairs among near clusters are merged together, until 60 clusters are
    left. The search then uses all folds but the last: the best of many noisy gains is
    partly luck, so the last fold, which was not used to choose, decides how many merges
    are kept (those with the smallest loss). A gain only needs sums over S and T, but
    the search first needs the sums of single clients.

    Parameters
    ----------
    n_features : int
        d, the number of random features.
    folds : int
        F, the number of folds.
    n_draws : int
        Draws of R, over which losses are averaged. With one draw the clusters depend on
        the seed: take 4 for a decision, as ``fl.advise`` does, or measure the effect by
        :meth:`stability`. The papers' tables here have one draw.
    n_clusters : int or None
        If the number of clusters is known, merging ends there.
    random_state : int
        Determines R, so it must be the same for all clients, and, with the client, the
        folds.
    n_classes : int or None
        Classes are 0 to ``n_classes - 1``. None: ``fit`` finds the number in all
        clients' y; a client that computes its sketch alone must give it.
    epsilon, delta, clip : float or None
        With ``epsilon`` an (epsilon, delta) differentially private release (see
        :class:`~fltnb.clustering.base.ClientClusterer`): features clipped to norm
        ``clip``, Gaussian noise on A and B, and folds that do not depend on classes;
        the sizes of folds are not hidden.
    secret : int
        Seed of this noise. The server knows ``random_state``, so in a real release each
        client needs its own secret; the default is for simulations.
    n_jobs : int or None
        See :class:`~fltnb.clustering.base.ClientClusterer`.

    Attributes
    ----------
    gain_ : ndarray, shape (M - 1,)
        Gain of each merge of ``linkage_`` in the search, also beyond ``n_clusters_``.
    linkage_ : ndarray, shape (M - 1, 4)
        Its heights are the running maximum of ``-gain_``, shifted to begin at 0.
    loss_ : ndarray, shape (M,)
        Cross-validated squared error of each client under its cluster's regression.
    distance_ : ndarray, shape (M, M)
        ``-gain`` of merging two clients, negative if they gain; NaN if not evaluated.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> y = [fed.client(i)[1] for i in range(6)]
    >>> fl.MergeGain().fit(x, y).labels_.tolist()
    [0, 0, 1, 1, 2, 2]
    """

    n_features: Count = 64
    folds: Annotated[int, Whole(2)] = 3
    n_draws: Count = 1
    n_clusters: Count | None = None
    random_state: Natural = 0
    n_classes: Annotated[int, Whole(2)] | None = None
    epsilon: Positive | None = None
    delta: Rate = 1e-5
    clip: Positive | None = None
    secret: Natural = 0
    n_jobs: int | None = None

    content = "samples"
    labelled = True
    sketch_shapes: ClassVar[Shapes] = {
        "moments": (None, None),
        "products": (None, None, None),
        "squares": (None,),
        "about": (4,),
    }

    def _check_size(self, size: int, client: int) -> None:
        if size < self.folds:
            raise FltnbError(
                f"Client {client} has {size} samples, fewer than folds={self.folds}: "
                f"{LEAVE_OUT} or lower folds."
            )

    def check_options(self, n_clients: int) -> None:
        """Refuse (FltnbError) options that cannot work for so many clients."""
        super().check_options(n_clients)
        if n_clients > EXACT and self.folds < 3:
            raise FltnbError(
                f"More than {EXACT} clients need folds=3 or more: one fold decides how "
                "many merges of the others are kept."
            )

    def sketches(
        self,
        X: Sequence[np.ndarray],
        y: Sequence[np.ndarray] | None = None,
        first: int = 0,
    ) -> list[Sketch]:
        """Compute the clients' sketches.

        Parameters
        ----------
        X : sequence of arrays, shapes (n_i, p)
            Samples.
        y : sequence of arrays, shapes (n_i,) or (n_i, K)
            Classes, or numbers to predict.
        first : int
            Number of the first of these clients.

        Returns
        -------
        list of dict
            As :meth:`sketch` returns them.
        """
        if y is None or len(y) != len(X):
            raise FltnbError(
                "MergeGain compares predictions: give y, the classes of every client."
            )
        y = [np.asarray(one) for one in y]
        if not first:  # not for newcomers
            self._classes_seen = _count_classes(y)
        n_classes = self._n_classes()
        targets = []
        for i, one in enumerate(y, first):
            target = _targets(one, n_classes, i)
            targets.append(target)
            several_classes = target.shape[1] > 1
            if several_classes and (target == target[0]).all():
                warnings.warn(
                    f"Client {i} holds one class only: it predicts this class without "
                    "error, and gains from no client with other classes.",
                    stacklevel=3,
                )
        return self._each("sketch", zip(X, targets, strict=True), first)

    def sketch(self, x: np.ndarray, y: np.ndarray, client: int = 0) -> Sketch:
        """Return a client's sketch: its sums in every draw and fold, Q of them.

        Parameters
        ----------
        x : ndarray, shape (n, p)
            Samples.
        y : ndarray, shape (n,) or (n, K)
            Classes, or numbers to predict.
        client : int
            Its number, a key of the draws.

        Returns
        -------
        dict
            float32: ``moments`` (Q, D (D + 1) / 2), upper triangles of A; ``products``
            (Q, D, K), B; ``squares`` (Q,). ``about`` (4,): number of samples, p, seed,
            standard deviation of the noise on an entry of A.
        """
        x = self._checked(x, client)
        target = _targets(np.asarray(y), self._n_classes(), client)
        if len(target) != len(x):
            raise FltnbError(
                f"Client {client} has {len(x)} samples but y has {len(target)} values: "
                "give one for each sample."
            )
        parts = self._parts(target, client)
        phis = [self.random_features(x, draw) for draw in range(self.n_draws)]
        squares = [(target[part] ** 2).sum() for part in parts]
        if self.epsilon is not None:
            # One sample may move the sums by a bounded amount only.
            assert self.clip is not None  # the options go together
            phis = [clipped(phi, self.clip) for phi in phis]
            lengths = np.linalg.norm(target, axis=1, keepdims=True)
            target = target / np.maximum(lengths, 1)
            squares = [part.sum() for part in parts]  # a constant of every gain

        moments, products = _sums(phis, target, parts)
        noise = 0.0
        if self.epsilon is not None:
            moments, products, noise = self._noisy(moments, products, client)
        return {
            "moments": moments.astype(np.float32),
            "products": products.astype(np.float32),
            "squares": np.tile(squares, self.n_draws).astype(np.float32),
            "about": np.array([len(x), x.shape[1], self.random_state, noise]),
        }

    def _noisy(
        self, moments: np.ndarray, products: np.ndarray, client: int
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Add the noise of a private release.

        Parameters
        ----------
        moments : ndarray, shape (Q, D (D + 1) / 2)
        products : ndarray, shape (Q, D, K)
        client : int
            Its number, a key of the draws.

        Returns
        -------
        moments, products : ndarrays
            The same with noise.
        on_moments : float
            Standard deviation of the noise on an entry of A.
        """
        # Replacing one sample changes A / clip^2 by sqrt(2) at most and B / clip by 2,
        # in Euclidean norm: together by sqrt(2 + 4), in every draw.
        assert self.clip is not None and self.epsilon is not None
        sensitivity = np.sqrt(6 * self.n_draws)
        sigma = sensitivity * gaussian_mechanism(self.epsilon, self.delta)
        on_moments = sigma * self.clip * self.clip
        on_products = sigma * self.clip

        rng = stream(self.secret, "method", RELEASE, client)
        moments = moments + on_moments * rng.normal(size=moments.shape)
        products = products + on_products * rng.normal(size=products.shape)
        return moments, products, on_moments

    def _n_classes(self) -> int | None:
        """Return the number of classes, as given or as found by ``fit``.

        None if it is not known: numbers to predict have no classes, and a single client
        that makes a sketch by itself does not see the others' classes.
        """
        if self.n_classes:
            return self.n_classes
        return getattr(self, "_classes_seen", None)

    def _parts(self, target: np.ndarray, client: int) -> list[np.ndarray]:
        """Return the samples of each fold, as bool arrays (n,).

        They do not depend on the draw of the features, so that losses of several draws
        differ by the features alone.

        ``target`` (n, K): one-hot classes; ``client``: a key of the draws.
        """
        if self.epsilon is not None:
            # no sample may influence another one's fold, so classes do not matter
            target = np.zeros((len(target), 1))
        rng = stream(self.random_state, "split", FOLDS, client)
        fold_of = _folds(target, int(self.folds), rng)
        return [fold_of == fold for fold in range(self.folds)]

    def random_features(self, x: np.ndarray, draw: int = 0) -> np.ndarray:
        """Return phi (n, d + 1) of samples (n, p), by one draw of R.

        R has an entry for each pair of input and feature, drawn from the seed that all
        clients share; nobody sends it. The scale makes the inputs of ReLU equally large
        for any number p of inputs.
        """
        p = x.shape[1]
        rng = stream(self.random_state, "method", FEATURES, draw)
        matrix = rng.normal(size=(p, self.n_features))
        scale = SCALE / np.sqrt(p)
        return features(x.astype(np.float64), matrix * scale)

    def place_sketches(self, sketches: Sequence[Sketch]) -> np.ndarray:
        """Place newcomers, int64: in the cluster with the largest total gain.

        -1, a new cluster, if there is no gain.
        """
        self._check_fitted("_clusters")
        self._check_newcomers(sketches)
        if not sketches:
            return np.zeros(0, dtype=np.int64)
        newcomers = self._sums(sketches, self._shape)
        alone, _ = losses(newcomers, self.folds)

        places = []
        for i, own in enumerate(alone):
            with_one = self._clusters.plus(newcomers.take([i]))
            joined, _ = losses(with_one, self.folds)
            gain = self._cluster_losses + own - joined  # (C,), of each cluster
            place = NONE_FITS
            if gain.max() > 0:
                place = gain.argmax()
            places.append(place)
        return np.array(places, dtype=np.int64)

    def _sums(self, sketches: Sequence[Sketch], like: tuple | None = None) -> Sums:
        """Unpack sketches, all of one shape and one seed.

        Sums of other features, or of more classes, would add up without an error, and
        mean nothing.

        ``like``: that shape; by default the first one's, which is kept.

        Raises
        ------
        FltnbError
            A client's sketch is not like the others.
        """
        for i, sketch in enumerate(sketches):
            _, p, seed, _ = sketch["about"]
            if seed != self.random_state:
                raise FltnbError(
                    f"Client {i} drew its features from seed {seed:g}, the server has "
                    f"{self.random_state}: give all clients and the server the same "
                    "random_state."
                )
            shape = (*sketch["moments"].shape, *sketch["products"].shape, int(p))
            if like is None:
                like = shape
            if shape != like:
                raise FltnbError(
                    f"Client {i} sends arrays of shape {shape}, others {like}: give "
                    "all clients the same n_features, folds, n_draws and n_classes, "
                    "and samples of the same width."
                )
        self._shape = like
        return Sums.of(sketches)

    def _relate(self, sketches, answers) -> None:
        sums = self._sums(sketches)
        with threadpool_limits(1):
            search = Search(sums.copy(), self.folds, self.n_jobs)
            check_finite(search.loss, "losses")
            search.merge_all()
            self._cut(search)

            self._clusters = sums.of_groups(self.labels_)
            self._cluster_losses, weights = losses(self._clusters, self.folds)
            self.loss_ = served(sums, weights[self.labels_], self.folds)

    def _cut(self, search: "Search") -> None:
        """Set the tree, the gains of its merges, and the clusters."""
        left, right, gain, size = np.array(search.merges).T  # (M - 1,) each
        self.gain_ = gain.copy()
        # Heights never fall, and the first one is 0: with gains 5, 2, 3 and -1 they are
        # 0, 3, 3 and 6.
        heights = np.maximum.accumulate(-gain) + gain[0]
        tree = np.column_stack([left, right, heights, size])

        # heights may be equal, so the tree is cut by the order of merges
        n_clients = len(search.loss)
        order = tree.copy()
        order[:, 2] = np.arange(1, n_clients)
        n_clusters = self.n_clusters or n_clients - search.n_merges()
        self._keep(search.distance, tree, cut(order, n_clusters))


class Search:
    """Greedy merging of M clients to one cluster, adding up their sums in place.

    A cluster is known by the row of its first client. When cluster j is merged into i,
    row i of all arrays is that of the new cluster, and row j is not used any more. In
    the tree the new cluster has a number of its own, as in SciPy's linkage: of 4
    clients, 0 to 3, the first merge makes cluster 4, the second 5, the last 6.

    Merging goes on to one cluster even when no merge has a gain, so that the tree is
    complete; :meth:`n_merges` says how many of the merges count.

    Parameters
    ----------
    sums : Sums
        One row per client; changed in place.
    folds : int
    n_jobs : int or None
        Threads that compute gains.

    Attributes
    ----------
    merges : list of tuples
        Rows of the tree: the two clusters' numbers in it, the gain, the size.
    distance : ndarray, shape (M, M)
        Of single clients, as :class:`MergeGain` has it.
    loss, size : ndarrays, shape (M,)
        Of each cluster; a size of 0 marks a row that is not used any more.
    gain : ndarray, shape (M, M)
        Of merging two clusters, -inf if it was not evaluated.
    """

    def __init__(self, sums: Sums, folds: int, n_jobs: int | None) -> None:
        count = len(sums.size)
        everyone = np.arange(count)
        self.n_jobs = n_jobs
        self.sums = sums
        self.all_folds = folds
        # with many clients the search uses all folds but the last
        self.seen = sums
        self.folds = folds
        self.many = count > EXACT
        if self.many:
            self.seen = sums.but_last(folds)
            self.folds = folds - 1
            self.held_out = self._held_out(everyone)
            self.saved = [0.0]  # loss in the last fold, by each merge

        # of each cluster, by the row of its first client
        self.loss = self._losses(everyone)
        self.name = everyone.copy()  # its number in the tree
        self.size = np.ones(count, dtype=int)  # 0: merged into another
        # of each pair of clusters; `known`: whether the gain was evaluated
        self.gain = np.full((count, count), -np.inf)
        self.known = np.eye(count, dtype=bool)
        self.merges: list[tuple] = []
        self.distance = np.where(self.known, 0.0, np.nan)

    def merge_all(self) -> None:
        """Merge up to one cluster.

        Each turn evaluates the pairs whose gain is not known, merges the best, and
        forgets the gains of the clusters that changed. With M clients and all pairs,
        the first turn evaluates M (M - 1) / 2 gains, and each later one only those of
        the new cluster with the others.
        """
        alive = np.flatnonzero(self.size)
        all_pairs_from = LEFT if self.many else EXACT
        shown = bar(total=len(alive) - 1, desc="Merges", unit="merge")
        while len(alive) > 1:
            every = len(alive) <= all_pairs_from
            a, b = self._unknown(alive, every)
            gain = self._evaluate(a, b)
            if not self.merges:  # every cluster is one client
                self.distance[a, b] = -gain
                self.distance[b, a] = -gain
            for i, j in self._chosen(alive, every):
                self._join(i, j)
                shown.update()
            alive = np.flatnonzero(self.size)
        shown.close()

    def n_merges(self) -> int:
        """Return how many merges to keep.

        With few clients, those before the first one without a gain; with many, those
        after which the loss in the last fold, not used to choose, is smallest.
        """
        if self.many:
            return int(np.cumsum(self.saved).argmax())
        for kept, (_, _, gain, _) in enumerate(self.merges):
            if gain <= 0:
                return kept
        return len(self.merges)

    def _unknown(self, alive: np.ndarray, every: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of clusters that must be evaluated.

        Parameters
        ----------
        alive : ndarray of int, shape (m,)
            Rows of the clusters that are left.
        every : bool
            Whether all pairs are asked for, or each one's nearest.

        Returns
        -------
        a, b : ndarrays of int
            Rows of the first and of the second of each pair.
        """
        m = len(alive)
        if every:
            asked = np.triu(np.ones((m, m), dtype=bool), 1)  # each pair once
        else:
            asked = nearest(self.seen.take(alive), NEAREST)
        known = self.known[np.ix_(alive, alive)]
        a, b = np.nonzero(asked & ~known)
        return alive[a], alive[b]

    def _evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return and keep the gains of merging clusters a[k] and b[k].

        Positive if one model for both has the lower loss; per client, so that gains of
        small and of large clusters are comparable.
        """
        apart = self.loss[a] + self.loss[b]
        together = self._losses(a, b)
        gain = (apart - together) / (self.size[a] + self.size[b])
        self.gain[a, b] = gain
        self.gain[b, a] = gain
        self.known[a, b] = True
        self.known[b, a] = True
        return gain

    def _chosen(self, alive: np.ndarray, every: bool) -> list[tuple[int, int]]:
        """Return pairs to merge: mutual best ones, the largest gain first.

        It is one pair if all are evaluated (``every``) or none has a gain, otherwise
        all with a gain. ``alive`` (m,): rows of the clusters that are left. If 0 to 4
        gain most with 1, 0, 1, 4 and 3, the pairs are 0 with 1 and 3 with 4.
        """
        gain = self.gain[np.ix_(alive, alive)]  # (m, m)
        best = gain.argmax(axis=1)  # each one's partner
        top = gain.max(axis=1)
        place = np.arange(len(alive))
        chose_each_other = best[best] == place
        pairs = np.flatnonzero(chose_each_other & (place < best))
        pairs = pairs[np.argsort(-top[pairs], kind="stable")]

        gaining = pairs[top[pairs] > 0]
        chosen = gaining
        if every or not len(gaining):
            chosen = pairs[:1]
        return [(alive[i], alive[best[i]]) for i in chosen]

    def _join(self, i: int, j: int) -> None:
        """Merge cluster j into cluster i.

        The gain is [L(S) + L(T) - L(S u T)] / (|S| + |T|), so the loss of the result
        follows from it without another regression.
        """
        gain = self.gain[i, j]
        size = self.size[i] + self.size[j]
        number = len(self.name) + len(self.merges)  # of the merge in the tree
        self.merges.append((self.name[i], self.name[j], gain, size))
        self.name[i] = number
        self.loss[i] += self.loss[j] - gain * size
        self.size[i] = size
        self.size[j] = 0

        self.sums.join(i, j)
        if self.many:
            self.seen.join(i, j)
            self._save(i, j)
        self._forget(i)

    def _save(self, i: int, j: int) -> None:
        """Note how much loss in the last fold the merge of j into i has saved.

        The sum of these up to a merge is what all merges so far have saved, in samples
        that the search has never seen. :meth:`n_merges` stops where it is largest.
        """
        joined = self._held_out([i])[0]
        self.saved.append(self.held_out[i] + self.held_out[j] - joined)
        self.held_out[i] = joined

    def _forget(self, i: int) -> None:
        """Forget the gains of merging cluster i, which has become another one."""
        self.gain[i] = -np.inf
        self.gain[:, i] = -np.inf
        self.known[i] = False
        self.known[:, i] = False
        self.known[i, i] = True

    def _held_out(self, rows) -> np.ndarray:
        """Return losses (r,) of clusters, by their rows (r,), in the last folds."""
        found, _ = losses(self.sums.take(rows), self.all_folds, last=True)
        return found

    def _losses(self, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        """Return the losses that the search uses.

        Parameters
        ----------
        a : ndarray of int, shape (r,)
            Rows of clusters.
        b : ndarray of int, shape (r,), optional
            Rows of the clusters with which they are joined.

        Returns
        -------
        ndarray, shape (r,)
            Computed in batches of 16: a batch of sums fits into the processor's cache,
            and threads take one batch after the other.
        """

        def part(begin: int) -> np.ndarray:
            end = begin + AT_ONCE
            rows = self.seen.take(a[begin:end])
            if b is not None:
                rows = rows.plus(self.seen.take(b[begin:end]))
            found, _ = losses(rows, self.folds)
            return found

        work = [delayed(part)(begin) for begin in range(0, len(a), AT_ONCE)]
        parallel = Parallel(n_jobs=self.n_jobs or None, prefer="threads")
        shown = bar(work, desc="Gains", unit="batch")
        return np.concatenate([np.empty(0), *parallel(shown)])


def _count_classes(y: list[np.ndarray]) -> int:
    """Return one more than the largest class of all clients, at least 2.

    Arrays of numbers to predict have none.

    Examples
    --------
    >>> _count_classes([np.array([0, 3]), np.array([1])])
    4
    """
    largest = 1
    for one in y:
        if one.ndim == 1 and one.dtype.kind in "iu" and len(one):
            largest = max(largest, int(one.max()))
    return largest + 1


def _targets(y: np.ndarray, n_classes: int | None, client: int) -> np.ndarray:
    """Return classes as (n, K) of zeros and ones; numbers to predict as they are.

    Examples
    --------
    >>> _targets(np.array([1, 0]), n_classes=3, client=0).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    if y.ndim == 2 and y.dtype.kind == "f" and np.isfinite(y).all():
        return y
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise FltnbError(
            f"Client {client} needs whole numbers as classes, or finite (n, K) to "
            f"predict, got {y.dtype} of shape {y.shape}."
        )
    if n_classes is None:
        raise FltnbError("A sketch of classes needs their number: give n_classes.")
    if len(y) and not 0 <= y.min() <= y.max() < n_classes:
        raise FltnbError(
            f"Client {client} has labels from {y.min()} to {y.max()}, but classes are "
            f"0 to {n_classes - 1}: correct them or n_classes."
        )
    return np.eye(n_classes)[y]


def _sums(
    phis: list[np.ndarray], target: np.ndarray, parts: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Add up phi phi' and phi y' over the samples of each fold.

    Parameters
    ----------
    phis : list of ndarrays, shape (n, D)
        Features by each draw.
    target : ndarray, shape (n, K)
    parts : list of ndarrays of bool, shape (n,)
        The samples of each fold.

    Returns
    -------
    moments : ndarray, shape (Q, D (D + 1) / 2)
        The upper triangles of A, by draw and within it by fold.
    products : ndarray, shape (Q, D, K)
        B in the same order.
    """
    moments = []
    products = []
    for phi in phis:
        for part in parts:
            # Two copies on purpose: NumPy multiplies an array by itself with
            # another routine, whose last digits differ.
            moments.append(phi[part].T @ phi[part])
            products.append(phi[part].T @ target[part])
    width = phis[0].shape[1]
    rows, columns = np.triu_indices(width)
    return np.array(moments)[:, rows, columns], np.array(products)


def _folds(y: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Divide samples into folds at random, with even sizes and classes.

    A client's first fold is random too. Otherwise a few samples of a class would be in
    the same fold on every client.

    Parameters
    ----------
    y : ndarray, shape (n, K)
        One-hot classes.
    folds : int
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int, shape (n,)
        The fold of every sample. Samples are put in order of their class, at random
        within a class, and then dealt out like cards: to fold 0, 1, 2, 0, 1, 2, ....

    Examples
    --------
    >>> y = np.eye(2)[[0, 0, 0, 1, 1, 1]]
    >>> fold_of = _folds(y, 3, np.random.default_rng(0))
    >>> np.bincount(fold_of).tolist(), sorted(fold_of[:3].tolist())
    ([2, 2, 2], [0, 1, 2])
    """
    order = rng.permutation(len(y))
    classes = y[order].argmax(axis=1)
    order = order[np.argsort(classes, kind="stable")]
    place = np.argsort(order)  # of each sample, among those in order of their class
    return (place + rng.integers(folds)) % folds
