"""FedClust: clients whose last layers end up alike after a first training belong together.

Islam et al., ICPP 2024 (arXiv 2407.07124).
"""

from __future__ import annotations

import numpy as np

from ..errors import FltnbError
from ..settings import Count, NonNegative, Variant
from .base import Context, Method, State
from .coldstart import ColdStart
from .modelspace import cluster_means

BLOCK = 65536  # weights per step: bounds the float64 copies


class FedClust(ColdStart):
    """One-shot clustering by the weights of the final layer, then FedAvg inside the clusters.

    Round 1 is the warm-up: the participants train from the initial model and send their final layer only. Euclidean
    distances between these, complete linkage and a threshold give the clusters, whose models still are the initial
    one: what was trained in the warm-up is never sent in full. A newcomer joins the cluster whose members' mean final
    layer is nearest to its own (:class:`fltnb.methods.coldstart.ColdStart`).

    Parameters
    ----------
    threshold : float, optional
        lambda: no two members of a cluster are farther apart. It depends on model, learning rate and epochs.
    n_clusters : int, optional
        Cut the dendrogram into so many clusters instead. Give one of the two.
    variant : {"as_written", "as_run"}
        "as_run": :class:`FedClustAsRun`.

    Notes
    -----
    The warm-up's length and the linkage stand in no text at hand; EMD-CFL's runs used complete linkage. A newcomer is
    counted as sending a whole model, as everybody else in its round, though its last layer would do.
    """

    name = "fedclust"

    def __init__(
        self,
        threshold: NonNegative | None = None,
        n_clusters: Count | None = None,
        *,
        variant: Variant = "as_written",
    ):
        if (threshold is None) == (n_clusters is None):
            raise FltnbError("FedClust needs a threshold or a number of clusters: give threshold or n_clusters.")

    def check(self, fed) -> None:
        """Refuse more clusters than clients."""
        from ..relatedness.base import check_cluster_count

        check_cluster_count(self.n_clusters, fed.n_clients)

    @property
    def least(self) -> int:
        """Participants that round 1 needs."""
        return max(2, self.n_clusters or 0)

    def form(self, state, clients, theta, round):
        """Complete linkage of the final layers."""
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import pdist

        from ..relatedness.pacfl import flat_clusters

        sent = theta[:, slice(*state["head"])]
        squared = 0.0
        for begin in range(0, sent.shape[1], BLOCK):
            squared += pdist(sent[:, begin : begin + BLOCK].astype(np.float64), "sqeuclidean")
        tree = linkage(np.sqrt(squared), "complete")
        labels = flat_clusters(tree, np.inf if self.threshold is None else self.threshold, self.n_clusters)
        means = np.stack([sent[labels == k].mean(axis=0, dtype=np.float64) for k in range(labels.max() + 1)])
        return labels, np.repeat(state["models"], len(means), axis=0), {"heads": means}

    def place(self, state: State, theta: np.ndarray) -> np.ndarray:
        """Nearest mean final layer."""
        from scipy.spatial.distance import cdist

        return cdist(theta[:, slice(*state["head"])].astype(np.float64), state["heads"]).argmin(axis=1)

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """Count a model down and one up; in the warm-up the final layer up."""
        return n_parameters, int(np.diff(state["head"])[0]) if state["forming"] else n_parameters


class FedClustAsRun(FedClust, as_run=True):
    """What printed EMD-CFL's tables: the accuracies of its rows are those of models of one round.

    Distances are between *all* weights (thresholds: 5 on rotated MNIST, 45 on rotated CIFAR-10, 8 on PACS, 4 and 28 on
    the backdoors). The clusters' models are the averages, by samples, of what the warm-up trained, and are **never
    updated again**.
    """

    def start(self, fed, model, context: Context) -> State:
        """One common model, of which all trained weights are compared."""
        return super().start(fed, model, context) | {"head": np.array([0, model.n_trainable])}

    def form(self, state, clients, theta, round):
        """Complete linkage of all weights, and the only averages."""
        labels, models, more = super().form(state, clients, theta, round)
        return labels, cluster_means(labels, state["weights"][clients], theta, models), more

    def aggregate(self, state: State, labels, weights, theta) -> np.ndarray:
        """Leave the models as they are."""
        return state["models"][1:]

    traffic = Method.traffic
