"""FeSEM's clients (Table 1), the models they send (Figure 4) and how to choose K."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.decomposition import KernelPCA
from sklearn.metrics import silhouette_score

from .. import data, federations, methods, metrics, models, rounds
from ..federations import Federation
from ..methods.modelspace import gram
from ..randomness import stream

Settings = Mapping[str, Any]
Study = dict[str, Any]

DRAWS = 200  # random groupings beside a silhouette
# keys of the random streams: notebook 8, then the figure or the section
FIGURE_4 = (8, 4)
SECTION_52 = (8, 52)


def statistics(federation: Settings, shown: int = 0) -> Study:
    """Count samples, clients and classes.

    Of the whole image set where its people are known, else of the federation.

    Returns a dict: table ``printed`` in the form of the papers' tables; arrays
    ``counts`` (M, classes) of training samples and ``images`` (M, shown, H, W), the
    first training images of every client.
    """
    fed = federations.build(federation)
    images = data.load(federation["dataset"])
    n_samples = sum(map(len, (*fed.train, *fed.test)))
    n_clients = fed.n_clients
    if images.writers is not None:
        n_samples = len(images.labels)
        n_clients = len(np.unique(images.writers))

    rows = [
        ("num_samples", float(n_samples)),
        ("num_clients", float(n_clients)),
        ("num_classes", float(fed.n_classes)),
    ]
    printed = pd.DataFrame(rows, columns=["metric", "value"])
    arrays = {"counts": fed.label_counts().astype(np.int32)}
    if shown:
        arrays["images"] = np.stack([fed.images[index[:shown]] for index in fed.train])
    return {"tables": {"printed": printed}, "arrays": arrays}


def watch(method: Settings, fed: Federation, shown: Sequence[int], **training: Any):
    """Run FeSEM, and keep what everybody sent in the rounds ``shown``.

    Everybody must take part in these rounds. Returns ``kept`` and the run. ``kept``:
    round -> inner products (M, M) of the local models less their mean, float64, which
    give distances and a PCA, and the clusters (M,) of the E-step on these models.
    """
    kept = {}

    def keep(round, state, theta, accuracy):
        if round in shown:
            own = theta[:, : int(state.trainable)]
            inner = gram(own, own.mean(axis=0))
            # the mean was rounded to the models' type
            inner += inner.mean() - inner.mean(axis=0) - inner.mean(axis=1)[:, None]
            kept[round] = inner, np.array(state.labels)

    made = methods.build(method)
    quiet = training | {"eval_every": training["rounds"], "progress": False}
    done = rounds.run(made, fed, **quiet, watch=keep)
    return kept, done


def local_models(
    federation: Settings, method: Settings, shown: Sequence[int], **training: Any
) -> Study:
    """Put clients' models in the plane of a PCA and measure how far clusters are apart.

    Returns a dict. Table ``points``: ``round, client, cluster, x, y``. Table
    ``separation``: ``round, sizes`` (text), the mean ``silhouette`` of whole models,
    the mean and the highest of 200 random groupings of the same sizes (``chance,
    highest``), the silhouette ``in the plane`` and the share of the variance there
    (``explained``).
    """
    fed = federations.build(federation)
    kept, _ = watch(method, fed, shown, **training)
    points = []
    rows = []
    for at, (inner, labels) in kept.items():
        flat, explained = plane(inner)
        for client, (x, y) in enumerate(flat):
            place = float(f"{x:.4g}"), float(f"{y:.4g}")
            points.append((at, client, labels[client], *place))

        norms = np.diag(inner)
        far = np.sqrt(np.maximum(norms[:, None] + norms - 2 * inner, 0))
        np.fill_diagonal(far, 0)
        rng = stream(training["seed"], "method", *FIGURE_4, at)
        drawn = [silhouette(far, rng.permutation(labels)) for _ in range(DRAWS)]
        _, sizes = np.unique(labels, return_counts=True)
        between = np.linalg.norm(flat[:, None] - flat, axis=2)
        row = {
            "round": at,
            "sizes": ", ".join(map(str, sorted(sizes, reverse=True))),
            "silhouette": silhouette(far, labels),
            "chance": np.mean(drawn),
            "highest": np.max(drawn),
            "in the plane": silhouette(between, labels),
            "explained": explained,
        }
        rows.append(row)

    columns = ["round", "client", "cluster", "x", "y"]
    points = pd.DataFrame(points, columns=columns)
    return {"tables": {"points": points, "separation": pd.DataFrame(rows)}}


def plane(inner: np.ndarray) -> tuple[np.ndarray, float]:
    """Return two principal components (M, 2) of centred models, and their share.

    ``inner``: inner products (M, M). The client farthest out on an axis is on its
    positive side.
    """
    pca = KernelPCA(2, kernel="precomputed", eigen_solver="dense")
    points = pca.fit_transform(inner)
    total = np.trace(inner)
    if total <= 0:
        return points, float("nan")
    return points, float(pca.eigenvalues_.sum() / total)


def silhouette(distances: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean silhouette of clusters, given all distances (M, M).

    1: far apart, 0: touching; NaN for one cluster or for M of them.
    """
    if not 2 <= len(np.unique(labels)) < len(labels):
        return float("nan")
    return float(silhouette_score(distances, labels, metric="precomputed"))


def inside(inner: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean squared distance of models to the mean of their cluster.

    ``inner``: inner products (M, M) of the models.
    """
    same = labels[:, None] == labels
    of_means = (inner * same / same.sum(axis=1)).sum()
    return float(np.trace(inner) - of_means) / len(labels)


def choosing_k(
    federation: Settings,
    method: Settings,
    tried: Sequence[int],
    sample: Mapping[str, int],
    **training: Any,
) -> Study:
    """Rank numbers of centres by short runs of a few clients (Section 5.2).

    ``sample``: ``draws`` of so many ``clients`` at random, each trained for so many
    ``rounds`` with every K of ``tried``.

    Returns a dict: table ``short``: ``draw, K, accuracy`` (micro, percent), and
    :func:`inside` after the last round.
    """
    fed = federations.build(federation)
    end = sample["rounds"]
    training = training | {"rounds": end}
    rows = []
    for draw in range(sample["draws"]):
        rng = stream(training["seed"], "method", *SECTION_52, draw)
        chosen = rng.choice(fed.n_clients, size=sample["clients"], replace=False)
        few = some_clients(fed, np.sort(chosen))
        for k in tried:
            settings = method | {"n_clusters": k}
            kept, done = watch(settings, few, (end,), **training)
            test = done.history[done.history["split"] == "test"]
            accuracy = float(test["micro"].iloc[-1])
            rows.append((draw, k, accuracy, inside(*kept[end])))

    short = pd.DataFrame(rows, columns=["draw", "K", "accuracy", "inside"])
    return {"tables": {"short": short}}


def some_clients(fed: Federation, chosen: Sequence[int]) -> Federation:
    """Return the federation of some clients alone."""
    parts = {}
    for split in ("train", "val", "test"):
        every = getattr(fed, split)
        parts[split] = [every[i] for i in chosen]
    clusters = None if fed.clusters is None else fed.clusters[np.asarray(chosen)]
    settings = fed.settings | {"clients": [int(i) for i in chosen]}
    return replace(fed, **parts, probe=None, clusters=clusters, settings=settings)


def centers(federation: Settings, method: Settings, **training: Any) -> Study:
    """Train FeSEM as its code does, and test every centre on everybody.

    The code reports the best of these.

    Returns a dict: numbers, micro accuracy in percent: ``own`` (each client under its
    own centre); ``lowest``, ``highest`` (one centre for all).
    """
    fed = federations.build(federation)
    # the report changes what is tested, not what is trained
    made = methods.build(method | {"report": "own"})
    done = rounds.run(made, fed, **training, progress=False)
    net = models.make(training["model"], fed.input_shape, fed.n_classes)

    def micro(rows: np.ndarray) -> float:
        counts = rounds.confusion(net, done.theta, rows, fed)
        right = np.trace(counts, axis1=1, axis2=2)
        return float(metrics.micro_accuracy(right, counts.sum(axis=(1, 2))))

    every = [micro(np.full(fed.n_clients, k)) for k in range(len(done.theta))]
    numbers = {"own": micro(done.rows), "lowest": min(every), "highest": max(every)}
    return {"numbers": numbers}
