"""FedClust: clusters by the weights of the last layer, found in a warm-up round.

Islam et al., ICPP 2024 (arXiv 2407.07124).
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, pdist

from ...clustering.pacfl import flat_clusters
from ...errors import FltnbError
from ...settings import Count, NonNegative
from ..base import Method
from ..modelspace import BLOCK, cluster_means
from .coldstart import ColdStart, ColdStartState


@dataclass(eq=False, kw_only=True)
class FedClustState(ColdStartState):
    """State of FedClust: the mean last layer (C, d) of each cluster's first members."""

    heads: np.ndarray | None = None


@dataclass(eq=False, repr=False)
class FedClust(ColdStart):
    """One-shot clustering by the weights of the last layer, then FedAvg in clusters.

    Islam et al., ICPP 2024 (arXiv 2407.07124). In round 1, the warm-up, participants
    only send their last layer. Euclidean distances between these layers, complete
    linkage (as in EMD-CFL's runs) and a threshold give the clusters. Their models are
    still the initial one. A newcomer joins the cluster whose members' mean last layer
    is nearest to its own, and then sends whole models.

    Parameters
    ----------
    threshold : float, optional
        lambda: no two members of a cluster are farther apart than this. A good value
        depends on the training.
    n_clusters : int, optional
        Cut the dendrogram into this number of clusters; give one of the two.

    Raises
    ------
    FltnbError
        Neither or both of the two are given, or fewer than ``n_clusters`` clients, or
        fewer than 2, take part in round 1.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedClust(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    state_type = FedClustState
    name = "fedclust"
    least = 2
    headed = True

    threshold: NonNegative | None = None
    n_clusters: Count | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.threshold is None) == (self.n_clusters is None):
            raise FltnbError(
                "FedClust needs either a threshold or a number of clusters: give "
                "threshold or n_clusters, and not both."
            )

    def compared(self, model) -> slice:
        """Return the columns of the last layer."""
        return model.head

    def form(self, state, clients, theta, round):
        """Cluster the last layers by complete linkage."""
        sent = theta[:, slice(*state.head)]
        squared = 0.0
        for at in range(0, sent.shape[1], BLOCK):
            squared = squared + pdist(sent[:, at : at + BLOCK], "sqeuclidean")
        tree = linkage(np.sqrt(squared), "complete")

        labels = flat_clusters(tree, self.threshold, self.n_clusters)
        n_clusters = labels.max() + 1
        heads = np.stack(
            [
                sent[labels == k].mean(axis=0, dtype=np.float64)
                for k in range(n_clusters)
            ]
        )
        models = np.repeat(state.models, n_clusters, axis=0)
        return labels, models, {"heads": heads}

    def place(self, state: FedClustState, theta: np.ndarray) -> np.ndarray:
        """Return the cluster with the nearest mean last layer."""
        sent = theta[:, slice(*state.head)].astype(np.float64)
        return cdist(sent, state.heads).argmin(axis=1)

    def traffic(self, state: FedClustState, n_parameters: int) -> tuple[int, int]:
        """Count a model down and one up; in the warm-up only the last layer up."""
        begin, end = state.head.tolist()
        up = end - begin if state.forming else n_parameters
        return n_parameters, up


@dataclass(eq=False, repr=False)
class FedClustAsRun(FedClust):
    """FedClust as in EMD-CFL's tables: the models are fixed after the warm-up.

    Distances are between *all* weights, and the averages of the warm-up **never
    change**.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedClustAsRun(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.accuracy > 0
    True
    """

    variant = "as_run"

    headed = False
    compared = ColdStart.compared

    def form(self, state, clients, theta, round):
        """Cluster all weights by complete linkage, and average once."""
        labels, models, more = super().form(state, clients, theta, round)
        weights = state.weights[clients]
        return labels, cluster_means(labels, weights, theta, models), more

    def aggregate(self, state: FedClustState, labels, weights, theta) -> np.ndarray:
        """Leave the models as they are."""
        return state.models[1:]

    def traffic(self, state: FedClustState, n_parameters: int) -> tuple[int, int]:
        """Count a model down and one up, also in the warm-up."""
        return Method.traffic(self, state, n_parameters)
