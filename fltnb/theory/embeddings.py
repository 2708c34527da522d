"""EMD-CFL's inequalities (arXiv 2506.07769, Section 2), both sides as numbers.

Clients hold embeddings z and labels 0 or 1: the paper assumes binary classification. A
hypothesis is a logistic regression on the embeddings, ``h(z) = s(w z + b)``, which is
Lipschitz with ``|w| / 4``. W is the earth mover's distance with the Euclidean distance
as cost: the theory takes a metric, where the method itself takes the cosine distance.

Expectations are means over samples, so that each inequality is exact, not a matter of
chance, wherever its premises hold.
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist, pdist
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from ..clustering.solvers import uniform_cost
from ..errors import FltnbError

Sample = tuple[np.ndarray, np.ndarray]
"""Embeddings (n, d) and labels (n,), 0 or 1."""


def earth_movers(x: np.ndarray, y: np.ndarray) -> float:
    """Return the exact earth mover's distance of two samples, Euclidean cost."""
    return uniform_cost(cdist(x, y), 10_000_000)


def fitted(sample: Sample) -> np.ndarray:
    """Return the weights (d + 1,) of a logistic regression, the last one its bias."""
    model = LogisticRegression(max_iter=1000).fit(*sample)
    return np.append(model.coef_[0], model.intercept_)


def values(theta: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return what a hypothesis says of embeddings (n,), between 0 and 1."""
    return expit(z @ theta[:-1] + theta[-1])


def lipschitz(*thetas: np.ndarray) -> float:
    """Return a Lipschitz constant that hypotheses share."""
    return max(np.linalg.norm(theta[:-1]) / 4 for theta in thetas)


def error(theta: np.ndarray, sample: Sample) -> float:
    """Return the disagreement of a hypothesis with the labels."""
    z, y = sample
    return float(np.abs(values(theta, z) - y).mean())


def gradients(theta: np.ndarray, sample: Sample) -> np.ndarray:
    """Return the gradient of the log loss of each sample (n, d + 1)."""
    z, y = sample
    residuals = values(theta, z) - y
    return residuals[:, None] * np.column_stack([z, np.ones(len(z))])


def steepest(theta: np.ndarray, one: Sample, other: Sample) -> float:
    """Return M: how fast gradients change with embeddings, between two samples.

    The least constant with which Theorem 2.4's premise holds on them. It grows without
    limit as samples of different labels come near.
    """
    apart = cdist(one[0], other[0])
    changed = cdist(gradients(theta, one), gradients(theta, other))
    if (changed[apart == 0] > 0).any():
        return np.inf  # one embedding has both labels
    return float((changed[apart > 0] / apart[apart > 0]).max())


def descended(theta: np.ndarray, sample: Sample, lr: float, steps: int) -> np.ndarray:
    """Return the parameters after steps of full gradient descent."""
    for _ in range(steps):
        theta = theta - lr * gradients(theta, sample).mean(axis=0)
    return theta


def inequalities(
    clients: Sequence[Sample], lr: float = 0.01, steps: int = 10
) -> pd.DataFrame:
    """Compute both sides of Section 2's inequalities for all ordered pairs of clients.

    Returns a DataFrame, one row per pair and statement: ``statement`` ("Lemma 2.1",
    "Theorem 2.2", "Corollary 2.3", "Theorem 2.4", "Corollary 2.5", and "Corollary 2.5,
    several steps", which its premise leaves out), ``i, j``, ``left, right``, ``emd``,
    ``constant`` (L or M). FltnbError: a client has one label only.

    Parameters
    ----------
    clients : embeddings and labels of each
    lr, steps : step size, and number of steps beyond the first of Corollary 2.5
    """
    for number, (_, y) in enumerate(clients):
        if len(np.unique(y)) < 2:
            raise FltnbError(f"Client {number} has one label only: give it both.")
    hypotheses = [fitted(sample) for sample in clients]
    start = np.mean(hypotheses, axis=0)
    distances = np.zeros((len(clients), len(clients)))
    for i, j in permutations(range(len(clients)), 2):
        if i < j:
            distances[i, j] = earth_movers(clients[i][0], clients[j][0])
            distances[j, i] = distances[i, j]

    rows = []
    for i, j in permutations(range(len(clients)), 2):
        pair = (clients[i], clients[j])
        emd = distances[i, j]
        sides = _generalisation(pair, (hypotheses[i], hypotheses[j]), emd)
        sides |= _parameters(pair, start, emd, lr, steps)
        for statement, (left, right, constant) in sides.items():
            row = {"statement": statement, "i": i, "j": j, "left": left}
            rows.append(row | {"right": right, "emd": emd, "constant": constant})
    return pd.DataFrame(rows)


def _generalisation(
    pair: tuple[Sample, Sample], own: tuple[np.ndarray, np.ndarray], emd: float
) -> dict[str, tuple[float, float, float]]:
    """Return both sides, and L, of what Section 2.2 states about two clients.

    The target is the even mixture of both, as far from either as half their distance.
    lambda, the least joint error of any hypothesis, is that of the one fitted to both.
    """
    (one, other), (h, g) = pair, own
    both = np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])
    joint = fitted(both)
    found = {}

    L = lipschitz(h, g)
    here = np.abs(values(h, one[0]) - values(g, one[0])).mean()
    there = np.abs(values(h, other[0]) - values(g, other[0])).mean()
    found["Lemma 2.1"] = there, here + 2 * L * emd, L

    L = lipschitz(h, g, joint)
    on_target = _even(joint, one, other)
    lambdas = error(joint, one) + on_target, error(joint, other) + on_target
    bound = error(h, one) + 2 * L * emd / 2 + lambdas[0]
    found["Theorem 2.2"] = _even(h, one, other), bound, L

    ensemble = []
    for z, y in pair:
        ensemble.append(np.abs((values(h, z) + values(g, z)) / 2 - y).mean())
    bound = (error(h, one) + error(g, other) + sum(lambdas)) / 2 + L * emd
    found["Corollary 2.3"] = float(np.mean(ensemble)), bound, L
    return found


def _even(theta: np.ndarray, one: Sample, other: Sample) -> float:
    """Return the error on the even mixture of two clients."""
    return (error(theta, one) + error(theta, other)) / 2


def _parameters(
    pair: tuple[Sample, Sample], start: np.ndarray, emd: float, lr: float, steps: int
) -> dict[str, tuple[float, float, float]]:
    """Return both sides, and M, of what Section 2.3 states about two clients."""
    M = steepest(start, *pair)
    means = [gradients(start, sample).mean(axis=0) for sample in pair]
    apart = float(np.linalg.norm(means[0] - means[1]))
    found = {"Theorem 2.4": (apart, M * emd, M)}
    for name, number in (("Corollary 2.5", 1), ("Corollary 2.5, several steps", steps)):
        ends = [descended(start, sample, lr, number) for sample in pair]
        left = float(np.linalg.norm(ends[0] - ends[1]))
        found[name] = left, lr * M * emd, M
    return found


def projected(
    points: np.ndarray, shares: Sequence[float], repeats: int = 10, seed: int = 0
) -> pd.DataFrame:
    """Project points at random and compare their squared distances (Lemma A.4).

    Returns a DataFrame, one row per share of the dimensions that is kept: ``share``,
    ``dimensions`` k, ``off`` (largest relative change of a squared distance, mean over
    the projections), ``needed``: the dimensions that the lemma asks for to keep them so
    near. Points that coincide are left out.
    """
    rng = np.random.default_rng(seed)
    squared = pdist(points, "sqeuclidean")
    there = squared > 0
    dimension = points.shape[1]
    rows = []
    for share in shares:
        k = max(1, round(share * dimension))
        off = []
        for _ in range(repeats):
            matrix = rng.standard_normal((dimension, k)) / np.sqrt(k)
            ratio = pdist(points @ matrix, "sqeuclidean")[there] / squared[there]
            off.append(np.abs(ratio - 1).max())
        row = {"share": share, "dimensions": k, "off": np.mean(off)}
        row["needed"] = dimensions_needed(len(points), min(row["off"], 0.99))
        rows.append(row)
    return pd.DataFrame(rows)


def dimensions_needed(n_points: int, epsilon: float) -> int:
    """Return the dimensions in which n points keep squared distances within epsilon.

    Dasgupta and Gupta's form of the Johnson-Lindenstrauss lemma.
    """
    room = epsilon**2 / 2 - epsilon**3 / 3
    return int(np.ceil(4 * np.log(n_points) / room))
