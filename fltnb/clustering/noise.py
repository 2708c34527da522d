"""Clusterers whose clients add Gaussian noise to everything that they send.

For studies of their robustness to noise. The level is the expected length of the noise
on a vector, as a multiple of the typical length of such vectors around their mean. It
is not a privacy guarantee (see ``epsilon`` of EigenRelevance).
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.base import clone

from ..errors import FltnbError
from ..randomness import stream
from ..settings import Natural, NonNegative, check
from .base import of_all
from .eigen import EigenRelevance, MeanImage
from .emd import EMDClustering
from .fcr import FCR
from .pacfl import PACFL

SENT = 20  # key of the draws, apart from those of the clusterers


def noisy(clusterer, level: float, seed: int = 0):
    """Return an unfitted copy of a clusterer whose clients add noise to their sketches.

    - FCR: to the centroids; MeanImage: to the means.
    - TransportSignatures: to the centroids of both halves; a client compares its
      *noisy* halves.
    - EMDClustering: to all embeddings, training and validation, in units of those of
      the client to which the network belongs.
    - MergeGain: to A and B of every fold, per sample; the server knows how much, as in
      a private release.
    - EigenRelevance, PACFL: to the vectors, of length 1; the server scales PACFL's back
      to that length.

    Parameters
    ----------
    clusterer : ClientClusterer
        One of these, fitted or not.
    level : float
        Expected length of the noise on a vector, as a multiple of the typical length of
        such vectors around their mean; at least 0.
    seed : int
        Seed of the noise. EigenRelevance draws it from its ``random_state`` instead.

    Raises
    ------
    FltnbError
        It is another clusterer, or level or seed is below 0.
    """
    level = float(check("The level of noise", level, NonNegative))
    seed = check("The seed of noise", seed, Natural)
    if isinstance(clusterer, EigenRelevance):
        return clone(clusterer).set_params(noise=level)

    made = type(clusterer)
    if made not in NOISY_SKETCHES:
        raise FltnbError(
            f"Noise on what {made.__name__} sends is not defined: leave it out."
        )
    copy = made(**clusterer.get_params(deep=False))
    copy.sketches = partial(NOISY_SKETCHES[made], copy, level, seed)
    # methods fit a clone, with the options that the copy has by then
    copy.__sklearn_clone__ = partial(noisy, copy, level, seed)
    return copy


def roughened(points: np.ndarray, length: float, seed: int, *keys: int) -> np.ndarray:
    """Return points (n, d) with noise of this expected length added to each.

    It is drawn from the stream of the keys.
    """
    noise = stream(seed, "method", SENT, *keys).normal(size=points.shape)
    per_entry = length / np.sqrt(points.shape[1])
    return points + per_entry * noise


def typical_length(points: np.ndarray) -> float:
    """Root mean square distance of points (n, d) from their mean."""
    squares = ((points - points.mean(axis=0)) ** 2).sum(axis=1)
    return float(np.sqrt(squares.mean()))


# The classes' ``sketches`` with noise: they take the clusterer, the level and the seed
# of the noise, and then the arguments of ``sketches``.


def _fcr(fcr, level, seed, X, y=None, first=0):
    """Add noise to FCR's centroids.

    The length is ``level`` times a typical centroid's; the rest are the arguments of
    :meth:`sketches`. The same holds for the functions below.
    """
    clean = of_all(FCR.sketches(fcr, X, y, first), "centroids")
    length = level * typical_length(np.concatenate(clean))
    rough = []
    for i, centroids in enumerate(clean, first):
        rough.append(roughened(centroids, length, seed, i))
    # k-means with k centroids on k points gives back these points
    return FCR.sketches(fcr, rough, y, first)


def _mean_image(clusterer, level, seed, X, y=None, first=0):
    """Add noise to the mean of each client."""
    clean = MeanImage.sketches(clusterer, X, y, first)
    means = np.stack(of_all(clean, "mean"))
    length = level * typical_length(means)
    sketches = []
    for i in range(len(means)):
        (mean,) = roughened(means[[i]], length, seed, first + i)
        sketches.append({"mean": mean})
    return sketches


def _emd(clusterer, level, seed, X, y=None, first=0):
    """Add noise to the embeddings that clients send each other."""
    if y is None:
        raise FltnbError(
            "Noise on what EMD-CFL sends needs validation embeddings: give y."
        )
    lengths = [level * typical_length(x) for x in X]

    def validation(i: int) -> list[np.ndarray]:
        """All clients' noisy validation samples under the encoder of client i."""
        clean = y(i) if callable(y) else y[i]
        rough = []
        for j, z in enumerate(clean, 1):  # key 0 is that of i's training samples
            rough.append(roughened(np.asarray(z), lengths[i], seed, i, j))
        return rough

    trained = [roughened(x, lengths[i], seed, i, 0) for i, x in enumerate(X)]
    return EMDClustering.sketches(clusterer, trained, validation, first)


def _pacfl(clusterer, level, seed, X, y=None, first=0):
    """Add noise to singular vectors, which keep the length 1."""
    sketches = []
    clean = PACFL.sketches(clusterer, X, y, first)
    for i, sketch in enumerate(clean, first):
        vectors = roughened(sketch["vectors"].T, level, seed, i).T
        lengths = np.linalg.norm(vectors, axis=0)
        sketches.append({"vectors": vectors / lengths})
    return sketches


# The functions for noisy sketches of each class; ``ours`` adds more.
NOISY_SKETCHES: dict[type, Callable] = {
    FCR: _fcr,
    MeanImage: _mean_image,
    EMDClustering: _emd,
    PACFL: _pacfl,
}
