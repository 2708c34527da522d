"""One-shot clusterers: scikit-learn estimators over clients, usable on anybody's embeddings."""

from .fcr import FCR
from .pca_kmeans import PCAKMeans
from .transport import TransportSignatures

CLUSTERERS = ("FCR", "PCAKMeans", "TransportSignatures")

__all__ = ["CLUSTERERS", "FCR", "PCAKMeans", "TransportSignatures"]
