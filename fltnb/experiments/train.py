"""A training: resumed or run, and its final numbers."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from .. import metrics
from ..aggregate import distinct_rows, graph_key
from ..federations import Federation
from ..methods import Context, Method, OnGraph
from ..methods.graph import ClientGraph
from ..rounds import DivergedError, Run, run
from .finished import Finished, alone, load, store_path
from .key import digest, versions
from .saving import saved
from .task import Task

Cache = Callable[[dict, Callable[[], dict]], dict]


def checkpoint_path(key: str) -> Path:
    """Return the checkpoint of a training that is under way."""
    return store_path(key).with_name(f"{key}.checkpoint.npz")


def train(
    task: Task,
    cache: Cache,
    device: str,
    backend: str,
    n_workers: int | None,
    progress: bool,
    since: float = 0.0,
) -> Finished:
    """Run a training, from its checkpoint if there is one, and save it.

    Where a client graph that was found before round 1 decides the whole training (FLT,
    the oracle, EMD-CFL with everybody there), the training on this graph is an
    experiment of its own. Its key names the graph and not who found it, so that equal
    graphs are trained once.
    """
    experiment = task.experiment
    method = experiment.method
    context = Context(experiment.seed, cache, progress, n_workers)
    training = experiment.arguments
    graph = method.graph_before(task.fed, experiment.model, training, context)
    how = {
        "device": device,
        "backend": backend,
        "n_workers": n_workers,
        "n_jobs": n_workers,
        "progress": progress,
        "cache": cache,
    }
    if graph is None:
        return _trained(task, task.key, method, experiment.settings, how, since)[0]

    # What finding the graph sent is no part of the training on it.
    on_graph = OnGraph(graph._replace(sent=(0, 0)), rule=method.rule)
    relation, row = distinct_rows(graph.adjacency)
    name = graph_key(method.rule, relation, row)
    settings = experiment.settings | {"method": {"name": "on_graph", "graph": name}}
    key = digest(
        {
            "settings": settings,
            "data": task.fed.fingerprint(),
            "numerics": versions(["core"]),
        }
    )
    trained, was_there = _trained(task, key, on_graph, settings, how, since)
    about = {"trained_as": key} if was_there else {}
    return _joined(task, trained, graph, about)


def _trained(
    task: Task,
    key: str,
    method: Method,
    settings: dict[str, Any],
    how: dict[str, Any],
    since: float,
) -> tuple[Finished, bool]:
    """Return what a method gives under this key, and whether the store had it.

    Otherwise it is resumed or run. Two processes that want the same run it once: the
    second one waits.
    """
    experiment = task.experiment
    keeps_models = "models" in experiment.keep
    with alone(key):
        known = load(key, since)
        if known is not None and ("models" in known.arrays or not keeps_models):
            return known, True
        checkpoint = checkpoint_path(key)
        with suppress(OSError):
            if checkpoint.stat().st_mtime < since:
                checkpoint.unlink()
        training = experiment.arguments
        try:
            done = run(method, task.fed, **training, **how, checkpoint=checkpoint)
        except DivergedError as error:
            done = error.run  # stored with its reason
        numbers = training_numbers(task.fed, done)
        arrays = _arrays_of(done)
        if keeps_models:
            arrays |= {"models": done.theta, "rows": done.rows}
        tables = done.history, done.clients
        finished = saved(task, numbers, arrays, *tables, key=key, settings=settings)
        checkpoint.unlink(missing_ok=True)
        return finished, False


def _arrays_of(done: Run) -> dict[str, np.ndarray]:
    """Return the arrays that every training keeps."""
    arrays = {}
    if done.labels is not None:
        arrays["labels"] = np.asarray(done.labels, dtype=np.int32)
    for round, labels in done.labels_at.items():
        arrays[f"labels_at/{round}"] = labels.astype(np.int32)
    if done.confusion is not None:
        arrays["confusion"] = done.confusion.astype(np.int32)
    return arrays


def _joined(
    task: Task, trained: Finished, graph: ClientGraph, about: dict[str, str]
) -> Finished:
    """Save a training on a graph under the name of the experiment that found it.

    That is with the labels of the graph, and with what finding it sent.
    """
    curves = trained.curves.copy()
    clients = trained.clients.copy()
    up, down = graph.sent
    curves["bytes_up"] += 4 * up
    curves["bytes_down"] += 4 * down
    clients["cluster"] = -1 if graph.labels is None else graph.labels
    arrays = dict(trained.arrays)
    for name in list(arrays):
        if name.startswith("labels"):
            del arrays[name]
    if graph.labels is not None:
        arrays["labels"] = np.asarray(graph.labels, dtype=np.int32)
        for round in np.unique(curves["round"]):
            arrays[f"labels_at/{round}"] = arrays["labels"]
    numbers = dict(trained.numbers)
    numbers.pop("ari", None)
    numbers.pop("n_clusters", None)
    numbers |= _clusters_found(task.fed, graph.labels)
    last = curves.iloc[-1]
    numbers["bytes"] = float(last["bytes_up"] + last["bytes_down"])
    return saved(task, numbers, arrays, curves, clients, **about)


def training_numbers(fed: Federation, done: Run) -> dict[str, Any]:
    """Return the final numbers of a run: those of its last round.

    Accuracies are in percent, variances in percent squared.
    """
    history = done.history
    numbers: dict[str, Any] = {}
    for split, prefix in (("test", ""), ("train", "train_"), ("probe", "probe_")):
        rows = history[history["split"] == split]
        if not len(rows):
            continue
        last = rows.iloc[-1]
        for name in ("accuracy", "variance", "worst", "micro"):
            numbers[prefix + name] = float(last[name])

    numbers["n_test"] = len(np.unique(np.concatenate(fed.test)))
    numbers["n_train"] = len(np.unique(np.concatenate(fed.train)))
    if done.confusion is not None:
        numbers |= metrics.f1_summary(done.confusion)
    truth = done.clients["true_cluster"].to_numpy()
    if (truth >= 0).all():
        # What FLT's code looked at in scenarios 1 and 2, where all clients of a cluster
        # share their test images.
        _, first_clients = np.unique(truth, return_index=True)
        first = done.clients["test"].to_numpy()[first_clients]
        numbers["first_clients_accuracy"] = metrics.mean_accuracy(first)
        numbers["first_clients_variance"] = metrics.variance(first)
    numbers |= _clusters_found(fed, done.labels)
    last = history.iloc[-1]
    numbers["bytes"] = float(last["bytes_up"] + last["bytes_down"])
    return numbers | {"seconds": round(done.seconds, 2), "stopped": done.stopped}


def _clusters_found(fed: Federation, labels: np.ndarray | None) -> dict[str, Any]:
    """Compare clusters with the true ones; nothing for methods without clusters."""
    if labels is None:
        return {}
    numbers: dict[str, Any] = {}
    if fed.clusters is not None:
        numbers["ari"] = metrics.adjusted_rand_index(fed.clusters, labels)
    numbers["n_clusters"] = len(np.unique(labels))
    return numbers
