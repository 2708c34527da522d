"""FedSGD: one gradient per client and round (McMahan et al., arXiv 1602.05629; a row of FeSEM's tables)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..randomness import stream
from ..settings import Count, Variant
from .base import Context, State
from .graph import FedAvg

EVERYTHING = 2**31 - 1  # a batch size above every client's number of samples


class FedSGD(FedAvg):
    """Federated averaging whose participants take one step: the server's step along their mean gradient.

    ``theta - lr * sum_i p_i g_i`` is the mean of the clients' models after one step each, with p_i the samples that g_i
    is made from. It is FedAvg with one local epoch in one batch; the run's ``local_epochs`` and ``batch_size`` have no
    say, and momentum has no time to build up.

    Parameters
    ----------
    batch : int, optional
        Samples of a client's gradient, drawn anew each round; default all of them.
    variant : {"as_written", "as_run"}
        "as_run" draws 2 where ``batch`` is not given: FeSEM's shipped code asks for 32, but cuts them to the number
        of entries in the record of a client's data, which are two: images and labels.

    Notes
    -----
    All of a client's samples pass through the network at once, whatever ``batch`` is: those not drawn get weight zero.
    Clients with many samples and a large network need the memory for that.

    Raises
    ------
    FltnbError
        ``batch`` is no whole number of at least 1.
    """

    name = "fedsgd"
    AS_RUN: ClassVar = {"batch": 2}

    def __init__(self, batch: Count | None = None, variant: Variant = "as_written"):
        super().__init__()

    def local_training(self) -> dict[str, Any]:
        """One step on everything."""
        return {"local_epochs": 1, "batch_size": EVERYTHING}

    def start(self, fed, model, context: Context) -> State:
        """As FedAvg; a client counts as much as the samples of its gradient."""
        return self._weighed(super().start(fed, model, context))

    def changed(self, state: State, fed, model, changed: np.ndarray, context: Context) -> State:
        """As FedAvg."""
        return self._weighed(super().changed(state, fed, model, changed, context))

    def _weighed(self, state: State) -> State:
        return state if self.batch is None else state | {"weights": np.minimum(state["weights"], self.batch)}

    def train(self, state: State, clients: np.ndarray, round: int, engine):
        """One step each; where a gradient is made from some samples only, the others weigh nothing."""
        weights = None
        if self.batch is not None:
            weights = [self._drawn(len(engine.fed.train[i]), engine.spec.seed, round, i) for i in clients]
        return state, engine.train(*self.dispatch(state, clients), clients, round, weights)

    def _drawn(self, n: int, seed: int, round: int, client: int) -> np.ndarray:
        """Factors (n,) that turn the mean over all samples into that over the drawn ones."""
        drawn = stream(seed, "method", round, client).choice(n, size=min(self.batch, n), replace=False)
        factors = np.zeros(n)
        factors[drawn] = n / len(drawn)
        return factors
