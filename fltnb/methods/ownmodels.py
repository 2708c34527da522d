"""Clients that train once alone from a common start, and their distances.

This is the first round of EMD-CFL (arXiv 2506.07769, Algorithm 1), which compares
samples by the clients' *own* networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform

from ..clustering import PACFL, EMDClustering
from ..clustering.cuts import cut, relabel
from ..clustering.emd import farther
from ..errors import FltnbError, choose
from ..federations import Federation
from ..metrics import adjusted_rand_index
from ..settings import brief
from .flt import client_images
from .modelspace import coordinates, cosines
from .newcomers import finite
from .samples import SLICE, check_validation

if TYPE_CHECKING:
    from ..models import Model


def local_models(
    fed: Federation,
    model: str,
    training: Mapping[str, Any],
    seed: int = 0,
    n_workers: int | None = None,
    device: str = "auto",
) -> tuple[Model, np.ndarray, np.ndarray]:
    """Train every client alone, once.

    Parameters
    ----------
    training : mapping
        Options of :class:`fltnb.training.TrainSpec` besides the seed.
    n_workers, device
        As for :func:`fltnb.training.make_engine`; they only change rounding.

    Returns
    -------
    (Model, array (P,), array (M, P))
        The network, the common start and the trained models, float32.

    Raises
    ------
    FltnbError
        A client's training diverged.
    """
    from .. import models
    from ..training import TrainSpec, make_engine

    net = models.make(model, fed.input_shape, fed.n_classes)
    spec = TrainSpec(**training, seed=seed)
    start = net.init(seed)
    clients = np.arange(fed.n_clients)
    rows = np.zeros_like(clients)
    with make_engine(fed, net, spec, device=device, n_workers=n_workers) as engine:
        trained = engine.train(start[None], rows, clients, 1)

    lost = ~finite(trained)
    if lost.any():
        raise FltnbError(
            f"The first training of client {int(lost.argmax())} diverged: "
            "choose a smaller lr."
        )
    return net, start, trained.theta


@dataclass(frozen=True)
class OwnModels:
    """Encoder: every client's own network after one local round (EMD-CFL).

    It can replace a :class:`fltnb.encoders.EncoderSpec`, but only for
    :class:`fltnb.clustering.EMDClustering`, because each client's embeddings have
    different axes. The options are those of the training whose first round this is; the
    defaults are not those of :func:`fltnb.rounds.run`.

    Parameters
    ----------
    model : str
        Name of the network, for :func:`fltnb.models.make`.
    local_epochs, batch_size, lr, momentum, weight_decay, precision
        As in :class:`fltnb.training.TrainSpec`.
    seed : int
        Seed of the common initial model, the sample orders and the dropout masks.

    Examples
    --------
    >>> import fltnb as fl
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(fl.load("digits"), base)
    >>> own = fl.OwnModels(model="mlp32", local_epochs=1)
    >>> x, val = own.embed(fed)
    >>> fl.EMDClustering(tolerance="auto").fit(x, val).labels_.shape
    (6,)
    """

    model: str = "mlp_plain"
    local_epochs: int = 10
    batch_size: int = 64
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    precision: str = "float32"
    seed: int = 0

    def settings(self) -> dict[str, Any]:
        """JSON-able settings, ``kind`` and what differs from a default."""
        return {"kind": "own"} | brief(OwnModels, asdict(self))

    def embed(
        self, fed: Federation, device: str = "auto", n_workers: int | None = None
    ) -> tuple[list[np.ndarray], Callable[[int], list[np.ndarray]]]:
        """Train, and return the arguments of ``EMDClustering.fit``.

        These are every client's training samples (n_i, d) embedded by its own network,
        and a function from i to all clients' validation samples embedded by the network
        of i. ``n_workers`` is as for :func:`fltnb.training.make_engine`. Raises
        FltnbError if there are no validation samples, or a training diverged.
        """
        check_validation(fed, "EMD-CFL")
        training = asdict(self)
        model = training.pop("model")
        seed = training.pop("seed")
        net, _, theta = local_models(fed, model, training, seed, n_workers, device)
        return embedded(fed, net, theta, device)


def embedded(
    fed: Federation, net: Model, theta: np.ndarray, device: str = "auto"
) -> tuple[list[np.ndarray], Callable[[int], list[np.ndarray]]]:
    """Return what :meth:`OwnModels.embed` does, for clients with models ``theta``."""
    train = []
    held = [fed.inputs(index) for index in fed.val]  # all clients' validation samples
    all_held = np.concatenate(held)
    ends = np.cumsum([len(own) for own in fed.val])[:-1]

    def seen(i: int, inputs: np.ndarray) -> np.ndarray:
        return penultimate(net, theta[i], inputs, device)

    for i in range(len(theta)):
        train.append(seen(i, fed.inputs(fed.train[i])))

    def validation(i: int) -> list[np.ndarray]:
        return np.split(seen(i, all_held), ends)

    return train, validation


def penultimate(
    model: Model, theta: np.ndarray, inputs: np.ndarray, device: Any = "auto"
) -> np.ndarray:
    """Return embeddings (n, d) float32 of inputs: the inputs of the last layer.

    Inputs are (n, C, H, W). There is no dropout. The device is a name of torch's;
    "auto" is a GPU if there is one.
    """
    import torch

    from ..training.devices import best_device

    if device == "auto":
        device = best_device()
    parts = model.unflatten(theta.astype(np.float32))
    parameters = [part.to(device) for part in parts]
    out = []
    with torch.inference_mode():
        for x in np.split(inputs, range(SLICE, len(inputs), SLICE)):
            features = model.features(parameters, torch.from_numpy(x).to(device))
            out.append(features.cpu())
        return torch.cat(out).numpy()


DISTANCES = ("parameters", "last layer", "updates", "angles", "EMDClustering")
"""Distances that :func:`measure` knows."""


def measure(
    fed: Federation,
    net: Model,
    start: np.ndarray,
    theta: np.ndarray,
    how: Mapping[str, Any],
    seed: int = 0,
    n_jobs: int = 1,
    seen: tuple | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances (M, M) between clients, and EMD-CFL's references (M,).

    For other distances the references are NaN.

    Parameters
    ----------
    fed, net, start, theta
        The clients, and the results of :func:`local_models`.
    how : mapping
        ``name`` and, of "EMDClustering", its options (row i is under the network of
        client i, so the matrix is not symmetric). Other names have no options.
        "parameters": Euclidean, all trained parameters. "last layer": the same for
        weights and biases of the last layer. "updates": 1 - cosine of the updates, as
        CFL compares gradients (from a common start their Euclidean distance is that of
        the parameters). "angles": PACFL's, in degrees.
    seed, n_jobs : int
        Seed of EMD-CFL's projection; processes (without effect on the result).
    seen : tuple, optional
        The result of :func:`embedded`, to share it between several measures.

    Raises FltnbError for another name.
    """
    name = choose(how["name"], DISTANCES, "distance")
    if name == "EMDClustering":
        options = dict(how)
        options.pop("name")
        clusterer = EMDClustering(**options, random_state=seed, n_jobs=n_jobs)
        if seen is None:
            seen = embedded(fed, net, theta)
        train, validation = seen
        clusterer.fit(train, validation)
        return clusterer.distance_, clusterer.reference_

    n_clients = len(theta)
    columns = slice(0, net.n_trainable)
    if name == "last layer":
        columns = net.head
    kept = theta[:, columns]
    origin = start[columns]
    if name == "angles":
        distance = PACFL().fit(*client_images(fed)).distance_
    elif name == "updates":
        distance = 1 - cosines(kept - origin, np.arange(n_clients))
    else:
        points = coordinates(kept, origin)
        distance = squareform(pdist(points))
    return distance, np.full(n_clients, np.nan)


def labels_at(
    distance: np.ndarray, reference: np.ndarray, tolerance: float | str
) -> tuple[np.ndarray, float]:
    """EMD-CFL's clusters (M,) at a tolerance, and the tolerance used.

    They are computed from the result of :func:`measure`.
    """
    _, labels, used = EMDClustering(tolerance=tolerance).connect(distance, reference)
    return labels, used


def plateau(far: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Return the widest range of tolerances, by ratio, with the true clusters.

    ``far`` (M, M) are symmetric distances. All pairs inside a cluster must be below the
    tolerance, the pairs of any two clusters must be all below it or all not, and no two
    clusters may then have the same neighbours. The tolerance must be above the first
    returned number and at most the second (infinite: no upper limit). If there is no
    such range, the largest distance inside and the smallest across are returned; the
    second is then not above the first.

    Examples
    --------
    >>> far = np.array([[0, 0.1, 0.5], [0.1, 0, 0.4], [0.5, 0.4, 0]])
    >>> plateau(far, np.array([0, 0, 1]))
    (0.1, 0.4)
    """
    true = relabel(clusters)
    found: list[tuple[float, float]] = []
    tried = np.unique([0.0, *squareform(far, checks=False), np.inf])
    for low, high in pairwise(tried):
        # clients with the same neighbours are one cluster
        _, alike = np.unique(far <= low, axis=0, return_inverse=True)
        if np.array_equal(relabel(alike.reshape(-1)), true):
            begin = float(low)
            if found and found[-1][1] == low:
                begin, _ = found.pop()
            found.append((begin, float(high)))
    if not found:
        same = clusters[:, None] == clusters
        inside = (far * same).max()
        across = far[~same].min(initial=np.inf)
        return float(inside), float(across)
    return max(found, key=lambda ends: ends[1] / max(ends[0], 1e-12))


def pair_numbers(
    distance: np.ndarray, reference: np.ndarray, clusters: np.ndarray
) -> dict[str, float]:
    """Return how well the result of :func:`measure` shows the true clusters (M,).

    Returns
    -------
    dict
        ``inside, inside_max, across, across_min``: mean and extremes over pairs inside
        and across the true clusters, of the larger direction (left out if there are no
        such pairs); ``low, high`` (:func:`plateau`); ``ari_told``: of average linkage
        with the number of clusters given. For EMD-CFL also ``reference_mean``; ``ari``
        at the paper's tolerance 0.025; ``auto`` and ``ari_auto``: the tolerance that is
        derived from the data, and its ARI.
    """
    far = farther(distance)
    same = clusters[:, None] == clusters
    inside = far[same & ~np.eye(len(far), dtype=bool)]
    across = far[~same]
    numbers = {}
    if len(inside):
        numbers["inside"] = float(inside.mean())
        numbers["inside_max"] = float(inside.max())
    if len(across):
        numbers["across"] = float(across.mean())
        numbers["across_min"] = float(across.min())
    numbers["low"], numbers["high"] = plateau(far, clusters)

    tree = linkage(squareform(far, checks=False), "average")
    told = cut(tree, len(np.unique(clusters)))
    numbers["ari_told"] = float(adjusted_rand_index(clusters, told))
    if np.isfinite(reference).any():
        numbers["reference_mean"] = float(reference.mean())
        labels, _ = labels_at(distance, reference, 0.025)
        numbers["ari"] = float(adjusted_rand_index(clusters, labels))
        labels, numbers["auto"] = labels_at(distance, reference, "auto")
        numbers["ari_auto"] = float(adjusted_rand_index(clusters, labels))
    return numbers


TOLERANCES = np.union1d(np.geomspace(0.001, 1.0, 46), [0.025])


def ari_at(
    distance: np.ndarray, reference: np.ndarray, clusters: np.ndarray
) -> np.ndarray:
    """ARI of EMD-CFL's clusters with the true ones at each of :data:`TOLERANCES`."""
    found = []
    for tolerance in TOLERANCES:
        labels, _ = labels_at(distance, reference, float(tolerance))
        found.append(adjusted_rand_index(clusters, labels))
    return np.array(found, dtype=np.float32)
