"""FeSEM-MA: FeSEM whose centres are matched averages of models (FeSEM, arXiv 2108.08647, Section 5.1)."""

from __future__ import annotations

import math

import numpy as np

from ..errors import FltnbError
from .base import Context, State
from .fesem import FeSEM
from .matching import joined, matched_mean, split


class FeSEMMA(FeSEM):
    """FeSEM with neurons matched inside each cluster before its members' models are averaged.

    In the M-step all members of a cluster are brought, layer by layer, into the neuron order of the member with the
    most samples (:func:`fltnb.methods.matching.matched_mean`); then they are averaged as in :class:`FeSEM`. The E-step
    compares models as they are.

    Options are FeSEM's.

    Notes
    -----
    Matched averaging as FeSEM cites it (FedMA) lets layers grow, and sends and retrains the layers above after each
    one; no public code joins that with K centres. Here layers keep their width and one exchange of whole models makes a
    round, so what is sent is FeSEM's. All clients start from one model and every round from a centre: their neurons are
    mostly in the same order already, and then this is FeSEM.

    Raises
    ------
    FltnbError
        As FeSEM; or the model is one of torchvision's, whose layers are no plain stack.
    """

    name = "fesem_ma"

    def start(self, fed, model, context: Context) -> State:
        """As FeSEM; the widths of the layers go along."""
        if not model.layers:
            raise FltnbError(
                f"FeSEM-MA matches neurons of the networks in fltnb.models.NAMES, not of {model.name!r}: choose another"
                " model or FeSEM."
            )
        weights = [shape for _, shape in model.shapes if len(shape) > 1]
        shapes = np.array([(shape[0], math.prod(shape[1:])) for shape in weights], dtype=np.int64)
        return super().start(fed, model, context) | {"shapes": shapes}

    def averaged(self, state: State, share: np.ndarray, sizes: np.ndarray, trained: np.ndarray, models: np.ndarray):
        """Average matched neurons inside the clusters."""
        models = models.copy()
        for center, weights in enumerate(share):
            members = np.flatnonzero(weights > 0)
            if len(members):
                layers = [split(trained[i], state["shapes"]) for i in members]
                models[center] = joined(matched_mean(layers, weights[members], int(sizes[members].argmax())))
        return models
