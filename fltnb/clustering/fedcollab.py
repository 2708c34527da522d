"""FedCollab: coalitions by the distance of clients' data and their sample counts."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.special import expit

from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, NonNegative, Positive
from .base import LEAVE_OUT, ClientClusterer, Shapes, Sketch, check_rows, of_all
from .cuts import distance_linkage

# keys of the draws
DEAL = 26
PAIR = 27
ORDERS = 28
EVERY = 10  # rounds between two validations
PATIENCE = 10  # a pair stops after this number of validations without a gain
NETWORK_BYTES = np.dtype(np.float32).itemsize  # of a number of the pairs' networks
LEAST = 1e-12  # smallest gain of a move

Part = tuple[np.ndarray, np.ndarray]  # a client's training and validation rows


class FedCollab(ClientClusterer):
    r"""Cluster clients to minimise the sum of two errors: few data, and different data.

    Bao et al., ICML 2023 (arXiv 2306.06508); written from the authors' code
    (baowenxuan/FedCollab), not compared with the paper.

    **Distance.** Every pair of clients trains a network to tell to which of them a
    sample (x, y) belongs: one hidden layer of ReLU, SGD, and in each round the mean of
    one step at each client. ``distance_`` is the largest sum of both validation
    accuracies during training, minus 1 (0: they cannot be distinguished). Each client
    trains on half as many samples as the smallest client has, and validates on its
    other samples. This maximum is biased upwards, strongly so with few samples.

    **Coalitions.** With n_j samples of client j, n_B of coalition B and d the distance,
    the mean over clients of

    .. math:: e_i = c / \sqrt{n_B} + \sum_{j \in B} (n_j / n_B)\, d_{ij}

    is minimised. At first every client is alone. Clients are visited in a random order
    and move to the coalition with the lowest cost, possibly an empty one, as long as
    this reduces the cost. The best of several orders is kept. The number of clusters
    therefore follows from c: 0 leaves every client alone, a large c puts all together.

    Parameters
    ----------
    c : float
        The cost of few samples; 10 or 8 in the authors' runs (the default of their
        solver's script is 1).
    rounds : int
        Largest number of rounds of a pair. It validates every 10 rounds, and stops
        after 10 validations without a gain.
    lr : float
        Learning rate of the pairs' networks.
    batch_size : int
        Samples of each client in a step, drawn again each time.
    hidden : int
        Units of the hidden layer.
    n_orders : int
        Number of random orders of visits.
    random_state, n_jobs
        See :class:`~fltnb.clustering.base.ClientClusterer`.

    Attributes
    ----------
    cost_ : float
        The reached mean of e_i.
    sent_, received_ : ndarrays, shape (M,)
        Networks of all rounds and pairs, which is most of the traffic; the distances,
        and the number of samples.
    linkage_ : ndarray, shape (M - 1, 4)
        Average linkage of the distances, for pictures only.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> y = [fed.client(i)[1] for i in range(6)]
    >>> found = fl.FedCollab(c=1.0, rounds=20, hidden=8, n_orders=5).fit(x, y)
    >>> found.labels_.shape
    (6,)
    """

    c: NonNegative = 10.0
    rounds: Count = 2000
    lr: Positive = 0.01
    batch_size: Count = 32
    hidden: Count = 200
    n_orders: Count = 100
    random_state: Natural = 0
    n_jobs: int | None = None

    content = "samples"
    sketch_shapes: ClassVar[Shapes] = {
        "divergence": (None,),
        "samples": (1,),
        "_moved": (1,),
    }
    labelled = True
    per_task = 1

    def _check_size(self, size: int, client: int) -> None:
        if size < 2:
            raise FltnbError(
                f"Client {client} has one sample, and FedCollab needs two, one for "
                f"training and one for validation: {LEAVE_OUT}."
            )

    def sketches(
        self,
        X: Sequence[np.ndarray],
        y: Sequence[np.ndarray] | None = None,
        first: int = 0,
    ) -> list[Sketch]:
        """Let every pair of clients find their distance together.

        Parameters
        ----------
        X : sequence of M arrays, shapes (n_i, d)
            Samples.
        y : sequence of M arrays, shapes (n_i,), optional
            Classes; without them all samples have the same class.
        first : int
            Not used.

        Returns
        -------
        list of dict
            ``divergence`` (M,), a row of the distance; ``samples`` (1,); ``_moved``
            (1,) counts the numbers of the networks that a client sends.
        """
        self._check_values()
        classes = self._classes(X, y)
        for client, one in enumerate(classes):
            if one.dtype.kind not in "biuf" or (one < 0).any() or (one % 1).any():
                raise FltnbError(
                    f"Client {client} needs whole numbers from 0 as classes: number "
                    "those of all clients together."
                )
        n_classes = 1 + int(max(one.max() for one in classes))
        parts = self._dealt(X, classes, n_classes)

        rows = self._each("towards", [(parts, n_classes)] * len(X))
        found = np.stack(rows)  # (M, M, 2)
        found += found.transpose(1, 0, 2)  # each pair was computed once
        divergence = found[:, :, 0]
        rounds = found[:, :, 1].sum(axis=1)
        width = parts[0][0].shape[1]
        network = (width + 1) * self.hidden + 1  # numbers of one

        sketches = []
        for i, x in enumerate(X):
            moved = rounds[i] * network
            sketch = {
                "divergence": divergence[i],
                "samples": np.array([len(x)]),
                "_moved": np.array([moved], dtype=np.int64),
            }
            sketches.append(sketch)
        return sketches

    def _dealt(
        self, X: Sequence[np.ndarray], classes: list[np.ndarray], n_classes: int
    ) -> list[Part]:
        """Divide each client's samples at random for training and for validation.

        All clients train on the same number: half of the smallest client's.

        Parameters
        ----------
        X : sequence of M arrays, shapes (n_i, d)
        classes : list of M int arrays (n_i,)
        n_classes : int
            Of all clients.
        """
        n_train = min(len(x) for x in X) // 2
        parts = []
        for client, x in enumerate(X):
            rows = pair_inputs(x, classes[client], n_classes)
            rng = stream(self.random_state, "method", DEAL, client)
            rows = rows[rng.permutation(len(x))]
            parts.append((rows[:n_train], rows[n_train:]))
        return parts

    def place(self, X: Sequence[np.ndarray], y=None) -> np.ndarray:
        """Refuse: a newcomer would have to train with every client."""
        raise FltnbError(
            "FedCollab cannot place newcomers, as every pair of clients trains "
            "together: fit it again on all clients."
        )

    place_sketches = place  # type: ignore[assignment]  # it refuses whatever is given

    def towards(self, parts: Sequence[Part], n_classes: int, client: int) -> np.ndarray:
        """Return the divergence from each later client, and its rounds.

        Parameters
        ----------
        parts : sequence of M pairs
            Training and validation rows of each client.
        n_classes : int
        client : int
            This client's number.

        Returns
        -------
        ndarray, shape (M, 2)
            0 of clients that are not later.
        """
        out = np.zeros((len(parts), 2))
        own = parts[client]
        width = own[0].shape[1]
        for other in range(client + 1, len(parts)):
            rng = stream(self.random_state, "method", PAIR, client, other)
            network = Discriminator(width, n_classes, self.hidden, rng)
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                out[other] = self._divergence(network, own, parts[other], rng)
            if not (np.isfinite(network.W).all() and np.isfinite(network.w).all()):
                raise FltnbError(
                    f"The network that tells client {client} from client {other} "
                    f"diverged: divide the samples so that they are near 1, or take an "
                    f"lr below {self.lr:g}."
                )
        return out

    def _divergence(
        self,
        network: "Discriminator",
        left: Part,
        right: Part,
        rng: np.random.Generator,
    ) -> tuple[float, int]:
        """Train one pair's network.

        Returns
        -------
        divergence : float
            The largest sum of both clients' validation accuracies, minus 1.
        rounds : int
            The number of rounds.
        """
        best = 0.0
        idle = 0
        for round in range(1, self.rounds + 1):
            first, second = [
                train[rng.permutation(len(train))[: self.batch_size]]
                for train, _ in (left, right)
            ]
            network.step(first, second, self.lr)

            if round % EVERY and round < self.rounds:
                continue
            _, left_held = left
            _, right_held = right
            told = network.accuracy(left_held, right_held)
            if told > best:
                best = told
                idle = 0
            else:
                idle += 1
            if idle == PATIENCE:
                break
        return best, round

    def _relate(self, sketches, answers) -> None:
        moved = np.concatenate(of_all(sketches, "_moved"))
        self.sent_ += moved
        self._bytes += NETWORK_BYTES * moved
        self.received_ += moved

        rows = of_all(sketches, "divergence")
        check_rows(rows, len(rows))
        distance = np.stack(rows)
        sizes = np.concatenate(of_all(sketches, "samples"))
        rng = stream(self.random_state, "method", ORDERS)
        labels, self.cost_ = coalitions(distance, sizes, self.c, self.n_orders, rng)
        self._keep(distance, distance_linkage(distance, "average"), labels)


def pair_inputs(x: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return rows ``[x, 1, 2 nu onehot(y), 2]``, with nu = C / sqrt(C - 1).

    In the original, a layer of x and twice a layer of nu onehot(y) are added, each with
    a bias. This is the same as one layer in which the two constants are the inputs of
    these biases.

    Parameters
    ----------
    x : ndarray, shape (n, d)
    classes : ndarray of int, shape (n,)
    n_classes : int
        C, of all clients.

    Returns
    -------
    ndarray of float32, shape (n, d + C + 2)
    """
    nu = 0.0
    if n_classes > 1:
        nu = n_classes / np.sqrt(n_classes - 1)
    onehot = classes[:, None] == np.arange(n_classes)
    one = np.ones((len(x), 1))
    rows = np.hstack([x, one, 2 * nu * onehot, 2 * one])
    return rows.astype(np.float32)


class Discriminator:
    """A network with one hidden layer that distinguishes two clients' rows.

    ``W`` (width, hidden) and ``w`` (hidden + 1,), whose last entry is a bias. The
    initial weights are uniform between plus and minus one over the root of the number
    of inputs, separately for the sample's values and the classes.
    """

    def __init__(
        self, width: int, n_classes: int, hidden: int, rng: np.random.Generator
    ) -> None:
        # a row's values and their bias, then the classes and theirs
        values = width - n_classes - 2
        inputs = np.repeat([values, n_classes], [values + 1, n_classes + 1])
        first = rng.uniform(-1, 1, (width, hidden)) / np.sqrt(inputs)[:, None]
        last = rng.uniform(-1, 1, hidden + 1) / np.sqrt(hidden)
        self.W = first.astype(np.float32)
        self.w = last.astype(np.float32)

    def _outputs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return hidden units (n, hidden) and outputs (n,) of rows (n, width).

        An output above 0 says that a row is the right client's.
        """
        hidden = np.maximum(rows @ self.W, 0)
        return hidden, hidden @ self.w[:-1] + self.w[-1]

    def step(self, left: np.ndarray, right: np.ndarray, lr: float) -> None:
        """Descend the mean of both clients' mean logistic losses, by one step.

        ``left``, ``right``: rows (b, width) of either client; ``lr``: step size.
        """
        rows = np.vstack([left, right])
        n_left = len(left)
        n_right = len(right)
        truth = np.repeat([0, 1], [n_left, n_right])
        weight = np.repeat([0.5 / n_left, 0.5 / n_right], [n_left, n_right])

        hidden, output = self._outputs(rows)
        error = (expit(output) - truth) * weight  # gradient of the outputs
        error = error.astype(np.float32)
        below = np.outer(error, self.w[:-1]) * (hidden > 0)
        self.w[:-1] -= lr * (error @ hidden)
        self.w[-1] -= lr * error.sum()
        self.W -= lr * (rows.T @ below)

    def accuracy(self, left: np.ndarray, right: np.ndarray) -> float:
        """Return the sum of both clients' shares of right rows, minus 1.

        The left client's share is 1 minus that of its rows taken for the right one's.
        """
        _, of_left = self._outputs(left)
        _, of_right = self._outputs(right)
        left_as_right = (of_left >= 0).mean()
        right_as_right = (of_right >= 0).mean()
        return float(right_as_right - left_as_right)


def mean_cost(
    labels: np.ndarray, distance: np.ndarray, sizes: np.ndarray, c: float
) -> float:
    """Return the mean of e_i over all clients.

    Parameters
    ----------
    labels : ndarray of int, shape (M,)
        The coalition of each client.
    distance : ndarray, shape (M, M)
    sizes : ndarray of int, shape (M,)
        Samples of each client.
    c : float
    """
    samples = (labels[:, None] == labels) * sizes  # (M, M), 0 outside a coalition
    total = samples.sum(axis=1)
    far = (samples * distance).sum(axis=1) / total
    cost = c / np.sqrt(total) + far
    return float(cost.mean())


def coalitions(
    distance: np.ndarray,
    sizes: np.ndarray,
    c: float,
    n_orders: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, float]:
    """Find the coalitions with the lowest mean cost over random orders of visits.

    Parameters
    ----------
    distance, sizes, c
        As in :func:`mean_cost`.
    n_orders : int
        Random orders of visits.
    rng : numpy.random.Generator

    Returns
    -------
    labels : ndarray of int, shape (M,)
    cost : float
        Their mean cost.
    """
    best = np.arange(len(sizes))
    lowest = mean_cost(best, distance, sizes, c)
    for _ in range(n_orders):
        found = _settled(distance, sizes, c, rng.permutation(len(sizes)))
        cost = mean_cost(found, distance, sizes, c)
        if cost < lowest - LEAST:
            best = found
            lowest = cost
    return best, lowest


def _settled(
    distance: np.ndarray, sizes: np.ndarray, c: float, order: np.ndarray
) -> np.ndarray:
    """Return coalitions (M,) in which no single move gains, visiting in this order.

    All clients begin alone, and rounds of visits end when one moves no client.
    """
    n_clients = len(sizes)
    labels = np.arange(n_clients)
    # of each coalition: clients, samples, and the sum of n_j d_ij over both i and j
    members = np.ones(n_clients)
    samples = sizes.astype(np.float64)
    spread = np.zeros(n_clients)
    weighted = distance * sizes
    both_ways = weighted + weighted.T

    moved = True
    while moved:
        moved = False
        for i in order:
            # Take client i out of its coalition,
            at = labels[i]
            size = sizes[i]
            near = np.bincount(labels, both_ways[i], n_clients)
            members[at] -= 1
            samples[at] -= size
            spread[at] -= near[at]

            # ask what it would add to the cost of each,
            without = _costs(members, samples, spread, c)
            joined = _costs(members + 1, samples + size, spread + near, c)
            added = joined - without
            to = int(added.argmin())
            if added[to] > added[at] - LEAST:
                to = at

            # and put it into the cheapest.
            moved = moved or to != at
            labels[i] = to
            members[to] += 1
            samples[to] += size
            spread[to] += near[to]
    return labels


def _costs(
    members: np.ndarray, samples: np.ndarray, spread: np.ndarray, c: float
) -> np.ndarray:
    """Return the sum of e_i over the members of every coalition, (M,).

    An empty one costs 0. All arguments (M,) are of coalitions: ``spread`` is the sum of
    n_j d_ij over both i and j of a coalition.
    """
    total = np.maximum(samples, 1)
    return members * c / np.sqrt(total) + spread / total
