"""Mean image: clients by their mean samples alone, the baseline that a clusterer has to beat. This project's own."""

import numpy as np
from scipy.spatial.distance import pdist, squareform

from ..settings import Count
from .base import ClientClusterer, Sketch
from .eigen import by_silhouette


class MeanImage(ClientClusterer):
    """Cluster clients by average linkage of their mean samples, d numbers each; nothing is drawn.

    Parameters and ``criterion_`` are those of :class:`~fltnb.relatedness.eigen.EigenRelevance`.
    """

    n_clusters: Count | None = None
    max_clusters: Count | None = None
    n_jobs: int | None = None

    content, linkage = "features", "average"

    def sketch(self, x: np.ndarray, client: int = 0) -> Sketch:
        """Return the ``mean`` (d,) of a client's samples (n, d)."""
        return {"mean": x.mean(axis=0, dtype=np.float64)}

    def _relate(self, sketches, answers) -> None:
        means = np.stack([sketch["mean"] for sketch in sketches])
        self._keep(*by_silhouette(self, squareform(pdist(means))))
