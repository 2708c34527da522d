"""One-shot clusterers: scikit-learn estimators over clients, usable on anybody's embeddings."""

from .eigen import EigenRelevance
from .emd import EMDClustering
from .fcr import FCR
from .pacfl import PACFL
from .pca_kmeans import PCAKMeans
from .transport import TransportSignatures

CLUSTERERS = ("EMDClustering", "EigenRelevance", "FCR", "PACFL", "PCAKMeans", "TransportSignatures")

__all__ = ["CLUSTERERS", "FCR", "PACFL", "EMDClustering", "EigenRelevance", "PCAKMeans", "TransportSignatures"]
