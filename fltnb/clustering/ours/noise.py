"""Noise on the sketches of these clusterers (:mod:`fltnb.clustering.noise`).

Both functions replace ``sketches`` of their clusterer, and first compute the sketches
without noise. Only from all clients' sketches is the typical length known by which
``level`` is multiplied: a level of 0.5 is noise half as long as what tells the clients
apart, whatever the units of the data.
"""

from functools import partial

import numpy as np

from ..base import Sketch
from ..noise import NOISY_SKETCHES, roughened, typical_length
from .merge_gain import MergeGain
from .transport import TransportSignatures

# keys of the draws
SPLITS = 21
SUMS = 25


def _transport(clusterer, level, seed, X, y=None, first=0):
    """Add noise to the centroids of each half, before their distances are computed.

    A client measures its distance to itself between two noisy halves. If only what is
    sent were noisy, distances to others would be longer than those within a client for
    the noise alone, and the test would separate equal clients.

    Parameters
    ----------
    clusterer : TransportSignatures
    level, seed
        As for :func:`fltnb.clustering.noise.noisy`.
    X, y, first
        The arguments of :meth:`TransportSignatures.sketches`.
    """
    clean = TransportSignatures.sketches(clusterer, X, y, first)
    halves = []
    for sketch in clean:
        halves.append(sketch["first"])
        halves.append(sketch["second"])
    length = level * typical_length(np.concatenate(halves))

    sketches = []
    for client, x in enumerate(X, first):
        rough = partial(_rough, length, seed, client)
        sketches.append(clusterer.sketch(x, client, rough))
    return sketches


def _rough(
    length: float, seed: int, client: int, points: np.ndarray, split: int, half: int
) -> np.ndarray:
    """Return the centroids (k, e) of one half of a client's samples, with noise.

    ``split`` and ``half``: numbers of the division and of the half, which are keys of
    the draws, as every half of every division gets noise of its own.
    """
    return roughened(points, length, seed, client, SPLITS, split, half)


def _merge_gain(clusterer, level, seed, X, y=None, first=0):
    """Add noise to the sums of each client, in proportion to its number of samples.

    Sums grow with the number of samples, so lengths are compared per sample: a client
    with twice the samples has twice the noise on its sums. Arguments as for
    :func:`_transport`.
    """
    sketches = MergeGain.sketches(clusterer, X, y, first)
    sums = [_side_by_side(sketch) for sketch in sketches]
    per_fold = [len(x) / clusterer.folds for x in X]  # samples
    means = [own / size for own, size in zip(sums, per_fold, strict=True)]
    length = level * typical_length(np.concatenate(means))

    for i, sketch in enumerate(sketches):
        of_sum = per_fold[i] * length
        rough = roughened(sums[i], of_sum, seed, first + i, SUMS)
        width = sketch["moments"].shape[1]
        moments, products = np.split(rough, [width], axis=1)
        sketch["moments"] = moments
        sketch["products"] = products.reshape(sketch["products"].shape)
        # the noise on an entry, which the server takes into account (ridge._lift)
        sketch["about"][3] = of_sum / np.sqrt(rough.shape[1])
    return sketches


def _side_by_side(sketch: Sketch) -> np.ndarray:
    """Return the sums A and B of a client, (Q, numbers): those of A come first."""
    moments = sketch["moments"]
    products = sketch["products"]
    return np.hstack([moments, products.reshape(len(products), -1)])


NOISY_SKETCHES[MergeGain] = _merge_gain
NOISY_SKETCHES[TransportSignatures] = _transport
