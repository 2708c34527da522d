"""Gaussian noise for what a client releases under differential privacy."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr


class Noise(NamedTuple):
    """Gaussian noise of a private release."""

    sigma: float  # its standard deviation
    clip: float  # the norm to which samples are clipped


def clipped(x: np.ndarray, norm: float) -> np.ndarray:
    """Return rows of x (n, d), scaled down to this norm if they are longer."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return x * np.minimum(1, norm / np.maximum(lengths, 1e-300))


def gaussian_mechanism(epsilon: float, delta: float) -> float:
    """Return the smallest deviation that makes Gaussian noise (epsilon, delta) private.

    It is per unit of L2 sensitivity, and exact, by Theorem 8 of Balle and Wang
    ("Improving the Gaussian mechanism for differential privacy", ICML 2018).
    """

    def excess(log_sigma: float) -> float:
        near = 0.5 / np.exp(log_sigma)
        far = epsilon * np.exp(log_sigma)
        # e^epsilon times a probability too small for a float, by its logarithm
        other = np.exp(epsilon + log_ndtr(-near - far))
        return ndtr(near - far) - other - delta

    return float(np.exp(brentq(excess, -25, 25, xtol=1e-13)))
