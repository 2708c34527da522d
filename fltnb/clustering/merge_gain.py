"""Merge by gain: one-shot clustering by what merging does to the error, instead of how far apart data are.

This project's own, not of any paper. Its constants were frozen before the test (docs/merge_gain.md).
"""

import warnings
from collections.abc import Sequence
from itertools import chain
from typing import Annotated

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Positive, Rate, Whole
from .base import ClientClusterer, Sketch
from .cuts import cut
from .eigen import gaussian_mechanism
from .ridge import Sums, features, losses, nearest, served

SCALE = 3.0  # of the random features, which see x / sqrt(p)
EXACT = 250  # clients up to which all pairs are evaluated
LEFT, NEAREST = (
    60,
    6,
)  # with more: candidates of each cluster, until so few clusters are left that all pairs are
AT_ONCE = 16  # pairs evaluated together: they fit the cache
FEATURES, FOLDS, RELEASE = 22, 23, 24  # keys of the draws


class MergeGain(ClientClusterer):
    r"""Cluster clients by whether one model for both has a lower error than one each.

    **Client.** Random features :math:`\phi(x) = [\mathrm{ReLU}(3 R x / \sqrt p), 1]`, R (p, d) Gaussian from the shared
    seed. Samples are dealt into F folds, every class evenly; of each fold f the client sends :math:`A_f = \Phi'\Phi`,
    :math:`B_f = \Phi'Y` (Y one-hot classes) and :math:`|Y|^2`: no sample, no model.

    **Server.** It knows exactly how well a ridge regression fitted by any set S of clients predicts what it has not
    seen: :math:`W_f = (\sum_S A_{-f} + c \tau I)^{-1} \sum_S B_{-f}`, with :math:`\tau` the mean diagonal of A per
    sample and c from a grid by the loss itself,

    .. math:: L(S) = \sum_{i \in S} \sum_f [\mathrm{tr} W_f' A_{if} W_f - 2 \mathrm{tr} W_f' B_{if} + |Y_{if}|^2] / n_i

    **Merging.** Greedy on the gain :math:`[L(S) + L(T) - L(S \cup T)] / (|S| + |T|)`; where no merge gains it ends, so
    there is no threshold and no number of clusters. With more than 250 clients, those that are each other's best among
    their nearest are merged at a time, until 60 clusters are left, and all of it sees all folds but the last: the best
    of so many gains is partly luck, so the last fold, which chose nothing, says how many merges have the least loss. A
    gain needs sums over S and T only; to search, the server needs those of single clients first.

    Parameters
    ----------
    n_features, folds, n_draws : int, d; F; draws of R, over which losses are averaged
    n_clusters : int or None, where it is known: merging ends there
    n_classes : int or None, classes are 0 to ``n_classes - 1``; ``fit`` can tell them from all clients' y
    epsilon, delta, clip : float or None
        A private release: features clipped to norm ``clip``, Gaussian noise on A and B, and folds that are dealt
        without regard to classes; their sizes are not hidden.
    secret : int
        Seed of that noise. The server knows ``random_state``, so each client of a real release needs one of its own
        that nobody else knows; the default is for simulations.
    random_state, n_jobs : see there; the seed decides R, which must be everybody's, and with the client the folds

    Attributes
    ----------
    gain_ : ndarray (M - 1,), gain of each merge, as the search saw it, as in ``linkage_``, beyond ``n_clusters_`` too
    linkage_ : its heights are the running maximum of ``-gain_``, from 0
    loss_ : ndarray (M,), cross-validated squared error of each client under its cluster's regression
    distance_ : ndarray (M, M), ``-gain`` of merging two clients, negative where they gain; NaN where not evaluated
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

    content, labelled = "samples", True

    def _check_size(self, size: int, client: int) -> None:
        if size < self.folds:
            few = f"Client {client} has {size} samples, fewer than folds={self.folds}"
            raise FltnbError(f"{few}: leave it out or lower folds.")

    def _check_options(self, n_clients: int) -> None:
        super()._check_options(n_clients)
        if n_clients > EXACT and self.folds < 3:
            raise FltnbError(
                f"More than {EXACT} clients need folds=3 or more: one fold judges what the others merged."
            )

    def sketches(
        self,
        X: Sequence[np.ndarray],
        y: Sequence[np.ndarray] | None = None,
        first: int = 0,
    ) -> list[Sketch]:
        """Sketches of all clients, of their samples (n_i, p) and classes (n_i,) or numbers to predict (n_i, K)."""
        if y is None or len(y) != len(X):
            raise FltnbError(
                "MergeGain asks what merging does to predictions: give y, the classes of every client."
            )
        y = [np.asarray(one) for one in y]
        whole = [
            1,
            *(
                int(one.max())
                for one in y
                if one.ndim == 1 and one.dtype.kind in "iu" and len(one)
            ),
        ]
        y = [
            _targets(one, self.n_classes or 1 + max(whole), i)
            for i, one in enumerate(y, first)
        ]
        for i, one in enumerate(y, first):
            if one.shape[1] > 1 and (one == one[0]).all():
                alone = "it predicts that one without error and gains from nobody who holds others."
                warnings.warn(f"Client {i} holds one class only: {alone}", stacklevel=3)
        return self._each("sketch", zip(X, y, strict=True), first)

    def sketch(self, x: np.ndarray, y: np.ndarray, client: int = 0) -> Sketch:
        """Return what a client sends, of samples (n, p) and classes (n,) or numbers to predict (n, K).

        ``moments`` (Q, D (D + 1) / 2), upper triangles of A; ``products`` (Q, D, K); ``squares`` (Q,), all float32;
        ``about`` (4,): number of samples, p, seed, standard deviation of the noise on an entry of A.
        """
        y = _targets(np.asarray(y), self.n_classes, client)
        if len(y) != len(x):
            raise FltnbError(
                f"Client {client} has {len(x)} samples but classes of {len(y)}: give one for each."
            )
        # in a private release no sample may decide another one's fold, so classes are not dealt evenly
        alike = y if self.epsilon is None else np.zeros((len(y), 1))
        fold = _folds(
            alike, int(self.folds), stream(self.random_state, "split", FOLDS, client)
        )
        parts = [fold == f for f in range(self.folds)]
        phis = [self.random_features(x, draw) for draw in range(self.n_draws)]
        squares, sigma = [(y[part] ** 2).sum() for part in parts], 0.0
        if self.epsilon is not None:
            # in another sample's place A / clip^2 moves by sqrt(2) at most, B / clip by 2
            sigma = np.sqrt(6 * self.n_draws) * gaussian_mechanism(
                self.epsilon, self.delta
            )
            phis = [
                phi * np.minimum(1, self.clip / np.linalg.norm(phi, axis=1))[:, None]
                for phi in phis
            ]
            y = y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1)
            squares = [part.sum() for part in parts]  # a constant of every gain
        moments = np.array([phi[part].T @ phi[part] for phi in phis for part in parts])
        products = np.array([phi[part].T @ y[part] for phi in phis for part in parts])
        moments = moments[(slice(None), *np.triu_indices(moments.shape[1]))]
        noise, rng = (
            sigma * (self.clip or 1),
            stream(self.secret, "method", RELEASE, client),
        )
        if sigma:
            moments = moments + noise * self.clip * rng.normal(size=moments.shape)
            products = products + noise * rng.normal(size=products.shape)
        sent = {
            "moments": moments,
            "products": products,
            "squares": np.tile(squares, self.n_draws),
        }
        about = np.array(
            [len(x), x.shape[1], self.random_state, noise * (self.clip or 1)]
        )
        return {name: array.astype(np.float32) for name, array in sent.items()} | {
            "about": about
        }

    def random_features(self, x: np.ndarray, draw: int = 0) -> np.ndarray:
        """Return phi (n, d + 1) of samples (n, p), by one draw of R."""
        matrix = stream(self.random_state, "method", FEATURES, draw).normal(
            size=(x.shape[1], self.n_features)
        )
        return features(x.astype(np.float64), matrix * (SCALE / np.sqrt(x.shape[1])))

    def predict_sketch(self, sketches: Sequence[Sketch]) -> np.ndarray:
        """Place newcomers, int64: the cluster that gains most in all by taking one in; -1, a new one, if none gains."""
        if not hasattr(self, "labels_"):
            raise FltnbError(
                "This MergeGain has not seen any clients yet: call fit first."
            )
        new, place = self._sums(sketches, self._like), []
        for i, alone in enumerate(losses(new, self.folds)[0]):
            gain = (
                self._cluster_losses
                + alone
                - losses(self._clusters.plus(new.take([i])), self.folds)[0]
            )
            place.append(gain.argmax() if gain.max() > 0 else -1)
        return np.array(place, dtype=np.int64)

    def _sums(self, sketches: Sequence[Sketch], like: tuple | None = None) -> Sums:
        for i, one in enumerate(sketches):
            if one["about"][2] != self.random_state:
                seeds = f"drew its features from seed {one['about'][2]:g}, the server has {self.random_state}"
                raise FltnbError(
                    f"Client {i} {seeds}: give everybody the same random_state."
                )
            shape = (
                *one["moments"].shape,
                *one["products"].shape,
                int(one["about"][1]),
            )
            self._like = like = like or shape
            if shape != like:
                found = f"Client {i} sends arrays of shape {shape}, others {like}"
                raise FltnbError(
                    f"{found}: give everybody the same features, folds, draws and classes."
                )
        return Sums.of(sketches)

    def _relate(self, sketches, answers) -> None:
        sums = self._sums(sketches)
        with threadpool_limits(1):
            tree, found = self._merge(Sums(*(part.copy() for part in sums)))
            order = np.column_stack(
                [tree[:, :2], 1 + np.arange(len(tree)), tree[:, 3]]
            )  # heights may be equal
            self._keep(self.distance_, tree, cut(order, self.n_clusters or found))
            member = np.eye(self.n_clusters_)[self.labels_].T
            self._clusters = Sums(*(np.tensordot(member, part, 1) for part in sums))
            self._cluster_losses, weights = losses(self._clusters, self.folds)
            self.loss_ = served(sums, weights[self.labels_], self.folds)

    def _losses(
        self, sums: Sums, folds: int, a: np.ndarray, b: np.ndarray | None = None
    ) -> np.ndarray:
        """Losses of rows of sums, or of pairs of rows joined."""

        def part(at: slice) -> np.ndarray:
            rows = sums.take(a[at])
            return losses(rows if b is None else rows.plus(sums.take(b[at])), folds)[0]

        work = (
            delayed(part)(slice(at, at + AT_ONCE)) for at in range(0, len(a), AT_ONCE)
        )
        return np.concatenate(
            [np.empty(0), *Parallel(n_jobs=self.n_jobs or None, prefer="threads")(work)]
        )

    def _merge(self, sums: Sums) -> tuple[np.ndarray, int]:
        """Merge up to one cluster, adding up ``sums`` in place; return the tree and how many clusters to keep."""
        m, folds, both = len(sums.size), self.folds, (sums,)
        if many := m > EXACT:
            both, folds = (sums, sums.but_last(folds)), folds - 1
            held, saved = losses(sums, self.folds, last=True)[0], [0.0]
        seen = both[-1]
        loss, name, size = (
            self._losses(seen, folds, np.arange(m)),
            np.arange(m),
            np.ones(m, dtype=int),
        )
        gain, known = np.full((m, m), -np.inf), np.eye(m, dtype=bool)
        self.distance_, rows = np.where(known, 0.0, np.nan), []
        while len(alive := np.flatnonzero(size)) > 1:
            every = len(alive) <= (LEFT if many else EXACT)
            asked = (
                np.tri(len(alive), k=-1, dtype=bool).T
                if every
                else nearest(seen.take(alive), NEAREST)
            )
            a, b = (
                alive[at] for at in np.nonzero(asked & ~known[np.ix_(alive, alive)])
            )
            gain[a, b] = gain[b, a] = (
                loss[a] + loss[b] - self._losses(seen, folds, a, b)
            ) / (size[a] + size[b])
            known[a, b] = known[b, a] = True
            if not rows:
                self.distance_[a, b] = self.distance_[b, a] = -gain[a, b]
            here = gain[np.ix_(alive, alive)]
            best, top = here.argmax(1), here.max(1)
            mutual = np.flatnonzero(
                (best[best] == np.arange(len(alive))) & (np.arange(len(alive)) < best)
            )
            mutual = mutual[np.argsort(-top[mutual], kind="stable")]
            gains = top[mutual] > 0
            mutual = mutual[gains] if gains.any() and not every else mutual[:1]
            for i, j in zip(alive[mutual], alive[best[mutual]], strict=True):
                size[i], size[j] = size[i] + size[j], 0
                rows.append((name[i], name[j], gain[i, j], size[i]))
                loss[i] += loss[j] - gain[i, j] * size[i]
                for part in chain(*both):
                    part[i] += part[j]
                if many:
                    joined = losses(sums.take([i]), self.folds, last=True)[0][0]
                    saved.append(held[i] + held[j] - joined)
                    held[i] = joined
                name[i] = m + len(rows) - 1
                gain[i] = gain[:, i] = gain[:, j] = -np.inf
                known[i] = known[:, i] = False
                known[i, i] = True
        tree = np.array(rows)
        self.gain_ = tree[:, 2].copy()
        tree[:, 2] = np.maximum.accumulate(-self.gain_) + self.gain_[0]
        kept = (
            np.cumsum(saved).argmax()
            if many
            else (np.append(self.gain_, 0) <= 0).argmax()
        )
        return tree, m - int(kept)


def _targets(y: np.ndarray, n_classes: int | None, client: int) -> np.ndarray:
    """Return classes as (n, K) of zeros and ones; numbers to predict as they are."""
    if y.ndim == 2 and y.dtype.kind == "f" and np.isfinite(y).all():
        return y
    if y.ndim != 1 or y.dtype.kind not in "iu":
        found = f"got {y.dtype} of shape {y.shape}"
        raise FltnbError(
            f"Client {client} needs whole numbers as classes, or finite (n, K) to predict, {found}."
        )
    if n_classes is None:
        raise FltnbError(
            "A sketch of classes needs to know how many there are: give n_classes."
        )
    if len(y) and not 0 <= y.min() <= y.max() < n_classes:
        found = f"labels from {y.min()} to {y.max()}"
        raise FltnbError(
            f"Client {client} has {found}, but classes are 0 to {n_classes - 1}: mend them or n_classes."
        )
    return np.eye(n_classes)[y]


def _folds(y: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Fold of every sample (n,), drawn at random, sizes and classes even.

    A client's first fold is drawn too: else few samples of a class would be in the same fold on every client.
    """
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order].argmax(1), kind="stable")]
    return (np.argsort(order) + rng.integers(folds)) % folds
