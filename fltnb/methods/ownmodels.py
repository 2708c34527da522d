"""Clients that train once, each alone from a common start, and how far apart that puts them.

That is the first round of EMD-CFL (arXiv 2506.07769, Algorithm 1), which compares samples under *their own* networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform

from ..clustering import PACFL, EMDClustering
from ..clustering.cuts import cut, relabel
from ..clustering.emd import farther
from ..errors import FltnbError
from ..federations import Federation
from ..metrics import adjusted_rand_index
from .emdcfl import penultimate
from .flt import client_images
from .modelspace import coordinates, cosines
from .samples import check_validation

if TYPE_CHECKING:
    from ..models import Model


def local_models(
    fed: Federation,
    model: str,
    training: dict[str, Any],
    seed: int = 0,
    n_workers: int | None = None,
) -> tuple[Model, np.ndarray, np.ndarray]:
    """Train every client alone, once; return the network, the common start (P,) and trained models (M, P), float32.

    ``training`` is for :class:`fltnb.training.TrainSpec`, without the seed; ``n_workers`` changes nothing. Divergence
    raises :class:`fltnb.FltnbError`.
    """
    from .. import models
    from ..training import TrainSpec, make_engine

    net = models.make(model, fed.input_shape, fed.n_classes)
    start, everybody = net.init(seed), np.arange(fed.n_clients)
    with make_engine(
        fed, net, TrainSpec(**training, seed=seed), n_workers=n_workers
    ) as engine:
        trained = engine.train(start[None], np.zeros_like(everybody), everybody, 1)
    lost = ~np.isfinite(trained.loss) | ~np.isfinite(trained.theta).all(axis=1)
    if lost.any():
        raise FltnbError(
            f"The first training of client {int(lost.argmax())} diverged: choose a smaller lr."
        )
    return net, start, trained.theta


@dataclass(frozen=True)
class OwnModels:
    """Encoder of kind ``own``: networks that clients have trained alone (:func:`local_models`), EMD-CFL's settings."""

    model: str = "mlp_plain"
    local_epochs: int = 10
    batch_size: int = 64
    lr: float = 0.01
    momentum: float = 0.9
    seed: int = 0

    def embed(
        self, fed: Federation
    ) -> tuple[list[np.ndarray], Callable[[int], list[np.ndarray]]]:
        """Train, and return what :meth:`fltnb.EMDClustering.fit` takes; FltnbError: no validation samples, divergence.

        That is training samples (n_i, d) under everybody's own network, and a function from i to validation samples.
        """
        check_validation(fed, "EMD-CFL")
        training = asdict(self)
        net, _, theta = local_models(
            fed, training.pop("model"), training, training.pop("seed"), n_workers=1
        )
        return embedded(fed, net, theta)


def embedded(
    fed: Federation, net: Model, theta: np.ndarray
) -> tuple[list[np.ndarray], Callable]:
    """Return what :meth:`OwnModels.embed` returns, of clients with models ``theta`` (M, P)."""
    held = np.concatenate([fed.client(j, "val")[0] for j in range(fed.n_clients)])
    ends = np.cumsum([len(own) for own in fed.val])[:-1]
    train = [penultimate(net, own, fed.client(i)[0]) for i, own in enumerate(theta)]
    return train, lambda i: np.split(penultimate(net, theta[i], held), ends)


def measure(
    fed: Federation,
    net: Model,
    start: np.ndarray,
    theta: np.ndarray,
    how: dict,
    seed: int = 0,
    n_jobs: int = 1,
    seen: tuple | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances (M, M) between clients, and EMD-CFL's references (M,), NaN for other distances.

    Parameters
    ----------
    fed, net, start, theta : the clients, and what :func:`local_models` gave
    how : dict
        ``{"name": "EMDClustering", ...}`` with its options (row i under the network of client i, so not symmetric);
        "parameters": Euclidean, all trained parameters; "last layer": the same for weights and biases of the last
        layer; "updates": 1 - cosine of what training changed, as CFL compares gradients (from a common start their
        Euclidean distance is that of the parameters); "angles": PACFL's, degrees.
    seed, n_jobs : int, of EMD-CFL's projection; processes (no influence on the result)
    seen : tuple, optional, what :func:`embedded` gave: several measures of EMD-CFL need it once
    """
    name, nothing = how["name"], np.full(len(theta), np.nan)
    if name == "EMDClustering":
        options = {key: value for key, value in how.items() if key != "name"}
        clusterer = EMDClustering(**options, random_state=seed, n_jobs=n_jobs)
        clusterer.fit(*(seen or embedded(fed, net, theta)))
        return clusterer.distance_, clusterer.reference_
    if name == "angles":
        return PACFL().fit(*client_images(fed)).distance_, nothing
    kept = net.head if name == "last layer" else slice(0, net.n_trainable)
    if name == "updates":
        return 1 - cosines(theta[:, kept] - start[kept], np.arange(len(theta))), nothing
    return squareform(pdist(coordinates(theta[:, kept], start[kept]))), nothing


def labels_at(
    distance: np.ndarray, reference: np.ndarray, tolerance: float | str
) -> tuple[np.ndarray, float]:
    """EMD-CFL's clusters (M,) at a tolerance, from what :func:`measure` gave, and the tolerance used."""
    _, labels, used = EMDClustering(tolerance=tolerance).connect(distance, reference)
    return labels, used


def plateau(far: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Widest range of tolerances, by their ratio, at which the clusters are exactly the true ones.

    ``far`` (M, M) are symmetric distances. All pairs inside a cluster must be below the tolerance, those of any two
    clusters either all below or all not, and no two clusters may then have the same neighbours. The tolerance must be
    above the first number returned and at most the second (infinite: no end). Where there is none: the largest distance
    inside and the smallest across, not above it.

    Examples
    --------
    >>> plateau(np.array([[0, 0.1, 0.5], [0.1, 0, 0.4], [0.5, 0.4, 0]]), np.array([0, 0, 1]))
    (0.1, 0.4)
    """
    found: list[tuple[float, float]] = []
    for low, high in pairwise(np.unique([0.0, *squareform(far, checks=False), np.inf])):
        _, alike = np.unique(
            far <= low, axis=0, return_inverse=True
        )  # clients with the same neighbours
        if np.array_equal(relabel(alike.reshape(-1)), relabel(clusters)):
            joined = found and found[-1][1] == low
            found.append((found.pop()[0] if joined else float(low), float(high)))
    if not found:
        same = clusters[:, None] == clusters
        return float((far * same).max()), float(far[~same].min(initial=np.inf))
    return max(found, key=lambda ends: ends[1] / max(ends[0], 1e-12))


def pair_numbers(
    distance: np.ndarray, reference: np.ndarray, clusters: np.ndarray
) -> dict[str, float]:
    """Numbers of what :func:`measure` gave: how far the true clusters (M,) can be seen in the distances.

    Returns a dict: ``inside, inside_max, across, across_min``, mean and extremes over pairs inside and across the true
    clusters, of the larger direction (what does not exist is left out); ``low, high`` (:func:`plateau`); ``ari_told``:
    of average linkage told the number of clusters. Of EMD-CFL's also ``reference_mean``; ``ari`` at the paper's
    tolerance 0.025; ``auto`` and ``ari_auto``: the tolerance taken from the data, and its ARI.
    """
    far = farther(distance)
    same = clusters[:, None] == clusters
    numbers = {}
    for name, which, extreme in (
        ("inside", same & ~np.eye(len(far), dtype=bool), "max"),
        ("across", ~same, "min"),
    ):
        if which.any():
            numbers |= {
                name: float(far[which].mean()),
                f"{name}_{extreme}": float(getattr(far[which], extreme)()),
            }
    numbers["low"], numbers["high"] = plateau(far, clusters)
    told = cut(
        linkage(squareform(far, checks=False), "average"), len(np.unique(clusters))
    )
    numbers["ari_told"] = float(adjusted_rand_index(clusters, told))
    if np.isfinite(reference).any():
        numbers["reference_mean"] = float(reference.mean())
        numbers["ari"] = float(
            adjusted_rand_index(clusters, labels_at(distance, reference, 0.025)[0])
        )
        labels, numbers["auto"] = labels_at(distance, reference, "auto")
        numbers["ari_auto"] = float(adjusted_rand_index(clusters, labels))
    return numbers


TOLERANCES = np.union1d(np.geomspace(0.001, 1.0, 46), [0.025])


def ari_at(
    distance: np.ndarray, reference: np.ndarray, clusters: np.ndarray
) -> np.ndarray:
    """ARI of EMD-CFL's clusters with the true ones at each of :data:`TOLERANCES`, float32."""
    found = [
        adjusted_rand_index(clusters, labels_at(distance, reference, float(one))[0])
        for one in TOLERANCES
    ]
    return np.array(found, dtype=np.float32)
