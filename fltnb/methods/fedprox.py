"""FedProx: federated averaging with a pull towards the model that was sent (Li et al., arXiv 1812.06127)."""

from __future__ import annotations

from ..settings import NonNegative, Variant
from .base import Rule
from .graph import FedAvg


class FedProx(FedAvg):
    """FedAvg whose clients minimise ``f_i(theta) + mu / 2 * ||theta - theta_sent||^2``.

    Every local step adds ``mu * (theta - theta_sent)`` to the gradient; the aggregation is FedAvg's, and ``mu=0`` is
    FedAvg bit for bit. The original also lets some participants stop early (stragglers), which is left out here: all
    run the same number of epochs.

    Parameters
    ----------
    mu : float
        Weight of the proximal term, at least 0. The original tunes it among 0.001, 0.01, 0.1 and 1; the FeSEM paper
        uses 0.1. A step is stable for ``lr * mu`` below 2 only.
    rule, variant
        See :class:`fltnb.methods.graph.GraphMethod`.

    Raises
    ------
    FltnbError
        ``mu`` is negative or not a number.
    """

    name = "fedprox"

    def __init__(self, mu: NonNegative = 0.1, rule: Rule = "participants", variant: Variant = "as_written"):
        super().__init__(rule)

    def local_training(self) -> dict[str, float]:
        """Add the proximal term."""
        return {"proximal": self.mu}
