"""What one model per cluster would gain over one model for all: a cheap estimate before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, checked

if TYPE_CHECKING:
    import pandas as pd

    from ..federations import Federation

FOLDS = 5
PENALTIES = 10.0 ** np.arange(-2, 4)  # in units of a feature's mean square


class Gain(NamedTuple):
    """Points of accuracy that a model per cluster gains, mean over clients, each with the standard error of that mean.

    ``points, error``: over one model for all; ``over_own, over_own_error``: over a model of each client's own.
    ``clients``: one row per client: client, cluster, samples, and its held-out accuracy in percent under each of the
    three, one_model, cluster_model, own_model.
    """

    points: float
    error: float
    over_own: float
    over_own_error: float
    clients: pd.DataFrame


@threadpool_limits.wrap(limits=1)  # a sum has one order, however many cores there are
def clustering_gain(fed: Federation, labels: np.ndarray, width: Count = 128, seed: Natural = 0) -> Gain:
    r"""Estimate what clusters would gain by cross-validated ridge regression on random features. This project's own.

    Mean and mean square of all *training* samples are added up over clients. A client turns its own into features
    :math:`\phi(x) = [\mathrm{ReLU}(R (x - m) / s + b), 1]`, R and b Gaussian from ``seed``, and sums :math:`\phi\phi^T`
    and :math:`\phi y^T` in each of 5 folds; copies of a sample are in one fold, whoever holds them. From these sums the
    server fits regressions for everybody together, for each cluster and for each client without one fold, and clients
    count the hits in that fold. The penalty that hits most is taken, for each of the three. Test samples are not used.

    The error treats clients as independent draws. It does not know the network and the rounds that will follow: believe
    a large gain, train for a small one. Clusters found by means of the training labels look a little too good.

    Parameters
    ----------
    labels : int (M,), cluster of each client, such as ``labels_`` of a clusterer
    width : int, random features d; a client sends at most ``5 (d + 1) (d + 1 + K)`` numbers

    Raises
    ------
    FltnbError
        Not one label per client, or an option out of range.
    """
    checked(clustering_gain, {"fed": fed, "labels": labels, "width": width, "seed": seed}, "clustering_gain")
    if np.shape(labels) != (fed.n_clients,):
        raise FltnbError(f"labels must be {fed.n_clients} clusters, one per client, not of shape {np.shape(labels)}.")
    clusters, everyone = np.unique(labels, return_inverse=True)[1], np.arange(fed.n_clients)
    rng = stream(seed, "split", FOLDS)
    fold = rng.permutation(np.arange(len(fed.images)) % FOLDS)  # of every sample of the pool
    x = [fed.inputs(index).reshape(len(index), -1).astype(np.float64) for index in fed.train]
    mean = sum(own.sum(0) for own in x) / fed.sizes.sum()
    scale = np.sqrt(max(sum(((own - mean) ** 2).sum() for own in x) / fed.sizes.sum(), 1e-12))
    matrix, shift = rng.normal(size=(len(mean), width)), rng.normal(size=width)
    phi = [np.maximum((own - mean) @ matrix / scale + shift, 0) for own in x]
    phi = [np.hstack([own, np.ones((len(own), 1))]) for own in phi]
    target = [np.eye(fed.n_classes)[fed.labels[index]] for index in fed.train]
    inside = [[np.flatnonzero(fold[index] == f) for f in range(FOLDS)] for index in fed.train]
    sums = np.array(
        [[p[at].T @ np.hstack([p[at], t[at]]) for at in own] for p, t, own in zip(phi, target, inside, strict=True)]
    )  # (M, folds, d + 1, d + 1 + K)
    hits = {}
    for scope, group in {"one_model": 0 * clusters, "cluster_model": clusters, "own_model": everyone}.items():
        hits[scope] = np.zeros((len(PENALTIES), fed.n_clients))
        for members in (np.flatnonzero(group == g) for g in range(group.max() + 1)):
            total = sums[members].sum(0)
            for f in range(FOLDS):
                for row, weights in zip(hits[scope], _ridge(total.sum(0) - total[f]), strict=True):
                    for i in members:
                        at = inside[i][f]
                        row[i] += (target[i][at, (phi[i][at] @ weights).argmax(1)]).sum()
    return _gain(fed, clusters, hits)


def _ridge(sums: np.ndarray) -> list[np.ndarray]:
    """Regressions (d + 1, K), one for each penalty, from sums (d + 1, d + 1 + K) over samples."""
    square, product = np.split(sums, [len(sums)], axis=1)
    unit = np.trace(square) / len(square) / max(square[-1, -1], 1)  # the last feature is 1: its square counts samples
    values, vectors = np.linalg.eigh(square)
    turned = vectors.T @ product
    return [vectors @ (turned / (np.maximum(values, 0) + p * max(unit, 1e-12))[:, None]) for p in PENALTIES]


def _gain(fed: Federation, clusters: np.ndarray, hits: dict[str, np.ndarray]) -> Gain:
    import pandas as pd

    clients = pd.DataFrame({"client": np.arange(fed.n_clients), "cluster": clusters, "samples": fed.sizes})
    for scope, counted in hits.items():
        accuracy = 100 * counted / fed.sizes
        clients[scope] = accuracy[accuracy.mean(1).round(9).argmax()]  # ties: not by how a sum was rounded
    over = [clients["cluster_model"] - clients[other] for other in ("one_model", "own_model")]
    return Gain(*(float(value) for gained in over for value in (gained.mean(), gained.sem())), clients)
