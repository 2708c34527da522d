"""Dirichlet label skew: every client its own mixture of classes."""

from __future__ import annotations

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Positive
from .base import Federation
from .kinds import kind
from .shares import apportion, in_turn, members, training_index


@kind
def dirichlet(
    images: ImageSet,
    /,
    n_clients: Count,
    alpha: Positive,
    seed: Natural = 0,
    min_samples: Count = 10,
    n_clusters: Count | None = None,
    max_train: Count | None = None,
) -> Federation:
    r"""Divide an image set with Dirichlet label skew.

    For each class, shares :math:`p \sim \mathrm{Dir}(\alpha, \dots, \alpha)` over the clients are drawn and its images
    dealt out accordingly, every training and every test image to exactly one client; numbers of samples then differ
    between clients too. With ``n_clusters`` the shares are drawn over clusters and divided evenly within each, so
    that clients of a cluster have the same mixture and the true clusters are known. Test images follow
    the shares of the training images of their class.

    A client short of ``min_samples`` training images gets the missing ones from the largest client, of that one's
    most frequent class; a client without test image gets one of the class that it trains on most, where there is any.

    Yurochkin et al. (Bayesian Nonparametric Federated Learning of Neural Networks, ICML 2019, experiments) draw shares
    over clients in this way, class by class.

    Parameters
    ----------
    alpha : float
        Concentration, above 0: small is strong skew, large approaches equal mixtures.
    min_samples : int
        Least number of training images of a client.
    n_clusters : int, optional
        C, number of different mixtures. Default: every client its own, true clusters unknown.
    max_train : int, optional
        Use only this many training images, balanced over the classes.
    """
    clusters = in_turn(n_clients, n_clusters or n_clients)
    index = training_index(images, max_train, seed)
    if n_clients * min_samples > len(index) or n_clients > len(images.test_index):
        raise FltnbError(
            f"There are more clients than samples: {n_clients} clients with at least {min_samples} training and 1 test"
            f" image each cannot be served from {len(index)} training and {len(images.test_index)} test images."
        )
    by_class = {"train": members(images, index), "test": members(images, images.test_index)}
    counts = _train_counts([len(held) for held in by_class["train"]], clusters, float(alpha), seed)
    _raise_to(counts, min_samples)
    counts = {"train": counts, "test": _test_counts([len(held) for held in by_class["test"]], counts)}
    parts = {split: [[] for _ in clusters] for split in counts}
    for c in range(images.n_classes):
        rng = stream(seed, "partition", 1 + c)
        for split, number in counts.items():
            cuts = np.cumsum(number[:, c])[:-1]
            for i, piece in enumerate(np.split(rng.permutation(by_class[split][c]), cuts)):
                parts[split][i].append(piece)
    held = {split: [np.concatenate(pieces) for pieces in every] for split, every in parts.items()}
    return Federation.of(images, clusters=None if n_clusters is None else clusters, **held)


def _train_counts(totals: list[int], groups: np.ndarray, alpha: float, seed: int) -> np.ndarray:
    """Return training images per client and class, int64 (M, K)."""
    rng = stream(seed, "partition")
    members = np.bincount(groups)
    columns = []
    for n in totals:
        shares = rng.dirichlet(np.full(len(members), alpha))
        columns.append(apportion(n, (shares / members)[groups]))
    return np.stack(columns, axis=1)


def _raise_to(counts: np.ndarray, least: int) -> None:
    """Move samples, in place, from the largest clients to those with fewer than ``least``."""
    sizes = counts.sum(axis=1)
    while sizes.min() < least:
        poor, rich = sizes.argmin(), sizes.argmax()
        c = counts[rich].argmax()
        n = min(least - sizes[poor], sizes[rich] - least, counts[rich, c])
        counts[rich, c] -= n
        counts[poor, c] += n
        sizes[rich] -= n
        sizes[poor] += n


def _test_counts(totals: list[int], train: np.ndarray) -> np.ndarray:
    """Return test images per client and class, int64 (M, K), in proportion to the training images of each class."""
    weights = np.where(train.sum(axis=0) > 0, train, 1)  # a class nobody trains on is spread evenly
    counts = np.stack([apportion(n, weights[:, c]) for c, n in enumerate(totals)], axis=1)
    for poor in np.flatnonzero(counts.sum(axis=1) == 0):
        spare = counts * (counts.sum(axis=1) > 1)[:, None]
        usable = np.flatnonzero(spare.sum(axis=0))
        c = usable[train[poor, usable].argmax()]
        counts[spare[:, c].argmax(), c] -= 1
        counts[poor, c] += 1
    return counts
