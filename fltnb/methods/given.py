"""Averaging inside given clusters, such as those that another program found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import FltnbError
from ..federations import Federation
from ..federations.own import clusters_of
from ..settings import plain
from .base import Context
from .graph import ClientGraph, GraphMethod


@dataclass(eq=False, repr=False)
class Clusters(GraphMethod):
    """FedAvg inside given clusters.

    Parameters
    ----------
    clusters : sequence of M values, or dict
        Cluster of each client, such as ``labels_`` of a clusterer; a dict maps
        the clients' names to clusters. They are numbered 0, 1, ... by sorted value.
    rule : {"participants", "last_local", "last_aggregate"}
        What absent clients contribute: nothing, the model that each trained last, or
        the model that served each last.

    Raises
    ------
    FltnbError
        ``clusters`` does not fit the federation's clients, or has NaN or None.

    Examples
    --------
    >>> Clusters(np.array([0, 0, 1])).settings()
    {'name': 'clusters', 'clusters': [0, 0, 1]}
    """

    name = "clusters"
    graph_decides = True

    clusters: Any

    def __post_init__(self) -> None:
        import pandas as pd

        super().__post_init__()
        given = plain(self.clusters)
        if not isinstance(given, (list, Mapping)) or not given:
            raise FltnbError(
                "clusters must have a value for each client, or be a dict by their "
                f"names, not {self.clusters!r}."
            )
        values = given.values() if isinstance(given, Mapping) else given
        if any(isinstance(one, (list, dict)) or pd.isna(one) for one in values):
            raise FltnbError(
                "clusters must have one number or text for each client, and no NaN or "
                "None: give a client without a cluster one of its own."
            )
        self.clusters = given

    def check(self, fed: Federation) -> None:
        """Refuse clusters that do not fit the federation's clients."""
        super().check(fed)
        self._numbers(fed)

    def client_graph(self, fed: Federation, context: Context) -> ClientGraph:
        """Neighbours are the clients of the same cluster."""
        labels = self._numbers(fed)
        same = labels[:, None] == labels
        return ClientGraph(same.astype(np.uint8), labels)

    def _numbers(self, fed: Federation) -> np.ndarray:
        """Return the numbered cluster of each client (M,), or refuse them."""
        return clusters_of(self.clusters, fed.names)
