"""Methods without clusters: training alone, and FedAvg with another local or server step."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..randomness import stream
from ..settings import Count, NonNegative, Share, Variant
from .base import Context, Method, Rule, State, mix
from .graph import FedAvg
from .modelspace import with_rows

EVERYTHING = 2**31 - 1  # a batch size above every client's number of samples


class Local(Method):
    """No aggregation: a client keeps the model it trained last (Local in FLT, NoFed in FeSEM, arXiv 2108.08647).

    As in FLT's code only the round's participants train, so the budget equals that of the federated methods; all start
    from one common initialisation. Nothing is sent.
    """

    name = "local"
    models_down = 0
    models_up = 0

    def start(self, fed, model, context: Context) -> State:
        """One model per client."""
        return {
            "models": np.repeat(model.init(context.seed)[None], fed.n_clients, axis=0),
            "row": np.arange(fed.n_clients, dtype=np.int64),
        }

    def changed(self, state: State, fed, model, changed: np.ndarray, context: Context) -> State:
        """Keep every client's model; newcomers begin like everybody else."""
        n_new = fed.n_clients - len(state["row"])
        begin = np.repeat(model.init(context.seed)[None], n_new, axis=0).astype(state["models"].dtype)
        return {"models": np.vstack([state["models"], begin]), "row": np.arange(fed.n_clients, dtype=np.int64)}

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Keep what each participant trained."""
        return state | {"models": with_rows(state["models"], clients, theta)}


class FedProx(FedAvg):
    """FedProx (Li et al., arXiv 1812.06127): clients minimise ``f_i(theta) + mu / 2 * ||theta - theta_sent||^2``.

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
    """

    name = "fedprox"

    def __init__(self, mu: NonNegative = 0.1, rule: Rule = "participants", *, variant: Variant = "as_written"):
        super().__init__(rule)

    def local_training(self) -> dict[str, float]:
        """Add the proximal term."""
        return {"proximal": self.mu}


class FedSGD(FedAvg):
    """FedSGD (McMahan et al., arXiv 1602.05629; FeSEM's tables): one step, along the participants' mean gradient.

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
    """

    name = "fedsgd"
    AS_RUN: ClassVar = {"batch": 2}

    def __init__(self, batch: Count | None = None, *, variant: Variant = "as_written"):
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


class FedDist(FedAvg):
    """The server moves a part of the way to the plain mean of the participants' models (FeSEM, Section 6.1).

    ``theta <- theta - epsilon * mean_i (theta - theta_i)``: the mean displacement taken for a gradient, as Reptile
    (arXiv 1803.02999) does with tasks.

    Parameters
    ----------
    epsilon : float
        Step, from 0 (never moves) to 1 (the mean itself); 0.6 in FeSEM's runs.
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
