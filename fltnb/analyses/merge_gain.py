"""Comparisons for merge by gain (own research, no paper): notebook 17."""

import numpy as np

from .. import federations
from ..clustering.cuts import cut
from ..clustering.ours import MergeGain, TransportSignatures
from ..clustering.ours.ridge import Sums, losses
from ..data import load
from ..encoders import EncoderSpec, embed_clients
from ..federations import apply_style, writer_styles
from ..methods.flt import client_images
from ..metrics import adjusted_rand_index
from ..randomness import stream
from .studies import Settings, Study

SHARES = (0.1, 0.3, 1.0)
"""Weights that a client may give to another cluster, besides 0."""


def made(
    what: str, dataset: str, level: int, seed: int, n_clients: int = 20, each: int = 135
) -> Study:
    """Cluster clients with similar images but different labels or styles.

    Parameters
    ----------
    what : str
        "permuted labels": four groups permute the names of ``level`` classes;
        "styles": ``level`` groups, each with its own handwriting style.
    dataset : str
    level, seed : int
    n_clients, each : int
        Clients, and the largest number of images of each.

    Returns
    -------
    dict
        Numbers: ``ari, n_clusters, true_clusters``.
    """
    images = load(dataset)
    each = min(each, len(images.train_index) // n_clients)
    drawn = stream(seed, "partition", 8).permutation(images.train_index)
    held = drawn[: n_clients * each].reshape(n_clients, each)
    pictures = images.images[held]
    classes = images.labels[held]

    # the first clients are group 0, the next ones group 1, and so on
    permuted = what == "permuted labels"
    groups = 4 if permuted else level
    group_of = np.arange(n_clients) * groups // n_clients
    truth = group_of
    if permuted:
        names = _permuted(images.n_classes, level, groups)
        classes = names[group_of[:, None], classes]
        # of two classes, two permutations of four are the same
        _, kinds = np.unique(names, axis=0, return_inverse=True)
        truth = kinds[group_of]
    else:
        hands = writer_styles(groups, seed)
        pictures = [
            apply_style(own, *hands[group])
            for group, own in zip(group_of, pictures, strict=True)
        ]

    x = [own.reshape(each, -1) / 255 for own in pictures]
    found = MergeGain().fit(x, list(classes))
    return _compared(truth, found.labels_)


def _permuted(n_classes: int, level: int, groups: int) -> np.ndarray:
    """Return each group's name of each class (groups, n_classes)."""
    names = np.tile(np.arange(n_classes), (groups, 1))
    for group in range(groups):
        names[group, :level] = np.roll(names[group, :level], group)
    return names


def without_labels(federation: Settings, targets: int = 10) -> Study:
    """Cluster by the same rule, but models predict projections of the pixels.

    The random projections replace the classes, so that clusters can differ in what
    their inputs are, and not in what these mean.

    Parameters
    ----------
    federation : settings
    targets : int
        Projections.

    Returns
    -------
    dict
        As :func:`made`.
    """
    fed = federations.build(federation)
    x = [fed.images[index].reshape(len(index), -1) / 255 for index in fed.train]
    size = x[0].shape[1], targets
    project = stream(federation["seed"], "method", 26).normal(size=size)
    y = [own @ project for own in x]

    together = np.concatenate(y)
    middle = together.mean(axis=0)
    spread = together.std()
    scaled = [(own - middle) / spread for own in y]
    found = MergeGain().fit(x, scaled)
    return _compared(fed.clusters, found.labels_)


def by_transport(federation: Settings, encoder: Settings) -> Study:
    """Merge in the order of transport signatures' tree, and choose the cut by loss.

    The smallest total loss determines the number of merges. So the comparison with
    merge by gain shows what its own order of merges adds.

    Parameters
    ----------
    federation, encoder : settings

    Returns
    -------
    dict
        As :func:`made`.
    """
    fed = federations.build(federation)
    seen = embed_clients(fed, EncoderSpec(**encoder), n_jobs=1)
    tree = TransportSignatures().fit(seen).linkage_
    gain = MergeGain()
    sums = Sums.of(gain.sketches(*client_images(fed)))

    def loss(labels: np.ndarray) -> float:
        of_clusters, _ = losses(_grouped(sums, labels), gain.folds)
        return of_clusters.sum()

    cuts = [cut(tree, k) for k in range(1, fed.n_clients + 1)]
    return _compared(fed.clusters, min(cuts, key=loss))


def soft(federation: Settings) -> Study:
    """Let every client weight the other clusters' sums by its own loss.

    One cluster after the other gets 0 or one of :data:`SHARES`: a client whose data lie
    between two clusters can so use both, instead of the one that it belongs to.

    Returns
    -------
    dict
        Numbers: test accuracy in percent of the ridge regressions (the mean prediction
        of the folds') by each client ``alone``, by its cluster (``hard``), by weights
        (``soft``) and by all of them (``one``); ``weight``, mean weight of a cluster
        that is not the client's own.
    """
    fed = federations.build(federation)
    gain = MergeGain()
    sketches = gain.sketches(*client_images(fed))
    sums = Sums.of(sketches)
    labels = gain.fit_sketches(sketches).labels_
    clusters = _grouped(sums, labels)
    x, y = client_images(fed, "test")

    rows = []
    for i in range(fed.n_clients):
        client = sums.take([i])
        models, weight = _models(clusters, client, labels[i], gain.folds)
        phi = gain.random_features(x[i])
        row = {name: _accuracy(phi, model, y[i]) for name, model in models.items()}
        row["weight"] = weight
        rows.append(row)

    numbers = {}
    for name in rows[0]:
        numbers[name] = float(np.mean([row[name] for row in rows]))
    return {"numbers": numbers}


def _models(
    clusters: Sums, client: Sums, own: int, folds: int
) -> tuple[dict[str, np.ndarray], float]:
    """Return a client's models in the four ways of :func:`soft`.

    Parameters
    ----------
    clusters, client : Sums
        A row per cluster; one row.
    own : int
        The client's cluster.
    folds : int

    Returns
    -------
    models : dict
        Way -> model (folds, D, classes).
    weight : float
        Mean weight of the other clusters in ``soft``; 0 if there are none.
    """
    every = np.ones(len(clusters.size))
    hard = np.zeros(len(every))
    hard[own] = 1
    mixed = _best_weights(clusters, client, hard, folds)
    _, alone = losses(client, folds)
    models = {"alone": alone[0]}
    for name, weights in {"hard": hard, "soft": mixed, "one": every}.items():
        _, models[name] = _weighted(clusters, client, weights, folds)

    others = mixed[hard == 0]
    if not len(others):
        return models, 0.0
    return models, others.mean()


def _accuracy(phi: np.ndarray, model: np.ndarray, y: np.ndarray) -> float:
    """Return the accuracy of the folds' mean prediction in percent.

    Parameters
    ----------
    phi : float array (n, D)
        Features of the images.
    model : float array (folds, D, classes)
    y : int array (n,)
    """
    predicted = (phi @ model).mean(axis=0).argmax(axis=1)
    return 100 * (predicted == y).mean()


def _best_weights(
    clusters: Sums, client: Sums, own: np.ndarray, folds: int
) -> np.ndarray:
    """Return the weights of the clusters that a client ends with, its own at 1.

    One cluster after the other gets the share with the least loss, or none.

    Parameters
    ----------
    clusters, client : Sums
        A row per cluster; one row.
    own : float array (C,)
        1 for the client's own cluster.
    folds : int
    """
    best = own
    least, _ = _weighted(clusters, client, own, folds)
    for other in np.flatnonzero(own == 0):
        before = best
        for share in SHARES:
            tried = before.copy()
            tried[other] = share
            loss, _ = _weighted(clusters, client, tried, folds)
            if loss < least:
                least = loss
                best = tried
    return best


def _weighted(
    clusters: Sums, client: Sums, weights: np.ndarray, folds: int
) -> tuple[float, np.ndarray]:
    """Return a client's loss under the model of weighted clusters, and that model.

    Parameters
    ----------
    clusters, client : Sums
        A row per cluster; one row.
    weights : float array (C,)
    folds : int
    """
    moments = np.tensordot(weights, clusters.moments, 1)
    products = np.tensordot(weights, clusters.products, 1)
    size = weights @ clusters.size
    pooled = client._replace(
        moments=moments[None],
        products=products[None],
        size=np.array([size]),
    )
    loss, model = losses(pooled, folds)
    return loss[0], model[0]


def _grouped(sums: Sums, labels: np.ndarray) -> Sums:
    """Add up the sums of each cluster, one row each."""
    members = [labels == c for c in np.unique(labels)]
    parts = []
    for part in sums:
        of_clusters = [part[own].sum(axis=0) for own in members]
        parts.append(np.array(of_clusters))
    return Sums(*parts)


def _compared(truth: np.ndarray, labels: np.ndarray) -> Study:
    """Compare found with true clusters."""
    numbers = {
        "ari": adjusted_rand_index(truth, labels),
        "n_clusters": len(np.unique(labels)),
        "true_clusters": len(np.unique(truth)),
    }
    return {"numbers": numbers}
