"""A training: resumed or run, and its final numbers."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from .. import metrics
from ..aggregate import distinct_rows, graph_key
from ..federations import Federation
from ..methods import Context, Method, OnGraph
from ..methods.graph import ClientGraph
from ..rounds import DivergedError, Run, run
from .finished import Arrays, Finished, Values, alone, load, store_path
from .key import digest, versions
from .saving import saved, small
from .task import Task

Cache = Callable[[Values, Callable[[], Arrays]], Arrays]
"""``cache(key, compute)`` keeps the arrays of one-off computations."""


@dataclass(frozen=True)
class How:
    """How trainings are computed; nothing of it decides their numbers.

    Attributes
    ----------
    device, backend : str
        As for :func:`fltnb.training.make_engine`.
    since : float
        Stored files from before this time (seconds of Unix time) are ignored.
    progress : bool
        Whether progress is shown.
    n_workers : int or None
        Processes that train clients; None: as many as it takes.
    """

    device: str = "auto"
    backend: str = "auto"
    since: float = 0.0
    progress: bool = False
    n_workers: int | None = None


def checkpoint_path(key: str) -> Path:
    """Return the checkpoint of a training that is under way."""
    return store_path(key).with_name(f"{key}.checkpoint.npz")


def train(task: Task, cache: Cache, how: How) -> Finished:
    """Run a training, from its checkpoint if there is one, and save it.

    Parameters
    ----------
    task : Task
    cache : callable
        Keeps the clusterings that methods make.
    how : How

    Notes
    -----
    Where a client graph that was found before round 1 decides the whole training (FLT,
    the oracle, EMD-CFL with everybody there), the training on this graph is an
    experiment of its own. Its key names the graph and not who found it, so that equal
    graphs are trained once.
    """
    experiment = task.experiment
    method = experiment.method
    settings = experiment.settings
    context = Context(
        experiment.seed, cache, how.progress, how.n_workers, device=how.device
    )
    graph = None
    # an own method may do more than average on a graph
    if not (experiment.has_own_method or experiment.has_own_network):
        graph = method.graph_before(
            task.fed, experiment.model, experiment.arguments, context
        )
    if graph is None:
        done, _ = _trained(task, task.key, method, settings, cache, how)
        return done

    # What finding the graph sent is no part of the training on it.
    on_graph = OnGraph(graph._replace(sent=(0, 0)), rule=method.rule)
    relation, row = distinct_rows(graph.adjacency)
    name = graph_key(method.rule, relation, row)
    settings = settings | {"method": {"name": "on_graph", "graph": name}}
    key = digest(
        {
            "settings": settings,
            "data": task.fed.fingerprint(),
            "numerics": versions(["core"]),
        }
    )
    trained, was_there = _trained(task, key, on_graph, settings, cache, how)
    return _joined(task, trained, graph, trained_as=key if was_there else "")


def _trained(
    task: Task, key: str, method: Method, settings: Values, cache: Cache, how: How
) -> tuple[Finished, bool]:
    """Return what a method gives under this key, and whether the store had it.

    Otherwise it is resumed or run. Two processes that want the same run it once: the
    second one waits. What the store has does not count if models are asked for and it
    has none.
    """
    experiment = task.experiment
    keeps_models = "models" in experiment.keep
    checkpoint = checkpoint_path(key)
    with alone(key):
        known = load(key, how.since)
        if known is not None and (not keeps_models or "models" in known.arrays):
            return known, True
        with suppress(OSError):
            if checkpoint.stat().st_mtime < how.since:
                checkpoint.unlink()
        try:
            done = run(
                method,
                task.fed,
                **experiment.arguments,
                device=how.device,
                backend=how.backend,
                n_workers=how.n_workers,
                n_jobs=how.n_workers,
                progress=how.progress,
                cache=cache,
                checkpoint=checkpoint,
            )
        except DivergedError as error:
            done = error.run  # stored with its reason

        arrays = _arrays_of(done)
        if keeps_models:
            arrays["models"] = done.theta
            arrays["rows"] = done.rows
        finished = saved(
            task,
            numbers=training_numbers(task.fed, done),
            arrays=arrays,
            curves=done.history,
            clients=done.clients,
            key=key,
            settings=settings,
        )
        checkpoint.unlink(missing_ok=True)
        return finished, False


def _arrays_of(done: Run) -> Arrays:
    """Return the arrays that every training keeps.

    ``labels``: cluster of each client at the end, (M,); ``labels_at/<round>``: after
    that round; ``confusion``: of all clients together, (classes, classes).
    """
    arrays = {}
    if done.labels is not None:
        arrays["labels"] = small(done.labels)
    for round, labels in done.labels_at.items():
        arrays[f"labels_at/{round}"] = small(labels)
    if done.confusion is not None:
        arrays["confusion"] = small(done.confusion)
    return arrays


def _joined(
    task: Task, trained: Finished, graph: ClientGraph, trained_as: str
) -> Finished:
    """Save a training on a graph under the name of the experiment that found it.

    Parameters
    ----------
    task : Task
        The experiment.
    trained : Finished
        The training on the graph, without what finding it sent and without clusters.
    graph : ClientGraph
        Its labels, and how many floats were sent up and down to find it.
    trained_as : str
        The key of the training if it was there before, else "".
    """
    floats_up, floats_down = graph.sent
    curves = trained.curves.copy()
    curves["bytes_up"] += 4 * floats_up
    curves["bytes_down"] += 4 * floats_down

    clients = trained.clients.copy()
    arrays = dict(trained.arrays)
    for name in trained.arrays:
        if name.startswith("labels"):
            del arrays[name]
    clients["cluster"] = -1
    if graph.labels is not None:
        labels = small(graph.labels)
        clients["cluster"] = graph.labels
        arrays["labels"] = labels
        for round in np.unique(curves["round"]):
            arrays[f"labels_at/{round}"] = labels

    numbers = dict(trained.numbers)
    for name in ("ari", "n_clusters"):
        numbers.pop(name, None)
    numbers |= _clusters_found(task.fed, graph.labels)
    numbers["bytes"] = _bytes(curves)
    about = {"trained_as": trained_as} if trained_as else {}
    return saved(task, numbers, arrays, curves, clients, **about)


def training_numbers(fed: Federation, done: Run) -> Values:
    """Return the final numbers of a run: those of its last round.

    Accuracies are in percent, variances over clients in percent squared.

    Returns
    -------
    dict
        ``accuracy, variance, worst, micro`` of the test split, and of the splits train
        and probe with ``train_`` and ``probe_`` before the name; ``n_test, n_train``:
        how many different samples there are; F1 scores of what can be confused;
        ``first_clients_accuracy, first_clients_variance`` over the first client of
        each true cluster; ``ari, n_clusters`` of methods that have clusters; ``bytes``
        sent in all; ``seconds``; ``stopped``: why a run ended early, else "".
    """
    history = done.history
    numbers: Values = {}
    for split, prefix in (("test", ""), ("train", "train_"), ("probe", "probe_")):
        rows = history[history["split"] == split]
        if rows.empty:
            continue
        last = rows.iloc[-1]
        for name in ("accuracy", "variance", "worst", "micro"):
            numbers[prefix + name] = float(last[name])

    numbers["n_test"] = _different(fed.test)
    numbers["n_train"] = _different(fed.train)
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
    numbers["bytes"] = _bytes(history)
    numbers["seconds"] = round(done.seconds, 2)
    numbers["stopped"] = done.stopped
    return numbers


def _different(indices: tuple[np.ndarray, ...]) -> int:
    """Count the samples of a split that one client or more have."""
    return len(np.unique(np.concatenate(indices)))


def _bytes(curves: pd.DataFrame) -> float:
    """Return all bytes that were sent until the last round."""
    last = curves.iloc[-1]
    return float(last["bytes_up"] + last["bytes_down"])


def _clusters_found(fed: Federation, labels: np.ndarray | None) -> Values:
    """Compare clusters (M,) with the true ones; nothing for methods without any."""
    numbers: Values = {}
    if labels is None:
        return numbers
    if fed.clusters is not None:
        numbers["ari"] = metrics.adjusted_rand_index(fed.clusters, labels)
    numbers["n_clusters"] = len(np.unique(labels))
    return numbers
