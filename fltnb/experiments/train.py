"""Trainings: resumed or run, one by one or several together; their final numbers."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import metrics
from ..aggregate import distinct_rows, graph_key
from ..federations import Federation
from ..federations.phases import phases
from ..methods import Context, Method, OnGraph
from ..methods.graph import ClientGraph
from ..rounds import DivergedError, Run, run, run_together
from .finished import Arrays, Finished, Values, alone, load, store_path
from .grid import noted
from .key import digest, versions
from .saving import saved, small
from .task import Task

Cache = Callable[[Values, Callable[[], Arrays]], Arrays]
"""``cache(key, compute)`` keeps the arrays of shared computations."""


@dataclass(frozen=True)
class How:
    """How trainings are computed; this does not affect their numbers.

    Attributes
    ----------
    device, backend : str
        As for :func:`fltnb.training.make_engine`.
    since : float
        Stored files from before this time (seconds of Unix time) are ignored.
    progress : bool
        Whether progress is shown.
    n_workers : int or None
        Processes that train clients; None: the default number.
    """

    device: str = "auto"
    backend: Any = "auto"
    since: float = 0.0
    progress: bool = False
    n_workers: int | None = None


def checkpoint_path(key: str) -> Path:
    """Return the checkpoint of a running training."""
    return store_path(key).with_name(f"{key}.checkpoint.npz")


TOGETHER = 8
"""Trainings that may train together: each keeps its clients' models in memory."""


@dataclass(frozen=True)
class _Wanted:
    """The run of a task.

    Attributes
    ----------
    task : Task
    key : str
        The key under which it is stored.
    method : Method
    settings : dict
    graph : ClientGraph or None
        The graph that determines the training, if there is one.
    """

    task: Task
    key: str
    method: Method
    settings: Values
    graph: ClientGraph | None = None


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
    If two processes need the same training, it runs once: the second one waits.
    """
    one = _wanted(task, cache, how)
    with alone(one.key):
        known = _known(one, how)
        if known is not None:
            return _finished(one, known, trained_as=one.key)
        try:
            with noted(task.row):
                done = run(
                    **_arguments(one, cache, how),
                    device=how.device,
                    backend=how.backend,
                    n_workers=how.n_workers,
                )
        except DivergedError as error:
            done = error.run  # stored with its reason
        return _finished(one, _stored(one, done))


def train_together(tasks: Sequence[Task], cache: Cache, how: How) -> Iterator[Finished]:
    """Run trainings of one of :func:`groups` round by round, and save each as it ends.

    Everything else is as for :func:`train`.
    """
    again = []  # trained on the same graph as another one
    with ExitStack() as locks:
        every: list[_Wanted] = []
        held: set[str] = set()
        wanted = [_wanted(task, cache, how) for task in tasks]
        # in an order that all processes share, so that none waits in a circle
        for one in sorted(wanted, key=lambda one: one.key):
            if one.key in held:  # this process would wait for itself
                again.append(one.task)
                continue
            locks.enter_context(alone(one.key))
            held.add(one.key)
            if _known(one, how) is None:
                every.append(one)
            else:
                again.append(one.task)

        calls = [_arguments(one, cache, how) for one in every]
        for call in calls[1:]:
            call["progress"] = False  # one bar is enough
        about = {"together": len(calls)}
        with noted(*(one.task.row for one in every)):
            for k, done in run_together(calls, how.backend, how.device):
                yield _finished(every[k], _stored(every[k], done, **about), **about)
    for task in again:
        yield train(task, cache, how)


def groups(tasks: Sequence[Task], how: How) -> list[list[Task]]:
    """Return trainings in groups that :func:`train_together` may run.

    A group has trainings whose clients fit into one stack. This needs a GPU, or the
    back end ``stacked``. The trainings have the same network and samples of the same
    form, and differ only in seed, learning rate, federation or method. A federation
    that changes is trained alone. Groups are smaller if the device has no memory for
    all their samples. Most groups have a single training.
    """
    from .. import training

    found: list[list[Task]] = []
    alike: dict[tuple[Any, Hashable], list[Task]] = {}
    for task in tasks:
        place = training.stacking(task.net, task.spec, how.backend, how.device)
        if place is None or len(phases(task.fed)) > 1:
            found.append([task])
        else:
            stack = place, training.alike(task.fed, task.net, task.spec)
            alike.setdefault(stack, []).append(task)
    for (place, _), same in alike.items():
        left = same
        while left:
            n = training.stacks.fitting([task.fed for task in left[:TOGETHER]], place)
            found.append(left[:n])
            left = left[n:]
    return found


def _wanted(task: Task, cache: Cache, how: How) -> _Wanted:
    """Return the run of a task.

    If a client graph that was found before round 1 determines the training (FLT, the
    oracle, EMD-CFL with all clients present), the training on this graph is a separate
    experiment. Its key contains the graph, not the method that found it, so trainings
    on equal graphs run once.
    """
    experiment = task.experiment
    method = experiment.method
    settings = experiment.settings
    context = Context(
        experiment.seed, cache, how.progress, how.n_workers, device=how.device
    )
    graph = None
    # a user's own method may do more than average on a graph
    if not (experiment.has_own_method or experiment.has_own_network):
        graph = method.graph_before(
            task.fed, experiment.model, experiment.arguments, context
        )
    if graph is None:
        return _Wanted(task, task.key, method, settings)

    # Traffic for finding the graph is not part of the training on it.
    on_graph = OnGraph(graph._replace(sent=(0, 0)), rule=method.rule)
    relation, row = distinct_rows(graph.adjacency)
    name = graph_key(method.rule, relation, row)
    settings = settings | {"method": {"name": "on_graph", "graph": name}}
    key = digest(
        {
            "settings": settings,
            "data": task.data,
            "numerics": versions(["core"]),
        }
    )
    return _Wanted(task, key, on_graph, settings, graph)


def _known(one: _Wanted, how: How) -> Finished | None:
    """Return the stored result, and remove a checkpoint that cannot be used.

    A stored result cannot be used if models are requested and it has none.
    """
    known = load(one.key, how.since, one.task.experiment.needed)
    if known is not None:
        return known
    checkpoint = checkpoint_path(one.key)
    with suppress(OSError):
        if checkpoint.stat().st_mtime < how.since:
            checkpoint.unlink()
    return None


def _arguments(one: _Wanted, cache: Cache, how: How) -> Values:
    """Return the arguments of :func:`fltnb.run` except device and back end."""
    return {
        "method": one.method,
        "fed": one.task.fed,
        **one.task.experiment.arguments,
        "n_jobs": how.n_workers,
        "progress": how.progress,
        "cache": cache,
        "checkpoint": checkpoint_path(one.key),
    }


def _stored(one: _Wanted, done: Run, **about: Any) -> Finished:
    """Save the result of a run; ``about``: more for the provenance."""
    arrays = _arrays_of(done)
    if "models" in one.task.experiment.keep:
        arrays["models"] = done.theta
        arrays["rows"] = done.rows
    finished = saved(
        one.task,
        numbers=training_numbers(one.task.fed, done),
        arrays=arrays,
        curves=done.history,
        clients=done.clients,
        key=one.key,
        settings=one.settings,
        **about,
    )
    checkpoint_path(one.key).unlink(missing_ok=True)
    return finished


def _finished(one: _Wanted, trained: Finished, **about: Any) -> Finished:
    """Return the result of a task, given its training."""
    if one.graph is None:
        return trained
    return _joined(one.task, trained, one.graph, **about)


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
    task: Task, trained: Finished, graph: ClientGraph, **about: Any
) -> Finished:
    """Save a training on a graph as the result of the experiment that found it.

    Parameters
    ----------
    task : Task
        The experiment.
    trained : Finished
        The training on the graph, without the traffic of finding it and clusters.
    graph : ClientGraph
        Its labels, and the floats sent up and down to find it.
    **about
        More for the provenance: ``trained_as``, the key of the training if it existed
        before; ``together``, the number of trainings that ran together.
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
    numbers.update(_clusters_found(task.fed, graph.labels))
    numbers["bytes"] = _bytes(curves)
    return saved(task, numbers, arrays, curves, clients, **about)


def training_numbers(fed: Federation, done: Run) -> Values:
    """Return the final numbers of a run: those of its last round.

    Accuracies are in percent, variances over clients in percent squared.

    Returns
    -------
    dict
        ``accuracy, variance, worst, micro`` of the test split, and of the splits train
        and probe with ``train_`` and ``probe_`` before the name; ``n_test, n_train``:
        the number of different samples; F1 scores from the confusion matrix;
        ``first_clients_accuracy, first_clients_variance`` over the first client of each
        true cluster; ``ari, n_clusters`` of methods that have clusters; ``bytes``, all
        that was sent; ``seconds``; ``stopped``: why a run ended early, or "".
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
        numbers.update(metrics.f1_summary(done.confusion))

    truth = done.clients["true_cluster"].to_numpy()
    if (truth >= 0).all():
        # FLT's code tested these in scenarios 1 and 2, where all clients of a cluster
        # share their test images.
        _, first_clients = np.unique(truth, return_index=True)
        first = done.clients["test"].to_numpy()[first_clients]
        numbers["first_clients_accuracy"] = metrics.mean_accuracy(first)
        numbers["first_clients_variance"] = metrics.variance(first)

    numbers.update(_clusters_found(fed, done.labels))
    numbers["bytes"] = _bytes(history)
    numbers["seconds"] = round(done.seconds, 2)
    numbers["stopped"] = done.stopped
    return numbers


def _different(indices: Sequence[np.ndarray]) -> int:
    """Count the samples of a split that at least one client has."""
    return len(np.unique(np.concatenate(indices)))


def _bytes(curves: pd.DataFrame) -> float:
    """Return all bytes that were sent until the last round."""
    last = curves.iloc[-1]
    return float(last["bytes_up"] + last["bytes_down"])


def _clusters_found(fed: Federation, labels: np.ndarray | None) -> Values:
    """Compare clusters (M,) with the true ones; nothing without clusters."""
    numbers: Values = {}
    if labels is None:
        return numbers
    if fed.clusters is not None:
        numbers["ari"] = metrics.adjusted_rand_index(fed.clusters, labels)
    numbers["n_clusters"] = len(np.unique(labels))
    return numbers
