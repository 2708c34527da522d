"""Clusters from the first local training: the common part of FedClust and FlexCFL."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...errors import FltnbError, unwritten
from ..base import Context, HardMethod
from ..modelspace import cluster_means, with_rows
from ..newcomers import counted, first_training, placed
from ..state import OwnState, Unclustered, unclustered


@dataclass(eq=False, kw_only=True)
class ColdStartState(Unclustered):
    """State: the columns by which models are compared, and whether it was round 1."""

    head: np.ndarray
    forming: np.ndarray


@dataclass(eq=False, repr=False)
class ColdStart(HardMethod):
    """Base of FedClust and FlexCFL, which define the clusters and place newcomers.

    Row 0 of the models is the common initial model, row k + 1 the model of cluster k.
    The participants of round 1 are clustered by their trained models. A client that
    takes part later first trains from the initial model, and joins a cluster by the
    result; until then it is served the initial model and counts as a cluster of its
    own. A newcomer does this when it joins. Subclasses define :meth:`form` and
    :meth:`place`.
    """

    state_type: ClassVar[type[ColdStartState]] = ColdStartState
    least = 1  # participants that round 1 needs, if not n_clusters

    def start(self, fed, model, context: Context) -> ColdStartState:
        """Start with one common model, without clusters."""
        compared = self.compared(model)
        return unclustered(
            self.state_type,
            fed,
            model,
            context,
            head=np.array([compared.start, compared.stop]),
            forming=np.array(False),
        )

    def foresee(self, phases, drawn: Sequence[np.ndarray]) -> None:
        """Refuse a first round with too few participants to form clusters from."""
        least = max(self.least, self.n_clusters or 0)
        if len(drawn[0]) < least:
            raise FltnbError(
                f"Round 1 needs {least} participants, not {len(drawn[0])}: choose a "
                "higher participation."
            )

    def compared(self, model) -> slice:
        """Columns of a model by which clients are compared: all that are trained."""
        return slice(0, model.n_trainable)

    def form(self, state: OwnState, clients: np.ndarray, theta: np.ndarray, round: int):
        """Cluster the participants of round 1.

        Returns ``(labels (n,), models of the clusters (C, P), further state)``.
        """
        raise unwritten(self, "form(self, state, clients, theta, round)")

    def welcome(
        self, state: ColdStartState, new: np.ndarray, round: int, engine
    ) -> ColdStartState:
        """Let newcomers train the initial model, and place them by the result."""
        theta = first_training(state.models[:1], new, round, engine)
        return placed(counted(state, len(new)), new, self.place(state, theta) + 1)

    def place(self, state: OwnState, theta: np.ndarray) -> np.ndarray:
        """Return clusters (n,) of newcomers from their trained models (n, P)."""
        raise unwritten(self, "place(self, state, theta)")

    def aggregate(
        self,
        state: OwnState,
        labels: np.ndarray,
        weights: np.ndarray,
        theta: np.ndarray,
    ) -> np.ndarray:
        """Return models (C, P) after clients with these labels have trained."""
        return cluster_means(labels, weights, theta, state.models[1:])

    def collect(
        self, state: ColdStartState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> ColdStartState:
        """Form the clusters, or average inside them and place new clients."""
        forming = len(state.models) == 1
        more = {}
        if forming:
            labels, models, more = self.form(state, clients, theta, round)
            row = with_rows(state.row, clients, labels + 1)
        else:
            row = state.row
            new = row[clients] == 0
            if new.any():
                place = self.place(state, theta[new])
                row = with_rows(row, clients[new], place + 1)
            old = clients[~new]
            weights = state.weights[old]
            models = self.aggregate(state, row[old] - 1, weights, theta[~new])

        # a client without a cluster has a label of its own, above those of clusters
        unplaced = row == 0
        alone = len(models) + np.cumsum(unplaced) - 1
        return replace(
            state,
            models=np.vstack([state.models[:1], models]),
            row=row,
            labels=np.where(unplaced, alone, row - 1),
            forming=np.array(forming),
            **more,
        )
