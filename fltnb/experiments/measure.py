"""Experiments without a federated training: clusterings, distances, studies."""

import functools
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import clustering, encoders, metrics
from ..clustering.noise import noisy
from ..encoders import EncoderSpec
from ..errors import FltnbError, choose
from ..methods import ownmodels
from ..methods.ownmodels import OwnModels
from ..settings import plain
from .experiment import Clustering, Distances, Study
from .finished import Finished, columns_of
from .saving import saved
from .task import Task


def cluster(group: Sequence[Task], n_jobs: int = 1) -> list[Finished]:
    """Embed one federation once and fit the clusterers of all tasks on it.

    Each result is saved as soon as it is there.
    """
    fed = group[0].fed
    encoder = group[0].experiment.encoder
    if isinstance(encoder, OwnModels):
        embeddings, validation = encoder.embed(fed)
    else:
        embeddings = encoders.embed_clients(fed, encoder, n_jobs=n_jobs)
        validation = None
    classes = [fed.labels[index] for index in fed.train]

    done = []
    for task in group:
        clusterer = clusterer_of(task.experiment)
        second = classes if clusterer.labelled else validation
        begun = time.perf_counter()
        with warnings.catch_warnings():  # the table says how many clusters were found
            warnings.filterwarnings("ignore", message=".*clusters were asked for but")
            clusterer.fit(embeddings, second)
        seconds = round(time.perf_counter() - begun, 3)
        numbers = clustering_numbers(clusterer, fed.clusters) | {"seconds": seconds}
        done.append(saved(task, numbers, _arrays_of(clusterer, task)))
    return done


def _arrays_of(clusterer: Any, task: Task) -> dict[str, np.ndarray]:
    """Return the labels and what the experiment asks to keep."""
    keep = task.experiment.keep
    arrays = {"labels": np.asarray(clusterer.labels_, dtype=np.int32)}
    if keep and task.fed.clusters is not None:
        arrays["clusters"] = np.asarray(task.fed.clusters, dtype=np.int32)
    for name in keep:
        value = np.asarray(getattr(clusterer, f"{name}_"))
        if value.dtype == np.float64:
            value = value.astype(np.float32)
        arrays[name] = value
    return arrays


def check_clustering(task: Task) -> None:
    """Refuse a clustering that cannot work, before any is computed."""
    clusterer = clusterer_of(task.experiment)
    encoder = task.experiment.encoder
    name = task.experiment.settings["clusterer"]["name"]
    if isinstance(encoder, OwnModels):
        if name != "EMDClustering":
            raise FltnbError(
                "Every client's own network has other axes: the encoder OwnModels is "
                "for EMDClustering alone."
            )
    elif not isinstance(encoder, EncoderSpec):
        raise FltnbError(
            f"{encoder!r} is no encoder: give fl.encoders.EncoderSpec(...) or "
            "fl.OwnModels(...)."
        )
    if hasattr(clusterer, "check"):
        clusterer.check(task.fed.sizes.tolist())


def clusterer_of(experiment: Clustering) -> Any:
    """Return the clusterer, unfitted, with the experiment's seed and noise."""
    settings = experiment.settings["clusterer"]
    made = clustering.build(settings)
    if "random_state" in made.get_params() and "random_state" not in settings:
        made.set_params(random_state=experiment.seed)
    if experiment.noise:
        return noisy(made, experiment.noise, experiment.seed)
    return made


def clustering_numbers(
    clusterer: Any, clusters: np.ndarray | None
) -> dict[str, float | int]:
    """Compare a fitted clusterer with the true clusters (M,), or None if not known.

    Returns a dict: ``n_clients``; ``true_clusters`` (0: not known); ``n_clusters``
    found; ``ari``; ``undecided`` (clients for which the estimator says that their data
    do not tell) and ``ari_decided``, over the others; ``links_inside`` and
    ``links_across``, see :func:`link_shares`; ``floats_up``, numbers that a client
    sends on average. What is not known is left out.
    """
    labels = np.asarray(clusterer.labels_)
    nobody = np.zeros(len(labels), dtype=bool)
    undecided = np.asarray(getattr(clusterer, "undecided_", nobody))
    numbers = {
        "n_clients": len(labels),
        "true_clusters": 0,
        "n_clusters": int(clusterer.n_clusters_),
        "undecided": int(undecided.sum()),
        "floats_up": float(np.mean(clusterer.sent_)),
    }
    if clusters is not None:
        inside, across = link_shares(clusterer.adjacency_, clusters)
        numbers["true_clusters"] = len(np.unique(clusters))
        numbers["ari"] = float(metrics.adjusted_rand_index(clusters, labels))
        numbers["links_inside"] = inside
        numbers["links_across"] = across
        sure = ~undecided
        if sure.any():
            decided = metrics.adjusted_rand_index(clusters[sure], labels[sure])
            numbers["ari_decided"] = decided
    return {name: value for name, value in numbers.items() if value == value}


def link_shares(adjacency: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Share of client pairs that are linked, inside and across the true clusters.

    ``adjacency`` (M, M) holds 0 and 1, and its diagonal does not count; ``clusters``
    (M,). NaN where there is no such pair.
    """
    same = clusters[:, None] == clusters
    others = ~np.eye(len(clusters), dtype=bool)
    linked = np.asarray(adjacency, dtype=bool)
    return _mean(linked[same & others]), _mean(linked[~same])


def _mean(linked: np.ndarray) -> float:
    return float(linked.mean()) if linked.size else float("nan")


def distances(group: Sequence[Task], n_jobs: int = 1) -> Iterator[Finished]:
    """Train the clients of one federation once, each alone, and measure distances.

    That is every distance that the tasks ask for.
    """
    fed = group[0].fed
    first: Distances = group[0].experiment
    begun = time.perf_counter()
    training = dict(first.training)
    trained = ownmodels.local_models(fed, first.model, training, first.seed)
    training_seconds = round(time.perf_counter() - begun, 3)

    net, _, theta = trained
    seen = None
    names = [task.experiment.measure["name"] for task in group]
    if names.count("EMDClustering") > 1:
        train, held = ownmodels.embedded(fed, net, theta)
        seen = train, functools.cache(held)
    for task in group:
        experiment = task.experiment
        measure = dict(experiment.measure)
        begun = time.perf_counter()
        distance, reference = ownmodels.measure(
            fed, *trained, measure, experiment.seed, n_jobs, seen
        )
        seconds = round(time.perf_counter() - begun, 3)
        arrays = {
            "distance": distance.astype(np.float32),
            "clusters": np.asarray(fed.clusters, dtype=np.int32),
        }
        if np.isfinite(reference).any():
            arrays["reference"] = reference
            arrays["ari_at"] = ownmodels.ari_at(distance, reference, fed.clusters)
        numbers = {"n_clients": fed.n_clients}
        numbers |= ownmodels.pair_numbers(distance, reference, fed.clusters)
        numbers["training_seconds"] = training_seconds
        numbers["seconds"] = seconds
        yield saved(task, numbers, arrays)


def study(task: Task) -> Finished:
    """Call the function of a study and save what it returns."""
    experiment: Study = task.experiment
    begun = time.perf_counter()
    found = experiment.function(**plain(experiment.options))
    seconds = round(time.perf_counter() - begun, 3)
    name = experiment.function.__name__
    for part in found:
        parts = ("numbers", "tables", "arrays")
        choose(part, parts, f"part of what the study {name} returns")
    arrays = dict(found.get("arrays", {}))
    for table, frame in found.get("tables", {}).items():
        arrays |= columns_of(f"table/{table}", frame)
    numbers = plain(found.get("numbers", {})) | {"seconds": seconds}
    return saved(task, numbers, arrays)
