"""FedCE: associations between clients and cluster models that add up over the rounds.

Cai et al., FedCE: Personalized Federated Learning Method based on Clustering Ensembles, ACM MM 2023.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..settings import Count, NonNegative, Variant
from .base import Context, Method, State, mix
from .fedem import softmax
from .samples import batch_means, check_validation, sample_losses


class FedCE(Method):
    """K models; each client trains the one that fits it best, and contributes to all by associations that only grow.

    A participant's association with its best model grows by 1, with any other by ``exp(-delta ||a_best - a_k||)``, a
    the vector of a model's losses on the client's batches. Model k becomes the mean of the participants' trained
    models with weights that are the softmax *over clients* of their associations with k. As these grow, the weights
    sharpen: soft at first, almost hard later.

    Parameters
    ----------
    n_clusters : int
        Number of models K, given. Model 0 starts where FedAvg starts.
    delta : float
        At least 0; 0.5 in EMD-CFL's runs.
    split : {"val", "train"}
        Samples that participants compare the models on, in batches of the run's ``batch_size``. Few samples in large
        batches make the vectors short, and the comparison coarse.
    variant : {"as_written", "as_run"}
        "as_run": :class:`FedCEAsRun`.

    Notes
    -----
    Neither the paper's text nor official code was at hand: this rests on the re-implementation in EMD-CFL's code. It
    weighs no samples. Clients are served the model that was best for them when they took part last (0 if never).
    """

    name = "fedce"
    once = True  # a round adds a single 1

    def __init__(
        self,
        n_clusters: Count,
        delta: NonNegative = 0.5,
        split: Literal["val", "train"] = "val",
        *,
        variant: Variant = "as_written",
    ):
        pass

    def check(self, fed) -> None:
        """Refuse a comparison on validation samples that some client does not have."""
        if self.split == "val":
            check_validation(fed, "FedCE", ', or take split="train"')

    def start(self, fed, model, context: Context) -> State:
        """K independent models, no associations."""
        return {
            "models": np.stack([model.init(context.seed, k) for k in range(self.n_clusters)]),
            "row": np.zeros(fed.n_clients, dtype=np.int64),
            "labels": np.zeros(fed.n_clients, dtype=np.int64),
            "associations": np.zeros((fed.n_clients, self.n_clusters)),
        }

    def observe(self, state: State, clients: np.ndarray, round: int, engine) -> State:
        """Let participants measure all models; ties go to the lowest index."""
        row, associations = state["row"].copy(), state["associations"].copy()
        for client, losses in zip(clients, sample_losses(engine, state["models"], clients, self.split), strict=True):
            batches = batch_means(losses, engine.spec.batch_size)
            row[client] = batches.mean(axis=1).argmin()
            associations[client] += growth(batches, self.delta, self.once)
        return state | {"row": row, "labels": row, "associations": associations}

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Average all participants into every model."""
        return state | {"models": mix(softmax(state["associations"][clients]).T, theta)}

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """All models down; one model and K associations up."""
        return self.n_clusters * n_parameters, n_parameters + self.n_clusters


class FedCEAsRun(FedCE, as_run=True):
    """What printed EMD-CFL's tables: the 1 is added once per model looked at, each time to the best so far.

    So a round adds K ones.
    """

    once = False


def growth(batches: np.ndarray, delta: float, once: bool = True) -> np.ndarray:
    """Return what a client adds to its associations (K,), from the losses of K models on its batches (K, b).

    Examples
    --------
    >>> batches = np.array([[3.0, 3.0], [1.0, 1.0], [2.0, 2.0]])
    >>> growth(batches, 0.5).round(4).tolist(), growth(batches, 0.5, once=False).round(4).tolist()
    ([0.2431, 1.0, 0.4931], [1.2431, 2.0, 0.4931])
    """
    means = batches.mean(axis=1)
    best = means.argmin()
    added = np.exp(-delta * np.linalg.norm(batches - batches[best], axis=1))
    added[best] = 0
    if once:
        added[best] = 1
    else:
        for seen in range(len(means)):
            added[means[: seen + 1].argmin()] += 1
    return added
