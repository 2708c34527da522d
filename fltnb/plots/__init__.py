"""Figures used by two or more notebooks, with one colour per method everywhere.

Every function takes plain frames or arrays, returns ``(figure, axes)`` and never calls
``plt.show()``. A title states the result, so the notebook that knows the result gives
it. A figure that only one notebook uses is drawn there.
"""

from .advice import advice
from .lines import against_bytes, curves, lines
from .maps import client_map, weight_maps
from .relations import gallery, matrices, matrix_pair, pair_distances, sample_images
from .runs import client_strip
from .style import (
    CLUSTERS,
    METHODS,
    Style,
    cluster_color,
    headline,
    label,
    panels,
    save,
    style,
)

__all__ = [
    "CLUSTERS",
    "METHODS",
    "Style",
    "advice",
    "against_bytes",
    "client_map",
    "client_strip",
    "cluster_color",
    "curves",
    "gallery",
    "headline",
    "label",
    "lines",
    "matrices",
    "matrix_pair",
    "pair_distances",
    "panels",
    "sample_images",
    "save",
    "style",
    "weight_maps",
]
