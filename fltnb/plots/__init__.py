"""Figures: one function per kind, one colour per method everywhere, one helper that writes files.

Every function returns ``(figure, axes)``, never calls ``plt.show()``, draws into ``ax`` where one is given, and takes
``title``: a title says what was found, so only the notebook that knows the result can give it. matplotlib is imported
on first use.
"""

from .backdoor import classes_under_trigger, image_answers, image_versions
from .clients import (
    adjacency,
    adjacency_pair,
    client_graph,
    dendrogram,
    embedding,
    repeats,
)
from .curves import ablation, accuracy_against_bytes, ari_curves, convergence
from .difficulty import difficulty_curves, method_grid
from .dynamic import around_event, before_and_after, graphs_beside
from .eigen import relevance_curves, separation, similarity_matrices
from .emdcfl import distance_strip, method_dots
from .fesem import attribute_strips, choosing_k, local_models
from .holdings import gallery, sample_images, who_holds_what
from .matrices import cluster_matrices, formation
from .points import client_strip, dots, plane
from .relations import matrices, matrix_pair, pair_distances
from .results import accuracy_variance_plane, agreement, per_client
from .runs import against_bytes, curves, lines
from .style import CLUSTERS, METHODS, Style, cluster_color, label, panels, save, show, style
from .tasks import task_curves, task_dots

__all__ = [
    "CLUSTERS",
    "METHODS",
    "Style",
    "ablation",
    "accuracy_against_bytes",
    "accuracy_variance_plane",
    "adjacency",
    "adjacency_pair",
    "against_bytes",
    "agreement",
    "ari_curves",
    "around_event",
    "attribute_strips",
    "before_and_after",
    "choosing_k",
    "classes_under_trigger",
    "client_graph",
    "client_strip",
    "cluster_color",
    "cluster_matrices",
    "convergence",
    "curves",
    "dendrogram",
    "difficulty_curves",
    "distance_strip",
    "dots",
    "embedding",
    "formation",
    "gallery",
    "graphs_beside",
    "image_answers",
    "image_versions",
    "label",
    "lines",
    "local_models",
    "matrices",
    "matrix_pair",
    "method_dots",
    "method_grid",
    "pair_distances",
    "panels",
    "per_client",
    "plane",
    "relevance_curves",
    "repeats",
    "sample_images",
    "save",
    "separation",
    "show",
    "similarity_matrices",
    "style",
    "task_curves",
    "task_dots",
    "who_holds_what",
]
