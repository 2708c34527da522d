"""One-shot clusterers: scikit-learn estimators over clients, usable on anybody's embeddings."""

from .fcr import FCR
from .pca_kmeans import PCAKMeans

CLUSTERERS = ("FCR", "PCAKMeans")

__all__ = ["CLUSTERERS", "FCR", "PCAKMeans"]
