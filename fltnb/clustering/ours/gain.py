"""The gain of training in clusters, estimated before anything is trained."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from ...arrays import as_array
from ...errors import FltnbError
from ...federations import Federation
from ...randomness import stream
from ...settings import Count, Natural, checked
from ..base import check_clients
from .ridge import features

FOLDS = 5
PENALTIES = 10.0 ** np.arange(-2, 4)  # in units of a feature's mean square


class Gain(NamedTuple):
    """Points of accuracy that a model per cluster gains, mean over clients.

    Attributes
    ----------
    points, error : float
        Gain over one model for all clients, and the standard error of this mean; NaN
        for a single client.
    over_own, over_own_error : float
        The same over a separate model for each client.
    clients : DataFrame
        One row per client: ``client``, ``cluster``, ``samples``, and its held-out
        accuracy in percent under each of the three, ``one_model``, ``cluster_model``
        and ``own_model``.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> fl.clustering_gain(fed, fed.clusters).clients.shape
    (6, 6)
    """

    points: float
    error: float
    over_own: float
    over_own_error: float
    clients: pd.DataFrame


class _Client(NamedTuple):
    """One client's samples, in the form that the regressions need."""

    phi: np.ndarray  # (n, d + 1), features
    target: np.ndarray  # (n, K), one-hot classes
    folds: list[np.ndarray]  # samples of each fold


@threadpool_limits.wrap(limits=1)  # sums have the same order for any number of cores
def clustering_gain(
    fed: Federation,
    labels: np.ndarray,
    width: Count = 128,
    seed: Natural = 0,
    embedded: Sequence[np.ndarray] | None = None,
) -> Gain:
    r"""Estimate what clusters would gain, before anything is trained.

    It is this project's own method: cross-validated ridge regression on random
    features. Mean and mean square of all *training* samples are summed over clients. A
    client turns its samples into features :math:`\phi(x) = [\mathrm{ReLU}(R (x - m) / s
    + b), 1]`, with R and b Gaussian from ``seed``, and sums :math:`\phi\phi^T` and
    :math:`\phi y^T` in each of 5 folds. A sample of the pool that several clients hold
    is in the same fold for all of them. From these sums the server fits regressions for
    all clients together, for each cluster and for each client, without one fold, and
    the clients count correct predictions in that fold. For each of the three the
    penalty with the most correct predictions is taken. Test samples are not used.

    Equal rows of clients' own tables are different samples of the pool. If they are
    records of one person, held by several clients, models of several clients look too
    good.

    The error treats clients as independent draws. It does not include the effect of the
    network and of the rounds that follow: trust a large gain, but train to confirm a
    small one. Clusters that were found with the training labels look slightly too good.

    Parameters
    ----------
    fed : Federation
        One with classes.
    labels : sequence of M values
        Cluster of each client, such as ``labels_`` of a clusterer.
    width : int
        Random features d; for K classes a client sends at most
        ``5 (d + 1) (d + 1 + K)`` numbers.
    seed : int
        Seed of the random features and of the folds.
    embedded : sequence of M arrays, shapes (n_i, e), optional
        Embeddings that replace the samples in the regressions; tokens need them.

    Raises
    ------
    FltnbError
        There is not one label for each client, some are NaN, there are no classes, or
        an option is out of range.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> gain = fl.clustering_gain(fed, fed.clusters)
    >>> gain.points > gain.error
    True
    """
    if not isinstance(fed, Federation):
        raise FltnbError(
            f"clustering_gain needs a Federation, not {type(fed).__name__}: make one, "
            "such as by fl.Federation.from_arrays(...)."
        )
    options = {"fed": fed, "labels": labels, "width": width, "seed": seed}
    checked(clustering_gain, options, "clustering_gain")
    everyone = np.arange(fed.n_clients)
    clusters = _numbered(labels, fed)
    groups = {
        "one_model": np.zeros_like(everyone),
        "cluster_model": clusters,
        "own_model": everyone,
    }

    clients = _clients(fed, _samples(fed, embedded), width, seed)
    sums = np.array([_sums(client) for client in clients])
    table = pd.DataFrame(
        {"client": everyone, "cluster": clusters, "samples": fed.sizes}
    )
    for name, group in groups.items():
        accuracy = 100 * _hits(clients, sums, group) / fed.sizes  # (penalties, M)
        # rounded, so that rounding errors do not decide ties
        best = accuracy.mean(axis=1).round(9).argmax()
        table[name] = accuracy[best]

    gain = table["cluster_model"] - table["one_model"]
    over_own = table["cluster_model"] - table["own_model"]
    return Gain(
        float(gain.mean()),
        float(gain.sem()),
        float(over_own.mean()),
        float(over_own.sem()),
        table,
    )


def _numbered(labels: np.ndarray, fed: Federation) -> np.ndarray:
    """Return the number of each client's cluster (M,), or refuse the labels."""
    if fed.targets == "values":
        raise FltnbError(
            "clustering_gain counts correct classes, and this federation "
            "has numbers to predict: compare trainings with and without clusters."
        )
    values = as_array(labels, "labels")
    if values.shape != (fed.n_clients,):
        raise FltnbError(
            f"labels must be {fed.n_clients} clusters, one per client, not of shape "
            f"{values.shape}."
        )
    unclear = pd.isna(values)
    if unclear.any():
        name = fed.names[np.flatnonzero(unclear)[0]]
        raise FltnbError(
            f"labels are NaN or missing for client {name}: give "
            "clients without a cluster one of their own."
        )
    return np.unique(values, return_inverse=True)[1]


def _samples(
    fed: Federation, embedded: Sequence[np.ndarray] | None
) -> list[np.ndarray]:
    """Return each client's samples or embeddings, float64 (n_i, e)."""
    if embedded is not None:
        arrays = check_clients(embedded)
        if [len(one) for one in arrays] != fed.sizes.tolist():
            raise FltnbError(
                "embedded must have one row for each training sample of each client: "
                "give M arrays (n_i, e) in the order of fed.train."
            )
        return [one.astype(np.float64) for one in arrays]
    if fed.layout == "tokens":
        raise FltnbError(
            "Tokens are numbers of words, without distances: give embedded, an array "
            "(n, e) for each client."
        )
    samples = []
    for index in fed.train:
        x = fed.inputs(index).reshape(len(index), -1)
        samples.append(x.astype(np.float64))
    return samples


def _clients(
    fed: Federation, x: list[np.ndarray], width: int, seed: int
) -> list[_Client]:
    """Turn clients' samples (n_i, e) into random features, and draw the folds."""
    rng = stream(seed, "split", FOLDS)
    folds = np.arange(len(fed.images)) % FOLDS
    fold_of = rng.permutation(folds)  # of the pool's samples

    x = _standardised(x)
    n_inputs = x[0].shape[1]
    matrix = rng.normal(size=(n_inputs, width))
    shift = rng.normal(size=width)
    clients = []
    for index, one in zip(fed.train, x, strict=True):
        phi = features(one, matrix, shift)
        target = np.eye(fed.n_classes)[fed.labels[index]]
        own = fold_of[index]
        positions = [np.flatnonzero(own == f) for f in range(FOLDS)]
        clients.append(_Client(phi, target, positions))
    return clients


def _standardised(x: list[np.ndarray]) -> list[np.ndarray]:
    """Return samples (n_i, e) minus their mean, by their root mean square distance.

    Both are over all clients, which only add up sums for them.
    """
    n_samples = sum(len(one) for one in x)
    mean = sum(one.sum(axis=0) for one in x) / n_samples
    square = sum(((one - mean) ** 2).sum() for one in x) / n_samples
    scale = np.sqrt(max(square, 1e-12))
    return [(one - mean) / scale for one in x]


def _sums(client: _Client) -> np.ndarray:
    """Add up over a client's samples: (folds, d + 1, d + 1 + K)."""
    sums = []
    for inside in client.folds:
        phi = client.phi[inside]
        target = client.target[inside]
        sums.append(phi.T @ np.hstack([phi, target]))
    return np.array(sums)


def _hits(clients: list[_Client], sums: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Count the samples that the groups' regressions classify correctly.

    Parameters
    ----------
    clients : list of M
    sums : ndarray, shape (M, folds, d + 1, d + 1 + K)
        As :func:`_sums` adds them up.
    group : ndarray of int, shape (M,)
        Clients of one group have one regression.

    Returns
    -------
    ndarray, shape (penalties, M)
    """
    hits = np.zeros((len(PENALTIES), len(clients)))
    for g in range(group.max() + 1):
        members = np.flatnonzero(group == g)
        of_folds = sums[members].sum(axis=0)
        everything = of_folds.sum(axis=0)
        for f in range(FOLDS):
            weights = _regressions(everything - of_folds[f])
            for i in members:
                phi, target, folds = clients[i]
                inside = folds[f]
                scores = phi[inside] @ weights  # (penalties, n, K)
                right = target[inside, scores.argmax(axis=2)]
                hits[:, i] += right.sum(axis=1)
    return hits


def _regressions(sums: np.ndarray) -> np.ndarray:
    """Fit ridge regressions, one for each penalty.

    Parameters
    ----------
    sums : ndarray, shape (d + 1, d + 1 + K)
        Sums over samples of phi phi' and, to their right, phi y'.

    Returns
    -------
    ndarray, shape (penalties, d + 1, K)
    """
    square, product = np.split(sums, [len(sums)], axis=1)
    n_samples = max(square[-1, -1], 1)  # the last feature is 1
    unit = np.trace(square) / len(square) / n_samples
    unit = max(unit, 1e-12)

    values, vectors = np.linalg.eigh(square)  # one factorisation for all penalties
    lifted = np.maximum(values, 0) + PENALTIES[:, None] * unit
    turned = vectors.T @ product / lifted[..., None]
    return vectors @ turned
