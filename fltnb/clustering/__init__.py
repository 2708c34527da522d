"""One-shot clusterers: scikit-learn estimators over clients, usable on anybody's embeddings."""

from collections.abc import Mapping
from typing import Any

from ..errors import choose
from ..settings import brief, checked, plain
from .base import ClientClusterer, sketch_bytes
from .centroids import PCAKMeans
from .eigen import EigenRelevance, MeanImage
from .emd import EMDClustering
from .fcr import FCR
from .merge_gain import MergeGain
from .pacfl import PACFL
from .ridge import Gain, clustering_gain
from .transport import TransportSignatures

_MADE = (
    EMDClustering,
    EigenRelevance,
    FCR,
    MeanImage,
    MergeGain,
    PACFL,
    PCAKMeans,
    TransportSignatures,
)
_CLASSES = {made.__name__: made for made in _MADE}
CLUSTERERS = tuple(_CLASSES)

__all__ = [
    "CLUSTERERS",
    "ClientClusterer",
    "Gain",
    "build",
    "canonical",
    "clustering_gain",
    "sketch_bytes",
]
__all__ += CLUSTERERS


def build(settings: Mapping[str, Any]) -> ClientClusterer:
    """Make a clusterer from its settings: ``name``, one of :data:`CLUSTERERS`, and options, or raise FltnbError."""
    options = dict(settings)
    made = _CLASSES[choose(options.pop("name", None), CLUSTERERS, "clusterer")]
    return made(**checked(made, options, f"clusterer {made.__name__}"))


def canonical(clusterer: ClientClusterer | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide a clusterer's result: ``name`` and the options that differ from defaults."""
    made = build(clusterer) if isinstance(clusterer, Mapping) else clusterer
    options = {
        name: value
        for name, value in made.get_params(deep=False).items()
        if name != "n_jobs"
    }
    return {"name": type(made).__name__, **brief(type(made), plain(options))}
