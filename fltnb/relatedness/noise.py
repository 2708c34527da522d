"""Clusterers whose clients add Gaussian noise to whatever they send: for studies of how much they bear.

The level is the expected length of the noise on one vector that is sent, as a multiple of the typical length of such a
vector about the mean of all of them. This makes clusterers that send different things comparable; it is no privacy
guarantee (for those see ``epsilon`` of EigenRelevance and TransportSignatures).
"""

from __future__ import annotations

import numbers

import numpy as np
from scipy.spatial.distance import cdist

from ..errors import FltnbError
from ..randomness import integer, stream
from .base import centroids, check_clients
from .eigen import EigenRelevance
from .emd import EMDClustering
from .fcr import FCR
from .pacfl import PACFL
from .signatures import Signature, _filled, _halves, transport
from .transport import TransportSignatures

SENT, SPLITS = 20, 21  # keys of the draws, apart from those of the clusterers


def noisy(clusterer, level: float, seed: int = 0):
    """Return an unfitted copy of a clusterer whose clients add noise to what they send.

    - FCR: to the centroids.
    - TransportSignatures: to the centroids of both halves; a client compares its *noisy* halves with each other.
    - EMDClustering: to all embeddings, training and validation, in units of the embeddings of the client whose network
      it is; the reference is measured on noisy embeddings too.
    - EigenRelevance, PACFL: to the vectors, of length 1; the server scales PACFL's back to that length.

    Parameters
    ----------
    clusterer : FCR, TransportSignatures, EMDClustering, EigenRelevance or PACFL
    level : float
        At least 0; 0 adds nothing.
    seed : int

    Raises
    ------
    FltnbError
        Another clusterer, or a level that is no such number.
    """
    if not isinstance(level, numbers.Real) or isinstance(level, bool) or not 0 <= level < np.inf:
        raise FltnbError(f"The level of noise must be a number of 0 or more, not {level!r}.")
    parameters = clusterer.get_params()
    if isinstance(clusterer, EigenRelevance):
        return type(clusterer)(**parameters | {"noise": level})
    made = _KINDS.get(type(clusterer))
    if made is None:
        raise FltnbError(f"What noise on {type(clusterer).__name__} would be is not defined: leave it out.")
    out = made(**parameters)
    out.level, out.noise_seed = float(level), int(seed)
    return out


def roughened(points: np.ndarray, length: float, seed: int, *keys: int) -> np.ndarray:
    """Points (n, d) with noise of this expected length added to each, drawn from the stream of the keys."""
    noise = stream(seed, "method", SENT, *keys).normal(size=points.shape)
    return points + length / np.sqrt(points.shape[1]) * noise


def typical_length(points: np.ndarray) -> float:
    """Root mean square distance of points (n, d) from their mean.

    Examples
    --------
    >>> typical_length(np.array([[0.0, 0.0], [6.0, 8.0]]))
    5.0
    """
    return float(np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()))


class _FCR(FCR):
    def fit(self, X, y=None):
        X = check_clients(X)
        k = self.check([len(x) for x in X])
        centres, _ = centroids(X, k, self.n_init, integer(int(self.random_state), "kmeans"), self.n_jobs)
        length = self.level * typical_length(np.concatenate(centres))
        # k-means with k centroids on k points gives back these points
        return super().fit([roughened(c, length, self.noise_seed, i) for i, c in enumerate(centres)])


class _Transport(TransportSignatures):
    def _describe(self, X, first):
        clean = super()._describe(X, first)
        length = self.level * typical_length(np.concatenate([s.points[s.shares > 0] for s in clean]))
        return [self._noisy(np.asarray(z, dtype=np.float64), i, length) for i, z in enumerate(X, first)]

    def _noisy(self, z: np.ndarray, i: int, length: float) -> Signature:
        own, sent = [], None
        for split in range(int(self.n_splits)):
            halves = [
                (roughened(points, length, self.noise_seed, i, SPLITS, split, half), shares)
                for half, (points, shares) in enumerate(
                    _halves(z, int(self.k), stream(int(self.random_state), "kmeans", i, split), None)
                )
            ]
            (a, share_a), (b, share_b) = halves
            own.append(transport(share_a, share_b, cdist(a, b)))
            sent = sent or halves
        return Signature(*_filled(sent, int(self.k)), np.array(own))


class _EMD(EMDClustering):
    def fit(self, X, y=None):
        X = check_clients(X)
        if y is None:
            raise FltnbError("Noise on what EMD-CFL sends needs validation embeddings: give y.")
        given = y if callable(y) else list(y).__getitem__
        lengths = [self.level * typical_length(x) for x in X]

        def validation(i: int) -> list[np.ndarray]:
            return [roughened(np.asarray(z), lengths[i], self.noise_seed, i, 1 + j) for j, z in enumerate(given(i))]

        return super().fit([roughened(x, lengths[i], self.noise_seed, i, 0) for i, x in enumerate(X)], validation)


class _PACFL(PACFL):
    def _basis(self, i, x, classes):
        basis = super()._basis(i, x, classes)
        rough = roughened(basis.T, self.level, self.noise_seed, i).T
        return rough / np.linalg.norm(rough, axis=0)


_KINDS = {FCR: _FCR, TransportSignatures: _Transport, EMDClustering: _EMD, PACFL: _PACFL}
