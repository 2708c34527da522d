"""Embed every client's training samples, optionally after fine-tuning on them."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np

from ..errors import FltnbError
from ..federations import Federation, to_inputs
from ..randomness import stream
from .pretraining import EncoderSpec, pretrain
from .weights import Weights, digest_of

Cache = Callable[[dict[str, Any], Callable[[], Weights]], Weights]


def embed_clients(
    fed: Federation,
    spec: EncoderSpec,
    progress: bool = False,
    n_jobs: int | None = None,
    cache: Cache | None = None,
) -> list[np.ndarray]:
    """Embed every client's training samples (FLT, Algorithm 2, lines 1 to 7).

    arXiv 2103.15947. With ``finetune_epochs`` J > 0 every client starts from the *same*
    pretrained weights, runs J epochs of Adam on its own samples and embeds them with
    its own tuned encoder.

    With ``tuning="relay"``, as in the public code, one network and one optimiser pass
    from client to client in random order. Each client trains J epochs in the order of
    its samples and then embeds them. The learning rate halves every ten epochs of all
    clients together, so that after a few clients the network hardly changes. An image's
    embedding never depends on the others in its batch.

    Parameters
    ----------
    fed : Federation
        A federation of images; vectors only work with the kinds "pca" and "pixels".
    spec : EncoderSpec
    progress : bool
        Show a progress bar.
    n_jobs : int, optional
        Clients that are tuned in parallel, each in a thread with one core; by default,
        and below 1, the number of cores. The result does not depend on it.
    cache : callable, optional
        ``cache(key, compute)`` returns a dict of arrays and keeps it between runs, as
        that of :class:`fltnb.methods.base.Context`. Of encoders that are tuned it keeps
        the embeddings: those of every client that tunes alone, as soon as it is ready,
        those of a relay together.

    Returns
    -------
    list of M ndarrays (n_i, e), float32
        e is ``spec.latent``, the number of pixels for kind "pixels", 512 for
        "resnet18", 1,280 for "efficientnet".

    Raises
    ------
    FltnbError
        The pretraining images have another shape, or a client's fine-tuning diverged
        (the client is named).

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> spec = fl.encoders.EncoderSpec(kind="pixels")
    >>> x = fl.encoders.embed_clients(fed, spec)
    >>> len(x), x[0].shape[1]
    (6, 64)
    """
    weights = _pretrained(fed, spec, progress)
    if spec.kind == "pixels":
        return list(_pixels(fed))
    if spec.kind == "pca":
        axes = weights["components"].T
        return [(x - weights["mean"]) @ axes for x in _pixels(fed)]
    if not spec.finetune_epochs:
        cache = None  # it takes seconds
    return _by_networks(fed, spec, weights, progress, n_jobs, cache)


def embed_from_latest(
    fed: Federation,
    spec: EncoderSpec,
    latest: np.ndarray | None = None,
    progress: bool = False,
    n_jobs: int | None = None,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Embed as :func:`embed_clients`, each client by its own latest network.

    This is FLT's fine-tune mode (arXiv 2103.15947, Section 3): "F epochs of SGD from
    their latest state on their most recent dataset", but with Adam as elsewhere.

    Parameters
    ----------
    fed, spec, progress, n_jobs
        As for :func:`embed_clients`; the encoder is one that each client tunes alone.
    latest : array (M, E), optional
        Each client's network after its last tuning; a row of NaN, or no array, means
        the pretrained one.

    Returns
    -------
    embedded : list of M arrays (n_i, e)
    latest : array (M, E), float32
        Their present networks.
    """
    weights = _pretrained(fed, spec, progress)

    from . import networks

    def tuned(client: int) -> tuple[np.ndarray, np.ndarray]:
        own = None
        if latest is not None and not np.isnan(latest[client]).any():
            own = latest[client]
        return networks.tuned_on(fed, spec, weights, client, own)

    embedded = []
    rows = []
    for own, row in _in_threads(tuned, fed.n_clients, progress, n_jobs):
        embedded.append(own)
        rows.append(row)
    return embedded, np.stack(rows)


def _pretrained(
    fed: Federation, spec: EncoderSpec, progress: bool
) -> dict[str, np.ndarray]:
    """Return the weights from which every client's encoder starts."""
    weights = dict(pretrain(spec, progress, fed.input_shape))
    weights.pop("input_shape", None)
    return weights


def _pixels(fed: Federation) -> Iterator[np.ndarray]:
    """Yield each client's pixels as they are, (n_i, d) in [0, 1]."""
    if fed.layout == "tokens":
        raise FltnbError(
            "Tokens are numbers of words, without distances: embed each client's "
            "samples yourself and fit the clusterer on the list of embeddings."
        )
    for index in fed.train:
        yield to_inputs(fed.images[index]).reshape(len(index), -1)


def _by_networks(
    fed: Federation,
    spec: EncoderSpec,
    weights: Weights,
    progress: bool,
    n_jobs: int | None,
    cache: Cache | None,
) -> list[np.ndarray]:
    """Embed clients with a network that they tune, each alone or in turn.

    Returns M arrays (n_i, e), in the order of the clients.
    """
    from . import networks

    key: dict[str, Any] = {}
    if cache is not None:
        key = {"name": "encoders", "encoder": asdict(spec)}
        key |= {"weights": digest_of(weights), "federation": fed.fingerprint()}

    def kept(what: str | int, compute: Callable[[], Weights]) -> Weights:
        return compute() if cache is None else cache(key | {"clients": what}, compute)

    if spec.tuning == "relay":
        made = kept("all", lambda: _in_turn(fed, spec, weights, progress))
        return [made[str(client)] for client in range(fed.n_clients)]

    def alone(client: int) -> np.ndarray:
        def tuned() -> Weights:
            return {"embedded": networks.tuned(fed, spec, weights, client)}

        return kept(client, tuned)["embedded"]

    return _in_threads(alone, fed.n_clients, progress, n_jobs)


def _in_turn(
    fed: Federation, spec: EncoderSpec, weights: Weights, progress: bool
) -> Weights:
    """Return the embeddings (n_i, e) by client while a network passes between them."""
    from ..models.base import threads
    from . import networks

    order = stream(spec.seed, "finetune").permutation(fed.n_clients)
    with threads(None):  # restores the number that the relay changes
        in_turn = networks.relayed(fed, spec, weights, order)
        embedded = list(_shown(in_turn, fed.n_clients, progress))
    return {str(client): own for client, own in zip(order, embedded, strict=True)}


def _in_threads(
    work: Callable[[int], Any], n_clients: int, progress: bool, n_jobs: int | None
) -> list:
    """Return the result of ``work`` for each client.

    It uses threads, because torch releases the interpreter lock. They belong to the
    executor: joblib's threads do not end with the call. After an error they would
    continue computing, and crash the interpreter at its exit.
    """
    from joblib import cpu_count

    from ..models.base import threads

    if n_jobs is None or n_jobs < 1:
        n_jobs = cpu_count()
    with threads(None), ThreadPoolExecutor(n_jobs) as pool:
        try:
            done = pool.map(work, range(n_clients))
            return list(_shown(done, n_clients, progress))
        finally:
            # After an error or Ctrl-C only running clients are waited for.
            pool.shutdown(cancel_futures=True)


def _shown(done: Iterable, n_clients: int, progress: bool) -> Iterable:
    """Return an iterable over clients with a bar."""
    from ..progress import bar

    return bar(done, progress, total=n_clients, desc="Embedding clients", unit="client")
