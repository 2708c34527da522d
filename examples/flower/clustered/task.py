"""What both sides of the app agree on, and a node's own data.

This is the module to change for your own clients. Imports that take seconds stand
inside functions: Flower starts a process for every message to a node.
"""

from pathlib import Path

import numpy as np

SHAPE = (1, 8, 8)  # of the network's inputs
CLASSES = 10


def clusterers() -> dict:
    """Return the clusterers by the names of the queries that ask for their sketches."""
    import fltnb as fl

    # Tuned to 8 clients with raw pixels: the paper's neighbourhood of 15 and threshold
    # of 1 take all for one group. Transport signatures have no threshold.
    return {
        "fcr": fl.FCR(k=5, n_neighbors=3, threshold=0.3),
        "transport": fl.TransportSignatures(),
    }


def own_data(context):
    """Return this node's samples, and its number among the clients.

    The samples are of the file that its setting ``data`` names, an .npz: ``x_train``,
    ``x_test`` (n, H, W), float32 as the network wants them, or, with the app's setting
    ``scale``, as they were measured; ``y_train``, ``y_test``.
    """
    from fltnb.federations import Federation

    number = int(context.node_config["partition-id"])
    with np.load(Path(context.node_config["data"])) as file:
        x = np.concatenate([file["x_train"], file["x_test"]])
        y = np.concatenate([file["y_train"], file["y_test"]])
        train, test = np.split(np.arange(len(x)), [len(file["x_train"])])
    if context.run_config["scale"]:
        x = scaled(x, context)
    # A federation of this client alone, at its own number: that is what its random
    # draws are keyed by.
    parts = {"train": [train] * (number + 1), "test": [test] * (number + 1)}
    return Federation(images=x, labels=y, n_classes=CLASSES, **parts), number


def rows(context) -> np.ndarray:
    """Return this node's training samples as they were measured, a row each."""
    with np.load(Path(context.node_config["data"])) as file:
        x = file["x_train"]
    return x.reshape(len(x), -1)


def scaled(x: np.ndarray, context) -> np.ndarray:
    """Standardise samples by the mean and deviation over all nodes."""
    from fltnb.flower import scaling_of

    return scaling_of(context).transform(x.reshape(len(x), -1)).reshape(x.shape)


def embed(context) -> np.ndarray:
    """Return the embeddings (n, d) that the sketch is made of: the pixels."""
    fed, number = own_data(context)
    x, _ = fed.client(number)
    return x.reshape(len(x), -1)


def network(config):
    """Return the network, and how a node trains it."""
    from fltnb import models, training

    spec = training.TrainSpec(
        local_epochs=int(config["local-epochs"]),
        batch_size=int(config["batch-size"]),
        lr=float(config["lr"]),
        seed=int(config["seed"]),
    )
    return models.make("mlp_plain", SHAPE, CLASSES), spec
