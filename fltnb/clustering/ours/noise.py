"""Noise on the sketches of these clusterers (:mod:`fltnb.clustering.noise`)."""

import numpy as np

from ..base import Sketch
from ..noise import NOISY_SKETCHES, roughened, typical_length
from .merge_gain import MergeGain
from .transport import TransportSignatures

SPLITS = 21  # keys of the draws
SUMS = 25


def _transport(clusterer, level, seed, X, y=None, first=0):
    """Add noise to the centroids of each half, before their distances are computed."""
    clean = TransportSignatures.sketches(clusterer, X, y, first)
    halves = [sketch[half] for sketch in clean for half in ("first", "second")]
    length = level * typical_length(np.concatenate(halves))

    sketches = []
    for i, x in enumerate(X, first):

        def rough(points, split, half, i=i):
            return roughened(points, length, seed, i, SPLITS, split, half)

        sketches.append(clusterer.sketch(x, i, rough))
    return sketches


def _merge_gain(clusterer, level, seed, X, y=None, first=0):
    """Add noise to the sums of each client, in proportion to its number of samples."""
    sketches = MergeGain.sketches(clusterer, X, y, first)
    sums = [_side_by_side(sketch) for sketch in sketches]
    per_fold = [len(x) / clusterer.folds for x in X]  # samples
    means = [own / size for own, size in zip(sums, per_fold, strict=True)]
    length = level * typical_length(np.concatenate(means))

    for i, sketch in enumerate(sketches):
        of_sum = per_fold[i] * length
        rough = roughened(sums[i], of_sum, seed, first + i, SUMS)
        width = sketch["moments"].shape[1]
        sketch["moments"] = rough[:, :width]
        sketch["products"] = rough[:, width:].reshape(sketch["products"].shape)
        sketch["about"][3] = of_sum / np.sqrt(rough.shape[1])
    return sketches


def _side_by_side(sketch: Sketch) -> np.ndarray:
    """Return the sums A and B of a client, (Q, numbers): those of A come first."""
    moments = sketch["moments"]
    products = sketch["products"]
    return np.hstack([moments, products.reshape(len(products), -1)])


NOISY_SKETCHES[MergeGain] = _merge_gain
NOISY_SKETCHES[TransportSignatures] = _transport
