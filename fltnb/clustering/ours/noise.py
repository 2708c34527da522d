"""Noise on the sketches of these clusterers (:mod:`fltnb.clustering.noise`)."""

import numpy as np

from ..noise import NOISY_SKETCHES, roughened, typical_length
from .merge_gain import MergeGain
from .transport import TransportSignatures

SPLITS = 21  # keys of the draws
SUMS = 25


def _transport(clusterer, level, seed, X, y=None, first=0):
    """Roughen the centroids of each half, before distances are taken from them."""
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
    """Roughen the sums of each client, in proportion to its number of samples."""
    sketches = MergeGain.sketches(clusterer, X, y, first)
    # of each client its sums A and B side by side, (Q, numbers), and per sample
    sums = []
    means = []
    per_fold = [len(x) / clusterer.folds for x in X]
    for sketch, size in zip(sketches, per_fold, strict=True):
        products = sketch["products"].reshape(len(sketch["products"]), -1)
        both = np.hstack([sketch["moments"], products])
        sums.append(both)
        means.append(both / size)
    length = level * typical_length(np.concatenate(means))

    for i, sketch in enumerate(sketches):
        of_sum = per_fold[i] * length
        rough = roughened(sums[i], of_sum, seed, first + i, SUMS)
        width = sketch["moments"].shape[1]
        sketch["moments"] = rough[:, :width]
        sketch["products"] = rough[:, width:].reshape(sketch["products"].shape)
        sketch["about"][3] = of_sum / np.sqrt(rough.shape[1])
    return sketches


NOISY_SKETCHES[MergeGain] = _merge_gain
NOISY_SKETCHES[TransportSignatures] = _transport
