"""MT-HFL's users, and every task tested in every round (notebook 10)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from .. import federations, methods, models
from ..metrics import adjusted_rand_index
from ..rounds import confusion, run

Settings = dict[str, Any]
Study = dict[str, Any]


def users(federation: Settings) -> Study:
    """Count who holds what: table ``labels`` (``user, task, label, samples``)."""
    fed = federations.build(federation)
    rows = [
        (i, fed.clusters[i], label, n)
        for (i, label), n in np.ndenumerate(fed.label_counts())
    ]
    return {
        "tables": {
            "labels": pd.DataFrame(rows, columns=["user", "task", "label", "samples"])
        }
    }


def curves(
    federation: Settings, method: Settings, model: str, **training: Any
) -> Study:
    """Train, and test every task in every round.

    Returns a dict. Table ``rounds``: ``round, task, accuracy``, percent, of the server
    that the method shows for a task, mean over the users of the task. Table
    ``mixture``: ``user, task, accuracy`` of the model that a user was put with, on test
    images whose labels have the shares of the user's own training samples. Numbers:
    ``ari`` of the groups.
    """
    fed = federations.build(federation)
    made = methods.build(method)
    seen = []
    last = {}

    def watch(round, state, theta, accuracy):
        seen.append(accuracy)
        last["state"] = state

    done = run(
        made, fed, model, participation=1.0, **training, progress=False, watch=watch
    )
    tasks = np.unique(fed.clusters)
    rows = [
        (t, task, own[fed.clusters == task].mean())
        for t, own in enumerate(seen)
        for task in tasks
    ]
    # Everybody on all test images, under the server that it was put with: without the
    # view "task".
    state = last["state"]
    if isinstance(made, methods.MTHFL):
        state = replace(state, tasks=None)
    theta, served = made.serve(state)
    whole = replace(fed, test=[np.unique(np.concatenate(fed.test))] * fed.n_clients)
    counts = confusion(
        models.make(model, fed.input_shape, fed.n_classes), theta, served, whole
    )
    right = np.diagonal(counts, axis1=1, axis2=2) / counts.sum(axis=2)
    held = fed.label_counts()
    own = 100 * (right * held).sum(axis=1) / held.sum(axis=1)
    tables = {"rounds": pd.DataFrame(rows, columns=["round", "task", "accuracy"])}
    tables["mixture"] = pd.DataFrame(
        {"user": range(fed.n_clients), "task": fed.clusters, "accuracy": own}
    )
    ari = 1.0 if done.labels is None else adjusted_rand_index(fed.clusters, done.labels)
    return {"tables": tables, "numbers": {"ari": float(ari)}}
