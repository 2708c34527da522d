"""MT-HFL's users, and every task tested in every round (notebook 10)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from .. import federations, methods
from ..federations import Federation
from ..metrics import adjusted_rand_index
from ..rounds import confusion, run
from .studies import Settings, Study


def users(federation: Settings) -> Study:
    """Count the users' samples: table ``labels`` (``user, task, label, samples``)."""
    fed = federations.build(federation)
    rows = []
    for (user, label), samples in np.ndenumerate(fed.label_counts()):
        rows.append((user, fed.clusters[user], label, samples))
    labels = pd.DataFrame(rows, columns=["user", "task", "label", "samples"])
    return {"tables": {"labels": labels}}


def curves(
    federation: Settings, method: Settings, model: str, **training: Any
) -> Study:
    """Train, and test every task in every round.

    Parameters
    ----------
    federation, method : settings
    model : str
    **training
        Options of :func:`fltnb.run`; all users take part.

    Returns
    -------
    dict
        Table ``rounds``: ``round, task, accuracy``, percent, of the server that the
        method shows for a task, mean over the users of the task. Table ``mixture``:
        ``user, task, accuracy`` of the model of a user's own server, on test images
        whose labels have the shares of the user's own training samples. Numbers:
        ``ari`` of the groups.
    """
    fed = federations.build(federation)
    made = methods.build(method)
    seen = []
    last = {}

    def watch(round, state, theta, accuracy):
        seen.append(accuracy)
        last["state"] = state

    training = training | {"participation": 1.0, "progress": False}
    done = run(made, fed, model, **training, watch=watch)
    rows = []
    for t, accuracy in enumerate(seen):
        for task in np.unique(fed.clusters):
            mean = accuracy[fed.clusters == task].mean()
            rows.append((t, task, mean))
    mixture = {
        "user": range(fed.n_clients),
        "task": fed.clusters,
        "accuracy": _on_own_mixture(made, last["state"], fed, model),
    }
    tables = {
        "rounds": pd.DataFrame(rows, columns=["round", "task", "accuracy"]),
        "mixture": pd.DataFrame(mixture),
    }
    ari = 1.0
    if done.labels is not None:
        ari = adjusted_rand_index(fed.clusters, done.labels)
    return {"tables": tables, "numbers": {"ari": float(ari)}}


def _on_own_mixture(
    method: methods.Method, state: Any, fed: Federation, model: str
) -> np.ndarray:
    """Return each user's accuracy (M,) in percent on a mixture of labels like its own.

    The model is that of the user's own server, without the view "task". All users are
    tested on all test images, and classes are weighted by the user's own counts: this
    is the expected accuracy on a test set with its labels, without a draw of one.
    """
    from .. import models

    if isinstance(method, methods.MTHFL):
        state = replace(state, tasks=None)
    theta, rows = method.serve(state)
    every_image = np.unique(np.concatenate(fed.test))
    whole = replace(fed, test=[every_image] * fed.n_clients)
    net = models.make(model, fed.input_shape, fed.n_classes)
    counts = confusion(net, theta, rows, whole)
    right = np.diagonal(counts, axis1=1, axis2=2) / counts.sum(axis=2)
    samples = fed.label_counts()
    return 100 * (right * samples).sum(axis=1) / samples.sum(axis=1)
