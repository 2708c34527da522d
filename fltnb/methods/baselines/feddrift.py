"""FedDrift: clients leave a model that no longer fits; similar models are merged.

Jothimurugesan et al., AISTATS 2023 (arXiv 2206.00799). Written from the authors' code
(microsoft/FedDrift), not compared with the paper.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from ...aggregate import mix
from ...clustering.pacfl import flat_clusters
from ...errors import FltnbError
from ...settings import Count, Share
from ..base import Context, HardMethod, Method
from ..modelspace import with_rows
from ..state import State, alone, one_cluster

ROUNDING = 1e-9  # tolerance for differences between accuracies


@dataclass(eq=False, kw_only=True)
class FedDriftState(State):
    """State of FedDrift: the quantities that decide at the start of a phase.

    ``last`` (M,): accuracy of each client's model on its own data, NaN if never
    measured; ``pairs`` (K,): the sum over phases of the clients of each model; ``idle``
    (K,): phases since a client used the model; ``fresh``: whether a phase begins;
    ``sent`` (2,): scalars sent up and down at the start of phases.
    """

    last: np.ndarray
    pairs: np.ndarray
    idle: np.ndarray
    fresh: np.ndarray
    sent: np.ndarray


@dataclass(eq=False, repr=False)
class FedDrift(Method):
    """Clusters for federations that change; between changes it is FedAvg inside them.

    When a phase begins, every client, also an absent one, tests all models on its new
    training data and takes the best. If the accuracy of the best is lower by more than
    ``delta`` than that of its own model was before, the client gets a new model, a copy
    of the best. The models of the other clients are compared in pairs: how much worse
    each model is on the data of the other's clients than the other model
    (:func:`losses_of_merging`). Complete linkage merges models up to ``merge``. In the
    mean a model's weight is the sum of its clients over all phases.

    In the original, training uses all data that a model's clients ever had. Here it
    uses the data of the present phase (a window of one). FedDrift-Eager is not
    implemented.

    Parameters
    ----------
    delta : float
        Accuracy as a share; 0.04 to 0.20 in the authors' runs, by data set.
    merge : float, optional
        By default ``delta``.
    first : {"each", "one"}
        Whether each client starts with its own model, or all clients with one.
    max_models : int, optional
        Largest number of models; by default the number of clients. The models that have
        been unused for longest are removed first; if all are in use, no client can
        leave.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedDrift()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    state_type = FedDriftState
    name = "feddrift"
    every_round = True  # whether accuracies are measured again during training

    delta: Share = 0.1
    merge: Share | None = None
    first: Literal["each", "one"] = "each"
    max_models: Count | None = None

    def check(self, fed) -> None:
        """Refuse numbers to predict: models are compared by accuracy."""
        super().check(fed)
        if fed.targets == "values":
            raise FltnbError(
                f"FedDrift compares accuracies, and {fed.name} has numbers to predict: "
                "choose another method."
            )

    def start(self, fed, model, context: Context) -> FedDriftState:
        """Start with one model for all, or with copies of it."""
        theta = model.init(context.seed)
        K = 1 if self.first == "one" else fed.n_clients
        more = {
            "last": np.full(fed.n_clients, np.nan),
            "pairs": np.full(K, fed.n_clients // K),
            "idle": np.zeros(K, dtype=np.int64),
            "fresh": np.array(False),
            "sent": np.zeros(2, dtype=np.int64),
        }
        if self.first == "one":
            return one_cluster(FedDriftState, fed, theta, **more)
        return alone(FedDriftState, fed, theta, labels=np.arange(K), **more)

    def changed(
        self, state: FedDriftState, fed, model, changed: np.ndarray, context: Context
    ) -> FedDriftState:
        """Mark the start of a phase; newcomers wait for it with the first model."""
        new = fed.n_clients - len(state.row)
        row = np.append(state.row, np.zeros(new, dtype=np.int64))
        return replace(
            state,
            row=row,
            labels=row,
            last=np.append(state.last, np.full(new, np.nan)),
            weights=np.asarray(fed.sizes, dtype=np.float64),
            fresh=np.array(True),
        )

    def observe(
        self, state: FedDriftState, clients: np.ndarray, round: int, engine
    ) -> FedDriftState:
        """Begin a phase, or let participants test their own model."""
        if state.fresh:
            return self._new_phase(state, engine)
        if round > 1 and not self.every_round:
            return state
        found = engine.evaluate(state.models, state.row[clients], clients, "train")
        last = with_rows(state.last, clients, found.correct / found.total)
        return replace(state, last=last)

    def _new_phase(self, state: FedDriftState, engine) -> FedDriftState:
        """Let clients choose or leave, and merge the models of the others."""
        K, M = len(state.models), len(state.row)
        rows = np.repeat(np.arange(K), M)
        found = engine.evaluate(state.models, rows, np.tile(np.arange(M), K), "train")
        right = found.correct.reshape(K, M).T
        total = found.total.reshape(K, M)[0]
        accuracy = right / total[:, None]
        best = accuracy.argmax(axis=1)

        most = M if self.max_models is None else self.max_models
        fell = accuracy.max(axis=1) < state.last - self.delta - ROUNDING
        room = max(most - len(np.unique(best)), 0)
        leaving = np.flatnonzero(fell)[:room]
        stays = ~np.isin(np.arange(M), leaving)

        used = np.unique(best[stays])
        lost = losses_of_merging(right[stays], total[stays], best[stays])
        group = self._merged(lost)
        unused = np.setdiff1d(np.arange(K), used)
        unused = unused[np.argsort(state.idle[unused], kind="stable")]
        unused = unused[: max(most - len(leaving) - len(np.unique(group)), 0)]

        # new models: merged ones, one for each leaving client, kept ones
        n_groups = len(np.unique(group))
        W = np.zeros((n_groups + len(leaving) + len(unused), K))
        W[group, used] = state.pairs[used]
        copied = np.append(best[leaving], unused)
        W[n_groups + np.arange(len(copied)), copied] = state.pairs[copied]
        row = np.zeros(M, dtype=np.int64)
        row[stays] = group[np.searchsorted(used, best[stays])]
        row[leaving] = n_groups + np.arange(len(leaving))

        pairs = W.sum(axis=1)
        models = mix(W / pairs[:, None], state.models)
        asked = np.array([M * K, M * state.models.size])
        pairs[n_groups : n_groups + len(leaving)] = 0
        idle = np.append(np.zeros(len(W) - len(unused)), state.idle[unused] + 1)
        return replace(
            state,
            models=models,
            row=row,
            labels=row,
            last=accuracy[np.arange(M), best],
            pairs=(pairs + np.bincount(row, minlength=len(W))).astype(np.int64),
            idle=idle.astype(np.int64),
            fresh=np.array(False),
            sent=state.sent + asked,
        )

    def _merged(self, lost: np.ndarray) -> np.ndarray:
        """Return the group of each model, from the losses of merging two (n, n)."""
        if len(lost) < 2:
            return np.zeros(len(lost), dtype=np.int64)
        merge = self.delta if self.merge is None else self.merge
        tree = linkage(squareform(lost, checks=False), "complete")
        return flat_clusters(tree, merge + ROUNDING)

    collect = HardMethod.collect


@dataclass(eq=False, repr=False)
class FedDriftAsRun(FedDrift):
    """FedDrift in its code: accuracies from the beginning of each phase.

    A model's first accuracy is that before any training, so a change in the second
    phase is almost never noticed.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedDriftAsRun()
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    every_round = False


def losses_of_merging(
    right: np.ndarray, total: np.ndarray, best: np.ndarray
) -> np.ndarray:
    """Return the accuracy (n, n) that two models lose on each other's clients.

    It is the larger of the two losses. Each model predicts ``right`` (m, K) of
    ``total`` (m,) samples of each client correctly; ``best`` (m,) is each client's
    model. The n models are those that have clients.
    """
    used = np.unique(best)
    members = (best == used[:, None]).astype(np.float64)
    samples = np.maximum(members @ total, 1)
    accuracy = (members @ right[:, used]).T / samples  # of model i on cluster j
    own = np.diag(accuracy)
    lost = np.maximum(own[:, None] - accuracy, (own[:, None] - accuracy).T)
    return np.maximum(lost, 0.0)
