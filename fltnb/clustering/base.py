"""The common part of all one-shot clusterers: sketches, checks and results."""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.cluster.hierarchy import leaves_list
from sklearn.base import BaseEstimator, ClusterMixin, clone
from threadpoolctl import threadpool_limits

from ..arrays import as_array
from ..errors import FltnbError, lost_processes
from ..metrics import adjusted_rand_index
from ..progress import bar
from ..settings import checked
from .cuts import relabel

Sketch = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int | None, ...]]
LARGEST = 1e15  # its square, times many samples, is still a finite float32
FAR = 2.0  # a cluster fits up to this multiple of its members' mean distance
NONE_FITS = -1  # answers of ``place``
SEVERAL_FIT = -2
# what to do about a client with too few samples; the name of the federations' option
LEAVE_OUT = "leave it out (min_samples= where the federation is made)"
SMALLEST = 1e-9  # of a client's largest value; smaller squares are lost in rounding


class ClientClusterer(ClusterMixin, BaseEstimator):
    """Base of the one-shot clusterers: clients send sketches, the server clusters them.

    ``fit(X)`` simulates both: it is ``fit_sketches(sketches(X))``.

    - ``sketch(x, client=i)`` computes what one client sends, from its own data alone: a
      dict of arrays. Random numbers depend on ``random_state`` and at most on the
      client's number. Names that begin with ``_`` stay in the simulation and are not
      sent.
    - ``fit_sketches`` is the server's part.
    - Two classes need a second exchange. ``EigenRelevance``: the server sends all
      sketches to all clients (``relay``), and ``fit_sketches`` also takes the clients'
      answers (``compare``). ``EMDClustering``: clients first exchange networks; the
      sketch of client i contains the distances of all clients' samples under its
      network.

    Annotated attributes of a class are its options, in the order of its signature.
    ``fit`` and ``sketch`` check them before any computation.

    Parameters
    ----------
    n_clusters, max_clusters : int or None
        Number of clusters, and an upper limit if the class chooses the number itself.
    random_state : int
        Seed of all draws.
    n_jobs : int or None
        Processes or threads (joblib) over the clients, None: one; no effect on the
        result.
    epsilon, delta, clip : float or None
        With ``epsilon``, the sketch of a client is (epsilon, delta) differentially
        private with respect to replacing one of its samples, clipped to norm ``clip``,
        for one fit. ``clip`` must then be given. The number of samples is not hidden.
        ``clip`` and the embedding must not depend on clients' data. The seed is secret;
        the generator is not cryptographic.

    Attributes
    ----------
    labels_ : ndarray of int64, shape (M,)
        Cluster of each client, numbered 0, 1, ... in order of first appearance.
    n_clusters_ : int
    adjacency_ : ndarray of uint8, shape (M, M)
        The client graph, symmetric with diagonal 1. If a class has none, clients of one
        cluster are linked.
    distance_ : ndarray, shape (M, M)
        Distances of the clients, as the class defines them; diagonal 0.
    linkage_ : ndarray, shape (M - 1, 4)
        The dendrogram, as SciPy's ``linkage``.
    leaf_order_ : ndarray, shape (M,)
        The clients in the order of the dendrogram's leaves, for pictures.
    sent_, received_ : ndarrays of int64, shape (M,)
        How many numbers each client sends and receives.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> fcr = fl.FCR(k=3, n_neighbors=None)
    >>> sketches = [fcr.sketch(x[i], client=i) for i in range(6)]  # on the clients
    >>> fcr.fit_sketches(sketches).labels_.tolist()  # on the server
    [0, 0, 1, 1, 2, 2]
    """

    content = "embeddings"  # the name of the clients' arrays in errors
    labelled = False  # whether ``y`` are the classes of all samples
    # The arrays of a sketch, or of an answer to the others' sketches, by name, with
    # their shapes; None: any length. A class that does not say is not checked by it.
    sketch_shapes: ClassVar[Shapes] = {}
    answer_shapes: ClassVar[Shapes] = {}
    per_task = 32  # clients of one task of joblib
    # "threads" if the computation runs outside the interpreter
    prefer: ClassVar[str | None] = None

    def __init_subclass__(cls, **more) -> None:
        super().__init_subclass__(**more)
        dataclass(cls, eq=False, repr=False)

    def check(self, sizes: Sequence[int]) -> None:
        """Refuse (FltnbError) options that cannot work for clients of these sizes."""
        self.check_options(len(sizes))
        self._check_sizes(sizes)

    def _check_sizes(self, sizes: Sequence[int]) -> None:
        for client, size in enumerate(sizes):
            self._check_size(size, client)

    def _check_size(self, size: int, client: int) -> None:
        """Refuse a client's number of samples, if the class needs more."""

    def too_small(self, sizes: Sequence[int]) -> list[int]:
        """Return the numbers of clients with too few samples for these options.

        ``sizes`` (M,): training samples of each client.
        """
        found = []
        for client, size in enumerate(sizes):
            try:
                self._check_size(int(size), client)
            except FltnbError:
                found.append(client)
        return found

    def _check_values(self) -> dict[str, Any]:
        """Return the options, or refuse those that no number of clients makes right.

        A client that computes its sketch alone calls it as well: what it would send
        with a wrong ``epsilon``, ``delta`` or ``clip`` is not private.
        """
        options = checked(type(self), self.get_params(deep=False), type(self).__name__)
        if options.get("epsilon") is not None and options["clip"] is None:
            raise FltnbError(
                "A private release needs clip, the largest norm of a sample, chosen "
                "without looking at the data."
            )
        return options

    def check_options(self, n_clients: int) -> None:
        """Refuse (FltnbError) options that cannot work for so many clients."""
        options = self._check_values()
        if n_clients < 2:
            raise FltnbError(
                f"Clustering needs at least 2 clients, got {n_clients}: pass a list "
                "with one array for each client."
            )
        for name in ("n_clusters", "max_clusters"):
            asked = options.get(name)
            if asked is not None and asked > n_clients:
                raise FltnbError(
                    f"{name} must be from 1 to the number of clients, {n_clients}, "
                    f"got {asked}."
                )

    def _checked(self, x: np.ndarray, client: int) -> np.ndarray:
        """Return one client's samples, or refuse what ``fit`` would refuse.

        Options are checked, too: ``sketch`` may be all that a client calls.
        """
        self._check_values()
        (x,) = check_clients([x], self.content, first=client)
        self._check_size(len(x), client)
        return x

    def _classes(self, X: Sequence[np.ndarray], y) -> list[np.ndarray]:
        """Return every client's classes (n_i,), or refuse them; all 0 without ``y``."""
        if y is None:
            y = [np.zeros(len(x), dtype=np.int64) for x in X]
        classes = [np.asarray(one) for one in y]
        shapes = [one.shape for one in classes]
        one_each = [(len(x),) for x in X]
        if shapes != one_each:
            raise FltnbError(
                f"{type(self).__name__} needs one class for every sample of every "
                "client: y must be as long as X."
            )
        for client, one in enumerate(classes):
            if (one != one).any():  # NaN is the one value that differs from itself
                raise FltnbError(
                    f"Some classes of client {client} are NaN: leave these samples out."
                )
        return classes

    def fit(self, X: Sequence[np.ndarray], y=None) -> Self:
        """Cluster the clients.

        Parameters
        ----------
        X : sequence of M arrays, shapes (n_i, d)
            Each client's embeddings, features or pixels, as the class says.
        y : optional
            Second argument of :meth:`sketches`: classes (of a ``labelled`` clusterer),
            validation samples (EMDClustering), or nothing.

        Raises
        ------
        FltnbError
            Options or arrays cannot work; the client is named.
        """
        X = check_clients(X, self.content)
        self.check([len(x) for x in X])
        sketches = self.sketches(X, y)
        return self.fit_sketches(sketches, self._answers(X, sketches))

    def fit_predict(self, X: Sequence[np.ndarray], y=None) -> np.ndarray:
        """Return the labels of ``fit(X, y)``; scikit-learn's own would drop ``y``."""
        return self.fit(X, y).labels_

    def _answers(self, X: list[np.ndarray], sketches: list[Sketch]) -> Sequence[Sketch]:
        """Return the answers of a second exchange, if the class has one."""
        return ()

    def sketches(
        self, X: Sequence[np.ndarray], y: None = None, first: int = 0
    ) -> list[Sketch]:
        """Compute what the clients send.

        Parameters
        ----------
        X : sequence of arrays, shapes (n_i, d)
        y : None
            Further data, which some classes need.
        first : int
            Number of the first of these clients; newcomers have higher numbers.

        Returns
        -------
        list of dict
            A sketch for each client.
        """
        return self._each("sketch", zip(X), first)

    def fit_sketches(
        self, sketches: Sequence[Sketch], answers: Sequence[Sketch] = ()
    ) -> Self:
        """Cluster clients by their sketches.

        Parameters
        ----------
        sketches : sequence of M sketches
            In the order of the clients' numbers.
        answers : sequence of M sketches
            Those of a second exchange, if the class has one.

        Raises
        ------
        FltnbError
            Options do not fit the number of clients, or a sketch is not one of this
            class, is unlike most others, or has NaN or infinite values; the client is
            named.
        """
        check_list(sketches)
        self.check_options(len(sketches))
        self._check_sketches(sketches, self.sketch_shapes)
        if self.answer_shapes and len(answers) != len(sketches):
            raise FltnbError(
                f"{type(self).__name__} needs a second exchange: give answers, what "
                "compare returns for every client."
            )
        self._check_sketches(answers, self.answer_shapes)
        self.sent_ = np.array([n_scalars(sketch) for sketch in sketches])
        if answers:
            self.sent_ += [n_scalars(answer) for answer in answers]
        self._bytes = np.array([sketch_bytes(sketch) for sketch in sketches])
        if answers:
            self._bytes += [sketch_bytes(answer) for answer in answers]
        self.received_ = np.zeros(len(sketches), dtype=np.int64)
        # newcomers' must be alike: they send what is compared last
        last = answers if self.answer_shapes else sketches
        self._widths = widths(last[0])
        self._relate(sketches, answers)
        return self

    def _check_sketches(self, sketches: Sequence[Sketch], shapes: Shapes) -> None:
        """Refuse sketches that are none of this class, or are unlike most others.

        ``shapes``: their arrays, as in ``sketch_shapes``.
        """
        for client, sketch in enumerate(sketches):
            fault = _unlike(sketch, shapes)
            if fault:
                raise FltnbError(
                    f"Client {client} sent {fault}: give what the methods of "
                    f"{type(self).__name__} return, one for each client."
                )
        # one client with another encoder must not make all others wrong
        count = Counter(widths(sketch) for sketch in sketches)
        usual = max(count, key=count.__getitem__, default=())
        for client, sketch in enumerate(sketches):
            fault = fault_of(sketch, usual)
            if fault:
                raise FltnbError(
                    f"Client {client} {fault}: check its samples, their scale and "
                    "width, and give all clients the same options."
                )

    def bytes_sent(self) -> np.ndarray:
        """Return the bytes that each client sent, int64 (M,), answers included.

        In the types of the arrays that it sent, as :func:`sketch_bytes` counts them;
        ``sent_`` counts numbers, whatever their type.

        Raises
        ------
        FltnbError
            The clusterer is not fitted, or is a stored result, which has no sketches.

        Examples
        --------
        >>> import fltnb as fl
        >>> x = [np.eye(4), 2 * np.eye(4), 3 * np.eye(4)]
        >>> fl.clustering.MeanImage().fit(x).bytes_sent().tolist()  # float64
        [32, 32, 32]
        """
        self._check_fitted("_bytes")
        return self._bytes

    def stability(self, X: Sequence[np.ndarray], y=None, n_seeds: int = 5) -> float:
        """Return the mean adjusted Rand index of clusterings that differ in the seed.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.
        n_seeds : int
            Number of seeds, at least 2; ``random_state`` is the first.

        Returns
        -------
        float
            1: the seed has no effect.

        Raises
        ------
        FltnbError
            The class has no randomness, or there is one seed only; or an error of
            :meth:`fit`.
        """
        if n_seeds < 2:
            raise FltnbError(
                f"One seed has nothing to be compared with: give n_seeds of 2 or more, "
                f"not {n_seeds}."
            )
        if not hasattr(self, "random_state"):
            raise FltnbError(
                f"{type(self).__name__} draws nothing at random, so its clusters do "
                "not depend on a seed: leave stability out."
            )
        found = []
        for seed in range(self.random_state, self.random_state + n_seeds):
            again = clone(self).set_params(random_state=seed)
            found.append(again.fit_predict(X, y))
        pairs = [adjusted_rand_index(a, b) for a, b in combinations(found, 2)]
        return float(np.mean(pairs))

    def _warn_if_all_alone(self, option: str) -> None:
        """Warn of a threshold that leaves every client alone."""
        n_clients = len(self.labels_)
        if n_clients < 3 or self.n_clusters_ < n_clients:
            return
        apart = self.distance_[~np.eye(n_clients, dtype=bool)]
        warnings.warn(
            f"At {option} every client is alone: their distances run from "
            f"{apart.min():.3g} to {apart.max():.3g}. Raise it, or give n_clusters.",
            stacklevel=5,
        )

    def place(self, X: Sequence[np.ndarray], y=None) -> np.ndarray:
        """Place newcomers without clustering again.

        Parameters
        ----------
        X, y
            Arguments as for :meth:`fit`, for n newcomers.

        Returns
        -------
        ndarray of int64, shape (n,)
            The number of a cluster for each; -1 if none fits. Unless a class says
            otherwise, none fits if the newcomer's mean distance from every cluster is
            more than twice the largest mean distance of a client from the others of its
            own cluster. Some classes return -2 if several fit.

        Raises
        ------
        FltnbError
            The clusterer is not fitted, or arrays differ in form from those of ``fit``.
        """
        self._check_fitted()
        first = len(self.labels_)
        X = check_clients(X, self.content, first=first)
        return self.place_sketches(self.sketches(X, y, first))

    def place_sketches(self, sketches: Sequence[Sketch]) -> np.ndarray:
        """Place newcomers by their sketches; see :meth:`place`."""
        self._check_fitted()
        self._check_newcomers(sketches)
        if not sketches:
            return np.zeros(0, dtype=np.int64)
        far = self._newcomers(sketches)
        own = _to_own_cluster(self._members(), self.labels_)
        limit = max(FAR * max(own), 1e-12) if own else np.inf

        members = self.labels_[:, None] == np.arange(self.n_clusters_)  # (M, C)
        means = far @ members / members.sum(axis=0)  # (n, C)
        nearest = means.argmin(axis=1)
        fits = means.min(axis=1) <= limit
        return np.where(fits, nearest, NONE_FITS)

    def _check_fitted(self, needed: str = "labels_") -> None:
        """Refuse (FltnbError) operations that need fitted clients.

        ``needed``: the attribute, which a stored result may lack.
        """
        if hasattr(self, needed):
            return
        if hasattr(self, "labels_"):
            raise FltnbError(
                f"This {type(self).__name__} comes from a stored result, which has "
                "no sketches: fit it again to place newcomers or to count bytes."
            )
        raise FltnbError(f"This {type(self).__name__} is not fitted: call fit first.")

    def _check_newcomers(self, sketches: Sequence[Sketch]) -> None:
        """Refuse what is no list of sketches of this class, or not as wide as before.

        A stored result does not know the width.
        """
        check_list(sketches)
        self._check_sketches(sketches, self.answer_shapes or self.sketch_shapes)
        usual = getattr(self, "_widths", None)
        for number, sketch in enumerate(sketches):
            if usual is not None and widths(sketch) != usual:
                raise FltnbError(
                    f"Newcomer {number} sent a sketch of the widths "
                    f"{dict(widths(sketch))}, the clients {dict(usual)}: give samples "
                    "and options like theirs."
                )

    def _members(self) -> np.ndarray:
        """Return distances (M, M) of clients, comparable with :meth:`_newcomers`."""
        return self.distance_

    def _newcomers(self, sketches: Sequence[Sketch]) -> np.ndarray:
        """Return distances (n, M) of newcomers to the clients."""
        raise FltnbError(
            f"{type(self).__name__} cannot place newcomers by a sketch: fit it again "
            "with them."
        )

    def _each(
        self, method: str, items: Iterable[tuple], first: int = 0, **more
    ) -> list:
        """Return the results of a method for every client, in parallel by ``n_jobs``.

        BLAS has one thread, so that results do not depend on the number of cores.

        Parameters
        ----------
        method : str
            It is called with ``client``, the client's number, and the arguments below.
        items : iterable of tuples
            Its positional arguments, one tuple per client.
        first : int
            Number of the first client.
        **more
            Its other arguments, the same for all.
        """
        items = list(items)
        work = getattr(clone(self), method)
        part = delayed(_part)
        tasks = []
        for at in range(0, len(items), self.per_task):
            some = items[at : at + self.per_task]
            tasks.append(part(work, some, first + at, more))
        shown = bar(tasks, desc=f"{type(self).__name__}, {method}")
        parallel = Parallel(n_jobs=self.n_jobs or None, prefer=self.prefer)
        with threadpool_limits(1), lost_processes():
            parts = parallel(shown)
        return list(chain.from_iterable(parts))

    def _keep(self, distance, tree, labels, adjacency=None) -> None:
        """Set the attributes that every clusterer has.

        Parameters
        ----------
        distance : ndarray, shape (M, M)
        tree : ndarray, shape (M - 1, 4)
            SciPy's linkage.
        labels : ndarray, shape (M,)
            Any numbers; clients of one cluster have the same.
        adjacency : ndarray, shape (M, M), optional
            A graph, if the class has one.
        """
        self.distance_ = distance
        self.linkage_ = tree
        self.leaf_order_ = leaves_list(tree).astype(np.int64)
        self.labels_ = relabel(labels)
        self.n_clusters_ = int(self.labels_.max()) + 1

        if adjacency is None:
            adjacency = self.labels_[:, None] == self.labels_
        self.adjacency_ = adjacency.astype(np.uint8)
        np.fill_diagonal(self.adjacency_, 1)

        wanted = getattr(self, "n_clusters", None)
        if wanted is not None and self.n_clusters_ < wanted:
            warnings.warn(
                f"{wanted} clusters were asked for, and the result has "
                f"{self.n_clusters_}: some clients cannot be told apart, and merges of "
                "equal height are not split. Lower the threshold, if there is one, or "
                "n_clusters.",
                stacklevel=5,
            )


@threadpool_limits.wrap(limits=1)  # in the process that does the work
def _part(work, items: list[tuple], first: int, more: Mapping) -> list:
    """Return results of ``work`` for clients ``first``, ``first + 1``, ..."""
    results = []
    for client, item in enumerate(items, first):
        results.append(work(*item, client=client, **more))
    return results


def _to_own_cluster(distance: np.ndarray, labels: np.ndarray) -> list[float]:
    """Return the mean distance of each client to the others of its cluster.

    Clients alone in a cluster are left out. ``distance`` (M, M), ``labels`` (M,).
    """
    means = []
    for i, label in enumerate(labels):
        others = labels == label
        others[i] = False
        if others.any():
            means.append(distance[i, others].mean())
    return means


def of_all(sketches: Sequence[Sketch], name: str) -> list[np.ndarray]:
    """Return the array of this name from every client's sketch."""
    return [sketch[name] for sketch in sketches]


def square(rows: Sequence[np.ndarray], diagonal: float) -> np.ndarray:
    """Return a matrix (M, M) from M rows (M - 1,), a client's values for the others.

    ``diagonal``: the value for a client with itself.
    """
    n_clients = len(rows)
    check_rows(rows, n_clients - 1)
    matrix = np.full((n_clients, n_clients), float(diagonal))
    others = ~np.eye(n_clients, dtype=bool)
    matrix[others] = np.concatenate(rows)
    return matrix


def check_rows(rows: Sequence[np.ndarray], length: int) -> None:
    """Refuse the values that a client sent for others if they are not so many."""
    for client, row in enumerate(rows):
        if len(row) != length:
            raise FltnbError(
                f"Client {client} sent {len(row)} values, not one for each of {length} "
                "clients: sketches must come from one exchange of all clients."
            )


def check_list(sketches: Sequence[Sketch]) -> None:
    """Refuse what is no list; a dict of sketches has no order of its own."""
    if isinstance(sketches, (str, Mapping)) or not isinstance(sketches, Sequence):
        raise FltnbError(
            "Give a list with one sketch for each client, in the order of their "
            f"numbers, not {type(sketches).__name__}."
        )


def _unlike(sketch: Any, shapes: Shapes) -> str:
    """Return why an object is no sketch with arrays of these shapes, or nothing."""
    if not isinstance(sketch, Mapping):
        return f"no dict of arrays but {type(sketch).__name__}"
    for name, array in sketch.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            return f"{name!r} that is no array of numbers"
    for name, shape in shapes.items():
        if name not in sketch:
            return f"a sketch without {name!r}"
        found = sketch[name].shape
        pairs = zip(found, shape, strict=False)
        fits = all(wanted is None or size == wanted for size, wanted in pairs)
        if len(found) != len(shape) or not fits:
            return f"{name!r} of the shape {found}"
    return ""


def _sent(sketch: Sketch) -> list[np.ndarray]:
    """Return the arrays that are sent: names that begin with ``_`` are not."""
    return [array for name, array in sketch.items() if not name.startswith("_")]


def n_scalars(sketch: Sketch) -> int:
    """Count the numbers that are sent with a sketch."""
    return sum(array.size for array in _sent(sketch))


def sketch_bytes(sketch: Sketch) -> int:
    """Return how many bytes a client sends with a sketch, in the types of its arrays.

    Arrays whose names begin with ``_`` are not sent and not counted.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> x = [fed.client(i)[0].reshape(fed.sizes[i], -1) for i in range(6)]
    >>> fl.clustering.sketch_bytes(fl.FCR(k=3).sketch(x[0]))
    768
    """
    return sum(array.nbytes for array in _sent(sketch))


def widths(sketch: Sketch) -> tuple:
    """Return what the sketches of all clients have in common: names and lengths.

    Lengths that may differ are left out: the number of centroids (rows) or of vectors
    (columns). A mean has one length, which must not. What is not sent does not count.
    """
    shared = []
    for name, array in sorted(sketch.items()):
        if name.startswith("_"):
            continue
        lengths = array.shape[1:]
        if name in ("vectors", "mean"):
            lengths = array.shape[:1]
        shared.append((name, lengths))
    return tuple(shared)


def fault_of(sketch: Sketch, usual: tuple, shapes: Shapes | None = None) -> str:
    """Return why a received sketch cannot be used, or an empty string.

    ``usual`` are the :func:`widths` of most other clients; ``shapes``, if given, the
    ``sketch_shapes`` of the clusterer.
    """
    if not sketch:
        return "sent no sketch"
    if widths(sketch) != usual:
        found = dict(widths(sketch))
        return f"sent a sketch of the widths {found}, most others {dict(usual)}"
    if shapes is not None and (fault := _unlike(sketch, shapes)):
        return f"sent {fault}"

    if not _is_finite(sketch):
        return "sent a sketch with NaN or infinite values"
    return ""


def _is_finite(sketch: Sketch) -> bool:
    """Return whether all numbers of a sketch that must be finite are finite."""
    for name, array in sketch.items():
        # the last number of what signatures call "own" is a variance, which a private
        # release does not know
        known = array[:2] if name == "own" else array
        if not np.isfinite(known).all():
            return False
    return True


def check_finite(values: np.ndarray, what: str = "distances") -> None:
    """Refuse values of the server that are NaN or infinite."""
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        raise FltnbError(
            f"The {what} of client {wrong[0][0]} are not finite: bring all samples to "
            "one moderate scale, such as a deviation of 1."
        )


def check_clients(
    clients: Sequence,
    what: str = "embeddings",
    width: int | None = None,
    first: int = 0,
) -> list[np.ndarray]:
    """Return clients' samples as arrays (n_i, d), or refuse them.

    Parameters
    ----------
    clients : sequence of array-likes
    what : str
        The name of the arrays in errors.
    width : int, optional
        The d that all must have; by default that of the first client.
    first : int
        Number of the first client.

    Raises
    ------
    FltnbError
        A client is empty, not two-dimensional, of another width or not finite. It is
        named.
    """
    mends = {
        "Federation": "fl.encoders.embed_clients(fed, spec)",
        "dict": "list(d.values())",
    }
    given = type(clients).__name__
    if given in mends:
        raise FltnbError(
            f"Clustering needs a list with one 2-D array for each client, not a "
            f"{given}: pass {mends[given]}."
        )
    try:
        arrays = [
            as_array(client, f"The {what} of client {i}")
            for i, client in enumerate(clients, first)
        ]
    except TypeError as error:
        raise FltnbError(
            f"Clustering needs one 2-D array of {what} per client ({error})."
        ) from error

    for i, array in enumerate(arrays, first):
        _check_client(array, i, what)
        if width is None:
            width = array.shape[1]
        if array.shape[1] != width:
            raise FltnbError(
                f"Client {i} has {what} of dimension {array.shape[1]}, not {width}: "
                "give all clients the same dimension."
            )
    return arrays


def _check_client(array: np.ndarray, i: int, what: str) -> None:
    """Refuse an array of a client that has no finite numbers (n, d).

    ``what`` it has, for sentences.
    """
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        mend = ": flatten them, x.reshape(len(x), -1)" if array.ndim > 2 else ""
        raise FltnbError(
            f"The {what} of client {i} must be numbers (n, d), "
            f"got {array.dtype} {array.shape}{mend}."
        )
    if not len(array):
        raise FltnbError(
            f"Client {i} has no {what}: leave clients without samples out."
        )
    if not np.isfinite(array).all():
        raise FltnbError(
            f"The {what} of client {i} hold NaN or infinite values: check its data or "
            "its encoder."
        )
    largest = max(float(array.max()), -float(array.min()))
    if largest > LARGEST or 0 < largest < SMALLEST:
        raise FltnbError(
            f"The {what} of client {i} reach {largest:g}, where squares lose their "
            f"digits: divide all clients' {what} by {_round_scale(largest):g}."
        )


def _round_scale(largest: float) -> float:
    """Return the power of ten by which numbers come near 1."""
    return 10.0 ** round(math.log10(largest))
