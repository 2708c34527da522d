"""Embed every client's training samples, after fine-tuning on that client if asked."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial

import numpy as np

from ..errors import FltnbError
from ..federations import Federation, to_inputs
from ..randomness import stream
from .pretraining import EncoderSpec, pretrain

HALVED_EVERY = 10  # epochs, by the relay's schedule
STILL = 1e-9  # a smaller learning rate moves no weight of usual size: Adam's steps are about as long, in float32
ROWS_AT_ONCE = 2048  # of an embedding pass; fixed, so that rounding does not depend on a client's neighbours


def embed_clients(
    fed: Federation, spec: EncoderSpec, progress: bool = False, n_jobs: int | None = None
) -> list[np.ndarray]:
    """Embeddings of every client's training samples (FLT, arXiv 2103.15947, Algorithm 2, lines 1-7).

    With ``finetune_epochs`` J > 0 every client starts from the *same* pretrained weights, runs J epochs of Adam on its
    own samples and embeds them with its own tuned encoder. In a "relay", which is what the public code ran, one network
    and one optimiser pass from client to client in random order instead. Everybody takes J epochs in the order of its
    samples and embeds them there and then; the learning rate halves every ten epochs of all clients together, so that
    after a few clients nothing moves any more. An image's embedding never depends on the others in its batch.

    Returns M arrays (n_i, e) float32; e is ``spec.latent``, the number of pixels for kind "pixels", 512 for "resnet18",
    1,280 for "efficientnet".
    Vectors suit the kinds "pca" and "pixels" only. ``n_jobs`` clients are tuned at a time, each in a thread with one
    core; by default, and for values below 1, as many as there are cores. The result does not depend on it. Raises
    FltnbError where the pretraining images have another shape, or a client's fine-tuning diverged (it is named).
    """
    weights = dict(pretrain(spec, progress, fed.input_shape))
    weights.pop("input_shape", None)
    pixels = (to_inputs(fed.images[index]).reshape(len(index), -1) for index in fed.train)
    if spec.kind == "pixels":
        return list(pixels)
    if spec.kind == "pca":
        return [(x - weights["mean"]) @ weights["components"].T for x in pixels]
    import torch
    from joblib import cpu_count

    from ..progress import bar

    # Threads, as torch releases the interpreter lock; the executor's own, because joblib's do not end with the call:
    # after an error they would go on computing, and crash the interpreter at its exit.
    n_jobs = n_jobs if n_jobs and n_jobs > 0 else cpu_count()
    relay = spec.tuning == "relay"
    order = stream(spec.seed, "finetune").permutation(fed.n_clients) if relay else np.arange(fed.n_clients)
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(n_jobs) as pool:
        try:
            own = partial(_client, fed, spec, weights)
            done = _relay(fed, spec, weights, order) if relay else pool.map(own, order.tolist())
            found = list(bar(done, progress, total=fed.n_clients, desc="Embedding clients", unit="client"))
            return [found[turn] for turn in np.argsort(order)]
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C: at most the clients at work are waited for
            torch.set_num_threads(threads)


def _client(fed, spec, weights, i: int) -> np.ndarray:
    import torch

    from . import networks

    torch.set_num_threads(1)  # of this thread: the sums, to the last bit, must not depend on n_jobs
    network = networks.load(spec.kind, fed.input_shape, spec.latent, weights)
    inputs = _inputs(fed, i, network)
    orders = (stream(spec.seed, "finetune", i, epoch).permutation(len(inputs)) for epoch in range(spec.finetune_epochs))
    networks.train(network, inputs, orders, spec.batch_size, networks.adam(network, spec.lr))
    return _embedded(network, inputs, spec, i)


def _relay(fed, spec, weights, order: np.ndarray) -> Iterator[np.ndarray]:
    import torch

    from . import networks

    torch.set_num_threads(1)  # the sums must not depend on the cores; what called this sets it back
    network = networks.load(spec.kind, fed.input_shape, spec.latent, weights)
    optimiser = networks.adam(network, spec.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, HALVED_EVERY, 0.5)
    for i in order.tolist():
        inputs = _inputs(fed, i, network)
        for _ in range(spec.finetune_epochs):
            if schedule.get_last_lr()[0] >= STILL:
                networks.train(network, inputs, [np.arange(len(inputs))], spec.batch_size, optimiser)
                schedule.step()
        yield _embedded(deepcopy(network), inputs, spec, i)


def _inputs(fed, i: int, network):
    import torch

    return torch.from_numpy(to_inputs(fed.images[fed.train[i]], network.mean, network.std))


def _embedded(network, inputs, spec, i: int) -> np.ndarray:
    """Embeddings of client i; with ``batch_norm="image"`` the network cannot be trained afterwards."""
    import torch

    from . import networks

    if spec.batch_norm == "image" and spec.kind == "residual":
        networks.normalise_alone(network)
    with torch.no_grad():
        z = torch.cat([network.encode(part) for part in inputs.split(ROWS_AT_ONCE)]).numpy()
    if not np.isfinite(z).all():
        raise FltnbError(f"Fine-tuning of the encoder diverged on client {i}: lower lr or finetune_epochs of {spec}.")
    return z
