"""EMD-CFL's clustering without its training: what clients embed with networks that each has trained alone.

The distances of EMD-CFL compare a client's samples under *its own* network after a first local training. A study of
clusterings (:mod:`fltnb.oneshot`) asks for that by an encoder of kind ``own``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError
from ..federations import Federation
from ..training import TrainSpec, make_engine
from .emdcfl import penultimate

if TYPE_CHECKING:
    from ..models import Model

KIND = "own"


def local_models(
    fed: Federation, model: str, training: dict[str, Any], seed: int = 0, n_workers: int | None = None
) -> tuple[Model, np.ndarray, np.ndarray]:
    """Train every client alone, once, from a common start (EMD-CFL, Algorithm 1, the first round).

    Parameters
    ----------
    fed : Federation
    model : str
        See :func:`fltnb.models.make`.
    training : dict
        Options of :class:`fltnb.training.TrainSpec` without the seed.
    seed : int
        Of the initial model and of the sample orders.
    n_workers : int, optional
        As in :func:`fltnb.training.make_engine`; no influence on the result.

    Returns
    -------
    tuple
        The network, the common start (P,) and the trained models (M, P), float32.

    Raises
    ------
    FltnbError
        The training of a client diverged.
    """
    from .. import models

    net = models.make(model, fed.input_shape, fed.n_classes)
    start, everybody = net.init(seed), np.arange(fed.n_clients)
    with make_engine(fed, net, TrainSpec(**training, seed=seed), n_workers=n_workers) as engine:
        trained = engine.train(start[None], np.zeros_like(everybody), everybody, 1)
    lost = ~np.isfinite(trained.loss) | ~np.isfinite(trained.theta).all(axis=1)
    if lost.any():
        raise FltnbError(f"The first training of client {int(lost.argmax())} diverged: choose a smaller lr.")
    return net, start, trained.theta


@dataclass(frozen=True)
class OwnModels:
    """Networks that start equal and are trained by one client each, once (EMD-CFL, Algorithm 1, first round).

    Parameters
    ----------
    model : str
        A name of :data:`fltnb.models.NAMES`; embeddings are what its last layer gets.
    local_epochs, batch_size, lr, momentum
        Local training; EMD-CFL: 10 epochs, batches of 64, 0.01, momentum 0.9.
    seed : int
        Of the common initial model and of the sample orders.
    """

    model: str = "mlp_plain"
    local_epochs: int = 10
    batch_size: int = 64
    lr: float = 0.01
    momentum: float = 0.9
    seed: int = 0

    def embed(self, fed: Federation) -> tuple[list[np.ndarray], Callable[[int], list[np.ndarray]]]:
        """Train, and return what :meth:`fltnb.EMDClustering.fit` takes.

        Returns
        -------
        list of M ndarrays (n_i, d)
            Training samples of each client under its own network.
        callable
            Of a client's number: everybody's validation samples under that client's network.

        Raises
        ------
        FltnbError
            A client without validation samples, or one whose training diverged.
        """
        empty = [i for i, own in enumerate(fed.val) if not len(own)]
        if empty:
            raise FltnbError(
                f"EMD-CFL compares validation samples and client {empty[0]} has none: build the federation with some"
                " (val_fraction), or lay held_out over it."
            )
        training = {name: getattr(self, name) for name in ("local_epochs", "batch_size", "lr", "momentum")}
        net, _, theta = local_models(fed, self.model, training, self.seed, n_workers=1)
        everybody = range(fed.n_clients)

        def seen(i: int, split: str, j: int) -> np.ndarray:
            return penultimate(net, theta[i], fed.client(j, split)[0])

        return [seen(i, "train", i) for i in everybody], lambda i: [seen(i, "val", j) for j in everybody]
