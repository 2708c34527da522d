"""EMD-CFL's inequalities (arXiv 2506.07769, Section 2) on clients of a federation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import federations, models
from ..methods import FedAvg
from ..methods.ownmodels import penultimate
from ..randomness import stream
from ..rounds import run
from ..theory import embeddings

Settings = Mapping[str, Any]


def inequalities(
    federation: Settings,
    model: str,
    training: Settings,
    samples: int = 200,
    lr: float = 0.01,
    steps: int = 1000,
    shares: Sequence[float] = (0.1, 0.5, 0.9),
    seed: int = 0,
) -> dict[str, Any]:
    """Train one model, embed everybody's samples, and compute both sides.

    The paper's theory is of two classes: here a label is 1 in the upper half of the
    classes. Returns a dict of ``tables``: ``inequalities`` of
    :func:`fltnb.theory.embeddings.inequalities`, ``projection`` of
    :func:`fltnb.theory.embeddings.projected` for the samples of the first client.

    Parameters
    ----------
    federation : settings
    model, training : network and options of :func:`fltnb.run` for FedAvg
    samples : of each client, drawn at random
    lr, steps : step size and steps of a round, for Corollary 2.5
    shares : of the dimensions that a random projection keeps
    seed : of the training and the draws
    """
    fed = federations.build(federation)
    trained = run(FedAvg(), fed, model, seed=seed, progress=False, **training)
    net = models.make(model, fed.input_shape, fed.n_classes)
    clients = []
    for number in range(fed.n_clients):
        x, y = fed.client(number)[:2]
        draw = stream(seed, "method", number).permutation(len(y))[:samples]
        z = penultimate(net, trained.theta[0], x[draw]).astype(float)
        clients.append((z, (np.asarray(y)[draw] >= fed.n_classes / 2).astype(int)))
    tables = {
        "inequalities": embeddings.inequalities(clients, lr, steps),
        "projection": embeddings.projected(clients[0][0], shares, seed=seed),
    }
    return {"tables": tables}
