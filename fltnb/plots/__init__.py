"""Pictures that two notebooks or more use: one colour per method everywhere, one helper that writes files.

Every function takes plain frames or arrays, returns ``(figure, axes)`` and never calls ``plt.show()``. A title says
what was found, so the notebook that knows the result gives it. What one notebook uses is drawn there, with seaborn.
"""

from .maps import client_map, weight_maps
from .relations import gallery, matrices, matrix_pair, pair_distances, sample_images
from .runs import against_bytes, client_strip, curves, dots, lines
from .style import CLUSTERS, METHODS, Style, cluster_color, label, panels, save, style

__all__ = [
    "CLUSTERS",
    "METHODS",
    "Style",
    "against_bytes",
    "client_map",
    "client_strip",
    "cluster_color",
    "curves",
    "dots",
]
__all__ += [
    "gallery",
    "label",
    "lines",
    "matrices",
    "matrix_pair",
    "pair_distances",
    "panels",
]
__all__ += ["sample_images", "save", "style", "weight_maps"]
