"""Clusterers whose clients add Gaussian noise to whatever they send: for studies of how much they bear.

The level is the expected length of the noise on a vector, as a multiple of the typical length of such vectors about the
mean of all. It is no privacy guarantee (see ``epsilon`` of EigenRelevance).
"""

import numpy as np
from sklearn.base import clone

from ..errors import FltnbError
from ..randomness import stream
from ..settings import NonNegative, check
from .eigen import EigenRelevance
from .emd import EMDClustering
from .fcr import FCR
from .merge_gain import MergeGain
from .pacfl import PACFL
from .transport import TransportSignatures

SENT, SPLITS, SUMS = 20, 21, 25  # keys of the draws, apart from those of the clusterers


def noisy(clusterer, level: float, seed: int = 0):
    """Return an unfitted copy of a clusterer whose clients add noise to what they send.

    - FCR: to the centroids. TransportSignatures: to those of both halves; a client compares its *noisy* halves.
    - EMDClustering: to all embeddings, training and validation, in units of those of the client whose network it is.
    - MergeGain: to A and B of every fold, per sample; the server knows how much, as in a private release.
    - EigenRelevance, PACFL: to the vectors, of length 1; the server scales PACFL's back to that length.

    FltnbError: another clusterer, or a level that is no such number.
    """
    level = float(check("The level of noise", level, NonNegative))
    if isinstance(clusterer, EigenRelevance):
        return clone(clusterer).set_params(noise=level)
    made = _KINDS.get(type(clusterer))
    if made is None:
        raise FltnbError(f"What noise on {type(clusterer).__name__} would be is not defined: leave it out.")
    out = made(**clusterer.get_params())
    out.level, out.noise_seed = level, int(seed)
    return out


def roughened(points: np.ndarray, length: float, seed: int, *keys: int) -> np.ndarray:
    """Points (n, d) with noise of this expected length added to each, drawn from the stream of the keys."""
    noise = stream(seed, "method", SENT, *keys).normal(size=points.shape)
    return points + length / np.sqrt(points.shape[1]) * noise


def typical_length(points: np.ndarray) -> float:
    """Root mean square distance of points (n, d) from their mean."""
    return float(np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()))


class _FCR(FCR):
    def sketches(self, X, y=None, first=0):
        clean = [sketch["centroids"] for sketch in super().sketches(X, y, first)]
        length = self.level * typical_length(np.concatenate(clean))
        rough = [roughened(centres, length, self.noise_seed, i) for i, centres in enumerate(clean, first)]
        return super().sketches(rough, y, first)  # k-means with k centroids on k points gives back these points


class _Transport(TransportSignatures):
    def sketches(self, X, y=None, first=0):
        clean = super().sketches(X, y, first)
        length = self.level * typical_length(np.concatenate([s[half] for s in clean for half in ("first", "second")]))
        return [
            self.sketch(x, i, lambda points, *split, i=i: roughened(points, length, self.noise_seed, i, SPLITS, *split))
            for i, x in enumerate(X, first)
        ]


class _MergeGain(MergeGain):
    def sketches(self, X, y=None, first=0):
        clean = super().sketches(X, y, first)
        flat = [np.hstack([s[name].reshape(len(s["squares"]), -1) for name in ("moments", "products")]) for s in clean]
        each = [len(x) / self.folds for x in X]
        length = self.level * typical_length(np.concatenate([one / n for one, n in zip(flat, each, strict=True)]))
        for i, (sketch, one, n) in enumerate(zip(clean, flat, each, strict=True)):
            rough = roughened(one, n * length, self.noise_seed, first + i, SUMS)
            cut = sketch["moments"].shape[1]
            sketch["moments"], sketch["products"] = rough[:, :cut], rough[:, cut:].reshape(sketch["products"].shape)
            sketch["about"][3] = n * length / np.sqrt(one.shape[1])
        return clean


class _EMD(EMDClustering):
    def sketches(self, X, y=None, first=0):
        if y is None:
            raise FltnbError("Noise on what EMD-CFL sends needs validation embeddings: give y.")
        given = y if callable(y) else list(y).__getitem__
        lengths = [self.level * typical_length(x) for x in X]

        def validation(i: int) -> list[np.ndarray]:
            return [roughened(np.asarray(z), lengths[i], self.noise_seed, i, 1 + j) for j, z in enumerate(given(i))]

        rough = [roughened(x, lengths[i], self.noise_seed, i, 0) for i, x in enumerate(X)]
        return super().sketches(rough, validation, first)


class _PACFL(PACFL):
    def sketch(self, x, classes=None, client=0):
        vectors = super().sketch(x, classes, client)["vectors"]
        rough = roughened(vectors.T, self.level, self.noise_seed, client).T
        return {"vectors": rough / np.linalg.norm(rough, axis=0)}


_KINDS = {FCR: _FCR, MergeGain: _MergeGain, TransportSignatures: _Transport, EMDClustering: _EMD, PACFL: _PACFL}
