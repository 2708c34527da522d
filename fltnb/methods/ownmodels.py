"""EMD-CFL's clustering without its training: what clients embed with networks that each has trained alone.

The distances of EMD-CFL compare a client's samples under *its own* network after a first local training. A study of
clusterings (:mod:`fltnb.oneshot`) asks for that by an encoder of kind ``own``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import FltnbError
from ..federations import Federation
from ..training import TrainSpec, make_engine
from .emdcfl import penultimate

KIND = "own"


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
        from .. import models

        empty = [i for i, own in enumerate(fed.val) if not len(own)]
        if empty:
            raise FltnbError(
                f"EMD-CFL compares validation samples and client {empty[0]} has none: build the federation with some"
                " (val_fraction), or lay held_out over it."
            )
        net = models.make(self.model, fed.input_shape, fed.n_classes)
        spec = TrainSpec(self.local_epochs, self.batch_size, self.lr, self.momentum, seed=self.seed)
        everybody = np.arange(fed.n_clients)
        with make_engine(fed, net, spec, n_workers=1) as engine:
            trained = engine.train(net.init(self.seed)[None], np.zeros_like(everybody), everybody, 1)
        lost = ~np.isfinite(trained.loss) | ~np.isfinite(trained.theta.sum(axis=1))
        if lost.any():
            raise FltnbError(f"The first training of client {int(lost.argmax())} diverged: choose a smaller lr.")

        def seen(i: int, split: str, j: int) -> np.ndarray:
            return penultimate(net, trained.theta[i], fed.client(j, split)[0])

        return [seen(i, "train", i) for i in everybody], lambda i: [seen(i, "val", j) for j in everybody]
