"""Embed every client's training samples, after fine-tuning on that client if asked."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from ..federations import Federation, to_inputs
from ..randomness import stream
from .pretraining import EncoderSpec, pretrain


def embed_clients(
    fed: Federation,
    spec: EncoderSpec,
    progress: bool = False,
    n_jobs: int | None = None,
) -> list[np.ndarray]:
    """Embeddings of every client's training samples (FLT, arXiv 2103.15947, Algorithm 2, lines 1-7).

    With ``finetune_epochs`` J > 0 every client starts from the *same* pretrained weights, runs J epochs of Adam on its
    own samples and embeds them with its own tuned encoder. In a "relay", which is what the public code ran, one network
    and one optimiser pass from client to client in random order instead. Everybody takes J epochs in the order of its
    samples and embeds them there and then; the learning rate halves every ten epochs of all clients together, so that
    after a few clients nothing moves any more. An image's embedding never depends on the others in its batch.

    Returns M arrays (n_i, e) float32; e is ``spec.latent``, the number of pixels for kind "pixels", 512 for "resnet18",
    1,280 for "efficientnet". Vectors suit the kinds "pca" and "pixels" only. ``n_jobs`` clients are tuned at a time,
    each in a thread with one core; by default, and below 1, as many as there are cores. The result does not depend on
    it. FltnbError: the pretraining images have another shape, or a client's fine-tuning diverged (it is named).
    """
    weights = dict(pretrain(spec, progress, fed.input_shape))
    weights.pop("input_shape", None)
    pixels = (
        to_inputs(fed.images[index]).reshape(len(index), -1) for index in fed.train
    )
    if spec.kind == "pixels":
        return list(pixels)
    if spec.kind == "pca":
        return [(x - weights["mean"]) @ weights["components"].T for x in pixels]
    from joblib import cpu_count

    from ..models.base import threads
    from ..progress import bar
    from . import networks

    # Threads, as torch releases the interpreter lock; the executor's own, because joblib's do not end with the call:
    # after an error they would go on computing, and crash the interpreter at its exit.
    n_jobs = n_jobs if n_jobs and n_jobs > 0 else cpu_count()
    relay = spec.tuning == "relay"
    order = (
        stream(spec.seed, "finetune").permutation(fed.n_clients)
        if relay
        else np.arange(fed.n_clients)
    )
    with threads(None), ThreadPoolExecutor(n_jobs) as pool:
        try:
            own = partial(networks.tuned, fed, spec, weights)
            done = (
                networks.relayed(fed, spec, weights, order)
                if relay
                else pool.map(own, order.tolist())
            )
            found = list(
                bar(
                    done,
                    progress,
                    total=fed.n_clients,
                    desc="Embedding clients",
                    unit="client",
                )
            )
            return [found[turn] for turn in np.argsort(order)]
        finally:
            pool.shutdown(
                cancel_futures=True
            )  # after an error or Ctrl-C: at most the clients at work are waited for
