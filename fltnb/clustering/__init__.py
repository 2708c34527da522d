"""One-shot clusterers: scikit-learn estimators over clients, for any embeddings.

The clusterers of this project's own research are in :mod:`fltnb.clustering.ours`, which
adds them to :data:`CLUSTERERS` when it is imported.
"""

from collections.abc import Mapping
from typing import Any

from ..errors import FltnbError
from ..settings import brief, checked, plain
from .base import ClientClusterer, sketch_bytes
from .centroids import PCAKMeans
from .eigen import EigenRelevance, MeanImage
from .emd import EMDClustering
from .fcr import FCR
from .fedcollab import FedCollab
from .pacfl import PACFL

CLUSTERERS: dict[str, type[ClientClusterer]] = {
    "EMDClustering": EMDClustering,
    "EigenRelevance": EigenRelevance,
    "FCR": FCR,
    "FedCollab": FedCollab,
    "MeanImage": MeanImage,
    "PACFL": PACFL,
    "PCAKMeans": PCAKMeans,
}

__all__ = [
    "CLUSTERERS",
    "FCR",
    "PACFL",
    "ClientClusterer",
    "EMDClustering",
    "EigenRelevance",
    "FedCollab",
    "MeanImage",
    "PCAKMeans",
    "build",
    "canonical",
    "sketch_bytes",
]


def build(settings: Mapping[str, Any]) -> ClientClusterer:
    """Make a clusterer from its settings.

    Parameters
    ----------
    settings : mapping
        ``name``, one of :data:`CLUSTERERS`, and options of this class.

    Raises
    ------
    FltnbError
        The name, an option or a value is unknown.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.clustering.build({"name": "FCR", "k": 2})
    FCR(k=2)
    """
    if not isinstance(settings, Mapping):
        raise FltnbError(
            f"The settings of a clusterer must be a dict with a name, not {settings!r}."
        )
    options = dict(settings)
    name = options.pop("name", None)
    if name not in CLUSTERERS:
        raise FltnbError(
            f"Unknown clusterer {name!r}: choose one of {', '.join(CLUSTERERS)}; this "
            "project's own are there after `import fltnb.clustering.ours`."
        )
    made = CLUSTERERS[name]
    return made(**checked(made, options, f"clusterer {name}"))


def canonical(clusterer: ClientClusterer | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine a clusterer's result.

    These are ``name`` and the options that differ from defaults.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.clustering.canonical(fl.FCR(k=2, threshold=1.0))
    {'name': 'FCR', 'k': 2}
    """
    if isinstance(clusterer, Mapping):
        clusterer = build(clusterer)

    made = type(clusterer)
    options = clusterer.get_params(deep=False)
    options.pop("n_jobs", None)
    return {"name": made.__name__, **brief(made, plain(options))}
