"""FedSEM as FLT (arXiv 2103.15947) ran it: k-means on the clients' models every round, averaging inside the groups.

The FLT authors' re-implementation of multi-center FL (FeSEM): k-means over the flattened parameters of *all* clients,
20 random starts in the first round, later started from the last centres; no proximal term. FeSEM as its own paper
describes it is :class:`fltnb.methods.FeSEM`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..randomness import integer
from ..settings import Count, Variant
from .base import PUBLISHED_RULE, Context, HardMethod, Rule, State
from .modelspace import best_start, cluster_means, lloyd, with_rows


class FedSEM(HardMethod):
    """Clustered averaging with groups found in parameter space.

    Parameters
    ----------
    n_clusters : int
        Number of groups K, given.
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute to the *average*. Their *group* always follows from the last model known of
        them: the one they trained last, or under ``last_aggregate`` the one they were served last.
    variant : {"as_written", "as_run"}
        Which rule is meant when ``rule`` is not given.
    """

    name = "fedsem"
    AS_RUN: ClassVar = {"rule": PUBLISHED_RULE}

    def __init__(self, n_clusters: Count, rule: Rule = "participants", *, variant: Variant = "as_written"):
        """Options are kept as they are."""

    def start(self, fed, model, context: Context) -> State:
        """Everybody holds the common initial model; the first grouping follows round 1."""
        theta = model.init(context.seed)
        state = {
            "models": np.repeat(theta[None], self.n_clusters, axis=0),
            "centers": np.repeat(theta[None, : model.n_trainable], self.n_clusters, axis=0),
            "initial": theta[: model.n_trainable],
            "row": np.zeros(fed.n_clients, dtype=np.int64),
            "weights": np.asarray(fed.sizes, dtype=np.float64),
            "seed": np.array(context.seed),
        }
        if self.rule != "last_aggregate":
            state["memory"] = np.repeat(theta[None], fed.n_clients, axis=0)
        return state

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Group all clients by their last known models, then average inside the groups."""
        first = "labels" not in state
        memory = {} if "memory" not in state else {"memory": with_rows(state["memory"], clients, theta)}
        if self.rule == "last_aggregate" or first:
            # Absent clients hold one of the K models: there are n + K different ones at most.
            holds = len(theta) + state["row"]
            holds[clients] = np.arange(len(theta))
            held, which = np.unique(holds, return_inverse=True)
            points = np.vstack([theta, state["models"]])[held]
        else:
            points, which = memory["memory"], np.arange(len(state["row"]))
        count, compared = np.bincount(which), points[:, : len(state["initial"])]  # without batch-norm statistics
        if first:
            seed = integer(int(state["seed"]), "method", round)
            groups = best_start(compared, count, state["initial"], self.n_clusters, seed)
            centers = cluster_means(groups, count, compared, state["centers"])
        else:
            groups, centers = lloyd(compared, count, state["centers"], state["initial"])
            centers = centers.astype(theta.dtype)
        labels = groups[which]

        if self.rule == "participants":
            share, trained, groups = state["weights"][clients], theta, labels[clients]
        else:
            share, trained = np.bincount(which, state["weights"]), points
        # plain centres, but averages by samples
        models = cluster_means(groups, share, trained, state["models"])
        return state | memory | {"row": labels, "labels": labels, "models": models, "centers": centers}
