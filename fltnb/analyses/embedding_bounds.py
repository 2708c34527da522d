"""EMD-CFL's inequalities (arXiv 2506.07769, Section 2) on clients of a federation."""

from collections.abc import Sequence

import numpy as np

from .. import federations
from ..methods import FedAvg
from ..methods.ownmodels import penultimate
from ..randomness import stream
from ..rounds import run
from ..theory import embeddings
from .studies import Settings, Study


def inequalities(
    federation: Settings,
    model: str,
    training: Settings,
    samples: int = 200,
    lr: float = 0.01,
    steps: int = 1000,
    shares: Sequence[float] = (0.1, 0.5, 0.9),
    seed: int = 0,
) -> Study:
    """Train one model, embed all clients' samples, and compute both sides of each.

    The paper's theory has two classes: here a label is 1 in the upper half of the
    classes. All clients' samples are embedded by one model, as the theory compares
    distributions in one space; the method itself embeds with each client's own.

    Parameters
    ----------
    federation : settings
    model : str
    training : options of :func:`fltnb.run` for FedAvg
    samples : int
        Of each client, drawn at random.
    lr, steps : float, int
        Step size and steps of a round, for Corollary 2.5.
    shares : sequence of float
        Of the dimensions, what a random projection keeps.
    seed : int
        Of the training and the draws.

    Returns
    -------
    dict
        Table ``inequalities`` of :func:`fltnb.theory.embeddings.inequalities`, table
        ``projection`` of :func:`fltnb.theory.embeddings.projected` for the samples of
        the first client.
    """
    from .. import models

    fed = federations.build(federation)
    trained = run(FedAvg(), fed, model, seed=seed, progress=False, **training)
    net = models.make(model, fed.input_shape, fed.n_classes)
    clients = []
    for number in range(fed.n_clients):
        held = fed.train[number]
        x, y = fed.inputs(held), fed.labels[held]
        draw = stream(seed, "method", number).permutation(len(y))[:samples]
        z = penultimate(net, trained.theta[0], x[draw]).astype(float)
        upper_half = np.asarray(y)[draw] >= fed.n_classes / 2
        clients.append(embeddings.Sample(z, upper_half.astype(int)))
    first, _ = clients[0]
    tables = {
        "inequalities": embeddings.inequalities(clients, lr, steps),
        "projection": embeddings.projected(first, shares, seed=seed),
    }
    return {"tables": tables}
