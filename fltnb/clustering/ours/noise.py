"""What noise on the sketches of these clusterers is (:mod:`fltnb.clustering.noise`)."""

import numpy as np

from ..noise import NOISY_SKETCHES, roughened, typical_length
from .merge_gain import MergeGain
from .transport import TransportSignatures

SPLITS = 21  # keys of the draws
SUMS = 25


def _transport(clusterer, level, seed, X, y=None, first=0):
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
    sketches = MergeGain.sketches(clusterer, X, y, first)
    sums = []
    for sketch in sketches:
        parts = len(sketch["squares"])
        products = sketch["products"].reshape(parts, -1)
        sums.append(np.hstack([sketch["moments"], products]))

    per_fold = [len(x) / clusterer.folds for x in X]
    means = [one / size for one, size in zip(sums, per_fold, strict=True)]
    length = level * typical_length(np.concatenate(means))

    for i, sketch in enumerate(sketches):
        size = per_fold[i]
        rough = roughened(sums[i], size * length, seed, first + i, SUMS)
        width = sketch["moments"].shape[1]
        sketch["moments"] = rough[:, :width]
        sketch["products"] = rough[:, width:].reshape(sketch["products"].shape)
        sketch["about"][3] = size * length / np.sqrt(rough.shape[1])

    return sketches


NOISY_SKETCHES[MergeGain] = _merge_gain
NOISY_SKETCHES[TransportSignatures] = _transport
