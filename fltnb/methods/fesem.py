"""FeSEM, multi-center federated learning: as its own paper (arXiv 2108.08647) and as FLT (arXiv 2103.15947) had it.

Expectation-maximisation over K centres: every client belongs to the centre nearest to its model (Equation 8), a centre
is the mean of its members' models (Equation 9), and clients train with a penalty on the distance from it (Equation 7).
"""

import math
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from ..randomness import integer, stream
from ..settings import NonNegative
from .base import (
    PUBLISHED_RULE,
    Context,
    HardMethod,
    Rule,
    State,
    mix_groups,
    unclustered,
)
from .matching import joined, matched_mean, split
from .modelspace import best_start, cluster_means, lloyd, scores


class FeSEM(HardMethod):
    """Federated stochastic EM with K centres (FeSEM, Algorithms 1 and 2).

    A round is: train from the own centre, E-step, M-step. Before there are K centres everybody shares one; the first K
    come from the best of 20 k-means starts on the models heard so far, as soon as at least K clients have been.

    Equation 7 is ``alpha_i L(theta) + lambda / m * Dist(theta, center)``. With squared Euclidean distances and Equation
    9's plain mean (``alpha_i = 1 / m``) that is FedProx's term with ``mu = 2 lambda``. The paper trains one local
    update per round, here ``local_epochs``.

    Parameters
    ----------
    lam : float, lambda of Equations 5 and 7; the paper gives none, 0.1 stands in its code's configuration, unread
    weighting : {"plain", "samples"}, in the M-step: equal (Equation 9), or by samples as in the re-implementations
    rule : {"participants", "last_local", "last_aggregate"}
        Whose models enter the M-step where only some take part (the paper has everybody in every round). The E-step
        places each client by the last model known of it: trained, or under ``last_aggregate`` served.
    grouping : {"em", "random", "equal"}
        "random": no E-step, clients stay in K groups of equal size, drawn before round 1. "equal": the K centres start
        as copies of the common model with everybody in the first, which is what k-means of equal models gives, and how
        EMD-CFL (arXiv 2506.07769) ran it; only who is pulled away from the others' mean ever leaves.
    report : {"own", "best"}, "best": a test is that of the centre with the most right answers on *all* clients
    variant : {"as_written", "as_run"}
        "as_run" is what the shipped code does, ``lam=0, grouping="random", report="best"``: its clusters start from
        k-means on vectors of random numbers, and are made anew every 150 rounds in a run of 60.
    """

    name = "fesem"
    AS_RUN: ClassVar = {"lam": 0.0, "grouping": "random", "report": "best"}

    lam: NonNegative = 0.1
    weighting: Literal["plain", "samples"] = "plain"
    rule: Rule = "participants"
    grouping: Literal["em", "random", "equal"] = "em"
    report: Literal["own", "best"] = "own"

    def __post_init__(self) -> None:
        self.tests_served = self.report == "own"

    def local_training(self) -> dict[str, float]:
        """Add the distance penalty of Equation 7."""
        return {"proximal": 2 * self.lam}

    def start(self, fed, model, context: Context) -> State:
        """Everybody holds the common initial model; there is one centre, or K equal ones of groups drawn at random."""
        state = unclustered(
            fed, model, context, 1 if self.grouping == "em" else self.n_clusters
        )
        if self.grouping == "random":
            row = (
                stream(context.seed, "method").permutation(fed.n_clients)
                % self.n_clusters
            )
            state |= {"row": row, "labels": row}
        return state | {
            "memory": np.repeat(state["initial"][None], fed.n_clients, axis=0)
        }

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """E-step on the last known models, then M-step."""
        models, heard = state["models"], state["heard"].copy()
        memory = (
            models[state["row"]] if self.rule == "last_aggregate" else state["memory"]
        )
        memory[clients], heard[clients] = theta, True
        row, n, K = state["row"], int(state["trainable"]), self.n_clusters
        if (
            len(models) < K and heard.sum() >= K
        ):  # with fewer distinct models some centres stay at the old one
            known, once, seed = (
                memory[heard],
                np.ones(heard.sum(), int),
                integer(int(state["seed"]), "method", round),
            )
            labels = best_start(known[:, :n], once, state["initial"][:n], K, seed)
            models = cluster_means(labels, once, known, np.repeat(models, K, axis=0))
        if self.grouping != "random":
            row = scores(memory[:, :n], models[:, :n], state["initial"][:n]).argmin(
                axis=1
            )
        if self.rule == "participants":
            own, trained, sizes = row[clients], theta, state["weights"][clients]
        else:
            own, trained, sizes = row, memory, state["weights"]
        weights = sizes if self.weighting == "samples" else np.ones_like(sizes)
        share = (own == np.arange(len(models))[:, None]) * weights
        models = self.averaged(state, share, sizes, trained, models)
        return state | {
            "models": models,
            "row": row,
            "labels": row,
            "memory": memory,
            "heard": heard,
        }

    def averaged(
        self,
        state: State,
        share: np.ndarray,
        sizes: np.ndarray,
        trained: np.ndarray,
        models: np.ndarray,
    ):
        """Centres (K, P) of the M-step, from members' weights ``share`` (K, n), samples (n,) and models (n, P)."""
        return mix_groups(share, trained, models)

    def evaluate(self, state: State, engine, split: str):
        """Test clients under their own centre, or all under the centre that does best."""
        if self.report == "own":
            return super().evaluate(state, engine, split)
        models, M = state["models"], engine.fed.n_clients
        rows, clients = (
            np.repeat(np.arange(len(models)), M),
            np.tile(np.arange(M), len(models)),
        )
        every = engine.evaluate(models, rows, clients, split)
        best = every.correct.reshape(-1, M).sum(axis=1).argmax()
        return replace(
            every,
            **{name: part.reshape(-1, M)[best] for name, part in vars(every).items()},
        )


class FeSEMMA(FeSEM):
    """FeSEM with neurons matched inside each cluster before its members' models are averaged (FeSEM, Section 5.1).

    In the M-step all members of a cluster are brought, layer by layer, into the neuron order of the member with the
    most samples (:mod:`fltnb.methods.matching`, which says what is not FedMA's). The E-step compares models as they
    are. All clients start from one model: their neurons are mostly in the same order already, and then this is FeSEM. A
    model of torchvision raises :class:`fltnb.FltnbError`.
    """

    name, layered = "fesem_ma", True

    def start(self, fed, model, context: Context) -> State:
        """As FeSEM; the widths of the layers go along."""
        weights = [shape for _, shape in model.shapes if len(shape) > 1]
        shapes = np.array(
            [(shape[0], math.prod(shape[1:])) for shape in weights], dtype=np.int64
        )
        return super().start(fed, model, context) | {"shapes": shapes}

    def averaged(
        self,
        state: State,
        share: np.ndarray,
        sizes: np.ndarray,
        trained: np.ndarray,
        models: np.ndarray,
    ):
        """Average matched neurons inside the clusters."""
        models = models.copy()
        for center, weights in enumerate(share):
            members = np.flatnonzero(weights > 0)
            if len(members):
                layers = [split(trained[i], state["shapes"]) for i in members]
                models[center] = joined(
                    matched_mean(layers, weights[members], int(sizes[members].argmax()))
                )
        return models


class FedSEM(HardMethod):
    """FeSEM as FLT ran it: k-means on all clients' flattened models in every round, averaging inside the groups.

    20 random starts in the first round, later started from the last centres; no proximal term. ``rule`` says what
    absent clients contribute to the *average* (:class:`fltnb.methods.graph.GraphMethod`). Their *group* always follows
    from the last model known of them: the one they trained last, or under ``last_aggregate`` were served last.
    """

    name = "fedsem"
    AS_RUN: ClassVar = {"rule": PUBLISHED_RULE}

    rule: Rule = "participants"

    def start(self, fed, model, context: Context) -> State:
        """Everybody holds the common initial model; the first grouping follows round 1."""
        state = unclustered(fed, model, context, self.n_clusters)
        state["centers"] = state["models"][:, : model.n_trainable].copy()
        del state["labels"]  # there are none yet
        if self.rule != "last_aggregate":
            state["memory"] = np.repeat(state["initial"][None], fed.n_clients, axis=0)
        return state

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Group all clients by their last known models, then average inside the groups."""
        first = "labels" not in state
        if "memory" in state:
            state["memory"][clients] = theta
        if self.rule == "last_aggregate" or first:
            # Absent clients hold one of the K models: there are n + K different ones at most.
            holds = len(theta) + state["row"]
            holds[clients] = np.arange(len(theta))
            held, which = np.unique(holds, return_inverse=True)
            points = np.vstack([theta, state["models"]])[held]
        else:
            points, which = state["memory"], np.arange(len(state["row"]))
        n = int(state["trainable"])  # without batch-norm statistics
        count, compared, initial = (
            np.bincount(which),
            points[:, :n],
            state["initial"][:n],
        )
        if first:
            groups = best_start(
                compared,
                count,
                initial,
                self.n_clusters,
                integer(int(state["seed"]), "method", round),
            )
            centers = cluster_means(groups, count, compared, state["centers"])
        else:
            groups, centers = lloyd(compared, count, state["centers"], initial)
            centers = centers.astype(theta.dtype)
        labels = groups[which]

        if self.rule == "participants":
            share, trained, groups = state["weights"][clients], theta, labels[clients]
        else:
            share, trained = np.bincount(which, state["weights"]), points
        # plain centres, but averages by samples
        models = cluster_means(groups, share, trained, state["models"])
        return state | {
            "row": labels,
            "labels": labels,
            "models": models,
            "centers": centers,
        }
