"""What methods remember between rounds: named arrays in a dataclass of the method.

A state is never changed in place: ``dataclasses.replace`` makes the next one. The only
exception is ``memory``, the clients' last known models, which can be gigabytes and is
overwritten in place. A field that is None does not exist (yet).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np

from ..federations import Federation
from .modelspace import nearest_center

if TYPE_CHECKING:
    from ..models import Model
    from .base import Context


NOWHERE = -1
"""Row of a client that has joined and is in no cluster yet."""

OwnState: TypeAlias = Any
"""A method's own state, of its class ``state_type``.

Methods name that class where :class:`fltnb.methods.Method` says this: with ``State``
here, type checkers would have every method take the states of all others.
"""

AState = TypeVar("AState", bound="State")


@dataclass(eq=False, kw_only=True)
class State:
    """What a method remembers between rounds: base of all states.

    Attributes
    ----------
    models : array (K, P)
    row : int array (M,)
        Client i is served by ``models[row[i]]``.
    weights : array (M,)
        Training samples of each client.
    labels : int array (M,), optional
        Cluster of each client.
    sent : int array (2,), optional
        Scalars sent up and down besides the rounds' models.
    of_clients : tuple of str
        Names of further fields with an entry for each client, which grow if clients
        join.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> row = np.array([0, 0, 1])
    >>> state = fl.methods.State(models=np.zeros((2, 5)), row=row, weights=np.ones(3))
    >>> sorted(state.arrays())
    ['models', 'row', 'weights']
    """

    of_clients: ClassVar[tuple[str, ...]] = ()

    models: np.ndarray
    row: np.ndarray
    weights: np.ndarray
    labels: np.ndarray | None = None
    sent: np.ndarray | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays that exist, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def mapped(self, change: Callable[[np.ndarray], np.ndarray]) -> Self:
        """Return the state with ``change`` applied to all arrays."""
        changed = {name: change(value) for name, value in self.arrays().items()}
        return replace(self, **changed)

    def joined(self, fed: Federation) -> Self:
        """Return the state with newcomers in no cluster yet: row and label are -1.

        Their entries of ``of_clients`` are 0, except in fields that are no longer kept.
        """
        before = len(self.row)
        new = fed.n_clients - before
        nowhere = np.full(new, NOWHERE)
        grown: dict[str, Any] = {"row": np.append(self.row, nowhere)}
        if self.labels is not None:
            grown["labels"] = np.append(self.labels, nowhere)
        for name in self.of_clients:
            known = getattr(self, name)
            if known is None or len(known) < before:
                continue
            zeros = np.zeros((new, *known.shape[1:]), dtype=known.dtype)
            grown[name] = np.concatenate([known, zeros])
        weights = np.asarray(fed.sizes, dtype=np.float64)
        return replace(self, weights=weights, **grown)


@dataclass(eq=False, kw_only=True)
class Unclustered(State):
    """State for clustering by models.

    Attributes
    ----------
    initial : array (P,)
        The model from which all clients start.
    trainable : int
        How many columns of the models are compared.
    heard : bool array (M,)
        Which clients have trained.
    seed : int
        The run's seed.
    """

    of_clients: ClassVar[tuple[str, ...]] = ("heard",)

    initial: np.ndarray
    trainable: np.ndarray
    heard: np.ndarray
    seed: np.ndarray

    def compared(self, theta: np.ndarray) -> np.ndarray:
        """Return the columns of models (..., P) that are compared, (..., d)."""
        return theta[..., : int(self.trainable)]

    def moved(self, theta: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return what models (n, P) changed of ``start`` (P,), as compared: (n, d)."""
        return self.compared(theta) - self.compared(start)

    def nearest(self, theta: np.ndarray, centers: np.ndarray) -> np.ndarray:
        """Return the nearest of K models (K, P) for each of n models (n, P)."""
        points = self.compared(theta)
        origin = self.compared(self.initial)
        return nearest_center(points, self.compared(centers), origin)


AnUnclustered = TypeVar("AnUnclustered", bound=Unclustered)


def one_cluster(
    kind: type[AState], fed: Federation, theta: np.ndarray, **more: Any
) -> AState:
    """Return a state in which all clients are in cluster 0, served by the first model.

    ``theta``: the models (K, P), or the only one (P,); ``more``: further fields.
    """
    row = np.zeros(fed.n_clients, dtype=np.int64)
    return kind(
        models=np.atleast_2d(theta),
        row=row,
        labels=row.copy(),
        weights=np.asarray(fed.sizes, dtype=np.float64),
        **more,
    )


def unclustered(
    kind: type[AnUnclustered],
    fed: Federation,
    model: "Model",
    context: "Context",
    n_models: int = 1,
    **more: Any,
) -> AnUnclustered:
    """Return :func:`one_cluster` with copies of the initial model."""
    theta = model.init(context.seed)
    common = {
        "initial": theta,
        "trainable": np.array(model.n_trainable),
        "heard": np.zeros(fed.n_clients, dtype=bool),
        "seed": np.array(context.seed),
    }
    models = np.repeat(theta[None], n_models, axis=0)
    return one_cluster(kind, fed, models, **(common | more))


def alone(
    kind: type[AState], fed: Federation, theta: np.ndarray, **more: Any
) -> AState:
    """Return a state in which every client has its own copy of ``theta``."""
    return kind(
        models=np.repeat(theta[None], fed.n_clients, axis=0),
        row=np.arange(fed.n_clients, dtype=np.int64),
        weights=np.asarray(fed.sizes, dtype=np.float64),
        **more,
    )


def several(model: "Model", context: "Context", n_models: int) -> np.ndarray:
    """Return independent initial models (K, P); the first is FedAvg's start."""
    return np.stack([model.init(context.seed, k) for k in range(n_models)])
