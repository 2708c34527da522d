"""What both sides of the app agree on, and a node's own data.

This is the module to change for your own clients. Imports that take seconds stand
inside functions: Flower starts a process for every message to a node.
"""

import math
from pathlib import Path

import numpy as np

SHAPE = (1, 8, 8)  # of the network's inputs
CLASSES = 10
NODES = 10_000  # numbers of nodes are below it


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
    from fltnb.errors import by_name
    from fltnb.federations import Federation

    number = own_number(context)
    file = own_file(context)
    x = np.concatenate([file["x_train"], file["x_test"]])
    y = np.concatenate([file["y_train"], file["y_test"]])
    train, test = np.split(np.arange(len(x)), [len(file["x_train"])])
    if context.run_config["scale"]:
        x = scaled(x, context)
    # A federation of this client alone, at its own number: that is what its random
    # draws are keyed by.
    parts = {"train": [train] * (number + 1), "test": [test] * (number + 1)}
    with by_name([str(number)] * (number + 1)):
        return Federation(images=x, labels=y, n_classes=CLASSES, **parts), number


def own_number(context) -> int:
    """Return this node's number among the clients, its setting ``partition-id``."""
    from fltnb.errors import FltnbError
    from fltnb.flower.letters import client_of

    number = int(client_of(context))
    if number >= NODES:
        raise FltnbError(
            f"partition-id must be given, and below {NODES}, not {number}: number the "
            "nodes 0, 1, 2, ... in their --node-config."
        )
    return number


def own_file(context) -> dict[str, np.ndarray]:
    """Return the arrays of the file that this node's setting ``data`` names."""
    from fltnb.errors import FltnbError, reading

    path = Path(context.node_config.get("data", ""))
    names = ("x_train", "x_test", "y_train", "y_test")
    mend = f"name an .npz file with {', '.join(names)} by data= in --node-config"

    def unsound(_: Exception) -> FltnbError:
        return FltnbError(f"{path} has no such samples as the app needs: {mend}.")

    with reading(path, mend, unsound), np.load(path) as file:
        arrays = {name: file[name] for name in names}
        for part in "xy":  # of one shape, but for their number
            np.concatenate([arrays[f"{part}_train"], arrays[f"{part}_test"]])
    return arrays


def rows(context) -> np.ndarray:
    """Return this node's training samples as they were measured, a row each."""
    return flat(own_file(context)["x_train"])


def flat(x: np.ndarray) -> np.ndarray:
    """Return samples (n, ...) as rows (n, d); there may be none."""
    return x.reshape(len(x), math.prod(x.shape[1:]))


def scaled(x: np.ndarray, context) -> np.ndarray:
    """Standardise samples by the mean and deviation over all nodes."""
    from fltnb.flower import scaling_of

    return scaling_of(context).transform(flat(x)).reshape(x.shape)


def embed(context) -> np.ndarray:
    """Return the embeddings (n, d) that the sketch is made of: the pixels."""
    fed, number = own_data(context)
    x, _ = fed.client(number)
    return flat(x)


def network(config):
    """Return the network, and how a node trains it."""
    from fltnb import models, training

    spec = training.TrainSpec(
        local_epochs=config["local-epochs"],
        batch_size=config["batch-size"],
        lr=config["lr"],
        seed=config["seed"],
    )
    return models.make("mlp_plain", SHAPE, CLASSES), spec
