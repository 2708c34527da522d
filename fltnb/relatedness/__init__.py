"""One-shot clusterers: scikit-learn estimators over clients, usable on anybody's embeddings."""

from .eigen import EigenRelevance
from .emd import EMDClustering
from .fcr import FCR
from .pacfl import PACFL
from .pca_kmeans import PCAKMeans
from .transport import TransportSignatures

CLUSTERERS = ("EMDClustering", "EigenRelevance", "FCR", "PACFL", "PCAKMeans", "TransportSignatures")

__all__ = ["CLUSTERERS", "FCR", "PACFL", "EMDClustering", "EigenRelevance", "PCAKMeans", "TransportSignatures"]


def build(settings: dict):
    """Make a clusterer from its settings."""
    from ..methods import _build_clusterer

    return _build_clusterer(settings)


def canonical(settings: dict) -> dict:
    """Return a clusterer's settings without what equals a default."""
    from ..settings import brief

    options = {name: value for name, value in settings.items() if name != "name"}
    return {"name": settings["name"], **brief(globals()[settings["name"]], options)}
