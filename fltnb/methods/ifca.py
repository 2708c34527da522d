"""IFCA: every participant picks the model that fits its data best (Ghosh et al., arXiv 2006.04088)."""

from typing import ClassVar, Literal

import numpy as np

from ..settings import Count, Natural
from .base import Context, HardMethod, State, mix_groups, one_cluster, several
from .modelspace import cluster_means, with_rows
from .samples import Split


class IFCA(HardMethod):
    """Iterative federated clustering, model-averaging version (IFCA, Algorithm 1, option II).

    K models are sent to each participant, which trains the one of least loss; the server averages by groups. An absent
    client keeps its last group, one never drawn is served model 0.

    Parameters
    ----------
    warmup : int
        Rounds of plain FedAvg before the K models part. They then take over all layers but the last, and each begins
        with a freshly drawn last layer (everybody would choose FedAvg's trained one). FLT's scenario 3: 500 of 1,500.
    shared : {"none", "lower"}
        "lower" is the weight sharing of IFCA's FEMNIST experiment: all layers but the last are averaged over all
        participants, and only the last layer belongs to a group. (FLT's fork trained nothing else after the warm-up.)
    split : {"train", "val"}, what participants compare the models on; EMD-CFL's runs took validation data
    starts : int
        Draws of the K models. When they part, the draw whose smallest group of first participants is largest is kept.
        IFCA's official code draws anew until every model is chosen by a tenth of them: from one draw, one model often
        gets everybody, and the run is FedAvg. What sending the draws costs, once, is not counted.
    """

    name = "ifca"

    warmup: Natural = 0
    shared: Literal["none", "lower"] = "none"
    split: Split = "train"
    starts: Count = 1

    def start(self, fed, model, context: Context) -> State:
        """K independently initialised models; if layers are shared, they differ in the last one only."""
        models = several(model, context, self.n_clusters * self.starts)
        own = (
            slice(0, models.shape[1])
            if self.shared == "none" and not self.warmup
            else model.head
        )
        heads, K = models[:, own].copy(), self.n_clusters
        state = one_cluster(fed, models[0]) | {
            "models": models[:K],
            "heads": heads[:K],
            "own": np.array([own.start, own.stop]),
            "warm": np.array(self.warmup > 0),
        }
        if self.starts > 1:
            state["drawn"] = heads.reshape(self.starts, K, -1)
        return state if self.warmup else self._part(state)

    def _part(self, state: State) -> State:
        """Give every group the lower layers of model 0 and a last layer of its own."""
        models, heads = state["models"].copy(), state["heads"]
        if (
            self.n_clusters > 1
        ):  # a single model has nothing to part from: it stays FedAvg's
            models[:] = models[0]
            models[:, slice(*state["own"])] = heads
        return state | {"models": models, "warm": np.array(False)}

    def observe(self, state: State, clients: np.ndarray, round: int, engine) -> State:
        """Let participants pick the model with the least mean loss; ties go to the lowest index."""
        if round <= self.warmup:
            return state
        if state["warm"]:
            state = self._part(state)
        if "drawn" in state:
            drawn = [self._part(state | {"heads": heads}) for heads in state["drawn"]]
            fewest = [
                np.bincount(
                    self._best(one, clients, engine), minlength=self.n_clusters
                ).min()
                for one in drawn
            ]
            state = {
                name: value
                for name, value in drawn[int(np.argmax(fewest))].items()
                if name != "drawn"
            }
        row = with_rows(state["row"], clients, self._best(state, clients, engine))
        return state | {"row": row, "labels": row}

    def _best(self, state: State, clients: np.ndarray, engine) -> np.ndarray:
        """Return the model of least mean loss of each client (n,)."""
        K, n = len(state["models"]), len(clients)
        pairs = np.repeat(np.arange(K), n), np.tile(clients, K)
        loss = engine.evaluate(state["models"], *pairs, self.split).loss.reshape(K, n)
        return np.where(np.isnan(loss), np.inf, loss).argmin(axis=0)

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Average inside the groups, weighted by samples; a group that nobody chose keeps its model."""
        weights = state["weights"][clients]
        models = cluster_means(state["row"][clients], weights, theta, state["models"])
        if self.shared == "lower" and not state["warm"]:
            everybody = mix_groups(weights[None], theta, models[:1])
            lower = np.ones(models.shape[1], dtype=bool)
            lower[slice(*state["own"])] = False
            models[:, lower] = everybody[:, lower]
        return state | {"models": models}

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """K models down and one up; one down in the warm-up; shared layers travel once (group ids are not counted)."""
        if state["warm"]:
            return n_parameters, n_parameters
        own = state["heads"].shape[1] if self.shared == "lower" else n_parameters
        return n_parameters + (self.n_clusters - 1) * own, n_parameters


class HypoCluster(IFCA):
    """The row HypoCluster(K) of FeSEM's tables (Mansour et al., arXiv 2002.10619): IFCA's alternation alone."""

    name = "hypocluster"

    warmup: ClassVar = 0
    shared: ClassVar = "none"
    starts: ClassVar = 1
