"""FedRC: FedEM with weights corrected by the components' shares of the classes.

Guo et al., ICML 2024 (arXiv 2301.12379).
"""

from dataclasses import dataclass, replace

import numpy as np

from ..base import Context
from .fedem import FedEM, FedEMAsRun, FedEMState


@dataclass(eq=False, repr=False)
class FedRC(FedEM):
    """FedEM with weights divided by the share of a *class* in each component.

    Guo et al., ICML 2024 (arXiv 2301.12379). ``q_k(x, y)`` is proportional to
    ``share_k exp(-loss_k(x, y)) / c_k(y)``. c_k(y) is the share of class y in component
    k over all clients, the sum of q_k over the samples of class y divided by its sum
    over all samples. It is renewed in every round and at first equal for all k. So
    label skew alone does not separate clients, and components follow different
    labellings of the same images. The prediction does not use these shares.

    Parameters
    ----------
    n_clusters : int
        K, the number of components.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedRC(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    name = "fedrc"

    def start(self, fed, model, context: Context) -> FedEMState:
        """Start as FedEM, with the same shares of classes in all components."""
        K = self.n_clusters
        C = model.n_classes
        return replace(
            super().start(fed, model, context),
            sums=np.zeros((fed.n_clients, K, C)),
            parts=np.full((K, C), 1 / K),
        )

    def scores(
        self, state: FedEMState, losses: np.ndarray, client: int, labels: np.ndarray
    ) -> np.ndarray:
        """Return FedEM's log-weights minus the logarithms of the classes' shares."""
        scores = super().scores(state, losses, client, labels)
        return scores - np.log(state.parts[:, labels])

    def weighed(
        self, state: FedEMState, weights: dict[int, np.ndarray], fed
    ) -> FedEMState:
        """Store each participant's sums of q by class, which it sends."""
        sums = state.sums.copy()
        n_classes = sums.shape[2]
        for client, q in weights.items():
            labels = fed.labels[fed.train[client]]
            for k, one in enumerate(q):
                sums[client, k] = np.bincount(labels, one, n_classes)
        return replace(state, sums=sums)

    def collect(
        self, state: FedEMState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> FedEMState:
        """Average the components and renew the shares of classes."""
        sums = np.maximum(state.sums.sum(axis=0), 1e-8)
        parts = sums / sums.sum(axis=1, keepdims=True)
        return replace(super().collect(state, clients, theta, round), parts=parts)

    def traffic(self, state: FedEMState, n_parameters: int) -> tuple[int, int]:
        """Count all components and the shares of classes, down and up."""
        down, up = super().traffic(state, n_parameters)
        parts = state.parts.size
        return down + parts, up + parts


@dataclass(eq=False, repr=False)
class FedRCAsRun(FedRC, FedEMAsRun):
    """FedRC as in EMD-CFL's tables: tested like :class:`fltnb.methods.FedEMAsRun`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedRCAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"
