"""Clusterers whose clients add Gaussian noise to whatever they send: for studies of how much they bear.

The level is the expected length of the noise on a vector, as a multiple of the typical length of such vectors about the
mean of all. It is no privacy guarantee (see ``epsilon`` of EigenRelevance).
"""

from functools import partial

import numpy as np
from sklearn.base import clone

from ..errors import FltnbError
from ..randomness import stream
from ..settings import NonNegative, check
from .eigen import EigenRelevance, MeanImage
from .emd import EMDClustering
from .fcr import FCR
from .merge_gain import MergeGain
from .pacfl import PACFL
from .transport import TransportSignatures

SENT, SPLITS, SUMS = 20, 21, 25  # keys of the draws, apart from those of the clusterers


def noisy(clusterer, level: float, seed: int = 0):
    """Return an unfitted copy of a clusterer whose clients add noise to what they send.

    - FCR: to the centroids; MeanImage: to the means.
    - TransportSignatures: to the centroids of both halves; a client compares its *noisy* halves.
    - EMDClustering: to all embeddings, training and validation, in units of those of the client whose network it is.
    - MergeGain: to A and B of every fold, per sample; the server knows how much, as in a private release.
    - EigenRelevance, PACFL: to the vectors, of length 1; the server scales PACFL's back to that length.

    FltnbError: another clusterer, or a level that is no such number.
    """
    level = float(check("The level of noise", level, NonNegative))
    if isinstance(clusterer, EigenRelevance):
        return clone(clusterer).set_params(noise=level)
    kind, out = type(clusterer), clone(clusterer)
    if kind not in _KINDS:
        raise FltnbError(
            f"What noise on {kind.__name__} would be is not defined: leave it out."
        )
    out.sketches = partial(_KINDS[kind], out, level, int(seed))
    out.__sklearn_clone__ = partial(
        noisy, clusterer, level, seed
    )  # methods fit a clone
    return out


def roughened(points: np.ndarray, length: float, seed: int, *keys: int) -> np.ndarray:
    """Points (n, d) with noise of this expected length added to each, drawn from the stream of the keys."""
    noise = stream(seed, "method", SENT, *keys).normal(size=points.shape)
    return points + length / np.sqrt(points.shape[1]) * noise


def typical_length(points: np.ndarray) -> float:
    """Root mean square distance of points (n, d) from their mean."""
    return float(np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()))


def _fcr(own, level, seed, X, y=None, first=0):
    clean = [sketch["centroids"] for sketch in FCR.sketches(own, X, y, first)]
    length = level * typical_length(np.concatenate(clean))
    rough = [
        roughened(centres, length, seed, i) for i, centres in enumerate(clean, first)
    ]
    return FCR.sketches(
        own, rough, y, first
    )  # k-means with k centroids on k points gives back these points


def _mean_image(own, level, seed, X, y=None, first=0):
    means = np.stack(
        [sketch["mean"] for sketch in MeanImage.sketches(own, X, y, first)]
    )
    length = level * typical_length(means)
    return [
        {"mean": roughened(one[None], length, seed, i)[0]}
        for i, one in enumerate(means, first)
    ]


def _transport(own, level, seed, X, y=None, first=0):
    clean = TransportSignatures.sketches(own, X, y, first)
    length = level * typical_length(
        np.concatenate([s[half] for s in clean for half in ("first", "second")])
    )
    return [
        own.sketch(
            x,
            i,
            lambda points, *split, i=i: roughened(
                points, length, seed, i, SPLITS, *split
            ),
        )
        for i, x in enumerate(X, first)
    ]


def _merge_gain(own, level, seed, X, y=None, first=0):
    clean = MergeGain.sketches(own, X, y, first)
    flat = [
        np.hstack(
            [s[name].reshape(len(s["squares"]), -1) for name in ("moments", "products")]
        )
        for s in clean
    ]
    each = [len(x) / own.folds for x in X]
    length = level * typical_length(
        np.concatenate([one / n for one, n in zip(flat, each, strict=True)])
    )
    for i, (sketch, one, n) in enumerate(zip(clean, flat, each, strict=True)):
        rough = roughened(one, n * length, seed, first + i, SUMS)
        cut = sketch["moments"].shape[1]
        sketch["moments"], sketch["products"] = (
            rough[:, :cut],
            rough[:, cut:].reshape(sketch["products"].shape),
        )
        sketch["about"][3] = n * length / np.sqrt(one.shape[1])
    return clean


def _emd(own, level, seed, X, y=None, first=0):
    if y is None:
        raise FltnbError(
            "Noise on what EMD-CFL sends needs validation embeddings: give y."
        )
    given = y if callable(y) else list(y).__getitem__
    lengths = [level * typical_length(x) for x in X]

    def validation(i: int) -> list[np.ndarray]:
        return [
            roughened(np.asarray(z), lengths[i], seed, i, 1 + j)
            for j, z in enumerate(given(i))
        ]

    rough = [roughened(x, lengths[i], seed, i, 0) for i, x in enumerate(X)]
    return EMDClustering.sketches(own, rough, validation, first)


def _pacfl(own, level, seed, X, y=None, first=0):
    clean = [sketch["vectors"] for sketch in PACFL.sketches(own, X, y, first)]
    rough = [
        roughened(vectors.T, level, seed, i).T for i, vectors in enumerate(clean, first)
    ]
    return [{"vectors": vectors / np.linalg.norm(vectors, axis=0)} for vectors in rough]


_KINDS = {
    FCR: _fcr,
    MeanImage: _mean_image,
    TransportSignatures: _transport,
    MergeGain: _merge_gain,
}
_KINDS |= {EMDClustering: _emd, PACFL: _pacfl}
