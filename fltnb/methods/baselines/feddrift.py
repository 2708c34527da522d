"""FedDrift: clients leave a model that no longer fits; similar models are merged."""

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

    Attributes
    ----------
    last : array (M,)
        Accuracy of each client's model on its own data, NaN if never measured.
    pairs : int array (K,)
        The sum over phases of the clients of each model.
    idle : int array (K,)
        Phases since a client used the model.
    fresh : bool
        Whether a phase begins.
    sent : int array (2,)
        Scalars sent up and down at the start of phases.
    """

    last: np.ndarray
    pairs: np.ndarray
    idle: np.ndarray
    fresh: np.ndarray
    sent: np.ndarray


@dataclass(eq=False, repr=False)
class FedDrift(Method):
    """Clusters for federations that change; between changes it is FedAvg inside them.

    Jothimurugesan et al., AISTATS 2023 (arXiv 2206.00799); written from the authors'
    code (microsoft/FedDrift), not compared with the paper.

    When a phase begins, every client, also an absent one, tests all models on its new
    training data and takes the best. If the accuracy of the best is lower by more than
    ``delta`` than that of its own model was before, the client gets a new model, a copy
    of the best. The models of the other clients are compared in pairs: how much
    accuracy each model loses on the data of the other model's clients. Complete linkage
    merges models up to a loss of ``merge``. A merged model is a mean, in which each
    model has the weight of its number of clients, summed over all phases.

    In the original, training uses all data that a model's clients ever had. Here it
    uses the data of the present phase (a window of one). FedDrift-Eager is not
    implemented.

    Parameters
    ----------
    delta : float
        Smallest fall of a client's accuracy, as a share, that makes it leave its model;
        0.04 to 0.20 in the authors' runs, by data set.
    merge : float, optional
        Largest loss of accuracy, as a share, up to which models are merged; by default
        ``delta``.
    first : {"each", "one"}
        Whether each client starts with its own model, or all clients with one.
    max_models : int, optional
        Largest number of models; by default the number of clients. The models that have
        been unused for longest are removed first; if all are in use, no client can
        leave.

    Raises
    ------
    FltnbError
        ``max_models`` is given and ``first="each"`` starts with more; or the federation
        has numbers to predict.

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

    def foresee(self, phases, drawn) -> None:
        """Refuse to start with more models than there may be."""
        n_clients = phases[0].fed.n_clients
        if self.first == "each" and (self.max_models or n_clients) < n_clients:
            raise FltnbError(
                f'FedDrift with first="each" starts with {n_clients} models, one for '
                f'each client, and max_models is {self.max_models}: give first="one", '
                "or leave max_models out."
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
        """Let clients choose or leave, and merge the models of the others.

        The new models are in this order: merged ones, a copy for each client that
        leaves, and unused ones that are kept. If clients 0 to 3 choose models 0, 2, 2
        and 1 of four, client 1 leaves and models 0 and 1 are merged, these are the mean
        of 0 and 1, model 2, a copy of model 2, and model 3.
        """
        K = len(state.models)
        M = len(state.row)
        right, total = _told_right(state.models, M, engine)
        accuracy = right / total[:, None]  # (M, K)
        best = accuracy.argmax(axis=1)  # each client's best model
        highest = accuracy.max(axis=1)
        most = self.max_models or M
        leaving = self._leaving(state, highest, most - len(np.unique(best)))
        stays = np.ones(M, dtype=bool)
        stays[leaving] = False

        used = np.unique(best[stays])
        lost = losses_of_merging(right[stays], total[stays], best[stays])
        group = self._merged(lost)  # of each model in `used`
        n_groups = len(np.unique(group))
        n_taken = n_groups + len(leaving)
        unused = _latest_unused(state.idle, used, most - n_taken)

        row = np.empty(M, dtype=np.int64)
        row[stays] = group[np.searchsorted(used, best[stays])]
        row[leaving] = np.arange(n_groups, n_taken)

        copied = np.append(best[leaving], unused)
        parts = _parts(state.pairs, used, group, copied)
        weight = parts.sum(axis=1)
        pairs = weight + np.bincount(row, minlength=len(parts))
        pairs[n_groups:n_taken] = 1  # of a copy only the client that leaves
        idle = np.append(np.zeros(n_taken), state.idle[unused] + 1)
        asked = np.array([M * K, M * state.models.size])  # up: accuracies; down: models
        return replace(
            state,
            models=mix(parts / weight[:, None], state.models),
            row=row,
            labels=row,
            last=highest,
            pairs=pairs.astype(np.int64),
            idle=idle.astype(np.int64),
            fresh=np.array(False),
            sent=state.sent + asked,
        )

    def _leaving(
        self, state: FedDriftState, highest: np.ndarray, room: int
    ) -> np.ndarray:
        """Return the clients whose best model is worse by ``delta`` than theirs was.

        ``highest`` (M,): accuracy of each client's best model; ``room``: how many more
        models there may be, so at most this number of clients leaves.
        """
        fell = highest < state.last - self.delta - ROUNDING  # false of NaN
        return np.flatnonzero(fell)[: max(room, 0)]

    def _merged(self, lost: np.ndarray) -> np.ndarray:
        """Return the group of each model (n,), from what merging two loses, (n, n)."""
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


def _latest_unused(idle: np.ndarray, used: np.ndarray, room: int) -> np.ndarray:
    """Return at most ``room`` models that no client chose, the last used ones first.

    ``idle`` (K,): phases since a client used each model.
    """
    unused = np.setdiff1d(np.arange(len(idle)), used)
    longest_last = np.argsort(idle[unused], kind="stable")
    return unused[longest_last][: max(room, 0)]


def _parts(
    pairs: np.ndarray, used: np.ndarray, group: np.ndarray, copied: np.ndarray
) -> np.ndarray:
    """Return how much of each of K models is in each new one, (new models, K).

    First come the groups that are merged, then a row for each copy. Models 0 and 1 in
    one group, model 2 in another, and a copy of model 2 give, with weights 5, 3 and 4,
    [[5, 3, 0], [0, 0, 4], [0, 0, 4]].

    Parameters
    ----------
    pairs : ndarray of int, shape (K,)
        Weights.
    used, group : ndarrays of int, shape (n,)
        Models, and the group of each.
    copied : ndarray of int
        Models that are copied.
    """
    n_groups = len(np.unique(group))
    copies = np.arange(n_groups, n_groups + len(copied))
    parts = np.zeros((n_groups + len(copied), len(pairs)))
    parts[group, used] = pairs[used]
    parts[copies, copied] = pairs[copied]
    return parts


def _told_right(
    models: np.ndarray, n_clients: int, engine
) -> tuple[np.ndarray, np.ndarray]:
    """Test K models on the training data of all M clients.

    Returns
    -------
    right : ndarray, shape (M, K)
        How many samples of each client each model predicts correctly.
    total : ndarray, shape (M,)
        Samples of each client.
    """
    K = len(models)
    everybody = np.arange(n_clients)
    rows = np.repeat(np.arange(K), n_clients)  # model 0 on all, model 1 on all, ...
    clients = np.tile(everybody, K)
    found = engine.evaluate(models, rows, clients, "train")
    right = found.correct.reshape(K, n_clients).T
    total = found.total.reshape(K, n_clients)[0]
    return right, total


def losses_of_merging(
    right: np.ndarray, total: np.ndarray, best: np.ndarray
) -> np.ndarray:
    """Return the accuracy that two models lose on each other's clients.

    Parameters
    ----------
    right : ndarray, shape (m, K)
        How many samples of each client each model predicts correctly.
    total : ndarray, shape (m,)
        Samples of each client.
    best : ndarray of int, shape (m,)
        Each client's model.

    Returns
    -------
    ndarray, shape (n, n)
        The larger of the two losses, of the n models that have clients; 0 where
        neither loses.
    """
    used = np.unique(best)
    members = (best == used[:, None]).astype(np.float64)  # (n, m)
    samples = np.maximum(members @ total, 1)
    accuracy = (members @ right[:, used]).T / samples  # of model i on cluster j
    own = np.diag(accuracy)
    # how much less model i has on cluster j than on its own
    lost = own[:, None] - accuracy
    larger = np.maximum(lost, lost.T)
    return np.maximum(larger, 0.0)
