"""Clients by the leading singular directions of what they send: shared by FlexCFL and CFLGP."""

from __future__ import annotations

import numpy as np


def leading_features(products: np.ndarray, n_components: int) -> np.ndarray:
    """Coordinates (n, K) of n vectors along their K leading singular directions, from their Gram matrix (n, n).

    With ``vectors' = U S V'`` these are the first K columns of ``V S``; U, as long as the vectors, is never formed.
    """
    values, vectors = np.linalg.eigh(products)
    order = np.argsort(-values, kind="stable")[:n_components]
    return vectors[:, order] * np.sqrt(np.maximum(values[order], 0))


def quick_kmeans(features: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Labels (n,) of the best of ten k-means++ starts, at most 20 iterations each."""
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than groups
        return KMeans(n_clusters, n_init=10, max_iter=20, random_state=seed).fit_predict(features)
