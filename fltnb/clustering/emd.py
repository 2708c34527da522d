"""One-shot clustering by earth mover's distances between embeddings (EMD-CFL)."""

import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Literal

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from ..errors import FltnbError, lost_processes
from ..progress import bar
from ..randomness import stream
from ..settings import Count, Fraction, Natural, Positive
from .base import (
    LEAVE_OUT,
    NONE_FITS,
    ClientClusterer,
    Shapes,
    Sketch,
    check_clients,
    check_finite,
    of_all,
    square,
)
from .cuts import are_blocks, cut, distance_linkage, relabel
from .solvers import sinkhorn_cost, uniform_cost

PROJECTION_TYPE = np.float32  # of the matrices by which pairs project embeddings
FARTHEST = 2.0  # largest cosine distance
MOST_STEPS = 10_000_000  # limit of the exact solver, far above what 512 samples need
# tolerance="auto": the factor that makes a gap, and the smallest size of chance
# differences, as a share of the median reference
FOLD = 2.0
CHANCE = 0.1
SAMPLES, HALVES, PROJECTION, DIRECTIONS = range(4)  # keys of the draws
Validation = Sequence[Sequence[np.ndarray]] | Callable[[int], Sequence[np.ndarray]]


class EMDClustering(ClientClusterer):
    r"""Cluster clients by earth mover's distances of their embeddings (EMD-CFL).

    arXiv 2506.07769, Algorithm 1. Client i's encoder :math:`h_i` (its own model without
    the last layer) embeds its training samples and, after an exchange of models, the
    validation samples of all clients. With W the earth mover's distance between them,
    for cosine cost and uniform weights,

    .. math:: D_{ij} = W(h_i(\text{train}_i), h_i(\text{val}_j))
        - W(h_i(\text{train}_i), h_i(\text{val}_i)),

    so D is 0, except for chance, if j's samples are no farther from i's than i's own.
    Two clients are connected if *both* directions are below the tolerance; clients with
    the same neighbours share a model.

    Parameters
    ----------
    tolerance : float or "auto"
        The paper's epsilon, 0.025 there; from 0 to 2. It is a difference of cosine
        distances, whose scale grows with local training. 0 leaves every client alone (a
        distance below 0 is chance and counts as 0). "auto", not in the paper: the
        middle of the first wide gap between the sorted distances
        (``fltnb.clustering.emd.first_gap``), where distances below 0 show the size of
        chance differences.
    projection : float or None
        What a pair of clients exchanges is projected at random from d to
        ``projection * d`` dimensions, by a matrix that only the pair knows; None: the
        embeddings are sent without projection.
    reference : {"pair", "client"}
        "pair": a client measures its reference with the matrix of each pair, so that
        the effect of the matrix on W cancels. "client": once, without projection, which
        takes half the time but has twice the noise and a bias. The paper allows both
        readings.
    max_samples : int
        Largest number of training samples, and of validation samples, of a client that
        are compared; they are drawn at random. The paper takes the lesser of 512 and 10
        % of the samples (Section 3.1).
    distance : {"exact", "sinkhorn", "sliced"}
        How W is computed. "sinkhorn": cost of the plan with entropic regularisation.
        "sliced": random directions on the unit sphere, squared 2-Wasserstein distance
        times d / 2, a quick lower bound of the exact one.
    regularisation : float
        Of "sinkhorn", in units of the cosine distance; the paper has 0.1.
    n_directions : int
        Of "sliced": number of random directions.
    n_clusters : int or None
        Cut ``linkage_`` into this number of clusters, without a tolerance; not in the
        paper.
    random_state : int
        Seed of samples, projections and directions.
    n_jobs : int or None
        Processes over the rows of D, None: one; no effect on the result.

    Attributes
    ----------
    distance_ : ndarray, shape (M, M)
        D; row i under encoder i, not symmetric; small negative values are chance.
    reference_ : ndarray, shape (M,)
        What was subtracted in row i, on average.
    tolerance_ : float
        The used tolerance.
    linkage_ : ndarray, shape (M - 1, 4)
        Complete linkage of the larger of the two directions.
    sent_ : ndarray, shape (M,)
        Numbers that each client sends: embeddings for every pair, and its reference.
        Models are not included.

    Examples
    --------
    Six clients with one encoder, whose embeddings point in three directions:

    >>> import fltnb as fl
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> centers = 5 * np.eye(8)[[0, 0, 1, 1, 2, 2]]
    >>> x = [rng.normal(size=(60, 8)) + center for center in centers]
    >>> fl.EMDClustering(tolerance=0.1).fit(x).labels_.tolist()
    [0, 0, 1, 1, 2, 2]

    :class:`fltnb.methods.OwnModels` embeds samples by the clients' own networks.
    """

    tolerance: float | str = 0.025
    projection: Fraction | None = 0.9
    reference: Literal["pair", "client"] = "pair"
    max_samples: Count = 512
    distance: Literal["exact", "sinkhorn", "sliced"] = "exact"
    regularisation: Positive = 0.1
    n_directions: Count = 256
    n_clusters: Count | None = None
    random_state: Natural = 0
    n_jobs: int | None = None

    sketch_shapes: ClassVar[Shapes] = {
        "distance": (None,),
        "reference": (1,),
        "_sent": (1,),
        "_bytes": (1,),
    }

    def _check_values(self) -> dict[str, Any]:
        options = super()._check_values()
        asked: Any = self.tolerance
        number = isinstance(asked, numbers.Real) and not isinstance(asked, bool)
        if asked != "auto" and not (number and 0 <= asked <= FARTHEST):
            raise FltnbError(
                f'tolerance must be "auto" or a cosine distance from 0 to '
                f"{FARTHEST:g}, such as 0.025, got {asked!r}."
            )
        return options

    def sketches(
        self, X: Sequence[np.ndarray], y: Validation | None = None, first: int = 0
    ) -> list[Sketch]:
        """Compute the rows of D. In the paper the server does this.

        Parameters
        ----------
        X : sequence of M arrays, shapes (n_i, d)
            Training samples of each client under its own encoder.
        y : sequence or callable, optional
            ``y[i][j]`` (v_j, d): validation samples of client j under the encoder of
            client i. A callable returns ``y[i]`` for i, once, so that M x M embeddings
            need not be in memory. None: all clients share one encoder, and a random
            half of each client's samples is used as validation samples.
        first : int
            Not used.

        Returns
        -------
        list of dict
            ``distance`` (M - 1,) to the others; ``reference`` (1,); ``_sent`` (1,)
            and ``_bytes`` (1,) count the numbers that are sent for it, and their bytes.
        """
        self._check_values()
        if y is None:
            train = []
            validation = []
            for i, x in enumerate(X):
                own_train, own_validation = _halves(x, i, int(self.random_state))
                train.append(own_train)
                validation.append(own_validation)
            X = train
            self._held_out = [self._drawn(z) for z in validation]
            y = [validation] * len(X)

        # The first row is checked before any work, the others when they are needed: the
        # embeddings of all M x M pairs may not fit into memory.
        rows = self._validation(X, y)
        first_row = next(rows)
        rows = chain([first_row], rows)

        def tasks() -> Iterator[tuple[int, np.ndarray, dict[int, np.ndarray]]]:
            for i, (x, row) in enumerate(zip(X, rows, strict=True)):
                yield i, x, dict(enumerate(row))

        trained = [len(x) for x in X]
        validated = [len(z) for z in first_row]
        return self._rows(tasks(), trained, validated, X[0])

    def _validation(
        self, X: Sequence[np.ndarray], y: Validation
    ) -> Iterator[list[np.ndarray]]:
        """Yield all clients' validation samples under one encoder after the other.

        Of M clients there are M lists of M arrays (v_j, d). ``X`` and ``y`` are as for
        :meth:`sketches`; each list is checked when it is needed.
        """
        n_clients = len(X)
        if not callable(y) and len(y) != n_clients:
            raise FltnbError(
                "Give validation embeddings under the encoders of all "
                f"{n_clients} clients, not {len(y)}."
            )
        for i in range(n_clients):
            row = list(y(i) if callable(y) else y[i])
            what = f"validation embeddings under the encoder of client {i}"
            if len(row) != n_clients:
                raise FltnbError(
                    f"There are {what} of {len(row)} clients, not {n_clients}: give "
                    "one array per client."
                )
            yield check_clients(row, what, X[0].shape[1])

    def sketch(
        self, x: np.ndarray, validation: Sequence[np.ndarray], client: int = 0
    ) -> Sketch:
        """Compute one client's row, as :meth:`sketches` returns it.

        Parameters
        ----------
        x : ndarray, shape (n_i, d)
            Its training samples.
        validation : sequence of M arrays, shapes (v_j, d)
            Validation samples of all clients under its encoder.
        client : int
            Its number.
        """
        x = self._checked(x, client)
        what = f"validation embeddings under the encoder of client {client}"
        validation = check_clients(validation, what, x.shape[1])
        if client >= len(validation):
            raise FltnbError(
                f"Client {client} needs validation samples of all clients, its own "
                f"included, under its encoder, not of {len(validation)}."
            )
        validated = [len(z) for z in validation]
        trained = [len(x)] * len(validated)  # those of the others are not used
        task = (client, x, dict(enumerate(validation)))
        rows = self._rows([task], trained, validated, x)
        return rows[client]

    def _rows(
        self, tasks: Iterable, trained: list[int], validated: list[int], x: np.ndarray
    ) -> list[Sketch]:
        """Return a sketch for every client; those without a task get zeros.

        Parameters
        ----------
        tasks
            As for :meth:`measure`.
        trained, validated : lists of M ints
            Training and validation samples of each client.
        x : ndarray, shape (n, d)
            Embeddings, for their width and type.
        """
        n_clients = len(validated)
        distance = np.zeros((n_clients, n_clients))
        reference = np.zeros(n_clients)
        self.measure(tasks, distance, reference)

        # every pair exchanges its training and validation samples
        most = int(self.max_samples)
        compared = np.minimum(trained, most) + np.minimum(validated, most)
        others = n_clients - 1
        embeddings = others * compared * self.sent_width(x.shape[1])
        references = self.references(others)
        sent = embeddings + references
        in_bytes = embeddings * self._sent_type(x).itemsize
        in_bytes += references * reference.itemsize

        rows = []
        for i in range(n_clients):
            row = {"distance": np.delete(distance[i], i)}
            row["reference"] = reference[[i]]
            row["_sent"] = sent[[i]]
            row["_bytes"] = in_bytes[[i]]
            rows.append(row)
        return rows

    def _relate(self, sketches, answers) -> None:
        self.sent_ = np.concatenate(of_all(sketches, "_sent"))
        self._bytes = np.concatenate(of_all(sketches, "_bytes"))
        self.reference_ = np.concatenate(of_all(sketches, "reference"))
        distance = square(of_all(sketches, "distance"), diagonal=0)

        check_finite(distance)
        adjacency, labels, self.tolerance_ = self.connect(distance, self.reference_)
        tree = distance_linkage(farther(distance), "complete")
        if self.n_clusters is not None:
            self._keep(distance, tree, cut(tree, self.n_clusters))
            return
        self._keep(distance, tree, labels, adjacency)
        if self.tolerance != "auto":
            self._warn_if_all_alone(f'tolerance={self.tolerance:g} ("auto" adapts)')

    def place(self, X: Sequence[np.ndarray], y: Validation | None = None) -> np.ndarray:
        """Place newcomers. Only their own direction is known.

        Parameters
        ----------
        X : sequence of n arrays, shapes (n_i, d)
            Training samples of each newcomer under its own encoder.
        y : sequence or callable, optional
            ``y[i]``: validation samples under the encoder of newcomer i: of all clients
            in order, then its own. None: all share one encoder, as in ``fit``.

        Returns
        -------
        ndarray of int64, shape (n,)
            Among clusters with a client below the tolerance, the nearest by mean
            distance; -1 if there is none.
        """
        self._check_fitted()
        count = len(self.labels_)
        width = None
        if y is None:
            self._check_fitted("_held_out")
            width = self._held_out[0].shape[1]
        X = check_clients(X, self.content, width, first=count)
        if y is not None and not callable(y) and len(y) != len(X):
            raise FltnbError(
                "Give validation embeddings under the encoders of all "
                f"{len(X)} newcomers, not {len(y)}."
            )
        places = []
        for number, x in enumerate(X):
            if y is None:
                x, own = _halves(x, count + number, int(self.random_state))
                row = [*self._held_out, own]
            else:
                row = y(number) if callable(y) else y[number]
            what = f"validation embeddings under the encoder of newcomer {number}"
            places.append(self._placed(x, check_clients(row, what, x.shape[1])))
        return np.array(places, dtype=np.int64)

    def _placed(self, x: np.ndarray, row: list[np.ndarray]) -> int:
        """Return a newcomer's cluster, or -1 if no client is below the tolerance.

        A cluster needs one client that is near enough; of several such clusters the one
        that is nearest as a whole is taken. The other direction, from the clients to
        the newcomer, would need a new exchange with all of them.

        Parameters
        ----------
        x : ndarray, shape (n, d)
            Its training samples under its own encoder.
        row : list of M + 1 arrays, shapes (v_j, d)
            Validation samples of all clients and its own, under the same encoder.
        """
        count = len(self.labels_)
        if len(row) != count + 1:
            raise FltnbError(
                f"A newcomer needs validation samples of all {count} clients and its "
                f"own under its encoder, not of {len(row)}."
            )
        far = self.sketch(x, row, count)["distance"]
        members = self.labels_ == np.arange(self.n_clusters_)[:, None]  # (C, M)
        connected = members & (far < self.tolerance_)
        near = connected.any(axis=1)
        if not near.any():
            return NONE_FITS
        means = members @ far / members.sum(axis=1)
        means[~near] = np.inf
        return int(means.argmin())

    def measure(
        self,
        tasks: Iterable[tuple[int, np.ndarray, Mapping[int, np.ndarray]]],
        distance: np.ndarray,
        reference: np.ndarray,
    ) -> None:
        """Measure rows of D, as processes (``n_jobs``) become free.

        Parameters
        ----------
        tasks : iterable of (i, train, validation)
            Client i, its training samples (n_i, d) and, by client j, validation samples
            (v_j, d): all under i's encoder.
        distance : ndarray, shape (M, M)
            D, written for the pairs of the tasks.
        reference : ndarray, shape (M,)
            Mean reference of each client, written in the same way.
        """
        parallel = Parallel(n_jobs=self.n_jobs or None, return_as="generator")
        rows = parallel(self._work(tasks))
        rows = bar(rows, total=len(distance), desc="Distances", unit="client")
        with lost_processes():
            for i, found, own in rows:
                distance[i, list(found)] = list(found.values())
                reference[i] = own

    def _work(self, tasks: Iterable) -> Iterator:
        """Yield the tasks of :meth:`measure`, with at most ``max_samples`` each.

        Samples are drawn here and not in the process that measures, so that only those
        that are compared are sent to it.
        """
        row = delayed(clone(self)._row)
        for i, x, validation in tasks:
            drawn = {j: self._drawn(z) for j, z in validation.items()}
            yield row(i, self._drawn(x), drawn)

    def _row(
        self, i: int, train: np.ndarray, validation: Mapping[int, np.ndarray]
    ) -> tuple[int, dict, float]:
        """Measure one row.

        Parameters
        ----------
        i : int
        train : ndarray, shape (n_i, d)
        validation : dict
            Client j -> its validation samples (v_j, d) under the encoder of i.

        Returns
        -------
        i : int
        distance : dict
            Client j -> D_ij.
        reference : float
            Mean reference of client i.
        """
        width = train.shape[1]
        own = validation[i]
        distance = {i: 0.0}
        references = []  # one for each pair, or a single one

        # one thread, so that the last bit does not depend on the machine's cores
        with threadpool_limits(1):
            if not self._by_pair():
                references.append(self._earth_mover(train, own))

            for j, other in validation.items():
                if j == i:
                    continue
                if self.projection is None:
                    moved = self._earth_mover(train, other)
                    distance[j] = moved - references[0]
                    continue

                matrix = self._matrix(width, i, j)
                sent = train @ matrix
                if self._by_pair():
                    references.append(self._earth_mover(sent, own @ matrix))
                moved = self._earth_mover(sent, other @ matrix)
                distance[j] = moved - references[-1]

        return i, distance, float(np.mean(references))

    def _matrix(self, width: int, i: int, j: int) -> np.ndarray:
        """Return the matrix by which clients i and j project what they exchange."""
        kept = self.sent_width(width)
        return projection_matrix(width, kept, int(self.random_state), i, j)

    def _earth_mover(self, a: np.ndarray, b: np.ndarray) -> float:
        """Return the distance of samples (n, d) and (m, d), by the options."""
        return earth_mover(
            a,
            b,
            self.distance,
            self.regularisation,
            int(self.n_directions),
            int(self.random_state),
        )

    def connect(
        self, distance: np.ndarray, reference: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Connect clients whose two directions are below the tolerance.

        Parameters
        ----------
        distance : ndarray, shape (M, M)
            D, NaN if it is unknown.
        reference : ndarray, shape (M,)
            As ``reference_``.

        Returns
        -------
        adjacency : ndarray of uint8, shape (M, M)
        labels : ndarray of int64, shape (M,)
            Clients with the same neighbours have the same label.
        tolerance : float
            The used tolerance.

        Examples
        --------
        Clients 0 and 1 are near in both directions, 2 is near to 1 in one only:

        >>> D = np.array([[0, 0.01, 0.3], [0.02, 0, 0.3], [0.3, 0.01, 0]])
        >>> _, labels, _ = EMDClustering(tolerance=0.025).connect(D, np.ones(3))
        >>> labels.tolist()
        [0, 0, 1]
        """
        far = farther(distance)
        if self.tolerance == "auto":
            least = CHANCE * float(np.nanmedian(reference))
            tolerance = first_gap(far, max(_size_below_0(distance), least))
        else:
            tolerance = float(self.tolerance)

        adjacency = (far < tolerance).astype(np.uint8)
        np.fill_diagonal(adjacency, 1)
        _, same_row = np.unique(adjacency, axis=0, return_inverse=True)
        return adjacency, relabel(same_row.reshape(-1)), tolerance

    def sent_width(self, width: int) -> int:
        """Numbers sent per embedding of ``width`` dimensions.

        If it is projected: that share of the width, rounded down, at least 1.
        """
        if self.projection is None:
            return width
        return max(1, int(self.projection * width + 1e-9))

    def _sent_type(self, x: np.ndarray) -> np.dtype:
        """Return the type of what is sent of embeddings (n, d), projected or not."""
        if self.projection is None:
            return x.dtype
        return np.result_type(x.dtype, PROJECTION_TYPE)

    def _by_pair(self) -> bool:
        """Whether each pair of clients has its own reference."""
        return self.projection is not None and self.reference == "pair"

    def references(self, others: int) -> int:
        """Return the number of references of a client compared with ``others``."""
        return others if self._by_pair() else 1

    def _drawn(self, z: np.ndarray) -> np.ndarray:
        """Draw at most ``max_samples`` rows, in order, by the number of rows only."""
        most = int(self.max_samples)
        if len(z) <= most:
            return z
        rng = stream(int(self.random_state), "method", SAMPLES, len(z))
        return z[np.sort(rng.choice(len(z), most, replace=False))]


def _size_below_0(distance: np.ndarray) -> float:
    """Return the root mean square of the distances below 0, which are chance.

    ``distance`` (M, M) may be NaN if it is unknown.
    """
    below = distance[distance < 0]
    if not len(below):
        return 0.0
    return math.sqrt(np.mean(below**2))


def farther(distance: np.ndarray) -> np.ndarray:
    """Return the larger of the two directions for every pair, and at least 0.

    Parameters
    ----------
    distance : ndarray, shape (M, M)
        D, NaN if it was not measured.

    Returns
    -------
    ndarray, shape (M, M)
        Symmetric, with diagonal 0; infinite if a direction was not measured.

    Examples
    --------
    >>> farther(np.array([[0, -0.1], [0.2, 0]])).tolist()
    [[0.0, 0.2], [0.2, 0.0]]
    """
    far = np.maximum(np.maximum(distance, distance.T), 0.0)
    far[np.isnan(far)] = np.inf
    np.fill_diagonal(far, 0.0)
    return far


def cosine_cost(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosine distances, from 0 to 2, of the rows of two arrays.

    A row of zeros has distance 0 to another such row, and 1 to all other rows.

    Parameters
    ----------
    a, b : ndarrays, shapes (n, d) and (m, d)

    Returns
    -------
    ndarray, shape (n, m)

    Examples
    --------
    >>> cosine_cost(
    ...     np.array([[2.0, 0.0]]), np.array([[1.0, 0.0], [-3.0, 0.0]])
    ... ).tolist()
    [[0.0, 2.0]]
    """
    unit_a, zero_a = _unit(a)
    unit_b, zero_b = _unit(b)
    cost = np.clip(1.0 - unit_a @ unit_b.T, 0.0, FARTHEST)
    cost[np.ix_(zero_a, zero_b)] = 0.0
    return cost


def earth_mover(
    a: np.ndarray,
    b: np.ndarray,
    kind: str = "exact",
    regularisation: float = 0.1,
    n_directions: int = 256,
    seed: int = 0,
) -> float:
    """Return the earth mover's distance of two sets of samples with equal weights.

    Parameters
    ----------
    a, b : ndarrays, shapes (n, d) and (m, d)
    kind : {"exact", "sinkhorn", "sliced"}
        As the option ``distance`` of :class:`EMDClustering`.
    regularisation, n_directions, seed
        Its options ``regularisation``, ``n_directions`` and ``random_state``.
    """
    if kind == "sliced":
        return _sliced(a, b, n_directions, seed)
    cost = cosine_cost(a, b)
    if kind == "exact":
        return uniform_cost(cost, MOST_STEPS)
    return sinkhorn_cost(cost, regularisation)


def _sliced(a: np.ndarray, b: np.ndarray, n_directions: int, seed: int) -> float:
    """Return half the squared distance of unit vectors, from random directions.

    For unit vectors this is the cosine distance; each direction has 1 / d of it.
    """
    import ot

    d = a.shape[1]
    directions = stream(seed, "method", DIRECTIONS).normal(size=(d, n_directions))
    directions /= np.linalg.norm(directions, axis=0)
    unit_a, _ = _unit(a)
    unit_b, _ = _unit(b)
    moved = ot.sliced_wasserstein_distance(unit_a, unit_b, projections=directions, p=2)
    return float(moved**2 * d / 2)


def projection_matrix(width: int, kept: int, seed: int, i: int, j: int) -> np.ndarray:
    """Return the Gaussian matrix (width, kept) of the pair i, j, equal for (j, i)."""
    rng = stream(seed, "method", PROJECTION, min(i, j), max(i, j))
    matrix = rng.standard_normal((width, kept), dtype=PROJECTION_TYPE)
    return matrix / PROJECTION_TYPE(math.sqrt(kept))


def first_gap(far: np.ndarray, chance: float) -> float:
    """Return the middle of the first wide gap in the sorted distances, a tolerance.

    ``chance`` is the size of distances without meaning. A gap is wide if the next
    distance plus ``chance`` is at least twice the last one; there may be a gap below
    the smallest distance (every client alone). The first gap that leaves separate
    complete blocks is taken, otherwise the widest; if no gap is wide, all clients are
    one cluster.

    Parameters
    ----------
    far : ndarray, shape (M, M)
        As :func:`farther` returns it.
    chance : float
        Size of distances that are only chance.

    Examples
    --------
    >>> far = np.array([[0.0, 0.01, 0.4], [0.01, 0.0, 0.5], [0.4, 0.5, 0.0]])
    >>> round(first_gap(far, 0.02), 3)
    0.092
    """
    chance = max(chance, 1e-12)
    values = far[np.triu_indices(len(far), 1)]
    known = np.sort(values[np.isfinite(values)])
    shifted = np.concatenate([[0.0], known]) + chance
    below = shifted[:-1]
    above = shifted[1:]
    fold = above / below
    middle = np.sqrt(above * below) - chance  # the geometric mean of both sides

    wide = np.flatnonzero(fold >= FOLD)
    if not len(wide):
        return float(shifted[-1])

    # clients that were measured from another one, not only from themselves
    measured = np.isfinite(far).sum(axis=1) > 1
    known_far = far[np.ix_(measured, measured)]
    for k in wide:
        if are_blocks(known_far < middle[k]):
            return float(middle[k])
    return float(middle[fold.argmax()])


def _unit(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows scaled to length 1, and which rows are zero and stay so."""
    z = np.asarray(z, dtype=np.float64)
    norm = np.linalg.norm(z, axis=1, keepdims=True)
    zero = norm[:, 0] <= 1e-12
    unit = np.divide(z, norm, out=np.zeros_like(z), where=~zero[:, None])
    return unit, zero


def _halves(z: np.ndarray, client: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the training and validation half of a client's samples, in order."""
    if len(z) < 2:
        raise FltnbError(
            f"Client {client} has a single sample, which cannot be halved: {LEAVE_OUT}."
        )
    order = stream(seed, "method", HALVES, len(z)).permutation(len(z))
    middle = len(z) // 2
    return z[np.sort(order[middle:])], z[np.sort(order[:middle])]
