"""What both sides of the app agree on, and a node's own data. This is the module to change for your own clients."""

from functools import cache

import numpy as np

import fltnb as fl

# 8 clients need a narrower neighbourhood and a smaller threshold than the paper's 15 and 1, which take all for one
# group; transport signatures have no threshold.
CLUSTERERS = {
    "fcr": fl.FCR(k=5, n_neighbors=3, threshold=0.3),
    "transport": fl.TransportSignatures(),
}


@cache
def federation(n_clients: int, seed: int) -> fl.Federation:
    """Digits over clients of 3 hidden groups, each with three digits of its own."""
    images = fl.load("digits")
    return fl.federations.label_clusters(images, n_clients=n_clients, n_clusters=3, classes_per_cluster=3, seed=seed)


def own_data(context) -> tuple[fl.Federation, int]:
    """Return a federation that holds this node's samples, and which of its clients the node is.

    Here it is one of the digits' clients, by the node's ``partition-id``. With samples of its own a node returns
    ``fl.Federation.from_arrays(x, y, np.zeros(len(x))), 0``.
    """
    fed = federation(int(context.run_config["clients"]), int(context.run_config["seed"]))
    return fed, int(context.node_config["partition-id"]) % fed.n_clients


def embed(context) -> np.ndarray:
    """Return the embeddings (n, d) that the sketch is made of: the pixels."""
    fed, client = own_data(context)
    x, _ = fed.client(client)
    return x.reshape(len(x), -1)


def network(config, fed: fl.Federation):
    """Return the network, and how a node trains it."""
    # here, not above: a node that is only asked for its sketch need not import torch
    from fltnb import models, training

    spec = training.TrainSpec(
        local_epochs=int(config["local-epochs"]),
        batch_size=int(config["batch-size"]),
        lr=float(config["lr"]),
        seed=int(config["seed"]),
    )
    return models.make("mlp_plain", fed.input_shape, fed.n_classes), spec
