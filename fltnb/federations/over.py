"""Laid over another federation: EMD-CFL's validation samples, FeSEM's division and IID shuffle, ImageNet features.

``base`` has the ``kind`` and the options of that federation, without ``dataset``; its own ``seed`` decides the
partition, and whatever that refuses raises FltnbError.
"""

from dataclasses import replace

import numpy as np

from .. import paths
from ..data import ImageSet, array_digest
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Natural, Rate
from .base import Federation
from .kinds import Base, kind, made


@kind
def held_out(
    images: ImageSet, /, base: Base, val_fraction: Rate = 0.1, seed: Natural = 0
) -> Federation:
    """Make another federation and hold back a share of every client's training samples for validation.

    EMD-CFL (arXiv 2506.07769, Section 4.1) has a share of 0.1. Samples are drawn among all of a client's, not class by
    class, one at least. FltnbError: the base has validation samples or changes, or a client keeps nothing to train on.
    """
    fed = made(images, base)
    if type(fed) is not Federation or any(len(own) for own in fed.val):
        raise FltnbError(
            f"A {base['kind']} federation has validation samples, or changes: take it as it is."
        )
    train, val = [], []
    for client, own in enumerate(fed.train):
        held = max(1, round(val_fraction * len(own)))
        if held == len(own):
            raise FltnbError(
                f"Client {client} would keep none of {held} training samples: lower val_fraction."
            )
        place = np.sort(
            stream(seed, "partition", 6, client).permutation(len(own))[:held]
        )
        val.append(own[place])
        train.append(own[~np.isin(own, own[place])])  # a sample may be held twice
    return replace(fed, train=train, val=val)


@kind
def divided(
    images: ImageSet, /, base: Base, train_fraction: Rate = 0.8, seed: Natural = 0
) -> Federation:
    """Make another federation and divide every client's samples anew into training and test part.

    FeSEM (arXiv 2108.08647, Section 6.1) has 80 % of each device's samples for training where LEAF's files and FLT have
    90 %. Nobody gets or loses a sample; one that a client held several times is held once. True clusters stay. Samples
    are drawn at random, client by client, not class by class; one at least is on either side. Raises FltnbError for a
    base that changes, that has validation samples or a second test set, or whose clients have samples in common, such
    as one test set for many; or for a client with a single sample.
    """
    fed, held = _held(images, base)
    parts = {"train": [], "test": []}
    for client, own in enumerate(held):
        if len(own) < 2:
            raise FltnbError(
                f"Client {client} has a single sample: leave such clients out, or take more samples."
            )
        order = stream(seed, "partition", 8, client).permutation(own)
        n = min(max(round(train_fraction * len(own)), 1), len(own) - 1)
        parts["train"].append(np.sort(order[:n]))
        parts["test"].append(np.sort(order[n:]))
    return replace(fed, **parts)


@kind
def shuffled(images: ImageSet, /, base: Base, seed: Natural = 0) -> Federation:
    """Make another federation and deal all its samples out at random: FeSEM's ideal IID partition.

    FeSEM, arXiv 2108.08647, Section 6.1. Every client keeps its numbers of training and of test samples. Training
    samples are dealt among training places, test samples among test places, so that nothing that was for testing is
    trained on. There are no true clusters any more. Over :func:`divided` it makes both of FeSEM's steps. Errors are
    those of :func:`divided`; pseudo-writers' images keep the hand they were drawn in.
    """
    fed, _ = _held(images, base)
    parts = {}
    for key, split in enumerate(("train", "test")):
        held = getattr(fed, split)
        dealt = stream(seed, "partition", 9, key).permutation(np.concatenate(held))
        cuts = np.cumsum([len(own) for own in held])[:-1]
        parts[split] = [np.sort(own) for own in np.split(dealt, cuts)]
    return replace(fed, **parts, clusters=None)


@kind
def seen(images: ImageSet, /, base: Base) -> Federation:
    """Make another federation and put :func:`fltnb.data.features.eight_bits` in place of its colour pictures.

    Pictures are seen as clients have them, turned or with a patch; all else stays. They stand in for a network that
    starts from ImageNet's weights (EMD-CFL, arXiv 2506.07769, Section 4.1), and are kept in the store, since they cost
    minutes. FltnbError: the pictures are grey, or the extra ``pretrained`` is not installed.
    """
    fed = made(images, base)
    if fed.images.ndim != 4:
        raise FltnbError(
            f"An ImageNet network sees colour pictures, which {images.name} has not: take CIFAR-10."
        )
    path = paths.store() / "features" / f"{array_digest(fed.images)}.npy"
    if not path.exists():
        from ..data.features import eight_bits  # torch: not for the other kinds

        features = eight_bits(fed.images, fed.name)
        paths.write_atomically(path, lambda file: np.save(file, features))
    name, origin = (
        f"ImageNet features of {fed.name}",
        f"{fed.origin}, seen by EfficientNet-Lite0 with ImageNet weights",
    )
    return replace(
        fed, images=np.load(path), mean=0.0, std=1.0, name=name, origin=origin
    )


def _held(images: ImageSet, base: dict) -> tuple[Federation, list[np.ndarray]]:
    """Return the federation to deal anew, and what every client holds, each sample once, or refuse it."""
    fed = made(images, base)
    if type(fed) is not Federation:
        raise FltnbError(
            f"A {base['kind']} federation cannot be dealt anew: deal anew what it is the change of."
        )
    if fed.probed or any(len(own) for own in fed.val):
        raise FltnbError(
            "The base has validation samples or a second test set: take val_fraction=0 or another one."
        )
    held = [
        np.unique(np.concatenate(parts))
        for parts in zip(fed.train, fed.test, strict=True)
    ]
    holder = np.full(len(fed.images), -1)
    for client, own in enumerate(held):
        if len(common := own[holder[own] >= 0]):
            who = f"Clients {holder[common[0]]} and {client} have samples in common, such as a shared test set"
            raise FltnbError(
                f"{who}: take a kind whose clients hold theirs alone, such as dirichlet."
            )
        holder[own] = client
    return fed, held
