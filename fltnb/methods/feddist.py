"""FedDist and FedDist+WS: a partial step towards the clients' models (FeSEM, arXiv 2108.08647, Section 6.1)."""

from __future__ import annotations

import numpy as np

from ..settings import Share
from .base import State, mix
from .graph import FedAvg


class FedDist(FedAvg):
    """The server moves a part of the way to the plain mean of the participants' models.

    ``theta <- theta - epsilon * mean_i (theta - theta_i)``: the mean displacement taken for a gradient, as Reptile
    (arXiv 1803.02999) does with tasks.

    Parameters
    ----------
    epsilon : float
        Step, from 0 (never moves) to 1 (the mean itself); 0.6 in FeSEM's runs.

    Raises
    ------
    FltnbError
        ``epsilon`` does not lie between 0 and 1.
    """

    name = "feddist"

    def __init__(self, epsilon: Share = 0.6):
        super().__init__()

    def shares(self, sizes: np.ndarray) -> np.ndarray:
        """Weights (n,) of participants with these numbers of samples in the mean."""
        return np.full(len(sizes), 1 / len(sizes))

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Take the partial step."""
        shares = self.epsilon * self.shares(state["weights"][clients])
        W = np.append(shares, 1 - self.epsilon)
        return state | {"models": mix(W[None], np.vstack([theta, state["models"]]))}


class FedDistWS(FedDist):
    """FedDist with a mean weighted by samples (FedDist+WS, "FedDWS" in the paper's list); ``epsilon=1`` is FedAvg.

    The paper gives the weights but no step, and the public code for this row does not run; a remark in it takes the row
    for weighted averaging, which is ``epsilon=1``. The default is FedDist's 0.6.
    """

    name = "feddist_ws"

    def shares(self, sizes: np.ndarray) -> np.ndarray:
        """In proportion to the samples."""
        return sizes / sizes.sum()
