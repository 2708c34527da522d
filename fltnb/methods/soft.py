"""FLT on a soft client graph: weights that fall with distance, instead of links below a threshold.

The paper keeps "removing the hard threshold" for future work (FLT, arXiv 2103.15947, Section 5). The weights are ours.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..encoders.pretraining import EncoderSpec
from ..errors import FltnbError
from ..settings import Positive, Variant
from .base import Rule
from .flt import FLT

WEIGHTS = {"gaussian": lambda ratio: np.exp(-(ratio**2)), "linear": lambda ratio: np.maximum(0.0, 1.0 - ratio / 2)}
"""Weight of two clients by their distance over the scale: 1 at distance 0; exp(-1) or 1/2 at the scale itself."""


class SoftFLT(FLT):
    r"""FLT, case I, with the client distance kept as a weight.

    A client's new model is the mean over all clients of :math:`n_j\,g(A_{ij} / s)`, made to sum to 1: n_j samples,
    A the client distance of FCR (Algorithm 2, line 15), g one of :data:`WEIGHTS`. With distances of 0 and infinity only
    this is case I on the thresholded graph, whatever g and s. When absent clients contribute nothing, a client whose
    nearest participant has weight w keeps its own model with weight 1 - w among them.

    Parameters
    ----------
    clusterer, encoder, rule, variant, name : see :class:`fltnb.methods.FLT`; the clusters are only reported
    weight : {"gaussian", "linear"}, g: exp(-x^2), or max(0, 1 - x / 2), which is 0 from twice the scale on
    scale : float, optional, s, in units of the client distance; by default the clusterer's threshold gamma
    """

    name = "flt_soft"

    def __init__(
        self,
        clusterer=None,
        weight: Literal["gaussian", "linear"] = "gaussian",
        scale: Positive | None = None,
        encoder: EncoderSpec | None = None,
        rule: Rule = "participants",
        variant: Variant = "as_written",
        name: str | None = None,
    ):
        super().__init__(clusterer, "full", encoder, name=name)
        self.scale = getattr(self.clusterer, "threshold", None) if scale is None else scale
        if not self.scale:
            raise FltnbError(f"{type(self.clusterer).__name__} has no threshold above 0 to take as scale: give one.")

    def graph_of(self, fitted) -> tuple[np.ndarray, np.ndarray]:
        """Weights by the clients' distances."""
        return soft_graph(fitted.distance_, self.scale, self.weight), np.asarray(fitted.labels_, dtype=np.int64)


def soft_graph(distance: np.ndarray, scale: float, weight: str = "gaussian") -> np.ndarray:
    """Weights (M, M) in [0, 1] of a client graph, 1 on the diagonal."""
    weights = WEIGHTS[weight](np.asarray(distance, dtype=np.float64) / scale)
    np.fill_diagonal(weights, 1.0)
    return weights
