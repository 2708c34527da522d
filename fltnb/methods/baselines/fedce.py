"""FedCE: clients contribute to all models (Cai et al., ACM MM 2023).

Neither the paper's text nor official code was available; this follows EMD-CFL's
re-implementation.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from ...aggregate import mix
from ...settings import Count, NonNegative
from ..base import Context, Welcoming
from ..newcomers import placed
from ..samples import Split, batch_means, sample_losses
from ..state import State, one_cluster, several


@dataclass(eq=False, kw_only=True)
class FedCEState(State):
    """State of FedCE: every client's associations (M, K) with the models."""

    of_clients = ("associations",)

    associations: np.ndarray


@dataclass(eq=False, repr=False)
class FedCE(Welcoming):
    """K models; each client trains its best one, and contributes to all.

    Cai et al., ACM MM 2023, as EMD-CFL's authors re-implemented it. A participant's
    association with its best model grows by 1, and with any other model by
    ``exp(-delta ||a_best - a_k||)``, where a is the vector of a model's losses on the
    client's batches. Model k becomes the mean of the participants' trained models, with
    weights that are the softmax *over clients* of their associations with k. The
    associations only grow, so the weights become more and more unequal. The numbers of
    samples do not matter. Clients are served the model that was best for them when they
    took part last (model 0 if never).

    Parameters
    ----------
    n_clusters : int
        K, the number of models.
    delta : float
        How fast the growth decays with the distance of the losses; 0.5 in EMD-CFL's
        runs.
    split : {"val", "train"}
        Samples for comparing the models, in batches of the run's ``batch_size``.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> method = fl.methods.FedCE(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FedCEState
    name = "fedce"
    once = True  # a round adds 1 only once

    n_clusters: Count
    delta: NonNegative = 0.5
    split: Split = "val"

    def start(self, fed, model, context: Context) -> FedCEState:
        """Start with K independent models, without associations."""
        models = several(model, context, self.n_clusters)
        associations = np.zeros((fed.n_clients, self.n_clusters))
        return one_cluster(FedCEState, fed, models, associations=associations)

    def observe(
        self, state: FedCEState, clients: np.ndarray, round: int, engine
    ) -> FedCEState:
        """Let participants test all models; of equal ones the lowest index wins."""
        state = super().observe(state, clients, round, engine)
        row = state.row.copy()
        associations = state.associations.copy()
        losses = sample_losses(engine, state.models, clients, self.split)
        for client, mine in zip(clients, losses, strict=True):
            batches = batch_means(mine, engine.spec.batch_size)
            row[client] = batches.mean(axis=1).argmin()
            associations[client] += growth(batches, self.delta, self.once)
        return replace(state, row=row, labels=row, associations=associations)

    def welcome(
        self, state: FedCEState, new: np.ndarray, round: int, engine
    ) -> FedCEState:
        """Let newcomers take the model that is best for them."""
        best = []
        for mine in sample_losses(engine, state.models, new, self.split):
            batches = batch_means(mine, engine.spec.batch_size)
            best.append(batches.mean(axis=1).argmin())
        return placed(state, new, np.array(best))

    def collect(
        self, state: FedCEState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FedCEState:
        """Average all participants into every model."""
        W = softmax(state.associations[clients], axis=0).T
        return replace(state, models=mix(W, theta))

    def traffic(self, state: FedCEState, n_parameters: int) -> tuple[int, int]:
        """Count all models down; one model and K associations up."""
        return self.n_clusters * n_parameters, n_parameters + self.n_clusters


@dataclass(eq=False, repr=False)
class FedCEAsRun(FedCE):
    """FedCE as in EMD-CFL's tables: 1 is added K times in a round, not once.

    A client tests the K models one after the other, and after each test 1 is added to
    its association with the best model so far.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> method = fl.methods.FedCEAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    once = False


def growth(batches: np.ndarray, delta: float, once: bool = True) -> np.ndarray:
    """Return the increase of a client's associations (K,).

    It follows from the losses (K, b) of K models on the client's batches.
    """
    means = batches.mean(axis=1)
    best = means.argmin()
    distance = np.linalg.norm(batches - batches[best], axis=1)
    added = np.exp(-delta * distance)
    added[best] = 0
    if once:
        added[best] += 1
    else:
        for seen in range(1, len(means) + 1):
            added[means[:seen].argmin()] += 1
    return added
