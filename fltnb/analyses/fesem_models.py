"""FeSEM: its clients' handwriting, the models that they send, and how to choose K."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.ndimage import distance_transform_edt
from sklearn.decomposition import KernelPCA
from sklearn.metrics import silhouette_score

from .. import data, federations, methods, metrics, rounds
from ..federations import Federation
from ..federations.phases import some_clients
from ..methods.modelspace import gram
from ..randomness import stream
from .studies import Settings, Study

DRAWS = 200  # random groupings beside a silhouette
# keys of the random streams: notebook 8, then the figure or the section
FIGURE_4 = (8, 4)
SECTION_52 = (8, 52)


def statistics(federation: Settings, shown: int = 0) -> Study:
    """Count samples, clients and classes.

    They are those of the whole image set if its writers are known, else those of the
    federation.

    Parameters
    ----------
    federation : settings
    shown : int
        Images to keep of every client.

    Returns
    -------
    dict
        Table ``printed`` in the form of the papers' tables; arrays ``counts`` (M,
        classes) of training samples and ``images`` (M, shown, H, W), the first training
        images of every client.
    """
    fed = federations.build(federation)
    images = data.load(federation["dataset"])
    if images.writers is None:
        n_samples = sum(map(len, (*fed.train, *fed.test)))
        n_clients = fed.n_clients
    else:
        n_samples = len(images.labels)
        n_clients = len(np.unique(images.writers))

    values = {
        "num_samples": float(n_samples),
        "num_clients": float(n_clients),
        "num_classes": float(fed.n_classes),
    }
    printed = pd.DataFrame({"metric": list(values), "value": list(values.values())})
    arrays = {"counts": fed.label_counts().astype(np.int32)}
    if shown:
        first = [fed.images[index[:shown]] for index in fed.train]
        arrays["images"] = np.stack(first)
    return {"tables": {"printed": printed}, "arrays": arrays}


def hands(federation: Settings, shown: int = 0) -> Study:
    """Measure the handwriting of every client.

    Each image is compared with the federation's images of the same character, so that
    the characters which a client happened to write do not count.

    Parameters
    ----------
    federation : settings
        Of grey images, with bright strokes on black.
    shown : int
        Images to keep of each of the first four clients.

    Returns
    -------
    dict
        Table ``hands``, one row per client: ``client``, and the mean over its training
        images of ``slant`` (degrees, positive to the right), ``stroke`` (width of the
        stroke, pixels) and ``width`` (of the character, as a multiple of its height),
        each minus the mean of that character. Array ``images`` (4, shown, H, W).
    """
    fed = federations.build(federation)
    own = np.concatenate(fed.train)
    client = np.repeat(np.arange(fed.n_clients), fed.sizes)
    images = fed.images[own].reshape(len(own), *fed.input_shape[-2:])
    measures = pd.DataFrame(handwriting(images))
    usual = measures.groupby(fed.labels[own]).transform("mean")
    by_client = (measures - usual).groupby(client).mean()
    table = by_client.rename_axis("client").reset_index()
    study: dict[str, Any] = {"tables": {"hands": table}}
    if shown:
        first = [fed.images[index[:shown]] for index in fed.train[:4]]
        study["arrays"] = {"images": np.stack(first)}
    return study


def handwriting(images: np.ndarray) -> dict[str, np.ndarray]:
    """Return the slant, the width of the stroke and the width of each character.

    Parameters
    ----------
    images : float array (n, H, W)
        Strokes are bright on a background of 0.

    Returns
    -------
    dict
        Arrays (n,). ``slant`` in degrees: the angle of the upright axis, from the
        second moments of the ink. ``stroke`` in pixels: four times the mean distance of
        ink to the nearest empty pixel, less two, which is exact for a straight stroke
        of an even number of pixels. ``width``: the ink's standard deviation across the
        page, as a multiple of the one down it.
    """
    n, height, width = images.shape
    ink = images / images.sum(axis=(1, 2), keepdims=True)
    down = np.arange(height)[:, None]
    across = np.arange(width)
    y = down - (ink * down).sum(axis=(1, 2))[:, None, None]
    x = across - (ink * across).sum(axis=(1, 2))[:, None, None]
    var_y = (ink * y**2).sum(axis=(1, 2))
    var_x = (ink * x**2).sum(axis=(1, 2))
    covariance = (ink * x * y).sum(axis=(1, 2))

    stroke = np.empty(n)
    for i, image in enumerate(images):
        dark = image > 0.5 * image.max()
        stroke[i] = 4 * distance_transform_edt(dark)[dark].mean() - 2
    return {
        # y grows downwards, so a stroke that leans to the right has a negative slope
        "slant": np.degrees(np.arctan(-covariance / var_y)),
        "stroke": stroke,
        "width": np.sqrt(var_x / var_y),
    }


def watch(method: Settings, fed: Federation, shown: Sequence[int], **training: Any):
    """Run FeSEM, and keep what all clients sent in some rounds.

    Parameters
    ----------
    method : settings
    fed : Federation
    shown : sequence of int
        The rounds; all clients must take part in them.
    **training
        Options of :func:`fltnb.run`.

    Returns
    -------
    (dict, Run)
        Round -> inner products (M, M) of the local models minus their mean, float64,
        which give distances and a PCA, and the clusters (M,) of the E-step on these
        models.
    """
    kept = {}

    def keep(round, state, theta, accuracy):
        if round in shown:
            own = theta[:, : int(state.trainable)]
            inner = gram(own, own.mean(axis=0))
            # the mean was rounded to the models' type
            row_means = inner.mean(axis=1)[:, None]
            inner += inner.mean() - inner.mean(axis=0) - row_means
            kept[round] = (inner, np.array(state.labels))

    quiet = training | {"eval_every": training["rounds"], "progress": False}
    done = rounds.run(methods.build(method), fed, **quiet, watch=keep)
    return kept, done


def local_models(
    federation: Settings, method: Settings, shown: Sequence[int], **training: Any
) -> Study:
    """Put clients' models in the plane of a PCA and measure how far clusters are apart.

    A plane of two components may show groups that whole models do not have, and local
    training draws the models of any group together. So silhouettes are of the plane, of
    whole models, and of random groupings of the same models.

    Parameters
    ----------
    federation, method : settings
    shown, **training
        As for :func:`watch`.

    Returns
    -------
    dict
        Table ``points``: ``round, client, cluster, x, y``. Table ``separation``:
        ``round, sizes`` (text), the mean ``silhouette`` of whole models, the mean and
        the highest of 200 random groupings of the same sizes (``chance, highest``), the
        silhouette ``in the plane`` and the share of the variance there (``explained``).
    """
    fed = federations.build(federation)
    kept, _ = watch(method, fed, shown, **training)
    points = []
    rows = []
    for at, (inner, labels) in kept.items():
        flat, explained = plane(inner)
        for client, place in enumerate(flat):
            x, y = (float(f"{value:.4g}") for value in place)
            points.append((at, client, labels[client], x, y))

        far = _distances(inner)
        rng = stream(training["seed"], "method", *FIGURE_4, at)
        drawn = [silhouette(far, rng.permutation(labels)) for _ in range(DRAWS)]
        between = np.linalg.norm(flat[:, None] - flat, axis=2)
        row = {
            "round": at,
            "sizes": _sizes(labels),
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


def _distances(inner: np.ndarray) -> np.ndarray:
    """Return the distances (M, M) of models with these inner products."""
    norms = np.diag(inner)
    squared = norms[:, None] + norms - 2 * inner
    far = np.sqrt(np.maximum(squared, 0))
    np.fill_diagonal(far, 0)
    return far


def _sizes(labels: np.ndarray) -> str:
    """Write how many clients the clusters have, the largest first."""
    _, sizes = np.unique(labels, return_counts=True)
    return ", ".join(map(str, sorted(sizes, reverse=True)))


def plane(inner: np.ndarray) -> tuple[np.ndarray, float]:
    """Return two principal components (M, 2) of centred models, and their share.

    The client farthest out on an axis is on its positive side, because the sign of a
    component is arbitrary and differs between processors.

    Parameters
    ----------
    inner : float array (M, M)
        Inner products of the models.
    """
    pca = KernelPCA(2, kernel="precomputed", eigen_solver="dense")
    points = pca.fit_transform(inner)
    total = np.trace(inner)
    if total <= 0:
        return points, float("nan")
    return points, float(pca.eigenvalues_.sum() / total)


def silhouette(distances: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean silhouette of clusters.

    1: far apart, 0: touching; NaN for one cluster or for M of them.

    Parameters
    ----------
    distances : float array (M, M)
    labels : int array (M,)
    """
    n_clusters = len(np.unique(labels))
    if not 2 <= n_clusters < len(labels):
        return float("nan")
    return float(silhouette_score(distances, labels, metric="precomputed"))


def inside(inner: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean squared distance of models to the mean of their cluster.

    FeSEM's objective, which falls with more centres. It is computed from inner products
    (M, M), as the models themselves may take gigabytes.

    Parameters
    ----------
    inner : float array (M, M)
        Inner products of the models.
    labels : int array (M,)
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

    Parameters
    ----------
    federation, method : settings
    tried : sequence of int
        Values of K.
    sample : dict
        ``draws`` of so many ``clients`` at random, each trained for so many ``rounds``.
    **training
        Options of :func:`fltnb.run`.

    Returns
    -------
    dict
        Table ``short``: ``draw, K, accuracy`` (micro, percent), and :func:`inside`
        after the last round.
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
            row = {
                "draw": draw,
                "K": k,
                "accuracy": float(test["micro"].iloc[-1]),
                "inside": inside(*kept[end]),
            }
            rows.append(row)
    return {"tables": {"short": pd.DataFrame(rows)}}


def centers(federation: Settings, method: Settings, **training: Any) -> Study:
    """Train FeSEM as its code does, and test every centre on all clients.

    The code reports the best of these.

    Parameters
    ----------
    federation, method : settings
    **training
        Options of :func:`fltnb.run`.

    Returns
    -------
    dict
        Numbers, micro accuracy in percent: ``own`` (each client under its own centre);
        ``lowest``, ``highest`` (one centre for all).
    """
    from .. import models

    fed = federations.build(federation)
    # the report changes what is tested, not what is trained
    made = methods.build(method | {"report": "own"})
    done = rounds.run(made, fed, **training, progress=False)
    net = models.make(training["model"], fed.input_shape, fed.n_classes)

    def micro(rows: np.ndarray) -> float:
        counts = rounds.confusion(net, done.theta, rows, fed)
        right = np.trace(counts, axis1=1, axis2=2)
        total = counts.sum(axis=(1, 2))
        return float(metrics.micro_accuracy(right, total))

    n_centres = len(done.theta)
    every = [micro(np.full(fed.n_clients, k)) for k in range(n_centres)]
    numbers = {"own": micro(done.rows), "lowest": min(every), "highest": max(every)}
    return {"numbers": numbers}
