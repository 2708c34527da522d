"""One-shot clustering of clients by earth mover's distances between their embeddings (EMD-CFL)."""

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Literal

import numpy as np
from joblib import Parallel, delayed
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Positive, Within
from .base import ClientClusterer, Sketch, check_clients
from .cuts import canonical, cut

FARTHEST = 2.0  # largest cosine distance
MOST_STEPS = 10_000_000  # of the transport solver: far more than 512 samples can need
SINKHORN_STEPS, SINKHORN_STOP = (
    1000,
    1e-6,
)  # POT's own limit; a plan that is not quite done by then will do
FOLD, CHANCE = (
    2.0,
    0.1,
)  # tolerance="auto": factor that makes a gap; least chance, as a share of the median reference
SAMPLES, HALVES, PROJECTION, DIRECTIONS = range(4)  # keys of the draws
Validation = Sequence[Sequence[np.ndarray]] | Callable[[int], Sequence[np.ndarray]]


class EMDClustering(ClientClusterer):
    r"""Cluster clients by earth mover's distances of their embeddings (EMD-CFL, arXiv 2506.07769, Algorithm 1).

    Client i's encoder :math:`h_i` (its own model without the last layer) embeds its training samples and, as models are
    exchanged, everybody's validation samples. With W their earth mover's distance, of cosine cost and uniform weights,

    .. math:: D_{ij} = W(h_i(\text{train}_i), h_i(\text{val}_j)) - W(h_i(\text{train}_i), h_i(\text{val}_i)),

    so D is 0, up to chance, where j's samples are no farther from i's than i's own. Two clients are connected if *both*
    directions are below the tolerance; clients with the same neighbours share a model.

    Parameters
    ----------
    tolerance : float or "auto"
        epsilon; the paper has 0.025. It is a difference of cosine distances, whose scale grows with local training. 0
        leaves every client alone (a distance below 0 is chance and counts as 0). "auto", not in the paper: from the
        distances (:func:`first_gap`), of which those below 0 show what chance does.
    projection : float or None
        What a pair of clients sends is projected at random from d to ``projection * d`` dimensions, by a matrix that
        only the pair knows; None sends embeddings as they are.
    reference : {"pair", "client"}
        "pair": a client measures its reference with the matrix of each pair, so that what it does to W cancels.
        "client": once, without projection; half the time, twice the noise, a bias. The paper can be read either way.
    max_samples : int, most training, and most validation, samples of a client that are compared, drawn at random
    distance : {"exact", "sinkhorn", "sliced"}
        How W is computed. "sinkhorn": cost of the plan with entropic regularisation. "sliced": random directions on
        the unit sphere, squared 2-Wasserstein distance times d / 2, a quick lower bound of the exact one.
    regularisation, n_directions : float, int, of "sinkhorn" (the paper has 0.1), and of "sliced"
    n_clusters : int or None, not in the paper: where ``linkage_`` is cut, in place of the tolerance
    random_state, n_jobs : seed of samples, projections and directions; processes over rows

    Attributes
    ----------
    distance_ : ndarray (M, M), D; row i under encoder i, not symmetric, small negative values are chance
    reference_ : ndarray (M,), what was subtracted in row i, on average; tolerance_ : float, what was used
    linkage_ : ndarray (M - 1, 4), complete, of the larger of the two directions
    sent_ : ndarray (M,), numbers each client sends: embeddings for every pair, and its reference. Models come on top.
    """

    tolerance: float | str = 0.025
    projection: Annotated[float, Within(high=1.0, above=True)] | None = 0.9
    reference: Literal["pair", "client"] = "pair"
    max_samples: Count = 512
    distance: Literal["exact", "sinkhorn", "sliced"] = "exact"
    regularisation: Positive = 0.1
    n_directions: Count = 256
    n_clusters: Count | None = None
    random_state: Natural = 0
    n_jobs: int | None = None

    def _check_options(self, n_clients: int) -> None:
        super()._check_options(n_clients)
        number = isinstance(self.tolerance, numbers.Real) and not isinstance(
            self.tolerance, bool
        )
        if self.tolerance != "auto" and not (
            number and 0 <= self.tolerance <= FARTHEST
        ):
            asked = f'"auto" or a cosine distance from 0 to {FARTHEST:g}, such as 0.025'
            raise FltnbError(f"tolerance must be {asked}, got {self.tolerance!r}.")

    def sketches(
        self, X: Sequence[np.ndarray], y: Validation | None = None, first: int = 0
    ) -> list[Sketch]:
        """Rows i of D, ``distance`` (M - 1,) to the others and ``reference`` (1,); ``_sent`` counts what that takes.

        Of training samples ``X[i]`` (n_i, d) under their own encoders. In the paper the server computes them.
        ``y[i][j]`` (v_j, d) are validation samples of client j under the encoder of client i; a callable returns
        ``y[i]`` for i, once, so that M x M embeddings need not be in memory. None: all clients share one encoder, and a
        random half of each client's samples plays the part of its validation samples.
        """
        count, width = len(X), X[0].shape[1]
        if y is None:
            halves = [_halves(x, i, int(self.random_state)) for i, x in enumerate(X)]
            X, held_out = [a for a, _ in halves], [b for _, b in halves]
            y = lambda i: held_out  # noqa: E731
        elif not callable(y):
            if len(y) != count:
                raise FltnbError(
                    f"Give validation embeddings under the encoders of all {count} clients, not {len(y)}."
                )
            y = list(y).__getitem__

        def checked(i: int) -> list[np.ndarray]:
            rows, what = (
                list(y(i)),
                f"validation embeddings under the encoder of client {i}",
            )
            if len(rows) != count:
                raise FltnbError(
                    f"There are {what} of {len(rows)} clients, not {count}: give one array per client."
                )
            return check_clients(rows, what, width)

        rows = map(checked, range(count))
        known = next(rows)  # before any work
        tasks = (
            (i, x, dict(enumerate(v)))
            for i, (x, v) in enumerate(zip(X, chain([known], rows), strict=True))
        )
        return self._rows(tasks, [*map(len, X)], [*map(len, known)], width)

    def sketch(
        self, x: np.ndarray, validation: Sequence[np.ndarray], client: int = 0
    ) -> Sketch:
        """Row of one client, of training samples (n_i, d) and everybody's validation samples (v_j, d).

        All under its own encoder; what :meth:`sketches` returns for it.
        """
        sizes = [*map(len, validation)]
        return self._rows(
            [(client, x, dict(enumerate(validation)))],
            [len(x)] * len(sizes),
            sizes,
            x.shape[1],
        )[client]

    def _rows(
        self, tasks: Iterable, trained: list[int], held: list[int], width: int
    ) -> list[Sketch]:
        """Sketches of all clients, with the rows of those that have a task, by numbers of samples of all."""
        count = len(held)
        distance, reference = np.zeros((count, count)), np.zeros(count)
        self.measure(tasks, distance, reference)
        compared = sum(
            np.minimum(sizes, int(self.max_samples)) for sizes in (trained, held)
        )
        sent = (count - 1) * compared * self.sent_width(width) + self.references(
            count - 1
        )
        rows = zip(distance, reference[:, None], sent[:, None], strict=True)
        return [
            {"distance": np.delete(d, i), "reference": r, "_sent": s}
            for i, (d, r, s) in enumerate(rows)
        ]

    def _relate(self, sketches, answers) -> None:
        count = len(sketches)
        self.sent_ = np.concatenate([sketch["_sent"] for sketch in sketches])
        distance = np.zeros((count, count))
        distance[~np.eye(count, dtype=bool)] = np.concatenate(
            [sketch["distance"] for sketch in sketches]
        )
        self.reference_ = np.concatenate([sketch["reference"] for sketch in sketches])
        adjacency, labels, self.tolerance_ = self.connect(distance, self.reference_)
        tree = scipy_linkage(squareform(farther(distance), checks=False), "complete")
        self._keep(
            distance,
            tree,
            *(
                (cut(tree, self.n_clusters),)
                if self.n_clusters
                else (labels, adjacency)
            ),
        )

    def measure(
        self,
        tasks: Iterable[tuple[int, np.ndarray, Mapping[int, np.ndarray]]],
        distance,
        reference,
    ) -> None:
        """Write into D (M, M) and references (M,). Tasks are taken as processes (``n_jobs``) become free.

        A task is client i, training samples (n_i, d) and, by client j, validation samples (v_j, d), under i's encoder.
        """
        bare, few = clone(self), self._drawn
        work = (
            delayed(bare._row)(i, few(x), {j: few(z) for j, z in held.items()})
            for i, x, held in tasks
        )
        for i, known, own in Parallel(
            n_jobs=self.n_jobs or None, return_as="generator"
        )(work):
            distance[i][[*known]], reference[i] = [*known.values()], own

    def _row(
        self, i: int, train: np.ndarray, validation: Mapping[int, np.ndarray]
    ) -> tuple[int, dict, float]:
        seed, share = int(self.random_state), self.projection
        how = (self.distance, self.regularisation, int(self.n_directions), seed)
        with threadpool_limits(
            1
        ):  # so that the last bit does not depend on the machine's cores
            paired = share is not None and self.reference == "pair"
            own = [] if paired else [earth_mover(train, validation[i], *how)]
            distance = {i: 0.0}
            for j, z in validation.items():
                if j == i:
                    continue
                a, b, c = train, z, validation[i]
                if share is not None:
                    matrix = projection_matrix(
                        train.shape[1], self.sent_width(train.shape[1]), seed, i, j
                    )
                    a, b, c = a @ matrix, b @ matrix, c @ matrix
                if paired:
                    own.append(earth_mover(a, c, *how))
                distance[j] = earth_mover(a, b, *how) - own[-1]
        return i, distance, float(np.mean(own))

    def connect(
        self, distance: np.ndarray, reference: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return adjacency (M, M), labels (M,) and tolerance, of D (M, M), NaN where unknown, and ``reference_``."""
        far = farther(distance)
        if self.tolerance == "auto":
            below = distance[
                np.isfinite(distance) & (distance < 0)
            ]  # half of what chance does, and nothing else
            seen = math.sqrt(np.mean(below**2)) if len(below) else 0.0
            tolerance = first_gap(
                far, max(seen, CHANCE * float(np.nanmedian(reference)))
            )
        else:
            tolerance = float(self.tolerance)
        adjacency = (far < tolerance).astype(np.uint8)
        np.fill_diagonal(adjacency, 1)
        return (
            adjacency,
            canonical(np.unique(adjacency, axis=0, return_inverse=True)[1].reshape(-1)),
            tolerance,
        )

    def sent_width(self, width: int) -> int:
        """Numbers sent per embedding of ``width`` dimensions; of a projected one their share, rounded down, or 1."""
        return (
            width
            if self.projection is None
            else max(1, int(self.projection * width + 1e-9))
        )

    def references(self, others: int) -> int:
        """Count the references that a client sends which is compared with so many others."""
        return others if self.projection is not None and self.reference == "pair" else 1

    def _drawn(self, z: np.ndarray) -> np.ndarray:
        """At most ``max_samples`` rows, in their order; the draw depends on the number of rows alone."""
        if len(z) <= (most := int(self.max_samples)):
            return z
        kept = stream(int(self.random_state), "method", SAMPLES, len(z)).choice(
            len(z), most, replace=False
        )
        return z[np.sort(kept)]


def farther(distance: np.ndarray) -> np.ndarray:
    """Larger of the two directions for every pair, (M, M), at least 0, diagonal 0; infinite where not measured."""
    far = np.maximum(np.maximum(distance, distance.T), 0.0)
    far[np.isnan(far)] = np.inf
    np.fill_diagonal(far, 0.0)
    return far


def cosine_cost(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine distances (n, m), 0 to 2, of rows; one of zeros is at 0 from another, at 1 from everything else."""
    (a, dark), (b, dark_too) = _unit(a), _unit(b)
    cost = np.clip(1.0 - a @ b.T, 0.0, FARTHEST)
    cost[np.ix_(dark, dark_too)] = 0.0
    return cost


def earth_mover(
    a: np.ndarray,
    b: np.ndarray,
    kind: str = "exact",
    regularisation=0.1,
    n_directions=256,
    seed=0,
):
    """Earth mover's distance of two samples (n, d), (m, d); ``kind`` and the rest are options of EMDClustering."""
    import ot

    if kind == "sliced":
        # On unit vectors the cosine distance is half the squared Euclidean one, of which a random direction sees 1 / d.
        a, b = _unit(a)[0], _unit(b)[0]
        directions = stream(seed, "method", DIRECTIONS).normal(
            size=(a.shape[1], n_directions)
        )
        directions /= np.linalg.norm(directions, axis=0)
        return float(
            ot.sliced_wasserstein_distance(a, b, projections=directions, p=2) ** 2
            * a.shape[1]
            / 2
        )
    cost = cosine_cost(a, b)
    if kind == "exact":
        return float(
            ot.emd2(ot.unif(len(a)), ot.unif(len(b)), cost, numItermax=MOST_STEPS)
        )
    plan = ot.sinkhorn(
        [],
        [],
        cost,
        regularisation,
        numItermax=SINKHORN_STEPS,
        stopThr=SINKHORN_STOP,
        warn=False,
    )
    return float((plan * cost).sum())


def projection_matrix(width: int, kept: int, seed: int, i: int, j: int) -> np.ndarray:
    """Gaussian matrix (d, k) for k dimensions kept, which clients i and j agree on; the same for (j, i)."""
    rng = stream(seed, "method", PROJECTION, min(i, j), max(i, j))
    return rng.standard_normal((width, kept), dtype=np.float32) / np.float32(
        math.sqrt(kept)
    )


def first_gap(far: np.ndarray, chance: float) -> float:
    """Tolerance from the distances themselves: the middle of the first wide gap in their sorted order.

    A gap is wide if the next distance, ``chance`` (the size of distances that mean nothing) added, is at least twice
    the last one; there may be one below the smallest (everybody alone). Taken is the first that leaves separate
    complete blocks, else the widest; where none is wide, the clients are one cluster. ``far`` (M, M): :func:`farther`.

    Examples
    --------
    >>> far = np.array([[0.0, 0.01, 0.4], [0.01, 0.0, 0.5], [0.4, 0.5, 0.0]])
    >>> round(first_gap(far, 0.02), 3)
    0.092
    """
    chance = max(chance, 1e-12)
    values = far[np.triu_indices(len(far), 1)]
    shifted = np.concatenate([[0.0], np.sort(values[np.isfinite(values)])]) + chance
    fold = shifted[1:] / shifted[:-1]
    middle = np.sqrt(shifted[1:] * shifted[:-1]) - chance
    wide = np.flatnonzero(fold >= FOLD)
    known = np.isfinite(far).sum(axis=1) > 1
    near = far[np.ix_(known, known)]
    for k in wide:
        graph = near < middle[k]
        if (
            (graph.astype(np.float32) @ graph > 0) == graph
        ).all():  # neighbours' neighbours are neighbours
            return float(middle[k])
    return float(middle[fold.argmax()] if len(wide) else shifted[-1])


def _unit(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    z = np.asarray(z, dtype=np.float64)
    norm = np.linalg.norm(z, axis=1, keepdims=True)
    dark = norm[:, 0] <= 1e-12
    return np.divide(z, norm, out=np.zeros_like(z), where=~dark[:, None]), dark


def _halves(z: np.ndarray, client: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if len(z) < 2:
        raise FltnbError(
            f"Client {client} has a single sample, which cannot be halved: leave it out."
        )
    order = stream(seed, "method", HALVES, len(z)).permutation(len(z))
    return z[np.sort(order[len(z) // 2 :])], z[np.sort(order[: len(z) // 2])]
