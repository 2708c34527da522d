"""Clients that hold different classes.

FLT's scenarios 1, 2 and 4 (arXiv 2103.15947, Section 4.2) and Dirichlet label skew.
"""

from typing import Annotated, Literal

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Positive, Variant, Whole, check
from .base import Federation
from .kinds import kind
from .shares import (
    apportion,
    hand_out,
    in_turn,
    level,
    members,
    of_classes,
    place_in_cluster,
    training_index,
)

PUBLISHED_SEED = 321
"""Seed of the class order behind FLT's printed tables (public code)."""
TRAIN_PER_TEST = 6
"""Training images per test image.

EMNIST Balanced has 2,400 and 400 per class; ``max_per_class`` keeps that ratio.
"""


@kind
def label_clusters(
    images: ImageSet,
    /,
    n_clients: Count,
    n_clusters: Count,
    classes_per_cluster: Count,
    shared_classes: Natural = 0,
    seed: Natural = 0,
    variant: Variant = "as_written",
    samples_per_client: Count | None = None,
    max_train: Count | None = None,
    overlap: bool = False,
) -> Federation:
    """Divide an image set among clusters of clients, each cluster with its own classes.

    Scenarios 1 and 2 of FLT. A random order of the classes is cut into lists of
    ``classes_per_cluster``, one per cluster. With ``shared_classes`` s, every list
    starts with the last s classes of the list before it, and the last list ends with
    the first s classes of the first one (with two clusters the ring is not closed).
    This ring is the public code's; the text says that two clusters can share a class.
    Clients are numbered by cluster; if M is not divisible by C, the first clusters have
    one client more. A client should hold n = floor(N / M) training images, with N the
    images of the classes in use. All clients of a cluster are tested on the same test
    images: all those of the cluster's classes.

    ``variant="as_written"``: the images of a class are shuffled and divided, without
    repetition, over all clients that hold the class, so clusters that share it have
    different images of it. All clients of a cluster hold equally many images of each
    class: n divided over its classes as evenly as possible, but at most floor(images of
    the class / clients that hold it). If classes are too small for n (MNIST), all
    clients of that cluster hold fewer.

    ``variant="as_run"``: the partition of FLT's printed tables, from its public code.
    The class order comes from NumPy's legacy generator with seed 321, for any ``seed``.
    Every client takes floor(n / classes) images of each class: the j-th client of a
    cluster takes the j-th block, in data-set order. When a class is used up, it gets
    the data set's last training image instead, repeatedly (on MNIST an 8: 1,138 of
    60,000 samples in six clients). Blocks start again in every cluster, so clusters
    that share a class hold the same images of it.

    Parameters
    ----------
    n_clients, n_clusters : int
        M and C.
    shared_classes : int
        s, at most half of ``classes_per_cluster``: 0 is scenario 1, 1 (of 3) is
        scenario 2.
    samples_per_client : int, optional
        n, instead of floor(N / M). With ``as_written`` it is refused if the classes are
        too small for it.
    max_train : int, optional
        Use only this number of training images, drawn at random and balanced over the
        classes; by default all.
    overlap : bool
        Every client draws its floor(n / classes) images of each class at random,
        independently of the other clients, so n need not decrease with M. A sampler for
        ablations in a later branch of FLT's public code does this, with 250. Refused if
        a class has fewer images.

    Raises
    ------
    FltnbError
        An option is out of range, there are too few classes for the clusters, too few
        images for the clients, or fewer clients than clusters.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> fed.n_clients, fed.n_clusters
    (6, 3)
    """
    clusters = in_turn(n_clients, n_clusters)
    if 2 * shared_classes > classes_per_cluster:
        raise FltnbError(
            f"shared_classes must be at most half of {classes_per_cluster}, "
            f"not {shared_classes}."
        )

    index = training_index(images, max_train, seed)
    by_class = members(images, index)
    rng = stream(seed, "partition")
    if variant == "as_run":
        # The printed tables follow the permutation of the legacy generator.
        rng = np.random.RandomState(PUBLISHED_SEED)
    sizes = (n_clusters, classes_per_cluster, shared_classes)
    lists = _class_lists(images, by_class, sizes, rng)
    n_images = sum(len(by_class[c]) for c in np.unique(lists))
    target = samples_per_client or n_images // n_clients
    if samples_per_client is not None and target < classes_per_cluster:
        raise FltnbError(
            f"samples_per_client is {target}, fewer than the {classes_per_cluster} "
            "classes of a cluster: give one of each at least."
        )
    if target < classes_per_cluster:
        raise FltnbError(
            f"There are more clients than samples: {n_images} training images for "
            f"{n_clients} clients."
        )

    size = target // classes_per_cluster
    if overlap:
        _check_size(size, [by_class[c] for c in np.unique(lists)])
        train = _drawn_apart(by_class, lists[clusters], size, seed)
    elif variant == "as_run":
        train = _blocks(by_class, lists, clusters, size, filler=index[-1])
    else:
        exact = samples_per_client is not None
        wanted = _wanted(by_class, lists, clusters, target, exact)
        (held,) = hand_out(seed, (by_class, wanted))
        train = []
        for pieces, cluster in zip(held, clusters, strict=True):
            own = [pieces[c] for c in lists[cluster]]
            train.append(np.concatenate(own))
    tests = [of_classes(images, images.test_index, classes) for classes in lists]
    test = [tests[cluster] for cluster in clusters]
    return Federation.of(images, train=train, test=test, clusters=clusters)


def _class_lists(
    images: ImageSet,
    by_class: list[np.ndarray],
    sizes: tuple[int, int, int],
    rng: np.random.Generator | np.random.RandomState,
) -> np.ndarray:
    """Return the classes of each cluster, int64 (C, classes per cluster).

    ``sizes``: clusters, classes per cluster, classes shared by neighbours. Three
    clusters of 3 classes that share 1 are a ring of 6 classes in random order, a to f:
    abc, cde, efa. Without shared classes three clusters of 2 are ab, cd, ef.
    """
    n_clusters, per_cluster, shared = sizes
    tested = np.bincount(images.labels[images.test_index], minlength=images.n_classes)
    trained = np.array([len(held) for held in by_class])
    usable = np.flatnonzero((trained > 0) & (tested > 0))

    step = per_cluster - shared
    needed = n_clusters * step
    if n_clusters <= 2:
        # A ring needs at least three clusters.
        needed += shared
    if needed > len(usable):
        raise FltnbError(
            f"The clusters need {needed} classes but {images.name} has {len(usable)}: "
            "ask for fewer."
        )
    first = step * np.arange(n_clusters)
    places = (first[:, None] + np.arange(per_cluster)) % needed
    return rng.permutation(usable)[places]


def _check_size(size: int, classes: list[np.ndarray]) -> None:
    """Refuse to draw ``size`` images of each class if one has fewer."""
    most = min(len(held) for held in classes)
    if size > most:
        raise FltnbError(
            f"Clients cannot draw {size} images of each class, as one class has only "
            f"{most}: give a smaller samples_per_client."
        )


def _drawn_apart(
    by_class: list[np.ndarray], lists: np.ndarray, size: int, seed: int
) -> list[np.ndarray]:
    """Draw ``size`` images of each of a client's classes, independently of others.

    Parameters
    ----------
    by_class : list of K arrays
        Positions of the training images of each class.
    lists : ndarray of int, shape (M, classes per client)
        Classes of each client.
    size, seed : int

    Returns
    -------
    list of M arrays
        No client has an image twice, but two clients may have the same one.
    """
    train = []
    for client, classes in enumerate(lists):
        rng = stream(seed, "partition", client, 0)
        drawn = [rng.permutation(by_class[c])[:size] for c in classes]
        train.append(np.concatenate(drawn))
    return train


def _blocks(
    by_class: list[np.ndarray],
    lists: np.ndarray,
    clusters: np.ndarray,
    size: int,
    filler: int,
) -> list[np.ndarray]:
    """Give the j-th client of a cluster the j-th block of ``size`` images per class.

    If a class is used up, ``filler`` replaces each missing image. With blocks of 2 and
    a class that has the images 3, 5 and 8, client 0 of a cluster gets 3 and 5, client 1
    gets 8 and the filler, client 2 the filler twice.

    Parameters
    ----------
    by_class : list of K arrays
        Positions of the training images of each class.
    lists : ndarray of int, shape (C, classes per cluster)
        Classes of each cluster.
    clusters : ndarray of int, shape (M,)
        Cluster of each client, ascending.
    size, filler : int
    """
    train = []
    for cluster, j in zip(clusters, place_in_cluster(clusters), strict=True):
        blocks = []
        for c in lists[cluster]:
            block = by_class[c][j * size : (j + 1) * size]
            missing = np.full(size - len(block), filler)
            blocks += [block, missing]
        train.append(np.concatenate(blocks))
    return train


def _wanted(
    by_class: list[np.ndarray],
    lists: np.ndarray,
    clusters: np.ndarray,
    size: int,
    exact: bool,
) -> np.ndarray:
    """Return images per client and class, int64 (M, K), equal within a cluster.

    A class of 100 images that two clusters of 5 clients each share has 10 holders, so
    that no client gets more than 10 of it. What a client lacks of this class it gets of
    its others, if these have enough (:func:`~.shares.level`).

    Parameters
    ----------
    by_class, lists, clusters
        As for :func:`_blocks`.
    size : int
        Images that a client should have.
    exact : bool
        Whether fewer are an error.

    Raises
    ------
    FltnbError
        A class has fewer images than clients, or, with ``exact``, a client cannot get
        ``size`` images.
    """
    available = np.array([len(held) for held in by_class])
    holders = np.zeros_like(available)
    np.add.at(holders, lists, np.bincount(clusters)[:, None])
    short = np.flatnonzero(available < holders)
    if len(short):
        c = short[0]
        raise FltnbError(
            f"There are more clients than samples: {available[c]} of class {c} for "
            f"{holders[c]} clients."
        )

    most = available // np.maximum(holders, 1)
    per_cluster = np.zeros((len(lists), len(by_class)), dtype=np.int64)
    for wanted, classes in zip(per_cluster, lists, strict=True):
        wanted[classes] = level(size, most[classes])
        if exact and wanted.sum() < size:
            raise FltnbError(
                f"samples_per_client is {size} but some clients can get "
                f"{wanted.sum()}: ask for fewer."
            )
    return per_cluster[clusters]


@kind
def structured(
    images: ImageSet,
    /,
    n_clients: Count,
    classes_per_cluster: Count = 5,
    delta: Positive = 2.0,
    seed: Natural = 0,
    test: Literal["clean", "as_run"] = "clean",
    max_per_class: Annotated[int, Whole(TRAIN_PER_TEST)] | None = None,
    level: bool = False,
) -> Federation:
    """Divide an image set into clusters of classes, with FLT's Algorithm 4 for sizes.

    FLT's Structured Non-IID FEMNIST, Section 4.2 (scenario 4) and Appendix D.1. Cluster
    c holds the classes ``classes_per_cluster * c`` and following, unshuffled, as in the
    public code (the paper does not say which classes); the last cluster gets the rest
    (EMNIST Balanced: nine clusters of five classes and one of two). Clients are
    numbered and tested as in :func:`label_clusters`. The training images of a cluster
    are shuffled and given to one client after the other, in the sizes of
    :func:`power_law_sizes`: all are used, none twice. Raises FltnbError if a cluster
    has no test images, or :func:`power_law_sizes` refuses the numbers.

    Parameters
    ----------
    n_clients : int
        M: 2,400 for the paper's MLP rows, 600 for its CNN rows, 60 per cluster as in
        the public code (the text: 100).
    delta : float
        Exponent of the power law, above 0. The paper does not give it; the public code
        has 2.
    test : {"clean", "as_run"}
        ``"as_run"`` adds all test images of class 0 to the last cluster if it has fewer
        classes than the others, although its clients never train on class 0. The
        printed tables have this, because the public code fills its list with zeros.
    max_per_class : int, optional
        Use at most this number of training images of each class, and a sixth of it as
        test images, both chosen at random. 2,400 gives EMNIST ByMerge the class sizes
        of EMNIST Balanced.
    level : bool
        Do not use consecutive classes, but choose them so that the clusters' sizes are
        in proportion to their numbers of classes. If classes have unequal sizes, as in
        EMNIST ByMerge, this is nearer to the paper's clusters of 12,000 images (the
        last: 4,800).

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.structured(digits, n_clients=8, classes_per_cluster=5)
    >>> fed.n_clients, fed.n_clusters
    (8, 2)
    """
    by_class = _cut(members(images, images.train_index), max_per_class, seed, 0)
    every = list(range(images.n_classes))
    lists = [every[c : c + classes_per_cluster] for c in every[::classes_per_cluster]]
    if level:
        images_of = [len(own) for own in by_class]
        classes_of = [len(classes) for classes in lists]
        lists = _levelled(images_of, classes_of)
    if n_clients < len(lists):
        raise FltnbError(
            f"There are {len(lists)} clusters of classes but only {n_clients} clients: "
            "give more clients, or more classes per cluster."
        )

    most_tested = None
    if max_per_class is not None:
        most_tested = round(max_per_class / TRAIN_PER_TEST)
    tested = _cut(members(images, images.test_index), most_tested, seed, 1)
    clusters = in_turn(n_clients, len(lists))
    train = []
    tests = []
    for cluster, classes in enumerate(lists):
        pool = np.concatenate([by_class[c] for c in classes])
        pool = stream(seed, "partition", 1 + cluster).permutation(pool)
        n_members = int(np.sum(clusters == cluster))
        sizes = power_law_sizes(len(pool), n_members, delta)
        ends = np.cumsum(sizes)
        train += np.split(pool, ends[:-1])  # the last part ends with the pool

        if not any(len(tested[c]) for c in classes):
            raise FltnbError(
                f"Cluster {cluster} has no test images of its classes in "
                f"{images.name}: use a set that has them."
            )
        test_classes = set(classes)
        if test == "as_run" and len(classes) < len(lists[0]):
            test_classes.add(0)
        shared = np.concatenate([tested[c] for c in test_classes])
        tests.append(np.sort(shared))
    test = [tests[cluster] for cluster in clusters]
    return Federation.of(images, train=train, test=test, clusters=clusters)


def _levelled(sizes: list[int], places: list[int]) -> list[list[int]]:
    """Return the classes of each cluster, with sizes in proportion to the places.

    Largest classes first; each goes to the cluster that lacks most per free place. Of
    classes with 5, 4, 3 and 2 images two clusters with 2 places each get 0 and 3, with
    7 images, and 1 and 2, also with 7.

    Parameters
    ----------
    sizes : images of each class
    places : classes of each cluster
    """
    lists: list[list[int]] = [[] for _ in places]
    free = np.array(places)
    # Multiplied by the number of all places: whole numbers, so that ties are exact.
    lacking = free * sum(sizes)
    largest_first = np.argsort(-np.asarray(sizes), kind="stable")
    for c in largest_first:
        each = lacking / np.maximum(free, 1)
        per_place = np.where(free > 0, each, -np.inf)
        cluster = np.argmax(per_place)
        lists[cluster].append(int(c))
        free[cluster] -= 1
        lacking[cluster] -= sizes[c] * sum(places)
    return [sorted(classes) for classes in lists]


def power_law_sizes(n_samples: int, n_clients: int, delta: float = 2.0) -> np.ndarray:
    r"""Return the sizes of a cluster's clients, in training samples, int64 (M_c,).

    FLT, Algorithm 4, lines 3 and 6. Of :math:`|D_c|` samples, client i = 1, ..., M_c
    gets :math:`\lfloor \alpha + e^{\beta i^\delta} \rfloor`, where
    :math:`\alpha = \lfloor |D_c| / (2 M_c) \rfloor` and :math:`\beta \ge 0` makes the
    unrounded sizes sum to :math:`|D_c|`. The samples left by rounding go to the first
    client. This alpha, the rounding and the first client are the public code's; the
    paper only calls alpha the smallest size. For 2 clients the public code does not
    find the solution and takes beta = 0.

    Parameters
    ----------
    n_samples, n_clients : int
        The cluster's training samples and clients, :math:`|D_c|` and M_c.
    delta : float
        Exponent of the power law, above 0.

    Raises
    ------
    FltnbError
        There are no clients, or more than samples, or delta is not above 0.

    Examples
    --------
    >>> power_law_sizes(12000, 240)[[0, 1, 120, 239]].tolist()
    [124, 26, 29, 259]
    """
    from scipy.optimize import brentq

    check("n_samples", n_samples, Count)
    check("n_clients", n_clients, Count)
    check("delta", delta, Positive)
    if n_clients > n_samples:
        raise FltnbError(
            f"A cluster has {n_clients} clients for {n_samples} training samples: "
            "ask for fewer clients."
        )
    alpha = n_samples // (2 * n_clients)
    # i / M_c instead of i only rescales beta, and avoids overflow.
    power = (np.arange(1, n_clients + 1) / n_clients) ** delta

    def excess(beta: float) -> float:
        return alpha * n_clients + np.exp(beta * power).sum() - n_samples

    beta = brentq(excess, 0.0, np.log(n_samples), xtol=1e-14)
    sizes = np.floor(alpha + np.exp(beta * power)).astype(np.int64)
    sizes[0] += n_samples - sizes.sum()
    return sizes


def _cut(
    by_class: list[np.ndarray], most: int | None, seed: int, part: int
) -> list[np.ndarray]:
    """Return the positions of each class, cut to ``most`` random ones.

    They stay in data-set order. ``part`` keeps the draws of training and of test images
    apart.
    """
    if most is None:
        return by_class
    cut = []
    for c, held in enumerate(by_class):
        drawn = stream(seed, "partition", part, 1 + c).permutation(held)
        cut.append(np.sort(drawn[:most]))
    return cut


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

    For each class, shares :math:`p \sim \mathrm{Dir}(\alpha, \dots, \alpha)` over the
    clients are drawn, and its images divided accordingly. Every training and test image
    goes to exactly one client, so clients also differ in size. With ``n_clusters`` the
    shares are drawn over clusters and divided evenly within each, so that the true
    clusters are known. Test images follow the shares of the training images of their
    class. Yurochkin et al. draw shares over clients in this way (Bayesian Nonparametric
    Federated Learning of Neural Networks, ICML 2019, experiments).

    A client with fewer than ``min_samples`` training images gets the missing ones from
    the largest client, from its most frequent class. A client without test images gets
    one of the class on which it trains most, if there is any.

    Parameters
    ----------
    alpha : float
        Concentration: small is strong skew, large approaches equal mixtures.
    n_clusters : int, optional
        Number of different mixtures, the true clusters. By default every client has its
        own mixture, and true clusters are unknown.
    max_train : int, optional
        As for :func:`label_clusters`.

    Raises
    ------
    FltnbError
        An option is out of range, or there are too few images for the clients.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.dirichlet(digits, n_clients=5, alpha=0.5)
    >>> fed.n_clients, fed.clusters is None
    (5, True)
    """
    clusters = in_turn(n_clients, n_clusters or n_clients)
    index = training_index(images, max_train, seed)
    if n_clients * min_samples > len(index) or n_clients > len(images.test_index):
        raise FltnbError(
            f"{images.name} has {len(index)} training and {len(images.test_index)} "
            f"test images, too few for {n_clients} clients with at least "
            f"{min_samples} and 1: ask for fewer clients, or lower min_samples."
        )
    by_class = members(images, index)
    tested = members(images, images.test_index)
    counts = _train_counts(by_class, clusters, float(alpha), seed, min_samples)
    test_counts = _test_counts(tested, counts)
    train, test = hand_out(seed, (by_class, counts), (tested, test_counts))
    return Federation.of(
        images,
        train=[np.concatenate(pieces) for pieces in train],
        test=[np.concatenate(pieces) for pieces in test],
        clusters=None if n_clusters is None else clusters,
    )


def _train_counts(
    by_class: list[np.ndarray],
    clusters: np.ndarray,
    alpha: float,
    seed: int,
    least: int,
) -> np.ndarray:
    """Return training images per client and class, int64 (M, K), ``least`` per client.

    The largest clients give images to those that would have fewer: with a small alpha
    many clients are drawn with hardly any.

    Parameters
    ----------
    by_class : list of K arrays
        Positions of the training images of each class.
    clusters : ndarray of int, shape (M,)
        Whose clients share one mixture of classes; ``arange(M)`` if each has its own.
    alpha, seed
        As for :func:`dirichlet`.
    least : int
        Its ``min_samples``.
    """
    rng = stream(seed, "partition")
    clients = np.bincount(clusters)
    concentration = np.full(len(clients), alpha)
    shares = rng.dirichlet(concentration, size=len(by_class))  # (K, clusters)
    of_client = (shares / clients)[:, clusters].T  # (M, K)
    counts = _in_proportion(by_class, of_client)

    sizes = counts.sum(axis=1)
    while sizes.min() < least:
        poor = sizes.argmin()
        rich = sizes.argmax()
        c = counts[rich].argmax()
        lacking = least - sizes[poor]
        to_spare = sizes[rich] - least
        n = min(lacking, to_spare, counts[rich, c])
        counts[rich, c] -= n
        counts[poor, c] += n
        sizes = counts.sum(axis=1)
    return counts


def _test_counts(by_class: list[np.ndarray], train: np.ndarray) -> np.ndarray:
    """Return test images per client and class, int64 (M, K), one per client at least.

    They are in proportion to the training images ``train`` (M, K) of each class; images
    of a class without training images are spread evenly.
    """
    weights = np.where(train.sum(axis=0) > 0, train, 1)
    counts = _in_proportion(by_class, weights)
    for poor in np.flatnonzero(counts.sum(axis=1) == 0):
        # an image of the class on which it trains most, of those that some can spare
        may_give = counts.sum(axis=1) > 1
        spare = counts * may_give[:, None]
        usable = np.flatnonzero(spare.sum(axis=0))
        c = usable[train[poor, usable].argmax()]
        rich = spare[:, c].argmax()
        counts[rich, c] -= 1
        counts[poor, c] += 1
    return counts


def _in_proportion(by_class: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Divide all images of each class over clients, int64 (M, K).

    ``weights`` (M, K): each client's part of every class.
    """
    columns = []
    for held, of_class in zip(by_class, weights.T, strict=True):
        columns.append(apportion(len(held), of_class))
    return np.stack(columns, axis=1)
