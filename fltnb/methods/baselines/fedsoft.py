"""FedSoft: clients between several centres (Ruan and Joe-Wong, arXiv 2112.06053)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from ...aggregate import mix
from ...settings import Count, NonNegative
from ..base import Context, Welcoming
from ..modelspace import with_rows
from ..samples import batch_means, sample_losses
from ..state import State, one_cluster, several

FLOOR = 1e-4  # smallest importance: of a centre that no sample of a client prefers


@dataclass(eq=False, kw_only=True)
class FedSoftState(State):
    """State of FedSoft: what every client has measured.

    ``own`` (M, P): the models trained last; ``importance`` (M, K) of the centres, from
    ``counts`` (M, K) of samples; ``measured`` (M,): which clients ever measured it.
    """

    of_clients = ("own", "importance", "counts", "measured")

    own: np.ndarray
    importance: np.ndarray
    counts: np.ndarray
    measured: np.ndarray


@dataclass(eq=False, repr=False)
class FedSoft(Welcoming):
    """K centres on the server, and every client's importance weights of them.

    Ruan and Joe-Wong, arXiv 2112.06053. A client's weight u_k is the share of its
    samples that prefer centre k. In every ``period``-th round a participant counts
    which centre has the smallest loss on each of its training samples; these shares are
    u. It trains one model near all centres, ``f_i(theta) + lam / 2 sum_k u_k ||theta -
    center_k||^2``. This model enters every centre, with weights ``u_ik n_i`` normalised
    to sum 1 over the participants.

    Up to a constant, the penalty pulls towards the mean of the centres with weights u.
    Here clients also *start* from this mean, as in the published runs; in the original
    they continue from their own model. The original draws clients for each centre in
    proportion to ``u_ik n_i`` and averages them equally; here every participant counts
    for every centre.

    Parameters
    ----------
    n_clusters : int
        K, the number of centres.
    lam : float
        lambda; 0.01 (CIFAR-10) and 0.1 (MNIST) in the official examples.
    period : int
        tau, rounds from one measurement of u to the next.
    serves : {"own", "center"}
        The tested model: the one that a client trained last, or its centre with the
        largest importance.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedSoft(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FedSoftState
    name = "fedsoft"
    split = "train"

    n_clusters: Count
    lam: NonNegative = 0.01
    period: Count = 2
    serves: Literal["own", "center"] = "own"

    def local_training(self) -> dict[str, float]:
        """Add the proximal term."""
        return {"proximal": self.lam}

    def start(self, fed, model, context: Context) -> FedSoftState:
        """Start with K independent centres; no client has measured."""
        K = self.n_clusters
        models = several(model, context, K)
        return one_cluster(
            FedSoftState,
            fed,
            models,
            own=np.repeat(models[:1], fed.n_clients, axis=0),
            importance=np.full((fed.n_clients, K), 1 / K),
            counts=np.zeros((fed.n_clients, K)),
            measured=np.zeros(fed.n_clients, dtype=bool),
        )

    def observe(
        self, state: FedSoftState, clients: np.ndarray, round: int, engine
    ) -> FedSoftState:
        """Let participants count how many of their samples each centre suits best.

        They do so in due rounds, or if they have never done it.
        """
        state = super().observe(state, clients, round, engine)
        due = clients
        if (round - 1) % self.period != 0:
            due = clients[~state.measured[clients]]
        return self._measured(state, due, engine)

    def welcome(
        self, state: FedSoftState, new: np.ndarray, round: int, engine
    ) -> FedSoftState:
        """Let newcomers count; the centres' mean serves them until they train."""
        state = self._measured(state, new, engine)
        means = mix(state.importance[new], state.models)
        return replace(state, own=with_rows(state.own, new, means))

    def _measured(self, state: FedSoftState, due: np.ndarray, engine) -> FedSoftState:
        """Let some clients count how many of their samples each centre suits best."""
        importance = state.importance.copy()
        counts = state.counts.copy()
        losses = sample_losses(engine, state.models, due, self.split)
        for client, mine in zip(due, losses, strict=True):
            samples = state.weights[client]
            counts[client] = self.counted(mine, samples, engine.spec.batch_size)
            importance[client] = counts[client] / counts[client].sum()

        largest = importance.argmax(axis=1)
        return replace(
            state,
            importance=importance,
            row=largest,
            labels=largest,
            counts=counts,
            measured=with_rows(state.measured, due, True),
        )

    def counted(
        self, losses: np.ndarray, samples: float, batch_size: int
    ) -> np.ndarray:
        """Return ``u_k n`` (K,) of a client, from the losses (K, n) of its samples."""
        count = np.bincount(losses.argmin(axis=0), minlength=self.n_clusters)
        share = np.where(count > 0, count / losses.shape[1], FLOOR)
        return share * samples

    def dispatch(
        self, state: FedSoftState, clients: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of the centres with the client's importance weights.

        The proximal term also pulls to this mean.
        """
        theta = mix(state.importance[clients], state.models)
        return theta, np.arange(len(clients))

    def collect(
        self, state: FedSoftState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FedSoftState:
        """Mix all participants' models into every centre, by importance and samples."""
        counts = state.counts[clients]
        return replace(
            state,
            models=mix((counts / counts.sum(axis=0)).T, theta),
            own=with_rows(state.own, clients, theta),
        )

    def serve(self, state: FedSoftState) -> tuple[np.ndarray, np.ndarray]:
        """Serve the clients' own models or their nearest centres."""
        if self.serves == "own":
            return state.own, np.arange(len(state.own))
        return super().serve(state)

    def traffic(self, state: FedSoftState, n_parameters: int) -> tuple[int, int]:
        """Count all centres down; one model and K counts up."""
        return self.n_clusters * n_parameters, n_parameters + self.n_clusters


@dataclass(eq=False, repr=False)
class FedSoftAsRun(FedSoft):
    """FedSoft as in EMD-CFL's tables: whole validation batches are counted.

    They are counted in every round, and there is no proximal term: so it has no options
    ``lam`` and ``period``. Each client needs validation samples.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> method = fl.methods.FedSoftAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
    split = "val"
    lam: ClassVar = 0.0  # type: ignore[misc]  # no option here
    period: ClassVar = 1  # type: ignore[misc]  # no option here

    def counted(
        self, losses: np.ndarray, samples: float, batch_size: int
    ) -> np.ndarray:
        """Count whole batches (K,): all samples of a batch go to its best centre.

        A centre that wins no batch gets a thousandth of the samples, at least 1.
        """
        K, n = losses.shape
        winner = batch_means(losses, batch_size).argmin(axis=0)
        starts = batch_size * np.arange(len(winner))
        sizes = np.minimum(batch_size, n - starts)
        count = np.bincount(winner, sizes, K)
        return np.where(count > 0, count, max(1, int(0.001 * n)))
