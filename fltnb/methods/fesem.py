"""FeSEM, multi-center federated learning: as in its own paper, and as in FLT's runs.

FeSEM: arXiv 2108.08647; FLT: arXiv 2103.15947. Expectation-maximisation over K centres:
each client belongs to the centre nearest to its model (Equation 8), each centre is the
mean of its members' models (Equation 9), and clients train with a penalty on the
distance from it (Equation 7).
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..aggregate import mix_groups
from ..randomness import integer, stream
from ..settings import NonNegative
from .base import PUBLISHED_RULE, Context, HardMethod, Rule
from .matching import joined, matched_mean, split
from .modelspace import best_start, cluster_means, lloyd, with_rows
from .newcomers import common_model, counted, first_training, placed
from .state import Unclustered, unclustered

if TYPE_CHECKING:
    from ..training import Engine, Trained


@dataclass(eq=False, kw_only=True)
class FeSEMState(Unclustered):
    """State of FeSEM: last known models (M, P); FeSEM-MA: ``shapes`` (layers, 2)."""

    of_clients = ("heard", "memory")

    memory: np.ndarray
    shapes: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class FeSEM(HardMethod):
    """Federated stochastic EM with K centres (arXiv 2108.08647, Algorithms 1 and 2).

    In a round clients train from their own centres, the E-step assigns each client to
    the centre nearest to its model, and the M-step moves each centre to the mean of its
    clients' models. At first all clients share one model. As soon as at least K clients
    have trained, the first K centres come from the best of 20 k-means starts on the
    models known so far.

    Equation 7 is ``alpha_i L(theta) + lambda / m * Dist(theta, center)`` for m clients.
    With squared Euclidean distances that is FedProx's term with
    ``mu_i = 2 lambda / (m alpha_i)``, and with Equation 9's plain mean
    (``alpha_i = 1 / m``) with ``mu = 2 lambda``. The paper has one local update per
    round (N = 1) beside 5 local epochs in its experiments; here it is the run's
    ``local_epochs``.

    Parameters
    ----------
    n_clusters : int
        K, the number of centres.
    lam : float
        lambda of Equations 5 and 7. The paper gives no value; its code's configuration
        has 0.1, which the code does not use.
    weighting : {"plain", "samples"}
        Weights of the M-step's mean: equal (Equation 9), or by samples as in
        re-implementations.
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute to the M-step: nothing, the model that each
        trained last, or the model that served each last. (In the paper all clients take
        part in every round.) The E-step places each client by its last known model:
        trained, or under ``last_aggregate`` served.
    grouping : {"em", "random", "equal"}
        "em": an E-step and an M-step in every round, as in Algorithm 1. "random": no
        E-step, clients stay in K groups of equal size, drawn before round 1. "equal":
        the K centres start as copies of the common model with all clients in the first,
        which is the result of k-means on equal models, and the behaviour of EMD-CFL's
        runs (arXiv 2506.07769). A client leaves the first centre only if this centre
        moves farther from the client's model than the initial model is.
    report : {"own", "best"}
        "own": each client is tested with its own centre. "best": all clients are tested
        with one centre, that with the most correct predictions on *all* clients, or the
        smallest squared error if numbers are predicted.
    alpha : {"equal", "samples"}
        alpha_i of Equation 7. "equal": ``1 / m``. "samples": a client's share of all
        samples; then the penalty is stronger on small clients, and clients train one
        after the other.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FeSEM(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FeSEMState
    name = "fesem"

    lam: NonNegative = 0.1
    weighting: Literal["plain", "samples"] = "plain"
    rule: Rule = "participants"
    grouping: Literal["em", "random", "equal"] = "em"
    report: Literal["own", "best"] = "own"
    alpha: Literal["equal", "samples"] = "equal"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tests_served = self.report == "own"

    def local_training(self) -> dict[str, float]:
        """Add the distance penalty of Equation 7."""
        return {"proximal": 2 * self.lam}

    def train(
        self, state: FeSEMState, clients: np.ndarray, round: int, engine: "Engine"
    ) -> tuple[FeSEMState, "Trained"]:
        """Train from the own centre, with the penalty of Equation 7."""
        if self.alpha == "equal":
            return super().train(state, clients, round, engine)

        from ..training import Trained, Variation

        theta, rows = self.dispatch(state, clients)
        share = state.weights / state.weights.sum()  # alpha_i, (M,)
        pull = 2 * self.lam / (len(share) * share)  # mu_i, (M,)
        parts = []
        for row, client in zip(rows, clients, strict=True):
            how = Variation(anchors=theta[[row]], pull=float(pull[client]))
            one = np.array([client])
            parts.append(engine.train(theta, np.array([row]), one, round, how=how))
        models = np.concatenate([part.theta for part in parts])
        loss = np.concatenate([part.loss for part in parts])
        return state, Trained(models, loss)

    def trains_itself(self) -> bool:
        """Whether clients have different penalties, or a subclass overrides ``train``.

        Otherwise this method trains as the base class.
        """
        return self.alpha == "samples" or type(self).train is not FeSEM.train

    def start(self, fed, model, context: Context) -> FeSEMState:
        """Start with the common initial model for all clients.

        There is one centre, or K equal centres if EM does not make them.
        """
        n_models = 1 if self.grouping == "em" else self.n_clusters
        memory = np.repeat(model.init(context.seed)[None], fed.n_clients, axis=0)
        state = unclustered(FeSEMState, fed, model, context, n_models, memory=memory)
        if self.grouping == "random":
            drawn = stream(context.seed, "method").permutation(fed.n_clients)
            row = drawn % self.n_clusters
            state = replace(state, row=row, labels=row)
        return state

    def collect(
        self, state: FeSEMState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FeSEMState:
        """E-step on the last known models, then M-step."""
        memory = state.memory
        if self.rule == "last_aggregate":
            memory = state.models[state.row]
        memory[clients] = theta
        heard = with_rows(state.heard, clients, True)
        state = replace(state, memory=memory, heard=heard)

        models = state.models
        if len(models) < self.n_clusters <= heard.sum():
            models = self._first_centers(state, round)
        row = state.row
        if self.grouping != "random":
            row = state.nearest(memory, models)

        if self.rule == "participants":
            sizes = state.weights[clients]
            models = self._m_step(state, row[clients], sizes, theta, models)
        else:
            models = self._m_step(state, row, state.weights, memory, models)
        return replace(state, models=models, row=row, labels=row)

    def _m_step(
        self,
        state: FeSEMState,
        own: np.ndarray,
        sizes: np.ndarray,
        trained: np.ndarray,
        models: np.ndarray,
    ) -> np.ndarray:
        """Return the centres (K, P) of members that count equally, or by samples.

        ``own`` (n,): each member's centre; the rest is as for :meth:`averaged`.
        """
        weights = np.ones_like(sizes)
        if self.weighting == "samples":
            weights = sizes
        clusters = np.arange(len(models))
        share = (own == clusters[:, None]) * weights  # (K, n)
        return self.averaged(state, share, sizes, trained, models)

    def welcome(
        self, state: FeSEMState, new: np.ndarray, round: int, engine: "Engine"
    ) -> FeSEMState:
        """Let newcomers train the mean of all centres, and place them by an E-step."""
        start = common_model(state, new)
        theta = first_training(start, new, round, engine)
        nearest = state.nearest(theta, state.models)
        memory = with_rows(state.memory, new, theta)
        heard = with_rows(state.heard, new, True)
        state = replace(counted(state, len(new)), memory=memory, heard=heard)
        return placed(state, new, nearest)

    def _first_centers(self, state: FeSEMState, round: int) -> np.ndarray:
        """Return K centres (K, P) from k-means on the models known so far.

        If there are fewer distinct models, some centres stay at the old one.
        """
        K = self.n_clusters
        known = state.memory[state.heard]
        once = np.ones(len(known), dtype=int)
        seed = integer(int(state.seed), "method", round)
        origin = state.compared(state.initial)
        labels = best_start(state.compared(known), once, origin, K, seed)
        old = np.repeat(state.models, K, axis=0)
        return cluster_means(labels, once, known, old)

    def averaged(
        self,
        state: FeSEMState,
        share: np.ndarray,
        sizes: np.ndarray,
        trained: np.ndarray,
        models: np.ndarray,
    ) -> np.ndarray:
        """Return the centres (K, P) of the M-step.

        Computed from the members' weights ``share`` (K, n), samples (n,) and trained
        models (n, P); a centre without members keeps its model of ``models`` (K, P).
        """
        return mix_groups(share, trained, models)

    def evaluate(self, state: FeSEMState, engine, split: str):
        """Test clients with their own centre, or all clients with the best centre."""
        if self.report == "own":
            return super().evaluate(state, engine, split)

        n_models = len(state.models)
        M = engine.fed.n_clients
        rows = np.repeat(np.arange(n_models), M)
        clients = np.tile(np.arange(M), n_models)
        every = engine.evaluate(state.models, rows, clients, split)
        good = every.correct if every.squared is None else -every.squared
        best = good.reshape(n_models, M).sum(axis=1).argmax()
        own = slice(best * M, (best + 1) * M)
        parts = {
            name: values[own]
            for name, values in vars(every).items()
            if values is not None
        }
        return replace(every, **parts)


@dataclass(eq=False, repr=False)
class FeSEMAsRun(FeSEM):
    """FeSEM's published code, which has no penalty and an E-step without effect.

    Its clusters start from k-means on vectors of random numbers, and would be formed
    again every 150 rounds in a run of 60.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FeSEMAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    lam: NonNegative = 0.0
    grouping: Literal["em", "random", "equal"] = "random"
    report: Literal["own", "best"] = "best"


@dataclass(eq=False, repr=False)
class FeSEMMA(FeSEM):
    """FeSEM with neurons matched inside each cluster before averaging.

    arXiv 2108.08647, Section 5.1. Options are those of :class:`fltnb.methods.FeSEM`.

    In the M-step the neurons of all members of a cluster are reordered, layer by layer,
    to match the member with the most samples (``fltnb.methods.matching`` lists the
    differences from FedMA). The E-step compares models without reordering. All clients
    start from one model, so their neurons are mostly in the same order already, and
    then this is FeSEM. A network that is not one of ``fltnb.models.NAMES`` raises
    FltnbError.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FeSEMMA(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    name = "fesem_ma"
    layered = True

    def start(self, fed, model, context: Context) -> FeSEMState:
        """Start as FeSEM, and keep the widths of the layers."""
        shapes = [
            (shape[0], math.prod(shape[1:]))
            for _, shape in model.shapes
            if len(shape) > 1
        ]
        state = super().start(fed, model, context)
        return replace(state, shapes=np.array(shapes, dtype=np.int64))

    def averaged(
        self,
        state: FeSEMState,
        share: np.ndarray,
        sizes: np.ndarray,
        trained: np.ndarray,
        models: np.ndarray,
    ) -> np.ndarray:
        """Average matched neurons inside the clusters."""
        models = models.copy()
        for center, weights in enumerate(share):
            members = np.flatnonzero(weights > 0)
            if len(members):
                layers = [split(trained[i], state.shapes) for i in members]
                largest = int(sizes[members].argmax())
                mean = matched_mean(layers, weights[members], largest)
                models[center] = joined(mean)
        return models


@dataclass(eq=False, kw_only=True)
class FedSEMState(Unclustered):
    """State of FedSEM: centres (K, P), and the last known models (M, P) if needed."""

    of_clients = ("heard", "memory")

    centers: np.ndarray
    memory: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class FedSEM(HardMethod):
    """FeSEM as in FLT's runs: k-means on all clients' flattened models in every round.

    Models are averaged inside the groups, by samples. In the first round k-means has 20
    starts; in later ones it starts from the last centres. There is no proximal term.

    Parameters
    ----------
    n_clusters : int
        K, the number of groups.
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute to the *average*: nothing, the model that each
        trained last, or the model that served each last. Their *group* always follows
        from their last known model: the one that they trained last, or under
        ``last_aggregate`` the one that served them last.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedSEM(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FedSEMState
    name = "fedsem"

    rule: Rule = "participants"

    def start(self, fed, model, context: Context) -> FedSEMState:
        """Start with the common initial model; the first grouping comes later."""
        K = self.n_clusters
        theta = model.init(context.seed)
        centers = np.repeat(theta[None, : model.n_trainable], K, axis=0)
        memory = None
        if self.rule != "last_aggregate":
            memory = np.repeat(theta[None], fed.n_clients, axis=0)
        more = {"centers": centers, "memory": memory}
        state = unclustered(FedSEMState, fed, model, context, K, **more)
        return replace(state, labels=None)  # there are none yet

    def collect(
        self, state: FedSEMState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FedSEMState:
        """Group all clients by their last known models, then average in the groups."""
        if state.memory is not None:
            state.memory[clients] = theta
        points, which = self._known(state, clients, theta)
        groups, centers = self._grouped(state, points, np.bincount(which), round)
        labels = groups[which]

        # plain centres, but averages by samples
        if self.rule == "participants":
            weights = state.weights[clients]
            models = cluster_means(labels[clients], weights, theta, state.models)
        else:
            weights = np.bincount(which, state.weights)
            models = cluster_means(groups, weights, points, state.models)
        return replace(
            state,
            row=labels,
            labels=labels,
            models=models,
            centers=centers.astype(theta.dtype),
        )

    def welcome(
        self, state: FedSEMState, new: np.ndarray, round: int, engine: "Engine"
    ) -> FedSEMState:
        """Let newcomers train the mean of all models and join the nearest centre."""
        start = common_model(state, new)
        theta = first_training(start, new, round, engine)
        nearest = state.nearest(theta, state.centers)
        state = counted(state, len(new))
        if state.memory is not None:
            state = replace(state, memory=with_rows(state.memory, new, theta))
        return placed(state, new, nearest)

    def _known(
        self, state: FedSEMState, clients: np.ndarray, theta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the different known models (D, P), and each client's index (M,)."""
        if self.rule != "last_aggregate" and state.labels is not None:
            return state.memory, np.arange(len(state.row))
        # absent clients hold one of the K models: at most n + K different ones
        place = len(theta) + state.row
        place[clients] = np.arange(len(theta))
        held, which = np.unique(place, return_inverse=True)
        return np.vstack([theta, state.models])[held], which

    def _grouped(
        self, state: FedSEMState, points: np.ndarray, count: np.ndarray, round: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Group models (D,) held by ``count`` clients each; also return the centres."""
        compared = state.compared(points)
        initial = state.compared(state.initial)
        if state.labels is not None:
            return lloyd(compared, count, state.centers, initial)
        seed = integer(int(state.seed), "method", round)
        groups = best_start(compared, count, initial, self.n_clusters, seed)
        return groups, cluster_means(groups, count, compared, state.centers)


@dataclass(eq=False, repr=False)
class FedSEMAsRun(FedSEM):
    """FedSEM in FLT's tables: absent clients contribute their last trained model.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedSEMAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    rule: Rule = PUBLISHED_RULE
