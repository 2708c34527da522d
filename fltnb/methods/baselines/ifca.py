"""IFCA: every participant picks the model that fits its data best.

Ghosh et al., arXiv 2006.04088.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...aggregate import mix_groups
from ...settings import Count, Natural
from ..base import Context, HardMethod
from ..modelspace import with_rows
from ..newcomers import placed
from ..samples import Split
from ..state import State, one_cluster, several


@dataclass(eq=False, kw_only=True)
class IFCAState(State):
    """State of IFCA: the groups' own columns.

    ``heads`` (K, d) of the columns ``own`` (2,) that groups do not share; ``warm``:
    whether the warm-up continues; ``drawn`` (starts, K, d): heads to choose from.
    """

    heads: np.ndarray
    own: np.ndarray
    warm: np.ndarray
    drawn: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class IFCA(HardMethod):
    """IFCA: each participant trains the one of K models that fits its data best.

    Ghosh et al., arXiv 2006.04088, Algorithm 1, option II (model averaging). K models
    are sent to each participant, which trains the one with the smallest loss; the
    server averages each group. An absent client keeps its last group; a client that was
    never drawn is served model 0.

    Parameters
    ----------
    n_clusters : int
        K, the number of models and groups.
    warmup : int
        Rounds of plain FedAvg before the K models separate. They then copy all layers
        of FedAvg's model except the last, and each starts with a newly drawn last layer
        (otherwise all clients would choose FedAvg's trained one). FLT's scenario 3 has
        500 of 1,500.
    shared : {"none", "lower"}
        "lower" is the weight sharing of IFCA's FEMNIST experiment: all layers except
        the last are averaged over all participants, and only the last layer belongs to
        a group. (FLT's version trained only this layer after the warm-up.)
    split : {"train", "val"}
        The samples on which participants compare the models; EMD-CFL's runs used
        validation samples.
    starts : int
        Number of draws of the K models. When they separate, the draw whose smallest
        group of first participants is largest is kept. IFCA's official code draws again
        until every model is chosen by a tenth of them (four models; with two by 35 %).
        With a single draw, one model often gets all clients, and the run is FedAvg. The
        traffic for sending the draws, once, is not counted.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.IFCA(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = IFCAState
    name = "ifca"

    warmup: Natural = 0
    shared: Literal["none", "lower"] = "none"
    split: Split = "train"
    starts: Count = 1

    @property
    def headed(self) -> bool:  # type: ignore[override]  # by the options here
        """Return whether it uses last layers."""
        return self.shared != "none" or self.warmup > 0

    def start(self, fed, model, context: Context) -> IFCAState:
        """Start with K independently initialised models.

        If layers are shared, they differ only in the last one.
        """
        K = self.n_clusters
        models = several(model, context, K * self.starts)
        whole = self.shared == "none" and not self.warmup
        own = slice(0, models.shape[1]) if whole else model.head
        heads = models[:, own].copy()
        state = one_cluster(
            IFCAState,
            fed,
            models[:K],
            heads=heads[:K],
            own=np.array([own.start, own.stop]),
            warm=np.array(self.warmup > 0),
        )
        if self.starts > 1:
            state = replace(state, drawn=heads.reshape(self.starts, K, -1))
        return state if self.warmup else self._parted(state, state.heads)

    def _parted(self, state: IFCAState, heads: np.ndarray) -> IFCAState:
        """Give every group the lower layers of model 0 and its own last layer."""
        models = state.models.copy()
        # a single model stays FedAvg's
        if self.n_clusters > 1:
            models[:] = models[0]
            models[:, slice(*state.own)] = heads
        return replace(state, models=models, heads=heads, warm=np.array(False))

    def observe(
        self, state: IFCAState, clients: np.ndarray, round: int, engine
    ) -> IFCAState:
        """Let participants pick the model with the smallest mean loss (ties: first)."""
        if round <= self.warmup:
            return super().observe(state, clients, round, engine)
        if state.warm:
            state = self._parted(state, state.heads)
        if state.drawn is not None:
            best = self._best_draw(state, clients, engine)
            state = replace(best, drawn=None)

        state = super().observe(state, clients, round, engine)
        best = self._best(state.models, clients, engine)
        row = with_rows(state.row, clients, best)
        return replace(state, row=row, labels=row)

    def welcome(
        self, state: IFCAState, new: np.ndarray, round: int, engine
    ) -> IFCAState:
        """Let newcomers pick the model with the smallest loss, as participants do."""
        best = 0 if state.warm else self._best(state.models, new, engine)
        return placed(state, new, best)

    def _best_draw(self, state: IFCAState, clients: np.ndarray, engine) -> IFCAState:
        """Return the draw of models whose smallest group is largest."""
        draws = [self._parted(state, heads) for heads in state.drawn]
        smallest = []
        for draw in draws:
            best = self._best(draw.models, clients, engine)
            smallest.append(np.bincount(best, minlength=self.n_clusters).min())
        return draws[int(np.argmax(smallest))]

    def _best(self, models: np.ndarray, clients: np.ndarray, engine) -> np.ndarray:
        """Return the model with the smallest mean loss of each client (n,)."""
        loss = client_losses(models, clients, engine, self.split)
        return np.where(np.isnan(loss), np.inf, loss).argmin(axis=1)

    def collect(
        self, state: IFCAState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> IFCAState:
        """Average inside the groups, by samples; shared layers over all clients."""
        state = super().collect(state, clients, theta, round)
        if self.shared != "lower" or state.warm:
            return state
        weights = state.weights[clients]
        models = state.models.copy()
        everybody = mix_groups(weights[None], theta, models[:1])
        lower = np.ones(models.shape[1], dtype=bool)
        lower[slice(*state.own)] = False
        models[:, lower] = everybody[:, lower]
        return replace(state, models=models)

    def traffic(self, state: IFCAState, n_parameters: int) -> tuple[int, int]:
        """Count K models down and one up; one down in the warm-up.

        Shared layers are sent once. Group ids are not counted.
        """
        if state.warm:
            return n_parameters, n_parameters
        own = n_parameters
        if self.shared == "lower":
            own = state.heads.shape[1]
        return n_parameters + (self.n_clusters - 1) * own, n_parameters


def client_losses(
    models: np.ndarray, clients: np.ndarray, engine, split: Split
) -> np.ndarray:
    """Return the mean loss (n, K) of K models on the data of n clients."""
    K = len(models)
    rows = np.repeat(np.arange(K), len(clients))
    found = engine.evaluate(models, rows, np.tile(clients, K), split)
    return found.loss.reshape(K, len(clients)).T
