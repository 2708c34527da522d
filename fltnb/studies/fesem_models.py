"""What notebook 08 looks at besides accuracies: FeSEM's clients (Table 1) and the models they send (Figure 4)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.decomposition import KernelPCA
from sklearn.metrics import silhouette_score

from .. import data, federations, methods, metrics, rounds
from ..federations import Federation
from ..methods.modelspace import gram
from ..randomness import stream
from .common import Settings, Study

DRAWS = 200  # random groupings beside a silhouette
# keys of the random streams: notebook 8, then the figure or the section
FIGURE_4, SECTION_52 = (8, 4), (8, 52)


def statistics(federation: Settings, shown: int = 0) -> Study:
    """Count samples, clients and classes: of the whole image set where its people are known, else of the federation.

    Returns a dict: Table ``printed``, as :func:`fltnb.papers.measured` reads it; arrays ``counts`` (M, classes),
    training samples, and ``images`` (M, shown, H, W): the first training images of every client.
    """
    fed, images = federations.build(federation), data.load(federation["dataset"])
    n_samples, n_clients = sum(map(len, (*fed.train, *fed.test))), fed.n_clients
    if images.writers is not None:
        n_samples, n_clients = len(images.labels), len(np.unique(images.writers))
    rows = {
        "num_samples": n_samples,
        "num_clients": n_clients,
        "num_classes": fed.n_classes,
    }
    arrays = {"counts": fed.label_counts().astype(np.int32)}
    if shown:
        arrays["images"] = np.stack([fed.images[index[:shown]] for index in fed.train])
    printed = pd.DataFrame({"metric": list(rows), "value": map(float, rows.values())})
    return {"tables": {"printed": printed}, "arrays": arrays}


def watch(method: Settings, fed: Federation, shown: Sequence[int], **training: Any):
    """Run FeSEM, and keep what everybody sent in the rounds ``shown``: enough for distances and for a PCA.

    Returns ``kept``: round -> inner products (M, M) of the local models less their mean, float64, and the clusters (M,)
    that the E-step then put them in; and the :class:`fltnb.record.Run`. Everybody must take part in these rounds.
    """
    kept = {}

    def keep(round, state, theta, accuracy):
        if round in shown:
            own = theta[:, : int(state.trainable)]
            inner = gram(own, own.mean(axis=0))
            # the mean was rounded to the models' type
            inner += inner.mean() - inner.mean(axis=0) - inner.mean(axis=1)[:, None]
            kept[round] = inner, np.array(state.labels)

    every = {"eval_every": training["rounds"], "progress": False}
    return kept, rounds.run(methods.build(method), fed, **training, **every, watch=keep)


def local_models(
    federation: Settings, method: Settings, shown: Sequence[int], **training: Any
) -> Study:
    """Put every client's model in the plane of a PCA, and measure how far apart the clusters are (Figure 4).

    Returns a dict: Table ``points``: ``round, client, cluster, x, y``; table ``separation``: ``round, sizes`` (text),
    the mean ``silhouette`` of whole models, the mean and the highest of :data:`DRAWS` random groupings of the same
    sizes (``chance, highest``), the silhouette ``in the plane``, and the share of the variance there (``explained``).
    """
    kept, _ = watch(method, federations.build(federation), shown, **training)
    points, rows = [], []
    for r, (inner, labels) in kept.items():
        flat, explained = plane(inner)
        points.append(
            pd.DataFrame(
                {"round": r, "client": np.arange(len(labels)), "cluster": labels}
            )
        )
        points[-1][["x", "y"]] = np.vectorize(lambda value: float(f"{value:.4g}"))(flat)
        far = np.sqrt(
            np.maximum(np.diag(inner)[:, None] + np.diag(inner) - 2 * inner, 0)
        )
        np.fill_diagonal(far, 0)
        rng = stream(training["seed"], "method", *FIGURE_4, r)
        drawn = [silhouette(far, rng.permutation(labels)) for _ in range(DRAWS)]
        sizes = ", ".join(
            map(str, sorted(np.unique(labels, return_counts=True)[1], reverse=True))
        )
        apart = silhouette(np.linalg.norm(flat[:, None] - flat, axis=2), labels)
        rows.append(
            (
                r,
                sizes,
                silhouette(far, labels),
                np.mean(drawn),
                np.max(drawn),
                apart,
                explained,
            )
        )
    names = [
        "round",
        "sizes",
        "silhouette",
        "chance",
        "highest",
        "in the plane",
        "explained",
    ]
    return {
        "tables": {
            "points": pd.concat(points),
            "separation": pd.DataFrame(rows, columns=names),
        }
    }


def plane(inner: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the first two principal components (M, 2) of centred models, given inner products (M, M), and their share.

    Signs are such that the client farthest out on an axis is on its positive side.
    """
    pca = KernelPCA(2, kernel="precomputed", eigen_solver="dense")
    points, total = pca.fit_transform(inner), np.trace(inner)
    return points, float(pca.eigenvalues_.sum() / total) if total > 0 else float("nan")


def silhouette(distances: np.ndarray, labels: np.ndarray) -> float:
    """Mean silhouette of clusters (1: far apart, 0: touching), given all distances (M, M); NaN for one or M of them."""
    if not 2 <= len(np.unique(labels)) < len(labels):
        return float("nan")
    return float(silhouette_score(distances, labels, metric="precomputed"))


def inside(inner: np.ndarray, labels: np.ndarray) -> float:
    """Mean squared distance of models to the mean of their cluster, given their inner products (M, M)."""
    same = labels[:, None] == labels
    return float(np.trace(inner) - (inner * same / same.sum(axis=1)).sum()) / len(
        labels
    )


def choosing_k(
    federation: Settings,
    method: Settings,
    tried: Sequence[int],
    sample: dict[str, int],
    **training: Any,
) -> Study:
    """Section 5.2's way to choose K: a few clients drawn at random, a few rounds, every K.

    Returns a dict: Table ``short``: ``draw, K, accuracy`` (micro, percent), and :func:`inside` after the last round.
    """
    fed, rows, end = federations.build(federation), [], sample["rounds"]
    for draw in range(sample["draws"]):
        rng = stream(training["seed"], "method", *SECTION_52, draw)
        few = some_clients(
            fed,
            np.sort(rng.choice(fed.n_clients, size=sample["clients"], replace=False)),
        )
        for k in tried:
            kept, done = watch(
                method | {"n_clusters": k}, few, (end,), **training | {"rounds": end}
            )
            test = done.history[done.history["split"] == "test"]
            rows.append((draw, k, float(test["micro"].iloc[-1]), inside(*kept[end])))
    return {
        "tables": {
            "short": pd.DataFrame(rows, columns=["draw", "K", "accuracy", "inside"])
        }
    }


def some_clients(fed: Federation, chosen: Sequence[int]) -> Federation:
    """Return the federation of some clients alone."""
    parts = {
        split: [getattr(fed, split)[i] for i in chosen]
        for split in ("train", "val", "test")
    }
    clusters = None if fed.clusters is None else fed.clusters[np.asarray(chosen)]
    settings = fed.settings | {"clients": [int(i) for i in chosen]}
    return replace(fed, **parts, probe=None, clusters=clusters, settings=settings)


def centers(federation: Settings, method: Settings, **training: Any) -> Study:
    """Train FeSEM as run and test every centre on everybody; its report is the best of these.

    Returns a dict: numbers, micro accuracy in percent: ``own`` (each its own); ``lowest``, ``highest`` (one for all).
    """
    from .. import models

    fed = federations.build(federation)
    # the report changes what is tested, not what is trained
    done = rounds.run(
        methods.build(method | {"report": "own"}), fed, **training, progress=False
    )
    net = models.make(training["model"], fed.input_shape, fed.n_classes)
    rows = [done.rows, *(np.full(fed.n_clients, k) for k in range(len(done.theta)))]
    counts = (rounds.confusion(net, done.theta, row, fed) for row in rows)
    own, *every = (
        metrics.micro_accuracy(np.trace(one, axis1=1, axis2=2), one.sum(axis=(1, 2)))
        for one in counts
    )
    return {
        "numbers": {
            "own": float(own),
            "lowest": float(min(every)),
            "highest": float(max(every)),
        }
    }
