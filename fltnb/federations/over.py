"""Federations that modify another one, the base.

They are EMD-CFL's validation samples, FeSEM's division and IID shuffle, and ImageNet
features. ``base`` has the ``kind`` and the options of the base federation, without
``dataset``; its own ``seed`` determines the partition. FltnbError is raised also if the
base is refused.
"""

from collections.abc import Sequence
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
    """Hold back a share of every client's training samples for validation.

    At least one sample of every client is held back. They are drawn from all its
    samples, not class by class. Raises FltnbError if the base has validation samples or
    changes, or a client keeps no training samples.

    Parameters
    ----------
    base : dict
        Settings of the federation whose clients these are: its kind and options.
    val_fraction : float
        The share; 0.1 in EMD-CFL (arXiv 2506.07769, Section 4.1).

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> base = {"kind": "label_clusters", "n_clients": 6}
    >>> base |= {"n_clusters": 3, "classes_per_cluster": 3}
    >>> fed = fl.federations.held_out(digits, base)
    >>> fed.n_clients
    6
    """
    fed = made(images, base)
    if type(fed) is not Federation or any(len(own) for own in fed.val):
        raise FltnbError(
            f"A {base['kind']} federation has validation samples, or changes: take "
            "it without held_out."
        )
    train = []
    val = []
    for client, own in enumerate(fed.train):
        n_held = max(1, round(val_fraction * len(own)))
        if n_held == len(own):
            raise FltnbError(
                f"Client {client} would keep none of {n_held} training samples: lower "
                "val_fraction."
            )
        order = stream(seed, "partition", 6, client).permutation(len(own))
        held = own[np.sort(order[:n_held])]
        val.append(held)
        # Not by position: a client may hold a sample twice.
        train.append(own[~np.isin(own, held)])
    return replace(fed, train=train, val=val)


@kind
def divided(
    images: ImageSet, /, base: Base, train_fraction: Rate = 0.8, seed: Natural = 0
) -> Federation:
    """Divide every client's samples again into training and test part.

    No client gets or loses samples; a sample that a client held several times is held
    once. True clusters stay. Samples are drawn at random for each client, not class by
    class, with at least one on each side. Raises FltnbError if the base changes, has
    validation samples or a second test set, or its clients have samples in common, such
    as a common test set; or a client has a single sample.

    Parameters
    ----------
    base : dict
        As for :func:`held_out`.
    train_fraction : float
        Share of a client's samples for training: 0.8 in FeSEM (arXiv 2108.08647,
        Section 6.1), 0.9 in LEAF's files and FLT.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> base = {"kind": "dirichlet", "n_clients": 6, "alpha": 0.5}
    >>> fed = fl.federations.divided(digits, base)
    >>> fed.n_clients
    6
    """
    fed = made(images, base)
    train = []
    test = []
    for client, own in enumerate(_own_samples(fed, base["kind"])):
        if len(own) < 2:
            raise FltnbError(
                f"Client {client} has a single sample: leave such clients out, or take "
                "more samples."
            )
        order = stream(seed, "partition", 8, client).permutation(own)
        # one at least for training, and one for testing
        n_train = max(round(train_fraction * len(own)), 1)
        n_train = min(n_train, len(own) - 1)
        train.append(np.sort(order[:n_train]))
        test.append(np.sort(order[n_train:]))
    return replace(fed, train=train, test=test)


@kind
def shuffled(images: ImageSet, /, base: Base, seed: Natural = 0) -> Federation:
    """Distribute all samples of a federation at random: FeSEM's ideal IID partition.

    FeSEM, arXiv 2108.08647, Section 6.1. Every client keeps its numbers of training and
    of test samples. Training samples only go to training parts, test samples only to
    test parts, so that no test sample is trained on. There are no true clusters any
    more. With :func:`divided` as its base, this does both steps of FeSEM. Errors are
    those of :func:`divided`. Images of pseudo-writers keep the style in which they were
    drawn.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> base = {"kind": "dirichlet", "n_clients": 6, "alpha": 0.5}
    >>> fed = fl.federations.shuffled(digits, base)
    >>> fed.n_clients
    6
    """
    fed = made(images, base)
    _own_samples(fed, base["kind"])

    def dealt(held: Sequence[np.ndarray], key: int) -> list[np.ndarray]:
        order = stream(seed, "partition", 9, key).permutation(np.concatenate(held))
        cuts = np.cumsum([len(own) for own in held])[:-1]
        return [np.sort(own) for own in np.split(order, cuts)]

    train = dealt(fed.train, 0)
    test = dealt(fed.test, 1)
    return replace(fed, train=train, test=test, clusters=None)


@kind
def seen(images: ImageSet, /, base: Base) -> Federation:
    """Replace colour images by features that an ImageNet network computes from them.

    These are the 1,280 features of :func:`fltnb.data.features.eight_bits`, of the
    images as clients have them, rotated or with a patch; all else stays. They are a
    stand-in for a network that starts from ImageNet's weights (EMD-CFL, arXiv
    2506.07769, Section 4.5). They are kept in the store, because computing them takes
    minutes. Raises FltnbError if the images are grey, the base changes, or the extra
    ``pretrained`` is not installed.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> base = {"kind": "dirichlet", "n_clients": 5, "alpha": 0.5}
    >>> try:
    ...     fl.federations.seen(digits, base=base)
    ... except fl.FltnbError as error:
    ...     print(error)
    An ImageNet network needs colours, and digits has grey images: take CIFAR-10.
    """
    fed = made(images, base)
    if type(fed) is not Federation:
        raise FltnbError(
            f"The images of a {base['kind']} federation change: take seen as its base."
        )
    if fed.images.ndim != 4:
        raise FltnbError(
            f"An ImageNet network needs colours, and {images.name} has grey images: "
            "take CIFAR-10."
        )
    path = paths.store() / "features" / f"{array_digest(fed.images)}.npy"
    if not path.exists():
        from ..data.features import eight_bits  # imports torch

        features = eight_bits(fed.images, fed.name)
        paths.write_atomically(path, lambda file: np.save(file, features))
    return replace(
        fed,
        images=np.load(path),
        mean=0.0,
        std=1.0,
        name=f"ImageNet features of {fed.name}",
        origin=f"{fed.origin}, seen by EfficientNet-Lite0 with ImageNet weights",
    )


def _own_samples(fed: Federation, kind: str) -> list[np.ndarray]:
    """Return all samples of every client, training and test, each sample once.

    Raises FltnbError if the federation cannot be divided again, see :func:`divided`.
    """
    if type(fed) is not Federation:
        raise FltnbError(
            f"A {kind} federation cannot be divided again, because it changes: divide "
            "its base again, and add the events to that."
        )
    if fed.probed or any(len(own) for own in fed.val):
        raise FltnbError(
            "The base has validation samples or a second test set: give it "
            "val_fraction=0, or take another base."
        )
    every = []
    holder = np.full(len(fed.images), -1)
    for client, (train, test) in enumerate(zip(fed.train, fed.test, strict=True)):
        own = np.union1d(train, test)
        common = own[holder[own] >= 0]
        if len(common):
            raise FltnbError(
                f"Clients {holder[common[0]]} and {client} have samples in common, "
                "such as a common test set: take a kind whose clients have their own "
                "samples, such as dirichlet."
            )
        holder[own] = client
        every.append(own)
    return every
