"""Experiments without a federated training: clusterings, distances, studies."""

import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from .. import clustering, encoders, metrics
from ..arrays import as_array
from ..clustering.noise import noisy
from ..encoders import EncoderSpec
from ..errors import FltnbError, choose
from ..federations import Federation
from ..methods import ownmodels
from ..methods.ownmodels import OwnModels
from ..methods.samples import check_validation
from ..settings import checked, plain
from .experiment import Clustering, Distances, Study
from .finished import Arrays, Finished, Values, columns_of
from .grid import noted
from .saving import cached_arrays, saved, small
from .task import Task


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a function, and the seconds that it took."""
    begun = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - begun
    return result, round(seconds, 3)


def cluster(
    group: Sequence[Task], n_jobs: int = 1, device: str = "auto", since: float = 0.0
) -> list[Finished]:
    """Embed one federation once and fit the clusterers of all tasks on it.

    Each result is saved as soon as it is computed, and so are the embeddings of clients
    that tune their encoders.

    Parameters
    ----------
    group : sequence of Task
        Clusterings with one federation and one encoder.
    n_jobs : int
        Processes that embed clients, or train their own networks; no effect on the
        numbers.
    device : str
        Device on which clients' own networks train and are applied.
    since : float
        Embeddings from before this time (seconds of Unix time) are ignored.
    """
    fed = group[0].fed
    encoder = group[0].experiment.encoder
    if isinstance(encoder, OwnModels):
        embeddings, validation = encoder.embed(fed, device, n_jobs)
    else:
        cache = functools.partial(cached_arrays, since=since)
        embeddings = encoders.embed_clients(fed, encoder, n_jobs=n_jobs, cache=cache)
        validation = None
    classes = [fed.labels[index] for index in fed.train]

    done = []
    for task in group:
        clusterer = clusterer_of(task.experiment)
        second = classes if clusterer.labelled else validation
        with warnings.catch_warnings():  # the table has the number of found clusters
            warnings.filterwarnings("ignore", message=".*clusters were asked for but")
            fit = functools.partial(clusterer.fit, embeddings, second)
            with noted(task.row):
                _, seconds = timed(fit)
        numbers = clustering_numbers(clusterer, fed.clusters)
        numbers["seconds"] = seconds
        arrays = _arrays_of(clusterer, task)
        done.append(saved(task, numbers, arrays))
    return done


def _arrays_of(clusterer: Any, task: Task) -> Arrays:
    """Return the labels, and the attributes that the experiment keeps.

    The name of a kept array is that of the attribute without its underscore, such as
    ``adjacency``. True clusters are added.
    """
    keep = task.experiment.keep
    arrays = {"labels": small(clusterer.labels_)}
    if keep and task.fed.clusters is not None:
        arrays["clusters"] = small(task.fed.clusters)
    for name in keep:
        value = np.asarray(getattr(clusterer, f"{name}_", None))
        if value.dtype == object:
            raise FltnbError(
                f"{type(clusterer).__name__} has no array {name}_ to keep: leave "
                f"{name!r} out of keep."
            )
        if value.dtype == np.float64:
            value = value.astype(np.float32)
        arrays[name] = value
    return arrays


def check_clustering(task: Task) -> None:
    """Refuse a clustering that cannot work, before any is computed.

    A clusterer may have a method ``check`` for the clients' numbers of samples.

    Raises
    ------
    FltnbError
        The encoder is not one, or clients' own networks are given to a clusterer that
        compares embeddings, or cannot be trained; or the clusterer itself refuses.
    """
    encoder = task.experiment.encoder
    name = task.experiment.settings["clusterer"]["name"]
    own_models = isinstance(encoder, OwnModels)
    if own_models and name != "EMDClustering":
        raise FltnbError(
            "Every client's own network has different axes: the encoder OwnModels is "
            "only for EMDClustering."
        )
    if not own_models and not isinstance(encoder, EncoderSpec):
        raise FltnbError(
            f"{encoder!r} is not an encoder: give fl.encoders.EncoderSpec(...) or "
            "fl.OwnModels(...)."
        )
    if own_models:
        training = asdict(encoder)
        _check_alone(task, training.pop("model"), training, validation=True)
    clusterer = clusterer_of(task.experiment)
    if hasattr(clusterer, "check"):
        clusterer.check(task.fed.sizes.tolist())


def check_distances(task: Task) -> None:
    """Refuse distances that cannot be measured, before any are computed.

    Raises
    ------
    FltnbError
        There is no such distance, network or option of the training, or no validation
        samples, which EMD-CFL's distance needs.
    """
    experiment: Distances = task.experiment
    name = choose(experiment.measure["name"], ownmodels.DISTANCES, "distance")
    _check_alone(task, experiment.model, experiment.training, name == "EMDClustering")


def _check_alone(
    task: Task, model: str, training: Mapping[str, Any], validation: bool
) -> None:
    """Refuse clients that cannot train alone, or lack validation samples if needed."""
    from .. import models
    from ..training import TrainSpec
    from ..training.contract import validate

    fed = task.fed
    assert fed is not None  # an experiment on clients
    options = checked(TrainSpec, training, "training")
    net = models.make(model, fed.input_shape, fed.n_classes)
    validate(fed, net, TrainSpec(**options))
    if validation:
        check_validation(fed, "EMD-CFL")


def clusterer_of(experiment: Clustering) -> Any:
    """Return the clusterer, unfitted, with the experiment's seed and noise.

    The seed is for a random clusterer whose settings do not give one.
    """
    settings = experiment.settings["clusterer"]
    made = clustering.build(settings)
    takes_seed = "random_state" in made.get_params()
    if takes_seed and "random_state" not in settings:
        made.set_params(random_state=experiment.seed)
    if experiment.noise:
        return noisy(made, experiment.noise, experiment.seed)
    return made


def clustering_numbers(clusterer: Any, clusters: np.ndarray | None) -> Values:
    """Compare a fitted clusterer with the true clusters (M,), or None if not known.

    Returns
    -------
    dict
        ``n_clients``; ``true_clusters`` (0: not known); ``n_clusters`` found; ``ari``;
        ``undecided`` (clients whose data do not decide, according to the estimator) and
        ``ari_decided``, over the others; ``links_inside`` and ``links_across``, see
        :func:`link_shares`; ``floats_up``, numbers that a client sends on average.
        Unknown values are left out.
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
        ari = metrics.adjusted_rand_index
        inside, across = link_shares(clusterer.adjacency_, clusters)
        numbers["true_clusters"] = len(np.unique(clusters))
        numbers["ari"] = float(ari(clusters, labels))
        numbers["links_inside"] = inside
        numbers["links_across"] = across
        decided = ~undecided
        if decided.any():
            numbers["ari_decided"] = ari(clusters[decided], labels[decided])
    return {name: value for name, value in numbers.items() if not np.isnan(value)}


def link_shares(adjacency: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Return the share of linked client pairs, inside and across true clusters.

    Parameters
    ----------
    adjacency : array (M, M)
        0 and 1; its diagonal does not count.
    clusters : array (M,)

    Returns
    -------
    (float, float)
        In [0, 1]; NaN if there is no such pair.
    """
    same = clusters[:, None] == clusters
    others = ~np.eye(len(clusters), dtype=bool)
    linked = np.asarray(adjacency, dtype=bool)
    return _mean(linked[same & others]), _mean(linked[~same])


def _mean(linked: np.ndarray) -> float:
    """Return the share of true values, NaN if there are no values."""
    if not linked.size:
        return float("nan")
    return float(linked.mean())


def distances(
    group: Sequence[Task], n_jobs: int = 1, device: str = "auto"
) -> Iterator[Finished]:
    """Train the clients of one federation once, each alone, and measure distances.

    Parameters
    ----------
    group : sequence of Task
        Distances that share federation, model, training and seed.
    n_jobs : int
        Processes that measure; no effect on the numbers.
    device : str
        Device on which clients' networks train and are applied.
    """
    fed = group[0].fed
    first: Distances = group[0].experiment
    trained, training_seconds = timed(
        lambda: ownmodels.local_models(
            fed, first.model, dict(first.training), first.seed, device=device
        )
    )

    net, start, theta = trained
    seen = None
    names = [task.experiment.measure["name"] for task in group]
    if "EMDClustering" in names:
        train, held = ownmodels.embedded(fed, net, theta, device)
        if names.count("EMDClustering") > 1:
            held = functools.cache(held)
        seen = (train, held)

    for task in group:
        measure = functools.partial(
            ownmodels.measure,
            fed,
            net,
            start,
            theta,
            how=dict(task.experiment.measure),
            seed=task.experiment.seed,
            n_jobs=n_jobs,
            seen=seen,
        )
        (distance, reference), seconds = timed(measure)
        numbers: Values = {"n_clients": fed.n_clients}
        if fed.clusters is not None:
            numbers |= ownmodels.pair_numbers(distance, reference, fed.clusters)
        numbers["training_seconds"] = training_seconds
        numbers["seconds"] = seconds
        yield saved(task, numbers, _distance_arrays(fed, distance, reference))


def _distance_arrays(
    fed: Federation, distance: np.ndarray, reference: np.ndarray
) -> Arrays:
    """Return the stored arrays of distances and EMD-CFL's references.

    Those that compare them with the true clusters are left out if these are unknown.

    Parameters
    ----------
    fed : Federation
    distance : array (M, M)
    reference : array (M,)
        NaN for other distances than EMD-CFL's.
    """
    arrays = {"distance": distance.astype(np.float32)}
    if np.isfinite(reference).any():
        arrays["reference"] = reference
    if fed.clusters is not None:
        arrays["clusters"] = small(fed.clusters)
        if "reference" in arrays:
            arrays["ari_at"] = ownmodels.ari_at(distance, reference, fed.clusters)
    return arrays


def study(task: Task) -> Finished:
    """Call the function of a study and save what it returns.

    A column of a table is stored as the array ``table/<name of the table>/<column>``.

    Raises
    ------
    FltnbError
        It returns something other than numbers, tables and arrays, or an array that
        cannot be stored.
    """
    experiment: Study = task.experiment
    function = experiment.function
    options = plain(experiment.options)
    with noted(task.row):
        found, seconds = timed(lambda: function(**options))
    if not isinstance(found, dict):
        raise FltnbError(
            f"The study {function.__name__} must return a dict of numbers, tables and "
            f"arrays, not {type(found).__name__}: check its `return`."
        )
    for part in found:
        choose(
            part,
            ("numbers", "tables", "arrays"),
            f"part of what the study {function.__name__} returns",
        )

    arrays = {}
    for name, given in found.get("arrays", {}).items():
        arrays[name] = as_array(given, f"The arrays {name!r} of a study")
        if arrays[name].dtype == object:
            raise FltnbError(
                f"The array {name!r} of the study {function.__name__} holds objects: "
                "return numbers or texts."
            )
    for table, frame in found.get("tables", {}).items():
        arrays |= columns_of(f"table/{table}", frame)
    numbers = plain(found.get("numbers", {}))
    numbers["seconds"] = seconds
    return saved(task, numbers, arrays)
