"""What each kind of job computes, and the final numbers of it."""

import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from .. import clustering, encoders, metrics, paths
from ..aggregate import distinct_rows, graph_key
from ..clustering.noise import noisy
from ..errors import FltnbError, choose
from ..federations import Federation
from ..methods import Context, Method, OnGraph, ownmodels
from ..methods.graph import ClientGraph
from ..methods.ownmodels import OwnModels
from ..provenance import environment
from ..rounds import DivergedError, Run, run
from ..settings import checked, plain
from .finished import (
    Finished,
    alone,
    columns_of,
    load,
    read_arrays,
    save,
    store_path,
)
from .job import Job, Prepared, digest, names_in, training_arguments
from .numerics import versions

Cache = Callable[[dict, Callable[[], dict]], dict]


def arrays_path(key: Mapping[str, Any]):
    """Return the file of a one-off computation; the numerics versions of what it names enter its name."""
    about = {"key": plain(key), "numerics": versions(names_in(key))}
    return paths.store() / "arrays" / f"{digest(about)}.npz"


def cached_arrays(
    key: Mapping[str, Any], compute: Callable[[], dict], since: float = 0.0
) -> dict[str, np.ndarray]:
    """Keep the arrays of a one-off computation in the store; files from before ``since`` are ignored."""
    path = arrays_path(key)
    if path.exists() and path.stat().st_mtime >= since:
        try:
            return read_arrays(path.read_bytes())
        except Exception as error:  # a damaged zip raises many types; whatever it is, the remedy is the same
            warnings.warn(
                f"Store entry {path} is damaged ({error}): only this one is computed again.",
                stacklevel=2,
            )
    arrays = compute()
    paths.write_atomically(path, lambda file: np.savez(file, **arrays))
    return arrays


def checkpoint_path(key: str):
    """Return the checkpoint of a training that is under way."""
    return store_path(key).with_name(f"{key}.checkpoint.npz")


def train(
    made: Prepared,
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
    job = made.job
    method = job.method
    arguments = training_arguments(job)
    context = Context(job.seed, cache, progress, n_workers)
    graph = method.graph_before(made.fed, arguments["model"], arguments, context)
    how = {
        "device": device,
        "backend": backend,
        "n_workers": n_workers,
        "n_jobs": n_workers,
        "progress": progress,
        "cache": cache,
    }
    if graph is None:
        settings = job.canonical
        return _trained(made, made.key, method, settings, how, since)[0]
    # What finding the graph sent is no part of the training on it.
    on_graph = OnGraph(graph._replace(sent=(0, 0)), rule=method.rule)
    relation, row = distinct_rows(graph.adjacency)
    name = graph_key(method.rule, relation, row)
    settings = job.canonical | {"method": {"name": "on_graph", "graph": name}}
    key = digest(
        {
            "settings": settings,
            "data": made.fed.fingerprint(),
            "numerics": versions(["core"]),
        }
    )
    trained, was_there = _trained(made, key, on_graph, settings, how, since)
    about = {"trained_as": key} if was_there else {}
    return _joined(made, trained, graph, about)


def _trained(
    made: Prepared,
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
    keeps_models = "models" in made.job.keep
    with alone(key):
        known = load(key, since)
        if known is not None and ("models" in known.arrays or not keeps_models):
            return known, True
        checkpoint = checkpoint_path(key)
        with suppress(OSError):
            if checkpoint.stat().st_mtime < since:
                checkpoint.unlink()
        try:
            arguments = training_arguments(made.job)
            done = run(method, made.fed, **arguments, **how, checkpoint=checkpoint)
        except DivergedError as error:
            done = error.run  # stored with its reason
        numbers = training_numbers(made.fed, done)
        arrays = _arrays_of(done)
        if keeps_models:
            arrays |= {"models": done.theta, "rows": done.rows}
        tables = done.history, done.clients
        finished = _saved(made, numbers, arrays, *tables, key=key, settings=settings)
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
    made: Prepared, trained: Finished, graph: ClientGraph, about: dict[str, str]
) -> Finished:
    """Save a training on a graph under a job's name.

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
    numbers |= clusters_found(made.fed, graph.labels)
    last = curves.iloc[-1]
    numbers["bytes"] = float(last["bytes_up"] + last["bytes_down"])
    return _saved(made, numbers, arrays, curves, clients, **about)


def training_numbers(fed: Federation, done) -> dict[str, Any]:
    """Return the final numbers of a run: those of the last round, percent and percent squared."""
    history, clients = done.history, done.clients
    numbers: dict[str, Any] = {}
    for split, prefix in (("test", ""), ("train", "train_"), ("probe", "probe_")):
        rows = history[history["split"] == split]
        if len(rows):
            last = rows.iloc[-1]
            numbers |= {
                prefix + name: float(last[name])
                for name in ("accuracy", "variance", "worst", "micro")
            }
    for split in ("test", "train"):
        numbers[f"n_{split}"] = len(np.unique(np.concatenate(getattr(fed, split))))
    if done.confusion is not None:
        numbers |= metrics.f1_summary(done.confusion)
    truth = clients["true_cluster"].to_numpy()
    if (truth >= 0).all():
        # What FLT's code looked at in scenarios 1 and 2, where all clients of a cluster share their test images.
        first = clients["test"].to_numpy()[np.unique(truth, return_index=True)[1]]
        numbers["first_clients_accuracy"] = metrics.mean_accuracy(first)
        numbers["first_clients_variance"] = metrics.variance(first)
    numbers |= clusters_found(fed, done.labels)
    numbers["bytes"] = float(
        history["bytes_up"].iloc[-1] + history["bytes_down"].iloc[-1]
    )
    return numbers | {"seconds": round(done.seconds, 2), "stopped": done.stopped}


def clusters_found(fed: Federation, labels: np.ndarray | None) -> dict[str, Any]:
    """Agreement of the final clusters with the true ones, and their number."""
    if labels is None:
        return {}
    known = (
        {}
        if fed.clusters is None
        else {"ari": metrics.adjusted_rand_index(fed.clusters, labels)}
    )
    return known | {"n_clusters": len(np.unique(labels))}


def _saved(
    made: Prepared,
    numbers: dict[str, Any],
    arrays: dict[str, np.ndarray],
    curves: pd.DataFrame | None = None,
    clients: pd.DataFrame | None = None,
    key: str | None = None,
    settings: dict[str, Any] | None = None,
    **about: Any,
) -> Finished:
    """Save what a job gave, with its settings and where the numbers come from.

    ``key`` and ``settings`` are the job's own unless others are given.
    """
    about |= {"data_origin": "", "data": "", "seconds": numbers["seconds"]}
    if made.fed is not None:
        about["data_origin"] = made.fed.origin
        about["data"] = made.fed.fingerprint()
    about["finished"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    job = made.job
    own = settings is None or settings == job.canonical
    settings = job.canonical if own else settings
    name = job.id if own else digest({"kind": job.kind, "settings": settings})
    record = {"id": name, "settings": settings, "provenance": environment() | about}
    tables = curves, clients
    finished = Finished(
        key or made.key, job.kind, job.axes, numbers, *tables, arrays, record
    )
    return save(finished)


def cluster(group: Sequence[Prepared], n_jobs: int = 1) -> list[Finished]:
    """Embed one federation and fit the clusterers of all jobs on it; each is saved as soon as it is there."""
    fed, how = group[0].fed, group[0].job.settings["encoder"]
    if how.get("kind") == "own":
        embeddings, validation = OwnModels(
            **{key: how[key] for key in how if key != "kind"}
        ).embed(fed)
    else:
        embeddings, validation = (
            encoders.embed_clients(fed, encoders.build(how), n_jobs=n_jobs),
            None,
        )
    classes, done = [fed.labels[index] for index in fed.train], []
    for made in group:
        clusterer = clusterer_of(made.job)
        begun = time.perf_counter()
        with warnings.catch_warnings():  # the table says how many clusters were found
            warnings.filterwarnings("ignore", message=".*clusters were asked for but")
            clusterer.fit(embeddings, classes if clusterer.labelled else validation)
        numbers = clustering_numbers(clusterer, fed.clusters) | {
            "seconds": round(time.perf_counter() - begun, 3)
        }
        arrays = {"labels": np.asarray(clusterer.labels_, dtype=np.int32)}
        if made.job.keep and fed.clusters is not None:
            arrays["clusters"] = np.asarray(fed.clusters, dtype=np.int32)
        for name in made.job.keep:
            value = np.asarray(getattr(clusterer, f"{name}_"))
            arrays[name] = (
                value.astype(np.float32) if value.dtype == np.float64 else value
            )
        done.append(_saved(made, numbers, arrays))
    return done


def check_clustering(made: Prepared) -> None:
    """Refuse a clustering that cannot work, before any is computed."""
    clusterer, how = clusterer_of(made.job), made.job.settings["encoder"]
    if (
        how.get("kind") == "own"
        and made.job.settings["clusterer"]["name"] != "EMDClustering"
    ):
        raise FltnbError(
            "Every client's own network has other axes: its encoder, 'own', is for EMDClustering alone."
        )
    if how.get("kind") == "own":
        checked(
            OwnModels,
            {name: how[name] for name in how if name != "kind"},
            "an encoder of kind 'own'",
        )
    if hasattr(clusterer, "check"):
        clusterer.check(made.fed.sizes.tolist())


def clusterer_of(job: Job):
    """Return the clusterer of a job, unfitted, with the job's seed and noise."""
    settings = job.settings
    made = clustering.build(settings["clusterer"])
    if (
        "random_state" in made.get_params()
        and "random_state" not in settings["clusterer"]
    ):
        made.set_params(random_state=settings["seed"])
    return (
        noisy(made, settings["noise"], settings["seed"]) if settings["noise"] else made
    )


def clustering_numbers(clusterer, clusters: np.ndarray | None) -> dict[str, Any]:
    """Compare a fitted clusterer with the true clusters (M,), or None where they are not known.

    Returns a dict: ``n_clients``; ``true_clusters`` (0: not known); ``n_clusters`` found; ``ari``; ``undecided``
    (clients for which the estimator says that their data do not tell) and ``ari_decided``, over the others;
    ``links_inside`` and ``links_across``, see :func:`link_shares`; ``floats_up``, numbers that a client sends on
    average. What is not known is left out.
    """
    labels = np.asarray(clusterer.labels_)
    undecided = np.asarray(
        getattr(clusterer, "undecided_", np.zeros(len(labels), dtype=bool))
    )
    sure, known = ~undecided, clusters is not None
    inside, across = (
        link_shares(clusterer.adjacency_, clusters) if known else (np.nan, np.nan)
    )
    numbers = {
        "n_clients": len(labels),
        "true_clusters": len(np.unique(clusters)) if known else 0,
        "n_clusters": int(clusterer.n_clusters_),
        "ari": float(metrics.adjusted_rand_index(clusters, labels))
        if known
        else np.nan,
        "undecided": int(undecided.sum()),
        "ari_decided": metrics.adjusted_rand_index(clusters[sure], labels[sure])
        if known and sure.any()
        else np.nan,
        "links_inside": inside,
        "links_across": across,
        "floats_up": float(np.mean(clusterer.sent_)),
    }
    return {name: value for name, value in numbers.items() if value == value}


def link_shares(adjacency: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Share of client pairs that are linked, ``(inside, across)`` the true clusters; NaN where there is no such pair.

    ``adjacency`` (M, M) holds 0 and 1, and its diagonal does not count; ``clusters`` (M,).
    """
    same = clusters[:, None] == clusters
    pairs = (same & ~np.eye(len(clusters), dtype=bool), ~same)
    inside, across = (np.asarray(adjacency, dtype=bool)[which] for which in pairs)
    return tuple(
        float(linked.mean()) if linked.size else float("nan")
        for linked in (inside, across)
    )


def distances(group: Sequence[Prepared], n_jobs: int = 1) -> Iterator[Finished]:
    """Train the clients of one federation once, each alone, and measure every distance that the jobs ask for."""
    first = group[0].job.settings
    fed, begun = group[0].fed, time.perf_counter()
    trained = ownmodels.local_models(
        fed, first["model"], first["training"], first["seed"]
    )
    training = round(time.perf_counter() - begun, 3)
    net, _, theta = trained
    seen = None
    if [made.job.settings["measure"]["name"] for made in group].count(
        "EMDClustering"
    ) > 1:
        train, held = ownmodels.embedded(fed, net, theta)
        seen = train, functools.cache(held)
    for made in group:
        begun = time.perf_counter()
        settings = made.job.settings
        distance, reference = ownmodels.measure(
            fed, *trained, settings["measure"], settings["seed"], n_jobs, seen
        )
        seconds = round(time.perf_counter() - begun, 3)
        arrays = {
            "distance": distance.astype(np.float32),
            "clusters": np.asarray(fed.clusters, dtype=np.int32),
        }
        if np.isfinite(reference).any():
            arrays |= {
                "reference": reference,
                "ari_at": ownmodels.ari_at(distance, reference, fed.clusters),
            }
        numbers = {
            "n_clients": fed.n_clients,
            **ownmodels.pair_numbers(distance, reference, fed.clusters),
        }
        numbers |= {"training_seconds": training, "seconds": seconds}
        yield _saved(made, numbers, arrays)


def study(made: Prepared) -> Finished:
    """Call the function of a study and save what it returns."""
    options = dict(made.job.settings)
    module, _, name = options.pop("function").rpartition(".")
    begun = time.perf_counter()
    found = getattr(import_module(f"fltnb.studies.{module}"), name)(**options)
    seconds = round(time.perf_counter() - begun, 3)
    for part in found:
        choose(
            part,
            ("numbers", "tables", "arrays"),
            f"part of what the study {name} returns",
        )
    arrays = dict(found.get("arrays", {}))
    for table, frame in found.get("tables", {}).items():
        arrays |= columns_of(f"table/{table}", frame)
    return _saved(made, plain(found.get("numbers", {})) | {"seconds": seconds}, arrays)
